//! `warpalloc alloc`: PTX in, allocated PTX out. What it does to cubins is in `alloc_cubin`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;
use warpalloc::{Options, Strategy};
use warpalloc_choose::{Ptxas, keep_no_worse};
use warpalloc_ptx::LEAST_CAP;
use warpalloc_ptx::contract::Contraction;
use warpalloc_ptx::module::{
    FunctionReport, ModuleOptions, ModuleResult, Outcome, PtxError, SpillSpace, allocate_module,
};

use crate::alloc_cubin;
use crate::alloc_cubin::spills::SpillFlags;
use crate::best::{self, Chooser, Chosen, Launch, MeasureArgs, WhichPtxas};
use crate::files::{self, Input};
use crate::flags::{ColouringFlags, PhaseFlags};
use crate::kernels::ptx_files;
use crate::output::{self, Message};
use crate::report::{self, Format};
use crate::{Silent, UsageError, knobs};

/// The most threads that `--jobs` gets.
const MOST_THREADS: usize = 256;

const EXAMPLES: &str = "\
Examples:
  warpalloc alloc gemm.ptx -o out.ptx --maxnreg 64 the best within 64 registers, with ptxas on the path
  warpalloc alloc gemm.ptx -o out.cubin --maxnreg 64 --block 256 --grid 4096 -v
                                                   machine code for one launch, and what was compared
  warpalloc alloc gemm.ptx -o out.ptx --maxnreg 64 --regalloc=briggs
                                                   one allocator, without a ptxas
  warpalloc alloc a.ptx ptx/ -o out/ --maxnreg 64  several files, and the PTX files of a folder
  warpalloc alloc gemm.cubin -o out.cubin          fewer registers for machine code";

