//! The result of allocation: a place for every operand, and the code to insert.
//!
//! An allocated function is the original instructions in [`Allocation::order`], less those
//! in [`Allocation::deleted`], each operand in its register, with the edits of each
//! [`Point`] executed in order at that point.

mod walk;

pub use walk::{EdgePlace, Label, Step, Walk};

use crate::function::{Block, Function, Inst};
use crate::stats::{EditCounts, Stats};
pub use crate::target::Space;
use crate::target::{PReg, RegSet, Target};
use cranelift_entity::{EntityRef, EntitySet};
use smallvec::SmallVec;

/// A place in the spill frame of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotAddr {
    /// Which memory.
    pub space: Space,
    /// Byte offset from the frame's base; within `-size..0`, as the frame grows downwards.
    pub offset: i32,
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValuePlace {
    /// In this register and those that follow, as many as its class takes.
    Reg(PReg),
    /// In memory from here on: in the spill frame, or where the caller left an argument
    /// ([`Space::Argument`]).
    Slot(SlotAddr),
}

/// Where the operands of one instruction are, in the client's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandPlaces<'a> {
    registers: &'a [PReg],
    /// Those in memory, by their position in the row of all operands.
    memory: &'a [(u32, SlotAddr)],
    /// The position of the first in that row.
    first: u32,
}

impl<'a> OperandPlaces<'a> {
    /// How many operands there are.
    pub fn len(&self) -> usize {
        self.registers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.registers.is_empty()
    }

    /// The place of the operand at `position`, if there is one.
    pub fn get(&self, position: usize) -> Option<ValuePlace> {
        let reg = *self.registers.get(position)?;
        let index = self.first + position as u32;
        let slot = self.memory.iter().find(|(at, _)| *at == index);
        Some(slot.map_or(ValuePlace::Reg(reg), |&(_, slot)| ValuePlace::Slot(slot)))
    }

    /// The place of each operand.
    pub fn iter(self) -> impl Iterator<Item = ValuePlace> + 'a {
        (0..self.len()).filter_map(move |position| self.get(position))
    }

    /// The register of each operand, if none is in memory. None is, unless its
    /// [constraint](crate::function::Constraint::allows_memory) allows it.
    pub fn registers(self) -> Option<&'a [PReg]> {
        self.memory.is_empty().then_some(self.registers)
    }
}

/// How much spill memory one thread needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Frame {
    /// Bytes of local memory.
    pub local: u32,
    /// Bytes of shared memory.
    pub shared: u32,
}

impl Frame {
    /// The size of one space, in bytes.
    pub fn size(&self, space: Space) -> u32 {
        match space {
            Space::Local => self.local,
            Space::Shared => self.shared,
            Space::Argument => 0,
        }
    }
}

/// Code to insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Copies `width` units within one file.
    Move {
        /// Destination.
        to: PReg,
        /// Source.
        from: PReg,
        /// How many units.
        width: u8,
    },
    /// Exchanges `width` units of one file.
    Swap {
        /// One side.
        a: PReg,
        /// The other.
        b: PReg,
        /// How many units.
        width: u8,
    },
    /// Copies `regs` whole registers from one file to another: a predicate to or from 0/1
    /// in a general register, a uniform register to or from an ordinary one.
    Transfer {
        /// Destination.
        to: PReg,
        /// Source.
        from: PReg,
        /// How many whole registers.
        regs: u8,
    },
    /// Writes `width` units to memory.
    Store {
        /// Destination.
        to: SlotAddr,
        /// Source.
        from: PReg,
        /// How many units.
        width: u8,
    },
    /// Reads `width` units from memory.
    Reload {
        /// Destination.
        to: PReg,
        /// Source.
        from: SlotAddr,
        /// How many units.
        width: u8,
    },
    /// Executes a rematerialisable instruction again, with its operands in these registers
    /// in the instruction's own operand order.
    Recompute {
        /// The instruction.
        inst: Inst,
        /// One register per operand.
        regs: SmallVec<[PReg; 4]>,
    },
}

/// A place between instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// Right before an instruction.
    Before(Inst),
    /// Right after an instruction that is no terminator.
    After(Inst),
    /// On the way along the edge of `0` at position `1` among its successors, after the
    /// terminator and before the successor's first instruction.
    Edge(Block, u32),
}

/// Edits by the point where they stand, in the order they execute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    list: Vec<(Point, Edit)>,
    /// `starts[2 * inst]` is the first edit before `inst`, `starts[2 * inst + 1]` after it.
    starts: Vec<u32>,
    /// Where the edge edits begin; they are sorted by edge.
    edges: usize,
}

