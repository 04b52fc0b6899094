//! The `warpalloc` command, which is all in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpalloc_cli::main()
}
