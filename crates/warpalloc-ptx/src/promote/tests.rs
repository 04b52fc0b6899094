//! Rule by rule, then whole functions run before and after.

use super::judge::run;
use super::*;
use crate::apply::tests::{CORPUS, files_below};
use crate::module::{ModuleOptions, Outcome, allocate_module};
use warpalloc::{Options, Strategy};

const HEAD: &str = ".version 9.0\n.target sm_90\n.address_size 64\n";
const REGISTERS: &str = ".reg .pred %p<4>;\n.reg .b16 %rs<4>;\n.reg .b32 %r<8>;\n\
    .reg .f32 %f<8>;\n.reg .f64 %fd<4>;\n.reg .b64 %rd<12>, %SP, %SPL;\n";

/// A function with a `.local` array `a` of 32 bytes.
fn function(code: &str) -> String {
    format!("{HEAD}.func f() {{\n.local .align 8 .b8 a[32];\n{REGISTERS}{code}\nret;\n}}\n")
}

/// The code of the function after promotion, white space between statements made plain.
fn after(code: &str) -> String {
    let promoted = promote(&function(code)).unwrap();
    assert_eq!(promoted.refused, []);
    assert!(!promoted.text.contains("a[32]"), "the declaration goes");
    let lines = |text: &str| text.lines().count();
    assert_eq!(lines(&promoted.text), lines(&function(code)));
    let text = &promoted.text;
    let from = text.find(REGISTERS).unwrap() + REGISTERS.len();
    let code = &text[from..text.rfind("ret;").unwrap()];
    code.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Why `a` is not promoted; the text must not have changed.
fn refusal(code: &str) -> String {
    let source = function(code);
    let promoted = promote(&source).unwrap();
    assert_eq!(promoted.text, source);
    assert_eq!(promoted.variables, []);
    assert_eq!(promoted.refused.len(), 1);
    assert_eq!(promoted.refused[0].function, "f");
    promoted.refused[0].reason.to_string()
}

#[test]
fn stores_and_loads_become_moves() {
    let source = function("st.local.f32 [a+4], %f1;\nld.local.f32 %f2, [a+4];");
    let promoted = promote(&source).unwrap();
    let variable = PromotedVariable {
        function: "f".to_owned(),
        name: "a".to_owned(),
        bytes: 32,
        accesses: 2,
    };
    assert_eq!(promoted.variables, [variable]);
    assert!(promoted.text.contains("{ .reg .b32 %cell_w<1>;\n"));
    assert!(
        promoted
            .text
            .contains("mov.b32 %cell_w0, %f1;\nmov.b32 %f2, %cell_w0;\n")
    );
}

#[test]
fn the_bases_of_a_compiler_are_followed() {
    assert_eq!(
        after(
            "mov.u64 %SPL, a;\ncvta.local.u64 %SP, %SPL;\nadd.u64 %rd1, %SP, 16;\n\
             cvta.to.local.u64 %rd2, %rd1;\nadd.u64 %rd3, 8, %SPL;\nsub.s64 %rd4, %rd2, 8;\n\
             st.local.u32 [%rd3], %r1;\nst.local.u32 [%rd2+-4], %r2;\n\
             st.u32 [%rd1], %r3;\nld.local.b32 %r4, [%rd4];"
        ),
        "mov.b32 %cell_w0, %r1; mov.b32 %cell_w1, %r2; mov.b32 %cell_w2, %r3; \
         mov.b32 %r4, %cell_w0;"
    );
}

#[test]
fn vectors_are_split_into_lanes() {
    assert_eq!(
        after(
            "st.local.v4.f32 [a], {%f1, %f2, 0f3F800000, %f1};\n\
             ld.local.v2.b32 {%r1, _}, [a+8];\nld.local.f32 %f3, [a+12];"
        ),
        "mov.b32 %cell_w0, %f1; mov.b32 %cell_w1, %f2; mov.f32 %cell_w2, 0f3F800000; \
         mov.b32 %cell_w3, %f1; mov.b32 %r1, %cell_w2; mov.b32 %f3, %cell_w3;"
    );
}

#[test]
fn guards_stay() {
    assert_eq!(
        after("@%p1 st.local.v2.u64 [a], {%rd1, -1};\n@!%p2 ld.local.f64 %fd1, [a+8];"),
        "@%p1 mov.b64 %cell_d0, %rd1; @%p1 mov.b64 %cell_d1, -1; \
         @!%p2 mov.b64 %fd1, %cell_d1;"
    );
}

#[test]
fn wider_registers_are_extended_and_truncated() {
    assert_eq!(
        after(
            "st.local.u32 [a], %rd1;\nld.local.s32 %rd2, [a];\nld.local.b32 %rd3, [a];\n\
             st.local.u8 [a+4], %r1;\nst.local.u8 [a+4], %rs1;\nld.local.s8 %rs2, [a+4];\n\
             ld.local.u8 %r2, [a+4];\nst.local.u16 [a+6], 7;\nld.local.u16 %rs3, [a+6];"
        ),
        "cvt.u32.u64 %cell_w0, %rd1; cvt.s64.s32 %rd2, %cell_w0; cvt.u64.u32 %rd3, %cell_w0; \
         cvt.u16.u32 %cell_h0, %r1; mov.b16 %cell_h0, %rs1; cvt.s16.s8 %rs2, %cell_h0; \
         cvt.u32.u8 %r2, %cell_h0; mov.b16 %cell_h1, 7; mov.b16 %rs3, %cell_h1;"
    );
}

#[test]
fn addresses_that_escape_are_refused() {
    let base = "mov.u64 %rd1, a;\nst.local.u32 [%rd1], %r1;\n";
    let cases = [
        (
            "st.global.u64 [%rd2], %rd1;",
            "escapes by `%rd1` in `st.global.u64`",
        ),
        (
            "st.local.u64 [%rd1], %rd1;",
            "escapes by `%rd1` in `st.local.u64`",
        ),
        (
            "setp.eq.u64 %p1, %rd1, %rd2;",
            "escapes by `%rd1` in `setp.eq.u64`",
        ),
        ("call g, (%rd1);", "escapes by `%rd1` in `call`"),
        ("call g, (a);", "escapes by `a` in `call`"),
        ("mov.u64 %rd3, a+8;", "escapes by `a` in `mov.u64`"),
        (
            "cvt.u32.u64 %r1, %rd1;",
            "escapes by `%rd1` in `cvt.u32.u64`",
        ),
        (
            "atom.local.add.u32 %r1, [%rd1], 1;",
            "escapes by `%rd1` in `atom.local.add.u32`",
        ),
        (
            "mov.b64 {%r1, %r2}, %rd1;",
            "escapes by `%rd1` in `mov.b64`",
        ),
        (
            "selp.b64 %rd3, %rd1, %rd2, %p1;",
            "escapes by `%rd1` in `selp.b64`",
        ),
        (
            "ld.global.u64 %rd1, [%rd2];",
            "escapes by `%rd1` in `ld.global.u64`",
        ),
    ];
    for (code, reason) in cases {
        let found = refusal(&format!("{base}{code}"));
        assert!(found.contains(reason), "{code}: {found}");
    }
}

#[test]
fn addresses_that_vary_are_refused() {
    let base = "mov.u64 %rd1, a;\nst.local.u32 [%rd1], %r1;\n";
    let cases = [
        (
            "add.s64 %rd2, %rd1, %rd3;\nld.local.u32 %r1, [%rd2];",
            "indexed",
        ),
        ("mad.lo.s64 %rd2, %rd4, 4, %rd1;", "indexed"),
        ("ld.local.u32 %r1, [%rd1+%rd2];", "indexed"),
        ("add.s64 %rd1, %rd1, 4;", "`%rd1` does not hold"),
        ("mov.u64 %rd1, %rd4;", "`%rd1` does not hold"),
        (
            "mov.u64 %rd2, %rd1;\nmov.u64 %rd2, 0;",
            "`%rd2` does not hold",
        ),
        (
            "mov.u64 %rd2, %rd1;\nadd.u64 %rd2, %rd1, 4;",
            "`%rd2` does not hold",
        ),
        ("@%p1 mov.u64 %rd2, %rd1;", "`%rd2` does not hold"),
    ];
    for (code, reason) in cases {
        let found = refusal(&format!("{base}{code}"));
        assert!(found.contains(reason), "{code}: {found}");
    }
}

#[test]
fn accesses_that_are_not_plain_are_refused() {
    let cases = [
        ("ld.volatile.local.u32 %r1, [a];", "not a plain access"),
        ("ld.relaxed.gpu.local.u32 %r1, [a];", "not a plain access"),
        ("ld.local.cv.u32 %r1, [a];", "not a plain access"),
        ("ld.shared.u32 %r1, [a];", "not a plain access"),
        ("ld.u32 %r1, [a];", "another state space"),
        (
            "mov.u64 %rd1, a;\ncvta.to.local.u64 %rd2, %rd1;",
            "another state space",
        ),
        ("ld.local.u32 %r1, [a+32];", "byte 32, outside"),
        ("ld.local.u64 %rd1, [a+28];", "byte 28, outside"),
        ("ld.local.u32 %r1, [a+-4];", "byte -4, outside"),
        (
            "st.local.u32 [a], %r1;\nld.local.u16 %rs1, [a];",
            "around byte 0 overlap",
        ),
        (
            "st.local.u64 [a], %rd1;\nld.local.u32 %r1, [a+4];",
            "around byte 4 overlap",
        ),
        (
            "st.local.v2.u32 [a], {%r1, %r2};\nld.local.u64 %rd1, [a];",
            "around byte 0",
        ),
        ("st.local.u32 [a], %rs1;", "value of `st.local.u32`"),
        ("ld.local.f32 %rd1, [a];", "value of `ld.local.f32`"),
        ("ld.local.b128 %rd1, [a];", "not a plain access"),
        ("mov.u64 %rd1, a;", "nothing accesses it"),
    ];
    for (code, reason) in cases {
        let found = refusal(code);
        assert!(found.contains(reason), "{code}: {found}");
    }
}

#[test]
fn names_that_mean_two_things_are_refused() {
    let clash = format!(
        "{HEAD}.global .b32 a;\n.func f() {{\n{REGISTERS}{{ .local .b32 a;\n\
         st.local.u32 [a], %r1; }}\nst.global.u32 [a], %r1;\nret;\n}}\n"
    );
    let promoted = promote(&clash).unwrap();
    assert_eq!(promoted.text, clash);
    assert_eq!(promoted.refused[0].reason, Reason::Ambiguous);
    let debug = format!(
        "{}.section .debug_info {{ .b64 a }}\n",
        function("st.local.u32 [a], %r1;")
    );
    let promoted = promote(&debug).unwrap();
    assert_eq!(promoted.refused[0].reason, Reason::NamedByDirective);
}

#[test]
fn registers_of_the_same_name_in_other_scopes_are_told_apart() {
    let code = "mov.u64 %rd1, a;\n{ .reg .b64 %rd1;\nmov.u64 %rd1, 5;\nst.global.u64 [%rd2], %rd1; }\n\
                st.local.u32 [%rd1], %r1;";
    assert_eq!(
        after(code),
        "{ .reg .b64 %rd1; mov.u64 %rd1, 5; st.global.u64 [%rd2], %rd1; } \
         mov.b32 %cell_w0, %r1;"
    );
}

#[test]
fn each_variable_is_decided_by_itself() {
    let source = format!(
        "{HEAD}.func f() {{\n{REGISTERS}.local .b32 x, y;\n.local .b64 z;\n\
         st.local.u32 [x], 1;\nld.local.u32 %r1, [y+%rd1];\nst.local.u64 [z], 2;\nret;\n}}\n"
    );
    let promoted = promote(&source).unwrap();
    let names: Vec<_> = promoted.variables.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["x", "z"]);
    assert_eq!(promoted.refused[0].name, "y");
    assert!(promoted.text.contains(".local .b32 x, y;"), "y needs it");
    assert!(!promoted.text.contains(".local .b64 z"));
}

