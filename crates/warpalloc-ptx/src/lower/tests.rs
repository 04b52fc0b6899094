use super::*;
use crate::parse;
use warpalloc::function::{Constraint, Role};

/// Hands the only function of a module with this body to `look`.
fn with_body<T>(body: &str, look: impl FnOnce(Result<Lowered, LowerError>) -> T) -> T {
    let head = ".version 9.0\n.target sm_90a\n.address_size 64\n.global .b32 table[4];\n";
    with_module(
        &format!("{head}.entry k(.param .u64 p) {{\n{body}\n}}\n"),
        look,
    )
}

fn with_module<T>(source: &str, look: impl FnOnce(Result<Lowered, LowerError>) -> T) -> T {
    let module = parse(source).unwrap_or_else(|e| panic!("{}", e.render("test", source)));
    let names = ModuleNames::of(&module);
    let target = Target::hardware(90).unwrap();
    let function = module.functions().last().unwrap();
    let body = function.body.as_ref().unwrap();
    let lowered = lower(source, &names, function, body, &target);
    if let Ok(lowered) = &lowered {
        lowered.function.validate(&target).unwrap();
    }
    look(lowered)
}

pub(crate) fn lowers<T>(body: &str, look: impl FnOnce(Lowered) -> T) -> T {
    with_body(body, |lowered| match lowered {
        Ok(lowered) => look(lowered),
        Err(stop) => panic!("{stop:?}"),
    })
}

fn error(body: &str) -> String {
    with_body(body, |lowered| match lowered {
        Err(LowerError::Error(error)) => error.message.into_owned(),
        Err(LowerError::Pass(passed)) => panic!("passed: {}", passed.reason),
        Ok(_) => panic!("lowered"),
    })
}

fn passed(body: &str) -> String {
    with_body(body, |lowered| match lowered {
        Err(LowerError::Pass(passed)) => passed.reason,
        Err(LowerError::Error(error)) => panic!("error: {}", error.message),
        Ok(_) => panic!("lowered"),
    })
}

/// The instruction whose opcode starts with `opcode`.
fn find(lowered: &Lowered, opcode: &str) -> Inst {
    let function = &lowered.function;
    let name = |i: Inst| function.opcode_name(function.inst(i).opcode);
    let found = function.insts().find(|&i| name(i).starts_with(opcode));
    found.unwrap_or_else(|| panic!("no {opcode}"))
}

fn roles(lowered: &Lowered, opcode: &str) -> Vec<Role> {
    let operands = lowered.function.operands(find(lowered, opcode));
    operands.iter().map(|o| o.role).collect()
}

#[test]
fn a_guarded_definition_reads_what_it_may_leave() {
    lowers(
        ".reg .pred p; .reg .b32 a, b;\nmov.u32 a, %tid.x; mov.u32 b, 1;\n\
         setp.eq.u32 p, a, 0;\n@p add.u32 b, a, 7;\nst.global.u32 [table], b; ret;",
        |l| assert_eq!(roles(&l, "add"), [Role::UseDef, Role::Use, Role::Use]),
    );
}

#[test]
fn what_nobody_wrote_is_undefined_right_before_its_use() {
    lowers(
        ".reg .pred p; .reg .b32 a, b;\nmov.u32 a, %tid.x;\nsetp.eq.u32 p, a, 0;\n\
         @p mov.u32 b, 1;\n@!p mov.u32 b, 2;\nst.global.u32 [table], b; ret;",
        |l| {
            let undef = find(&l, "undef");
            let next = Inst::from_u32(undef.as_u32() + 1);
            assert_eq!(l.function.operands(next)[0].role, Role::UseDef);
            assert_eq!(l.function.inst(undef).kind, Kind::Undef);
        },
    );
}

