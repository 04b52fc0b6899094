//! One broken function per rule.

use super::*;
use crate::function::Builder;

fn target() -> Target {
    Target::cicc()
}

/// A block that defines `n` 32-bit values, and the builder it is in.
fn start(n: usize) -> (Builder, Block, Vec<VReg>) {
    let mut b = Builder::new("f");
    let entry = b.block();
    let values: Vec<_> = (0..n).map(|_| b.vreg(Class::R32)).collect();
    for &value in &values {
        b.inst(entry, "def").def(value);
    }
    (b, entry, values)
}

/// What is wrong with the function, which must be invalid.
fn complaint(b: Builder) -> String {
    match b.finish().validate(&target()) {
        Err(error @ Error::Invalid { .. }) => error.to_string(),
        other => panic!("expected an invalid function, got {other:?}"),
    }
}

/// What is missing for the function, which must be impossible.
fn shortage(b: Builder) -> String {
    match b.finish().validate(&target().with_budget(File::R, 4)) {
        Err(error @ Error::Impossible { .. }) => error.to_string(),
        other => panic!("expected an impossible function, got {other:?}"),
    }
}

fn reg(name: &str) -> PReg {
    target().reg_named(name).unwrap()
}

/// Builds one instruction with `build` after three values `v0..v3` and checks the complaint.
fn inst_complains(build: impl FnOnce(&mut Builder, Block, &[VReg]), expected: &str) {
    let (mut b, entry, v) = start(3);
    build(&mut b, entry, &v);
    b.exit(entry, "exit");
    let message = complaint(b);
    assert!(message.contains(expected), "{message}\nlacks: {expected}");
    assert!(message.contains("block0, inst3"), "{message}");
}

#[test]
fn an_empty_function() {
    assert!(complaint(Builder::new("f")).contains("no blocks"));
}

/// A block of another builder, or none at all, is reported and never a panic.
#[test]
fn a_block_that_does_not_exist() {
    let nowhere = Block::new(7);
    let complaint_of = |wrong: &dyn Fn(&mut Builder, VReg)| {
        let (mut b, entry, v) = start(1);
        wrong(&mut b, v[0]);
        b.exit(entry, "exit");
        complaint(b)
    };
    let inst = complaint_of(&|b, v| {
        b.inst(nowhere, "add").use_(v);
    });
    assert_eq!(
        inst,
        "invalid function: function: block7 does not exist, but `add` is in it"
    );
    let param = complaint_of(&|b, v| b.param(nowhere, v));
    assert!(param.contains("v0 is a parameter of it"), "{param}");
    let edge = complaint_of(&|b, _| b.edge(nowhere, Block::new(0), &[]));
    assert!(edge.contains("an edge leads from it to block0"), "{edge}");
    let frequency = complaint_of(&|b, _| b.frequency(nowhere, 2.0));
    assert!(frequency.contains("it has a frequency"), "{frequency}");
}

#[test]
fn an_argument_that_does_not_exist() {
    let (mut b, entry, _) = start(0);
    b.exit(entry, "exit");
    b.arguments(&target(), &[VReg::new(5)]).unwrap();
    let message = complaint(b);
    assert!(message.contains("v5 does not exist"), "{message}");
}

#[test]
fn an_exclusion_without_an_operand() {
    let (mut b, entry, v) = start(1);
    b.inst(entry, "add").except([reg("R0")]).use_(v[0]);
    b.exit(entry, "exit");
    assert!(complaint(b).contains("an exclusion of `add` has no operand before it"));
}

#[test]
fn an_empty_block() {
    let (mut b, entry, _) = start(0);
    let next = b.block();
    b.jump(entry, next, &[]);
    assert!(complaint(b).contains("block1: it has no instructions"));
}

#[test]
fn a_missing_and_a_misplaced_terminator() {
    let (b, ..) = start(1);
    assert!(complaint(b).contains("no terminator"));
    let (mut b, entry, _) = start(0);
    b.exit(entry, "exit");
    b.exit(entry, "exit");
    assert!(complaint(b).contains("more follows"));
}

#[test]
fn successors_that_disagree_with_the_terminator() {
    let (mut b, entry, _) = start(0);
    b.branch(entry, "bra");
    assert!(complaint(b).contains("leads nowhere"));
    let (mut b, entry, _) = start(0);
    let next = b.block();
    b.exit(next, "exit");
    b.edge(entry, next, &[]);
    b.ret(entry, "ret");
    assert!(complaint(b).contains("leads to block1"));
}

#[test]
fn a_dangling_edge() {
    let (mut b, entry, _) = start(0);
    b.jump(entry, Block::new(7), &[]);
    assert!(complaint(b).contains("block0, inst0: it leads to block7"));
}

