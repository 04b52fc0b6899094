//! Functions that call each other: the convention, arguments and results, proved for each
//! function on its own and executed together in one register file.

use warpalloc::allocation::{Edit, Edits, Point};
use warpalloc::check::trace::{Limits, Module, What};
use warpalloc::check::{Fault, check};
use warpalloc::function::{Builder, Convention, Function, Inst, Kind};
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{Class, File, PReg, Target};
use warpalloc::{Allocation, Error, Options, Strategy, allocate, text};

/// A recursive function of twelve values that live across its call:
/// `f(n) = f(n - 1) + (n + 0) + (n + 1) + … + (n + 11)`, and `f(0) = 1`.
fn twelve_across() -> Function {
    let mut body = String::from(
        "block0:
    v0:r32 @ R0 = entry : livein write
    brz v0 -> block1, block2
block1:
    v1:r32 = const #1
    ret v1 @ R0 : return write
block2:
    v2:r32 = subi v0, #1\n",
    );
    for i in 0..12 {
        body += &format!("    v{}:r32 = addi v0, #{i}\n", 10 + i);
    }
    body += "    v3:r32 @ R0 = call v2 @ R0 : call write clobbers abi\n";
    for i in 0..12 {
        let sum = if i == 0 { 3 } else { 29 + i };
        body += &format!("    v{}:r32 = add v{sum}, v{}\n", 30 + i, 10 + i);
    }
    body += "    ret v41 @ R0 : return write\n";
    parse(&format!("device f {{\n{body}}}\n"))
}

fn parse(function: &str) -> Function {
    let text = format!("target hardware sm_90 R=64\n{function}");
    let case = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    case.function
}

/// The arithmetic of the opcodes in this file.
fn arithmetic(function: &Function, inst: Inst, inputs: &[u64]) -> Option<u64> {
    let info = function.inst(inst);
    match (function.opcode_name(info.opcode), inputs) {
        ("const", []) => Some(info.imm),
        ("addi", [a]) => Some(a.wrapping_add(info.imm)),
        ("subi", [a]) => Some(a.wrapping_sub(info.imm)),
        ("add", [a, b]) => Some(a.wrapping_add(*b)),
        ("sum", all) => Some(all.iter().sum()),
        ("brz", [a]) => Some(u64::from(*a != 0)),
        _ => None,
    }
}

/// What function 0 returns for `arguments`.
fn value(functions: &[Function], target: &Target, options: &Options, arguments: &[u64]) -> u64 {
    let allocations: Vec<Allocation> = functions
        .iter()
        .map(|f| allocate(f, target, options).unwrap_or_else(|e| panic!("{}: {e}", f.name())))
        .collect();
    let module = Module::new(functions).with_meaning(&arithmetic);
    let limits = Limits { blocks: 1000 };
    let run = module.run_allocated(target, &allocations, 0, arguments, limits, 1);
    let trace = run.unwrap_or_else(|e| panic!("{e}"));
    trace.events.last().unwrap().inputs[0]
}

fn options(strategy: Strategy) -> Options {
    Options {
        strategy,
        ..Options::default()
    }
}

fn hardware(budget: usize) -> Target {
    Target::hardware(90).unwrap().with_budget(File::R, budget)
}

#[test]
fn twelve_values_live_across_a_recursive_call_keep_their_values() {
    let functions = [twelve_across()];
    for strategy in Strategy::ALL {
        for budget in [15, 24, 28, 32, 64, 255] {
            let f = |n| value(&functions, &hardware(budget), &options(strategy), &[n]);
            assert_eq!((f(0), f(1), f(5)), (1, 79, 511), "{strategy:?}, {budget}");
        }
    }
}

#[test]
fn the_knob_of_the_convention_orders_registers_and_breaks_nothing() {
    let functions = [twelve_across()];
    for abi in [false, true] {
        let mut options = options(Strategy::Fatpoint);
        options.knobs.abi = abi;
        assert_eq!(value(&functions, &hardware(64), &options, &[5]), 511);
    }
}

/// Fifteen registers are all clobbered by a call: what lives across it is in memory.
#[test]
fn the_cicc_preset_spills_all_that_lives_across_a_call() {
    let (function, target) = (twelve_across(), Target::cicc());
    let call = call_of(&function);
    for strategy in [Strategy::Briggs, Strategy::Fatpoint] {
        let allocation = allocate(&function, &target, &options(strategy)).unwrap();
        let stored = allocation
            .edits
            .iter()
            .filter_map(|(point, edit)| match edit {
                Edit::Store { to, .. } if point <= Point::Before(call) => Some(to.offset),
                _ => None,
            });
        let stored = stored.collect::<std::collections::BTreeSet<_>>().len();
        assert!(stored >= 12, "{strategy:?}: {stored} slots");
    }
}

