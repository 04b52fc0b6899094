//! Values that are cheaper to rematerialise than to reload, by class.
//!
//! Candidates are listed per class before anything is spilled
//! (`docs/sources.md#fatpoint-rematerialisation`). A value is excluded unless it can be
//! rematerialised (one result, no effects, nothing it reads or writes is written twice) in
//! fewer cycles than a part of a reload's. Candidates are cheap to spill, so that guidance
//! takes them first.

use super::class::RegClass;
use super::cost::DEFAULT_COST;
use super::guidance::Costs;
use crate::ir::{Op, Program, Value};
use crate::options::Knobs;
use crate::spill::remat::may_run_again;
use crate::target::Target;
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};

/// Rematerialisation candidates and excluded values.
#[derive(Clone, Debug, Default)]
pub struct RematLists {
    /// Candidates with the cycles one computation takes, by class number.
    pub candidates: [Vec<(Value, u8)>; 7],
    /// Values that an instruction could rematerialise, but not soundly or not cheaply, and pieces
    /// of spilled values.
    pub excluded: EntitySet<Value>,
}

impl RematLists {
    /// Lists the candidates of `program`.
    pub fn find(program: &Program, target: &Target, knobs: &Knobs) -> RematLists {
        let mut writes: SecondaryMap<Value, u32> = SecondaryMap::new();
        for op in program.blocks.values().flat_map(|block| &block.ops) {
            for (value, role) in op.accesses(program.function) {
                writes[value] += role.writes() as u32;
            }
        }
        let mut lists = RematLists::default();
        for op in program.blocks.values().flat_map(|block| &block.ops) {
            let (Op::Inst { inst, values } | Op::Recompute { inst, values }) = op else {
                continue;
            };
            let Some(cycles) = program.function.inst(*inst).remat else {
                continue;
            };
            let operands = program.function.operands(*inst);
            let steady = |v: Value| writes[v] == 1;
            let sound = may_run_again(program.function, *inst) && values.iter().all(|&v| steady(v));
            let cheap = f32::from(cycles) < knobs.remat_threshold * DEFAULT_COST;
            for (&value, _) in values.iter().zip(operands).filter(|(_, o)| o.role.writes()) {
                if sound && cheap && value.index() < program.function.vreg_count() {
                    let class = RegClass::of(target, program.values[value].class);
                    lists.candidates[class.number()].push((value, cycles));
                } else {
                    lists.excluded.insert(value);
                }
            }
        }
        lists
    }

    /// Lowers the costs of candidates to what rematerialising them takes.
    pub fn apply(&self, costs: &mut Costs) {
        for &(value, cycles) in self.candidates.iter().flatten() {
            if costs[value].is_finite() {
                costs[value] *= f32::from(cycles) / DEFAULT_COST;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_problem;
    use super::*;
    use crate::function::{Block, Builder, Effect, Inst};
    use crate::target::Class;
    use smallvec::smallvec;

    #[test]
    fn constants_qualify_by_class_and_rewritten_or_dear_values_do_not() {
        let target = Target::hardware(90).unwrap();
        let mut b = Builder::new("f");
        let block = b.block();
        let word = b.vreg(Class::R32);
        let uniform = b.vreg(Class::UR32);
        let rewritten = b.vreg(Class::R32);
        let dear = b.vreg(Class::R32);
        b.inst(block, "mov").def(word).remat(1);
        b.inst(block, "umov").def(uniform).remat(1);
        b.inst(block, "mov").def(rewritten).remat(1);
        b.inst(block, "mov").def(rewritten).remat(1);
        b.inst(block, "div").def(dear).remat(40);
        b.inst(block, "st")
            .use_(word)
            .use_(uniform)
            .use_(rewritten)
            .use_(dear)
            .effect(Effect::Write);
        b.exit(block, "exit");
        let f = b.finish();
        let program = Program::new(&f, &target, None).unwrap();
        let lists = RematLists::find(&program, &target, &Knobs::default());
        assert_eq!(lists.candidates[1], [(Value::new(0), 1)]);
        assert_eq!(lists.candidates[3], [(Value::new(1), 1)]);
        assert!(lists.excluded.contains(Value::new(2)) && lists.excluded.contains(Value::new(3)));
        let mut costs: Costs = SecondaryMap::with_default(30.0);
        lists.apply(&mut costs);
        assert_eq!((costs[Value::new(0)], costs[Value::new(3)]), (2.0, 30.0));
        let lenient = Knobs {
            remat_threshold: 3.0,
            ..Knobs::default()
        };
        let more = RematLists::find(&program, &target, &lenient);
        assert_eq!(more.candidates[1].len(), 2);
    }

    #[test]
    fn neither_values_at_the_cycle_limit_nor_pieces_of_others_are_candidates() {
        let text = "target hardware sm_90
            options RegAllocRematThreshold=1
            kernel f {
            block0:
                v0:r32 = mov : remat 14
                v1:r32 = mov : remat 15
                store v0, v1 : write
                exit : exit write
            }";
        with_problem(text, &[], |problem| {
            let mut program = problem.program.clone();
            let [cheap, dear] = [0, 1].map(Value::new);
            let piece = program.piece_of(cheap);
            let again = Op::Recompute {
                inst: Inst::new(0),
                values: smallvec![piece],
            };
            program.blocks[Block::new(0)].ops.push(again);
            let lists = RematLists::find(&program, problem.target, &problem.options.knobs);
            assert_eq!(lists.candidates[1], [(cheap, 14)]);
            assert!(lists.excluded.iter().eq([dear, piece]));
        });
    }
}
