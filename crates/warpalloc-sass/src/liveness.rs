//! Live registers, per instruction and register file.
//!
//! A definition under a guard does not kill: where the guard fails, the old value stays. A
//! return to code that is not here reads every register, because nothing says which ones its
//! caller reads. A call of code that is not here reads what the calling convention can pass,
//! R0 to R15 and the return address in R20 and R21, and kills nothing.

use crate::cfg::{Cfg, Leave};
use crate::code::Code;
use crate::isa::{File, Flow, Inst, Reg, RegSet};

/// The registers live at the boundaries of blocks.
#[derive(Clone, Debug)]
pub struct Liveness {
    live_in: Vec<RegSet>,
    live_out: Vec<RegSet>,
}

/// The registers live around one instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveAt {
    /// Before it.
    pub before: RegSet,
    /// After it.
    pub after: RegSet,
}

impl LiveAt {
    /// The registers that hold a value while the instruction runs: those live before it and
    /// those it writes, read again or not.
    pub fn during(&self, inst: &Inst) -> RegSet {
        let mut set = self.before;
        set.union_with(&inst.defs());
        set
    }
}

impl Liveness {
    /// Computes live registers backwards over the graph.
    pub fn compute(code: &Code, cfg: &Cfg) -> Self {
        let blocks = cfg.blocks();
        let mut uses = vec![RegSet::EMPTY; blocks.len()];
        let mut kills = vec![RegSet::EMPTY; blocks.len()];
        let mut everything = RegSet::EMPTY;
        for (number, block) in blocks.iter().enumerate() {
            for inst in code.insts()[block.insts.clone()].iter().rev() {
                let killed = killed(inst);
                if block.calls_outside && matches!(inst.flow(), Flow::Call { .. }) {
                    uses[number].union_with(&passed());
                }
                kills[number].union_with(&killed);
                uses[number].subtract(&killed);
                uses[number].union_with(&inst.uses());
                everything.union_with(&inst.uses());
                everything.union_with(&inst.defs());
            }
        }
        let mut live_in = vec![RegSet::EMPTY; blocks.len()];
        let mut live_out = vec![RegSet::EMPTY; blocks.len()];
        let mut queued = vec![true; blocks.len()];
        let mut work: Vec<_> = (0..blocks.len()).collect();
        while let Some(number) = work.pop() {
            queued[number] = false;
            let mut out = RegSet::EMPTY;
            if blocks[number].leaves == Leave::Return {
                out = everything;
            }
            for &succ in &blocks[number].succs {
                out.union_with(&live_in[succ]);
            }
            live_out[number] = out;
            out.subtract(&kills[number]);
            out.union_with(&uses[number]);
            if out != live_in[number] {
                live_in[number] = out;
                for &pred in &blocks[number].preds {
                    if !queued[pred] {
                        queued[pred] = true;
                        work.push(pred);
                    }
                }
            }
        }
        Self { live_in, live_out }
    }

    /// The registers live where a block begins.
    pub fn live_in(&self, block: usize) -> &RegSet {
        &self.live_in[block]
    }

    /// The registers live where a block ends.
    pub fn live_out(&self, block: usize) -> &RegSet {
        &self.live_out[block]
    }

    /// The registers live around each instruction of a block, in order.
    pub fn in_block(&self, code: &Code, cfg: &Cfg, block: usize) -> Vec<LiveAt> {
        let range = cfg.blocks()[block].insts.clone();
        let mut after = self.live_out[block];
        let mut rows = Vec::with_capacity(range.len());
        let outside = cfg.blocks()[block].calls_outside;
        for inst in code.insts()[range].iter().rev() {
            let mut before = step(inst, after);
            if outside && matches!(inst.flow(), Flow::Call { .. }) {
                before.union_with(&passed());
            }
            rows.push(LiveAt { before, after });
            after = before;
        }
        rows.reverse();
        rows
    }

    /// The registers live around each instruction, in order.
    pub fn all(&self, code: &Code, cfg: &Cfg) -> Vec<LiveAt> {
        (0..cfg.blocks().len())
            .flat_map(|block| self.in_block(code, cfg, block))
            .collect()
    }
}

/// The registers whose old value is gone after the instruction on every path.
fn killed(inst: &Inst) -> RegSet {
    match inst.guard() {
        Some(_) => RegSet::EMPTY,
        None => inst.defs(),
    }
}

/// The registers that a call of unknown code may read.
fn passed() -> RegSet {
    let numbers = (0..16).chain([20, 21]);
    numbers
        .map(|index| Reg {
            file: File::R,
            index,
        })
        .collect()
}

/// What is live before an instruction, given what is live after it.
fn step(inst: &Inst, mut live: RegSet) -> RegSet {
    live.subtract(&killed(inst));
    live.union_with(&inst.uses());
    live
}
