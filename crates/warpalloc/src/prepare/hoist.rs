//! Loop invariants are computed before their loop (row C17).
//!
//! An instruction of a loop that may run again, reads nothing the loop writes and has the
//! only definition of its result yields the same in every turn. The program then computes
//! it on the edges into the loop, and the instruction itself is deleted; the checker's
//! records prove that. Such instructions cannot trap and have no effects, so it does not
//! matter that some turns, or all, might not have executed them.
//!
//! What it costs is a register throughout the loop. So an invariant stays where it is if
//! somewhere in the loop more would be alive than the function needs anyway, rounded up
//! to the next [`GRANULE`]: beyond, a warp takes more registers and fewer warps fit, and
//! beyond the budget something would be spilled. What no longer needs a register once its
//! last reader has left the loop counts in favour. The dearest
//! invariants per register go first, each as soon as its inputs have gone. Predicates stay:
//! seven are too few to keep one through a loop.
//!
//! Loops are taken from the inside out, so that with [`HoistPolicy::Always`] an invariant
//! of several nested loops ends up before the outermost of them.

mod peaks;

use crate::allocation::{Allocation, Edit, Point};
use crate::analysis::{Cfg, Frequencies, Liveness, Loop, Loops, Order, Revision};
use crate::function::{Block, Clobbers, Constraint, Effect, Function, Inst, Kind, Role};
use crate::program::{Facts, Op, Program, Value};
use crate::spill::cost::added_cycles;
use crate::target::{File, Target};
use cranelift_entity::EntityRef;
use peaks::{Peaks, Profile};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::Range;

/// Files with fewer units than this are too scarce to hold an invariant through a loop: a
/// predicate that finds no register costs more than its comparison.
const SCARCE_UNITS: usize = 16;

/// Hardware gives registers to threads in steps of so many.
pub const GRANULE: usize = 8;

/// So many candidates without room, and a loop counts as full.
const REFUSALS: usize = 16;

/// Which loop invariants are computed before their loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoistPolicy {
    /// All of them.
    Always,
    /// Those of loops that contain no other.
    #[default]
    Inner,
    /// None.
    Never,
}

impl HoistPolicy {
    /// The document's number of the policy.
    pub fn number(self) -> u32 {
        match self {
            HoistPolicy::Always => 0,
            HoistPolicy::Inner => 1,
            HoistPolicy::Never => 3,
        }
    }
}

impl fmt::Display for HoistPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HoistPolicy::Always => "always",
            HoistPolicy::Inner => "inner",
            HoistPolicy::Never => "never",
        })
    }
}

impl std::str::FromStr for HoistPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<HoistPolicy, ()> {
        let all = [HoistPolicy::Always, HoistPolicy::Inner, HoistPolicy::Never];
        let named = |p: &HoistPolicy| p.to_string() == text || p.number().to_string() == text;
        all.into_iter().find(named).ok_or(())
    }
}

/// Moves invariants of `program` before their loops, by `policy`; which ones moved.
///
/// With `chains`, also those that become invariants because others moved. The facts must
/// be those of the program, and are again afterwards.
pub fn hoist_invariants(
    program: &mut Program,
    target: &Target,
    facts: &mut Facts,
    policy: HoistPolicy,
    chains: bool,
) -> Vec<Inst> {
    let mut moved = Vec::new();
    if policy == HoistPolicy::Never || facts.loops.loop_count() == 0 {
        return moved;
    }
    let mut peaks = Peaks::new(program, target);
    let mut tallies = Tallies::new(program);
    // Loops of one round have no block in common, so their plans do not disturb each other.
    for round in (0..rounds(&facts.loops, policy)).rev() {
        let loops = loops_of(program, &facts.loops, policy, round);
        let plans = loops.into_iter().filter_map(|(l, blocks)| {
            let nest = Nest::new(program, target, facts, &mut tallies, l, &blocks)?;
            let plan = nest.plan(&mut peaks, chains)?;
            Some((plan, blocks))
        });
        let plans: Vec<(Plan, Vec<Block>)> = plans.collect();
        if plans.is_empty() {
            continue;
        }
        let mut revisions = FxHashMap::default();
        for (plan, blocks) in plans {
            moved.extend(plan.moved.iter().map(|c| c.inst));
            plan.revise_loop(&blocks, &facts.liveness, &mut revisions);
            plan.apply(program, &facts.liveness, &mut revisions);
        }
        let blocks = program.blocks.len();
        *facts = Facts::around(program, facts.liveness.revised(blocks, &revisions));
        peaks.forget();
    }
    moved.sort_unstable();
    moved.dedup();
    moved
}

