//! Allocating one function, one after the other, or many at once.

use crate::allocation::Allocation;
use crate::analysis::{Liveness, Webs};
use crate::check::{self, DebugLocation, ValueLabel};
use crate::error::Error;
use crate::function::Function;
use crate::options::Options;
use crate::pipeline;
use crate::stats::Clock;
use crate::target::Target;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Gives every operand of `function` a register of `target`.
///
/// The function is validated first, and unless [`Options::verify`] is off the result is
/// proved before it is returned. For many functions in a row, an [`Allocator`] keeps its
/// memory between them, and [`allocate_all`] has several of them at work.
///
/// Virtual registers that are written several times are split into [webs](crate::analysis::Webs)
/// first, so that names may be reused freely: a function in SSA form, with parameters of
/// blocks, and one without are equal citizens.
pub fn allocate(
    function: &Function,
    target: &Target,
    options: &Options,
) -> Result<Allocation, Error> {
    Allocator::default().allocate(function, target, options)
}

/// Allocates each of `functions`, `threads` of them at a time; results are in the order of
/// the functions and do not depend on the number of threads.
///
/// ```
/// # use warpalloc::generate::{self, Rng, Shape};
/// use std::num::NonZeroUsize;
/// use warpalloc::target::Target;
/// use warpalloc::{Options, allocate_all};
///
/// let target = Target::hardware(90)?;
/// # let new = |seed| generate::function(&Shape::small(), &target, &mut Rng::new(seed));
/// # let functions: Vec<_> = (0..10).map(new).collect();
/// let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
/// let results = allocate_all(&functions, &target, &Options::default(), threads);
/// assert_eq!(results.len(), functions.len());
/// # assert!(results.iter().all(Result::is_ok));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn allocate_all(
    functions: &[Function],
    target: &Target,
    options: &Options,
    threads: NonZeroUsize,
) -> Vec<Result<Allocation, Error>> {
    let threads = threads.get().min(functions.len());
    if threads <= 1 {
        let mut allocator = Allocator::default();
        let one = |function| allocator.allocate(function, target, options);
        return functions.iter().map(one).collect();
    }
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<_>>> = functions.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut allocator = Allocator::default();
                // A thread that is done takes the next function: their sizes differ widely.
                while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed))
                    && let (Some(function), Some(slot)) = (functions.get(number), slots.get(number))
                {
                    let result = allocator.allocate(function, target, options);
                    if let Ok(mut slot) = slot.lock() {
                        *slot = Some(result);
                    }
                }
            });
        }
    });
    let lost = || Err(Error::Unproved("its thread ended early".to_owned()));
    let results = slots.into_iter().map(|slot| slot.into_inner().ok()?);
    results.map(|result| result.unwrap_or_else(lost)).collect()
}

/// Allocates one function after the other in the same memory.
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
        let valid = function.validated(target, self.checker.scratch())?;
        let mut liveness = valid.liveness;
        let split = match valid.is_single {
            true => None,
            false => self.checker.split(function, Some(&liveness))?,
        };
        let scratch = self.checker.scratch();
        let mut allocation = match &split {
            None => pipeline::allocate(function, &liveness, target, options, scratch)?,
            Some(split) => {
                let function = &split.function;
                let mut liveness = Liveness::compute_in(function, scratch);
                let allocation = pipeline::allocate(function, &liveness, target, options, scratch);
                liveness.recycle(scratch);
                allocation.map_err(|error| named(error, &split.webs))?
            }
        };
        liveness.recycle(scratch);
        if options.verify {
            let mut clock = Clock::start();
            let checker = &mut self.checker;
            checker.check_split(function, split.as_ref(), target, &allocation)?;
            clock.lap(&mut allocation.stats, "check");
        }
        Ok(allocation)
    }

    /// Where the values of `labels` are in the allocated function; see
    /// [`Checker::locate`](check::Checker::locate).
    pub fn debug_locations(
        &mut self,
        function: &Function,
        target: &Target,
        allocation: &Allocation,
        labels: &[ValueLabel],
    ) -> Result<Vec<DebugLocation>, Error> {
        let located = self.checker.locate(function, target, allocation, labels);
        Ok(located?)
    }
}

