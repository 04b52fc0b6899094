//! The fat-point allocator: conflicts by program point, no interference graph.
//!
//! After the allocator that ptxas 13.0.88 is reported to have (`docs/sources.md#fatpoint`).
//! The phases:
//!
//! | phase | file |
//! |---|---|
//! | stretches of every value, pressure | [`Ranges`](crate::program::Ranges) |
//! | copies as wishes, with filter bits | [`affinity`] |
//! | links and values as clusters, joined along wishes; those left | [`cluster`], [`coalesce`], [`wishes`] |
//! | classes in order, one drive per file | [`class`], [`drive`] |
//! | what restricts a cluster | [`constraint`] |
//! | six lists, assignment stack | [`order`] |
//! | which units are held when | [`occupancy`], [`Mask`](crate::target::Mask) |
//! | choice among the free | [`histogram`] |
//! | assignment | [`assign`] |
//! | what to pre-allocate, what to compute again | [`mac`], [`remat`] |
//! | attempts: without spilling, then with, and whether they get anywhere | `retry`, `progress` |
//! | what to spill, where to, at what cost | [`guidance`], [`nearby`], [`setup`] |
//! | gaps in the frame | [`compact`] |
//! | how much of the file to fill | [`budget`] |
//! | settings | [`knobs`] |
//!
//! The first attempt spills nothing. When it fails, guidance picks values, the shared
//! spiller rewrites the program without them, and the next attempt starts over; attempts
//! are bounded, and the naive allocator stands behind the last.

pub mod affinity;
pub mod assign;
pub mod budget;
pub mod class;
pub mod cluster;
pub mod coalesce;
pub mod compact;
pub mod constraint;
pub mod drive;
pub mod guidance;
pub mod histogram;
pub mod knobs;
pub mod mac;
pub mod nearby;
pub mod occupancy;
pub mod order;
mod progress;
pub mod remat;
mod retry;
pub mod setup;
#[cfg(test)]
mod tests;
pub mod wishes;

use crate::allocation::Allocation;
use crate::analysis::Liveness;
use crate::error::Error;
use crate::function::Function;
use crate::options::Options;
use crate::prepare::hoist::{HoistPolicy, net_cycles};
use crate::stats::Stats;
use crate::target::Target;
use retry::{Attempt, Retry};

/// Functions of more instructions are allocated once, whatever it costs them.
const MAX_INSTS_TO_COMPARE: usize = 20_000;

/// What to try besides the usual.
#[derive(Clone, Copy)]
struct Means {
    /// Compute loop invariants before their loops, by the policy.
    hoist: bool,
    /// Split long values before anything is spilled.
    split: bool,
}

/// Allocates `function`, whose liveness is known, by fat points.
///
/// Where values went to memory it is allocated once more without hoisting, if anything was
/// hoisted, and the cheaper is taken; then once more with long values split at loops, and
/// that is kept if it saves enough.
pub fn allocate(
    function: &Function,
    liveness: &Liveness,
    target: &Target,
    options: &Options,
) -> Result<Allocation, Error> {
    let knobs = &options.knobs;
    let run = |means| attempts(function, liveness, target, options, means);
    let cycles = |a: &Allocation| (a.stats.fell_back, net_cycles(function, a));
    let mut means = Means {
        hoist: knobs.hoist_policy != HoistPolicy::Never,
        split: false,
    };
    let (mut best, hoisted) = run(means)?;
    if keeps_out_of_memory(&best.stats) || function.inst_count() > MAX_INSTS_TO_COMPARE {
        return Ok(best);
    }
    if hoisted {
        let (plain, _) = run(Means {
            hoist: false,
            ..means
        })?;
        if cycles(&plain) < cycles(&best) {
            best = plain;
            means.hoist = false;
        }
    }
    if keeps_out_of_memory(&best.stats) || !options.split || knobs.split_rounds == 0 {
        return Ok(best);
    }
    let Ok((split, _)) = run(Means {
        split: true,
        ..means
    }) else {
        return Ok(best);
    };
    let (fell_back, least) = cycles(&best);
    let enough = (fell_back, least - f64::from(knobs.split_threshold));
    match cycles(&split) < enough {
        true => Ok(split),
        false => Ok(best),
    }
}

/// Whether nothing went to memory. Predicates that were carried in general registers or
/// computed again count as kept: neither hoisting nor splitting has to do with them.
fn keeps_out_of_memory(stats: &Stats) -> bool {
    stats.edits.stores + stats.edits.reloads == 0 && !stats.fell_back
}

/// Attempts until one succeeds, and the naive allocator where none does. Also says whether
/// anything was hoisted on the way.
fn attempts(
    function: &Function,
    liveness: &Liveness,
    target: &Target,
    options: &Options,
    means: Means,
) -> Result<(Allocation, bool), Error> {
    let mut retry = Retry::new(function, liveness, target, options, means.split)?;
    let hoisted = means.hoist && retry.hoist();
    for _ in 0..=options.knobs.spill_instruction_count {
        match retry.attempt() {
            Attempt::Done(colours) => return Ok((retry.finish(&colours)?, hoisted)),
            Attempt::Spill(values) => retry.spill(&values)?,
            Attempt::Stuck => break,
        }
    }
    let iterations = retry.iterations();
    let mut allocation = crate::strategy::naive::allocate(function, target, options)?;
    allocation.stats = Stats {
        fell_back: true,
        iterations,
        ..allocation.stats
    };
    Ok((allocation, hoisted))
}
