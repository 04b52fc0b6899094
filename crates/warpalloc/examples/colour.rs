//! How graph colouring scales: time per instruction, rounds and spill code for generated
//! functions of growing size, at several budgets.
//!
//! ```text
//! cargo run --release --example colour [largest instruction count]
//! ```

use std::time::Instant;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::{Options, Strategy};

fn main() {
    let largest = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let largest: usize = largest.unwrap_or(100_000);
    let options = Options {
        strategy: Strategy::Briggs,
        verify: false,
        ..Options::default()
    };
    println!("  insts    K  values   ns/inst rounds spilled  remat reloads  coalesced  peak");
    for insts in [1_000, 10_000, 100_000, 1_000_000] {
        if insts > largest {
            break;
        }
        for budget in [32, 63, 255] {
            let target = Target::hardware(90).expect("sm_90 is in the table");
            let shape = Shape {
                pressure: 48,
                ..Shape::large(insts)
            };
            let function = generate::function(&shape, &target, &mut Rng::new(7));
            let target = target.with_budget(File::R, budget);
            let start = Instant::now();
            let allocation = warpalloc::allocate(&function, &target, &options);
            let time = start.elapsed();
            let allocation = match allocation {
                Ok(allocation) => allocation,
                Err(error) => {
                    println!("{insts:7} {budget:4} {error}");
                    continue;
                }
            };
            let stats = &allocation.stats;
            let peak = allocation.registers.iter().filter(|r| r.file == File::R);
            println!(
                "{insts:7} {budget:4} {:7} {:9} {:6} {:7} {:6} {:7} {:9.1}% {:5}",
                stats.values,
                time.as_nanos() / function.inst_count() as u128,
                stats.iterations,
                stats.spilled,
                stats.rematerialised,
                stats.edits.reloads,
                100.0 * stats.coalescing_rate(),
                peak.map(|r| r.unit).max().unwrap_or(0) + 1,
            );
            for (phase, time) in &stats.phases {
                print!("    {phase} {:.1?}", time);
            }
            println!();
        }
    }
}
