//! Worked examples: those reported of CICC (`docs/sources.md#briggs`) and our own.

use warpalloc::function::{Builder, Effect, Function, Kind, VReg};
use warpalloc::options::BriggsOptions;
use warpalloc::target::{Class, File, Target};
use warpalloc::{Allocation, Error, Options, Strategy};

fn options(briggs: BriggsOptions) -> Options {
    Options {
        strategy: Strategy::Briggs,
        briggs,
        ..Options::default()
    }
}

fn allocate_with(function: &Function, target: &Target, briggs: BriggsOptions) -> Allocation {
    warpalloc::allocate(function, target, &options(briggs)).unwrap_or_else(|e| panic!("{e}"))
}

fn allocate(function: &Function, target: &Target) -> Allocation {
    allocate_with(function, target, BriggsOptions::default())
}

/// Copies of the function that still need code.
fn copies_left(function: &Function, allocation: &Allocation) -> usize {
    let is_copy = |i: &_| function.inst(*i).kind == Kind::Copy;
    let copies = function.insts().filter(is_copy);
    let left = copies.filter(|&i| !allocation.deleted.contains(i)).count();
    left + allocation.stats.edits.moves as usize
}

/// `count` values of `class`, all live at once: each is produced in turn, then they are
/// consumed, the last one first, and none may move.
fn live_at_once(class: Class, count: usize) -> Function {
    let mut b = Builder::new("live_at_once");
    let block = b.block();
    let values: Vec<VReg> = (0..count).map(|_| b.vreg(class)).collect();
    for &v in &values {
        b.inst(block, "produce").def(v).effect(Effect::Write);
    }
    for &v in values.iter().rev() {
        b.inst(block, "consume").use_(v).effect(Effect::Write);
    }
    b.exit(block, "exit");
    b.finish()
}

/// Fifteen stay, six go (`docs/sources.md#cicc-preset`).
#[test]
fn twenty_one_values_live_at_once_spill_six_at_fifteen_registers() {
    let target = Target::cicc();
    let allocation = allocate(&live_at_once(Class::R32, 21), &target);
    assert_eq!(allocation.stats.spilled, 6);
    let function = live_at_once(Class::R32, 15);
    assert_eq!(allocate(&function, &target).stats.spilled, 0);
}

/// Neither switches of arguments and results nor a factor on all spill costs tell generations
/// apart (`docs/sources.md#coalescing-by-generation`).
#[test]
fn arguments_results_and_spills_are_coalesced_alike_on_all_generations() {
    let text = "
        device f {
        block0:
            v0:r32 @ R0, v1:r32 @ R1 = arguments : write
            v2:r32 = mov v0 : copy
            v3:r32 = mov v1 : copy
            v4:r32 = load v2 : read
            v5:r32 = load v3 : read
            v6:r32 = load v4 : read
            v7:r32 = add v5, v6
            v8:r32 = add v7, v4
            v9:r32 = add v8, v3
            v10:r32 = mov v9 : copy
            ret v10 @ R0 : exit write
        }";
    let outcome = |sm: u32| {
        let head = format!("target hardware sm_{sm} R=4\n");
        let case = warpalloc::text::parse(&format!("{head}{text}")).unwrap();
        let allocation = allocate(&case.function, &case.target);
        assert_eq!(copies_left(&case.function, &allocation), 0, "sm_{sm}");
        (allocation.registers, allocation.edits)
    };
    let of_80 = outcome(80);
    assert_eq!(outcome(90), of_80);
    assert_eq!(outcome(100), of_80);
}

/// Seven pairs fit fifteen registers; mask 0x5555 would offer an eighth that is not there.
#[test]
fn seven_pairs_fit_fifteen_registers_and_an_eighth_does_not() {
    let target = Target::cicc();
    assert_eq!(
        allocate(&live_at_once(Class::R64, 7), &target)
            .stats
            .spilled,
        0
    );
    assert!(
        allocate(&live_at_once(Class::R64, 8), &target)
            .stats
            .spilled
            >= 1
    );
}

