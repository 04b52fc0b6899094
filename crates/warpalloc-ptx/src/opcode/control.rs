//! Control flow and the stack.

use super::Control;
use super::row::{Row, jumps, ordered};

pub(super) const ROWS: &[Row] = &[
    jumps("bra", Control::Branch, "@"),
    jumps("brx.idx", Control::IndirectBranch, "32 @"),
    // Direct, and indirect with a list of targets or a prototype.
    jumps(
        "call",
        Control::Call,
        "fn; fn () @?; fn @; (=) fn; (=) fn () @?",
    ),
    jumps("ret", Control::Return, ""),
    jumps("exit", Control::Exit, ""),
    // Stack manipulation.
    ordered("stacksave", "=T"),
    ordered("stackrestore", "T"),
    ordered("alloca", "=T T #?"),
];
