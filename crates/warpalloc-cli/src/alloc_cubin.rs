//! `warpalloc alloc` for cubins: other registers for the values of each kernel, so that fewer do.

use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};
use warpalloc::Strategy;
use warpalloc::target::occupancy::{Launch, Occupancy, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc_sass::object::{Cubin, Format, demangle};
use warpalloc_sass::recolour::{
    Goal, Outcome, RecolourError, RecolourOptions, Recoloured, recolour_cubin,
};

use crate::alloc::{AllocArgs, Regalloc};
use crate::occupancy::answer_json;
use crate::report::{self, SCHEMA};
use crate::{Silent, UsageError, files, output};

/// Whether the inputs are cubins; a mixture of cubins and other files is refused.
pub fn are_cubins(inputs: &[PathBuf]) -> anyhow::Result<bool> {
    let mut cubins = Vec::new();
    // Standard input can be read but once, and is PTX.
    for path in inputs.iter().filter(|path| !files::is_dash(path)) {
        if is_cubin(path) {
            cubins.push(path);
        }
    }
    if let Some(cubin) = cubins.first()
        && cubins.len() < inputs.len()
    {
        let told = cubin.display();
        return Err(UsageError(format!("{told} is a cubin, and other inputs are none")).into());
    }
    Ok(!cubins.is_empty())
}

/// A file that can't be read is none; reading it will say why.
fn is_cubin(path: &Path) -> bool {
    let mut start = [0; 20];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && Format::detect(&start) == Some(Format::Cubin)
}

/// Refuses flags that mean something for cubins only.
pub fn refuse_flags(args: &AllocArgs) -> Result<(), UsageError> {
    match args.fewest || args.shuffle_registers.is_some() {
        true => Err(UsageError("--fewest is for cubins".to_owned())),
        false => Ok(()),
    }
}

/// Refuses flags that mean nothing for cubins.
fn options(args: &AllocArgs) -> Result<RecolourOptions, UsageError> {
    let idle = [
        ("--occupancy-target", args.occupancy_target.is_some()),
        ("--preset", args.preset.is_some()),
        ("--sm", args.sm.is_some()),
        ("--promote-local", args.promote_local),
    ];
    if let Some((flag, _)) = idle.iter().find(|(_, is_given)| *is_given) {
        return Err(UsageError(format!(
            "{flag} is for PTX; --maxnreg is how many registers a cubin may have"
        )));
    }
    let mut options = RecolourOptions::default();
    match args.regalloc {
        Some(Regalloc::One(Strategy::Naive)) => {
            let message = "--regalloc=naive keeps values in memory, which recolouring can't";
            return Err(UsageError(message.to_owned()));
        }
        Some(Regalloc::One(strategy)) => options.strategy = strategy,
        // One way is tried; the kernel as it was is what it is compared with.
        Some(Regalloc::Best) | None => {}
    }
    if args.fewest {
        options.goal = Goal::Fewest;
    }
    options.random = args.shuffle_registers;
    Ok(options)
}

/// What became of the kernels of one file.
struct Report {
    file: String,
    kernels: Vec<Kernel>,
}

struct Kernel {
    name: String,
    block_threads: Option<u32>,
    result: Result<Recoloured, RecolourError>,
    /// Before and after, where the block size is known.
    occupancy: Option<(Occupancy, Occupancy)>,
}

/// Recolours the kernels of cubins.
pub fn run(args: &AllocArgs, outputs: &[PathBuf]) -> anyhow::Result<()> {
    let options = options(args)?;
    let mut reports = Vec::new();
    let mut results = Vec::new();
    for path in &args.input {
        let told = path.display().to_string();
        let bytes = fs::read(path).with_context(|| format!("cannot read {told}"))?;
        let cubin = Cubin::read(&bytes).with_context(|| told.clone())?;
        let known = |name: &String| cubin.functions.iter().any(|f| f.name == name);
        if let Some(unknown) = args.entry.iter().find(|name| !known(name)) {
            return Err(UsageError(format!("{told} has no function `{unknown}`")).into());
        }
        let is_wanted = |name: &str| args.entry.is_empty() || args.entry.iter().any(|e| e == name);
        let (written, outcomes) =
            recolour_cubin(&bytes, &options, |function| is_wanted(function.name))
                .with_context(|| told.clone())?;
        let kernels = outcomes.into_iter().map(|o| kernel(&cubin, o, args.block));
        reports.push(Report {
            file: told,
            kernels: kernels.collect(),
        });
        results.push(written);
    }
    let kernels = || reports.iter().flat_map(|report| &report.kernels);
    let is_refused = args.strict && kernels().any(|kernel| kernel.result.is_err());
    if !is_refused {
        for (output, written) in outputs.iter().zip(&results) {
            files::write(output, written)?;
        }
    }
    tell(args, &reports)?;
    match is_refused {
        true => Err(Silent.into()),
        false => Ok(()),
    }
}

fn kernel(cubin: &Cubin, outcome: Outcome, block: Option<u32>) -> Kernel {
    let function = cubin.functions.iter().find(|f| f.name == outcome.name);
    let block_threads = block.or_else(|| function?.block_threads());
    let of = |registers: u32| {
        let launch = Launch {
            registers_per_thread: registers,
            block_threads: block_threads?,
            shared_bytes: u32::try_from(function?.shared_bytes).ok()?,
        };
        occupancy(Sm::from_number(cubin.arch.sm)?, &launch).ok()
    };
    let done = outcome.result.as_ref().ok();
    let occupancy =
        done.and_then(|done| Some((of(done.registers_before)?, of(done.registers_after)?)));
    Kernel {
        name: outcome.name,
        block_threads,
        result: outcome.result,
        occupancy,
    }
}

/// Says what became of each kernel, and why some stay as they were.
fn tell(args: &AllocArgs, reports: &[Report]) -> anyhow::Result<()> {
    let text = match args.print_regalloc_stats {
        Some(report::Format::Json) => format!("{:#}\n", as_json(reports)),
        Some(report::Format::Text) => as_text(reports),
        None => {
            for report in reports {
                for kernel in &report.kernels {
                    if let Err(error) = &kernel.result {
                        let (file, name) = (&report.file, &kernel.name);
                        output::warning(&format!("{file}: `{name}` stays as it is: {error}"));
                    }
                }
            }
            return Ok(());
        }
    };
    match files::is_standard_output(&args.output) {
        true => {
            eprint!("{text}");
            Ok(())
        }
        false => output::print(&text),
    }
}

fn as_text(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{}", report.file);
        let _ = writeln!(out, "  registers  fewest  warps     block  kernel");
        for kernel in &report.kernels {
            let name = demangle(&kernel.name);
            let name = name.as_ref().unwrap_or(&kernel.name);
            let known = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
            let block = known(kernel.block_threads.map(|threads| threads.to_string()));
            let _ = match &kernel.result {
                Ok(done) => {
                    let registers = change(done.registers_before, done.registers_after);
                    let warps = kernel.occupancy.as_ref();
                    let warps = known(warps.map(|(a, b)| change(a.warps, b.warps)));
                    let fewest = done.fewest;
                    writeln!(
                        out,
                        "  {registers:<9}  {fewest:>6}  {warps:<8}  {block:>5}  {name}"
                    )
                }
                Err(error) => writeln!(out, "  as it was: {name}: {error}"),
            };
        }
    }
    out
}

