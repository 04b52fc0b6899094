//! The code of one function.

use crate::isa::{DecodeError, Inst, Sm, decode};

/// The bytes of one instruction.
const WORD: usize = 16;

/// Code cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The code of that SM is not read.
    #[error("sm_{0} is not supported: sm_75, sm_80, sm_86, sm_87, sm_89 and sm_90 are")]
    Sm(u32),
    /// The length is not a multiple of 16.
    #[error("{0} bytes of code are not a whole number of 16-byte instructions")]
    Length(usize),
    /// An instruction is not in the opcode table.
    #[error("at 0x{offset:04x}: {error}")]
    Inst {
        /// The offset in the code.
        offset: usize,
        /// What is not known about it.
        #[source]
        error: DecodeError,
    },
}

/// The decoded code of one function, or of a section with a kernel and the functions it calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    sm: Sm,
    insts: Vec<Inst>,
}

impl Code {
    /// Decodes code for an SM, by number: 90 for sm_90.
    pub fn decode(bytes: &[u8], sm: u32) -> Result<Self, CodeError> {
        let sm = Sm::new(sm).ok_or(CodeError::Sm(sm))?;
        let (words, rest) = bytes.as_chunks::<WORD>();
        if !rest.is_empty() {
            return Err(CodeError::Length(bytes.len()));
        }
        let insts = words
            .iter()
            .enumerate()
            .map(|(index, word)| {
                decode(u128::from_le_bytes(*word), sm).map_err(|error| CodeError::Inst {
                    offset: index * WORD,
                    error,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { sm, insts })
    }

    /// The SM.
    pub fn sm(&self) -> Sm {
        self.sm
    }

    /// The instructions, in order.
    pub fn insts(&self) -> &[Inst] {
        &self.insts
    }

    /// The same code with other instructions.
    pub(crate) fn with_insts(&self, insts: Vec<Inst>) -> Self {
        Self { sm: self.sm, insts }
    }

    /// The offset of an instruction.
    pub fn offset(index: usize) -> usize {
        index * WORD
    }

    /// The bytes. Encoding what was decoded gives the same bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.insts
            .iter()
            .flat_map(|inst| inst.word().to_le_bytes())
            .collect()
    }
}
