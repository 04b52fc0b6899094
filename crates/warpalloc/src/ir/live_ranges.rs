//! Live ranges: where each value is live, as segments of program positions.
//!
//! Blocks are laid out in reverse post-order, and positions stand between operations: one
//! before the first of a block, and one after each. Inputs are live before their operation,
//! results after it, and early results on both sides. A source that dies at a copy and the
//! copy's destination never meet, so the two may share a register without a rule for copies.
//!
//! A segment ends where the value is written anew, even if it goes on at once: one segment
//! has one content. That makes clobbers exact. An operation that overwrites
//! registers between reading and writing harms a value only where a single segment begins
//! before it and goes on after it.
//!
//! All blocks are swept once, backwards. Where two blocks meet in the layout, only values
//! that are live on one side alone are looked at: the others' segments go on.

use super::{Facts, Op, Program, Value, ValueInfo};
use crate::analysis::{Bits, Order};
use crate::function::{Block, Clobbers, Function, Inst, Role};
use crate::scratch::Scratch;
use crate::target::{File, RegSet, Target, UnitSet};
use cranelift_entity::EntityRef;

/// Positions from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// The first position.
    pub start: u32,
    /// The first position after it.
    pub end: u32,
}

/// Registers that some operations overwrite besides their results: calls all have the same.
struct ClobberSet {
    /// By file, the units overwritten.
    units: Vec<UnitSet<8>>,
    /// How many clobbers the sweep had met with the last one of this set.
    last: u32,
}

/// A value has a bit for each set, so that the last one stands for all further sets.
const MAX_CLOBBER_SETS: usize = 64;

/// The size of a value's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Which file.
    pub file: File,
    /// How many units.
    pub width: u16,
    /// What its first unit is a multiple of.
    pub align: u16,
}

/// The live ranges of all values of a program.
pub struct LiveRanges {
    /// The first position of each block, by number.
    bases: Vec<u32>,
    /// All values by number, and one more for where the segments of the last end.
    values: Vec<OfValue>,
    segments: Vec<Segment>,
    /// Values that occur, by where they are first live.
    by_start: Vec<Value>,
    clobber_sets: Vec<ClobberSet>,
    positions: u32,
    peaks: Vec<u32>,
}

/// What is known about one value.
#[derive(Clone, Copy)]
struct OfValue {
    /// Where its segments begin among all.
    first: u32,
    size: Size,
    /// The sets of registers that are overwritten while it is live, a bit for each.
    crossed: u64,
}

impl LiveRanges {
    /// Sweeps `program`, whose facts are known.
    pub fn compute(program: &Program, target: &Target, facts: &Facts) -> LiveRanges {
        LiveRanges::compute_in(program, target, facts, &Scratch::default())
    }

    /// The same in memory of `scratch`.
    pub fn compute_in(
        program: &Program,
        target: &Target,
        facts: &Facts,
        scratch: &Scratch,
    ) -> LiveRanges {
        let Facts {
            order, liveness, ..
        } = facts;
        let mut sweep = Sweep::new(program, target, order, scratch);
        let mut after: &[Bits] = &[];
        for &block in order.all().iter().rev() {
            let end = sweep.end_of(program, block);
            for value in liveness.only_in_one(liveness.live_out_bits(block), after) {
                if sweep.is_alive(value) {
                    sweep.close(value, end, end + 1);
                } else {
                    sweep.begin(value, end);
                }
            }
            target.files().for_each(|(file, _)| sweep.note_peak(file));
            sweep.block(program, target, block);
            after = liveness.live_in_bits(block);
        }
        for value in liveness.values(after) {
            sweep.close(value, 0, 1);
        }
        sweep.finish(scratch)
    }

    /// Leaves its memory to others.
    pub fn recycle(self, scratch: &Scratch) {
        scratch.give(self.bases);
        scratch.give(self.values);
        scratch.give(self.segments);
        scratch.give(self.by_start);
    }

    /// The first position of `block`. It has one more than operations.
    pub fn base(&self, block: Block) -> u32 {
        self.bases[block.index()]
    }

    /// The positions of `block`.
    pub fn of_block(&self, program: &Program, block: Block) -> std::ops::Range<usize> {
        let base = self.base(block) as usize;
        base..base + program.blocks[block].ops.len() + 1
    }

    /// The segments of `value`, in ascending order.
    pub fn of(&self, value: Value) -> &[Segment] {
        let index = value.index();
        let [own, next] = [&self.values[index], &self.values[index + 1]];
        &self.segments[own.first as usize..next.first as usize]
    }

