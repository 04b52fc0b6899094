//! What happens to a function before registers are chosen.

pub mod bodies;
pub mod schedule;
pub mod split;
