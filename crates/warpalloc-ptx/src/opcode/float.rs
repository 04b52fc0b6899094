//! Floating-point arithmetic in every precision, comparison and selection.
//!
//! `add`, `sub`, `mul`, `mad`, `div`, `abs`, `neg`, `min` and `max` have their rows among the integers.

use super::row::{Row, cheap, pure, remat_from};
use super::{Description, InstrShape, UnknownReason};

pub(super) const ROWS: &[Row] = &[
    // Floating point, half, bf16 and mixed precision.
    pure("testp", "=1 T"),
    pure("copysign", "=T T T"),
    pure("fma", "2t: =D T T D; =T T T T"),
    pure("rcp", "=T T"),
    pure("sqrt", "=T T"),
    pure("rsqrt", "=T T"),
    pure("sin", "=T T"),
    pure("cos", "=T T"),
    pure("lg2", "=T T"),
    pure("ex2", "=T T"),
    pure("tanh", "=T T"),
    // Comparison and selection.
    cheap("set", 1, "2t: =D T T 1?"),
    cheap("setp", 1, "=1|1 T T 1?").refined(comparison),
    cheap("selp", 1, "=T T T 1"),
    cheap("slct", 1, "2t: =D D D T"),
];

/// Predicates are few, and what they compare usually lives as long: two registers may be kept alive for one.
fn comparison(shape: &InstrShape, description: &mut Description) -> Result<(), UnknownReason> {
    description.remat = remat_from(shape, 1, 2);
    Ok(())
}
