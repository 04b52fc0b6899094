//! Rewrites of the program before registers are chosen.

pub mod hoist;
pub mod rematerialise;
pub mod schedule;
pub mod split;
