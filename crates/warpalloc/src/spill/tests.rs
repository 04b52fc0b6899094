//! Spilling is right whatever is spilled: random functions lose random values, are coloured
//! by brute force with registers to spare, and the result is proved.

use super::cost::spill_costs;
use super::rewrite::SpillCounts;
use super::{SpillChoice, SpillPolicy, Spiller};
use crate::allocation::{Allocation, Space};
use crate::analysis::{Code, LiveSet};
use crate::check;
use crate::emit::emit;
use crate::function::{Builder, Effect, Function, Kind, Role};
use crate::generate::{self, Rng, Shape};
use crate::ir::{Facts, Op, Program, Value};
use crate::stats::Stats;
use crate::target::{Class, File, FileInfo, PReg, RegSet, Target};
use cranelift_entity::{EntityRef, SecondaryMap};
use std::collections::BTreeSet;

type Colours = SecondaryMap<Value, Option<PReg>>;
/// Members with their offsets, alignment, and the only start if there is one.
type Body = (Vec<(Value, u16)>, usize, Option<PReg>);

/// Interference by definition: a result and everything live after it.
fn interference(program: &Program) -> Vec<BTreeSet<Value>> {
    let facts = Facts::of(program);
    let mut edges = vec![BTreeSet::new(); program.values.len()];
    let mut live = LiveSet::new(program.values.len());
    for block in program.blocks.keys() {
        live.start_at_end(&facts.liveness, block);
        for point in program.points(block).rev() {
            let accesses: Vec<_> = program.accesses(point).collect();
            let written: Vec<_> = accesses.iter().filter(|(_, r)| r.writes()).collect();
            for &&(value, role) in &written {
                let others = live.iter().chain(written.iter().map(|(v, _)| *v));
                let early = accesses
                    .iter()
                    .filter(|(_, r)| role == Role::EarlyDef && r.reads());
                for other in others.chain(early.map(|(v, _)| *v)).filter(|&v| v != value) {
                    edges[value.index()].insert(other);
                    edges[other.index()].insert(value);
                }
            }
            live.step_back_over(accesses.into_iter());
        }
    }
    edges
}

/// Units that clobbers forbid each value.
fn clobbered(program: &Program, target: &Target) -> Vec<RegSet> {
    let facts = Facts::of(program);
    let mut forbidden = vec![RegSet::new(target); program.values.len()];
    let mut live = LiveSet::new(program.values.len());
    for block in program.blocks.keys() {
        live.start_at_end(&facts.liveness, block);
        for (index, point) in program
            .points(block)
            .enumerate()
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            let accesses: Vec<_> = program.accesses(point).collect();
            if let Op::Inst { inst, .. } = &program.blocks[block].ops[index] {
                let set = program.function.clobbers(target, *inst);
                for value in live.iter() {
                    if !accesses
                        .iter()
                        .any(|&(v, r)| v == value && r.writes() && r != Role::UseDef)
                    {
                        forbidden[value.index()].union_with(&set);
                    }
                }
            }
            live.step_back_over(accesses.into_iter());
        }
    }
    forbidden
}