    /// The size of the register `value` needs.
    pub fn size(&self, value: Value) -> Size {
        self.values[value.index()].size
    }

    /// Values that occur, by where they are first live.
    pub fn by_start(&self) -> &[Value] {
        &self.by_start
    }

    /// How many values the program has.
    pub fn value_count(&self) -> usize {
        self.values.len() - 1
    }

    /// How many positions the program has.
    pub fn positions(&self) -> u32 {
        self.positions
    }

    /// The greatest number of units of `file` in use at once: no allocation without
    /// spilling takes fewer.
    pub fn peak(&self, file: File) -> usize {
        self.peaks[file.index()] as usize
    }

    /// Units in use, by file and position.
    pub fn pressure(&self, target: &Target) -> Vec<Vec<i32>> {
        self.pressure_of(target, |_| true)
    }

    /// Units that the values which count have in use, by file and position.
    pub fn pressure_of(&self, target: &Target, counts: impl Fn(Value) -> bool) -> Vec<Vec<i32>> {
        let mut units = vec![vec![0; self.positions as usize + 1]; target.files().len()];
        for &value in self.by_start.iter().filter(|&&value| counts(value)) {
            let Size { file, width, .. } = self.size(value);
            for segment in self.of(value) {
                units[file.index()][segment.start as usize] += i32::from(width);
                units[file.index()][segment.end as usize] -= i32::from(width);
            }
        }
        // Changes up to a position add up to what is in use there; after the last, nothing is.
        for of_file in &mut units {
            let mut now = 0;
            for at in of_file.iter_mut() {
                now += *at;
                *at = now;
            }
            of_file.pop();
        }
        units
    }

    /// Positions that `value` covers.
    pub fn length(&self, value: Value) -> u32 {
        self.of(value).iter().map(|s| s.end - s.start).sum()
    }

    /// Whether the two values are live at once somewhere.
    pub fn overlap(&self, a: Value, b: Value) -> bool {
        overlap(self.of(a), self.of(b))
    }

    /// Whether each segment of `inner` lies in one of `outer`.
    pub fn is_within(&self, inner: Value, outer: Value) -> bool {
        let around = self.of(outer);
        self.of(inner).iter().all(|s| {
            let after = around.partition_point(|o| o.end <= s.start);
            around
                .get(after)
                .is_some_and(|o| o.start <= s.start && s.end <= o.end)
        })
    }

    /// The units of its file that are overwritten while `value` is live.
    pub fn clobbered(&self, value: Value) -> UnitSet<8> {
        let file = self.size(value).file.index();
        let crossed = self.values[value.index()].crossed;
        let sets = self.clobber_sets.iter().enumerate();
        let mut units = UnitSet::EMPTY;
        for (_, set) in sets.filter(|(number, _)| crossed >> number & 1 == 1) {
            units.add(&set.units[file]);
        }
        units
    }

    /// Whether any operation overwrites registers besides its results.
    pub fn has_clobbers(&self) -> bool {
        !self.clobber_sets.is_empty()
    }

    /// Whether an operation overwrites registers, of any file, while `value` is live.
    pub fn crosses_clobber(&self, value: Value) -> bool {
        self.values[value.index()].crossed != 0
    }
}

/// Whether two ascending lists of segments share a position.
pub fn overlap(mut a: &[Segment], mut b: &[Segment]) -> bool {
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        if x.end <= y.start {
            a = skip(a, y.start);
        } else if y.end <= x.start {
            b = skip(b, x.start);
        } else {
            return true;
        }
    }
    false
}

/// What is left of `list` after segments that end by `position`; gallops, as one list may
/// be far longer than the other.
fn skip(list: &[Segment], position: u32) -> &[Segment] {
    let mut step = 1;
    while step < list.len() && list[step].end <= position {
        step *= 2;
    }
    let near = &list[step / 2..list.len().min(step + 1)];
    let more = near.partition_point(|s| s.end <= position);
    &list[step / 2 + more..]
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    segment: Segment,
    next: u32,
    value: Value,
}

struct Sweep {
    /// First position of each block, by block number.
    bases: Vec<u32>,
    positions: u32,
    tracks: Vec<Track>,
    nodes: Vec<Node>,
    /// What the operation at hand reads, and writes early.
    inputs: Vec<Value>,
    early: Vec<Value>,
    /// How many operations overwrite registers, as far as the sweep has come.
    clobbers: u32,
    clobber_kinds: Vec<Clobbers>,
    clobber_sets: Vec<ClobberSet>,
    now: Vec<u32>,
    peaks: Vec<u32>,
}

