//! Edits of an allocation as instructions.

use super::frame::Layout;
use super::{AllocateError, Kernel};
use crate::cfg::{Cfg, Links};
use crate::code::Code;
use crate::edit::Edit as CodeEdit;
use crate::isa::{Builder, Control, File, Flow, Inst, Pipe, Reg, Source};
use crate::object::NewCode;
use crate::recolour::encode::rename;
use crate::recolour::lower::{Lowered, reg};
use warpalloc::Allocation;
use warpalloc::allocation::Edit;
use warpalloc::function;
use warpalloc::target::PReg;

/// The code with every operand in its register and every edit in its place. New instructions
/// wait for nothing and signal nothing.
pub(super) fn insert(
    kernel: &Kernel,
    links: &Links,
    cfg: &Cfg,
    lowered: &Lowered,
    allocation: &Allocation,
    layout: &Layout,
) -> Result<NewCode, AllocateError> {
    let mut inserter = Inserter {
        code: kernel.code,
        cfg,
        lowered,
        allocation,
        layout,
        blocks: reachable_blocks(cfg),
        edit: CodeEdit::new(kernel.function, kernel.code, links),
    };
    inserter.edit.at_entry(layout.entry.iter().cloned());
    inserter.replace()?;
    inserter.edges(true)?;
    inserter.points()?;
    inserter.edges(false)?;
    Ok(inserter.edit.finish()?)
}

struct Inserter<'a> {
    code: &'a Code,
    cfg: &'a Cfg,
    lowered: &'a Lowered,
    allocation: &'a Allocation,
    layout: &'a Layout,
    /// The block of the code for each block of the function behind its entry.
    blocks: Vec<usize>,
    edit: CodeEdit<'a>,
}

/// The blocks of the code that the function has, in order.
fn reachable_blocks(cfg: &Cfg) -> Vec<usize> {
    let blocks = 0..cfg.blocks().len();
    blocks.filter(|&block| cfg.is_reachable(block)).collect()
}

