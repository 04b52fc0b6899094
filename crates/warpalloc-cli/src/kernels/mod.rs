//! The kernels of any file in figures: what `check`, `compare` and `tune` look at.

mod code;
mod figure;
mod key;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use rayon::prelude::*;
use warpalloc::Strategy;
use warpalloc_choose::Ptxas;
use warpalloc_ptx::module::ModuleOptions;
use warpalloc_ptx::{EntryFacts, ModuleFacts, SourceLine, entry_facts};
use warpalloc_sass::object::{ObjectError, demangle};

use crate::UsageError;
use crate::assembler;
use crate::files::Input;
use crate::stats_cubin::{CodeArgs, NothingWanted, Source};

pub use figure::{Figure, Figures};
pub use key::{Key, Keyed, keyed};

/// Names of files that are looked at in folders.
const ENDINGS: [&str; 6] = ["ptx", "cubin", "fatbin", "so", "o", "a"];

/// How the figures of PTX are found.
#[derive(Args, Debug)]
pub struct PtxasArgs {
    /// The ptxas that assembles PTX [default: the one on the path or in CUDA_HOME]
    #[arg(long, value_name = "FILE")]
    ptxas: Option<PathBuf>,
    /// Take warpalloc's own figures of PTX, even where there is a ptxas
    #[arg(long, conflicts_with = "ptxas")]
    no_ptxas: bool,
    /// An option that ptxas is given, such as --ptxas-option=-maxrregcount=64; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    ptxas_option: Vec<String>,
}

impl PtxasArgs {
    /// The ptxas to ask, where there is one.
    pub fn ptxas(&self) -> Result<Option<Ptxas>, UsageError> {
        match &self.ptxas {
            Some(path) => assembler::at(path).map(Some),
            None => Ok(assembler::find().filter(|_| !self.no_ptxas)),
        }
    }

    pub fn options(&self) -> &[String] {
        &self.ptxas_option
    }
}

/// Who found the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The allocator, from PTX.
    Warpalloc,
    /// ptxas, from PTX.
    Ptxas,
    /// The machine code of a cubin.
    Cubin,
}

impl Origin {
    const ALL: [Origin; 3] = [Origin::Warpalloc, Origin::Ptxas, Origin::Cubin];

    pub fn name(self) -> &'static str {
        match self {
            Origin::Warpalloc => "warpalloc",
            Origin::Ptxas => "ptxas",
            Origin::Cubin => "cubin",
        }
    }

    pub fn named(name: &str) -> Option<Origin> {
        Origin::ALL.into_iter().find(|origin| origin.name() == name)
    }

    /// Whether figures of both mean the same: those of machine code do.
    pub fn compares_with(self, other: Origin) -> bool {
        (self == Origin::Warpalloc) == (other == Origin::Warpalloc)
    }
}

/// A kernel of a file.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// As the source has it, with the types of its parameters.
    pub name: String,
    /// As the file has it.
    pub symbol: String,
    /// `sm_90a`.
    pub arch: String,
    /// The file, and the member of an archive.
    pub file: String,
    /// The line of its name in PTX.
    pub line: Option<u32>,
    /// The first line of its source.
    pub source: Option<SourceLine>,
    pub origin: Origin,
    /// Threads of the block that warps are counted for.
    pub block: Option<u32>,
    /// What it takes, or why that is not known.
    pub figures: Result<Figures, String>,
    /// What its figures come from, where that was asked for.
    pub details: Option<Details>,
}

/// What the figures of a kernel come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// Its PTX.
    pub text: Option<String>,
    pub instructions: usize,
    /// The most general registers that are live at once, and where.
    pub peak: Option<(usize, String)>,
}

/// The most registers of a thread.
pub const MOST_REGISTERS: u32 = 255;

/// The allocator whose figures are told.
pub const FIGURES: Strategy = Strategy::Fatpoint;

/// Options for figures of our own: every register where nothing limits them, so that spill code is
/// counted and not refused, and the allocator that keeps closest to the fewest registers.
pub fn for_figures(options: &ModuleOptions) -> ModuleOptions {
    let mut own = options.clone();
    own.options.strategy = FIGURES;
    own.maxnreg = own.maxnreg.or(Some(MOST_REGISTERS));
    own
}

/// Files, with the PTX files in folders in their place.
pub fn ptx_files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let is_ptx = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "ptx");
        let before = files.len();
        files.extend(files_in(path)?.into_iter().filter(is_ptx));
        if files.len() == before {
            let message = format!("{} has no file whose name ends in .ptx", path.display());
            return Err(UsageError(message).into());
        }
    }
    Ok(files)
}

/// The texts of files, and of all PTX files in folders.
pub fn texts(paths: &[PathBuf]) -> anyhow::Result<Vec<Input>> {
    let files = ptx_files(paths)?;
    files.iter().map(|file| Input::read(file)).collect()
}

/// Texts with what they say of their kernels.
pub fn with_facts(inputs: Vec<Input>) -> anyhow::Result<Vec<(Input, ModuleFacts)>> {
    let facts = inputs.into_par_iter().map(|input| {
        let facts = entry_facts(&input.text).map_err(|error| input.explain(error))?;
        Ok((input, facts))
    });
    facts.collect()
}

/// The text with the other kernels blank: what is tried on one kernel again and again need not read
/// all of them each time. Lines keep their numbers.
pub fn alone(input: &Input, facts: &ModuleFacts, entry: &EntryFacts) -> Input {
    let mut text = String::with_capacity(input.text.len());
    let mut at = 0;
    for other in facts.entries.iter().filter(|e| e.name != entry.name) {
        let (start, end) = (other.span.start as usize, other.span.end as usize);
        text += &input.text[at..start];
        text.extend(other.span.text(&input.text).matches('\n'));
        at = end;
    }
    text += &input.text[at..];
    Input {
        name: input.name.clone(),
        text,
    }
}

