//! The calling convention: who passes what where, and who keeps what.

use super::{File, PReg};

/// Registers of the calling convention, as whole registers.
///
/// The lists name registers of the architecture; some may lie beyond the budget of a
/// particular target, where they simply cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abi {
    /// Argument registers, in order.
    pub arguments: Vec<PReg>,
    /// Result registers, in order; a 64-bit result takes the first two.
    pub results: Vec<PReg>,
    /// Registers a call may overwrite.
    pub clobbered: Vec<PReg>,
    /// Registers a function gives back to its caller as it found them.
    pub preserved: Vec<PReg>,
}

impl Abi {
    /// The CUDA convention: R0–R7 carry arguments, R0 and R1 results, R0–R23 and the
    /// predicates belong to the callee, R24–R31 to the caller.
    pub fn cuda(units_per_reg: usize, predicates: usize) -> Abi {
        let r = |n: usize| PReg::new(File::R, n * units_per_reg);
        let p = |n: usize| PReg::new(File::P, n);
        Abi {
            arguments: (0..8).map(r).collect(),
            results: (0..2).map(r).collect(),
            clobbered: (0..24).map(r).chain((0..predicates).map(p)).collect(),
            preserved: (24..32).map(r).collect(),
        }
    }
}
