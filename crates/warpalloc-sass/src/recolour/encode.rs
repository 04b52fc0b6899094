//! New register numbers in the words of code.
//!
//! Each field is set and the word decoded again. The result must be the same instruction in
//! every respect but the numbers of renamed registers: what differs in any other bit is
//! refused.

use super::RecolourError;
use super::webs::renamed_lanes;
use crate::code::Code;
use crate::isa::{File, Inst, Reg};

/// `inst` with the registers that `to` gives the lanes of its renamed operands, in order.
pub(crate) fn rename(at: usize, inst: &Inst, to: &[Reg]) -> Result<Inst, RecolourError> {
    let refuse = |why: &'static str| RecolourError::Instruction {
        offset: Code::offset(at),
        inst: inst.to_string(),
        why,
    };
    let mut renamed = inst.clone();
    let mut last = None;
    for ((operand, old, _), &new) in renamed_lanes(inst).zip(to) {
        if operand == last && operand.is_some() {
            continue;
        }
        last = operand;
        if old == new {
            continue;
        }
        let result = match operand {
            Some(number) => renamed.with_register(number, new.index),
            None => renamed.with_guard(new.index),
        };
        renamed = result.map_err(|error| RecolourError::Encode {
            offset: Code::offset(at),
            error,
        })?;
    }
    match is_renaming(inst, &renamed, to) {
        true => Ok(renamed),
        false => Err(refuse("it does not decode to what was encoded")),
    }
}

/// Whether `new` is `old` with the registers of `to`, and nothing else changed.
fn is_renaming(old: &Inst, new: &Inst, to: &[Reg]) -> bool {
    let mut fields = 0u128;
    for operand in old.operands() {
        if let Some(at) = operand.field
            && matches!(operand.file, File::R | File::P)
        {
            fields |= ((1u128 << operand.field_bits) - 1) << at;
        }
    }
    if old.guard().is_some_and(|guard| !guard.never) {
        fields |= 7 << 12;
    }
    let same_shape = old.operands().len() == new.operands().len()
        && old.operands().iter().zip(new.operands()).all(|(a, b)| {
            let renamed = matches!(a.file, File::R | File::P);
            (a.file, a.width, a.access, a.field) == (b.file, b.width, b.access, b.field)
                && (renamed || a.first == b.first)
        });
    let lanes: Vec<Reg> = renamed_lanes(new).map(|(_, reg, _)| reg).collect();
    old.mnemonic() == new.mnemonic()
        && old.word() & !fields == new.word() & !fields
        && same_shape
        && lanes == to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Sm, decode};

    /// FADD R4, R4, R5
    const SUM: u128 = 0x000f_e200_0000_0000_0000_0005_0404_7221;

    fn regs(numbers: [u8; 3]) -> [Reg; 3] {
        numbers.map(|index| Reg {
            file: File::R,
            index,
        })
    }

    #[test]
    fn renaming_changes_registers_and_nothing_else() {
        let sum = decode(SUM, Sm::new(90).unwrap()).unwrap();
        let renamed = rename(0, &sum, &regs([9, 8, 7])).unwrap();
        assert_eq!(renamed.to_string(), "FADD =R9, R8, R7");
        assert!(is_renaming(&sum, &renamed, &regs([9, 8, 7])));
        // Another register than asked for, and another bit.
        assert!(!is_renaming(&sum, &renamed, &regs([9, 8, 6])));
        let negated = decode(renamed.word() ^ 1 << 72, sum.sm()).unwrap();
        assert!(!is_renaming(&sum, &negated, &regs([9, 8, 7])));
    }
}
