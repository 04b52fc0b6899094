use super::*;
use crate::analysis::{Cfg, LiveSet};
use crate::function::{Block, Builder, Effect, Function, VReg};
use crate::generate::{self, Rng, Shape};
use crate::internals::{DegreeChange, Degrees};
use crate::ir::{Op, Origin, Value};
use crate::options::{Options, Strategy};
use crate::target::{Class, File};
use crate::{allocate, check};
use cranelift_entity::EntityRef;

fn target(registers: usize) -> Target {
    Target::hardware(90)
        .unwrap()
        .with_budget(File::R, registers)
}

/// `idle` is written before and read after a loop of `length` instructions that keeps
/// `busy` values alive.
fn loop_beside(idle: usize, busy: usize, length: usize) -> Function {
    let mut b = Builder::new("f");
    let (before, body, after) = (b.block(), b.block(), b.block());
    let values: Vec<VReg> = (0..idle + busy).map(|_| b.vreg(Class::R32)).collect();
    let condition = b.vreg(Class::PRED);
    for &v in &values {
        b.inst(before, "load").def(v).effect(Effect::Read);
    }
    b.jump(before, body, &[]);
    for i in 0..length {
        let v = values[idle + i % busy];
        b.inst(body, "add")
            .use_def(v)
            .use_(values[idle + (i + 1) % busy]);
    }
    b.inst(body, "test").def(condition).effect(Effect::Read);
    b.branch(body, "bra").use_(condition);
    b.edge(body, body, &[]);
    b.edge(body, after, &[]);
    for &v in &values {
        b.inst(after, "store").use_(v).effect(Effect::Write);
    }
    b.exit(after, "exit");
    b.finish()
}

fn split(function: &Function, target: &Target, policy: SplitPolicy) -> (SplitCounts, Vec<Op>) {
    let mut program = Program::new(function, target, None).unwrap();
    let facts = Facts::of(&program);
    let counts = split_long_values(&mut program, target, &facts, policy);
    let ops = program.blocks.values().flat_map(|b| b.ops.clone());
    (counts, ops.collect())
}

#[test]
fn a_value_that_waits_for_a_crowded_loop_gets_a_piece_of_its_own() {
    let f = loop_beside(2, 7, 120);
    let (counts, ops) = split(&f, &target(8), SplitPolicy::reported());
    // In at one edge, out at the other; the busy values stay whole.
    assert_eq!((counts.values, counts.pieces, counts.copies), (2, 2, 4));
    let waiting = Value::new(0);
    let readers = ops.iter().flat_map(|op| op.accesses(&f));
    let touches = readers.filter(|(value, _)| *value == waiting).count();
    assert_eq!(touches, 4, "written, copied, copied back, read");
}

#[test]
fn nothing_is_split_where_everything_fits_or_lives_briefly() {
    let f = loop_beside(2, 7, 120);
    let policy = SplitPolicy::default();
    assert_eq!(split(&f, &target(12), policy).0, SplitCounts::default());
    let short = loop_beside(2, 7, 30);
    let policy = SplitPolicy::reported();
    assert_eq!(split(&short, &target(8), policy).0, SplitCounts::default());
}

#[test]
fn with_more_values_per_register_than_said_all_long_ones_are_split() {
    // With the predicate, forty-eight values for eight registers.
    let f = loop_beside(2, 45, 120);
    let split_at = |aggressive| {
        let policy = SplitPolicy {
            aggressive,
            ..SplitPolicy::reported()
        };
        split(&f, &target(8), policy).0.values
    };
    assert!(split_at(20) < 47 && split_at(6) < 47);
    assert_eq!(split_at(5), 47);
}

/// The loop touches each of the busy values twice, or two of them three times. Outside of it all
/// are short.
#[test]
fn two_touches_of_a_loop_hardly_use_a_value() {
    let policy = SplitPolicy {
        length: 150,
        ..SplitPolicy::reported()
    };
    let split_of = |length| {
        split(&loop_beside(2, 120, length), &target(8), policy)
            .0
            .values
    };
    assert_eq!((split_of(120), split_of(121)), (122, 120));
}

