//! New instructions: the few that spill code and its addresses need.
//!
//! Every word is decoded again before it is given out, so that what is built and what is read
//! have the same registers. A new instruction stalls one cycle, waits for nothing and signals
//! nothing; whoever puts it into code gives it its [`Control`](super::Control).

use super::Sm;
use super::decode::{bits, decode};
use super::inst::{Access, EncodeError, Inst, set_bits};
use super::register::{File, Reg};

/// A word of a constant bank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Constant {
    /// The bank.
    pub bank: u8,
    /// The offset in bytes, a multiple of four.
    pub offset: u16,
}

impl Constant {
    /// Threads of a block along x; y and z follow.
    pub const BLOCK_X: Self = Self { bank: 0, offset: 0 };
    /// Threads of a block along y.
    pub const BLOCK_Y: Self = Self { bank: 0, offset: 4 };
    /// The end of a thread's stack in local memory.
    pub const STACK: Self = Self {
        bank: 0,
        offset: 0x28,
    };
}

/// A source that need not be a general register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A general register; 255 is RZ.
    Reg(u8),
    /// A number.
    Immediate(u32),
    /// A word of a constant bank.
    Constant(Constant),
}

/// A special register that S2R reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SpecialRegister {
    /// The lane within the warp.
    Lane,
    /// The thread's x within the block.
    ThreadX,
    /// The thread's y within the block.
    ThreadY,
    /// The thread's z within the block.
    ThreadZ,
    /// The block's number within its cluster, sm_90 and later.
    BlockInCluster,
}

/// The width of a memory access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// One register.
    B32,
    /// Two registers.
    B64,
    /// Four registers.
    B128,
}

impl Width {
    fn size(self) -> u128 {
        match self {
            Self::B32 => 4,
            Self::B64 => 5,
            Self::B128 => 6,
        }
    }
}

/// An address in local or shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// A general register; 255 is RZ.
    pub register: u8,
    /// A uniform register that is added.
    pub uniform: Option<u8>,
    /// A number that is added.
    pub offset: i32,
}

/// A thread's memory, or its block's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpillMemory {
    /// LDL and STL.
    Local,
    /// LDS and STS.
    Shared,
}

/// Builds instructions for one SM.
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    sm: Sm,
}

/// The upper half of a word without a guard, waits or signals, stalling one cycle.
const PLAIN: u128 = 1 << 105 | 1 << 109 | 7 << 110 | 7 << 113 | 7 << 12;

impl Builder {
    /// A builder for this SM.
    pub fn new(sm: Sm) -> Self {
        Self { sm }
    }

    /// The SM.
    pub fn sm(self) -> Sm {
        self.sm
    }

    fn finish(self, fields: &[(u8, u8, u128)]) -> Result<Inst, EncodeError> {
        let mut word = PLAIN;
        for &(at, width, value) in fields {
            set_bits(&mut word, at, width, value);
        }
        Ok(decode(word, self.sm)?)
    }

    /// `NOP`
    pub fn nop(self) -> Result<Inst, EncodeError> {
        self.finish(&[(0, 12, 0x918)])
    }

    /// `BRA distance`, counted from the next instruction.
    pub fn bra(self, distance: i64) -> Result<Inst, EncodeError> {
        // Stalls as ptxas's branches do, and is taken under no condition of its own.
        let branch = self.finish(&[(0, 12, 0x947), (87, 3, 7), (105, 4, 5)])?;
        branch.with_place(distance)
    }

    /// The opcode with its form and the second source in bits 32..64.
    fn second(
        self,
        mnemonic: &'static str,
        opcode: u16,
        source: Source,
    ) -> Result<[(u8, u8, u128); 2], EncodeError> {
        let (form, value) = match source {
            Source::Reg(register) => (1, register.into()),
            Source::Immediate(number) => (4, number.into()),
            Source::Constant(constant) => (5, constant.field(mnemonic)?),
        };
        let opcode = u128::from(opcode) | form << 9;
        Ok([(0, 12, opcode), (32, 32, value)])
    }

