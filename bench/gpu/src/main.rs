//! Runs the corpus on a GPU: original PTX against allocated PTX, every bit compared, both timed.
//!
//! For every kernel and cap there is the original without a cap, whose output is the right one; the
//! original at the cap, where ptxas spills; and allocated PTX at the cap, per strategy and spill
//! space. Everything is built first, on all cores ([`assemble`]); then each kernel runs in a process
//! of its own ([`supervise`], [`worker`]), and the [`table`] is printed and written.

mod assemble;
mod compare;
mod corpus;
mod device;
mod inputs;
mod manifest;
mod measure;
mod resources;
mod supervise;
mod table;
mod worker;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use assemble::{Allocator, Build, Choice, Image, Recipe, Workshop};
use corpus::Source;
use device::Device;
use supervise::Findings;
use table::{Measured, Row, Setup, Summary};
use worker::{Group, Plan, Variant};

/// Runs original and allocated kernels on a GPU, compares every bit and times both.
#[derive(Parser)]
#[command(
    name = "warpalloc-gpu",
    version,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Role>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
enum Role {
    /// Runs one kernel; started by the program itself.
    #[command(hide = true)]
    Worker,
    /// Times cubins of one kernel: a question as JSON on standard input, an answer on standard output.
    Measure,
}

#[derive(Args)]
struct RunArgs {
    /// The corpus: a folder with `ptx` and `manifests`.
    #[arg(long, value_name = "DIR", default_value = "corpus")]
    corpus: PathBuf,
    /// The `warpalloc` command; without it only the originals run.
    #[arg(long, value_name = "PATH")]
    warpalloc: Option<PathBuf>,
    /// ptxas; without it the driver compiles PTX itself and spills are not counted.
    #[arg(long, value_name = "PATH")]
    ptxas: Option<PathBuf>,
    /// Contracts products and sums, in all builds alike: ptxas in the originals, `warpalloc` in what it
    /// allocates.
    #[arg(long)]
    fmad: bool,
    /// Lets `warpalloc` promote local variables to registers.
    #[arg(long)]
    promote_local: bool,
    /// Only kernels whose `source/entry` contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Caps on registers.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,128,96,80,64,48,40,32,24"
    )]
    caps: Vec<Cap>,
    /// Where allocated code spills to.
    #[arg(long, value_delimiter = ',', default_value = "local,shared")]
    spaces: Vec<String>,
    /// Strategies of the allocator, each with a margin where it says `NAME:MARGIN`; `best` chooses
    /// among several with the help of ptxas, `best-cubin` also among rewritten machine code,
    /// `best-any-grid` and `best-cubin-any-grid` without knowing the grid, `best-no-ptxas` without
    /// ptxas; `none` leaves out PTX that was allocated.
    #[arg(long, value_delimiter = ',', default_value = "default")]
    strategies: Vec<String>,
    /// A row of cubins: what `warpalloc alloc` with these flags makes of ptxas's cubin at the cap,
    /// or, where the flags name `{cap}`, of the uncapped one; may be repeated.
    #[arg(long, value_name = "NAME[=FLAGS]")]
    cubin: Vec<Recipe>,
    /// A row of ptxas alone with this `.pragma` in every entry; may be repeated.
    #[arg(long, value_name = "TEXT")]
    pragma: Vec<String>,
    /// A row of this program in the place of ptxas, such as what `warpalloc shim install` lays out,
    /// on the original with the bounds of its launch in every entry.
    #[arg(long, value_name = "PATH")]
    shim: Option<PathBuf>,
    /// A row of ptxas alone with these flags: `--ptxas-flags level10=-regUsageLevel=10`; may be
    /// repeated.
    #[arg(long, value_name = "NAME=FLAGS")]
    ptxas_flags: Vec<Recipe>,
    /// Only caps at which ptxas spills.
    #[arg(long)]
    spilling: bool,
    /// Timed launches per variant.
    #[arg(long, default_value_t = 51)]
    reps: usize,
    /// Where inputs come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The architecture to assemble for [default: the GPU's; sm_90 in a dry run].
    #[arg(long)]
    arch: Option<String>,
    /// Programs that run at a time while building [default: the cores].
    #[arg(long)]
    jobs: Option<usize>,
    /// Seconds that the allocator or ptxas may take for one build.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
    /// Where PTX and cubins are left [default: a folder among the temporary files].
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Writes the table here too, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Does everything but launching; needs no GPU.
    #[arg(long)]
    dry_run: bool,
}

/// `none` or a number of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cap(Option<u32>);

