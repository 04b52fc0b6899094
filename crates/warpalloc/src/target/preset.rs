//! Ready-made targets.

use super::sm::Sm;
use super::{Abi, ClassInfo, File, FileInfo, SpillPath, Target};
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
const FRAME_LIMIT: u32 = 64 * 1024;

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
        Ok(build("hardware", sm, File::R.hardware_registers(), 1))
    }

    /// [`Target::hardware`], but two 16-bit values share a register.
    pub fn hardware_packed(sm: u32) -> Result<Target, PresetError> {
        known(sm)?;
        Ok(build(
            "hardware-packed",
            sm,
            File::R.hardware_registers(),
            2,
        ))
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
    let file = |name: &str, regs: usize, per_reg: usize, spill| FileInfo {
        name: name.to_owned(),
        units: regs * per_reg,
        units_per_reg: per_reg,
        unit_bytes: 4 / per_reg,
        spill,
    };
    let class = |name: &str, file, width, align| ClassInfo {
        name: name.to_owned(),
        file,
        width,
        align,
    };
    let tuple = tensor_tuple(sm) * halves;
    let mut target = Target {
        name: name.to_owned(),
        sm,
        files: vec![
            file("R", registers, halves, SpillPath::Memory),
            file(
                "P",
                File::P.hardware_registers(),
                1,
                SpillPath::Via(File::R),
            ),
            file(
                "UR",
                File::UR.hardware_registers(),
                1,
                SpillPath::Via(File::R),
            ),
            file(
                "UP",
                File::UP.hardware_registers(),
                1,
                SpillPath::Via(File::R),
            ),
        ],
        classes: vec![
            class("r16", File::R, 1, 1),
            class("r32", File::R, halves, halves),
            class("r64", File::R, 2 * halves, 2 * halves),
            class("r96", File::R, 3 * halves, 4 * halves),
            class("r128", File::R, 4 * halves, 4 * halves),
            class("r256", File::R, 8 * halves, 8 * halves),
            class("tensor", File::R, tuple, tuple),
            class("pred", File::P, 1, 1),
            class("ur32", File::UR, 1, 1),
            class("ur64", File::UR, 2, 2),
            class("upred", File::UP, 1, 1),
        ],
        unit_base: Vec::new(),
        abi: Abi::cuda(halves),
        frame_limit: FRAME_LIMIT,
    };
    target.renumber();
    target
}