    /// `MOV dst, source`
    pub fn mov(self, dst: u8, source: Source) -> Result<Inst, EncodeError> {
        let [opcode, source] = self.second("MOV", 0x002, source)?;
        self.finish(&[opcode, source, (16, 8, dst.into()), (72, 4, 0xf)])
    }

    /// `S2R dst, special`
    pub fn s2r(self, dst: u8, special: SpecialRegister) -> Result<Inst, EncodeError> {
        let number = match special {
            SpecialRegister::Lane => 0x00,
            SpecialRegister::ThreadX => 0x21,
            SpecialRegister::ThreadY => 0x22,
            SpecialRegister::ThreadZ => 0x23,
            SpecialRegister::BlockInCluster => 0x88,
        };
        self.finish(&[(0, 12, 0x919), (16, 8, dst.into()), (72, 8, number)])
    }

    /// An opcode with three sources, of which the first and the third are registers.
    fn three(
        self,
        (mnemonic, opcode, modifiers): (&'static str, u16, u128),
        (dst, first, second, third): (u8, u8, Source, u8),
    ) -> Result<Inst, EncodeError> {
        let [opcode, source] = self.second(mnemonic, opcode, second)?;
        self.finish(&[
            opcode,
            source,
            (16, 8, dst.into()),
            (24, 8, first.into()),
            (64, 8, third.into()),
            (72, 32, modifiers),
        ])
    }

    /// `IADD3 dst, first, second, third`
    pub fn iadd3(self, dst: u8, first: u8, second: Source, third: u8) -> Result<Inst, EncodeError> {
        self.three(("IADD3", 0x010, 0x7ffe0), (dst, first, second, third))
    }

    /// `IMAD dst, first, second, third`
    pub fn imad(self, dst: u8, first: u8, second: Source, third: u8) -> Result<Inst, EncodeError> {
        self.three(("IMAD", 0x024, 0x78e02), (dst, first, second, third))
    }

    /// `LEA dst, first, second, shift`: the first source shifted left, and the second added.
    pub fn lea(self, dst: u8, first: u8, second: Source, shift: u8) -> Result<Inst, EncodeError> {
        if shift > 31 {
            return Err(EncodeError::Value {
                mnemonic: "LEA",
                field: "shift",
                value: shift.into(),
            });
        }
        let modifiers = 0x78e00 | u128::from(shift) << 3;
        self.three(("LEA", 0x011, modifiers), (dst, first, second, 255))
    }

    /// `LOP3.LUT dst, first, second, RZ, 0xc0, !PT`: both sources, bit by bit.
    pub fn and(self, dst: u8, first: u8, second: Source) -> Result<Inst, EncodeError> {
        self.three(("LOP3", 0x012, 0x78ec0), (dst, first, second, 255))
    }

    /// `LOP3.LUT dst, first, second, RZ, 0x3c, !PT`: bits that differ.
    pub fn xor(self, dst: u8, first: u8, second: Source) -> Result<Inst, EncodeError> {
        self.three(("LOP3", 0x012, 0x78e3c), (dst, first, second, 255))
    }

    /// `SHF.R.U32.HI dst, RZ, amount, source`
    pub fn shift_right(self, dst: u8, source: u8, amount: u32) -> Result<Inst, EncodeError> {
        let second = Source::Immediate(amount);
        self.three(("SHF", 0x019, 0x00116), (dst, 255, second, source))
    }

    /// `LDC dst, c[bank][offset]`
    pub fn ldc(self, dst: u8, constant: Constant) -> Result<Inst, EncodeError> {
        let source = constant.field("LDC")?;
        self.finish(&[
            (0, 12, 0xb82),
            (16, 8, dst.into()),
            (24, 8, 255),
            (32, 32, source),
            (73, 3, 4),
        ])
    }

    /// `ULDC dst, c[bank][offset]`
    pub fn uldc(self, dst: u8, constant: Constant) -> Result<Inst, EncodeError> {
        let source = constant.field("ULDC")?;
        self.finish(&[
            (0, 12, 0xab9),
            (16, 8, dst.into()),
            (32, 32, source),
            (73, 3, 4),
        ])
    }

    /// `UIADD3 dst, first, number, URZ`
    pub fn uiadd3(self, dst: u8, first: u8, number: u32) -> Result<Inst, EncodeError> {
        self.finish(&[
            (0, 12, 0x890),
            (16, 8, dst.into()),
            (24, 8, first.into()),
            (32, 32, number.into()),
            (64, 8, 63),
            (72, 32, 0xfffe0),
        ])
    }

    /// `LDL dst, [address]` or `LDS dst, [address]`
    pub fn load(
        self,
        memory: SpillMemory,
        width: Width,
        dst: u8,
        address: Address,
    ) -> Result<Inst, EncodeError> {
        let (mnemonic, opcode, cache) = match memory {
            SpillMemory::Local => ("LDL", 0x983, 1),
            SpillMemory::Shared => ("LDS", 0x984, 0),
        };
        self.finish(&[
            (0, 12, opcode),
            (16, 8, dst.into()),
            (24, 8, address.register.into()),
            (32, 8, address.uniform.unwrap_or(0).into()),
            (40, 24, address.field(mnemonic)?),
            (73, 3, width.size()),
            (84, 1, cache),
            (91, 1, address.uniform.is_some().into()),
        ])
    }

    /// `STL [address], source` or `STS [address], source`
    pub fn store(
        self,
        memory: SpillMemory,
        width: Width,
        address: Address,
        source: u8,
    ) -> Result<Inst, EncodeError> {
        let (mnemonic, opcode, cache) = match memory {
            SpillMemory::Local => ("STL", 0x187, 1),
            SpillMemory::Shared => ("STS", 0x188, 0),
        };
        let form = if address.uniform.is_some() { 4 } else { 1 };
        self.finish(&[
            (0, 12, opcode | form << 9),
            (24, 8, address.register.into()),
            (32, 8, source.into()),
            (40, 24, address.field(mnemonic)?),
            (64, 8, address.uniform.unwrap_or(0).into()),
            (73, 3, width.size()),
            (84, 1, cache),
            (91, 1, address.uniform.is_some().into()),
        ])
    }
}

impl Constant {
    /// As bits 32..64 hold it.
    fn field(self, mnemonic: &'static str) -> Result<u128, EncodeError> {
        let wrong = |field, value| EncodeError::Value {
            mnemonic,
            field,
            value,
        };
        if self.bank > 31 {
            return Err(wrong("bank of constants", self.bank.into()));
        }
        if !self.offset.is_multiple_of(4) {
            return Err(wrong("offset of a constant", self.offset.into()));
        }
        Ok(u128::from(self.offset) << 6 | u128::from(self.bank) << 22)
    }
}

impl Address {
    /// As bits 40..64 hold the offset.
    fn field(self, mnemonic: &'static str) -> Result<u128, EncodeError> {
        match (-(1 << 23)..1 << 23).contains(&self.offset) {
            true => Ok((self.offset as u128) & 0xff_ffff),
            false => Err(EncodeError::Value {
                mnemonic,
                field: "offset",
                value: self.offset.into(),
            }),
        }
    }
}

impl Inst {
    /// The address of a load or store of local or shared memory (LDL, STL, LDS, STS), where its
    /// register is not scaled.
    pub fn spill_address(&self) -> Option<(SpillMemory, Address)> {
        let word = self.word();
        let is_uniform = bits(word, 91, 1) != 0;
        let (memory, uniform_at) = match bits(word, 0, 12) {
            0x983 => (SpillMemory::Local, 32),
            0x984 => (SpillMemory::Shared, 32),
            0x387 | 0x987 => (SpillMemory::Local, 64),
            0x388 | 0x988 => (SpillMemory::Shared, 64),
            _ => return None,
        };
        if bits(word, 78, 2) != 0 {
            return None;
        }
        let address = Address {
            register: bits(word, 24, 8) as u8,
            uniform: is_uniform.then(|| bits(word, uniform_at, 6) as u8),
            offset: (bits(word, 40, 24) as i32) << 8 >> 8,
        };
        Some((memory, address))
    }