impl Inserter<'_> {
    /// Puts renamed instructions into the place of the old ones, and NOPs where nothing is left.
    fn replace(&mut self) -> Result<(), AllocateError> {
        let nop = Builder::new(self.code.sm()).nop()?;
        for (at, inst) in self.code.insts().iter().enumerate() {
            let Some(of) = self.lowered.insts[at] else {
                continue;
            };
            let is_gone =
                self.allocation.deleted.contains(of) || self.layout.replaced.contains(&at);
            if is_gone {
                let control = Control {
                    write_scoreboard: None,
                    read_scoreboard: None,
                    reuse: 0,
                    ..inst.control()
                };
                let control = control.stalled(control.stall);
                self.edit.replace(at, nop.with_control(control));
                continue;
            }
            let mut to = self.registers(self.allocation.operands(&self.lowered.function, of));
            // A terminator reads the stack pointer besides.
            to.truncate(self.lowered.lanes[at]);
            let renamed = rename(at, inst, &to)?;
            if renamed != *inst {
                self.edit.replace(at, renamed);
            }
        }
        Ok(())
    }

    fn registers(&self, registers: &[PReg]) -> Vec<Reg> {
        registers.iter().map(|&register| reg(register)).collect()
    }

    /// Edits before and after instructions.
    fn points(&mut self) -> Result<(), AllocateError> {
        let function = &self.lowered.function;
        for block in function.blocks() {
            let insts: Vec<function::Inst> = function.block_insts(block).collect();
            // The code that comes next, for what has none of its own.
            let mut next = None;
            let mut places = Vec::with_capacity(insts.len());
            for &inst in insts.iter().rev() {
                next = self.place_of(inst).or(next);
                places.push(next);
            }
            places.reverse();
            let last = self.last_of(block);
            for (&inst, &at) in insts.iter().zip(&places) {
                let before: Vec<Edit> = self.allocation.edits.before(inst).cloned().collect();
                let after: Vec<Edit> = self.allocation.edits.after(inst).cloned().collect();
                let above = at.filter(|&at| at > 0).map(|at| at - 1);
                let before = self.behind(above, self.code_of(&before)?)?;
                let after = self.behind(self.place_of(inst), self.code_of(&after)?)?;
                match (at, last) {
                    (Some(at), _) => {
                        self.edit.before(at, before);
                        match self.place_of(inst) {
                            Some(own) => self.edit.after(own, after),
                            None => self.edit.before(at, after),
                        }
                    }
                    // Behind the last instruction of a block that falls through.
                    (None, Some(last)) => self.edit.after(last, before.into_iter().chain(after)),
                    // The entry of the function has no code.
                    (None, None) => self.edit.at_entry(before.into_iter().chain(after)),
                }
            }
        }
        Ok(())
    }

    /// New code right behind an instruction. A stall lasts fifteen cycles at most and a matrix
    /// product takes longer than two of them, so that two instructions have to lie between.
    fn behind(&self, above: Option<usize>, insts: Vec<Inst>) -> Result<Vec<Inst>, AllocateError> {
        let is_slow = |at: usize| self.code.insts()[at].pipe() == Pipe::Tensor;
        let above = above.filter(|_| !insts.is_empty());
        let last = above.and_then(|at| (0..2).find(|&back| at >= back && is_slow(at - back)));
        let nop = Builder::new(self.code.sm()).nop()?;
        let missing = last.map_or(0, |back| 2 - back);
        Ok(std::iter::repeat_n(nop, missing).chain(insts).collect())
    }

    /// The instruction of the code that one of the function is.
    fn place_of(&self, inst: function::Inst) -> Option<usize> {
        let info = self.lowered.function.inst(inst);
        let at = usize::try_from(info.imm).ok()?;
        (self.lowered.insts.get(at) == Some(&Some(inst))).then_some(at)
    }

    /// The last instruction of a block's code.
    fn last_of(&self, block: function::Block) -> Option<usize> {
        let number = block.as_u32().checked_sub(1)? as usize;
        Some(self.cfg.blocks()[self.blocks[number]].insts.end - 1)
    }

    /// Edits on edges: those that come first where the next block begins, else those that come
    /// last where a block ends.
    fn edges(&mut self, begins: bool) -> Result<(), AllocateError> {
        let function = &self.lowered.function;
        for block in function.blocks() {
            for (number, edge) in function.succs(block).iter().enumerate() {
                let edits = self.allocation.edits.on_edge(block, number as u32);
                let edits: Vec<Edit> = edits.cloned().collect();
                if edits.is_empty() {
                    continue;
                }
                let is_only_way = function.preds(edge.block).len() == 1;
                if is_only_way != begins {
                    continue;
                }
                let insts = self.code_of(&edits)?;
                let Some(last) = self.last_of(block) else {
                    self.edit.at_entry(insts);
                    continue;
                };
                let to = self.blocks[edge.block.as_u32() as usize - 1];
                let start = self.cfg.blocks()[to].insts.start;
                if is_only_way {
                    self.edit.before(start, insts);
                } else {
                    self.at_end(last, start, function.succs(block).len(), insts)?;
                }
            }
        }
        Ok(())
    }

    /// Puts code on the way from the last instruction of a block to `start`, where others lead too.
    fn at_end(
        &mut self,
        last: usize,
        start: usize,
        ways: usize,
        insts: Vec<Inst>,
    ) -> Result<(), AllocateError> {
        let inst = &self.code.insts()[last];
        let reads = inst.uses().of(File::R).next().is_some();
        match inst.flow() {
            Flow::Next => self.edit.after(last, insts),
            Flow::Branch { .. } if ways == 1 && !reads => self.edit.before(last, insts),
            Flow::Branch { .. } | Flow::Exit | Flow::Trap if start == last + 1 => {
                self.edit.after(last, insts);
            }
            Flow::Branch { .. } => self.edit.on_branch(last, insts),
            _ => return Err(self.refused(last)),
        }
        Ok(())
    }

    fn refused(&self, at: usize) -> AllocateError {
        AllocateError::Edge {
            offset: Code::offset(at),
            inst: self.code.insts()[at].to_string(),
        }
    }

    fn code_of(&self, edits: &[Edit]) -> Result<Vec<Inst>, AllocateError> {
        let mut insts = Vec::new();
        for edit in edits {
            self.push(edit, &mut insts)?;
        }
        Ok(insts)
    }

    fn push(&self, edit: &Edit, insts: &mut Vec<Inst>) -> Result<(), AllocateError> {
        let build = Builder::new(self.code.sm());
        match *edit {
            Edit::Move { to, from, width } => {
                let step = |lane: u8| {
                    let [to, from] = [to, from].map(|r| (r.unit + u16::from(lane)) as u8);
                    build.mov(to, Source::Reg(from))
                };
                // What both have in common is read before it is written.
                let lanes: Vec<u8> = match to.unit <= from.unit {
                    true => (0..width).collect(),
                    false => (0..width).rev().collect(),
                };
                for lane in lanes {
                    insts.push(step(lane)?);
                }
            }
            Edit::Swap { a, b, width } => {
                for lane in 0..width {
                    let [a, b] = [a, b].map(|r| (r.unit + u16::from(lane)) as u8);
                    insts.push(build.xor(a, a, Source::Reg(b))?);
                    insts.push(build.xor(b, b, Source::Reg(a))?);
                    insts.push(build.xor(a, a, Source::Reg(b))?);
                }
            }
            Edit::Store { to, from, width } => {
                insts.extend(self.layout.accesses(false, to, from, width)?);
            }
            Edit::Reload { to, from, width } => {
                insts.extend(self.layout.accesses(true, from, to, width)?);
            }
            Edit::Recompute { inst, ref regs } => {
                let at = self.lowered.function.inst(inst).imm as usize;
                let old = &self.code.insts()[at];
                let renamed = rename(at, old, &self.registers(regs))?;
                let control = build.nop()?.control();
                insts.push(renamed.with_control(control));
            }
            Edit::Transfer { .. } => {
                // Predicates are pinned, and nothing else changes its file.
                return Err(warpalloc::Error::Unproved(format!("{edit:?}")).into());
            }
        }
        Ok(())
    }
}
