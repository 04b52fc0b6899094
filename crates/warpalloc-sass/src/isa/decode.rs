//! From a word to an instruction by the opcode table.

use super::inst::{Access, CallTarget, Flow, Guard, Inst, Memory, Operand, Operands};
use super::place;
use super::register::{File, Reg};
use super::table::{Field, FlowSpec, Layout, ROWS, Row, Width};
use super::{Pipe, Sm};
use std::sync::LazyLock;

/// A word is not an instruction of the opcode table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No row has the opcode.
    #[error("unknown opcode 0x{opcode:03x} (word 0x{word:032x}) for {sm}")]
    Opcode {
        /// Bits 0..12.
        opcode: u16,
        /// The word.
        word: u128,
        /// The SM.
        sm: Sm,
    },
    /// Rows have the opcode, none the form or the modifiers.
    #[error(
        "unknown form of {mnemonic}: opcode 0x{opcode:03x}, bit 91 {bit91} (word 0x{word:032x}) for {sm}",
        bit91 = u8::from(*.bit91)
    )]
    Form {
        /// The mnemonic of the forms that are known.
        mnemonic: &'static str,
        /// Bits 0..12.
        opcode: u16,
        /// Bit 91.
        bit91: bool,
        /// The word.
        word: u128,
        /// The SM.
        sm: Sm,
    },
    /// The modifiers do not say how many registers an operand has.
    #[error(
        "unknown width of an operand of {mnemonic}: opcode 0x{opcode:03x} (word 0x{word:032x}) for {sm}"
    )]
    Width {
        /// The mnemonic.
        mnemonic: &'static str,
        /// Bits 0..12.
        opcode: u16,
        /// The word.
        word: u128,
        /// The SM.
        sm: Sm,
    },
    /// An operand's run of registers leaves its file.
    #[error(
        "{mnemonic} names {width} registers from {reg} on, more than there are (word 0x{word:032x}) for {sm}"
    )]
    Range {
        /// The mnemonic.
        mnemonic: &'static str,
        /// The first register.
        reg: Reg,
        /// The number of registers.
        width: u8,
        /// The word.
        word: u128,
        /// The SM.
        sm: Sm,
    },
}

impl DecodeError {
    /// Bits 0..12 of the word.
    pub fn opcode(&self) -> u16 {
        bits(self.word(), 0, 12) as u16
    }

    /// The word.
    pub fn word(&self) -> u128 {
        match *self {
            Self::Opcode { word, .. }
            | Self::Form { word, .. }
            | Self::Width { word, .. }
            | Self::Range { word, .. } => word,
        }
    }

    /// The mnemonic, where the opcode is known.
    pub fn mnemonic(&self) -> Option<&'static str> {
        match *self {
            Self::Opcode { .. } => None,
            Self::Form { mnemonic, .. }
            | Self::Width { mnemonic, .. }
            | Self::Range { mnemonic, .. } => Some(mnemonic),
        }
    }
}

/// Bits of a word. At most 64.
pub(crate) fn bits(word: u128, at: u8, width: u8) -> u64 {
    (word >> at) as u64 & (u64::MAX >> (64 - width))
}

/// For each of the 512 opcodes, the numbers of the rows that have it.
static BY_CODE: LazyLock<Vec<Vec<u16>>> = LazyLock::new(|| {
    let mut by_code = vec![Vec::new(); 512];
    for (number, row) in ROWS.iter().enumerate() {
        by_code[usize::from(row.code)].push(number as u16);
    }
    by_code
});

