//! An allocator that was used before takes less memory from the heap, and decides as a fresh
//! one does.

use allocation_counter::{AllocationInfo, measure};
use warpalloc::function::Function;
use warpalloc::generate::{self, Rng, Shape};
use warpalloc::target::{File, Target};
use warpalloc::{Allocation, Allocator, Options, Strategy};

/// What the first and the second allocation of a function take from the heap.
fn first_and_second(strategy: Strategy, registers: usize) -> [AllocationInfo; 2] {
    let target = Target::hardware(90).unwrap();
    let target = target.with_budget(File::R, registers);
    let shape = Shape {
        pressure: 60,
        ..Shape::straight(3000)
    };
    let function = generate::function(&shape, &target, &mut Rng::new(7));
    let options = Options::with_strategy(strategy);
    let mut allocator = Allocator::default();
    [(); 2].map(|()| {
        measure(|| {
            let allocation = allocator.allocate(&function, &target, &options);
            assert!(allocation.is_ok(), "{strategy}");
        })
    })
}

/// Bytes of the second allocation, in per cent of those of the first; without memory that is
/// kept they are the same.
#[test]
fn a_second_function_takes_less_from_the_heap() {
    let most = [
        (Strategy::Naive, 90),
        (Strategy::Briggs, 60),
        (Strategy::Fatpoint, 80),
        (Strategy::Scan, 75),
    ];
    for (strategy, most) in most {
        let [first, second] = first_and_second(strategy, 255);
        let share = 100 * second.bytes_total / first.bytes_total;
        assert!(share <= most, "{strategy}: {share} %");
        assert!(second.count_total < first.count_total, "{strategy}");
    }
    // Attempts of one function leave memory to each other, too.
    let [first, second] = first_and_second(Strategy::Briggs, 24);
    assert!(100 * second.bytes_total <= 85 * first.bytes_total);
}

fn same(a: &Allocation, b: &Allocation) -> bool {
    let parts = |allocation: &Allocation| {
        (
            allocation.registers.clone(),
            allocation.memory.clone(),
            allocation.edits.clone(),
            allocation.order.clone(),
            allocation.frame,
        )
    };
    parts(a) == parts(b) && a.deleted.iter().eq(b.deleted.iter())
}

/// Memory that is larger than a function needs, or smaller, has no influence on it.
#[test]
fn memory_left_over_from_other_functions_changes_no_result() {
    let hardware = Target::hardware(90).unwrap();
    let mut used = Allocator::default();
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let target = hardware.clone().with_budget(File::R, 24 + rng.below(60));
        let insts = 1 + rng.below(200);
        let shape = Shape::random(insts, &mut rng);
        let function: Function = generate::function(&shape, &target, &mut rng);
        for strategy in Strategy::ALL {
            let options = Options::with_strategy(strategy);
            let [used, fresh] = [&mut used, &mut Allocator::default()]
                .map(|allocator| allocator.allocate(&function, &target, &options));
            match (used, fresh) {
                (Ok(used), Ok(fresh)) => assert!(same(&used, &fresh), "{strategy}, seed {seed}"),
                (used, fresh) => assert_eq!(used.err(), fresh.err(), "{strategy}, seed {seed}"),
            }
        }
    }
}
