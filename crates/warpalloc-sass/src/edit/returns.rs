//! Return addresses in registers.
//!
//! A call inside the code does not say where to return to: a `MOV` before it puts the offset of the
//! next instruction into a register, the function may copy it, and `RET.REL` goes there. When
//! code moves, that number has to follow. It is taken for a return address only where nothing else
//! can be: the move has the offset behind the call, nothing between the two writes or reads the
//! register, the function copies it on every path to its return and reads it nowhere else, and
//! it is dead where the function returns. A function that is called once may hold the number itself,
//! in a move right before its only return.

use super::insert::EditError;
use crate::cfg::{Cfg, Links};
use crate::code::Code;
use crate::isa::{CallTarget, File, Flow, PlaceRef, Reg, RegSet};
use crate::liveness::Liveness;
use rustc_hash::FxHashMap;

/// The moves of return addresses, each with its call.
pub(super) fn return_addresses(
    code: &Code,
    cfg: &Cfg,
    links: &Links,
) -> Result<Vec<(usize, usize)>, EditError> {
    let calls = code.insts().iter().enumerate();
    let calls: Vec<usize> = calls
        .filter(|(_, inst)| matches!(inst.flow(), Flow::Call { .. }))
        .map(|(index, _)| index)
        .collect();
    let mut tracer = Tracer {
        code,
        cfg,
        links,
        live: None,
    };
    let mut found = Vec::new();
    for call in calls {
        found.extend(tracer.trace(call)?.map(|index| (index, call)));
    }
    Ok(found)
}

struct Tracer<'c> {
    code: &'c Code,
    cfg: &'c Cfg,
    links: &'c Links,
    live: Option<Liveness>,
}