/// Decodes one word.
pub fn decode(word: u128, sm: Sm) -> Result<Inst, DecodeError> {
    let opcode = bits(word, 0, 12) as u16;
    let bit91 = bits(word, 91, 1) != 0;
    let numbers = &BY_CODE[usize::from(opcode & 0x1ff)];
    let rows = || numbers.iter().map(|&number| &ROWS[usize::from(number)]);
    let Some(row) = rows().find(|row| matches(row, word, sm)) else {
        let known = rows().find(|row| match row.layout {
            Layout::Alu(_) | Layout::Uniform(_) => true,
            Layout::Raw(form, _) => u16::from(form) == opcode >> 9,
        });
        return Err(match known {
            Some(row) => DecodeError::Form {
                mnemonic: row.mnemonic,
                opcode,
                bit91,
                word,
                sm,
            },
            None => DecodeError::Opcode { opcode, word, sm },
        });
    };
    let mut reader = Reader {
        word,
        sm,
        row,
        operands: Operands::new(),
    };
    for field in row.fields {
        reader.field(field)?;
    }
    let operands = reader.operands;
    Ok(Inst {
        word,
        sm,
        row,
        operands,
        guard: guard(word, row),
        memory: memory(word, row),
        flow: flow(word, row, sm),
    })
}

fn matches(row: &Row, word: u128, sm: Sm) -> bool {
    let form = bits(word, 9, 3) as u8;
    let bit91 = bits(word, 91, 1) != 0;
    let form_fits = match row.layout {
        Layout::Alu(forms) => {
            forms >> form & 1 != 0
                && match form {
                    1 | 2 | 4 => !bit91,
                    6 | 7 => bit91,
                    _ => true,
                }
        }
        Layout::Uniform(forms) => forms >> form & 1 != 0 && bit91,
        Layout::Raw(wanted, bit) => form == wanted && bit.is_none_or(|bit| bit == bit91),
    };
    form_fits
        && (row.sms.0..=row.sms.1).contains(&sm.number())
        && row
            .when
            .iter()
            .all(|&(at, width, value)| bits(word, at, width) == u64::from(value))
}

struct Reader {
    word: u128,
    sm: Sm,
    row: &'static Row,
    operands: Operands,
}

impl Reader {
    fn field(&mut self, field: &Field) -> Result<(), DecodeError> {
        let form = bits(self.word, 9, 3) as u8;
        let swapped = matches!(form, 2 | 3 | 7);
        let file = match self.row.layout {
            Layout::Uniform(_) => File::UR,
            Layout::Alu(_) | Layout::Raw(..) => File::R,
        };
        match *field {
            Field::D(width) => self.push(Access::Def, file, 16, width),
            Field::A(width) => self.push(Access::Use, file, 24, width),
            Field::B(width) if swapped => self.push(Access::Use, file, 64, width),
            Field::C(width) if !swapped => self.push(Access::Use, file, 64, width),
            Field::B(width) | Field::C(width) | Field::Y(width) => match (self.row.layout, form) {
                (Layout::Uniform(_), 1) => self.push(Access::Use, file, 32, width),
                (Layout::Uniform(_), _) | (_, 2 | 4) => Ok(()),
                (_, 3 | 5) if bits(self.word, 91, 1) != 0 => self.run(
                    Access::Use,
                    File::UR,
                    (32, 6),
                    // The address of a constant bank has 64 bits.
                    2,
                ),
                (_, 3 | 5) => Ok(()),
                (_, 6 | 7) => self.push(Access::Use, File::UR, 32, width),
                _ => self.push(Access::Use, file, 32, width),
            },
            Field::At(access, file, at, width) => self.push(access, file, at, width),
            Field::If(at, width, value, field) => {
                if bits(self.word, at, width) == u64::from(value) {
                    self.field(field)?;
                }
                Ok(())
            }
            Field::Reversed => {
                let index = 7 - bits(self.word, 87, 3) as u8;
                if index < 7 {
                    self.imply(Access::Use, File::UP, index);
                }
                Ok(())
            }
            Field::Mask(access, file, at) => {
                let mask = bits(self.word, at, 7);
                for index in (0..7).filter(|index| mask >> index & 1 != 0) {
                    self.imply(access, file, index);
                }
                Ok(())
            }
        }
    }

