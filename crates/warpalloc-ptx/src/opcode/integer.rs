//! Integer and extended-precision arithmetic, logic and shift.
//!
//! Some names also serve floating-point types; their rows stand here, once, because only the type differs.

use super::modifier::{is_integer_type, types};
use super::row::{Row, cheap, pure};
use super::{Description, InstrShape, UnknownReason};

pub(super) const ROWS: &[Row] = &[
    // Integer arithmetic (add, sub, mul, mad, div, abs, neg, min, max also float, half and mixed precision).
    cheap("add", 1, "2t: =D T D; =T T T").refined(integers_recompute),
    cheap("sub", 1, "2t: =D T D; =T T T").refined(integers_recompute),
    cheap("mul", 3, ".wide: =W T T; =T T T").refined(integers_recompute),
    cheap("mad", 3, ".wide: =W T T W; =T T T T").refined(integers_recompute),
    cheap("mul24", 3, "=T T T"),
    cheap("mad24", 3, "=T T T T"),
    pure("clmad", "=T T T T"),
    cheap("sad", 2, "=T T T T"),
    pure("div", "=T T T"),
    pure("rem", "=T T T"),
    cheap("abs", 1, "=T T").refined(integers_recompute),
    cheap("neg", 1, "=T T").refined(integers_recompute),
    cheap("min", 1, "=T T T T?").refined(integers_recompute),
    cheap("max", 1, "=T T T T?").refined(integers_recompute),
    cheap("popc", 2, "=32 T"),
    cheap("clz", 2, "=32 T"),
    cheap("bfind", 2, "=32 T"),
    pure("fns", "=32 32 32 32"),
    cheap("brev", 2, "=T T"),
    cheap("bfe", 2, "=T T 32 32"),
    cheap("bfi", 2, "=T T T 32 32"),
    cheap("szext", 1, "=T T 32"),
    cheap("bmsk", 1, "=T 32 32"),
    pure("dp4a", "=32 32 32 32"),
    pure("dp2a", "=32 32 32 32"),
    // Extended precision: the carry flag is a hidden operand.
    pure("add.cc", "=T T T").with_carry(false, true),
    pure("addc", "=T T T").with_carry(true, false),
    pure("addc.cc", "=T T T").with_carry(true, true),
    pure("sub.cc", "=T T T").with_carry(false, true),
    pure("subc", "=T T T").with_carry(true, false),
    pure("subc.cc", "=T T T").with_carry(true, true),
    pure("mad.lo.cc", "=T T T T").with_carry(false, true),
    pure("mad.hi.cc", "=T T T T").with_carry(false, true),
    pure("madc", "=T T T T").with_carry(true, false),
    pure("madc.lo.cc", "=T T T T").with_carry(true, true),
    pure("madc.hi.cc", "=T T T T").with_carry(true, true),
    // Logic and shift. Shift counts are 32 bits wide whatever the type.
    cheap("and", 1, "=T T T"),
    cheap("or", 1, "=T T T"),
    cheap("xor", 1, "=T T T"),
    cheap("not", 1, "=T T"),
    cheap("cnot", 2, "=T T"),
    cheap("lop3", 1, "=T|1 T T T # 1?"),
    cheap("shf", 1, "=T T T 32"),
    cheap("shl", 1, "=T T 32"),
    cheap("shr", 1, "=T T 32"),
];

/// Floating-point forms are left alone: their values are what kernels keep registers for, and recomputing them would
/// keep their inputs alive instead. A vector of small integers counts as an integer.
fn integers_recompute(
    shape: &InstrShape,
    description: &mut Description,
) -> Result<(), UnknownReason> {
    if !types(shape).all(is_integer_type) {
        description.remat = None;
    }
    Ok(())
}
