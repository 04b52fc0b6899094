//! `warpalloc alloc X.cubin --maxnreg N`: spill code in machine code.

use std::path::PathBuf;

use serde_json::Value;
use warpalloc_sass::allocate::{AllocateError, AllocateOptions, Allocated, allocate_kernel};

use super::files::{self, Rewritten, Row};
use crate::UsageError;
use crate::alloc::{AllocArgs, Regalloc};

type Kernel = files::Kernel<Allocated, AllocateError>;

/// Refuses flags that mean nothing for cubins.
fn options(args: &AllocArgs) -> Result<AllocateOptions, UsageError> {
    let recolouring = [
        ("--fewest", args.fewest),
        ("--shuffle-registers", args.shuffle_registers.is_some()),
    ];
    let recolouring = recolouring.iter().find(|(_, is_given)| *is_given);
    let idle = super::idle_flag(args).or(recolouring.map(|(flag, _)| *flag));
    if let Some(flag) = idle {
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
    let files = files::rewrite(args, |cubin, bytes| {
        let allocate = |bytes: &[u8], name: &str| allocate_kernel(bytes, name, &options);
        Ok(files::one_by_one(args, cubin, bytes, allocate, |done| {
            done.bytes.as_ref()
        }))
    })?;
    let mut kernels = files.iter().flat_map(|file| &file.kernels);
    let is_refused = args.strict && kernels.any(|kernel| kernel.result.is_err());
    files::finish(outputs, &files, is_refused, || {
        tell(args, &files, is_refused)
    })
}

fn tell(args: &AllocArgs, files: &[Rewritten<Kernel>], failed: bool) -> anyhow::Result<()> {
    for Rewritten { file, kernels, .. } in files {
        for kernel in kernels {
            if let Err(reason) = &kernel.result {
                let message = format!("{file}: `{}` stays as it is: {reason}", kernel.name);
                files::complain(&message, failed);
            }
        }
    }
    let as_json = || files::as_json(files, kernel_json);
    files::show(args, || as_text(files), as_json)
}

fn as_text(files: &[Rewritten<Kernel>]) -> String {
    let heading = "registers  frame  stores  reloads  recomputed  moves  instructions   kernel";
    files::as_text(files, heading, |kernel| Row {
        name: &kernel.name,
        columns: kernel.result.as_ref().map(|done| {
            let registers = format!("{} > {}", done.registers_before, done.registers_after);
            let insts = format!("{} > {}", done.instructions_before, done.instructions_after);
            format!(
                "{registers:<9}  {:>5}  {:>6}  {:>7}  {:>10}  {:>5}  {insts:<13}",
                done.frame_bytes,
                done.inserted.stores,
                done.inserted.reloads,
                done.inserted.recomputes,
                done.inserted.moves,
            )
        }),
    })
}

fn kernel_json(kernel: &Kernel) -> Value {
    files::kernel_json(&kernel.name, &kernel.result, |done, value| {
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
        value["added"] = files::added_json(&done.added);
    })
}