impl FromStr for Cap {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Cap(None)),
            number => number.parse().map(|number| Cap(Some(number))),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Role::Worker) => worker::main().map(|()| true),
        Some(Role::Measure) => measure::main().map(|()| true),
        None => run(&cli.run),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Builds, runs and reports; whether nothing was wrong.
fn run(args: &RunArgs) -> Result<bool> {
    let setup = setup(args)?;
    let sm = sm_number(&setup.arch)?;
    let mut sources = corpus::read(&args.corpus)?;
    leave_out_newer(&mut sources, sm);
    let kernels = chosen(args, &sources);
    let builds = builds(args, &kernels);
    eprintln!(
        "building {} images of {} kernels",
        builds.len(),
        kernels.len()
    );
    let images = workshop(args, &setup.arch)?.make(&sources, &builds);
    let stock = Stock {
        sources: &sources,
        builds: &builds,
        images: &images,
    };
    let mut rows = Vec::new();
    for (source, kernel) in kernels {
        rows.extend(stock.judge(args, source, kernel)?);
    }
    report(args, &setup, &rows)
}

fn setup(args: &RunArgs) -> Result<Setup> {
    let mut setup = Setup {
        ptxas: args.ptxas.as_deref().map(version).transpose()?,
        warpalloc: args.warpalloc.as_deref().map(version).transpose()?,
        arch: args.arch.clone().unwrap_or("sm_90".to_owned()),
        fmad: args.fmad,
        seed: args.seed,
        reps: args.reps,
        ..Setup::default()
    };
    if !args.dry_run {
        let identity = Device::open()?.identity()?;
        setup.arch = args.arch.clone().unwrap_or(format!("sm_{}", identity.sm));
        setup.gpu = Some(identity.name);
        setup.cuda = Some(identity.cuda);
        setup.driver = driver_version();
    }
    Ok(setup)
}

/// The last line of what a program says of itself that is not empty.
fn version(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.next_back().unwrap_or("unknown").to_owned())
}

/// The number in `NVRM version: NVIDIA UNIX ... Kernel Module  580.159.04  ...`.
fn driver_version() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_version =
        |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    text.lines()
        .next()?
        .split_whitespace()
        .find(is_version)
        .map(str::to_owned)
}

fn sm_number(arch: &str) -> Result<u32> {
    let digits = arch
        .trim_start_matches("sm_")
        .trim_end_matches(|c: char| !c.is_ascii_digit());
    digits
        .parse()
        .with_context(|| format!("{arch} is no architecture"))
}

/// Leaves out the files that the architecture cannot run.
fn leave_out_newer(sources: &mut Vec<Source>, sm: u32) {
    sources.retain(|source| {
        let runs = source.requires_sm <= sm;
        if !runs {
            eprintln!("{} needs sm_{}: left out", source.name, source.requires_sm);
        }
        runs
    });
}

fn workshop(args: &RunArgs, arch: &str) -> Result<Workshop> {
    let folder = args
        .work
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join("warpalloc-gpu"));
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Workshop {
        warpalloc: args.warpalloc.clone(),
        ptxas: args.ptxas.clone(),
        arch: arch.to_owned(),
        fmad: args.fmad,
        promote: args.promote_local,
        folder,
        jobs: args.jobs.unwrap_or(cores),
        patience: Duration::from_secs(args.patience),
    })
}

/// The kernels to run, as positions of their source and within it.
fn chosen(args: &RunArgs, sources: &[Source]) -> Vec<(usize, usize)> {
    let all = sources.iter().enumerate().flat_map(|(index, source)| {
        source
            .kernels
            .iter()
            .enumerate()
            .map(move |(position, kernel)| {
                (index, position, format!("{}/{}", source.name, kernel.name))
            })
    });
    let named = all.filter(|(_, _, name)| name.contains(&args.filter));
    named
        .map(|(index, position, _)| (index, position))
        .collect()
}

/// Everything to build: for each kernel the reference without a cap, then the caps.
fn builds(args: &RunArgs, kernels: &[(usize, usize)]) -> Vec<Build> {
    let mut builds = Vec::new();
    for &(source, kernel) in kernels {
        let mut add = |cap, allocator| {
            builds.push(Build {
                source,
                kernel,
                cap,
                allocator,
            })
        };
        add(None, Allocator::Ptxas);
        for &Cap(cap) in &args.caps {
            if cap.is_some() {
                add(cap, Allocator::Ptxas);
            }
            for allocator in ours(args) {
                add(cap, allocator);
            }
        }
    }
    builds
}

