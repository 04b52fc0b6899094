//! `warpalloc alloc X.cubin --maxnreg N`: spill code in machine code.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};
use warpalloc_sass::allocate::{AllocateError, AllocateOptions, Allocated, allocate_kernel};
use warpalloc_sass::object::{Cubin, demangle};

use crate::alloc::{AllocArgs, Regalloc};
use crate::report::{self, SCHEMA};
use crate::{Silent, UsageError, files, output};

/// What became of one kernel.
struct Kernel {
    name: String,
    result: Result<Allocated, AllocateError>,
}

/// Refuses flags that mean nothing for cubins.
fn options(args: &AllocArgs) -> Result<AllocateOptions, UsageError> {
    let idle = [
        ("--occupancy-target", args.occupancy_target.is_some()),
        ("--preset", args.preset.is_some()),
        ("--sm", args.sm.is_some()),
        ("--promote-local", args.promote_local),
        ("--fewest", args.fewest),
        ("--shuffle-registers", args.shuffle_registers.is_some()),
    ];
    if let Some((flag, _)) = idle.iter().find(|(_, is_given)| *is_given) {
        let message = format!("{flag} does not go with --maxnreg and a cubin");
        return Err(UsageError(message));
    }
    let mut options = AllocateOptions::new(args.maxnreg.unwrap_or(255));
    // The kernel as ptxas makes it under a cap is not at hand, so that there is nothing to choose.
    if let Some(Regalloc::One(strategy)) = args.regalloc {
        options.strategy = strategy;
    }
    options.space = args.cubin_spills.space();
    options.launch.block = args.block;
    options.launch.dynamic_shared = args.cubin_spills.dynamic_shared;
    Ok(options)
}

/// Allocates the kernels of cubins for so many registers.
pub fn run(args: &AllocArgs, outputs: &[PathBuf]) -> anyhow::Result<()> {
    let options = options(args)?;
    let mut reports = Vec::new();
    let mut results = Vec::new();
    for path in &args.input {
        let told = path.display().to_string();
        let bytes = fs::read(path).with_context(|| format!("cannot read {told}"))?;
        let (written, kernels) = allocate(&bytes, &told, args, &options)?;
        reports.push((told, kernels));
        results.push(written);
    }
    let mut kernels = reports.iter().flat_map(|(_, kernels)| kernels);
    let is_refused = args.strict && kernels.any(|kernel| kernel.result.is_err());
    if !is_refused {
        for (output, written) in outputs.iter().zip(&results) {
            files::write(output, written)?;
        }
    }
    tell(args, &reports, is_refused)?;
    match is_refused {
        true => Err(Silent.into()),
        false => Ok(()),
    }
}

/// The cubin with all kernels allocated that can be, one after the other.
fn allocate(
    bytes: &[u8],
    told: &str,
    args: &AllocArgs,
    options: &AllocateOptions,
) -> anyhow::Result<(Vec<u8>, Vec<Kernel>)> {
    let cubin = Cubin::read(bytes).with_context(|| told.to_owned())?;
    let known = |name: &String| cubin.functions.iter().any(|f| f.name == name);
    if let Some(unknown) = args.entry.iter().find(|name| !known(name)) {
        return Err(UsageError(format!("{told} has no function `{unknown}`")).into());
    }
    let is_wanted = |name: &str| args.entry.is_empty() || args.entry.iter().any(|e| e == name);
    let mut written = bytes.to_vec();
    let mut kernels = Vec::new();
    for function in cubin
        .functions
        .iter()
        .filter(|f| f.is_entry && is_wanted(f.name))
    {
        let result = allocate_kernel(&written, function.name, options);
        if let Ok(Allocated {
            bytes: Some(bytes), ..
        }) = &result
        {
            written.clone_from(bytes);
        }
        kernels.push(Kernel {
            name: function.name.to_owned(),
            result,
        });
    }
    Ok((written, kernels))
}

fn tell(args: &AllocArgs, reports: &[(String, Vec<Kernel>)], failed: bool) -> anyhow::Result<()> {
    for (file, kernels) in reports {
        for kernel in kernels {
            let Err(reason) = &kernel.result else {
                continue;
            };
            let message = format!("{file}: `{}` stays as it is: {reason}", kernel.name);
            match failed {
                true => output::error(&message),
                false => output::warning(&message),
            }
        }
    }
    let text = match args.print_regalloc_stats {
        Some(report::Format::Json) => format!("{:#}\n", as_json(reports)),
        Some(report::Format::Text) => as_text(reports),
        None => return Ok(()),
    };
    match files::is_standard_output(&args.output) {
        true => {
            eprint!("{text}");
            Ok(())
        }
        false => output::print(&text),
    }
}

fn as_text(reports: &[(String, Vec<Kernel>)]) -> String {
    let mut out = String::new();
    for (file, kernels) in reports {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{file}");
        let _ = writeln!(
            out,
            "  registers  frame  stores  reloads  recomputed  moves  instructions   kernel"
        );
        for kernel in kernels {
            let name = demangle(&kernel.name);
            let name = name.as_ref().unwrap_or(&kernel.name);
            let _ = match &kernel.result {
                Ok(done) => {
                    let change = |a: usize, b: usize| format!("{a} > {b}");
                    let registers = change(
                        done.registers_before as usize,
                        done.registers_after as usize,
                    );
                    let insts = change(done.instructions_before, done.instructions_after);
                    writeln!(
                        out,
                        "  {registers:<9}  {:>5}  {:>6}  {:>7}  {:>10}  {:>5}  {insts:<13}  {name}",
                        done.frame_bytes,
                        done.inserted.stores,
                        done.inserted.reloads,
                        done.inserted.recomputes,
                        done.inserted.moves,
                    )
                }
                Err(reason) => writeln!(out, "  as it was: {name}: {reason}"),
            };
        }
    }
    out
}

fn as_json(reports: &[(String, Vec<Kernel>)]) -> Value {
    let kernel = |kernel: &Kernel| {
        let mut value = json!({
            "name": kernel.name,
            "demangled": demangle(&kernel.name),
        });
        match &kernel.result {
            Ok(done) => {
                value["registers_before"] = done.registers_before.into();
                value["registers_after"] = done.registers_after.into();
                value["frame_bytes"] = done.frame_bytes.into();
                value["shared_bytes"] = done.shared_bytes.into();
                value["stores"] = done.inserted.stores.into();
                value["reloads"] = done.inserted.reloads.into();
                value["recomputed"] = done.inserted.recomputes.into();
                value["moves"] = done.inserted.moves.into();
                value["instructions_before"] = done.instructions_before.into();
                value["instructions_after"] = done.instructions_after.into();
                value["added"] = json!({
                    "waits": done.added.waits,
                    "scoreboards": done.added.scoreboards,
                    "stall_cycles": done.added.cycles,
                    "reuses_dropped": done.added.reuses_dropped,
                });
            }
            Err(reason) => value["refused"] = reason.to_string().into(),
        }
        value
    };
    let files: Vec<Value> = reports
        .iter()
        .map(|(file, kernels)| {
            let kernels: Vec<Value> = kernels.iter().map(kernel).collect();
            json!({ "file": file, "kernels": kernels })
        })
        .collect();
    json!({ "schema": SCHEMA, "files": files })
}