#[test]
fn a_value_defined_on_one_path_is_undefined_at_the_end_of_the_other() {
    lowers(
        ".reg .pred p; .reg .b32 a, b;\nmov.u32 a, %tid.x;\nsetp.eq.u32 p, a, 0;\n\
         @p bra skip;\nmov.u32 b, 1;\nskip: st.global.u32 [table], b; ret;",
        |l| {
            let undef = find(&l, "undef");
            assert_eq!(l.function.block_of(undef), l.function.entry());
            assert_eq!(
                l.function.terminator(l.function.entry()).as_u32(),
                undef.as_u32() + 1
            );
        },
    );
}

#[test]
fn names_mean_what_the_innermost_scope_says() {
    lowers(
        ".reg .b32 a; mov.u32 a, 1;\n{ .reg .b64 a; mov.u64 a, 2; st.global.u64 [table], a; }\n\
         st.global.u32 [table], a; ret;",
        |l| {
            let class = |opcode| {
                let operand = l.function.operands(find(&l, opcode))[0];
                l.function.vreg(operand.vreg).class
            };
            assert_eq!(class("st.global.u64"), warpalloc::target::Class::R64);
            assert_eq!(class("st.global.u32"), warpalloc::target::Class::R32);
        },
    );
}

#[test]
fn a_billion_declared_registers_cost_nothing() {
    lowers(
        ".reg .b32 %r<4000000000>; mov.u32 %r3999999999, 1; st.global.u32 [table], %r3999999999; ret;",
        |l| assert_eq!(l.function.vreg_count(), 1),
    );
}

#[test]
fn copies_packs_and_groups() {
    lowers(
        ".reg .b32 a<4>, c; .reg .b64 d, e;\n\
         ld.global.v4.u32 {a0, a1, a2, a3}, [table];\nmov.b64 d, {a0, a1};\nmov.b64 {a2, a3}, d;\n\
         mov.b64 e, d;\nmov.b64 {_, c}, e;\nst.global.v2.u32 [table], {a2, a2};\n\
         st.global.v2.u32 [table], {a3, c}; ret;",
        |l| {
            let kinds: Vec<Kind> = l
                .function
                .insts()
                .filter(|&i| l.function.opcode_name(l.function.inst(i).opcode) == "mov.b64")
                .map(|i| l.function.inst(i).kind)
                .collect();
            assert_eq!(kinds, [Kind::Copy, Kind::Copy, Kind::Copy, Kind::Plain]);
            let load = l.function.groups(find(&l, "ld.global.v4"));
            assert_eq!((load[0].first, load[0].len, load[0].align), (0, 4, 4));
            let same = l.function.groups(find(&l, "st.global.v2"));
            assert!(same.is_empty(), "one register cannot be in two places");
        },
    );
}

#[test]
fn parameters_and_special_registers_can_be_computed_again() {
    lowers(
        ".reg .b32 a, c; .reg .b64 d; mov.u32 a, %tid.x; mov.u32 c, %clock;\n\
         ld.param.u64 d, [p]; st.global.u32 [d], a; st.global.u32 [d], c; ret;",
        |l| {
            let inst = |opcode| l.function.inst(find(&l, opcode));
            assert!(inst("mov.u32").remat.is_some());
            assert!(inst("ld.param").remat.is_some());
            assert_eq!(inst("ld.param").effect, Effect::Pure);
            let clock = Inst::from_u32(find(&l, "mov.u32").as_u32() + 1);
            assert_eq!(l.function.inst(clock).effect, Effect::Write);
        },
    );
}

#[test]
fn a_symbol_of_inner_braces_is_not_read_outside() {
    lowers(
        ".reg .b64 d; { .shared .b32 s; mov.u64 d, s; } st.global.u64 [table], d; ret;",
        |l| assert!(l.function.inst(find(&l, "mov.u64")).remat.is_none()),
    );
}

#[test]
fn indirect_branches_lead_to_every_target() {
    lowers(
        ".reg .b32 i; mov.u32 i, %tid.x;\nlist: .branchtargets a, b, a;\nbrx.idx i, list;\n\
         a: st.global.u32 [table], i; ret;\nb: exit;",
        |l| {
            let succs = l.function.succs(l.function.entry());
            assert_eq!(succs.len(), 3);
            assert_eq!(succs[0].block, succs[2].block);
        },
    );
}

