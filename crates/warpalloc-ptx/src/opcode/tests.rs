//! The table against examples in PTX, against the ISA's list of instructions and against our corpus.

mod present;

use super::*;
use present::{describe_parsed, for_each};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Describes one instruction written in PTX, with registers named after their widths.
fn of(text: &str) -> Result<Description, String> {
    let module = format!(
        ".version 9.0\n.target sm_100a\n.address_size 64\n.entry k(.param .u64 k_param_0, .param .b64 k_param_1[2]) {{
           .reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<20>; .reg .b64 %d<20>; .reg .b128 %q<20>; {text}; }}"
    );
    let module = crate::parse(&module).expect("an example parses");
    let mut found = None;
    for function in module.functions() {
        for_each(function, |names, instruction| {
            found = Some(describe_parsed(names, instruction))
        });
    }
    found.expect("an example holds an instruction")
}

fn row_of(text: &str) -> Option<&'static str> {
    let mut pieces = text.split_whitespace().next()?.split('.');
    let (mnemonic, modifiers) = (pieces.next()?, pieces.collect::<Vec<_>>());
    row::lookup(&InstrShape {
        mnemonic,
        modifiers: &modifiers,
        operands: &[],
    })
    .map(|row| row.name())
}

fn show(description: &Description) -> String {
    let ty = |ty| match ty {
        Ty::Exactly(width) => width.bits().to_string(),
        Ty::AtLeast(width) => format!("~{}", width.bits()),
        Ty::Any => "any".to_owned(),
    };
    let mut text = String::new();
    for operand in &description.operands {
        text += &match operand.role {
            OperandRole::Def(t) => format!("={}", ty(t)),
            OperandRole::Use(t) => ty(t),
            OperandRole::UseDef(t) => format!("+{}", ty(t)),
            OperandRole::DefPair(t, u) => format!("={}|{}", ty(t), ty(u)),
            OperandRole::Address => "[]".to_owned(),
            OperandRole::Label => "@".to_owned(),
            OperandRole::Callee => "fn".to_owned(),
            OperandRole::Returns => "(=)".to_owned(),
            OperandRole::Arguments => "()".to_owned(),
            OperandRole::Immediate => "#".to_owned(),
        };
        if let Some(group) = operand.group {
            let _ = write!(text, "^{}", group.align_units);
        }
        text += " ";
    }
    let _ = write!(text, "{:?}", description.effect);
    if description.control != Control::Falls {
        let _ = write!(text, " {:?}", description.control);
    }
    if let Some(RematCost { cycles, inputs }) = description.remat {
        let _ = write!(text, " remat({cycles},{inputs})");
    }
    for (set, name) in [
        (description.copy, " copy"),
        (description.convergent, " together"),
        (description.carry.reads, " carry-in"),
        (description.carry.writes, " carry-out"),
    ] {
        text += if set { name } else { "" };
    }
    if let Some(part) = description.asynchronous {
        let _ = write!(text, " {part:?}");
    }
    text
}

/// `instruction => description`, at least one line for every row of the table.
const EXAMPLES: &str = include_str!("examples.txt");

fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = EXAMPLES
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with("//"));
    lines.map(|line| line.split_once(" => ").expect("an example has an arrow"))
}

#[test]
fn every_row_parses_and_stands_once() {
    let mut names = BTreeSet::new();
    for row in row::all() {
        assert!(
            row::parse(row).is_some(),
            "row {} does not parse: {}",
            row.name,
            row.forms
        );
        assert!(names.insert(row.name), "row {} stands twice", row.name);
    }
}

