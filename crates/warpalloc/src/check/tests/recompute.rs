//! Instructions that are executed again.

use super::*;

/// `c = const; x = load; y = add x, c; store y, c`: operands c x y x c y c.
fn with_constant() -> Builder {
    let mut b = Builder::new("remat");
    let entry = b.block();
    let (c, x, y) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "const").def(c).imm(7).remat(1);
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "add").def(y).use_(x).use_(c).remat(2);
    b.inst(entry, "store").use_(y).use_(c).effect(Effect::Write);
    b.exit(entry, "exit");
    b
}

#[test]
fn recomputation_yields_the_current_value_from_current_inputs() {
    let registers = "R0 R1 R2 R1 R3 R2 R4";
    Case::new(with_constant(), registers)
        .delete(0)
        .edit(before(2), again(0, &["R3"]))
        .edit(before(3), again(0, &["R4"]))
        .accepted();
    Case::new(with_constant(), "R0 R1 R2 R1 R0 R5 R0")
        .edit(before(3), again(2, &["R5", "R1", "R0"]))
        .accepted();
    Case::new(with_constant(), "R0 R1 R2 R1 R0 R5 R0")
        .edit(before(3), again(2, &["R5", "R0", "R1"]))
        .says("not in R0, which holds v0");
    Case::new(with_constant(), "R0 R1 R2 R1 R0 R2 R0")
        .edit(before(3), again(1, &["R5"]))
        .says("inst1 may not be executed again");
    Case::new(with_constant(), "R0 R1 R2 R1 R0 R2 R0")
        .edit(before(3), again(0, &["P0"]))
        .says("P0 is no register of class r32");
}

#[test]
fn a_recomputation_ends_with_its_inputs() {
    let mut b = Builder::new("stale");
    let (entry, next) = (b.block(), b.block());
    let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "add").def(y).use_(x).remat(2);
    b.inst(entry, "inc").use_def(x);
    b.jump(entry, next, &[]);
    b.inst(next, "store").use_(y).use_(x).effect(Effect::Write);
    b.exit(next, "exit");
    Case::new(b, "R0 R1 R0 R0 R2 R0")
        .edit(before(4), again(1, &["R2", "R0"]))
        .says("inst1 would not compute the current value");
}

#[test]
fn an_input_may_be_kept_alive_to_recompute() {
    let mut b = Builder::new("kept");
    let (entry, next) = (b.block(), b.block());
    let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "add").def(y).use_(x).remat(2);
    b.jump(entry, next, &[]);
    b.inst(next, "store").use_(y).effect(Effect::Write);
    b.exit(next, "exit");
    Case::new(b, "R0 R1 R0 R2")
        .delete(1)
        .edit(before(3), again(1, &["R2", "R0"]))
        .accepted();
}
