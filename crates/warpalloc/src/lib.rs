//! A register allocator for GPUs.
//!
//! A [`Function`](function::Function) and a [`Target`](target::Target) go in, an
//! [`Allocation`] comes out, proved by a checker before anyone sees it.

pub mod allocation;
pub mod analysis;
pub mod error;
pub mod function;
pub mod generate;
pub mod options;
pub mod stats;
pub mod target;

pub use allocation::Allocation;
pub use error::{Error, Place};
pub use options::{Options, Strategy};
