//! Look-ahead: pressure as a round of spilling leaves it.
//!
//! A graph of whole live ranges does not show that a spilled value keeps a register at
//! every instruction that reads or writes it: its pieces turn up in the next round and cost
//! another spill there. Nor does it show that a spill frees nothing because the value is an
//! operand wherever the file is full. The code without the chosen values shows both, so
//! before any code is written
//! - values are added to the choice until no position is over capacity: by cost over the
//!   positions over capacity at which they are live but no operand;
//! - values whose return puts no position over capacity are taken off the choice again, the
//!   most expensive first.
//!
//! *Aggressive* spilling does not stop where the file is just large enough, but goes on to
//! the pressure limit of the generation. The room it leaves is what merged bodies, wide
//! values and joined reloads need beyond a count of units.
//!
//! Pressure within capacity is necessary for a colouring, not sufficient; the next round
//! decides.

use crate::analysis::{LiveRanges, Rows};
use crate::colour::Problem;
use crate::function::Role;
use crate::interference::Interference;
use crate::ir::{Op, Program, Value, ValueInfo};
use crate::spill::cost::COST_LIMIT;
use crate::spill::{SpillChoice, carrier_class};
use crate::target::{Class, File, SpillPath, Target};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The least relief of a spill, so that no cost is divided by zero.
const IN_VAIN: f32 = 0.5;

/// The code as it will be without the values that were chosen to be spilled.
pub struct LookAhead<'a> {
    program: &'a Program<'a>,
    target: &'a Target,
    interference: &'a Interference,
    /// What spilling each value costs, weighed.
    costs: SecondaryMap<Value, f32>,
    ranges: LiveRanges<Value>,
    /// Positions at which a value is in a register even if it is spilled.
    touches: Rows<Value, u32>,
    /// Units in use, by file and position.
    loads: Vec<Vec<i32>>,
    /// How far each value is from its register: 0 in it, 1 in its carrier, 2 in memory. A
    /// value that needs no carrier is in memory at 1.
    steps: SecondaryMap<Value, u8>,
}

