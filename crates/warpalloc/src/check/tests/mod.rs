//! Each fault on the smallest function that shows it, next to the allocation that is right.

mod ahead;
mod pinned;
mod recompute;

use super::*;
use crate::allocation::{Edit, Edits, Frame, Point, SlotAddr, Space};
use crate::function::{
    Alias, Base, Block, Builder, Clobbers, Constraint, Convention, Effect, Extent, Inst, Kind,
    Operand, Role,
};
use crate::stats::Stats;
use crate::target::{Class, PReg};
use cranelift_entity::{EntityRef, EntitySet};

/// A function with an allocation written by hand.
struct Case {
    target: Target,
    function: Function,
    allocation: Allocation,
    edits: Vec<(Point, Edit)>,
}

impl Case {
    /// `registers` names one register per operand, separated by spaces.
    fn new(builder: Builder, registers: &str) -> Case {
        Case::on(Target::hardware(90).unwrap(), builder, registers)
    }

    fn on(target: Target, builder: Builder, registers: &str) -> Case {
        let function = builder.finish();
        let registers: Vec<PReg> = registers
            .split_whitespace()
            .map(|name| target.reg_named(name).unwrap())
            .collect();
        assert_eq!(registers.len(), function.operand_count());
        let allocation = Allocation {
            registers,
            memory: Vec::new(),
            edits: Edits::new(&function, Vec::new()),
            deleted: EntitySet::new(),
            order: None,
            frame: Frame {
                local: 64,
                shared: 0,
            },
            stats: Stats::default(),
        };
        Case {
            target,
            function,
            allocation,
            edits: Vec::new(),
        }
    }

    fn edit(mut self, point: Point, edit: Edit) -> Case {
        self.edits.push((point, edit));
        self
    }

    fn delete(mut self, inst: usize) -> Case {
        self.allocation.deleted.insert(Inst::new(inst));
        self
    }

    fn order(mut self, order: &[usize]) -> Case {
        self.allocation.order = Some(order.iter().map(|&i| Inst::new(i)).collect());
        self
    }

    fn check(&self) -> Result<(), Box<Violation>> {
        let mut allocation = self.allocation.clone();
        allocation.edits = Edits::new(&self.function, self.edits.clone());
        check(&self.function, &self.target, &allocation)
    }

    fn accepted(self) {
        if let Err(violation) = self.check() {
            panic!("refused: {violation}");
        }
    }

    /// What the checker says, in words.
    fn refused(self) -> String {
        match self.check() {
            Ok(()) => panic!("accepted"),
            Err(violation) => violation.to_string(),
        }
    }

    fn says(self, words: &str) {
        let said = self.refused();
        assert!(said.contains(words), "said: {said}");
    }
}

fn r(name: &str) -> PReg {
    Target::hardware(90).unwrap().reg_named(name).unwrap()
}

fn before(inst: usize) -> Point {
    Point::Before(Inst::new(inst))
}

fn after(inst: usize) -> Point {
    Point::After(Inst::new(inst))
}

fn edge(block: usize, succ: u32) -> Point {
    Point::Edge(Block::new(block), succ)
}

fn slot(offset: i32) -> SlotAddr {
    SlotAddr {
        space: Space::Local,
        offset,
    }
}

fn mov(to: &str, from: &str, width: u8) -> Edit {
    let (to, from) = (r(to), r(from));
    Edit::Move { to, from, width }
}

fn store(offset: i32, from: &str, width: u8) -> Edit {
    let (to, from) = (slot(offset), r(from));
    Edit::Store { to, from, width }
}

fn reload(to: &str, offset: i32, width: u8) -> Edit {
    let (to, from) = (r(to), slot(offset));
    Edit::Reload { to, from, width }
}

fn transfer(to: &str, from: &str, regs: u8) -> Edit {
    let (to, from) = (r(to), r(from));
    Edit::Transfer { to, from, regs }
}

fn again(inst: usize, regs: &[&str]) -> Edit {
    Edit::Recompute {
        inst: Inst::new(inst),
        regs: regs.iter().map(|name| r(name)).collect(),
    }
}