impl Tracer<'_> {
    fn refused(&self, index: usize, reason: &str) -> EditError {
        EditError::Refused {
            offset: Code::offset(index),
            mnemonic: self.code.insts()[index].mnemonic(),
            reason: reason.to_owned(),
        }
    }

    /// The move of the return address of a call; none where the function never returns.
    fn trace(&mut self, call: usize) -> Result<Option<usize>, EditError> {
        let callee = self.callee(call)?;
        let (blocks, returns) = self.body(callee);
        if returns.is_empty() {
            return Ok(None);
        }
        if let Some(found) = self.fixed_return(call, &returns) {
            self.is_dead_behind(call, found.1)?;
            return Ok(Some(found.0));
        }
        let (index, reg) = self.find_move(call)?;
        if !self.carries(callee, &blocks, &returns, reg) {
            return Err(self.refused(call, "calls a function that may return elsewhere"));
        }
        self.is_dead_behind(call, reg)?;
        Ok(Some(index))
    }

    fn is_dead_behind(&mut self, call: usize, reg: Reg) -> Result<(), EditError> {
        let live = self
            .live
            .get_or_insert_with(|| Liveness::compute(self.code, self.cfg));
        let behind = self.cfg.block_of(call) + 1;
        match behind < self.cfg.blocks().len() && live.live_in(behind).contains(reg) {
            true => Err(self.refused(call, "has a return address that is used again behind it")),
            false => Ok(()),
        }
    }

    /// The move right before the only return of a function that returns behind this call and
    /// nowhere else: a function that is called once need not be told.
    fn fixed_return(&self, call: usize, returns: &[usize]) -> Option<(usize, Reg)> {
        let &[exit] = returns else { return None };
        let reg = self.returns_by(exit)?;
        let start = self.cfg.blocks()[self.cfg.block_of(exit)].insts.start;
        for index in (start..exit).rev() {
            let inst = &self.code.insts()[index];
            if inst.defs().contains(reg) {
                let is_it = inst.moved_immediate() == Some(Code::offset(call + 1) as u32);
                return is_it.then_some((index, reg));
            }
            if inst.uses().contains(reg) {
                return None;
            }
        }
        None
    }

    /// The register with the address that a return goes to.
    fn returns_by(&self, exit: usize) -> Option<Reg> {
        let operands = self.code.insts()[exit].operands().iter();
        let mut address = operands.filter(|operand| operand.file == File::R);
        let index = address.next()?.first;
        Some(Reg {
            file: File::R,
            index,
        })
    }

    /// The first instruction of the function.
    fn callee(&self, call: usize) -> Result<usize, EditError> {
        let inst = &self.code.insts()[call];
        let by_relocation = self.links.calls.get(&Code::offset(call));
        let target = match (by_relocation, inst.flow(), inst.place()) {
            (Some(&Some(target)), ..) => Some(target as i64),
            (
                None,
                Flow::Call {
                    target: CallTarget::Relative(_),
                },
                Some(PlaceRef::Target(distance)),
            ) => Some(distance.saturating_add(Code::offset(call + 1) as i64)),
            _ => None,
        };
        let target = target.and_then(|target| usize::try_from(target).ok());
        let target = target.map(|target| target / 16);
        target
            .filter(|&target| target < self.code.insts().len())
            .ok_or_else(|| self.refused(call, "calls code that is not known"))
    }

    /// The blocks of a function, calls falling through, and its return instructions.
    fn body(&self, callee: usize) -> (Vec<usize>, Vec<usize>) {
        let mut seen = vec![self.cfg.block_of(callee)];
        let mut at = 0;
        while let Some(&block) = seen.get(at) {
            at += 1;
            for next in self.succs(block) {
                if !seen.contains(&next) {
                    seen.push(next);
                }
            }
        }
        let last = |&block: &usize| self.cfg.blocks()[block].insts.end - 1;
        let is_return = |&inst: &usize| self.code.insts()[inst].flow() == Flow::Return;
        let returns = seen.iter().map(last).filter(is_return).collect();
        (seen, returns)
    }

    /// The blocks that follow one in its function.
    fn succs(&self, block: usize) -> Vec<usize> {
        let found = &self.cfg.blocks()[block];
        let last = &self.code.insts()[found.insts.end - 1];
        let falls = block + 1 < self.cfg.blocks().len();
        match last.flow() {
            Flow::Call { .. } => Vec::from_iter(falls.then_some(block + 1)),
            Flow::Return => Vec::from_iter((falls && last.guard().is_some()).then_some(block + 1)),
            _ => found.succs.to_vec(),
        }
    }

    /// The move before a call, in its block or in a block that only leads there.
    fn find_move(&self, call: usize) -> Result<(usize, Reg), EditError> {
        let address = Code::offset(call + 1) as u32;
        let mut touched = RegSet::EMPTY;
        let mut candidates = Vec::new();
        let mut block = self.cfg.block_of(call);
        let mut insts = self.cfg.blocks()[block].insts.start..call;
        let mut passed = 0;
        loop {
            for index in insts.rev() {
                let inst = &self.code.insts()[index];
                let reg = inst.defs().iter().next();
                if let (Some(number), Some(reg)) = (inst.moved_immediate(), reg)
                    && number == address
                    && !touched.contains(reg)
                {
                    candidates.push((index, reg));
                }
                touched.union_with(&inst.defs());
                touched.union_with(&inst.uses());
            }
            passed += 1;
            let [pred] = self.cfg.blocks()[block].preds[..] else {
                break;
            };
            // Both ways of a guarded branch lead on; a loop of single edges would not end.
            if !candidates.is_empty() || passed > self.cfg.blocks().len() {
                break;
            }
            block = pred;
            insts = self.cfg.blocks()[block].insts.clone();
        }
        match candidates[..] {
            [found] => Ok(found),
            [] => Err(self.refused(call, "has a return address that no MOV before it gives")),
            _ => Err(self.refused(call, "has several registers with its return address")),
        }
    }

    /// Whether every return of a function goes where `reg` said when it was called, and nothing
    /// else reads that address.
    fn carries(&self, callee: usize, blocks: &[usize], returns: &[usize], reg: Reg) -> bool {
        let entry = self.cfg.block_of(callee);
        if self.cfg.blocks()[entry].insts.start != callee {
            return false;
        }
        let mut before: FxHashMap<usize, RegSet> = FxHashMap::default();
        before.insert(entry, [reg].into_iter().collect());
        let mut work = vec![entry];
        while let Some(block) = work.pop() {
            let Some(&start) = before.get(&block) else {
                continue;
            };
            let Some(end) = self.through(block, start) else {
                return false;
            };
            for next in self.succs(block) {
                let old = before.get(&next).copied();
                let mut new = end;
                if let Some(old) = old {
                    new.intersect_with(&old);
                }
                if old != Some(new) {
                    before.insert(next, new);
                    work.push(next);
                }
            }
        }
        debug_assert!(blocks.iter().all(|block| before.contains_key(block)));
        returns.iter().all(|&index| {
            let block = self.cfg.block_of(index);
            let held = before.get(&block).and_then(|&start| {
                let start_at = self.cfg.blocks()[block].insts.start;
                (start_at..index).try_fold(start, |held, at| self.step(at, held))
            });
            let low = self.returns_by(index);
            held.is_some_and(|held| low.is_some_and(|low| held.contains(low)))
        })
    }

    /// The registers that hold the address behind a block; none where it is read as a number.
    fn through(&self, block: usize, held: RegSet) -> Option<RegSet> {
        let mut insts = self.cfg.blocks()[block].insts.clone();
        insts.try_fold(held, |held, index| self.step(index, held))
    }

    fn step(&self, index: usize, mut held: RegSet) -> Option<RegSet> {
        let inst = &self.code.insts()[index];
        if let Flow::Call { .. } = inst.flow() {
            let callee = self.callee(index).ok()?;
            let (blocks, _) = self.body(callee);
            let ranges = blocks.iter().map(|&block| &self.cfg.blocks()[block]);
            for index in ranges.flat_map(|block| block.insts.clone()) {
                let inner = &self.code.insts()[index];
                // A function that calls others in turn, or reads what may be the address.
                let reads = inner.uses().iter().any(|reg| held.contains(reg));
                if reads || matches!(inner.flow(), Flow::Call { .. }) {
                    return None;
                }
                held.subtract(&inner.defs());
            }
            return Some(held);
        }
        let copied = inst.copied().filter(|&source| held.contains(source));
        let reads = inst.uses().iter().any(|reg| held.contains(reg));
        if reads && copied.is_none() && inst.flow() != Flow::Return {
            return None;
        }
        held.subtract(&inst.defs());
        if copied.is_some() {
            held.union_with(&inst.defs());
        }
        Some(held)
    }
}
