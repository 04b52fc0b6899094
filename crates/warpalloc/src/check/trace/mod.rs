//! A second opinion: execute the function before and after allocation and compare.
//!
//! Nothing is known of what instructions mean, so they mean as little as possible. Every
//! result part is a hash of the opcode, its immediate, the result's position and all
//! inputs; reads and writes of state hash in the state; a write appends its inputs to the
//! trace and changes the state. Branches go where a hash of their inputs and of how
//! often they ran points. Copies copy, and undefined values are the same on both sides.
//! If two runs leave the same trace under these rules, no client could tell them apart
//! on that path.
//!
//! The run after allocation never looks at a virtual register: it has register units and
//! bytes of memory, all garbage at first, and interprets every edit. Clobbers leave new
//! garbage. At a return, preserved registers must hold what they held at the start.
//!
//! Only the model of functions and allocations is shared with the checker, so that one
//! mistake cannot hide in both. One path per seed is followed, for as many blocks as the
//! [`Limits`] allow.

mod machine;
mod original;
mod report;
#[cfg(test)]
mod tests;
mod world;

pub use report::{Difference, What};
pub use world::{Event, Trace};

use crate::allocation::Allocation;
use crate::function::Function;
use crate::target::Target;

/// How long to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks to execute at most.
    pub blocks: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { blocks: 256 }
    }
}

/// Executes `function` as it was before allocation.
pub fn run_original(function: &Function, target: &Target, limits: Limits, seed: u64) -> Trace {
    original::run(function, target, limits, seed).trace
}

/// Executes `function` as `allocation` has it.
pub fn run_allocated(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
    limits: Limits,
    seed: u64,
) -> Result<Trace, Box<Difference>> {
    let run = machine::run(function, target, allocation, limits, seed, None)?;
    Ok(run.trace)
}

/// Executes both and compares; the first difference names where it began.
pub fn compare(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
    limits: Limits,
    seed: u64,
) -> Result<(), Box<Difference>> {
    let expected = original::run(function, target, limits, seed);
    let got = machine::run(
        function,
        target,
        allocation,
        limits,
        seed,
        Some(&expected.reads),
    )?;
    if expected.trace == got.trace {
        return Ok(());
    }
    Err(got
        .first_wrong_read
        .unwrap_or_else(|| report::first_event_apart(function, &expected.trace, &got.trace, seed)))
}