impl Edits {
    /// How many there are of each kind.
    pub fn counts(&self) -> EditCounts {
        let mut counts = EditCounts::default();
        for (_, edit) in self.iter() {
            match edit {
                Edit::Move { .. } | Edit::Swap { .. } | Edit::Transfer { .. } => counts.moves += 1,
                Edit::Store { .. } => counts.stores += 1,
                Edit::Reload { .. } => counts.reloads += 1,
                Edit::Recompute { .. } => counts.recomputes += 1,
            }
        }
        counts
    }

    /// Sorts `list` by point, keeping the order of edits that stand at the same one.
    pub fn new(function: &Function, mut list: Vec<(Point, Edit)>) -> Edits {
        let key = |point: &Point| match *point {
            Point::Before(inst) => (2 * inst.index(), 0),
            Point::After(inst) => (2 * inst.index() + 1, 0),
            Point::Edge(block, succ) => (usize::MAX, (block.index() << 32) | succ as usize),
        };
        if !list.is_sorted_by_key(|(point, _)| key(point)) {
            list.sort_by_key(|(point, _)| key(point));
        }
        let edges = list.partition_point(|(point, _)| !matches!(point, Point::Edge(..)));
        let slots = 2 * function.inst_count() + 1;
        let mut starts = vec![0; slots];
        for (point, _) in &list[..edges] {
            // Points that the function does not have come after all that it has.
            if let Some(after) = starts.get_mut(key(point).0 + 1) {
                *after += 1;
            }
        }
        let mut before = 0;
        for start in &mut starts {
            before += *start;
            *start = before;
        }
        Edits {
            list,
            starts,
            edges,
        }
    }

    /// Every edit with its point.
    pub fn iter(&self) -> impl Iterator<Item = (Point, &Edit)> {
        self.list.iter().map(|(point, edit)| (*point, edit))
    }

    /// How many edits there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether every edit stands at a point that `function` has.
    pub fn fit(&self, function: &Function) -> bool {
        let exists = |point: &Point| match *point {
            Point::Before(inst) => inst.index() < function.inst_count(),
            Point::After(inst) => {
                inst.index() < function.inst_count() && !function.inst(inst).kind.is_terminator()
            }
            Point::Edge(block, succ) => {
                block.index() < function.block_count()
                    && (succ as usize) < function.succs(block).len()
            }
        };
        self.starts.len() == 2 * function.inst_count() + 1
            && self.list.iter().all(|(point, _)| exists(point))
    }

    /// The edits right before `inst`.
    pub fn before(&self, inst: Inst) -> impl Iterator<Item = &Edit> {
        self.slot(2 * inst.index())
    }

    /// The edits right after `inst`.
    pub fn after(&self, inst: Inst) -> impl Iterator<Item = &Edit> {
        self.slot(2 * inst.index() + 1)
    }

    /// Whether any stands right before or after `inst`.
    #[inline]
    pub(crate) fn has_any(&self, inst: Inst) -> bool {
        let around = self.starts.get(2 * inst.index()..2 * inst.index() + 3);
        around.is_some_and(|around| around[0] != around[2])
    }

    /// Whether any stores or reloads.
    pub(crate) fn touch_memory(&self) -> bool {
        let mut edits = self.iter().map(|(_, edit)| edit);
        edits.any(|edit| matches!(edit, Edit::Store { .. } | Edit::Reload { .. }))
    }

    /// Whether any stands right before or after one of the instructions from the first to the
    /// last of `insts`.
    pub(crate) fn has_any_within(&self, insts: impl DoubleEndedIterator<Item = Inst>) -> bool {
        let mut insts = insts;
        let Some(first) = insts.next() else {
            return false;
        };
        let last = insts.next_back().unwrap_or(first);
        let at = |slot: usize| self.starts.get(slot).copied().unwrap_or(0);
        at(2 * first.index()) != at(2 * last.index() + 2)
    }

    /// The edits on the edge of `block` at position `succ`.
    pub fn on_edge(&self, block: Block, succ: u32) -> impl Iterator<Item = &Edit> {
        let edges = &self.list[self.edges..];
        let here = Point::Edge(block, succ);
        let start = edges.partition_point(|(point, _)| *point < here);
        let end = edges.partition_point(|(point, _)| *point <= here);
        edges[start..end].iter().map(|(_, edit)| edit)
    }

    /// The edits on all edges, edge by edge, each with its point.
    pub(crate) fn on_edges(&self) -> impl Iterator<Item = (Point, &Edit)> {
        let edges = self.list[self.edges..].iter();
        edges.map(|(point, edit)| (*point, edit))
    }

