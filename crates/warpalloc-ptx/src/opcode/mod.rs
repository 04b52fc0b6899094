//! What every PTX instruction does to registers, memory and control.
//!
//! One row per mnemonic family, grouped in files by chapter of the ISA document. A row gives the operand forms in a
//! small pattern language (described in `row.rs`), what the instruction may do to memory, and what recomputing it costs. The few
//! irregular families (`mov`, `ld`, `cvt`, `call`, …) are short functions beside their rows.
//!
//! The table never guesses: a mnemonic, a modifier, a type or an operand shape that no row foresees is an [`Unknown`]
//! that names the instruction, and the caller leaves the function alone.
//!
//! Covered is PTX ISA 9.3 without the `fabric` instructions and the report operands of `mbarrier` waits. Widths were
//! compared with what ptxas accepts, operand by operand: the table is the more generous only for conversions to and from
//! packed types, where ptxas wants the exact width.
//!
//! # How an instruction is presented
//!
//! The opcode is split at its dots, `::` kept: `cp.async.bulk.shared::cluster.global` has the mnemonic `cp` and the
//! modifiers `async`, `bulk`, `shared::cluster`, `global`. Operands are presented by shape only; guards are not operands,
//! and a guarded definition is neither a copy nor recomputable whatever the description says. A register that is declared
//! as a vector is presented as [`OperandShape::Vector`], a component of it as [`OperandShape::Register`].

mod control;
mod float;
mod integer;
mod memory;
mod misc;
mod modifier;
mod row;
mod special;
mod sync;
mod tensor;
#[cfg(test)]
mod tests;
mod texture;
mod video;

pub(crate) use modifier::type_bits;
use smallvec::SmallVec;
pub use special::{SpecialReg, special_register};

/// What the table looks at in an instruction.
#[derive(Clone, Copy, Debug)]
pub struct InstrShape<'a> {
    /// The opcode up to its first dot.
    pub mnemonic: &'a str,
    /// The dot-separated pieces after the mnemonic, without their dots.
    pub modifiers: &'a [&'a str],
    /// The shape of every operand, in source order.
    pub operands: &'a [OperandShape],
}

/// What an operand looks like, names left aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandShape {
    /// A register, negated or with a byte selector or not.
    Register,
    /// A literal or a constant expression.
    Constant,
    /// The name of a variable, function, parameter or label, with an offset or not.
    Symbol,
    /// A special register, by what [`special_register`] says of it.
    Special {
        /// Whether two reads may differ.
        volatile: bool,
        /// Components read: more than one for `%tid` and its like without a suffix.
        lanes: u8,
    },
    /// `_`: a result that nobody wants.
    Sink,
    /// `{a, b, …}` with that many elements; any of them may be a constant or `_`.
    Vector(u8),
    /// `d|p`, where `d` has that many elements in braces, or none for a plain register; either side may be `_`.
    Pair {
        /// Elements of the braces before the bar; 0 where there are none.
        lanes: u8,
    },
    /// `[…]`, whatever stands inside.
    Memory(AddressShape),
    /// `(a, b, …)` around the results or arguments of a call.
    List,
}

/// What the address inside brackets is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressShape {
    /// At least one register.
    Registers,
    /// Symbols and constants only.
    Fixed,
    /// A parameter of the enclosing entry function, at a constant offset.
    KernelParameter,
}

/// Register widths of PTX. 8-bit values live in 16-bit registers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Width {
    /// A predicate.
    B1,
    /// Half a general register.
    B16,
    /// One general register.
    B32,
    /// Two general registers.
    B64,
    /// Four general registers.
    B128,
}

impl Width {
    /// The number of bits, 1 for a predicate.
    pub const fn bits(self) -> u16 {
        match self {
            Width::B1 => 1,
            Width::B16 => 16,
            Width::B32 => 32,
            Width::B64 => 64,
            Width::B128 => 128,
        }
    }
}

/// Which registers an operand admits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ty {
    /// Of this width only.
    Exactly(Width),
    /// Of this width or wider: the relaxed rule for the data operands of loads, stores and conversions. A wider
    /// destination is written in full, by sign or zero extension.
    AtLeast(Width),
    /// Of any width: the declaration decides.
    Any,
}

impl Ty {
    /// Whether a register of this width may stand here.
    pub fn admits(self, width: Width) -> bool {
        match self {
            Ty::Exactly(wanted) => width == wanted,
            Ty::AtLeast(least) => width >= least && least != Width::B1,
            Ty::Any => true,
        }
    }
}

/// What an instruction does with one operand. Of an operand that holds no register, only its place matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandRole {
    /// Writes the register, or every element of the vector.
    Def(Ty),
    /// Reads the register, or every element of the vector.
    Use(Ty),
    /// Reads, then writes.
    UseDef(Ty),
    /// `d|p`: writes both; the second type is that of what follows the bar.
    DefPair(Ty, Ty),
    /// A memory operand: every register inside is read.
    Address,
    /// A code label, a list of branch targets, a prototype or a list of call targets.
    Label,
    /// What a call enters: a function's name, or a register that holds its address.
    Callee,
    /// The parenthesised results of a call: registers among them are written.
    Returns,
    /// The parenthesised arguments of a call: registers among them are read.
    Arguments,
    /// A constant; a register here is an error.
    Immediate,
}

/// The wish of the hardware that the elements of a vector lie side by side.
///
/// It concerns registers exactly as wide as the element: an 8-bit element, or one loaded into a wider register, is
/// unpacked one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Alignment of the first element in 32-bit units.
    pub align_units: u8,
}

