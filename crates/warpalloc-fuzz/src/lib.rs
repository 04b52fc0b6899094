//! What the fuzz targets do with their bytes.
//!
//! Each function takes any bytes and panics where the library breaks a promise. The fuzz
//! targets under `fuzz/` call them with a fuzzer's bytes, the tests of this crate with a few
//! thousand random ones.

pub mod damage;
pub mod image;
mod ptx;

pub use ptx::{alloc as ptx_alloc, parse as ptx_parse};

use warpalloc::check::check;
use warpalloc::check::trace::{self, Limits};
use warpalloc::function::Function;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::text::{self, Allocated, Case};
use warpalloc::{Allocation, Options, Strategy, allocate};
use warpalloc_sass::measure;
use warpalloc_sass::object::{self, Change, Container, Cubin, NewCode, Rewriter, demangle};

/// Options that may be on or off without harm.
const SWITCHES: [&str; 7] = [
    "schedule",
    "split",
    "cleanup",
    "optimistic-coalescing",
    "lazy-reload",
    "rematerialise",
    "join-globalcopies",
];

/// Instructions a generated function has at most, about.
const MAX_INSTS: usize = 60;

/// Text never makes the parser panic, and what parses prints back to itself.
///
/// Bytes that start with an even one are text as they are. Others generate a function and
/// damage its text, so that parsing gets further than its first line.
pub fn text(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    if first % 2 == 0 {
        return parses_back(&String::from_utf8_lossy(rest));
    }
    let mut rng = Rng::from_bytes(rest);
    let text = case(&mut rng).to_string();
    parses_back(&text);
    parses_back(&damage::text(&text, &mut rng));
}

fn parses_back(text: &str) {
    let Ok(case) = text::parse(text) else {
        return;
    };
    let printed = case.to_string();
    match text::parse(&printed) {
        Ok(back) => {
            assert!(back == case, "it comes back as something else:\n{printed}");
            assert_eq!(back.to_string(), printed);
        }
        Err(error) => panic!("it does not parse back: {error}\n{printed}"),
    }
    // Whatever a text says, the validator has an answer; what it accepts, `allocate`
    // proves or refuses.
    if case.function.validate(&case.target).is_ok() && case.function.inst_count() < 1000 {
        let _ = allocate(&case.function, &case.target, &case.options);
    }
}

/// Nothing in a file with machine code makes its reader panic.
///
/// By the first byte, the rest is a file as it is, the code of a kernel in a sound cubin, or
/// says where to damage a sound file.
pub fn cubin(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let mut parts = image::cubin_parts();
    match first % 3 {
        0 => reads(rest),
        1 => {
            let code = &mut parts[0];
            code.data = rest.to_vec();
            code.size = rest.len() as u64;
            // Every architecture whose code is read, and one that isn't.
            const ARCHES: [u32; 4] = [75, 80, 90, 100];
            let arch = ARCHES[usize::from(first / 3) % ARCHES.len()];
            reads(&image::elf(190, 8, 0x0600_0004 | arch << 8, &parts));
        }
        _ => {
            let mut rng = Rng::from_bytes(rest);
            let sound = image::cubin();
            let mut file = match rng.below(3) {
                0 => sound,
                1 => image::fatbin(&[image::entry(2, 90, 0x11, &sound, 0)]),
                _ => {
                    let fatbin = image::fatbin(&[image::entry(2, 90, 0x11, &sound, 0)]);
                    image::elf(62, 0, 0, &[image::part(".nv_fatbin", 1, 0, fatbin)])
                }
            };
            damage::bytes(&mut file, &mut rng);
            reads(&file);
        }
    }
}

/// Reads all there is to read in `file`.
pub fn reads(file: &[u8]) {
    let Ok(container) = Container::read(file) else {
        return;
    };
    for image in container.images() {
        let packed = container.bytes(image).unwrap_or_default();
        let Ok(content) = image.unpack(packed) else {
            continue;
        };
        let Ok(cubin) = Cubin::read(&content) else {
            continue;
        };
        let tables = [cubin.source_lines(), cubin.ptx_lines()];
        for function in &cubin.functions {
            let _ = (function.block_threads(), function.parameters());
            let _ = (demangle(function.name), measure(&cubin, function));
            for lines in tables.iter().flatten() {
                let _ = lines.find(function.section, 16);
            }
            grows(&content, function);
        }
        let unchanged = Rewriter::new(&content).and_then(|rewriter| rewriter.finish());
        assert!(
            unchanged.is_ok_and(|out| out == *content),
            "changed by writing"
        );
    }
}

