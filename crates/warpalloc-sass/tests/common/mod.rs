//! nvdisasm's view of cubins, and how the decoder's differs.
//!
//! `nvdisasm -lrm narrow` prints the code with a table beside it: a row for each instruction, a
//! column for each register, `^` where it is written, `v` where it is read, `x` where it is
//! both, `:` where it is live.

mod compare;
mod cubin;
mod listing;

pub use compare::{Report, compare};
pub use cubin::Cubin;
pub use listing::list;
