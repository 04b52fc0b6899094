//! A register allocator for GPUs.
//!
//! A [`Function`] and a [`Target`] go in, an [`Allocation`] comes out, proved by the
//! [checker](check) before anyone sees it. No PTX and no I/O: a compiler builds the
//! function with the [`Builder`](function::Builder) from its own instructions and applies
//! the allocation to them.
//!
//! ```
//! use warpalloc::function::{Builder, Effect};
//! use warpalloc::target::{Class, Target};
//! use warpalloc::{Options, allocate};
//!
//! // x = load; pair = widen x; store pair
//! let mut b = Builder::new("widen");
//! let entry = b.block();
//! let (x, pair) = (b.vreg(Class::R32), b.vreg(Class::R64));
//! b.inst(entry, "load").def(x).effect(Effect::Read);
//! b.inst(entry, "widen").def(pair).use_(x);
//! b.inst(entry, "store").use_(pair).effect(Effect::Write);
//! b.exit(entry, "exit");
//! let function = b.finish();
//!
//! let target = Target::hardware(90)?;
//! let allocation = allocate(&function, &target, &Options::default())?;
//! let widen = function.insts().nth(1).unwrap();
//! let register = allocation.operands(&function, widen)[0];
//! assert_eq!(register.unit % 2, 0, "pairs start at even registers");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The way through the house: [`function`] and [`target`] are the inputs, [`analysis`]
//! finds facts, [`prepare`] rewrites before allocation, [`program`] is the form that
//! colouring works on, [`spill`] puts values into memory, [`strategy`] holds the
//! allocators, [`check`] proves what they return. [`text`] reads and writes all of it, so
//! that a bug report is a file; [`generate`] makes random functions.

pub mod allocation;
pub mod analysis;
pub mod check;
pub mod coalesce;
pub mod error;
pub mod finish;
pub mod function;
pub mod generate;
pub mod interference;
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
        Strategy::Briggs => strategy::briggs::allocate(function, target, options)?,
        Strategy::Fatpoint => strategy::fatpoint::allocate(function, target, options)?,
    };
    if options.verify {
        check::check(function, target, &allocation)?;
    }
    Ok(allocation)
}
