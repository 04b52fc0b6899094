//! Putting values into memory: what every strategy shares.

pub mod frame;
pub mod slots;