fn colour(program: &Program, target: &Target) -> Option<Colours> {
    let edges = interference(program);
    let clobbers = clobbered(program, target);
    let mut bodies: Vec<Body> = Vec::new();
    let mut linked = BTreeSet::new();
    for link in &program.links {
        linked.extend(link.members.iter().map(|m| m.0));
        bodies.push((link.members.to_vec(), link.align, link.fixed));
    }
    bodies.sort_by_key(|b| b.2.is_none());
    let singles = program.values.keys().filter(|v| !linked.contains(v));
    bodies.extend(singles.map(|v| (vec![(v, 0)], 1, None)));
    let mut colours = Colours::new();
    for (members, align, fixed) in bodies {
        let file = target.class(program.values[members[0].0].class).file;
        let fits = |start: &PReg| {
            (start.unit as usize).is_multiple_of(align)
                && fixed.is_none_or(|f| f == *start)
                && members.iter().all(|&(value, offset)| {
                    let class = program.values[value].class;
                    let (reg, width) = (start.offset(offset as usize), target.width(class));
                    let taken = |other: &Value| {
                        colours[*other].is_some_and(|at: PReg| {
                            let other_width = target.width(program.values[*other].class);
                            at.file == reg.file
                                && at.unit < reg.unit + width as u16
                                && reg.unit < at.unit + other_width as u16
                        })
                    };
                    let info = &program.values[value];
                    let hit = |set: &RegSet| set.overlaps(target, reg, width);
                    target.fits(class, reg)
                        && !edges[value.index()].iter().any(taken)
                        && !hit(&clobbers[value.index()])
                        && !info.forbidden.as_deref().is_some_and(hit)
                })
        };
        let start = (0..target.file(file).units)
            .map(|u| PReg::new(file, u))
            .find(fits)?;
        for (value, offset) in members {
            colours[value] = Some(start.offset(offset as usize));
        }
    }
    Some(colours)
}

/// Spills `rounds` random sets of values one after the other and proves what comes out.
fn spill_at_random(
    function: &Function,
    target: &Target,
    policy: SpillPolicy,
    rng: &mut Rng,
) -> bool {
    let mut program = Program::new(function, target, None).unwrap();
    let mut spiller = Spiller::new(target, policy, Space::Local);
    let odds = rng.within(1..=5);
    for _ in 0..rng.within(1..=3) {
        let facts = Facts::of(&program);
        let is_there = |v: Value| !spiller.is_gone(v) && !program.values[v].unspillable;
        let values: Vec<_> = program.values.keys().filter(|&v| is_there(v)).collect();
        let values: Vec<_> = values.into_iter().filter(|_| rng.one_in(odds)).collect();
        spiller.spill(&mut program, &facts, &SpillChoice::exactly(values));
    }
    let Some(colours) = colour(&program, target) else {
        return false;
    };
    let allocation = emit(&program, target, Space::Local, &colours, Stats::default()).unwrap();
    prove(function, target, &allocation);
    true
}

fn prove(function: &Function, target: &Target, allocation: &Allocation) {
    if let Err(violation) = check::check(function, target, allocation) {
        panic!("{violation}");
    }
    for seed in 1..4 {
        let limits = check::trace::Limits::default();
        if let Err(difference) = check::trace::compare(function, target, allocation, limits, seed) {
            panic!("{difference}");
        }
    }
}

#[test]
fn any_set_of_values_can_be_spilled_in_any_order() {
    let target = Target::hardware(90).unwrap();
    let mut proved = 0;
    for seed in 0..1500 {
        let mut rng = Rng::new(seed);
        let shape = Shape::random(60, &mut rng);
        let function = generate::function(&shape, &target, &mut rng);
        let policy = SpillPolicy {
            lazy_reload: seed % 3 != 0,
            rematerialise: seed % 2 == 0,
            ..SpillPolicy::default()
        };
        proved += spill_at_random(&function, &target, policy, &mut rng) as u32;
    }
    assert!(
        proved > 1200,
        "only {proved} functions could be coloured by brute force"
    );
}

/// One value alive over many others, read `readers` times.
fn with_readers(readers: usize) -> Function {
    let mut b = Builder::new("readers");
    let block = b.block();
    let x = b.vreg(Class::R32);
    b.inst(block, "load").def(x).effect(Effect::Read);
    for _ in 0..readers {
        b.inst(block, "store").use_(x).effect(Effect::Write);
    }
    b.exit(block, "exit");
    b.finish()
}

