//! `warpalloc alloc`: PTX in, allocated PTX out.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use warpalloc::{Options, Strategy};
use warpalloc_ptx::ParseError;
use warpalloc_ptx::module::{
    Allocated, FunctionReport, ModuleOptions, ModuleResult, Outcome, SpillSpace, allocate_module,
};

use crate::UsageError;
use crate::files::{self, Input};
use crate::flags::{ColouringFlags, PhaseFlags};
use crate::knobs;

/// What to allocate and how.
#[derive(Args, Debug)]
pub struct AllocArgs {
    /// The PTX file; `-` for standard input
    input: PathBuf,
    /// Where the result goes; `-` for standard output
    #[arg(short, long, default_value = "-")]
    output: PathBuf,
    /// The most registers per thread, also written into each entry
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=255))]
    maxnreg: Option<u32>,
    /// The occupancy in percent that entries shall reach (75 where no value is given): lowers
    /// the registers of each entry with `.maxntid` or `.reqntid`, never above --maxnreg
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "75",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    occupancy_target: Option<u32>,
    /// The allocator: briggs, fatpoint or naive [default: briggs]
    #[arg(long, value_name = "NAME", value_parser = strategy)]
    regalloc: Option<Strategy>,
    /// Where spilled values go
    #[arg(long, value_enum, default_value_t = Space::Local)]
    spill_space: Space,
    /// Allocate this function only; may be repeated
    #[arg(long, value_name = "NAME")]
    entry: Vec<String>,
    /// The machine to allocate for: hardware, hardware-packed or cicc
    #[arg(long, value_name = "NAME", value_parser = preset)]
    preset: Option<String>,
    /// The compute capability, where it is not what the file says: 90, sm_90
    #[arg(long, value_name = "SM")]
    sm: Option<warpalloc::target::sm::Sm>,
    /// Print what happened to each function, as text or as JSON
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    print_regalloc_stats: Option<Format>,
    /// Turn a knob of the fat-point allocator (see `warpalloc knobs`); may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    knob: Vec<String>,
    /// Keep `.local` variables in registers where they need no address
    #[arg(long)]
    promote_local: bool,
    /// How many threads work; all cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    #[command(flatten)]
    phases: PhaseFlags,
    #[command(flatten)]
    colouring: ColouringFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Space {
    /// Local memory
    Local,
    /// Shared memory; an error where a kernel cannot have it
    Shared,
    /// Shared memory where that costs no occupancy, else local memory
    Auto,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// An array of objects
    Json,
}

/// The allocator called `name`.
pub fn strategy(name: &str) -> Result<Strategy, String> {
    let names: Vec<_> = Strategy::ALL.iter().map(|s| s.name()).collect();
    Strategy::named(name).ok_or_else(|| format!("the allocators are {}", names.join(", ")))
}

fn preset(name: &str) -> Result<String, String> {
    let known = warpalloc::target::PRESETS;
    match known.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("the presets are {}", known.join(", "))),
    }
}