/// A loop reads `v0` three times and has room; the code before it has not.
#[test]
fn a_value_is_split_at_the_loop_that_uses_it_if_it_lives_long_outside() {
    let crowd: String = (2..8)
        .map(|n| format!("v{n}:r32 = load : read\n"))
        .collect();
    let uses: String = (2..8).map(|n| format!("use v{n} : write\n")).collect();
    let case = crate::text::parse(&format!(
        "target hardware sm_90 R=4
         kernel f {{
         block0:
             v0:r32 = load : read
             {crowd}{uses}
             bra -> block1
         block1:
             use v0 : write
             use v0 : write
             v1:pred = test v0 : read
             brp v1 -> block1, block2
         block2:
             exit : exit write
         }}"
    ))
    .unwrap();
    let program = Program::new(&case.function, &case.target, None).unwrap();
    let ranges = LiveRanges::compute(&program, &case.target, &Facts::of(&program));
    let outside = ranges.length(Value::new(0)) as usize - program.blocks[Block::new(1)].ops.len();
    let split_beyond = |length| {
        let policy = SplitPolicy {
            length,
            ..SplitPolicy::reported()
        };
        split(&case.function, &case.target, policy).0.values
    };
    assert_eq!((split_beyond(outside), split_beyond(outside - 1)), (0, 1));
}

#[test]
fn idle_values_are_stored_and_reloaded_outside_the_loop() {
    let f = loop_beside(2, 7, 120);
    let options = Options {
        strategy: Strategy::Briggs,
        ..Options::default()
    };
    let allocation = allocate(&f, &target(8), &options).unwrap();
    let body = Block::new(1);
    let inside = f
        .block_insts(body)
        .map(|inst| allocation.edits.before(inst).count());
    assert_eq!(inside.sum::<usize>(), 0);
    assert!(allocation.stats.edits.stores <= 2 && allocation.stats.edits.reloads <= 2);
}

#[test]
fn split_functions_of_every_shape_are_proved() {
    let mut rng = Rng::new(14);
    let mut split_values = 0;
    for number in 0..300 {
        let shape = Shape::random(250, &mut rng);
        let budget = [6, 8, 12, 16][rng.below(4)];
        let target = target(budget);
        let function = generate::function(&shape, &target, &mut rng);
        split_values += split(&function, &target, SplitPolicy::finely()).0.values;
        let options = Options {
            strategy: Strategy::Briggs,
            ..Options::default()
        };
        // It proves what it returns; the executor has the second word.
        let Ok(allocation) = allocate(&function, &target, &options) else {
            continue;
        };
        let limits = check::trace::Limits::default();
        check::trace::compare(&function, &target, &allocation, limits, number)
            .unwrap_or_else(|difference| panic!("function {number}: {difference}"));
    }
    assert!(split_values > 1_000, "{split_values}");
}

/// `idle` values wait while a block writes and reads `busy` others, `length` times.
fn one_block(idle: usize, busy: usize, length: usize) -> Function {
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..idle + busy).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.inst(block, "load").def(v).effect(Effect::Read);
    }
    for i in 0..length {
        let v = values[idle + i % busy];
        b.inst(block, "add")
            .use_def(v)
            .use_(values[idle + (i + 1) % busy]);
    }
    for &v in &values {
        b.inst(block, "store").use_(v).effect(Effect::Write);
    }
    b.exit(block, "exit");
    b.finish()
}

#[test]
fn within_a_block_values_are_split_between_stretches() {
    let f = one_block(2, 7, 240);
    let (counts, ops) = split(&f, &target(8), SplitPolicy::finely());
    assert_eq!(counts.values, 9);
    let is_copy = |op: &&Op| matches!(op, Op::Copies(_));
    // 259 instructions are four stretches of sixty and the rest.
    assert_eq!(ops.iter().filter(is_copy).count(), 4);
    assert_eq!((counts.pieces, counts.copies), (4 * 9, 4 * 9));
    let (counts, _) = split(&f, &target(8), SplitPolicy::default());
    assert_eq!(counts, SplitCounts::default(), "there is no loop");
}

#[test]
fn a_value_of_one_region_keeps_its_name() {
    let f = one_block(2, 7, 40);
    let (counts, ops) = split(&f, &target(8), SplitPolicy::finely());
    assert_eq!(counts, SplitCounts::default());
    let accesses = ops.iter().flat_map(|op| op.accesses(&f));
    let last = accesses.map(|(value, _)| value).max();
    assert_eq!(last, Some(Value::new(8)));
}

#[test]
fn a_long_block_in_a_loop_is_split_in_its_middle_only() {
    let f = loop_beside(2, 7, 240);
    let target = target(8);
    let mut program = Program::new(&f, &target, None).unwrap();
    let facts = Facts::of(&program);
    let of_loop = |policy| {
        let mut program = program.clone();
        split_long_values(&mut program, &target, &facts, policy);
        let liveness = Facts::of(&program).liveness;
        liveness.live_in(Block::new(1)).len()
    };
    // One name of each value from turn to turn, as if the block were not cut.
    assert_eq!(of_loop(SplitPolicy::finely()), 9);
    assert_eq!(of_loop(SplitPolicy::default()), 9);
    let counts = split_long_values(&mut program, &target, &facts, SplitPolicy::finely());
    let inside = &program.blocks[Block::new(1)].ops;
    let copies = inside.iter().filter(|op| matches!(op, Op::Copies(_)));
    assert_eq!(copies.count(), 4, "{counts:?}");
}