#[test]
fn labels_are_local_to_their_braces() {
    let twice = "{ .reg .pred q; setp.eq.u32 q, a, 0; again: @q bra again; }";
    lowers(
        &format!(".reg .b32 a; mov.u32 a, %tid.x;\n{twice}\n{twice}\nret;"),
        |l| {
            let loops = l.function.blocks();
            let own = |b: &_| l.function.succs(*b).iter().any(|e| e.block == *b);
            assert_eq!(loops.filter(own).count(), 2);
        },
    );
}

#[test]
fn guarded_exits_can_be_passed() {
    lowers(
        ".reg .pred p; .reg .b32 a; mov.u32 a, %tid.x; setp.eq.u32 p, a, 0;\n\
         @p ret; @p exit; @p trap; st.global.u32 [table], a;",
        |l| {
            assert_eq!(l.function.block_count(), 1);
            assert_eq!(l.function.inst(find(&l, "exit")).effect, Effect::Write);
            let last = l.function.terminator(l.function.entry());
            assert_eq!(l.function.inst(last).kind, Kind::Return, "the end returns");
        },
    );
}

#[test]
fn signature_registers_are_copied_in_and_out() {
    let source = ".version 9.0\n.target sm_90\n.address_size 64\n\
        .func (.reg .b32 r) f(.reg .b32 x, .reg .b64 y) { .reg .pred p;\n\
        setp.eq.u32 p, x, 0; cvt.u32.u64 r, y; @p ret; add.u32 r, r, x; ret; }";
    with_module(source, |lowered| {
        let lowered = lowered.unwrap_or_else(|stop| panic!("{stop:?}"));
        let count = |name: &str| {
            let opcode = |i: &Inst| {
                lowered
                    .function
                    .opcode_name(lowered.function.inst(*i).opcode)
            };
            lowered
                .function
                .insts()
                .filter(|i| opcode(i) == name)
                .count()
        };
        assert_eq!((count("receive"), count("deliver")), (2, 2));
    });
}

#[test]
fn wrong_text_is_an_error() {
    assert_eq!(
        error("mov.u32 %r1, 0; ret;"),
        "register `%r1` is not declared"
    );
    assert_eq!(
        error(".reg .b32 %r<2>; mov.u32 %r2, 0; ret;"),
        "register `%r2` is not declared"
    );
    assert_eq!(
        error(".reg .b64 a; mov.u32 a, 0; ret;"),
        "this register has 64 bits, the instruction wants 32 bits"
    );
    assert_eq!(error("bra nowhere;"), "name `nowhere` is not declared");
    assert_eq!(
        error(".reg .b32 a; @a ret;"),
        "`a` is no predicate, so it guards nothing"
    );
    assert_eq!(error("a: ret; a: ret;"), "label `a` is declared twice");
    assert_eq!(
        error(".reg .texref a; ret;"),
        "`.texref` is no type for a register"
    );
}

#[test]
fn what_is_not_understood_is_passed_through() {
    assert!(passed(".reg .b32 a; frobnicate.u32 a, a; ret;").contains("frobnicate.u32"));
    assert!(passed(".reg .b32 a; ld.global.v2.u32 {a, a}, [table]; ret;").contains("twice"));
}

