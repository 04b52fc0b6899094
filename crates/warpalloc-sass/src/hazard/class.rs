//! Classes of instructions that share latencies or finish in order.

use crate::isa::{Effect, File, Inst, Latency, Pipe};

/// Instructions with the same latencies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Integer and logic.
    Alu,
    /// Single precision and 32-bit integer multiplication.
    Fma,
    /// 64-bit integer multiplication.
    Wide,
    /// Packed half precision.
    Half,
    /// Packed half precision on the matrix unit.
    HalfTensor,
    /// Double precision.
    Double,
    /// Matrix products.
    Tensor,
    /// The uniform datapath.
    Uniform,
    /// From the vector to the uniform datapath.
    ToUniform,
    /// Transcendental functions and conversions.
    Xu,
    /// Memory, textures and other units behind a queue.
    Queue,
    /// Branches and barriers.
    Control,
}

impl Class {
    /// The classes, in order.
    pub const ALL: [Self; 12] = [
        Self::Alu,
        Self::Fma,
        Self::Wide,
        Self::Half,
        Self::HalfTensor,
        Self::Double,
        Self::Tensor,
        Self::Uniform,
        Self::ToUniform,
        Self::Xu,
        Self::Queue,
        Self::Control,
    ];

    /// The class of an instruction.
    pub fn of(inst: &Inst) -> Self {
        let code = inst.word() as u16 & 0x1ff;
        match (inst.pipe(), inst.mnemonic(), code) {
            (_, "R2UR" | "VOTEU", _) => Self::ToUniform,
            (Pipe::Alu, ..) => Self::Alu,
            (Pipe::Fma, _, 0x025 | 0x027) => Self::Wide,
            (Pipe::Fma, ..) => Self::Fma,
            (Pipe::Half, _, 0x035) => Self::HalfTensor,
            (Pipe::Half, ..) => Self::Half,
            (Pipe::Double, ..) => Self::Double,
            (Pipe::Tensor, ..) => Self::Tensor,
            (Pipe::Uniform, ..) => Self::Uniform,
            (Pipe::Xu, ..) => Self::Xu,
            (Pipe::Memory | Pipe::Texture, ..) => Self::Queue,
            (Pipe::Control, ..) => Self::Control,
        }
    }
}

impl Class {
    /// The cycles from issue to where a result is in its file, at most where several are known.
    pub(super) fn cycles_to_result(self, file: File) -> u8 {
        match (self, file) {
            (Self::Double, File::P) => 14,
            (_, File::P) => 13,
            (Self::Alu | Self::Fma | Self::Wide | Self::Half, _) => 4,
            (Self::Uniform | Self::ToUniform | Self::Control, _) => 4,
            (Self::Double | Self::HalfTensor, _) => 9,
            // The longest matrix product that sm_80 to sm_90 have.
            (Self::Tensor, _) => 33,
            // These come by scoreboard, and never sooner.
            (Self::Xu | Self::Queue, _) => 12,
        }
    }

    /// The cycles after issue during which sources are read, beyond those that any write takes.
    pub(super) fn cycles_to_read(self) -> u8 {
        match self {
            Self::Tensor => 7,
            _ => 0,
        }
    }

    /// The cycles that must lie between two writes of one register, so that the first does not
    /// overtake the second.
    pub(super) fn lead_over(self, second: Self, file: File) -> u8 {
        (self.cycles_to_result(file) + 1).saturating_sub(second.cycles_to_result(file))
    }
}

/// The cycles that ptxas leaves behind an instruction at the end of a block, whatever may read its
/// result. Known of dense products of halves and TF32: bit 73 makes a product sparse.
pub(super) fn cycles_before_any_reader(inst: &Inst) -> Option<u8> {
    let is_dense = inst.mnemonic() == "HMMA" && inst.word() >> 73 & 1 == 0;
    (is_dense && inst.sm().number() >= 80).then_some(24)
}

/// Instructions of variable latency that write in the order they were issued.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Order {
    /// Loads from shared memory and shuffles.
    SharedLoad,
    /// Textures and surfaces.
    Texture,
    /// Reads of special registers into uniform ones.
    Special,
    /// Transposes of matrices.
    Transpose,
    /// Transcendental functions and conversions.
    Xu,
    /// Double precision where it has a unit behind a queue.
    Double,
    /// Loads from global, local and generic memory: they write in any order.
    Load,
    /// Stores and reductions.
    Store,
    /// Other memory instructions: they write in any order.
    Memory,
    /// None: neither reads nor writes are in order.
    Free,
}

impl Order {
    pub fn of(inst: &Inst) -> Self {
        match (inst.pipe(), inst.mnemonic()) {
            (_, "LDS" | "LDSM" | "SHFL") => Self::SharedLoad,
            (_, "LDG" | "LD" | "LDL") => Self::Load,
            (_, "S2UR") => Self::Special,
            (_, "MOVM") => Self::Transpose,
            (_, "LDC" | "S2R") => Self::Free,
            (Pipe::Texture, _) => Self::Texture,
            (Pipe::Memory, _) => match inst.memory().map(|memory| memory.effect) {
                Some(Effect::Store | Effect::Reduction) => Self::Store,
                _ => Self::Memory,
            },
            (Pipe::Xu, _) => Self::Xu,
            (Pipe::Double, _) if inst.latency() == Latency::Variable => Self::Double,
            _ => Self::Free,
        }
    }

    /// Whether it goes through the memory queue.
    pub fn is_queued(self) -> bool {
        matches!(
            self,
            Self::SharedLoad | Self::Load | Self::Store | Self::Memory
        )
    }

    /// Whether two instructions write in the order of issue.
    pub fn writes_after(self, earlier: Self) -> bool {
        let in_any_order = matches!(self, Self::Load | Self::Store | Self::Memory | Self::Free);
        self == earlier && !in_any_order
    }

    /// Whether what the earlier one reads has been read when this one has read.
    pub fn reads_after(self, earlier: Self) -> bool {
        let by_this = match self {
            Self::Store => earlier.is_queued(),
            Self::SharedLoad => matches!(earlier, Self::SharedLoad | Self::Store),
            Self::Load | Self::Memory => earlier == self,
            _ => false,
        };
        self.writes_after(earlier) || by_this
    }

    /// Whether this one may overwrite what the earlier one reads without a wait.
    pub fn overwrites_after(self, earlier: Self) -> bool {
        let by_this = match self {
            Self::SharedLoad => matches!(earlier, Self::SharedLoad | Self::Store),
            Self::Load => earlier == Self::Load,
            _ => false,
        };
        self.writes_after(earlier) || by_this
    }
}
