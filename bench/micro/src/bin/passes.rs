//! What each pass before and after colouring is worth, on random kernels.
//!
//! Allocates the same functions with one pass off at a time and prints, summed over all of
//! them: spilled values, edits by kind weighted by how often their blocks run, and the
//! average degree of the first interference graph.
//!
//! ```text
//! cargo run --release -p warpalloc-micro --bin passes [functions]
//! ```

use warpalloc::allocation::{Allocation, Edit, Point};
use warpalloc::analysis::{Frequencies, Loops, Order};
use warpalloc::function::Function;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::{Options, Strategy, allocate};

#[derive(Default)]
struct Sums {
    spilled: u64,
    moves: f64,
    stores: f64,
    reloads: f64,
    recomputed: f64,
    degree: f64,
    functions: u32,
}

impl Sums {
    fn add(&mut self, function: &Function, allocation: &Allocation) {
        let order = Order::compute(function);
        let loops = Loops::compute(function, &order);
        let frequencies = Frequencies::compute(function, &order, &loops);
        for (point, edit) in allocation.edits.iter() {
            let block = match point {
                Point::Before(inst) | Point::After(inst) => function.block_of(inst),
                Point::Edge(block, succ) => function.succs(block)[succ as usize].block,
            };
            // An edge runs no more often than either end.
            let mut frequency = frequencies.block(block);
            if let Point::Edge(from, _) = point {
                frequency = frequency.min(frequencies.block(from));
            }
            *match edit {
                Edit::Move { .. } | Edit::Swap { .. } | Edit::Transfer { .. } => &mut self.moves,
                Edit::Store { .. } => &mut self.stores,
                Edit::Reload { .. } => &mut self.reloads,
                Edit::Recompute { .. } => &mut self.recomputed,
            } += frequency;
        }
        self.spilled += u64::from(allocation.stats.spilled);
        self.degree += allocation.stats.graph.average_degree();
        self.functions += 1;
    }
}

fn main() {
    let count = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(40);
    let all = Options {
        strategy: Strategy::Briggs,
        verify: false,
        ..Options::default()
    };
    let variants = [
        ("all", all.clone()),
        (
            "no schedule",
            Options {
                schedule: false,
                ..all.clone()
            },
        ),
        (
            "no split",
            Options {
                split: false,
                ..all.clone()
            },
        ),
        (
            "no cleanup",
            Options {
                cleanup: false,
                ..all.clone()
            },
        ),
    ];
    for budget in [16, 24, 32] {
        println!("{budget} registers");
        println!("             spilled    moves   stores  reloads recomputed  degree");
        for (name, options) in &variants {
            let sums = measure(count, budget, options);
            let functions = f64::from(sums.functions.max(1));
            println!(
                "{name:<12} {:>7} {:>8.0} {:>8.0} {:>8.0} {:>10.0} {:>7.1}",
                sums.spilled,
                sums.moves,
                sums.stores,
                sums.reloads,
                sums.recomputed,
                sums.degree / functions,
            );
        }
    }
}

fn measure(count: u64, budget: usize, options: &Options) -> Sums {
    let Ok(target) = Target::hardware(90) else {
        return Sums::default();
    };
    let target = target.with_budget(File::R, budget);
    let mut sums = Sums::default();
    for seed in 0..count {
        let mut rng = Rng::new(seed);
        let shape = Shape {
            pressure: budget + budget / 4,
            insts: 600,
            blocks: 30,
            loop_depth: 3,
            ..Shape::typical()
        };
        let function = generate::function(&shape, &target, &mut rng);
        if let Ok(allocation) = allocate(&function, &target, options) {
            sums.add(&function, &allocation);
        }
    }
    sums
}
