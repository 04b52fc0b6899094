//! Splitting long live ranges where loops begin and end, and between stretches of code.
//!
//! A colouring allocator keeps a value in one place from its first definition to its last
//! use. A value that is live through a loop over capacity without being used there then
//! either takes a register the loop needs or is reloaded at each of its uses, in other loops
//! too. Split, it becomes several values joined by copies on the edges where loops are
//! entered and left, and each piece is kept or spilled for itself: the idle piece goes to
//! memory for the price of one store and one reload outside the loop, the busy one stays.
//!
//! *How.* Every spot has one *name* for each split value, that of its region. All
//! occurrences there take the spot's name, and wherever two names of a live value meet, on
//! an edge or within a block, there is a copy. At any point exactly one name is live, so
//! this is right for any choice of regions, for values that are written many times, and on
//! critical edges, as the copies stand on the edges themselves. Coalescing undoes the splits
//! that do not matter.
//!
//! *Where.* Nothing is split unless some block is over capacity, and then only values of
//! the files that are. CICC is reported to split values that live for more than a hundred
//! instructions at loop boundaries, and everything when there are more than twenty values
//! for each register (`SplitPolicy::reported`, `docs/sources.md#splitting-long-ranges`).
//! There a value is split at the outermost loop that hardly touches it, if that loop is
//! over capacity, and at the outermost loop that uses it, if it also lives long outside
//! and code there is over capacity. That choice loses about as often as it wins, while
//! splitting every long value at every loop boundary lowers memory traffic: which piece
//! matters is better left to colouring and coalescing. So that is the default policy.
//! Irreducible loops are left alone.
//!
//! *In straight code* there are no boundaries, and a block of a thousand instructions may be
//! as far over capacity as a loop. [`SplitPolicy::finely`] cuts code into stretches, within
//! blocks too, and splits there as well, so that a value can be in memory between its
//! uses.

mod names;
mod plan;
mod stretches;

use crate::ir::{Facts, LiveRanges, Program};
use crate::target::Target;
use names::Names;
pub(crate) use plan::Crowds;
use plan::Plan;

/// When to split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitPolicy {
    /// Only values that live for more instructions than this are split.
    pub length: usize,
    /// With more values per register than this, every long value is split everywhere.
    pub aggressive: usize,
    /// Operations in a stretch of code, if values that are split everywhere are split
    /// between stretches too.
    pub stretch: Option<usize>,
}

impl SplitPolicy {
    /// What is reported of CICC.
    #[cfg(any(test, feature = "internals"))]
    pub fn reported() -> SplitPolicy {
        SplitPolicy {
            length: 100,
            aggressive: 20,
            stretch: Some(400),
        }
    }

    /// Every long value at every loop boundary and between short stretches of code.
    #[cfg(any(test, feature = "internals"))]
    pub fn finely() -> SplitPolicy {
        SplitPolicy {
            stretch: Some(60),
            ..SplitPolicy::default()
        }
    }
}

impl Default for SplitPolicy {
    /// Every long value at every loop boundary.
    fn default() -> SplitPolicy {
        SplitPolicy {
            length: 20,
            aggressive: 0,
            stretch: None,
        }
    }
}

/// What splitting did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitCounts {
    /// Values that have several names now.
    pub values: u32,
    /// New values.
    pub pieces: u32,
    /// Copies between their names.
    pub copies: u32,
}

/// Splits long values of a program that needs more registers than `target` has.
pub fn split_long_values(
    program: &mut Program,
    target: &Target,
    facts: &Facts,
    policy: SplitPolicy,
) -> SplitCounts {
    let ranges = LiveRanges::compute(program, target, facts);
    let crowds = Crowds::measure(program, target, facts, &ranges);
    if !crowds.any() {
        return SplitCounts::default();
    }
    let plan = Plan::make(program, target, facts, &ranges, policy, &crowds);
    Names::new(plan, facts).apply(program)
}

#[cfg(test)]
mod tests;
