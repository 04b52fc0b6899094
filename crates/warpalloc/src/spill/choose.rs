//! Which values to spill: those of least cost for the room they make.
//!
//! A spilled value keeps a register at every operation that reads or writes it, so its spill
//! frees registers only at the other positions of its live range. [`PointPressure`] knows
//! them, and what is in use at each position while spills are being chosen. [`by_relief`]
//! spills the value of the lowest cost for the units it relieves, one after the other.

use crate::analysis::Rows;
use crate::function::{Block, Clobbers, Role};
use crate::ir::{LiveRanges, Op, Program, Segment, Value};
use crate::target::{File, Target, UnitSet};
use cranelift_entity::EntityRef;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Units in use at each position, as the spills chosen so far leave them.
///
/// A position between two operations is two here, one right after the first and one right
/// before the second: a result is stored before the next operation's inputs are reloaded.
/// Behind all of them, each operation that clobbers registers may have a position of its own
/// ([`beside_clobbers`](PointPressure::beside_clobbers)).
pub struct PointPressure<'a> {
    ranges: &'a LiveRanges,
    /// The positions before operations that clobber registers, ascending.
    clobbering: Vec<u32>,
    /// Positions at which a value is in a register even if it is spilled.
    touches: Rows<Value, u32>,
    /// By file and position.
    units: Vec<Vec<i32>>,
}

impl<'a> PointPressure<'a> {
    /// The pressure of `program` before any spill. Where reloads are lazy, what is read and
    /// what is written stays in its register from one operation to the next.
    pub fn new(
        program: &Program,
        target: &Target,
        ranges: &'a LiveRanges,
        lazy_reload: bool,
    ) -> PointPressure<'a> {
        let twice = |of_file: Vec<i32>| of_file.iter().flat_map(|&at| [at, at]).collect();
        PointPressure {
            ranges,
            clobbering: Vec::new(),
            touches: touches(program, ranges, lazy_reload),
            units: ranges.pressure(target).into_iter().map(twice).collect(),
        }
    }

    /// The same with a position for each operation that clobbers registers: in use there are
    /// these, and the values that live across it.
    pub fn beside_clobbers(mut self, program: &Program, target: &Target) -> PointPressure<'a> {
        for block in in_order(program, self.ranges) {
            for (op, before) in program.blocks[block]
                .ops
                .iter()
                .zip(self.ranges.base(block)..)
            {
                let (Op::Inst { inst, .. } | Op::Recompute { inst, .. }) = op else {
                    continue;
                };
                if program.function.inst(*inst).clobbers == Clobbers::None {
                    continue;
                }
                self.clobbering.push(before);
                let clobbers = program.function.clobbers(target, *inst);
                for (file, info) in target.files() {
                    let mut units = UnitSet::<8>::of_file(target, file, &clobbers);
                    units.intersect(&UnitSet::first(info.units));
                    units.subtract(&UnitSet::of_file(target, file, target.reserved()));
                    self.units[file.index()].push(units.len() as i32);
                }
            }
        }
        if !self.clobbering.is_empty() {
            for &value in self.ranges.by_start() {
                let size = self.ranges.size(value);
                let of_file = &mut self.units[size.file.index()];
                for run in crossings(self.ranges, &self.clobbering, value) {
                    of_file[run]
                        .iter_mut()
                        .for_each(|at| *at += i32::from(size.width));
                }
            }
        }
        self
    }

    /// Units of `file` in use at each position.
    pub fn of(&self, file: File) -> &[i32] {
        &self.units[file.index()]
    }

    /// The positions at which no reload reaches later readers: `file` has no unit below `limit`
    /// left, or registers are clobbered next.
    pub fn interruptions(&self, file: File, limit: i32) -> Counted {
        let of_file = self.of(file).iter();
        let mut counted: Vec<bool> = of_file.map(|&at| at >= limit).collect();
        for &before in &self.clobbering {
            counted[2 * before as usize + 1] = true;
        }
        Counted::up_to(counted.into_iter())
    }

    /// The positions of the live range of `value`.
    pub fn lived(&self, value: Value) -> impl Iterator<Item = Range<usize>> + '_ {
        lived(self.ranges, &self.clobbering, value)
    }

    /// The positions at which `value` is an operand.
    pub fn touched(&self, value: Value) -> impl Iterator<Item = usize> + '_ {
        self.touches.row(value).iter().map(|&at| at as usize)
    }

    /// The positions at which spilling `value` frees its register.
    pub fn freed(&self, value: Value) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut touched = self.touched(value).peekable();
        let mut lived = self.lived(value);
        let mut rest = 0..0;
        std::iter::from_fn(move || {
            loop {
                if rest.is_empty() {
                    rest = lived.next()?;
                }
                let end = touched.next_if(|at| rest.contains(at));
                let run = rest.start..end.unwrap_or(rest.end);
                rest.start = end.map_or(rest.end, |at| at + 1);
                if !run.is_empty() {
                    return Some(run);
                }
            }
        })
    }

    /// Adds `units` of `file` wherever `value` is live.
    pub fn add(&mut self, value: Value, file: File, units: i32) {
        let of_file = &mut self.units[file.index()];
        for positions in lived(self.ranges, &self.clobbering, value) {
            of_file[positions].iter_mut().for_each(|at| *at += units);
        }
    }

    /// Adds `units` of `file` where spilling `value` frees its register.
    pub fn add_freed(&mut self, value: Value, file: File, units: i32) {
        self.add(value, file, units);
        let of_file = &mut self.units[file.index()];
        for &at in self.touches.row(value) {
            of_file[at as usize] -= units;
        }
    }

    /// How many of the units of `file` in use above `limit`, over all positions, go with
    /// `width` units where spilling `value` frees its register.
    pub fn relief(&self, value: Value, file: File, limit: i32, width: i32) -> i32 {
        let of_file = self.of(file);
        let over = |at: &i32| (at - limit).clamp(0, width);
        let runs = self.freed(value);
        runs.map(|run| of_file[run].iter().map(over).sum::<i32>())
            .sum()
    }
}

