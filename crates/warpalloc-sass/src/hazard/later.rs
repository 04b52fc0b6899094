//! Which registers are written behind an instruction.

use crate::cfg::Cfg;
use crate::code::Code;
use crate::isa::{Reg, RegSet};
use rustc_hash::FxHashMap;

/// What is written later on some path: a read of anything else can be overtaken by no write.
pub(super) struct Later {
    /// For each block, the last instruction in it that writes a register.
    last: Vec<FxHashMap<Reg, usize>>,
    /// For each block, what is written behind its end.
    behind: Vec<RegSet>,
}

impl Later {
    pub fn of(code: &Code, cfg: &Cfg) -> Later {
        let blocks = cfg.blocks();
        let mut last: Vec<FxHashMap<Reg, usize>> = vec![FxHashMap::default(); blocks.len()];
        for (block, last) in blocks.iter().zip(&mut last) {
            for at in block.insts.clone() {
                last.extend(code.insts()[at].defs().iter().map(|reg| (reg, at)));
            }
        }
        let mut behind = vec![RegSet::default(); blocks.len()];
        let mut is_changed = true;
        while is_changed {
            is_changed = false;
            for number in (0..blocks.len()).rev() {
                let mut new = behind[number];
                for &succ in &blocks[number].succs {
                    new.union_with(&behind[succ]);
                    for &reg in last[succ].keys() {
                        new.insert(reg);
                    }
                }
                if new != behind[number] {
                    behind[number] = new;
                    is_changed = true;
                }
            }
        }
        Later { last, behind }
    }

    /// Whether a register may be written behind the instruction at `at` of a block.
    pub fn writes(&self, block: usize, at: usize, reg: Reg) -> bool {
        let in_block = self.last[block].get(&reg).is_some_and(|&last| last > at);
        in_block || self.behind[block].contains(reg)
    }
}