fn call_of(function: &Function) -> Inst {
    let mut insts = function.insts();
    insts
        .find(|&i| function.inst(i).kind == Kind::Call)
        .unwrap()
}

/// Eight arguments and twelve constants that are read together are too many for sixteen
/// registers, unless the constants are added up before the arguments come in, which these
/// would not survive.
fn arguments_first(first: &str) -> Function {
    let names: Vec<String> = (0..8).map(|i| format!("v{i}:r32 @ R{i}")).collect();
    let mut body = format!("block0:\n    {} = {first}\n", names.join(", "));
    for i in 0..12 {
        body += &format!("    v{}:r32 = const #{}\n", 10 + i, 100 + i);
    }
    let constants: Vec<String> = (0..12).map(|i| format!("v{}", 10 + i)).collect();
    body += &format!("    v40:r32 = sum {}\n", constants.join(", "));
    for i in 0..8 {
        let sum = if i == 0 { 40 } else { 49 + i };
        body += &format!("    v{}:r32 = add v{sum}, v{i}\n", 50 + i);
    }
    body += "    ret v57 @ R0 : return write\n";
    parse(&format!("device f {{\n{body}}}\n"))
}

#[test]
fn nothing_moves_above_the_arguments() {
    let expected = (100..112).sum::<u64>() + (1..=8).sum::<u64>();
    let arguments: Vec<u64> = (1..=8).collect();
    let function = [arguments_first("entry : livein write")];
    // What a client without live-ins would write: a first instruction with fixed results.
    let older = arguments_first("args : write");
    for strategy in Strategy::ALL {
        let (target, options) = (hardware(16), options(strategy));
        assert_eq!(value(&function, &target, &options, &arguments), expected);
        let allocation = allocate(&older, &target, &options).unwrap();
        let first = allocation.block_insts(&older, older.entry()).next();
        assert_eq!(first, older.insts().next(), "{strategy:?}");
    }
}

#[test]
fn an_order_that_crosses_fixed_registers_is_refused() {
    let target = hardware(64);
    for first in ["entry : livein write", "args : write"] {
        let function = arguments_first(first);
        let mut allocation = allocate(&function, &target, &Options::default()).unwrap();
        let mut order: Vec<Inst> = function.insts().collect();
        order.swap(0, 1);
        allocation.order = Some(order);
        let violation = check(&function, &target, &allocation).unwrap_err();
        assert_eq!(violation.fault, Fault::OrderBarrier, "{first}");
    }
}

/// An allocation of the recursive function with its edits changed.
fn damaged(change: impl FnOnce(&Function, &mut Vec<(Point, Edit)>)) -> (Function, Allocation) {
    let (function, target) = (twelve_across(), hardware(64));
    let mut allocation = allocate(&function, &target, &Options::default()).unwrap();
    let mut edits: Vec<_> = allocation
        .edits
        .iter()
        .map(|(p, e)| (p, e.clone()))
        .collect();
    change(&function, &mut edits);
    allocation.edits = Edits::new(&function, edits);
    (function, allocation)
}

/// What the checker and the executor say of a damaged allocation, which both must refuse.
fn refused((function, allocation): (Function, Allocation)) -> (Fault, What) {
    let target = hardware(64);
    let fault = check(&function, &target, &allocation).unwrap_err().fault;
    let functions = [function];
    let module = Module::new(&functions).with_meaning(&arithmetic);
    let limits = Limits { blocks: 1000 };
    // The function it calls returns at once and writes next to nothing.
    let difference = module.compare(&target, &[allocation], 0, &[1], limits, 1);
    (fault, difference.unwrap_err().what)
}

fn register(number: usize) -> PReg {
    PReg::new(File::R, number)
}

#[test]
fn a_lost_restore_of_a_preserved_register_is_caught() {
    let is_restore = |point: &Point, edit: &Edit| {
        matches!((point, edit), (Point::Before(_), Edit::Reload { to, .. })
            if (24..32).contains(&to.unit))
    };
    let (function, allocation) = damaged(|function, edits| {
        let returns = |inst: Inst| function.inst(inst).kind == Kind::Return;
        let at = edits.iter().rposition(|(point, edit)| {
            is_restore(point, edit) && matches!(point, Point::Before(inst) if returns(*inst))
        });
        edits.remove(at.unwrap());
    });
    let target = hardware(64);
    let fault = check(&function, &target, &allocation).unwrap_err().fault;
    assert!(matches!(fault, Fault::NotPreserved { .. }), "{fault}");
    let functions = [function];
    let module = Module::new(&functions).with_meaning(&arithmetic);
    let limits = Limits { blocks: 1000 };
    let run = module.run_allocated(&target, &[allocation], 0, &[3], limits, 1);
    let what = run.unwrap_err().what;
    assert!(matches!(what, What::NotPreserved { .. }), "{what:?}");
}

