//! Where values are, for debuggers.

use super::{Checker, Violation};
use super::{flow, order, rules, valid};
use crate::allocation::{Allocation, Point, ValuePlace};
use crate::function::{Function, Inst, VReg};
use crate::target::Target;

/// A name that a client has for what a virtual register holds in a part of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueLabel {
    /// The virtual register.
    pub vreg: VReg,
    /// The first instruction of the part.
    pub from: Inst,
    /// The instruction behind its last.
    pub to: Inst,
    /// The client's number for it.
    pub label: u32,
}

/// Where a labelled value is from one point of a block to another, both included.
///
/// [`Point::Before`] is where the instruction is about to be executed, edits before it done,
/// and [`Point::After`] where it was, edits after it still to come. Points are in the final
/// order of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DebugLocation {
    /// The client's number for the value.
    pub label: u32,
    /// The first point.
    pub from: Point,
    /// The last one.
    pub to: Point,
    /// Where the value is.
    pub place: ValuePlace,
}

impl Checker {
    /// Proves `allocation` and tells, for each of `labels`, where its value is: in ascending
    /// order of labels, and for each of them block after block.
    ///
    /// Each place is one that the proof knows to hold the value. A value has none where it is
    /// dead and overwritten, or where its parts are scattered. It is reported before and after
    /// the instructions of its label that are executed, deleted ones included, wherever
    /// scheduling has put them.
    pub fn locate(
        &mut self,
        function: &Function,
        target: &Target,
        allocation: &Allocation,
        labels: &[ValueLabel],
    ) -> Result<Vec<DebugLocation>, Box<Violation>> {
        valid(function, target)?;
        let split = self.split(function, None)?;
        let split = split.as_ref();
        let function = split.map_or(function, |split| &split.function);
        rules::check(function, target, allocation)?;
        order::check(function, allocation)?;
        let (memory, scratch) = (&mut self.flow, &self.scratch);
        flow::locate(
            function,
            target,
            allocation,
            memory,
            scratch,
            (split, labels),
        )
    }
}