/// Puts four words of zeros before a function's code: that is refused, or reads back.
fn grows(cubin: &[u8], function: &object::Function) {
    let count = function.code.len() / 16;
    let places: Vec<usize> = (0..=count).map(|index| 64 + 16 * index).collect();
    let code = NewCode {
        bytes: [&[0; 64], function.code].concat(),
        instructions: places.clone(),
        targets: places,
    };
    let change = Change {
        code: Some(code),
        registers: Some(77),
        shared_bytes: Some(1024),
        ..Change::default()
    };
    let _ = Rewriter::new(cubin).and_then(|mut rewriter| {
        rewriter.change(function.name, change)?;
        rewriter.finish()
    });
}

/// The naive allocator succeeds on whatever the generator makes; its result is proved and
/// runs like the original.
pub fn naive(data: &[u8]) {
    succeeds(Strategy::Naive, data);
}

/// So does graph colouring, whichever of its choices are turned off.
pub fn briggs(data: &[u8]) {
    succeeds(Strategy::Briggs, data);
}

/// So does the fat-point allocator.
pub fn fatpoint(data: &[u8]) {
    succeeds(Strategy::Fatpoint, data);
}

/// So does spilling by next use.
pub fn scan(data: &[u8]) {
    succeeds(Strategy::Scan, data);
}

fn succeeds(strategy: Strategy, data: &[u8]) {
    let mut rng = Rng::from_bytes(data);
    let mut case = case(&mut rng);
    case.options.strategy = strategy;
    for name in SWITCHES {
        if rng.one_in(4) {
            let known = case.options.set(name, "false");
            assert_eq!(known, Ok(()), "`{name}` is no option");
        }
    }
    match allocate(&case.function, &case.target, &case.options) {
        Ok(allocation) => runs_alike(&case, &allocation),
        Err(error) => panic!("{error}\n{case}"),
    }
}

/// The checker never panics on a damaged allocation, and never accepts one that runs unlike
/// the original.
pub fn checker(data: &[u8]) {
    let mut rng = Rng::from_bytes(data);
    let case = case(&mut rng);
    let Case {
        target,
        options,
        function,
    } = &case;
    let Ok(mut allocation) = allocate(function, target, options) else {
        return;
    };
    for _ in 0..rng.within(1..=3) {
        damage::allocation(function, target, &mut allocation, &mut rng);
    }
    if check(function, target, &allocation).is_ok() {
        runs_alike(&case, &allocation);
    }
}

/// Panics unless the allocated function runs like the original on a few paths.
fn runs_alike(case: &Case, allocation: &Allocation) {
    let Case {
        target, function, ..
    } = case;
    for seed in 0..3 {
        let limits = Limits { blocks: 64 };
        if let Err(difference) = trace::compare(function, target, allocation, limits, seed) {
            let shown = Allocated {
                function,
                target,
                allocation,
            };
            panic!("{difference}\n{case}\n{shown}");
        }
    }
}

/// A random function for a random target.
fn case(rng: &mut Rng) -> Case {
    let target = target(rng);
    let shape = Shape::random(MAX_INSTS, rng);
    let function: Function = generate::function(&shape, &target, rng);
    let options = Options {
        strategy: Strategy::Naive,
        ..Options::default()
    };
    Case {
        target,
        options,
        function,
    }
}

/// Any preset at any budget from four registers on.
fn target(rng: &mut Rng) -> Target {
    let target = match rng.below(4) {
        0 => Target::cicc(),
        1 => Target::preset("hardware-packed", 80).unwrap_or_else(|_| Target::cicc()),
        _ => Target::preset("hardware", 90).unwrap_or_else(|_| Target::cicc()),
    };
    let most = match rng.below(4) {
        0 => 6,
        1 => 16,
        2 => 40,
        _ => 255,
    };
    let registers = rng.within(4..=most);
    target.with_budget(File::R, registers)
}
