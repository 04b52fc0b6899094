//! The table against examples in PTX, against the ISA's list of instructions and against our corpus.

use super::*;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Describes one instruction written in PTX, without guard and semicolon.
fn of(text: &str) -> Result<Description, Unknown> {
    with_shape(text, describe)
}

fn with_shape<R>(text: &str, then: impl FnOnce(&InstrShape) -> R) -> R {
    let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let pieces: Vec<&str> = opcode.split('.').collect();
    let operands: Vec<OperandShape> = split_operands(operands).into_iter().map(shape_of).collect();
    then(&InstrShape {
        mnemonic: pieces[0],
        modifiers: &pieces[1..],
        operands: &operands,
    })
}

fn split_operands(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
        .into_iter()
        .map(str::trim)
        .filter(|p| !p.is_empty())
        .collect()
}

fn lanes_of(text: &str) -> u8 {
    if text.starts_with('{') {
        text.split(',').count() as u8
    } else {
        0
    }
}

fn shape_of(text: &str) -> OperandShape {
    let is_constant = |c: char| c.is_ascii_digit() || c == '-' || c == '(';
    match text {
        "_" => OperandShape::Sink,
        _ if text.starts_with('[') => OperandShape::Memory(address_of(text)),
        _ if text.starts_with('(') => OperandShape::List,
        _ if text.contains('|') => OperandShape::Pair {
            lanes: lanes_of(text),
        },
        _ if text.starts_with('{') => OperandShape::Vector(lanes_of(text)),
        _ if text.starts_with(is_constant) => OperandShape::Constant,
        _ if text.starts_with(['%', '!']) => match special_register(text) {
            Some(SpecialReg {
                volatile, lanes, ..
            }) => OperandShape::Special { volatile, lanes },
            None => OperandShape::Register,
        },
        _ => OperandShape::Symbol,
    }
}

fn address_of(text: &str) -> AddressShape {
    match text {
        _ if text.contains('%') => AddressShape::Registers,
        _ if text.contains("_param_") => AddressShape::KernelParameter,
        _ => AddressShape::Fixed,
    }
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
        let found = of(text).map_or_else(|unknown| unknown.to_string(), |d| show(&d));
        if found != expected {
            let _ = writeln!(wrong, "{text} => {found}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_row_has_an_example() {
    let used: BTreeSet<&str> = examples()
        .filter_map(|(text, _)| with_shape(text, |shape| row::lookup(shape).map(|row| row.name())))
        .collect();
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
        "add sub mul mad mul24 mad24 sad div rem abs neg min max popc clz bfind fns brev bfe bfi szext bmsk dp4a dp2a",
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
         cp.async.bulk cp.reduce.async.bulk cp.async.bulk.prefetch multimem.cp.async.bulk \
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
         mbarrier.try_wait mbarrier.pending_count tensormap.cp_fenceproxy clusterlaunchcontrol.try_cancel \
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
            assert!(
                with_shape(name, |shape| row::lookup(shape).is_some()),
                "{name} ({chapter}) has no row"
            );
        }
    }
}

/// Instructions of a PTX file, comments, directives, labels and guards removed, named registers written `%$name`.
fn instructions(ptx: &str) -> Vec<String> {
    let lines = ptx
        .lines()
        .map(|l| l.split("//").next().unwrap_or("").trim());
    let (directives, code): (Vec<&str>, Vec<&str>) = lines.partition(|l| l.starts_with('.'));
    let declarations = directives
        .iter()
        .chain(&code)
        .flat_map(|l| l.split(".reg").skip(1));
    let named: BTreeSet<String> = declarations.flat_map(names).collect();
    let code = code.join(" ");
    code.split(';')
        .filter_map(instruction)
        .map(|text| mark_registers(text, &named))
        .collect()
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_$%.".contains(c)
}

/// The names of a declaration; `x<3>` stands for `x0`, `x1` and `x2`.
fn names(declaration: &str) -> Vec<String> {
    let words = declaration
        .split([';', ')'])
        .next()
        .unwrap_or("")
        .split([' ', ',', '\t']);
    let named = words.filter(|n| n.starts_with(|c: char| c.is_ascii_alphabetic()));
    named
        .flat_map(|name| match name.trim_end_matches('>').split_once('<') {
            None => vec![name.to_owned()],
            Some((stem, count)) => (0..count.parse().unwrap_or(0))
                .map(|n: u32| format!("{stem}{n}"))
                .collect(),
        })
        .collect()
}

fn instruction(statement: &str) -> Option<&str> {
    let mut rest = statement.trim();
    loop {
        let after_word = rest.trim_start_matches(is_name).trim_start();
        rest = match rest.chars().next()? {
            '{' | '}' | ')' | '(' => rest[1..].trim(),
            '@' => rest.split_once(char::is_whitespace)?.1.trim(),
            _ if after_word.starts_with(':') && !after_word.starts_with("::") => {
                after_word[1..].trim()
            }
            c => return c.is_ascii_lowercase().then_some(rest),
        };
    }
}

fn mark_registers(text: &str, named: &BTreeSet<String>) -> String {
    let (opcode, mut rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let mut marked = format!("{opcode} ");
    while let Some(start) = rest.find(is_name) {
        let end = rest[start..]
            .find(|c| !is_name(c))
            .map_or(rest.len(), |n| start + n);
        let stem = rest[start..end].split('.').next().unwrap_or("");
        marked += &rest[..start];
        marked += if named.contains(stem) { "%$" } else { "" };
        marked += &rest[start..end];
        rest = &rest[end..];
    }
    marked + rest
}

#[test]
fn our_corpus_is_covered() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/ptx");
    let (mut seen, mut unknown) = (0, BTreeSet::new());
    for entry in std::fs::read_dir(folder)
        .expect("the corpus is there")
        .flatten()
    {
        let ptx = std::fs::read_to_string(entry.path()).expect("the corpus is text");
        for instruction in instructions(&ptx) {
            seen += 1;
            if let Err(error) = of(&instruction) {
                unknown.insert(format!("{error}: {instruction}"));
            }
        }
    }
    assert!(seen > 10_000, "only {seen} instructions found");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn what_is_not_foreseen_is_named() {
    let reason = |text| of(text).map(|d| show(&d)).unwrap_err().reason;
    assert_eq!(reason("frobnicate.u32 %r1, %r2"), UnknownReason::Mnemonic);
    assert_eq!(
        reason("add.sideways.u32 %r1, %r2, %r3"),
        UnknownReason::Modifier("sideways".to_owned())
    );
    assert_eq!(reason("add %r1, %r2, %r3"), UnknownReason::Type(0));
    assert_eq!(reason("mov.b32 {%a, %b, %c}, %r1"), UnknownReason::Type(0));
    assert!(matches!(
        reason("add.u32 %r1, {%r2, %r3}, %r4"),
        UnknownReason::Operands(_)
    ));
    assert!(matches!(
        reason("add.u32 %r1, [%r2], %r4"),
        UnknownReason::Operands(_)
    ));
    assert!(matches!(
        reason("add.u32 5, %r2, %r4"),
        UnknownReason::Operands(_)
    ));
    let error = of("add.u32 %r1").expect_err("an operand is missing");
    assert_eq!(
        error.to_string(),
        "`add.u32`: operands do not fit any of the forms `2t: =D T D; =T T T`"
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
