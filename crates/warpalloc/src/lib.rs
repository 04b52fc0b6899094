//! A register allocator for GPUs.
//!
//! A [`Function`](function::Function) and a [`Target`](target::Target) go in, an
//! [`Allocation`] comes out, proved by a checker before anyone sees it.

pub mod allocation;
pub mod analysis;
pub mod check;
pub mod error;
pub mod function;
pub mod generate;
pub mod options;
pub mod prepare;
pub mod program;
pub mod spill;
pub mod stats;
pub mod strategy;
pub mod target;
pub mod text;

pub use allocation::Allocation;
pub use error::{Error, Place};
pub use options::{Options, Strategy};

use function::Function;
use target::Target;

/// Gives every operand of `function` a register of `target`.
///
/// The function is validated first, and unless [`Options::verify`] is off the result is
/// proved before it is returned.
pub fn allocate(
    function: &Function,
    target: &Target,
    options: &Options,
) -> Result<Allocation, Error> {
    function.validate(target)?;
    let allocation = match options.strategy {
        Strategy::Naive => strategy::naive::allocate(function, target, options)?,
    };
    if options.verify {
        check::check(function, target, &allocation)?;
    }
    Ok(allocation)
}
