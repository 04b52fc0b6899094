//! A few of the functions that the command allocates by the thousand.

use warpalloc::check::ValueLabel;
use warpalloc::check::trace::{self, Limits};
use warpalloc::function::{Constraint, Function, Role};
use warpalloc::{Allocator, Options, Strategy};
use warpalloc_regalloc2::{Machine, generate, translate};

fn functions(machine: &Machine, count: usize) -> impl Iterator<Item = Function> {
    let made = (0..).filter_map(generate);
    made.take(count).map(|func| translate(&func, machine))
}

/// Results are proved by `allocate`, and executed besides.
#[test]
fn every_strategy_allocates_them() {
    let machine = Machine::new().unwrap();
    let mut allocator = Allocator::default();
    for (number, function) in functions(&machine, 150).enumerate() {
        for strategy in Strategy::ALL {
            let options = Options::with_strategy(strategy);
            let allocation = allocator.allocate(&function, &machine.target, &options);
            let allocation = allocation.unwrap_or_else(|e| panic!("{number}, {strategy}: {e}"));
            let limits = Limits { blocks: 40 };
            trace::compare(&function, &machine.target, &allocation, limits, 1)
                .unwrap_or_else(|e| panic!("{number}, {strategy}: {e}"));
        }
    }
}

/// The generator is asked for every form, and every form arrives.
#[test]
fn every_form_occurs() {
    let machine = Machine::new().unwrap();
    let mut seen = [false; 7];
    for function in functions(&machine, 300) {
        for inst in function.insts() {
            let opcode = function.opcode_name(function.inst(inst).opcode);
            seen[0] |= opcode == "store";
            seen[1] |= opcode == "load";
            for operand in function.operands(inst) {
                seen[2] |= operand.role == Role::EarlyDef;
                seen[3] |= matches!(operand.constraint, Constraint::Fixed(_));
                seen[4] |= matches!(operand.constraint, Constraint::Tied(_));
                seen[5] |= matches!(operand.constraint, Constraint::Except(_));
                seen[6] |= operand.constraint == Constraint::Anywhere;
            }
        }
    }
    assert_eq!(seen, [true; 7]);
}

/// Every value is somewhere right before an instruction that reads it.
#[test]
fn values_can_be_located_where_they_are_read() {
    let machine = Machine::new().unwrap();
    let mut allocator = Allocator::default();
    for function in functions(&machine, 30) {
        let options = Options::default();
        let allocation = allocator.allocate(&function, &machine.target, &options);
        let allocation = allocation.unwrap();
        let mut labels = Vec::new();
        for inst in function
            .insts()
            .filter(|&i| !function.operands(i).is_empty())
        {
            let next = warpalloc::function::Inst::from_u32(inst.as_u32() + 1);
            for operand in function.operands(inst).iter().filter(|o| o.role.reads()) {
                labels.push(ValueLabel {
                    vreg: operand.vreg,
                    from: inst,
                    to: next,
                    label: labels.len() as u32,
                });
            }
        }
        let located = allocator
            .debug_locations(&function, &machine.target, &allocation, &labels)
            .unwrap();
        let mut found: Vec<u32> = located.iter().map(|l| l.label).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), labels.len());
    }
}
