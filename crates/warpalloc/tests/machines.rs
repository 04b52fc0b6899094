//! Machines that are not NVIDIA's: random functions proved and executed, and what machines
//! cannot do.

#[path = "../examples/targets/amd.rs"]
mod amd;
#[path = "../examples/targets/risc.rs"]
mod risc;

use warpalloc::allocation::Edit;
use warpalloc::check::check;
use warpalloc::check::trace::{self, Limits};
use warpalloc::function::{Builder, Effect, Function, VReg};
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, FileInfo, MovePath, Target};
use warpalloc::{Allocation, Options, Strategy, allocate, text};

/// What a campaign came to.
#[derive(Debug, Default)]
struct Tally {
    functions: usize,
    fell_back: usize,
    /// By width, how many functions have tuples of the main file of that width.
    tuples: Vec<usize>,
}

/// Allocates random functions for one of `targets` with every strategy, proves and runs them.
fn campaign(targets: &[Target], seeds: std::ops::Range<u64>, insts: usize) -> Tally {
    let mut tally = Tally {
        tuples: vec![0; 65],
        ..Tally::default()
    };
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let shape = Shape::random(insts, &mut rng);
        let target = &targets[rng.below(targets.len())];
        let function = generate::function(&shape, target, &mut rng);
        let mut widths: Vec<usize> = function
            .vregs()
            .map(|vreg| target.class(function.vreg(vreg).class))
            .filter(|class| class.file == File::MAIN)
            .map(|class| class.width)
            .collect();
        widths.sort_unstable();
        widths.dedup();
        widths.iter().for_each(|&width| tally.tuples[width] += 1);
        for strategy in Strategy::ALL {
            let options = Options {
                cleanup: seed % 2 == 0,
                early_reloads: (seed / 2 % 3 * 8) as u32,
                ..Options::with_strategy(strategy)
            };
            let name = target.name();
            let allocation = allocate(&function, target, &options)
                .unwrap_or_else(|error| panic!("{name}, seed {seed}, {strategy}: {error}"));
            let same = trace::compare(&function, target, &allocation, Limits::default(), seed);
            assert!(same.is_ok(), "{name}, seed {seed}, {strategy}: {same:?}");
            tally.functions += 1;
            tally.fell_back += usize::from(allocation.stats.fell_back);
        }
    }
    tally
}

fn amd_machines() -> Vec<Target> {
    let budgets = [40, 48, 64, 72, 96, 128, 256];
    budgets.map(|n| amd::target(n).unwrap()).to_vec()
}

fn risc_machines() -> Vec<Target> {
    let whole = || risc::target().unwrap();
    vec![whole(), whole().with_budget(File::MAIN, 16)]
}

#[test]
fn random_functions_with_tuples_of_1_to_32_registers_are_proved_and_run_alike() {
    let tally = campaign(&amd_machines(), 0..200, 100);
    println!("{tally:?}");
    for width in amd::WIDTHS {
        assert!(tally.tuples[width] > 0, "no tuple of {width} registers");
    }
    assert!(tally.fell_back * 50 <= tally.functions, "{tally:?}");
}

#[test]
fn random_functions_for_a_small_risc_are_proved_and_run_alike() {
    let tally = campaign(&risc_machines(), 0..200, 100);
    println!("{tally:?}");
    assert!(tally.fell_back * 50 <= tally.functions, "{tally:?}");
}

/// A long run: `MACHINES=FUNCTIONS,SEED cargo test --release --test machines -- --ignored`.
#[test]
#[ignore = "a campaign of MACHINES functions"]
fn as_many_random_functions_as_asked_for() {
    let asked = std::env::var("MACHINES").unwrap_or_else(|_| "2000,1000000".to_owned());
    let (count, seed) = asked.split_once(',').expect("FUNCTIONS,SEED");
    let (count, seed): (u64, u64) = (count.parse().unwrap(), seed.parse().unwrap());
    for machines in [amd_machines(), risc_machines()] {
        let tally = campaign(&machines, seed..seed + count, 100);
        let Tally {
            functions,
            fell_back,
            ..
        } = tally;
        let name = machines[0].name();
        println!("{name}: {functions} proved and executed, {fell_back} by the fallback");
    }
}

#[test]
fn a_tuple_that_the_budget_cannot_hold_is_refused_with_the_reason() {
    let target = amd::target(16).unwrap();
    let class = target.class_named("v32").unwrap();
    let mut b = Builder::new("f");
    let block = b.block();
    let x = b.vreg(class);
    b.inst(block, "load").def(x).effect(Effect::Read);
    b.inst(block, "store").use_(x).effect(Effect::Write);
    b.exit(block, "exit");
    let function = b.finish();
    for strategy in Strategy::ALL {
        let options = Options::with_strategy(strategy);
        let error = allocate(&function, &target, &options).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot allocate: block0, inst0: v0:v32 needs 32 registers of v, the budget is 16; \
             raise the budget of v to at least 32"
        );
    }
}

