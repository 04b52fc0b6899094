//! Whether every value is written before it is read.
//!
//! A value may be read unwritten exactly where some path from the entry reaches the read
//! without a write: where it is live into the entry. Then the shortest such path is looked
//! for, to be shown. Blocks that cannot be reached lead no path to the entry, so anything
//! goes in them.

use super::*;
use crate::analysis::Liveness;
use std::collections::VecDeque;

impl Rules<'_> {
    /// Checks the rule by the function's liveness, which it returns for further use.
    pub(super) fn defined_before_use(&self, scratch: &Scratch) -> Result<Liveness, Error> {
        let f = self.function;
        let liveness = Liveness::compute_in(f, scratch);
        let unwritten = liveness.live_in(f.entry()).next();
        match unwritten {
            Some(vreg) => self.undefined(&self.path_to_read(vreg), vreg),
            None => Ok(liveness),
        }
    }

    /// A shortest path from the entry to a read of `vreg` on which nothing writes it.
    fn path_to_read(&self, vreg: VReg) -> Vec<Block> {
        let f = self.function;
        let mut came_from: Vec<Option<Block>> = vec![None; f.block_count()];
        let mut queue = VecDeque::from([f.entry()]);
        let mut last = f.entry();
        while let Some(block) = queue.pop_front() {
            match self.first_access(block, vreg) {
                Some(Access::Read) => {
                    last = block;
                    break;
                }
                Some(Access::Write) => {}
                None => {
                    for to in f.succs(block).iter().map(|edge| edge.block) {
                        let is_new = to != f.entry() && came_from[to.index()].is_none();
                        if is_new && !f.block(to).params.contains(&vreg) {
                            came_from[to.index()] = Some(block);
                            queue.push_back(to);
                        }
                    }
                }
            }
        }
        let mut path = vec![last];
        while let Some(block) = came_from[path[path.len() - 1].index()] {
            path.push(block);
        }
        path.reverse();
        path
    }

    /// What `block` does to `vreg` first; passing it along an edge counts as reading it last.
    fn first_access(&self, block: Block, vreg: VReg) -> Option<Access> {
        let f = self.function;
        for inst in f.block_insts(block) {
            let own = || f.operands(inst).iter().filter(|o| o.vreg == vreg);
            if own().any(|o| o.role.reads()) {
                return Some(Access::Read);
            }
            if own().any(|o| o.role.writes()) {
                return Some(Access::Write);
            }
        }
        let passed = f.succs(block).iter().any(|edge| edge.args.contains(&vreg));
        passed.then_some(Access::Read)
    }

    /// Reports that `vreg` is unwritten along `path`, at whose end it is read.
    fn undefined<T>(&self, path: &[Block], vreg: VReg) -> Result<T, Error> {
        const SHOWN: usize = 8;
        let block = path[path.len() - 1];
        let f = self.function;
        let reads = |inst: &Inst| {
            let mut operands = f.operands(*inst).iter();
            operands.any(|o| o.vreg == vreg && o.role.reads())
        };
        let inst = f.block_insts(block).find(reads);
        let place = Place::Inst(block, inst.unwrap_or(f.terminator(block)));
        let mut names: Vec<String> = path.iter().take(SHOWN).map(|b| b.to_string()).collect();
        if path.len() > SHOWN {
            names.push(format!("… ({} more)", path.len() - SHOWN));
        }
        let path = names.join(" → ");
        invalid(
            place,
            format!("{vreg} is read, but nothing writes it on the way {path}"),
        )
    }
}

/// What a block does to a value.
enum Access {
    Read,
    Write,
}