/// How many of `moved` are computed before their loop in the end.
pub fn count_hoisted(allocation: &Allocation, moved: &[Inst]) -> u32 {
    let ahead = |(point, edit): (Point, &Edit)| match (point, edit) {
        (Point::Edge(..), Edit::Recompute { inst, .. }) => Some(*inst),
        _ => None,
    };
    let mut ahead: Vec<Inst> = allocation.edits.iter().filter_map(ahead).collect();
    ahead.sort_unstable();
    let is_ahead = |inst: &&Inst| ahead.binary_search(inst).is_ok();
    moved.iter().filter(is_ahead).count() as u32
}

/// Cycles that `allocation` adds to one run of the function, less those of computations
/// that it leaves out: what an allocation with hoisting and one without are compared by.
pub fn net_cycles(function: &Function, allocation: &Allocation) -> f64 {
    let order = Order::compute(function);
    let loops = Loops::compute(function, &order);
    let frequencies = Frequencies::compute(function, &order, &loops);
    let deleted = function.insts().filter(|&i| allocation.deleted.contains(i));
    let left_out = deleted.filter_map(|inst| {
        let cycles = f64::from(function.inst(inst).remat?);
        Some(cycles * frequencies.block(function.block_of(inst)))
    });
    added_cycles(function, allocation) - left_out.sum::<f64>()
}

/// All loops without loops in them can be treated at once, nested ones depth by depth.
fn rounds(loops: &Loops, policy: HoistPolicy) -> u32 {
    let depths = loops.loops().map(|(_, info)| info.depth);
    match policy {
        HoistPolicy::Always => depths.max().unwrap_or(0),
        HoistPolicy::Inner => 1,
        HoistPolicy::Never => 0,
    }
}

/// The loops of a round, with their blocks.
fn loops_of(
    program: &Program,
    loops: &Loops,
    policy: HoistPolicy,
    round: u32,
) -> Vec<(Loop, Vec<Block>)> {
    let mut has_inner = vec![false; loops.loop_count()];
    let parents = loops.loops().filter_map(|(_, info)| info.parent);
    parents.for_each(|parent| has_inner[parent.index()] = true);
    let named = |l: &Loop| match policy {
        HoistPolicy::Always => loops.info(*l).depth == round + 1,
        HoistPolicy::Inner => !has_inner[l.index()],
        HoistPolicy::Never => false,
    };
    let mut bodies: Vec<Vec<Block>> = vec![Vec::new(); loops.loop_count()];
    for block in program.blocks.keys() {
        let here = loops.around(block).find(named);
        if let Some(l) = here.filter(|&l| !loops.is_irreducible(l)) {
            bodies[l.index()].push(block);
        }
    }
    let all = loops.loops().map(|(l, _)| l).zip(bodies);
    all.filter(|(_, body)| !body.is_empty()).collect()
}

/// How often the loop under consideration reads and writes each value.
struct Tallies {
    /// Tallies of other loops count as zero.
    current: u32,
    all: Vec<Tally>,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    of_loop: u32,
    reads: u32,
    writes: u32,
}