#[test]
fn edge_arguments_of_wrong_count_or_class() {
    let (mut b, entry, v) = start(1);
    let next = b.block();
    b.jump(entry, next, &v);
    b.exit(next, "exit");
    assert!(complaint(b).contains("passes 1 arguments to block1, which has 0"));
    let (mut b, entry, v) = start(1);
    let next = b.block();
    let wide = b.vreg(Class::R64);
    b.param(next, wide);
    b.jump(entry, next, &v);
    b.exit(next, "exit");
    assert!(complaint(b).contains("v0:r32 for v1:r64"));
}

#[test]
fn an_entry_with_parameters_or_predecessors() {
    let (mut b, entry, v) = start(1);
    b.param(entry, v[0]);
    b.exit(entry, "exit");
    assert!(complaint(b).contains("entry has a parameter, v0"));
    let (mut b, entry, _) = start(0);
    b.jump(entry, entry, &[]);
    assert!(complaint(b).contains("leads back to the entry"));
}

#[test]
fn a_parameter_given_twice() {
    let (mut b, entry, v) = start(1);
    let next = b.block();
    let p = b.vreg(Class::R32);
    b.param(next, p);
    b.param(next, p);
    b.jump(entry, next, &[v[0], v[0]]);
    b.exit(next, "exit");
    assert!(complaint(b).contains("block1: v1 is a parameter of it twice"));
}

#[test]
fn a_frequency_that_is_none() {
    for bad in [-1.0, f32::NAN, f32::INFINITY] {
        let (mut b, entry, _) = start(0);
        b.frequency(entry, bad);
        b.exit(entry, "exit");
        assert!(complaint(b).contains("no frequency"));
    }
}

#[test]
fn names_of_nothing() {
    inst_complains(
        |b, e, _| {
            b.inst(e, "op").use_(VReg::new(99));
        },
        "v99 does not exist",
    );
    inst_complains(
        |b, e, _| {
            let odd = b.vreg(Class::new(200));
            b.inst(e, "op").def(odd);
        },
        "class number 200",
    );
    inst_complains(
        |b, e, v| {
            let nowhere = Operand::reads(v[0]).constrained(Constraint::Except(RegList::new(5)));
            b.inst(e, "op").operand(nowhere);
        },
        "regs5 does not exist",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").use_fixed(v[0], PReg::new(File::new(9), 0));
        },
        "no register file 9",
    );
}

#[test]
fn a_value_written_twice() {
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").def(v[0]).use_def(v[0]);
        },
        "writes v0 twice",
    );
}

#[test]
fn ties_that_make_no_sense() {
    let tied = |v: VReg, to: u8| Operand::writes(v).constrained(Constraint::Tied(to));
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").operand(tied(v[0], 7));
        },
        "operand 7, which does not exist",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").operand(tied(v[0], 1)).def(v[1]);
        },
        "which is no input",
    );
    inst_complains(
        |b, e, v| {
            let wide = b.vreg(Class::R64);
            b.inst(e, "op").operand(tied(wide, 1)).use_(v[1]);
        },
        "another class",
    );
    inst_complains(
        |b, e, v| {
            let read = Operand::reads(v[0]).constrained(Constraint::Tied(1));
            b.inst(e, "op").operand(read).use_(v[1]);
        },
        "only plain results",
    );
    inst_complains(
        |b, e, v| {
            let inst = b.inst(e, "op").operand(tied(v[0], 2));
            inst.operand(tied(v[1], 2)).use_(v[2]);
        },
        "v0 and v1 would share",
    );
}

#[test]
fn fixed_registers_of_the_wrong_kind() {
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").use_fixed(v[0], reg("P0"));
        },
        "v0 is fixed to P0, where no r32 starts",
    );
    inst_complains(
        |b, e, _| {
            let wide = b.vreg(Class::R64);
            b.inst(e, "op").def_fixed(wide, reg("R3"));
        },
        "R3, where no r64 starts",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").use_fixed(v[0], reg("R15"));
        },
        "more than cicc has",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").use_fixed(v[0], reg("R32767"));
        },
        "more than cicc has",
    );
}

#[test]
fn a_fixed_register_beyond_the_budget() {
    let (mut b, entry, v) = start(1);
    b.inst(entry, "op").use_fixed(v[0], reg("R9"));
    b.exit(entry, "exit");
    assert!(shortage(b).contains("raise the budget of R to at least 10"));
}

