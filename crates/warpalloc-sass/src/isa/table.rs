//! The opcode table: every form that is read, with its registers, widths and effects.
//!
//! An opcode is bits 0..9 of the word, its form bits 9..12 and bit 91. Most arithmetic
//! opcodes share seven forms, which say where the second and third source stand and what
//! they are:
//!
//! | form | bits 32..64 | bits 64..72 | bit 91 |
//! |---|---|---|---|
//! | 1 | second source, register | third, register | 0 |
//! | 2 | third, immediate | second, register | 0 |
//! | 3 | third, constant bank | second, register | 0, or 1 for a bank in a uniform register |
//! | 4 | second, immediate | third, register | 0 |
//! | 5 | second, constant bank | third, register | as 3 |
//! | 6 | second, uniform register | third, register | 1 |
//! | 7 | third, uniform register | second, register | 1 |
//!
//! Uniform opcodes have forms 1, 2 and 4 with uniform registers in every place and bit 91
//! set. All others spell out the twelve bits and the place of each register.

use super::decode::bits;
use super::inst::{Effect, Latency, Pipe, Space};
use super::register::File;
use super::tensor::*;
use super::texture::*;
use super::{Sm, inst::Access};

/// How many registers a field stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Width {
    /// As many as it says.
    Is(u8),
    /// As the access size in bits 73..76 says.
    Size,
    /// As the modifiers say. None where they say nothing that is known.
    By(fn(u128) -> Option<u8>),
}

/// Registers that an instruction reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// The result, in bits 16..24.
    D(Width),
    /// The first source, in bits 24..32.
    A(Width),
    /// The second source of an opcode with the shared forms.
    B(Width),
    /// The third source of an opcode with the shared forms.
    C(Width),
    /// The second source of an opcode with two, which the form puts in bits 32..64 always.
    Y(Width),
    /// A register in a place of its own.
    At(Access, File, u8, Width),
    /// The field is there where the bits from `at` on have this value.
    If(u8, u8, u8, &'static Field),
    /// A uniform predicate in bits 87..90 that counts down from UPT, which is 0.
    Reversed,
    /// Predicates that a mask in the immediate selects.
    Mask(Access, File, u8),
}

/// How a row's opcode and form are matched and where its fields are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// The shared forms; a bit for each admitted one.
    Alu(u8),
    /// The forms of the uniform datapath; a bit for each admitted one.
    Uniform(u8),
    /// Bits 9..12 of the opcode and bit 91, if it matters.
    Raw(u8, Option<bool>),
}

/// Which way control flow goes and where the target is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlowSpec {
    /// To the next instruction.
    Next,
    /// A branch: displacement in bits 16..24 and 34..82.
    Branch,
    /// A branch whose condition is in the instruction.
    ConditionalBranch,
    /// A branch to what registers say.
    Indirect,
    /// A call with a displacement.
    CallRelative,
    /// A call with an address.
    CallAbsolute,
    /// A call to what registers say.
    CallIndirect,
    /// A call to what registers say, counted from a displacement.
    CallIndirectRelative,
    /// A return to what registers say.
    Return,
    /// The thread ends.
    Exit,
    /// The thread traps.
    Trap,
}

/// One opcode with forms that have the same fields.
#[derive(Debug)]
pub(crate) struct Row {
    /// The mnemonic without modifiers.
    pub mnemonic: &'static str,
    /// Bits 0..9.
    pub code: u16,
    /// The forms.
    pub layout: Layout,
    /// Bits that must have a value: place, width, value.
    pub when: &'static [(u8, u8, u8)],
    /// The register fields.
    pub fields: &'static [Field],
    /// The unit.
    pub pipe: Pipe,
    /// Whether results come after an unknown time; none where the unit decides.
    pub variable: Option<bool>,
    /// The memory effect and whether bits 73..76 give the access size.
    pub memory: Option<(Space, Effect, bool)>,
    /// Control flow.
    pub flow: FlowSpec,
    /// Whether the instruction is read for liveness and statistics only.
    pub read_only: bool,
    /// The first and the last SM that have it.
    pub sms: (u32, u32),
}

impl Row {
    /// Whether results come after a known number of cycles.
    pub fn latency(&self, sm: Sm) -> Latency {
        let variable = self.variable.unwrap_or(match self.pipe {
            Pipe::Xu | Pipe::Memory | Pipe::Texture => true,
            // sm_90 schedules double precision by cycles.
            Pipe::Double => sm.number() < 90,
            Pipe::Alu | Pipe::Fma | Pipe::Half | Pipe::Tensor | Pipe::Uniform | Pipe::Control => {
                false
            }
        });
        match variable {
            true => Latency::Variable,
            false => Latency::Fixed,
        }
    }
}

use Access::{Def, Use};
use Field::{A, At, B, C, D, If, Mask, Reversed, Y};
use File::{P, R, UP, UR};
use FlowSpec as Go;
use Width::{By, Is, Size};

const fn row(
    mnemonic: &'static str,
    code: u16,
    layout: Layout,
    pipe: Pipe,
    fields: &'static [Field],
) -> Row {
    Row {
        mnemonic,
        code,
        layout,
        when: &[],
        fields,
        pipe,
        variable: None,
        memory: None,
        flow: FlowSpec::Next,
        read_only: false,
        sms: (75, 90),
    }
}

/// An opcode of twelve bits; bit 91 is clear.
const fn raw(mnemonic: &'static str, opcode: u16, pipe: Pipe, fields: &'static [Field]) -> Row {
    row(
        mnemonic,
        opcode & 0x1ff,
        Layout::Raw((opcode >> 9) as u8, Some(false)),
        pipe,
        fields,
    )
}

impl Row {
    /// Bit 91 is set.
    const fn set91(self) -> Self {
        self.bit91(Some(true))
    }

    const fn bit91(mut self, bit: Option<bool>) -> Self {
        if let Layout::Raw(form, _) = self.layout {
            self.layout = Layout::Raw(form, bit);
        }
        self
    }

    const fn when(mut self, when: &'static [(u8, u8, u8)]) -> Self {
        self.when = when;
        self
    }

    const fn variable(mut self) -> Self {
        self.variable = Some(true);
        self
    }

    const fn fixed(mut self) -> Self {
        self.variable = Some(false);
        self
    }

    const fn memory(mut self, space: Space, effect: Effect) -> Self {
        self.memory = Some((space, effect, true));
        self
    }

    const fn unsized_memory(mut self, space: Space, effect: Effect) -> Self {
        self.memory = Some((space, effect, false));
        self
    }

    const fn flow(mut self, flow: FlowSpec) -> Self {
        self.flow = flow;
        self
    }

    const fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    const fn since_sm(mut self, sm: u32) -> Self {
        self.sms.0 = sm;
        self
    }

    const fn until_sm(mut self, sm: u32) -> Self {
        self.sms.1 = sm;
        self
    }
}