impl Tallies {
    fn new(program: &Program) -> Tallies {
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
                for (value, role) in op.accesses(program.function) {
                    let tally = self.of(value);
                    tally.reads += u32::from(role.reads());
                    tally.writes += u32::from(role.writes());
                }
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

/// A computation in a loop that may run before it.
#[derive(Clone, Debug)]
struct Candidate {
    block: Block,
    index: usize,
    inst: Inst,
    values: SmallVec<[Value; 4]>,
    result: Value,
    /// Inputs that the loop still computes.
    waits_for: usize,
}

/// What to move out of one loop.
struct Plan {
    /// In an order in which they can be computed.
    moved: Vec<Candidate>,
    /// Edges into the loop.
    entries: Vec<(Block, usize)>,
    header: Block,
    /// The values that moved code reads and writes, in ascending order, and whether the
    /// loop or code behind it still reads them.
    values: Vec<(Value, bool)>,
}

type Revisions = FxHashMap<Block, Revision<Value>>;

impl Plan {
    /// Notes what is live in the loop once the plan has been carried out.
    ///
    /// Nothing in the loop writes what moved code reads or writes any more, and every
    /// block of a loop leads to every other, so such a value is alive everywhere in the
    /// loop or nowhere. Before the loop everything is as it was: what is computed there
    /// reads what was live into the loop already.
    fn revise_loop(&self, blocks: &[Block], liveness: &Liveness<Value>, revisions: &mut Revisions) {
        for &block in blocks {
            let revision = Revision {
                live_in: self.revised(liveness.live_in(block)),
                live_out: self.revised(liveness.live_out(block)),
            };
            revisions.insert(block, revision);
        }
    }

    /// `live`, in ascending order, once the plan has been carried out.
    fn revised(&self, live: &[Value]) -> Vec<Value> {
        let mut revised = Vec::with_capacity(live.len() + self.values.len());
        let mut rest = live;
        for (value, stays) in &self.values {
            let at = rest.partition_point(|v| v < value);
            let was_live = rest.get(at) == Some(value);
            revised.extend_from_slice(&rest[..at]);
            revised.extend(stays.then_some(*value));
            rest = &rest[at + usize::from(was_live)..];
        }
        revised.extend_from_slice(rest);
        revised
    }

    fn apply(self, program: &mut Program, liveness: &Liveness<Value>, revisions: &mut Revisions) {
        let mut gone: Vec<(Block, usize)> = self.moved.iter().map(|c| (c.block, c.index)).collect();
        gone.sort_unstable();
        // From the back, so that positions of what is still to go stay right.
        for &(block, index) in gone.iter().rev() {
            program.blocks[block].ops.remove(index);
        }
        for &(block, succ) in &self.entries {
            let on_edge = program.split_edge(block, succ);
            let again = self.moved.iter().map(|c| Op::Recompute {
                inst: c.inst,
                values: c.values.clone(),
            });
            program.blocks[on_edge].ops.extend(again);
            let live_out = self.revised(liveness.live_in(self.header));
            let revision = Revision {
                live_in: live_before(program, on_edge, &live_out),
                live_out,
            };
            revisions.insert(on_edge, revision);
        }
        for candidate in &self.moved {
            program.deleted.insert(candidate.inst);
        }
    }
}

/// What is live before `block`, given what is live after it.
fn live_before(program: &Program, block: Block, after: &[Value]) -> Vec<Value> {
    let mut live = after.to_vec();
    for op in program.blocks[block].ops.iter().rev() {
        let accesses = || op.accesses(program.function);
        for (value, _) in accesses().filter(|(_, role)| role.writes()) {
            if let Ok(at) = live.binary_search(&value) {
                live.remove(at);
            }
        }
        for (value, _) in accesses().filter(|(_, role)| role.reads()) {
            if let Err(at) = live.binary_search(&value) {
                live.insert(at, value);
            }
        }
    }
    live
}

/// One loop under consideration.
struct Nest<'a> {
    program: &'a Program<'a>,
    target: &'a Target,
    facts: &'a Facts,
    blocks: &'a [Block],
    header: Block,
    entries: Vec<(Block, usize)>,
    entry_frequency: f64,
    /// Where the loop is left to.
    exits: SmallVec<[Block; 4]>,
    candidates: Vec<Candidate>,
    /// Candidates that read the result of another.
    readers: FxHashMap<Value, SmallVec<[usize; 4]>>,
    /// Reads are of what has not moved.
    tallies: &'a mut Tallies,
    /// Once asked for.
    places: Option<Places>,
    /// By file, once asked for: how many units are alive, and may be.
    profiles: Vec<Option<Profile>>,
}

impl<'a> Nest<'a> {
    /// The loop `l`, if it has an invariant and a way in.
    fn new(
        program: &'a Program<'a>,
        target: &'a Target,
        facts: &'a Facts,
        tallies: &'a mut Tallies,
        l: Loop,
        blocks: &'a [Block],
    ) -> Option<Nest<'a>> {
        let mut candidates = candidates(program, blocks);
        if candidates.is_empty() {
            return None;
        }
        tallies.count(program, blocks);
        // What one turn, or code before the loop, hands to a turn is no invariant.
        let header = facts.loops.info(l).header;
        candidates.retain(|c| {
            tallies.of(c.result).writes == 1 && !facts.liveness.is_live_in(header, c.result)
        });
        let readers = link(program.function, &mut candidates, tallies);
        let entries = entries(program, &facts.loops, l);
        if entries.is_empty() || candidates.iter().all(|c| c.waits_for > 0) {
            return None;
        }
        let edge = |&(block, succ): &(Block, usize)| facts.frequencies.edge(block, succ);
        let successors = blocks.iter().flat_map(|&block| program.successors(block));
        let mut exits: SmallVec<[Block; 4]> = successors
            .filter(|&to| !facts.loops.contains(l, to))
            .collect();
        exits.sort_unstable();
        exits.dedup();
        Some(Nest {
            program,
            target,
            facts,
            blocks,
            header,
            entry_frequency: entries.iter().map(edge).sum(),
            entries,
            exits,
            candidates,
            readers,
            tallies,
            places: None,
            profiles: target.files().map(|_| None).collect(),
        })
    }

