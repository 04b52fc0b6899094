//! How many registers of each file hold a value at once, and where most do.

use crate::cfg::Cfg;
use crate::code::Code;
use crate::isa::File;
use crate::liveness::Liveness;

/// The pressure of one register file over a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pressure {
    /// For each instruction, the registers that hold a value while it runs: live before it or
    /// written by it.
    pub per_inst: Vec<u32>,
    /// The most.
    pub peak: u32,
    /// The first instruction where that many hold a value.
    pub peak_inst: Option<usize>,
    /// One more than the highest register named; 0 if none is.
    pub named: u32,
}

impl Pressure {
    /// Counts over reachable instructions; an unreachable one counts as 0.
    pub fn compute(code: &Code, cfg: &Cfg, liveness: &Liveness, file: File) -> Self {
        let mut per_inst = vec![0; code.insts().len()];
        for (number, block) in cfg.blocks().iter().enumerate() {
            if !cfg.is_reachable(number) {
                continue;
            }
            let rows = liveness.in_block(code, cfg, number);
            for (index, row) in block.insts.clone().zip(rows) {
                per_inst[index] = row.during(&code.insts()[index]).count(file);
            }
        }
        let peak = per_inst.iter().copied().max().unwrap_or(0);
        let named = code
            .insts()
            .iter()
            .flat_map(|inst| [inst.defs(), inst.uses()])
            .filter_map(|set| set.highest(file))
            .max()
            .map_or(0, |highest| u32::from(highest) + 1);
        Self {
            peak,
            peak_inst: per_inst.iter().position(|&live| live == peak && peak > 0),
            per_inst,
            named,
        }
    }
}
