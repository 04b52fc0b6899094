//! What to spill so that the next round gets further.
//!
//! Where more is live at once than the budget has, no placement can succeed: guidance picks
//! values until pressure is within its aim. Where clusters found no register though
//! pressure is within the budget, room is made for each of them. Where a round leaves no
//! fewer clusters over than the one before and the budget model finds demand too high, or
//! for the second time in a row, the clusters left over are spilled at any cost, so that
//! rounds cannot stall.

use super::fill_model::{BudgetModel, Demand};
use super::guidance::{self, Costs};
use super::overlap_index::OverlapIndex;
use super::{Fatpoint, Placed, costs};
use crate::colour::{Problem, Verdict};
use crate::ir::{LiveRanges, Value};
use crate::spill::SpillChoice;
use crate::stats::Stats;
use crate::target::File;
use cranelift_entity::EntitySet;

impl Fatpoint {
    /// What to spill so that no more is live at once than the budget has.
    pub(super) fn relieve(&mut self, problem: &Problem, stats: &mut Stats) -> Verdict {
        let costs = costs(problem);
        let mut chosen = Vec::new();
        for file in problem.files_over_budget(stats) {
            let aim = (file, aim(problem, file, self.failures));
            chosen.extend(guide(problem, problem.ranges(stats), &costs, aim));
        }
        self.spent += chosen.iter().map(|&value| costs[value]).sum::<f32>();
        match chosen.is_empty() {
            true => Verdict::Stuck,
            false => Verdict::Spill(SpillChoice::exactly(chosen)),
        }
    }

    /// What to spill so that the clusters left over get registers.
    pub(super) fn make_room(
        &mut self,
        problem: &Problem,
        placed: &Placed,
        costs: &Costs,
        stats: &mut Stats,
    ) -> Verdict {
        let ranges = problem.ranges(stats);
        let forced = self.forces(problem, ranges, placed);
        let mut chosen: Vec<Value> = Vec::new();
        let mut spared = EntitySet::new();
        let mut index = OverlapIndex::new(ranges);
        for &cluster in &placed.failed {
            let info = placed.clusters.info(cluster);
            let own = info.members.iter().map(|m| m.value);
            let more = match forced && own.clone().all(|v| costs[v].is_finite()) {
                true => own.collect(),
                false => {
                    let colours = &placed.colours;
                    let victims =
                        guidance::victims(problem, &mut index, info, colours, costs, &spared);
                    match victims {
                        Some(victims) => victims,
                        None => return Verdict::Stuck,
                    }
                }
            };
            spared.extend(more.iter().copied());
            chosen.extend(more);
        }
        chosen.extend(self.extra(problem, ranges, placed, costs));
        chosen.sort_unstable();
        chosen.dedup();
        self.spent += chosen.iter().map(|&value| costs[value]).sum::<f32>();
        Verdict::Spill(SpillChoice::exactly(chosen))
    }

    /// Whether the clusters left over are spilled at any cost.
    fn forces(&self, problem: &Problem, ranges: &LiveRanges, placed: &Placed) -> bool {
        let stalls = self.progress.stalls();
        stalls > 1 || (stalls == 1 && demand_is_too_high(problem, ranges, placed))
    }

    /// What to spill besides the clusters left over when rounds keep stalling: enough that
    /// the aim falls by one register with each stall in a row, and once half of the rounds
    /// are spent, with each stall so far. Otherwise the excess moves through an unrolled
    /// loop one copy of the body at a time.
    fn extra(
        &self,
        problem: &Problem,
        ranges: &LiveRanges,
        placed: &Placed,
        costs: &Costs,
    ) -> Vec<Value> {
        let rounds = problem.options.knobs.spill_instruction_count as usize;
        let stalls = match 2 * self.failures > rounds {
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
        let files = problem.target.files().map(|(file, _)| file);
        let aims = files
            .filter(|&file| left_over(file))
            .map(|file| (file, aim(problem, file, stalls as usize - 1)));
        aims.flat_map(|aim| guide(problem, ranges, costs, aim))
            .collect()
    }
}

fn guide(problem: &Problem, ranges: &LiveRanges, costs: &Costs, aim: (File, usize)) -> Vec<Value> {
    guidance::relieve(problem, ranges, costs, aim)
}

/// Units of `file` that guidance aims at: one fewer with each failure, within limits.
fn aim(problem: &Problem, file: File, failures: usize) -> usize {
    let knobs = &problem.options.knobs;
    let info = problem.target.file(file);
    let units = info.capacity;
    let limit = match knobs.budget_limit_secondary {
        0 => BudgetModel::new(knobs, 0, 0).deepest(units, info.registers),
        limit => (limit as usize).min(units / 2),
    };
    units - failures.min(limit)
}

fn demand_is_too_high(problem: &Problem, ranges: &LiveRanges, placed: &Placed) -> bool {
    let model = BudgetModel::new(&problem.options.knobs, 0, 0);
    let over = |file: File| {
        let left_over = placed.failed.iter().map(|&c| placed.clusters.info(c));
        let mut demand = Demand {
            live: ranges.peak(file),
            ..Demand::default()
        };
        for info in left_over.filter(|info| info.file == file) {
            demand.demanded += info.width as usize;
            demand.pair_penalty += info.align as usize - 1;
        }
        let units = problem.target.file(file).capacity;
        demand.demanded > 0 && model.needs_spill(demand, units, units)
    };
    problem.target.files().any(|(file, _)| over(file))
}

#[cfg(test)]
mod tests {
    use super::super::cluster::Clusters;
    use super::super::tests::with_problem;
    use super::*;
    use crate::colour::Colours;
    use cranelift_entity::EntityRef;

    /// Of eight registers a pair that is left over asks for its two and one for its alignment,
    /// besides the pairs that are live.
    #[test]
    fn a_pair_left_over_asks_for_one_register_more_than_it_has() {
        let is_too_high = |results: &str| {
            let text = format!(
                "target hardware sm_90 R=8
                options RegTgtBudgetCoefficientA=1
                kernel f {{
                block0:
                    {results} = load : read
                    store v0, v1 : write
                    exit : exit write
                }}"
            );
            let mut is_too_high = None;
            with_problem(&text, &[], |problem| {
                let ranges = problem.ranges(&mut Stats::default());
                let files = problem.target.files().len();
                let clusters = Clusters::new(&problem.program, ranges, files);
                let placed = Placed {
                    failed: vec![clusters.of(Value::new(0)).unwrap()],
                    clusters,
                    colours: Colours::new(),
                };
                is_too_high = Some(demand_is_too_high(problem, ranges, &placed));
            });
            is_too_high.unwrap()
        };
        assert!(!is_too_high("v0:r64, v1:r64"));
        assert!(!is_too_high("v0:r64, v1:r64, v2:r32"));
        assert!(is_too_high("v0:r64, v1:r64, v2:r64"));
    }
}
