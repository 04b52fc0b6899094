//! A register allocator for GPUs.
//!
//! A [`Function`] and a [`Target`] go in, an [`Allocation`] comes out, proved by the
//! [checker](check) before it is returned. No PTX and no I/O: a compiler builds the
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
//! [`function`] and [`target`] are the inputs and [`allocation`] is the result; [`options`]
//! choose the strategy and its settings, [`stats`] count what it did, [`analysis`] has the
//! facts it works with, and [`check`] proves its results. [`text`] reads and writes
//! functions, so that a bug report is a file. With the feature `testing`, `generate` makes
//! random functions, and with `trace` the [log](https://docs.rs/log) shows every attempt, its
//! rounds and the program in between. ARCHITECTURE.md in the repository shows the order of passes.

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
mod naive;
mod passes;
mod pipeline;
mod spill;
mod validate;

pub use allocation::Allocation;
pub use error::{Error, Place};
pub use options::{Options, Strategy};

use function::Function;
use target::Target;

/// Gives every operand of `function` a register of `target`.
///
/// The function is validated first, and unless [`Options::verify`] is off the result is
/// proved before it is returned. For many functions in a row, an [`Allocator`] keeps its
/// memory between them.
pub fn allocate(
    function: &Function,
    target: &Target,
    options: &Options,
) -> Result<Allocation, Error> {
    Allocator::default().allocate(function, target, options)
}

/// Allocates one function after the other, proving them in the same memory.
///
/// It holds no state but memory: what it returns does not depend on what it did before, and
/// it may move between threads.
///
/// ```
/// # use warpalloc::generate::{self, Rng, Shape};
/// # use warpalloc::target::Target;
/// use warpalloc::{Allocator, Options};
///
/// let target = Target::hardware(90)?;
/// let mut allocator = Allocator::default();
/// for seed in 0..10 {
///     let function = generate::function(&Shape::small(), &target, &mut Rng::new(seed));
///     allocator.allocate(&function, &target, &Options::default())?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Allocator {
    checker: check::Checker,
}

impl Allocator {
    /// Does what [`allocate`] does.
    pub fn allocate(
        &mut self,
        function: &Function,
        target: &Target,
        options: &Options,
    ) -> Result<Allocation, Error> {
        let liveness = function.validated(target)?;
        let mut allocation = pipeline::allocate(function, &liveness, target, options)?;
        if options.verify {
            let mut clock = stats::Clock::start();
            self.checker.check(function, target, &allocation)?;
            clock.lap(&mut allocation.stats, "check");
        }
        Ok(allocation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Rng, Shape};

    #[test]
    fn an_allocator_and_its_results_may_move_between_threads() {
        fn is_send<T: Send>() {}
        is_send::<Allocator>();
        is_send::<Allocation>();
        is_send::<Function>();
    }

    #[test]
    fn results_are_checked_unless_that_is_turned_off() {
        let case = text::parse(
            "target hardware sm_90
             kernel f {
             block0:
                 v0:r32 = load : read
                 store v0 : write
                 exit : exit write
             }",
        )
        .unwrap();
        for strategy in Strategy::ALL {
            for verify in [true, false] {
                let options = Options {
                    verify,
                    ..Options::with_strategy(strategy)
                };
                let allocation = allocate(&case.function, &case.target, &options).unwrap();
                let mut phases = allocation.stats.phases.iter();
                let is_checked = phases.any(|(phase, _)| *phase == "check");
                assert_eq!(is_checked, verify, "{}", strategy.name());
            }
        }
    }

    /// A checker that remembered anything would accept or refuse what a fresh one does not.
    #[test]
    fn memory_left_over_from_one_function_changes_nothing_for_the_next() {
        let target = Target::hardware(90)
            .unwrap()
            .with_budget(target::File::R, 24);
        let options = Options::with_strategy(Strategy::Naive);
        let mut checker = check::Checker::default();
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let shape = Shape::random(120, &mut rng);
            let function = generate::function(&shape, &target, &mut rng);
            let mut allocation = allocate(&function, &target, &options).unwrap();
            assert_eq!(checker.check(&function, &target, &allocation), Ok(()));
            if seed % 2 == 0 {
                allocation.edits = allocation::Edits::new(&function, Vec::new());
            }
            let fresh = check::check(&function, &target, &allocation);
            assert_eq!(checker.check(&function, &target, &allocation), fresh);
        }
    }
}
