//! Values that calls stand in the way of.

use rustc_hash::FxHashSet;
use warpalloc::analysis::Liveness;
use warpalloc::function::{Block, Function, Kind, VReg};

/// How many values are live through some call: each needs a register that calls preserve, or
/// memory.
pub(crate) fn live_through_calls(function: &Function) -> u32 {
    let is_call = |block: Block| {
        let mut insts = function.block_insts(block);
        insts.any(|inst| function.inst(inst).kind == Kind::Call)
    };
    let blocks: Vec<Block> = function.blocks().filter(|&block| is_call(block)).collect();
    if blocks.is_empty() {
        return 0;
    }
    let liveness = Liveness::compute(function);
    let mut through: FxHashSet<VReg> = FxHashSet::default();
    for block in blocks {
        let mut live: FxHashSet<VReg> = liveness.live_out(block).collect();
        for inst in function.block_insts(block).rev() {
            let operands = function.operands(inst).iter();
            for operand in operands.clone().filter(|o| o.role.writes()) {
                live.remove(&operand.vreg);
            }
            if function.inst(inst).kind == Kind::Call {
                through.extend(&live);
            }
            live.extend(operands.filter(|o| o.role.reads()).map(|o| o.vreg));
        }
    }
    through.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_live_before_and_after_a_call_counts_once() {
        let case = warpalloc::text::parse(
            "target hardware sm_90 R=32 P=7 UR=63 UP=7\noptions strategy=naive\n\n\
             kernel k {\nblock0:\n    v0:r32 = ld #1 : read\n    v1:r32 = ld #2 : read\n\
             \x20   v2:r32 = call v1 : call write clobbers abi\n\
             \x20   v3:r32 = call v2 : call write clobbers abi\n\
             \x20   st v0, v3 : write\n    exit : exit write\n}\n",
        )
        .unwrap();
        assert_eq!(live_through_calls(&case.function), 1, "v0, through both");
    }
}
