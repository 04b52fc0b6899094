//! Telling machine code from text, by content.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;
use object::read::ReadCache;
use warpalloc_sass::object::Format;

use crate::files::{Input, is_dash};

/// Bytes by which formats are told apart.
const START: u64 = 64;

/// What a path leads to.
pub enum Source {
    /// PTX, or what is taken for it.
    Text(Input),
    /// A file with machine code.
    Code(CodeFile),
}

/// A file with machine code and the name that messages call it by.
pub enum CodeFile {
    /// Read in parts, as they are asked for.
    OnDisk {
        name: String,
        cache: ReadCache<File>,
    },
    /// What came through a pipe.
    InMemory { name: String, bytes: Vec<u8> },
}

impl CodeFile {
    pub fn name(&self) -> &str {
        match self {
            CodeFile::OnDisk { name, .. } | CodeFile::InMemory { name, .. } => name,
        }
    }
}

impl Source {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path) -> anyhow::Result<Source> {
        let name = match is_dash(path) {
            true => "<stdin>".to_owned(),
            false => path.display().to_string(),
        };
        let context = || match is_dash(path) {
            true => "cannot read standard input".to_owned(),
            false => format!("cannot read {name}"),
        };
        let mut bytes = Vec::new();
        if is_dash(path) {
            io::stdin().read_to_end(&mut bytes).with_context(context)?;
        } else {
            let mut file = File::open(path).with_context(context)?;
            let is_file = file.metadata().with_context(context)?.is_file();
            let mut start = (&mut file).take(START);
            start.read_to_end(&mut bytes).with_context(context)?;
            if is_file && Format::detect(&bytes).is_some() {
                let cache = ReadCache::new(file);
                return Ok(Source::Code(CodeFile::OnDisk { name, cache }));
            }
            file.read_to_end(&mut bytes).with_context(context)?;
        }
        Source::from_bytes(name, bytes)
    }

    /// Takes what was read.
    pub fn from_bytes(name: String, bytes: Vec<u8>) -> anyhow::Result<Source> {
        match Format::detect(&bytes) {
            Some(_) => Ok(Source::Code(CodeFile::InMemory { name, bytes })),
            None => Ok(Source::Text(Input::from_bytes(name, bytes)?)),
        }
    }
}