#[test]
fn a_value_kept_above_the_preserved_registers_across_a_call_is_caught() {
    let across = register(26);
    let (fault, what) = refused(damaged(|function, edits| {
        let call = call_of(function);
        let (away, width) = (register(40), 1);
        let (to, from) = (away, across);
        edits.push((Point::Before(call), Edit::Move { to, from, width }));
        let (to, from) = (across, away);
        edits.insert(0, (Point::After(call), Edit::Move { to, from, width }));
    }));
    assert!(matches!(fault, Fault::UnknownSource { .. }), "{fault}");
    // The clobbered register holds garbage, which comes to light as the value or at a return.
    assert!(
        matches!(what, What::Input { .. } | What::NotPreserved { .. }),
        "{what:?}"
    );
}

#[test]
fn exchanged_arguments_are_caught() {
    let function = parse(
        "device f {
block0:
    v0:r32 @ R0, v1:r32 @ R1 = entry : livein write
    v2:r32 = first v0
    v3:r32 = second v1, v2
    ret v3 @ R0 : return write
}
",
    );
    let target = hardware(64);
    let sound = allocate(&function, &target, &Options::default()).unwrap();
    let mut swapped = sound.clone();
    let operands = function.operand_range(function.live_in_inst().unwrap());
    swapped.registers[operands].reverse();
    let fault = check(&function, &target, &swapped).unwrap_err().fault;
    assert!(matches!(fault, Fault::Fixed { .. }), "{fault}");
    // Code above the live-in instruction that writes an argument.
    let mut overwritten = sound.clone();
    let above = Point::Before(function.live_in_inst().unwrap());
    let (to, from, width) = (register(1), register(24), 1);
    let mut edits: Vec<_> = sound.edits.iter().map(|(p, e)| (p, e.clone())).collect();
    edits.push((above, Edit::Move { to, from, width }));
    overwritten.edits = Edits::new(&function, edits);
    let fault = check(&function, &target, &overwritten).unwrap_err().fault;
    assert!(matches!(fault, Fault::LiveInOverwritten { .. }), "{fault}");
    let functions = [function];
    let module = Module::new(&functions);
    let difference = module.compare(&target, &[overwritten], 0, &[], Limits::default(), 1);
    let what = difference.unwrap_err().what;
    assert!(matches!(what, What::Input { .. }), "{what:?}");
}

#[test]
fn a_call_that_passes_too_little_is_told() {
    let callee = "device g {
block0:
    v0:r32 @ R0, v1:r32 @ R1 = entry : livein write
    v2:r32 = add v0, v1
    ret v2 @ R0 : return write
}
";
    let caller = "kernel f {
block0:
    v0:r32 = const #7
    v1:r32 @ R0 = call v0 @ R0, #1 : call write clobbers abi
    st v1 : write
    exit : exit write
}
";
    let functions = [parse(caller), parse(callee)];
    let run = Module::new(&functions).run_original(&hardware(64), 0, &[], Limits::default(), 1);
    let reg = "R1".to_owned();
    assert_eq!(run.unwrap_err().what, What::NotHanded { reg });
}

#[test]
fn live_ins_and_results_out_of_place_are_refused_by_name() {
    let message = |first: &str, last: &str| {
        let text = format!("device f {{\nblock0:\n    {first}\n    {last}\n}}\n");
        match parse(&text).validate(&hardware(64)) {
            Err(Error::Invalid { message, .. } | Error::Impossible { message, .. }) => message,
            other => panic!("{text}: {other:?}"),
        }
    };
    let ret = "ret : return write";
    for (first, said) in [
        (
            "v0:r32 @ R0, v1:r64 @ R0 = entry : livein write",
            "v0 and v1 would share a register, R0",
        ),
        (
            "v0:r64 @ R1 = entry : livein write",
            "v0 is fixed to R1, where no r64 starts",
        ),
        (
            "v0:pred @ R1 = entry : livein write",
            "v0 is fixed to R1, where no pred starts",
        ),
        (
            "v0:r32 @ R70 = entry : livein write",
            "v0, fixed to R70, needs 71 registers of R, the budget is 64",
        ),
        (
            "v0:r32 @ R300 = entry : livein write",
            "more than hardware has",
        ),
        (
            "v0:r32 = entry : livein write",
            "v0 is live-in, but no plain result in a fixed register",
        ),
        (
            "v0:r32 @ R0 = entry : livein",
            "it is a write of state without clobbers",
        ),
    ] {
        let message = message(first, ret);
        assert!(message.contains(said), "{first}: {message}");
    }
    let late = message(
        "v0:r32 = const #1\n    v1:r32 @ R0 = entry : livein write",
        ret,
    );
    assert!(
        late.contains("not the function's first instruction"),
        "{late}"
    );
    let kept = message("v0:r32 = const #1", "ret v0 @ R24 : return write");
    let said = "v0 is returned in R24, which the caller wants back unchanged";
    assert_eq!(kept, said);
}

