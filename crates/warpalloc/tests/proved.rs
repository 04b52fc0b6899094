//! The checker accepts what the naive allocator makes, and frames in two memories, and the trace executor agrees.

use warpalloc::allocation::{Frame, Space};
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

#[test]
fn frames_keep_a_limit_on_shared_memory_and_are_proved() {
    let strategies = [
        Strategy::Briggs,
        Strategy::Fatpoint,
        Strategy::Scan,
        Strategy::Naive,
    ];
    let mut rng = Rng::new(11);
    let mut in_both = [0; 4];
    for number in 0..600 {
        let shape = Shape {
            calls: false,
            ..Shape::random(150, &mut rng)
        };
        let budget = [6, 8, 12, 16][rng.below(4)];
        let target = Target::hardware(90).unwrap().with_budget(File::R, budget);
        let function = generate::function(&shape, &target, &mut rng);
        let limit = rng.below(64) as u32;
        let strategy = number % strategies.len();
        let options = Options {
            spill_space: Space::Shared,
            shared_limit: Some(limit),
            ..Options::with_strategy(strategies[strategy])
        };
        // The calling convention keeps a function out of shared memory.
        let Ok(allocation) = allocate(&function, &target, &options) else {
            continue;
        };
        let Frame { local, shared } = allocation.frame;
        assert!(shared <= limit, "function {number}: {shared} of {limit}");
        let limits = Limits::default();
        let traces = trace::compare(&function, &target, &allocation, limits, number as u64);
        traces.unwrap_or_else(|difference| panic!("function {number}: {difference}"));
        in_both[strategy] += u32::from(local > 0 && shared > 0);
    }
    assert!(in_both.iter().all(|&count| count > 20), "{in_both:?}");
}
