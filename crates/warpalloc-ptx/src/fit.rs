//! An allocation within a budget that never costs more than one within less.
//!
//! A strategy that spills at its budget may do without where it has more registers, and then use
//! no more than it had been allowed: its heuristics see a limit and act early. So where an
//! allocation spills though the budget is no less than the pressure, the strategy is asked without a
//! limit too, and that allocation is taken where it stays within the budget.

use warpalloc::allocation::Frame;
use warpalloc::analysis::{Liveness, register_floor};
use warpalloc::function::Function;
use warpalloc::target::{File, Target};
use warpalloc::{Allocation, Allocator, Error, Options, Strategy};

/// An allocation and the target it was made for.
pub(crate) struct Fit {
    pub target: Target,
    pub allocation: Allocation,
}

impl Fit {
    /// Allocates within the first `budget` registers of `machine`.
    fn within(
        budget: usize,
        function: &Function,
        machine: &Target,
        options: &Options,
    ) -> Result<Fit, Error> {
        let target = machine.clone().with_budget(File::R, budget);
        let allocation = Allocator::default().allocate(function, &target, options)?;
        Ok(Fit { target, allocation })
    }

    fn spills(&self) -> bool {
        self.allocation.frame != Frame::default()
    }

    /// General registers, counted up to the highest.
    fn registers(&self, function: &Function) -> usize {
        let touched = self.allocation.touched(function, &self.target);
        let highest = touched.registers(&self.target, File::R).last();
        highest.map_or(0, |register| register + 1)
    }
}

/// The fewest registers of `machine` that `function` needs in the order of its text.
pub(crate) fn floor_of(function: &Function, machine: &Target) -> usize {
    register_floor(function, machine, &Liveness::compute(function))
}

/// Allocates `function` within `budget` registers of `machine`; where there is a frame, the
/// registers of its base are taken off. `floor` says what [`floor_of`] does, which is the same
/// for every budget.
pub(crate) fn fit(
    function: &Function,
    machine: &Target,
    budget: u32,
    options: &Options,
    floor: impl FnOnce() -> usize,
) -> Result<Fit, Error> {
    let budget = budget as usize;
    let first = Fit::within(budget, function, machine, options)?;
    if !first.spills() {
        return Ok(first);
    }
    let may_fit = options.strategy != Strategy::Naive
        && budget < machine.budget(File::R)
        && floor() <= budget;
    if may_fit
        // What cannot be allocated without a limit either is no reason to fail.
        && let Ok(free) = Fit::within(machine.budget(File::R), function, machine, options)
        && !free.spills()
        && free.registers(function) <= budget
    {
        return Ok(free);
    }
    let left = budget.saturating_sub(options.frame_base as usize);
    Ok(Fit {
        target: first.target.with_budget(File::R, left),
        ..first
    })
}
