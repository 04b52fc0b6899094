//! Optimistic graph colouring with conservative coalescing.
//!
//! The allocator NVIDIA's `cicc` is reported to have, after G. Chaitin (1982), P. Briggs
//! (1994), L. George and A. Appel (1996), over register files with aliasing:
//!
//! ```text
//! build ─→ simplify ⇄ coalesce ⇄ freeze ⇄ spill candidates ─→ select
//!   ▲                                                            │
//!   └──────────────── spill code ←── values without a colour ────┘
//! ```
//!
//! `docs/briggs.md` has the algorithm and its decisions.

mod conservative;
mod graph;
mod look_ahead;
mod prefer;
mod select;
mod simplify;
mod traffic;
mod worklists;

use super::{Attempt, Colourer, Join, Problem, Verdict, is_surely_over_budget};
use crate::coalesce::Bodies;
use crate::error::Error;
use crate::ir::{Facts, Value};
use crate::options::Options;
use crate::spill::cost::spill_costs;
use crate::spill::{SpillChoice, SpillPolicy};
use crate::stats::{Clock, Stats};
use crate::target::Target;
use cranelift_entity::SecondaryMap;
use graph::{Graph, Limits};
use look_ahead::LookAhead;
use prefer::Preferences;
use select::{Selected, select};
use simplify::simplify;

/// Rounds after which colouring gives up; four are enough for nearly every function.
const MAX_ROUNDS: u32 = 24;

/// Graph colouring.
#[derive(Default)]
pub(crate) struct Briggs {
    attempt: Attempt,
    rounds: u32,
}

impl Briggs {
    fn costs(problem: &Problem) -> SecondaryMap<Value, f32> {
        let Facts {
            liveness,
            frequencies,
            loops,
            ..
        } = &problem.facts;
        spill_costs(
            &problem.program,
            problem.target,
            liveness,
            frequencies,
            loops,
        )
    }
}

impl Colourer for Briggs {
    fn begin(&mut self, attempt: Attempt) {
        self.attempt = attempt;
        self.rounds = 0;
    }

    fn colour(&mut self, problem: &Problem, stats: &mut Stats) -> Result<Verdict, Error> {
        let is_first = self.rounds == 0;
        self.rounds += 1;
        let mut clock = Clock::start();
        let costs = Briggs::costs(problem);
        clock.lap(stats, "costs");
        let look_ahead = LookAhead::new(problem, &costs, stats);
        clock.lap(stats, "look ahead");
        // What no colouring fits is not coloured before some of it is spilled.
        let is_chosen_by_pressure = look_ahead.is_some()
            && self.attempt.join == Join::Early
            && is_surely_over_budget(problem, stats);
        let spilled = match is_chosen_by_pressure {
            true => Vec::new(),
            false => {
                let costs = look_ahead.as_ref().map_or(&costs, LookAhead::costs);
                let selected = colour_once(problem, problem.target, costs, stats)?;
                if selected.spilled.is_empty() {
                    return Ok(verdict(selected));
                }
                selected.spilled
            }
        };
        let options = problem.options;
        let aim = options.briggs.pressure_limit_on(problem.target);
        let aim = self.attempt.aggressive.then_some(aim);
        let mut clock = Clock::start();
        let choice = match look_ahead {
            Some(look_ahead) => look_ahead.settle(&spilled, is_first, aim),
            None => SpillChoice::exactly(spilled),
        };
        clock.lap(stats, "look ahead");
        Ok(Verdict::Spill(choice))
    }

    fn recolour(
        &mut self,
        problem: &Problem,
        target: &Target,
        stats: &mut Stats,
    ) -> Result<Verdict, Error> {
        let costs = Briggs::costs(problem);
        let selected = colour_once(problem, target, &costs, stats)?;
        Ok(verdict(selected))
    }

    /// Reloads stand before each reader while rounds go on, so that a round makes as much
    /// room as it can.
    fn spill_policy(&self, options: &Options) -> SpillPolicy {
        SpillPolicy {
            lazy_reload: false,
            rematerialise: options.briggs.rematerialise,
            ..SpillPolicy::default()
        }
    }

    fn joins_reloads(&self, options: &Options) -> Option<Join> {
        options.briggs.lazy_reload.then_some(self.attempt.join)
    }

    fn max_rounds(&self, _: &Options) -> u32 {
        MAX_ROUNDS
    }
}

fn verdict(selected: Selected) -> Verdict {
    match (selected.spilled.is_empty(), selected.stuck) {
        (false, _) => Verdict::Spill(SpillChoice::exactly(selected.spilled)),
        (true, Some(_)) => Verdict::Stuck,
        (true, None) => Verdict::Coloured(selected.colours),
    }
}

/// One colouring: simplify the graph, then select colours.
fn colour_once(
    problem: &Problem,
    target: &Target,
    costs: &SecondaryMap<Value, f32>,
    stats: &mut Stats,
) -> Result<Selected, Error> {
    let Problem {
        program, options, ..
    } = problem;
    let (interference, moves) = (problem.interference(stats), problem.moves(stats));
    if stats.colourings == 0 {
        stats.graph = interference.stats();
    }
    let mut clock = Clock::start();
    let limits = Limits {
        factor: options.briggs.coalescing_factor.get(),
        pressure: options.briggs.pressure_limit_on(target),
    };
    let scratch = problem.scratch;
    let parts = || Bodies::new(program, target, interference, scratch);
    let graph = Graph::new(
        program,
        target,
        interference,
        parts(),
        costs,
        limits,
        scratch,
    );
    clock.lap(stats, "graph");
    let simplified = simplify(graph, moves, &options.briggs);
    if let Some(body) = simplified.unsound {
        let message = format!("coalescing made {body} of values that interfere");
        return Err(Error::Unproved(message));
    }
    stats.merges += simplified.merges;
    stats.colourings += 1;
    stats.edge_visits += simplified.graph.visits;
    clock.lap(stats, "simplify");
    let mut preferences = Preferences::new(program, target, interference, moves);
    let selected = select(
        program,
        target,
        &simplified.graph,
        &parts,
        &simplified.stack,
        costs,
        &mut preferences,
    );
    simplified.graph.recycle();
    stats.undone += selected.undone;
    clock.lap(stats, "select");
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Program;
    use crate::scratch::Scratch;
    use crate::text;

    /// Calls `check` with the graph of the instructions of `body` and the bodies it was made
    /// of, once these were changed. Nothing counts as roomy, and every degree counts in full.
    pub(super) fn with_graph(
        registers: usize,
        body: &str,
        change: impl FnOnce(&mut Bodies),
        check: impl FnOnce(Graph, &Bodies, &Problem),
    ) {
        let text = format!(
            "target hardware sm_90 R={registers}\nkernel f {{\nblock0:\n{body}\nexit : exit write\n}}\n"
        );
        let case = text::parse(&text).unwrap();
        case.function.validate(&case.target).unwrap();
        let (target, scratch) = (&case.target, Scratch::default());
        let program = Program::new(&case.function, target, None).unwrap();
        let facts = Facts::of(&program);
        let problem = Problem::new(program, facts, target, &case.options, &scratch);
        let stats = &mut Stats::default();
        let interference = problem.interference(stats);
        let mut bodies = Bodies::new(&problem.program, target, interference, &scratch);
        change(&mut bodies);
        let limits = Limits {
            factor: 1.0,
            pressure: 0.0,
        };
        let graph = Graph::new(
            &problem.program,
            target,
            interference,
            bodies.clone(),
            &SecondaryMap::with_default(1.0),
            limits,
            &scratch,
        );
        check(graph, &bodies, &problem);
    }
}