#[test]
fn thirty_halves_pack_into_fifteen_registers() {
    let target = Target::cicc();
    assert_eq!(
        allocate(&live_at_once(Class::R16, 30), &target)
            .stats
            .spilled,
        0
    );
    let hardware = Target::hardware(90).unwrap().with_budget(File::R, 15);
    assert!(
        allocate(&live_at_once(Class::R16, 30), &hardware)
            .stats
            .spilled
            >= 15
    );
}

#[test]
fn an_eighth_predicate_goes_to_a_general_register() {
    let target = Target::hardware(90).unwrap();
    let allocation = allocate(&live_at_once(Class::PRED, 8), &target);
    assert!(allocation.stats.spilled >= 1);
    assert_eq!(allocation.frame.local, 0);
}

fn copy(b: &mut Builder, block: warpalloc::function::Block, to: VReg, from: VReg) {
    b.inst(block, "mov").def(to).use_(from).kind(Kind::Copy);
}

fn chain() -> Function {
    let mut b = Builder::new("chain");
    let block = b.block();
    let v: Vec<VReg> = (0..4).map(|_| b.vreg(Class::R32)).collect();
    b.inst(block, "load").def(v[0]).effect(Effect::Read);
    for i in 1..4 {
        copy(&mut b, block, v[i], v[i - 1]);
    }
    b.inst(block, "store").use_(v[3]).effect(Effect::Write);
    b.exit(block, "exit");
    b.finish()
}

/// Three moves, none left (`docs/sources.md#iterated-coalescing`).
#[test]
fn a_copy_chain_vanishes() {
    let function = chain();
    let allocation = allocate(&function, &Target::cicc());
    assert_eq!(copies_left(&function, &allocation), 0);
    assert_eq!(allocation.stats.coalescing_rate(), 1.0);
    assert_eq!(allocation.stats.merges, 3);
}

#[test]
fn coalescing_can_be_disabled_limited_and_verified() {
    let function = chain();
    let merges = |briggs| {
        allocate_with(&function, &Target::cicc(), briggs)
            .stats
            .merges
    };
    let usual = BriggsOptions::default;
    assert_eq!(
        merges(BriggsOptions {
            disable_coalescing: true,
            ..usual()
        }),
        0
    );
    assert_eq!(
        merges(BriggsOptions {
            coalescing_limit: Some(2),
            ..usual()
        }),
        2
    );
    assert_eq!(
        merges(BriggsOptions {
            join_live_intervals: false,
            ..usual()
        }),
        0
    );
    assert_eq!(
        merges(BriggsOptions {
            join_global_copies: false,
            ..usual()
        }),
        3
    );
    assert_eq!(
        merges(BriggsOptions {
            verify_coalescing: true,
            ..usual()
        }),
        3
    );
}

/// A call that takes its argument in R0 and returns its result there.
fn call() -> Function {
    let target = Target::hardware(90).unwrap();
    let r0 = target.reg_named("R0").unwrap();
    let mut b = Builder::new("caller");
    let block = b.block();
    let (arg, result, sum) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(block, "load").def(arg).effect(Effect::Read);
    b.inst(block, "call")
        .def_fixed(result, r0)
        .use_fixed(arg, r0)
        .kind(Kind::Call)
        .effect(Effect::Write);
    b.inst(block, "add").def(sum).use_(result);
    b.inst(block, "store").use_(sum).effect(Effect::Write);
    b.exit(block, "exit");
    b.finish()
}

/// `docs/sources.md#fixed-register-coalescing`.
#[test]
fn arguments_and_results_are_computed_in_place() {
    let function = call();
    let target = Target::hardware(90).unwrap();
    let allocation = allocate(&function, &target);
    assert_eq!(allocation.stats.edits.moves, 0);
    assert_eq!(allocation.stats.copies, 2);
    let apart = BriggsOptions {
        join_phys_regs: false,
        ..BriggsOptions::default()
    };
    let apart = allocate_with(&function, &target, apart);
    assert_eq!(apart.stats.merges, 0);
}