/// What to allocate and how.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AllocArgs {
    /// PTX files, folders of them, or cubins; `-` for standard input
    #[arg(required = true)]
    pub(crate) input: Vec<PathBuf>,
    /// Where the result goes: a file, `-` for standard output, or the folder for several inputs;
    /// `best` writes machine code to a file called `.cubin`
    #[arg(short, long, default_value = "-")]
    pub(crate) output: PathBuf,
    /// The most registers per thread (24 to 255), also written into each entry; lowered, with a
    /// warning, to what `.maxnreg` and the launch bounds of an entry allow
    #[arg(long, value_name = "N", value_parser = cap)]
    pub(crate) maxnreg: Option<u32>,
    /// The occupancy in percent that entries shall reach (75 where no value is given): lowers
    /// the registers of each entry whose block size is known, never above --maxnreg
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, require_equals = true,
          default_missing_value = "75", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) occupancy_target: Option<u32>,
    /// The most threads of a block, for entries without `.maxntid` and `.reqntid`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) block: Option<u32>,
    /// Whether `ptxas -c` comes next, so that device functions get the cap too
    /// [default: true where the module has visible or external functions]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    relocatable: Option<bool>,
    /// The allocator: best, briggs, fatpoint, scan or naive. `best` tries several ways, has
    /// ptxas assemble each, and keeps what is expected to be fastest, the kernel as it is
    /// included [default: best; briggs where --spill-space, --margin, --preset or a flag of
    /// an allocator is given]
    #[arg(long, value_name = "NAME", value_parser = regalloc)]
    pub(crate) regalloc: Option<Regalloc>,
    /// The ptxas that `best` compares with; without a cap, every allocator leaves a kernel as it
    /// is that this one would take more registers for [default: the one on the path or in CUDA_HOME]
    #[arg(long, value_name = "FILE")]
    ptxas: Option<PathBuf>,
    /// Go by the texts alone, even where there is a ptxas
    #[arg(long, conflicts_with = "ptxas")]
    no_ptxas: bool,
    /// Launches that `best` times its candidates with, on the GPU of this machine: a JSON file
    /// that gives each kernel a grid, a block and arguments (bench/gpu/README.md). A candidate
    /// whose output differs in a bit is out of the question
    #[arg(long, value_name = "MANIFEST", conflicts_with_all = ["no_ptxas", "block", "grid", "dynamic_shared"])]
    measure: Option<PathBuf>,
    /// The program that launches for --measure [default: `warpalloc-gpu`, beside this one or on
    /// the path]
    #[arg(long, value_name = "FILE", requires = "measure")]
    gpu_runner: Option<PathBuf>,
    /// Blocks of a launch, for `best`; where nobody says, a choice must pay for a single block
    /// per multiprocessor and for a full machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    grid: Option<u32>,
    /// Registers below --maxnreg to allocate for, since ptxas needs some of its own; below
    /// zero, ptxas spills what does not fit the cap
    #[arg(
        long,
        value_name = "N",
        allow_hyphen_values = true,
        default_value_t = 0
    )]
    margin: i32,
    /// Choose anew, and keep no choice for the next call
    #[arg(long)]
    no_cache: bool,
    /// Where spilled values go; `shared` also takes local memory where it has no room [default: local]
    #[arg(long, value_enum)]
    spill_space: Option<Space>,
    /// What becomes of products and sums without a rounding modifier
    #[arg(long, value_enum, default_value_t = Contract::Ptxas)]
    contract: Contract,
    /// Allocate this function only; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) entry: Vec<String>,
    /// Write the result even where a function was refused, which then stays as it is
    #[arg(long, conflicts_with = "strict")]
    keep_going: bool,
    /// Write nothing unless every function that was asked for is allocated
    #[arg(long)]
    pub(crate) strict: bool,
    /// The machine to allocate for: hardware, hardware-packed or cicc
    #[arg(long, value_name = "NAME", value_parser = preset)]
    pub(crate) preset: Option<String>,
    /// The compute capability, where it is not what the file says: 90, sm_90
    #[arg(long, value_name = "SM")]
    pub(crate) sm: Option<warpalloc::target::sm::Sm>,
    /// Print what happened to each function, as text or as JSON: to standard output, or to
    /// standard error where the PTX goes there
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) print_regalloc_stats: Option<Format>,
    /// Turn a knob of the fat-point allocator (see `warpalloc knobs`); may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    knob: Vec<String>,
    /// Of a cubin: take the fewest registers, even where a thread is given as many as before
    #[arg(long)]
    pub(crate) fewest: bool,
    /// Of a cubin, for tests: put every value into a random register
    #[arg(long, value_name = "SEED", hide = true)]
    pub(crate) shuffle_registers: Option<u64>,
    /// Keep `.local` variables in registers where they need no address
    #[arg(long)]
    pub(crate) promote_local: bool,
    /// How many threads work, 256 at most; all cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    #[command(flatten)]
    phases: PhaseFlags,
    #[command(flatten)]
    colouring: ColouringFlags,
    #[command(flatten)]
    pub(crate) cubin_spills: SpillFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Space {
    /// Local memory
    Local,
    /// Shared memory; local memory, with a warning, where a kernel cannot have it
    Shared,
    /// Shared memory where that costs no occupancy, else local memory
    Auto,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Contract {
    /// Fused and rounded as ptxas would with `-fmad true`, so that spill code changes no bit
    Ptxas,
    /// Never fused: the bits of `-fmad false`
    Off,
    /// As they are; spill code may keep ptxas from fusing them
    Keep,
}

/// Who allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regalloc {
    /// Whatever is expected to be fastest.
    Best,
    /// One allocator.
    One(Strategy),
}

fn regalloc(name: &str) -> Result<Regalloc, String> {
    match name {
        "best" => Ok(Regalloc::Best),
        name => strategy(name)
            .map(Regalloc::One)
            .map_err(|error| format!("{error}, best")),
    }
}

/// The allocator called `name`.
pub fn strategy(name: &str) -> Result<Strategy, String> {
    let names: Vec<_> = Strategy::ALL.iter().map(|s| s.name()).collect();
    Strategy::named(name).ok_or_else(|| format!("the allocators are {}", names.join(", ")))
}

/// A number of registers that ptxas takes as a cap.
pub fn cap(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| (LEAST_CAP..=255).contains(n));
    number.ok_or_else(|| {
        format!("ptxas takes caps of {LEAST_CAP} to 255 registers and raises lower ones")
    })
}

fn preset(name: &str) -> Result<String, String> {
    let known = warpalloc::target::PRESETS;
    match known.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("the presets are {}", known.join(", "))),
    }
}

