//! What happens to an allocation once every register is known.
//!
//! Colouring decides about values; afterwards some of the code it asked for turns out to
//! be needless, and only then can one see it. The passes work on an [`Allocation`] of any
//! strategy and leave one that computes the same:
//!
//! 1. `reuse` follows contents forwards. A move, store or reload whose destination already
//!    holds what it would put there goes; a reload of something that a register still holds
//!    becomes a move; whoever reads a copy reads the original instead, while it is there.
//! 2. `needed` follows needs backwards. What only fills registers or memory that nobody
//!    reads goes: moves, reloads, stores to slots never read again, and instructions
//!    without effects. A move goes only if its result is dead afterwards.
//! 3. `places` lets slots change places, so that values that travel together in
//!    neighbouring registers lie side by side, and `merge` joins their accesses.
//!
//! Prologue and epilogue, the saving of registers that belong to the caller, are written
//! by [`keep_preserved`] when the allocation is made, and the passes here treat that code
//! like any other.

mod code;
mod merge;
mod needed;
mod places;
mod preserved;
mod reuse;
#[cfg(test)]
mod tests;

pub use preserved::keep_preserved;

use crate::allocation::{Allocation, Edits};
use crate::function::Function;
use crate::stats::EditCounts;
use crate::target::Target;
use code::Code;

/// What the passes did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinishCounts {
    /// Operands that read the original in place of a copy.
    pub propagated: u32,
    /// Moves, stores and reloads that would have changed nothing.
    pub redundant: u32,
    /// Reloads that became moves.
    pub reloads_to_moves: u32,
    /// Edits, and halves of exchanges, whose results nobody reads.
    pub dead_edits: u32,
    /// Instructions whose results nobody reads.
    pub dead_insts: u32,
    /// Accesses to memory that joined a neighbour.
    pub merged: u32,
}

/// How often to go forwards and backwards.
const ROUNDS: usize = 3;

/// Removes and joins what it can from `allocation`, which must be right.
pub fn run(function: &Function, target: &Target, allocation: &mut Allocation) -> FinishCounts {
    let mut counts = FinishCounts::default();
    let mut code = Code::new(function, target, allocation);
    // Each round may show the other pass something new; later rounds find next to nothing.
    for _ in 0..ROUNDS {
        let before = counts;
        reuse::run(&mut code, &mut counts);
        needed::run(&mut code, &mut counts);
        if counts == before {
            break;
        }
    }
    places::run(&mut code, allocation.frame);
    merge::run(&mut code, allocation.frame, &mut counts);
    allocation.edits = Edits::new(function, code.edits());
    allocation.registers = code.registers;
    allocation.deleted = code.deleted;
    allocation.stats.edits = EditCounts::of(&allocation.edits);
    counts
}