/// A value as far as the sweep has come.
#[derive(Clone, Copy)]
struct Track {
    size: Size,
    /// Where the segment ends that it is in; 0 while it is not live.
    end: u32,
    /// How many clobbers come after that.
    clobbers: u32,
    /// Its earliest segment, in `nodes`.
    head: u32,
    /// The sets of registers that are overwritten while it is live.
    crossed: u64,
}

impl Sweep {
    fn new(program: &Program, target: &Target, order: &Order, scratch: &Scratch) -> Sweep {
        let mut bases = scratch.filled(0, program.blocks.len());
        let mut next = 0;
        for &block in order.all() {
            bases[block.index()] = next;
            next += 1 + program.blocks[block].ops.len() as u32;
        }
        let fresh = target.classes().map(|(_, c)| Track {
            size: Size {
                file: c.file,
                width: c.width as u16,
                align: c.align as u16,
            },
            end: 0,
            clobbers: 0,
            head: NONE,
            crossed: 0,
        });
        let fresh: Vec<Track> = fresh.collect();
        let track = |v: &ValueInfo| fresh[v.class.index()];
        let values = program.values.len();
        Sweep {
            bases,
            positions: next,
            tracks: scratch.collected(program.values.values().map(track)),
            nodes: scratch.take(values + values / 2),
            inputs: scratch.growing(),
            early: Vec::new(),
            clobbers: 0,
            clobber_kinds: Vec::new(),
            clobber_sets: Vec::new(),
            now: vec![0; target.files().len()],
            peaks: vec![0; target.files().len()],
        }
    }

    /// The first position after `block`.
    fn end_of(&self, program: &Program, block: Block) -> u32 {
        self.bases[block.index()] + 1 + program.blocks[block].ops.len() as u32
    }

    fn block(&mut self, program: &Program, target: &Target, block: Block) {
        let base = self.bases[block.index()];
        for (index, op) in program.blocks[block].ops.iter().enumerate().rev() {
            self.operation(program, target, op, base + index as u32);
        }
    }

    fn operation(&mut self, program: &Program, target: &Target, op: &Op, before: u32) {
        match op {
            Op::Inst { inst, values } | Op::Recompute { inst, values } => {
                let function = program.function;
                let accesses = values.iter().zip(function.operands(*inst));
                let accesses = accesses.map(|(&value, operand)| (value, operand.role));
                self.writes(accesses, before);
                // Its inputs are no longer needed, and its results not yet written.
                if function.inst(*inst).clobbers != Clobbers::None {
                    self.clobber(function, target, *inst);
                }
            }
            other => self.writes(other.accesses(program.function), before),
        }
        self.reads(before);
    }

    /// Notes that `inst` overwrites registers.
    fn clobber(&mut self, function: &Function, target: &Target, inst: Inst) {
        let kind = function.inst(inst).clobbers;
        let known = self.clobber_kinds.iter().position(|&k| k == kind);
        let number = known.unwrap_or_else(|| {
            self.clobber_kinds.push(kind);
            self.add_clobber_set(target, &function.clobbers(target, inst));
            self.clobber_kinds.len() - 1
        });
        self.clobbers += 1;
        self.clobber_sets[number.min(MAX_CLOBBER_SETS - 1)].last = self.clobbers;
    }

    fn add_clobber_set(&mut self, target: &Target, registers: &RegSet) {
        let files = target.files().map(|(file, _)| file);
        let units = files.map(|file| UnitSet::of_file(target, file, registers));
        if self.clobber_sets.len() < MAX_CLOBBER_SETS {
            let units = units.collect();
            self.clobber_sets.push(ClobberSet { units, last: 0 });
        } else if let Some(rest) = self.clobber_sets.last_mut() {
            rest.units
                .iter_mut()
                .zip(units)
                .for_each(|(all, more)| all.add(&more));
        }
    }

