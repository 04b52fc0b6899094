//! Instructions that are computed ahead of themselves, as code hoisted out of loops is.

use super::*;
use crate::check::trace;

impl Case {
    /// Proved, and the same when executed.
    fn proved(self) {
        for seed in 0..20 {
            if let Err(difference) = self.run(seed) {
                panic!("{difference}");
            }
        }
        self.accepted();
    }

    /// Refused with these words, and rightly so.
    fn harmful(self, words: &str) {
        assert!((0..20).any(|seed| self.run(seed).is_err()), "harmless");
        self.says(words);
    }

    fn run(&self, seed: u64) -> Result<(), Box<trace::Difference>> {
        let mut allocation = self.allocation.clone();
        allocation.edits = Edits::new(&self.function, self.edits.clone());
        let limits = trace::Limits::default();
        trace::compare(&self.function, &self.target, &allocation, limits, seed)
    }
}

/// `x = load; loop: c = scale x; d = bias c; store d; branch loop or out; out: store c`.
/// Instructions 2 and 3 are the invariants; operands are x, c x, d c, d, c.
fn invariant() -> Builder {
    let mut b = Builder::new("invariant");
    let (entry, head, out) = (b.block(), b.block(), b.block());
    let (x, c, d) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.jump(entry, head, &[]);
    b.inst(head, "scale").def(c).use_(x).remat(3);
    b.inst(head, "bias").def(d).use_(c).remat(1);
    b.inst(head, "store").use_(d).effect(Effect::Write);
    b.edge(head, head, &[]);
    b.edge(head, out, &[]);
    b.branch(head, "br");
    b.inst(out, "store").use_(c).effect(Effect::Write);
    b.exit(out, "exit");
    b
}

const PLACES: &str = "R0 R1 R0 R2 R1 R2 R1";

fn hoisted() -> Case {
    Case::new(invariant(), PLACES).delete(2).delete(3)
}

#[test]
fn an_invariant_is_computed_before_the_loop() {
    Case::new(invariant(), PLACES)
        .delete(2)
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .proved();
    // Also right before the jump, and also if the loop computes it nevertheless.
    Case::new(invariant(), PLACES)
        .delete(2)
        .edit(before(1), again(2, &["R1", "R0"]))
        .proved();
    Case::new(invariant(), PLACES)
        .edit(before(1), again(2, &["R1", "R0"]))
        .proved();
}

#[test]
fn invariants_of_invariants_follow() {
    hoisted()
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .edit(edge(0, 0), again(3, &["R2", "R1"]))
        .proved();
    hoisted()
        .edit(edge(0, 0), again(3, &["R2", "R1"]))
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .harmful("R1 holds nothing known");
}

#[test]
fn what_is_computed_ahead_may_travel_and_be_computed_again() {
    let elsewhere = "R0 R1 R0 R2 R1 R2 R5";
    Case::new(invariant(), elsewhere)
        .delete(2)
        .delete(3)
        .edit(edge(0, 0), again(2, &["R4", "R0"]))
        .edit(edge(0, 0), again(3, &["R2", "R4"]))
        .edit(edge(0, 0), store(-4, "R4", 1))
        .edit(before(6), reload("R5", -4, 1))
        .proved();
    hoisted()
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .edit(before(4), again(2, &["R3", "R0"]))
        .edit(before(4), again(3, &["R2", "R3"]))
        .proved();
}

#[test]
fn a_deleted_instruction_must_have_been_computed() {
    Case::new(invariant(), PLACES)
        .delete(2)
        .harmful("v1 part 0: not in R1");
    // Only the instruction itself will do, on its own input.
    hoisted()
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .edit(edge(0, 0), again(2, &["R2", "R1"]))
        .harmful("v2 part 0: not in R2");
    hoisted()
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .edit(edge(0, 0), again(3, &["R2", "R0"]))
        .harmful("v2 part 0: not in R2");
}

#[test]
fn what_was_computed_ahead_must_survive_the_loop() {
    Case::new(invariant(), PLACES)
        .delete(2)
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .edit(before(5), mov("R1", "R2", 1))
        .harmful("not in R1");
}

