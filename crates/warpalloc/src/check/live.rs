//! Liveness as the checker needs it, apart from the one that allocators use.
//!
//! Each virtual register is walked on its own, from the blocks that read it before they
//! write it back to the blocks that write it, so memory is the size of the answer. Reads
//! are those of instructions, of edge arguments, and of rematerialisations: an allocator may
//! keep an input live only to rematerialise a value, and then the input matters too.
//!
//! Records are variables of their own here. An instruction with a record and every edit that
//! computes it read it; an instruction that gives one of its inputs a new value, and so
//! makes it useless, counts as writing it. Copies pass values on, and an instruction with a
//! record may yield what is recorded, so neither makes another record useless. Records of
//! instructions that are computed on edges alone begin there.

use super::equations::Equations;
use crate::allocation::{Allocation, Edit};
use crate::function::{Block, Function, Inst, Kind, VReg};
use crate::scratch::Scratch;
use cranelift_entity::{EntityRef, SecondaryMap};
use std::ops::Range;

/// Virtual registers that are live at the start of each block, parameters included.
pub(super) struct Live {
    by_block: Lists<VReg>,
}

impl Live {
    pub(super) fn compute(
        function: &Function,
        allocation: &Allocation,
        equations: &Equations,
        scratch: &Scratch,
    ) -> Live {
        let events = Events::collect(function, allocation, equations, scratch);
        let mut walk = Walk {
            function,
            live_for: SecondaryMap::new(),
            written_for: SecondaryMap::new(),
            param_for: SecondaryMap::new(),
            work: scratch.growing(),
            found: scratch.growing(),
        };
        let records = equations.records().map(|(record, _)| record);
        for vreg in function.vregs().chain(records) {
            walk.run(vreg, &events);
        }
        // Walks run by ascending vreg, and lists keep that order.
        let by_block = Lists::new(function.block_count(), &walk.found, scratch);
        scratch.give(walk.found);
        scratch.give(walk.work);
        events.recycle(scratch);
        Live { by_block }
    }

    /// Leaves its memory to others.
    pub(super) fn recycle(self, scratch: &Scratch) {
        self.by_block.recycle(scratch);
    }

    /// For each block, what `expand` makes of each virtual register live at its start.
    pub(super) fn expand(
        &self,
        expand: impl Fn(VReg) -> Range<u32>,
        scratch: &Scratch,
    ) -> Lists<u32> {
        let mut starts = scratch.take(self.by_block.starts.len());
        starts.push(0);
        let mut items = scratch.take(self.by_block.items.len());
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
    /// Edges, by their ends, on which it is written.
    edges: Lists<(Block, Block)>,
}

impl Events {
    fn collect(
        function: &Function,
        allocation: &Allocation,
        equations: &Equations,
        scratch: &Scratch,
    ) -> Events {
        let mut scan = Scan {
            function,
            equations,
            written_in: SecondaryMap::new(),
            reads: scratch.growing(),
            writes: scratch.growing(),
            edges: scratch.growing(),
        };
        let mut params = scratch.growing();
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
        let vregs = function.vreg_count() + equations.records().len();
        let events = Events {
            reads: Lists::new(vregs, &scan.reads, scratch),
            writes: Lists::new(vregs, &scan.writes, scratch),
            params: Lists::new(vregs, &params, scratch),
            edges: Lists::new(vregs, &scan.edges, scratch),
        };
        [scan.reads, scan.writes, params]
            .into_iter()
            .for_each(|pairs| scratch.give(pairs));
        scratch.give(scan.edges);
        events
    }

    fn recycle(self, scratch: &Scratch) {
        [self.reads, self.writes, self.params]
            .into_iter()
            .for_each(|lists| lists.recycle(scratch));
        self.edges.recycle(scratch);
    }
}

struct Scan<'a> {
    function: &'a Function,
    equations: &'a Equations,
    written_in: SecondaryMap<VReg, Option<Block>>,
    reads: Vec<(usize, Block)>,
    writes: Vec<(usize, Block)>,
    edges: Vec<(usize, (Block, Block))>,
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
            let record = self.equations.record(inst);
            if let Some(record) = record {
                self.read(block, record);
            }
            let news = record.is_none() && self.function.inst(inst).kind != Kind::Copy;
            for operand in operands.iter().filter(|o| o.role.writes()) {
                self.write(block, operand.vreg);
                for &useless in self.equations.records_reading(operand.vreg) {
                    if news {
                        self.write(block, useless);
                    }
                }
            }
            self.edits(block, allocation.edits.after(inst));
        }
        for (succ, edge) in function.succs(block).iter().enumerate() {
            let edits = || allocation.edits.on_edge(block, succ as u32);
            let parallel = function
                .succs(block)
                .iter()
                .filter(|e| e.block == edge.block);
            if !self.equations.is_empty() && parallel.count() == 1 {
                self.begun_on_edge(block, edge.block, edits());
            }
            self.edits(block, edits());
            for &arg in &edge.args {
                self.read(block, arg);
            }
        }
    }

    fn edits<'e>(&mut self, block: Block, edits: impl Iterator<Item = &'e Edit>) {
        for edit in edits {
            if let Edit::Recompute { inst, .. } = *edit {
                self.recomputation(block, inst);
            }
        }
    }

    /// Finds records that begin on the edge.
    fn begun_on_edge<'e>(&mut self, from: Block, to: Block, edits: impl Iterator<Item = &'e Edit>) {
        for edit in edits {
            if let Edit::Recompute { inst, .. } = *edit
                && let Some(record) = self.equations.record(inst)
                && self.equations.begins_on_edges(record)
            {
                self.edges.push((record.index(), (from, to)));
            }
        }
    }

    /// An equation is about the present results, which therefore matter; a record is not.
    fn recomputation(&mut self, block: Block, inst: Inst) {
        let record = self.equations.record(inst);
        for operand in self.function.operands(inst) {
            if record.is_none() || operand.role.reads() {
                self.read(block, operand.vreg);
            }
        }
        if let Some(record) = record
            && !self.equations.begins_on_edges(record)
        {
            self.read(block, record);
        }
    }

    fn write(&mut self, block: Block, vreg: VReg) {
        if self.written_in[vreg] != Some(block) {
            self.written_in[vreg] = Some(block);
            self.writes.push((vreg.index(), block));
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
                let on_edge = events.edges.of(vreg.index()).contains(&(pred, block));
                if self.written_for[pred] != Some(vreg) && !on_edge {
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

impl<T: Copy + Send + 'static> Lists<T> {
    /// Sorts `pairs` into lists by their first component, keeping order within a list.
    pub(super) fn new(count: usize, pairs: &[(usize, T)], scratch: &Scratch) -> Lists<T> {
        let mut starts = scratch.filled(0, count + 1);
        for &(index, _) in pairs {
            starts[index + 1] += 1;
        }
        for index in 0..count {
            starts[index + 1] += starts[index];
        }
        let mut next = scratch.collected(starts.iter().copied());
        let mut items = scratch.collected(pairs.iter().map(|&(_, item)| item));
        for &(index, item) in pairs {
            items[next[index] as usize] = item;
            next[index] += 1;
        }
        scratch.give(next);
        Lists { starts, items }
    }

    /// Leaves its memory to others.
    pub(super) fn recycle(self, scratch: &Scratch) {
        scratch.give(self.starts);
        scratch.give(self.items);
    }

    /// The list at `index`.
    pub(super) fn of(&self, index: usize) -> &[T] {
        &self.items[self.starts[index] as usize..self.starts[index + 1] as usize]
    }
}