/// Allocates the registers of PTX files.
pub fn run(mut args: AllocArgs) -> anyhow::Result<()> {
    args.input = ptx_files(&args.input)?;
    // Files and their functions share these threads.
    let jobs = args.jobs.take();
    if args.maxnreg.is_some() && alloc_cubin::are_cubins(&args.input)? {
        return alloc_cubin::cap::run(&args, &outputs(&args)?);
    }
    if args.cubin_spills.is_asked_for() {
        return alloc_cubin::spills::run(&args, &outputs(&args)?);
    }
    let allocator = Allocator::new(&args)?;
    if alloc_cubin::are_cubins(&args.input)? {
        return alloc_cubin::recolour::run(&args, &outputs(&args)?);
    }
    alloc_cubin::refuse_flags(&args)?;
    for message in allocator.idle_knobs(&args) {
        message.say();
    }
    let outputs = outputs(&args)?;
    let one = |(path, output): (&PathBuf, PathBuf)| {
        let input = Input::read(path)?;
        let machine_code = output.extension().is_some_and(|e| e == "cubin");
        let chosen = allocator.allocate(&input, machine_code)?;
        Ok((input, output, chosen))
    };
    // Kernels that are timed at once would slow each other down.
    let in_a_row = args.measure.as_ref().map_or(1, |_| args.input.len());
    let each = || -> Vec<anyhow::Result<_>> {
        let files = args.input.par_iter().zip(outputs).with_min_len(in_a_row);
        files.map(one).collect()
    };
    let results = match jobs {
        Some(jobs) => with_threads(jobs, each)?,
        None => each(),
    };
    // Of several errors the one of the first file is told.
    let results: Vec<_> = results.into_iter().collect::<anyhow::Result<_>>()?;
    let files: Vec<report::File> = results
        .iter()
        .map(|(input, _, chosen)| report::File {
            input,
            result: &chosen.result,
            kernels: &chosen.kernels,
        })
        .collect();
    let refusals = refusals(&files, &args);
    if refusals.is_empty() {
        for (_, output, chosen) in &results {
            match &chosen.cubin {
                Some(cubin) => files::write(output, cubin)?,
                None => files::write(output, &chosen.result.text)?,
            }
        }
    }
    // A reader of JSON finds warnings in it and nothing beside it.
    let json_on_stderr = matches!(args.print_regalloc_stats, Some(Format::Json))
        && files::is_standard_output(&args.output);
    if !json_on_stderr {
        for message in files.iter().flat_map(|file| messages(file, &args)) {
            message.say();
        }
    }
    tell_statistics(&args, &files)?;
    match refusals.split_last() {
        None => Ok(()),
        Some(_) if json_on_stderr => Err(Silent.into()),
        Some((last, others)) => {
            for other in others {
                output::error(other);
            }
            bail!("{last}")
        }
    }
}

/// Does `work` on as many threads of its own.
fn with_threads<T: Send>(jobs: u16, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    let threads = usize::from(jobs).min(MOST_THREADS);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.with_context(|| format!("cannot start {threads} threads"))?;
    Ok(pool.install(work))
}

/// Flags turned into what allocates.
pub struct Allocator {
    options: ModuleOptions,
    /// Where the allocator is to be chosen.
    chooser: Option<Chooser>,
    /// What is asked whether an allocator makes a kernel worse, where there is one and no cap.
    ptxas: Option<Ptxas>,
}

impl Allocator {
    /// What the flags ask for.
    pub fn new(args: &AllocArgs) -> anyhow::Result<Allocator> {
        let options = options(args)?;
        let launch = Launch {
            grid: args.grid,
            dynamic_shared: args.cubin_spills.dynamic_shared,
        };
        let measure = args.measure.as_deref().map(|manifest| MeasureArgs {
            manifest,
            program: args.gpu_runner.as_deref(),
        });
        let ptxas = match args.no_ptxas {
            true => WhichPtxas::None,
            false => args
                .ptxas
                .as_deref()
                .map_or(WhichPtxas::Any, WhichPtxas::At),
        };
        let is_best = is_best(args, &options);
        let chooser = is_best.then(|| Chooser::new(ptxas, launch, measure, args.no_cache));
        let is_capped = options.maxnreg.is_some() || options.occupancy_target.is_some();
        Ok(Allocator {
            chooser: chooser.transpose()?,
            ptxas: match is_best || is_capped {
                true => None,
                false => ptxas.find()?,
            },
            options,
        })
    }

    /// Allocates the registers of a text, and assembles it where machine code is asked for.
    pub fn allocate(&self, input: &Input, machine_code: bool) -> anyhow::Result<Chosen> {
        match &self.chooser {
            Some(chooser) => chooser.allocate(input, &self.options, machine_code),
            None if machine_code => {
                let told =
                    "machine code comes of --regalloc=best and ptxas; one allocator writes PTX";
                Err(UsageError(told.to_owned()).into())
            }
            None => Ok(Chosen {
                result: self.no_worse(input, allocated(input, &self.options)?)?,
                kernels: Vec::new(),
                cubin: None,
            }),
        }
    }