#[test]
fn an_input_that_changes_is_noticed() {
    let changing = || {
        let mut b = Builder::new("changing");
        let (entry, head, out) = (b.block(), b.block(), b.block());
        let (x, c) = (b.vreg(Class::R32), b.vreg(Class::R32));
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.jump(entry, head, &[]);
        b.inst(head, "scale").def(c).use_(x).remat(3);
        b.inst(head, "store").use_(c).effect(Effect::Write);
        b.inst(head, "inc").use_def(x);
        b.edge(head, head, &[]);
        b.edge(head, out, &[]);
        b.branch(head, "br");
        b.exit(out, "exit");
        Case::new(b, "R0 R1 R0 R1 R0").delete(2)
    };
    changing()
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .harmful("v1 part 0: not in R1");
    // Computing it again wherever the input changed is right.
    changing()
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .edit(edge(1, 0), again(2, &["R1", "R0"]))
        .proved();
    // Before the change is not.
    changing()
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .edit(before(4), again(2, &["R1", "R0"]))
        .harmful("v1 part 0: not in R1");
}

#[test]
fn not_above_the_definition_of_an_input() {
    let mut b = Builder::new("above");
    let (entry, head, out) = (b.block(), b.block(), b.block());
    let (x, c) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "inc").use_def(x);
    b.jump(entry, head, &[]);
    b.inst(head, "scale").def(c).use_(x).remat(3);
    b.inst(head, "store").use_(c).effect(Effect::Write);
    b.edge(head, head, &[]);
    b.edge(head, out, &[]);
    b.branch(head, "br");
    b.exit(out, "exit");
    let case = |b: Builder| Case::new(b, "R0 R0 R1 R0 R1").delete(3);
    case(b)
        .edit(before(1), again(3, &["R1", "R0"]))
        .harmful("v1 part 0: not in R1");
}

/// A loop that is entered along two edges, each of which gives its input a value.
fn two_ways_in(again_left: &[&str], again_right: Option<&[&str]>) -> Case {
    let mut b = Builder::new("ways");
    let (entry, left, right) = (b.block(), b.block(), b.block());
    let (head, out) = (b.block(), b.block());
    let (x, y, c) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "load").def(y).imm(1).effect(Effect::Read);
    b.edge(entry, left, &[]);
    b.edge(entry, right, &[]);
    b.branch(entry, "br");
    b.jump(left, head, &[]);
    b.inst(right, "inc").use_def(x);
    b.jump(right, head, &[]);
    b.inst(head, "scale").def(c).use_(x).remat(3);
    b.inst(head, "store").use_(c).use_(y).effect(Effect::Write);
    b.edge(head, head, &[]);
    b.edge(head, out, &[]);
    b.branch(head, "br");
    b.exit(out, "exit");
    let case = Case::new(b, "R0 R3 R0 R1 R0 R1 R3").delete(6);
    let case = case.edit(edge(1, 0), again(6, again_left));
    match again_right {
        Some(regs) => case.edit(edge(2, 0), again(6, regs)),
        None => case,
    }
}

#[test]
fn every_way_into_the_loop_computes_it() {
    two_ways_in(&["R1", "R0"], Some(&["R1", "R0"])).proved();
    two_ways_in(&["R1", "R0"], None).harmful("v2 part 0: not in R1");
    // Places match, but on one way the input was another value.
    two_ways_in(&["R1", "R0"], Some(&["R1", "R3"])).harmful("v2 part 0: not in R1");
    two_ways_in(&["R1", "R0"], Some(&["R2", "R0"])).harmful("v2 part 0: not in R1");
}

#[test]
fn an_edge_tells_its_neighbour_nothing() {
    let mut b = Builder::new("neighbours");
    let (entry, left, right) = (b.block(), b.block(), b.block());
    let (x, c) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.edge(entry, left, &[]);
    b.edge(entry, right, &[]);
    b.branch(entry, "br");
    b.exit(left, "exit");
    b.inst(right, "scale").def(c).use_(x).remat(3);
    b.inst(right, "store").use_(c).effect(Effect::Write);
    b.exit(right, "exit");
    Case::new(b, "R0 R1 R0 R1")
        .delete(3)
        .edit(edge(0, 0), again(3, &["R1", "R0"]))
        .harmful("v1 part 0: not in R1");
}

#[test]
fn pinned_results_are_computed_where_they_stand() {
    let mut b = invariant();
    let c = b.finish().vregs().nth(1).unwrap();
    b = invariant();
    b.vreg_mut(c).pinned = true;
    Case::new(b, PLACES)
        .delete(2)
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .says("inst2 would not compute the current value");
}