/// `x = load; y = load; store x, y; exit`: operands x y x y.
fn two_values(class: Class) -> Builder {
    let mut b = Builder::new("two");
    let entry = b.block();
    let (x, y) = (b.vreg(class), b.vreg(class));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "load").def(y).imm(1).effect(Effect::Read);
    b.inst(entry, "store").use_(x).use_(y).effect(Effect::Write);
    b.exit(entry, "exit");
    b
}

#[test]
fn values_in_their_registers_are_accepted() {
    Case::new(two_values(Class::R32), "R0 R1 R0 R1").accepted();
    Case::new(two_values(Class::R64), "R0 R2 R0 R2").accepted();
}

#[test]
fn a_use_elsewhere_names_the_value_and_what_is_there() {
    Case::new(two_values(Class::R32), "R0 R1 R1 R1")
        .says("block0, inst2, operand 0: v0 part 0: not in R1, which holds v1 part 0");
    Case::new(two_values(Class::R32), "R0 R1 R0 R9").says("R9, which holds no current value");
}

#[test]
fn half_a_pair_overwritten_is_noticed() {
    let case = Case::new(two_values(Class::R64), "R0 R2 R0 R2");
    case.edit(before(2), mov("R1", "R2", 1))
        .says("v0 part 1: not in R1, which holds v1 part 0");
}

#[test]
fn classes_cover_alignment_and_budget() {
    Case::new(two_values(Class::R64), "R1 R4 R1 R4").says("R1 is no register of class r64");
    let small = Target::hardware(90)
        .unwrap()
        .with_budget(crate::target::File::R, 4);
    Case::on(small, two_values(Class::R32), "R0 R4 R0 R4").says("R4 is no register");
    Case::new(two_values(Class::R32), "R0 P1 R0 P1").says("P1 is no register of class r32");
}

#[test]
fn moves_stores_and_reloads_carry_values() {
    Case::new(two_values(Class::R64), "R0 R2 R4 R2")
        .edit(after(0), store(-8, "R0", 2))
        .edit(after(1), mov("R0", "R2", 2))
        .edit(before(2), reload("R4", -8, 2))
        .accepted();
    Case::new(two_values(Class::R32), "R0 R0 R0 R1")
        .edit(after(0), mov("R1", "R0", 1))
        .edit(
            before(2),
            Edit::Swap {
                a: r("R0"),
                b: r("R1"),
                width: 1,
            },
        )
        .accepted();
}

#[test]
fn nothing_is_moved_from_where_nothing_was_written() {
    Case::new(two_values(Class::R32), "R0 R1 R0 R1")
        .edit(before(2), mov("R5", "R9", 1))
        .says("edit 0 before inst2: R9 holds nothing known");
    Case::new(two_values(Class::R32), "R0 R1 R0 R1")
        .edit(before(2), store(-4, "R9", 1))
        .says("R9 holds nothing known");
    Case::new(two_values(Class::R32), "R0 R1 R0 R1")
        .edit(before(2), reload("R9", -4, 1))
        .says("local[-4] holds nothing known");
    Case::new(two_values(Class::R32), "R0 R1 R0 R1")
        .edit(
            before(2),
            Edit::Swap {
                a: r("R3"),
                b: r("R4"),
                width: 1,
            },
        )
        .says("R3 holds nothing known");
}

#[test]
fn a_dead_value_may_be_moved_within_its_block() {
    Case::new(two_values(Class::R32), "R0 R1 R0 R1")
        .edit(before(3), mov("R5", "R0", 1))
        .accepted();
}

#[test]
fn a_stale_reload_is_noticed() {
    let mut b = Builder::new("stale");
    let entry = b.block();
    let x = b.vreg(Class::R32);
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.inst(entry, "add").use_def(x);
    b.inst(entry, "store").use_(x).effect(Effect::Write);
    b.exit(entry, "exit");
    Case::new(b, "R0 R0 R1")
        .edit(after(0), store(-4, "R0", 1))
        .edit(before(2), reload("R1", -4, 1))
        .says("v0 part 0: not in R1");
}

#[test]
fn slots_that_overlap_lose_their_value() {
    Case::new(two_values(Class::R64), "R0 R0 R0 R2")
        .edit(after(0), store(-16, "R0", 2))
        .edit(after(1), mov("R2", "R0", 2))
        .edit(after(1), store(-12, "R2", 1))
        .edit(before(2), reload("R0", -16, 2))
        .says("v0 part 1: not in R1, which holds v1 part 0");
}