/// Whether an entry has a name, mangled or not, with its parameters or without.
fn is_called(entry: &EntryFacts, name: &str) -> bool {
    let demangled = demangle(&entry.name);
    let short = demangled.as_deref().and_then(|d| d.split('(').next());
    [Some(entry.name.as_str()), demangled.as_deref(), short].contains(&Some(name))
}

/// The entries of texts that are named, or all.
pub fn named_entries<'f>(
    texts: &'f [(Input, ModuleFacts)],
    name: Option<&str>,
) -> Result<Vec<(&'f Input, &'f ModuleFacts, &'f EntryFacts)>, UsageError> {
    let all = texts.iter().flat_map(|(input, facts)| {
        let entries = facts.entries.iter();
        entries.map(move |entry| (input, facts, entry))
    });
    let wanted = all.filter(|(.., entry)| name.is_none_or(|name| is_called(entry, name)));
    let wanted: Vec<_> = wanted.collect();
    if !wanted.is_empty() {
        return Ok(wanted);
    }
    match texts {
        [(input, facts)] => {
            named_entry(facts, &input.name, name).map(|entry| vec![(input, facts, entry)])
        }
        _ => Err(UsageError(match name {
            Some(name) => format!("no file has a kernel called {name}"),
            None => "no file has a kernel".to_owned(),
        })),
    }
}

/// The entry of a text that is named, mangled or not, with its parameters or without; or the only
/// one.
pub fn named_entry<'f>(
    facts: &'f ModuleFacts,
    file: &str,
    name: Option<&str>,
) -> Result<&'f EntryFacts, UsageError> {
    let found = match (name, &facts.entries[..]) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (Some(name), entries) => entries.iter().find(|entry| is_called(entry, name)),
    };
    found.ok_or_else(|| {
        let names: Vec<&str> = facts.entries.iter().map(|e| e.name.as_str()).collect();
        UsageError(format!(
            "--kernel names one of the kernels that {file} has: {}",
            names.join(", ")
        ))
    })
}

/// The files in a folder that may hold kernels.
fn files_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    search(folder, &mut found)?;
    Ok(found)
}

fn search(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let told = || format!("cannot read {}", folder.display());
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).with_context(told)?.collect();
    let mut entries = entries.with_context(told)?;
    // The order of a folder is that of its file system.
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().with_context(told)?;
        if kind.is_dir() {
            search(&path, found)?;
        } else if path.is_file() && has_known_ending(&path) {
            found.push(path);
        }
    }
    Ok(())
}

/// `libx.so.3` counts too.
fn has_known_ending(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_known = |ending: &str| ENDINGS.contains(&ending);
    name.rsplit_once('.').is_some_and(|(_, e)| is_known(e)) || name.contains(".so.")
}

/// What to look at, and who is asked.
pub struct Reader<'r> {
    pub args: &'r CodeArgs,
    pub ptxas: Option<&'r Ptxas>,
    pub options: &'r [String],
    /// Whether [`Kernel::details`] are wanted.
    pub details: bool,
}

/// Reads files, and what may hold kernels in folders, on all cores.
///
/// Folders hold objects of the host too, and code for other machines: what has nothing that was asked
/// for is left out there.
pub fn read_each<T: Send>(
    paths: &[PathBuf],
    read: impl Fn(&Path) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let mut files: Vec<(PathBuf, bool)> = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => files.extend(files_in(path)?.into_iter().map(|file| (file, true))),
            false => files.push((path.clone(), false)),
        }
    }
    let found = files
        .par_iter()
        .map(|(file, may_be_without)| match read(file) {
            Err(error) if *may_be_without && is_without_code(&error) => Ok(None),
            read => read.map(Some),
        });
    let found: anyhow::Result<Vec<Option<T>>> = found.collect();
    Ok(found?.into_iter().flatten().collect())
}

impl Reader<'_> {
    /// The kernels of files and folders that are asked for.
    pub fn read_all(&self, paths: &[PathBuf]) -> anyhow::Result<Vec<Kernel>> {
        let found = read_each(paths, |file| self.read(file))?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The kernels of a file that are asked for.
    pub fn read(&self, path: &Path) -> anyhow::Result<Vec<Kernel>> {
        match Source::open(path)? {
            Source::Code(file) => code::kernels(self, &file),
            Source::Text(input) => text::kernels(self, &input.name, &input.text),
        }
    }
}

/// Whether a file holds nothing that was asked for.
fn is_without_code(error: &anyhow::Error) -> bool {
    let object = error.downcast_ref::<ObjectError>();
    matches!(object, Some(ObjectError::NoDeviceCode)) || error.is::<NothingWanted>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_alone_keeps_its_lines_and_what_it_calls() {
        let text = ".version 9.0\n.target sm_90\n.func f() { ret; }\n\
                    .visible .entry a() {\n\tret;\n}\n.visible .entry b() {\n\tcall f;\n\tret;\n}\n\
                    .entry c() { ret; }\n";
        let input = Input {
            name: "k.ptx".to_owned(),
            text: text.to_owned(),
        };
        let facts = entry_facts(text).unwrap();
        let b = alone(&input, &facts, &facts.entries[1]);
        assert_eq!(
            b.text,
            ".version 9.0\n.target sm_90\n.func f() { ret; }\n\n\n\n\
             .visible .entry b() {\n\tcall f;\n\tret;\n}\n\n"
        );
        let of_b = entry_facts(&b.text).unwrap();
        assert_eq!(of_b.entries[0].line, facts.entries[1].line);
    }
}