/// Allocates the registers of a PTX file.
pub fn run(args: AllocArgs) -> anyhow::Result<()> {
    let options = options(&args)?;
    let input = Input::read(&args.input)?;
    let bar = progress_bar();
    let report = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let result = allocate_module(&input.text, &options, Some(&report));
    bar.finish_and_clear();
    let result = match result {
        Ok(result) => result,
        Err(warpalloc_ptx::module::PtxError::NoSuchFunction(name)) => {
            let message = format!("{} has no function `{name}` with a body", input.name);
            return Err(UsageError(message).into());
        }
        Err(error) => return Err(input.explain(error)),
    };
    warn(&input, &result);
    tell_promoted(&result);
    refuse(&input, &result)?;
    files::write(&args.output, &result.text)?;
    if let Some(format) = args.print_regalloc_stats {
        let text = match format {
            Format::Text => as_text(&result),
            Format::Json => format!("{:#}\n", as_json(&result)),
        };
        // Standard output may be taken by the PTX.
        if files::is_dash(&args.output) {
            std::io::stderr().write_all(text.as_bytes())?;
        } else {
            std::io::stdout().write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

fn options(args: &AllocArgs) -> Result<ModuleOptions, UsageError> {
    let mut options = Options {
        knobs: knobs::parse(&args.knob)?,
        ..Options::default()
    };
    if let Some(strategy) = args.regalloc {
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
        entries: args.entry.clone(),
        spill_space: match args.spill_space {
            Space::Local => SpillSpace::Local,
            Space::Shared => SpillSpace::Shared,
            Space::Auto => SpillSpace::Auto,
        },
        jobs: args.jobs.map(usize::from),
        promote_local: args.promote_local,
        ..ModuleOptions::default()
    })
}

/// A bar that shows only on a terminal, and only once there is something to wait for.
fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} functions, {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn warn(input: &Input, result: &ModuleResult) {
    let text = match &result.promoted {
        Some(promoted) => &promoted.text,
        None => &input.text,
    };
    for function in &result.functions {
        if let Some(shortfall) = &function.shortfall {
            let (file, line, name) = (&input.name, function.line, &function.name);
            eprintln!("warning: {file}:{line}: `{name}`: {shortfall}");
        }
        if let Outcome::Passed(passed) = &function.outcome {
            let message = format!(
                "`{}` is passed through unchanged: {}",
                function.name, passed.reason
            );
            let shown = ParseError::new(passed.span, message).render(&input.name, text);
            eprint!("{}", shown.replacen("error", "warning", 1));
        }
    }
}

/// Says which variables became registers, and why the others did not.
fn tell_promoted(result: &ModuleResult) {
    let Some(promoted) = &result.promoted else {
        return;
    };
    for v in &promoted.variables {
        eprintln!(
            "note: `{}` of `{}` is kept in registers: {} bytes, {} accesses",
            v.name, v.function, v.bytes, v.accesses
        );
    }
    for v in &promoted.refused {
        eprintln!(
            "note: `{}` of `{}` stays in memory: {}",
            v.name, v.function, v.reason
        );
    }
}

/// Fails if some function has no allocation, naming each.
fn refuse(input: &Input, result: &ModuleResult) -> anyhow::Result<()> {
    let mut refused = result.functions.iter().filter_map(|f| match &f.outcome {
        Outcome::Refused(reason) => {
            Some(format!("{}:{}: `{}`: {reason}", input.name, f.line, f.name))
        }
        _ => None,
    });
    let Some(first) = refused.next() else {
        return Ok(());
    };
    for other in refused {
        eprintln!("error: {other}");
    }
    bail!("{first}")
}

fn as_text(result: &ModuleResult) -> String {
    let width = result
        .functions
        .iter()
        .map(|f| f.name.len())
        .max()
        .unwrap_or(0)
        .max(8);
    let mut out = format!(
        "{:<width$} {:>7} {:>7} {:>5} {:>7} {:>6} {:>7} {:>6} {:>6} {:>6}\n",
        "function",
        "instr.",
        "vregs",
        "regs",
        "spilled",
        "stores",
        "reloads",
        "moves",
        "remat",
        "frame"
    );
    for function in &result.functions {
        let (name, instructions, vregs) = (&function.name, function.instructions, function.vregs);
        let line = match &function.outcome {
            Outcome::Allocated(a) => {
                let (s, e) = (&a.stats, &a.stats.edits);
                let frame = a.frame.local + a.frame.shared;
                format!(
                    "{name:<width$} {instructions:>7} {vregs:>7} {:>5} {:>7} {:>6} {:>7} {:>6} {:>6} {frame:>6}",
                    a.registers, s.spilled, e.stores, e.reloads, e.moves, e.recomputes
                )
            }
            Outcome::Passed(passed) => format!("{name:<width$} passed through: {}", passed.reason),
            Outcome::Refused(reason) => format!("{name:<width$} refused: {reason}"),
            Outcome::Skipped => format!("{name:<width$} not asked for"),
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn as_json(result: &ModuleResult) -> Value {
    result.functions.iter().map(function_json).collect()
}

fn function_json(function: &FunctionReport) -> Value {
    let mut value = json!({
        "name": function.name,
        "entry": function.is_entry,
        "line": function.line,
        "instructions": function.instructions,
        "vregs": function.vregs,
    });
    let (outcome, more) = match &function.outcome {
        Outcome::Allocated(allocated) => ("allocated", allocated_json(allocated)),
        Outcome::Passed(passed) => ("passed", json!({ "reason": passed.reason })),
        Outcome::Refused(reason) => ("refused", json!({ "reason": reason })),
        Outcome::Skipped => ("skipped", json!({})),
    };
    value["outcome"] = outcome.into();
    if let Some(shortfall) = &function.shortfall {
        value["occupancy_shortfall"] = shortfall.as_str().into();
    }
    if let Value::Object(fields) = more {
        for (key, field) in fields {
            value[key] = field;
        }
    }
    value
}

fn allocated_json(allocated: &Allocated) -> Value {
    let stats = &allocated.stats;
    let phases: serde_json::Map<String, Value> = stats
        .phases
        .iter()
        .map(|(name, time)| ((*name).to_owned(), time.as_secs_f64().into()))
        .collect();
    json!({
        "budget": allocated.budget,
        "registers": allocated.registers,
        "registers_named": allocated.named,
        "predicates": allocated.predicates,
        "frame_local": allocated.frame.local,
        "frame_shared": allocated.frame.shared,
        "values": stats.values,
        "spilled": stats.spilled,
        "spill_rate": stats.spill_rate(),
        "rematerialised": stats.rematerialised,
        "hoisted": stats.hoisted,
        "copies": stats.copies,
        "coalesced": stats.coalesced,
        "coalescing_rate": stats.coalescing_rate(),
        "iterations": stats.iterations,
        "moves": stats.edits.moves,
        "stores": stats.edits.stores,
        "reloads": stats.edits.reloads,
        "recomputes": stats.edits.recomputes,
        "shared_slot_bytes": stats.shared_slot_bytes,
        "graph": {
            "nodes": stats.graph.nodes,
            "edges": stats.graph.edges,
            "density": stats.graph.density(),
            "max_degree": stats.graph.max_degree,
            "average_degree": stats.graph.average_degree(),
        },
        "seconds": phases,
    })
}
