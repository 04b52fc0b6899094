//! The allocators of warpalloc beside regalloc2's and others, on identical functions: time,
//! peak memory, inserted code under one cost function, the optimum on small functions, and
//! instructions executed. Every result is checked by one symbolic checker. The table goes to
//! `bench/results/rivals.md`.
//!
//! ```sh
//! cargo run --release -p warpalloc-rivals
//! cargo run --release -p warpalloc-rivals -- --parts generated --insts 1000 --only briggs-ns,ion --out -
//! ```

mod allocators;
mod callgrind;
mod check;
mod code;
mod function;
mod generate;
mod import;
mod liveness;
mod measure;
mod optimum;
mod report;
mod serve;
mod text;

use allocators::Allocator;
use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use function::Func;
use generate::Shape;
use liveness::Liveness;
use measure::{Measurer, Sample};
use peakmem_alloc::PeakMemAlloc;
use report::Columns;
use std::alloc::System;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[global_allocator]
static PEAK: PeakMemAlloc<System> = PeakMemAlloc::new(System);

/// Compare register allocators on identical functions
#[derive(Parser)]
struct Args {
    /// What to measure
    #[arg(long, value_delimiter = ',', default_values_t = Part::value_variants().to_vec())]
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Allocators to measure, by name; all of them unless given
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// An allocator in a process of its own (protocol: bench/rivals/README.md)
    #[arg(long, value_name = "NAME=COMMAND")]
    external: Vec<String>,
    /// The allocator that costs are compared with
    #[arg(long, default_value = "briggs-ns")]
    base: String,
    /// Options of warpalloc other than the defaults
    #[arg(long = "option", value_name = "NAME=VALUE")]
    options: Vec<String>,
    /// Let instructions without operands be rematerialised, by those who can
    #[arg(long)]
    remat: bool,
    /// Runs of each function at least, of which the shortest counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Where the table goes; `-` is standard output
    #[arg(long, default_value = "bench/results/rivals.md")]
    out: PathBuf,
    /// Where one line per function and allocator goes, values separated by tabs
    #[arg(long, value_name = "FILE")]
    per_function: Option<PathBuf>,
    /// Shapes of generated functions
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Shape::Mixed])]
    shapes: Vec<Shape>,
    /// Sizes of generated functions
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    insts: Vec<usize>,
    /// Registers for generated functions
    #[arg(long, value_delimiter = ',', default_values_t = [16, 32, 63])]
    registers: Vec<usize>,
    /// MaxLive of generated functions in parts of the registers
    #[arg(long, value_delimiter = ',', default_values_t = [0.8, 0.95, 1.0, 1.05, 1.25, 1.5])]
    pressures: Vec<f64>,
    /// Generated functions per combination; by their size unless given
    #[arg(long)]
    seeds: Option<u64>,
    /// PTX files; those of corpus/ptx unless given
    #[arg(long)]
    ptx: Vec<PathBuf>,
    /// Registers for functions of PTX files
    #[arg(long, value_delimiter = ',', default_values_t = [16, 32])]
    corpus_registers: Vec<usize>,
    /// Leave out functions of PTX files with fewer instructions
    #[arg(long, default_value_t = 20)]
    least: usize,
    /// Small functions per combination, for the optimum
    #[arg(long, default_value_t = 15)]
    small_seeds: u64,
    /// Be an external allocator: speak the protocol with one of the allocators linked in
    #[arg(long, value_name = "ALLOCATOR")]
    serve: Option<String>,
    /// Allocate one of callgrind's set and end, as CASE:ALLOCATOR
    #[arg(long = callgrind::OPTION, hide = true)]
    counted: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Generated functions
    Generated,
    /// Functions of PTX files
    Corpus,
    /// Small functions, whose optimum is known
    Optimum,
    /// Instructions executed for a fixed set of functions, counted by valgrind
    Callgrind,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let options = args.options.iter().map(|option| {
        let (name, value) = option
            .split_once('=')
            .context("--option wants NAME=VALUE")?;
        Ok((name.to_owned(), value.to_owned()))
    });
    let options = options.collect::<Result<Vec<_>>>()?;
    if let Some(what) = &args.counted {
        callgrind::run_counted(what, &options)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &args.serve {
        serve::serve(name, &options)?;
        return Ok(ExitCode::SUCCESS);
    }
    let allocators = allocators(&args)?;
    let base = allocators.iter().position(|a| a.name == args.base);
    let columns = Columns {
        names: allocators.iter().map(|a| a.name.as_str()).collect(),
        reorders: allocators.iter().map(Allocator::reorders).collect(),
        base: base.unwrap_or(0),
    };
    // The tree may change while this runs; what is measured is what there was at the start.
    let mut text = header(&allocators, &columns)?;
    let mut measurer = Measurer::new(&allocators, &options, args.runs);
    let mut body = String::new();
    if args.parts.contains(&Part::Generated) {
        body += &generated(&args, &mut measurer, &columns)?;
    }
    if args.parts.contains(&Part::Corpus) {
        body += &corpus(&args, &mut measurer, &columns)?;
    }
    if args.parts.contains(&Part::Optimum) {
        body += &small(&args, &mut measurer, &columns)?;
    }
    if args.parts.contains(&Part::Callgrind) {
        let table = callgrind::table(&allocators, &columns, &options)?;
        body += "## Instructions executed\n\nPer instruction of a fixed set of generated functions, counted by callgrind in one allocation. An external allocator is not counted.\n\n";
        body += &table;
    }
    let failures = &measurer.failures;
    let right = measurer.checked;
    text += &match failures.len() {
        0 if right == 0 => String::new(),
        0 => format!("{right} allocations, every one checked and right.\n\n"),
        n => {
            let list = failures.join("\n- ");
            format!("{right} allocations were right, {n} **failed**:\n\n- {list}\n\n")
        }
    };
    text += &body;
    write(&args.out, text.trim_end())?;
    if let Some(path) = &args.per_function {
        write(path, measurer.lines.trim_end())?;
    }
    Ok(match failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The allocators asked for, in the order of the table.
fn allocators(args: &Args) -> Result<Vec<Allocator>> {
    let mut all = Allocator::built_in();
    for external in &args.external {
        let (name, command) = external
            .split_once('=')
            .context("--external wants NAME=COMMAND")?;
        all.push(Allocator::external(name, command)?);
    }
    for name in &args.only {
        if !all.iter().any(|a| a.name == *name) {
            let names: Vec<&str> = all.iter().map(|a| a.name.as_str()).collect();
            bail!(
                "there is no allocator `{name}`; there are {}",
                names.join(", ")
            );
        }
    }
    all.retain(|a| args.only.is_empty() || args.only.contains(&a.name));
    Ok(all)
}

/// The command, the versions, and what the figures mean.
fn header(allocators: &[Allocator], columns: &Columns) -> Result<String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command = format!(
        "cargo run --release -p warpalloc-rivals -- {}",
        words.join(" ")
    );
    let regalloc2 = locked_version("regalloc2").context("regalloc2 is not in Cargo.lock")?;
    let commit = said(Command::new("git").args(["describe", "--always", "--dirty"]));
    let rustc = said(Command::new("rustc").arg("--version"));
    let mut text = format!(
        "# The rivals, on identical functions\n\n```sh\n{}\n```\n\nwarpalloc {} ({}), regalloc2 {regalloc2}, {}, on {}.\n\n",
        command.trim_end_matches([' ', '-']),
        env!("CARGO_PKG_VERSION"),
        commit.unwrap_or("commit not known".to_owned()),
        rustc.unwrap_or("rustc not known".to_owned()),
        processor().unwrap_or("a processor not known".to_owned()),
    );
    for allocator in allocators {
        text += &format!("- `{}`: {}\n", allocator.name, allocator.remark);
    }
    if !allocators.iter().any(|a| a.name == "regalloc3") {
        text += "- regalloc3 was not given: it is not published; bench/rivals/README.md says how to add it.\n";
    }
    text += &format!(
        "\nTimes are processor time of the thread, the least of several interleaved runs. Cost is inserted code times 10^depth: a move {}, a reload {}, a store {}, a rematerialisation {}; where costs are compared it is with `{}`, function by function, one added to both. Means are geometric.\n\n",
        code::MOVE,
        code::LOAD,
        code::STORE,
        code::REMAT,
        columns
            .names
            .get(columns.base)
            .context("no allocator was asked for")?,
    );
    Ok(text)
}

/// The version of a dependency.
fn locked_version(name: &str) -> Option<&'static str> {
    let lock = include_str!("../../../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| {
        let mut lines = entry.lines();
        lines.any(|line| line == format!("name = \"{name}\""))
    })?;
    let line = entry
        .lines()
        .find_map(|line| line.strip_prefix("version = "))?;
    Some(line.trim_matches('"'))
}