fn spill_first(function: &Function, policy: SpillPolicy) -> (SpillCounts, usize) {
    let target = Target::hardware(90).unwrap();
    let mut program = Program::new(function, &target, None).unwrap();
    let facts = Facts::of(&program);
    let mut spiller = Spiller::new(&target, policy, Space::Local);
    let counts = spiller.spill(
        &mut program,
        &facts,
        &SpillChoice::exactly(vec![Value::new(0)]),
    );
    let fetch = |op: &&Op| matches!(op, Op::Reload { .. } | Op::Recompute { .. });
    let fetches = program
        .blocks
        .values()
        .flat_map(|b| &b.ops)
        .filter(fetch)
        .count();
    (counts, fetches)
}

#[test]
fn with_room_no_reader_needs_a_fetch_of_its_own() {
    let eager = SpillPolicy {
        lazy_reload: false,
        ..SpillPolicy::default()
    };
    assert_eq!(spill_first(&with_readers(5), eager).1, 5);
    assert_eq!(spill_first(&with_readers(5), SpillPolicy::default()).1, 0);
}

/// Availability is an intersection over paths (`docs/sources.md#availability-of-reloads`).
/// One arm of the diamond reads the value, the other does not, so the read behind the
/// join needs its fetch; a union over predecessors would remove it.
#[test]
fn a_reload_available_on_one_path_only_is_not_removed() {
    let mut b = Builder::new("diamond");
    let [entry, reads, skips, join] = [b.block(), b.block(), b.block(), b.block()];
    let (x, p) = (b.vreg(Class::R32), b.vreg(Class::PRED));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    // A call empties the registers, so that nothing is available when the paths part.
    b.inst(entry, "call")
        .kind(Kind::Call)
        .effect(Effect::Write)
        .clobbers(crate::function::Clobbers::Abi);
    b.inst(entry, "test").def(p);
    b.edge(entry, reads, &[]);
    b.edge(entry, skips, &[]);
    b.branch(entry, "bra").use_(p);
    b.inst(reads, "store").use_(x).effect(Effect::Write);
    b.jump(reads, join, &[]);
    b.jump(skips, join, &[]);
    b.inst(join, "store").use_(x).effect(Effect::Write);
    b.exit(join, "exit");
    let f = b.finish();
    assert_eq!(spill_first(&f, SpillPolicy::default()).1, 2);
}

#[test]
fn a_reload_available_on_every_path_is_removed() {
    let mut b = Builder::new("diamond");
    let [entry, left, right, join] = [b.block(), b.block(), b.block(), b.block()];
    let (x, p) = (b.vreg(Class::R32), b.vreg(Class::PRED));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "call")
        .kind(Kind::Call)
        .effect(Effect::Write)
        .clobbers(crate::function::Clobbers::Abi);
    b.inst(entry, "test").def(p);
    b.edge(entry, left, &[]);
    b.edge(entry, right, &[]);
    b.branch(entry, "bra").use_(p);
    for arm in [left, right] {
        b.inst(arm, "store").use_(x).effect(Effect::Write);
        b.jump(arm, join, &[]);
    }
    b.inst(join, "store").use_(x).effect(Effect::Write);
    b.exit(join, "exit");
    let f = b.finish();
    assert_eq!(spill_first(&f, SpillPolicy::default()).1, 2);
}

/// In which blocks the reloads of the first value are once it is spilled.
fn blocks_of_reloads(text: &str) -> Vec<usize> {
    let case = crate::text::parse(text).unwrap();
    let mut program = Program::new(&case.function, &case.target, None).unwrap();
    let facts = Facts::of(&program);
    let mut spiller = Spiller::new(&case.target, SpillPolicy::default(), Space::Local);
    let choice = SpillChoice::exactly(vec![Value::new(0)]);
    spiller.spill(&mut program, &facts, &choice);
    let reloads = program.blocks.iter().flat_map(|(block, info)| {
        let reloads = info.ops.iter().filter(|op| matches!(op, Op::Reload { .. }));
        reloads.map(move |_| block.index())
    });
    reloads.collect()
}

