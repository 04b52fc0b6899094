//! What allocations come to, over many functions: tables that show every change of a result.
//!
//! A file of `tests/tables` has a row for each kind of function, target, budget and strategy.
//! Its figures are sums over the functions of a row. Those that a person can weigh come first;
//! the last one is a hash of the whole allocations, so that a result which differs shows even
//! where no figure does. Functions are those of `tests/filetests`, and generated ones of fixed
//! seeds and of every shape. `chosen` has a row for each of some functions that show what no other
//! does: `bench/mutate.py --hunt` finds them by their seeds, which may be added to the table.
//!
//! `WARPALLOC_UPDATE=1 cargo test -p warpalloc --test tables` writes what comes out into the
//! files; the difference is for a person to read.

#[path = "../examples/targets/amd.rs"]
mod amd;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};
use warpalloc::cycles::AddedCycles;
use warpalloc::function::Function;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, PReg, Target};
use warpalloc::text::Allocated;
use warpalloc::{Allocation, Options, Strategy, allocate, text};

/// The strategies that colour; `naive` uses no registers that are worth a row.
const COLOURERS: [Strategy; 3] = [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan];

/// What several allocations come to together.
#[derive(Default)]
struct Figures {
    registers: usize,
    moves: u32,
    stores: u32,
    reloads: u32,
    recomputes: u32,
    cycles: f64,
    frame: u32,
    rounds: u32,
    colourings: u32,
    edge_visits: u64,
    fell_back: u32,
    refused: u32,
    /// Everything that comes out, and what else was counted.
    whole: String,
}

impl Figures {
    fn add(&mut self, function: &Function, target: &Target, options: &Options) {
        match allocate(function, target, options) {
            Ok(allocation) => self.add_allocation(function, target, &allocation),
            Err(error) => {
                self.refused += 1;
                self.whole += &error.to_string();
            }
        }
    }

    fn add_allocation(&mut self, function: &Function, target: &Target, allocation: &Allocation) {
        let touched = allocation.touched(function, target);
        let main = target.file(File::MAIN);
        let is_touched = |unit: &usize| {
            let reg = PReg::new(File::MAIN, *unit);
            touched.contains(target.unit(reg))
        };
        let highest = (0..main.units).rev().find(is_touched);
        self.registers += highest.map_or(0, |unit| unit / main.units_per_reg + 1);
        let edits = allocation.edits.counts();
        self.moves += edits.moves;
        self.stores += edits.stores;
        self.reloads += edits.reloads;
        self.recomputes += edits.recomputes;
        self.cycles += AddedCycles::of(function, target).net(allocation);
        self.frame += allocation.frame.local + allocation.frame.shared;
        let stats = &allocation.stats;
        self.rounds += stats.iterations;
        self.colourings += stats.colourings;
        self.edge_visits += stats.edge_visits;
        self.fell_back += u32::from(stats.fell_back);
        let shown = Allocated {
            function,
            target,
            allocation,
        };
        let counts = [
            stats.values,
            stats.spilled,
            stats.rematerialised,
            stats.hoisted,
            stats.copies,
            stats.coalesced,
            stats.merges,
            stats.undone,
            stats.shared_slot_bytes,
            stats.compacted_bytes,
            stats.live_through_calls,
        ];
        let _ = write!(self.whole, "{shown}{counts:?}{:?}", stats.graph);
    }
}

/// The names of the columns that [`Figures`] shows.
const FIGURES: &str =
    "regs moves stores reloads again  cycles frame rounds colourings  visits hash";

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:>4} {:>5} {:>6} {:>7} {:>5} {:>7.1} {:>5} {:>6} {:>10} {:>7} {:08x}",
            self.registers,
            self.moves,
            self.stores,
            self.reloads,
            self.recomputes,
            self.cycles,
            self.frame,
            self.rounds,
            self.colourings,
            self.edge_visits,
            fnv(&self.whole)
        )?;
        let notes = [(self.fell_back, "fell back"), (self.refused, "refused")];
        let mut notes = notes.into_iter().filter(|&(count, _)| count > 0);
        notes.try_for_each(|(count, note)| write!(f, " {count} {note}"))
    }
}

/// The hash of Fowler, Noll and Vo: the same on every machine and with every compiler.
fn fnv(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, step)
}

/// The row called `name`: what `strategy` makes of `functions` with options by name, with a space
/// between two.
fn row(
    name: &str,
    functions: &[Function],
    target: &Target,
    strategy: Strategy,
    settings: &str,
) -> String {
    let mut options = Options::with_strategy(strategy);
    for setting in settings.split_whitespace() {
        let (name, value) = setting.split_once('=').expect("NAME=VALUE");
        options.set(name, value).expect("an option and its value");
    }
    let mut figures = Figures::default();
    for function in functions {
        figures.add(function, target, &options);
    }
    let budget = target.budget(File::MAIN);
    format!("{name:46} {budget:>3} {:8} {figures}", strategy.name())
}

