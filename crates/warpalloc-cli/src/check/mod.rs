//! `warpalloc check`: holds kernels to the figures of a baseline.

mod baseline;
mod github;
mod judge;
mod sarif;
mod show;
mod tolerance;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use crate::kernels::{Kernel, PtxasArgs, Reader, keyed};
use crate::stats_cubin::CodeArgs;
use crate::{Silent, UsageError, files, output};
use baseline::Baseline;
use judge::Judgement;
use tolerance::Tolerances;

const EXAMPLES: &str = "\
Examples:
  warpalloc check build/ --update          write warpalloc.toml: what the kernels take now
  warpalloc check build/                   fail where a kernel takes more than that
  warpalloc check build/ --update=better   take over what got better, and nothing else
  warpalloc check libkernels.so --sm 90 --github
                                           in a GitHub workflow: annotations and a summary
  warpalloc check a.ptx b.ptx --ptxas /opt/cuda/bin/ptxas --ptxas-option=-maxrregcount=64

Exit status: 0 where nothing got worse, 1 where something did or a file could not be read, 2 where
the command line or the baseline is wrong.";

/// What to hold to which figures.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// PTX files, cubins, fatbins, objects, archives, shared libraries, executables, and folders
    /// that are searched for them
    #[arg(required = true)]
    input: Vec<PathBuf>,
    /// The figures to hold kernels to
    #[arg(long, value_name = "FILE", default_value = "warpalloc.toml")]
    baseline: PathBuf,
    /// Write the figures into the baseline instead
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "all")]
    update: Option<Update>,
    /// By how much a figure may get worse, such as registers=2 or spill_bytes=5%, in place of what
    /// the baseline says for all kernels; may be repeated
    #[arg(long, value_name = "FIGURE=N")]
    tolerance: Vec<String>,
    /// Fail too where the baseline is out of date: a kernel got better, is new, is gone or could
    /// not be measured
    #[arg(long)]
    strict: bool,
    /// Write annotations for GitHub, and a summary to the file that GITHUB_STEP_SUMMARY names
    #[arg(long)]
    github: bool,
    /// Write what got worse as SARIF
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Print JSON, see docs/json.md
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    code: CodeArgs,
    #[command(flatten)]
    ptxas: PtxasArgs,
}

/// Which figures to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Update {
    /// All
    All,
    /// Those that are better than the baseline's, and those of new kernels
    Better,
}

/// Compares kernels with a baseline, or writes one.
pub fn run(args: CheckArgs) -> anyhow::Result<()> {
    let tolerance = Tolerances::from_flags(&args.tolerance)?;
    let old = Baseline::read(&args.baseline)?;
    if old.is_none() && args.update.is_none() {
        return Err(UsageError(format!(
            "there is no {}: `warpalloc check FILES --update` writes it",
            args.baseline.display()
        ))
        .into());
    }
    let assembler = args.ptxas.assembler()?;
    let reader = Reader {
        args: &args.code,
        assembler: assembler.as_ref(),
        options: args.ptxas.options(),
        details: false,
    };
    let kernels = reader.read_all(&args.input)?;
    if kernels.is_empty() {
        bail!("there is no kernel in what was given");
    }
    warn_of_unmeasured(&kernels);
    let kernels = keyed(kernels);
    let release = assembler.as_ref().and_then(|assembler| assembler.release());
    // What was not looked at is not gone.
    let is_partial = args.code.selects();
    if let Some(update) = args.update {
        let baseline = old.unwrap_or_else(Baseline::new);
        let only_better = update == Update::Better;
        let text = baseline.updated(&kernels, only_better, is_partial, release.as_deref())?;
        // What was written can be read again, whatever stood in the old file.
        let count = Baseline::parse(&args.baseline, &text)?.entries.len();
        files::write(&args.baseline, &text)?;
        output::note(&format!(
            "{} holds {}",
            args.baseline.display(),
            output::counted(count, "kernel")
        ));
        return Ok(());
    }
    let Some(baseline) = old else {
        return Ok(());
    };
    if let (Some(was), Some(is)) = (&baseline.ptxas, &release)
        && was != is
    {
        output::note(&format!(
            "the baseline was made with ptxas {was}, and this is {is}"
        ));
    }
    let judgement = Judgement::new(&baseline, &kernels, &tolerance, is_partial)?;
    tell(&args, &judgement)?;
    match judgement.fails(args.strict) {
        true => Err(Silent.into()),
        false => Ok(()),
    }
}

fn warn_of_unmeasured(kernels: &[Kernel]) {
    for kernel in kernels {
        if let Err(reason) = &kernel.figures {
            let (file, name) = (&kernel.file, &kernel.name);
            output::warning(&format!("{file}: `{name}` is not measured: {reason}"));
        }
    }
}

fn tell(args: &CheckArgs, judgement: &Judgement) -> anyhow::Result<()> {
    let told = match args.json {
        true => format!("{:#}\n", show::json(judgement, args.strict)),
        false => show::text(judgement, args.strict),
    };
    output::print(&told)?;
    if let Some(path) = &args.sarif {
        files::write(
            path,
            format!("{:#}\n", sarif::render(judgement, args.strict)),
        )?;
    }
    if args.github {
        // A document on standard output stays alone there.
        let annotations = github::annotations(judgement, args.strict);
        match args.json {
            true => eprint!("{annotations}"),
            false => output::print(&annotations)?,
        }
        if let Some(summary) = std::env::var_os("GITHUB_STEP_SUMMARY") {
            append(
                Path::new(&summary),
                &github::summary(judgement, args.strict),
            )?;
        }
    }
    Ok(())
}

fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
