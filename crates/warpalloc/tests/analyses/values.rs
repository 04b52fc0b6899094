//! Liveness.

use crate::random::{FUNCTIONS, function};
use std::collections::BTreeSet;
use warpalloc::analysis::{Cfg, Code, LiveSet, Liveness};
use warpalloc::function::{Block, Function, VReg};

/// A place between accesses: before instruction `index` of a block, whose parameters have
/// been written. The index one past the last is where edges read their arguments.
type Spot = (Block, usize);

/// Whether some path from `spot` reads `v` before writing it.
fn is_live(f: &Function, spot: Spot, v: VReg) -> bool {
    let mut seen = BTreeSet::new();
    let mut stack = vec![spot];
    while let Some((block, index)) = stack.pop() {
        if !seen.insert((block, index)) {
            continue;
        }
        match f.block_insts(block).nth(index) {
            Some(inst) => {
                let mut of_v = f.operands(inst).iter().filter(|o| o.vreg == v);
                if of_v.clone().any(|o| o.role.reads()) {
                    return true;
                }
                if !of_v.any(|o| o.role.writes()) {
                    stack.push((block, index + 1));
                }
            }
            None => {
                if f.arguments(block).any(|arg| arg == v) {
                    return true;
                }
                let through = |s: &Block| !f.block(*s).params.contains(&v);
                stack.extend(f.successors(block).filter(through).map(|s| (s, 0)));
            }
        }
    }
    false
}

#[test]
fn liveness_is_a_path_to_a_read() {
    for seed in 0..FUNCTIONS {
        let f = function(seed);
        let liveness = Liveness::compute(&f);
        for b in f.blocks() {
            let len = f.block_insts(b).len();
            let is_param = |v: &VReg| f.block(b).params.contains(v);
            let live_in: Vec<VReg> = f
                .vregs()
                .filter(|v| !is_param(v) && is_live(&f, (b, 0), *v))
                .collect();
            let live_out: Vec<VReg> = f.vregs().filter(|&v| is_live(&f, (b, len), v)).collect();
            assert_eq!(liveness.live_in(b), live_in, "seed {seed}: into {b}");
            assert_eq!(liveness.live_out(b), live_out, "seed {seed}: out of {b}");
            for v in f.vregs() {
                assert_eq!(liveness.is_live_in(b, v), live_in.contains(&v));
                assert_eq!(liveness.is_live_out(b, v), live_out.contains(&v));
            }
        }
    }
}

#[test]
fn walking_back_gives_the_live_set_of_every_point() {
    for seed in 0..FUNCTIONS / 4 {
        let f = function(seed);
        let liveness = Liveness::compute(&f);
        let mut live = LiveSet::new(f.vreg_count());
        for b in f.blocks() {
            live.start_at_end(&liveness, b);
            for (index, inst) in f.block_insts(b).enumerate().rev() {
                live.step_back(f.operands(inst));
                for v in f.vregs() {
                    assert_eq!(
                        live.contains(v),
                        is_live(&f, (b, index), v),
                        "seed {seed}: {inst} {v}"
                    );
                }
                assert_eq!(live.iter().collect::<BTreeSet<_>>().len(), live.len());
            }
        }
    }
}
