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
    // Registers match, but on one path the input was another value.
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
    b.pin(c);
    Case::new(b, PLACES)
        .delete(2)
        .edit(edge(0, 0), again(2, &["R1", "R0"]))
        .says("inst2 would not compute the current value");
}

/// A copy of a pinned value shares its number, but before the hardware is done the
/// register has other contents.
#[test]
fn pinned_inputs_are_not_read_early_under_another_name() {
    let build = || {
        let mut b = Builder::new("wait");
        let entry = b.block();
        let (p, x, c) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::R32));
        b.pin(p);
        b.inst(entry, "async").def(p).effect(Effect::Write);
        b.inst(entry, "wait").effect(Effect::Write);
        b.copy(entry, x, p);
        b.inst(entry, "scale").def(c).use_(x).remat(3);
        b.inst(entry, "store").use_(c).effect(Effect::Write);
        b.exit(entry, "exit");
        Case::new(b, "R0 R0 R0 R1 R0 R1").delete(2).delete(3)
    };
    build()
        .edit(before(1), again(3, &["R1", "R0"]))
        .says("v0 part 0: the value is pinned and live, but R0 is read");
    build().edit(after(2), again(3, &["R1", "R0"])).accepted();
}

/// `loop(x): c = scale x; store c, y; back with y`: the parameter is another value each turn.
#[test]
fn a_parameter_is_a_new_value_each_turn() {
    let build = |back: usize| {
        let mut b = Builder::new("param");
        let (entry, head, out) = (b.block(), b.block(), b.block());
        let vregs: Vec<_> = (0..4).map(|_| b.vreg(Class::R32)).collect();
        let (x, y, c, a) = (vregs[0], vregs[1], vregs[2], vregs[3]);
        b.inst(entry, "load").def(a).effect(Effect::Read);
        b.inst(entry, "load").def(y).imm(1).effect(Effect::Read);
        b.jump(entry, head, &[a]);
        b.param(head, x);
        b.inst(head, "scale").def(c).use_(x).remat(3);
        b.inst(head, "store").use_(c).use_(y).effect(Effect::Write);
        b.edge(head, head, &[vregs[back]]);
        b.edge(head, out, &[]);
        b.branch(head, "br");
        b.exit(out, "exit");
        Case::new(b, "R0 R3 R1 R0 R1 R3")
            .delete(3)
            .edit(edge(0, 0), again(3, &["R1", "R0"]))
    };
    // The parameter itself goes round.
    build(0).proved();
    build(1)
        .edit(edge(1, 0), mov("R0", "R3", 1))
        .harmful("v2 part 0: not in R1");
    build(1)
        .edit(edge(1, 0), mov("R0", "R3", 1))
        .edit(edge(1, 0), again(3, &["R1", "R0"]))
        .proved();
}

/// Two places hold two results of one instruction, from different inputs: only the latest
/// is on record, and a join keeps what both sides agree on.
#[test]
fn an_earlier_computation_does_not_pass_for_the_latest() {
    let build = || {
        let mut b = Builder::new("latest");
        let entry = b.block();
        let (x, y, c) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::R32));
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.inst(entry, "load").def(y).imm(1).effect(Effect::Read);
        b.inst(entry, "scale").def(c).use_(x).remat(3);
        b.inst(entry, "store").use_(c).use_(y).effect(Effect::Write);
        b.exit(entry, "exit");
        Case::new(b, "R0 R3 R1 R0 R1 R3").delete(2)
    };
    build()
        .edit(before(2), again(2, &["R2", "R3"]))
        .edit(before(2), again(2, &["R1", "R0"]))
        .proved();
    build()
        .edit(before(2), again(2, &["R1", "R3"]))
        .edit(before(2), again(2, &["R2", "R0"]))
        .harmful("v2 part 0: not in R1");
}

