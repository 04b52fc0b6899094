//! Sample programs, compiled in several ways.

use crate::compile;
use crate::interpret::interpret;
use crate::language::parse;
use std::error::Error;
use std::path::Path;
use warpalloc::Strategy;

/// Programs that between them have loops, nested calls, recursion and many live values.
pub const SAMPLES: [(&str, &str); 5] = [
    ("fibonacci", include_str!("samples/fibonacci.toy")),
    ("collatz", include_str!("samples/collatz.toy")),
    ("primes", include_str!("samples/primes.toy")),
    ("pressure", include_str!("samples/pressure.toy")),
    ("gcd", include_str!("samples/gcd.toy")),
];

/// How many threads the samples are run with.
const THREADS: i32 = 256;

/// Writes the PTX of every sample in several ways, and beside it what each thread returns.
pub fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    for (name, text) in SAMPLES {
        let program = parse(text)?;
        let results = (0..THREADS).map(|i| interpret(&program, "main", &[i]).to_string());
        let results = results.collect::<Vec<_>>().join("\n");
        std::fs::write(folder.join(format!("{name}.expected")), results)?;
        for strategy in Strategy::ALL {
            for registers in [8, 10, 32] {
                let ptx = compile(&program, registers, strategy)?;
                let file = format!("{name}.{strategy}.{registers}.ptx");
                std::fs::write(folder.join(file), ptx)?;
            }
        }
    }
    Ok(())
}
