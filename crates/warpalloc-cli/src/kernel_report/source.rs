//! The sources that code comes from, where they are at hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::listing::Listing;

/// A page is handed on to others: files that are no sources stay out of it, whatever the debug
/// information of a kernel names.
const ENDINGS: [&str; 18] = [
    "cu", "cuh", "h", "hh", "hpp", "hxx", "inl", "inc", "c", "cc", "cpp", "cxx", "cl", "py", "jl",
    "rs", "mojo", "ll",
];
/// Larger files are generated, and nobody reads them.
const MOST_BYTES: u64 = 1 << 20;

/// A source file.
pub struct SourceFile {
    /// As debug information names it.
    pub name: String,
    /// Its lines, where it is at hand.
    pub lines: Option<Vec<String>>,
}

/// Reads the files that the rows of listings come from. A name that leads nowhere is looked for by
/// its last part in `folders`.
pub fn sources<'l>(
    listings: impl Iterator<Item = &'l Listing>,
    folders: &[PathBuf],
) -> Vec<SourceFile> {
    let mut found = BTreeMap::new();
    for row in listings.flat_map(|listing| &listing.rows) {
        let Some(source) = &row.source else { continue };
        if !found.contains_key(&source.file) {
            found.insert(source.file.clone(), lines(Path::new(&source.file), folders));
        }
    }
    let files = found.into_iter();
    files
        .map(|(name, lines)| SourceFile { name, lines })
        .collect()
}

fn lines(named: &Path, folders: &[PathBuf]) -> Option<Vec<String>> {
    let ending = named.extension()?.to_str()?.to_ascii_lowercase();
    if !ENDINGS.contains(&ending.as_str()) || folders.is_empty() {
        return None;
    }
    let base = named.file_name()?;
    let places = folders.iter();
    let places = places.flat_map(|folder| [folder.join(named), folder.join(base)]);
    let is_readable = |path: &PathBuf| {
        let meta = fs::metadata(path);
        meta.is_ok_and(|meta| meta.is_file() && meta.len() <= MOST_BYTES)
    };
    let text = places
        .filter(is_readable)
        .find_map(|path| fs::read_to_string(path).ok())?;
    Some(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_beside_the_kernel_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| fs::write(folder.path().join(name), "a\nb\n").unwrap();
        write("k.cu");
        write("id_rsa");
        let folders = [folder.path().to_owned()];
        let found = |name: &str| lines(Path::new(name), &folders);
        assert_eq!(
            found("/gone/src/k.cu"),
            Some(vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(found("/gone/other.cu"), None);
        let hostile = folder.path().join("id_rsa");
        assert_eq!(found(hostile.to_str().unwrap()), None);
        assert_eq!(lines(Path::new("k.cu"), &[]), None, "nothing is looked for");
    }
}
