//! Giving values registers: the colourers, one folder each, and what they share.
//!
//! A strategy is a [`Colourer`]. It gets a [`Problem`] and answers with a [`Verdict`]:
//! every value has a register, these values should be spilled first, or no spill helps.
//! [`rounds`] colours and spills until the first of these, [`join_reloads`] and [`shrink`]
//! improve on a colouring that was found. The order of passes is in
//! [`pipeline`](crate::pipeline).

mod attempt;
pub(crate) mod briggs;
pub(crate) mod fatpoint;
mod join_reloads;
mod must_spill;
mod problem;
mod rounds;
pub(crate) mod scan;
mod shrink;

pub(crate) use attempt::{Attempt, MAX_INSTS_TO_COMPARE, attempts};
pub(crate) use join_reloads::join_late;
use must_spill::is_surely_over_budget;
pub(crate) use must_spill::{Positions, must_spill};
pub(crate) use problem::Problem;
pub(crate) use rounds::{Coloured, FrameUse, Held, colour_until_done, count_copies};
pub(crate) use shrink::shrink;

use crate::error::Error;
use crate::ir::Value;
use crate::options::{Options, Strategy};
use crate::spill::{SpillChoice, SpillPolicy};
use crate::stats::Stats;
use crate::target::{PReg, Target};
use cranelift_entity::SecondaryMap;

/// The register of every value that has one.
pub(crate) type Colours = SecondaryMap<Value, Option<PReg>>;

/// How an attempt to colour ended.
pub(crate) enum Verdict {
    /// Every value that occurs has a register.
    Coloured(Colours),
    /// These values have to be spilled first.
    Spill(SpillChoice),
    /// A value that cannot be spilled finds no register, and no spill makes room for it; or
    /// another attempt was far cheaper.
    Stuck,
}

/// When reloads are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// After the first spills.
    Early,
    /// Once everything is coloured.
    Late,
}

/// A strategy: it gives values registers, or says which of them to spill.
///
/// A colourer serves one attempt after the other, each round after round, and may remember
/// earlier ones of the same function.
pub(crate) trait Colourer {
    /// Begins an attempt.
    fn begin(&mut self, attempt: Attempt);

    /// Colours `problem`, or chooses what to spill so that the next round can.
    fn colour(&mut self, problem: &Problem, stats: &mut Stats) -> Result<Verdict, Error>;

    /// Colours `problem` within the budget of `target`, which may be smaller than the
    /// problem's own. A verdict to spill lists the values that found no register, and
    /// nothing else: the caller has a colouring to return to. Reloads among them are cut up
    /// again where rounds spill eagerly; a colourer that never does may be stuck instead.
    fn recolour(
        &mut self,
        problem: &Problem,
        target: &Target,
        stats: &mut Stats,
    ) -> Result<Verdict, Error>;

    /// How the values that it chooses are spilled.
    fn spill_policy(&self, options: &Options) -> SpillPolicy;

    /// When reloads that its rounds leave apart are joined, if they are.
    fn joins_reloads(&self, options: &Options) -> Option<Join>;

    /// The number of rounds after which it gives up.
    fn max_rounds(&self, options: &Options) -> u32;
}

/// The colourer that `options` name. What `scan` cannot seat, `briggs` colours.
pub(crate) fn colourer(options: &Options) -> Box<dyn Colourer> {
    match options.strategy {
        Strategy::Fatpoint => Box::new(fatpoint::Fatpoint::default()),
        Strategy::Briggs | Strategy::Scan | Strategy::Naive => Box::new(briggs::Briggs::default()),
    }
}
