//! No call panics on blocks, instructions, values, registers or classes that do not exist: a
//! builder keeps a fault, which the error names, and a description is empty.

use warpalloc::allocation::{Allocation, EdgePlace, Edit, Edits, Label, Point, ValuePlace};
use warpalloc::check::{ValueLabel, check};
use warpalloc::function::*;
use warpalloc::target::*;
use warpalloc::{Allocator, Options, allocate, text};

fn no_block() -> Block {
    Block::from_u32(90)
}

fn no_inst() -> Inst {
    Inst::from_u32(91)
}

fn no_vreg() -> VReg {
    VReg::from_u32(92)
}

/// A file, a class and registers that no target has.
const FILE: File = File::new(93);
const CLASS: Class = Class::new(94);

fn no_reg() -> PReg {
    PReg::new(FILE, usize::MAX)
}

fn target() -> Target {
    Target::hardware(90).unwrap()
}

/// The error about a function that loads, stores and exits, and what `more` adds to it.
fn refused(more: impl FnOnce(&mut Builder, Block, VReg)) -> String {
    let mut b = Builder::new("f");
    let block = b.block();
    let x = b.vreg(Class::R32);
    b.inst(block, "load").def(x).effect(Effect::Write);
    more(&mut b, block, x);
    b.exit(block, "exit");
    let function = b.finish();
    let error = allocate(&function, &target(), &Options::default()).unwrap_err();
    let error = error.to_string();
    let rest = error.strip_prefix("invalid function: ").map(str::to_owned);
    rest.unwrap_or(error)
}

#[test]
fn a_builder_names_what_does_not_exist() {
    let expected = [
        (
            refused(|b, _, _| b.hint(no_vreg(), PReg::new(File::R, 3))),
            "function: v92 does not exist, but is hinted to unit 3 of file 0",
        ),
        (
            refused(|b, _, _| b.uniform(no_vreg())),
            "function: v92 does not exist, but is uniform",
        ),
        (
            refused(|b, _, _| b.pin(no_vreg())),
            "function: v92 does not exist, but is pinned",
        ),
        (
            refused(|b, _, x| b.param(no_block(), x)),
            "function: block90 does not exist, but v0 is a parameter of it",
        ),
        (
            refused(|b, block, _| b.param(block, no_vreg())),
            "block0: the entry has a parameter, v92, but nobody passes it",
        ),
        (
            refused(|b, _, _| b.frequency(no_block(), 1.0)),
            "function: block90 does not exist, but it has a frequency",
        ),
        (
            refused(|b, block, _| b.frequency(block, f32::NAN)),
            "block0: NaN is no frequency",
        ),
        (
            refused(|b, _, _| b.edge(no_block(), no_block(), &[no_vreg()])),
            "function: block90 does not exist, but an edge leads from it to block90",
        ),
        (
            refused(|b, block, _| {
                b.jump(block, no_block(), &[no_vreg()]);
            }),
            "block0, inst1: `bra` ends the block, but more follows",
        ),
        (
            refused(|b, _, _| {
                b.inst(no_block(), "stray").use_(no_vreg());
            }),
            "function: block90 does not exist, but `stray` is in it",
        ),
        (
            refused(|b, block, x| {
                b.copy(block, no_vreg(), x);
            }),
            "block0, inst1: v92 does not exist",
        ),
        (
            refused(|b, _, _| b.live_in(no_vreg(), PReg::new(File::R, 4))),
            "block0, inst0: v92 does not exist",
        ),
        (
            refused(|b, _, x| b.live_in(x, no_reg())),
            "block0, inst0: target hardware has no register file 93",
        ),
        (
            refused(|b, _, _| b.live_in_memory(no_vreg(), u32::MAX)),
            "block0, inst0: v92 does not exist",
        ),
        (
            refused(|b, _, _| b.arguments(&target(), &[no_vreg()]).unwrap()),
            "function: v92 does not exist, but is passed or received",
        ),
        (
            refused(|b, _, x| b.hint(x, no_reg())),
            "function: target hardware has no register file 93",
        ),
        (
            refused(|b, block, _| {
                let y = b.vreg(CLASS);
                b.inst(block, "def").def(y);
            }),
            "block0, inst1: v1 has class number 94, unknown to target hardware",
        ),
        (
            refused(|b, _, _| {
                b.vreg(CLASS);
            }),
            "function: v1 has class number 94, unknown to target hardware",
        ),
    ];
    for (error, expected) in expected {
        assert_eq!(error, expected);
    }
    assert_eq!(Builder::new("f").class_of(no_vreg()), None);
}