#[test]
fn the_budget_counts_functions() {
    let one = |name| format!(".func {name}() {{\n.local .b32 x;\nst.local.u32 [x], 1;\nret;\n}}\n");
    let source = format!("{HEAD}{}{}{}", one("f"), one("g"), one("h"));
    let promoted = promote_where(&source, 1, |name| name != "f").unwrap();
    assert_eq!(promoted.variables.len(), 1);
    assert_eq!(promoted.variables[0].function, "g");
    assert_eq!(promoted.refused.len(), 1);
    assert_eq!(promoted.refused[0].reason, Reason::Budget);
    let none = promote_where(&source, 0, |_| true).unwrap();
    assert_eq!(none.text, source);
}

#[test]
fn functions_that_move_more_than_the_cap_are_refused() {
    let stores = |count: usize| function(&"st.local.u64 [a], 1;\n".repeat(count));
    assert_eq!(promote(&stores(8192)).unwrap().variables.len(), 1);
    let promoted = promote(&stores(8193)).unwrap();
    assert_eq!(promoted.refused[0].reason, Reason::Gate);
}

#[test]
fn names_of_cells_are_new() {
    let source = function("// %cell_w0\nst.local.u32 [a], %r1;");
    assert!(
        promote(&source)
            .unwrap()
            .text
            .contains("mov.b32 %cell__w0, %r1;")
    );
}