/// The same error about the client's virtual registers.
fn named(mut error: Error, webs: &Webs) -> Error {
    if let Error::Impossible { value, .. } | Error::FrameTooLarge { value, .. } = &mut error {
        *value = value.map(|web| webs.original[web]);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::Edits;
    use crate::generate::{self, Rng, Shape};
    use crate::options::Strategy;
    use crate::target::File;
    use crate::text;

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
        let target = Target::hardware(90).unwrap().with_budget(File::R, 24);
        let options = Options::with_strategy(Strategy::Naive);
        let mut checker = check::Checker::default();
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let shape = Shape::random(120, &mut rng);
            let function = generate::function(&shape, &target, &mut rng);
            let mut allocation = allocate(&function, &target, &options).unwrap();
            assert_eq!(checker.check(&function, &target, &allocation), Ok(()));
            if seed % 2 == 0 {
                allocation.edits = Edits::new(&function, Vec::new());
            }
            let fresh = check::check(&function, &target, &allocation);
            assert_eq!(checker.check(&function, &target, &allocation), fresh);
        }
    }

    #[test]
    fn threads_change_neither_results_nor_their_order() {
        let target = Target::hardware(90).unwrap().with_budget(File::R, 12);
        let functions: Vec<Function> = (0..40)
            .map(|seed| {
                let mut rng = Rng::new(seed);
                let shape = Shape::random(60, &mut rng);
                generate::function(&shape, &target, &mut rng)
            })
            .collect();
        for strategy in Strategy::ALL {
            let options = Options::with_strategy(strategy);
            let run = |threads| {
                let threads = NonZeroUsize::new(threads).unwrap();
                let results = allocate_all(&functions, &target, &options, threads);
                let comparable = results.into_iter().map(|result| {
                    let allocation = result.unwrap();
                    (allocation.registers, allocation.edits, allocation.order)
                });
                comparable.collect::<Vec<_>>()
            };
            assert!(run(1) == run(3), "{strategy}");
        }
    }

    /// `v0` is two values. If it were one, the pair that is live between them would have no
    /// register beside it.
    const REUSED: &str = "
target hardware sm_90
kernel reused {
block0:
    v0:r32 = load #0 : read
    store v0 : write
    v1:r64 = load #1 : read
    v2:r32 = load #2 : read
    store v1, v2 : write
    v0:r32 = load #3 : read
    store v0 : write
    exit : exit write
}
";

    #[test]
    fn a_name_that_is_reused_is_several_values() {
        let function = text::parse(REUSED).unwrap().function;
        let target = Target::hardware(90).unwrap().with_budget(File::R, 3);
        let mut allocator = Allocator::default();
        let liveness = Liveness::compute(&function);
        let split = allocator.checker.split(&function, Some(&liveness));
        let webs = split.unwrap().unwrap().webs;
        assert_eq!(webs.original.len(), function.vreg_count() + 1);
        for strategy in Strategy::ALL {
            let options = Options::with_strategy(strategy);
            allocator.allocate(&function, &target, &options).unwrap();
        }
    }

    /// A sum over a list, once with parameters of blocks and once with names that are
    /// assigned again.
    const SSA: &str = "
target hardware sm_90
kernel sum {
block0:
    v0:r64 = load #0 : read
    v1:r32 = zero #0
    bra : branch -> block1(v0, v1)
block1(v2:r64, v3:r32):
    v4:r32 = load v2, #1 : read
    v5:r32 = add v3, v4
    v6:r64 = next v2
    if v4 : branch -> block1(v6, v5), block2(v5)
block2(v7:r32):
    store v7 : write
    exit : exit write
}
";
    const NAMES: &str = "
target hardware sm_90
kernel sum {
block0:
    v0:r64 = load #0 : read
    v1:r32 = zero #0
    bra : branch -> block1
block1:
    v2:r32 = load v0, #1 : read
    v1 = add v1, v2
    v0 = next v0
    if v2 : branch -> block1, block2
block2:
    store v1 : write
    exit : exit write
}
";

    #[test]
    fn ssa_and_names_get_equally_good_code() {
        let target = Target::hardware(90).unwrap();
        let [ssa, names] = [SSA, NAMES].map(|text| text::parse(text).unwrap().function);
        for strategy in [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan] {
            let options = Options::with_strategy(strategy);
            for registers in [4, 5, 8] {
                let target = target.clone().with_budget(File::R, registers);
                let [ssa, names] = [&ssa, &names].map(|function| {
                    let allocation = allocate(function, &target, &options).unwrap();
                    let frame = allocation.frame.local;
                    (
                        allocation.edits.counts(),
                        frame,
                        allocation.deleted.iter().count(),
                    )
                });
                assert_eq!(ssa, names, "{strategy} in {registers} registers");
            }
        }
    }
}
