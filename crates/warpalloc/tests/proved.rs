//! The checker accepts what the naive allocator makes, and the trace executor agrees.

use warpalloc::check::trace::{self, Limits};
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::{Options, Strategy, allocate};

fn targets() -> Vec<Target> {
    let hardware = || Target::hardware(90).unwrap();
    vec![
        hardware(),
        Target::cicc(),
        Target::hardware_packed(80).unwrap(),
        hardware().with_budget(File::R, 32),
        Target::cicc().with_budget(File::R, 8),
    ]
}

#[test]
fn ten_thousand_naive_allocations_are_proved() {
    let targets = targets();
    let mut rng = Rng::new(7);
    for number in 0..10_000 {
        let shape = Shape::random(50, &mut rng);
        let target = &targets[number % targets.len()];
        let function = generate::function(&shape, target, &mut rng);
        let allocation = match allocate(&function, target, &Options::with_strategy(Strategy::Naive))
        {
            Ok(allocation) => allocation,
            Err(error) => panic!("function {number}: {error}"),
        };
        if number % 10 == 0 {
            for seed in 0..3 {
                let limits = Limits::default();
                let traces = trace::compare(&function, target, &allocation, limits, seed);
                traces.unwrap_or_else(|difference| panic!("function {number}: {difference}"));
            }
        }
    }
}
