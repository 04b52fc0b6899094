//! The fat-point allocator: conflicts by program point, no interference graph.
//!
//! After the allocator of ptxas as it is reported (`docs/sources.md`). The phases:
//!
//! | phase | file |
//! |---|---|
//! | live ranges and pressure | [`LiveRanges`](crate::ir::LiveRanges) |
//! | copies as affinities, with filter bits | [`affinity`] |
//! | links and values as clusters, joined along affinities | [`cluster`], [`coalesce`] |
//! | the affinities left | [`hints`] |
//! | classes in order, one placement per file | [`class`], [`place_file`] |
//! | constraints of a cluster | [`constraint`] |
//! | six lists, assignment stack | [`order`] |
//! | which units are held when | [`reg_matrix`], [`UnitSet`](crate::target::UnitSet) |
//! | choice among the free | [`histogram`] |
//! | assignment | [`assign`], [`evict`] |
//! | what to pre-allocate, what to rematerialise | [`mac`], [`remat`] |
//! | what to spill, at what cost | [`make_room`], [`guidance`], [`overlap_index`], [`cost`] |
//! | how much of the file to fill | [`fill_model`] |
//!
//! Where pressure is within the budget and a cluster finds no register all the same, others are
//! evicted and placed again. Where pressure exceeds a file, or that fails, guidance picks values,
//! the shared spiller rewrites the program without them, and the next round starts over with the
//! budget that guidance aims at lowered by one.

mod affinity;
mod assign;
mod class;
mod cluster;
mod coalesce;
mod constraint;
mod cost;
mod evict;
mod fill_model;
mod guidance;
mod hints;
pub(crate) mod histogram;
mod mac;
mod make_room;
mod order;
mod overlap_index;
mod place_file;
mod progress;
mod reg_matrix;
mod remat;
#[cfg(test)]
mod tests;

use super::attempt::Split;
use super::{Attempt, Colourer, Colours, Join, Problem, Verdict};
use crate::error::Error;
use crate::frame::spill_space;
use crate::ir::read_together;
use crate::options::Options;
use crate::spill::SpillPolicy;
use crate::stats::{Clock, Stats};
use crate::target::Target;
use affinity::{Affinity, affinities};
use assign::Scene;
use class::RegClass;
use cluster::{Cluster, Clusters};
use coalesce::Coalescer;
use cranelift_entity::SecondaryMap;
use guidance::Costs;
use place_file::{Trial, place_file};
use progress::Progress;
use remat::RematLists;

/// Split live ranges may cost this much more to spill and still be cheaper in the end.
const WORTH_GOING_ON: f32 = 2.0;

/// Placement by program points.
#[derive(Default)]
pub(crate) struct Fatpoint {
    /// Rounds that ended in spilling.
    failures: usize,
    /// Clusters that rounds left without a register.
    progress: Progress,
    /// Live ranges are split in this attempt.
    is_split: bool,
    /// What the spills of this attempt cost so far.
    spent: f32,
    /// What all spills cost in an attempt without splitting that succeeded.
    spent_unsplit: Option<f32>,
}

/// The result of one trial.
struct Placed {
    clusters: Clusters,
    colours: Colours,
    failed: Vec<Cluster>,
}

impl Colourer for Fatpoint {
    fn begin(&mut self, attempt: Attempt) {
        *self = Fatpoint {
            is_split: attempt.split != Split::Never,
            spent_unsplit: self.spent_unsplit,
            ..Fatpoint::default()
        };
    }

    fn colour(&mut self, problem: &Problem, stats: &mut Stats) -> Result<Verdict, Error> {
        let verdict = match problem.is_over_budget(stats) {
            true => self.relieve(problem, stats),
            false => self.place(problem, problem.target, stats),
        };
        match verdict {
            Verdict::Spill(_) if self.cannot_win() => return Ok(Verdict::Stuck),
            Verdict::Spill(_) => self.failures += 1,
            Verdict::Coloured(_) if !self.is_split => {
                let least = self.spent_unsplit.unwrap_or(f32::INFINITY);
                self.spent_unsplit = Some(least.min(self.spent));
            }
            Verdict::Coloured(_) | Verdict::Stuck => {}
        }
        Ok(verdict)
    }

