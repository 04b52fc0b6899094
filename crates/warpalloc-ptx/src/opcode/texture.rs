//! Texture and surface instructions. Coordinates stand inside the brackets; offsets, levels, gradients and depth
//! references follow as read operands.

use super::row::{Row, ordered, pure, reads};

pub(super) const ROWS: &[Row] = &[
    reads("tex", "2t: =D|1* [] ...").grouped(4),
    reads("tld4", "2t: =D|1* [] ...").grouped(4),
    reads("txq", "=32 [] any?"),
    pure("istypep", "=1 any"),
    reads("suld", "=~T* []").grouped(4),
    ordered("sust", "[] ~T*").grouped(4),
    ordered("sured", "[] ~T"),
    reads("suq", "=32 []"),
];
