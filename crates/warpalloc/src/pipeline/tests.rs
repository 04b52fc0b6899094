use super::*;
use crate::allocation::Space;
use crate::check;
use crate::colour::{Positions, attempts, must_spill};
use crate::generate::{self, Rng, Shape};
use crate::target::File;

/// Only the cheapest attempt is returned, and so proved by others; here all of them are.
#[test]
fn every_attempt_is_proved_and_executed() {
    for strategy in [Strategy::Briggs, Strategy::Fatpoint] {
        let options = Options::with_strategy(strategy);
        let (first, others) = attempts(&options);
        let ways: Vec<Attempt> = [first, first.without_hoisting()]
            .into_iter()
            .chain(others)
            .collect();
        let mut proved = vec![0; ways.len()];
        let mut rng = Rng::new(41);
        let scratch = Scratch::default();
        for seed in 0..150 {
            let shape = Shape::random(300, &mut rng);
            let budget = [8, 12, 16, 24][rng.below(4)];
            let target = Target::hardware(90).unwrap().with_budget(File::R, budget);
            let function = generate::function(&shape, &target, &mut rng);
            let liveness = Liveness::compute(&function);
            let pipeline = Pipeline::new(&function, &liveness, &target, &options, &scratch);
            let colourer = &mut *colour::colourer(&options);
            for (number, &way) in ways.iter().enumerate() {
                let Ok(base) = pipeline.prepare(way.hoist) else {
                    continue;
                };
                let Ok(candidate) = pipeline.attempt(&base, way, colourer) else {
                    continue;
                };
                let allocation = candidate.allocation;
                let name = format!("{}, attempt {number} at {seed}", strategy.name());
                check::check(&function, &target, &allocation)
                    .unwrap_or_else(|violation| panic!("{name}: {violation}"));
                let limits = check::trace::Limits::default();
                check::trace::compare(&function, &target, &allocation, limits, seed)
                    .unwrap_or_else(|difference| panic!("{name}: {difference}"));
                proved[number] += !allocation.stats.fell_back as u32;
            }
        }
        assert!(proved.iter().all(|&count| count > 100), "{proved:?}");
    }
}

/// So a function that must spill needs no second look with values computed at their readers.
#[test]
fn what_must_be_in_memory_is_not_saved_by_computing_other_values_again() {
    let options = Options::with_strategy(Strategy::Briggs);
    let scratch = Scratch::default();
    let mut rng = Rng::new(43);
    let mut changed = 0;
    for seed in 0..400 {
        let shape = Shape::random(200, &mut rng);
        let budget = [6, 8, 12, 16][rng.below(4)];
        let target = Target::hardware(90).unwrap().with_budget(File::R, budget);
        let function = generate::function(&shape, &target, &mut rng);
        let liveness = Liveness::compute(&function);
        let pipeline = Pipeline::new(&function, &liveness, &target, &options, &scratch);
        let Ok(base) = pipeline.prepare(true) else {
            continue;
        };
        let Some(rematerialised) = pipeline.rematerialised(&base) else {
            continue;
        };
        for positions in [Positions::Boundaries, Positions::All] {
            let stats = &mut Stats::default();
            if must_spill(&base.problem, positions, stats) {
                assert!(
                    must_spill(&rematerialised.problem, positions, stats),
                    "{seed}"
                );
                changed += 1;
            }
        }
    }
    assert!(changed > 20, "{changed}");
}

/// `count` values that are all live at once.
fn crowd(count: usize) -> Function {
    let lines = (0..count).map(|i| format!("    v{i}:r32 = load : read\n"));
    let uses = (0..count).map(|i| format!("    store v{i} : write\n"));
    let code: String = lines.chain(uses).collect();
    let text =
        format!("target cicc sm_80\nkernel crowd {{\nblock0:\n{code}    exit : exit write\n}}\n");
    crate::text::parse(&text).unwrap().function
}

/// The registers of the frame's address are taken only where there is a frame.
#[test]
fn a_frame_base_costs_registers_where_something_is_spilled() {
    let target = Target::cicc();
    let highest = |count: usize| {
        let options = Options {
            frame_base: 2,
            schedule: false,
            ..Options::default()
        };
        let function = crowd(count);
        let allocation = crate::allocate(&function, &target, &options).unwrap();
        let touched = allocation.touched(&function, &target);
        let highest = touched.registers(&target, File::R).last();
        (highest, allocation.frame.local > 0)
    };
    assert_eq!(highest(15), (Some(14), false));
    assert_eq!(highest(16), (Some(12), true));
}

/// Shared memory holds no frame of a function that calls, whatever the strategy.
#[test]
fn naive_does_not_spill_to_shared_memory_beside_calls() {
    let case = crate::text::parse(
        "target hardware sm_90
         kernel f {
         block0:
             v0:r32 = load : read
             call : call write clobbers abi
             store v0 : write
             exit : exit write
         }",
    )
    .unwrap();
    let allocate = |spill_space| {
        let options = Options {
            spill_space,
            ..Options::with_strategy(Strategy::Naive)
        };
        crate::allocate(&case.function, &case.target, &options)
    };
    assert!(allocate(Space::Local).is_ok());
    let error = allocate(Space::Shared).unwrap_err().to_string();
    assert!(error.contains("cannot spill to shared memory"), "{error}");
}

