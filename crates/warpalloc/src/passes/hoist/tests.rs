use super::levels::Levels;
use super::*;
use crate::analysis::{Cfg, Live};
use crate::function::{Builder, Effect, Function, VReg};
use crate::generate::{self, Rng, Shape};
use crate::ir::{LiveRanges, Op, Value};
use crate::target::{Class, File};
use std::collections::BTreeSet;

/// `x = load; outer: y = load; inner: c = scale x; d = bias c; e = turn y; store d, e;
/// branch inner or latch; latch: branch outer or out`.
/// Instructions: 3 `scale`, 4 `bias`, 5 `turn`.
fn nested() -> (Builder, [VReg; 5]) {
    let mut b = Builder::new("nested");
    let (entry, outer, inner) = (b.block(), b.block(), b.block());
    let (latch, out) = (b.block(), b.block());
    let [x, y, c, d, e] = std::array::from_fn(|_| b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.jump(entry, outer, &[]);
    b.inst(outer, "load").def(y).effect(Effect::Read);
    b.jump(outer, inner, &[]);
    b.inst(inner, "scale").def(c).use_(x).remat(3);
    b.inst(inner, "bias").def(d).use_(c).remat(1);
    b.inst(inner, "turn").def(e).use_(y).remat(2);
    b.inst(inner, "store").use_(d).use_(e).effect(Effect::Write);
    b.edge(inner, inner, &[]);
    b.edge(inner, latch, &[]);
    b.branch(inner, "br");
    b.edge(latch, outer, &[]);
    b.edge(latch, out, &[]);
    b.branch(latch, "br");
    b.exit(out, "exit");
    (b, [x, y, c, d, e])
}

/// What moves, by opcode, and the edges where it then stands.
fn moved(b: Builder, budget: usize, policy: HoistPolicy, chains: bool) -> Vec<(String, Block)> {
    let target = Target::hardware(90).unwrap().with_budget(File::R, budget);
    let function = b.finish();
    let mut program = Program::new(&function, &target, None).unwrap();
    let mut facts = Facts::of(&program);
    let insts = hoist_invariants(&mut program, &target, &mut facts, policy, chains);
    // What moves out of two loops counts once.
    assert!(insts.is_sorted_by(|a, b| a < b), "{insts:?}");
    let mut found = Vec::new();
    for info in program.blocks.values() {
        for op in &info.ops {
            if let Op::Recompute { inst, .. } = op {
                assert!(program.deleted.contains(*inst) && insts.contains(inst));
                let name = function.opcode_name(function.inst(*inst).opcode);
                found.push((name.to_owned(), info.edge.unwrap().0));
            }
        }
    }
    assert_eq!(found.is_empty(), insts.is_empty());
    found
}

fn at(names: &[(&str, usize)]) -> Vec<(String, Block)> {
    let named = names
        .iter()
        .map(|&(name, block)| (name.to_owned(), Block::new(block)));
    named.collect()
}

#[test]
fn the_policy_names_the_loops() {
    let run = |policy| moved(nested().0, 64, policy, true);
    assert_eq!(run(HoistPolicy::Never), []);
    // The edges into the loops leave the entry, block 0, and the outer header, block 1.
    let inner = at(&[("scale", 1), ("turn", 1), ("bias", 1)]);
    assert_eq!(run(HoistPolicy::Inner), inner);
    let mut always = run(HoistPolicy::Always);
    always.sort_unstable();
    let expected = at(&[("bias", 0), ("scale", 0), ("turn", 1)]);
    assert_eq!(always, expected);
}

#[test]
fn chains_are_optional() {
    let moved = moved(nested().0, 64, HoistPolicy::Inner, false);
    assert_eq!(moved, at(&[("scale", 1), ("turn", 1)]));
}

/// A loop of one block whose invariant is `scale`, with `more` in it.
fn one_loop(more: impl FnOnce(&mut Builder, Block, VReg, VReg)) -> Vec<(String, Block)> {
    let mut b = Builder::new("one");
    let (entry, head, out) = (b.block(), b.block(), b.block());
    let (x, c) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.jump(entry, head, &[]);
    more(&mut b, head, x, c);
    b.inst(head, "store").use_(c).effect(Effect::Write);
    b.edge(head, head, &[]);
    b.edge(head, out, &[]);
    b.branch(head, "br");
    b.exit(out, "exit");
    moved(b, 64, HoistPolicy::Inner, true)
}

#[test]
fn only_what_yields_the_same_in_every_turn_moves() {
    let scale = |b: &mut Builder, head, x, c| {
        b.inst(head, "scale").def(c).use_(x).remat(3);
    };
    assert_eq!(one_loop(scale), at(&[("scale", 0)]));
    let input_changes = one_loop(|b, head, x, c| {
        scale(b, head, x, c);
        b.inst(head, "inc").use_def(x);
    });
    assert_eq!(input_changes, []);
    let written_twice = one_loop(|b, head, x, c| {
        b.inst(head, "load").def(c).effect(Effect::Read);
        b.inst(head, "store").use_(c).effect(Effect::Write);
        scale(b, head, x, c);
    });
    assert_eq!(written_twice, []);
    let reads_state = one_loop(|b, head, x, c| {
        b.inst(head, "load").def(c).use_(x).effect(Effect::Read);
    });
    assert_eq!(reads_state, []);
    let not_again = one_loop(|b, head, x, c| {
        b.inst(head, "scale").def(c).use_(x);
    });
    assert_eq!(not_again, []);
    let pinned = one_loop(|b, head, x, c| {
        b.pin(c);
        scale(b, head, x, c);
    });
    assert_eq!(pinned, []);
    let reads_itself = one_loop(|b, head, x, c| {
        b.inst(head, "next").def(x).use_(x).remat(3);
        b.inst(head, "load").def(c).effect(Effect::Read);
    });
    assert_eq!(reads_itself, []);
}

/// A copy that is coalesced costs nothing.
#[test]
fn copies_stay() {
    let copy = one_loop(|b, head, x, c| {
        b.copy(head, c, x).remat(3);
    });
    assert_eq!(copy, []);
}

#[test]
fn each_edge_into_the_loop_computes_an_invariant_once() {
    let mut b = Builder::new("parallel");
    let [entry, side, head, out] = std::array::from_fn(|_| b.block());
    let (x, c) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    for to in [head, side, head] {
        b.edge(entry, to, &[]);
    }
    b.branch(entry, "switch");
    b.jump(side, head, &[]);
    b.inst(head, "scale").def(c).use_(x).remat(3);
    b.inst(head, "store").use_(c).effect(Effect::Write);
    b.edge(head, head, &[]);
    b.edge(head, out, &[]);
    b.branch(head, "br");
    b.exit(out, "exit");
    let expected = at(&[("scale", 0), ("scale", 0), ("scale", 1)]);
    assert_eq!(moved(b, 64, HoistPolicy::Inner, true), expected);
}

#[test]
fn predicates_are_too_scarce_to_be_kept_through_a_loop() {
    let compare = one_loop(|b, head, x, c| {
        let p = b.vreg(Class::PRED);
        b.inst(head, "setp").def(p).use_(x).remat(3);
        b.inst(head, "select").def(c).use_(x).use_(p);
    });
    assert_eq!(compare, []);
}

#[test]
fn what_one_turn_hands_to_the_next_stays() {
    let mut b = Builder::new("carried");
    let (entry, head, out) = (b.block(), b.block(), b.block());
    let (x, c) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "load").def(c).effect(Effect::Read);
    b.jump(entry, head, &[]);
    // The first turn stores what was loaded.
    b.inst(head, "store").use_(c).effect(Effect::Write);
    b.inst(head, "scale").def(c).use_(x).remat(3);
    b.edge(head, head, &[]);
    b.edge(head, out, &[]);
    b.branch(head, "br");
    b.inst(out, "store").use_(c).effect(Effect::Write);
    b.exit(out, "exit");
    assert_eq!(moved(b, 64, HoistPolicy::Inner, true), []);
}