    fn recolour(
        &mut self,
        problem: &Problem,
        target: &Target,
        stats: &mut Stats,
    ) -> Result<Verdict, Error> {
        let placed = best_trial(problem, target, None, stats);
        // Rounds join reloads as they spill, so nobody would spill what found no register.
        Ok(match placed.failed.is_empty() {
            true => Verdict::Coloured(placed.colours),
            false => Verdict::Stuck,
        })
    }

    fn spill_policy(&self, options: &Options) -> SpillPolicy {
        SpillPolicy {
            remat_ratio: options.knobs.remat_threshold,
            ..SpillPolicy::default()
        }
    }

    /// They are joined in each round.
    fn joins_reloads(&self, _: &Options) -> Option<Join> {
        None
    }

    fn max_rounds(&self, options: &Options) -> u32 {
        options.knobs.spill_instruction_count + 1
    }
}

impl Fatpoint {
    /// Whether live ranges were split in vain: spills cost far more than they did without.
    fn cannot_win(&self) -> bool {
        let unsplit = self.spent_unsplit.filter(|_| self.is_split);
        unsplit.is_some_and(|unsplit| self.spent > unsplit * WORTH_GOING_ON)
    }

    /// Gives every cluster a register, or makes room for those that find none.
    fn place(&mut self, problem: &Problem, target: &Target, stats: &mut Stats) -> Verdict {
        let is_first = self.failures == 0;
        let costs = (!is_first).then(|| costs(problem));
        let placed = best_trial(problem, target, costs.as_ref(), stats);
        if placed.failed.is_empty() {
            return Verdict::Coloured(placed.colours);
        }
        let costs = costs.unwrap_or_else(|| self::costs(problem));
        self.progress.note(placed.failed.len());
        self.make_room(problem, &placed, &costs, stats)
    }
}

/// What spilling each value costs, rematerialisation considered.
fn costs(problem: &Problem) -> Costs {
    let Problem {
        program,
        facts,
        target,
        options,
        ..
    } = problem;
    let space = spill_space(program.function, problem.target, options).unwrap_or_default();
    let mut costs = cost::costs(program, facts, &options.knobs, space);
    RematLists::find(program, target, &options.knobs).apply(&mut costs);
    costs
}

/// Runs trials until one succeeds, and keeps the one that leaves the fewest clusters.
fn best_trial(
    problem: &Problem,
    target: &Target,
    costs: Option<&Costs>,
    stats: &mut Stats,
) -> Placed {
    let Problem {
        program,
        facts,
        options,
        ..
    } = problem;
    let knobs = &options.knobs;
    let ranges = problem.ranges(stats);
    let mut clock = Clock::start();
    let affinities = affinities(program, target, ranges, &facts.frequencies);
    let priorities = mac::priorities(program, knobs);
    let read_with = knobs.bank_aware.then(|| read_together(program, target));
    clock.lap(stats, "affinities");
    let scene = Scene {
        program,
        target,
        ranges,
        knobs,
        priorities: &priorities,
        read_with: read_with.as_ref(),
        scratch: problem.scratch,
    };
    let mut run = |trial| run_trial(scene, &affinities, costs, trial, stats);
    let mut best = run(Trial::ALL[0]);
    let trials = knobs.non_spill_trials.max(1) as usize;
    for &trial in Trial::ALL.iter().take(trials).skip(1) {
        if best.failed.is_empty() {
            break;
        }
        let placed = run(trial);
        if placed.failed.len() < best.failed.len() {
            best = placed;
        }
    }
    stats.undone += best.clusters.undone();
    best
}

fn run_trial(
    scene: Scene,
    affinities: &[Affinity],
    costs: Option<&Costs>,
    trial: Trial,
    stats: &mut Stats,
) -> Placed {
    let Scene {
        program,
        target,
        ranges,
        knobs,
        ..
    } = scene;
    let mut clock = Clock::start();
    let mut clusters = Clusters::new(program, ranges, target.files().len());
    let coalescer = Coalescer::new(program, target, ranges, knobs);
    coalescer.run(&mut clusters, affinities);
    clock.lap(stats, "coalesce");
    let mut colours: Colours = SecondaryMap::new();
    colours.resize(program.values.len());
    let mut failed = Vec::new();
    for file in RegClass::drives(target) {
        failed.extend(place_file(
            scene,
            &mut clusters,
            file,
            costs,
            trial,
            &mut colours,
        ));
    }
    clock.lap(stats, "assign");
    Placed {
        clusters,
        colours,
        failed,
    }
}
