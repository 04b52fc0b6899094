//! Clean-up: copy propagation and dead code, once every register is known.
//!
//! Only then does it show which inserted code is redundant. The passes work on an
//! [`Allocation`] of any strategy and leave one that computes the same:
//!
//! 1. `copy_propagation` follows contents forwards. A move, store or reload whose
//!    destination already holds the content goes; a reload of a content that a register
//!    holds becomes a move; a reader of a copy reads the original, while it is there.
//! 2. `dead_code` follows needs backwards. Steps that only fill registers or memory without
//!    readers go: moves, reloads, stores to slots never read again, and instructions without
//!    effects. A move goes only if its result is dead afterwards.
//!
//! Neither runs where `needed` finds nothing dead and whoever inserted the edits knows that
//! none is redundant; what orders slots then sees the inserted code alone, of which there is
//! far less.
//!
//! [`frame`](crate::frame) then reorders slots and merges accesses on the same code. Where the
//! machine lacks exchanges or copies, `legal_moves` puts other code in their place, and where the
//! option asks for it, `early_reloads` moves reloads ahead of their readers.

mod code;
mod copy_propagation;
mod dead_code;
pub(crate) mod early_reloads;
pub(crate) mod legal_moves;
mod needed;
#[cfg(test)]
mod tests;

use crate::allocation::Allocation;
use crate::function::Function;
pub(crate) use code::{Code, Step, memory};
pub(crate) use dead_code::{Dead, Needs};

/// What the passes did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CleanupCounts {
    /// Operands that read the original in place of a copy.
    pub propagated: u32,
    /// Moves, stores and reloads that would have changed nothing.
    pub redundant: u32,
    /// Reloads that became moves.
    pub reloads_to_moves: u32,
    /// Dead edits, and dead halves of exchanges.
    pub dead_edits: u32,
    /// Dead instructions.
    pub dead_insts: u32,
}

/// How often to go forwards and backwards at most.
pub(crate) const ROUNDS: usize = 3;

/// Propagates copies and removes dead code of `code`, which must be right, in so many rounds
/// at most.
pub(crate) fn run(code: &mut Code, rounds: usize) -> CleanupCounts {
    let mut counts = CleanupCounts::default();
    // What dead code overwrote is there to be read once it is gone; later rounds find next to
    // nothing.
    for _ in 0..rounds {
        copy_propagation::run(code, &mut counts);
        let dead = counts.dead_edits + counts.dead_insts;
        dead_code::run(code, &mut counts);
        if counts.dead_edits + counts.dead_insts == dead {
            break;
        }
    }
    counts
}

/// What is known of the edits of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// Clean-up may find some redundant.
    Unknown,
    /// Where the function has no dead code, clean-up would leave all of them as they are.
    Needed,
}

/// Whether there may be anything to clean up: inserted code, a copy that was not
/// coalesced, or dead code.
pub(crate) fn has_work(function: &Function, allocation: &Allocation, inserted: Inserted) -> bool {
    if !allocation.edits.is_empty() && inserted == Inserted::Unknown {
        return true;
    }
    needed::has_dead_code(function, &allocation.deleted)
}