    /// The same load or store of local or shared memory at another address, in either memory:
    /// with its registers, width, guard and scheduling bits.
    pub fn with_spill_address(
        &self,
        memory: SpillMemory,
        address: Address,
    ) -> Result<Self, EncodeError> {
        let mnemonic = self.mnemonic();
        let Some((old, _)) = self.spill_address() else {
            return Err(EncodeError::Value {
                mnemonic,
                field: "address",
                value: address.offset.into(),
            });
        };
        let is_load = matches!(bits(self.word(), 0, 9), 0x183 | 0x184);
        let (opcode, uniform_at) = match (is_load, memory) {
            (true, SpillMemory::Local) => (0x183, 32),
            (true, SpillMemory::Shared) => (0x184, 32),
            (false, SpillMemory::Local) => (0x187, 64),
            (false, SpillMemory::Shared) => (0x188, 64),
        };
        let form = if is_load || address.uniform.is_some() {
            4
        } else {
            1
        };
        let mut word = self.word();
        set_bits(&mut word, 0, 12, opcode | form << 9);
        set_bits(&mut word, 24, 8, address.register.into());
        set_bits(
            &mut word,
            uniform_at,
            8,
            address.uniform.unwrap_or(0).into(),
        );
        set_bits(&mut word, 40, 24, address.field(mnemonic)?);
        set_bits(&mut word, 91, 1, address.uniform.is_some().into());
        if memory != old {
            // How local memory is cached; shared memory is not.
            let cache = u128::from(memory == SpillMemory::Local);
            set_bits(&mut word, 84, 4, cache);
        }
        Ok(decode(word, self.sm())?)
    }

