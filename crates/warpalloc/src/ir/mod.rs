//! The code being allocated: a function's instructions over *values*, plus copies,
//! stores, reloads and rematerialisations between them.
//!
//! A [`Program`] is what every strategy that colours works on. It starts as the function
//! itself, one value per virtual register, with two differences.
//!
//! *Constraints are isolated.* An operand that must sit in a fixed register, beside
//! another operand, or where an input sat, gets a short-lived value of its own, joined to
//! the real value by a copy right next to the instruction. A [`Link`] says how such values
//! stand to each other. The real values are then free, an allocation exists wherever the
//! operands of each single instruction fit, and coalescing removes the copies it can.
//! Pinned values may not be copied: links join them directly, for as long as they live.
//!
//! *Edges are blocks.* Where an edge passes arguments, a block stands on it that holds the
//! parallel copy, so that nothing else needs to know about parameters.
//!
//! Invariants:
//! - a value is read and written whole; the values of a link are live only around one
//!   instruction, or are pinned;
//! - blocks `0..function.block_count()` are the function's own, in its order, and hold its
//!   instructions in the chosen order; blocks after that stand on edges and hold none. Where a
//!   program is made without edges, blocks in which nothing is constrained hold nothing;
//! - the copies of one [`Op::Copies`] happen at once, and no value is written twice.

mod banks;
mod build;
mod bundles;
mod code;
pub(crate) mod constraints;
mod display;
mod facts;
mod live_ranges;

pub use banks::{ReadWith, read_together};
pub use facts::Facts;
pub use live_ranges::{LiveRanges, Segment, overlap};

use crate::allocation::Space;
use crate::function::{Block, Function, Inst, VReg};
use crate::target::{Class, PReg, RegSet};
use cranelift_entity::{EntitySet, PrimaryMap, entity_impl};
use smallvec::SmallVec;

/// Something that needs a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(u32);
entity_impl!(Value, "x");

/// A place in memory for one value; where it lies is decided last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u32);
entity_impl!(Slot, "slot");

/// Why a value exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is a virtual register of the function.
    VReg(VReg),
    /// It isolates a constrained operand of this instruction.
    Constraint(Inst),
    /// It is a piece of another value that was spilled or split.
    Piece(Value),
    /// It carries a value of another file to and from memory.
    Carrier(Value),
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// What kind of register it needs.
    pub class: Class,
    /// Why it exists.
    pub origin: Origin,
    /// All threads of a warp hold the same contents.
    pub uniform: bool,
    /// It must get a register: spilling it would bring the same problem back.
    pub unspillable: bool,
    /// It isolates an operand that its instruction writes.
    pub is_result: bool,
    /// Units it may not touch, besides those its neighbours take.
    pub forbidden: Option<Box<RegSet>>,
}

/// Values that take their registers together, around one instruction or, where they are
/// pinned, for good.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Each value and its distance in units from the link's start.
    pub members: SmallVec<[(Value, u16); 4]>,
    /// The start is a multiple of this.
    pub align: usize,
    /// The only place where it may start, if there is just one.
    pub fixed: Option<PReg>,
}

/// A spill slot.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotInfo {
    /// The class of what it holds.
    pub class: Class,
    /// The memory it lies in.
    pub space: Space,
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// An instruction of the function, with one value per operand.
    Inst {
        /// Which instruction.
        inst: Inst,
        /// The operands' values.
        values: SmallVec<[Value; 4]>,
    },
    /// Copies that happen at once, each `(to, from)` of one class.
    Copies(SmallVec<[(Value, Value); 2]>),
    /// A copy into another register file.
    Transfer {
        /// What is written.
        to: Value,
        /// What is read.
        from: Value,
    },
    /// Writes a value to its slot.
    Store {
        /// Where.
        slot: Slot,
        /// What.
        value: Value,
    },
    /// Reads a value from its slot.
    Reload {
        /// What.
        value: Value,
        /// Where from.
        slot: Slot,
    },
    /// Executes a rematerialisable instruction again, with one value per operand.
    Recompute {
        /// Which instruction.
        inst: Inst,
        /// The operands' values.
        values: SmallVec<[Value; 4]>,
    },
}

/// A block of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramBlock {
    /// What it does, in order.
    pub ops: Vec<Op>,
    /// Where it goes.
    pub succs: SmallVec<[Block; 2]>,
    /// Where it comes from.
    pub preds: SmallVec<[Block; 2]>,
    /// The edge it stands on: the block it leaves and the position among its successors.
    pub edge: Option<(Block, u32)>,
}

/// A function on its way to registers.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    /// The function.
    pub function: &'a Function,
    /// Every value.
    pub values: PrimaryMap<Value, ValueInfo>,
    /// Every slot.
    pub slots: PrimaryMap<Slot, SlotInfo>,
    /// Values that take their registers together. A value is in one link at most.
    pub links: Vec<Link>,
    /// Blocks; see the module's invariants.
    pub blocks: PrimaryMap<Block, ProgramBlock>,
    /// All instructions in a new order, where scheduling chose one.
    pub order: Option<Vec<Inst>>,
    /// Instructions that were taken out of their blocks: hoisted or rematerialised.
    pub deleted: EntitySet<Inst>,
    /// Whether the client would like some value to be in a particular register.
    pub has_hints: bool,
}

impl Program<'_> {
    /// A new value that stands for a piece of `value`, of the same class.
    pub fn piece_of(&mut self, value: Value) -> Value {
        let info = ValueInfo {
            origin: Origin::Piece(self.root_of(value)),
            forbidden: None,
            ..self.values[value].clone()
        };
        self.values.push(info)
    }

    /// The value that `value` is ultimately a piece of.
    pub fn root_of(&self, value: Value) -> Value {
        match self.values[value].origin {
            Origin::Piece(of) => of,
            _ => value,
        }
    }

    /// The first unit that the client would like `value` to be in.
    #[inline]
    pub fn hint_of(&self, value: Value) -> Option<usize> {
        if !self.has_hints {
            return None;
        }
        let reg = self.function.vreg(self.vreg_of(value)?).hint?;
        Some(usize::from(reg.unit))
    }

    /// The virtual register behind `value`, if there is one.
    pub fn vreg_of(&self, value: Value) -> Option<VReg> {
        match self.values[self.root_of(value)].origin {
            Origin::VReg(vreg) => Some(vreg),
            Origin::Carrier(of) => self.vreg_of(of),
            _ => None,
        }
    }
}
