//! A digest of the sources that a result depends on, so that a kept result is never taken for that
//! of another build.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The crates that results depend on. Where one is not beside this crate, versions tell builds apart.
const CRATES: [&str; 4] = [
    "warpalloc",
    "warpalloc-ptx",
    "warpalloc-sass",
    "warpalloc-choose",
];

fn main() -> std::io::Result<()> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let beside = Path::new(&own).join("..");
    let mut digest = Sha256::new();
    for name in CRATES {
        let sources = beside.join(name).join("src");
        if sources.is_dir() {
            println!("cargo::rerun-if-changed={}", sources.display());
            for file in files(&sources)? {
                digest.update(std::fs::read(file)?);
            }
        }
    }
    println!("cargo::rustc-env=WARPALLOC_SOURCES={:x}", digest.finalize());
    Ok(())
}

/// The files below a folder, in the order of their names.
fn files(folder: &Path) -> std::io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => {
                found.insert(path);
            }
        }
    }
    Ok(found)
}
