//! Spills of ptxas in shared memory instead of local memory, in place.
//!
//! ptxas spills to local memory: `STL [R1+8], R4` and `LDL R4, [R1+8]`, R1 being the thread's
//! frame. Local memory goes through the L1 cache and to DRAM where that is full; shared memory
//! does not. [`spills_to_shared`] turns such stores and loads into STS and LDS: registers,
//! guards and scoreboards stay, R1 becomes the thread's address in shared memory, which new code
//! at the entry computes.
//!
//! # Layout
//!
//! Each word of the frame that moves gets 128 bytes per warp, a word for each lane:
//! `base + warp * words * 128 + word * 128 + lane * 4`, the layout of ptxas's own
//! `enable_smem_spilling`. No two lanes meet in a bank. An access of two or four registers
//! becomes two or four accesses of one; they need as many passes through shared memory as the
//! wide one would.
//!
//! # What moves
//!
//! Everything, where the blocks that fit a multiprocessor stay as many as they are.
//! [`Options::force`] moves everything at the cost of blocks, [`Options::partial`] the words that are
//! accessed most, loops counting tenfold, as far as that costs none. Words that stay in local
//! memory are then addressed through a uniform register, which holds what R1 held. Neither is
//! the default: shared memory is taken from the L1 cache, and what stays in local memory misses it.
//!
//! # What is proved
//!
//! R1 is set once, from the end of the stack, and read by nothing but loads and stores of the frame, no other
//! instruction touches local memory, and no function outside is called: nothing else can see the
//! frame, so that each of its words is as good elsewhere. The result is decoded again and
//! compared with what was asked for, and the hazard checker runs over it. Everything else is
//! a [`Refusal`].
//!
//! # What is trusted
//!
//! A block has no more threads than [`Options::block`] says, where the kernel states no bound, and
//! launches have as much dynamic shared memory as [`Options::dynamic_shared`] says.

mod choice;
mod convert;
pub(crate) mod frame;
mod refusal;
pub(crate) mod room;
mod verify;

pub use convert::{Conversion, Options, spills_to_shared};
pub use refusal::Refusal;

use crate::object::{Cubin, Function};

/// The kernel of this name.
pub(crate) fn kernel<'a, 'd>(
    cubin: &'a Cubin<'d>,
    name: &str,
) -> Result<&'a Function<'d>, Refusal> {
    let function = cubin.function(name).filter(|function| function.is_entry);
    function.ok_or_else(|| Refusal::NoKernel(name.to_owned()))
}
