//! What the fuzz targets do with their bytes.
//!
//! Each function takes any bytes and panics where the library breaks a promise. The fuzz
//! targets under `fuzz/` call them with a fuzzer's bytes, the tests of this crate with a few
//! thousand random ones.

mod damage;

use warpalloc::check::check;
use warpalloc::check::trace::{self, Limits};
use warpalloc::function::Function;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::text::{self, Allocated, Case};
use warpalloc::{Allocation, Options, Strategy, allocate};

/// Options that may be on or off without harm.
const SWITCHES: [&str; 7] = [
    "schedule",
    "split",
    "finish",
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
