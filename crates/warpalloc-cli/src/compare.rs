//! `warpalloc compare`: what moved between two builds, two commits or two ptxas, kernel by
//! kernel, and why.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Value, json};
use warpalloc_choose::Ptxas;

use crate::assembler;
use crate::kernels::{Details, Figure, Figures, Kernel, Keyed, Reader, keyed};
use crate::output::counted;
use crate::report::SCHEMA;
use crate::stats_cubin::CodeArgs;
use crate::{UsageError, output};

const EXAMPLES: &str = "\
Examples:
  warpalloc compare old/gemm.cubin new/gemm.cubin
  warpalloc compare old/ new/ --sm 90              folders, by the names of kernels
  warpalloc compare HEAD~1:ptx/gemm.ptx ptx/gemm.ptx
                                                   a commit and the working tree
  warpalloc compare gemm.ptx --ptxas cuda-12/bin/ptxas --ptxas cuda-13/bin/ptxas
                                                   two ptxas on one file";

/// What to compare.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// Two files or folders, or REVISION:PATH of git; one where two ptxas are named
    #[arg(required = true, num_args = 1..=2)]
    input: Vec<PathBuf>,
    /// The ptxas that assembles PTX; named twice, the first and the second are compared
    #[arg(long, value_name = "FILE")]
    ptxas: Vec<PathBuf>,
    /// Take warpalloc's own figures of PTX, even where there is a ptxas
    #[arg(long, conflicts_with = "ptxas")]
    no_ptxas: bool,
    /// An option that ptxas is given; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    ptxas_option: Vec<String>,
    /// Show kernels too that did not move
    #[arg(long)]
    all: bool,
    /// Print JSON, see docs/json.md
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    code: CodeArgs,
}

/// Compares two sides.
pub fn run(args: CompareArgs) -> anyhow::Result<()> {
    let sides = sides(&args)?;
    let [was, is] = &sides;
    let (was, is) = rayon::join(|| was.kernels(&args), || is.kernels(&args));
    let pairs = pairs(keyed(was?), keyed(is?));
    let names = [sides[0].name.as_str(), sides[1].name.as_str()];
    let text = match args.json {
        true => format!("{:#}\n", as_json(names, &pairs)),
        false => as_text(names, &pairs, args.all),
    };
    output::print(&text)
}

/// One side of the comparison.
struct Side {
    name: String,
    path: PathBuf,
    ptxas: Option<Ptxas>,
    /// Holds a file of another commit.
    _folder: Option<tempfile::TempDir>,
}

impl Side {
    fn open(path: &Path, ptxas: Option<Ptxas>) -> anyhow::Result<Side> {
        let name = path.display().to_string();
        if path.exists() || crate::files::is_dash(path) {
            return Ok(Side {
                name,
                path: path.to_owned(),
                ptxas,
                _folder: None,
            });
        }
        let Some((_, within)) = name.split_once(':') else {
            bail!("cannot read {name}: there is no such file");
        };
        let run = Command::new("git").args(["show", &name]).output();
        let run = run.context("cannot run git")?;
        if !run.status.success() {
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            bail!("cannot read {name}: {}", said.trim_end());
        }
        let folder = tempfile::tempdir()?;
        let base = Path::new(within).file_name();
        let path = folder.path().join(base.unwrap_or("file".as_ref()));
        std::fs::write(&path, run.stdout)?;
        Ok(Side {
            name,
            path,
            ptxas,
            _folder: Some(folder),
        })
    }

    fn kernels(&self, args: &CompareArgs) -> anyhow::Result<Vec<Kernel>> {
        let reader = Reader {
            args: &args.code,
            ptxas: self.ptxas.as_ref(),
            options: &args.ptxas_option,
            details: true,
        };
        let found = reader.read_all(std::slice::from_ref(&self.path))?;
        if found.is_empty() {
            bail!("{}: there is no kernel that was asked for", self.name);
        }
        Ok(found)
    }
}