/// A loop whose parameter is changed in each turn.
fn counting_loop() -> Function {
    let mut b = Builder::new("count");
    let (entry, body, done) = (b.block(), b.block(), b.block());
    let [start, i, next] = [0; 3].map(|_| b.vreg(Class::R32));
    let again = b.vreg(Class::PRED);
    b.inst(entry, "load").def(start).effect(Effect::Read);
    b.branch(entry, "bra");
    b.edge(entry, body, &[start]);
    b.param(body, i);
    b.inst(body, "add").def(next).use_(i);
    b.inst(body, "setp").def(again).use_(next);
    b.inst(body, "brp").use_(again).kind(Kind::Branch);
    b.edge(body, body, &[next]);
    b.edge(body, done, &[]);
    b.exit(done, "exit");
    b.finish()
}

/// `docs/sources.md#block-parameters`.
#[test]
fn the_copies_of_a_loop_parameter_vanish() {
    let function = counting_loop();
    let allocation = allocate(&function, &Target::cicc());
    assert_eq!(
        (allocation.stats.copies, allocation.stats.coalesced),
        (2, 2)
    );
    assert!(allocation.edits.is_empty());
    let apart = BriggsOptions {
        join_global_copies: false,
        ..BriggsOptions::default()
    };
    assert_eq!(
        allocate_with(&function, &Target::cicc(), apart)
            .stats
            .merges,
        0
    );
}

/// Eight consecutive, aligned registers for a warpgroup's fragment, without a copy.
#[test]
fn a_fragment_is_built_where_it_is_used() {
    let target = Target::hardware(90).unwrap();
    let mut b = Builder::new("mma");
    let block = b.block();
    let lanes: Vec<VReg> = (0..8).map(|_| b.vreg(Class::R32)).collect();
    for &lane in &lanes {
        b.inst(block, "load").def(lane).effect(Effect::Write);
    }
    let mut mma = b.inst(block, "wgmma").effect(Effect::Write);
    for &lane in &lanes {
        mma = mma.use_(lane);
    }
    mma.group(0, 8, 8);
    b.exit(block, "exit");
    let function = b.finish();
    let allocation = allocate(&function, &target);
    assert_eq!(allocation.stats.edits.moves, 0);
    assert_eq!(allocation.stats.copies, 8);
}

#[test]
fn the_graph_is_counted() {
    let function = live_at_once(Class::R32, 5);
    let stats = allocate(&function, &Target::cicc()).stats;
    assert_eq!((stats.graph.nodes, stats.graph.edges), (5, 10));
    assert_eq!((stats.graph.max_degree, stats.graph.density()), (4, 1.0));
    assert_eq!((stats.iterations, stats.spill_rate()), (1, 0.0));
    let phases: Vec<_> = stats.phases.iter().map(|(name, _)| *name).collect();
    for phase in ["interference", "simplify", "select"] {
        assert!(phases.contains(&phase), "{phases:?}");
    }
}

