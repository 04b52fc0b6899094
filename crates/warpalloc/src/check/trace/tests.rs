use super::*;
use crate::allocation::{Edit, Edits};
use crate::function::{Inst, Operand};
use crate::generate::{self, Rng, Shape};
use crate::{Options, Strategy};
use cranelift_entity::EntityRef;

fn some_function(seed: u64) -> (Function, Target, Allocation) {
    let target = Target::hardware(90).unwrap();
    let function = generate::function(&Shape::small(), &target, &mut Rng::new(seed));
    let allocation =
        crate::allocate(&function, &target, &Options::with_strategy(Strategy::Naive)).unwrap();
    (function, target, allocation)
}

#[test]
fn runs_are_reproducible_and_depend_on_the_seed() {
    let (function, target, _) = some_function(3);
    let run = |seed| run_original(&function, &target, Limits::default(), seed);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!(!run(1).events.is_empty());
}

#[test]
fn both_sides_leave_the_same_trace() {
    for seed in 0..50 {
        let (function, target, allocation) = some_function(seed);
        let limits = Limits::default();
        let before = run_original(&function, &target, limits, seed);
        let after = run_allocated(&function, &target, &allocation, limits, seed).unwrap();
        assert_eq!(before, after);
    }
}

#[test]
fn a_lost_reload_is_traced_to_the_operand_that_read_garbage() {
    let (function, target, mut allocation) = some_function(3);
    let mut edits: Vec<_> = allocation
        .edits
        .iter()
        .map(|(p, e)| (p, e.clone()))
        .collect();
    edits.retain(|(_, edit)| !matches!(edit, Edit::Reload { .. }));
    allocation.edits = Edits::new(&function, edits);
    let difference = compare(&function, &target, &allocation, Limits::default(), 1).unwrap_err();
    assert!(
        matches!(difference.what, What::Input { .. }),
        "{difference}"
    );
}

#[test]
fn a_lost_write_is_an_event_too_few() {
    let (function, target, mut allocation) = some_function(3);
    let trace = run_original(&function, &target, Limits::default(), 1);
    // The last one, so that no later read of state gives it away before.
    let is_write = |inst: &Inst| {
        let no_result = |o: &Operand| !o.role.writes();
        let plain = !function.inst(*inst).kind.is_terminator();
        plain && function.operands(*inst).iter().all(no_result)
    };
    let write = trace.events.iter().rev().map(|e| e.inst).find(is_write);
    allocation.deleted.insert(write.unwrap());
    let difference = compare(&function, &target, &allocation, Limits::default(), 1).unwrap_err();
    assert!(
        matches!(difference.what, What::Event { .. }),
        "{difference}"
    );
}

#[test]
fn nonsense_is_refused_rather_than_run() {
    let (function, target, allocation) = some_function(3);
    let refused = |allocation: &Allocation| {
        let limits = Limits::default();
        let outcome = run_allocated(&function, &target, allocation, limits, 1);
        matches!(outcome.unwrap_err().what, What::Malformed(_))
    };
    let mut short = allocation.clone();
    short.registers.pop();
    assert!(refused(&short));
    let mut order = allocation.clone();
    order.order = Some(vec![Inst::new(0); function.inst_count()]);
    assert!(refused(&order));
    let mut endless = allocation;
    endless
        .deleted
        .insert(function.terminator(function.entry()));
    assert!(refused(&endless));
}
