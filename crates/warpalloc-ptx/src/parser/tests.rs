//! Each construct of the language, round trips, errors to the letter, hostile input.

use super::*;
use crate::ast::{
    Body, Float, Function, Instruction, Item, Linkage, Memory, Operand, Stmt, VarDecl,
};
use crate::printer::Edits;

const HEAD: &str = ".version 9.0\n.target sm_90a, debug\n.address_size 64\n";

/// Parses a module of the given items, and checks that its spans give the text back.
fn module(items: &str) -> Module<'static> {
    let source: &'static str = format!("{HEAD}{items}").leak();
    let module = match parse(source) {
        Ok(module) => module,
        Err(error) => panic!("{}", error.render("test.ptx", source)),
    };
    check_spans(&module);
    module
}

fn body(statements: &str) -> Body<'static> {
    let module = module(&format!(".entry k() {{\n{statements}\n}}\n"));
    let function = module.functions().next().cloned();
    function.and_then(|f| f.body).expect("a body")
}

fn inst(text: &str) -> Instruction<'static> {
    match body(text).stmts.swap_remove(0) {
        Stmt::Inst(inst) => inst,
        other => panic!("no instruction: {other:?}"),
    }
}

fn function(text: &str) -> Function<'static> {
    module(text).functions().next().cloned().expect("function")
}

fn var(text: &str) -> VarDecl<'static> {
    match module(text).items.pop() {
        Some(Item::Var(var)) => var,
        other => panic!("no variable: {other:?}"),
    }
}

