//! The proof that an allocation computes what the function says.
//!
//! [`check`] takes a valid function, a target and any allocation, and either proves the
//! allocation or names the first thing that is wrong: where, with which value, and why.
//! [`trace`] is a second opinion that shares nothing with it: it executes both sides.
//!
//! # What is proved
//!
//! The code that runs is the blocks in their order, each block's instructions in
//! [`Allocation::block_insts`] order less the deleted ones, with edits before and after
//! each. An edge runs the terminator, then the edge's edits, and then gives each parameter
//! the value of its argument; that last step moves nothing.
//!
//! An instruction reads all its inputs, then loses its clobbers, then writes its results.
//! Each unit of an input must hold the matching part of the virtual register's current
//! value. What depends on registers alone (classes, budgets, fixed registers, ties,
//! exclusions, groups, overlaps, frame bounds) is settled once per instruction by the
//! `rules` module, also in blocks that no path reaches; new orders are settled by `order`.
//! The rest is a dataflow problem over the reachable blocks.
//!
//! A virtual register that is written several times may be several values. Then its webs are
//! taken apart and the function with webs for names is proved, once it is proved that this
//! renaming changes nothing (the `webs` module). Reports name webs: those beyond the
//! function's own numbers are the second and further ones of their registers.
//!
//! # The lattice
//!
//! *Terms* are the parts of virtual registers (one per unit of the class), the units of the
//! target, the words of the frame, and for functions that are called the values that
//! preserved registers had on entry. A state is a **partition** of terms into classes of
//! equal value, together with the set of rematerialisable instructions whose *equation*
//! `results = inst(inputs)` holds for the current values, or whose record does. One state
//! is below another when it equates less. The top equates everything and stands for "no
//! path seen yet".
//!
//! A location whose class holds no part of a live virtual register and no entry value
//! *holds nothing known*. At block boundaries only parts of live virtual registers are
//! kept, so a register that carries two different dead values from two sides of a join
//! holds nothing known, and so does one that was never written. Reading such a location
//! is an error even for a move, whose result may have no reader: a move from a
//! never-written register shows that the allocator lost track of something.
//!
//! # Meet
//!
//! The meet is the common refinement: two terms are equal after a join if they are equal
//! on every edge into it, so virtual registers that share a register after coalescing stay
//! provably equal. Equations meet by intersection. Each class of a block's entry state has
//! a part as its representative, so refining by an edge costs one pass over the live
//! parts and the locations that hold them.
//!
//! # Transfer
//!
//! Within a block, classes are value numbers. A definition gives every part of the virtual
//! register a fresh number; the old number stays where it was, as a dead value. A copy
//! gives its results the numbers of its inputs, part by part, so packing and unpacking are
//! copies like any other; deleted copies do that and move nothing. Moves, stores and
//! reloads carry numbers. An equation is established by its instruction, deleted or not,
//! and ends when a virtual register it mentions is redefined; while it holds, running the
//! instruction again on the current inputs yields the current results.
//!
//! # Code ahead of its instruction
//!
//! Hoisting computes an instruction before it, where no equation holds and its result has
//! another value or none. An instruction `I` that some edit executes where `I` need not
//! have run has a **record** in place of an equation: a ghost variable for each operand,
//! say `h` for the inputs and `g` for the results, which are terms like any other, and the
//! invariant
//!
//! ```text
//! I's record holds   ⟹   g = I(h)
//! ```
//!
//! `I` is a pure function of its inputs, so both ways to write a record keep that:
//!
//! - an edit that executes `I` on registers with contents `a`: where the record holds and
//!   `h = a`, the result registers get `g`; else `h := a`, `g :=` fresh, and they get `g`;
//! - `I` itself, deleted or not, on the current inputs `a`: where the record holds and
//!   `h = a`, the results become `g`; else they are fresh, and `h := a`, `g :=` results.
//!
//! Nothing else writes ghosts, and they are never read by the program, so nothing has to
//! be undone when a virtual register changes: its new value is another number than the one
//! in `h`. At joins the partition meets ghosts as it does the rest, and a record holds if
//! it holds on every edge. A register that got `I`'s value early thus becomes a place of
//! `I`'s result at `I`, if and only if the inputs are the same values there. In a loop the
//! equality `h = a` survives the back edge when nothing in it changes the inputs. Inputs of
//! early code need not be current values of anything: an invariant that reads another is
//! computed from the other's ghost.
//!
//! A file that spills through another has registers of its own size. A value that crosses
//! into units of half its size leaves a numbered piece in each, and comes back only from
//! all pieces in place. It comes back only into a file that can represent it: one where
//! a virtual register with that value lives.
//!
//! # Fixpoint
//!
//! Iteration is optimistic, in reverse post-order. Every rule but one only ever fails more
//! often as states go down, so an error found on the way is an error of the fixpoint.
//! The exception is that pinned values stay put, which needs equalities to fail; it is
//! examined in one more pass over the final states.