fn sides(args: &CompareArgs) -> anyhow::Result<[Side; 2]> {
    let named: Result<Vec<Ptxas>, UsageError> =
        args.ptxas.iter().map(|path| assembler::at(path)).collect();
    let named = named?;
    match (&args.input[..], &named[..]) {
        ([a, b], [] | [_]) => {
            let found = || assembler::find().filter(|_| !args.no_ptxas);
            let ptxas = named.first().cloned().or_else(found);
            Ok([Side::open(a, ptxas.clone())?, Side::open(b, ptxas)?])
        }
        ([a], [first, second]) => {
            let named = |ptxas: &Ptxas| {
                let mut side = Side::open(a, Some(ptxas.clone()))?;
                let release = assembler::release(ptxas).unwrap_or_default();
                side.name = format!("{} by ptxas {release}", side.name);
                anyhow::Ok(side)
            };
            Ok([named(first)?, named(second)?])
        }
        _ => Err(
            UsageError("two files are compared, or one file with two --ptxas".to_owned()).into(),
        ),
    }
}

/// A kernel on both sides, or on one.
enum Pair {
    Both(Box<Keyed>, Box<Keyed>),
    Gone(Box<Keyed>),
    New(Box<Keyed>),
}

/// Matches kernels by name and architecture, and by name alone where one on each side is left.
fn pairs(was: Vec<Keyed>, mut is: Vec<Keyed>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut left = Vec::new();
    for old in was {
        match is.iter().position(|new| new.key == old.key) {
            Some(at) => pairs.push(Pair::Both(Box::new(old), Box::new(is.remove(at)))),
            None => left.push(old),
        }
    }
    for old in left {
        let same_name = |new: &Keyed| new.key.name == old.key.name;
        let count = is.iter().filter(|new| same_name(new)).count();
        match is.iter().position(same_name).filter(|_| count == 1) {
            Some(at) => pairs.push(Pair::Both(Box::new(old), Box::new(is.remove(at)))),
            None => pairs.push(Pair::Gone(Box::new(old))),
        }
    }
    pairs.extend(is.into_iter().map(|new| Pair::New(Box::new(new))));
    pairs
}

/// A figure on both sides.
struct Change {
    figure: Figure,
    was: u64,
    is: u64,
}

fn changes(was: &Figures, is: &Figures) -> Vec<Change> {
    let both = was.iter().filter_map(|(figure, was)| {
        let is = is.get(figure)?;
        Some(Change { figure, was, is })
    });
    both.filter(|change| change.was != change.is).collect()
}

fn moved(was: &Kernel, is: &Kernel) -> Vec<Change> {
    match (&was.figures, &is.figures) {
        (Ok(was), Ok(is)) => changes(was, is),
        _ => Vec::new(),
    }
}

/// What may have moved the figures: what differs in the code, or that nothing does.
fn reasons(was: &Kernel, is: &Kernel) -> Vec<String> {
    let mut reasons = Vec::new();
    if was.arch != is.arch {
        reasons.push(format!("{} became {}", was.arch, is.arch));
    }
    if was.block != is.block {
        let known = |block: Option<u32>| block.map_or("unknown".to_owned(), |b| b.to_string());
        let (was, is) = (known(was.block), known(is.block));
        reasons.push(format!("threads per block {was} -> {is}"));
    }
    let (Some(old), Some(new)) = (&was.details, &is.details) else {
        return reasons;
    };
    if old.text.is_some() && old.text == new.text {
        reasons.push("its PTX is the same: ptxas or its options differ".to_owned());
        return reasons;
    }
    if old.instructions != new.instructions {
        reasons.push(format!(
            "instructions {} -> {}",
            old.instructions, new.instructions
        ));
    }
    reasons.extend(peaks(old, new));
    reasons
}

