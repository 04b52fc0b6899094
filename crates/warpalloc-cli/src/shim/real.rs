//! The real ptxas behind the shim.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::{env, fs};

use crate::assembler::{PTXAS, is_program, usual_places};

/// The name of the real one beside the shim.
pub const BESIDE: &str = "ptxas.real";

/// Looks where the environment says, beside the shim, and in the usual places.
pub fn find() -> Option<PathBuf> {
    let named = env::var_os("WARPALLOC_REAL_PTXAS").map(PathBuf::from);
    let beside = shim().and_then(|shim| Some(shim.parent()?.join(BESIDE)));
    let mut places = named.into_iter().chain(beside).chain(usual_places());
    let found = places.find(|path| is_program(path))?;
    // ptxas writes the name it is called by into its output, so a link does not do.
    Some(fs::canonicalize(&found).unwrap_or(found))
}

/// A call of the real ptxas by its own name.
pub fn command(real: &Path, args: &[OsString]) -> Command {
    let mut command = Command::new(real);
    #[cfg(unix)]
    if real.file_name().is_some_and(|name| name == BESIDE) {
        use std::os::unix::process::CommandExt;
        command.arg0(PTXAS);
    }
    command.args(args);
    command
}

/// The path that this process was called by, where it was called as ptxas.
fn shim() -> Option<PathBuf> {
    let called = PathBuf::from(env::args_os().next()?);
    let is_path = called.components().count() > 1;
    if is_path {
        return Some(called);
    }
    // Found on the path: the first of that name is this one.
    let path = env::var_os("PATH")?;
    let mut candidates = env::split_paths(&path).map(|folder| folder.join(PTXAS));
    let own = env::current_exe().and_then(fs::canonicalize).ok()?;
    candidates.find(|path| fs::canonicalize(path).is_ok_and(|real| real == own))
}

/// Lets the real ptxas take the place of this process.
#[cfg(unix)]
pub fn become_it(real: &Path, args: &[OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt;
    let error = command(real, args).exec();
    eprintln!("ptxas fatal   : cannot run {}: {error}", real.display());
    ExitCode::from(255)
}

/// Runs the real ptxas in the place of this process.
#[cfg(not(unix))]
pub fn become_it(real: &Path, args: &[OsString]) -> ExitCode {
    match command(real, args).status() {
        Ok(status) => exit_code(status),
        Err(error) => {
            eprintln!("ptxas fatal   : cannot run {}: {error}", real.display());
            ExitCode::from(255)
        }
    }
}

/// The exit status of a process as a shell tells it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        if let Some(signal) = status.signal() {
            return ExitCode::from(u8::try_from(128 + signal).unwrap_or(255));
        }
    }
    let code = status.code().unwrap_or(255);
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(255))
}
