//! Values computed again at their readers, because too many are live otherwise.
//!
//! A value that cheap instructions compute from constants, or from values that live as long
//! anyway, need not be kept in a register: a pointer out of a parameter, a base and a constant,
//! a wide value whose upper half is zero, the mask of a guard. Where more units are live than
//! a file has, this pass takes such values out of their registers before any colour is
//! chosen. Each reader gets a piece of its own, computed right before it, and the definition
//! goes (`docs/sources.md#rematerialisation`).
//!
//! A *recipe* is a chain of instructions that may run again. Every value in it has one
//! definition, which therefore comes before every reader, and is the same there as where the
//! chain was first computed. What the chain reads and does not compute are its *leaves*. They
//! must be live as long as the value was, so values with the same leaves are weighed
//! together: forty sums of one base free forty registers and take one.
//!
//! Spilling rematerialises too ([`crate::spill::remat`]), value by value and only where inputs
//! are live.

mod choose;
mod recipe;
#[cfg(test)]
mod tests;

use crate::function::Inst;
use crate::ir::{Facts, Op, Program, Value};
use crate::target::Target;
use choose::choose;
use cranelift_entity::EntitySet;
use recipe::Recipes;
use smallvec::SmallVec;

/// Takes values of `program` out of their registers where pressure exceeds `target`; how many.
pub(crate) fn rematerialise(program: &mut Program, target: &Target, facts: &Facts) -> u32 {
    let recipes = Recipes::find(program);
    if recipes.is_empty() {
        return 0;
    }
    let mut chosen = choose(program, target, facts, &recipes);
    if chosen.is_empty() {
        return 0;
    }
    recipes.add_unread(program, &mut chosen);
    let count = chosen.iter().count() as u32;
    Rewrite {
        program,
        recipes: &recipes,
        chosen: &chosen,
    }
    .run();
    count
}

struct Rewrite<'p, 'a> {
    program: &'p mut Program<'a>,
    recipes: &'p Recipes,
    chosen: &'p EntitySet<Value>,
}

impl Rewrite<'_, '_> {
    fn run(&mut self) {
        for block in self.program.blocks.keys() {
            let ops = std::mem::take(&mut self.program.blocks[block].ops);
            let mut out = Vec::with_capacity(ops.len());
            for op in ops {
                match self.deleted(&op) {
                    Some(inst) => drop(self.program.deleted.insert(inst)),
                    None => self.rewrite(op, &mut out),
                }
            }
            self.program.blocks[block].ops = out;
        }
    }

    /// The instruction of `op`, if all it does is to compute a chosen value.
    fn deleted(&self, op: &Op) -> Option<Inst> {
        let Op::Inst { inst, .. } = op else {
            return None;
        };
        let mut accesses = op.accesses(self.program.function);
        let is_chosen = accesses.any(|(v, role)| role.writes() && self.chosen.contains(v));
        is_chosen.then_some(*inst)
    }

    /// Computes what `op` reads of chosen values into pieces, which it reads instead.
    fn rewrite(&mut self, mut op: Op, out: &mut Vec<Op>) {
        let mut pieces: SmallVec<[(Value, Value); 4]> = SmallVec::new();
        let accesses: SmallVec<[_; 8]> = op.accesses(self.program.function).collect();
        for (value, role) in accesses {
            let is_new = pieces.iter().all(|(v, _)| *v != value);
            if role.reads() && is_new && self.chosen.contains(value) {
                let piece = self.compute(value, out);
                pieces.push((value, piece));
            }
        }
        if !pieces.is_empty() {
            op.rename(|value| {
                let piece = pieces.iter().find(|(v, _)| *v == value);
                piece.map_or(value, |(_, piece)| *piece)
            });
        }
        out.push(op);
    }

    /// A new piece of `value`, computed at the end of `out`.
    fn compute(&mut self, value: Value, out: &mut Vec<Op>) -> Value {
        let piece = self.program.piece_of(value);
        self.program.values[piece].unspillable = true;
        let Some(inst) = self.recipes.inst(value) else {
            debug_assert!(false, "{value} has a recipe");
            return piece;
        };
        let mut values: SmallVec<[Value; 4]> = SmallVec::new();
        let inputs = self.recipes.inputs(value);
        for operand in self.program.function.operands(inst) {
            let of = Value::from_u32(operand.vreg.as_u32());
            values.push(match operand.role.writes() {
                true => piece,
                false if inputs.contains(&of) => self.compute(of, out),
                false => of,
            });
        }
        out.push(Op::Recompute { inst, values });
        piece
    }
}