/// A loop that reads `long` values from outside and has two invariants: `scale`, whose
/// input `x` nobody else reads, and `bias` of a value that is read anyway. Elsewhere the
/// loop needs two registers for a moment.
fn crowded(long: usize) -> Builder {
    let mut b = Builder::new("crowded");
    let (entry, head, out) = (b.block(), b.block(), b.block());
    let values: Vec<VReg> = (0..long).map(|_| b.vreg(Class::R32)).collect();
    let [x, c, d, s, t] = std::array::from_fn(|_| b.vreg(Class::R32));
    for &v in values.iter().chain([&x]) {
        b.inst(entry, "load").def(v).effect(Effect::Read);
    }
    b.jump(entry, head, &[]);
    b.inst(head, "load").def(s).effect(Effect::Read);
    b.inst(head, "load").def(t).effect(Effect::Read);
    b.inst(head, "store").use_(s).use_(t).effect(Effect::Write);
    b.inst(head, "scale").def(c).use_(x).remat(3);
    b.inst(head, "store").use_(c).effect(Effect::Write);
    b.inst(head, "bias").def(d).use_(values[0]).remat(3);
    b.inst(head, "store").use_(d).effect(Effect::Write);
    for &v in &values {
        b.inst(head, "store").use_(v).effect(Effect::Write);
    }
    b.edge(head, head, &[]);
    b.edge(head, out, &[]);
    b.branch(head, "br");
    b.exit(out, "exit");
    b
}

