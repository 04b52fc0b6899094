//! Random functions of every shape, at every budget, are proved by the checker.

use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::{Error, Options, Strategy};

fn targets() -> Vec<Target> {
    vec![
        Target::cicc(),
        Target::hardware(90).unwrap(),
        Target::hardware(86).unwrap(),
        Target::hardware_packed(80).unwrap(),
    ]
}

/// Allocates `count` functions and returns how many fell back on memory for everything.
fn run(seed: u64, count: u64, insts: usize) -> u64 {
    let options = Options {
        strategy: Strategy::Briggs,
        ..Options::default()
    };
    let (mut fallbacks, mut rounds) = (0, std::collections::BTreeMap::new());
    for seed in seed..seed + count {
        let mut rng = Rng::new(seed);
        let shape = Shape::random(insts, &mut rng);
        let all = targets();
        let target = all[rng.below(all.len())].clone();
        let budget = [4, 5, 6, 8, 12, 15, 16, 24, 32, 63, 64, 128, 255][rng.below(13)];
        let target = target.with_budget(File::R, budget);
        let function = generate::function(&shape, &target, &mut rng);
        match warpalloc::allocate(&function, &target, &options) {
            Ok(allocation) => {
                if allocation.stats.fell_back {
                    println!("seed {seed} fell back: {} {budget}", target.name());
                }
                fallbacks += allocation.stats.fell_back as u64;
                *rounds.entry(allocation.stats.iterations).or_insert(0) += 1;
            }
            Err(Error::Impossible { .. } | Error::FrameTooLarge { .. }) => {}
            Err(error) => panic!("seed {seed}, {}, {budget}: {error}", target.name()),
        }
    }
    println!("{rounds:?}");
    fallbacks
}

#[test]
fn random_functions_of_every_shape_are_proved() {
    let fallbacks = run(0, 600, 120);
    println!("{fallbacks} fell back");
}
