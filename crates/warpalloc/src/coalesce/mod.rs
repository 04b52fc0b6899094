//! Coalescing: what every colouring strategy shares.
//!
//! [`moves`] lists the copies worth removing, [`Bodies`] keeps the values that take their
//! registers together and says whether two sets of them may become one, and [`Squeeze`]
//! bounds how many starts one body blocks for another. Whether a merge *pays* is for the
//! strategy to decide.

mod bodies;
mod moves;
mod squeeze;

pub use bodies::{Bodies, BodyId, Joint, Member};
pub use moves::{Move, MoveId, moves};
pub use squeeze::{Shape, ShapeId, Squeeze};
