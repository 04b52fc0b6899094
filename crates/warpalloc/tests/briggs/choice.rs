//! Who is spilled, and how many: no more values than pressure asks for, and in few rounds.

use warpalloc::function::{Builder, Effect, Function, VReg};
use warpalloc::generate::Rng;
use warpalloc::target::{Class, File, Target};
use warpalloc::{Allocation, Options, Strategy};

fn allocate(function: &Function, target: &Target) -> Allocation {
    let options = Options::with_strategy(Strategy::Briggs);
    warpalloc::allocate(function, target, &options).unwrap_or_else(|e| panic!("{e}"))
}

/// Values that are produced in turn and consumed in the given order; none may move.
fn consumed_in(class: Class, order: &[usize]) -> Function {
    let mut b = Builder::new("live_at_once");
    let block = b.block();
    let values: Vec<VReg> = order.iter().map(|_| b.vreg(class)).collect();
    for &v in &values {
        b.inst(block, "produce").def(v).effect(Effect::Write);
    }
    for &i in order {
        b.inst(block, "consume")
            .use_(values[i])
            .effect(Effect::Write);
    }
    b.exit(block, "exit");
    b.finish()
}

fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        order.swap(i, rng.below(i + 1));
    }
    order
}

/// Spilling the value that is produced last or consumed first frees no register where all
/// are alive: it is an operand there. So those two must stay.
#[test]
fn twenty_one_values_consumed_first_in_first_out_spill_six_as_well() {
    let order: Vec<usize> = (0..21).collect();
    let allocation = allocate(&consumed_in(Class::R32, &order), &Target::cicc());
    assert_eq!(allocation.stats.spilled, 6);
    assert_eq!(allocation.stats.iterations, 2);
}

/// Any six but those two do, so six always suffice, whatever the order.
#[test]
fn values_live_at_once_spill_no_more_than_the_excess_in_any_order() {
    let mut rng = Rng::new(21);
    for _ in 0..500 {
        let registers = 2 + rng.below(30);
        let count = registers + rng.below(20);
        let order = shuffled(count, &mut rng);
        let function = consumed_in(Class::R32, &order);
        let target = Target::hardware(90).unwrap();
        let target = target.with_budget(File::R, registers);
        let allocation = allocate(&function, &target);
        let excess = count - registers;
        assert_eq!(
            allocation.stats.spilled as usize, excess,
            "{registers} registers, {order:?}"
        );
        assert!(allocation.stats.iterations <= 2, "{order:?}");
    }
}
