//! What cannot be allocated is refused with the value, the place and what would help.

use warpalloc::function::{Builder, Effect, Function, VReg};
use warpalloc::target::{Class, File, Target};
use warpalloc::{Options, Strategy};

fn refusal(function: &Function, target: &Target) -> String {
    let options = Options::with_strategy(Strategy::Briggs);
    match warpalloc::allocate(function, target, &options) {
        Ok(_) => panic!("allocated"),
        Err(error) => error.to_string(),
    }
}

/// An instruction with `count` results in R0, R1, and so on, all needed at once.
fn fixed(count: usize) -> Function {
    let target = Target::hardware(90).unwrap();
    let mut b = Builder::new("fixed");
    let block = b.block();
    let values: Vec<VReg> = (0..count).map(|_| b.vreg(Class::R32)).collect();
    let mut inst = b.inst(block, "asm").effect(Effect::Write);
    for (i, &v) in values.iter().enumerate() {
        inst = inst.def_fixed(v, target.reg_named(&format!("R{i}")).unwrap());
    }
    let mut inst = b.inst(block, "use").effect(Effect::Write);
    for &v in &values {
        inst = inst.use_(v);
    }
    b.exit(block, "exit");
    b.finish()
}

fn grouped(count: usize) -> Function {
    let mut b = Builder::new("grouped");
    let block = b.block();
    let values: Vec<VReg> = (0..count).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.inst(block, "load").def(v).effect(Effect::Write);
    }
    let mut mma = b.inst(block, "mma").effect(Effect::Write);
    for &v in &values {
        mma = mma.use_(v);
    }
    mma.group(0, count as u8, 8);
    b.exit(block, "exit");
    b.finish()
}

/// More quads alive at once than a frame has room for.
fn quads(count: usize) -> Function {
    let mut b = Builder::new("quads");
    let block = b.block();
    let values: Vec<VReg> = (0..count).map(|_| b.vreg(Class::R128)).collect();
    for &v in &values {
        b.inst(block, "produce").def(v).effect(Effect::Write);
    }
    for &v in &values {
        b.inst(block, "consume").use_(v).effect(Effect::Write);
    }
    b.exit(block, "exit");
    b.finish()
}

fn with_registers(count: usize) -> Target {
    Target::hardware(90).unwrap().with_budget(File::R, count)
}

#[test]
fn a_register_fixed_outside_the_budget() {
    assert_eq!(
        refusal(&fixed(10), &with_registers(8)),
        "cannot allocate: block0, inst0: v8, fixed to R8, needs 9 registers of R, the budget \
         is 8; raise the budget of R to at least 9"
    );
}

#[test]
fn a_group_wider_than_the_budget() {
    assert_eq!(
        refusal(&grouped(8), &with_registers(6)),
        "cannot allocate: block0, inst8: the group of v0 needs 8 registers of R, the budget is \
         6; raise the budget of R to at least 8"
    );
}

#[test]
fn more_inputs_than_registers() {
    let mut b = Builder::new("wide");
    let block = b.block();
    let values: Vec<VReg> = (0..10).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.inst(block, "load").def(v).effect(Effect::Write);
    }
    let mut inst = b.inst(block, "use").effect(Effect::Write);
    for &v in &values {
        inst = inst.use_(v);
    }
    b.exit(block, "exit");
    assert_eq!(
        refusal(&b.finish(), &with_registers(8)),
        "cannot allocate: block0, inst10: what it reads needs 10 registers of R, the budget is \
         8; raise the budget of R to at least 10"
    );
}

#[test]
fn two_values_fixed_to_one_register() {
    let target = Target::hardware(90).unwrap();
    let r0 = target.reg_named("R0").unwrap();
    let mut b = Builder::new("twice");
    let block = b.block();
    let [x, y] = [0; 2].map(|_| b.vreg(Class::R32));
    b.inst(block, "load").def(x).def(y).effect(Effect::Write);
    b.inst(block, "use")
        .use_fixed(x, r0)
        .use_fixed(y, r0)
        .effect(Effect::Write);
    b.exit(block, "exit");
    assert_eq!(
        refusal(&b.finish(), &target),
        "invalid function: block0, inst1: v0 and v1 would share a register, R0"
    );
}

#[test]
fn a_frame_over_its_limit() {
    assert_eq!(
        refusal(&quads(4_110), &with_registers(16)),
        "cannot allocate: block0, inst4107: the spill frame, with v4107 in it, needs 65696 \
         bytes, 65536 is the limit; raise the register budget, or split the function"
    );
}