#[test]
fn registers_that_are_not_there_are_not_taken() {
    // The values, `x`, `s` and `t`: sixteen are alive at most, and sixteen is a granule.
    let scale = at(&[("scale", 0)]);
    assert_eq!(moved(crowded(13), 64, HoistPolicy::Inner, true), scale);
    // The next granule is free to take, unless the budget ends before it.
    let both = at(&[("scale", 0), ("bias", 0)]);
    assert_eq!(moved(crowded(14), 64, HoistPolicy::Inner, true), both);
    assert_eq!(moved(crowded(14), 17, HoistPolicy::Inner, true), scale);
    // One less alive leaves room within the granule.
    assert_eq!(moved(crowded(12), 64, HoistPolicy::Inner, true), both);
}

/// The loop is full where the result of `widen` is live: it may go because that position has
/// it anyway, and its input leaves with it. The register of the input goes to `bias`.
#[test]
fn what_leaves_where_the_loop_is_full_makes_room_for_the_next() {
    let mut b = Builder::new("full");
    let (entry, head, out) = (b.block(), b.block(), b.block());
    let values: Vec<VReg> = (0..12).map(|_| b.vreg(Class::R32)).collect();
    let [x, d, s] = std::array::from_fn(|_| b.vreg(Class::R32));
    let wide = b.vreg(Class::R64);
    for &v in values.iter().chain([&x]) {
        b.inst(entry, "load").def(v).effect(Effect::Read);
    }
    b.jump(entry, head, &[]);
    b.inst(head, "widen").def(wide).use_(x).remat(9);
    // The values, `x`, `wide` and `s`: all sixteen of a granule.
    b.inst(head, "load").def(s).effect(Effect::Read);
    b.inst(head, "store").use_(s).effect(Effect::Write);
    b.inst(head, "store").use_(wide).effect(Effect::Write);
    b.inst(head, "bias").def(d).use_(values[0]).remat(1);
    b.inst(head, "store").use_(d).effect(Effect::Write);
    for &v in &values {
        b.inst(head, "store").use_(v).effect(Effect::Write);
    }
    b.edge(head, head, &[]);
    b.edge(head, out, &[]);
    b.branch(head, "br");
    b.exit(out, "exit");
    let both = at(&[("widen", 0), ("bias", 0)]);
    assert_eq!(moved(b, 64, HoistPolicy::Inner, true), both);
}