const ONE: Width = Is(1);
const TWO: Width = Is(2);

/// Forms 1 to 7.
const ANY: Layout = Layout::Alu(0b1111_1110);
/// The forms of an opcode with one source or two, of which the second may be anything.
const SECOND: Layout = Layout::Alu(0b0111_0010);
/// The forms of an opcode that puts its second source where others have the third.
const THIRD: Layout = Layout::Alu(0b1000_1110);
const UNIFORM: Layout = Layout::Uniform(0b0001_0110);

const PD: Field = At(Def, P, 81, ONE);
const PD2: Field = At(Def, P, 84, ONE);
const PU: Field = At(Use, P, 87, ONE);
const PU2: Field = At(Use, P, 77, ONE);
const PU3: Field = At(Use, P, 68, ONE);
const UPD: Field = At(Def, UP, 81, ONE);
const UPD2: Field = At(Def, UP, 84, ONE);
const UPU: Field = At(Use, UP, 87, ONE);
const UPU2: Field = At(Use, UP, 77, ONE);
const UPU3: Field = At(Use, UP, 68, ONE);

/// A register pair where bit 80 is set.
fn wide80(word: u128) -> Option<u8> {
    Some(1 + bits(word, 80, 1) as u8)
}

/// A register pair where bit 73 is set.
fn wide73(word: u128) -> Option<u8> {
    Some(1 + bits(word, 73, 1) as u8)
}

/// A register pair where the address has 64 bits: bit 90.
fn address(word: u128) -> Option<u8> {
    Some(1 + bits(word, 90, 1) as u8)
}

/// A register pair where the address has 64 bits: bit 72.
fn extended(word: u128) -> Option<u8> {
    Some(1 + bits(word, 72, 1) as u8)
}

/// The type of a conversion's result, in bits 75..77.
fn converted(word: u128) -> Option<u8> {
    Some(if bits(word, 75, 2) == 3 { 2 } else { 1 })
}

/// The type of a conversion's source, in bits 84..86.
fn convertible(word: u128) -> Option<u8> {
    Some(if bits(word, 84, 2) == 3 { 2 } else { 1 })
}

/// The type of an atomic operation up to sm_89, in bits 73..77.
fn atomic80(word: u128) -> Option<u8> {
    match bits(word, 73, 4) {
        // U32, S32, F32.FTZ.RN, F16x2.RN
        0 | 1 | 3 | 4 => Some(1),
        // U64, S64, F64.RN
        2 | 5 | 6 => Some(2),
        _ => None,
    }
}

/// The type of an atomic operation on integers on sm_90, in bits 73..76.
fn atomic90(word: u128) -> Option<u8> {
    match bits(word, 73, 3) {
        // U32, S32
        0 | 1 => Some(1),
        // U64, S64
        2 | 3 => Some(2),
        // B128
        4 => Some(4),
        _ => None,
    }
}

/// The type of an atomic operation on floating-point numbers on sm_90, in bits 73..77.
fn atomic_float90(word: u128) -> Option<u8> {
    match bits(word, 73, 4) {
        // F16x2, BF16x2, F32.FTZ, F32
        0 | 3 | 9 | 12 => Some(1),
        // F16x4, BF16x4, F32x2.FTZ, F32x2, F64
        1 | 4 | 10 | 13 | 15 => Some(2),
        // F16x8, BF16x8, F32x4.FTZ, F32x4
        2 | 5 | 11 | 14 => Some(4),
        _ => None,
    }
}

/// The type of an atomic operation on shared memory, in bits 73..76.
fn atomic_shared(word: u128) -> Option<u8> {
    match bits(word, 73, 3) {
        // U32, S32
        0 | 1 => Some(1),
        // U64
        2 => Some(2),
        _ => None,
    }
}

/// The type of a compare-and-swap on global memory, in bits 73..77.
fn atomic_cas(word: u128) -> Option<u8> {
    match bits(word, 73, 4) {
        0 => Some(1),
        2 => Some(2),
        _ => None,
    }
}

/// The access size of a constant load, in bits 73..76: at most 64 bits.
fn constant(word: u128) -> Option<u8> {
    match bits(word, 73, 3) {
        0..=4 => Some(1),
        5 => Some(2),
        _ => None,
    }
}

/// The matrices that LDSM loads, in bits 72..74; each is one register.
fn matrices(word: u128) -> Option<u8> {
    match bits(word, 72, 2) {
        0 => Some(1),
        1 => Some(2),
        2 => Some(4),
        _ => None,
    }
}

/// Registers of a tensor map's coordinates, by the dimensions in bits 79..82, and what else
/// stands with them: the shared address, and for a load its barrier.
fn tensor_load(word: u128) -> Option<u8> {
    dimensions(word).map(|dimensions| dimensions + 2)
}

fn tensor_store(word: u128) -> Option<u8> {
    dimensions(word).map(|dimensions| dimensions + 1)
}

fn tensor_prefetch(word: u128) -> Option<u8> {
    dimensions(word)
}

fn dimensions(word: u128) -> Option<u8> {
    match bits(word, 79, 3) {
        dimensions @ 0..=4 => Some(dimensions as u8 + 1),
        _ => None,
    }
}

/// The source address of UBLKCP: global where bit 74 is clear.
fn bulk_source(word: u128) -> Option<u8> {
    Some(2 - bits(word, 74, 1) as u8)
}

