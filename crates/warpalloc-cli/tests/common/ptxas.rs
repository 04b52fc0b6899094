//! The real assembler, for tests that ask it.

use std::path::PathBuf;

/// The assembler, or `None` with a word about it.
pub fn ptxas() -> Option<PathBuf> {
    let named = std::env::var_os("WARPALLOC_PTXAS").map(PathBuf::from);
    if named.is_none() {
        let required = std::env::var("WARPALLOC_REQUIRE_PTXAS").is_ok_and(|value| value == "1");
        assert!(!required, "ptxas is required: set WARPALLOC_PTXAS");
        eprintln!("skipped: no ptxas; set WARPALLOC_PTXAS");
    }
    named
}
