//! The PTX files of a corpus beside their manifests, and the directives that a run adds to them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use warpalloc_ptx::ast::Function;
use warpalloc_ptx::{Edits, Module, parse};

use crate::manifest::{Launch, Manifest};

/// One PTX file with a launch for each of its entries.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name without `.ptx`: `halves.sm_90`.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The oldest architecture that runs it: 90 for `.target sm_90`.
    pub requires_sm: u32,
    /// Its entries, in the order of the text.
    pub kernels: Vec<Kernel>,
    /// The functions that its entries may call.
    pub functions: Vec<String>,
}

/// An entry and how it is launched.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The name of the entry.
    pub name: String,
    /// How it is launched.
    pub launch: Launch,
}

/// All files of `corpus/ptx`, by name, each with the manifest of its source: `halves.sm_80` and
/// `halves.sm_90` share `corpus/manifests/halves.json`.
pub fn read(corpus: &Path) -> Result<Vec<Source>> {
    let folder = corpus.join("ptx");
    let listing = std::fs::read_dir(&folder)
        .with_context(|| format!("cannot list the folder {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = listing
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
    paths.sort();
    paths
        .into_iter()
        .map(|path| read_source(corpus, path))
        .collect()
}

fn read_source(corpus: &Path, path: PathBuf) -> Result<Source> {
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let stem = name.split('.').next().unwrap_or_default();
    let manifest = Manifest::read(&corpus.join("manifests").join(format!("{stem}.json")))?;
    read_module(name, &text, &manifest).with_context(|| format!("{}", path.display()))
}

fn read_module(name: String, text: &str, manifest: &Manifest) -> Result<Source> {
    let module = parse(text).map_err(|error| anyhow!("{error}"))?;
    let defined = module
        .functions()
        .filter(|function| function.body.is_some());
    let called = defined.filter(|function| !function.is_entry);
    Ok(Source {
        name,
        text: text.to_owned(),
        requires_sm: required_sm(&module)?,
        kernels: entries(&module)
            .map(|entry| kernel(entry, manifest))
            .collect::<Result<_>>()?,
        functions: called
            .map(|function| function.name.text.to_owned())
            .collect(),
    })
}

fn parse_named<'a>(text: &'a str, name: &str) -> Result<Module<'a>> {
    parse(text).map_err(|error| anyhow!("{name}: {error}"))
}

fn entries<'m, 'a>(module: &'m Module<'a>) -> impl Iterator<Item = &'m Function<'a>> {
    module
        .functions()
        .filter(|function| function.is_entry && function.body.is_some())
}