    /// `result` with those kernels as they were that ptxas makes worse machine code of.
    fn no_worse(&self, input: &Input, result: ModuleResult) -> anyhow::Result<ModuleResult> {
        let Some(ptxas) = &self.ptxas else {
            return Ok(result);
        };
        let kept = keep_no_worse(&input.text, &self.options, ptxas, result);
        kept.map_err(|error| best::explain(input, error))
    }

    /// A knob does nothing under another allocator, but for those of passes that others share.
    pub fn idle_knobs(&self, args: &AllocArgs) -> Vec<Message> {
        let strategy = self.options.options.strategy;
        if strategy == Strategy::Fatpoint {
            return Vec::new();
        }
        let is_heeded = |knob: &str| match knob.split('=').next().unwrap_or(knob) {
            "NumOptPhasesBudget" => args.promote_local,
            "HoistInvariantsPolicy" | "UseNewLoopInvariantRoutineForHoisting" => {
                strategy == Strategy::Briggs
            }
            "RegAllocSpillBuckets" => true,
            _ => false,
        };
        let idle = args.knob.iter().filter(|knob| !is_heeded(knob));
        idle.map(|knob| {
            let name = strategy.name();
            Message::Warning(format!(
                "--knob {knob} steers --regalloc=fatpoint and does nothing for {name}"
            ))
        })
        .collect()
    }
}

fn options(args: &AllocArgs) -> Result<ModuleOptions, UsageError> {
    let mut options = Options {
        knobs: knobs::parse(&args.knob)?,
        ..Options::default()
    };
    if let Some(Regalloc::One(strategy)) = args.regalloc {
        options.strategy = strategy;
    }
    args.colouring.apply(&mut options)?;
    args.phases.apply(&mut options)?;
    Ok(ModuleOptions {
        options,
        preset: args.preset.clone(),
        sm: args.sm.map(|sm| sm.number()),
        maxnreg: args.maxnreg,
        occupancy_target: args.occupancy_target,
        block: args.block,
        dynamic_shared: args.cubin_spills.dynamic_shared.unwrap_or(0),
        relocatable: args.relocatable,
        entries: args.entry.clone(),
        spill_space: match args.spill_space {
            None | Some(Space::Local) => SpillSpace::Local,
            Some(Space::Shared) => SpillSpace::Shared,
            Some(Space::Auto) => SpillSpace::Auto,
        },
        jobs: args.jobs.map(usize::from),
        promote_local: args.promote_local,
        contraction: match args.contract {
            Contract::Ptxas => Contraction::Ptxas,
            Contract::Off => Contraction::Off,
            Contract::Keep => Contraction::Keep,
        },
        margin: args.margin,
        ..ModuleOptions::default()
    })
}

/// Whether the allocator is to be chosen: nobody named one, nor anything that steers one.
fn is_best(args: &AllocArgs, options: &ModuleOptions) -> bool {
    match args.regalloc {
        Some(Regalloc::Best) => true,
        Some(Regalloc::One(_)) => false,
        None => {
            let is_steered =
                args.spill_space.is_some() || args.preset.is_some() || args.margin != 0;
            !is_steered && options.options == Options::default()
        }
    }
}

/// Where the result of each input goes.
fn outputs(args: &AllocArgs) -> Result<Vec<PathBuf>, UsageError> {
    let folder = &args.output;
    if let [input] = &args.input[..]
        && !(files::is_dash(input) && folder.is_dir())
    {
        let name = input.file_name().filter(|_| folder.is_dir());
        return Ok(vec![match name {
            Some(name) => folder.join(name),
            None => folder.clone(),
        }]);
    }
    if !folder.is_dir() {
        let count = args.input.len();
        let told = folder.display();
        return Err(UsageError(format!(
            "{count} inputs need a folder for their results: -o DIR, and {told} is none"
        )));
    }
    let mut taken = BTreeSet::new();
    let mut outputs = Vec::with_capacity(args.input.len());
    for input in &args.input {
        let name = input.file_name().unwrap_or_default();
        if files::is_dash(input) || !taken.insert(name) {
            let told = input.display();
            return Err(UsageError(format!(
                "{told}: the name of its result in {} is taken or unknown",
                folder.display()
            )));
        }
        outputs.push(folder.join(name));
    }
    Ok(outputs)
}

