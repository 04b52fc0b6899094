//! What a strategy needs to know about a program, computed together.

use super::{Program, Value};
use crate::analysis::{Frequencies, Liveness, Loops, Order};
use crate::function::Block;
use crate::scratch::Scratch;

/// Facts about a program; stale as soon as it changes.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Block order.
    pub order: Order,
    /// Loops.
    pub loops: Loops,
    /// How often blocks run.
    pub frequencies: Frequencies,
    /// What is live where.
    pub liveness: Liveness<Value>,
}

impl Facts {
    /// Analyses `program`.
    pub fn of(program: &Program) -> Facts {
        Facts::of_in(program, &Scratch::default())
    }

    /// The same in memory of `scratch`.
    pub fn of_in(program: &Program, scratch: &Scratch) -> Facts {
        Facts::around(program, Liveness::compute_in(program, scratch))
    }

    /// Analyses a program that was just made from a function of known liveness. The order of
    /// instructions in a block says nothing of its ends, and what isolates constraints lives
    /// around single instructions, so without parameters nothing differs where blocks meet. A
    /// parameter begins in its block, but its value in the program comes in from the edges.
    pub fn of_fresh(program: &Program, liveness: &Liveness, scratch: &Scratch) -> Facts {
        let function = program.function;
        let has_params = |block: Block| !function.block(block).params.is_empty();
        match function.blocks().any(has_params) {
            // The values are the virtual registers, by the same numbers.
            false => Facts::around(program, liveness.renamed()),
            true => Facts::of_in(program, scratch),
        }
    }

    /// Takes in blocks from `first` on, each of which was put on an edge since, and a new
    /// liveness.
    pub(crate) fn add_blocks_on_edges(
        &mut self,
        program: &Program,
        first: Block,
        liveness: Liveness<Value>,
    ) {
        self.order = Order::compute(program);
        self.loops.add_blocks_on_edges(program, first);
        self.frequencies.add_blocks_on_edges(program, first);
        self.liveness = liveness;
    }

    /// Analyses a program of known liveness.
    fn around(program: &Program, liveness: Liveness<Value>) -> Facts {
        let order = Order::compute(program);
        let loops = Loops::compute(program, &order);
        let frequencies = Frequencies::compute(program, &order, &loops);
        Facts {
            order,
            loops,
            frequencies,
            liveness,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Builder, Effect};
    use crate::target::{Class, Target};

    /// Such an edge needs no copy, hence no block of its own, but the value crosses it.
    #[test]
    fn a_parameter_that_is_passed_itself_is_alive_between_blocks() {
        let mut b = Builder::new("f");
        let [entry, body] = [b.block(), b.block()];
        let x = b.vreg(Class::R32);
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.jump(entry, body, &[x]);
        b.param(body, x);
        b.inst(body, "store").use_(x).effect(Effect::Write);
        b.exit(body, "exit");
        let function = b.finish();
        let target = Target::hardware(90).unwrap();
        let liveness = function
            .validated(&target, &Scratch::default())
            .unwrap()
            .liveness;
        let program = Program::new(&function, &target, None).unwrap();
        let facts = Facts::of_fresh(&program, &liveness, &Scratch::default());
        let live: Vec<Value> = facts.liveness.live_in(body).collect();
        assert_eq!(live, [Value::from_u32(x.as_u32())]);
    }
}