/// What a command prints, if it can be run.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned())
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Generated functions of exact MaxLive.
fn generated(args: &Args, measurer: &mut Measurer, columns: &Columns) -> Result<String> {
    let mut samples = Vec::new();
    for &shape in &args.shapes {
        for &insts in &args.insts {
            let seeds = args.seeds.unwrap_or(match insts {
                0..600 => 12,
                600..3_000 => 6,
                3_000..30_000 => 2,
                _ => 1,
            });
            for &k in &args.registers {
                eprintln!("generated: {} {insts}, {k} registers", shape.name());
                for &pressure in &args.pressures {
                    for seed in 1..=seeds {
                        let max_live = (k as f64 * pressure).round() as usize;
                        let Some(f) = generate::function(shape, insts, max_live, seed) else {
                            continue;
                        };
                        let sample = sample(shape.name(), insts, k, &f);
                        samples.push(measurer.measure(&marked(f, args), sample)?);
                    }
                }
            }
        }
    }
    ensure!(
        !samples.is_empty(),
        "no function of that size has that MaxLive"
    );
    let mut text = "## Generated functions\n\nMeans over registers and pressures: ns per instruction / cost / peak MB.\n\n".to_owned();
    text += &report::summary(&samples, columns);
    if let Some(table) = report::exact_fits(&samples, columns) {
        text += "Functions with MaxLive = K that were spilled, though they need not be:\n\n";
        text += &table;
    }
    text += "By registers:\n\n";
    text += &report::detail(&samples, columns, true);
    Ok(text)
}