/// The rows. Opcodes in order of their nine bits.
#[rustfmt::skip]
pub(crate) static ROWS: &[Row] = &[
    // Moves, selections, comparisons.
    row("MOV", 0x002, SECOND, Pipe::Alu, &[D(ONE), Y(ONE)]),
    raw("P2R", 0x803, Pipe::Alu, &[D(ONE), A(ONE), Mask(Use, P, 32)]),
    raw("R2P", 0x804, Pipe::Alu, &[A(ONE), Mask(Def, P, 32)]),
    raw("CS2R", 0x805, Pipe::Alu, &[D(By(wide80))]),
    raw("VOTE", 0x806, Pipe::Alu, &[D(ONE), PD, PU]),
    row("SEL", 0x007, SECOND, Pipe::Alu, &[D(ONE), A(ONE), Y(ONE), PU]),
    row("FSEL", 0x008, SECOND, Pipe::Alu, &[D(ONE), A(ONE), Y(ONE), PU]),
    row("FMNMX", 0x009, SECOND, Pipe::Alu, &[D(ONE), A(ONE), Y(ONE), PU]),
    row("FSET", 0x00a, SECOND, Pipe::Alu, &[D(ONE), A(ONE), Y(ONE), PU]),
    row("FSETP", 0x00b, SECOND, Pipe::Alu, &[A(ONE), Y(ONE), PD, PD2, PU]),
    row("ISETP", 0x00c, SECOND, Pipe::Alu, &[A(ONE), Y(ONE), PD, PD2, PU, If(72, 1, 1, &PU3)]),
    row("VIMNMX3", 0x00f, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), C(ONE), PU]).since_sm(90),

    // Integers.
    row("IADD3", 0x010, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), C(ONE), PD, PD2, If(74, 1, 1, &PU), If(74, 1, 1, &PU2)]),
    row("LEA", 0x011, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), If(80, 1, 1, &C(ONE)), PD, If(74, 1, 1, &PU)]),
    row("LOP3", 0x012, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), C(ONE), PD, PU]),
    row("IABS", 0x013, SECOND, Pipe::Alu, &[D(ONE), Y(ONE)]),
    row("VABSDIFF", 0x014, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), C(ONE), PD]),
    row("VABSDIFF4", 0x015, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), C(ONE), PD]),
    row("PRMT", 0x016, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), C(ONE)]),
    row("IMNMX", 0x017, SECOND, Pipe::Alu, &[D(ONE), A(ONE), Y(ONE), PU]).until_sm(89),
    row("SHF", 0x019, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), C(ONE)]),
    row("SGXT", 0x01a, SECOND, Pipe::Alu, &[D(ONE), A(ONE), Y(ONE)]),
    row("BMSK", 0x01b, SECOND, Pipe::Alu, &[D(ONE), A(ONE), Y(ONE)]),
    raw("PLOP3", 0x81c, Pipe::Alu, &[PD, PD2, PU, PU2, If(67, 1, 0, &PU3), If(67, 1, 1, &UPU3)]),

    raw("PLOP3", 0x21f, Pipe::Alu, &[PD, PD2, A(ONE), At(Use, R, 32, ONE), At(Use, R, 64, ONE)]),

    // Single precision and integer multiplication.
    row("FMUL", 0x020, SECOND, Pipe::Fma, &[D(ONE), A(ONE), Y(ONE)]),
    row("FADD", 0x021, THIRD, Pipe::Fma, &[D(ONE), A(ONE), Y(ONE)]),
    raw("FSWZADD", 0x822, Pipe::Fma, &[D(ONE), A(ONE), At(Use, R, 64, ONE)]),
    row("FFMA", 0x023, ANY, Pipe::Fma, &[D(ONE), A(ONE), B(ONE), C(ONE)]),
    row("IMAD", 0x024, ANY, Pipe::Fma, &[D(ONE), A(ONE), B(ONE), C(ONE), If(74, 1, 1, &PU)]),
    row("IMAD", 0x025, ANY, Pipe::Fma, &[D(TWO), A(ONE), B(ONE), C(TWO), PD, If(74, 1, 1, &PU)]),
    row("IDP", 0x026, ANY, Pipe::Fma, &[D(ONE), A(ONE), B(ONE), C(ONE)]),
    row("IMAD", 0x027, ANY, Pipe::Fma, &[D(ONE), A(ONE), B(ONE), C(TWO), PD, If(74, 1, 1, &PU)]),

    // Double precision.
    row("DMUL", 0x028, SECOND, Pipe::Double, &[D(TWO), A(TWO), Y(TWO)]),
    row("DADD", 0x029, THIRD, Pipe::Double, &[D(TWO), A(TWO), C(TWO)]),
    row("DSETP", 0x02a, THIRD, Pipe::Double, &[A(TWO), Y(TWO), PD, PD2, PU]),
    row("DFMA", 0x02b, ANY, Pipe::Double, &[D(TWO), A(TWO), B(TWO), C(TWO)]),

    raw("PREEXIT", 0x82d, Pipe::Control, &[]).since_sm(90).read_only(),
    raw("ACQBULK", 0x82e, Pipe::Control, &[]).since_sm(90).read_only(),
    raw("ELECT", 0x82f, Pipe::Control, &[PD, At(Def, UR, 16, ONE), PU]).since_sm(90).read_only(),

    // Half precision.
    row("HADD2", 0x030, THIRD, Pipe::Half, &[D(ONE), A(ONE), Y(ONE)]),
    row("HFMA2", 0x031, ANY, Pipe::Half, &[D(ONE), A(ONE), B(ONE), C(ONE), If(79, 1, 1, &PU)]),
    row("HMUL2", 0x032, SECOND, Pipe::Half, &[D(ONE), A(ONE), Y(ONE)]),
    row("HSET2", 0x033, THIRD, Pipe::Half, &[D(ONE), A(ONE), Y(ONE), PU]),
    row("HSETP2", 0x034, THIRD, Pipe::Half, &[A(ONE), Y(ONE), PD, PD2, PU]),
    row("HFMA2", 0x035, ANY, Pipe::Half, &[D(ONE), A(ONE), B(ONE), C(ONE), If(79, 1, 1, &PU)]),
    row("VIADD", 0x036, SECOND, Pipe::Alu, &[D(ONE), A(ONE), Y(ONE)]).since_sm(90),
    row("I2I", 0x038, SECOND, Pipe::Alu, &[D(ONE), Y(ONE)]),
    row("I2IP", 0x039, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), C(ONE)]),
    row("F2FP", 0x03e, SECOND, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), If(78, 1, 1, &C(ONE))]).since_sm(80),
    row("HMNMX2", 0x040, SECOND, Pipe::Half, &[D(ONE), A(ONE), Y(ONE), PU]).since_sm(80),
    raw("F2IP", 0x243, Pipe::Alu, &[D(ONE), A(ONE), At(Use, R, 32, ONE), At(Use, R, 64, ONE)]).since_sm(90),
    row("I2FP", 0x045, SECOND, Pipe::Alu, &[D(ONE), Y(ONE)]).since_sm(86),
    row("VIADDMNMX", 0x046, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), C(ONE), PU]).since_sm(90),
    row("VHMNMX", 0x047, ANY, Pipe::Alu, &[D(ONE), A(ONE), B(ONE), C(ONE), PU]).since_sm(90),
    row("VIMNMX", 0x048, SECOND, Pipe::Alu, &[D(ONE), A(ONE), Y(ONE), PU, PD, PD2]).since_sm(90),

    // Matrix products.
    raw("MOVM", 0x23a, Pipe::Tensor, &[D(ONE), A(ONE)]).when(&[(78, 2, 0)]).variable(),
    raw("LDSM", 0x83b, Pipe::Memory, &[D(By(matrices)), A(ONE)]).unsized_memory(Space::Shared, Effect::Load),
    raw("LDSM", 0x83b, Pipe::Memory, &[D(By(matrices)), A(ONE), At(Use, UR, 32, ONE)]).set91().unsized_memory(Space::Shared, Effect::Load),
    raw("HMMA", 0x23c, Pipe::Tensor, &[D(By(hmma_sum)), A(By(hmma_a)), At(Use, R, 32, By(hmma_b)), At(Use, R, 64, By(hmma_sum)), If(73, 1, 1, &At(Use, R, 40, ONE))]).when(&[(87, 4, 0)]),
    raw("IMMA", 0x237, Pipe::Tensor, &[D(By(imma75_sum)), A(By(imma75_a)), At(Use, R, 32, By(imma75_b)), At(Use, R, 64, By(imma75_sum))]).when(&[(87, 4, 0)]).variable().until_sm(75),
    raw("IMMA", 0x237, Pipe::Tensor, &[D(By(imma_sum)), A(By(imma_a)), At(Use, R, 32, By(imma_b)), At(Use, R, 64, By(imma_sum)), If(72, 1, 1, &At(Use, R, 40, ONE))]).when(&[(87, 4, 0)]).since_sm(80),
    raw("BMMA", 0x23d, Pipe::Tensor, &[D(By(bmma_sum)), A(By(bmma_a)), At(Use, R, 32, By(bmma_b)), At(Use, R, 64, By(bmma_sum))]).when(&[(87, 4, 0)]),
    raw("DMMA", 0x23f, Pipe::Tensor, &[D(Is(4)), A(TWO), At(Use, R, 32, TWO), At(Use, R, 64, Is(4))]).when(&[(76, 1, 0), (87, 4, 0)]).variable().since_sm(80).until_sm(89),
    raw("DMMA", 0x23f, Pipe::Tensor, &[D(By(dmma_sum)), A(By(dmma_a)), At(Use, R, 32, By(dmma_b)), At(Use, R, 64, By(dmma_sum))]).when(&[(87, 4, 0)]).variable().since_sm(90),
    raw("QMMA", 0x27a, Pipe::Tensor, &[D(By(qmma_sum)), A(By(qmma_a)), At(Use, R, 32, By(qmma_b)), At(Use, R, 64, By(qmma_sum)), Reversed, If(80, 1, 1, &At(Use, R, 40, ONE))]).since_sm(89),
    raw("HMMA", 0x236, Pipe::Tensor, &[D(TWO), A(TWO), At(Use, R, 32, TWO), At(Use, R, 64, TWO)]).when(&[(75, 2, 0)]).until_sm(75),
    raw("STSM", 0x844, Pipe::Memory, &[A(ONE), At(Use, R, 32, By(matrices))]).unsized_memory(Space::Shared, Effect::Store).since_sm(90),
    raw("HGMMA", 0x9f0, Pipe::Tensor, &[D(By(hgmma_sum)), At(Use, UR, 24, Is(4)), At(Use, R, 64, By(hgmma_sum)), Reversed, If(73, 1, 1, &At(Use, R, 40, ONE))]).set91().since_sm(90).read_only(),
    raw("HGMMA", 0xdf0, Pipe::Tensor, &[D(By(hgmma_sum)), A(Is(4)), At(Use, UR, 32, Is(4)), At(Use, R, 64, By(hgmma_sum)), Reversed]).set91().when(&[(73, 1, 0)]).since_sm(90).read_only(),

    raw("IGMMA", 0x9f1, Pipe::Tensor, &[D(By(igmma_sum)), At(Use, UR, 24, Is(4)), At(Use, R, 64, By(igmma_sum)), Reversed]).set91().when(&[(73, 1, 0)]).since_sm(90).read_only(),
    raw("IGMMA", 0xdf1, Pipe::Tensor, &[D(By(igmma_sum)), A(Is(4)), At(Use, UR, 32, Is(4)), At(Use, R, 64, By(igmma_sum)), Reversed]).set91().when(&[(73, 1, 0)]).since_sm(90).read_only(),
    raw("QGMMA", 0x9f3, Pipe::Tensor, &[D(By(qgmma_sum)), At(Use, UR, 24, Is(4)), At(Use, R, 64, By(qgmma_sum)), Reversed]).set91().when(&[(73, 1, 0)]).since_sm(90).read_only(),

    // The uniform datapath.
    raw("PMTRIG", 0x801, Pipe::Control, &[PU]),
    raw("UMOV", 0x882, Pipe::Uniform, &[At(Def, UR, 16, ONE)]),
    raw("UMOV", 0xc82, Pipe::Uniform, &[At(Def, UR, 16, ONE), At(Use, UR, 32, ONE)]).set91(),
    raw("UP2UR", 0x883, Pipe::Uniform, &[At(Def, UR, 16, ONE), At(Use, UR, 24, ONE), Mask(Use, UP, 32)]).set91(),
    raw("UR2UP", 0x884, Pipe::Uniform, &[At(Use, UR, 24, ONE), Mask(Def, UP, 32)]).set91(),
    raw("VOTEU", 0x886, Pipe::Alu, &[At(Def, UR, 16, ONE), UPD, PU]),
    row("USEL", 0x087, UNIFORM, Pipe::Uniform, &[D(ONE), A(ONE), Y(ONE), UPU]),
    row("UISETP", 0x08c, UNIFORM, Pipe::Uniform, &[A(ONE), Y(ONE), UPD, UPD2, UPU, If(72, 1, 1, &UPU3)]),
    row("UIADD3", 0x090, UNIFORM, Pipe::Uniform, &[D(ONE), A(ONE), B(ONE), C(ONE), UPD, UPD2, If(74, 1, 1, &UPU), If(74, 1, 1, &UPU2)]),
    // UIADD3.64: sums of pairs.
    row("UIADD3", 0x097, Layout::Uniform(0b0001_0010), Pipe::Uniform, &[D(TWO), A(TWO), B(TWO), C(TWO), UPD, UPD2, If(74, 1, 1, &UPU), If(74, 1, 1, &UPU2)]),
    row("ULEA", 0x091, UNIFORM, Pipe::Uniform, &[D(ONE), A(ONE), B(ONE), If(80, 1, 1, &C(ONE)), UPD, If(74, 1, 1, &UPU)]),
    row("ULOP3", 0x092, UNIFORM, Pipe::Uniform, &[D(ONE), A(ONE), B(ONE), C(ONE), UPD, UPU]),
    row("UPRMT", 0x096, UNIFORM, Pipe::Uniform, &[D(ONE), A(ONE), B(ONE), C(ONE)]),
    row("USHF", 0x099, UNIFORM, Pipe::Uniform, &[D(ONE), A(ONE), B(ONE), C(ONE)]),
    row("USGXT", 0x09a, UNIFORM, Pipe::Uniform, &[D(ONE), A(ONE), Y(ONE)]),
    row("UBMSK", 0x09b, UNIFORM, Pipe::Uniform, &[D(ONE), A(ONE), Y(ONE)]),
    raw("UPLOP3", 0x89c, Pipe::Uniform, &[UPD, UPD2, UPU, UPU2, UPU3]),
    row("UIMAD", 0x0a4, UNIFORM, Pipe::Uniform, &[D(ONE), A(ONE), B(ONE), C(ONE), If(74, 1, 1, &UPU)]),
    row("UIMAD", 0x0a5, UNIFORM, Pipe::Uniform, &[D(TWO), A(ONE), B(ONE), C(TWO), UPD, If(74, 1, 1, &UPU)]),
    raw("ULDC", 0xab9, Pipe::Uniform, &[At(Def, UR, 16, By(constant))]).memory(Space::Constant, Effect::Load),
    raw("ULDC", 0xabb, Pipe::Uniform, &[At(Def, UR, 16, By(constant)), At(Use, UR, 24, ONE)]).set91().memory(Space::Constant, Effect::Load),
    row("UFLO", 0x0bd, UNIFORM, Pipe::Uniform, &[D(ONE), Y(ONE), UPD]),
    row("UBREV", 0x0be, UNIFORM, Pipe::Uniform, &[D(ONE), Y(ONE)]),
    row("UPOPC", 0x0bf, UNIFORM, Pipe::Uniform, &[D(ONE), Y(ONE)]),
    raw("R2UR", 0x2ca, Pipe::Alu, &[At(Def, UR, 16, ONE), A(ONE), PD]).since_sm(90),

    // Conversions and transcendental functions.
    row("FLO", 0x100, SECOND, Pipe::Xu, &[D(ONE), Y(ONE), PD]),
    row("BREV", 0x101, SECOND, Pipe::Xu, &[D(ONE), Y(ONE)]),
    row("FCHK", 0x102, SECOND, Pipe::Xu, &[PD, A(ONE), Y(ONE)]),
    row("F2F", 0x104, SECOND, Pipe::Xu, &[D(ONE), Y(ONE)]),
    row("F2I", 0x105, SECOND, Pipe::Xu, &[D(ONE), Y(ONE)]),
    row("I2F", 0x106, SECOND, Pipe::Xu, &[D(ONE), Y(ONE)]),
    row("FRND", 0x107, SECOND, Pipe::Xu, &[D(ONE), Y(ONE)]),
    row("MUFU", 0x108, SECOND, Pipe::Xu, &[D(ONE), Y(ONE)]),
    row("POPC", 0x109, SECOND, Pipe::Xu, &[D(ONE), Y(ONE)]),
    row("F2F", 0x110, SECOND, Pipe::Xu, &[D(By(converted)), Y(By(convertible))]),
    row("F2I", 0x111, SECOND, Pipe::Xu, &[D(By(converted)), Y(By(convertible))]),
    row("I2F", 0x112, SECOND, Pipe::Xu, &[D(By(converted)), Y(By(convertible))]),
    row("FRND", 0x113, SECOND, Pipe::Xu, &[D(TWO), Y(TWO)]).when(&[(75, 2, 3), (84, 2, 3)]),

    // Special registers, barriers.
    raw("NOP", 0x918, Pipe::Control, &[]),
    raw("S2R", 0x919, Pipe::Control, &[D(ONE)]).variable(),
    raw("DEPBAR", 0x91a, Pipe::Control, &[]),
    raw("ENDCOLLECTIVE", 0x91b, Pipe::Control, &[PU]),
    raw("B2R", 0x31c, Pipe::Control, &[D(ONE), PD]).variable(),
    raw("BAR", 0x31d, Pipe::Control, &[At(Use, R, 32, ONE), If(77, 2, 2, &PU)]),
    raw("BAR", 0x51d, Pipe::Control, &[At(Use, R, 32, ONE), If(77, 2, 2, &PU)]),
    raw("BAR", 0x91d, Pipe::Control, &[At(Use, R, 32, ONE), If(77, 2, 2, &PU)]),
    raw("BAR", 0xb1d, Pipe::Control, &[If(77, 2, 2, &PU)]),

    // Control flow.
    raw("BSYNC", 0x941, Pipe::Control, &[At(Use, File::B, 16, ONE), PU]),
    raw("BREAK", 0x942, Pipe::Control, &[At(Use, File::B, 16, ONE), PU]),
    raw("CALL", 0x343, Pipe::Control, &[A(TWO), PU]).flow(Go::CallIndirect),
    raw("CALL", 0x344, Pipe::Control, &[A(TWO), PU]).flow(Go::CallIndirectRelative),
    raw("CALL", 0x943, Pipe::Control, &[PU]).flow(Go::CallAbsolute),
    raw("CALL", 0x944, Pipe::Control, &[PU]).flow(Go::CallRelative),
    raw("BSSY", 0x945, Pipe::Control, &[At(Def, File::B, 16, ONE)]),
    raw("YIELD", 0x946, Pipe::Control, &[PU]),
    raw("BRA", 0x947, Pipe::Control, &[PU]).flow(Go::Branch),
    raw("BRA", 0x947, Pipe::Control, &[At(Use, UR, 24, ONE), PU]).set91().flow(Go::ConditionalBranch),
    raw("BRA", 0x547, Pipe::Control, &[At(Use, UP, 24, ONE), PU]).set91().flow(Go::ConditionalBranch),
    raw("WARPSYNC", 0x348, Pipe::Control, &[At(Use, R, 32, ONE), PU]).until_sm(89),
    raw("WARPSYNC", 0x348, Pipe::Control, &[A(ONE), PU]).since_sm(90),
    raw("WARPSYNC", 0x948, Pipe::Control, &[PU]),
    raw("BRX", 0x949, Pipe::Control, &[A(TWO), PU]).flow(Go::Indirect),
    raw("EXIT", 0x94d, Pipe::Control, &[PU]).flow(Go::Exit),
    raw("LEPC", 0x34e, Pipe::Control, &[D(TWO)]),
    raw("LEPC", 0x94e, Pipe::Control, &[D(TWO)]),
    raw("RET", 0x950, Pipe::Control, &[A(TWO), PU]).flow(Go::Return),
    raw("BMOV", 0x355, Pipe::Control, &[D(ONE), At(Use, File::B, 24, ONE)]).when(&[(28, 4, 0)]).variable(),
    raw("BMOV", 0x356, Pipe::Control, &[At(Def, File::B, 24, ONE), At(Use, R, 32, ONE)]).when(&[(28, 4, 0)]),
    raw("BMOV", 0xf55, Pipe::Control, &[At(Def, File::B, 16, ONE), At(Use, File::B, 24, ONE)]).when(&[(20, 4, 0), (28, 4, 0)]),
    // 0x1a is the mask of active threads.
    raw("BMOV", 0xf55, Pipe::Control, &[At(Def, File::B, 16, ONE)]).when(&[(20, 4, 0), (24, 8, 0x1a)]),
    raw("BMOV", 0xf56, Pipe::Control, &[At(Use, File::B, 16, ONE)]).when(&[(20, 4, 0), (24, 8, 0x1a)]),
    raw("BMOV", 0x956, Pipe::Control, &[At(Def, File::B, 24, ONE)]).when(&[(28, 4, 0)]),
    raw("BRXU", 0x958, Pipe::Control, &[At(Use, UR, 24, TWO), PU]).set91().flow(Go::Indirect),
    raw("KILL", 0x95b, Pipe::Control, &[PU]).flow(Go::Exit),
    raw("BPT", 0x95c, Pipe::Control, &[]).flow(Go::Trap),
    raw("NANOSLEEP", 0x95d, Pipe::Control, &[PU]),
    raw("NANOSLEEP", 0x35d, Pipe::Control, &[At(Use, R, 32, ONE), PU]),

    // Textures and surfaces.
    raw("TEX", 0x361, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(By(bindless_first)), At(Use, R, 32, By(bindless_second)), PD]).when(&[(59, 1, 1)]).unsized_memory(Space::Texture, Effect::Load).until_sm(89),
    raw("TEX", 0xb60, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(By(bound_first)), At(Use, R, 32, By(bound_second)), PD]).when(&[(59, 1, 0)]).unsized_memory(Space::Texture, Effect::Load).until_sm(89),
    raw("TEX", 0xf60, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(By(bound_first)), At(Use, R, 32, By(bound_second)), At(Use, UR, 40, TWO), PD]).set91().when(&[(59, 1, 0)]).unsized_memory(Space::Texture, Effect::Load).since_sm(90),
    raw("TLD4", 0x364, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(By(bindless_first)), At(Use, R, 32, By(bindless_second)), PD]).when(&[(59, 1, 1)]).unsized_memory(Space::Texture, Effect::Load).until_sm(89),
    raw("TLD4", 0xb63, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(By(bound_first)), At(Use, R, 32, By(bound_second)), PD]).when(&[(59, 1, 0)]).unsized_memory(Space::Texture, Effect::Load).until_sm(89),
    raw("TLD4", 0xf63, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(By(bound_first)), At(Use, R, 32, By(bound_second)), At(Use, UR, 40, TWO), PD]).set91().when(&[(59, 1, 0)]).unsized_memory(Space::Texture, Effect::Load).since_sm(90),
    raw("TLD", 0x367, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(By(bindless_first)), At(Use, R, 32, By(bindless_second)), PD]).when(&[(59, 1, 1)]).unsized_memory(Space::Texture, Effect::Load).until_sm(89),
    raw("TLD", 0xb66, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(By(bound_first)), At(Use, R, 32, By(bound_second)), PD]).when(&[(59, 1, 0)]).unsized_memory(Space::Texture, Effect::Load).until_sm(89),
    raw("TLD", 0xf66, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(By(bound_first)), At(Use, R, 32, By(bound_second)), At(Use, UR, 40, TWO), PD]).set91().when(&[(59, 1, 0)]).unsized_memory(Space::Texture, Effect::Load).since_sm(90),
    raw("TXQ", 0x370, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(TWO)]).when(&[(59, 1, 1), (60, 4, 0)]).unsized_memory(Space::Texture, Effect::Load).until_sm(89),
    raw("TXQ", 0xf6f, Pipe::Texture, &[D(By(first_result)), At(Def, R, 64, By(second_result)), A(ONE), At(Use, UR, 40, TWO)]).set91().when(&[(60, 4, 0)]).unsized_memory(Space::Texture, Effect::Load).since_sm(90),
    raw("SULD", 0x99a, Pipe::Texture, &[D(Size), A(By(surface)), At(Use, R, 64, ONE), PD]).memory(Space::Surface, Effect::Load).until_sm(89),
    raw("SULD", 0xb99, Pipe::Texture, &[D(Size), A(By(surface)), PD]).memory(Space::Surface, Effect::Load).until_sm(89),
    raw("SULD", 0xf99, Pipe::Texture, &[D(Size), A(By(surface)), At(Use, UR, 40, ONE), PD]).set91().memory(Space::Surface, Effect::Load).since_sm(90),
    raw("SUST", 0x99e, Pipe::Texture, &[A(By(surface)), At(Use, R, 32, Size), At(Use, R, 64, ONE)]).memory(Space::Surface, Effect::Store).until_sm(89),
    raw("SUST", 0xb9d, Pipe::Texture, &[A(By(surface)), At(Use, R, 32, Size)]).memory(Space::Surface, Effect::Store).until_sm(89),
    raw("SUST", 0xf9d, Pipe::Texture, &[A(By(surface)), At(Use, R, 32, Size), At(Use, UR, 40, ONE)]).set91().memory(Space::Surface, Effect::Store).since_sm(90),
    raw("SURED", 0x3a0, Pipe::Texture, &[A(By(surface)), At(Use, R, 32, By(surface_reduction)), At(Use, R, 64, ONE)]).unsized_memory(Space::Surface, Effect::Reduction).until_sm(89),
    raw("SURED", 0xf9f, Pipe::Texture, &[A(By(surface)), At(Use, R, 32, By(surface_reduction)), At(Use, UR, 40, ONE)]).set91().unsized_memory(Space::Surface, Effect::Reduction).since_sm(90),

    // Memory.
    raw("LD", 0x980, Pipe::Memory, &[D(Size), A(By(address)), At(Use, UR, 32, TWO)]).set91().when(&[(72, 1, 1)]).memory(Space::Generic, Effect::Load),
    raw("LDG", 0x981, Pipe::Memory, &[D(Size), A(By(address)), At(Use, UR, 32, TWO), PD]).set91().when(&[(72, 1, 1)]).memory(Space::Global, Effect::Load),
    raw("LD", 0x980, Pipe::Memory, &[D(Size), A(By(extended))]).memory(Space::Generic, Effect::Load),
    raw("LDG", 0x381, Pipe::Memory, &[D(Size), A(By(extended)), PD]).memory(Space::Global, Effect::Load),
    raw("LDC", 0xb82, Pipe::Memory, &[D(By(constant)), A(ONE)]).memory(Space::Constant, Effect::Load),
    raw("LDL", 0x983, Pipe::Memory, &[D(Size), A(ONE)]).memory(Space::Local, Effect::Load),
    raw("LDL", 0x983, Pipe::Memory, &[D(Size), A(ONE), At(Use, UR, 32, ONE)]).set91().memory(Space::Local, Effect::Load),
    raw("LDS", 0x984, Pipe::Memory, &[D(Size), A(ONE)]).memory(Space::Shared, Effect::Load),
    raw("LDS", 0x984, Pipe::Memory, &[D(Size), A(ONE), At(Use, UR, 32, ONE)]).set91().memory(Space::Shared, Effect::Load),
    raw("ST", 0x985, Pipe::Memory, &[A(By(address)), At(Use, R, 32, Size), At(Use, UR, 64, TWO)]).set91().when(&[(72, 1, 1)]).memory(Space::Generic, Effect::Store),
    raw("STG", 0x986, Pipe::Memory, &[A(By(address)), At(Use, R, 32, Size), At(Use, UR, 64, TWO)]).set91().when(&[(72, 1, 1)]).memory(Space::Global, Effect::Store),
    raw("ST", 0x385, Pipe::Memory, &[A(By(extended)), At(Use, R, 64, Size)]).memory(Space::Generic, Effect::Store),
    raw("STG", 0x386, Pipe::Memory, &[A(By(extended)), At(Use, R, 32, Size)]).memory(Space::Global, Effect::Store),
    raw("STL", 0x387, Pipe::Memory, &[A(ONE), At(Use, R, 32, Size)]).memory(Space::Local, Effect::Store),
    raw("STL", 0x987, Pipe::Memory, &[A(ONE), At(Use, R, 32, Size), At(Use, UR, 64, ONE)]).set91().memory(Space::Local, Effect::Store),
    raw("STS", 0x388, Pipe::Memory, &[A(ONE), At(Use, R, 32, Size)]).memory(Space::Shared, Effect::Store),
    raw("STS", 0x988, Pipe::Memory, &[A(ONE), At(Use, R, 32, Size), At(Use, UR, 64, ONE)]).set91().memory(Space::Shared, Effect::Store),
    raw("SHFL", 0x389, Pipe::Memory, &[D(ONE), A(ONE), At(Use, R, 32, ONE), At(Use, R, 64, ONE), PD]),
    raw("SHFL", 0x589, Pipe::Memory, &[D(ONE), A(ONE), At(Use, R, 32, ONE), PD]),
    raw("SHFL", 0x989, Pipe::Memory, &[D(ONE), A(ONE), At(Use, R, 64, ONE), PD]),
    raw("SHFL", 0xf89, Pipe::Memory, &[D(ONE), A(ONE), PD]),
    raw("ATOM", 0x98a, Pipe::Memory, &[D(By(atomic80)), A(By(extended)), At(Use, R, 32, By(atomic80)), At(Use, UR, 64, TWO), PD]).set91().when(&[(72, 1, 1)]).unsized_memory(Space::Generic, Effect::Atomic).until_sm(89),
    raw("ATOM", 0x98a, Pipe::Memory, &[D(By(atomic90)), A(By(extended)), At(Use, R, 32, By(atomic90)), At(Use, UR, 64, TWO), PD]).set91().when(&[(72, 1, 1)]).unsized_memory(Space::Generic, Effect::Atomic).since_sm(90),
    raw("ATOM", 0x38a, Pipe::Memory, &[D(By(atomic80)), A(By(extended)), At(Use, R, 32, By(atomic80)), PD]).unsized_memory(Space::Generic, Effect::Atomic).until_sm(89),
    raw("ATOM", 0x38b, Pipe::Memory, &[D(By(atomic_cas)), A(By(extended)), At(Use, R, 32, By(atomic_cas)), At(Use, R, 64, By(atomic_cas)), PD]).unsized_memory(Space::Generic, Effect::Atomic),
    raw("ATOMG", 0x3a8, Pipe::Memory, &[D(By(atomic80)), A(By(extended)), At(Use, R, 32, By(atomic80)), PD]).unsized_memory(Space::Global, Effect::Atomic).until_sm(89),
    raw("ATOMG", 0x3a9, Pipe::Memory, &[D(By(atomic_cas)), A(By(extended)), At(Use, R, 32, By(atomic_cas)), At(Use, R, 64, By(atomic_cas)), PD]).unsized_memory(Space::Global, Effect::Atomic),
    raw("ATOMS", 0x98c, Pipe::Memory, &[D(By(atomic_shared)), A(ONE), At(Use, R, 32, By(atomic_shared)), At(Use, UR, 64, ONE)]).set91().unsized_memory(Space::Shared, Effect::Atomic),
    raw("ATOMS", 0x38c, Pipe::Memory, &[D(By(atomic_shared)), A(ONE), At(Use, R, 32, By(atomic_shared))]).unsized_memory(Space::Shared, Effect::Atomic),
    raw("ATOMS", 0xf8c, Pipe::Memory, &[D(By(atomic_shared)), A(ONE), At(Use, UR, 64, ONE)]).set91().unsized_memory(Space::Shared, Effect::Atomic),
    raw("ATOMS", 0x38d, Pipe::Memory, &[D(By(atomic_shared)), A(ONE), At(Use, R, 32, By(atomic_shared)), At(Use, R, 64, By(atomic_shared))]).unsized_memory(Space::Shared, Effect::Atomic),
    raw("RED", 0x98e, Pipe::Memory, &[A(By(extended)), At(Use, R, 32, By(atomic80)), At(Use, UR, 64, TWO)]).set91().when(&[(72, 1, 1)]).unsized_memory(Space::Global, Effect::Reduction).until_sm(89),
    raw("REDG", 0x98e, Pipe::Memory, &[A(By(extended)), At(Use, R, 32, By(atomic90)), At(Use, UR, 64, TWO)]).set91().when(&[(72, 1, 1)]).unsized_memory(Space::Global, Effect::Reduction).since_sm(90),
    raw("RED", 0x98e, Pipe::Memory, &[A(By(extended)), At(Use, R, 32, By(atomic80))]).unsized_memory(Space::Global, Effect::Reduction).until_sm(89),
    raw("CCTL", 0x98f, Pipe::Memory, &[A(By(extended))]).fixed().unsized_memory(Space::Generic, Effect::Cache),
    raw("MEMBAR", 0x992, Pipe::Memory, &[]).fixed(),
    raw("MATCH", 0x3a1, Pipe::Memory, &[D(ONE), A(By(wide73)), If(79, 1, 0, &PD)]),
    raw("ATOM", 0x9a2, Pipe::Memory, &[D(By(atomic_float90)), A(By(extended)), At(Use, R, 32, By(atomic_float90)), At(Use, UR, 64, TWO), PD]).set91().when(&[(72, 1, 1)]).unsized_memory(Space::Generic, Effect::Atomic).since_sm(90),
    raw("ATOMG", 0x9a3, Pipe::Memory, &[D(By(atomic_float90)), A(By(extended)), At(Use, R, 32, By(atomic_float90)), At(Use, UR, 64, TWO), PD]).set91().when(&[(72, 1, 1)]).unsized_memory(Space::Global, Effect::Atomic).since_sm(90),
    raw("REDG", 0x9a6, Pipe::Memory, &[A(By(extended)), At(Use, R, 32, By(atomic_float90)), At(Use, UR, 64, TWO)]).set91().when(&[(72, 1, 1)]).unsized_memory(Space::Global, Effect::Reduction).since_sm(90),
    raw("ATOMG", 0x9a8, Pipe::Memory, &[D(By(atomic80)), A(By(extended)), At(Use, R, 32, By(atomic80)), At(Use, UR, 64, TWO), PD]).set91().when(&[(72, 1, 1)]).unsized_memory(Space::Global, Effect::Atomic).until_sm(89),
    raw("ATOMG", 0x9a8, Pipe::Memory, &[D(By(atomic90)), A(By(extended)), At(Use, R, 32, By(atomic90)), At(Use, UR, 64, TWO), PD]).set91().when(&[(72, 1, 1)]).unsized_memory(Space::Global, Effect::Atomic).since_sm(90),
    raw("QSPC", 0x3aa, Pipe::Memory, &[D(ONE), A(By(extended)), PD]),
    raw("QSPC", 0x9aa, Pipe::Memory, &[D(ONE), At(Use, UR, 32, TWO), PD]).set91().when(&[(24, 8, 255)]),
    raw("CGAERRBAR", 0x5ab, Pipe::Memory, &[]).fixed().since_sm(90),
    raw("ERRBAR", 0x9ab, Pipe::Memory, &[]).fixed(),
    raw("LDGSTS", 0xfae, Pipe::Memory, &[At(Use, R, 16, ONE), A(TWO), At(Use, UR, 64, TWO), PU]).set91().memory(Space::Shared, Effect::AsyncCopy).since_sm(80),
    raw("LDGDEPBAR", 0x9af, Pipe::Memory, &[]).since_sm(80),
    raw("R2UR", 0x3c2, Pipe::Alu, &[At(Def, UR, 16, ONE), A(ONE), PD]).variable().until_sm(89),
    raw("S2UR", 0x9c3, Pipe::Control, &[At(Def, UR, 16, ONE)]).variable(),
    raw("REDUX", 0x3c4, Pipe::Memory, &[At(Def, UR, 16, ONE), A(ONE)]).since_sm(80),
    raw("SYNCS", 0x5a7, Pipe::Memory, &[PD, A(ONE), At(Use, R, 32, ONE), At(Use, UR, 64, ONE)]).set91().unsized_memory(Space::Shared, Effect::Atomic).since_sm(90).read_only(),
    raw("SYNCS", 0x9a7, Pipe::Memory, &[D(TWO), A(ONE), At(Use, R, 32, ONE), At(Use, UR, 64, ONE)]).set91().unsized_memory(Space::Shared, Effect::Atomic).since_sm(90).read_only(),
    raw("SYNCS", 0x5b2, Pipe::Uniform, &[At(Def, UR, 16, TWO), At(Use, UR, 24, ONE), At(Use, UR, 32, TWO)]).set91().unsized_memory(Space::Shared, Effect::Atomic).since_sm(90).variable().read_only(),
    raw("SYNCS", 0x9b1, Pipe::Memory, &[A(ONE), At(Use, UR, 64, ONE)]).set91().unsized_memory(Space::Shared, Effect::Cache).since_sm(90).read_only(),
    raw("ARRIVES", 0x9b0, Pipe::Memory, &[A(ONE), At(Use, UR, 64, ONE)]).set91().unsized_memory(Space::Shared, Effect::Atomic).since_sm(80).read_only(),
    raw("UTMALDG", 0x5b4, Pipe::Uniform, &[At(Use, UR, 32, By(tensor_load)), At(Use, UR, 24, TWO)]).set91().when(&[(76, 1, 0), (82, 1, 0)]).unsized_memory(Space::Shared, Effect::AsyncCopy).since_sm(90).variable().read_only(),
    raw("UTMALDG", 0x3b4, Pipe::Uniform, &[At(Use, UR, 32, By(tensor_load)), At(Use, UR, 24, TWO), At(Use, UR, 64, ONE)]).set91().when(&[(76, 1, 0)]).unsized_memory(Space::Shared, Effect::AsyncCopy).since_sm(90).variable().read_only(),
    raw("UTMASTG", 0x3b5, Pipe::Uniform, &[At(Use, UR, 32, By(tensor_store)), At(Use, UR, 24, TWO)]).set91().when(&[(76, 1, 0)]).unsized_memory(Space::Global, Effect::AsyncCopy).since_sm(90).variable().read_only(),
    raw("UTMAREDG", 0x3b6, Pipe::Uniform, &[At(Use, UR, 32, By(tensor_store)), At(Use, UR, 24, TWO)]).set91().when(&[(76, 1, 0)]).unsized_memory(Space::Global, Effect::AsyncCopy).since_sm(90).variable().read_only(),
    raw("UTMACMDFLUSH", 0x9b7, Pipe::Uniform, &[]).since_sm(90).variable().read_only(),
    raw("UTMAPF", 0x5b8, Pipe::Uniform, &[At(Use, UR, 32, By(tensor_prefetch)), At(Use, UR, 24, TWO)]).set91().when(&[(76, 1, 0), (82, 1, 0)]).unsized_memory(Space::Global, Effect::Cache).since_sm(90).variable().read_only(),
    raw("UTMACCTL", 0x9b9, Pipe::Uniform, &[At(Use, UR, 24, TWO)]).set91().unsized_memory(Space::Global, Effect::Cache).since_sm(90).variable().read_only(),
    raw("UBLKCP", 0x3ba, Pipe::Uniform, &[At(Use, UR, 32, TWO), At(Use, UR, 24, By(bulk_source)), At(Use, UR, 64, ONE)]).set91().when(&[(76, 1, 0)]).unsized_memory(Space::Shared, Effect::AsyncCopy).since_sm(90).variable().read_only(),
    raw("UBLKRED", 0x3bb, Pipe::Uniform, &[At(Use, UR, 32, TWO), At(Use, UR, 24, By(bulk_source)), At(Use, UR, 64, ONE)]).set91().when(&[(76, 1, 0)]).unsized_memory(Space::Global, Effect::AsyncCopy).since_sm(90).variable().read_only(),
    raw("UBLKPF", 0x3bc, Pipe::Uniform, &[At(Use, UR, 24, TWO), At(Use, UR, 64, ONE)]).set91().when(&[(76, 1, 0)]).unsized_memory(Space::Global, Effect::Cache).since_sm(90).variable().read_only(),
    raw("STAS", 0xdbd, Pipe::Memory, &[A(By(address)), At(Use, R, 32, Size)]).set91().when(&[(64, 6, 63)]).memory(Space::Shared, Effect::Store).since_sm(90).read_only(),
    raw("WARPGROUP", 0x9c5, Pipe::Control, &[]).since_sm(90).read_only(),
    raw("UCGABAR_ARV", 0x9c7, Pipe::Uniform, &[]).set91().since_sm(90).read_only(),
    raw("UCGABAR_WAIT", 0xdc7, Pipe::Uniform, &[]).set91().since_sm(90).read_only(),
    raw("USETMAXREG", 0x9c8, Pipe::Uniform, &[UPD]).set91().since_sm(90).read_only(),
    raw("FENCE", 0x3c6, Pipe::Memory, &[]).since_sm(90).read_only(),
];
