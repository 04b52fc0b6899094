//! NVIDIA's assembler as a program.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpalloc_ptx::contract::Contraction;

/// Why ptxas made no cubin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PtxasError {
    /// It could not be run.
    #[error("cannot run {program}: {error}")]
    Run {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// A file for it could not be written, or its own not be read.
    #[error("cannot keep files for ptxas: {0}")]
    Files(#[from] io::Error),
    /// It refused the text.
    #[error("ptxas refuses it: {0}")]
    Refused(String),
}

/// An installed ptxas.
#[derive(Clone, Debug)]
pub struct Ptxas {
    program: PathBuf,
    version: String,
}

/// What to assemble a module for.
#[derive(Clone, Copy, Debug)]
pub struct Assembly<'a> {
    /// The text.
    pub text: &'a str,
    /// The architecture: `sm_90a`.
    pub arch: &'a str,
    /// The only entry to assemble, or all.
    pub entry: Option<&'a str>,
    /// Whether products and sums may be fused.
    pub contraction: Contraction,
}

impl Ptxas {
    /// The program at that place.
    pub fn at(program: &Path) -> Result<Ptxas, PtxasError> {
        let output = Command::new(program).arg("--version").output();
        let output = output.map_err(|error| PtxasError::Run {
            program: program.display().to_string(),
            error,
        })?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || !said.contains("ptxas") {
            let told = format!("{} is not ptxas", program.display());
            return Err(PtxasError::Refused(told));
        }
        Ok(Ptxas {
            program: program.to_owned(),
            version: said,
        })
    }

    /// The one on the path, or that of the toolkit that `CUDA_HOME` names.
    pub fn find() -> Option<Ptxas> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let home = std::env::var_os("CUDA_HOME").map(|home| Path::new(&home).join("bin"));
        let mut folders = std::env::split_paths(&path).chain(home);
        let program = folders.find_map(|folder| {
            let program = folder.join("ptxas");
            program.is_file().then_some(program)
        })?;
        Ptxas::at(&program).ok()
    }

    /// What it says of itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The cubin it makes of a module.
    pub fn assemble(&self, assembly: Assembly) -> Result<Vec<u8>, PtxasError> {
        let folder = tempfile::tempdir()?;
        let (ptx, cubin) = (
            folder.path().join("in.ptx"),
            folder.path().join("out.cubin"),
        );
        std::fs::write(&ptx, assembly.text)?;
        let mut command = Command::new(&self.program);
        command.args(["-arch", assembly.arch]);
        if assembly.contraction == Contraction::Off {
            command.args(["-fmad", "false"]);
        }
        if let Some(entry) = assembly.entry {
            command.args(["-e", entry]);
        }
        command.args([OsStr::new("-o"), cubin.as_os_str(), ptx.as_os_str()]);
        let output = command.output().map_err(|error| PtxasError::Run {
            program: self.program.display().to_string(),
            error,
        })?;
        if !output.status.success() {
            return Err(PtxasError::Refused(complaint(&output.stderr)));
        }
        Ok(std::fs::read(&cubin)?)
    }
}

/// The line that says what went wrong, without the name of a file that nobody knows.
fn complaint(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_cause = |line: &&str| line.contains("error") || line.contains("fatal");
    let line = lines().find(is_cause).or_else(|| lines().next_back());
    let line = line.unwrap_or("it gives no reason");
    match line.split_once("; ") {
        Some((place, cause)) if place.contains("in.ptx") => cause.trim().to_owned(),
        _ => line.to_owned(),
    }
}
