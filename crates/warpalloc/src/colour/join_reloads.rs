//! Joining the reloads of spilled values once there is a colouring to return to.
//!
//! Rounds that spill eagerly reload a value before each of its readers, which makes the
//! most room. Afterwards reloads of one value are joined into longer live ranges, which take
//! registers that all other values leave free. Joined pieces that find none are cut up again.
//! If that does not settle them, the program stays as it was.

use super::patch::patch;
use super::rounds::Held;
use super::{Coloured, Colourer, Colours, Problem};
use crate::spill::{SpillChoice, Spiller};
use crate::stats::{Clock, Stats};

/// Rounds in which joined reloads may settle before they are given up.
const MAX_ROUNDS: u32 = 8;

/// `coloured` with fewer reloads, or as it was.
pub(crate) fn join_reloads<'p, 'a>(
    mut coloured: Coloured<'p, 'a>,
    colourer: &mut dyn Colourer,
    stats: &mut Stats,
) -> Coloured<'p, 'a> {
    let options = coloured.problem.options;
    let is_eager = !colourer.spill_policy(options).lazy_reload;
    let Some(spiller) = &mut coloured.spiller else {
        return coloured;
    };
    if !is_eager || !options.briggs.lazy_reload {
        return coloured;
    }
    let mut clock = Clock::start();
    let mut joined = coloured.problem.rewritable();
    let ranges = coloured.problem.ranges(stats);
    let is_changed = joined.rewrite_if(|program, facts| spiller.join(program, facts, ranges) > 0);
    clock.lap(stats, "join reloads");
    if is_changed && let Some(colours) = settle(&mut joined, &coloured.colours, spiller, stats) {
        coloured.problem = Held::Own(Box::new(joined));
        coloured.colours = colours;
    }
    coloured
}

/// A colouring of `joined`, with pieces that find no register cut up again; `colours` are of the
/// program whose reloads were joined, and all other values keep theirs.
fn settle(
    joined: &mut Problem,
    colours: &Colours,
    spiller: &mut Spiller,
    stats: &mut Stats,
) -> Option<Colours> {
    for _ in 0..MAX_ROUNDS {
        let mut others = colours.clone();
        for value in joined.program.values.keys() {
            if spiller.home(value).is_some() {
                others[value] = None;
            }
        }
        let pieces = match patch(joined, others, stats) {
            Ok(colours) => return Some(colours),
            Err(without) => without,
        };
        if pieces.iter().any(|&value| spiller.home(value).is_none()) {
            return None;
        }
        let pieces = SpillChoice::exactly(pieces);
        joined.rewrite(|program, facts| spiller.spill(program, facts, &pieces));
    }
    None
}