/// A row for every strategy and target.
fn rows(name: &str, functions: &[Function], targets: &[Target]) -> Vec<String> {
    let of = |target| COLOURERS.map(|strategy| row(name, functions, target, strategy, ""));
    targets.iter().flat_map(of).collect()
}

fn table(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables");
    folder.join(name).with_extension("txt")
}

/// Compares `rows` with the table called `name`, or rewrites it.
fn compare(name: &str, rows: impl Iterator<Item = String>) {
    let path = table(name);
    let head = format!("{name:46}   R strategy {FIGURES}");
    let mut rows = std::iter::once(head.clone()).chain(rows);
    if env::var_os("WARPALLOC_UPDATE").is_some() {
        let text: String = rows.map(|row| row + "\n").collect();
        fs::write(&path, text).unwrap();
        return;
    }
    let table = fs::read_to_string(&path).unwrap();
    let mut table = table.lines();
    loop {
        let (is, now) = (table.next(), rows.next());
        if is.is_none() && now.is_none() {
            return;
        }
        let [is, now] = [is, now.as_deref()].map(|row| row.unwrap_or("(the end)"));
        assert!(
            is == now,
            "{name}.txt; WARPALLOC_UPDATE=1 rewrites it\n       {head}\ntable: {is}\nnow:   {now}"
        );
    }
}

fn hardware(budget: usize) -> Target {
    let target = Target::hardware(90).unwrap();
    target.with_budget(File::R, budget)
}

#[test]
fn functions_of_file_tests_come_to_what_the_table_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let entries = fs::read_dir(&folder).expect("the folder of file tests");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let contents = files
        .iter()
        .map(|path| (path, fs::read_to_string(path).unwrap()));
    let of_hardware = contents.filter(|(_, content)| !content.contains("preset=amd"));
    let all = of_hardware.flat_map(|(path, content)| {
        let end = content.find("\n---- ").map_or(content.len(), |at| at + 1);
        let case = text::parse(&format!("target hardware sm_90\n{}", &content[..end])).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy();
        rows(&name, &[case.function], &[4, 6, 9, 255].map(hardware))
    });
    compare("written", all);
}

/// Shapes by what each has more than the plain one.
fn shapes() -> Vec<(&'static str, Shape)> {
    let plain = || Shape {
        insts: 90,
        blocks: 9,
        pressure: 26,
        loop_depth: 2,
        predicates: true,
        ..Shape::straight(90)
    };
    macro_rules! with {
        ($name:literal, $($field:ident: $value:expr),*) => {
            ($name, Shape { $($field: $value,)* ..plain() })
        };
    }
    let straight = Shape {
        pressure: 26,
        ..Shape::straight(80)
    };
    let everything = Shape {
        pressure: 30,
        ..Shape::everything()
    };
    vec![
        ("everything", everything),
        ("typical", Shape::typical()),
        ("straight", straight),
        ("loops", plain()),
        with!("irreducible", irreducible: true),
        with!("wide", wide: true, copies: true),
        with!("groups", wide: true, groups: true),
        with!("ties", ties: true, wide: true),
        with!("guards", guards: true, copies: true),
        with!("calls", calls: true),
        with!("fixed", fixed: true, copies: true),
        with!("parameters", params: true, copies: true),
        with!("uniform", uniform: true),
        with!("copies", copies: true, remat: false),
        with!("early definitions", early_defs: true, except: true),
        with!("frequencies", frequencies: true, loop_depth: 3),
        with!("device functions", device: true, calls: true, copies: true),
        with!("in flight", pinned: true, fixed: true, except: true, pressure: 44),
    ]
}

/// Functions of a shape that have no more than the registers of `target` at once.
fn generated(shape: &Shape, target: &Target, count: u64) -> Vec<Function> {
    let one = |seed| generate::function(shape, target, &mut Rng::new(seed));
    (1..=count).map(one).collect()
}

#[test]
fn generated_functions_come_to_what_the_table_says() {
    let all = shapes().into_iter().flat_map(|(name, shape)| {
        let budgets = match shape.pinned {
            true => [40, 48, 64],
            false => [12, 20, 32],
        };
        let targets = budgets.map(hardware);
        rows(name, &generated(&shape, &targets[0], 8), &targets)
    });
    compare("generated", all);
}

#[test]
fn targets_come_to_what_the_table_says() {
    let packed = |budget| {
        let target = Target::hardware_packed(80).unwrap();
        target.with_budget(File::R, budget)
    };
    let targets = [
        Target::cicc().with_budget(File::R, 8),
        Target::cicc(),
        packed(18),
        packed(40),
        Target::hardware(86).unwrap().with_budget(File::R, 24),
        Target::hardware(120).unwrap().with_budget(File::R, 24),
        amd::target(40).unwrap(),
        amd::target(72).unwrap(),
    ];
    let all = targets.iter().flat_map(|target| {
        let one = |seed| {
            let mut rng = Rng::new(seed);
            let shape = Shape {
                pressure: 10 + target.budget(File::MAIN),
                ..Shape::random(110, &mut rng)
            };
            generate::function(&shape, target, &mut rng)
        };
        let functions: Vec<Function> = (1..=12).map(one).collect();
        rows(target.name(), &functions, std::slice::from_ref(target))
    });
    compare("targets", all);
}

