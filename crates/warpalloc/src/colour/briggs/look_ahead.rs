//! Look-ahead: pressure as a round of spilling leaves it.
//!
//! A graph of whole live ranges does not show that a spilled value keeps a register at
//! every instruction that reads or writes it: its pieces turn up in the next round and cost
//! another spill there. Nor does it show that a spill frees nothing because the value is an
//! operand wherever the file is full. The code without the chosen values shows both, so
//! before any code is written
//! - a spill costs the [memory traffic](super::traffic) that is left once reloads are joined;
//! - values are added to the choice until no position is over capacity: by cost over the
//!   square of the positions over capacity at which they are live but no operand;
//! - values whose return puts no position over capacity are taken off the choice again, the
//!   most expensive first.
//!
//! *Aggressive* spilling does not stop where the file is just large enough, but goes on to
//! the pressure limit of the generation. The room it leaves is what merged bodies, wide
//! values and joined reloads need beyond a count of units.
//!
//! Pressure within capacity is necessary for a colouring, not sufficient; the next round
//! decides.

use super::traffic::memory_traffic;
use crate::colour::Problem;
use crate::ir::{LiveRanges, Program, Value};
use crate::spill::choose::{Candidate, Counted, PointPressure, by_relief};
use crate::spill::cost::{COST_LIMIT, UNIFORM_WEIGHT};
use crate::spill::{SpillChoice, carrier_class};
use crate::stats::Stats;
use crate::target::{Class, File, FileInfo, SpillPath, Target};
use cranelift_entity::SecondaryMap;
use std::cmp::Ordering;
use std::ops::Range;

/// The least relief of a spill, so that no cost is divided by zero.
const LEAST_RELIEF: f32 = 0.5;

/// The code as it will be without the values that were chosen to be spilled.
pub struct LookAhead<'a> {
    program: &'a Program<'a>,
    target: &'a Target,
    ranges: &'a LiveRanges,
    /// What spilling each value costs, weighed.
    costs: SecondaryMap<Value, f32>,
    pressure: PointPressure<'a>,
    /// How far each value is from its register: 0 in it, 1 in its carrier, 2 in memory. A
    /// value that needs no carrier is in memory at 1.
    steps: SecondaryMap<Value, u8>,
}

/// The highest pressure of some positions, and at how many of them it is that high.
type Crest = (i32, u32);

const NO_CREST: Crest = (0, 0);

fn higher(a: Crest, b: Crest) -> Crest {
    match a.0.cmp(&b.0) {
        Ordering::Less => b,
        Ordering::Equal => (a.0, a.1 + b.1),
        Ordering::Greater => a,
    }
}

fn crest_of(units: &[i32]) -> Crest {
    let crests = units.iter().map(|&at| (at, 1));
    crests.fold(NO_CREST, higher)
}

/// Positions of one stretch.
const STRETCH: usize = 32;

/// The pressure at all positions, with the crests of stretches: a long live range is looked at
/// stretch by stretch.
struct Crests<'u> {
    units: &'u [i32],
    stretches: Vec<Crest>,
}

impl Crests<'_> {
    fn new(units: &[i32]) -> Crests<'_> {
        Crests {
            units,
            stretches: units.chunks(STRETCH).map(crest_of).collect(),
        }
    }

    /// The crest of `run`.
    fn within(&self, run: Range<usize>) -> Crest {
        let (first, end) = (run.start.div_ceil(STRETCH), run.end / STRETCH);
        let Some(whole) = self.stretches.get(first..end) else {
            return crest_of(&self.units[run]);
        };
        let ends = [run.start..first * STRETCH, end * STRETCH..run.end];
        let ends = ends.map(|part| crest_of(&self.units[part]));
        let crests = ends.iter().chain(whole).copied();
        crests.fold(NO_CREST, higher)
    }
}

