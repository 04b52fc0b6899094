//! What an allocation costs: the one figure by which allocations of a function are compared.

use crate::allocation::{Allocation, Edit, Point, Space};
use crate::analysis::{Frequencies, Loops, Order};
use crate::function::Function;
use crate::target::Target;

/// Cycles of a store to the spill frame, or a reload from it, that hits the first cache of
/// NVIDIA's machines.
pub const MEMORY_CYCLES: f64 = 4.0;

/// Cycles that an allocation adds to one run of its function, by how often blocks run.
///
/// Frequencies are those of the function, so one of these serves all its allocations.
#[derive(Clone, Debug)]
pub struct AddedCycles<'a> {
    function: &'a Function,
    frequencies: Frequencies,
    /// Cycles of an access to each space.
    memory: [f64; 2],
}

impl<'a> AddedCycles<'a> {
    /// Prices allocations of `function` for `target`.
    pub fn of(function: &'a Function, target: &Target) -> AddedCycles<'a> {
        let order = Order::compute(function);
        let loops = Loops::compute(function, &order);
        AddedCycles {
            function,
            frequencies: Frequencies::compute(function, &order, &loops),
            memory: [Space::Local, Space::Shared].map(|space| {
                let memory = target.memory(space);
                memory.map_or(MEMORY_CYCLES, |memory| memory.cycles)
            }),
        }
    }

    /// Cycles of the code that `allocation` inserts.
    pub fn inserted(&self, allocation: &Allocation) -> f64 {
        let edits = allocation.edits.iter().map(|(point, edit)| {
            let frequency = match point {
                Point::Before(inst) | Point::After(inst) => {
                    self.frequencies.block(self.function.block_of(inst))
                }
                Point::Edge(block, succ) => self.frequencies.edge(block, succ as usize),
            };
            frequency * self.cycles(edit)
        });
        edits.sum()
    }

    /// Cycles of the code that `allocation` inserts, less those of computations that it
    /// leaves out because they are rematerialised or hoisted.
    pub fn net(&self, allocation: &Allocation) -> f64 {
        let insts = self.function.insts();
        let deleted = insts.filter(|&inst| allocation.deleted.contains(inst));
        let left_out = deleted.filter_map(|inst| {
            let cycles = f64::from(self.function.inst(inst).remat?);
            Some(cycles * self.frequencies.block(self.function.block_of(inst)))
        });
        self.inserted(allocation) - left_out.sum::<f64>()
    }

    fn cycles(&self, edit: &Edit) -> f64 {
        match edit {
            Edit::Move { .. } | Edit::Transfer { .. } => 1.0,
            Edit::Swap { .. } => 3.0,
            Edit::Store { to: slot, .. } | Edit::Reload { from: slot, .. } => {
                self.memory[usize::from(slot.space == Space::Shared)]
            }
            Edit::Recompute { inst, .. } => f64::from(self.function.inst(*inst).remat.unwrap_or(1)),
        }
    }
}