fn change(before: u32, after: u32) -> String {
    match before == after {
        true => before.to_string(),
        false => format!("{before} > {after}"),
    }
}

fn as_json(reports: &[Report]) -> Value {
    let kernel = |kernel: &Kernel| {
        let mut value = json!({
            "name": kernel.name,
            "demangled": demangle(&kernel.name),
            "block_threads": kernel.block_threads,
        });
        match &kernel.result {
            Ok(done) => {
                value["registers_before"] = done.registers_before.into();
                value["registers_after"] = done.registers_after.into();
                value["fewest"] = done.fewest.into();
                value["floor"] = done.floor.into();
                value["values"] = done.values.into();
                value["moved"] = done.moved.into();
                value["kept_banks"] = done.kept_banks.into();
                value["added"] = json!({
                    "waits": done.added.waits,
                    "scoreboards": done.added.scoreboards,
                    "stall_cycles": done.added.cycles,
                    "reuses_dropped": done.added.reuses_dropped,
                });
                if let Some((before, after)) = &kernel.occupancy {
                    value["occupancy_before"] = answer_json(before);
                    value["occupancy_after"] = answer_json(after);
                }
            }
            Err(error) => value["refused"] = error.to_string().into(),
        }
        value
    };
    let files: Vec<Value> = reports
        .iter()
        .map(|report| {
            let kernels: Vec<Value> = report.kernels.iter().map(kernel).collect();
            json!({ "file": report.file, "kernels": kernels })
        })
        .collect();
    json!({ "schema": SCHEMA, "files": files })
}
