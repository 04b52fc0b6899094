//! `warpalloc alloc X.cubin --spills shared`: ptxas's spills from local to shared memory, in place.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::Value;
use warpalloc::allocation::Space;
use warpalloc_sass::spills::{Conversion, Options, Refusal, spills_to_shared};

use super::files::{self, Rewritten, Row};
use crate::UsageError;
use crate::alloc::AllocArgs;

/// Flags for the spills of a cubin.
#[derive(Args, Debug)]
#[command(next_help_heading = "Spills of a cubin")]
pub struct SpillFlags {
    /// Moves the spills of ptxas in a cubin to this memory, and changes nothing else; with
    /// --maxnreg, where values go that the registers of a cubin do not hold
    #[arg(long, value_name = "MEMORY", value_enum)]
    spills: Option<Memory>,
    /// Bytes of dynamic shared memory that every launch has: needed to move the spills of kernels
    /// that use shared memory themselves
    #[arg(long, value_name = "BYTES")]
    pub dynamic_shared: Option<u32>,
    /// Moves all spills, also where fewer blocks then fit a multiprocessor
    #[arg(long, requires = "spills")]
    force: bool,
    /// Moves the spills accessed most where moving all would cost blocks
    #[arg(long, requires = "spills", conflicts_with = "force")]
    partial: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Memory {
    /// Local memory, with --maxnreg only
    Local,
    /// Shared memory
    Shared,
}

impl SpillFlags {
    /// Whether spills are to be moved.
    pub fn is_asked_for(&self) -> bool {
        self.spills.is_some()
    }

    /// Where spilled values go.
    pub fn space(&self) -> Space {
        match self.spills {
            Some(Memory::Shared) => Space::Shared,
            Some(Memory::Local) | None => Space::Local,
        }
    }
}

type Kernel = files::Kernel<Conversion, Refusal>;

/// Why something stays in local memory that should not.
fn refusal(kernel: &Kernel) -> Option<&Refusal> {
    let refusal = kernel.result.as_ref().err();
    refusal.filter(|refusal| !matches!(refusal, Refusal::NoSpills))
}

/// Moves the spills of cubins.
pub fn run(args: &AllocArgs, outputs: &[PathBuf]) -> anyhow::Result<()> {
    if args.cubin_spills.space() == Space::Local {
        let message = "--spills local needs --maxnreg: the spills of ptxas are in local memory";
        return Err(UsageError(message.to_owned()).into());
    }
    let mut options = Options::default();
    options.block = args.block;
    options.dynamic_shared = args.cubin_spills.dynamic_shared;
    options.force = args.cubin_spills.force;
    options.partial = args.cubin_spills.partial;
    let files = files::rewrite(args, |cubin, bytes| {
        let convert = |bytes: &[u8], name: &str| spills_to_shared(bytes, name, &options);
        Ok(files::one_by_one(args, cubin, bytes, convert, |done| {
            Some(&done.bytes)
        }))
    })?;
    let mut kernels = files.iter().flat_map(|file| &file.kernels);
    let is_refused = args.strict && kernels.any(|kernel| refusal(kernel).is_some());
    files::finish(outputs, &files, is_refused, || {
        tell(args, &files, is_refused)
    })
}

fn tell(args: &AllocArgs, files: &[Rewritten<Kernel>], failed: bool) -> anyhow::Result<()> {
    for Rewritten { file, kernels, .. } in files {
        for kernel in kernels {
            if let Some(reason) = refusal(kernel) {
                let message = format!("{file}: `{}` keeps its spills: {reason}", kernel.name);
                files::complain(&message, failed);
            }
        }
    }
    let as_json = || files::as_json(files, kernel_json);
    files::show(args, || as_text(files), as_json)
}

fn as_text(files: &[Rewritten<Kernel>]) -> String {
    let heading = "moved   kept  shared bytes     blocks    kernel";
    files::as_text(files, heading, |kernel| Row {
        name: &kernel.name,
        columns: kernel.result.as_ref().map(|done| {
            let shared = format!("{} > {}", done.shared_before, done.shared_after);
            let blocks = format!("{} > {}", done.blocks_before, done.blocks_after);
            let (moved, kept) = (done.moved, done.kept);
            format!("{moved:>5}  {kept:>5}  {shared:<15}  {blocks:<8}")
        }),
    })
}

fn kernel_json(kernel: &Kernel) -> Value {
    files::kernel_json(&kernel.name, &kernel.result, |done, value| {
        value["block_threads"] = done.threads.into();
        value["spills_moved"] = done.moved.into();
        value["spills_kept"] = done.kept.into();
        value["shared_words"] = done.shared_words.into();
        value["local_words"] = done.local_words.into();
        value["shared_bytes_before"] = done.shared_before.into();
        value["shared_bytes_after"] = done.shared_after.into();
        value["blocks_before"] = done.blocks_before.into();
        value["blocks_after"] = done.blocks_after.into();
    })
}
