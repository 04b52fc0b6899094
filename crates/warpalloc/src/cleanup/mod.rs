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
//! [`frame`](crate::frame) then reorders slots and merges accesses on the same code, and where
//! the machine lacks exchanges or copies, `legal_moves` puts other code in their place.

mod code;
mod copy_propagation;
mod dead_code;
pub(crate) mod legal_moves;
#[cfg(test)]
mod tests;

use crate::allocation::Allocation;
use crate::function::{Effect, Function, Kind};
pub(crate) use code::{Code, Step, memory};
use cranelift_entity::EntityRef;
pub(crate) use dead_code::{Dead, Needs};
use fixedbitset::FixedBitSet;

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

/// How often to go forwards and backwards.
const ROUNDS: usize = 3;

/// Propagates copies and removes dead code of `code`, which must be right.
pub(crate) fn run(code: &mut Code) -> CleanupCounts {
    let mut counts = CleanupCounts::default();
    // Each round may show the other pass something new; later rounds find next to nothing.
    for _ in 0..ROUNDS {
        let before = counts;
        copy_propagation::run(code, &mut counts);
        dead_code::run(code, &mut counts);
        if counts == before {
            break;
        }
    }
    counts
}

/// Whether there may be anything to clean up: inserted code, a copy that was not
/// coalesced, or a result without a reader.
pub(crate) fn has_work(function: &Function, allocation: &Allocation) -> bool {
    if !allocation.edits.is_empty() {
        return true;
    }
    let mut read = FixedBitSet::with_capacity(function.vreg_count());
    for operand in function.insts().flat_map(|inst| function.operands(inst)) {
        if operand.role.reads() {
            read.insert(operand.vreg.index());
        }
    }
    for edge in function.blocks().flat_map(|block| function.succs(block)) {
        read.extend(edge.args.iter().map(|vreg| vreg.index()));
    }
    let mut insts = function
        .insts()
        .filter(|&i| !allocation.deleted.contains(i));
    insts.any(|inst| {
        let info = function.inst(inst);
        let mut results = function.operands(inst).iter().filter(|o| o.role.writes());
        let mut is_dead = || info.effect == Effect::Pure && results.all(|o| !read[o.vreg.index()]);
        info.kind == Kind::Copy || (!info.kind.is_terminator() && is_dead())
    })
}