/// What stands beside ptxas, in the order of the table; nothing of ours without the command.
fn ours(args: &RunArgs) -> Vec<Allocator> {
    let mut all = Vec::new();
    if args.warpalloc.is_some() {
        let strategies = args.strategies.iter().filter(|name| *name != "none");
        for strategy in strategies {
            if let Some(choice) = Choice::named(strategy) {
                all.push(Allocator::Chosen(choice));
                continue;
            }
            all.extend(args.spaces.iter().map(|space| Allocator::Warpalloc {
                strategy: strategy.clone(),
                space: space.clone(),
            }));
        }
        all.extend(args.cubin.iter().cloned().map(Allocator::Cubin));
    }
    all.extend(args.pragma.iter().cloned().map(Allocator::Pragma));
    all.extend(args.ptxas_flags.iter().cloned().map(Allocator::Flags));
    all.extend(args.shim.iter().cloned().map(Allocator::Shim));
    all
}

/// The two columns that say what a row is.
fn titles(allocator: Allocator) -> (String, String) {
    match allocator {
        Allocator::Ptxas => ("ptxas".to_owned(), String::new()),
        Allocator::Warpalloc { strategy, space } => (strategy, space),
        Allocator::Chosen(choice) => (choice.name().to_owned(), "chosen".to_owned()),
        Allocator::Cubin(recipe) => ("cubin".to_owned(), recipe.name),
        Allocator::Pragma(pragma) => ("ptxas".to_owned(), pragma),
        Allocator::Flags(recipe) => ("ptxas".to_owned(), recipe.name),
        Allocator::Shim(_) => ("shim".to_owned(), String::new()),
    }
}

/// What was built.
struct Stock<'a> {
    sources: &'a [Source],
    builds: &'a [Build],
    images: &'a [Result<Image, String>],
}