#[test]
fn a_description_of_an_instruction_names_what_does_not_exist() {
    let with = |more: &dyn Fn(InstBuilder<'_>, VReg)| {
        refused(|b, block, x| more(b.inst(block, "odd").effect(Effect::Write), x))
    };
    let expected = [
        (
            with(&|inst, _| {
                inst.use_(no_vreg());
            }),
            "block0, inst1: v92 does not exist",
        ),
        (
            with(&|inst, _| {
                inst.use_def(no_vreg());
            }),
            "block0, inst1: v92 does not exist",
        ),
        (
            with(&|inst, _| {
                inst.use_anywhere(no_vreg()).use_in_memory(no_vreg());
            }),
            "block0, inst1: v92 does not exist",
        ),
        (
            with(&|inst, x| {
                inst.use_fixed(x, no_reg());
            }),
            "block0, inst1: target hardware has no register file 93",
        ),
        (
            with(&|inst, x| {
                inst.use_fixed(x, PReg::new(File::R, usize::MAX));
            }),
            "block0, inst1: v0, fixed to R65535, needs 65536 registers of R, more than hardware has",
        ),
        (
            with(&|inst, x| {
                inst.use_(x).except([no_reg()]);
            }),
            "block0, inst1: target hardware has no register file 93",
        ),
        (
            with(&|inst, _| {
                inst.except([no_reg()]);
            }),
            "function: an exclusion of `odd` has no operand before it",
        ),
        (
            with(&|inst, _| {
                inst.clobbers(Clobbers::List(RegList::from_u32(95)));
            }),
            "block0, inst1: register list regs95 does not exist",
        ),
        (
            with(&|inst, x| {
                inst.use_(x).tied(no_vreg(), 200);
            }),
            "block0, inst1: v92 does not exist",
        ),
        (
            with(&|inst, x| {
                inst.use_(x).group(7, 200, 0);
            }),
            "block0, inst1: a group takes 200 operands from 7 on, but there are 1",
        ),
    ];
    for (error, expected) in expected {
        assert_eq!(error, expected);
    }
    let passes: [fn(InstBuilder<'_>) -> Result<InstBuilder<'_>, ConventionError>; 3] = [
        |inst| inst.pass(&target(), &[no_vreg()]),
        |inst| inst.give(&target(), &[no_vreg()]),
        |inst| inst.receive(&target(), &[no_vreg()]),
    ];
    for pass in passes {
        let error = refused(|b, block, _| {
            pass(b.inst(block, "odd")).unwrap();
        });
        let expected = "function: v92 does not exist, but is passed or received";
        assert_eq!(error, expected);
    }
    let mut b = Builder::new("f");
    let block = b.block();
    let odd = b.vreg(CLASS);
    let error = b.inst(block, "odd").pass(&target(), &[odd]).err().unwrap();
    assert!(error.to_string().contains("argument 0"), "{error}");
}

fn small() -> (Function, Allocation) {
    let case = text::parse(
        "target hardware sm_90
         kernel f {
         block0:
             v0:r32 = load : read
             store v0, v0 memory : write
             exit : exit write
         }",
    )
    .unwrap();
    let allocation = allocate(&case.function, &target(), &Options::default()).unwrap();
    (case.function, allocation)
}

#[test]
fn a_function_describes_what_it_does_not_have_as_empty() {
    let (function, _) = small();
    assert!(function.block(no_block()).params.is_empty());
    assert!(function.succs(no_block()).is_empty() && function.preds(no_block()).is_empty());
    assert_eq!(function.block_insts(no_block()).len(), 0);
    assert_eq!(function.terminator(no_block()), Inst::NONE);
    assert_eq!(function.block_of(no_inst()), Block::NONE);
    assert_eq!(function.inst(no_inst()).kind, Kind::Plain);
    assert_eq!(function.opcode_name(function.inst(no_inst()).opcode), "");
    assert_eq!(function.operands(no_inst()), []);
    assert_eq!(function.operand_range(no_inst()), 0..0);
    assert_eq!(function.groups(no_inst()), []);
    assert!(function.is_free(no_inst()) && !function.is_barrier(no_inst()));
    assert!(function.clobbers(&target(), no_inst()).is_empty());
    assert_eq!(function.reg_list(RegList::from_u32(95)), []);
    assert!(function.vreg(no_vreg()).hint.is_none());
    assert_eq!(target().width(function.vreg(no_vreg()).class), 0);
    assert_eq!(function.alias(no_inst()), AliasClass::ANY);
    assert_eq!(function.ordering_effect(no_inst()), Effect::Pure);
    let class = AliasClass::from_u32(96);
    assert_eq!(function.alias_info(class), &Alias::ANY);
    assert!(function.may_alias(class, class));
    let empty = Builder::new("empty").finish();
    assert_eq!(empty.terminator(empty.entry()), Inst::NONE);
    assert_eq!(empty.live_in_inst(), None);
}

#[test]
fn an_allocation_and_its_walk_have_nothing_for_what_does_not_exist() {
    let (function, allocation) = small();
    assert_eq!(allocation.operands(&function, no_inst()), []);
    assert!(allocation.places(&function, no_inst()).is_empty());
    assert_eq!(allocation.slot(&function, no_inst(), 0), None);
    let store = Inst::from_u32(1);
    assert_eq!(allocation.slot(&function, store, 0), None);
    assert!(allocation.slot(&function, store, 1).is_some());
    assert_eq!(allocation.slot(&function, store, 2), None);
    assert_eq!(allocation.slot(&function, store, usize::MAX), None);
    assert_eq!(allocation.block_insts(&function, no_block()).count(), 0);
    assert_eq!(allocation.edits.before(no_inst()).count(), 0);
    assert_eq!(allocation.edits.after(no_inst()).count(), 0);
    assert_eq!(allocation.edits.on_edge(no_block(), 0).count(), 0);
    let walk = allocation.walk(&function);
    for label in [Label::Block(no_block()), Label::Edge(no_block(), 7)] {
        assert_eq!(walk.steps(label).count(), 0);
    }
    let label = walk.successor(function.entry(), 7);
    assert_eq!(label, Label::Block(Block::NONE));
    assert_eq!(function.edge_place(no_block(), 7), EdgePlace::Between);
}

/// The walk goes over what another function has in common with the allocation.
#[test]
fn an_allocation_of_another_function_is_refused_by_the_proof_and_not_by_a_panic() {
    let (function, allocation) = small();
    let mut b = Builder::new("larger");
    let blocks = [b.block(), b.block()];
    let x = b.vreg(Class::R32);
    b.inst(blocks[0], "load").def(x).effect(Effect::Read);
    b.jump(blocks[0], blocks[1], &[]);
    for _ in 0..9 {
        b.inst(blocks[1], "store").use_(x).effect(Effect::Write);
    }
    b.exit(blocks[1], "exit");
    let other = b.finish();
    let walk = allocation.walk(&other);
    let steps = walk.labels().map(|label| walk.steps(label).count());
    assert!(steps.sum::<usize>() > 0);
    assert!(check(&other, &target(), &allocation).is_err());
    allocation.touched(&other, &target());
    // Edits at points that the function does not have.
    let width = 1;
    let edit = Edit::Move {
        to: no_reg(),
        from: no_reg(),
        width,
    };
    let points = [
        Point::Before(no_inst()),
        Point::After(no_inst()),
        Point::Edge(no_block(), 7),
    ];
    let list = points.map(|point| (point, edit.clone())).to_vec();
    let strange = Allocation {
        edits: Edits::new(&function, list),
        order: Some(Vec::new()),
        registers: Vec::new(),
        ..allocation
    };
    assert!(!strange.edits.fit(&function));
    assert!(check(&function, &target(), &strange).is_err());
    strange.touched(&function, &target());
    let walk = strange.walk(&function);
    let steps = walk.labels().flat_map(|label| walk.steps(label));
    assert_eq!(steps.count(), 3);
}

#[test]
fn debug_locations_of_what_does_not_exist_are_none() {
    let (function, allocation) = small();
    let mut allocator = Allocator::default();
    let label = |vreg, from, to| ValueLabel {
        vreg,
        from,
        to,
        label: 1,
    };
    let x = VReg::from_u32(0);
    let labels = [
        label(no_vreg(), Inst::from_u32(0), no_inst()),
        label(x, no_inst(), no_inst()),
    ];
    let found = allocator.debug_locations(&function, &target(), &allocation, &labels);
    assert_eq!(found, Ok(Vec::new()));
    let labels = [label(x, Inst::from_u32(0), no_inst())];
    let found = allocator.debug_locations(&function, &target(), &allocation, &labels);
    assert!(matches!(found.unwrap()[0].place, ValuePlace::Reg(_)));
    let invalid = Builder::new("empty").finish();
    let found = allocator.debug_locations(&invalid, &target(), &allocation, &labels);
    let error = found.unwrap_err().to_string();
    assert_eq!(error, "invalid function: function: it has no blocks");
    assert!(check(&invalid, &target(), &allocation).is_err());
}

#[test]
fn a_target_describes_what_it_does_not_have_as_empty() {
    let target = target();
    assert_eq!(target.file(FILE).units, 0);
    assert_eq!(target.class(CLASS).width, 0);
    assert_eq!(target.spill_bytes(CLASS), 0);
    assert_eq!(target.registers(CLASS).count(), 0);
    assert!(!target.fits(CLASS, PReg::new(File::R, 0)));
    assert!(!target.fits(Class::R32, no_reg()));
    assert_eq!(target.budget(FILE), 0);
    assert_eq!(target.reg_name(no_reg()).to_string(), "65535");
    assert!(target.unit(PReg::new(FILE, 0)).index() >= target.unit_count());
    assert!(target.units(no_reg(), usize::MAX).len() > 0);
    assert_eq!(target.clone().with_budget(FILE, 3), target);
    let whole = target.clone().with_budget(File::R, usize::MAX);
    assert_eq!(whole, target);
    assert!(target.argument_registers(&[CLASS]).is_err());
    assert!(target.result_registers(&[CLASS]).is_err());
    assert_eq!(no_reg().offset(usize::MAX), no_reg());
    let set = RegSet::of_registers(&target, [no_reg()]);
    assert!(set.is_empty() && !set.overlaps(&target, no_reg(), 4));
    assert_eq!(set.registers(&target, FILE).count(), 0);
}

#[test]
fn a_description_of_a_machine_names_what_does_not_exist() {
    let refused = |change: &dyn Fn(&mut TargetBuilder, File)| {
        let mut machine = Target::builder("toy");
        let r = machine.file(FileInfo::new("r", 4));
        machine.class("word", r, 1, 1);
        change(&mut machine, r);
        machine.finish().unwrap_err().to_string()
    };
    let expected = [
        (
            refused(&|m, _| {
                m.class("odd", FILE, usize::MAX, usize::MAX);
            }),
            "target toy: class odd is of a file that does not exist",
        ),
        (
            refused(&|m, r| {
                m.class("odd", r, usize::MAX, 1);
            }),
            "target toy: a value of class odd takes 18446744073709551615 units: 1 to 64 are possible",
        ),
        (
            refused(&|m, _| {
                m.file(FileInfo::new("x", usize::MAX).packed(2));
            }),
            "target toy: file x has 18446744073709551615 units, from 1 to 512 are possible",
        ),
        (
            refused(&|m, _| {
                m.file(FileInfo::new("x", 4).packed(0));
            }),
            "target toy: a register of x cannot have 0 parts: 1 and 2 are possible",
        ),
        (
            refused(&|m, _| {
                m.file(FileInfo::new("x", 4).reserved([usize::MAX]));
            }),
            "target toy: a register reserved or preferred in x does not exist: x3 is the last",
        ),
        (
            refused(&|m, _| {
                m.file(FileInfo::new("x", 4).preferred([usize::MAX]));
            }),
            "target toy: a register reserved or preferred in x does not exist: x3 is the last",
        ),
        (
            refused(&|m, _| {
                m.file(FileInfo::new("x", 4).spills_via(FILE));
            }),
            "target toy: file x spills through a file that does not exist",
        ),
        (
            refused(&|m, _| {
                m.arguments([m.reg(FILE, usize::MAX)]);
            }),
            "target toy: an argument register is of a file that does not exist",
        ),
        (
            refused(&|m, r| {
                m.results([m.reg(r, usize::MAX)]);
            }),
            "target toy: result register r65535 does not exist: r3 is the last",
        ),
        (
            refused(&|m, _| {
                m.memory(Space::Shared, MemoryInfo::new(f64::NAN));
            }),
            "target toy: an access to memory cannot take NaN cycles",
        ),
    ];
    for (error, expected) in expected {
        assert_eq!(error, expected);
    }
    assert!(Target::builder("none").finish().is_err());
}