fn peaks(old: &Details, new: &Details) -> Option<String> {
    let ((was, from), (is, to)) = (old.peak.as_ref()?, new.peak.as_ref()?);
    (was != is).then(|| format!("live at the peak {was} ({from}) -> {is} ({to})"))
}

fn as_text(names: [&str; 2], pairs: &[Pair], all: bool) -> String {
    let mut out = format!("{} -> {}\n", names[0], names[1]);
    let mut counts = [0; 3];
    let mut same = 0;
    for pair in pairs {
        match pair {
            Pair::Gone(old) => {
                counts[2] += 1;
                // Writing to a string does not fail.
                let _ = writeln!(out, "{} ({}): gone", old.key.name, old.key.arch);
            }
            Pair::New(new) => {
                counts[1] += 1;
                let _ = writeln!(out, "{} ({}): new{}", new.key.name, new.key.arch, row(new));
            }
            Pair::Both(old, new) => {
                let changes = moved(&old.kernel, &new.kernel);
                if changes.is_empty() {
                    same += 1;
                    if all {
                        let _ =
                            writeln!(out, "{} ({}): same{}", new.key.name, new.key.arch, row(new));
                    }
                    continue;
                }
                counts[0] += 1;
                let _ = writeln!(out, "{} ({})", new.key.name, new.key.arch);
                for change in changes {
                    let _ = writeln!(out, "{}", line(&change));
                }
                for reason in reasons(&old.kernel, &new.kernel) {
                    let _ = writeln!(out, "  because: {reason}");
                }
            }
        }
    }
    let [moved, new, gone] = counts;
    let total = counted(moved + same + new, "kernel");
    let _ = writeln!(
        out,
        "{total}: {moved} moved, {same} the same, {new} new, {gone} gone"
    );
    out
}

/// The figures of a kernel in one line.
fn row(kernel: &Keyed) -> String {
    match &kernel.kernel.figures {
        Ok(figures) => {
            let figures: Vec<_> = figures.iter().map(|(f, is)| format!("{f} {is}")).collect();
            format!(", {}", figures.join(", "))
        }
        Err(reason) => format!(", not measured: {reason}"),
    }
}

fn line(change: &Change) -> String {
    let verdict = match change.figure.worse_by(change.was, change.is) {
        ..0 => "better",
        _ => "worse",
    };
    change
        .figure
        .line(&change.was.to_string(), change.was, change.is, verdict)
}

fn as_json(names: [&str; 2], pairs: &[Pair]) -> Value {
    let side = |kernel: &Kernel| {
        let figures = kernel.figures.as_ref();
        let figures = figures.map(|f| f.iter().map(|(f, is)| (f.name().to_owned(), is.into())));
        json!({
            "arch": kernel.arch,
            "file": kernel.file,
            "from": kernel.origin.name(),
            "block": kernel.block,
            "figures": figures.map(|f| Value::Object(f.collect())).unwrap_or(Value::Null),
            "reason": kernel.figures.as_ref().err(),
            "instructions": kernel.details.as_ref().map(|d| d.instructions),
            "live_at_peak": kernel.details.as_ref().and_then(|d| Some(d.peak.as_ref()?.0)),
        })
    };
    let kernels = pairs.iter().map(|pair| match pair {
        Pair::Gone(old) => {
            json!({ "name": old.key.name, "was": side(&old.kernel), "is": Value::Null, "because": [] })
        }
        Pair::New(new) => {
            json!({ "name": new.key.name, "was": Value::Null, "is": side(&new.kernel), "because": [] })
        }
        Pair::Both(old, new) => {
            let because = match moved(&old.kernel, &new.kernel).is_empty() {
                true => Vec::new(),
                false => reasons(&old.kernel, &new.kernel),
            };
            json!({
                "name": new.key.name,
                "was": side(&old.kernel),
                "is": side(&new.kernel),
                "because": because,
            })
        }
    });
    json!({
        "schema": SCHEMA,
        "was": names[0],
        "is": names[1],
        "kernels": kernels.collect::<Value>(),
    })
}