/// Where a walk over the blocks inserts nothing but moves that are needed, clean-up is passed
/// over, since it would leave them as they are.
#[test]
fn what_clean_up_passes_over_is_clean() {
    let options = Options::with_strategy(Strategy::Scan);
    let target = Target::hardware(90).unwrap();
    let scratch = Scratch::default();
    let mut rng = Rng::new(5);
    let mut passed_over = 0;
    for seed in 0..2_000 {
        let shape = Shape {
            blocks: 6,
            loop_depth: 2,
            params: true,
            ..Shape::straight(30)
        };
        let function = generate::function(&shape, &target, &mut rng);
        let liveness = Liveness::compute(&function);
        let pipeline = Pipeline::new(&function, &liveness, &target, &options, &scratch);
        let mut stats = pipeline.stats();
        let scan = pipeline.scan(None, &mut stats).unwrap().unwrap();
        let walk = scan.walk(Ok(Space::Local), &mut stats);
        let Ok(Walk::Done(allocation, inserted @ Inserted::Needed)) = walk else {
            continue;
        };
        let is_empty = allocation.edits.is_empty();
        if is_empty || cleanup::has_work(&function, &allocation, inserted) {
            continue;
        }
        let mut code = Code::new(&function, &target, &allocation, &scratch);
        let counts = cleanup::run(&mut code, cleanup::ROUNDS);
        assert_eq!(counts, CleanupCounts::default(), "at {seed}");
        passed_over += 1;
    }
    assert!(passed_over > 20, "{passed_over}");
}

/// The same where values are spilled: seldom is there a reload of what a register holds.
#[test]
fn what_clean_up_passes_over_where_values_are_spilled_is_clean() {
    let options = Options::with_strategy(Strategy::Scan);
    let scratch = Scratch::default();
    let mut rng = Rng::new(6);
    let (mut passed_over, mut found) = (0, 0);
    for _ in 0..10_000 {
        let shape = Shape {
            blocks: 6,
            loop_depth: 2,
            params: true,
            remat: false,
            ..Shape::straight(30)
        };
        let target = Target::hardware(90).unwrap();
        let target = target.with_budget(File::R, 4 + rng.below(5));
        let function = generate::function(&shape, &target, &mut rng);
        let liveness = Liveness::compute(&function);
        let pipeline = Pipeline::new(&function, &liveness, &target, &options, &scratch);
        let mut stats = pipeline.stats();
        let scan = pipeline.scan(None, &mut stats).unwrap().unwrap();
        let walk = scan.walk(Ok(Space::Local), &mut stats);
        let Ok(Walk::Done(allocation, inserted @ Inserted::Needed)) = walk else {
            continue;
        };
        let touches_memory = allocation.edits.touch_memory();
        if !touches_memory || cleanup::has_work(&function, &allocation, inserted) {
            continue;
        }
        let mut code = Code::new(&function, &target, &allocation, &scratch);
        let counts = cleanup::run(&mut code, cleanup::ROUNDS);
        found += u32::from(counts != CleanupCounts::default());
        passed_over += 1;
    }
    assert!(passed_over > 100, "{passed_over}");
    assert!(20 * found < passed_over, "{found} of {passed_over}");
}

/// The same of what colouring leaves.
#[test]
fn what_clean_up_passes_over_after_colouring_is_clean() {
    let target = Target::hardware(90).unwrap();
    let scratch = Scratch::default();
    for strategy in [Strategy::Briggs, Strategy::Fatpoint] {
        let options = Options {
            cleanup: false,
            ..Options::with_strategy(strategy)
        };
        let mut rng = Rng::new(5);
        let mut passed_over = 0;
        for seed in 0..2_000 {
            let shape = Shape {
                blocks: 6,
                loop_depth: 2,
                params: true,
                ..Shape::straight(30)
            };
            let target = target.clone().with_budget(File::R, 6 + rng.below(20));
            let function = generate::function(&shape, &target, &mut rng);
            let liveness = Liveness::compute(&function);
            let pipeline = Pipeline::new(&function, &liveness, &target, &options, &scratch);
            let colourer = &mut *colour::colourer(&options);
            let allocation = pipeline.run(colourer).unwrap();
            let inserted = pipeline.inserted(&allocation);
            let is_empty = allocation.edits.is_empty();
            if is_empty || cleanup::has_work(&function, &allocation, inserted) {
                continue;
            }
            let mut code = Code::new(&function, &target, &allocation, &scratch);
            let counts = cleanup::run(&mut code, cleanup::ROUNDS);
            assert_eq!(counts, CleanupCounts::default(), "{strategy} at {seed}");
            passed_over += 1;
        }
        assert!(passed_over > 20, "{passed_over}");
    }
}

/// The number of values counts, not the greatest of their names.
#[test]
fn values_live_through_calls_are_counted() {
    let case = crate::text::parse(
        "target hardware sm_90
         kernel f {
         block0:
             v0:r32 = a
             v1:r32 = b
             v2:r32 = c
             call v0 @ R0 : call write clobbers abi
             st v2 : write
             exit : exit write
         }",
    )
    .unwrap();
    for strategy in Strategy::ALL {
        let options = Options::with_strategy(strategy);
        let allocation = crate::allocate(&case.function, &case.target, &options).unwrap();
        assert_eq!(allocation.stats.live_through_calls, 1, "{strategy}");
    }
}
