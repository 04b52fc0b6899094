//! Liveness as the checker needs it, apart from the one that allocators use.
//!
//! Each virtual register is walked on its own, from the blocks that read it before they
//! write it back to the blocks that write it, so memory is the size of the answer. Reads
//! are those of instructions, of edge arguments, and of recomputations: an allocator may
//! keep an input alive only to compute something again, and then its value matters too.

use crate::allocation::{Allocation, Edit};
use crate::function::{Block, Function, VReg};
use cranelift_entity::{EntityRef, SecondaryMap};
use std::ops::Range;

/// Virtual registers that are live at the start of each block, parameters included.
pub(super) struct Live {
    by_block: Lists<VReg>,
}

impl Live {
    pub(super) fn compute(function: &Function, allocation: &Allocation) -> Live {
        let events = Events::collect(function, allocation);
        let mut walk = Walk {
            function,
            live_for: SecondaryMap::new(),
            written_for: SecondaryMap::new(),
            param_for: SecondaryMap::new(),
            work: Vec::new(),
            found: Vec::new(),
        };
        for vreg in function.vregs() {
            walk.run(vreg, &events);
        }
        // Walks run by ascending vreg, and lists keep that order.
        Live {
            by_block: Lists::new(function.block_count(), &walk.found),
        }
    }

    /// For each block, what `expand` makes of each virtual register live at its start.
    pub(super) fn expand(&self, expand: impl Fn(VReg) -> Range<u32>) -> Lists<u32> {
        let mut starts = vec![0];
        let mut items = Vec::with_capacity(self.by_block.items.len());
        for block in 0..self.by_block.starts.len() - 1 {
            let vregs = self.by_block.of(block).iter();
            items.extend(vregs.flat_map(|&vreg| expand(vreg)));
            starts.push(items.len() as u32);
        }
        Lists { starts, items }
    }

    /// The virtual registers live at the start of `block`, ascending.
    pub(super) fn at_start(&self, block: Block) -> &[VReg] {
        self.by_block.of(block.index())
    }
}

/// Where the life of each virtual register begins and ends, by block.
struct Events {
    /// Blocks that read it before they write it.
    reads: Lists<Block>,
    /// Blocks with an instruction that writes it.
    writes: Lists<Block>,
    /// Blocks it is a parameter of.
    params: Lists<Block>,
}

impl Events {
    fn collect(function: &Function, allocation: &Allocation) -> Events {
        let mut scan = Scan {
            function,
            written_in: SecondaryMap::new(),
            reads: Vec::new(),
            writes: Vec::new(),
        };
        let mut params = Vec::new();
        for block in function.blocks() {
            params.extend(
                function
                    .block(block)
                    .params
                    .iter()
                    .map(|p| (p.index(), block)),
            );
            scan.block(block, allocation);
        }
        let vregs = function.vreg_count();
        Events {
            reads: Lists::new(vregs, &scan.reads),
            writes: Lists::new(vregs, &scan.writes),
            params: Lists::new(vregs, &params),
        }
    }
}

struct Scan<'a> {
    function: &'a Function,
    written_in: SecondaryMap<VReg, Option<Block>>,
    reads: Vec<(usize, Block)>,
    writes: Vec<(usize, Block)>,
}

impl Scan<'_> {
    fn block(&mut self, block: Block, allocation: &Allocation) {
        let function = self.function;
        for inst in allocation.block_insts(function, block) {
            self.edits(block, allocation.edits.before(inst));
            let operands = function.operands(inst);
            for operand in operands.iter().filter(|o| o.role.reads()) {
                self.read(block, operand.vreg);
            }
            for operand in operands.iter().filter(|o| o.role.writes()) {
                if self.written_in[operand.vreg] != Some(block) {
                    self.written_in[operand.vreg] = Some(block);
                    self.writes.push((operand.vreg.index(), block));
                }
            }
            self.edits(block, allocation.edits.after(inst));
        }
        for (succ, edge) in function.succs(block).iter().enumerate() {
            self.edits(block, allocation.edits.on_edge(block, succ as u32));
            for &arg in &edge.args {
                self.read(block, arg);
            }
        }
    }

    fn edits<'e>(&mut self, block: Block, edits: impl Iterator<Item = &'e Edit>) {
        for edit in edits {
            if let Edit::Recompute { inst, .. } = *edit {
                for operand in self.function.operands(inst) {
                    self.read(block, operand.vreg);
                }
            }
        }
    }

    fn read(&mut self, block: Block, vreg: VReg) {
        let repeated = self.reads.last() == Some(&(vreg.index(), block));
        if self.written_in[vreg] != Some(block) && !repeated {
            self.reads.push((vreg.index(), block));
        }
    }
}

/// The search for one virtual register after another; maps name the last one seen.
struct Walk<'a> {
    function: &'a Function,
    live_for: SecondaryMap<Block, Option<VReg>>,
    written_for: SecondaryMap<Block, Option<VReg>>,
    param_for: SecondaryMap<Block, Option<VReg>>,
    work: Vec<Block>,
    found: Vec<(usize, VReg)>,
}

impl Walk<'_> {
    fn run(&mut self, vreg: VReg, events: &Events) {
        for &block in events.writes.of(vreg.index()) {
            self.written_for[block] = Some(vreg);
        }
        for &block in events.params.of(vreg.index()) {
            self.param_for[block] = Some(vreg);
        }
        for &block in events.reads.of(vreg.index()) {
            self.mark(vreg, block);
        }
        while let Some(block) = self.work.pop() {
            if self.param_for[block] == Some(vreg) {
                continue;
            }
            for &pred in self.function.preds(block) {
                if self.written_for[pred] != Some(vreg) {
                    self.mark(vreg, pred);
                }
            }
        }
    }

    fn mark(&mut self, vreg: VReg, block: Block) {
        if self.live_for[block] != Some(vreg) {
            self.live_for[block] = Some(vreg);
            self.found.push((block.index(), vreg));
            self.work.push(block);
        }
    }
}

/// Lists by dense index, in one row.
pub(super) struct Lists<T> {
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T: Copy> Lists<T> {
    /// Sorts `pairs` into lists by their first component, keeping order within a list.
    pub(super) fn new(count: usize, pairs: &[(usize, T)]) -> Lists<T> {
        let mut starts = vec![0; count + 1];
        for &(index, _) in pairs {
            starts[index + 1] += 1;
        }
        for index in 0..count {
            starts[index + 1] += starts[index];
        }
        let mut next = starts.clone();
        let mut items: Vec<T> = pairs.iter().map(|&(_, item)| item).collect();
        for &(index, item) in pairs {
            items[next[index] as usize] = item;
            next[index] += 1;
        }
        Lists { starts, items }
    }

    /// The list at `index`.
    pub(super) fn of(&self, index: usize) -> &[T] {
        &self.items[self.starts[index] as usize..self.starts[index + 1] as usize]
    }
}
