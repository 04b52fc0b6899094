//! Attempts: without spilling first, then with.
//!
//! The first attempt spills nothing and may try several orders; the best result is the one
//! with the fewest clusters left over. When none succeeds, guidance picks values to spill,
//! the program is rewritten without them, and the next attempt starts over with the budget
//! that guidance aims at lowered by one. Where an attempt leaves no fewer clusters over
//! than the one before and the budget model finds demand too high, or for the second time
//! in a row, what is left over is spilled whatever it costs, so that attempts cannot stall.

use super::affinity::{Affinity, affinities};
use super::assign::{Colours, Scene};
use super::budget::{BudgetModel, Demand};
use super::class::RegClass;
use super::cluster::{Cluster, Clusters};
use super::coalesce::Coalescer;
use super::compact::compact;
use super::drive::{Trial, drive};
use super::guidance::{self, Costs};
use super::mac;
use super::nearby::Nearby;
use super::progress::Progress;
use super::remat::RematLists;
use super::setup::{self, SpillSetup};
use crate::allocation::{Allocation, Space};
use crate::analysis::Liveness;
use crate::error::Error;
use crate::function::{Function, Inst, Kind};
use crate::options::Options;
use crate::prepare::hoist::{count_hoisted, hoist_invariants};
use crate::prepare::schedule::schedule;
use crate::prepare::split::{SplitPolicy, split_long_values};
use crate::program::{Facts, Op, Program, Ranges, Value, emit, read_together};
use crate::spill::{SpillPolicy, Spiller};
use crate::stats::Stats;
use crate::target::{File, Target};
use cranelift_entity::{EntitySet, SecondaryMap};
use std::time::Instant;

/// How an attempt ended.
pub enum Attempt {
    /// Every value has a register.
    Done(Colours),
    /// These should be spilled first.
    Spill(Vec<Value>),
    /// Something that cannot be spilled has no register, and nothing can make room for it.
    Stuck,
}

/// Attempts to allocate one function, one after the other.
pub struct Retry<'a> {
    program: Program<'a>,
    facts: Facts,
    target: &'a Target,
    options: &'a Options,
    spiller: Option<Spiller<'a>>,
    space: Space,
    /// Instructions whose results are computed before their loop.
    hoisted: Vec<Inst>,
    /// Whether everything that may save spills has been tried.
    prepared: bool,
    /// Failed attempts since spilling began.
    failures: usize,
    /// What attempts left over.
    progress: Progress,
    /// Whether long values are split before anything is spilled.
    splits: bool,
    stats: Stats,
}

/// The result of one trial.
struct Placed {
    clusters: Clusters,
    colours: Colours,
    failed: Vec<Cluster>,
}