    /// Ends the segments of results, and notes what is read.
    fn writes(&mut self, accesses: impl Iterator<Item = (Value, Role)> + Clone, before: u32) {
        let after = before + 1;
        let mut dead = false;
        for (value, role) in accesses.clone() {
            // One by one: a jump table costs more than it saves here.
            if role == Role::Use {
                self.inputs.push(value);
                continue;
            }
            if role == Role::EarlyDef {
                self.early.push(value);
                continue;
            }
            if role == Role::UseDef {
                self.inputs.push(value);
            }
            dead |= self.result(value, after, after + 1);
        }
        // Early results begin before the others, so the sweep gets there after them.
        for index in 0..self.early.len() {
            dead |= self.result(self.early[index], before, after + 1);
        }
        if dead {
            // Results without a reader need registers all the same, with the others.
            let results = accesses.filter(|(_, role)| role.writes());
            self.note_together(results.map(|(value, _)| value));
        }
    }

    /// Ends the segment of a result that is live from `start` on; whether it has no reader.
    #[inline]
    fn result(&mut self, value: Value, start: u32, end: u32) -> bool {
        let dead = !self.is_alive(value);
        match dead {
            true => self.push(value, Segment { start, end }),
            false => self.close(value, start, end),
        }
        dead
    }

    /// Begins the segments of what was noted.
    fn reads(&mut self, before: u32) {
        for index in 0..self.inputs.len() {
            let value = self.inputs[index];
            if !self.is_alive(value) {
                let file = self.begin(value, before + 1);
                self.note_peak(file);
            }
        }
        self.inputs.clear();
        if !self.early.is_empty() {
            // Early results are there together with everything that is read.
            let early = std::mem::take(&mut self.early);
            self.note_together(early.iter().copied());
        }
    }

    /// Counts `values` with the live ones, for once.
    fn note_together(&mut self, values: impl Iterator<Item = Value> + Clone) {
        let tracks = &self.tracks;
        let sizes = values.map(|value| tracks[value.index()].size);
        for size in sizes.clone() {
            let now = &mut self.now[size.file.index()];
            *now += u32::from(size.width);
            let peak = &mut self.peaks[size.file.index()];
            *peak = (*peak).max(*now);
        }
        sizes.for_each(|size| self.now[size.file.index()] -= u32::from(size.width));
    }

    fn is_alive(&self, value: Value) -> bool {
        self.tracks[value.index()].end != 0
    }

    /// Begins a segment, and says in which file.
    fn begin(&mut self, value: Value, end: u32) -> File {
        let track = &mut self.tracks[value.index()];
        (track.end, track.clobbers) = (end, self.clobbers);
        let Size { file, width, .. } = track.size;
        self.now[file.index()] += u32::from(width);
        file
    }

    /// Remembers how much is live in `file`, if it is the most so far.
    fn note_peak(&mut self, file: File) {
        let peak = &mut self.peaks[file.index()];
        *peak = (*peak).max(self.now[file.index()]);
    }

    fn close(&mut self, value: Value, start: u32, at_least: u32) {
        let track = &mut self.tracks[value.index()];
        self.now[track.size.file.index()] -= u32::from(track.size.width);
        if track.clobbers < self.clobbers {
            for (number, set) in self.clobber_sets.iter().enumerate() {
                track.crossed |= u64::from(set.last > track.clobbers) << number;
            }
        }
        let end = std::mem::take(&mut track.end).max(at_least);
        self.push(value, Segment { start, end });
    }

    /// Adds a segment before all others of `value`.
    fn push(&mut self, value: Value, segment: Segment) {
        let head = &mut self.tracks[value.index()].head;
        let next = std::mem::replace(head, self.nodes.len() as u32);
        self.nodes.push(Node {
            segment,
            next,
            value,
        });
    }

