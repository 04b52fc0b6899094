//! Recolouring: small code with what is expected beside it, and the corpus as ptxas builds it.

mod corpus;
mod linked;
pub mod reaching;
mod small;
