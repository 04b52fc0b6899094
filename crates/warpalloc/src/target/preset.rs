//! Ready-made targets.

use super::sm::Sm;
use super::{File, FileInfo, MemoryInfo, PReg, Space, Target};
use thiserror::Error;

/// Names that [`Target::preset`] understands.
pub const PRESETS: [&str; 3] = ["cicc", "hardware", "hardware-packed"];

/// A target that was asked for by an unknown name or number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PresetError {
    /// No preset has this name.
    #[error("there is no preset `{0}`; the presets are cicc, hardware and hardware-packed")]
    UnknownName(String),
    /// The compute capability is not in the table.
    #[error("sm_{0} is not a supported target; supported are {list}", list = supported())]
    UnknownSm(u32),
}

/// The registers that graph colouring in CICC is given.
const CICC_REGISTERS: usize = 15;
/// The registers that a thread can name; R255 reads as zero.
const HARDWARE_REGISTERS: usize = 255;
/// The predicates that a thread can name; P7 and UP7 read as true.
const PREDICATES: usize = 7;
/// The uniform registers that a warp can name on every supported SM; UR63 reads as zero.
const UNIFORM_REGISTERS: usize = 63;
/// Registers are given to threads in multiples of this, on every generation.
pub const REGISTER_GRANULE: usize = 8;
/// Banks of the general file on every supported generation.
const BANKS: usize = 2;
const FRAME_LIMIT: u32 = 64 * 1024;
const L1_BYTES: usize = 64 * 1024;
const L2_BYTES: usize = 256 * 1024;

fn supported() -> String {
    let names: Vec<_> = Sm::ALL.iter().map(Sm::to_string).collect();
    names.join(", ")
}

impl Target {
    /// The preset called `name`, for compute capability `sm`.
    pub fn preset(name: &str, sm: u32) -> Result<Target, PresetError> {
        match name {
            "cicc" => Ok(Target::cicc()),
            "hardware" => Target::hardware(sm),
            "hardware-packed" => Target::hardware_packed(sm),
            _ => Err(PresetError::UnknownName(name.to_owned())),
        }
    }

    /// CICC's own view of the machine: fifteen registers, two halves packed in each.
    pub fn cicc() -> Target {
        build("cicc", 80, CICC_REGISTERS, 2)
    }

    /// The machine as ptxas sees it: 255 registers, a 16-bit value takes a whole one.
    pub fn hardware(sm: u32) -> Result<Target, PresetError> {
        known(sm)?;
        Ok(build("hardware", sm, HARDWARE_REGISTERS, 1))
    }

    /// [`Target::hardware`], but two 16-bit values share a register.
    pub fn hardware_packed(sm: u32) -> Result<Target, PresetError> {
        known(sm)?;
        Ok(build("hardware-packed", sm, HARDWARE_REGISTERS, 2))
    }
}

fn known(sm: u32) -> Result<Sm, PresetError> {
    Sm::from_number(sm).ok_or(PresetError::UnknownSm(sm))
}

/// Consecutive registers of one tensor-core operand, by generation.
fn tensor_tuple(sm: u32) -> usize {
    match sm {
        80..=89 => 4,
        _ => 8,
    }
}

fn build(name: &str, sm: u32, registers: usize, halves: usize) -> Target {
    let mut machine = Target::builder(name);
    let general = FileInfo::new("R", registers).packed(halves);
    let r = machine.file(general.banks(BANKS).granule(REGISTER_GRANULE));
    let p = machine.file(FileInfo::new("P", PREDICATES).spills_via(r));
    let ur = machine.file(FileInfo::new("UR", UNIFORM_REGISTERS).spills_via(r));
    let up = machine.file(FileInfo::new("UP", PREDICATES).spills_via(r));
    let tuple = tensor_tuple(sm);
    machine.class_of_units("r16", r, 1, 1);
    machine.class("r32", r, 1, 1);
    machine.class("r64", r, 2, 2);
    machine.class("r96", r, 3, 4);
    machine.class("r128", r, 4, 4);
    machine.class("r256", r, 8, 8);
    machine.class("tensor", r, tuple, tuple);
    machine.class("pred", p, 1, 1);
    machine.class("ur32", ur, 1, 1);
    machine.class("ur64", ur, 2, 2);
    machine.class("upred", up, 1, 1);
    // The convention names registers that a small budget may not have.
    let general = |n: usize| PReg::new(File::R, n * halves);
    let exists = |reg: &PReg| usize::from(reg.unit) < registers * halves;
    machine
        .arguments((0..8).map(general))
        .results((0..2).map(general))
        .preserved((24..32).map(general).filter(exists))
        .frame_limit(FRAME_LIMIT)
        .memory(Space::Local, memory(sm))
        .memory(Space::Shared, memory(sm))
        .sm(sm);
    machine
        .finish()
        .expect("the presets contradict themselves nowhere")
}

/// Cycles by cache level (`docs/sources.md#memory-latency`).
fn memory(sm: u32) -> MemoryInfo {
    let far = if sm >= 90 { 40.0 } else { 100.0 };
    MemoryInfo::new(4.0)
        .beyond(L1_BYTES, 10.0)
        .beyond(L2_BYTES, far)
}