fn memory(operand: &Operand<'static>) -> Memory<'static> {
    match operand {
        Operand::Memory(memory) => (**memory).clone(),
        other => panic!("no address: {other:?}"),
    }
}

fn ident(operand: &Operand<'static>) -> &'static str {
    operand.as_name().expect("a name").text
}

/// Items and statements follow each other without overlap, every gap between them holds
/// no token but braces, and writing each statement anew gives the same bytes.
fn check_spans(module: &Module<'_>) {
    let mut edits = Edits::new();
    let mut last = 0;
    for item in &module.items {
        let span = item.span();
        assert!(last <= span.start && span.start < span.end);
        assert!(crate::same_tokens(gap(module.source, last, span.start), ""));
        last = span.end;
        match item {
            Item::Function(Function {
                body: Some(body), ..
            }) => check_body(module.source, body, &mut edits),
            _ => edits.replace(span, span.text(module.source)),
        }
    }
    assert!(crate::same_tokens(
        gap(module.source, last, module.source.len() as u32),
        ""
    ));
    assert_eq!(edits.apply(module.source).as_deref(), Ok(module.source));
}

fn check_body(source: &str, body: &Body<'_>, edits: &mut Edits) {
    assert_eq!(Span::new(body.open, body.open + 1).text(source), "{");
    assert_eq!(Span::new(body.close, body.close + 1).text(source), "}");
    let mut last = body.open + 1;
    for stmt in &body.stmts {
        let span = stmt.span();
        assert!(crate::same_tokens(gap(source, last, span.start), ""));
        last = span.end;
        match stmt {
            Stmt::Scope(inner) => check_body(source, inner, edits),
            _ => edits.replace(span, span.text(source)),
        }
    }
    assert!(crate::same_tokens(gap(source, last, body.close), ""));
}

fn gap(source: &str, start: u32, end: u32) -> &str {
    source.get(start as usize..end as usize).expect("in order")
}

#[test]
fn the_head_of_a_module() {
    let module = module("");
    assert_eq!(module.version, (9, 0));
    assert_eq!(module.target, ["sm_90a", "debug"]);
    assert_eq!(module.address_size, 64);
    let Item::Directive(directive) = &module.items[1] else {
        panic!("no directive")
    };
    assert_eq!(directive.keyword, "target");
    assert_eq!(directive.args, "sm_90a, debug");
}

#[test]
fn an_entry_with_directives() {
    let f = function(
        ".visible .entry k(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 b[24],\n\
         .param .f32 c) .maxntid 128, 2, 1 .minnctapersm 4 .maxnreg 64 .pragma \"x\";\n\
         .explicitcluster .reqnctapercluster 2, 1 .blocksareclusters { ret; }",
    );
    assert!(f.is_entry);
    assert_eq!((f.name.text, f.linkage), ("k", Linkage::Visible));
    let pointer = f.params[0].pointer.expect("a pointer");
    assert_eq!((pointer.space, pointer.align), (Some("global"), Some(16)));
    assert_eq!((f.params[1].align, f.params[1].ty), (Some(8), "b8"));
    assert_eq!(f.params[1].names[0].dims.as_slice(), [Some(24)]);
    assert_eq!(f.params[2].names[0].name.text, "c");
    let directives: Vec<_> = f
        .directives
        .iter()
        .map(|d| (d.keyword, d.values.as_slice(), d.args))
        .collect();
    assert_eq!(
        directives,
        [
            ("maxntid", &[128, 2, 1][..], "128, 2, 1"),
            ("minnctapersm", &[4], "4"),
            ("maxnreg", &[64], "64"),
            ("pragma", &[], "\"x\""),
            ("explicitcluster", &[], ""),
            ("reqnctapercluster", &[2, 1], "2, 1"),
            ("blocksareclusters", &[], ""),
        ]
    );
    assert_eq!(f.body.map(|body| body.stmts.len()), Some(1));
}

#[test]
fn functions_and_prototypes() {
    let f = function(
        ".func .attribute(.unified(0xAB, 0xCD)) (.param .b32 r0, .reg .pred r1) f\n\
         (.reg .b32 a, .param .b8 _[4]) .noreturn .abi_preserve 8;",
    );
    assert!(!f.is_entry && f.body.is_none());
    assert_eq!((f.returns.len(), f.params.len()), (2, 2));
    assert_eq!(f.params[0].space, "reg");
    assert_eq!(f.params[1].names[0].name.text, "_");
    assert_eq!(f.directives[0].keyword, "attribute");
    assert_eq!(f.directives[2].values.as_slice(), [8]);
    assert_eq!(function(".extern .func g;").linkage, Linkage::Extern);
    assert_eq!(function(".weak .func g () {}").linkage, Linkage::Weak);
}

#[test]
fn directives_can_be_inserted_after_the_parameters() {
    let module = module(".entry k(.param .u64 a)\n.maxntid 32 { ret; }");
    let function = module.functions().next().expect("function");
    let mut edits = Edits::new();
    edits.insert(function.directives_at, " .maxnreg 40");
    let text = edits.apply(module.source).expect("one edit");
    assert!(text.contains("a) .maxnreg 40\n.maxntid 32 {"));
}

#[test]
fn variables_and_initialisers() {
    let v = var(".global .align 8 .u64 tab[3] = {_Z1f, generic(a)+8, 0xFF00(b)};");
    assert_eq!((v.space, v.align, v.ty), ("global", Some(8), "u64"));
    assert_eq!(v.names[0].init, Some("{_Z1f, generic(a)+8, 0xFF00(b)}"));
    let v = var(".const .f32 a[2][1 << 2] = {{1.0, 0f3F800000}, {-1, 0d3FF0000000000000}};");
    assert_eq!(v.names[0].dims.as_slice(), [Some(2), Some(4)]);
    let v = var(".extern .shared .align 16 .b8 smem[];");
    assert_eq!((v.linkage, v.space), (Linkage::Extern, "shared"));
    assert_eq!(v.names[0].dims.as_slice(), [None]);
    let v = var(".visible .global .attribute(.managed) .s32 a, b = -(3 + 4) * 2, c<4>;");
    let names: Vec<_> = v.names.iter().map(|n| (n.name.text, n.count)).collect();
    assert_eq!(names, [("a", None), ("b", None), ("c", Some(4))]);
    let v = var(".global .samplerref s = { addr_mode_0 = clamp_to_edge, filter_mode = 1 };");
    assert_eq!(v.ty, "samplerref");
    assert_eq!(var(".const[2] .v4 .f32 v;").vector, 4);
    assert_eq!(var(".common .global .u32 x;").linkage, Linkage::Common);
    assert_eq!(var(".tex .u64 t;").space, "tex");
}

#[test]
fn constant_expressions_are_evaluated() {
    for (text, value) in [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("1 << 4 | 3", 19),
        ("10 - 4 - 3", 3),
        ("5 > 3 ? 7 : 9", 7),
        ("~0 & 0xFF", 255),
        ("(.u64) 9 % 4", 1),
        ("-1 > 0", 0),
        ("-1 > 0U", 1),
        ("-8 / 2 + 5", 1),
        ("-8 >> 1 == -4", 1),
        ("((.u64) -8 >> 60) + 1", 16),
        ("WARP_SZ / 2", 16),
        ("!0 + -(-8) / 2", 5),
        ("0 && 1 || 3 == 3 ^ 1 != 1", 1),
    ] {
        let v = var(&format!(".global .b8 x[{text}];"));
        assert_eq!(v.names[0].dims.as_slice(), [Some(value)], "{text}");
    }
    // Nothing that traps may be evaluated into a crash.
    for text in [
        "1 / 0",
        "1 % 0",
        "1 << 64",
        "1 << -1",
        "((.s64) 0x8000000000000000) / -1",
        "x",
    ] {
        let v = var(&format!(".global .b8 x[{text}];"));
        assert_eq!(v.names[0].dims.as_slice(), [None], "{text}");
    }
}

#[test]
fn other_items() {
    let module = module(
        ".alias f, g;\n.file 1 \"a b.cu\", 12, 34\n.pragma \"p\";\n\
         @@DWARF .byte 1\n.section .debug_abbrev\n{\n.b8 1 // x\n.b64 $L+4, {3}\n}\n;",
    );
    let items: Vec<_> = module.items[3..]
        .iter()
        .map(|item| match item {
            Item::Alias(alias) => (alias.alias.text, alias.aliasee.text),
            Item::Directive(directive) => (directive.keyword, directive.args),
            Item::Empty(_) => (";", ""),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        items,
        [
            ("f", "g"),
            ("file", "1 \"a b.cu\", 12, 34"),
            ("pragma", "\"p\""),
            ("@@", "DWARF .byte 1"),
            ("section", ".debug_abbrev\n{\n.b8 1 // x\n.b64 $L+4, {3}\n}"),
            (";", ""),
        ]
    );
}

#[test]
fn registers_in_every_form() {
    let body = body(".reg .b32 %r<10>, a, b<3>;\n.reg .v4 .f32 v;\n.reg .pred p;");
    let decls: Vec<_> = body
        .stmts
        .iter()
        .map(|stmt| match stmt {
            Stmt::Reg(reg) => reg,
            other => panic!("{other:?}"),
        })
        .collect();
    let names: Vec<_> = decls[0]
        .names
        .iter()
        .map(|n| (n.name.text, n.count))
        .collect();
    assert_eq!(names, [("%r", Some(10)), ("a", None), ("b", Some(3))]);
    assert_eq!((decls[1].vector, decls[1].ty), (4, "f32"));
    assert_eq!((decls[2].vector, decls[2].ty), (1, "pred"));
}

#[test]
fn scopes_labels_and_directives_in_bodies() {
    let body = body(
        "L0: { .reg .b32 t; { .reg .b16 t; } mov.b32 t, 1; };\n\
         .loc 1 2 3\n.loc 1 2 3, function_name $L__info+4, inlined_at 1 5 6\n\
         .pragma \"nounroll\";\n.param .align 4 .b8 p[8];\n.shared .b32 s;\n$L1: ret;\n\
         @@DWARF x\n.file 2 \"b\"",
    );
    let kinds: Vec<_> = body
        .stmts
        .iter()
        .map(|stmt| match stmt {
            Stmt::Label(label) => label.name.text,
            Stmt::Scope(inner) => {
                assert_eq!(inner.stmts.len(), 3);
                "scope"
            }
            Stmt::Empty(_) => ";",
            Stmt::Directive(directive) => directive.args,
            Stmt::Var(var) => var.space,
            Stmt::Inst(inst) => inst.mnemonic,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "L0",
            "scope",
            ";",
            "1 2 3",
            "1 2 3, function_name $L__info+4, inlined_at 1 5 6",
            "\"nounroll\"",
            "param",
            "shared",
            "$L1",
            "ret",
            "DWARF x",
            "2 \"b\"",
        ]
    );
}

#[test]
fn targets_and_prototypes() {
    let body = body(
        "ts: .branchtargets L1, L2, N<5>;\nfs : .calltargets f, g;\n\
         p0 : .callprototype (.param .align 8 .b8 _[12]) _ (.param .b32 _, .reg .f32 _) .noreturn;\n\
         p1: .callprototype ()_ ();\np2: .callprototype _;",
    );
    let Stmt::BranchTargets(list) = &body.stmts[0] else {
        panic!()
    };
    assert_eq!(list.label.text, "ts");
    assert_eq!(list.names[1].name.text, "L2");
    assert_eq!(list.names[2].count, Some(5));
    let Stmt::CallTargets(list) = &body.stmts[1] else {
        panic!()
    };
    assert_eq!(list.names[0].name.text, "f");
    let Stmt::CallPrototype(prototype) = &body.stmts[2] else {
        panic!()
    };
    assert_eq!((prototype.returns.len(), prototype.params.len()), (1, 2));
    assert_eq!(prototype.directives[0].keyword, "noreturn");
    assert!(matches!(&body.stmts[3], Stmt::CallPrototype(p) if p.params.is_empty()));
    assert_eq!(body.stmts.len(), 5);
}

#[test]
fn guards_and_modifiers() {
    let i =
        inst("@!%p1 ld.relaxed.gpu.global.L1::no_allocate.L2::cache_hint.v2.f32 {a, b}, [c], d;");
    let guard = i.guard.expect("a guard");
    assert_eq!((guard.reg.text, guard.negated), ("%p1", true));
    assert_eq!(guard.at, i.span.start);
    assert_eq!(i.mnemonic, "ld");
    assert_eq!(
        i.modifiers.as_slice(),
        [
            "relaxed",
            "gpu",
            "global",
            "L1::no_allocate",
            "L2::cache_hint",
            "v2",
            "f32"
        ]
    );
    assert!(i.has("v2") && !i.has("v4"));
    assert_eq!(inst("@p bra L;").guard.map(|g| g.negated), Some(false));
    assert_eq!(inst("ret;").operands.len(), 0);
    assert_eq!(inst("add .s32\n .sat a;").opcode(), "add.s32.sat");
}

#[test]
fn literals() {
    let i = inst("x 12, -12, 0x1FU, 0f3F800000, -0f3F800000, 0d3FF0000000000000, 1.5, 0b11, 017;");
    let values: Vec<_> = i
        .operands
        .iter()
        .map(|operand| match operand {
            Operand::Int { bits, .. } => Ok(*bits as i64),
            Operand::Float { value, .. } => Err(*value),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        values,
        [
            Ok(12),
            Ok(-12),
            Ok(31),
            Err(Float::Single(0x3f80_0000)),
            Err(Float::Single(0xbf80_0000)),
            Err(Float::Double(0x3ff0 << 48)),
            Err(Float::Decimal(1.5)),
            Ok(3),
            Ok(15),
        ]
    );
}

#[test]
fn operands_of_every_kind() {
    let i = inst("x %r1, %tid.x, {%a, _, 3, -4}, _, %d|%p, !%q, -%v.b3210, _|%p;");
    assert_eq!(ident(&i.operands[0]), "%r1");
    let Operand::Component(component) = i.operands[1] else {
        panic!()
    };
    assert_eq!(component.name().text, "%tid");
    assert_eq!((component.member(), component.text()), ("x", "%tid.x"));
    let Operand::Vector(lanes) = &i.operands[2] else {
        panic!()
    };
    assert_eq!(lanes.len(), 4);
    assert!(matches!(lanes[1], Operand::Sink(_)));
    assert_eq!(lanes[3].as_int(), Some(-4i64 as u64));
    assert!(matches!(i.operands[3], Operand::Sink(_)));
    let Operand::Pair(pair) = &i.operands[4] else {
        panic!()
    };
    assert_eq!((ident(&pair.0), ident(&pair.1)), ("%d", "%p"));
    assert!(matches!(i.operands[5], Operand::Not(name) if name.text == "%q"));
    assert!(matches!(&i.operands[6], Operand::Neg(inner)
        if matches!(**inner, Operand::Component(c) if c.member() == "b3210")));
    assert!(matches!(&i.operands[7], Operand::Pair(pair)
        if matches!(pair.0, Operand::Sink(_))));
}

#[test]
fn expressions_as_operands() {
    let i =
        inst("x sym+4, (1 << 4) + 2, 8 * 4, -2 - 3, WARP_SZ - 1, generic(g) + 4, a[N - 1], !0;");
    let shown: Vec<_> = i
        .operands
        .iter()
        .map(|operand| match operand {
            Operand::Expr(expr) => (expr.value, expr.names.iter().map(|n| n.text).collect()),
            Operand::Element(element) => (None, vec![element.name.text]),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected: [(Option<u64>, Vec<&str>); 8] = [
        (None, vec!["sym"]),
        (Some(18), vec![]),
        (Some(32), vec![]),
        (Some(-5i64 as u64), vec![]),
        (Some(31), vec![]),
        (None, vec!["g"]),
        (None, vec!["a"]),
        (Some(1), vec![]),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn addresses_of_every_shape() {
    let i = inst("x [%rd1], [%rd1+4], [%rd1+-4], [%rd1 - 8], [sym], [sym+%r1], [240], [sym+2*8];");
    let offsets: Vec<_> = i
        .operands
        .iter()
        .map(|operand| {
            let memory = memory(operand);
            memory
                .offset
                .map(|offset| offset.as_int().map(|v| v as i64))
        })
        .collect();
    assert_eq!(
        offsets,
        [
            None,
            Some(Some(4)),
            Some(Some(-4)),
            Some(Some(-8)),
            None,
            Some(None),
            None,
            Some(Some(16))
        ]
    );
    assert_eq!(memory(&i.operands[6]).base.as_int(), Some(240));
    let i = inst("tex.2d.v4.f32.f32 {a, b, c, d}|p, [tex, samp, {x, y}], {1, 2}, e;");
    let memory_operand = memory(&i.operands[1]);
    assert_eq!(ident(&memory_operand.base), "tex");
    assert_eq!(ident(&memory_operand.elements[0]), "samp");
    assert!(matches!(&memory_operand.elements[1], Operand::Vector(v) if v.len() == 2));
    let i = inst(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes\n\
         [%r1], [%rd1, {%r2, 0}], [%r3 + 8];",
    );
    assert_eq!(i.operands.len(), 3);
    assert_eq!(memory(&i.operands[1]).elements.len(), 1);
    assert_eq!(i.modifiers[7], "mbarrier::complete_tx::bytes");
}

#[test]
fn calls() {
    let i = inst("call.uni (r0), %rd1, (p0, 1, _), proto;");
    assert!(matches!(&i.operands[0], Operand::Paren(items) if items.len() == 1));
    assert_eq!(ident(&i.operands[1]), "%rd1");
    assert!(matches!(&i.operands[2], Operand::Paren(items) if items.len() == 3));
    assert_eq!(ident(&i.operands[3]), "proto");
    assert_eq!(inst("call f;").operands.len(), 1);
    assert_eq!(inst("call f, ();").operands.len(), 2);
    assert_eq!(inst("brx.idx %r1, ts;").operands.len(), 2);
}

#[test]
fn odd_layout_is_kept() {
    for items in [
        "#line 7 \"a.c\"\n# 8 \"b.c\" 2\n.entry k(){ret;}\n  #file x",
        "// c\r\n.entry k ( ) /* a */ {\r\n\tadd /*b*/ .s32 // c\r\n %r1 , %r2,%r3 ;\r\n}\r\n\0",
        ".entry k(){ret;}\0\0\n",
        ".entry k(){mov.u32 %r1, %tid /* c */ .x;}",
    ] {
        assert!(module(items).source.ends_with(items));
    }
}

fn message(items: &str) -> String {
    let source = format!("{HEAD}{items}");
    match parse(&source) {
        Ok(_) => panic!("{items} parses"),
        Err(error) => error.render("a.ptx", &source),
    }
}

#[test]
fn errors_to_the_letter() {
    assert_eq!(
        message(".entry k() {\n\tadd.s32 %r1, %r2]\n}"),
        "error: expected `,` or `;` after an operand, found `]`\n \
         --> a.ptx:5:18\n  |\n5 | \tadd.s32 %r1, %r2]\n  | \t                ^\n"
    );
    assert_eq!(
        message(".entry k() {\nmov.u32 %r1, 1\nmov.u32 %r2, 2;\n}"),
        "error: expected `,` or `;` after an operand, found `mov`\n \
         --> a.ptx:6:1\n  |\n6 | mov.u32 %r2, 2;\n  | ^^^\n\
         note: this statement is not terminated by `;`\n \
         --> a.ptx:5:1\n  |\n5 | mov.u32 %r1, 1\n  | ^^^^^^^^^^^^^^\n"
    );
    assert_eq!(
        message(".entry k() {\nret;"),
        "error: expected `}`, found the end of the file\n \
         --> a.ptx:5:5\n  |\n5 | ret;\n  |     ^\n\
         note: the block opens here\n \
         --> a.ptx:4:12\n  |\n4 | .entry k() {\n  |            ^\n"
    );
    assert_eq!(
        message(".entry k() { mov.f32 %f1, 0f3F8; }"),
        "error: a `0f` literal takes exactly 8 hexadecimal digits\n \
         --> a.ptx:4:27\n  |\n4 | .entry k() { mov.f32 %f1, 0f3F8; }\n  \
         |                           ^^^^^\n"
    );
    assert_eq!(
        message(".entry k() { ld.u32 %r1, [%rd1+4; }"),
        "error: expected `]`, found `;`\n \
         --> a.ptx:4:33\n  |\n4 | .entry k() { ld.u32 %r1, [%rd1+4; }\n  \
         |                                 ^\n\
         note: the address opens here\n \
         --> a.ptx:4:26\n  |\n4 | .entry k() { ld.u32 %r1, [%rd1+4; }\n  \
         |                          ^\n"
    );
    let error = parse("int main() {}").expect_err("no PTX");
    assert_eq!(
        error.render("a.c", "int main() {}"),
        "error: expected `.version`, found `int`\n --> a.c:1:1\n  |\n\
         1 | int main() {}\n  | ^^^\n\
         help: a PTX module starts with `.version`, `.target` and `.address_size`\n"
    );
}

#[test]
fn what_errors_say() {
    for (items, expected) in [
        (".glbal .u32 x;", "unknown directive `.glbal`"),
        (".global x;", "expected the type of the variable, found `x`"),
        (
            ".entry k() { .branchtargets L; }",
            "`.branchtargets` needs a label in front of it",
        ),
        (
            ".entry k() { .entry j() {} }",
            "expected `}` or a statement, found `.entry`",
        ),
        (
            ".entry k() { @1 bra L; }",
            "expected a predicate after `@`, found `1`",
        ),
        (
            ".entry k() { add.s32 a,, b; }",
            "expected an operand, found `,`",
        ),
        (
            ".entry k() { mov.u64 a, 99999999999999999999; }",
            "this number does not fit 64 bits",
        ),
        (
            ".entry k() { .reg .b32 %r<99999999999>; }",
            "this number does not fit 32 bits",
        ),
        (
            ".entry k() { .pragma \"a; }",
            "expected a string in quotes, found `\"a; }`",
        ),
        (
            ".entry k() { /* ret; }",
            "expected `}`, found a comment that is never closed",
        ),
        (".entry k() { bra é; }", "expected an operand, found `é`"),
        (
            "#define X",
            "expected a directive, function or variable, found `#define X`",
        ),
        (".address_size 16", "the address size is 32 or 64"),
        (
            ".entry k(.param .u32 a .param .u32 b) {}",
            "expected `,` or `)`, found `.param`",
        ),
    ] {
        let source = format!("{HEAD}{items}");
        let error = parse(&source).expect_err(items);
        assert_eq!(error.message, expected, "{items}");
    }
    assert_eq!(
        parse(".version 9.0\n")
            .map(|_| ())
            .expect_err("short")
            .message,
        "the module has no `.target`"
    );
    let error = parse_bytes(b".version 9.0\n\xff").expect_err("not UTF-8");
    assert_eq!(
        (error.span.start, &*error.message),
        (13, "this byte is not UTF-8 text")
    );
}

/// Runs `check` where a recursion that is not bounded would overflow at once.
fn on_a_small_stack(check: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let handle = thread.spawn(check).expect("a thread");
    handle.join().expect("no overflow, no panic");
}

#[test]
fn hostile_nesting_is_an_error() {
    on_a_small_stack(|| {
        for (before, repeated, after) in [
            (".entry k() ", "{", ""),
            (".entry k() { x ", "{", ""),
            (".entry k() { x ", "[", ""),
            (".entry k() { x ", "(", ""),
            (".entry k() { x a", "[a", ""),
            (".entry k() { x ", "1 ? ", ""),
            (".entry k() { x ", "1 ? 2 : ", ""),
            (".entry k() { x ", "(.u32)", "1"),
            (".entry k() { x ", "generic(", ""),
            (".entry k() { call ", "(", ""),
            (".entry k() { x [a, ", "{", ""),
            (".global .u32 x = ", "{", ""),
            (".global .u32 x = ", "(", ""),
            (".global .u32 x[", "(", ""),
        ] {
            let text = format!("{HEAD}{before}{}{after}", repeated.repeat(100_000));
            let error = parse(&text).expect_err(before);
            assert_eq!(error.message, "nesting deeper than 1000 levels", "{before}");
        }
    });
}

#[test]
fn long_but_flat_input_is_no_problem() {
    on_a_small_stack(|| {
        for (before, repeated, after) in [
            (".entry k() { x ", "-", "1; }"),
            (".entry k() { x ", "!", "0; }"),
            (".entry k() { x 1", "+1", "; }"),
            (".entry k() { x 1", "+1*2", "; }"),
            (".entry k() { x a", ", a", "; }"),
            (".entry k() { ", "L: ", "}"),
            (".entry k() { ", ";", "}"),
            (".entry k() { x", ".y", ";}"),
            (".section .a { ", "{", ""),
            (".entry k() .a", "(", ""),
        ] {
            let text = format!("{HEAD}{before}{}{after}", repeated.repeat(100_000));
            assert_eq!(parse(&text).is_err(), after.is_empty(), "{before}");
        }
    });
}

const SAMPLE: &str = ".global .align 4 .b8 t[4] = {1, 2, 0xFF(x), generic(y)};\n\
    .func (.param .b32 r) f(.param .b32 a) .noreturn;\n\
    .visible .entry k(.param .u64 .ptr .align 8 p, .param .f32 q) .maxntid 32, 1 {\n\
    .reg .pred %p<3>; .reg .v4 .f32 %v; // é\n\
    .loc 1 2 3, function_name $L+4, inlined_at 1 2 3\n\
    L0: @!%p1 bra.uni L0;\n\
    { .param .b32 a0; call.uni (r0), f, (a0, 1), pr; } /* c */\n\
    ts: .branchtargets L0, L1;\n pr: .callprototype (.param .b32 _) _ (.param .b32 _);\n\
    ld.global.L2::cache_hint.v4.f32 {%a, _, %v.x, %d}, [%rd1+-4], 0f3F800000;\n\
    tex.2d.v4.f32.f32 {%a, %b}|%p, [t, s, {%x, -1.5}], (1 + 2) << 3;\n\
    .pragma \"nounroll\"; }\n.section .debug { .b8 1, 2 }\n\0";

/// Parses what may be anything; an error must point into the text and can be shown.
fn survive(text: &str) {
    match parse(text) {
        Ok(module) => check_spans(&module),
        Err(error) => {
            assert!(error.span.start <= error.span.end);
            assert!(error.span.end as usize <= text.len());
            assert!(error.render("a", text).contains(" --> a:"));
        }
    }
}

#[test]
fn every_truncation_is_survived() {
    let text = format!("{HEAD}{SAMPLE}");
    assert!(parse(&text).is_ok());
    for (end, _) in text.char_indices() {
        survive(&text[..end]);
        survive(&text[end..]);
    }
}

#[test]
fn mutations_are_survived() {
    let text: Vec<char> = format!("{HEAD}{SAMPLE}").chars().collect();
    let alphabet: Vec<char> = "(){}[]<>,;:@!|+-*/%.\"_=?&~^#$a0 \n\\\0é".chars().collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |bound: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % bound
    };
    for _ in 0..20_000 {
        let mut mutant = text.clone();
        for _ in 0..=random(4) {
            let at = HEAD.len() + random(mutant.len() - HEAD.len());
            match random(4) {
                0 => drop(mutant.remove(at)),
                1 => mutant.insert(at, alphabet[random(alphabet.len())]),
                2 => mutant[at] = alphabet[random(alphabet.len())],
                _ => {
                    let length = random(30).min(mutant.len() - at);
                    let piece: Vec<char> = mutant[at..at + length].to_vec();
                    let to = HEAD.len() + random(mutant.len() - HEAD.len());
                    mutant.splice(to..to, piece);
                }
            }
        }
        survive(&mutant.into_iter().collect::<String>());
    }
}

#[test]
fn noise_is_refused_at_once() {
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 40) as u8
    })
    .take(1 << 20)
    .collect();
    let error = parse_bytes(&noise).expect_err("noise");
    assert!(error.render("noise", &noise).len() < 2000);
    let text = String::from_utf8_lossy(&noise);
    survive(&text);
    survive(&format!("{HEAD}{text}"));
    survive(&format!("{HEAD}.entry k() {{ {text}"));
}
