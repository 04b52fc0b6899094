//! The real ptxas: where it is.

use std::path::{Path, PathBuf};
use std::{env, fs};

use warpalloc_choose::Ptxas;

use crate::UsageError;

/// The name of the program.
pub const PTXAS: &str = "ptxas";

/// Looks on the path, and in the toolkits that `CUDA_HOME` and `CUDA_PATH` name; never finds this
/// program itself under another name.
pub fn find() -> Option<Ptxas> {
    let path = usual_places().find(|path| is_program(path))?;
    Ptxas::at(&path).ok()
}

/// The one at `path`, which the flag `--ptxas` names.
pub fn at(path: &Path) -> Result<Ptxas, UsageError> {
    let wrong = |why: &str| UsageError(format!("--ptxas {}: {why}", path.display()));
    if !is_program(path) {
        return Err(wrong("there is no such program"));
    }
    Ptxas::at(path).map_err(|error| wrong(&error.to_string()))
}

/// The release, such as `13.0.88`, from the last word that is one.
pub fn release(ptxas: &Ptxas) -> Option<String> {
    let mut words = ptxas.version().split([' ', ',', '\n']);
    let release = words.rfind(|word| {
        let digits = word.strip_prefix('V').unwrap_or_default();
        digits.starts_with(|c: char| c.is_ascii_digit())
    })?;
    Some(release[1..].to_owned())
}

/// Where another program of the toolkit is.
pub fn find_program(name: &str) -> Option<PathBuf> {
    usual_folders()
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

/// Where a ptxas is looked for that nobody named.
pub fn usual_places() -> impl Iterator<Item = PathBuf> {
    usual_folders().map(|folder| folder.join(PTXAS))
}

fn usual_folders() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let homes = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];
    let homes = homes.into_iter().filter_map(env::var_os).map(PathBuf::from);
    let homes = homes.chain([PathBuf::from("/usr/local/cuda")]);
    folders
        .into_iter()
        .chain(homes.map(|home| home.join("bin")))
}

/// Whether a path leads to a program other than this one.
pub fn is_program(path: &Path) -> bool {
    let Ok(real) = fs::canonicalize(path) else {
        return false;
    };
    let own = env::current_exe().and_then(fs::canonicalize).ok();
    real.is_file() && own.as_deref() != Some(&real) && is_executable(&real)
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_not_its_own_assembler() {
        assert!(!is_program(&env::current_exe().unwrap()));
    }
}