    fn finish(self, scratch: &Scratch) -> LiveRanges {
        let mut values = scratch.take(self.tracks.len() + 1);
        let mut segments = scratch.take(self.nodes.len());
        for track in &self.tracks {
            values.push(OfValue {
                first: segments.len() as u32,
                size: track.size,
                crossed: track.crossed,
            });
            let mut next = track.head;
            while let Some(node) = self.nodes.get(next as usize) {
                segments.push(node.segment);
                next = node.next;
            }
        }
        values.push(OfValue {
            first: segments.len() as u32,
            size: Size {
                file: File::MAIN,
                width: 0,
                align: 1,
            },
            crossed: 0,
        });
        // The sweep went backwards, so the last node of a value is its first segment.
        let tracks = &self.tracks;
        let mut by_start = scratch.take(tracks.len());
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if tracks[node.value.index()].head == index as u32 {
                by_start.push(node.value);
            }
        }
        scratch.give(self.tracks);
        scratch.give(self.nodes);
        scratch.give(self.inputs);
        LiveRanges {
            bases: self.bases,
            values,
            segments,
            by_start,
            clobber_sets: self.clobber_sets,
            positions: self.positions,
            peaks: self.peaks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::LiveSet;
    use crate::function::{Builder, Constraint, Effect, Operand, VReg};
    use crate::generate::{self, Rng, Shape};
    use crate::target::{Class, PReg};

    fn ranges_of(b: Builder) -> LiveRanges {
        let function = b.finish();
        let target = Target::hardware(90).unwrap();
        let program = Program::new(&function, &target, None).unwrap();
        LiveRanges::compute(&program, &target, &Facts::of(&program))
    }

    fn value(vreg: VReg) -> Value {
        Value::new(vreg.index())
    }

    fn early(vreg: VReg) -> Operand {
        Operand {
            vreg,
            role: Role::EarlyDef,
            constraint: Constraint::Any,
        }
    }

    /// `x = load; early y, z = asm x; store y; exit`, and `z` is never read.
    #[test]
    fn results_begin_after_inputs_end_unless_they_are_early() {
        let mut b = Builder::new("f");
        let block = b.block();
        let [unused, x, y, z] = std::array::from_fn(|_| b.vreg(Class::R32));
        b.inst(block, "load").def(x).effect(Effect::Read);
        b.inst(block, "asm").operand(early(y)).def(z).use_(x);
        b.inst(block, "store").use_(y).effect(Effect::Write);
        b.exit(block, "exit");
        let ranges = ranges_of(b);
        let segment = |start, end| [Segment { start, end }];
        assert_eq!(ranges.of(value(unused)), []);
        assert_eq!(ranges.of(value(x)), segment(1, 2));
        assert_eq!(ranges.of(value(y)), segment(1, 3));
        assert_eq!(ranges.of(value(z)), segment(2, 3));
        assert_eq!(ranges.by_start(), [x, y, z].map(value));
        assert_eq!(ranges.peak(File::R), 2);
    }

    /// A value covers a position if it is live there, or written by the operation before it,
    /// or early by the one after it, and no other.
    #[test]
    fn segments_cover_what_is_live_or_written() {
        let target = Target::hardware(90).unwrap();
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let shape = Shape::random(80, &mut rng);
            let function = generate::function(&shape, &target, &mut rng);
            let program = Program::new(&function, &target, None).unwrap();
            let facts = Facts::of(&program);
            let ranges = LiveRanges::compute(&program, &target, &facts);
            let mut covered = vec![Vec::new(); program.values.len()];
            for (value, _) in program.values.iter() {
                let all = ranges.of(value).iter().flat_map(|s| s.start..s.end);
                covered[value.index()].extend(all);
            }
            let mut expected = vec![Vec::new(); program.values.len()];
            let mut live = LiveSet::new(program.values.len());
            for (block, info) in program.blocks.iter() {
                let base = ranges.base(block);
                live.start_at_end(&facts.liveness, block);
                let end = base + info.ops.len() as u32;
                live.iter().for_each(|v| expected[v.index()].push(end));
                for (op, before) in info.ops.iter().zip(base..end).rev() {
                    let accesses: Vec<_> = op.accesses(&function).collect();
                    for &(value, role) in accesses.iter().filter(|(_, role)| role.writes()) {
                        expected[value.index()].push(before + 1);
                        if role == Role::EarlyDef {
                            expected[value.index()].push(before);
                        }
                    }
                    live.step_back_over(accesses.into_iter());
                    live.iter().for_each(|v| expected[v.index()].push(before));
                }
            }
            for (value, mut expected) in expected.into_iter().enumerate() {
                expected.sort_unstable();
                expected.dedup();
                assert_eq!(covered[value], expected, "seed {seed}, value {value}");
            }
        }
    }

    /// More sets than a value has bits for: the last bit stands for all further ones.
    #[test]
    fn every_set_of_clobbers_is_avoided() {
        const SETS: usize = MAX_CLOBBER_SETS + 20;
        let mut b = Builder::new("f");
        let block = b.block();
        let x = b.vreg(Class::R32);
        b.inst(block, "load").def(x).effect(Effect::Read);
        for unit in 0..SETS {
            let list = b.reg_list([PReg::new(File::R, unit)]);
            b.inst(block, "asm").clobbers(Clobbers::List(list));
        }
        b.inst(block, "store").use_(x).effect(Effect::Write);
        b.exit(block, "exit");
        let clobbered = ranges_of(b).clobbered(value(x));
        assert_eq!(clobbered, UnitSet::first(SETS));
    }
}
