//! One instruction: the word it came from and what the opcode table says of it.

use super::decode::{DecodeError, decode};
use super::register::{File, Reg, RegSet};
use super::table::Row;
use super::{Sm, decode::bits};
use smallvec::SmallVec;
use std::fmt;

/// Whether an operand is read or written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Written.
    Def,
    /// Read.
    Use,
}

/// A run of registers that an instruction reads or writes.
///
/// The constant registers RZ, URZ, PT and UPT are no operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operand {
    /// The register file.
    pub file: File,
    /// The first register of the run.
    pub first: u8,
    /// How many registers the run has.
    pub width: u8,
    /// Read or written.
    pub access: Access,
    /// The lowest bit of the field that names the first register; none for a register that
    /// the instruction implies, which cannot be renamed.
    pub field: Option<u8>,
    /// The field's width in bits.
    pub field_bits: u8,
}

impl Operand {
    /// The registers of the run.
    pub fn registers(self) -> impl Iterator<Item = Reg> {
        let end = u16::from(self.first) + u16::from(self.width);
        (u16::from(self.first)..end.min(u16::from(self.file.registers()))).map(move |index| Reg {
            file: self.file,
            // In range: the end is at most the file's size.
            index: index as u8,
        })
    }
}

/// The predicate that an instruction runs under. An unguarded instruction has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Guard {
    /// The predicate: of file P, or UP for uniform instructions.
    pub reg: Reg,
    /// Whether the instruction runs where the predicate is false.
    pub negated: bool,
    /// Whether the guard is `@!PT`: the instruction never runs.
    pub never: bool,
}

/// The memory that an instruction refers to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Space {
    /// Any of global, shared and local.
    Generic,
    /// Global memory.
    Global,
    /// Shared memory, also of other blocks of a cluster.
    Shared,
    /// The thread's own memory.
    Local,
    /// A constant bank.
    Constant,
    /// A texture.
    Texture,
    /// A surface.
    Surface,
}

/// What an instruction does to memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Reads it.
    Load,
    /// Writes it.
    Store,
    /// Reads and writes it, and gives the old value.
    Atomic,
    /// Reads and writes it, and gives nothing.
    Reduction,
    /// Copies from one memory to another after the instruction has finished.
    AsyncCopy,
    /// Acts on caches only.
    Cache,
}

/// The memory effect of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Memory {
    /// Which memory. Of an asynchronous copy, the one written.
    pub space: Space,
    /// What is done to it.
    pub effect: Effect,
    /// Bytes per thread, where the instruction states it.
    pub bytes: Option<u8>,
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To an offset in the code, or to the next instruction if guarded.
    Branch {
        /// The distance from the next instruction in bytes.
        displacement: i64,
        /// Whether the instruction has a condition beside its guard, so that it may fall
        /// through even when unguarded.
        conditional: bool,
    },
    /// To an offset that registers hold.
    IndirectBranch,
    /// To a function, and to the next instruction when that returns.
    Call {
        /// The distance from the next instruction in bytes, or the address of an absolute call,
        /// which a relocation fills in.
        target: CallTarget,
    },
    /// To the address that a register pair holds.
    Return,
    /// The thread ends.
    Exit,
    /// Nowhere: a trap.
    Trap,
}

/// What a call's field holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallTarget {
    /// The distance from the next instruction in bytes.
    Relative(i64),
    /// An address, which a relocation fills in.
    Absolute(u64),
    /// The address is in registers.
    Indirect,
    /// Registers hold how far the target is behind the place at this distance from the next
    /// instruction in bytes.
    IndirectFrom(i64),
}

/// The unit that runs an instruction. Units decide the latency of what they produce.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Pipe {
    /// Integer and logic, comparisons, selections.
    Alu,
    /// Single-precision and integer multiply-add.
    Fma,
    /// Packed half precision.
    Half,
    /// Double precision.
    Double,
    /// Matrix products.
    Tensor,
    /// The uniform datapath.
    Uniform,
    /// Transcendental functions, conversions, bit counting.
    Xu,
    /// Loads, stores, atomics, shuffles.
    Memory,
    /// Textures and surfaces.
    Texture,
    /// Branches and barriers.
    Control,
}

/// Whether the cycles until a result is there are known when code is scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Latency {
    /// Known: stall counts order the producer and its readers.
    Fixed,
    /// Not known: a scoreboard orders them.
    Variable,
}

