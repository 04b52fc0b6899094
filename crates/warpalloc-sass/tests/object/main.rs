//! Cubins and the files that hold them, read back and compared with what NVIDIA's tools say.
//!
//! The tools are taken from the folder of `WARPALLOC_PTXAS`, or the path. Tests that need one
//! that is not there say that they were skipped, unless `WARPALLOC_REQUIRE_PTXAS` is 1: then
//! they fail.

mod allocate;
mod attributes;
mod containers;
mod cubins;
mod damaged;
mod edit;
mod lines;
mod measures;
mod recolour;
mod rewrite;
mod spills;
mod tools;