fn required_sm(module: &Module) -> Result<u32> {
    let named = module
        .target
        .iter()
        .find_map(|target| target.strip_prefix("sm_"));
    let digits = named.map(|name| name.trim_end_matches(|c: char| !c.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .context("the target names no architecture")
}

/// The entry's launch, once its arguments are seen to match the entry's parameters.
fn kernel(entry: &Function, manifest: &Manifest) -> Result<Kernel> {
    let name = entry.name.text;
    let launch = manifest
        .kernels
        .get(name)
        .with_context(|| format!("no manifest for the entry {name}"))?;
    let (given, taken) = (launch.arguments.len(), entry.params.len());
    ensure!(
        given == taken,
        "{name} takes {taken} parameters, its manifest gives {given}"
    );
    for (index, (argument, param)) in launch.arguments.iter().zip(&entry.params).enumerate() {
        let scalar = param.vector == 1 && param.names.iter().all(|name| name.dims.is_empty());
        if !scalar || !argument.fits(param.ty) {
            bail!(
                "argument {index} of {name} is {argument:?}, its parameter is .{}",
                param.ty
            );
        }
    }
    Ok(Kernel {
        name: name.to_owned(),
        launch: launch.clone(),
    })
}

impl Source {
    /// The text with every entry capped at `cap` registers.
    pub fn capped(&self, cap: Option<u32>) -> Result<String> {
        with_cap(&self.text, cap, &self.name)
    }

    /// The text with every entry bound to the block of its launch, where it has no bound of its
    /// own: spilling to shared memory needs one.
    pub fn bounded(&self) -> Result<String> {
        let module = parse_named(&self.text, &self.name)?;
        let mut edits = Edits::new();
        for (entry, kernel) in entries(&module).zip(&self.kernels) {
            let bound = |keyword: &str| matches!(keyword, "maxntid" | "reqntid");
            if !entry
                .directives
                .iter()
                .any(|directive| bound(directive.keyword))
            {
                let [x, y, z] = kernel.launch.block.0;
                edits.insert(entry.directives_at, &format!("\n.maxntid {x}, {y}, {z}\n"));
            }
        }
        Ok(edits.apply(&self.text)?)
    }
}

/// `text` with `.maxnreg` on every entry, in place of one that is there. No cap changes nothing.
pub fn with_cap(text: &str, cap: Option<u32>, name: &str) -> Result<String> {
    let Some(cap) = cap else {
        return Ok(text.to_owned());
    };
    let module = parse_named(text, name)?;
    let mut edits = Edits::new();
    let directive = format!(".maxnreg {cap}");
    for entry in entries(&module) {
        match entry
            .directives
            .iter()
            .find(|directive| directive.keyword == "maxnreg")
        {
            Some(present) => edits.replace(present.span, &directive),
            None => edits.insert(entry.directives_at, &format!("\n{directive}\n")),
        }
    }
    Ok(edits.apply(text)?)
}

/// `text` with a `.pragma` at the beginning of every entry's body.
pub fn with_pragma(text: &str, pragma: &str, name: &str) -> Result<String> {
    let module = parse_named(text, name)?;
    let mut edits = Edits::new();
    for entry in entries(&module) {
        let body = entry.body.as_ref().context("an entry without a body")?;
        edits.insert(body.open + 1, &format!("\n.pragma \"{pragma}\";\n"));
    }
    Ok(edits.apply(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus")
    }

    #[test]
    fn every_entry_of_the_corpus_has_a_launch_that_fits_its_parameters() {
        let sources = read(&corpus()).unwrap();
        let entries: usize = sources.iter().map(|source| source.kernels.len()).sum();
        assert!(
            sources.len() >= 28 && entries >= 60,
            "{} files, {entries} entries",
            sources.len()
        );
        for kernel in sources.iter().flat_map(|source| &source.kernels) {
            let threads = kernel.launch.block.count();
            assert!(
                threads <= 256,
                "{}: a block must fit the register file at 255",
                kernel.name
            );
        }
    }

    #[test]
    fn every_launch_belongs_to_an_entry() {
        let sources = read(&corpus()).unwrap();
        for file in std::fs::read_dir(corpus().join("manifests")).unwrap() {
            let path = file.unwrap().path();
            for name in Manifest::read(&path).unwrap().kernels.keys() {
                let mut kernels = sources.iter().flat_map(|source| &source.kernels);
                assert!(
                    kernels.any(|kernel| kernel.name == *name),
                    "{}: {name}",
                    path.display()
                );
            }
        }
    }

    const ENTRY: &str = ".version 9.0\n.target sm_90a\n.address_size 64\n\
                         .entry k(.param .u32 n, .param .u64 p)\n{\nret;\n}\n";

    #[test]
    fn a_launch_that_does_not_fit_is_refused() {
        let module = parse(ENTRY).unwrap();
        let entry = entries(&module).next().unwrap();
        let refusal = |arguments: &str| {
            let text = format!(r#"{{"grid": [1], "block": [32], "arguments": {arguments}}}"#);
            let launch = serde_json::from_str(&text).unwrap();
            let manifest = Manifest {
                kernels: [("k".to_owned(), launch)].into(),
            };
            kernel(entry, &manifest)
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(refusal(r#"[{"i32": 1}, {"i64": 2}]"#), None);
        assert!(
            refusal(r#"[{"i32": 1}]"#)
                .unwrap()
                .contains("takes 2 parameters")
        );
        assert!(
            refusal(r#"[{"f32": 1}, {"i64": 2}]"#)
                .unwrap()
                .contains("argument 0 of k")
        );
        let empty = Manifest {
            kernels: Default::default(),
        };
        assert!(
            kernel(entry, &empty)
                .unwrap_err()
                .to_string()
                .contains("no manifest")
        );
    }

    #[test]
    fn a_cap_is_written_once_and_an_old_one_replaced() {
        let capped = with_cap(ENTRY, Some(64), "k").unwrap();
        assert_eq!(capped.matches(".maxnreg 64").count(), 1);
        let lower = with_cap(&capped, Some(32), "k").unwrap();
        assert_eq!(
            (
                lower.matches(".maxnreg").count(),
                lower.matches(".maxnreg 32").count()
            ),
            (1, 1)
        );
        assert_eq!(with_cap(ENTRY, None, "k").unwrap(), ENTRY);
    }

    #[test]
    fn a_pragma_is_the_first_statement_of_every_entry() {
        let text = with_pragma(ENTRY, "enable_smem_spilling", "k").unwrap();
        assert!(
            text.contains("{\n.pragma \"enable_smem_spilling\";\n"),
            "{text}"
        );
    }

    #[test]
    fn the_architecture_is_read_from_the_target() {
        assert_eq!(required_sm(&parse(ENTRY).unwrap()).unwrap(), 90);
    }

    #[test]
    fn bounds_are_those_of_the_launch_and_never_doubled() {
        let sources = read(&corpus()).unwrap();
        let source = sources
            .iter()
            .find(|source| source.name == "dynshared.sm_90")
            .unwrap();
        let bounded = source.bounded().unwrap();
        assert_eq!(bounded.matches(".maxntid").count(), 2);
        assert!(bounded.contains(".maxntid 8, 8, 4") && bounded.contains(".maxntid 256, 1, 1"));
    }
}
