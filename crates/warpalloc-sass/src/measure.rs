//! What a function's code needs: how many registers are live at once and where, and how often
//! it goes to local memory.

use std::collections::BTreeMap;

use crate::cfg::{Cfg, CfgError};
use crate::code::{Code, CodeError};
use crate::isa::{Effect, File, Space};
use crate::liveness::Liveness;
use crate::loops::Loops;
use crate::object::{Cubin, Function};
use crate::pressure::Pressure;

/// Why code was not measured; the message names the instruction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// It can't be decoded.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// Where control goes can't be told.
    #[error(transparent)]
    Cfg(#[from] CfgError),
}

impl MeasureError {
    /// Where in the code the instruction is that was refused.
    pub fn offset(&self) -> Option<usize> {
        match self {
            MeasureError::Code(CodeError::Inst { offset, .. })
            | MeasureError::Cfg(
                CfgError::Indirect { offset, .. }
                | CfgError::Target { offset, .. }
                | CfgError::End { offset },
            ) => Some(*offset),
            _ => None,
        }
    }
}

/// The most registers of a file that are live at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The file.
    pub file: File,
    /// How many are live.
    pub registers: u32,
    /// One more than the highest register that the code names.
    pub named: u32,
    /// Where the first instruction is with that many; `None` where none ever is live.
    pub offset: Option<usize>,
    /// The name of that instruction.
    pub mnemonic: Option<&'static str>,
}

/// Accesses to local memory at one loop depth. Spill code and arrays of a thread look alike in
/// machine code, and both are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalAccesses {
    /// Loops around them; 0 outside of all.
    pub depth: u32,
    /// Loads.
    pub loads: usize,
    /// Stores.
    pub stores: usize,
}

/// What a function's code needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measures {
    /// Its instructions, those that can't be reached included.
    pub instructions: usize,
    /// The deepest nesting of loops.
    pub loop_depth: u32,
    /// The peak of each register file that the code names.
    pub peaks: Vec<Peak>,
    /// By loop depth, outermost first; depths without accesses are left out.
    pub local: Vec<LocalAccesses>,
}

impl Measures {
    /// The peak of a register file.
    pub fn peak(&self, file: File) -> Option<&Peak> {
        self.peaks.iter().find(|peak| peak.file == file)
    }
}

/// Decodes and measures `function` of `cubin`.
pub fn measure(cubin: &Cubin, function: &Function) -> Result<Measures, MeasureError> {
    let code = Code::decode(function.code, cubin.arch.sm)?;
    let cfg = Cfg::build(&code, &cubin.links(function, &code))?;
    let liveness = Liveness::compute(&code, &cfg);
    let loops = Loops::compute(&cfg);
    let pressures = Pressure::of_files(&code, &cfg, &liveness, File::ALL);
    let peaks = File::ALL.into_iter().zip(pressures);
    let peaks = peaks.filter(|(_, pressure)| pressure.named > 0);
    let peaks = peaks.map(|(file, pressure)| Peak {
        file,
        registers: pressure.peak,
        named: pressure.named,
        offset: pressure.peak_inst.map(Code::offset),
        mnemonic: pressure.peak_inst.map(|inst| code.insts()[inst].mnemonic()),
    });
    let depths = (0..cfg.blocks().len()).filter(|&block| cfg.is_reachable(block));
    Ok(Measures {
        instructions: code.insts().len(),
        loop_depth: depths.map(|block| loops.depth(block)).max().unwrap_or(0),
        peaks: peaks.collect(),
        local: local(&code, &cfg, &loops),
    })
}

fn local(code: &Code, cfg: &Cfg, loops: &Loops) -> Vec<LocalAccesses> {
    let mut found: BTreeMap<u32, LocalAccesses> = BTreeMap::new();
    for (number, block) in cfg.blocks().iter().enumerate() {
        if !cfg.is_reachable(number) {
            continue;
        }
        let depth = loops.depth(number);
        for inst in &code.insts()[block.insts.clone()] {
            let Some(memory) = inst.memory().filter(|memory| memory.space == Space::Local) else {
                continue;
            };
            let here = found.entry(depth).or_default();
            here.depth = depth;
            match memory.effect {
                Effect::Load => here.loads += 1,
                Effect::Store => here.stores += 1,
                _ => {}
            }
        }
    }
    found.into_values().collect()
}