fn sample(shape: &str, size: usize, k: usize, f: &Func) -> Sample {
    Sample {
        shape: shape.to_owned(),
        size,
        insts: f.insts.len(),
        k,
        max_live: Liveness::of(f).max_live(f),
        optimum: None,
        furthest: None,
        outcomes: Vec::new(),
    }
}

fn marked(mut f: Func, args: &Args) -> Func {
    if args.remat {
        f.mark_constants();
    }
    f
}

/// Functions of PTX files.
fn corpus(args: &Args, measurer: &mut Measurer, columns: &Columns) -> Result<String> {
    let paths = match args.ptx.is_empty() {
        true => import::ptx_files(Path::new("corpus/ptx"))?,
        false => args.ptx.clone(),
    };
    let functions = import::corpus(&paths, args.least)?;
    let mut samples = Vec::new();
    for f in functions {
        let f = marked(f, args);
        for &k in args
            .corpus_registers
            .iter()
            .filter(|&&k| f.widest_inst() <= k)
        {
            eprintln!("corpus: {}, {k} registers", f.name);
            samples.push(measurer.measure(&f, sample("corpus", f.insts.len(), k, &f))?);
        }
    }
    let mut text = format!(
        "## PTX files\n\nFunctions of {} files with at least {} instructions, as SSA of one class.\n\n",
        paths.len(),
        args.least
    );
    text += &report::detail(&samples, columns, false);
    Ok(text)
}

/// Shape, instructions, registers and MaxLive of small functions. Control flow is searched more
/// widely, so those have fewer registers.
const SMALL: [(Shape, usize, usize, usize); 10] = [
    (Shape::Straight, 60, 4, 5),
    (Shape::Straight, 60, 4, 6),
    (Shape::Straight, 60, 6, 8),
    (Shape::Straight, 60, 6, 9),
    (Shape::Straight, 60, 8, 10),
    (Shape::Straight, 60, 8, 12),
    (Shape::Diamonds, 60, 4, 5),
    (Shape::Diamonds, 60, 4, 6),
    (Shape::Mixed, 60, 4, 5),
    (Shape::Mixed, 60, 4, 6),
];

/// Small functions against the optimum.
fn small(args: &Args, measurer: &mut Measurer, columns: &Columns) -> Result<String> {
    let mut samples = Vec::new();
    let mut unknown = 0;
    for (shape, insts, k, max_live) in SMALL {
        let name = shape.name();
        eprintln!("optimum: {name}, {k} registers, MaxLive {max_live}");
        for seed in 1..=args.small_seeds {
            let f = generate::function(shape, insts, max_live, seed);
            let Some(f) = f.filter(|f| shape == Shape::Straight || f.blocks.len() > 1) else {
                continue;
            };
            let mut sample = sample(name, insts, k, &f);
            sample.optimum = optimum::optimum(&f, k);
            sample.furthest = optimum::furthest_next_use(&f, k);
            unknown += usize::from(sample.optimum.is_none());
            samples.push(measurer.measure(&f, sample)?);
        }
    }
    let mut text = "## Small functions and their optimum\n\nCost over the least that reloads and stores can cost in the given order, and in brackets how many functions reach it. For one block that is the optimum; with control flow it is a lower bound, since moves count as free. Only allocators that keep the order are shown.\n\n".to_owned();
    text += &report::optima(&samples, columns);
    if unknown > 0 {
        text += &format!("The search was given up for {unknown} functions.\n\n");
    }
    Ok(text)
}

/// Writes the whole table or nothing.
fn write(path: &Path, text: &str) -> Result<()> {
    if path == Path::new("-") {
        println!("{text}");
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let draft = path.with_extension("draft");
    let shown = || path.display().to_string();
    std::fs::write(&draft, format!("{text}\n")).with_context(shown)?;
    std::fs::rename(&draft, path).with_context(shown)
}
