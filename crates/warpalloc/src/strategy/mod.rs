//! The allocators, one folder each.

pub mod naive;
