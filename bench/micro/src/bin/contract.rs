//! Prints a module with contraction made explicit; obstacles go to standard error.
//!
//!     cargo run --release -p warpalloc-micro --bin contract -- ptxas|off FILE > OUT

use std::process::ExitCode;
use warpalloc_ptx::contract::{Contraction, contract};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let contraction = match args.next().as_deref() {
        Some("ptxas") => Contraction::Ptxas,
        Some("off") => Contraction::Off,
        _ => {
            eprintln!("usage: contract ptxas|off FILE");
            return ExitCode::from(2);
        }
    };
    let path = args.next().unwrap_or_default();
    let result = std::fs::read_to_string(&path)
        .map_err(|error| error.to_string())
        .and_then(|source| contract(&source, contraction).map_err(|error| error.to_string()));
    match result {
        Ok(contracted) => {
            for function in contracted.functions {
                let line = match &function.obstacle {
                    Some(obstacle) => format!("left: {}", obstacle.reason),
                    None => format!("fused {}, rounded {}", function.fused, function.rounded),
                };
                eprintln!("{}: {line}", function.name);
            }
            print!("{}", contracted.text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}