/// The call empties the registers, so that the value has to be fetched behind it.
#[test]
fn a_reload_leaves_a_loop_that_only_reads_its_value() {
    let blocks = blocks_of_reloads(
        "target hardware sm_90
         kernel f {
         block0:
             v0:r32 = load : read
             call : call write clobbers abi
             bra -> block1
         block1:
             store v0 : write
             v1:pred = test : read
             brp v1 -> block1, block2
         block2:
             exit : exit write
         }",
    );
    // Block 3 is made on the edge into the loop.
    assert_eq!(blocks, [3]);
}

/// The value is read before a chain of `blocks` that do nothing, and behind it.
fn reloads_around(blocks: usize) -> usize {
    let chain = (2..2 + blocks).map(|n| format!("block{n}:\n bra -> block{}\n", n + 1));
    let text = format!(
        "target hardware sm_90
         kernel f {{
         block0:
             v0:r32 = load : read
             call : call write clobbers abi
             bra -> block1
         block1:
             store v0 : write
             bra -> block2
         {}block{}:
             store v0 : write
             exit : exit write
         }}",
        chain.collect::<String>(),
        2 + blocks
    );
    blocks_of_reloads(&text).len()
}

/// A piece is kept over 64 blocks, and not over more, which bounds the search for it.
#[test]
fn a_reload_serves_readers_over_a_region_of_bounded_size() {
    assert_eq!([63, 64, 65].map(reloads_around), [1, 1, 2]);
}

/// Two halves of one register travel in one register of the other file.
#[test]
fn a_carrier_has_the_registers_of_what_it_carries() {
    let mut machine = Target::builder("halves");
    let main = machine.file(FileInfo::new("R", 16).packed(2));
    let packed = machine.file(FileInfo::new("H", 8).packed(2).spills_via(main));
    machine.class_of_units("half", main, 1, 1);
    let word = machine.class("word", main, 1, 1);
    let pair = machine.class("pair", main, 2, 2);
    let one = machine.class("one", packed, 1, 1);
    let two = machine.class("two", packed, 2, 2);
    let target = machine.finish().unwrap();
    let carriers = [one, two, word].map(|class| super::carrier_class(&target, class));
    assert_eq!(carriers, [Some(word), Some(pair), None]);
}

/// What is live decides the cache that spilled values hit: 4 cycles in the first, which has
/// 64 KiB, and 10 in the second.
#[test]
fn latency_grows_with_what_is_live_between_blocks() {
    let cost = |count: usize| {
        let mut b = Builder::new("crowd");
        let [entry, end] = [b.block(), b.block()];
        let values: Vec<_> = (0..count).map(|_| b.vreg(Class::R32)).collect();
        for &v in &values {
            b.inst(entry, "load").def(v).effect(Effect::Read);
        }
        b.jump(entry, end, &[]);
        for &v in &values {
            b.inst(end, "store").use_(v).effect(Effect::Write);
        }
        b.exit(end, "exit");
        let f = b.finish();
        let target = Target::hardware(90).unwrap();
        let program = Program::new(&f, &target, None).unwrap();
        let facts = Facts::of(&program);
        let (liveness, frequencies) = (&facts.liveness, &facts.frequencies);
        let costs = spill_costs(&program, &target, liveness, frequencies, &facts.loops);
        costs[Value::new(0)]
    };
    assert_eq!(cost(10), 4.0);
    assert_eq!(cost(20_000), 10.0);
}

/// The loop is entered once and reads the value in one of its eight rounds at most.
#[test]
fn a_reload_stays_in_the_rare_block_of_a_loop() {
    let blocks = blocks_of_reloads(
        "target hardware sm_90
         kernel f {
         block0 freq 1:
             v0:r32 = load : read
             call : call write clobbers abi
             bra -> block1
         block1 freq 8:
             v1:pred = test : read
             brp v1 -> block2, block3
         block2 freq 0.5:
             store v0 : write
             bra -> block3
         block3 freq 8:
             v2:pred = test : read
             brp v2 -> block1, block4
         block4 freq 1:
             exit : exit write
         }",
    );
    assert_eq!(blocks, [2]);
}

