//! The allocators, one folder each.

pub mod briggs;
pub mod fatpoint;
pub mod naive;
pub mod scan;
