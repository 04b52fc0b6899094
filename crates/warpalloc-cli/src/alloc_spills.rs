//! `warpalloc alloc X.cubin --spills shared`: ptxas's spills from local to shared memory, in place.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use warpalloc::allocation::Space;
use warpalloc_sass::object::{Cubin, demangle};
use warpalloc_sass::spills::{Conversion, Options, Refusal, spills_to_shared};

use crate::alloc::AllocArgs;
use crate::report::{self, SCHEMA};
use crate::{Silent, UsageError, files, output};

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

/// What became of one kernel.
struct Kernel {
    name: String,
    result: Result<Conversion, Refusal>,
}

impl Kernel {
    /// Whether something stays in local memory that should not.
    fn is_refused(&self) -> bool {
        !matches!(self.result, Ok(_) | Err(Refusal::NoSpills))
    }
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
    let mut reports = Vec::new();
    let mut results = Vec::new();
    for path in &args.input {
        let told = path.display().to_string();
        let bytes = fs::read(path).with_context(|| format!("cannot read {told}"))?;
        let (written, kernels) = convert(&bytes, &told, args, &options)?;
        reports.push((told, kernels));
        results.push(written);
    }
    let mut kernels = reports.iter().flat_map(|(_, kernels)| kernels);
    let is_refused = args.strict && kernels.any(Kernel::is_refused);
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

/// The cubin with all spills moved that can be, one kernel after the other.
fn convert(
    bytes: &[u8],
    told: &str,
    args: &AllocArgs,
    options: &Options,
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
        let result = spills_to_shared(&written, function.name, options);
        if let Ok(done) = &result {
            written.clone_from(&done.bytes);
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
        for kernel in kernels.iter().filter(|kernel| kernel.is_refused()) {
            let Err(reason) = &kernel.result else {
                continue;
            };
            let message = format!("{file}: `{}` keeps its spills: {reason}", kernel.name);
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
        let _ = writeln!(out, "  moved   kept  shared bytes     blocks    kernel");
        for kernel in kernels {
            let name = demangle(&kernel.name);
            let name = name.as_ref().unwrap_or(&kernel.name);
            let _ = match &kernel.result {
                Ok(done) => {
                    let shared = format!("{} > {}", done.shared_before, done.shared_after);
                    let blocks = format!("{} > {}", done.blocks_before, done.blocks_after);
                    let (moved, kept) = (done.moved, done.kept);
                    writeln!(
                        out,
                        "  {moved:>5}  {kept:>5}  {shared:<15}  {blocks:<8}  {name}"
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
                value["block_threads"] = done.threads.into();
                value["spills_moved"] = done.moved.into();
                value["spills_kept"] = done.kept.into();
                value["shared_words"] = done.shared_words.into();
                value["local_words"] = done.local_words.into();
                value["shared_bytes_before"] = done.shared_before.into();
                value["shared_bytes_after"] = done.shared_after.into();
                value["blocks_before"] = done.blocks_before.into();
                value["blocks_after"] = done.blocks_after.into();
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