#[test]
fn a_spill_limit_is_an_error_that_says_what_helps() {
    let limited = options(BriggsOptions {
        spill_limit: Some(5),
        ..BriggsOptions::default()
    });
    let error = warpalloc::allocate(&live_at_once(Class::R32, 21), &Target::cicc(), &limited);
    let Err(Error::Impossible { message, help, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(message, "6 values are spilled, but 5 is the limit");
    assert!(help.contains("spill limit"));
}

/// Where an operand of the instruction called `opcode` is.
fn register_of(
    function: &Function,
    allocation: &Allocation,
    opcode: &str,
    operand: usize,
) -> usize {
    let named = |i: &_| function.opcode_name(function.inst(*i).opcode) == opcode;
    let inst = function.insts().find(named).unwrap();
    allocation.operands(function, inst)[operand].unit as usize
}

/// Three inputs in one bank stall; one of them goes elsewhere where that is free.
#[test]
fn inputs_read_together_are_spread_over_banks() {
    let target = Target::hardware(90).unwrap();
    let mut b = Builder::new("fma");
    let block = b.block();
    let v: Vec<VReg> = (0..6).map(|_| b.vreg(Class::R32)).collect();
    for &x in &v {
        b.inst(block, "load").def(x).effect(Effect::Write);
    }
    b.inst(block, "fma")
        .use_(v[0])
        .use_(v[2])
        .use_(v[4])
        .effect(Effect::Write);
    b.inst(block, "other")
        .use_(v[1])
        .use_(v[3])
        .use_(v[5])
        .effect(Effect::Write);
    b.exit(block, "exit");
    let function = b.finish();
    let allocation = allocate(&function, &target);
    for opcode in ["fma", "other"] {
        let banks: Vec<_> = (0..3)
            .map(|i| register_of(&function, &allocation, opcode, i) % 2)
            .collect();
        assert!(
            banks.contains(&0) && banks.contains(&1),
            "{opcode}: {banks:?}"
        );
    }
    let highest = allocation.registers.iter().map(|r| r.unit).max();
    assert_eq!(highest, Some(5), "banks may not cost a register");
}

/// A called function saves no register as long as others are free.
#[test]
fn preserved_registers_are_the_last_choice_of_a_called_function() {
    let target = Target::hardware(90).unwrap();
    let mut b = Builder::new("callee");
    b.convention(warpalloc::function::Convention::Device);
    let block = b.block();
    let v: Vec<VReg> = (0..30).map(|_| b.vreg(Class::R32)).collect();
    for &x in &v {
        b.inst(block, "load").def(x).effect(Effect::Write);
    }
    for &x in &v {
        b.inst(block, "store").use_(x).effect(Effect::Write);
    }
    b.ret(block, "ret");
    let function = b.finish();
    assert!(allocate(&function, &target).edits.is_empty());
}

/// 70 % of the file on SM 80, 80 % on SM 90, unless told otherwise.
#[test]
fn the_pressure_limit_follows_the_generation() {
    let usual = BriggsOptions::default();
    let on = |sm| usual.pressure_limit_on(&Target::hardware(sm).unwrap());
    assert_eq!((on(80), on(89), on(90), on(120)), (0.7, 0.7, 0.8, 0.8));
    let chosen = BriggsOptions {
        pressure_limit: warpalloc::options::Fraction::new(0.5),
        ..BriggsOptions::default()
    };
    assert_eq!(chosen.pressure_limit_on(&Target::cicc()), 0.5);
}

/// Threads get registers in steps of eight. What could do with fewer steps is coloured again.
#[test]
fn what_fits_is_coloured_again_for_fewer_steps_of_registers() {
    use warpalloc::generate::{self, Rng, Shape};
    let target = Target::hardware(90).unwrap();
    let steps = |seed, shrink| {
        let mut rng = Rng::new(seed);
        let shape = Shape {
            pressure: 30,
            calls: false,
            fixed: false,
            except: false,
            pinned: false,
            wide: true,
            groups: true,
            ..Shape::random(150, &mut rng)
        };
        let function = generate::function(&shape, &target, &mut rng);
        let options = Options {
            shrink,
            ..Options::default()
        };
        let allocation = warpalloc::allocate(&function, &target, &options).unwrap();
        let regs = allocation.registers.iter().filter(|r| r.file == File::R);
        let used = regs.map(|r| r.unit as usize + 1).max().unwrap_or(0);
        used.div_ceil(8)
    };
    let total = |shrink| (0..200).map(|seed| steps(seed, shrink)).sum::<usize>();
    let (once, again) = (total(false), total(true));
    assert!(again < once, "{once} granules became {again}");
}