/// Arguments and results by the convention, without naming a register.
#[test]
fn the_builder_knows_the_registers_of_the_convention() {
    let target = hardware(64);
    let mut b = Builder::new("f");
    b.convention(Convention::Device);
    let entry = b.block();
    let classes = [Class::R32, Class::R64, Class::R32];
    let args: Vec<_> = classes.iter().map(|&c| b.vreg(c)).collect();
    let back = b.vreg(Class::R64);
    b.arguments(&target, &args).unwrap();
    let call = b.inst(entry, "call").kind(Kind::Call).imm(9);
    let call = call.receive(&target, &[back]).unwrap();
    call.pass(&target, &args).unwrap();
    b.ret(entry, "ret").give(&target, &[back]).unwrap();
    let function = b.finish();
    let places: Vec<_> = function.live_ins().map(|(v, reg)| (v, reg.unit)).collect();
    assert_eq!(places, [(args[0], 0), (args[1], 2), (args[2], 4)]);
    let said = parse(
        "device f {
block0:
    v0:r32 @ R0, v1:r64 @ R2, v2:r32 @ R4 = entry : livein write
    v3:r64 @ R0 = call v0 @ R0, v1 @ R2, v2 @ R4, #9 : call clobbers abi
    ret v3 @ R0 : return write
}
",
    );
    assert_eq!(function, said);
    assert!(function.validate(&target).is_ok());
}

/// Modules of two to five functions that call each other and themselves.
fn campaign(seeds: std::ops::Range<u64>) -> (usize, usize) {
    let (mut calls, mut runs) = (0, 0);
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let budget = [15, 24, 32, 64, 255][rng.below(5)];
        let target = match rng.below(4) {
            0 => Target::cicc(),
            1 => Target::hardware_packed(90).unwrap(),
            _ => Target::hardware(90).unwrap(),
        };
        let target = target.with_budget(File::R, budget);
        let count = rng.within(2..=5);
        let shapes: Vec<Shape> = (0..count).map(|_| Shape::random(60, &mut rng)).collect();
        let functions = generate::module(&shapes, &target, &mut rng);
        for function in &functions {
            let is_call = |&inst: &Inst| function.inst(inst).kind == Kind::Call;
            calls += function.insts().filter(is_call).count();
        }
        for strategy in Strategy::ALL {
            // Each result is proved, as `Options::verify` is on.
            let one = |f| allocate(f, &target, &options(strategy));
            let allocations: Vec<Allocation> = functions
                .iter()
                .map(|f| one(f).unwrap_or_else(|e| panic!("seed {seed}, {strategy:?}: {e}")))
                .collect();
            for start in 0..functions.len() {
                let module = Module::new(&functions);
                let limits = Limits { blocks: 300 };
                let same = module.compare(&target, &allocations, start, &[], limits, seed);
                same.unwrap_or_else(|e| panic!("{strategy:?}, {budget} registers: {e}"));
                runs += 1;
            }
        }
    }
    (calls, runs)
}

#[test]
fn random_modules_are_proved_and_run_alike() {
    let (calls, runs) = campaign(0..120);
    assert!(calls > 300 && runs > 1000, "{calls} calls, {runs} runs");
}

/// `WARPALLOC_MODULES=10000 cargo test --test modules -- --ignored`
#[test]
#[ignore = "a campaign of WARPALLOC_MODULES modules"]
fn many_random_modules_are_proved_and_run_alike() {
    let count = std::env::var("WARPALLOC_MODULES").ok();
    let count = count.and_then(|n| n.parse().ok()).unwrap_or(5000);
    let (calls, runs) = campaign(1_000_000..1_000_000 + count);
    println!("{count} modules with {calls} calls, {runs} runs");
}