#[test]
fn the_frame_has_bounds_and_alignment() {
    let case = || Case::new(two_values(Class::R64), "R0 R2 R0 R2");
    case()
        .edit(after(0), store(-68, "R0", 1))
        .says("outside the frame of 64 bytes");
    case()
        .edit(after(0), store(-4, "R0", 2))
        .says("outside the frame");
    case()
        .edit(after(0), store(-12, "R0", 2))
        .says("local[-12] is not aligned to 8 bytes");
    let mut big = case();
    big.allocation.frame.local = 1 << 20;
    big.says("1048576 bytes, and 65536 is the limit");
    case()
        .edit(after(0), store(i32::MIN, "R0", 2))
        .says("outside the frame");
}

#[test]
fn edits_stay_within_the_file_and_apart() {
    let case = || Case::new(two_values(Class::R64), "R0 R2 R0 R2");
    case()
        .edit(after(1), mov("R254", "R0", 2))
        .says("2 units from R254");
    case()
        .edit(after(1), mov("R1", "R0", 2))
        .says("R1 and R0 overlap");
    case()
        .edit(after(1), mov("P1", "R0", 1))
        .says("P1 and R0 are in different files");
    case()
        .edit(after(1), transfer("R8", "R0", 1))
        .says("no transfer");
    case()
        .edit(Point::After(Inst::new(3)), mov("R8", "R0", 1))
        .says("a point this function does not have");
    case()
        .edit(edge(0, 0), mov("R8", "R0", 1))
        .says("a point this function does not have");
}

#[test]
fn a_copy_makes_two_names_for_one_value() {
    let build = || {
        let mut b = Builder::new("copy");
        let entry = b.block();
        let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.copy(entry, y, x);
        b.inst(entry, "store").use_(x).use_(y).effect(Effect::Write);
        b.exit(entry, "exit");
        b
    };
    Case::new(build(), "R0 R1 R0 R1 R0").accepted();
    Case::new(build(), "R0 R1 R0 R0 R0").delete(1).accepted();
    Case::new(build(), "R0 R1 R0 R0 R1")
        .delete(1)
        .says("v1 part 0: not in R1");
}

#[test]
fn packing_and_unpacking_are_copies() {
    let build = || {
        let mut b = Builder::new("pack");
        let entry = b.block();
        let (lo, hi) = (b.vreg(Class::R32), b.vreg(Class::R32));
        let (pair, low) = (b.vreg(Class::R64), b.vreg(Class::R32));
        let high = b.vreg(Class::R32);
        b.inst(entry, "load").def(lo).effect(Effect::Read);
        b.inst(entry, "load").def(hi).effect(Effect::Read);
        b.inst(entry, "pack")
            .kind(Kind::Copy)
            .def(pair)
            .use_(lo)
            .use_(hi);
        b.inst(entry, "unpack")
            .kind(Kind::Copy)
            .def(low)
            .def(high)
            .use_(pair);
        b.inst(entry, "store")
            .use_(pair)
            .use_(high)
            .effect(Effect::Write);
        b.exit(entry, "exit");
        b
    };
    let registers = "R0 R1 R0 R0 R1 R0 R1 R0 R0 R1";
    Case::new(build(), registers).delete(2).delete(3).accepted();
    let crossed = "R1 R0 R0 R0 R1 R0 R1 R0 R0 R1";
    Case::new(build(), crossed)
        .delete(2)
        .delete(3)
        .says("v2 part 0: not in R0, which holds v1");
}

#[test]
fn only_what_has_no_effect_is_deleted() {
    Case::new(two_values(Class::R32), "R0 R1 R0 R1")
        .delete(2)
        .says("an instruction with effects was deleted");
    let mut b = Builder::new("pure");
    let entry = b.block();
    let x = b.vreg(Class::R32);
    b.inst(entry, "const").def(x);
    b.inst(entry, "store").use_(x).effect(Effect::Write);
    b.exit(entry, "exit");
    Case::new(b.clone(), "R0 R0").accepted();
    Case::new(b, "R0 R0").delete(0).says("v0 part 0: not in R0");
}