impl<'a> LookAhead<'a> {
    /// `program` as it is; nothing where no file is over capacity.
    pub fn new(
        problem: &'a Problem<'a>,
        costs: &SecondaryMap<Value, f32>,
        stats: &mut Stats,
    ) -> Option<LookAhead<'a>> {
        let (program, target) = (&problem.program, problem.target);
        let is_over = problem.is_over_budget(stats);
        let ranges = problem.ranges(stats);
        if !is_over && !ranges.has_clobbers() {
            return None;
        }
        let pressure = PointPressure::new(program, target, ranges, false);
        let pressure = pressure.beside_clobbers(program, target);
        let fits = |(file, info): (File, &FileInfo)| {
            let mut units = pressure.of(file).iter();
            units.all(|&at| at <= info.capacity as i32)
        };
        if !is_over && target.files().all(fits) {
            return None;
        }
        let mut look_ahead = LookAhead {
            program,
            target,
            ranges,
            costs: costs.clone(),
            pressure,
            steps: SecondaryMap::new(),
        };
        for (file, _) in target.files() {
            look_ahead.price(problem, file);
        }
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
        let is_over = |file: File| {
            self.pressure
                .of(file)
                .iter()
                .any(|&at| at > self.limit(file))
        };
        let files = self.target.files().map(|(file, _)| file);
        files.filter(|&file| is_over(file)).collect()
    }

    /// Makes the memory traffic the cost of values of `file`, if it is over capacity.
    fn price(&mut self, problem: &Problem, file: File) {
        let (units, limit) = (self.pressure.of(file), self.limit(file));
        if units.iter().all(|&at| at <= limit) {
            return;
        }
        let full = self.pressure.interruptions(file, limit);
        let accesses = memory_traffic(problem, self.ranges, file, full);
        for (value, info) in self.program.values.iter() {
            let is_priced = self.ranges.size(value).file == file && self.costs[value].is_finite();
            if is_priced {
                let weight = if info.uniform { UNIFORM_WEIGHT } else { 1.0 };
                self.costs[value] = (accesses[value] * weight).min(COST_LIMIT);
            }
        }
    }

    /// Divides costs by relief. Spilling frees a register only where its value is no operand:
    /// the relief is the share of such positions among those over capacity in the live
    /// range, or among the highest of these, whichever is smaller.
    fn weigh(&mut self) {
        let share = |(lived, freed): (u32, u32)| (freed as f32).max(LEAST_RELIEF) / lived as f32;
        for (file, info) in self.target.files() {
            let limit = info.capacity as i32;
            let units = self.pressure.of(file);
            let over = Counted::new(units, |at| at > limit);
            let crests = Crests::new(units);
            for value in self.program.values.keys() {
                if self.target.class(self.class(value)).file != file
                    || !self.costs[value].is_finite()
                {
                    continue;
                }
                let of_value = over.of(value, &self.pressure);
                if of_value.0 > 0 {
                    let share = share(of_value).min(share(self.at_peak(value, &crests)));
                    self.costs[value] = (self.costs[value] / share).min(COST_LIMIT);
                }
            }
        }
    }

    /// At how many positions the pressure on `value` is highest, and at how many of these its
    /// spill frees its register.
    fn at_peak(&self, value: Value, crests: &Crests) -> (u32, u32) {
        let runs = self.pressure.lived(value).map(|run| crests.within(run));
        let (peak, lived) = runs.fold(NO_CREST, higher);
        let is_peak = |at: &usize| crests.units[*at] == peak;
        let touched = self.pressure.touched(value).filter(is_peak);
        (lived, lived - touched.count() as u32)
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
        self.target.file(file).capacity as i32
    }

    /// Takes `value` one step away from its register.
    fn step_out(&mut self, value: Value) {
        if let Some((file, width)) = self.seat(value) {
            self.pressure.add_freed(value, file, -width);
        }
        self.steps[value] += 1;
        if let Some((file, width)) = self.seat(value) {
            self.pressure.add(value, file, width);
        }
    }

    /// Takes that step back.
    fn step_back(&mut self, value: Value) {
        if let Some((file, width)) = self.seat(value) {
            self.pressure.add(value, file, -width);
        }
        self.steps[value] -= 1;
        if let Some((file, width)) = self.seat(value) {
            self.pressure.add_freed(value, file, width);
        }
    }

    /// Spills more values of `file` until more than `limit` units are in use nowhere, or no
    /// spill relieves a position. Relief counts as its square (D. Bernstein et al., PLDI 1989):
    /// one spill that relieves many positions stands for several that relieve few. Of equal
    /// values the one that is live through the most full positions goes first.
    fn complete(&mut self, file: File, limit: i32) {
        let units = self.pressure.of(file);
        if units.iter().all(|&at| at <= limit) {
            return;
        }
        let over = Counted::new(units, |at| at > limit);
        let full = Counted::new(units, |at| at >= limit);
        let mut candidates = Vec::new();
        for value in self.program.values.keys() {
            let Some((_, width)) = self.seat(value).filter(|&(of, _)| of == file) else {
                continue;
            };
            let most = width * over.of(value, &self.pressure).1 as i32;
            if most > 0 && self.costs[value].is_finite() {
                candidates.push(Candidate {
                    ratio: self.costs[value] / (most as f32).powi(2),
                    rank: u32::MAX - full.of(value, &self.pressure).1,
                    value,
                });
            }
        }
        let ratio = |ahead: &Self, value| {
            let (_, width) = ahead.seat(value).filter(|&(of, _)| of == file)?;
            let relief = ahead.pressure.relief(value, file, limit, width);
            (relief > 0).then(|| ahead.costs[value] / (relief as f32).powi(2))
        };
        by_relief(self, candidates.into_iter(), ratio, Self::step_out);
    }

    /// Takes values off the choice whose return puts no position over capacity.
    fn prune(&mut self) {
        let values = self.program.values.keys();
        // Pressure does not show which registers an instruction clobbers.
        let pressed = |&v: &Value| self.ranges.clobbered(v).is_empty();
        let chosen = values.filter(|&v| self.steps[v] > 0).filter(pressed);
        let freed = |v: Value| self.pressure.freed(v).map(|run| run.len()).sum();
        let mut chosen: Vec<(Value, usize)> = chosen.map(|v| (v, freed(v))).collect();
        chosen.sort_by(|&(a, freed_a), &(b, freed_b)| {
            let by_cost = self.costs[b].total_cmp(&self.costs[a]);
            by_cost.then(freed_a.cmp(&freed_b)).then(b.cmp(&a))
        });
        for (value, _) in chosen {
            while self.steps[value] > 0 {
                self.step_back(value);
                if self.exceeds(value) {
                    self.step_out(value);
                    break;
                }
            }
        }
    }

    /// Whether the file is too small somewhere for what `value` takes between its operands. A
    /// value in memory takes nothing, but no step back ends there: selection spills a value
    /// once, and [`complete`](Self::complete) takes only values out that have a seat.
    fn exceeds(&self, value: Value) -> bool {
        self.seat(value).is_some_and(|(file, _)| {
            let (units, limit) = (self.pressure.of(file), self.limit(file));
            let mut freed = self.pressure.freed(value);
            freed.any(|run| units[run].iter().any(|&at| at > limit))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::briggs::Briggs;
    use crate::function::{Builder, Effect, Function, VReg};
    use crate::ir::Facts;
    use crate::options::Options;
    use crate::scratch::Scratch;
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

    fn problem<'a>(
        f: &'a Function,
        target: &'a Target,
        options: &'a Options,
        scratch: &'a Scratch,
    ) -> Problem<'a> {
        let program = Program::new(f, target, None).unwrap();
        let facts = Facts::of(&program);
        Problem::new(program, facts, target, options, scratch)
    }

    fn look<'p>(problem: &'p Problem<'p>) -> Option<LookAhead<'p>> {
        let costs = Briggs::costs(problem);
        LookAhead::new(problem, &costs, &mut Stats::default())
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
        let scratch = Scratch::default();
        let problem = problem(&function, &target, &options, &scratch);
        let look_ahead = look(&problem).unwrap();
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
    fn crests_are_found_stretch_by_stretch() {
        let units: Vec<i32> = (0..300).map(|at| (at * at) % 41 % 7).collect();
        let crests = Crests::new(&units);
        for start in 0..units.len() {
            for end in start..units.len() {
                let run = &units[start..end];
                let highest = run.iter().copied().max().unwrap_or(0);
                let count = run.iter().filter(|&&at| at == highest).count();
                let expected = (highest, count as u32);
                assert_eq!(crests.within(start..end), expected, "{start}..{end}");
            }
        }
    }

    #[test]
    fn what_fits_is_not_looked_at() {
        let target = Target::cicc();
        let function = queue(15);
        let options = Options::default();
        let scratch = Scratch::default();
        let problem = problem(&function, &target, &options, &scratch);
        assert!(look(&problem).is_none());
    }

    #[test]
    fn a_spill_that_frees_nothing_where_it_is_tightest_is_dearer() {
        let target = Target::cicc().with_budget(File::R, 2);
        let function = queue(5);
        let options = Options::default();
        let scratch = Scratch::default();
        let problem = problem(&function, &target, &options, &scratch);
        let look_ahead = look(&problem).unwrap();
        let cost = |v| look_ahead.costs()[Value::new(v)];
        assert!(cost(0) > cost(1) && cost(4) > cost(3));
    }

    #[test]
    fn what_cannot_be_spilled_stays_however_tight_it_is() {
        let target = Target::cicc().with_budget(File::R, 2);
        let function = queue(5);
        let options = Options::default();
        let scratch = Scratch::default();
        let problem = problem(&function, &target, &options, &scratch);
        let costs = SecondaryMap::with_default(f32::INFINITY);
        let look_ahead = LookAhead::new(&problem, &costs, &mut Stats::default());
        let choice = look_ahead.unwrap().settle(&[], true, None);
        assert_eq!(choice.values, []);
    }
}
