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
//! invariants per register go first, each as soon as its inputs have gone.
//!
//! Loops are taken from the inside out, so that with [`HoistPolicy::Always`] an invariant
//! of several nested loops ends up before the outermost of them.

use crate::allocation::{Allocation, Edit, Point};
use crate::analysis::{Cfg, Frequencies, LiveSet, Loop, Loops, Order};
use crate::function::{Block, Clobbers, Constraint, Effect, Function, Inst, Kind, Role};
use crate::program::{Facts, Op, Program, Value};
use crate::spill::cost::added_cycles;
use crate::target::{File, Target};
use cranelift_entity::EntityRef;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::ops::Range;

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
    // Loops of one round have no block in common, so their plans do not disturb each other.
    for round in (0..rounds(&facts.loops, policy)).rev() {
        let loops = loops_of(program, &facts.loops, policy, round);
        let plans = loops.into_iter().filter_map(|(l, blocks)| {
            Nest::new(program, target, facts, l, &blocks)?.plan(&mut peaks, &blocks, chains)
        });
        let plans: Vec<Plan> = plans.collect();
        if plans.is_empty() {
            continue;
        }
        for plan in plans {
            moved.extend(plan.moved.iter().map(|c| c.inst));
            plan.apply(program);
        }
        *facts = Facts::of(program);
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

/// How much is alive at once, and how much may be, worked out where someone asks.
struct Peaks<'t> {
    target: &'t Target,
    live: LiveSet<Value>,
    /// By file: units that may be alive at once in a loop.
    ceilings: Vec<Option<i32>>,
    /// By file: units alive before and after each step in turn, block by block.
    levels: Vec<Option<Levels>>,
}

struct Levels {
    /// Where each block begins.
    starts: Vec<usize>,
    units: Vec<i32>,
}

impl<'t> Peaks<'t> {
    fn new(program: &Program, target: &'t Target) -> Peaks<'t> {
        Peaks {
            target,
            live: LiveSet::new(program.values.len()),
            ceilings: vec![None; target.files().len()],
            levels: target.files().map(|_| None).collect(),
        }
    }

    /// The program has changed.
    fn forget(&mut self) {
        self.levels.iter_mut().for_each(|levels| *levels = None);
    }

    /// How many units of `file` are alive in `blocks`, and may be.
    fn profile(
        &mut self,
        program: &Program,
        facts: &Facts,
        blocks: &[Block],
        file: File,
    ) -> Profile {
        let (target, live) = (self.target, &mut self.live);
        let levels = self.levels[file.index()]
            .get_or_insert_with(|| Levels::of(program, target, facts, live, file));
        let ceiling = self.ceilings[file.index()].get_or_insert_with(|| {
            let peak = levels.units.iter().max().copied().unwrap_or(0);
            ceiling(target, file, peak as usize)
        });
        let of_block = |block: &Block| {
            let start = levels.starts[block.index()];
            let steps = program.blocks[*block].ops.len();
            &levels.units[start..start + 2 * steps]
        };
        let levels: Vec<i32> = blocks.iter().flat_map(of_block).copied().collect();
        Profile {
            peak: levels.iter().max().copied().unwrap_or(0),
            levels,
            added: Vec::new(),
            added_units: 0,
            freed: 0,
            ceiling: *ceiling,
            refused: 0,
        }
    }
}

/// What a function needs anyway, and what comes with it at no cost.
fn ceiling(target: &Target, file: File, peak: usize) -> i32 {
    let info = target.file(file);
    let step = match file {
        File::R => GRANULE * info.units_per_reg,
        _ => info.units.max(1),
    };
    peak.next_multiple_of(step).min(info.units) as i32
}

impl Levels {
    /// Results that nobody reads are alive right after they are written.
    fn of(
        program: &Program,
        target: &Target,
        facts: &Facts,
        live: &mut LiveSet<Value>,
        file: File,
    ) -> Levels {
        let in_file = program.values.values().map(|info| {
            let class = target.class(info.class);
            i32::from(class.file == file) * class.width as i32
        });
        let widths: Vec<i32> = in_file.collect();
        let width = |value: Value| widths[value.index()];
        let (mut starts, mut units) = (Vec::new(), Vec::new());
        for (block, info) in program.blocks.iter() {
            let start = units.len();
            starts.push(start);
            live.start_at_end(&facts.liveness, block);
            let mut now: i32 = live.iter().map(width).sum();
            for op in info.ops.iter().rev() {
                let accesses = || op.accesses(program.function);
                let unread = accesses().filter(|(v, role)| role.writes() && !live.contains(*v));
                units.push(now + unread.map(|(v, _)| width(v)).sum::<i32>());
                for (value, _) in accesses().filter(|(_, role)| role.writes()) {
                    now -= i32::from(live.remove(value)) * width(value);
                }
                for (value, _) in accesses().filter(|(_, role)| role.reads()) {
                    now += i32::from(live.insert(value)) * width(value);
                }
                units.push(now);
            }
            units[start..].reverse();
        }
        Levels { starts, units }
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
}

impl Plan {
    fn apply(self, program: &mut Program) {
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
        }
        for candidate in &self.moved {
            program.deleted.insert(candidate.inst);
        }
    }
}

/// One loop under consideration.
struct Nest<'a> {
    program: &'a Program<'a>,
    target: &'a Target,
    facts: &'a Facts,
    entries: Vec<(Block, usize)>,
    entry_frequency: f64,
    candidates: Vec<Candidate>,
    /// Candidates that read each value.
    readers: FxHashMap<Value, SmallVec<[usize; 4]>>,
    /// Reads in the loop that have not moved, of values that candidates read.
    reads: FxHashMap<Value, u32>,
    /// Values that candidates read and code after the loop does too.
    live_after: FxHashSet<Value>,
    /// Where the loop reads or writes the results of candidates: block, step, whether it
    /// writes. Blocks are counted within the loop, and places ascend.
    places: FxHashMap<Value, Vec<(usize, usize, bool)>>,
    /// By file, once asked for: how many units are alive, and may be.
    profiles: Vec<Option<Profile>>,
}