/// One operand of a [`Description`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operand {
    /// What happens to it.
    pub role: OperandRole,
    /// How its elements lie in hardware, for a vector.
    pub group: Option<Group>,
}

/// What an instruction may do beyond its register operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: the results depend on the register operands and on things that do not change.
    Pure,
    /// Reads memory: reads commute with one another, not with writes.
    Read,
    /// Anything that must keep its place: stores, atomics, barriers, volatile reads, exchange between threads, the carry
    /// flag, the parameters of calls.
    Write,
}

/// Where execution goes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// To the next instruction.
    Falls,
    /// To a label.
    Branch,
    /// To one label of a list.
    IndirectBranch,
    /// Into another function and back.
    Call,
    /// Back to the caller, or out of an entry.
    Return,
    /// Nowhere: the thread ends.
    Exit,
    /// Into the host's or the debugger's hands. ptxas lets the next instruction follow, so a control-flow graph treats
    /// it as falling through.
    Trap,
}

/// The price of computing a value again instead of keeping it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RematCost {
    /// Rough issue cycles.
    pub cycles: u8,
    /// Registers that must still hold their values there: 0 or 1, or 2 for a predicate.
    pub inputs: u8,
}

/// The hidden carry flag of extended-precision arithmetic. Nothing that writes it may come between a writer and its
/// readers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Carry {
    /// Whether the flag enters the result.
    pub reads: bool,
    /// Whether the flag is set.
    pub writes: bool,
}

/// Registers that an operation still uses after its instruction has issued.
///
/// Between the start and the completion the vectors, results and metadata of the instruction belong to the hardware: they
/// may not be moved, spilled, read or given to another value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AsyncKind {
    /// The accumulator, the register fragment and the metadata of `wgmma.mma_async`, until a `wgmma.wait_group` that covers it.
    WarpgroupMma,
    /// The destination of `tcgen05.ld`, until `tcgen05.wait::ld`.
    TensorLoad,
}

/// The part of an instruction in an asynchronous operation on registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asynchronous {
    /// Hands registers to the hardware.
    Starts(AsyncKind),
    /// Closes a group of operations, which can then be waited for.
    Commits(AsyncKind),
    /// Takes them back: all of them for `tcgen05.wait::ld` and `wgmma.wait_group 0`, those of all but the N latest
    /// groups for `wgmma.wait_group N`.
    Completes(AsyncKind),
}

/// Everything that the table says about an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// One entry per operand, in source order.
    pub operands: SmallVec<[Operand; 5]>,
    /// What happens outside the registers.
    pub effect: Effect,
    /// Where execution goes next.
    pub control: Control,
    /// The price of recomputing, where that is possible and sensible.
    pub remat: Option<RematCost>,
    /// A `mov` between registers that changes no bit, packing and unpacking included.
    pub copy: bool,
    /// Threads of a warp or more take part together: it may not become control-dependent on anything new.
    pub convergent: bool,
    /// Use of the carry flag.
    pub carry: Carry,
    /// Some results are written before all inputs are read. Where the lanes of the result match those of the last
    /// operand, each may take the place of its counterpart; no other input may share a register with a result.
    pub in_place: bool,
    /// Use of registers beyond the end of the instruction.
    pub asynchronous: Option<Asynchronous>,
}

/// An instruction that the table does not cover.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{instruction}`: {reason}")]
pub struct Unknown {
    /// The full opcode with its modifiers.
    pub instruction: String,
    /// What was not understood.
    pub reason: UnknownReason,
}

/// What was not understood in an instruction.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnknownReason {
    /// No row bears this name.
    #[error("no such instruction in the opcode table")]
    Mnemonic,
    /// A modifier that occurs nowhere in the ISA.
    #[error("modifier `.{0}` is not in the opcode table")]
    Modifier(String),
    /// The width of an operand depends on a type modifier that is not there.
    #[error("no type modifier gives the width of operand {0}")]
    Type(usize),
    /// No form of the row fits the operands.
    #[error("operands do not fit any of the forms `{0}`")]
    Operands(&'static str),
}

/// Says what an instruction does.
///
/// ```
/// use warpalloc_ptx::opcode::{describe, Effect, InstrShape, OperandRole, OperandShape, Ty, Width};
/// let shape = InstrShape {
///     mnemonic: "mul",
///     modifiers: &["wide", "s32"],
///     operands: &[OperandShape::Register, OperandShape::Register, OperandShape::Constant],
/// };
/// let found = describe(&shape)?;
/// assert_eq!(found.operands[0].role, OperandRole::Def(Ty::Exactly(Width::B64)));
/// assert_eq!(found.effect, Effect::Pure);
/// # Ok::<(), warpalloc_ptx::opcode::Unknown>(())
/// ```
pub fn describe(shape: &InstrShape) -> Result<Description, Unknown> {
    find(shape).map_err(|reason| Unknown {
        instruction: opcode_text(shape),
        reason,
    })
}

fn find(shape: &InstrShape) -> Result<Description, UnknownReason> {
    let row = row::lookup(shape).ok_or(UnknownReason::Mnemonic)?;
    if let Some(odd) = shape.modifiers.iter().find(|m| !modifier::is_known(m)) {
        return Err(UnknownReason::Modifier((*odd).to_owned()));
    }
    row.describe(shape)
}

fn opcode_text(shape: &InstrShape) -> String {
    std::iter::once(shape.mnemonic)
        .chain(shape.modifiers.iter().copied())
        .collect::<Vec<_>>()
        .join(".")
}

impl InstrShape<'_> {
    fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    fn has_any(&self, modifiers: &[&str]) -> bool {
        self.modifiers.iter().any(|m| modifiers.contains(m))
    }
}
