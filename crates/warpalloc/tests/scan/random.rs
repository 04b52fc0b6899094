//! Random functions: what fits stays in registers, and everything is proved and run.

use warpalloc::analysis::{Liveness, Pressure};
use warpalloc::check::trace::{self, Limits};
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::{Options, Strategy, allocate};

fn targets() -> [Target; 4] {
    [
        Target::cicc(),
        Target::hardware(90).unwrap(),
        Target::hardware(86).unwrap(),
        Target::hardware_packed(80).unwrap(),
    ]
}

const BUDGETS: [usize; 13] = [4, 5, 6, 8, 12, 15, 16, 24, 32, 63, 64, 128, 255];

/// Functions of every shape, proved and executed; how many went to memory as a whole.
fn run(seeds: std::ops::Range<u64>, insts: usize) -> u32 {
    let mut fallbacks = 0;
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let shape = Shape::random(insts, &mut rng);
        let target = targets()[rng.below(4)].clone();
        let budget = BUDGETS[rng.below(BUDGETS.len())];
        let target = target.with_budget(File::R, budget);
        let function = generate::function(&shape, &target, &mut rng);
        let options = Options {
            cleanup: seed % 2 == 0,
            early_reloads: (seed / 2 % 3 * 8) as u32,
            ..Options::with_strategy(Strategy::Scan)
        };
        let allocation = allocate(&function, &target, &options)
            .unwrap_or_else(|e| panic!("seed {seed}, {}, {budget}: {e}", target.name()));
        let same = trace::compare(&function, &target, &allocation, Limits::default(), seed);
        assert!(
            same.is_ok(),
            "seed {seed}, {}, {budget}: {same:?}",
            target.name()
        );
        fallbacks += u32::from(allocation.stats.fell_back);
    }
    fallbacks
}

/// How many functions spill where the budget is the peak pressure and `spare` registers more.
fn spilling(seeds: std::ops::Range<u64>, has_groups: bool, spare: usize) -> u32 {
    let mut spilling = 0;
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let shape = Shape {
            wide: has_groups,
            groups: has_groups,
            ties: has_groups,
            calls: false,
            guards: true,
            fixed: false,
            predicates: false,
            uniform: false,
            early_defs: false,
            pinned: false,
            pressure: 8 + rng.below(60),
            ..Shape::random(150, &mut rng)
        };
        let target = Target::hardware(90).unwrap();
        let function = generate::function(&shape, &target, &mut rng);
        let liveness = Liveness::compute(&function);
        let peak = Pressure::compute(&function, &target, &liveness).max(File::R);
        let target = target.with_budget(File::R, peak + spare);
        if function.validate(&target).is_err() {
            continue;
        }
        let options = Options {
            schedule: false,
            ..Options::with_strategy(Strategy::Scan)
        };
        let allocation = allocate(&function, &target, &options)
            .unwrap_or_else(|e| panic!("seed {seed}, {} registers: {e}", peak + spare));
        let stats = &allocation.stats;
        let spills = stats.spilled + stats.rematerialised > 0 || stats.fell_back;
        spilling += u32::from(spills);
    }
    spilling
}

#[test]
fn random_functions_of_every_shape_are_proved_and_run_alike() {
    assert_eq!(run(0..400, 120), 0);
}

#[test]
fn scalars_that_fit_stay_in_registers() {
    assert_eq!(spilling(0..300, false, 0), 0);
}

/// A long run for a quiet machine: `cargo test --release --test scan -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn ten_thousand_functions_of_scalars_that_fit_stay_in_registers() {
    assert_eq!(spilling(0..10_000, false, 0), 0);
}

/// A long run for a quiet machine: `cargo test --release --test scan -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn twenty_thousand_random_functions_are_proved_and_run_alike() {
    println!("{} fell back", run(1_000_000..1_020_000, 100));
}
