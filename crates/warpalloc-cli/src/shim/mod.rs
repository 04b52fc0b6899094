//! `warpalloc shim`, which puts `warpalloc ptxas` where compilers look for ptxas, and
//! `warpalloc ptxas` itself.

mod choose;
mod install;
mod invocation;
mod log;
mod ptxas;
mod real;

use clap::{Args, Subcommand};

pub use ptxas::{PtxasArgs, called_as_ptxas, main};

/// Where compilers find it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpalloc shim install ~/warpalloc-cuda
  warpalloc shim log")]
pub struct ShimArgs {
    #[command(subcommand)]
    command: ShimCommand,
}

#[derive(Subcommand, Debug)]
enum ShimCommand {
    /// Lay out a folder with a ptxas that allocates first, and say what to set
    Install(install::InstallArgs),
    /// Show what the shim did
    Log(log::LogArgs),
}

/// Runs `warpalloc shim`.
pub fn run(args: ShimArgs) -> anyhow::Result<()> {
    match args.command {
        ShimCommand::Install(args) => install::run(&args),
        ShimCommand::Log(args) => log::run(&args),
    }
}
