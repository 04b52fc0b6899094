//! The `warpalloc` command.
fn main() {}