fn both_halves(segment: &Segment) -> Range<usize> {
    2 * segment.start as usize..2 * segment.end as usize
}

/// The positions of the live range of `value`, those beside clobbers last.
fn lived<'r>(
    ranges: &'r LiveRanges,
    clobbering: &'r [u32],
    value: Value,
) -> impl Iterator<Item = Range<usize>> + 'r {
    let segments = ranges.of(value).iter().map(both_halves);
    segments.chain(crossings(ranges, clobbering, value))
}

/// The positions beside clobbers which `value` lives across.
fn crossings<'r>(
    ranges: &'r LiveRanges,
    clobbering: &'r [u32],
    value: Value,
) -> impl Iterator<Item = Range<usize>> + 'r {
    let behind = 2 * ranges.positions() as usize;
    let segments = match clobbering.is_empty() || !ranges.crosses_clobber(value) {
        true => &[],
        false => ranges.of(value),
    };
    segments.iter().map(move |segment| {
        // A segment has one content: it is live across what it has on both sides.
        let first = clobbering.partition_point(|&before| before < segment.start);
        let end = clobbering.partition_point(|&before| before + 1 < segment.end);
        behind + first..behind + end.max(first)
    })
}

/// The blocks of `program` in the order of their positions.
fn in_order(program: &Program, ranges: &LiveRanges) -> Vec<Block> {
    let mut blocks: Vec<Block> = program.blocks.keys().collect();
    blocks.sort_unstable_by_key(|&block| ranges.base(block));
    blocks
}

/// Positions of a kind, counted up to each.
pub struct Counted(Vec<u32>);

impl Counted {
    /// Counts the positions of `units` that `is_counted`.
    pub fn new(units: &[i32], is_counted: impl Fn(i32) -> bool) -> Counted {
        Counted::up_to(units.iter().map(|&at| is_counted(at)))
    }

