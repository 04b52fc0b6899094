//! `warpalloc replay`: allocates a function written in the text format.
//!
//! A text file holds a function, its target and its options, so it is a whole bug report;
//! this runs it again and shows what comes out, edits and registers beside the code.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use warpalloc::check::{self, trace};
use warpalloc::text::{self, Allocated, Case};
use warpalloc::{Options, Strategy};

use crate::files::Input;
use crate::output;

/// Arguments of `warpalloc replay`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  warpalloc lower IN.ptx --kernel k > case.txt     a function in the text format
  warpalloc replay case.txt                        allocated, proved and shown")]
pub struct ReplayArgs {
    /// The text file, or `-` for standard input
    input: PathBuf,
    /// Use this allocator instead of the one the file names
    #[arg(long, value_name = "NAME", value_parser = crate::alloc::strategy)]
    regalloc: Option<Strategy>,
    /// How many executions to compare before and after allocation
    #[arg(long, value_name = "N", default_value_t = 4)]
    traces: u64,
}

/// Allocates, proves, compares and prints.
pub fn run(args: ReplayArgs) -> Result<()> {
    let input = Input::read(&args.input)?;
    let case = text::parse(&input.text).map_err(|error| anyhow!("{}:{error}", input.name))?;
    let Case {
        target,
        options,
        function,
    } = case;
    let options = Options {
        strategy: args.regalloc.unwrap_or(options.strategy),
        // Proved below, where a violation can name its place.
        verify: false,
        ..options
    };
    let allocation = warpalloc::allocate(&function, &target, &options)?;
    let shown = Allocated {
        function: &function,
        target: &target,
        allocation: &allocation,
    };
    output::print(&shown.to_string())?;
    check::check(&function, &target, &allocation)
        .map_err(|violation| anyhow!("the allocation is not proved: {violation}"))?;
    for seed in 0..args.traces {
        trace::compare(
            &function,
            &target,
            &allocation,
            trace::Limits::default(),
            seed,
        )
        .map_err(|difference| anyhow!("execution differs: {difference}"))?;
    }
    output::print(&format!("; proved, and {} executions agree\n", args.traces))
}
