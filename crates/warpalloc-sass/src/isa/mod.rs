//! The instruction set: one table of opcodes, and what is read from it.

mod build;
mod decode;
mod inst;
mod place;
mod register;
mod table;
mod tensor;
mod texture;

pub use build::{Address, Builder, Constant, Source, SpecialRegister, SpillMemory, Width};
pub use decode::{DecodeError, decode};
pub use inst::{
    Access, CallTarget, Control, Effect, EncodeError, Flow, Guard, Inst, Latency, Memory, Operand,
    Pipe, Space,
};
pub use place::PlaceRef;
pub use register::{File, Reg, RegSet};

/// A streaming multiprocessor version whose code can be read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sm(u32);

impl Sm {
    /// The versions, in order.
    pub const ALL: [Self; 6] = [Self(75), Self(80), Self(86), Self(87), Self(89), Self(90)];

    /// The version of that number (90 for sm_90), if its code can be read.
    pub fn new(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|sm| sm.0 == number)
    }

    /// 90 for sm_90.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl std::fmt::Display for Sm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}", self.0)
    }
}