/// A value in the order in which more are spilled: least cost for its relief first, then
/// the most full positions it is live through, then the lower number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    ratio: f32,
    full: u32,
    value: Value,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> std::cmp::Ordering {
        let by_ratio = self.ratio.total_cmp(&other.ratio);
        by_ratio
            .then(other.full.cmp(&self.full))
            .then(self.value.cmp(&other.value))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> LookAhead<'a> {
    /// `program` as it is; nothing where no file is over capacity.
    pub fn new(
        problem: &'a Problem<'a>,
        interference: &'a Interference,
        costs: &SecondaryMap<Value, f32>,
    ) -> Option<LookAhead<'a>> {
        let (program, target) = (&problem.program, problem.target);
        let fits = |(value, info): (Value, &ValueInfo)| {
            let units = target.file(target.class(info.class).file).units;
            interference.peak(value) as usize <= units
        };
        if program.values.iter().all(fits) {
            return None;
        }
        let positions: usize = program.blocks.values().map(|b| 2 * b.ops.len()).sum();
        let mut look_ahead = LookAhead {
            program,
            target,
            interference,
            costs: costs.clone(),
            ranges: LiveRanges::compute(program, &problem.facts.liveness),
            touches: touches(program),
            loads: vec![vec![0; positions + 1]; target.files().len()],
            steps: SecondaryMap::with_capacity(program.values.len()),
        };
        look_ahead.count_loads();
        look_ahead.weigh();
        Some(look_ahead)
    }

    /// What spilling each value costs, seeing how much room that makes.
    pub fn costs(&self) -> &SecondaryMap<Value, f32> {
        &self.costs
    }

    /// Completes `spilled` until pressure is within every file, and, if it may be `pruned`,
    /// takes back spills that pressure does not ask for. With an `aim`, spilling is
    /// aggressive: in files that are too small it goes on until no more than that part of
    /// the units is in use.
    pub fn settle(mut self, spilled: &[Value], pruned: bool, aim: Option<f32>) -> SpillChoice {
        let too_small = self.files_too_small();
        for &value in spilled {
            self.step_out(value);
        }
        // A file whose values are carried in another file comes before that file.
        let mut files: Vec<File> = self.target.files().map(|(file, _)| file).collect();
        files.sort_by_key(|&file| self.target.file(file).spill == SpillPath::Memory);
        for &file in &files {
            self.complete(file, self.limit(file));
        }
        if pruned {
            self.prune();
        }
        if let Some(part) = aim {
            for file in files.into_iter().filter(|file| too_small.contains(file)) {
                self.complete(file, (part * self.limit(file) as f32) as i32);
            }
        }
        let values = || self.program.values.keys();
        let carried = |&v: &Value| carrier_class(self.target, self.class(v)).is_some();
        SpillChoice {
            values: values().filter(|&v| self.steps[v] > 0).collect(),
            uncarried: values()
                .filter(|&v| self.steps[v] > 1)
                .filter(carried)
                .collect(),
        }
    }

    fn files_too_small(&self) -> Vec<File> {
        let crowded = |file: File| {
            let mut load = self.loads[file.index()].iter();
            load.any(|&at| at > self.limit(file))
        };
        let files = self.target.files().map(|(file, _)| file);
        files.filter(|&file| crowded(file)).collect()
    }

    fn count_loads(&mut self) {
        for (value, info) in self.program.values.iter() {
            let class = self.target.class(info.class);
            let (load, width) = (&mut self.loads[class.file.index()], class.width as i32);
            for segment in self.ranges.segments(value) {
                let Range { start, end } = segment.positions();
                load[start] += width;
                load[end] -= width;
            }
        }
        for load in &mut self.loads {
            let mut now = 0;
            for at in load {
                now += *at;
                *at = now;
            }
        }
    }

    /// Divides costs by relief. Spilling frees a register only where its value is no operand:
    /// the relief is the share of such positions among those over capacity in the live
    /// range, or among the highest of these, whichever is smaller.
    fn weigh(&mut self) {
        for value in self.program.values.keys() {
            let file = self.target.class(self.class(value)).file;
            let crowded = self.limit(file) + 1;
            let peak = self.peak(value, file);
            if peak >= crowded && self.costs[value].is_finite() {
                let share = self.share_freed(value, file, crowded);
                let share = share.min(self.share_freed(value, file, peak));
                self.costs[value] = (self.costs[value] / share).min(COST_LIMIT);
            }
        }
    }

    /// Of the positions in the live range of `value` with at least `load` units in use, the
    /// share at which spilling it frees its register.
    fn share_freed(&self, value: Value, file: File, load: i32) -> f32 {
        let is_such = |at: &usize| self.loads[file.index()][*at] >= load;
        let lived = self.positions(value).filter(is_such).count();
        let passed = self.passed(value).filter(is_such).count();
        (passed as f32).max(IN_VAIN) / lived as f32
    }

    fn peak(&self, value: Value, file: File) -> i32 {
        let loads = self.positions(value).map(|at| self.loads[file.index()][at]);
        loads.max().unwrap_or(0)
    }

    fn positions(&self, value: Value) -> impl Iterator<Item = usize> + '_ {
        self.ranges
            .segments(value)
            .iter()
            .flat_map(|s| s.positions())
    }

    fn class(&self, value: Value) -> Class {
        self.program.values[value].class
    }

    /// The file and units that `value` takes between its operands: first its own, then
    /// its carrier's, then none.
    fn seat(&self, value: Value) -> Option<(File, i32)> {
        let class = match self.steps[value] {
            0 => Some(self.class(value)),
            1 => carrier_class(self.target, self.class(value)),
            _ => None,
        };
        let info = self.target.class(class?);
        Some((info.file, info.width as i32))
    }

    fn limit(&self, file: File) -> i32 {
        self.target.file(file).units as i32
    }

    /// Takes `value` one step away from its register.
    fn step_out(&mut self, value: Value) {
        self.vacate(value, 1);
        self.steps[value] += 1;
        self.occupy(value, 1);
    }

    /// Takes that step back.
    fn step_back(&mut self, value: Value) {
        self.occupy(value, -1);
        self.steps[value] -= 1;
        self.vacate(value, -1);
    }

    /// Leaves the seat of `value` where it is no operand.
    fn vacate(&mut self, value: Value, sign: i32) {
        let Some((file, width)) = self.seat(value) else {
            return;
        };
        self.occupy(value, -sign);
        for &at in self.touches.row(value) {
            self.loads[file.index()][at as usize] += sign * width;
        }
    }

    /// Takes the seat of `value` wherever it lives.
    fn occupy(&mut self, value: Value, sign: i32) {
        let Some((file, width)) = self.seat(value) else {
            return;
        };
        let load = &mut self.loads[file.index()];
        let segments = self.ranges.segments(value).iter();
        for at in segments.flat_map(|s| s.positions()) {
            load[at] += sign * width;
        }
    }

    /// Spills more values of `file` until more than `limit` units are in use nowhere, or no
    /// spill relieves a position.
    fn complete(&mut self, file: File, limit: i32) {
        let load = &self.loads[file.index()];
        if load.iter().all(|&at| at <= limit) {
            return;
        }
        let crowded = Counted::new(load, |at| at > limit);
        let full = Counted::new(load, |at| at >= limit);
        let mut heap = BinaryHeap::new();
        for value in self.program.values.keys() {
            let Some((_, width)) = self.seat(value).filter(|&(of, _)| of == file) else {
                continue;
            };
            let relief = width * self.lived_through(value, &crowded) as i32;
            if relief > 0 && self.costs[value].is_finite() {
                let full = self.lived_through(value, &full);
                heap.push(Reverse(self.candidate(value, relief, full)));
            }
        }
        // Relief only falls as others go, so an entry is a lower bound of the ratio.
        while let Some(Reverse(entry)) = heap.pop() {
            let relief = self.relief(entry.value, file, limit);
            if relief == 0 {
                continue;
            }
            let now = self.candidate(entry.value, relief, entry.full);
            match heap.peek() {
                Some(Reverse(next)) if now > *next => heap.push(Reverse(now)),
                _ => self.step_out(entry.value),
            }
        }
    }

    fn candidate(&self, value: Value, relief: i32, full: u32) -> Candidate {
        let ratio = self.costs[value] / relief as f32;
        Candidate { ratio, full, value }
    }

    /// At how many of the counted positions `value` lives without being an operand.
    fn lived_through(&self, value: Value, counted: &Counted) -> u32 {
        let segments = self.ranges.segments(value).iter();
        let lived: u32 = segments.map(|s| counted.within(s.positions())).sum();
        let touches = self.touches.row(value).iter().map(|&at| at as usize);
        let touched: u32 = touches.map(|at| counted.within(at..at + 1)).sum();
        lived - touched
    }

    /// The positions at which spilling `value` frees its register.
    fn passed(&self, value: Value) -> impl Iterator<Item = usize> + '_ {
        let mut touches = self.touches.row(value);
        self.positions(value).filter(move |&at| {
            let touched = touches.first().is_some_and(|&t| t as usize == at);
            if touched {
                touches = &touches[1..];
            }
            !touched
        })
    }

    /// How many units above `limit` are in use in `file`, over all positions, that `value`
    /// frees by leaving it.
    fn relief(&self, value: Value, file: File, limit: i32) -> i32 {
        let Some((_, width)) = self.seat(value).filter(|&(of, _)| of == file) else {
            return 0;
        };
        let load = &self.loads[file.index()];
        let freed = self.passed(value);
        freed.map(|at| (load[at] - limit).clamp(0, width)).sum()
    }

    /// Takes values off the choice whose return puts no position over capacity.
    fn prune(&mut self) {
        let values = self.program.values.keys();
        // Pressure does not show which registers an instruction clobbers.
        let pressed = |&v: &Value| self.interference.clobbered(v).is_none();
        let chosen = values.filter(|&v| self.steps[v] > 0).filter(pressed);
        let lived = |v: Value| self.passed(v).count();
        let mut chosen: Vec<(Value, usize)> = chosen.map(|v| (v, lived(v))).collect();
        chosen.sort_by(|&(a, lived_a), &(b, lived_b)| {
            let by_cost = self.costs[b].total_cmp(&self.costs[a]);
            by_cost.then(lived_a.cmp(&lived_b)).then(b.cmp(&a))
        });
        for (value, _) in chosen {
            while self.steps[value] > 0 {
                self.step_back(value);
                if self.crowds(value) {
                    self.step_out(value);
                    break;
                }
            }
        }
    }

    /// Whether the file is too small somewhere for what `value` takes between its operands.
    fn crowds(&self, value: Value) -> bool {
        let Some((file, _)) = self.seat(value) else {
            return false;
        };
        let (load, limit) = (&self.loads[file.index()], self.limit(file));
        self.passed(value).any(|at| load[at] > limit)
    }
}

