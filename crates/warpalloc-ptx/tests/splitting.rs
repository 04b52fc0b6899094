//! What splitting live ranges does to the interference graphs of real kernels.

use warpalloc::internals::{DegreeChange, Degrees, SplitPolicy};
use warpalloc::target::{File, Target};
use warpalloc_ptx::module::lower_module;

const KERNELS: [&str; 5] = [
    include_str!("../../../corpus/ptx/async.sm_90.ptx"),
    include_str!("../../../corpus/ptx/fft16.sm_90.ptx"),
    include_str!("../../../corpus/ptx/mma.sm_90.ptx"),
    include_str!("../../../corpus/ptx/sgemm_rb.sm_90.ptx"),
    include_str!("../../../corpus/ptx/stencil.sm_90.ptx"),
];

/// The graphs of all crowded functions together.
fn degrees(registers: usize, policy: SplitPolicy) -> Degrees {
    let full = Target::hardware(90).expect("it exists");
    let target = full.clone().with_budget(File::R, registers);
    let mut all = Degrees::default();
    for text in KERNELS {
        for function in lower_module(text, &full).expect("it is PTX") {
            if let Some(change) = DegreeChange::measure(&function, &target, true, policy) {
                all.add(&change.all);
            }
        }
    }
    all
}

/// Splitting is reported to lower the average degree by 15 % and more
/// (`docs/sources.md#splitting-long-ranges`). `warpalloc-corpus --degrees` measures all
/// kernels at all budgets.
#[test]
fn the_average_degree_of_crowded_kernels_falls_by_fifteen_percent() {
    for registers in [15, 24, 64] {
        let finely = degrees(registers, SplitPolicy::finely());
        assert!(finely.before.nodes > 0);
        let fall = finely.fall();
        assert!(fall >= 0.15, "{fall} at {registers}");
    }
}
