//! Joining the reloads of spilled values into longer live ranges.
//!
//! Rounds that spill eagerly reload a value before each of its readers, which makes the
//! most room. Where pressure is a good guide, the first of them spills nearly all that is ever
//! spilled, and its reloads are joined [at once](join_early), before anything is coloured.
//! Joined pieces that find no register are cut up again by the rounds that follow, whose own
//! reloads stay apart: joined, they would take the room that these rounds make.
//!
//! Else reloads are joined [at the end](join_late), once there is a colouring to return to.
//! Joined pieces that find no register are cut up again, and if any other value finds none,
//! the program stays as it was.

use super::rounds::Held;
use super::{Coloured, Colourer, Colours, Problem, Verdict};
use crate::ir::{LiveRanges, Value};
use crate::spill::Spiller;
use crate::stats::{Clock, Stats};

/// Rounds in which joined reloads may settle before they are given up.
const MAX_ROUNDS: u32 = 4;

/// Joins reloads of `problem`, where there is room for longer live ranges.
pub(super) fn join_early(problem: &mut Problem, spiller: &mut Spiller, stats: &mut Stats) {
    let mut clock = Clock::start();
    let (target, scratch) = (problem.target, problem.scratch);
    problem.rewrite(|program, facts| {
        let ranges = LiveRanges::compute_in(program, target, facts, scratch);
        spiller.join(program, facts, &ranges);
        ranges.recycle(scratch);
    });
    clock.lap(stats, "join reloads");
}

/// `coloured` with fewer reloads, or as it was.
pub(crate) fn join_late<'p, 'a>(
    mut coloured: Coloured<'p, 'a>,
    colourer: &mut dyn Colourer,
    stats: &mut Stats,
) -> Coloured<'p, 'a> {
    let Some(spiller) = &mut coloured.spiller else {
        return coloured;
    };
    let mut clock = Clock::start();
    let mut joined = coloured.problem.rewritable();
    let ranges = coloured.problem.ranges(stats);
    let is_changed = joined.rewrite_if(|program, facts| spiller.join(program, facts, ranges) > 0);
    clock.lap(stats, "join reloads");
    if is_changed && let Some(colours) = settle(&mut joined, spiller, colourer, stats) {
        coloured.problem = Held::Own(Box::new(joined));
        coloured.colours = colours;
    }
    coloured
}

/// A colouring of `joined`, with pieces that find no register cut up again.
fn settle(
    joined: &mut Problem,
    spiller: &mut Spiller,
    colourer: &mut dyn Colourer,
    stats: &mut Stats,
) -> Option<Colours> {
    for _ in 0..MAX_ROUNDS {
        let choice = match colourer.recolour(joined, joined.target, stats).ok()? {
            Verdict::Coloured(colours) => return Some(colours),
            Verdict::Stuck => return None,
            Verdict::Spill(choice) => choice,
        };
        let is_piece = |v: &Value| spiller.home(*v).is_some();
        if !choice.values.iter().all(is_piece) {
            return None;
        }
        joined.spill(spiller, &choice);
    }
    None
}
