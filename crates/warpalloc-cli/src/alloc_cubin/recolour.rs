//! `warpalloc alloc X.cubin`: other registers for the values of each kernel, so that fewer do.

use std::path::PathBuf;

use serde_json::Value;
use warpalloc::Strategy;
use warpalloc::target::occupancy::{Launch, Occupancy, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc_sass::object::{Cubin, Function};
use warpalloc_sass::recolour::{
    Goal, Outcome, RecolourError, RecolourOptions, Recoloured, recolour_cubin,
};

use super::files::{self, Rewritten, Row};
use crate::UsageError;
use crate::alloc::{AllocArgs, Regalloc};
use crate::occupancy::answer_json;

/// Refuses flags that mean nothing for cubins.
fn options(args: &AllocArgs) -> Result<RecolourOptions, UsageError> {
    if let Some(flag) = super::idle_flag(args) {
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
    let files = files::rewrite(args, |cubin, bytes| {
        let wanted = |function: &Function| files::is_wanted(args, function.name);
        let (written, outcomes) = recolour_cubin(bytes, &options, wanted)?;
        let kernels = outcomes.into_iter().map(|o| kernel(cubin, o, args.block));
        Ok((written, kernels.collect()))
    })?;
    let mut kernels = files.iter().flat_map(|file| &file.kernels);
    let is_refused = args.strict && kernels.any(|kernel| kernel.result.is_err());
    files::finish(outputs, &files, is_refused, || tell(args, &files))
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
fn tell(args: &AllocArgs, files: &[Rewritten<Kernel>]) -> anyhow::Result<()> {
    let is_told = args.print_regalloc_stats.is_some();
    for Rewritten { file, kernels, .. } in files.iter().filter(|_| !is_told) {
        for kernel in kernels {
            if let Err(error) = &kernel.result {
                let message = format!("{file}: `{}` stays as it is: {error}", kernel.name);
                files::complain(&message, false);
            }
        }
    }
    let as_json = || files::as_json(files, kernel_json);
    files::show(args, || as_text(files), as_json)
}

fn as_text(files: &[Rewritten<Kernel>]) -> String {
    let heading = "registers  fewest  warps     block  kernel";
    files::as_text(files, heading, |kernel| Row {
        name: &kernel.name,
        columns: kernel.result.as_ref().map(|done| {
            let known = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
            let block = known(kernel.block_threads.map(|threads| threads.to_string()));
            let registers = change(done.registers_before, done.registers_after);
            let warps = kernel.occupancy.as_ref();
            let warps = known(warps.map(|(a, b)| change(a.warps, b.warps)));
            let fewest = done.fewest;
            format!("{registers:<9}  {fewest:>6}  {warps:<8}  {block:>5}")
        }),
    })
}

fn change(before: u32, after: u32) -> String {
    match before == after {
        true => before.to_string(),
        false => format!("{before} > {after}"),
    }
}

fn kernel_json(kernel: &Kernel) -> Value {
    let mut value = files::kernel_json(&kernel.name, &kernel.result, |done, value| {
        value["registers_before"] = done.registers_before.into();
        value["registers_after"] = done.registers_after.into();
        value["fewest"] = done.fewest.into();
        value["floor"] = done.floor.into();
        value["values"] = done.values.into();
        value["moved"] = done.moved.into();
        value["kept_banks"] = done.kept_banks.into();
        value["added"] = files::added_json(&done.added);
        if let Some((before, after)) = &kernel.occupancy {
            value["occupancy_before"] = answer_json(before);
            value["occupancy_after"] = answer_json(after);
        }
    });
    value["block_threads"] = kernel.block_threads.into();
    value
}