/// The scheduling bits of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Control {
    /// Cycles until the warp may issue its next instruction.
    pub stall: u8,
    /// The yield bit as encoded.
    pub yields: bool,
    /// The scoreboard released when the results are written.
    pub write_scoreboard: Option<u8>,
    /// The scoreboard released when the sources have been read.
    pub read_scoreboard: Option<u8>,
    /// The scoreboards waited for before issue, one bit each.
    pub wait_mask: u8,
    /// The operand slots kept in the reuse cache, one bit each.
    pub reuse: u8,
}

/// From this stall on the yield bit has to be clear.
const LONG_STALL: u8 = 12;

impl Control {
    /// The same bits with another stall and the yield bit that ptxas mostly sets with it. Stall and
    /// yield bit act as one field: not every pair can be issued.
    pub fn stalled(self, stall: u8) -> Self {
        let signals = self.write_scoreboard.is_some() || self.read_scoreboard.is_some();
        Self {
            stall,
            yields: stall < LONG_STALL && (signals || (1..=2).contains(&stall)),
            ..self
        }
    }
}

/// A register field cannot be set as asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The operand has no field: the instruction implies its registers.
    #[error("operand {operand} of {mnemonic} is implied by the instruction and cannot be renamed")]
    Implied {
        /// The instruction.
        mnemonic: &'static str,
        /// The number of the operand.
        operand: usize,
    },
    /// There is no such operand.
    #[error("{mnemonic} has no operand {operand}")]
    Missing {
        /// The instruction.
        mnemonic: &'static str,
        /// The number of the operand.
        operand: usize,
    },
    /// The run of registers would leave its file.
    #[error("{mnemonic} cannot name {width} registers from {reg} on")]
    Range {
        /// The instruction.
        mnemonic: &'static str,
        /// The first register asked for.
        reg: Reg,
        /// The registers of the operand.
        width: u8,
    },
    /// The instruction names no place in the code, or none that far away.
    #[error("{mnemonic} cannot name a place {distance:#x} bytes away")]
    Distance {
        /// The instruction.
        mnemonic: &'static str,
        /// The distance asked for.
        distance: i64,
    },
    /// A value does not fit its field.
    #[error("{value:#x} does not fit the {field} of {mnemonic}")]
    Value {
        /// The instruction.
        mnemonic: &'static str,
        /// What the field holds.
        field: &'static str,
        /// The value asked for.
        value: i64,
    },
    /// The word that results does not decode.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// The operands of one instruction.
pub(super) type Operands = SmallVec<[Operand; 6]>;

/// One decoded instruction.
#[derive(Clone, Debug)]
pub struct Inst {
    pub(super) word: u128,
    pub(super) sm: Sm,
    pub(super) row: &'static Row,
    pub(super) operands: Operands,
    pub(super) guard: Option<Guard>,
    pub(super) memory: Option<Memory>,
    pub(super) flow: Flow,
}

impl PartialEq for Inst {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word && self.sm == other.sm
    }
}

impl Eq for Inst {}

impl Inst {
    /// The word. Encoding is the identity: an instruction is its word.
    pub fn word(&self) -> u128 {
        self.word
    }

    /// The SM that the word was decoded for.
    pub fn sm(&self) -> Sm {
        self.sm
    }

