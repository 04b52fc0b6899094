//! The fat-point allocator, seen from outside.

use warpalloc::check::trace;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::{Options, Strategy, allocate};

fn fatpoint() -> Options {
    Options {
        strategy: Strategy::Fatpoint,
        ..Options::default()
    }
}

fn targets() -> Vec<Target> {
    let hardware = || Target::hardware(90).unwrap();
    let mut targets = vec![
        hardware(),
        Target::cicc(),
        Target::hardware_packed(80).unwrap(),
        Target::cicc().with_budget(File::R, 8),
    ];
    for budget in [4, 6, 10, 16, 24, 32, 48, 64, 128] {
        targets.push(hardware().with_budget(File::R, budget));
    }
    targets
}

/// Proves `count` random functions of up to `insts` instructions.
fn campaign(seed: u64, count: usize, insts: usize) {
    let targets = targets();
    let mut rng = Rng::new(seed);
    let (mut total, mut fallbacks) = (0usize, 0usize);
    for number in 0..count {
        let shape = Shape::random(insts, &mut rng);
        let target = &targets[number % targets.len()];
        let function = generate::function(&shape, target, &mut rng);
        match allocate(&function, target, &fatpoint()) {
            Ok(allocation) => {
                let limits = trace::Limits::default();
                for run in 0..2 {
                    let same = trace::compare(&function, target, &allocation, limits, run);
                    assert!(same.is_ok(), "function {number} of seed {seed}: {same:?}");
                }
                total += 1;
                fallbacks += allocation.stats.fell_back as usize;
            }
            Err(error) => panic!("function {number} of seed {seed}: {error}"),
        }
    }
    println!("{total} proved and executed, {fallbacks} by the fallback");
    assert!(fallbacks * 100 <= total, "{fallbacks} of {total} fell back");
}

#[test]
fn three_thousand_random_functions_are_proved() {
    campaign(1, 3_000, 60);
}

/// The whole campaign: `cargo test --release --test fatpoint -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn a_hundred_thousand_random_functions_are_proved() {
    campaign(2, 100_000, 80);
}