    #[inline]
    fn slot(&self, slot: usize) -> impl Iterator<Item = &Edit> {
        let edits = match self.starts.get(slot..=slot + 1) {
            Some(&[start, end]) => &self.list[start as usize..end as usize],
            _ => &[],
        };
        edits.iter().map(|(_, edit)| edit)
    }
}

/// An allocated function.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The register of every operand, in the row of all operands
    /// ([`Function::operand_range`]).
    pub registers: Vec<PReg>,
    /// Operands that are in memory, by their place in the row of all operands, ascending.
    /// What `registers` has for them means nothing.
    pub memory: Vec<(u32, SlotAddr)>,
    /// The code to insert.
    pub edits: Edits,
    /// Instructions that need no code: coalesced copies, dead or rematerialised definitions.
    pub deleted: EntitySet<Inst>,
    /// All instructions in their new order, where scheduling changed it. Each block keeps
    /// its instructions and its terminator stays last.
    pub order: Option<Vec<Inst>>,
    /// Spill memory.
    pub frame: Frame,
    /// What happened.
    pub stats: Stats,
}

impl Allocation {
    /// The registers of the operands of `inst`; what stands for one in memory means nothing.
    pub fn operands(&self, function: &Function, inst: Inst) -> &[PReg] {
        let range = function.operand_range(inst);
        self.registers.get(range).unwrap_or(&[])
    }

    /// Where the operands of `inst` are, in registers or in memory.
    pub fn places(&self, function: &Function, inst: Inst) -> OperandPlaces<'_> {
        let range = function.operand_range(inst);
        let [first, end] = [range.start, range.end].map(|at| at as u32);
        let [low, high] =
            [first, end].map(|at| self.memory.partition_point(|&(operand, _)| operand < at));
        OperandPlaces {
            registers: self.operands(function, inst),
            memory: self.memory.get(low..high).unwrap_or(&[]),
            first,
        }
    }

    /// The slot of the operand of `inst` at `position`, if it is in memory rather than in a
    /// register. Only operands whose constraint allows it are.
    pub fn slot(&self, function: &Function, inst: Inst, position: usize) -> Option<SlotAddr> {
        if self.memory.is_empty() {
            return None;
        }
        match self.places(function, inst).get(position)? {
            ValuePlace::Slot(slot) => Some(slot),
            ValuePlace::Reg(_) => None,
        }
    }

    /// Every unit that an instruction with code of its own or an edit names.
    pub fn touched(&self, function: &Function, target: &Target) -> RegSet {
        let mut touched = RegSet::new(target);
        let mut touch = |reg: PReg, width: usize| {
            let units = target.units(reg, width);
            units.for_each(|unit| touched.insert(unit));
        };
        let widths = |inst: Inst| {
            let operands = function.operands(inst).iter();
            operands.map(|o| target.width(function.vreg(o.vreg).class))
        };
        for inst in function.insts().filter(|&i| !self.deleted.contains(i)) {
            let regs = self.operands(function, inst).iter().zip(widths(inst));
            let in_register = |at: &usize| self.slot(function, inst, *at).is_none();
            let regs = regs.enumerate().filter(|(at, _)| in_register(at));
            regs.for_each(|(_, (&reg, w))| touch(reg, w));
        }
        for (_, edit) in self.edits.iter() {
            match *edit {
                Edit::Move {
                    to: a,
                    from: b,
                    width,
                }
                | Edit::Swap { a, b, width } => {
                    touch(a, width.into());
                    touch(b, width.into());
                }
                Edit::Transfer { to, from, regs } => {
                    for reg in [to, from] {
                        let per_register = target.file(reg.file).units_per_reg;
                        touch(reg, usize::from(regs) * per_register);
                    }
                }
                Edit::Store { from, width, .. } => touch(from, width.into()),
                Edit::Reload { to, width, .. } => touch(to, width.into()),
                Edit::Recompute { inst, ref regs } => {
                    let regs = regs.iter().zip(widths(inst));
                    regs.for_each(|(&reg, w)| touch(reg, w));
                }
            }
        }
        touched
    }

    /// The instructions of `block` in their final order, deleted ones included.
    pub fn block_insts<'a>(
        &'a self,
        function: &Function,
        block: Block,
    ) -> impl Iterator<Item = Inst> + 'a {
        let order = self.order.as_ref();
        function.block_insts(block).map(move |inst| match order {
            Some(order) => order.get(inst.index()).copied().unwrap_or(inst),
            None => inst,
        })
    }
}
