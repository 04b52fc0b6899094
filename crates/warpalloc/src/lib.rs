//! A register allocator for GPUs.