/// How many units of a file are alive in a loop, before and after each step in turn.
struct Profile {
    levels: Vec<i32>,
    /// The highest level.
    peak: i32,
    /// Values alive throughout that the levels do not know of yet, and their units.
    added: Vec<Value>,
    added_units: i32,
    /// Units alive throughout that have left since.
    freed: i32,
    ceiling: i32,
    /// Candidates that found no room.
    refused: usize,
}

impl Profile {
    /// Adds `units` in `ranges`, if that stays below the ceiling.
    fn add(&mut self, ranges: &[Range<usize>], units: i32, freed: i32) -> bool {
        let here = ranges.iter().map(|range| &self.levels[range.clone()]);
        let most = here.flatten().max().copied().unwrap_or(0);
        if most + units - self.freed - freed > self.ceiling {
            return false;
        }
        for range in ranges {
            let levels = self.levels[range.clone()].iter_mut();
            levels.for_each(|level| *level += units);
        }
        self.peak = self.peak.max(most + units);
        true
    }
}

impl<'a> Nest<'a> {
    /// The loop `l`, if it has candidates and a way in.
    fn new(
        program: &'a Program<'a>,
        target: &'a Target,
        facts: &'a Facts,
        l: Loop,
        blocks: &[Block],
    ) -> Option<Nest<'a>> {
        let candidates = candidates(program, facts, l, blocks);
        if candidates.is_empty() {
            return None;
        }
        let entries = entries(program, &facts.loops, l);
        let edge = |&(block, succ): &(Block, usize)| facts.frequencies.edge(block, succ);
        let mut nest = Nest {
            program,
            target,
            facts,
            entry_frequency: entries.iter().map(edge).sum(),
            entries,
            candidates,
            readers: FxHashMap::default(),
            reads: FxHashMap::default(),
            live_after: FxHashSet::default(),
            places: FxHashMap::default(),
            profiles: target.files().map(|_| None).collect(),
        };
        if nest.entries.is_empty() || !nest.link(blocks) {
            return None;
        }
        for &block in blocks {
            let outside = |to: &Block| !facts.loops.contains(l, *to);
            for to in program.successors(block).filter(outside) {
                let read = |v: &&Value| nest.reads.contains_key(v);
                let live = facts.liveness.live_in(to).iter();
                nest.live_after.extend(live.filter(read));
            }
        }
        Some(nest)
    }

    /// Drops candidates that read what the loop computes in other ways, and counts what
    /// the others wait for; whether any is left.
    fn link(&mut self, blocks: &[Block]) -> bool {
        let function = self.program.function;
        let mut writes: FxHashMap<Value, u32> = FxHashMap::default();
        for candidate in &self.candidates {
            for (&value, operand) in candidate
                .values
                .iter()
                .zip(function.operands(candidate.inst))
            {
                writes.insert(value, 0);
                if operand.role.reads() {
                    self.reads.insert(value, 0);
                }
            }
        }
        for (number, &block) in blocks.iter().enumerate() {
            for (step, op) in self.program.blocks[block].ops.iter().enumerate() {
                for (value, role) in op.accesses(function) {
                    if let Some(count) = writes.get_mut(&value) {
                        *count += u32::from(role.writes());
                        let places = self.places.entry(value).or_default();
                        places.push((number, step, role.writes()));
                    }
                    if let Some(count) = self.reads.get_mut(&value) {
                        *count += u32::from(role.reads());
                    }
                }
            }
        }
        self.candidates.retain(|c| writes[&c.result] == 1);
        let made: FxHashSet<Value> = self.candidates.iter().map(|c| c.result).collect();
        let steady = |v: Value| writes[&v] == 0 || made.contains(&v);
        self.candidates
            .retain(|c| inputs(function, c.inst, &c.values).all(steady));
        for (index, candidate) in self.candidates.iter_mut().enumerate() {
            for input in inputs(function, candidate.inst, &candidate.values) {
                candidate.waits_for += usize::from(writes[&input] > 0);
                self.readers.entry(input).or_default().push(index);
            }
        }
        !self.candidates.is_empty()
    }

    /// Chooses what to move, the dearest per register first.
    fn plan(mut self, peaks: &mut Peaks, blocks: &[Block], chains: bool) -> Option<Plan> {
        let ready = (0..self.candidates.len()).filter(|&c| self.candidates[c].waits_for == 0);
        let mut queue: BinaryHeap<(u64, Reverse<usize>)> =
            ready.map(|c| (self.worth(c), Reverse(c))).collect();
        let mut moved = Vec::new();
        while let Some((worth, Reverse(index))) = queue.pop() {
            if worth == 0 || !self.take_room(index, peaks, blocks) {
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
        (!moved.is_empty()).then_some(Plan {
            moved,
            entries: self.entries,
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
    fn take_room(&mut self, index: usize, peaks: &mut Peaks, blocks: &[Block]) -> bool {
        let candidate = self.candidates[index].clone();
        let result = candidate.result;
        let (file, width) = (self.file(result), self.width(result) as i32);
        let leaving = self.leaving(&candidate);
        let leaving = leaving.iter().filter(|&&v| self.file(v) == file);
        let freed = leaving.map(|&v| self.width(v) as i32).sum();
        let (program, facts) = (self.program, self.facts);
        let mut profile = match self.profiles[file.index()].take() {
            Some(profile) => profile,
            None => peaks.profile(program, facts, blocks, file),
        };
        let fits =
            profile.refused < REFUSALS && self.fits(&mut profile, result, width, freed, blocks);
        match fits {
            true => profile.freed += freed,
            false => profile.refused += 1,
        }
        self.profiles[file.index()] = Some(profile);
        if fits {
            for input in inputs(program.function, candidate.inst, &candidate.values) {
                self.reads.entry(input).and_modify(|count| *count -= 1);
            }
        }
        fits
    }

    /// Adds `value` to the profile, if there is room. As long as there is plenty, where
    /// the value lives already does not matter.
    fn fits(
        &self,
        profile: &mut Profile,
        value: Value,
        width: i32,
        freed: i32,
        blocks: &[Block],
    ) -> bool {
        let roughly = profile.peak + profile.added_units + width - profile.freed - freed;
        if roughly <= profile.ceiling {
            profile.added.push(value);
            profile.added_units += width;
            return true;
        }
        for added in std::mem::take(&mut profile.added) {
            profile.add(&self.absent(added, blocks), self.width(added) as i32, 0);
        }
        profile.added_units = 0;
        profile.add(&self.absent(value, blocks), width, freed)
    }

    /// Where the loop's profile does not include `value`, which it writes once.
    fn absent(&self, value: Value, blocks: &[Block]) -> Vec<Range<usize>> {
        let mut absent = Vec::new();
        let places = self.places.get(&value).map_or(&[][..], Vec::as_slice);
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
    fn leaving(&self, candidate: &Candidate) -> SmallVec<[Value; 4]> {
        let read: SmallVec<[Value; 4]> =
            inputs(self.program.function, candidate.inst, &candidate.values).collect();
        let times = |v: Value| read.iter().filter(|&&w| w == v).count() as u32;
        let last = |v: &&Value| self.reads.get(v) == Some(&times(**v));
        let mut leaving: SmallVec<[Value; 4]> = read
            .iter()
            .filter(last)
            .filter(|v| !self.live_after.contains(v))
            .copied()
            .collect();
        leaving.sort_unstable();
        leaving.dedup();
        leaving
    }

    fn width(&self, value: Value) -> usize {
        self.target.width(self.program.values[value].class)
    }

    fn file(&self, value: Value) -> File {
        self.target.class(self.program.values[value].class).file
    }
}

/// What the loop computes that may be an invariant.
fn candidates(program: &Program, facts: &Facts, l: Loop, blocks: &[Block]) -> Vec<Candidate> {
    let header = facts.loops.info(l).header;
    let mut candidates = Vec::new();
    for &block in blocks {
        for (index, op) in program.blocks[block].ops.iter().enumerate() {
            let (Op::Inst { inst, values } | Op::Recompute { inst, values }) = op else {
                continue;
            };
            // What one turn, or code before the loop, hands to a turn is no invariant.
            let result = may_move(program, *inst, values)
                .filter(|&result| !facts.liveness.is_live_in(header, result));
            if let Some(result) = result {
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
