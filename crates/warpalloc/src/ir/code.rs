//! A program as the analyses see it.

use super::{Op, Program, Value};
use crate::analysis::{Cfg, Code};
use crate::function::{Block, Function, Operand, Role};
use std::ops::Range;

impl Op {
    /// Every value the step touches, and how.
    #[inline]
    pub fn accesses<'a>(&'a self, function: &'a Function) -> Accesses<'a> {
        let (operands, len) = match self {
            Op::Inst { inst, values } | Op::Recompute { inst, values } => {
                (function.operands(*inst), values.len())
            }
            Op::Copies(pairs) => (&[][..], 2 * pairs.len()),
            Op::Transfer { .. } => (&[][..], 2),
            Op::Store { .. } | Op::Reload { .. } => (&[][..], 1),
        };
        Accesses {
            op: self,
            operands,
            left: 0..len,
        }
    }

    /// Calls `visit` with what [`Op::accesses`] yields; faster where there are many.
    #[inline]
    pub fn for_each_access(&self, function: &Function, mut visit: impl FnMut(Value, Role)) {
        match self {
            Op::Inst { inst, values } | Op::Recompute { inst, values } => {
                for (&value, operand) in values.iter().zip(function.operands(*inst)) {
                    visit(value, operand.role);
                }
            }
            other => other
                .accesses(function)
                .for_each(|(v, role)| visit(v, role)),
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

/// The values a step touches: of copies, what is read before what is written.
#[derive(Clone, Debug)]
pub struct Accesses<'a> {
    op: &'a Op,
    operands: &'a [Operand],
    left: Range<usize>,
}

impl Iterator for Accesses<'_> {
    type Item = (Value, Role);

    #[inline]
    fn next(&mut self) -> Option<(Value, Role)> {
        let index = self.left.next()?;
        Some(match self.op {
            Op::Inst { values, .. } | Op::Recompute { values, .. } => {
                (values[index], self.operands[index].role)
            }
            Op::Copies(pairs) => match pairs.get(index) {
                Some(&(_, from)) => (from, Role::Use),
                None => (pairs[index - pairs.len()].0, Role::Def),
            },
            Op::Transfer { from, .. } if index == 0 => (*from, Role::Use),
            Op::Transfer { to, .. } => (*to, Role::Def),
            Op::Store { value, .. } => (*value, Role::Use),
            Op::Reload { value, .. } => (*value, Role::Def),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl ExactSizeIterator for Accesses<'_> {}

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
        op.accesses(self.function)
    }

    fn parameters(&self, _: Block) -> impl Iterator<Item = Value> + '_ {
        std::iter::empty()
    }

    fn arguments(&self, _: Block) -> impl Iterator<Item = Value> + '_ {
        std::iter::empty()
    }
}
