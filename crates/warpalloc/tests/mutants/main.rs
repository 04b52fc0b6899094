//! Damaged allocations: the checker catches each, or the trace executor finds no harm.
//!
//! Random functions are allocated naively, enriched with moves and recomputations so that
//! every kind of edit occurs, and damaged in one place. A mutant that the checker accepts
//! must leave the original's trace under several seeds; and each kind of damage must
//! be caught many times, or it is not damage.

mod ahead;
mod damage;
mod enrich;

use damage::Damage;
use warpalloc::check::{self, trace};
use warpalloc::function::Function;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::{Allocation, Options, Strategy, allocate};

const FUNCTIONS: usize = 300;
const HOISTING_FUNCTIONS: usize = 1200;
const ROUNDS: usize = 3;
const TRIES: usize = 4;
const SEEDS: u64 = 5;

/// What became of the mutants of one kind.
#[derive(Clone, Copy, Default)]
struct Tally {
    mutants: usize,
    caught: usize,
}

fn targets() -> Vec<Target> {
    let hardware = || Target::hardware(90).unwrap();
    vec![
        hardware(),
        Target::cicc(),
        hardware().with_budget(File::R, 64),
        Target::hardware_packed(80).unwrap(),
    ]
}

fn shape(number: usize, rng: &mut Rng) -> Shape {
    Shape {
        device: number.is_multiple_of(2),
        remat: true,
        wide: true,
        groups: true,
        ..Shape::random(60, rng)
    }
}

/// Panics if the checker accepts something that the trace executor refutes.
fn judge(kind: Damage, function: &Function, target: &Target, mutant: &Allocation) -> bool {
    if check::check(function, target, mutant).is_err() {
        return true;
    }
    for seed in 0..SEEDS {
        let limits = trace::Limits::default();
        if let Err(difference) = trace::compare(function, target, mutant, limits, seed) {
            panic!("{kind:?} was accepted, but {difference}");
        }
    }
    false
}

/// Damages `sound` in each of the ways in turn.
fn damage_all(
    kinds: &[Damage],
    tallies: &mut [Tally],
    function: &Function,
    target: &Target,
    sound: &Allocation,
    rng: &mut Rng,
) {
    for (&kind, tally) in kinds.iter().zip(tallies) {
        for _ in 0..TRIES {
            let mutant = damage::damage(kind, function, target, sound, rng);
            let Some(mutant) = mutant else { continue };
            tally.mutants += 1;
            tally.caught += judge(kind, function, target, &mutant) as usize;
        }
    }
}

/// Each kind of damage was caught often enough; how many mutants there were.
fn settle(kinds: &[Damage], tallies: &[Tally]) -> usize {
    for (kind, tally) in kinds.iter().zip(tallies) {
        let Tally { mutants, caught } = tally;
        println!("{kind:?}: {mutants} mutants, {caught} caught");
        assert!(*caught >= 20, "{kind:?}: {caught} of {mutants} caught");
    }
    tallies.iter().map(|tally| tally.mutants).sum()
}

#[test]
fn every_mutant_is_caught_or_harmless() {
    let targets = targets();
    let mut rng = Rng::new(11);
    let mut tallies = [Tally::default(); Damage::ALL.len()];
    for number in 0..FUNCTIONS {
        let target = &targets[number % targets.len()];
        let function = generate::function(&shape(number, &mut rng), target, &mut rng);
        // Enrichment relies on every value being in its slot, which clean-up does not keep.
        let options = Options {
            cleanup: false,
            ..Options::with_strategy(Strategy::Naive)
        };
        let naive = allocate(&function, target, &options).unwrap();
        let sound = enrich::enrich(&function, target, &naive, &mut rng);
        if let Err(violation) = check::check(&function, target, &sound) {
            panic!("function {number} before damage: {violation}");
        }
        damage_all(
            &Damage::ALL,
            &mut tallies,
            &function,
            target,
            &sound,
            &mut rng,
        );
    }
    let all = settle(&Damage::ALL, &tallies);
    assert!(all > 5000, "{all} mutants");
}

/// The same for code that the fat-point allocator moved out of loops.
#[test]
fn every_mutant_of_hoisted_code_is_caught_or_harmless() {
    let targets = targets();
    let mut rng = Rng::new(12);
    let mut tallies = [Tally::default(); Damage::HOISTED.len()];
    let mut others = [Tally::default(); Damage::ALL.len()];
    let mut options = Options::with_strategy(Strategy::Fatpoint);
    options.set("HoistInvariantsPolicy", "always").unwrap();
    let mut hoisted = 0;
    for number in 0..HOISTING_FUNCTIONS {
        let target = &targets[number % targets.len()];
        let function = generate::function(&shape(number, &mut rng), target, &mut rng);
        let sound = allocate(&function, target, &options).unwrap();
        if sound.stats.hoisted == 0 {
            continue;
        }
        hoisted += 1;
        for _ in 0..ROUNDS {
            let kinds = &Damage::HOISTED;
            damage_all(kinds, &mut tallies, &function, target, &sound, &mut rng);
        }
        let kinds = &Damage::ALL;
        damage_all(kinds, &mut others, &function, target, &sound, &mut rng);
    }
    settle(&Damage::HOISTED, &tallies);
    assert!(hoisted >= 100, "{hoisted} functions with hoisted code");
}