mod equations;
mod flow;
mod live;
mod locate;
mod order;
mod rules;
mod state;
#[cfg(test)]
mod tests;
pub mod trace;
mod violation;
mod webs;

pub use crate::allocation::ValuePlace;
pub use locate::{DebugLocation, ValueLabel};
pub use violation::{Fault, Location, NamedReg, Site, Violation};

pub(crate) use webs::Split;

use crate::allocation::Allocation;
use crate::analysis::Liveness;
use crate::function::{Function, VReg};
use crate::scratch::Scratch;
use crate::target::Target;
use cranelift_entity::EntitySet;
use webs::is_single;

/// Proves that `allocation` computes what `function` says on `target`.
///
/// A function that is not valid has no allocation to prove; about the allocation nothing is
/// assumed.
pub fn check(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
) -> Result<(), Box<Violation>> {
    Checker::default().check(function, target, allocation)
}

/// Refuses a function that breaks a rule of the model.
fn valid(function: &Function, target: &Target) -> Result<(), Box<Violation>> {
    function.validate(target).map_err(|error| {
        let fault = Fault::Invalid(Box::new(error));
        Box::new(Violation::of_function(fault))
    })
}

/// Checks one allocation after the other in the same memory.
#[derive(Default)]
pub struct Checker {
    scratch: Scratch,
    flow: flow::Memory,
    written: EntitySet<VReg>,
}

impl Checker {
    /// Does what [`check`] does.
    pub fn check(
        &mut self,
        function: &Function,
        target: &Target,
        allocation: &Allocation,
    ) -> Result<(), Box<Violation>> {
        valid(function, target)?;
        let split = self.split(function, None)?;
        self.check_split(function, split.as_ref(), target, allocation)
    }

    /// Takes the webs of `function` apart, if a virtual register has several.
    pub(crate) fn split(
        &mut self,
        function: &Function,
        liveness: Option<&Liveness>,
    ) -> Result<Option<Split>, Box<Violation>> {
        if is_single(function, &mut self.written) {
            return Ok(None);
        }
        let split = match liveness {
            Some(liveness) => Split::of(function, liveness),
            None => Split::of(function, &Liveness::compute(function)),
        };
        split.map_err(|why| Box::new(Violation::of_function(Fault::Malformed(why))))
    }

    /// Proves an allocation of `function`, which was taken apart as `split` has it.
    pub(crate) fn check_split(
        &mut self,
        function: &Function,
        split: Option<&Split>,
        target: &Target,
        allocation: &Allocation,
    ) -> Result<(), Box<Violation>> {
        let function = split.map_or(function, |split| &split.function);
        rules::check(function, target, allocation)?;
        order::check(function, allocation)?;
        flow::check(function, target, allocation, &mut self.flow, &self.scratch)
    }

    /// The memory that is shared with what makes the allocations.
    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}
