//! The `warpalloc` command: one module per subcommand.
//!
//! Exit codes: 0 when the subcommand did its work, 1 when it could not, 2 when it was asked wrongly.
//!
//! [`main`] is the command; [`call`] has subcommands as functions, for the Python module.

pub mod call;

mod alloc;
mod alloc_cubin;
mod assembled;
mod assembler;
mod best;
mod check;
mod compare;
mod explain;
mod files;
mod flags;
mod kernel_report;
mod kernels;
mod knobs;
mod lower;
mod manual;
mod occupancy;
mod output;
mod replay;
mod report;
mod shim;
mod stats;
mod stats_cubin;
mod suggest;
mod tune;

use std::fmt;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  warpalloc explain gemm.ptx                       why a kernel takes so many registers
  warpalloc tune gemm.ptx --block 256              which cap to give it
  warpalloc alloc gemm.ptx -o out.ptx --maxnreg 64 fit it
  warpalloc check build/                           hold it there, in CI

`warpalloc help COMMAND` has more. NO_COLOR turns colours off.";

#[derive(Parser)]
#[command(
    name = "warpalloc",
    version,
    about = "A register allocator for GPUs",
    arg_required_else_help = true,
    after_help = EXAMPLES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: output::OutputFlags,
}

#[derive(Subcommand)]
enum Command {
    /// Allocate the registers of every function of a PTX file, or recolour those of a cubin
    Alloc(Box<alloc::AllocArgs>),
    /// Hold the kernels of files to the figures of a baseline: registers, spills, memory, warps
    Check(Box<check::CheckArgs>),
    /// Show what moved between two builds, two commits or two ptxas, kernel by kernel, and why
    Compare(Box<compare::CompareArgs>),
    /// Show what is live where registers are scarcest in a kernel, and what would help
    Explain(Box<explain::ExplainArgs>),
    /// List the knobs of the fat-point allocator
    Knobs(knobs::KnobsArgs),
    /// Show what each function of a PTX file, cubin or library needs, and where registers are
    /// scarcest in it
    Stats(stats::StatsArgs),
    /// Show how many blocks and warps a multiprocessor holds, and where the next cliffs are
    Occupancy(occupancy::OccupancyArgs),
    /// Do what ptxas does, with the allocator before it where registers are capped and ptxas spills
    Ptxas(shim::PtxasArgs),
    /// Draw a kernel on one page: pressure along its code, live ranges, caps, occupancy
    Report(Box<kernel_report::ReportArgs>),
    /// Put `warpalloc ptxas` where compilers look for ptxas, and show what it did
    Shim(shim::ShimArgs),
    /// Allocate a function written in the text format, and show the result beside its code
    Replay(replay::ReplayArgs),
    /// Write a function of a PTX file in the text format, for `replay`
    Lower(lower::LowerArgs),
    /// List the options that `alloc --option` sets
    #[command(after_help = "\
Examples:
  warpalloc options
  warpalloc alloc IN.ptx -o OUT.ptx --regalloc=briggs --option split=false")]
    Options,
    /// Try a kernel within every step of occupancy, and recommend a cap on its registers
    Tune(Box<tune::TuneArgs>),
    /// Write what a shell needs to complete the command line
    Completions(manual::CompletionsArgs),
    /// Write manual pages
    Man(manual::ManArgs),
}

/// A command line whose words parse but whose values make no sense; ends with exit code 2.
#[derive(Debug)]
pub(crate) struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// A failure that has been told already.
#[derive(Debug)]
pub(crate) struct Silent;

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the result was not written")
    }
}

impl std::error::Error for Silent {}

/// Does what the command line asks for.
pub fn main() -> ExitCode {
    if let Some(args) = shim::called_as_ptxas() {
        return shim::main(&args);
    }
    let cli = Cli::parse();
    cli.output.install();
    let result = match cli.command {
        Command::Alloc(args) => alloc::run(*args),
        Command::Check(args) => check::run(*args),
        Command::Compare(args) => compare::run(*args),
        Command::Explain(args) => explain::run(*args),
        Command::Knobs(args) => knobs::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Occupancy(args) => occupancy::run(args),
        // Answered above; an option before the word leads here.
        Command::Ptxas(args) => return shim::main(args.args()),
        Command::Report(args) => kernel_report::run(*args),
        Command::Shim(args) => shim::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Lower(args) => lower::run(args),
        Command::Tune(args) => tune::run(*args),
        Command::Options => manual::options(),
        Command::Completions(args) => manual::completions(args, Cli::command()),
        Command::Man(args) => manual::man(args, Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<Silent>() => ExitCode::from(1),
        Err(error) => {
            output::error(&format!("{error:#}"));
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}