#[test]
fn values_of_files_with_room_are_left_whole() {
    // Eight predicates and a few registers: only the predicates are too many.
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..4).map(|_| b.vreg(Class::R32)).collect();
    let predicates: Vec<VReg> = (0..8).map(|_| b.vreg(Class::PRED)).collect();
    let all = || values.iter().chain(&predicates);
    for &v in all() {
        b.inst(block, "set").def(v).effect(Effect::Read);
    }
    for i in 0..200 {
        let (v, p) = (values[i % 4], predicates[i % 8]);
        b.inst(block, "add").use_def(v).use_(p);
    }
    for &v in all() {
        b.inst(block, "use").use_(v).effect(Effect::Write);
    }
    b.exit(block, "exit");
    let f = b.finish();
    let (counts, ops) = split(&f, &target(32), SplitPolicy::finely());
    assert_eq!(counts.values, 8);
    let registers = ops.iter().flat_map(|op| op.accesses(&f));
    let names: std::collections::BTreeSet<Value> = registers.map(|(value, _)| value).collect();
    assert_eq!(names.len(), 4 + 8 + counts.pieces as usize);
}

/// A value that isolates an operand takes a register until its instruction; code between
/// the two would need more registers than the instruction does.
#[test]
fn no_cut_is_made_beside_constrained_operands() {
    let mut rng = Rng::new(3);
    let (mut cuts, mut constraints) = (0, 0);
    for _ in 0..40 {
        let shape = Shape {
            blocks: 1,
            loop_depth: 0,
            ..Shape::pressure(20)
        };
        let target = target(16);
        let function = generate::function(&shape, &target, &mut rng);
        let mut program = Program::new(&function, &target, None).unwrap();
        let facts = Facts::of(&program);
        let pieces_from = program.values.len();
        split_long_values(&mut program, &target, &facts, SplitPolicy::finely());
        let facts = Facts::of(&program);
        let mut live = LiveSet::new(program.values.len());
        for block in program.all_blocks() {
            live.start_at_end(&facts.liveness, block);
            for op in program.blocks[block].ops.iter().rev() {
                let is_piece = |&(to, from): &(Value, Value)| to.max(from).index() >= pieces_from;
                let is_constraint =
                    |v: &Value| matches!(program.values[*v].origin, Origin::Constraint(_));
                let waiting = live.iter().filter(is_constraint).count();
                constraints += waiting;
                let touched = op.accesses(&function).any(|(v, _)| is_constraint(&v));
                if let Op::Copies(pairs) = op
                    && !touched
                    && pairs.iter().all(is_piece)
                {
                    cuts += 1;
                    assert_eq!(waiting, 0);
                }
                live.step_back_over(op.accesses(&function));
            }
        }
    }
    assert!(cuts > 40 && constraints > 100, "{cuts}, {constraints}");
}

/// How much lower the average degree of generated functions is, taken together.
fn fall(shape: &Shape, registers: usize, policy: SplitPolicy) -> f64 {
    let target = target(registers);
    let mut all = Degrees::default();
    for seed in 0..20 {
        let function = generate::function(shape, &target, &mut Rng::new(seed));
        if let Some(change) = DegreeChange::measure(&function, &target, false, policy) {
            all.add(&change.all);
        }
    }
    all.fall()
}

/// The reported 15 % (`docs/sources.md#splitting-long-ranges`) are reached where code is long
/// beside its pressure. No piece has fewer neighbours than values are live at its definition,
/// so that short loops full of short live ranges have less to lose.
#[test]
fn the_average_degree_of_crowded_functions_falls() {
    for registers in [16, 24, 32] {
        let short_loops = Shape {
            pressure: registers + registers / 4,
            insts: 600,
            blocks: 30,
            loop_depth: 3,
            ..Shape::typical()
        };
        let long_block = Shape {
            pressure: 4 * registers,
            insts: 2_000,
            blocks: 1,
            loop_depth: 0,
            ..Shape::typical()
        };
        for (shape, least) in [(&short_loops, 0.07), (&long_block, 0.15)] {
            let finely = fall(shape, registers, SplitPolicy::finely());
            let at_loops = fall(shape, registers, SplitPolicy::default());
            assert!(finely >= least, "{finely} at {registers}");
            assert!(finely > at_loops, "{finely} and {at_loops} at {registers}");
        }
    }
}