/// Settings, and the strategies that they steer.
const SETTINGS: [(&[Strategy], &[&str]); 3] = [
    (
        &COLOURERS,
        &[
            "cleanup=false",
            "schedule=false",
            "split=false",
            "shrink=false",
            "spill=shared",
            "frame-base=2",
            "schedule=false split=false",
        ],
    ),
    (
        &[Strategy::Briggs],
        &[
            "optimistic-coalescing=false",
            "disable-coalescing=true",
            "coalescing-limit=5",
            "join-globalcopies=false",
            "join-physregs=false",
            "join-liveintervals=false",
            "lazy-reload=false",
            "rematerialise=false",
            "pressure-limit=1",
            "pressure-limit=0.5",
        ],
    ),
    (
        &[Strategy::Fatpoint],
        &[
            "HoistInvariantsPolicy=always",
            "HoistInvariantsPolicy=never",
            "RegAllocCoalesceMaxDepth=2",
            "RegAllocCoalesceMaxFanout=3",
            "RegAllocCoalescing=false",
            "RegAllocSmemSpill=true",
            "RegAllocEstimatedLoopIterations=3",
            "RegAllocBankAware=true",
            "RegAllocMacForce=true",
            "RegAllocPrefMacOperands=3",
            "RegAllocBudgetLimitSecondary=10",
            "RegAllocSpillInstructionCount=2",
            "RegAllocPrecolorReuse=false",
            "RegAllocNoRetargetPrefs=true",
            "RegAllocNumNonSpillTrials=1",
            "RegAllocAbi=false",
            "RegAllocEpochAware=false",
            "RegTgtBudgetCoefficientA=2",
            "RegTgtBudgetCoefficientC=0.9",
            "RegAllocRematThreshold=3",
            "RegAllocSpillCostThreshold=10",
            "RegAllocSpillBuckets=true",
        ],
    ),
];

#[test]
fn settings_come_to_what_the_table_says() {
    let target = hardware(16);
    let typical = Shape {
        insts: 80,
        ..Shape::typical()
    };
    let everything = Shape {
        insts: 80,
        pressure: 24,
        ..Shape::everything()
    };
    let mut functions = generated(&typical, &target, 2);
    functions.extend(generated(&everything, &target, 2));
    let all = SETTINGS.iter().flat_map(|(strategies, settings)| {
        let all = settings.iter().flat_map(|settings| {
            let one = |strategy| row(settings, &functions, &target, strategy, settings);
            strategies.iter().copied().map(one)
        });
        all.collect::<Vec<_>>()
    });
    compare("settings", all);
}

/// The row of a function, target, strategy and settings that follow from `seed`.
fn chosen(seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let target = match rng.below(8) {
        0 => Target::cicc(),
        1 => Target::hardware_packed(80).unwrap(),
        2 => amd::target(40 + rng.below(60)).unwrap(),
        3 => Target::hardware(86).unwrap(),
        _ => Target::hardware(90).unwrap(),
    };
    let target = match target.name() {
        "amd" | "cicc" => target,
        _ => target.with_budget(File::R, 6 + rng.below(36)),
    };
    let insts = [60, 150, 300][rng.below(3)];
    let shape = Shape {
        pressure: 2 + rng.below(2 * target.budget(File::MAIN)),
        ..Shape::random(insts, &mut rng)
    };
    let strategy = COLOURERS[rng.below(COLOURERS.len())];
    let known = SETTINGS
        .iter()
        .filter(|(strategies, _)| strategies.contains(&strategy));
    let known: Vec<&str> = known.flat_map(|(_, known)| known.iter().copied()).collect();
    let settings = match rng.one_in(2) {
        true => known[rng.below(known.len())],
        false => "",
    };
    let function = generate::function(&shape, &target, &mut rng);
    let name = format!("{seed} {} {settings}", target.name());
    row(&name, &[function], &target, strategy, settings)
}

#[test]
fn chosen_functions_come_to_what_the_table_says() {
    let table = fs::read_to_string(table("chosen")).unwrap();
    let seeds = table.lines().skip(1);
    let seeds = seeds.map(|row| row.split_whitespace().next().unwrap().parse().unwrap());
    compare("chosen", seeds.map(chosen));
}

/// Rows to choose from: `WARPALLOC_SEEDS=FIRST,COUNT`.
#[test]
#[ignore = "prints rows of seeds for bench/mutate.py"]
fn rows_of_seeds() {
    let asked = env::var("WARPALLOC_SEEDS").expect("FIRST,COUNT");
    let (first, count) = asked.split_once(',').expect("FIRST,COUNT");
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    (first..first + count).for_each(|seed| println!("{}", chosen(seed)));
}
