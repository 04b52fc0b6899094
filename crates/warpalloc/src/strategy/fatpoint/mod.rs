//! The fat-point allocator: conflicts by program point, no interference graph.
//!
//! After the allocator of ptxas 13.0.88 as document 003 describes it. The phases:
//!
//! | phase | file |
//! |---|---|
//! | stretches of every value, pressure | [`ranges`] |
//! | copies as wishes, with filter bits | [`affinity`] |
//! | links and values as clusters, joined along wishes | [`cluster`], [`coalesce`] |
//! | classes in order, one drive per file | [`class`], [`drive`] |
//! | what restricts a cluster | [`constraint`] |
//! | six lists, assignment stack | [`order`] |
//! | which units are held when | [`occupancy`], [`mask`] |
//! | choice among the free | [`histogram`] |
//! | assignment | [`assign`] |
//! | what to spill, when something must be | [`guidance`] |
//!
//! The first attempt spills nothing. When it fails, guidance picks values, the shared
//! spiller rewrites the program without them, and the next attempt starts over; attempts
//! are bounded, and the naive allocator stands behind the last.

pub mod affinity;
pub mod assign;
pub mod class;
pub mod cluster;
pub mod coalesce;
pub mod constraint;
pub mod drive;
pub mod guidance;
pub mod histogram;
pub mod knobs;
pub mod mask;
pub mod occupancy;
pub mod order;
pub mod ranges;

use crate::allocation::Allocation;
use crate::error::Error;
use crate::function::Function;
use crate::options::Options;
use crate::program::{Facts, Program, Value, emit};
use crate::spill::{SpillPolicy, Spiller, cost};
use crate::stats::Stats;
use crate::target::{File, Target};
use affinity::affinities;
use assign::{Colours, Scene, Wishes};
use class::RegClass;
use cluster::Clusters;
use coalesce::Coalescer;
use cranelift_entity::{EntitySet, SecondaryMap};
use drive::drive;
use guidance::Costs;
use ranges::Ranges;
use std::time::Instant;

/// Allocates `function` by fat points.
pub fn allocate(
    function: &Function,
    target: &Target,
    options: &Options,
) -> Result<Allocation, Error> {
    let mut retry = Retry::new(function, target, options)?;
    for _ in 0..=options.knobs.spill_instruction_count {
        match retry.attempt() {
            Attempt::Done(colours) => return retry.finish(&colours),
            Attempt::Spill(values) if values.is_empty() => break,
            Attempt::Spill(values) => retry.spill(&values),
        }
    }
    crate::strategy::naive::allocate(function, target, options)
}

/// How an attempt ended.
enum Attempt {
    /// Every value has a register.
    Done(Colours),
    /// These should be spilled first.
    Spill(Vec<Value>),
}

/// Attempts to allocate one function, one after the other.
struct Retry<'a> {
    program: Program<'a>,
    facts: Facts,
    target: &'a Target,
    options: &'a Options,
    spiller: Spiller<'a>,
    /// Failed attempts since spilling began.
    failures: usize,
    stats: Stats,
}

impl<'a> Retry<'a> {
    fn new(
        function: &'a Function,
        target: &'a Target,
        options: &'a Options,
    ) -> Result<Retry<'a>, Error> {
        let begun = Instant::now();
        let program = Program::new(function, target, None)?;
        let mut stats = Stats {
            values: program.values.len() as u32,
            ..Stats::default()
        };
        stats.add_time("build", begun.elapsed());
        let begun = Instant::now();
        let facts = Facts::of(&program);
        stats.add_time("analyse", begun.elapsed());
        Ok(Retry {
            program,
            facts,
            target,
            options,
            spiller: Spiller::new(target, SpillPolicy::default(), options.spill_space),
            failures: 0,
            stats,
        })
    }

    /// Tries to give every value a register.
    fn attempt(&mut self) -> Attempt {
        self.stats.iterations += 1;
        let begun = Instant::now();
        let Facts {
            order,
            liveness,
            frequencies,
            ..
        } = &self.facts;
        let ranges = Ranges::compute(&self.program, self.target, order, liveness);
        self.stats.add_time("ranges", begun.elapsed());
        let over = self.over_budget(&ranges);
        if !over.is_empty() {
            return Attempt::Spill(self.relieve(&ranges, &over));
        }
        let begun = Instant::now();
        let affinities = affinities(&self.program, &ranges, frequencies);
        let mut clusters = Clusters::new(&self.program, &ranges);
        let knobs = &self.options.knobs;
        Coalescer::new(&self.program, self.target, &ranges, knobs).run(&mut clusters, &affinities);
        self.stats.add_time("coalesce", begun.elapsed());
        let begun = Instant::now();
        let wishes = Wishes::new(self.program.values.len(), &affinities);
        let scene = Scene {
            program: &self.program,
            target: self.target,
            ranges: &ranges,
            knobs,
            wishes: &wishes,
        };
        let costs = (self.failures > 0).then(|| self.costs());
        let mut colours: Colours = SecondaryMap::with_capacity(self.program.values.len());
        let mut failed = Vec::new();
        for file in RegClass::drives(self.target) {
            let outcome = drive(scene, &mut clusters, file, costs.as_ref(), &mut colours);
            failed.extend(outcome.failed);
        }
        if failed.is_empty() {
            self.stats.add_time("assign", begun.elapsed());
            return Attempt::Done(colours);
        }
        let costs = costs.unwrap_or_else(|| self.costs());
        let mut chosen: Vec<Value> = Vec::new();
        let mut spared = EntitySet::new();
        for cluster in failed {
            let info = clusters.info(cluster);
            let more = guidance::victims(&scene, &clusters, info, &colours, &costs, &spared);
            let Some(more) = more else {
                return Attempt::Spill(Vec::new());
            };
            more.iter().for_each(|&v| {
                spared.insert(v);
            });
            chosen.extend(more);
        }
        chosen.sort_unstable();
        chosen.dedup();
        self.stats.add_time("assign", begun.elapsed());
        Attempt::Spill(chosen)
    }

    /// Files with more alive at once than they have units.
    fn over_budget(&self, ranges: &Ranges) -> Vec<File> {
        let files = self.target.files();
        let over = files.filter(|(file, info)| ranges.peak(*file) > info.units);
        over.map(|(file, _)| file).collect()
    }

    fn relieve(&self, ranges: &Ranges, over: &[File]) -> Vec<Value> {
        let costs = self.costs();
        let mut chosen = Vec::new();
        for &file in over {
            let units = self.target.file(file).units;
            let budget = units - self.failures.min(units / 4);
            let order = &self.facts.order;
            chosen.extend(guidance::relieve(
                &self.program,
                order,
                ranges,
                &costs,
                file,
                budget,
            ));
        }
        chosen
    }

    fn costs(&self) -> Costs {
        let Facts {
            liveness,
            frequencies,
            loops,
            ..
        } = &self.facts;
        let model = cost::CostModel::Traffic;
        cost::spill_costs(
            &self.program,
            self.target,
            liveness,
            frequencies,
            loops,
            model,
        )
    }

    fn spill(&mut self, values: &[Value]) {
        let begun = Instant::now();
        self.failures += 1;
        let counts = self.spiller.spill(&mut self.program, &self.facts, values);
        self.stats.spilled += counts.memory + counts.carried;
        self.stats.rematerialised += counts.recomputed;
        self.facts = Facts::of(&self.program);
        self.stats.add_time("spill", begun.elapsed());
    }

    fn finish(self, colours: &Colours) -> Result<Allocation, Error> {
        emit(
            &self.program,
            self.target,
            self.options,
            colours,
            self.stats,
        )
    }
}
