//! Generated functions are valid, deterministic and of the shape asked for.

use super::*;
use crate::function::{Kind, Role};
use crate::target::{Class, File};

fn targets() -> Vec<Target> {
    let hardware = || Target::hardware(90).unwrap();
    let mut targets = vec![
        Target::cicc(),
        hardware(),
        Target::hardware_packed(80).unwrap(),
    ];
    for registers in [4, 5, 8, 13, 32, 100] {
        targets.push(hardware().with_budget(File::R, registers));
        targets.push(Target::cicc().with_budget(File::R, registers));
    }
    targets.push(hardware().with_budget(File::R, 4).with_budget(File::P, 2));
    targets
}

#[test]
fn ten_thousand_functions_are_valid() {
    let targets = targets();
    let mut rng = Rng::new(1);
    for number in 0..10_000 {
        let shape = Shape::random(60, &mut rng);
        let target = &targets[number % targets.len()];
        let function = super::function(&shape, target, &mut rng);
        assert_eq!(function.validate(target), Ok(()), "{number}: {shape:?}");
    }
}

#[test]
fn the_presets_are_valid_on_every_target() {
    for target in targets() {
        for shape in [
            Shape::straight(50),
            Shape::small(),
            Shape::typical(),
            Shape::pressure(100),
            Shape::large(2000),
            Shape::everything(),
        ] {
            let function = super::function(&shape, &target, &mut Rng::new(2));
            assert_eq!(function.validate(&target), Ok(()), "{shape:?}");
        }
    }
}

#[test]
fn any_bytes_make_a_valid_function() {
    let target = Target::cicc();
    for first in 0..=255 {
        let bytes = [first, first ^ 0x5a, 3, 255, 0, first];
        let mut rng = Rng::from_bytes(&bytes);
        let shape = Shape::random(100, &mut rng);
        let function = super::function(&shape, &target, &mut rng);
        assert_eq!(function.validate(&target), Ok(()));
    }
}

#[test]
fn equal_seeds_make_equal_functions() {
    let target = Target::cicc();
    let make = |seed| super::function(&Shape::everything(), &target, &mut Rng::new(seed));
    assert_eq!(make(5), make(5));
    assert_ne!(make(5), make(6));
}

#[test]
fn size_follows_the_shape() {
    let target = Target::hardware(90).unwrap();
    let function = super::function(&Shape::large(20_000), &target, &mut Rng::new(3));
    let (insts, blocks) = (function.inst_count(), function.block_count());
    assert!((18_000..22_000).contains(&insts), "{insts}");
    assert!((1_900..2_100).contains(&blocks), "{blocks}");
}

/// The most values of the general file alive at once in straight code, in registers.
fn straight_pressure(function: &Function, target: &Target) -> usize {
    let mut alive = std::collections::BTreeSet::new();
    let mut most = 0;
    for inst in function.insts().rev() {
        for operand in function.operands(inst) {
            if operand.role.writes() {
                alive.remove(&operand.vreg);
            }
        }
        for operand in function.operands(inst) {
            if operand.role.reads() {
                alive.insert(operand.vreg);
            }
        }
        let classes = alive.iter().map(|&v| function.vreg(v).class);
        let general = classes.filter(|&c| target.class(c).file == File::R);
        most = most.max(general.map(|c| target.width(c)).sum());
    }
    most
}

#[test]
fn pressure_follows_the_shape() {
    let target = Target::hardware(90).unwrap();
    for wanted in [10, 50, 200] {
        let shape = Shape {
            blocks: 1,
            ..Shape::pressure(wanted)
        };
        let function = super::function(&shape, &target, &mut Rng::new(4));
        let got = straight_pressure(&function, &target);
        // A matrix instruction or a tensor tuple stands out of any window.
        let expected = wanted * 3 / 4..=wanted * 5 / 4 + 24;
        assert!(expected.contains(&got), "{wanted}: {got}");
    }
}

#[test]
fn everything_has_everything() {
    let target = Target::hardware(90).unwrap();
    let shape = Shape {
        insts: 4000,
        blocks: 200,
        ..Shape::everything()
    };
    let f = super::function(&shape, &target, &mut Rng::new(5));
    let any_operand = |wanted: &dyn Fn(&crate::function::Operand) -> bool| {
        f.insts().any(|inst| f.operands(inst).iter().any(wanted))
    };
    use crate::function::{Clobbers, Constraint};
    assert!(any_operand(&|o| o.role == Role::UseDef));
    assert!(any_operand(&|o| o.role == Role::EarlyDef));
    assert!(any_operand(&|o| matches!(
        o.constraint,
        Constraint::Fixed(_)
    )));
    assert!(any_operand(&|o| matches!(
        o.constraint,
        Constraint::Tied(_)
    )));
    assert!(any_operand(&|o| matches!(
        o.constraint,
        Constraint::Except(_)
    )));
    assert!(f.insts().any(|i| !f.groups(i).is_empty()));
    assert!(f.insts().any(|i| f.inst(i).kind == Kind::Call));
    assert!(f.insts().any(|i| f.inst(i).kind == Kind::Undef));
    assert!(f.live_ins().count() > 0);
    assert!(
        f.insts()
            .any(|i| f.inst(i).kind == Kind::Copy && f.operands(i).len() > 2)
    );
    assert!(f.insts().any(|i| f.inst(i).remat.is_some()));
    assert!(
        f.insts()
            .any(|i| matches!(f.inst(i).clobbers, Clobbers::List(_)))
    );
    assert!(f.blocks().any(|b| f.block(b).params.len() > 1));
    assert!(f.vregs().any(|v| f.vreg(v).pinned));
    assert!(any_operand(
        &|o| f.vreg(o.vreg).pinned && o.constraint != Constraint::Any
    ));
    for (class, info) in target.classes() {
        let used = f.vregs().any(|v| f.vreg(v).class == class);
        assert!(used, "no {}", info.name);
    }
    assert!(
        f.vregs()
            .any(|v| f.vreg(v).uniform && f.vreg(v).class == Class::R32)
    );
}