#[test]
fn policies_have_names_and_numbers() {
    for policy in [HoistPolicy::Always, HoistPolicy::Inner, HoistPolicy::Never] {
        assert_eq!(policy.to_string().parse(), Ok(policy));
        assert_eq!(policy.number().to_string().parse(), Ok(policy));
    }
    assert_eq!("2".parse::<HoistPolicy>(), Err(()));
}

/// Functions with something that may run again, every other one with wide values.
fn random_functions(target: &Target, seed: u64) -> impl Iterator<Item = Function> {
    let mut rng = Rng::new(seed);
    (0..120).map(move |number| {
        let shape = Shape {
            remat: true,
            wide: number % 2 == 0,
            ..Shape::random(80, &mut rng)
        };
        generate::function(&shape, target, &mut rng)
    })
}

#[test]
fn facts_are_those_of_the_program_afterwards() {
    let target = Target::hardware(90).unwrap();
    let mut hoisted = 0;
    for (number, function) in random_functions(&target, 5).enumerate() {
        for policy in [HoistPolicy::Inner, HoistPolicy::Always] {
            let mut program = Program::new(&function, &target, None).unwrap();
            let mut facts = Facts::of(&program);
            let chains = number % 3 > 0;
            let moved = hoist_invariants(&mut program, &target, &mut facts, policy, chains);
            hoisted += moved.len();
            assert_same_facts(&program, &facts, &Facts::of(&program));
            let ranges = LiveRanges::compute(&program, &target, &facts);
            assert_levels(&program, &target, &facts, &ranges);
        }
    }
    assert!(hoisted > 30, "{hoisted}");
}

/// A block that never runs, reads the invariant and leads into the middle of the loop.
#[test]
fn levels_count_blocks_that_never_run() {
    let mut b = Builder::new("unreached");
    let [entry, head, latch, out, stray] = std::array::from_fn(|_| b.block());
    let (x, c) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.jump(entry, head, &[]);
    b.inst(head, "scale").def(c).use_(x).remat(3);
    b.jump(head, latch, &[]);
    b.inst(latch, "store").use_(c).effect(Effect::Write);
    b.edge(latch, head, &[]);
    b.edge(latch, out, &[]);
    b.branch(latch, "br");
    b.exit(out, "exit");
    b.inst(stray, "store").use_(c).effect(Effect::Write);
    b.jump(stray, latch, &[]);
    let function = b.finish();
    let target = Target::hardware(90).unwrap();
    let mut program = Program::new(&function, &target, None).unwrap();
    let mut facts = Facts::of(&program);
    for moves in [1, 0] {
        let ranges = LiveRanges::compute(&program, &target, &facts);
        assert_levels(&program, &target, &facts, &ranges);
        let policy = HoistPolicy::Always;
        let moved = hoist_invariants(&mut program, &target, &mut facts, policy, true);
        assert_eq!(moved.len(), moves);
    }
}

/// Counting alone finds what the ranges of values add up to, and where a result is not
/// alive in a loop.
#[test]
fn levels_are_those_of_ranges() {
    let target = Target::hardware(90).unwrap();
    let mut candidates = 0;
    for function in random_functions(&target, 6) {
        let program = Program::new(&function, &target, None).unwrap();
        let facts = Facts::of(&program);
        let ranges = LiveRanges::compute(&program, &target, &facts);
        let levels = assert_levels(&program, &target, &facts, &ranges);
        let loops = loops_of(&program, &facts.loops, HoistPolicy::Inner, 0);
        let mut tallies = Tallies::new(&program);
        for (l, _) in facts.loops.loops() {
            let blocks = loops.row(l);
            let nest = Nest::new(&program, &target, &facts, &mut tallies, l, blocks);
            if let Some(nest) = nest {
                candidates += nest.assert_extents(&levels, &ranges);
            }
        }
    }
    assert!(candidates > 50, "{candidates}");
}