#[test]
fn an_undefined_value_needs_a_register_but_no_code() {
    let mut b = Builder::new("undef");
    let entry = b.block();
    let x = b.vreg(Class::R32);
    b.inst(entry, "undef").kind(Kind::Undef).def(x);
    b.inst(entry, "store").use_(x).effect(Effect::Write);
    b.exit(entry, "exit");
    Case::new(b.clone(), "R0 R0").accepted();
    Case::new(b, "R0 R0").delete(0).says("v0 part 0: not in R0");
}

#[test]
fn fixed_tied_and_excluded_operands() {
    let build = || {
        let mut b = Builder::new("constraints");
        let entry = b.block();
        let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
        let list = b.reg_list([r("R3")]);
        b.inst(entry, "load")
            .def_fixed(x, r("R2"))
            .effect(Effect::Read);
        b.inst(entry, "add")
            .operand(Operand::writes(y).constrained(Constraint::Tied(1)))
            .use_(x);
        b.inst(entry, "store")
            .operand(Operand::reads(y).constrained(Constraint::Except(list)))
            .effect(Effect::Write);
        b.exit(entry, "exit");
        b
    };
    Case::new(build(), "R2 R2 R2 R2").accepted();
    Case::new(build(), "R1 R1 R1 R1").says("R1 is not the required R2");
    Case::new(build(), "R2 R4 R2 R4").says("R4 is not R2, the register of the operand");
    Case::new(build(), "R2 R2 R2 R3")
        .edit(before(2), mov("R3", "R2", 1))
        .says("R3 overlaps R3, which the operand must avoid");
}

#[test]
fn groups_are_consecutive_and_aligned() {
    let build = || {
        let mut b = Builder::new("group");
        let entry = b.block();
        let v: Vec<_> = (0..4).map(|_| b.vreg(Class::R32)).collect();
        b.inst(entry, "load.v4")
            .def(v[0])
            .def(v[1])
            .def(v[2])
            .def(v[3])
            .group(0, 4, 4)
            .effect(Effect::Read);
        b.inst(entry, "store").use_(v[3]).effect(Effect::Write);
        b.exit(entry, "exit");
        b
    };
    Case::new(build(), "R4 R5 R6 R7 R7").accepted();
    Case::new(build(), "R2 R3 R4 R5 R5").says("a group of alignment 4 starts at R2");
    Case::new(build(), "R4 R5 R7 R6 R6").says("R7 does not follow");
}

#[test]
fn results_keep_apart_and_early_ones_from_inputs_too() {
    let build = |role| {
        let mut b = Builder::new("early");
        let entry = b.block();
        let (x, y, z) = (b.vreg(Class::R32), b.vreg(Class::R64), b.vreg(Class::R32));
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.inst(entry, "wide")
            .operand(Operand::with_role(y, role))
            .def(z)
            .use_(x);
        b.exit(entry, "exit");
        b
    };
    Case::new(build(Role::Def), "R1 R0 R2 R1").accepted();
    Case::new(build(Role::Def), "R4 R0 R1 R4").says("R0 and R1 overlap");
    Case::new(build(Role::EarlyDef), "R4 R0 R2 R4").accepted();
    Case::new(build(Role::EarlyDef), "R1 R0 R2 R1")
        .says("early result in R0 overlaps the input in R1");
}

#[test]
fn calls_erase_what_they_clobber() {
    let build = || {
        let mut b = Builder::new("call");
        let entry = b.block();
        let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.inst(entry, "call")
            .kind(Kind::Call)
            .effect(Effect::Write)
            .clobbers(Clobbers::Abi)
            .def_fixed(y, r("R0"))
            .use_fixed(x, r("R0"));
        b.inst(entry, "store").use_(x).use_(y).effect(Effect::Write);
        b.exit(entry, "exit");
        b
    };
    Case::new(build(), "R0 R0 R0 R24 R0")
        .edit(before(1), mov("R24", "R0", 1))
        .accepted();
    Case::new(build(), "R0 R0 R0 R5 R0")
        .edit(before(1), mov("R5", "R0", 1))
        .says("v0 part 0: not in R5, which holds no current value");
}

