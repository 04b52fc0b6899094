//! Making copies vanish: the machinery every colouring strategy shares.
//!
//! [`moves`] lists what would be worth removing, [`Bodies`] keeps the values that take
//! their registers together and says whether two sets of them may become one, and
//! [`Squeeze`] bounds how much one body gets in the way of another. Whether a merge is
//! *wise* is the strategy's business.

mod bodies;
mod moves;
mod squeeze;

pub use bodies::{Bodies, BodyId, Joint, Member};
pub use moves::{Move, MoveId, moves};
pub use squeeze::{Shape, ShapeId, Squeeze};