#[test]
fn two_values_in_one_register() {
    inst_complains(
        |b, e, v| {
            let inst = b.inst(e, "op").use_fixed(v[0], reg("R2"));
            inst.use_fixed(v[1], reg("R2"));
        },
        "v0 and v1 would share a register, R2",
    );
    inst_complains(
        |b, e, v| {
            let wide = b.vreg(Class::R64);
            let inst = b.inst(e, "op").def_fixed(wide, reg("R2"));
            inst.def_fixed(v[1], reg("R3"));
        },
        "v3 and v1 would share",
    );
    inst_complains(
        |b, e, v| {
            let early = Operand::with_role(v[0], Role::EarlyDef);
            let inst = b.inst(e, "op").use_fixed(v[0], reg("R2"));
            inst.operand(early.constrained(Constraint::Fixed(reg("R2"))));
        },
        "v0 and v0 would share",
    );
}

#[test]
fn an_input_and_a_result_may_share_a_fixed_register() {
    let (mut b, entry, v) = start(2);
    let inst = b.inst(entry, "op").use_fixed(v[0], reg("R2"));
    inst.def_fixed(v[1], reg("R2")).use_fixed(v[0], reg("R4"));
    b.exit(entry, "exit");
    assert_eq!(b.finish().validate(&target()), Ok(()));
}

#[test]
fn groups_that_make_no_sense() {
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").use_(v[0]).group(0, 2, 1);
        },
        "takes 2 operands from 0 on, but there are 1",
    );
    inst_complains(
        |b, e, v| {
            let inst = b.inst(e, "op").use_(v[0]).use_(v[1]).use_(v[2]);
            inst.group(0, 2, 1).group(1, 2, 1);
        },
        "operand 1 is in two groups",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").use_(v[0]).use_(v[1]).group(0, 2, 3);
        },
        "3 is no alignment",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").use_(v[0]).def(v[1]).group(0, 2, 2);
        },
        "both an input and a result",
    );
    inst_complains(
        |b, e, v| {
            let pred = b.vreg(Class::PRED);
            b.inst(e, "op").def(v[0]).def(pred).group(0, 2, 2);
        },
        "across files",
    );
    inst_complains(
        |b, e, v| {
            let wide = b.vreg(Class::R64);
            b.inst(e, "op").def(v[0]).def(wide).group(0, 2, 4);
        },
        "no registers align both",
    );
    inst_complains(
        |b, e, v| {
            let first = Operand::writes(v[0]).constrained(Constraint::Fixed(reg("R0")));
            let second = Operand::writes(v[1]).constrained(Constraint::Fixed(reg("R2")));
            b.inst(e, "op")
                .operand(first)
                .operand(second)
                .group(0, 2, 2);
        },
        "cannot be in R2",
    );
}

#[test]
fn ties_between_groups_keep_their_distance() {
    let tied = |v: VReg, to: u8| Operand::writes(v).constrained(Constraint::Tied(to));
    let build = |crossed: bool| {
        let (mut b, entry, v) = start(4);
        let inst = b.inst(entry, "mma").use_(v[0]).use_(v[1]);
        let inst = inst.operand(tied(v[2], crossed as u8));
        let inst = inst.operand(tied(v[3], !crossed as u8));
        inst.group(0, 2, 4).group(2, 2, 4);
        b.exit(entry, "exit");
        b
    };
    assert_eq!(build(false).finish().validate(&target()), Ok(()));
    assert!(complaint(build(true)).contains("contradictory distances"));
}

#[test]
fn what_does_not_fit_the_budget() {
    let (mut b, entry, _) = start(0);
    let wide = b.vreg(Class::R256);
    b.inst(entry, "op").def(wide);
    b.exit(entry, "exit");
    assert!(shortage(b).contains("v0:r256 needs 8 registers of R, the budget is 4"));
    let (mut b, entry, v) = start(5);
    let mut inst = b.inst(entry, "op");
    for &value in &v {
        inst = inst.use_(value);
    }
    b.exit(entry, "exit");
    assert!(shortage(b).contains("raise the budget of R to at least 5"));
    let (mut b, entry, v) = start(5);
    let mut inst = b.inst(entry, "op");
    for &value in &v {
        inst = inst.use_(value);
    }
    inst.group(0, 5, 8);
    b.exit(entry, "exit");
    assert!(shortage(b).contains("the group of v0 needs 5"));
}

#[test]
fn copies_that_are_none() {
    inst_complains(
        |b, e, v| {
            let wide = b.vreg(Class::R64);
            b.copy(e, wide, v[0]);
        },
        "reads 2 units and writes 4",
    );
    inst_complains(
        |b, e, _| {
            let pred = b.vreg(Class::PRED);
            let half = b.vreg(Class::R16);
            b.copy(e, pred, half);
        },
        "crosses files",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "mov").kind(Kind::Copy).use_def(v[0]).use_(v[1]);
        },
        "neither a plain input nor a plain result",
    );
}