/// The parts of a matrix product are not written all at once: a result that took the place
/// of an input still to be read would destroy it.
#[test]
fn a_matrix_product_continues_its_accumulator_and_shares_with_no_other_input() {
    let lanes = |name: &str| {
        let names: Vec<_> = (0..8).map(|i| format!("{name}{i}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    let body = format!(
        ".reg .b32 a<8>, b<8>, c<8>, d<8>;\n\
         wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {}, {}, {}, {};\nret;",
        lanes("d"),
        lanes("a"),
        lanes("b"),
        lanes("c")
    );
    lowers(&body, |l| {
        let product = find(&l, "wmma.mma");
        let operands = l.function.operands(product);
        for (lane, result) in operands[..8].iter().enumerate() {
            assert_eq!(result.role, Role::Def);
            assert_eq!(result.constraint, Constraint::Tied(24 + lane as u8));
        }
    });
}

/// PTX reuses names; values that have nothing to do with each other are apart all the same.
#[test]
fn values_that_share_a_name_are_separate_virtual_registers() {
    let body = ".reg .b32 a; mov.u32 a, %tid.x; st.shared.u32 [0], a; mov.u32 a, %tid.y; \
                st.shared.u32 [4], a; ret;";
    lowers(body, |l| {
        let written: Vec<_> = l
            .function
            .insts()
            .flat_map(|inst| l.function.operands(inst))
            .filter(|o| o.role.writes())
            .map(|o| o.vreg)
            .collect();
        assert_eq!(written.len(), 2);
        assert_ne!(written[0], written[1]);
    });
}

/// Behind it the warp has other registers than in front of it.
#[test]
fn nothing_changes_sides_with_a_change_of_the_register_budget() {
    lowers("setmaxnreg.inc.sync.aligned.u32 64; ret;", |l| {
        let inst = find(&l, "setmaxnreg");
        assert!(l.function.inst(inst).anchored);
    });
}

/// The operands of the landings of a body, in order.
fn landings(lowered: &Lowered) -> Vec<Vec<Operand>> {
    let function = &lowered.function;
    let is_landing = |i: &Inst| function.opcode_name(function.inst(*i).opcode) == "landing";
    let landings = function.insts().filter(is_landing);
    landings.map(|i| function.operands(i).to_vec()).collect()
}

fn is_pinned(lowered: &Lowered, operand: &Operand) -> bool {
    lowered.function.vreg(operand.vreg).pinned
}

#[test]
fn registers_in_flight_are_pinned_until_they_are_waited_for() {
    lowers(
        ".reg .b32 t, a<2>; mov.u32 t, 0;\n\
         tcgen05.ld.sync.aligned.32x32b.x2.b32 {a0, a1}, [t];\nmov.u32 t, 1;\n\
         tcgen05.wait::ld.sync.aligned;\nst.global.v2.u32 [table], {a1, t}; ret;",
        |l| {
            let [landing] = &landings(&l)[..] else {
                panic!("one landing")
            };
            // Nobody reads a0 any more; a1 goes on as another value in the same register.
            let roles: Vec<Role> = landing.iter().map(|o| o.role).collect();
            assert_eq!(roles, [Role::Use, Role::Use, Role::Def]);
            assert_eq!(landing[2].constraint, Constraint::Tied(1));
            assert!(is_pinned(&l, &landing[0]) && is_pinned(&l, &landing[1]));
            assert!(!is_pinned(&l, &landing[2]));
            assert!(l.function.groups(find(&l, "tcgen05.ld")).is_empty());
            assert_eq!(l.function.groups(find(&l, "st.global")).len(), 1);
        },
    );
}

const PRODUCT: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0, f1, f2, f3}, d, d, 1, 1, 1, 0, 0;\n\
                       wgmma.commit_group.sync.aligned;\n";

/// What stores four accumulators after this code.
fn store(code: &str) -> String {
    let zeroes: String = (0..4)
        .map(|i| format!("mov.f32 f{i}, 0f00000000;\n"))
        .collect();
    format!(
        ".reg .f32 f<4>, g<4>; .reg .b64 d; .reg .b32 i; .reg .pred p;\n\
         mov.b64 d, 0; mov.b32 i, 0;\n{zeroes}{code}\nst.global.v4.f32 [table], {{f0, f1, f2, f3}}; ret;"
    )
}

#[test]
fn a_wait_takes_back_only_groups_committed_long_enough_ago() {
    let wait = |n| format!("wgmma.wait_group.sync.aligned {n};");
    let code = store(&format!("{PRODUCT}{}{PRODUCT}{}", wait(1), wait(0)));
    lowers(&code, |l| {
        assert_eq!(landings(&l).len(), 1, "the second wait's")
    });
    let code = store(&format!("{PRODUCT}{}", wait(1)));
    lowers(&code, |l| {
        assert!(landings(&l).is_empty());
        let end = l.function.terminator(l.function.entry());
        assert_eq!(l.function.operands(end).len(), 4, "in flight to the end");
    });
    let guarded = store(&format!(
        "{PRODUCT}setp.eq.b32 p, i, 0;\n@p wgmma.wait_group.sync.aligned 0;"
    ));
    lowers(&guarded, |l| {
        assert!(landings(&l).is_empty(), "it may not happen")
    });
}

#[test]
fn an_accumulator_in_flight_around_a_loop_is_pinned_with_its_initial_value() {
    let code = store(&format!(
        "again: {PRODUCT}wgmma.wait_group.sync.aligned 1;\nadd.u32 i, i, 1;\n\
         setp.lt.u32 p, i, 9;\n@p bra again;\nwgmma.wait_group.sync.aligned 0;"
    ));
    lowers(&code, |l| {
        let first = &l.function.operands(find(&l, "mov.f32"))[0];
        assert!(is_pinned(&l, first));
        let [landing] = &landings(&l)[..] else {
            panic!("one landing")
        };
        assert_eq!(landing.len(), 8);
        let stored = l.function.operands(find(&l, "st.global"));
        assert!(!is_pinned(&l, &stored[0]));
        assert_eq!(l.function.groups(find(&l, "st.global")).len(), 1);
    });
}

#[test]
fn a_pinned_value_is_in_no_group() {
    let code = store(&format!(
        "ld.global.v4.f32 {{f0, f1, f2, f3}}, [table];\n{PRODUCT}wgmma.wait_group.sync.aligned 0;"
    ));
    lowers(&code, |l| {
        assert!(l.function.groups(find(&l, "ld.global")).is_empty());
        assert_eq!(l.function.groups(find(&l, "st.global")).len(), 1);
    });
}

#[test]
fn what_a_copy_of_registers_in_flight_writes_is_in_flight() {
    lowers(
        ".reg .b32 t, a<2>; .reg .b64 d; mov.u32 t, 0;\n\
         tcgen05.ld.sync.aligned.32x32b.x2.b32 {a0, a1}, [t];\nmov.b64 d, {a0, a1};\n\
         tcgen05.wait::ld.sync.aligned;\nst.global.u64 [table], d; ret;",
        |l| {
            let [landing] = &landings(&l)[..] else {
                panic!("one landing")
            };
            assert_eq!(landing.len(), 2, "the pair; its parts are passed on");
            let pair = l.function.operands(find(&l, "mov.b64"))[0];
            assert!(is_pinned(&l, &pair));
            assert_eq!(pair.vreg, landing[0].vreg);
            let stored = &l.function.operands(find(&l, "st.global"))[0];
            assert!(!is_pinned(&l, stored));
        },
    );
}

#[test]
fn what_is_read_before_the_wait_has_landed_before_its_reader() {
    let load = ".reg .b32 t, a<2>; mov.u32 t, 0;\n\
                tcgen05.ld.sync.aligned.32x32b.x2.b32 {a0, a1}, [t];\nadd.u32 t, a0, 1;\n";
    let end =
        "st.global.u32 [table], a0; st.global.u32 [table], a1; st.global.u32 [table], t; ret;";
    lowers(
        &format!("{load}tcgen05.wait::ld.sync.aligned;\n{end}"),
        |l| {
            let count: Vec<usize> = landings(&l).iter().map(Vec::len).collect();
            assert_eq!(count, [2, 2], "one before the sum, one behind the wait");
            let sum = &l.function.operands(find(&l, "add.u32"))[1];
            assert!(!is_pinned(&l, sum));
        },
    );
    // Where no load is waited for, they are as any other.
    lowers(&format!("{load}{end}"), |l| {
        assert!(landings(&l).is_empty());
        assert!(l.function.vregs().all(|v| !l.function.vreg(v).pinned));
    });
}

#[test]
fn a_scalar_result_of_a_tensor_load_is_in_flight_too() {
    lowers(
        ".reg .b32 t, a<2>, m; mov.u32 t, 0;\n\
         tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {a0, a1}, m, [t];\n\
         tcgen05.wait::ld.sync.aligned;\nst.global.u32 [table], m; ret;",
        |l| {
            let load = l.function.operands(find(&l, "tcgen05.ld"));
            let pinned: Vec<bool> = load.iter().map(|o| is_pinned(&l, o)).collect();
            assert_eq!(pinned, [true, true, true, false], "all but the address");
        },
    );
}

/// Where nothing can be concluded from a wait because it is guarded, as the product is.
#[test]
fn what_is_in_flight_is_kept_until_its_name_is_written_anew() {
    let code = store(
        "setp.eq.b32 p, i, 0;\n\
         @p wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f0, f1, f2, f3}, d, d, 1, 1, 1, 0, 0;\n\
         @p wgmma.commit_group.sync.aligned;\nst.global.u32 [table], i;\n\
         @p wgmma.wait_group.sync.aligned 0;\nld.global.v4.f32 {f0, f1, f2, f3}, [table];",
    );
    lowers(&code, |l| {
        let [landing] = &landings(&l)[..] else {
            panic!("one landing")
        };
        assert_eq!(landing.len(), 4, "before the load, which nobody waits for");
        let product = l.function.operands(find(&l, "wgmma.mma_async"));
        let in_flight = product.iter().take(4).map(|o| o.vreg);
        assert!(in_flight.eq(landing.iter().map(|o| o.vreg)));
        let end = l.function.terminator(l.function.entry());
        assert!(l.function.operands(end).is_empty());
    });
}

#[test]
fn what_nobody_waits_for_is_kept_in_a_loop_without_end() {
    let code = store(&format!(
        "{PRODUCT}again: add.u32 i, i, 1;\nst.global.u32 [table], i;\nbra again;"
    ));
    lowers(&code, |l| {
        let product = l.function.operands(find(&l, "wgmma.mma_async"));
        let around = l.function.operands(find(&l, "bra"));
        let in_flight = product.iter().take(4).map(|o| o.vreg);
        assert!(in_flight.eq(around.iter().map(|o| o.vreg)));
    });
}

#[test]
fn the_last_operand_there_can_be_is_handed_over() {
    let fragment = format!("{}b", "a, ".repeat(251));
    let code = store(&format!(
        ".reg .b32 a, b; mov.b32 a, 0; mov.b32 b, 0;\n\
         wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{f0, f1, f2, f3}}, {{{fragment}}}, 0, 1, 1, 1, 0;"
    ));
    lowers(&code, |l| {
        let product = l.function.operands(find(&l, "wgmma.mma_async"));
        assert_eq!(product.len(), 256);
        assert!(is_pinned(&l, &product[255]));
    });
}

#[test]
fn the_metadata_of_a_sparse_product_is_handed_over() {
    let code = store(
        ".reg .b32 m; mov.b32 m, 0;\n\
         wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {f0, f1, f2, f3}, d, d, m, 0, 1, 1, 1, 0, 0;\n\
         wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;",
    );
    lowers(&code, |l| {
        let product = l.function.operands(find(&l, "wgmma.mma_async.sp"));
        let pinned: Vec<bool> = product.iter().map(|o| is_pinned(&l, o)).collect();
        // Accumulators, two descriptors, the metadata.
        assert_eq!(pinned, [true, true, true, true, false, false, true]);
    });
}

#[test]
fn a_load_that_a_path_does_not_wait_for_is_kept_to_its_end() {
    lowers(
        ".reg .b32 t, a<2>; .reg .pred p; mov.u32 t, 0; setp.eq.u32 p, t, 0;\n\
         tcgen05.ld.sync.aligned.32x32b.x2.b32 {a0, a1}, [t];\n@p bra out;\n\
         tcgen05.wait::ld.sync.aligned;\nret;\nout: st.global.u32 [table], t; exit;",
        |l| {
            let load = &l.function.operands(find(&l, "tcgen05.ld"))[..2];
            let end = l.function.operands(find(&l, "exit"));
            assert!(load.iter().map(|o| o.vreg).eq(end.iter().map(|o| o.vreg)));
        },
    );
}
