//! The run before allocation, on virtual registers.

use super::Limits;
use super::world::{Trace, World};
use crate::function::{Function, Inst, VReg};
use crate::target::Target;
use cranelift_entity::{EntityRef, SecondaryMap};
use rustc_hash::FxHashMap;

/// The inputs of every instruction, by how often it had run before.
pub(super) type Reads = FxHashMap<(Inst, u32), Vec<u64>>;

pub(super) struct Run {
    pub trace: Trace,
    pub reads: Reads,
}

pub(super) fn run(function: &Function, target: &Target, limits: Limits, seed: u64) -> Run {
    let mut world = World::new(seed);
    let mut reads = Reads::default();
    let mut values: SecondaryMap<VReg, Vec<u64>> = SecondaryMap::new();
    for vreg in function.vregs() {
        let width = target.width(function.vreg(vreg).class);
        values[vreg] = vec![vreg.index() as u64; width];
    }
    let mut block = function.entry();
    while world.trace.blocks < limits.blocks {
        world.trace.blocks += 1;
        let mut inputs = Vec::new();
        for inst in function.block_insts(block) {
            let operands = function.operands(inst);
            let read = operands.iter().filter(|o| o.role.reads());
            inputs = read.flat_map(|o| values[o.vreg].iter().copied()).collect();
            reads.insert((inst, world.visit(inst)), inputs.clone());
            let results = world.execute(function, target, inst, &inputs);
            let mut results = results.into_iter();
            for operand in operands.iter().filter(|o| o.role.writes()) {
                values[operand.vreg]
                    .iter_mut()
                    .zip(&mut results)
                    .for_each(|(part, result)| *part = result);
            }
        }
        let succs = function.succs(block);
        let way = world.way(function, function.terminator(block), &inputs, succs.len());
        let Some(edge) = succs.get(way as usize) else {
            break;
        };
        let args: Vec<_> = edge.args.iter().map(|&arg| values[arg].clone()).collect();
        for (&param, arg) in function.block(edge.block).params.iter().zip(args) {
            values[param] = arg;
        }
        block = edge.block;
    }
    Run {
        trace: world.trace,
        reads,
    }
}
