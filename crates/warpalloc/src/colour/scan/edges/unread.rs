//! Values that are brought to a register for nothing.
//!
//! What a block has in registers when it is entered is chosen before it is known what becomes
//! of it: a value may pass through one block after the other and be gone before anything reads
//! it there. Few values need code on an edge, so each is followed from there.

use super::super::code::{Code, Edge};
use super::super::spill::Plan;
use super::super::stores::Stores;
use crate::function::Block;
use smallvec::SmallVec;

/// How many blocks a value is followed through at most; one that gets that far is taken to be
/// read.
const MAX_BLOCKS: usize = 64;

/// What happens next to a value in a register.
enum Next {
    Read,
    Overwritten,
    /// The block leaves it where it is.
    Passes,
}

/// Where values go from the start of a block.
pub(super) struct Walk<'a> {
    pub code: &'a Code<'a>,
    pub plan: &'a Plan,
    pub stores: &'a Stores,
}

impl Walk<'_> {
    /// Whether anything reads the register that `value` is in when `block` is entered.
    pub fn is_read(&self, value: u32, block: Block) -> bool {
        let mut found: SmallVec<[(u32, Block); 16]> = SmallVec::new();
        found.push((value, block));
        let mut at = 0;
        while let Some(&(value, block)) = found.get(at) {
            at += 1;
            match self.in_block(value, block) {
                Next::Read => return true,
                Next::Overwritten => continue,
                Next::Passes => {}
            }
            for edge in &self.code.edges()[self.code.outgoing(block)] {
                if self.is_stored(value, edge) {
                    return true;
                }
                for next in self.behind(value, edge) {
                    if found.len() == MAX_BLOCKS {
                        return true;
                    }
                    if !found.contains(&next) {
                        found.push(next);
                    }
                }
            }
        }
        false
    }

    /// Whether anything behind `edge` reads the register that `value` is in before it.
    pub fn is_passed_on(&self, value: u32, edge: &Edge) -> bool {
        let mut behind = self.behind(value, edge).into_iter();
        behind.any(|(value, block)| self.is_read(value, block))
    }

    fn in_block(&self, value: u32, block: Block) -> Next {
        let code = self.code;
        if self.stores.at_definition(value) && code.params(block).contains(&value) {
            return Next::Read;
        }
        for number in code.steps(block) {
            let mut accesses = code.accesses(number).iter().filter(|a| a.value == value);
            if accesses.clone().any(|a| a.role.reads()) {
                return Next::Read;
            }
            if accesses.next().is_some() {
                return Next::Overwritten;
            }
        }
        // The register that it leaves may be read while it is intact.
        match self.plan.events.of(block).iter().any(|e| e.value == value) {
            true => Next::Read,
            false => Next::Passes,
        }
    }

    /// Whether an edge stores `value`, or what it passes it to.
    fn is_stored(&self, value: u32, edge: &Edge) -> bool {
        let plan = self.plan;
        let in_memory = plan.in_memory.of(edge.to);
        let mut pairs = self.code.pairs(edge).iter();
        if pairs.any(|&(param, arg)| arg == value && in_memory.contains(&param)) {
            return true;
        }
        let mut exit = plan.exit.of(edge.from).iter();
        let is_clean =
            exit.any(|r| r.value == value && r.clean) || self.stores.at_definition(value);
        let mut entry = plan.entry.of(edge.to).iter();
        !is_clean && (in_memory.contains(&value) || entry.any(|r| r.value == value && r.clean))
    }

    /// Who has what `value` holds in a register behind `edge`.
    fn behind(&self, value: u32, edge: &Edge) -> SmallVec<[(u32, Block); 2]> {
        let code = self.code;
        let pairs = code.pairs(edge).iter().filter(|(_, arg)| *arg == value);
        let params = pairs.map(|&(param, _)| param);
        let itself = Some(value).filter(|value| !code.params(edge.to).contains(value));
        let entry = self.plan.entry.of(edge.to);
        let all = params.chain(itself);
        let resident = all.filter(|&value| entry.iter().any(|r| r.value == value));
        resident.map(|value| (value, edge.to)).collect()
    }
}
