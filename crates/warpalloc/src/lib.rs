//! A register allocator for GPUs.
//!
//! A [`Function`](function::Function) and a [`Target`](target::Target) go in, an [`Allocation`] comes out, proved by the
//! [checker](check) before it is returned. No PTX and no I/O: a compiler builds the
//! function with the [`Builder`](function::Builder) from its own instructions and applies
//! the allocation to them.
//!
//! [`function`] and [`target`] are the inputs, [`allocation`] is the result, which a [`Walk`](allocation::Walk) steps through as code to write; [`options`]
//! choose the strategy and its settings, [`stats`] count what it did, [`analysis`] has the
//! facts it works with, and [`check`] proves its results. [`text`] reads and writes
//! functions, so that a bug report is a file. With the feature `testing`, `generate` makes
//! random functions, and with `trace` the [log](https://docs.rs/log) shows every attempt, its
//! rounds and the program in between. ARCHITECTURE.md in the repository shows the order of passes.
//!
#![doc = include_str!("guide.md")]

/// A line of the log, where the feature `trace` is on.
macro_rules! trace {
    ($($part:tt)*) => {{
        #[cfg(feature = "trace")]
        log::trace!($($part)*);
        #[cfg(not(feature = "trace"))]
        let _ = format_args!($($part)*);
    }};
}

pub mod allocation;
mod allocator;
pub mod analysis;
pub mod check;
pub mod cycles;
pub mod error;
pub mod function;
#[cfg(any(test, feature = "testing"))]
pub mod generate;
pub mod options;
pub mod stats;
pub mod target;
pub mod text;

mod cleanup;
mod coalesce;
mod colour;
mod emit;
mod frame;
mod interference;
#[cfg(any(test, feature = "internals"))]
#[doc(hidden)]
pub mod internals;
mod ir;
mod memory_operands;
mod naive;
mod passes;
mod pipeline;
mod scratch;
mod spill;
mod validate;

pub use allocation::Allocation;
pub use allocator::{Allocator, allocate, allocate_all};
// Their types stand in signatures.
pub use cranelift_entity;
pub use error::{Error, Place};
pub use options::{Options, Strategy};
pub use smallvec;
