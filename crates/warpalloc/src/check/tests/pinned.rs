//! Values that the hardware reads and writes at a time of its own.

use super::*;

#[test]
fn pinned_values_stay_put_while_they_live() {
    let build = || {
        let mut b = Builder::new("pinned");
        let entry = b.block();
        let x = b.vreg(Class::R32);
        b.pin(x);
        b.inst(entry, "async").def(x).effect(Effect::Write);
        b.inst(entry, "wait").use_(x).effect(Effect::Write);
        b.exit(entry, "exit");
        b
    };
    Case::new(build(), "R0 R0").accepted();
    Case::new(build(), "R0 R1")
        .edit(before(1), mov("R1", "R0", 1))
        .says("v0 part 0: the value is pinned and live, but R0 is read");
    Case::new(build(), "R0 R0")
        .edit(after(1), mov("R1", "R0", 1))
        .accepted();
}

/// `y` is computed again between where `x` is handed over and where it is waited for.
#[test]
fn nothing_is_computed_again_from_a_pinned_value_while_it_lives() {
    let mut b = Builder::new("pinned");
    let entry = b.block();
    let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.pin(x);
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "scale").def(y).use_(x).remat(1);
    b.inst(entry, "async").use_(x).effect(Effect::Write);
    b.inst(entry, "store").use_(y).effect(Effect::Write);
    b.inst(entry, "wait").use_(x).effect(Effect::Write);
    b.exit(entry, "exit");
    let case = |stored| Case::new(b.clone(), &format!("R0 R1 R0 R0 {stored} R0"));
    case("R1").accepted();
    case("R2")
        .edit(before(3), again(1, &["R2", "R0"]))
        .says("v0 part 0: the value is pinned and live, but R0 is read");
}

/// `x` becomes the pinned `p` in place: from there on it is only where else it was kept.
#[test]
fn what_a_pinned_value_was_copied_from_is_not_read_in_its_register() {
    let mut b = Builder::new("pinned");
    let entry = b.block();
    let (x, p) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.pin(p);
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.copy(entry, p, x);
    b.inst(entry, "async").use_(p).effect(Effect::Write);
    b.inst(entry, "store").use_(x).effect(Effect::Write);
    b.inst(entry, "wait").use_(p).effect(Effect::Write);
    b.exit(entry, "exit");
    let case = |stored| Case::new(b.clone(), &format!("R0 R0 R0 R0 {stored} R0")).delete(1);
    case("R0").says("v0 part 0: not in R0, which holds v1");
    let kept = || case("R1").edit(after(0), mov("R2", "R0", 1));
    kept().edit(before(3), mov("R1", "R2", 1)).accepted();
    kept()
        .edit(before(3), mov("R1", "R0", 1))
        .says("v0 part 0: not in R1, which holds v1");
}

/// The instruction that waits for the hardware need not name what it waits for.
#[test]
fn a_new_order_reads_pinned_values_no_earlier() {
    let mut b = Builder::new("wait");
    let entry = b.block();
    let (x, y, z) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::R32));
    b.pin(x);
    b.inst(entry, "async").def(x).effect(Effect::Write);
    b.inst(entry, "wait").effect(Effect::Write);
    b.inst(entry, "a").def(y).use_(x);
    b.inst(entry, "b").def(z);
    b.inst(entry, "store").use_(y).use_(z).effect(Effect::Write);
    b.exit(entry, "exit");
    let case = || {
        let function = b.clone();
        Case::new(function, "R0 R1 R0 R2 R1 R2")
    };
    case().order(&[0, 3, 1, 2, 4, 5]).accepted();
    case()
        .order(&[0, 2, 1, 3, 4, 5])
        .says("inst2: the new order moves it across a write");
}