impl Stock<'_> {
    fn find(&self, wanted: &Build) -> Option<usize> {
        self.builds.iter().position(|build| build == wanted)
    }

    /// The caps that are asked for, of this kernel.
    fn caps(&self, args: &RunArgs, source: usize, kernel: usize) -> Vec<Cap> {
        let spills = |&&Cap(cap): &&Cap| {
            let original = Build {
                source,
                kernel,
                cap,
                allocator: Allocator::Ptxas,
            };
            let image = self
                .find(&original)
                .and_then(|at| self.images[at].as_ref().ok());
            let resources = image.and_then(|image| image.resources);
            resources.is_some_and(|found| found.spill_stores + found.spill_loads > 0)
        };
        let caps = args.caps.iter();
        caps.filter(|cap| !args.spilling || spills(cap))
            .copied()
            .collect()
    }

    /// Runs one kernel in all its builds and lays out its rows.
    fn judge(&self, args: &RunArgs, source: usize, kernel: usize) -> Result<Vec<Row>> {
        let (file, entry) = (&self.sources[source], &self.sources[source].kernels[kernel]);
        if self.caps(args, source, kernel).is_empty() {
            return Ok(Vec::new());
        }
        eprintln!("{}/{}", file.name, entry.name);
        let findings = match args.dry_run {
            true => Findings::default(),
            false => self.run(args, source, kernel)?,
        };
        if let Some(reason) = &findings.broken {
            eprintln!("    {reason}");
        }
        let mut rows = Vec::new();
        for Cap(cap) in self.caps(args, source, kernel) {
            let measured = |allocator: Allocator| {
                let build = self.find(&Build {
                    source,
                    kernel,
                    cap,
                    allocator,
                });
                build
                    .map(|build| self.measured(build, &findings))
                    .unwrap_or_default()
            };
            let row = Row {
                source: file.name.clone(),
                kernel: entry.name.clone(),
                cap,
                reference: findings.reference,
                ptxas: measured(Allocator::Ptxas),
                ours: None,
            };
            let before = rows.len();
            for allocator in ours(args) {
                let found = measured(allocator.clone());
                let (strategy, space) = titles(allocator);
                rows.push(Row {
                    ours: Some((strategy, space, found)),
                    ..row.clone()
                });
            }
            if rows.len() == before {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn run(&self, args: &RunArgs, source: usize, kernel: usize) -> Result<Findings> {
        let at = |cap, allocator| {
            self.find(&Build {
                source,
                kernel,
                cap,
                allocator,
            })
        };
        let reference = at(None, Allocator::Ptxas).context("the reference was not built")?;
        let image = match &self.images[reference] {
            Ok(image) => image,
            Err(reason) => return Ok(Findings::broken(reason)),
        };
        let group = |(id, cap): (usize, &Cap)| {
            let makers = std::iter::once(Allocator::Ptxas).chain(ours(args));
            let variant = |build: usize| {
                let image = self.images[build].as_ref().ok()?;
                Some(Variant {
                    id: build,
                    image: image.path.clone(),
                })
            };
            let variants = makers
                .filter_map(|maker| at(cap.0, maker))
                .filter_map(variant);
            Group {
                id,
                variants: variants.collect(),
            }
        };
        let caps = self.caps(args, source, kernel);
        let entry = &self.sources[source].kernels[kernel];
        supervise::carry_out(&Plan {
            kernel: entry.name.clone(),
            launch: entry.launch.clone(),
            seed: args.seed,
            reps: args.reps,
            reference: image.path.clone(),
            groups: caps.iter().enumerate().map(group).collect(),
        })
    }

    fn measured(&self, build: usize, findings: &Findings) -> Measured {
        let image = self.images[build].as_ref();
        let broken = findings.broken.clone().map(worker::Outcome::Failed);
        let build_of = &self.builds[build];
        let kernel = &self.sources[build_of.source].kernels[build_of.kernel].name;
        Measured {
            resources: image.ok().and_then(|image| image.resources),
            code: image.ok().and_then(|image| image.code(kernel)),
            outcome: findings.outcomes.get(&build).cloned().or(broken),
            time: findings.times.get(&build).copied(),
            refusal: image.err().cloned(),
        }
    }
}

fn report(args: &RunArgs, setup: &Setup, rows: &[Row]) -> Result<bool> {
    print!("{}", table::as_text(rows));
    let summary = Summary::of(rows);
    println!("{}", serde_json::to_string(setup)?);
    println!("{}", serde_json::to_string(&summary)?);
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&table::as_json(setup, rows))?;
        std::fs::write(path, json + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let wrong = |row: &Row| {
        let ours = row.ours.as_ref();
        row.ptxas.is_wrong() || ours.is_some_and(|(_, _, measured)| measured.is_wrong())
    };
    Ok(!rows.iter().any(wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        let cli = Cli::parse_from(["warpalloc-gpu", "--caps", "none,64", "--spaces", "local"]);
        assert_eq!(cli.run.caps, [Cap(None), Cap(Some(64))]);
        assert!(Cli::try_parse_from(["warpalloc-gpu", "--caps", "few"]).is_err());
        assert!(Cli::try_parse_from(["warpalloc-gpu", "--cubin", "=--spills shared"]).is_err());
    }

    #[test]
    fn cubins_pragmas_and_the_shim_are_rows_beside_allocated_ptx() {
        let line = "warpalloc-gpu --warpalloc w --strategies none --pragma p --shim s";
        let cubins = [
            "--cubin",
            "a",
            "--cubin",
            "b=--maxnreg {cap} --spills shared",
        ];
        let args = Cli::parse_from(line.split(' ').chain(cubins)).run;
        let titles: Vec<_> = ours(&args).into_iter().map(titles).collect();
        let expected = [("cubin", "a"), ("cubin", "b"), ("ptxas", "p"), ("shim", "")];
        assert_eq!(titles, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(args.cubin[1].flags, "--maxnreg {cap} --spills shared");
        let bare = Cli::parse_from(["warpalloc-gpu", "--cubin", "a"]).run;
        assert!(ours(&bare).is_empty(), "no command to make cubins with");
    }

    #[test]
    fn every_cap_is_built_by_ptxas_and_by_every_strategy_in_every_space() {
        let line = [
            "warpalloc-gpu",
            "--warpalloc",
            "w",
            "--caps",
            "none,64",
            "--strategies",
            "a,b,best-cubin",
        ];
        let args = Cli::parse_from(line).run;
        let builds = builds(&args, &[(0, 0)]);
        let originals = builds
            .iter()
            .filter(|build| build.allocator == Allocator::Ptxas)
            .count();
        assert_eq!((originals, builds.len()), (2, 2 + 2 * (2 * 2 + 1)));
        let bare = Cli::parse_from(["warpalloc-gpu", "--caps", "64"]).run;
        assert_eq!(
            super::builds(&bare, &[(0, 0)]).len(),
            2,
            "the reference and the cap"
        );
    }

    #[test]
    fn architectures_are_numbers() {
        assert_eq!(sm_number("sm_90a").unwrap(), 90);
        assert!(sm_number("hopper").is_err());
    }
}