#[test]
fn the_indexed_arrays_of_the_corpus_are_refused() {
    let mut refused = 0;
    for (path, text) in files_below(CORPUS) {
        if path.ends_with("locals.sm_90.ptx") {
            continue;
        }
        let promoted = promote(&text).unwrap();
        assert_eq!(promoted.variables, [], "{path}");
        assert_eq!(promoted.text, text);
        for variable in &promoted.refused {
            assert!(variable.name.starts_with("__local_depot"));
            let by_index = matches!(
                variable.reason,
                Reason::DynamicIndex { .. } | Reason::Redefined { .. }
            );
            assert!(by_index, "{path}: {:?}", variable.reason);
            refused += 1;
        }
    }
    assert!(refused >= 2, "{refused}");
}

/// What an unoptimised build keeps in memory goes to registers, all of it.
#[test]
fn the_constant_indices_of_the_corpus_are_promoted() {
    let mut files = files_below(CORPUS).into_iter();
    let (_, text) = files
        .find(|(path, _)| path.ends_with("locals.sm_90.ptx"))
        .unwrap();
    let promoted = promote(&text).unwrap();
    let found: Vec<_> = promoted
        .variables
        .iter()
        .map(|v| (v.bytes, v.accesses))
        .collect();
    assert_eq!(found, [(48, 74), (16, 17)]);
    assert!(promoted.refused.is_empty());
    assert!(!promoted.text.contains("local"));
}

