//! The functions that regalloc2 is fuzzed with, as functions of warpalloc.
//!
//! regalloc2's generator makes a function in SSA form with parameters of blocks, for a machine
//! of three classes of 32 registers, of which registers are copied but not exchanged. All of
//! its forms are switched on: operands in any place, in a register, in a fixed one or a fixed
//! stack slot, results that reuse an input, early and late results, clobbers, call sites with
//! many results, registers that nobody allocates. [`translate`] says each of them in the model
//! of warpalloc.

mod machine;
mod translate;

pub use machine::Machine;
pub use translate::translate;

use arbitrary::Unstructured;
use regalloc2::fuzzing::func::{Func, Options as Forms};
use warpalloc::generate::Rng;

/// Random bytes for each block that a function may have: enough for every choice in it. Without
/// bytes the generator makes instructions that read nothing.
const BYTES_PER_BLOCK: usize = 1024;

/// How many blocks a function may have, one as likely as the other. Small functions find most
/// mistakes, and large ones the rest.
const MOST_BLOCKS: [usize; 8] = [2, 4, 4, 8, 8, 8, 16, 100];

/// A function from random bytes, all forms allowed; none where the generator gives up, as it
/// does where no value has the class of a parameter.
pub fn generate(seed: u64) -> Option<Func> {
    let mut rng = Rng::new(seed);
    let most = MOST_BLOCKS[rng.below(MOST_BLOCKS.len())];
    let bytes: Vec<u8> = (0..most * BYTES_PER_BLOCK)
        .map(|_| rng.below(256) as u8)
        .collect();
    let forms = Forms {
        reused_inputs: true,
        fixed_regs: true,
        fixed_nonallocatable: true,
        clobbers: true,
        callsite_ish_constraints: true,
        num_blocks: 1..=most,
        ..Forms::DEFAULT
    };
    Func::arbitrary_with_options(&mut Unstructured::new(&bytes), &forms).ok()
}
