//! One loop: what in it is invariant, and what of that to move.

use super::SCARCE_UNITS;
use super::levels::Levels;
use super::plan::{Candidate, Plan};
use super::room::{Extent, Room};
use crate::analysis::{Cfg, Loop, Loops};
use crate::function::{Block, Inst, Kind};
use crate::ir::{Facts, Op, Program, Value};
use crate::spill::remat::may_run_again;
use crate::target::Target;
use cranelift_entity::EntityRef;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How often the loop under consideration reads and writes each value.
pub(super) struct Tallies {
    /// Tallies of other loops count as zero.
    current: u32,
    all: Vec<Tally>,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    of_loop: u32,
    /// By code that has not moved.
    reads: u32,
    writes: u32,
    /// Whether a candidate is the only one to write it.
    is_result: bool,
    /// One more than the number of that candidate, once it has one.
    candidate: u32,
}

impl Tallies {
    pub(super) fn new(program: &Program) -> Tallies {
        Tallies {
            current: 0,
            all: vec![Tally::default(); program.values.len()],
        }
    }

    /// Counts for a loop of these blocks.
    fn count(&mut self, program: &Program, blocks: &[Block]) {
        self.current += 1;
        for &block in blocks {
            for op in &program.blocks[block].ops {
                op.for_each_access(program.function, |value, role| {
                    let tally = self.of(value);
                    tally.reads += u32::from(role.reads());
                    tally.writes += u32::from(role.writes());
                });
            }
        }
    }

    fn of(&mut self, value: Value) -> &mut Tally {
        let tally = &mut self.all[value.index()];
        if tally.of_loop != self.current {
            *tally = Tally {
                of_loop: self.current,
                ..Tally::default()
            };
        }
        tally
    }
}

/// One loop under consideration.
pub(super) struct Nest<'a> {
    pub(super) program: &'a Program<'a>,
    facts: &'a Facts,
    pub(super) extent: Extent<'a>,
    header: Block,
    entries: Vec<(Block, usize)>,
    entry_frequency: f64,
    /// Where the loop is left to, once for each edge.
    exits: SmallVec<[Block; 4]>,
    pub(super) candidates: Vec<Candidate>,
    tallies: &'a mut Tallies,
    /// By file, once asked for.
    rooms: SmallVec<[Option<Room>; 4]>,
}

impl<'a> Nest<'a> {
    /// The loop `l`, if it has an invariant.
    pub(super) fn new(
        program: &'a Program<'a>,
        target: &'a Target,
        facts: &'a Facts,
        tallies: &'a mut Tallies,
        l: Loop,
        blocks: &'a [Block],
    ) -> Option<Nest<'a>> {
        let mut candidates = candidates(program, target, blocks);
        if candidates.is_empty() {
            return None;
        }
        tallies.count(program, blocks);
        // A result that one turn, or code before the loop, hands to a turn is no invariant. One
        // that its own instruction reads is handed on like that.
        let header = facts.loops.info(l).header;
        candidates.retain_mut(|c| {
            let tally = tallies.of(c.result);
            c.reads = tally.reads;
            tally.writes == 1 && !facts.liveness.is_live_in(header, c.result)
        });
        link(program, &mut candidates, tallies);
        if candidates.iter().all(|c| c.waits_for > 0) {
            return None;
        }
        let entries = entries(program, &facts.loops, l);
        let edge = |&(block, succ): &(Block, usize)| facts.frequencies.edge(block, succ);
        let successors = blocks.iter().flat_map(|&block| program.successors(block));
        let outside = successors.filter(|&to| !facts.loops.contains(l, to));
        Some(Nest {
            program,
            facts,
            extent: Extent {
                program,
                target,
                liveness: &facts.liveness,
                blocks,
            },
            header,
            entry_frequency: entries.iter().map(edge).sum(),
            entries,
            exits: outside.collect(),
            candidates,
            tallies,
            rooms: target.files().map(|_| None).collect(),
        })
    }

    /// Chooses what to move, the most expensive per register first. `levels` are computed at
    /// first use.
    pub(super) fn plan(mut self, levels: &mut Option<Levels>, chains: bool) -> Option<Plan> {
        let ready = (0..self.candidates.len()).filter(|&c| self.candidates[c].waits_for == 0);
        let mut queue: BinaryHeap<(u64, Reverse<usize>)> =
            ready.map(|c| (self.worth(c), Reverse(c))).collect();
        let mut moved = Vec::with_capacity(self.candidates.len());
        while let Some((worth, Reverse(index))) = queue.pop() {
            if worth == 0 || !self.take_room(index, levels) {
                continue;
            }
            let candidate = self.candidates[index].clone();
            for &reader in candidate.readers.iter().filter(|_| chains) {
                let reader = reader as usize;
                self.candidates[reader].waits_for -= 1;
                if self.candidates[reader].waits_for == 0 {
                    queue.push((self.worth(reader), Reverse(reader)));
                }
            }
            moved.push(candidate);
        }
        if moved.is_empty() {
            return None;
        }
        let values = moved.iter().flat_map(|c| c.values(self.program));
        let values = values.map(|&v| {
            let stays = self.tallies.of(v).reads > 0 || self.is_read_after(v);
            (v, stays)
        });
        let values = values.collect();
        Some(Plan {
            moved,
            entries: self.entries,
            header: self.header,
            values,
        })
    }

    /// Cycles saved per unit, in thousandths so that they can be ordered.
    fn worth(&self, index: usize) -> u64 {
        let candidate = &self.candidates[index];
        let frequency = self.facts.frequencies.block(candidate.block) - self.entry_frequency;
        let cycles = self.program.function.inst(candidate.inst).remat;
        let units = self.extent.class(candidate.result).width as f64;
        let saved = frequency * f64::from(cycles.unwrap_or(0)) / units;
        (saved * 1000.0).max(0.0) as u64
    }

    /// Takes room for the result throughout the loop, if pressure stays within the ceiling
    /// once the values that leave with the candidate have left.
    fn take_room(&mut self, index: usize, levels: &mut Option<Levels>) -> bool {
        let leaving = self.leaving(index);
        let extent = &self.extent;
        let file = extent.class(self.candidates[index].result).file;
        let classes = leaving.iter().map(|&value| extent.class(value));
        let freed = classes.filter(|class| class.file == file);
        let freed = freed.map(|class| class.width as i32).sum();
        let levels =
            levels.get_or_insert_with(|| Levels::of(self.program, extent.target, self.facts));
        let room = &mut self.rooms[file.index()];
        let room = room.get_or_insert_with(|| Room::new(file, levels, extent));
        let fits = room.take(levels, extent, &self.candidates[index], freed);
        if fits {
            for input in inputs(self.program, &self.candidates[index]) {
                self.tallies.of(input).reads -= 1;
            }
        }
        fits
    }

    /// Values that need no register in the loop any more once the candidate has left.
    fn leaving(&mut self, index: usize) -> SmallVec<[Value; 4]> {
        let candidate = &self.candidates[index];
        let mut leaving = SmallVec::new();
        for value in inputs(self.program, candidate) {
            let times = inputs(self.program, candidate).filter(|&v| v == value);
            let is_last = self.tallies.of(value).reads == times.count() as u32;
            if is_last && !leaving.contains(&value) && !self.is_read_after(value) {
                leaving.push(value);
            }
        }
        leaving
    }

    fn is_read_after(&self, value: Value) -> bool {
        let live = |&exit: &Block| self.facts.liveness.is_live_in(exit, value);
        self.exits.iter().any(live)
    }
}

