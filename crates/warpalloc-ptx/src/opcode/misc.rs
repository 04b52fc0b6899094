//! Miscellaneous instructions.

use super::Control;
use super::row::{Row, jumps, ordered};

pub(super) const ROWS: &[Row] = &[
    jumps("brkpt", Control::Trap, ""),
    jumps("trap", Control::Trap, ""),
    ordered("nanosleep", "32"),
    ordered("pmevent", "#"),
];