/// `x = load; loop: x = phi; x2 = add x; branch loop or out; out: store x2`.
fn counting() -> Builder {
    let mut b = Builder::new("loop");
    let (entry, head, out) = (b.block(), b.block(), b.block());
    let (init, x, next) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(init).effect(Effect::Read);
    b.param(head, x);
    b.jump(entry, head, &[init]);
    b.inst(head, "add").def(next).use_(x);
    b.edge(head, head, &[next]);
    b.edge(head, out, &[]);
    b.branch(head, "br");
    b.inst(out, "store").use_(next).effect(Effect::Write);
    b.exit(out, "exit");
    b
}

#[test]
fn parameters_take_the_values_of_their_arguments() {
    Case::new(counting(), "R0 R0 R0 R0").accepted();
    Case::new(counting(), "R0 R1 R0 R1")
        .edit(edge(1, 0), mov("R0", "R1", 1))
        .accepted();
    // The second turn of the loop would read the first turn's input again.
    Case::new(counting(), "R0 R1 R0 R1").says("v1 part 0: not in R0");
}

#[test]
fn a_register_with_two_dead_values_after_a_join_is_unknown() {
    let build = || {
        let mut b = Builder::new("diamond");
        let (entry, left, right, join) = (b.block(), b.block(), b.block(), b.block());
        let (p, x, y) = (b.vreg(Class::PRED), b.vreg(Class::R32), b.vreg(Class::R32));
        b.inst(entry, "setp").def(p);
        b.edge(entry, left, &[]);
        b.edge(entry, right, &[]);
        b.branch(entry, "br").use_(p);
        b.inst(left, "a").def(x);
        b.jump(left, join, &[]);
        b.inst(right, "b").def(y);
        b.jump(right, join, &[]);
        b.exit(join, "exit");
        b
    };
    Case::new(build(), "P0 P0 R0 R0").accepted();
    Case::new(build(), "P0 P0 R0 R0")
        .edit(before(6), mov("R1", "R0", 1))
        .says("R0 holds nothing known");
}

#[test]
fn coalesced_values_stay_equal_across_blocks() {
    let mut b = Builder::new("equal");
    let (entry, next) = (b.block(), b.block());
    let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
    b.inst(entry, "load").def(x).effect(Effect::Read);
    b.copy(entry, y, x);
    b.jump(entry, next, &[]);
    b.inst(next, "store").use_(x).use_(y).effect(Effect::Write);
    b.exit(next, "exit");
    Case::new(b.clone(), "R0 R0 R0 R0 R0").delete(1).accepted();
    // Moving the shared register moves both.
    Case::new(b, "R0 R0 R0 R3 R3")
        .delete(1)
        .edit(before(3), mov("R3", "R0", 1))
        .accepted();
}

#[test]
fn predicates_travel_through_general_registers() {
    let build = || {
        let mut b = Builder::new("pred");
        let entry = b.block();
        let (p, x) = (b.vreg(Class::PRED), b.vreg(Class::R32));
        b.inst(entry, "setp").def(p);
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.inst(entry, "use").use_(p).use_(x).effect(Effect::Write);
        b.exit(entry, "exit");
        b
    };
    Case::new(build(), "P0 R0 P1 R0")
        .edit(after(0), transfer("R5", "P0", 1))
        .edit(after(0), store(-4, "R5", 1))
        .edit(before(2), reload("R6", -4, 1))
        .edit(before(2), transfer("P1", "R6", 1))
        .accepted();
    Case::new(build(), "P0 R0 P0 R0")
        .edit(before(2), transfer("P1", "R0", 1))
        .says("what R0 holds is no whole value of the file of P1");
    Case::new(build(), "P0 R0 P0 R0")
        .edit(before(2), store(-4, "P0", 1))
        .says("P0 cannot be stored or reloaded directly");
}

#[test]
fn a_piece_of_a_value_does_not_stand_for_the_whole() {
    let target = Target::cicc();
    let named = |name| target.reg_named(name).unwrap();
    let mut b = Builder::new("halves");
    let entry = b.block();
    let u = b.vreg(Class::UR32);
    b.inst(entry, "s2ur").def(u);
    b.inst(entry, "use").use_(u).effect(Effect::Write);
    b.exit(entry, "exit");
    let there = Edit::Transfer {
        to: named("R0"),
        from: named("UR0"),
        regs: 1,
    };
    let back = Edit::Transfer {
        to: named("UR1"),
        from: named("R0"),
        regs: 1,
    };
    let smear = Edit::Move {
        to: named("R0.h"),
        from: named("R0"),
        width: 1,
    };
    let case = Case::on(target.clone(), b, "UR0 UR1").edit(after(0), there);
    let damaged = Case {
        target: target.clone(),
        function: case.function.clone(),
        allocation: case.allocation.clone(),
        edits: case.edits.clone(),
    };
    case.edit(before(1), back.clone()).accepted();
    damaged
        .edit(before(1), smear)
        .edit(before(1), back)
        .says("no whole value");
}

