//! Reading what is asked for, writing all of a result or nothing.

use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};

use anyhow::{Context, anyhow, bail};
use warpalloc_ptx::module::PtxError;
use warpalloc_sass::object::Format;

use crate::output;

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
        explain(&self.name, &self.text, error)
    }
}

/// An error in a text as a terminal shows it.
pub fn explain(name: &str, text: &str, error: PtxError) -> anyhow::Error {
    match error {
        PtxError::Source(error) => anyhow!(error.render(name, text)),
        other => anyhow::Error::new(other).context(name.to_owned()),
    }
}

/// Whether a path stands for standard input or output.
pub fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether writing to a path is writing to standard output.
pub fn is_standard_output(path: &Path) -> bool {
    let names = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    names.iter().any(|name| path.as_os_str() == *name)
}

/// Writes a file, or standard output for `-`.
///
/// A file is replaced in one step once all of the new content is on disk, so that nobody ever sees
/// half of it, and keeps its permissions and its owner. What a replacement would break is
/// written to instead: devices, pipes, files with several names, files of others.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let content = content.as_ref();
    if is_standard_output(path) {
        return output::print_bytes(content);
    }
    let told = || format!("cannot write {}", path.display());
    // The file behind a symbolic link is the one to write.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&real).ok();
    if old.as_ref().is_some_and(is_read_only) {
        bail!("cannot write {}: the file is read-only", path.display());
    }
    let is_link = fs::symlink_metadata(&real).is_ok_and(|meta| meta.is_symlink());
    if is_link || old.as_ref().is_some_and(|old| !may_be_replaced(old)) {
        return fs::write(&real, content).with_context(told);
    }
    replace(&real, old.as_ref(), content).with_context(told)
}

fn is_read_only(old: &Metadata) -> bool {
    old.is_file() && old.permissions().readonly()
}

/// Whether another file may take the place of this one.
fn may_be_replaced(old: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        old.is_file() && old.nlink() == 1
    }
    #[cfg(not(unix))]
    {
        old.is_file()
    }
}

/// Puts a new file in the place of `path`.
fn replace(path: &Path, old: Option<&Metadata>, content: &[u8]) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What other new files get; the mask of the process applies.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = match (builder.tempfile_in(folder), old) {
        (Ok(file), _) => file,
        // The file can be written, its folder cannot.
        (Err(_), Some(_)) => return fs::write(path, content),
        (Err(error), None) => return Err(error),
    };
    let _guard = RemovedOnSignal::new(file.path());
    if let Some(old) = old {
        if !takes_owner(file.path(), old) {
            return fs::write(path, content);
        }
        file.as_file().set_permissions(old.permissions())?;
    }
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Gives a new file the owner of the one it replaces; whether that could be done.
#[cfg(unix)]
fn takes_owner(new: &Path, old: &Metadata) -> bool {
    use std::os::unix::fs::{MetadataExt, chown};
    let is_same = |new: Metadata| (new.uid(), new.gid()) == (old.uid(), old.gid());
    fs::metadata(new).is_ok_and(is_same) || chown(new, Some(old.uid()), Some(old.gid())).is_ok()
}

#[cfg(not(unix))]
fn takes_owner(_: &Path, _: &Metadata) -> bool {
    true
}

/// The temporary file that a signal must not leave behind.
static PENDING: Mutex<Option<PathBuf>> = Mutex::new(None);

struct RemovedOnSignal;

impl RemovedOnSignal {
    fn new(path: &Path) -> Self {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // Without a handler a signal leaves the file, which is no reason not to write it.
            let _ = ctrlc::set_handler(|| {
                remove_pending();
                std::process::exit(130);
            });
        });
        if let Ok(mut pending) = PENDING.lock() {
            *pending = Some(path.to_owned());
        }
        RemovedOnSignal
    }
}

impl Drop for RemovedOnSignal {
    fn drop(&mut self) {
        if let Ok(mut pending) = PENDING.lock() {
            *pending = None;
        }
    }
}

fn remove_pending() {
    if let Ok(mut pending) = PENDING.lock()
        && let Some(path) = pending.take()
    {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_removes_what_is_being_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let guard = RemovedOnSignal::new(file.path());
        remove_pending();
        assert!(!file.path().exists());
        drop(guard);
        let kept = tempfile::NamedTempFile::new().unwrap();
        drop(RemovedOnSignal::new(kept.path()));
        remove_pending();
        assert!(kept.path().exists(), "once it is written it stays");
    }
}