    /// Chooses what to move, the dearest per register first.
    fn plan(mut self, peaks: &mut Peaks, chains: bool) -> Option<Plan> {
        let ready = (0..self.candidates.len()).filter(|&c| self.candidates[c].waits_for == 0);
        let mut queue: BinaryHeap<(u64, Reverse<usize>)> =
            ready.map(|c| (self.worth(c), Reverse(c))).collect();
        let mut moved = Vec::new();
        while let Some((worth, Reverse(index))) = queue.pop() {
            if worth == 0 || !self.take_room(index, peaks) {
                continue;
            }
            let candidate = self.candidates[index].clone();
            let readers = self.readers.get(&candidate.result).cloned();
            for reader in readers.into_iter().flatten().filter(|_| chains) {
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
        let mut values: Vec<Value> = moved.iter().flat_map(|c| c.values.clone()).collect();
        values.sort_unstable();
        values.dedup();
        let values = values.into_iter().map(|v| {
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
        let units = self.width(candidate.result).max(1) as f64;
        let saved = frequency * f64::from(cycles.unwrap_or(0)) / units;
        (saved * 1000.0).max(0.0) as u64
    }

    /// Takes room for the result throughout the loop, if nowhere too much would be alive
    /// once what leaves with the candidate has left.
    fn take_room(&mut self, index: usize, peaks: &mut Peaks) -> bool {
        let candidate = self.candidates[index].clone();
        let result = candidate.result;
        let (file, width) = (self.file(result), self.width(result) as i32);
        if self.target.file(file).units < SCARCE_UNITS {
            return false;
        }
        let leaving = self.leaving(&candidate);
        let leaving = leaving.iter().filter(|&&v| self.file(v) == file);
        let freed = leaving.map(|&v| self.width(v) as i32).sum();
        let (program, facts) = (self.program, self.facts);
        let mut profile = match self.profiles[file.index()].take() {
            Some(profile) => profile,
            None => peaks.profile(program, facts, self.blocks, file),
        };
        let fits = profile.refused < REFUSALS && self.fits(&mut profile, result, width, freed);
        match fits {
            true => profile.freed += freed,
            false => profile.refused += 1,
        }
        self.profiles[file.index()] = Some(profile);
        if fits {
            for input in inputs(program.function, candidate.inst, &candidate.values) {
                self.tallies.of(input).reads -= 1;
            }
        }
        fits
    }

    /// Adds `value` to the profile, if there is room. As long as there is plenty, where
    /// the value lives already does not matter.
    fn fits(&mut self, profile: &mut Profile, value: Value, width: i32, freed: i32) -> bool {
        let roughly = profile.peak + profile.added_units + width - profile.freed - freed;
        if roughly <= profile.ceiling {
            profile.added.push(value);
            profile.added_units += width;
            return true;
        }
        for added in std::mem::take(&mut profile.added) {
            profile.add(&self.absent(added), self.width(added) as i32, 0);
        }
        profile.added_units = 0;
        profile.add(&self.absent(value), width, freed)
    }

    /// Where the loop's profile does not include `value`, which it writes once.
    fn absent(&mut self, value: Value) -> Vec<Range<usize>> {
        let mut absent = Vec::new();
        let (program, blocks, candidates) = (self.program, self.blocks, &self.candidates);
        let places = self
            .places
            .get_or_insert_with(|| places(program, blocks, candidates));
        let places = places.get(&value).map_or(&[][..], Vec::as_slice);
        let mut base = 0;
        for (number, &block) in blocks.iter().enumerate() {
            let first = places.partition_point(|place| place.0 < number);
            let end = places.partition_point(|place| place.0 <= number);
            let mut live = self.facts.liveness.is_live_out(block, value);
            let length = 2 * self.program.blocks[block].ops.len();
            let mut to = length;
            for &(_, step, writes) in places[first..end].iter().rev() {
                let from = 2 * step + 1 + usize::from(writes);
                if !live {
                    absent.push(base + from..base + to);
                }
                live = !writes;
                to = 2 * step + 1;
            }
            if !live {
                absent.push(base..base + to);
            }
            base += length;
        }
        absent
    }

    /// Values that need no register in the loop any more once `candidate` has left.
    fn leaving(&mut self, candidate: &Candidate) -> SmallVec<[Value; 4]> {
        let read: SmallVec<[Value; 4]> =
            inputs(self.program.function, candidate.inst, &candidate.values).collect();
        let mut leaving = read.clone();
        leaving.sort_unstable();
        leaving.dedup();
        leaving.retain(|value| {
            let times = read.iter().filter(|&v| v == value).count() as u32;
            self.tallies.of(*value).reads == times && !self.is_read_after(*value)
        });
        leaving
    }

    fn is_read_after(&self, value: Value) -> bool {
        let live = |&exit: &Block| self.facts.liveness.is_live_in(exit, value);
        self.exits.iter().any(live)
    }

    fn width(&self, value: Value) -> usize {
        self.target.width(self.program.values[value].class)
    }

    fn file(&self, value: Value) -> File {
        self.target.class(self.program.values[value].class).file
    }
}

/// What the loop computes that nothing about the instruction itself keeps there.
fn candidates(program: &Program, blocks: &[Block]) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for &block in blocks {
        for (index, op) in program.blocks[block].ops.iter().enumerate() {
            let (Op::Inst { inst, values } | Op::Recompute { inst, values }) = op else {
                continue;
            };
            if let Some(result) = may_move(program, *inst, values) {
                candidates.push(Candidate {
                    block,
                    index,
                    inst: *inst,
                    values: values.clone(),
                    result,
                    waits_for: 0,
                });
            }
        }
    }
    candidates
}

/// Drops candidates that read what the loop computes in other ways, and counts what the
/// others wait for. Returns who waits for whose result.
fn link(
    function: &Function,
    candidates: &mut Vec<Candidate>,
    tallies: &mut Tallies,
) -> FxHashMap<Value, SmallVec<[usize; 4]>> {
    let made: FxHashSet<Value> = candidates.iter().map(|c| c.result).collect();
    candidates.retain(|c| {
        inputs(function, c.inst, &c.values).all(|v| tallies.of(v).writes == 0 || made.contains(&v))
    });
    let mut readers: FxHashMap<Value, SmallVec<[usize; 4]>> = FxHashMap::default();
    for (index, candidate) in candidates.iter_mut().enumerate() {
        for input in inputs(function, candidate.inst, &candidate.values) {
            if tallies.of(input).writes > 0 {
                candidate.waits_for += 1;
                readers.entry(input).or_default().push(index);
            }
        }
    }
    readers
}

/// Where the loop reads or writes the results of candidates: block, step, whether it
/// writes. Blocks are counted within the loop, and places ascend.
type Places = FxHashMap<Value, Vec<(usize, usize, bool)>>;

fn places(program: &Program, blocks: &[Block], candidates: &[Candidate]) -> Places {
    let results = candidates.iter().map(|c| (c.result, Vec::new()));
    let mut places: Places = results.collect();
    for (number, &block) in blocks.iter().enumerate() {
        for (step, op) in program.blocks[block].ops.iter().enumerate() {
            for (value, role) in op.accesses(program.function) {
                if let Some(places) = places.get_mut(&value) {
                    places.push((number, step, role.writes()));
                }
            }
        }
    }
    places
}

/// The edges that enter `l` from outside.
fn entries(program: &Program, loops: &Loops, l: Loop) -> Vec<(Block, usize)> {
    let header = loops.info(l).header;
    let mut preds: SmallVec<[Block; 4]> = program.predecessors(header).collect();
    preds.sort_unstable();
    preds.dedup();
    preds.retain(|pred| !loops.contains(l, *pred));
    let edges = preds.into_iter().flat_map(|pred| {
        let succs = program.successors(pred).enumerate();
        let here = succs.filter(move |(_, to)| *to == header);
        here.map(move |(succ, _)| (pred, succ))
    });
    edges.collect()
}

fn inputs<'c>(
    function: &'c Function,
    inst: Inst,
    values: &'c [Value],
) -> impl Iterator<Item = Value> + 'c {
    let operands = function.operands(inst).iter().zip(values);
    operands.filter(|(o, _)| o.role.reads()).map(|(_, &v)| v)
}

/// The result of `inst`, if nothing about the instruction itself keeps it where it is.
fn may_move(program: &Program, inst: Inst, values: &[Value]) -> Option<Value> {
    let function = program.function;
    let info = function.inst(inst);
    info.remat?;
    let plain = info.kind == Kind::Plain
        && info.effect == Effect::Pure
        && info.clobbers == Clobbers::None
        && function.groups(inst).is_empty();
    let operands = function.operands(inst);
    let free = operands.iter().zip(values).all(|(operand, value)| {
        operand.constraint == Constraint::Any
            && matches!(operand.role, Role::Use | Role::Def)
            && value.index() == operand.vreg.index()
            && !function.vreg(operand.vreg).pinned
    });
    let mut results = operands.iter().zip(values).filter(|(o, _)| o.role.writes());
    let (_, &result) = results.next()?;
    let only = results.next().is_none() && inputs(function, inst, values).all(|v| v != result);
    (plain && free && only).then_some(result)
}

#[cfg(test)]
mod tests;
