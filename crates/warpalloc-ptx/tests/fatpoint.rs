//! What the fat-point allocator makes of real kernels.

use warpalloc::target::{File, Target};
use warpalloc::{Options, Strategy, allocate};
use warpalloc_ptx::module::lower_module;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/ptx");

/// An inner loop unrolled sixteen times: whatever room is made in one copy of the body is
/// missing in the next, unless stalled attempts spill more than is left over.
#[test]
fn attempts_that_stall_in_an_unrolled_loop_come_to_an_end() {
    let text = std::fs::read_to_string(format!("{CORPUS}/sgemm_rb.sm_100.ptx")).unwrap();
    let target = Target::hardware(100).unwrap().with_budget(File::R, 24);
    let options = Options {
        strategy: Strategy::Fatpoint,
        ..Options::default()
    };
    for function in lower_module(&text, &target).unwrap() {
        let allocation = allocate(&function, &target, &options).unwrap();
        assert!(!allocation.stats.fell_back);
        assert!(allocation.stats.iterations < 40);
    }
}
