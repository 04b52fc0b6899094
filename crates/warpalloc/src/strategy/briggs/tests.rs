use super::*;
use crate::check;
use crate::generate::{self, Rng, Shape};
use crate::target::File;

/// Only the cheapest attempt is returned, and so proved by others; here all of them are.
#[test]
fn every_attempt_is_proved_and_executed() {
    let mut rng = Rng::new(41);
    let options = Options::default();
    let mut proved = [0; ATTEMPTS.len()];
    for seed in 0..150 {
        let shape = Shape::random(300, &mut rng);
        let budget = [8, 12, 16, 24][rng.below(4)];
        let target = Target::hardware(90).unwrap().with_budget(File::R, budget);
        let function = generate::function(&shape, &target, &mut rng);
        let Ok(program) = Program::new(&function, &target, None) else {
            continue;
        };
        let mut stats = Stats::default();
        let built = Built::new(&program, &target, &mut stats);
        for (number, &way) in ATTEMPTS.iter().enumerate() {
            let Ok(allocation) = attempt(&program, &built, &target, &options, &stats, way) else {
                continue;
            };
            assert!(!allocation.stats.fell_back, "attempt {number} at {seed}");
            check::check(&function, &target, &allocation)
                .unwrap_or_else(|violation| panic!("attempt {number} at {seed}: {violation}"));
            let limits = check::trace::Limits::default();
            check::trace::compare(&function, &target, &allocation, limits, seed)
                .unwrap_or_else(|difference| panic!("attempt {number} at {seed}: {difference}"));
            proved[number] += 1;
        }
    }
    assert!(proved.iter().all(|&count| count > 100), "{proved:?}");
}
