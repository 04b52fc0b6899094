//! What the checker says when it refuses an allocation.

use crate::allocation::{Point, SlotAddr, Space};
use crate::error::Place;
use crate::function::{Inst, VReg};
use crate::target::{PReg, Target};
use std::fmt;
use thiserror::Error;

/// A register together with its name on the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedReg {
    /// The register.
    pub reg: PReg,
    name: String,
}

impl NamedReg {
    pub(super) fn new(target: &Target, reg: PReg) -> NamedReg {
        let name = match target.files().len() > reg.file.index() {
            true => target.reg_name(reg).to_string(),
            false => format!("unit {} of file {}", reg.unit, reg.file.index()),
        };
        NamedReg { reg, name }
    }
}

impl fmt::Display for NamedReg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What of a [`Place`] is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// The whole of it.
    Whole,
    /// The operand at this position.
    Operand(usize),
    /// The edit at this position among those of a point.
    Edit(Point, usize),
}

/// Why an allocation is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// Where.
    pub place: Place,
    /// What of that place.
    pub site: Site,
    /// The value concerned and its part, where one is.
    pub value: Option<(VReg, usize)>,
    /// What is wrong.
    pub fault: Fault,
}

impl Violation {
    pub(super) fn of_function(fault: Fault) -> Violation {
        Violation {
            place: Place::Function,
            site: Site::Whole,
            value: None,
            fault,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        match self.site {
            Site::Whole => {}
            Site::Operand(position) => write!(f, ", operand {position}")?,
            Site::Edit(point, position) => {
                write!(f, ", edit {position} ")?;
                match point {
                    Point::Before(inst) => write!(f, "before {inst}")?,
                    Point::After(inst) => write!(f, "after {inst}")?,
                    Point::Edge(block, succ) => write!(f, "on edge {succ} of {block}")?,
                }
            }
        }
        f.write_str(": ")?;
        if let Some((vreg, part)) = self.value {
            write!(f, "{vreg} part {part}: ")?;
        }
        self.fault.fmt(f)
    }
}

impl std::error::Error for Violation {}

impl From<Box<Violation>> for crate::Error {
    fn from(violation: Box<Violation>) -> crate::Error {
        match violation.fault {
            Fault::Invalid(error) => *error,
            _ => crate::Error::Unproved(violation.to_string()),
        }
    }
}

/// What is wrong with an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The function itself breaks a rule of the model.
    #[error("{0}")]
    Invalid(Box<crate::Error>),
    /// Some part of it does not belong to this function.
    #[error("{0}")]
    Malformed(&'static str),
    /// An operand is outside its class: wrong file, misaligned, or beyond the budget.
    #[error("{reg} is no register of class {class} within the budget")]
    Class {
        /// The register.
        reg: NamedReg,
        /// The class's name.
        class: String,
    },
    /// A fixed operand is elsewhere.
    #[error("{reg} is not the required {required}")]
    Fixed {
        /// The register.
        reg: NamedReg,
        /// Where it has to be.
        required: NamedReg,
    },
    /// A result is not in the register of the input it is tied to.
    #[error("{reg} is not {tied}, the register of the operand it is tied to")]
    Tied {
        /// The register.
        reg: NamedReg,
        /// The input's register.
        tied: NamedReg,
    },
    /// An operand overlaps a register it must avoid.
    #[error("{reg} overlaps {excluded}, which the operand must avoid")]
    Excluded {
        /// The register.
        reg: NamedReg,
        /// The register to avoid.
        excluded: NamedReg,
    },
    /// A group is not consecutive.
    #[error("{reg} does not follow its group's previous operand, which ends before {expected}")]
    Group {
        /// The register.
        reg: NamedReg,
        /// Where it has to be.
        expected: NamedReg,
    },
    /// A group starts at a wrong unit.
    #[error("a group of alignment {align} starts at {reg}")]
    GroupAlign {
        /// The group's first register.
        reg: NamedReg,
        /// What its first unit must be a multiple of.
        align: u8,
    },
    /// Two results share a unit.
    #[error("the results in {reg} and {other} overlap")]
    ResultsOverlap {
        /// One result's register.
        reg: NamedReg,
        /// The other's.
        other: NamedReg,
    },
    /// An early result shares a unit with an input.
    #[error("the early result in {reg} overlaps the input in {input}")]
    EarlyOverlap {
        /// The result's register.
        reg: NamedReg,
        /// The input's.
        input: NamedReg,
    },
    /// A register does not hold the value that is read from it.
    #[error("not in {reg}, which holds {}", Holding(*.holds))]
    NotThere {
        /// Where the value should be.
        reg: NamedReg,
        /// What is there instead, as far as that is known.
        holds: Option<(VReg, usize)>,
    },
    /// An edit reads a location that holds nothing known.
    #[error("{from} holds nothing known")]
    UnknownSource {
        /// The location.
        from: Location,
    },
    /// An edit names registers outside the file.
    #[error("{width} units from {reg} do not lie within the budget")]
    OutOfFile {
        /// The first register.
        reg: NamedReg,
        /// How many units.
        width: usize,
    },
    /// An edit's two sides overlap without being the same.
    #[error("{to} and {from} overlap")]
    SidesOverlap {
        /// One side.
        to: NamedReg,
        /// The other.
        from: NamedReg,
    },
    /// A slot does not hold the value that an instruction reads from it.
    #[error("not in {}", Location::Slot(*.slot))]
    NotInMemory {
        /// The slot.
        slot: SlotAddr,
    },
    /// An operand is in memory that has to be in a register, or in a register that has to be
    /// in memory, or in another place there.
    #[error("this operand may not be {where_}")]
    Misplaced {
        /// In memory, in a register.
        where_: &'static str,
    },
    /// Code writes to arguments, which belong to the caller.
    #[error("{} is the caller's", Location::Slot(*.slot))]
    ReadOnly {
        /// The slot.
        slot: SlotAddr,
    },
    /// A move or swap within a file that has none.
    #[error("{to} and {from} are in a file without {what}")]
    NoMove {
        /// One side.
        to: NamedReg,
        /// The other.
        from: NamedReg,
        /// Copies or exchanges.
        what: &'static str,
    },
    /// A move or swap between two files.
    #[error("{to} and {from} are in different files")]
    TwoFiles {
        /// One side.
        to: NamedReg,
        /// The other.
        from: NamedReg,
    },
    /// A transfer between files that have no such path, or of parts of registers.
    #[error("there is no transfer of whole registers from {from} to {to}")]
    NoTransfer {
        /// Destination.
        to: NamedReg,
        /// Source.
        from: NamedReg,
    },
    /// A transfer into a file that cannot represent what the source holds.
    #[error("what {from} holds is no whole value of the file of {to}")]
    LossyTransfer {
        /// Destination.
        to: NamedReg,
        /// Source.
        from: NamedReg,
    },
    /// A store or reload of a file that cannot reach memory.
    #[error("{reg} cannot be stored or reloaded directly")]
    NoMemory {
        /// The register.
        reg: NamedReg,
    },
    /// A slot outside the frame.
    #[error("{bytes} bytes at {} are outside the frame of {size} bytes", Location::Slot(*.slot))]
    OutOfFrame {
        /// The slot.
        slot: SlotAddr,
        /// Bytes accessed.
        bytes: u32,
        /// Bytes the frame has.
        size: u32,
    },
    /// A slot that one access cannot reach.
    #[error("{} is not aligned to {align} bytes from the low end of the frame", Location::Slot(*.slot))]
    SlotAlign {
        /// The slot.
        slot: SlotAddr,
        /// The alignment the access needs.
        align: u32,
    },
    /// The frame is beyond the target's limit.
    #[error("the frame takes {size} bytes, and {limit} is the limit")]
    FrameLimit {
        /// Bytes of the larger space.
        size: u32,
        /// The limit.
        limit: u32,
    },
    /// An instruction was deleted that has an effect.
    #[error("an instruction with effects was deleted")]
    Deleted,
    /// An instruction is rematerialised that never may be.
    #[error("{0} may not be executed again")]
    NotRecomputable(Inst),
    /// An instruction is rematerialised where its result would differ.
    #[error("{0} would not compute the current value: an operand changed since")]
    StaleEquation(Inst),
    /// A preserved register does not come back.
    #[error("{reg} does not hold the caller's value at a return")]
    NotPreserved {
        /// The register.
        reg: NamedReg,
    },
    /// A live pinned value is moved.
    #[error("the value is pinned and live, but {from} is read by an edit")]
    Pinned {
        /// Where the value is.
        from: Location,
    },
    /// The new order is no permutation of the block.
    #[error("the new order does not keep the block's instructions and terminator")]
    NotPermuted,
    /// The new order changes which definition an input reads, or the last definition.
    #[error("the new order gives it another definition")]
    OrderValue,
    /// An edit overwrites an argument before the function has taken it over.
    #[error("{reg} is overwritten, but {value} comes into the function in it")]
    LiveInOverwritten {
        /// The register that is written.
        reg: NamedReg,
        /// The argument.
        value: VReg,
    },
    /// The new order moves something across fixed registers or clobbers.
    #[error("the new order moves it across an instruction that names registers")]
    OrderBarrier,
    /// The new order changes what a read or write of state follows.
    #[error("the new order moves it across a write of state")]
    OrderEffect,
}

/// A register or a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A register.
    Reg(NamedReg),
    /// A slot.
    Slot(SlotAddr),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Reg(reg) => reg.fmt(f),
            Location::Slot(slot) => match slot.space {
                Space::Local => write!(f, "local[{}]", slot.offset),
                Space::Shared => write!(f, "shared[{}]", slot.offset),
                Space::Argument => write!(f, "argument[{}]", slot.offset),
            },
        }
    }
}

struct Holding(Option<(VReg, usize)>);

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((vreg, part)) => write!(f, "{vreg} part {part}"),
            None => f.write_str("no current value"),
        }
    }
}