    /// One register of a load or store of several, with the word it has in memory at `address`.
    pub fn spilled_word(
        &self,
        number: u8,
        memory: SpillMemory,
        address: Address,
    ) -> Result<Self, EncodeError> {
        let mut whole = self.with_spill_address(memory, address)?;
        let is_load = matches!(bits(self.word(), 0, 9), 0x183 | 0x184);
        let at = if is_load { 16 } else { 32 };
        let register = bits(whole.word, at, 8);
        // RZ stays RZ: a store of several zeros.
        if register != 255 {
            set_bits(
                &mut whole.word,
                at,
                8,
                (register + u64::from(number)).into(),
            );
        }
        set_bits(&mut whole.word, 73, 3, 4);
        Ok(decode(whole.word, self.sm())?)
    }

    /// The register that `MOV dst, src` or `IMAD.MOV.U32 dst, RZ, RZ, src` copies, without a
    /// guard.
    pub fn copied(&self) -> Option<Reg> {
        let word = self.word();
        let is_move = match bits(word, 0, 12) {
            0x202 => bits(word, 72, 4) == 0xf,
            // RZ twice: the product is zero. Nothing is carried in or negated.
            0x224 => bits(word, 24, 8) == 255 && bits(word, 32, 8) == 255 && bits(word, 74, 2) == 0,
            _ => false,
        };
        if !is_move || self.guard().is_some() {
            return None;
        }
        let mut uses = self.operands().iter().filter(|o| o.access == Access::Use);
        let source = uses.next()?;
        let is_one = source.file == File::R && source.width == 1 && uses.next().is_none();
        is_one.then_some(Reg {
            file: File::R,
            index: source.first,
        })
    }

    /// The number that `MOV dst, number` or `IMAD.MOV.U32 dst, RZ, RZ, number` gives its
    /// register, without a guard.
    pub fn moved_immediate(&self) -> Option<u32> {
        let word = self.word();
        let is_move = match bits(word, 0, 12) {
            0x802 => bits(word, 72, 4) == 0xf,
            // RZ twice: the product is zero.
            0x424 => bits(word, 24, 8) == 255 && bits(word, 64, 8) == 255 && bits(word, 74, 1) == 0,
            _ => false,
        };
        (is_move && self.guard().is_none()).then(|| bits(word, 32, 32) as u32)
    }

    /// The same move with another number.
    pub fn with_moved_immediate(&self, number: u32) -> Result<Self, EncodeError> {
        let mut word = self.word();
        if self.moved_immediate().is_none() {
            return Err(EncodeError::Value {
                mnemonic: self.mnemonic(),
                field: "number",
                value: number.into(),
            });
        }
        set_bits(&mut word, 32, 32, number.into());
        Ok(decode(word, self.sm())?)
    }
}
