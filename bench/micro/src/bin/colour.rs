//! How graph colouring scales: time per instruction, rounds and spill code for generated
//! functions of growing size, some that fit and some that spill.
//!
//! ```text
//! cargo run --release -p warpalloc-micro --bin colour [largest instruction count] [runs] [phases]
//! ```

use std::time::{Duration, Instant};
use warpalloc::function::Function;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::{Allocation, Error, Options, Strategy};

/// Functions of one kind and the budget they are allocated with.
struct Kind {
    name: &'static str,
    pressure: usize,
    predicates: bool,
    budget: usize,
}

/// Seven predicates are soon too few, so what is to fit has none.
const KINDS: [Kind; 4] = [
    Kind {
        name: "fits",
        pressure: 32,
        predicates: false,
        budget: 255,
    },
    Kind {
        name: "predicates",
        pressure: 48,
        predicates: true,
        budget: 255,
    },
    Kind {
        name: "spills",
        pressure: 48,
        predicates: true,
        budget: 63,
    },
    Kind {
        name: "spills",
        pressure: 48,
        predicates: true,
        budget: 32,
    },
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let largest = arguments.next().and_then(|n| n.parse().ok());
    let runs = arguments.next().and_then(|n| n.parse().ok());
    let phases = arguments.next().is_some_and(|a| a == "phases");
    println!(
        "kind         insts    K  values degree   ns/inst rounds spilled  remat reloads  coalesced  peak"
    );
    for kind in &KINDS {
        for insts in [1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000] {
            if insts <= largest.unwrap_or(50_000) {
                measure(kind, insts, runs.unwrap_or(3), phases);
            }
        }
    }
}

fn measure(kind: &Kind, insts: usize, runs: u32, phases: bool) {
    let target = Target::hardware(90).expect("sm_90 is in the table");
    let shape = Shape {
        pressure: kind.pressure,
        predicates: kind.predicates,
        ..Shape::large(insts)
    };
    let function = generate::function(&shape, &target, &mut Rng::new(7));
    let target = target.with_budget(File::R, kind.budget);
    let (time, allocation) = match mean_time(&function, &target, runs) {
        Ok(mean) => mean,
        Err(error) => return println!("{:10} {insts:7} {:4} {error}", kind.name, kind.budget),
    };
    let stats = &allocation.stats;
    let peak = allocation.registers.iter().filter(|r| r.file == File::R);
    println!(
        "{:10} {insts:7} {:4} {:7} {:6.0} {:9} {:6} {:7} {:6} {:7} {:9.1}% {:5}",
        kind.name,
        kind.budget,
        stats.values,
        stats.graph.average_degree(),
        time.as_nanos() / function.inst_count() as u128,
        stats.iterations,
        stats.spilled,
        stats.rematerialised,
        stats.edits.reloads,
        100.0 * stats.coalescing_rate(),
        peak.map(|r| r.unit).max().unwrap_or(0) + 1,
    );
    if phases {
        for (phase, time) in &stats.phases {
            print!("    {phase} {time:.1?}");
        }
        println!();
    }
}

/// The mean of `runs` runs or more: as many as take a tenth of a second.
fn mean_time(
    function: &Function,
    target: &Target,
    runs: u32,
) -> Result<(Duration, Allocation), Error> {
    let options = Options {
        strategy: Strategy::Briggs,
        verify: false,
        ..Options::default()
    };
    let (start, processor) = (Instant::now(), processor_time());
    let mut done = 0;
    loop {
        let allocation = warpalloc::allocate(function, target, &options)?;
        done += 1;
        if done < runs || start.elapsed() < Duration::from_millis(100) {
            continue;
        }
        let spent = match (processor, processor_time()) {
            (Some(before), Some(after)) => after - before,
            _ => start.elapsed(),
        };
        return Ok((spent / done, allocation));
    }
}

/// Time this thread has spent on a processor, where Linux tells it: what else the machine
/// does counts for less then. It is brought up to date every few milliseconds only.
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = stat.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}