/// `x = load; y = load; x = add x, y`, its operands in either order, and `x` is read once
/// more or not at all.
#[test]
fn levels_do_not_depend_on_the_order_of_operands() {
    let levels = |written_first: bool, is_read: bool| {
        let mut b = Builder::new("f");
        let block = b.block();
        let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
        b.inst(block, "load").def(x).effect(Effect::Read);
        b.inst(block, "load").def(y).effect(Effect::Read);
        match written_first {
            true => b.inst(block, "add").def(x).use_(x).use_(y),
            false => b.inst(block, "add").use_(x).use_(y).def(x),
        };
        match is_read {
            true => b.inst(block, "store").use_(x).effect(Effect::Write),
            false => b.inst(block, "fence").effect(Effect::Write),
        };
        b.exit(block, "exit");
        let function = b.finish();
        let target = Target::hardware(90).unwrap();
        let program = Program::new(&function, &target, None).unwrap();
        let levels = Levels::of(&program, &target, &Facts::of(&program));
        let positions = levels.positions(&program, block);
        let level = |at| level_at(&levels, File::R, at);
        positions.map(level).collect::<Vec<_>>()
    };
    for written_first in [true, false] {
        assert_eq!(levels(written_first, true), [0, 1, 2, 1, 0, 0]);
        assert_eq!(levels(written_first, false), [0, 1, 2, 1, 0, 0]);
    }
}

/// Counts anew, and compares with what the ranges of values add up to.
fn assert_levels(program: &Program, target: &Target, facts: &Facts, ranges: &LiveRanges) -> Levels {
    let levels = Levels::of(program, target, facts);
    for file in [File::R, File::UR] {
        let expected = &ranges.pressure(target)[file.index()];
        for (block, info) in program.blocks.iter() {
            for (index, at) in levels.positions(program, block).enumerate() {
                let level = level_at(&levels, file, at);
                let expected = expected[ranges.base(block) as usize + index];
                assert_eq!(level, expected, "{block} {index} of {}", info.ops.len());
            }
        }
    }
    levels
}

fn level_at(levels: &Levels, file: File, position: u32) -> i32 {
    let only = position..position + 1;
    levels.most(file, std::slice::from_ref(&only))
}

impl Nest<'_> {
    /// Compares where results are not alive with their ranges; how many there are.
    fn assert_extents(&self, levels: &Levels, ranges: &LiveRanges) -> usize {
        for candidate in &self.candidates {
            let without = self.extent.without(levels, candidate);
            for &block in self.extent.blocks {
                for (index, at) in levels.positions(self.program, block).enumerate() {
                    let at_range = ranges.base(block) + index as u32;
                    let mut alive = ranges.of(candidate.result).iter();
                    let alive = alive.any(|s| (s.start..s.end).contains(&at_range));
                    let apart = without.iter().any(|range| range.contains(&at));
                    assert_eq!(apart, !alive, "{candidate:?} in {block} at {index}");
                }
            }
        }
        self.candidates.len()
    }
}

fn assert_same_facts(program: &Program, known: &Facts, anew: &Facts) {
    let supplied = |b: Block| program.supplied_frequency(b).is_some();
    let is_supplied = program.all_blocks().any(supplied);
    assert_eq!(known.order.all(), anew.order.all());
    for block in program.all_blocks() {
        let sorted = |live: Live<Value>| live.collect::<BTreeSet<_>>();
        let (a, b) = (&known.liveness, &anew.liveness);
        assert_eq!(sorted(a.live_in(block)), sorted(b.live_in(block)));
        assert_eq!(sorted(a.live_out(block)), sorted(b.live_out(block)));
        let around = |facts: &Facts| {
            let loops = facts.loops.around(block);
            loops
                .map(|l| facts.loops.info(l).header)
                .collect::<Vec<_>>()
        };
        assert_eq!(around(known), around(anew));
        let frequency = |facts: &Facts| facts.frequencies.block(block);
        let apart = (frequency(known) - frequency(anew)).abs();
        assert!(is_supplied || apart <= 1e-9 * frequency(anew), "{block}");
        for (edge, _) in program.successors(block).enumerate() {
            let probability = |facts: &Facts| facts.frequencies.probability(block, edge);
            assert_eq!(probability(known), probability(anew), "{block}");
        }
    }
}