/// Both ways into an irreducible loop count, and so does the way from one half to the other.
#[test]
fn loops_with_two_entries_are_met_from_both() {
    let build = |left: bool, right: bool| {
        let mut b = Builder::new("irreducible");
        let (entry, one, two, out) = (b.block(), b.block(), b.block(), b.block());
        let (x, c) = (b.vreg(Class::R32), b.vreg(Class::R32));
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.edge(entry, one, &[]);
        b.edge(entry, two, &[]);
        b.branch(entry, "br");
        b.inst(one, "scale").def(c).use_(x).remat(3);
        b.inst(one, "store").use_(c).effect(Effect::Write);
        b.jump(one, two, &[]);
        b.inst(two, "wait").effect(Effect::Write);
        b.edge(two, one, &[]);
        b.edge(two, out, &[]);
        b.branch(two, "br").imm(1);
        b.exit(out, "exit");
        let mut case = Case::new(b, "R0 R1 R0 R1").delete(2);
        for (succ, wanted) in [(0, left), (1, right)] {
            if wanted {
                case = case.edit(edge(0, succ), again(2, &["R1", "R0"]));
            }
        }
        case
    };
    build(true, true).proved();
    build(true, false).harmful("v1 part 0: not in R1");
    build(false, true).harmful("v1 part 0: not in R1");
}

/// Every part of every input and result counts.
#[test]
fn wide_operands_are_recorded_part_by_part() {
    let build = || {
        let mut b = Builder::new("wide");
        let entry = b.block();
        let (x, y) = (b.vreg(Class::R64), b.vreg(Class::R64));
        let (c, d) = (b.vreg(Class::R64), b.vreg(Class::R32));
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.inst(entry, "load").def(y).imm(1).effect(Effect::Read);
        b.inst(entry, "both").def(c).def(d).use_(x).remat(3);
        b.inst(entry, "store")
            .use_(c)
            .use_(d)
            .use_(y)
            .effect(Effect::Write);
        b.exit(entry, "exit");
        Case::new(b, "R0 R2 R4 R6 R0 R4 R6 R2").delete(2)
    };
    build()
        .edit(before(2), again(2, &["R4", "R6", "R0"]))
        .proved();
    build()
        .edit(before(2), mov("R8", "R0", 2))
        .edit(before(2), mov("R9", "R3", 1))
        .edit(before(2), again(2, &["R4", "R6", "R8"]))
        .harmful("v2 part 0: not in R4");
    build()
        .edit(before(2), again(2, &["R4", "R6", "R0"]))
        .edit(before(2), mov("R5", "R4", 1))
        .harmful("v2 part 1: not in R5");
}

#[test]
fn a_new_order_moves_the_instruction_past_what_is_ahead_of_it() {
    let build = || {
        let mut b = Builder::new("order");
        let entry = b.block();
        let (x, c, d) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::R32));
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.inst(entry, "scale").def(c).use_(x).remat(3);
        b.inst(entry, "bias").def(d).use_(x).remat(3);
        b.inst(entry, "store").use_(c).use_(d).effect(Effect::Write);
        b.exit(entry, "exit");
        Case::new(b, "R0 R1 R0 R2 R0 R1 R2")
            .delete(1)
            .order(&[0, 2, 1, 3, 4])
    };
    build().edit(before(2), again(1, &["R1", "R0"])).proved();
    build()
        .edit(before(2), again(1, &["R1", "R0"]))
        .edit(after(2), mov("R1", "R2", 1))
        .harmful("v1 part 0: not in R1");
}

#[test]
fn code_ahead_in_unreachable_blocks_is_no_one_s() {
    let mut b = Builder::new("unreachable");
    let (entry, dead) = (b.block(), b.block());
    let (x, c) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "scale").def(c).use_(x).remat(3);
    b.inst(entry, "store").use_(c).effect(Effect::Write);
    b.exit(entry, "exit");
    b.exit(dead, "exit");
    Case::new(b, "R0 R1 R0 R1")
        .delete(1)
        .edit(before(4), again(1, &["R1", "R0"]))
        .harmful("v1 part 0: not in R1");
}
