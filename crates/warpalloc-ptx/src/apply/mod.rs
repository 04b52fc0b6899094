//! From an allocation back to PTX.
//!
//! # Names and registers
//!
//! PTX names are typed and do not alias: `%RD2` stands for R4 and R5 together, `%R4` for R4,
//! yet to ptxas they are three unrelated variables. The allocation, however, speaks of units:
//! it may delete a `mov.b64 {a, b}, d` whose sides share registers, or move one half of a
//! pair. So we do not translate values, we simulate the register file.
//!
//! Each name is a *view* of units. The invariant: at every point, each view that is read
//! later (see `demand`) holds exactly what its units hold. Then
//! - an instruction that writes one view leaves other views of those units stale; those that
//!   are demanded are brought up to date right behind it, by packing or unpacking;
//! - moves, exchanges, reloads act on every demanded view of the units they write, by the
//!   widest name that comes from one name, else piece by piece;
//! - a conversion between views of the same units is sound anywhere, and a deleted copy that
//!   changes the view is where we place it;
//! - deleted instructions need no code, whatever the reason: units do not change.
//!
//! No knowledge about values is needed, so nothing can be guessed wrongly. Without packed
//! halves, a 16-bit name shows the low bits of a register.
//!
//! # Text
//!
//! Everything is an edit of the source: registers are renamed where they stand, inserted code
//! goes on lines of its own, and all else stays byte for byte.

mod emit;
mod memory;
mod name_liveness;
#[cfg(test)]
mod replay;
#[cfg(test)]
pub(crate) mod tests;
mod view;

pub(crate) use emit::apply;
pub(crate) use memory::{Surroundings, Threads, base_registers, variable_bytes};
pub use name_liveness::NotExpressible;