/// A loop that exchanges the values of `count` fixed registers in a circle each time round,
/// beside `others` values that live through it.
fn rotation(target: &Target, file: File, class: &str, count: usize, others: usize) -> Function {
    let class = target.class_named(class).unwrap();
    let mut b = Builder::new("rotate");
    let (entry, body, end) = (b.block(), b.block(), b.block());
    let define = |b: &mut Builder, number: usize| {
        let vreg = b.vreg(class);
        let inst = b.inst(entry, "load").imm(number as u64);
        inst.def(vreg).effect(Effect::Read);
        vreg
    };
    let kept: Vec<VReg> = (0..others).map(|n| define(&mut b, 100 + n)).collect();
    let first: Vec<VReg> = (0..count).map(|n| define(&mut b, n)).collect();
    let params: Vec<VReg> = (0..count).map(|_| b.vreg(class)).collect();
    params.iter().for_each(|&p| b.param(body, p));
    b.jump(entry, body, &first);
    let regs = (0..count).map(|n| warpalloc::target::PReg::new(file, n));
    let inst = b.inst(body, "look").effect(Effect::Write);
    let pairs = params.iter().zip(regs);
    pairs.fold(inst, |inst, (&p, reg)| inst.use_fixed(p, reg));
    let turned: Vec<VReg> = (0..count).map(|n| params[(n + 1) % count]).collect();
    b.edge(body, body, &turned);
    b.edge(body, end, &[]);
    b.branch(body, "loop").effect(Effect::Read);
    for &vreg in params.iter().chain(&kept) {
        b.inst(end, "store").use_(vreg).effect(Effect::Write);
    }
    b.exit(end, "exit");
    b.finish()
}

/// Proved and executed, and neither an exchange nor a copy where the machine has none.
fn proved(function: &Function, target: &Target, strategy: Strategy) -> Allocation {
    let options = Options::with_strategy(strategy);
    let allocation = allocate(function, target, &options).unwrap();
    check(function, target, &allocation).unwrap();
    for seed in 0..4 {
        let same = trace::compare(function, target, &allocation, Limits::default(), seed);
        assert!(same.is_ok(), "{strategy}: {same:?}");
    }
    for (_, edit) in allocation.edits.iter() {
        let moves = match *edit {
            Edit::Swap { a, .. } => target.file(a.file).moves == MovePath::Swap,
            Edit::Move { to, .. } => !matches!(target.file(to.file).moves, MovePath::Via(_)),
            _ => true,
        };
        assert!(moves, "{strategy}: {edit:?}");
    }
    allocation
}

/// Damages the code that stands in for exchanges and copies. Whatever runs differently, or
/// is no code of the machine, the checker refuses.
#[test]
fn the_checker_catches_damaged_moves() {
    let machines = [amd_machines(), risc_machines()].concat();
    let (mut caught, mut harmless, mut impossible) = (0, 0, 0);
    for seed in 0..120 {
        let mut rng = Rng::new(seed);
        let shape = Shape::random(60, &mut rng);
        let target = &machines[rng.below(machines.len())];
        let function = generate::function(&shape, target, &mut rng);
        let options = Options::with_strategy(CLEVER[rng.below(3)]);
        let allocation = allocate(&function, target, &options).unwrap();
        let edits: Vec<_> = allocation
            .edits
            .iter()
            .map(|(p, e)| (p, e.clone()))
            .collect();
        for _ in 0..8.min(edits.len()) {
            let mut damaged = edits.clone();
            let at = rng.below(damaged.len());
            let width = |n: u8| n.saturating_sub(1).max(1);
            let is_impossible = match &mut damaged[at].1 {
                Edit::Move { to, from, width } if rng.one_in(2) => {
                    let (a, b, width) = (*to, *from, *width);
                    damaged[at].1 = Edit::Swap { a, b, width };
                    true
                }
                Edit::Transfer { to, from, regs } if rng.one_in(2) => {
                    let (to, from, width) = (*to, *from, *regs);
                    damaged[at].1 = Edit::Move { to, from, width };
                    true
                }
                Edit::Move { to, .. } | Edit::Transfer { to, .. } | Edit::Reload { to, .. } => {
                    *to = to.offset(1);
                    false
                }
                Edit::Store { from, width: w, .. } => {
                    *from = from.offset(1);
                    *w = width(*w);
                    false
                }
                _ => {
                    damaged.remove(at);
                    false
                }
            };
            let mut mutant = allocation.clone();
            mutant.edits = warpalloc::allocation::Edits::new(&function, damaged);
            let refused = check(&function, target, &mutant).is_err();
            assert!(refused || !is_impossible, "seed {seed}");
            let differs = (0..4).any(|run| {
                trace::compare(&function, target, &mutant, Limits::default(), run).is_err()
            });
            assert!(refused || !differs, "seed {seed}");
            impossible += usize::from(is_impossible);
            match refused {
                true => caught += 1,
                false => harmless += 1,
            }
        }
    }
    println!("{caught} caught, {impossible} of them impossible, {harmless} harmless");
    assert!(
        caught > 100 && impossible > 20,
        "{caught}, {impossible}, {harmless}"
    );
}