#[test]
fn what_cannot_be_recomputed() {
    inst_complains(
        |b, e, v| {
            b.inst(e, "ld").def(v[0]).effect(Effect::Read).remat(1);
        },
        "`ld` cannot be recomputed: it has effects",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").def(v[0]).anchored().remat(1);
        },
        "it is anchored",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").def(v[0]).clobbers(Clobbers::Abi).remat(1);
        },
        "it clobbers registers",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").use_def(v[0]).remat(1);
        },
        "changes an operand in place",
    );
    inst_complains(
        |b, e, _| {
            b.inst(e, "op").remat(1);
        },
        "no result",
    );
    inst_complains(
        |b, e, v| {
            b.inst(e, "op").kind(Kind::Undef).def(v[0]).remat(1);
        },
        "no plain instruction",
    );
}

#[test]
fn an_undefined_value_made_from_something() {
    inst_complains(
        |b, e, v| {
            b.inst(e, "undef").kind(Kind::Undef).def(v[0]).use_(v[1]);
        },
        "makes no value of v1",
    );
}

#[test]
fn a_terminator_with_a_result() {
    let (mut b, entry, v) = start(1);
    b.exit(entry, "exit").def(v[0]);
    assert!(complaint(b).contains("terminator `exit` writes v0"));
}

#[test]
fn an_exclusion_of_everything() {
    inst_complains(
        |b, e, v| {
            let all = b.reg_list((0..15).map(|n| PReg::new(File::R, 2 * n)));
            let none = Operand::reads(v[0]).constrained(Constraint::Except(all));
            b.inst(e, "op").operand(none);
        },
        "the exclusion of v0 leaves no r32",
    );
}

#[test]
fn a_read_before_any_write() {
    let (mut b, entry, _) = start(0);
    let v = b.vreg(Class::R32);
    b.inst(entry, "op").use_(v);
    b.exit(entry, "exit");
    assert!(complaint(b).contains("block0, inst0: v0 is read"));
}

/// entry → (left | right) → join, where only `left` writes `v0` and `join` reads it.
fn diamond(write_on_the_right: bool) -> Builder {
    let (mut b, entry, _) = start(0);
    let v = b.vreg(Class::R32);
    let (left, right, join) = (b.block(), b.block(), b.block());
    b.edge(entry, left, &[]);
    b.edge(entry, right, &[]);
    b.branch(entry, "brx");
    b.inst(left, "def").def(v);
    b.jump(left, join, &[]);
    if write_on_the_right {
        b.inst(right, "def").def(v);
    }
    b.jump(right, join, &[]);
    b.exit(join, "exit").use_(v);
    b
}

#[test]
fn a_read_unwritten_on_one_path() {
    assert_eq!(diamond(true).finish().validate(&target()), Ok(()));
    let message = complaint(diamond(false));
    assert!(message.contains("block0 → block2 → block3"), "{message}");
    assert!(message.contains("block3, inst"), "{message}");
}

#[test]
fn a_loop_that_writes_only_after_reading() {
    let (mut b, entry, _) = start(0);
    let v = b.vreg(Class::R32);
    let body = b.block();
    b.jump(entry, body, &[]);
    b.inst(body, "op").use_(v);
    b.inst(body, "def").def(v);
    b.jump(body, body, &[]);
    assert!(complaint(b).contains("block1, inst1: v0 is read"));
}

#[test]
fn anything_goes_where_nothing_leads() {
    let (mut b, entry, _) = start(0);
    let v = b.vreg(Class::R32);
    b.exit(entry, "exit");
    let (lost, again) = (b.block(), b.block());
    b.inst(lost, "op").use_(v);
    b.jump(lost, again, &[]);
    b.jump(again, lost, &[]);
    assert_eq!(b.finish().validate(&target()), Ok(()));
}

#[test]
fn a_guarded_definition_reads_the_old_value() {
    let (mut b, entry, _) = start(0);
    let v = b.vreg(Class::R32);
    b.inst(entry, "op").use_def(v);
    b.exit(entry, "exit");
    assert!(complaint(b).contains("v0 is read, but nothing writes it"));
}

/// The result would take the register that the pinned value has to stay in.
#[test]
fn nothing_is_tied_to_a_pinned_value_that_is_read_afterwards() {
    let tied = |is_read_afterwards: bool| {
        let (mut b, entry, values) = start(1);
        let result = b.vreg(Class::R32);
        b.pin(values[0]);
        b.inst(entry, "wait").use_(values[0]).operand(Operand {
            vreg: result,
            role: Role::Def,
            constraint: Constraint::Tied(0),
        });
        b.inst(entry, "store").use_(result);
        if is_read_afterwards {
            b.inst(entry, "store").use_(values[0]);
        }
        b.exit(entry, "exit");
        b
    };
    assert_eq!(tied(false).finish().validate(&target()), Ok(()));
    let complaint = complaint(tied(true));
    let expected =
        "invalid function: block0, inst1: v1 is tied to v0, which is pinned and read afterwards";
    assert_eq!(complaint, expected);
}