#[test]
fn examples_are_described_as_written() {
    let mut wrong = String::new();
    for (text, expected) in examples() {
        let found = of(text).map_or_else(|error| error, |d| show(&d));
        if found != expected {
            let _ = writeln!(wrong, "{text} => {found}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_row_has_an_example() {
    let used: BTreeSet<&str> = examples().filter_map(|(text, _)| row_of(text)).collect();
    let unused: Vec<&str> = row::all()
        .map(|row| row.name)
        .filter(|name| !used.contains(name))
        .collect();
    assert!(unused.is_empty(), "no example for {unused:?}");
}

/// The instructions of the ISA document by chapter.
const ISA: &[(&str, &str)] = &[
    (
        "integer arithmetic",
        "add sub mul mad mul24 mad24 clmad sad div rem abs neg min max popc clz bfind fns brev bfe bfi szext bmsk dp4a dp2a",
    ),
    (
        "extended precision",
        "add.cc addc sub.cc subc mad.lo.cc madc",
    ),
    (
        "floating point",
        "testp copysign add sub mul fma mad div abs neg min max rcp sqrt rsqrt sin cos lg2 ex2 tanh",
    ),
    ("comparison and selection", "set setp selp slct"),
    ("logic and shift", "and or xor not cnot lop3 shf shl shr"),
    (
        "data movement",
        "mov shfl shfl.sync prmt ld ld.global.nc ldu st st.async st.bulk multimem.ld_reduce multimem.st multimem.red \
         prefetch prefetchu applypriority discard createpolicy.fractional createpolicy.range createpolicy.cvt isspacep \
         cvta cvt cvt.pack mapa getctarank cp.async cp.async.commit_group cp.async.wait_group cp.async.wait_all \
         cp.async.bulk cp.reduce.async.bulk cp.async.bulk.prefetch multimem.st.async multimem.red.async multimem.cp.async.bulk \
         multimem.cp.reduce.async.bulk cp.async.bulk.tensor cp.reduce.async.bulk.tensor cp.async.bulk.prefetch.tensor \
         cp.async.bulk.commit_group cp.async.bulk.wait_group tensormap.replace",
    ),
    ("texture", "tex tld4 txq istypep"),
    ("surface", "suld sust sured suq"),
    ("control flow", "bra brx.idx call ret exit"),
    (
        "synchronisation",
        "bar.sync bar.arrive bar.red barrier.sync barrier.arrive barrier.red barrier.cta.sync bar.warp.sync \
         barrier.cluster.arrive barrier.cluster.wait membar fence atom red red.async vote vote.sync match.any.sync \
         activemask redux.sync griddepcontrol elect.sync mbarrier.init mbarrier.inval mbarrier.expect_tx \
         mbarrier.complete_tx mbarrier.arrive mbarrier.arrive_drop cp.async.mbarrier.arrive mbarrier.test_wait \
         mbarrier.try_wait mbarrier.pending_count mbarrier.check_layout tensormap.cp_fenceproxy clusterlaunchcontrol.try_cancel \
         clusterlaunchcontrol.query_cancel.is_canceled clusterlaunchcontrol.query_cancel.get_first_ctaid",
    ),
    (
        "matrices",
        "wmma.load wmma.store wmma.mma mma mma.sp ldmatrix stmatrix movmatrix wgmma.mma_async wgmma.mma_async.sp \
         wgmma.fence wgmma.commit_group wgmma.wait_group tcgen05.alloc tcgen05.dealloc \
         tcgen05.relinquish_alloc_permit tcgen05.ld tcgen05.ld.red tcgen05.st tcgen05.wait::ld tcgen05.wait::st \
         tcgen05.cp tcgen05.shift tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws tcgen05.mma.ws.sp tcgen05.fence \
         tcgen05.commit",
    ),
    ("stack", "stacksave stackrestore alloca"),
    (
        "video",
        "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 \
         vavrg4 vabsdiff4 vmin4 vmax4 vset4",
    ),
    ("miscellaneous", "brkpt nanosleep pmevent trap setmaxnreg"),
];

#[test]
fn every_instruction_of_the_isa_has_a_row() {
    for (chapter, names) in ISA {
        for name in names.split_whitespace() {
            assert!(row_of(name).is_some(), "{name} ({chapter}) has no row");
        }
    }
}

#[test]
fn our_corpus_is_covered() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/ptx");
    let (mut seen, mut wrong) = (0, BTreeSet::new());
    for entry in std::fs::read_dir(folder)
        .expect("the corpus is there")
        .flatten()
    {
        let ptx = std::fs::read_to_string(entry.path()).expect("the corpus is text");
        let module = crate::parse(&ptx).expect("the corpus parses");
        for function in module.functions() {
            for_each(function, |names, instruction| {
                seen += 1;
                wrong.extend(describe_parsed(names, instruction).err());
            });
        }
    }
    assert!(seen > 10_000, "only {seen} instructions found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_not_foreseen_is_named() {
    let error = |text: &str| of(text).map(|d| show(&d)).unwrap_err();
    assert_eq!(
        error("frob.u32 %r1, %r2"),
        "`frob.u32`: no such instruction in the opcode table"
    );
    assert_eq!(
        error("add.sideways.u32 %r1, %r2, %r3"),
        "`add.sideways.u32`: modifier `.sideways` is not in the opcode table"
    );
    assert_eq!(
        error("add %r1, %r2, %r3"),
        "`add`: no type modifier gives the width of operand 0"
    );
    assert_eq!(
        error("mov.b32 {%h1, %h2, %h3}, %r1"),
        "`mov.b32`: no type modifier gives the width of operand 0"
    );
    for operands in [
        "%r1, {%r2, %r3}, %r4",
        "%r1, [%r2], %r4",
        "5, %r2, %r4",
        "%r1",
    ] {
        assert_eq!(
            error(&format!("add.u32 {operands}")),
            "`add.u32`: operands do not fit any of the forms `2t: =D T D; =T T T`"
        );
    }
    assert_eq!(
        error("add.u32 %r1, %r2, %d1"),
        "`add.u32`: Exactly(B32) does not admit B64"
    );
}

#[test]
fn types_admit_what_ptxas_admits() {
    assert!(Ty::AtLeast(Width::B16).admits(Width::B64));
    assert!(!Ty::AtLeast(Width::B32).admits(Width::B16));
    assert!(!Ty::Exactly(Width::B32).admits(Width::B64));
    assert!(Ty::Any.admits(Width::B1));
}

#[test]
fn special_registers_are_all_known() {
    let vectors = "tid ntid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_nctaid";
    for name in vectors.split(' ') {
        assert_eq!(
            special_register(&format!("%{name}")).map(|r| r.lanes),
            Some(4),
            "{name}"
        );
        assert_eq!(
            special_register(&format!("%{name}.z")).map(|r| r.lanes),
            Some(1),
            "{name}"
        );
    }
    let constant = "laneid nwarpid nsmid gridid is_explicit_cluster cluster_ctarank cluster_nctarank lanemask_eq \
                    lanemask_le lanemask_lt lanemask_ge lanemask_gt envreg0 envreg31 reserved_smem_offset_begin \
                    reserved_smem_offset_end reserved_smem_offset_cap reserved_smem_offset_0 reserved_smem_offset_1 \
                    total_smem_size aggr_smem_size dynamic_smem_size current_graph_exec";
    let changing = "warpid smid clock clock_hi clock64 pm0 pm7 pm0_64 pm7_64 globaltimer globaltimer_lo globaltimer_hi";
    for (names, volatile) in [(constant, false), (changing, true)] {
        for name in names.split_whitespace() {
            let found = special_register(&format!("%{name}"));
            assert_eq!(
                found.map(|r| (r.volatile, r.lanes)),
                Some((volatile, 1)),
                "{name}"
            );
        }
    }
    for name in [
        "%envreg32",
        "%pm8",
        "%tid.q",
        "tid",
        "%envreg01",
        "%laneid.x",
        "%rd4",
    ] {
        assert_eq!(special_register(name), None, "{name}");
    }
}
