//! What the analyses ask of code.

use crate::function::{Block, Function, Inst, Role, VReg};
use cranelift_entity::EntityRef;

/// A control-flow graph.
///
/// Blocks are numbered `0..block_count()`. A block with several edges to the same
/// successor lists it once per edge, and so does the successor.
pub trait Cfg {
    /// How many blocks there are.
    fn block_count(&self) -> usize;

    /// The block where execution starts.
    fn entry(&self) -> Block {
        Block::new(0)
    }

    /// Where the edges of `block` lead, in the terminator's order.
    fn successors(&self, block: Block) -> impl Iterator<Item = Block> + '_;

    /// Where the edges to `block` come from.
    fn predecessors(&self, block: Block) -> impl Iterator<Item = Block> + '_;

    /// How often `block` runs, where the client knows.
    fn supplied_frequency(&self, _block: Block) -> Option<f32> {
        None
    }

    /// All blocks by number.
    fn all_blocks(&self) -> impl DoubleEndedIterator<Item = Block> + ExactSizeIterator + use<Self> {
        (0..self.block_count()).map(Block::new)
    }
}

/// Code that reads and writes values.
///
/// The parameters of a block are written when it is entered. The arguments of an edge
/// are read after the terminator of the block it leaves.
pub trait Code: Cfg {
    /// What names a value; values are numbered `0..value_count()`.
    type Value: EntityRef + Ord + Send + 'static;
    /// What names an instruction.
    type Point: Copy;

    /// How many values there are.
    fn value_count(&self) -> usize;

    /// The instructions of `block` in execution order.
    fn points(&self, block: Block) -> impl DoubleEndedIterator<Item = Self::Point> + '_;

    /// The operands of an instruction, in a fixed order.
    fn accesses(&self, point: Self::Point) -> impl Iterator<Item = (Self::Value, Role)> + '_;

    /// What each incoming edge gives a value.
    fn parameters(&self, block: Block) -> impl Iterator<Item = Self::Value> + '_;

    /// What the edges of `block` pass on, edge after edge: an argument for each parameter of
    /// the successor.
    fn arguments(&self, block: Block) -> impl Iterator<Item = Self::Value> + '_;
}

impl Cfg for Function {
    fn block_count(&self) -> usize {
        Function::block_count(self)
    }

    fn successors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        self.succ_blocks(block).iter().copied()
    }

    fn predecessors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        self.preds(block).iter().copied()
    }

    fn supplied_frequency(&self, block: Block) -> Option<f32> {
        self.block(block).frequency
    }
}

impl Code for Function {
    type Value = VReg;
    type Point = Inst;

    fn value_count(&self) -> usize {
        self.vreg_count()
    }

    fn points(&self, block: Block) -> impl DoubleEndedIterator<Item = Inst> + '_ {
        self.block_insts(block)
    }

    fn accesses(&self, point: Inst) -> impl Iterator<Item = (VReg, Role)> + '_ {
        self.operands(point).iter().map(|o| (o.vreg, o.role))
    }

    fn parameters(&self, block: Block) -> impl Iterator<Item = VReg> + '_ {
        self.block(block).params.iter().copied()
    }

    fn arguments(&self, block: Block) -> impl Iterator<Item = VReg> + '_ {
        let edges = self.succs(block).iter();
        edges.flat_map(|edge| edge.args.iter().copied())
    }
}
