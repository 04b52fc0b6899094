//! What moves out of a loop, and what that does to the program.

use crate::analysis::Revision;
use crate::function::{Block, Inst};
use crate::ir::{Op, Program, Value};
use smallvec::SmallVec;

/// A computation in a loop that may run before it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub block: Block,
    /// Its place in the block.
    pub index: usize,
    pub inst: Inst,
    pub result: Value,
    /// How often the loop reads that.
    pub reads: u32,
    /// How many of its inputs the loop still computes.
    pub waits_for: u32,
    /// The numbers of candidates that read its result.
    pub readers: SmallVec<[u32; 2]>,
}

impl Candidate {
    /// The values of its operands.
    pub(super) fn values<'p>(&self, program: &'p Program) -> &'p [Value] {
        match &program.blocks[self.block].ops[self.index] {
            Op::Inst { values, .. } | Op::Recompute { values, .. } => values,
            _ => &[],
        }
    }
}

/// What to move out of one loop.
pub(super) struct Plan {
    /// In an order in which they can be computed.
    pub moved: Vec<Candidate>,
    /// Edges into the loop.
    pub entries: Vec<(Block, usize)>,
    pub header: Block,
    /// The values that moved code reads and writes, once for each operand, and whether the loop
    /// or code behind it still reads them.
    pub values: Vec<(Value, bool)>,
}

impl Plan {
    /// Moves the code out of the loop of these blocks.
    ///
    /// Nothing in the loop writes a value any more that moved code reads or writes, and every
    /// block of a loop leads to every other, so such a value is live everywhere in the
    /// loop or nowhere. Before the loop liveness stays the same: the code computed there
    /// reads values that were live into the loop already. Blocks that never run may lead
    /// into the middle of the loop; liveness there is left as it was.
    pub(super) fn apply(
        self,
        program: &mut Program,
        blocks: &[Block],
        liveness: &mut Revision<Value>,
    ) {
        let change = liveness.change(self.values.iter().copied());
        for &block in blocks {
            liveness.alter(block, &change);
        }
        let again = self.remove(program);
        for &(block, succ) in &self.entries {
            let known = program.blocks.len();
            let on_edge = program.split_edge(block, succ);
            program.blocks[on_edge].ops.extend(again.iter().cloned());
            let is_new = program.blocks.len() > known;
            liveness.lead_into(on_edge, self.header, &change, is_new);
        }
    }

    /// Takes the code out of its blocks, and returns it as it is to run before the loop.
    fn remove(&self, program: &mut Program) -> Vec<Op> {
        let again = self.moved.iter().map(|candidate| Op::Recompute {
            inst: candidate.inst,
            values: candidate.values(program).into(),
        });
        let again = again.collect();
        let mut gone: Vec<(Block, usize)> = self.moved.iter().map(|c| (c.block, c.index)).collect();
        gone.sort_unstable();
        for of_block in gone.chunk_by(|a, b| a.0 == b.0) {
            let mut next = of_block.iter().map(|&(_, index)| index).peekable();
            let mut index = 0;
            program.blocks[of_block[0].0].ops.retain(|_| {
                let stays = next.next_if_eq(&index).is_none();
                index += 1;
                stays
            });
        }
        for candidate in &self.moved {
            program.deleted.insert(candidate.inst);
        }
        again
    }
}
