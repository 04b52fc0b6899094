//! Inserting instructions into the code of a function.
//!
//! An [`Edit`] collects instructions to put before and after others, and gives the new code with
//! the places of the old instructions in it ([`NewCode`](crate::object::NewCode)), which
//! [`Rewriter`](crate::object::Rewriter) takes. Branches, calls, convergence barriers, the origins
//! of indirect branches and returns, and the return addresses that code moves into registers
//! follow the instructions they speak of.
//!
//! Inserting keeps every distance in cycles that stalls guarantee, and what scoreboards wait
//! for. It does not keep operands in the reuse cache: the reuse bits of an instruction are
//! cleared where another one is put right behind it. Hazards of the new instructions themselves
//! are for who inserts them: [`schedule()`] covers those of a sequence that is closed in itself,
//! [`hazard::check`](crate::hazard::check) finds what is left.
//!
//! What would have to be guessed is refused: LEPC, which gives a register its own address, calls
//! whose return address is not found, returns whose address comes from elsewhere.

mod insert;
mod returns;
mod schedule;

pub use insert::{Edit, EditError};
pub use schedule::{ScheduleError, schedule};