/// Instructions of the loop that nothing about themselves keeps there.
fn candidates(program: &Program, target: &Target, blocks: &[Block]) -> Vec<Candidate> {
    let is_scarce = |value: &Value| {
        let class = target.class(program.values[*value].class);
        target.file(class.file).capacity < SCARCE_UNITS
    };
    let mut candidates = Vec::new();
    for &block in blocks {
        for (index, op) in program.blocks[block].ops.iter().enumerate() {
            let (Op::Inst { inst, values } | Op::Recompute { inst, values }) = op else {
                continue;
            };
            let result = may_move(program, *inst, values).filter(|v| !is_scarce(v));
            if let Some(result) = result {
                candidates.push(Candidate {
                    block,
                    index,
                    inst: *inst,
                    result,
                    reads: 0,
                    waits_for: 0,
                    readers: SmallVec::new(),
                });
            }
        }
    }
    candidates
}

/// Drops candidates that read values the loop computes in other ways, counts the inputs the
/// others wait for, and notes which candidate waits for which.
fn link(program: &Program, candidates: &mut Vec<Candidate>, tallies: &mut Tallies) {
    for candidate in candidates.iter() {
        tallies.of(candidate.result).is_result = true;
    }
    candidates.retain(|candidate| {
        inputs(program, candidate).all(|input| {
            let tally = tallies.of(input);
            tally.writes == 0 || tally.is_result
        })
    });
    for (number, candidate) in candidates.iter().enumerate() {
        tallies.of(candidate.result).candidate = number as u32 + 1;
    }
    for reader in 0..candidates.len() {
        let waits_for = inputs(program, &candidates[reader]).filter(|&v| tallies.of(v).writes > 0);
        let waits_for: SmallVec<[Value; 4]> = waits_for.collect();
        candidates[reader].waits_for = waits_for.len() as u32;
        for input in waits_for {
            // A dropped candidate never gets ready, and neither do its readers.
            if let Some(made_by) = tallies.of(input).candidate.checked_sub(1) {
                candidates[made_by as usize].readers.push(reader as u32);
            }
        }
    }
}

/// The edges that enter `l` from outside. There are some: the function's entry is in no loop.
fn entries(program: &Program, loops: &Loops, l: Loop) -> Vec<(Block, usize)> {
    let header = loops.info(l).header;
    let mut preds: SmallVec<[Block; 4]> = program.predecessors(header).collect();
    // A block is named once for each of its edges, without another in between.
    preds.dedup();
    preds.retain(|pred| !loops.contains(l, *pred));
    let edges = preds.into_iter().flat_map(|pred| {
        let succs = program.successors(pred).enumerate();
        let here = succs.filter(move |(_, to)| *to == header);
        here.map(move |(succ, _)| (pred, succ))
    });
    edges.collect()
}

/// What a candidate reads.
fn inputs<'p>(program: &'p Program, candidate: &Candidate) -> impl Iterator<Item = Value> + 'p {
    let operands = program.function.operands(candidate.inst).iter();
    let operands = operands.zip(candidate.values(program));
    operands.filter(|(o, _)| o.role.reads()).map(|(_, &v)| v)
}

/// The result of `inst`, if nothing about the instruction itself keeps it where it is.
fn may_move(program: &Program, inst: Inst, values: &[Value]) -> Option<Value> {
    let function = program.function;
    let is_plain = function.inst(inst).kind == Kind::Plain;
    if !is_plain || !function.is_free(inst) || !may_run_again(function, inst) {
        return None;
    }
    let mut operands = function.operands(inst).iter().zip(values);
    let result = operands.find(|(o, _)| o.role.writes());
    result.map(|(_, &value)| value)
}