    /// The mnemonic without modifiers, as nvdisasm writes it.
    pub fn mnemonic(&self) -> &'static str {
        self.row.mnemonic
    }

    /// The registers read and written, without the guard. A register field that names RZ,
    /// URZ, PT or UPT is no operand.
    pub fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// The guard, if there is one.
    pub fn guard(&self) -> Option<Guard> {
        self.guard
    }

    /// The effect on memory.
    pub fn memory(&self) -> Option<Memory> {
        self.memory
    }

    /// Where control goes.
    pub fn flow(&self) -> Flow {
        self.flow
    }

    /// The unit that runs it.
    pub fn pipe(&self) -> Pipe {
        self.row.pipe
    }

    /// Whether its results come after a known number of cycles.
    pub fn latency(&self) -> Latency {
        self.row.latency(self.sm)
    }

    /// Whether the instruction may be given other registers. Those that are read for liveness
    /// and statistics only, such as warp-group products and bulk copies, may not.
    pub fn is_rewritable(&self) -> bool {
        !self.row.read_only
    }

    /// The registers written, whether or not the guard holds.
    pub fn defs(&self) -> RegSet {
        self.registers(Access::Def)
    }

    /// The registers read, the guard's among them.
    pub fn uses(&self) -> RegSet {
        let mut set = self.registers(Access::Use);
        if let Some(guard) = self.guard.filter(|guard| !guard.never) {
            set.insert(guard.reg);
        }
        set
    }

    fn registers(&self, access: Access) -> RegSet {
        self.operands
            .iter()
            .filter(|operand| operand.access == access)
            .flat_map(|operand| operand.registers())
            .collect()
    }

    /// The scheduling bits.
    pub fn control(&self) -> Control {
        let scoreboard = |at| {
            let number = bits(self.word, at, 3) as u8;
            (number != 7).then_some(number)
        };
        Control {
            stall: bits(self.word, 105, 4) as u8,
            yields: bits(self.word, 109, 1) != 0,
            write_scoreboard: scoreboard(110),
            read_scoreboard: scoreboard(113),
            wait_mask: bits(self.word, 116, 6) as u8,
            reuse: bits(self.word, 122, 4) as u8,
        }
    }

    /// Whether stall and yield bit go together: from a stall of 12 on the bit has to be clear.
    pub fn is_issuable(&self) -> bool {
        let control = self.control();
        control.stall < LONG_STALL || !control.yields
    }

    /// The same instruction with other scheduling bits. Numbers are cut to their fields.
    pub fn with_control(&self, control: Control) -> Self {
        let scoreboard = |number: Option<u8>| u128::from(number.unwrap_or(7));
        let mut inst = self.clone();
        for (at, width, value) in [
            (105, 4, u128::from(control.stall)),
            (109, 1, u128::from(control.yields)),
            (110, 3, scoreboard(control.write_scoreboard)),
            (113, 3, scoreboard(control.read_scoreboard)),
            (116, 6, u128::from(control.wait_mask)),
            (122, 4, u128::from(control.reuse)),
        ] {
            set_bits(&mut inst.word, at, width, value);
        }
        inst
    }

    /// The same instruction with another first register in one operand.
    pub fn with_register(&self, operand: usize, first: u8) -> Result<Self, EncodeError> {
        let mnemonic = self.mnemonic();
        let found = self
            .operands
            .get(operand)
            .ok_or(EncodeError::Missing { mnemonic, operand })?;
        let field = found
            .field
            .ok_or(EncodeError::Implied { mnemonic, operand })?;
        if u16::from(first) + u16::from(found.width) > u16::from(found.file.registers()) {
            return Err(EncodeError::Range {
                mnemonic,
                reg: Reg {
                    file: found.file,
                    index: first,
                },
                width: found.width,
            });
        }
        let mut word = self.word;
        set_bits(&mut word, field, found.field_bits, u128::from(first));
        Ok(decode(word, self.sm)?)
    }

    /// The same instruction under another predicate of the same file.
    pub fn with_guard(&self, index: u8) -> Result<Self, EncodeError> {
        let mnemonic = self.mnemonic();
        let guard = self.guard.ok_or(EncodeError::Missing {
            mnemonic,
            operand: self.operands.len(),
        })?;
        let reg = Reg { index, ..guard.reg };
        if index >= reg.file.registers() {
            return Err(EncodeError::Range {
                mnemonic,
                reg,
                width: 1,
            });
        }
        let mut word = self.word;
        set_bits(&mut word, 12, 3, u128::from(index));
        Ok(decode(word, self.sm)?)
    }
}

pub(super) fn set_bits(word: &mut u128, at: u8, width: u8, value: u128) {
    let mask = ((1u128 << width) - 1) << at;
    *word = *word & !mask | (value << at) & mask;
}

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(guard) = self.guard {
            let not = if guard.negated { "!" } else { "" };
            match guard.never {
                true => write!(f, "@{not}{}T ", guard.reg.file.prefix())?,
                false => write!(f, "@{not}{} ", guard.reg)?,
            }
        }
        write!(f, "{}", self.mnemonic())?;
        let mut separator = " ";
        for operand in &self.operands {
            let arrow = match operand.access {
                Access::Def => "=",
                Access::Use => "",
            };
            write!(
                f,
                "{separator}{arrow}{}{}",
                operand.file.prefix(),
                operand.first
            )?;
            if operand.width > 1 {
                write!(f, "..{}", operand.first as u16 + operand.width as u16)?;
            }
            separator = ", ";
        }
        Ok(())
    }
}