fn allocated(input: &Input, options: &ModuleOptions) -> anyhow::Result<ModuleResult> {
    let bar = progress_bar();
    let progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let result = allocate_module(&input.text, options, Some(&progress));
    bar.finish_and_clear();
    result.map_err(|error| explain(input, error))
}

/// An error of allocation as a terminal shows it.
pub fn explain(input: &Input, error: PtxError) -> anyhow::Error {
    match error {
        PtxError::NoSuchFunction(name) => {
            let message = format!("{} has no function `{name}` with a body", input.name);
            UsageError(message).into()
        }
        error => input.explain(error),
    }
}

/// A bar that shows only on a terminal, and only once there is something to wait for.
pub fn progress_bar() -> ProgressBar {
    if !output::is_watched() {
        return ProgressBar::hidden();
    }
    // Files are allocated side by side, and each has a line of its own.
    static BARS: LazyLock<MultiProgress> =
        LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(5)));
    let bar = BARS.add(ProgressBar::no_length());
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} functions, {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Whether what became of a function keeps the result from being written.
fn fails(function: &FunctionReport, args: &AllocArgs) -> bool {
    match function.outcome {
        Outcome::Refused(_) => !args.keep_going,
        Outcome::PassedThrough(_) | Outcome::Kept(_) => args.strict,
        Outcome::Allocated(_) | Outcome::Skipped => false,
    }
}

/// What is to be said of a file and its functions, besides what keeps it from being written.
pub fn messages(file: &report::File, args: &AllocArgs) -> Vec<Message> {
    let (input, result) = (file.input, file.result);
    let mut said = Vec::new();
    for choice in file.kernels {
        let (name, told) = (&choice.name, best::told(choice));
        said.push(Message::Note(format!("{}: `{name}`: {told}", input.name)));
        if output::is_verbose() {
            said.extend(best::table(choice).map(Message::Note));
        }
    }
    for function in &result.functions {
        let is_chosen = file.is_chosen(function);
        let (file, line, name) = (&input.name, function.line, &function.name);
        for warning in &function.warnings {
            said.push(Message::Warning(format!(
                "{file}:{line}: `{name}`: {warning}"
            )));
        }
        if fails(function, args) {
            continue;
        }
        let message = report::left_alone(input, result, function).filter(|_| !is_chosen);
        said.extend(message.map(Message::Warning));
        if let Outcome::Allocated(allocated) = &function.outcome {
            if allocated.stats.fell_back {
                said.push(Message::Warning(format!(
                    "{file}:{line}: `{name}`: no round of allocation succeeded, so every value \
                     is in memory"
                )));
            }
            if output::is_verbose() {
                let told = report::summary(allocated);
                said.push(Message::Note(format!("{file}:{line}: `{name}`: {told}")));
            }
        }
    }
    said.extend(promoted(result));
    said
}

/// Which variables became registers, and why the others did not.
fn promoted(result: &ModuleResult) -> Vec<Message> {
    let Some(promoted) = &result.promoted else {
        return Vec::new();
    };
    let kept = promoted.variables.iter().map(|v| {
        format!(
            "`{}` of `{}` is kept in registers: {} bytes, {} accesses",
            v.name, v.function, v.bytes, v.accesses
        )
    });
    let refused = promoted.refused.iter().map(|v| {
        format!(
            "`{}` of `{}` stays in memory: {}",
            v.name, v.function, v.reason
        )
    });
    kept.chain(refused).map(Message::Note).collect()
}

fn tell_statistics(args: &AllocArgs, files: &[report::File]) -> anyhow::Result<()> {
    let Some(format) = args.print_regalloc_stats else {
        return Ok(());
    };
    let text = report::render(files, format);
    // Standard output may be taken by the PTX.
    if files::is_standard_output(&args.output) {
        // Whoever closed standard error does not want to read it.
        let _ = std::io::stderr().write_all(text.as_bytes());
        return Ok(());
    }
    output::print(&text)
}

/// Why the results are not written: a text for each function that keeps them from it.
pub fn refusals(files: &[report::File], args: &AllocArgs) -> Vec<String> {
    let mut told = Vec::new();
    for report::File { input, result, .. } in files {
        for function in result.functions.iter().filter(|f| fails(f, args)) {
            let (file, line, name) = (&input.name, function.line, &function.name);
            told.push(match &function.outcome {
                Outcome::Refused(reason) => format!("{file}:{line}: `{name}`: {reason}"),
                _ => report::left_alone(input, result, function).unwrap_or_default(),
            });
        }
    }
    told
}