impl<'a> Retry<'a> {
    /// Nothing attempted yet. Long values are split before anything is spilled if `splits`.
    pub fn new(
        function: &'a Function,
        liveness: &Liveness,
        target: &'a Target,
        options: &'a Options,
        splits: bool,
    ) -> Result<Retry<'a>, Error> {
        let mut stats = Stats::default();
        let begun = Instant::now();
        let program = Program::new(function, target, None)?;
        stats.values = program.values.len() as u32;
        stats.add_time("build", begun.elapsed());
        let begun = Instant::now();
        let facts = Facts::of_fresh(&program, liveness);
        stats.add_time("analyse", begun.elapsed());
        Ok(Retry {
            program,
            facts,
            target,
            options,
            spiller: None,
            space: options.spill_space,
            hoisted: Vec::new(),
            prepared: false,
            failures: 0,
            progress: Progress::default(),
            splits,
            stats,
        })
    }

    /// Computes loop invariants before their loops, by the policy; whether there were any.
    pub fn hoist(&mut self) -> bool {
        let begun = Instant::now();
        let knobs = &self.options.knobs;
        let (policy, chains) = (knobs.hoist_policy, knobs.new_hoisting);
        let facts = &mut self.facts;
        self.hoisted = hoist_invariants(&mut self.program, self.target, facts, policy, chains);
        self.stats.add_time("hoist", begun.elapsed());
        !self.hoisted.is_empty()
    }

    /// Looks at a program that has changed.
    fn analyse(&mut self) {
        self.facts = Facts::of(&self.program);
    }

    /// Where values are alive in the program as it is.
    fn ranges(&mut self) -> Ranges {
        let begun = Instant::now();
        let ranges = Ranges::compute(&self.program, self.target, &self.facts);
        self.stats.add_time("ranges", begun.elapsed());
        ranges
    }

    /// How many attempts there were.
    pub fn iterations(&self) -> u32 {
        self.stats.iterations
    }

    /// Tries to give every value a register.
    pub fn attempt(&mut self) -> Attempt {
        self.stats.iterations += 1;
        let ranges = self.ranges();
        let over = self.over_budget(&ranges);
        if !over.is_empty() {
            return self.relieve(&ranges, &over);
        }
        let begun = Instant::now();
        let affinities = affinities(&self.program, &ranges, &self.facts.frequencies);
        let priorities = mac::priorities(&self.program, &self.options.knobs);
        let banks = self.options.knobs.bank_aware;
        let read_with = banks.then(|| read_together(&self.program, self.target));
        self.stats.add_time("wishes", begun.elapsed());
        // The statistics are written while the scene borrows everything else.
        let mut stats = std::mem::take(&mut self.stats);
        let scene = Scene {
            program: &self.program,
            target: self.target,
            ranges: &ranges,
            knobs: &self.options.knobs,
            priorities: &priorities,
            read_with: read_with.as_ref(),
        };
        let costs = (self.failures > 0).then(|| self.costs());
        let best = self.best_trial(scene, &affinities, costs.as_ref(), &mut stats);
        let end = match best.failed.is_empty() {
            true => {
                self.count(&scene, &affinities, &best, &mut stats);
                Attempt::Done(best.colours)
            }
            false => {
                let costs = costs.unwrap_or_else(|| self.costs());
                self.progress.note(best.failed.len());
                self.make_room(&scene, &best, &costs)
            }
        };
        self.stats = stats;
        end
    }

    /// Runs trials until one succeeds, and keeps the one that leaves the fewest clusters.
    fn best_trial(
        &self,
        scene: Scene,
        affinities: &[Affinity],
        costs: Option<&Costs>,
        stats: &mut Stats,
    ) -> Placed {
        let trials = Trial::ALL
            .iter()
            .take(self.options.knobs.non_spill_trials.max(1) as usize);
        let mut best: Option<Placed> = None;
        for &trial in trials {
            let placed = self.place(scene, affinities, costs, trial, stats);
            if best
                .as_ref()
                .is_none_or(|b| placed.failed.len() < b.failed.len())
            {
                best = Some(placed);
            }
            if best.as_ref().is_some_and(|b| b.failed.is_empty()) {
                break;
            }
        }
        best.unwrap_or_else(|| self.place(scene, affinities, costs, Trial::SixLists, stats))
    }

    fn place(
        &self,
        scene: Scene,
        affinities: &[Affinity],
        costs: Option<&Costs>,
        trial: Trial,
        stats: &mut Stats,
    ) -> Placed {
        let begun = Instant::now();
        let mut clusters = Clusters::new(&self.program, scene.ranges, self.target.files().len());
        Coalescer::new(&self.program, self.target, scene.ranges, scene.knobs)
            .run(&mut clusters, affinities);
        stats.add_time("coalesce", begun.elapsed());
        let begun = Instant::now();
        let mut colours: Colours = SecondaryMap::new();
        colours.resize(self.program.values.len());
        let mut failed = Vec::new();
        for file in RegClass::drives(self.target) {
            let outcome = drive(scene, &mut clusters, file, costs, trial, &mut colours);
            failed.extend(outcome.failed);
        }
        stats.add_time("assign", begun.elapsed());
        Placed {
            clusters,
            colours,
            failed,
        }
    }

    /// Files with more alive at once than they have units.
    fn over_budget(&self, ranges: &Ranges) -> Vec<File> {
        let files = self.target.files();
        let over = files.filter(|(file, info)| ranges.peak(*file) > info.units);
        over.map(|(file, _)| file).collect()
    }

    /// What to spill so that no more is alive at once than the budget has.
    fn relieve(&mut self, ranges: &Ranges, over: &[File]) -> Attempt {
        if !std::mem::replace(&mut self.prepared, true) && self.prepare() {
            return Attempt::Spill(Vec::new());
        }
        let costs = self.costs();
        let mut chosen = Vec::new();
        for &file in over {
            let aim = self.aim(file, self.failures);
            chosen.extend(self.guide(ranges, &costs, (file, aim)));
        }
        match chosen.is_empty() {
            true => Attempt::Stuck,
            false => Attempt::Spill(chosen),
        }
    }

    fn guide(&self, ranges: &Ranges, costs: &Costs, aim: (File, usize)) -> Vec<Value> {
        guidance::relieve(&self.program, self.target, ranges, costs, aim)
    }

    /// Units of `file` that guidance aims at: one fewer with each failure, within limits.
    fn aim(&self, file: File, failures: usize) -> usize {
        let knobs = &self.options.knobs;
        let units = self.target.file(file).units;
        let limit = match knobs.budget_limit_secondary {
            0 => self.budget_model().deepest(units, hardware_units(file)),
            limit => (limit as usize).min(units / 2),
        };
        units - failures.min(limit)
    }

    fn budget_model(&self) -> BudgetModel {
        BudgetModel::new(&self.options.knobs, 0, 0)
    }

    /// Rewrites that may save spills, made once before the first; whether any was made.
    fn prepare(&mut self) -> bool {
        let reordered = self.reorder();
        self.split() || reordered
    }

    /// Splits long values until nothing changes or the rounds are over.
    fn split(&mut self) -> bool {
        let rounds = match self.splits {
            true => self.options.knobs.split_rounds,
            false => 0,
        };
        for round in 0..rounds {
            let policy = SplitPolicy::default();
            let counts = split_long_values(&mut self.program, self.target, &self.facts, policy);
            if counts.values == 0 {
                return round > 0;
            }
            self.analyse();
        }
        rounds > 0
    }

    /// Tries an order of instructions that needs fewer registers.
    fn reorder(&mut self) -> bool {
        if !self.options.schedule || self.program.order.is_some() {
            return false;
        }
        let function = self.program.function;
        let Some(order) = schedule(function, self.target) else {
            return false;
        };
        match Program::new(function, self.target, Some(order)) {
            Ok(program) => {
                self.program = program;
                self.analyse();
                if !self.hoisted.is_empty() {
                    self.hoist();
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Whether what is left over goes, whatever it costs: attempts get no further, and the
    /// budget model finds demand too high or they stall for the second time in a row.
    fn forces(&self, scene: &Scene, placed: &Placed) -> bool {
        let stalls = self.progress.stalls();
        stalls > 1 || (stalls == 1 && self.demand_is_too_high(scene, placed))
    }

    fn demand_is_too_high(&self, scene: &Scene, placed: &Placed) -> bool {
        let model = self.budget_model();
        let over = |file: File| {
            let left_over = placed.failed.iter().map(|&c| placed.clusters.info(c));
            let mut demand = Demand {
                live: scene.ranges.peak(file),
                ..Demand::default()
            };
            for info in left_over.filter(|info| info.file == file) {
                demand.demanded += info.width as usize;
                demand.pair_penalty += info.align as usize - 1;
            }
            let units = self.target.file(file).units;
            demand.demanded > 0 && model.needs_spill(demand, units, units)
        };
        self.target.files().any(|(file, _)| over(file))
    }

    /// What to spill beyond what is left over when attempts keep stalling: so much that one
    /// register fewer is wanted with each stall in a row, and once half of the attempts are
    /// spent, with each there ever was. Otherwise what does not fit moves through an
    /// unrolled loop one copy of the body at a time.
    fn extra(&self, ranges: &Ranges, placed: &Placed, costs: &Costs) -> Vec<Value> {
        let late = 2 * self.failures > self.options.knobs.spill_instruction_count as usize;
        let stalls = match late {
            true => self.progress.all_stalls(),
            false => self.progress.stalls(),
        };
        if self.progress.stalls() == 0 || stalls < 2 {
            return Vec::new();
        }
        let left_over = |file: File| {
            let mut failed = placed.failed.iter();
            failed.any(|&c| placed.clusters.info(c).file == file)
        };
        let files = self.target.files().map(|(file, _)| file);
        let crowded = files.filter(|&file| left_over(file));
        let aims = crowded.map(|file| (file, self.aim(file, stalls as usize - 1)));
        aims.flat_map(|aim| self.guide(ranges, costs, aim))
            .collect()
    }

    /// What to spill so that the clusters left over get registers.
    fn make_room(&self, scene: &Scene, placed: &Placed, costs: &Costs) -> Attempt {
        let mut chosen: Vec<Value> = Vec::new();
        let mut spared = EntitySet::new();
        let forced = self.forces(scene, placed);
        let mut nearby = Nearby::new(scene.ranges);
        for &cluster in &placed.failed {
            let info = placed.clusters.info(cluster);
            let own = info.members.iter().map(|m| m.value);
            let more = match forced && own.clone().all(|v| costs[v].is_finite()) {
                // No progress: what is left over goes, whatever it costs.
                true => own.collect(),
                false => match guidance::victims(
                    scene,
                    &mut nearby,
                    info,
                    &placed.colours,
                    costs,
                    &spared,
                ) {
                    Some(more) => more,
                    None => return Attempt::Stuck,
                },
            };
            more.iter().for_each(|&v| {
                spared.insert(v);
            });
            chosen.extend(more);
        }
        chosen.extend(self.extra(scene.ranges, placed, costs));
        chosen.sort_unstable();
        chosen.dedup();
        Attempt::Spill(chosen)
    }

    fn costs(&self) -> Costs {
        let knobs = &self.options.knobs;
        let mut costs = setup::costs(&self.program, &self.facts, knobs, self.space);
        RematLists::find(&self.program, self.target, knobs).apply(&mut costs);
        costs
    }

    /// Rewrites the program without `values`.
    pub fn spill(&mut self, values: &[Value]) -> Result<(), Error> {
        if values.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        self.failures += 1;
        if self.spiller.is_none() {
            self.space = setup::spill_space(self.program.function, self.options)?;
            let policy = SpillPolicy {
                remat_ratio: self.options.knobs.remat_threshold,
                ..SpillPolicy::default()
            };
            self.spiller = Some(Spiller::new(self.target, policy, self.space));
        }
        if let Some(spiller) = &mut self.spiller {
            let counts = spiller.spill(&mut self.program, &self.facts, values);
            self.stats.spilled += counts.memory + counts.carried;
            self.stats.rematerialised += counts.recomputed;
        }
        self.analyse();
        self.stats.add_time("spill", begun.elapsed());
        Ok(())
    }

    /// Counts what the attempt achieved.
    fn count(&self, scene: &Scene, affinities: &[Affinity], placed: &Placed, stats: &mut Stats) {
        stats.copies = affinities.len() as u32;
        let same = |a: &&Affinity| match (placed.colours[a.to], placed.colours[a.from]) {
            (Some(to), Some(from)) => {
                to.file == from.file && i32::from(from.unit) - i32::from(to.unit) == a.shift
            }
            _ => false,
        };
        stats.coalesced = affinities.iter().filter(same).count() as u32;
        let through_call = |v: &&Value| scene.ranges.crosses_clobber(**v);
        let values = scene.ranges.by_start().iter();
        stats.live_through_calls = match has_calls(&self.program) {
            true => values.filter(through_call).count() as u32,
            false => 0,
        };
    }

    /// The allocation that `colours` make.
    pub fn finish(self, colours: &Colours) -> Result<Allocation, Error> {
        let function = self.program.function;
        let options = Options {
            spill_space: self.space,
            ..self.options.clone()
        };
        let mut allocation = emit(&self.program, self.target, &options, colours, self.stats)?;
        allocation.stats.hoisted = count_hoisted(&allocation, &self.hoisted);
        allocation.stats.compacted_bytes = {
            let buckets = SpillSetup::of(&self.options.knobs);
            compact(function, self.target, &mut allocation, buckets)
        };
        Ok(allocation)
    }
}

/// Units that a file has at most, whatever its budget.
fn hardware_units(file: File) -> usize {
    match file {
        File::R => 255,
        File::UR => 63,
        _ => 7,
    }
}

fn has_calls(program: &Program) -> bool {
    let function = program.function;
    let mut ops = program.blocks.values().flat_map(|block| &block.ops);
    ops.any(|op| matches!(op, Op::Inst { inst, .. } if function.inst(*inst).kind == Kind::Call))
}
