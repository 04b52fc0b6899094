//! A table with the command that wrote it.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// What goes to a file, line by line; every line is also printed at once.
pub struct Page {
    text: String,
}

impl Page {
    /// A page that begins with the command line, of which `files` are arguments, and with
    /// the versions.
    pub fn new(title: &str, files: &[PathBuf]) -> Page {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let text = format!(
            "# {title}\n\n```sh\ncargo run --release -p warpalloc-corpus -- {}\n```\n\nwarpalloc {} at {}, {}.\n\n",
            shortened(&words, files).join(" "),
            env!("CARGO_PKG_VERSION"),
            said("git", &["describe", "--always", "--dirty"]),
            said("rustc", &["--version"]),
        );
        Page { text }
    }

    /// Adds a line.
    pub fn line(&mut self, line: impl Display) {
        let line = line.to_string();
        println!("{line}");
        self.text += &line;
        self.text.push('\n');
    }

    /// Adds text that is not printed, such as what columns mean.
    pub fn note(&mut self, text: &str) {
        self.text += "\n";
        self.text += text;
    }

    /// Writes the whole page to `path`, or nothing.
    pub fn write(&self, path: &Path) -> Result<()> {
        let draft = path.with_extension("draft");
        let failed = || format!("cannot write {}", path.display());
        std::fs::write(&draft, &self.text).with_context(failed)?;
        std::fs::rename(&draft, path).with_context(failed)
    }
}

/// The words of a command line, with all files of one folder and extension as one pattern.
fn shortened(words: &[String], files: &[PathBuf]) -> Vec<String> {
    let mut short: Vec<String> = Vec::new();
    for word in words {
        let path = Path::new(word);
        let pattern = files.iter().any(|file| file == path).then(|| pattern(path));
        let word = pattern
            .flatten()
            .filter(|pattern| is_whole(pattern, files))
            .map_or(word.clone(), |pattern| pattern.display().to_string());
        if !short.contains(&word) || !word.contains('*') {
            short.push(word);
        }
    }
    short
}

/// `folder/*.ext` for `folder/name.ext`.
fn pattern(path: &Path) -> Option<PathBuf> {
    Some(path.with_file_name("*").with_extension(path.extension()?))
}

/// Whether `files` has every file of its folder that `pattern` matches.
fn is_whole(pattern_of_some: &Path, files: &[PathBuf]) -> bool {
    let matching = |path: &Path| pattern(path).as_deref() == Some(pattern_of_some);
    let given = files.iter().filter(|file| matching(file)).count();
    let folder = pattern_of_some.parent().unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    let there = entries.flatten().filter(|entry| matching(&entry.path()));
    given > 1 && given == there.count()
}

/// What a tool says, in one line.
fn said(tool: &str, words: &[&str]) -> String {
    let output = Command::new(tool).args(words).output();
    let said = output.ok().filter(|output| output.status.success());
    let said = said.and_then(|output| String::from_utf8(output.stdout).ok());
    said.map_or(format!("{tool} not known"), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_a_folder_are_one_pattern_and_some_are_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let files = ["degrees", "figures", "main", "page"];
        let files: Vec<PathBuf> = files.map(|f| format!("{folder}/{f}.rs").into()).into();
        let words = |files: &[PathBuf]| -> Vec<String> {
            let files = files.iter().map(|file| file.display().to_string());
            files.chain(["--regs".into(), "24".into()]).collect()
        };
        let all = shortened(&words(&files), &files);
        assert_eq!(
            all,
            [format!("{folder}/*.rs"), "--regs".into(), "24".into()]
        );
        let some = shortened(&words(&files[1..]), &files[1..]);
        assert_eq!(some, words(&files[1..]));
    }
}
