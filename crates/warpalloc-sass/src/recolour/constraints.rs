//! What the hardware asks of registers, beyond what the opcode table says.
//!
//! All of it is inferred from what ptxas writes for 13 million instructions of the wheels that
//! `docs/sass.md` names: runs are aligned to the next power of two of their width and to no
//! more; results of every unit but the matrix unit are put into registers of sources, whole
//! and in part; both values of a compare-and-swap stand side by side.

use crate::isa::{Inst, Operand, Pipe};

/// What the first register of a run of `width` is a multiple of, by its place in the original.
///
/// Where the original is aligned to less than the next power of two, the instruction takes
/// less.
pub(crate) fn alignment(first: u8, width: u8) -> u8 {
    let natural = width.next_power_of_two();
    match first {
        0 => natural,
        first => natural.min(1 << first.trailing_zeros()),
    }
}

/// Whether results may be written while sources are still read. Such an instruction has a
/// result in the register of a source only where the original has, and then both are one
/// value.
pub(crate) fn writes_early(inst: &Inst) -> bool {
    inst.pipe() == Pipe::Tensor
}

/// Whether two operands that follow each other are one run: the values that a compare-and-swap
/// compares with and stores. Both have fields of their own, but ptxas never uses that.
pub(crate) fn is_one_run(inst: &Inst, first: &Operand, second: &Operand) -> bool {
    inst.mnemonic().starts_with("ATOM")
        && (first.field, second.field) == (Some(32), Some(64))
        && first.file == second.file
        && first.access == second.access
        && u16::from(first.first) + u16::from(first.width) == u16::from(second.first)
}
