//! Video instructions: everything is 32 bits wide. A destination with a selector is written whole: the third source
//! fills the rest.

use super::row::{Row, pure};

pub(super) const ROWS: &[Row] = &[
    // Scalar.
    pure("vadd", "=32 32 32 32?"),
    pure("vsub", "=32 32 32 32?"),
    pure("vabsdiff", "=32 32 32 32?"),
    pure("vmin", "=32 32 32 32?"),
    pure("vmax", "=32 32 32 32?"),
    pure("vshl", "=32 32 32 32?"),
    pure("vshr", "=32 32 32 32?"),
    pure("vmad", "=32 32 32 32"),
    pure("vset", "=32 32 32 32?"),
    // Two halves or four bytes at a time.
    pure("vadd2", "=32 32 32 32"),
    pure("vsub2", "=32 32 32 32"),
    pure("vavrg2", "=32 32 32 32"),
    pure("vabsdiff2", "=32 32 32 32"),
    pure("vmin2", "=32 32 32 32"),
    pure("vmax2", "=32 32 32 32"),
    pure("vset2", "=32 32 32 32"),
    pure("vadd4", "=32 32 32 32"),
    pure("vsub4", "=32 32 32 32"),
    pure("vavrg4", "=32 32 32 32"),
    pure("vabsdiff4", "=32 32 32 32"),
    pure("vmin4", "=32 32 32 32"),
    pure("vmax4", "=32 32 32 32"),
    pure("vset4", "=32 32 32 32"),
];
