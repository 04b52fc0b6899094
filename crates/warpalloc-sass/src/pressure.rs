//! How many registers of each file hold a value at once, and where most do.

use crate::cfg::Cfg;
use crate::code::Code;
use crate::isa::{File, RegSet};
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
        let [pressure] = Self::of_files(code, cfg, liveness, [file]);
        pressure
    }

    /// The same for several files, in one walk over the code.
    pub fn of_files<const N: usize>(
        code: &Code,
        cfg: &Cfg,
        liveness: &Liveness,
        files: [File; N],
    ) -> [Self; N] {
        let mut per_inst = files.map(|_| vec![0; code.insts().len()]);
        for (number, block) in cfg.blocks().iter().enumerate() {
            if !cfg.is_reachable(number) {
                continue;
            }
            let rows = liveness.in_block(code, cfg, number);
            for (index, row) in block.insts.clone().zip(rows) {
                let live = row.during(&code.insts()[index]);
                for (counts, file) in per_inst.iter_mut().zip(files) {
                    counts[index] = live.count(file);
                }
            }
        }
        let mut named = RegSet::EMPTY;
        for inst in code.insts() {
            named.union_with(&inst.defs());
            named.union_with(&inst.uses());
        }
        std::array::from_fn(|position| {
            let per_inst = std::mem::take(&mut per_inst[position]);
            let peak = per_inst.iter().copied().max().unwrap_or(0);
            let highest = named.highest(files[position]);
            Self {
                peak,
                peak_inst: per_inst.iter().position(|&live| live == peak && peak > 0),
                per_inst,
                named: highest.map_or(0, |highest| u32::from(highest) + 1),
            }
        })
    }
}
