//! `warpalloc lower`: a function of a PTX file in the text format, for `warpalloc replay`.

use std::path::PathBuf;

use clap::Args;
use warpalloc::target::{File, Target};
use warpalloc::text::Case;
use warpalloc::{Options, Strategy};
use warpalloc_ptx::module::lower_module;

use crate::files::Input;
use crate::{UsageError, output};

/// What to lower and how to allocate it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpalloc lower IN.ptx --kernel k > case.txt
  warpalloc replay case.txt                        allocates it")]
pub struct LowerArgs {
    /// The PTX file; `-` for standard input
    input: PathBuf,
    /// The function; may be left out where there is one only
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// The registers to allocate with [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    maxnreg: Option<u32>,
    /// The allocator: briggs, fatpoint or naive [default: briggs]
    #[arg(long, value_name = "NAME", value_parser = crate::alloc::strategy)]
    regalloc: Option<Strategy>,
    /// The machine to allocate for: 90, sm_90
    #[arg(long, value_name = "SM", default_value = "90")]
    sm: warpalloc::target::sm::Sm,
}

/// Prints a function in the text format.
pub fn run(args: LowerArgs) -> anyhow::Result<()> {
    let input = Input::read(&args.input)?;
    let machine = Target::hardware(args.sm.number())?;
    let functions = lower_module(&input.text, &machine).map_err(|error| input.explain(error))?;
    let names: Vec<&str> = functions.iter().map(|f| f.name()).collect();
    let found = match (&args.kernel, &names[..]) {
        (None, [_]) => Some(0),
        (None, _) => None,
        (Some(name), names) => names.iter().position(|n| n == name),
    };
    let Some(found) = found else {
        return Err(UsageError(format!(
            "--kernel names one of the functions that {} has: {}",
            input.name,
            names.join(", ")
        ))
        .into());
    };
    let mut functions = functions;
    let case = Case {
        target: match args.maxnreg {
            Some(registers) => machine.with_budget(File::R, registers as usize),
            None => machine,
        },
        options: Options::with_strategy(args.regalloc.unwrap_or_default()),
        function: functions.swap_remove(found),
    };
    output::print(&case.to_string())
}
