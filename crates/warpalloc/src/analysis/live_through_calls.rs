//! Values that are live while a call runs.

use super::{LiveSet, Liveness};
use crate::function::{Function, VReg};
use cranelift_entity::EntitySet;

/// Virtual registers of `function` whose contents survive some call.
pub fn live_through_calls(function: &Function, liveness: &Liveness) -> EntitySet<VReg> {
    let mut through = EntitySet::new();
    let is_call = |inst| function.traits(inst).is_call();
    if !function.insts().any(is_call) {
        return through;
    }
    let mut live = LiveSet::new(function.vreg_count());
    for block in function.blocks() {
        if !function.block_insts(block).any(is_call) {
            continue;
        }
        live.start_at_end(liveness, block);
        for inst in function.block_insts(block).rev() {
            if is_call(inst) {
                let operands = function.operands(inst);
                let is_result = |v: VReg| operands.iter().any(|o| o.vreg == v && o.role.writes());
                through.extend(live.iter().filter(|&v| !is_result(v)));
            }
            live.step_back(function.operands(inst));
        }
    }
    through
}