/// Numbers that look random and are always the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.below(all.len())]
    }
}

/// A function that moves values in and out of an array in a loop and shows what it has.
fn random_function(seed: u64) -> String {
    let mut dice = Dice(seed);
    let mut cells = Vec::new();
    let mut end = 0;
    while end < 64 {
        let bytes = [1, 2, 4, 8][dice.below(4)];
        let count = 1 + dice.below(4);
        let start = usize::next_multiple_of(end, bytes * count.next_power_of_two());
        cells.extend((0..count).map(|i| (start + i * bytes, bytes)));
        end = start + count * bytes;
    }
    let mut code = format!(".local .align 16 .b8 a[{end}];\n{REGISTERS}");
    code += "mov.u64 %SPL, a;\ncvta.local.u64 %SP, %SPL;\nadd.u64 %rd8, %SPL, 24;\n\
             sub.u64 %rd9, %SP, 8;\nmov.b64 %rd10, %rd8;\nmov.u32 %r7, 0;\n";
    for i in 0..4 {
        code += &format!(
            "mov.u64 %rd{i}, {};\nmov.u32 %r{i}, {};\n",
            0x1234_5678_9abc_def1u64 ^ seed << i,
            0x8765_4321u32 ^ i
        );
        code += &format!("mov.u16 %rs{i}, {};\n", 0xfe80 + i);
    }
    for (at, bytes) in &cells {
        code += &format!("st.local.b{} [a+{at}], {at};\n", bytes * 8);
    }
    code += "again:\nsetp.lt.u32 %p1, %r7, 1;\nsetp.lt.u32 %p2, %r0, %r1;\n";
    for _ in 0..60 {
        code += &random_statement(&mut dice, &cells);
    }
    code += "add.u32 %r7, %r7, 1;\nsetp.lt.u32 %p3, %r7, 3;\n@%p3 bra again;\n";
    for i in 0..4 {
        code += &format!(
            "st.global.u64 [out], %rd{i};\nst.global.u32 [out], %r{i};\nst.global.u16 [out], %rs{i};\n"
        );
    }
    format!("{HEAD}.global .b64 out;\n.entry k() {{\n{code}ret;\n}}\n")
}

