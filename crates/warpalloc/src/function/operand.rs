//! Operands: which virtual register, read or written when, and where it may be.

use super::{RegList, VReg};
use crate::target::PReg;

/// How an instruction treats an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Read before any result is written.
    Use,
    /// Written after every input has been read.
    Def,
    /// Read and written in place. A guarded definition is one: when the guard is false,
    /// the old value stays.
    UseDef,
    /// Written while inputs may still be read: shares no unit with any input.
    EarlyDef,
}

impl Role {
    /// Whether the operand is read.
    pub fn reads(self) -> bool {
        matches!(self, Role::Use | Role::UseDef)
    }

    /// Whether the operand is written.
    pub fn writes(self) -> bool {
        !matches!(self, Role::Use)
    }
}

/// Where an operand may be, beyond what its class says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Constraint {
    /// Any register of the class.
    #[default]
    Any,
    /// This register and no other.
    Fixed(PReg),
    /// The same register as the input operand at this position. Only results are tied.
    Tied(u8),
    /// No register that overlaps one in the list.
    Except(RegList),
    /// Any register of the class, or a slot of the spill frame. Of inputs and plain results.
    Anywhere,
    /// A slot of the spill frame. Of inputs and plain results.
    Memory,
    /// Where the caller left an argument in memory: so many bytes above the first. Of results
    /// of the live-in instruction alone.
    Argument(u32),
}

impl Constraint {
    /// Whether an operand may be in memory.
    pub fn allows_memory(self) -> bool {
        matches!(
            self,
            Constraint::Anywhere | Constraint::Memory | Constraint::Argument(_)
        )
    }
}

/// One operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// The virtual register.
    pub vreg: VReg,
    /// How it is treated.
    pub role: Role,
    /// Where it may be.
    pub constraint: Constraint,
}

impl Operand {
    /// Whether it may be anywhere, as far as it alone tells.
    pub fn is_free(&self) -> bool {
        self.constraint == Constraint::Any && self.role != Role::EarlyDef
    }

    /// An input in any register.
    pub fn reads(vreg: VReg) -> Operand {
        Operand::with_role(vreg, Role::Use)
    }

    /// A result in any register.
    pub fn writes(vreg: VReg) -> Operand {
        Operand::with_role(vreg, Role::Def)
    }

    /// An operand of the given role in any register.
    pub fn with_role(vreg: VReg, role: Role) -> Operand {
        Operand {
            vreg,
            role,
            constraint: Constraint::Any,
        }
    }

    /// The same operand under `constraint`.
    pub fn constrained(self, constraint: Constraint) -> Operand {
        Operand { constraint, ..self }
    }
}

/// A run of operands that occupies consecutive registers: a vector's lanes, a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandGroup {
    /// Position of the first operand among the instruction's operands.
    pub first: u8,
    /// How many operands belong to it.
    pub len: u8,
    /// The group's first unit is a multiple of this.
    pub align: u8,
}

impl OperandGroup {
    /// The positions of the group's operands.
    pub fn range(self) -> std::ops::Range<usize> {
        self.first as usize..self.first as usize + self.len as usize
    }
}