#[test]
fn preserved_registers_come_back() {
    let build = || {
        let mut b = Builder::new("device");
        b.convention(Convention::Device);
        let entry = b.block();
        let x = b.vreg(Class::R32);
        b.inst(entry, "load").def(x).effect(Effect::Read);
        b.inst(entry, "store").use_(x).effect(Effect::Write);
        b.ret(entry, "ret");
        b
    };
    Case::new(build(), "R0 R0").accepted();
    Case::new(build(), "R24 R24").says("R24 does not hold the caller's value at a return");
    Case::new(build(), "R24 R24")
        .edit(before(0), store(-4, "R24", 1))
        .edit(before(2), reload("R24", -4, 1))
        .accepted();
    Case::new(build(), "R24 R24")
        .edit(before(0), mov("R9", "R24", 1))
        .edit(before(2), mov("R24", "R9", 1))
        .accepted();
}

#[test]
fn a_new_order_keeps_definitions_and_effects() {
    let build = || {
        let mut b = Builder::new("order");
        let entry = b.block();
        let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
        b.inst(entry, "a").def(x);
        b.inst(entry, "b").def(y);
        b.inst(entry, "load").use_(x).effect(Effect::Read);
        b.inst(entry, "store").use_(y).effect(Effect::Write);
        b.exit(entry, "exit");
        b
    };
    let registers = "R0 R1 R0 R1";
    let case = |order: &[usize]| Case::new(build(), registers).order(order);
    case(&[1, 0, 2, 3, 4]).accepted();
    case(&[0, 2, 1, 3, 4]).accepted();
    case(&[1, 2, 0, 3, 4]).says("inst2, operand 0: v0 part 0: the new order gives it another");
    case(&[0, 1, 3, 2, 4]).says("inst2: the new order moves it across a write");
    case(&[0, 1, 2, 4, 3]).says("does not keep the block's instructions");
    case(&[0, 1, 2, 2, 4]).says("does not keep the block's instructions");
    case(&[0, 1, 2]).says("does not keep the block's instructions");
}

#[test]
fn a_new_order_keeps_accesses_that_may_alias() {
    let build = |first: Alias, second: Alias| {
        let mut b = Builder::new("order");
        let entry = b.block();
        let x = b.vreg(Class::R32);
        b.inst(entry, "a").def(x);
        let store = b.inst(entry, "store").use_(x).effect(Effect::Write);
        store.alias(first);
        let store = b.inst(entry, "store").use_(x).effect(Effect::Write);
        store.alias(second);
        b.exit(entry, "exit");
        b
    };
    let swapped = |first, second| {
        let case = Case::new(build(first, second), "R0 R0 R0");
        case.order(&[0, 2, 1, 3])
    };
    let at = |start| Alias {
        spaces: 1,
        extent: Some(Extent {
            base: Base::Address(0),
            start,
            len: 8,
        }),
    };
    swapped(Alias::of(1), Alias::of(2)).accepted();
    swapped(at(0), at(8)).accepted();
    swapped(at(0), at(4)).says("moves it across a write");
    swapped(at(0), Alias::of(3)).says("moves it across a write");
    swapped(Alias::of(1), Alias::ANY).says("moves it across a write");
}

#[test]
fn unreachable_blocks_are_held_to_the_rules_alone() {
    let build = || {
        let mut b = Builder::new("unreachable");
        let (entry, dead) = (b.block(), b.block());
        let x = b.vreg(Class::R64);
        b.exit(entry, "exit");
        b.inst(dead, "a").def(x);
        b.inst(dead, "b").use_(x);
        b.exit(dead, "exit");
        b
    };
    Case::new(build(), "R0 R2").accepted();
    Case::new(build(), "R0 R1").says("R1 is no register of class r64");
}
