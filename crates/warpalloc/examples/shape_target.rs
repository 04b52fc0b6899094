//! Allocates one function for several machines and budgets, and tells what each costs.
//!
//! ```sh
//! cargo run -p warpalloc --example shape_target
//! ```

use warpalloc::target::occupancy::{Launch, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc::target::{File, Target};
use warpalloc::{Options, allocate, text};

/// Eight loads that are summed up in the end.
const SUM: &str = "
target hardware sm_90
kernel sum {
block0:
    v0:r32 = load #0 : read
    v1:r32 = load #1 : read
    v2:r32 = load #2 : read
    v3:r32 = load #3 : read
    wait : write
    v4:r32 = add v0, v1
    v5:r32 = add v2, v3
    v6:r32 = add v4, v5
    store v6 : write
    exit : exit write
}
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let function = text::parse(SUM)?.function;
    println!("machine       registers  stores  reloads  warps");
    for (name, number) in [("hardware", 80), ("hardware", 90), ("hardware-packed", 90)] {
        let sm = Sm::ALL.into_iter().find(|sm| sm.number() == number);
        let sm = sm.ok_or("the machine is known")?;
        for budget in [2, 3, 255] {
            let target = Target::preset(name, number)?.with_budget(File::R, budget);
            let allocation = allocate(&function, &target, &Options::default())?;
            let launch = Launch {
                registers_per_thread: budget as u32,
                block_threads: 256,
                shared_bytes: 0,
            };
            let edits = &allocation.stats.edits;
            println!(
                "{name:>15}/{number} {budget:>5} {:>7} {:>8} {:>6}",
                edits.stores,
                edits.reloads,
                occupancy(sm, &launch).map_or(0, |answer| answer.warps)
            );
        }
    }
    Ok(())
}
