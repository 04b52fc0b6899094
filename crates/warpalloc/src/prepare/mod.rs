//! What happens to a function before registers are chosen.

pub mod bodies;
pub mod hoist;
pub mod schedule;
pub mod split;