fn random_statement(dice: &mut Dice, cells: &[(usize, usize)]) -> String {
    let guard = dice.of(&["", "", "@%p1 ", "@!%p2 "]);
    if dice.below(4) == 0 {
        let (kind, ty) = [("%r", "u32"), ("%rd", "u64"), ("%rs", "u16")][dice.below(3)];
        let mut register = || format!("{kind}{}", dice.below(4));
        let (a, b, c) = (register(), register(), register());
        return format!("{guard}add.{ty} {a}, {b}, {c};\n");
    }
    let first = dice.below(cells.len());
    let (at, bytes) = cells[first];
    let follows = |i: usize| {
        cells
            .get(first + i)
            .is_some_and(|c| *c == (at + i * bytes, bytes))
    };
    let lanes = match dice.below(3) {
        0 if at % (2 * bytes) == 0 && follows(1) => 2,
        1 if bytes < 8 && at % (4 * bytes) == 0 && (1..4).all(follows) => 4,
        _ => 1,
    };
    let wide = &["%rs", "%r", "%rd"][[0, 0, 0, 0, 1, 1, 1, 1, 2][bytes]..];
    let ty = format!("{}{}", dice.of(&["b", "u", "s"]), bytes * 8);
    // The elements of a vector are of one type.
    let kind = dice.of(wide);
    let registers: Vec<_> = (0..lanes)
        .map(|_| format!("{kind}{}", dice.below(4)))
        .collect();
    let value = match lanes {
        1 => registers[0].clone(),
        _ => format!("{{{}}}", registers.join(", ")),
    };
    let vector = ["", "", ".v2", "", ".v4"][lanes];
    let at = at as i64;
    let (space, base, delta) = [
        (".local", "a", at),
        (".local", "%SPL", at),
        (".local", "%rd10", at - 24),
        ("", "%SP", at),
        ("", "%rd9", at + 8),
    ][dice.below(5)];
    match dice.below(2) {
        0 => format!("{guard}ld{space}{vector}.{ty} {value}, [{base}+{delta}];\n"),
        _ => format!("{guard}st{space}{vector}.{ty} [{base}+{delta}], {value};\n"),
    }
}

#[test]
fn random_functions_run_the_same_after_promotion() {
    for seed in 0..300 {
        let source = random_function(seed);
        let promoted = promote(&source).unwrap();
        assert_eq!(promoted.refused, [], "{source}");
        assert!(!promoted.text.contains("local"), "{}", promoted.text);
        assert_eq!(
            run(&source),
            run(&promoted.text),
            "{source}\n{}",
            promoted.text
        );
    }
}

/// The judge must notice a lost store, or its silence means nothing.
#[test]
fn damage_is_noticed() {
    let source = random_function(1);
    let text = promote(&source).unwrap().text;
    let expected = run(&source);
    let lines: Vec<&str> = text.lines().collect();
    let (mut tried, mut noticed) = (0, 0);
    for at in (0..lines.len()).filter(|&i| lines[i].contains(", %cell_")) {
        let mut damaged = lines.clone();
        damaged.remove(at);
        tried += 1;
        noticed += usize::from(run(&damaged.join("\n")) != expected);
    }
    assert!(tried > 10 && noticed * 3 > tried, "{noticed} of {tried}");
}

#[test]
fn promoted_functions_are_allocated_by_every_strategy() {
    for strategy in Strategy::ALL {
        for seed in 0..4 {
            let options = ModuleOptions {
                options: Options {
                    strategy,
                    ..Options::default()
                },
                promote_local: true,
                ..ModuleOptions::default()
            };
            let result = allocate_module(&random_function(seed), &options, None).unwrap();
            assert!(matches!(result.functions[0].outcome, Outcome::Allocated(_)));
            assert!(!result.text.contains("a["), "{}", result.text);
            let mut off = options.clone();
            off.options.knobs.opt_phases_budget = 0;
            let result = allocate_module(&random_function(seed), &off, None).unwrap();
            assert!(result.text.contains("a["), "the knob switches it off");
        }
    }
}
