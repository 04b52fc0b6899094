//! Allocates every function of given PTX files, at several budgets and with several
//! allocators, and prints one table row for each: what was spilled, coalesced, saved, and
//! how long it took. Every result is proved; with `--traces` it is also executed. With
//! `--degrees` nothing is allocated, and the table says what splitting live ranges does to
//! the interference graphs.
//!
//! ```sh
//! cargo run --release -p warpalloc-corpus -- corpus/ptx/*.ptx --regs 15,24,32,64,255
//! cargo run --release -p warpalloc-corpus -- corpus/ptx/*.ptx --degrees
//! ```
//!
//! With `--write FILE` the table also goes to a page with its command and versions, such as
//! those of `bench/results`.

mod degrees;
mod figures;
mod page;

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use cpu_time::ThreadTime;
use figures::{Bounds, Figures, Row};
use page::Page;
use rayon::prelude::*;
use warpalloc::analysis::{Liveness, Pressure, register_floor};
use warpalloc::check::{self, trace};
use warpalloc::function::Function;
use warpalloc::internals::DegreeChange;
use warpalloc::target::{File, Target};
use warpalloc::{Options, Strategy, allocate};
use warpalloc_ptx::module::lower_module;

/// Allocate PTX functions many times over and tabulate the results.
#[derive(Parser)]
struct Args {
    /// PTX files
    files: Vec<PathBuf>,
    /// Register budgets
    #[arg(long, value_delimiter = ',', default_values_t = [15, 24, 32, 64, 255])]
    regs: Vec<usize>,
    /// Allocators
    #[arg(long, value_delimiter = ',', default_values = ["briggs", "fatpoint"])]
    strategies: Vec<String>,
    /// The machine: hardware, hardware-packed or cicc
    #[arg(long, default_value = "hardware")]
    preset: String,
    /// Its compute capability
    #[arg(long, default_value_t = 90)]
    sm: u32,
    /// Allocation options as NAME=VALUE
    #[arg(long = "option", value_name = "NAME=VALUE")]
    options: Vec<String>,
    /// Executions to compare before and after each allocation
    #[arg(long, default_value_t = 1)]
    traces: u64,
    /// Leave out functions with fewer instructions
    #[arg(long, default_value_t = 0)]
    min_insts: usize,
    /// Print one row per function as well
    #[arg(long)]
    per_function: bool,
    /// Tabulate what splitting does to the average degree of interference graphs instead
    #[arg(long)]
    degrees: bool,
    /// Write the table to this file as well
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let full = Target::preset(&args.preset, args.sm)?;
    let functions = lowered(&args, &full)?;
    let instructions: usize = functions.iter().map(|(f, _)| f.inst_count()).sum();
    let title = match args.degrees {
        true => "What splitting does to interference graphs",
        false => "Allocators over PTX files",
    };
    let mut page = Page::new(title, &args.files);
    page.line(format!(
        "{} functions, {instructions} instructions, preset {}, sm_{}\n",
        functions.len(),
        args.preset,
        args.sm
    ));
    match args.degrees {
        true => tabulate_degrees(&args, &full, &functions, &mut page)?,
        false => tabulate(&args, &full, &functions, &mut page)?,
    }
    match &args.write {
        Some(path) => page.write(path),
        None => Ok(()),
    }
}

/// Allocates everything with every allocator at every budget.
fn tabulate(
    args: &Args,
    full: &Target,
    functions: &[(Function, Bounds)],
    page: &mut Page,
) -> Result<()> {
    page.line(Row::HEADER);
    for name in &args.strategies {
        let strategy = Strategy::named(name).ok_or_else(|| anyhow!("no allocator `{name}`"))?;
        for &regs in &args.regs {
            let options = options(args, strategy)?;
            let target = full.clone().with_budget(File::R, regs);
            let rows: Vec<_> = functions
                .par_iter()
                .map(|(function, bounds)| {
                    measure(function, *bounds, &target, &options, args.traces)
                })
                .collect();
            if args.per_function {
                for ((function, bounds), figures) in functions.iter().zip(&rows) {
                    println!("{}", figures.describe(function.name(), *bounds));
                }
            }
            page.line(Row::of(name, regs, &rows));
        }
    }
    page.note(Row::LEGEND);
    Ok(())
}

/// Splits everything under every policy at every budget.
fn tabulate_degrees(
    args: &Args,
    full: &Target,
    functions: &[(Function, Bounds)],
    page: &mut Page,
) -> Result<()> {
    let reorder = options(args, Strategy::Briggs)?.schedule;
    page.line(degrees::Row::HEADER);
    for (name, policy) in degrees::policies() {
        for &regs in &args.regs {
            let target = full.clone().with_budget(File::R, regs);
            let changes: Vec<_> = functions
                .par_iter()
                .map(|(function, _)| DegreeChange::measure(function, &target, reorder, policy))
                .collect();
            if args.per_function {
                for ((function, _), change) in functions.iter().zip(&changes) {
                    if let Some(change) = change {
                        println!("{}", degrees::describe(function.name(), change));
                    }
                }
            }
            let crowded: Vec<DegreeChange> = changes.into_iter().flatten().collect();
            page.line(degrees::Row::of(name, regs, &crowded));
        }
    }
    page.note(degrees::Row::LEGEND);
    Ok(())
}

/// Every function with the registers it needs at least.
fn lowered(args: &Args, target: &Target) -> Result<Vec<(Function, Bounds)>> {
    let of_file = |path: &PathBuf| {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let functions = lower_module(&text, target);
        functions.map_err(|error| anyhow!("{}: {error}", path.display()))
    };
    let files: Vec<Vec<Function>> = args.files.par_iter().map(of_file).collect::<Result<_>>()?;
    let functions = files.into_iter().flatten();
    let large = functions.filter(|f| f.inst_count() >= args.min_insts);
    Ok(large.map(|f| with_bounds(f, target)).collect())
}

fn with_bounds(function: Function, target: &Target) -> (Function, Bounds) {
    let liveness = Liveness::compute(&function);
    let peak = Pressure::compute(&function, target, &liveness)
        .peak(File::R)
        .units;
    let bounds = Bounds {
        peak: peak.div_ceil(target.file(File::R).units_per_reg),
        floor: register_floor(&function, target, &liveness),
    };
    (function, bounds)
}

fn options(args: &Args, strategy: Strategy) -> Result<Options> {
    let mut options = Options {
        strategy,
        // Proved apart, so that the time is the allocator's alone.
        verify: false,
        ..Options::default()
    };
    for pair in &args.options {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| anyhow!("`{pair}` has no ="))?;
        options
            .set(name, value)
            .map_err(|message| anyhow!(message))?;
    }
    Ok(options)
}

fn measure(
    function: &Function,
    bounds: Bounds,
    target: &Target,
    options: &Options,
    traces: u64,
) -> Figures {
    let budget = target.budget(File::R);
    // Other work on the machine must not count.
    let clock = ThreadTime::now();
    let result = allocate(function, target, options);
    let time = clock.elapsed();
    let allocation = match result {
        Ok(allocation) => allocation,
        Err(error) => return Figures::refused(function, error.to_string()),
    };
    let proof = check::check(function, target, &allocation).map_err(|v| v.to_string());
    let executed = (0..traces).try_for_each(|seed| {
        trace::compare(
            function,
            target,
            &allocation,
            trace::Limits::default(),
            seed,
        )
        .map_err(|difference| difference.to_string())
    });
    Figures::new(
        function,
        target,
        &allocation,
        bounds,
        budget,
        time,
        proof.and(executed),
    )
}