    /// Counts the positions that are `counted`.
    fn up_to(counted: impl Iterator<Item = bool>) -> Counted {
        let mut count = 0;
        let up_to = counted.map(|is_counted| {
            count += u32::from(is_counted);
            count
        });
        Counted(std::iter::once(0).chain(up_to).collect())
    }

    /// How many of `positions` are counted.
    pub fn within(&self, positions: Range<usize>) -> u32 {
        self.0[positions.end] - self.0[positions.start]
    }

    /// At how many counted positions `value` is live, and at how many of these its spill
    /// frees its register.
    pub fn of(&self, value: Value, pressure: &PointPressure) -> (u32, u32) {
        let lived = pressure.lived(value).map(|at| self.within(at)).sum();
        let touched = pressure.touched(value).map(|at| self.within(at..at + 1));
        (lived, lived - touched.sum::<u32>())
    }
}

/// A value that may be spilled, in order: least cost for its relief, then the lowest rank,
/// then the lowest number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Cost over relief.
    pub ratio: f32,
    /// What decides among values of equal ratio.
    pub rank: u32,
    /// The value.
    pub value: Value,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    /// The best candidate is the greatest.
    fn cmp(&self, other: &Candidate) -> Ordering {
        let by_ratio = other.ratio.total_cmp(&self.ratio);
        by_ratio
            .then(other.rank.cmp(&self.rank))
            .then(other.value.cmp(&self.value))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Spills the best of `candidates` until none relieves anything. The ratio of each is at
/// most the one `ratio` says, which only rises as others are spilled, and is none where the
/// value relieves nothing.
pub fn by_relief<S>(
    state: &mut S,
    candidates: impl Iterator<Item = Candidate>,
    ratio: impl Fn(&S, Value) -> Option<f32>,
    mut spill: impl FnMut(&mut S, Value),
) {
    let mut heap: BinaryHeap<Candidate> = candidates.collect();
    while let Some(entry) = heap.pop() {
        let Some(ratio) = ratio(state, entry.value) else {
            continue;
        };
        let now = Candidate { ratio, ..entry };
        match heap.peek() {
            Some(next) if now < *next => heap.push(now),
            _ => spill(state, entry.value),
        }
    }
}

/// Where each value must be in a register, spilled or not, ascending. Copies of spilled
/// values are loads and stores, which need none unless they are put off.
fn touches(program: &Program, ranges: &LiveRanges, lazy_reload: bool) -> Rows<Value, u32> {
    let mut pairs: Vec<(Value, u32)> = Vec::new();
    let mut next = vec![0; program.values.len()];
    let mut note = |value: Value, position: u32, half: u32| {
        let halves = match lazy_reload {
            true => 2 * position..2 * position + 2,
            false => 2 * position + half..2 * position + half + 1,
        };
        let next = &mut next[value.index()];
        pairs.extend((halves.start.max(*next)..halves.end).map(|at| (value, at)));
        *next = halves.end;
    };
    for block in in_order(program, ranges) {
        for (op, before) in program.blocks[block].ops.iter().zip(ranges.base(block)..) {
            if !lazy_reload && matches!(op, Op::Copies(_)) {
                continue;
            }
            let accesses = op.accesses(program.function);
            for (value, _) in accesses.clone().filter(|(_, role)| *role != Role::Def) {
                note(value, before, 1);
            }
            for (value, _) in accesses.filter(|(_, role)| role.writes()) {
                note(value, before + 1, 0);
            }
        }
    }
    Rows::from_pairs(program.values.len(), pairs.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Facts;
    use crate::target::PReg;
    use crate::text;

    /// Of equal ratios the lower rank goes first, then the lower number; a value whose
    /// positions others relieved waits for its turn.
    #[test]
    fn the_cheapest_relief_goes_first_and_is_weighed_anew() {
        let all = [
            (2.0, 6, 0),
            (2.0, 1, 1),
            (1.0, 2, 2),
            (3.0, 1, 3),
            (2.0, 1, 5),
        ];
        let candidates = all.map(|(ratio, rank, value)| Candidate {
            ratio,
            rank,
            value: Value::new(value),
        });
        let mut spilled = Vec::new();
        let ratio = |spilled: &Vec<usize>, value: Value| match value.index() {
            2 => (!spilled.is_empty()).then_some(1.0),
            1 if spilled.is_empty() => Some(2.5),
            of => Some(candidates.iter().find(|c| c.value.index() == of)?.ratio),
        };
        by_relief(&mut spilled, candidates.into_iter(), ratio, |spilled, v| {
            spilled.push(v.index());
        });
        assert_eq!(spilled, [5, 0, 1, 3]);
    }

    /// `v0` is written at the first operation and read at the third and the last.
    #[test]
    fn a_spill_frees_what_lies_between_operands() {
        let case = text::parse(
            "target hardware sm_90
             kernel f {
             block0:
                 v0:r32 = load : read
                 v1:r32 = load : read
                 use v0 : write
                 use v1 : write
                 exit v0 : exit write
             }",
        )
        .unwrap();
        let program = Program::new(&case.function, &case.target, None).unwrap();
        let ranges = LiveRanges::compute(&program, &case.target, &Facts::of(&program));
        let v0 = Value::new(0);
        let lazy = PointPressure::new(&program, &case.target, &ranges, true);
        assert!(lazy.freed(v0).eq(std::iter::once(6..8)));
        let mut pressure = PointPressure::new(&program, &case.target, &ranges, false);
        let freed: Vec<_> = pressure.freed(v0).collect();
        assert!(pressure.lived(v0).eq(std::iter::once(2..10)));
        assert_eq!(freed, [3..5, 6..9]);
        let both_live = 4..8;
        assert_eq!(pressure.of(File::R)[both_live.clone()], [2; 4]);
        assert_eq!(pressure.relief(v0, File::R, 1, 1), 3);
        pressure.add_freed(v0, File::R, -1);
        assert_eq!(pressure.of(File::R)[both_live], [1, 2, 1, 1]);
        assert_eq!(pressure.relief(Value::new(1), File::R, 1, 1), 1);
    }

    /// `v0` and `v2` live across the call, `v1` is its argument and `v3` its result.
    #[test]
    fn a_call_has_a_position_with_what_it_clobbers_and_what_lives_across() {
        let case = text::parse(
            "target hardware sm_90 R=20
             kernel f {
             block0:
                 v0:r32, v1:r32, v2:r32 = load : read
                 v3:r32 = call v1 : call write clobbers abi
                 use v0, v2, v3 : write
                 exit : exit write
             }",
        )
        .unwrap();
        let (program, target) = (
            Program::new(&case.function, &case.target, None).unwrap(),
            &case.target,
        );
        let ranges = LiveRanges::compute(&program, target, &Facts::of(&program));
        let plain = PointPressure::new(&program, target, &ranges, false);
        let before = plain.of(File::R).len();
        let mut pressure = plain.beside_clobbers(&program, target);
        let clobbers = case
            .function
            .clobbers(target, crate::function::Inst::from_u32(1));
        let clobbered =
            (0..20).filter(|&unit| clobbers.contains(target.unit(PReg::new(File::R, unit))));
        let clobbered = clobbered.count() as i32;
        assert_eq!(pressure.of(File::R)[before..], [clobbered + 2]);
        let lives_across = |v| {
            pressure
                .lived(Value::new(v))
                .any(|run| run == (before..before + 1))
        };
        assert_eq!([0, 1, 2, 3].map(lives_across), [true, false, true, false]);
        pressure.add_freed(Value::new(0), File::R, -1);
        assert_eq!(pressure.of(File::R)[before..], [clobbered + 1]);
        // The argument is reloaded for readers behind the call, the result is not.
        let full = pressure.interruptions(File::R, i32::MAX);
        assert_eq!(
            [full.within(2..3), full.within(3..4), full.within(4..5)],
            [0, 1, 0]
        );
    }
}
