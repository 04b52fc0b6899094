//! NVIDIA's assembler as a program.

use std::collections::BTreeMap;
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
    /// Given with every call.
    options: Vec<String>,
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

/// A module that was assembled.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Assembled {
    /// The cubin.
    pub cubin: Vec<u8>,
    /// What ptxas said of it.
    pub said: String,
}

/// What `ptxas -v` says of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Said {
    /// Registers of an entry.
    pub registers: Option<u32>,
    /// Bytes of spill stores.
    pub spill_stores: u32,
    /// Bytes of spill loads.
    pub spill_loads: u32,
}

impl Said {
    /// Bytes of spill code.
    pub fn spill_bytes(&self) -> u64 {
        u64::from(self.spill_stores) + u64::from(self.spill_loads)
    }
}

impl Assembled {
    /// What ptxas said of each function, where it was given `-v`.
    pub fn functions(&self) -> BTreeMap<String, Said> {
        functions(&self.said)
    }
}

/// Reads `Function properties for k` and the lines of figures below it.
fn functions(said: &str) -> BTreeMap<String, Said> {
    let mut found: BTreeMap<String, Said> = BTreeMap::new();
    let mut name = None;
    for line in said.lines() {
        if let Some((_, of)) = line.split_once("Function properties for ") {
            name = Some(of.trim());
            continue;
        }
        let Some(name) = name else { continue };
        let before = |what: &str| -> Option<u32> {
            let (figures, _) = line.split_once(what)?;
            let mut words = figures.split([' ', ',']);
            words.rfind(|w| !w.is_empty())?.parse().ok()
        };
        if let (Some(stores), Some(loads)) =
            (before(" bytes spill stores"), before(" bytes spill loads"))
        {
            let said = found.entry(name.to_owned()).or_default();
            (said.spill_stores, said.spill_loads) = (stores, loads);
        } else if let Some(registers) = before(" registers") {
            found.entry(name.to_owned()).or_default().registers = Some(registers);
        }
    }
    found
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
            options: Vec::new(),
        })
    }

    /// The same with options that it is given with every call, such as `--regAllocOptLevel=2`.
    pub fn with_options(mut self, options: Vec<String>) -> Ptxas {
        self.options = options;
        self
    }

    /// What its results depend on beside its input.
    pub(crate) fn identity(&self) -> String {
        format!("{} {:?}", self.version, self.options)
    }

    /// What it says of itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The cubin it makes of a module.
    pub fn assemble(&self, assembly: Assembly) -> Result<Vec<u8>, PtxasError> {
        Ok(self.assemble_with(assembly, &[])?.cubin)
    }

    /// The same with more options, and with what it says of it.
    pub fn assemble_with(
        &self,
        assembly: Assembly,
        options: &[String],
    ) -> Result<Assembled, PtxasError> {
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
        command.args(&self.options).args(options);
        command.args([OsStr::new("-o"), cubin.as_os_str(), ptx.as_os_str()]);
        let output = command.output().map_err(|error| PtxasError::Run {
            program: self.program.display().to_string(),
            error,
        })?;
        if !output.status.success() {
            return Err(PtxasError::Refused(complaint(&output.stderr)));
        }
        Ok(Assembled {
            cubin: std::fs::read(&cubin)?,
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_by_function() {
        let said = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'k' for 'sm_90'\n\
            ptxas info    : Function properties for k\n    \
            16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n\
            ptxas info    : Used 24 registers, used 0 barriers, 16 bytes cumulative stack size\n\
            ptxas info    : Function properties for f\n    \
            0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
        let k = Said {
            registers: Some(24),
            spill_stores: 12,
            spill_loads: 20,
        };
        let expected = [("f".to_owned(), Said::default()), ("k".to_owned(), k)];
        assert_eq!(functions(said), BTreeMap::from(expected));
        assert_eq!(k.spill_bytes(), 32);
    }
}