/// A constant is rematerialised, and its store is saved.
#[test]
fn a_spilled_constant_is_recomputed_and_never_stored() {
    let mut b = Builder::new("constant");
    let block = b.block();
    let x = b.vreg(Class::R32);
    b.inst(block, "mov").def(x).imm(0x1234_5678).remat(1);
    b.inst(block, "store").use_(x).effect(Effect::Write);
    b.exit(block, "exit");
    let f = b.finish();
    let target = Target::cicc();
    let mut program = Program::new(&f, &target, None).unwrap();
    let facts = Facts::of(&program);
    let mut spiller = Spiller::new(&target, SpillPolicy::default(), Space::Local);
    let counts = spiller.spill(
        &mut program,
        &facts,
        &SpillChoice::exactly(vec![Value::new(0)]),
    );
    assert_eq!((counts.recomputed, counts.memory), (1, 0));
    assert!(program.slots.is_empty());
    let colours = colour(&program, &target).unwrap();
    let allocation = emit(&program, &target, Space::Local, &colours, Stats::default()).unwrap();
    prove(&f, &target, &allocation);
    assert_eq!(allocation.stats.edits.recomputes, 1);
    assert_eq!(allocation.frame.local, 0);
}

#[test]
fn a_predicate_goes_to_a_general_register_first() {
    let mut b = Builder::new("predicate");
    let block = b.block();
    let p = b.vreg(Class::PRED);
    b.inst(block, "test").def(p).effect(Effect::Read);
    b.inst(block, "store").use_(p).effect(Effect::Write);
    b.exit(block, "exit");
    let f = b.finish();
    let target = Target::hardware(90).unwrap();
    let mut program = Program::new(&f, &target, None).unwrap();
    let facts = Facts::of(&program);
    let mut spiller = Spiller::new(&target, SpillPolicy::default(), Space::Local);
    let counts = spiller.spill(
        &mut program,
        &facts,
        &SpillChoice::exactly(vec![Value::new(0)]),
    );
    assert_eq!((counts.carried, counts.memory), (1, 0));
    let carrier = program
        .values
        .keys()
        .find(|&v| target.class(program.values[v].class).file == File::R);
    let facts = Facts::of(&program);
    let counts = spiller.spill(
        &mut program,
        &facts,
        &SpillChoice::exactly(vec![carrier.unwrap()]),
    );
    assert_eq!(counts.memory, 1);
    let colours = colour(&program, &target).unwrap();
    let allocation = emit(&program, &target, Space::Local, &colours, Stats::default()).unwrap();
    prove(&f, &target, &allocation);
}

#[test]
fn a_program_with_spill_code_reads_well() {
    let case = crate::text::parse(
        "target hardware sm_90
         kernel f {
         block0:
             v0:r32 = load : read
             bra -> block1(v0)
         block1(v1:r32):
             v2:r32 = add v1, v1
             store v2 : write
             exit : exit write
         }",
    )
    .unwrap();
    let mut program = Program::new(&case.function, &case.target, None).unwrap();
    let facts = Facts::of(&program);
    let mut spiller = Spiller::new(&case.target, SpillPolicy::default(), Space::Local);
    let choice = SpillChoice::exactly(vec![Value::new(1)]);
    spiller.spill(&mut program, &facts, &choice);
    assert_eq!(
        program.to_string(),
        "\
block0:
    x0 = load ; inst0
    bra ; inst1
    -> block2
block1:
    x3 = reload slot0
    x2 = add x3, x3 ; inst2
    store x2 ; inst3
    exit ; inst4
block2: ; edge 0 of block0
    store x0 to slot0
    -> block1
"
    );
}