/// Positions of a kind, counted up to each.
struct Counted(Vec<u32>);

impl Counted {
    fn new(load: &[i32], is_counted: impl Fn(i32) -> bool) -> Counted {
        let mut counts = Vec::with_capacity(load.len() + 1);
        counts.push(0);
        for &at in load {
            let before = counts[counts.len() - 1];
            counts.push(before + is_counted(at) as u32);
        }
        Counted(counts)
    }

    fn within(&self, positions: Range<usize>) -> u32 {
        self.0[positions.end] - self.0[positions.start]
    }
}

/// Where each value must be in a register, spilled or not. Copies of spilled values are
/// loads and stores, which need none.
fn touches(program: &Program) -> Rows<Value, u32> {
    let mut pairs: Vec<(Value, u32)> = Vec::new();
    let mut early = 0;
    for op in program.blocks.values().flat_map(|block| &block.ops) {
        let mut here: SmallVec<[(u32, Value); 8]> = SmallVec::new();
        if !matches!(op, Op::Copies(_)) {
            for (value, role) in op.accesses(program.function) {
                if role != Role::Def {
                    here.push((early, value));
                }
                if role.writes() {
                    here.push((early + 1, value));
                }
            }
        }
        here.sort_unstable();
        here.dedup();
        pairs.extend(here.iter().map(|&(at, value)| (value, at)));
        early += 2;
    }
    Rows::from_pairs(program.values.len(), pairs.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::briggs::Briggs;
    use crate::function::{Builder, Effect, Function, VReg};
    use crate::ir::Facts;
    use crate::options::Options;
    use crate::stats::Stats;
    use cranelift_entity::EntityRef;

    /// Values that are produced in turn and consumed first in, first out.
    fn queue(count: usize) -> Function {
        let mut b = Builder::new("queue");
        let block = b.block();
        let values: Vec<VReg> = (0..count).map(|_| b.vreg(Class::R32)).collect();
        for &v in &values {
            b.inst(block, "produce").def(v).effect(Effect::Write);
        }
        for &v in &values {
            b.inst(block, "consume").use_(v).effect(Effect::Write);
        }
        b.exit(block, "exit");
        b.finish()
    }

    fn problem<'a>(f: &'a Function, target: &'a Target, options: &'a Options) -> Problem<'a> {
        let program = Program::new(f, target, None).unwrap();
        let facts = Facts::of(&program);
        Problem::new(program, facts, target, options)
    }

    fn look<'p>(problem: &'p Problem) -> (&'p Interference, SecondaryMap<Value, f32>) {
        let (attempt, _) = crate::colour::attempts(problem.options);
        let costs = Briggs::new(attempt).costs(problem);
        (problem.interference(&mut Stats::default()), costs)
    }

    fn settled(count: usize, registers: usize, spilled: &[usize]) -> Vec<usize> {
        settled_at(count, registers, spilled, None)
    }

    fn settled_at(
        count: usize,
        registers: usize,
        spilled: &[usize],
        aim: Option<f32>,
    ) -> Vec<usize> {
        let target = Target::cicc().with_budget(File::R, registers);
        let function = queue(count);
        let options = Options::default();
        let problem = problem(&function, &target, &options);
        let (interference, costs) = look(&problem);
        let look_ahead = LookAhead::new(&problem, interference, &costs).unwrap();
        let spilled: Vec<Value> = spilled.iter().map(|&v| Value::new(v)).collect();
        let choice = look_ahead.settle(&spilled, true, aim);
        choice.values.iter().map(|v| v.index()).collect()
    }

    #[test]
    fn a_choice_is_completed_exchanged_and_pruned() {
        // Three of five must go, but neither the first consumed nor the last produced.
        assert_eq!(settled(5, 2, &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(settled(5, 2, &[]), [1, 2, 3]);
        assert_eq!(settled(5, 2, &[0, 1, 2, 3, 4]), [1, 2, 3]);
        assert_eq!(settled(5, 2, &[0, 2, 3]), [1, 2, 3]);
    }

    #[test]
    fn aggressive_spilling_goes_on_to_its_aim() {
        let count = |aim| settled_at(12, 10, &[], aim).len();
        assert_eq!(count(None), 2);
        assert_eq!(count(Some(1.0)), 2);
        assert_eq!(count(Some(0.8)), 4);
        assert_eq!(count(Some(0.7)), 5);
    }

    #[test]
    fn what_fits_is_not_looked_at() {
        let target = Target::cicc();
        let function = queue(15);
        let options = Options::default();
        let problem = problem(&function, &target, &options);
        let (interference, costs) = look(&problem);
        assert!(LookAhead::new(&problem, interference, &costs).is_none());
    }

    #[test]
    fn a_spill_that_frees_nothing_where_it_is_tightest_is_dearer() {
        let target = Target::cicc().with_budget(File::R, 2);
        let function = queue(5);
        let options = Options::default();
        let problem = problem(&function, &target, &options);
        let (interference, costs) = look(&problem);
        let look_ahead = LookAhead::new(&problem, interference, &costs).unwrap();
        let cost = |v| look_ahead.costs()[Value::new(v)];
        assert!(cost(0) > cost(1) && cost(4) > cost(3));
    }
}
