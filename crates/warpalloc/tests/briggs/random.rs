//! Random functions of every shape, at every budget: the checker proves each result, and
//! the trace executor sees the original and the allocated code do the same.

use std::collections::BTreeMap;
use warpalloc::check::trace::{self, Limits};
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::{Error, Options, Strategy};

fn targets() -> [Target; 4] {
    [
        Target::cicc(),
        Target::hardware(90).unwrap(),
        Target::hardware(86).unwrap(),
        Target::hardware_packed(80).unwrap(),
    ]
}

const BUDGETS: [usize; 13] = [4, 5, 6, 8, 12, 15, 16, 24, 32, 63, 64, 128, 255];

/// What became of many functions.
#[derive(Default)]
struct Outcome {
    fallbacks: u32,
    impossible: u32,
    /// Functions by the rounds they took.
    rounds: BTreeMap<u32, u32>,
}

fn run(seeds: std::ops::Range<u64>, insts: usize) -> Outcome {
    let options = Options {
        strategy: Strategy::Briggs,
        ..Options::default()
    };
    let mut outcome = Outcome::default();
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let shape = Shape::random(insts, &mut rng);
        let target = targets()[rng.below(4)].clone();
        let budget = BUDGETS[rng.below(BUDGETS.len())];
        let target = target.with_budget(File::R, budget);
        let function = generate::function(&shape, &target, &mut rng);
        let allocation = match warpalloc::allocate(&function, &target, &options) {
            Ok(allocation) => allocation,
            Err(Error::Impossible { .. }) => {
                outcome.impossible += 1;
                continue;
            }
            Err(error) => panic!("seed {seed}, {}, {budget}: {error}", target.name()),
        };
        let same = trace::compare(&function, &target, &allocation, Limits::default(), seed);
        assert!(
            same.is_ok(),
            "seed {seed}, {}, {budget}: {same:?}",
            target.name()
        );
        outcome.fallbacks += allocation.stats.fell_back as u32;
        *outcome
            .rounds
            .entry(allocation.stats.iterations)
            .or_default() += 1;
    }
    outcome
}

#[test]
fn random_functions_of_every_shape_are_proved_and_run_alike() {
    let outcome = run(0..600, 120);
    assert_eq!((outcome.fallbacks, outcome.impossible), (0, 0));
    let within_four: u32 = outcome.rounds.range(..=4).map(|(_, n)| n).sum();
    assert!(within_four >= 570, "{:?}", outcome.rounds);
}

/// A long run for a quiet machine: `cargo test --release --test briggs -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn a_hundred_thousand_random_functions_are_proved_and_run_alike() {
    let outcome = run(1_000_000..1_100_000, 100);
    println!("{:?}, {} fell back", outcome.rounds, outcome.fallbacks);
    assert_eq!(outcome.impossible, 0);
}
