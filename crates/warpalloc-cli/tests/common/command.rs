//! The command in a folder of its own, and what it said.

use std::path::Path;
use std::process::{Command, Output};

/// Runs `warpalloc` in a folder, which keeps its choices too.
pub fn run_in(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpalloc"));
    command.current_dir(folder).args(args);
    command.env("XDG_CACHE_HOME", folder.join("cache"));
    command.output().unwrap()
}

/// What a run that succeeded printed.
pub fn out(run: &Output) -> String {
    assert!(run.status.success(), "{}", said(run));
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// What a run said to standard error.
pub fn said(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}
