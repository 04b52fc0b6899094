//! A program as the analyses see it.

use super::{Op, Program, Value};
use crate::analysis::{Cfg, Code};
use crate::function::{Block, Function, Role};
use smallvec::SmallVec;

impl Op {
    /// Every value the step touches, and how.
    pub fn accesses(&self, function: &Function) -> SmallVec<[(Value, Role); 6]> {
        match self {
            Op::Inst { inst, values } | Op::Recompute { inst, values } => {
                let roles = function.operands(*inst).iter().map(|o| o.role);
                values.iter().copied().zip(roles).collect()
            }
            Op::Copies(pairs) => {
                let reads = pairs.iter().map(|&(_, from)| (from, Role::Use));
                let writes = pairs.iter().map(|&(to, _)| (to, Role::Def));
                reads.chain(writes).collect()
            }
            Op::Transfer { to, from } => {
                SmallVec::from_slice(&[(*from, Role::Use), (*to, Role::Def)])
            }
            Op::Store { value, .. } => SmallVec::from_slice(&[(*value, Role::Use)]),
            Op::Reload { value, .. } => SmallVec::from_slice(&[(*value, Role::Def)]),
        }
    }

    /// Puts another value in place of each.
    pub fn rename(&mut self, mut name: impl FnMut(Value) -> Value) {
        match self {
            Op::Inst { values, .. } | Op::Recompute { values, .. } => {
                values.iter_mut().for_each(|value| *value = name(*value));
            }
            Op::Copies(pairs) => {
                for (to, from) in pairs {
                    (*to, *from) = (name(*to), name(*from));
                }
            }
            Op::Transfer { to, from } => (*to, *from) = (name(*to), name(*from)),
            Op::Store { value, .. } | Op::Reload { value, .. } => *value = name(*value),
        }
    }
}

impl Cfg for Program<'_> {
    fn block_count(&self) -> usize {
        self.blocks.len()
    }

    fn successors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        self.blocks[block].succs.iter().copied()
    }

    fn predecessors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        self.blocks[block].preds.iter().copied()
    }

    fn supplied_frequency(&self, block: Block) -> Option<f32> {
        match self.blocks[block].edge {
            None => self.function.block(block).frequency,
            Some(_) => None,
        }
    }
}

impl Code for Program<'_> {
    type Value = Value;
    type Point = (Block, u32);

    fn value_count(&self) -> usize {
        self.values.len()
    }

    fn points(&self, block: Block) -> impl DoubleEndedIterator<Item = (Block, u32)> + '_ {
        (0..self.blocks[block].ops.len() as u32).map(move |index| (block, index))
    }

    fn accesses(&self, (block, index): (Block, u32)) -> impl Iterator<Item = (Value, Role)> + '_ {
        let op = &self.blocks[block].ops[index as usize];
        op.accesses(self.function).into_iter()
    }

    fn parameters(&self, _: Block) -> impl Iterator<Item = Value> + '_ {
        std::iter::empty()
    }

    fn arguments(&self, _: Block) -> impl Iterator<Item = Value> + '_ {
        std::iter::empty()
    }
}
