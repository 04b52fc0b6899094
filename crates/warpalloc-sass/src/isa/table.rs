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

use super::inst::{Effect, Latency, Pipe, Space};
use super::register::File;
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
use Field::{A, At, B, C, D, If, Mask, Y};
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

    /// Bit 91 may be either.
    const fn any91(self) -> Self {
        self.bit91(None)
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

    const fn from_sm(mut self, sm: u32) -> Self {
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

/// The rows. Opcodes in order of their nine bits.
pub(crate) static ROWS: &[Row] = &[row("MOV", 0x002, SECOND, Pipe::Alu, &[D(ONE), Y(ONE)])];
