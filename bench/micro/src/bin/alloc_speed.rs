//! Measures the fat-point allocator on the functions of PTX files: nanoseconds per
//! instruction, the best of several runs, verification off.
//!
//! ```text
//! cargo run --release -p warpalloc-micro --bin alloc_speed RUNS LEAST_INSTRUCTIONS FILES...
//! ```

use std::time::{Duration, Instant};
use warpalloc::function::Function;
use warpalloc::target::Target;
use warpalloc::{Allocation, Options, Strategy, allocate};
use warpalloc_ptx::module::lower_module;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|n| n.parse::<usize>().ok());
    let (Some(runs), Some(least)) = (number(), number()) else {
        eprintln!("usage: alloc_speed RUNS LEAST_INSTRUCTIONS FILES...");
        std::process::exit(2);
    };
    let target = Target::hardware(90).expect("the preset exists");
    for path in arguments {
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        let lowered = text.and_then(|text| {
            let functions = lower_module(&text, &target);
            functions.map_err(|error| error.to_string())
        });
        let functions = match lowered {
            Ok(functions) => functions,
            Err(error) => {
                eprintln!("{path}: {error}");
                continue;
            }
        };
        for function in functions.iter().filter(|f| f.inst_count() >= least) {
            report(function, &target, runs);
        }
    }
}

fn report(function: &Function, target: &Target, runs: usize) {
    let Some((time, allocation)) = best_time(function, target, runs) else {
        return;
    };
    let per = |t: Duration| t.as_nanos() as f64 / function.inst_count() as f64;
    let stats = &allocation.stats;
    println!(
        "{:>7} instructions, {} attempts, {:.0} ns each",
        function.inst_count(),
        stats.iterations,
        per(time),
    );
    for (phase, time) in &stats.phases {
        println!("{phase:>20} {:>6.0}", per(*time));
    }
}

/// The shortest of some runs, if the function can be allocated.
fn best_time(function: &Function, target: &Target, runs: usize) -> Option<(Duration, Allocation)> {
    let options = Options {
        strategy: Strategy::Fatpoint,
        verify: false,
        cleanup: false,
        ..Options::default()
    };
    let timed = (0..runs.max(1)).filter_map(|_| {
        let clock = Instant::now();
        let allocation = allocate(function, target, &options).ok()?;
        Some((clock.elapsed(), allocation))
    });
    timed.min_by_key(|(time, _)| *time)
}
