//! Reading what is asked for, writing all of a result or nothing.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use warpalloc_ptx::module::PtxError;
use warpalloc_sass::object::Format;

/// A text and the name that messages call it by.
pub struct Input {
    /// `a.ptx`, or `<stdin>`.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Input {
    /// Reads a file, or standard input for `-`.
    pub fn read(path: &Path) -> anyhow::Result<Input> {
        let mut bytes = Vec::new();
        let name = if is_dash(path) {
            io::stdin()
                .read_to_end(&mut bytes)
                .context("cannot read standard input")?;
            "<stdin>".to_owned()
        } else {
            let name = path.display().to_string();
            bytes = fs::read(path).with_context(|| format!("cannot read {name}"))?;
            name
        };
        Input::from_bytes(name, bytes)
    }

    /// Takes what was read as text; machine code is refused by its kind.
    pub fn from_bytes(name: String, bytes: Vec<u8>) -> anyhow::Result<Input> {
        if let Some(format) = Format::detect(&bytes) {
            bail!(
                "{name} is {format}, and PTX is wanted here: `warpalloc stats` reads machine code"
            );
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Input { name, text }),
            Err(error) => match warpalloc_ptx::parse_bytes(error.as_bytes()) {
                Ok(_) => bail!("{name} is not UTF-8 text"),
                Err(wrong) => Err(anyhow!(wrong.render(&name, error.as_bytes()))),
            },
        }
    }

    /// An error as a terminal shows it.
    pub fn explain(&self, error: PtxError) -> anyhow::Error {
        match error {
            PtxError::Source(error) => anyhow!(error.render(&self.name, &self.text)),
            other => anyhow::Error::new(other).context(self.name.clone()),
        }
    }
}

/// Whether a path stands for standard input or output.
pub fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a file, or standard output for `-`. A file is replaced in one step once all of the
/// new text is on disk, so that nobody ever sees half of it.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if is_dash(path) {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        return Ok(out.flush()?);
    }
    let told = || format!("cannot write {}", path.display());
    // A device or pipe is not to be replaced by a file.
    let is_special = fs::metadata(path).is_ok_and(|meta| !meta.is_file());
    if is_special {
        return fs::write(path, text).with_context(told);
    }
    let beside = beside(path);
    let result = write_through(&beside, text).and_then(|()| fs::rename(&beside, path));
    if result.is_err() {
        // Whatever went wrong first is what counts.
        let _ = fs::remove_file(&beside);
    }
    result.with_context(told)
}

fn write_through(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A name for a temporary file in the same folder.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}