    /// A register whose number no field of its own gives.
    fn imply(&mut self, access: Access, file: File, first: u8) {
        self.operands.push(Operand {
            file,
            first,
            width: 1,
            access,
            field: None,
            field_bits: 0,
        });
    }

    fn push(
        &mut self,
        access: Access,
        file: File,
        at: u8,
        width: Width,
    ) -> Result<(), DecodeError> {
        let width = match width {
            Width::Is(width) => Some(width),
            Width::Size => size(self.word).map(|bytes| bytes.div_ceil(4)),
            Width::By(width) => width(self.word),
        };
        let width = width.ok_or(DecodeError::Width {
            mnemonic: self.row.mnemonic,
            opcode: bits(self.word, 0, 12) as u16,
            word: self.word,
            sm: self.sm,
        })?;
        let field_bits = match file {
            File::R => 8,
            // The field has eight bits, of which URZ uses six.
            File::UR => 6,
            File::P | File::UP => 3,
            File::B => 4,
        };
        self.run(access, file, (at, field_bits), width)
    }

    fn run(
        &mut self,
        access: Access,
        file: File,
        (at, field_bits): (u8, u8),
        width: u8,
    ) -> Result<(), DecodeError> {
        let first = bits(self.word, at, field_bits) as u8;
        if width == 0 || file != File::B && first == file.registers() {
            return Ok(());
        }
        if u16::from(first) + u16::from(width) > u16::from(file.registers()) {
            return Err(DecodeError::Range {
                mnemonic: self.row.mnemonic,
                reg: Reg { file, index: first },
                width,
                word: self.word,
                sm: self.sm,
            });
        }
        self.operands.push(Operand {
            file,
            first,
            width,
            access,
            field: Some(at),
            field_bits,
        });
        Ok(())
    }
}

/// The access size in bytes that bits 73..76 give.
fn size(word: u128) -> Option<u8> {
    match bits(word, 73, 3) {
        0 | 1 => Some(1),
        2 | 3 => Some(2),
        4 => Some(4),
        5 => Some(8),
        6 => Some(16),
        _ => None,
    }
}

fn guard(word: u128, row: &Row) -> Option<Guard> {
    let index = bits(word, 12, 3) as u8;
    let negated = bits(word, 15, 1) != 0;
    if index == 7 && !negated {
        return None;
    }
    let uniform = row.pipe == Pipe::Uniform;
    let file = if uniform { File::UP } else { File::P };
    Some(Guard {
        reg: Reg { file, index },
        negated,
        never: index == 7,
    })
}

fn memory(word: u128, row: &Row) -> Option<Memory> {
    let (space, effect, sized) = row.memory?;
    Some(Memory {
        space,
        effect,
        bytes: if sized { size(word) } else { None },
    })
}

fn flow(word: u128, row: &Row, sm: Sm) -> Flow {
    let displacement = || place::long(word, sm.number()) * 4;
    match row.flow {
        FlowSpec::Next => Flow::Next,
        FlowSpec::Branch | FlowSpec::ConditionalBranch => Flow::Branch {
            displacement: displacement(),
            conditional: row.flow == FlowSpec::ConditionalBranch || bits(word, 87, 4) != 7,
        },
        FlowSpec::Indirect => Flow::IndirectBranch,
        FlowSpec::CallRelative => Flow::Call {
            target: CallTarget::Relative(displacement()),
        },
        FlowSpec::CallAbsolute => Flow::Call {
            target: CallTarget::Absolute(displacement() as u64),
        },
        FlowSpec::CallIndirect => Flow::Call {
            target: CallTarget::Indirect,
        },
        FlowSpec::CallIndirectRelative => Flow::Call {
            target: CallTarget::IndirectFrom(displacement()),
        },
        FlowSpec::Return => Flow::Return,
        FlowSpec::Exit => Flow::Exit,
        FlowSpec::Trap => Flow::Trap,
    }
}