#[test]
fn a_value_is_where_the_client_would_like_it_to_be() {
    let target = risc::target().unwrap();
    let text = "target risc x=32
        kernel f {
        block0:
            v0:int.hint_x28 = load : read
            v1:int.hint_x28 = load #1 : read
            v2:float.hint_f9 = load #2 : read
            store v0, v1, v2 : write
            exit : exit write
        }";
    let case = text::parse_for(text, std::slice::from_ref(&target)).unwrap();
    assert_eq!(
        text::parse_for(&case.to_string(), &[target]).unwrap(),
        case,
        "it prints and parses"
    );
    for strategy in CLEVER {
        let allocation = proved(&case.function, &case.target, strategy);
        let store = case.function.insts().nth(3).unwrap();
        let regs = allocation.operands(&case.function, store);
        let names: Vec<String> = regs
            .iter()
            .map(|&reg| case.target.reg_name(reg).to_string())
            .collect();
        let wanted = names[..2].iter().filter(|name| *name == "x28").count();
        assert_eq!((wanted, &*names[2]), (1, "f9"), "{strategy}: {names:?}");
    }
    let wrong = text.replace("hint_f9", "hint_x9");
    let case = text::parse_for(&wrong, &[risc::target().unwrap()]).unwrap();
    let error = allocate(&case.function, &case.target, &Options::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid function: function: v2 is hinted to x9, where no float starts"
    );
}

const CLEVER: [Strategy; 3] = [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan];

#[test]
fn a_cycle_goes_through_a_register_that_is_free() {
    let mut machine = Target::builder("plain");
    let r = machine.file(FileInfo::new("r", 8).moves(MovePath::Move));
    machine.class("word", r, 1, 1);
    let small = machine.finish().unwrap();
    let function = rotation(&small, r, "word", 3, 0);
    for strategy in CLEVER {
        let allocation = proved(&function, &small, strategy);
        assert_eq!(allocation.frame.local, 0, "{strategy}");
    }
}

#[test]
fn a_cycle_goes_through_memory_where_no_register_is_free() {
    let mut machine = Target::builder("full");
    let r = machine.file(FileInfo::new("r", 4).moves(MovePath::Move));
    machine.class("word", r, 1, 1);
    let target = machine.finish().unwrap();
    let function = rotation(&target, r, "word", 4, 0);
    let mut through_memory = 0;
    for strategy in CLEVER {
        let allocation = proved(&function, &target, strategy);
        through_memory += usize::from(allocation.frame.local > 0);
    }
    assert!(through_memory > 0);
}

/// Four accumulators change places, and every vector register is taken.
#[test]
fn accumulators_move_by_way_of_vector_registers() {
    for vectors in [1, 2, 8] {
        let mut machine = Target::builder("tight");
        let v = machine.file(FileInfo::new("v", vectors).moves(MovePath::Move));
        let a = FileInfo::new("a", 4).spills_via(v).moves(MovePath::Via(v));
        let a = machine.file(a);
        machine.class("word", v, 1, 1);
        machine.class("sum", a, 1, 1);
        let target = machine.finish().unwrap();
        let function = rotation(&target, a, "sum", 4, 0);
        for strategy in CLEVER {
            let allocation = proved(&function, &target, strategy);
            let transfers = allocation.edits.iter();
            let transfers = transfers.filter(|(_, edit)| matches!(edit, Edit::Transfer { .. }));
            assert!(transfers.count() > 0, "{strategy}");
        }
    }
}

#[test]
fn a_register_that_is_reserved_or_beyond_a_preferred_one_is_left_alone() {
    let target = risc::target().unwrap();
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..3).map(|_| b.vreg(risc::INT)).collect();
    for &v in &values {
        b.inst(block, "load").def(v).effect(Effect::Read);
    }
    let sum = b.vreg(risc::FLOAT);
    let inst = b.inst(block, "sum").def(sum);
    values.iter().fold(inst, |inst, &v| inst.use_(v));
    b.inst(block, "store").use_(sum).effect(Effect::Write);
    b.exit(block, "exit");
    let function = b.finish();
    for strategy in CLEVER {
        let allocation = proved(&function, &target, strategy);
        let mut used: Vec<String> = allocation
            .registers
            .iter()
            .map(|&reg| target.reg_name(reg).to_string())
            .collect();
        used.sort();
        used.dedup();
        assert_eq!(used, ["f0", "x10", "x11", "x12"], "{strategy}");
    }
    let sp = target.reg_named("x2").unwrap();
    let mut b = Builder::new("f");
    let block = b.block();
    let x = b.vreg(risc::INT);
    b.inst(block, "load").def_fixed(x, sp).effect(Effect::Read);
    b.exit(block, "exit");
    let error = allocate(&b.finish(), &target, &Options::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid function: block0, inst0: v0 is fixed to x2, which is reserved"
    );
}
