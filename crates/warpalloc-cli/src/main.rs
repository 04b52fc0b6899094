//! The `warpalloc` command: one module per subcommand.
//!
//! Exit codes: 0 when the subcommand did its work, 1 when it could not, 2 when it was asked wrongly.

mod alloc;
mod files;
mod flags;
mod knobs;
mod occupancy;
mod replay;
mod stats;
mod stats_cubin;

use std::fmt;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    version,
    about = "A register allocator for GPUs",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Allocate the registers of every function of a PTX file
    Alloc(Box<alloc::AllocArgs>),
    /// List the knobs of the fat-point allocator
    Knobs(knobs::KnobsArgs),
    /// Show what each function of a PTX file, cubin or library needs, and where registers are
    /// scarcest in it
    Stats(stats::StatsArgs),
    /// Show how many blocks and warps a multiprocessor holds, and where the next cliffs are
    Occupancy(occupancy::OccupancyArgs),
    /// Allocate a function written in the text format, and show the result beside its code
    Replay(replay::ReplayArgs),
}

/// A command line whose words parse but whose values make no sense; ends with exit code 2.
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Alloc(args) => alloc::run(*args),
        Command::Knobs(args) => knobs::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Occupancy(args) => occupancy::run(args),
        Command::Replay(args) => replay::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let message = format!("{error:#}");
            // Diagnostics come with their own heading.
            if message.starts_with("error: ") {
                eprint!("{message}");
            } else {
                eprintln!("error: {message}");
            }
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}
