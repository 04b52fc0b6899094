//! The rule case by case, the text before and after side by side.
//!
//! What ptxas does in each case is what `bench/contraction.py` prints.

use super::*;
use crate::module::{ModuleOptions, Outcome, allocate_module};

const HEAD: &str = ".version 9.0\n.target sm_90\n.address_size 64\n";
const REGISTERS: &str = ".reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .f32 %a, %b, %c, %d, %e;\n\
    .reg .f32 %x<12>;\n.reg .f64 %fd<8>;\n.reg .b32 %h<8>;\n.reg .b64 %rd<8>, %o;\n";
const INPUTS: &str = "ld.param.u64 %o, [o];\nld.param.u32 %r0, [n];\nsetp.ne.u32 %p1, %r0, 3;\n\
    setp.ne.u32 %p2, %r0, 4;\nld.global.f32 %a, [%o];\nld.global.f32 %b, [%o+4];\n\
    ld.global.f32 %c, [%o+8];\nld.global.f32 %d, [%o+12];\nld.global.f32 %e, [%o+16];\n";

fn function(code: &str) -> String {
    format!(
        "{HEAD}.entry k(.param .u64 o, .param .u32 n, .param .f32 f) {{\n{REGISTERS}{INPUTS}{code}\nret;\n}}\n"
    )
}

/// The code of the function after contraction, one space between words.
fn with(code: &str, contraction: Contraction) -> String {
    let source = function(code);
    let contracted = contract(&source, contraction).unwrap();
    assert_eq!(contracted.functions[0].obstacle, None);
    let text = &contracted.text;
    assert_eq!(text.lines().count(), source.lines().count());
    let from = text.find(INPUTS).unwrap() + INPUTS.len();
    let code = &text[from..text.rfind("ret;").unwrap()];
    code.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn after(code: &str) -> String {
    with(code, Contraction::Ptxas)
}

/// Why the function stays as it is.
fn obstacle(code: &str) -> String {
    let source = function(code);
    let contracted = contract(&source, Contraction::Ptxas).unwrap();
    assert_eq!(contracted.text, source);
    contracted.functions[0].obstacle.clone().unwrap().reason
}

#[test]
fn a_product_and_its_sum_become_one() {
    assert_eq!(
        after("mul.f32 %x1, %a, %b;\nadd.f32 %x2, %x1, %c;\nst.global.f32 [%o], %x2;"),
        "fma.rn.f32 %x2, %a, %b, %c; st.global.f32 [%o], %x2;"
    );
    assert_eq!(
        after("mul.ftz.f32 %x1, %a, %b;\nadd.ftz.sat.f32 %x2, %c, %x1;\nst.global.f32 [%o], %x2;"),
        "fma.rn.ftz.sat.f32 %x2, %a, %b, %c; st.global.f32 [%o], %x2;"
    );
}

#[test]
fn differences_negate_what_they_subtract() {
    assert_eq!(
        after("mul.f32 %x1, %a, %b;\nsub.f32 %x2, %x1, %c;\nst.global.f32 [%o], %x2;"),
        "neg.f32 %fused_w0, %c; fma.rn.f32 %x2, %a, %b, %fused_w0; st.global.f32 [%o], %x2;"
    );
    assert_eq!(
        after("mul.f32 %x1, %a, %b;\nsub.f32 %x2, %c, %x1;\nst.global.f32 [%o], %x2;"),
        "neg.f32 %fused_w0, %a; fma.rn.f32 %x2, %fused_w0, %b, %c; st.global.f32 [%o], %x2;"
    );
    assert_eq!(
        after(
            "mul.f32 %x1, %a, %b;\nneg.f32 %x3, %x1;\nsub.f32 %x2, %c, %x3;\n\
             st.global.f32 [%o], %x2;"
        ),
        "fma.rn.f32 %x2, %a, %b, %c; st.global.f32 [%o], %x2;",
        "twice negated"
    );
}

#[test]
fn pairs_are_negated_by_their_sign_bits() {
    assert_eq!(
        after(
            "ld.global.b32 %h1, [%o];\nmul.bf16x2 %h2, %h1, %h1;\nsub.bf16x2 %h3, %h1, %h2;\n\
             st.global.b32 [%o], %h3;"
        ),
        "ld.global.b32 %h1, [%o]; xor.b32 %fused_w0, %h1, 0x80008000; \
         fma.rn.bf16x2 %h3, %fused_w0, %h1, %h1; st.global.b32 [%o], %h3;"
    );
}

#[test]
fn what_is_rounded_saturated_or_flushed_otherwise_stays_apart() {
    for (product, sum) in [
        ("mul.rn.f32", "add.f32"),
        ("mul.f32", "add.rn.f32"),
        ("mul.sat.f32", "add.f32"),
        ("mul.ftz.f32", "add.f32"),
        ("mul.f32", "add.ftz.f32"),
    ] {
        let rounded = |opcode: &str| match opcode.contains(".rn") {
            true => opcode.to_owned(),
            false => opcode.replacen('.', ".rn.", 1),
        };
        assert_eq!(
            after(&format!(
                "{product} %x1, %a, %b;\n{sum} %x2, %x1, %c;\nst.global.f32 [%o], %x2;"
            )),
            format!(
                "{} %x1, %a, %b; {} %x2, %x1, %c; st.global.f32 [%o], %x2;",
                rounded(product),
                rounded(sum)
            )
        );
    }
}

#[test]
fn the_first_of_two_products_with_as_many_readers_is_taken_in() {
    assert_eq!(
        after(
            "mul.f32 %x1, %a, %b;\nmul.f32 %x2, %c, %d;\nadd.f32 %x3, %x2, %x1;\n\
             st.global.f32 [%o], %x3;"
        ),
        "mul.rn.f32 %x1, %a, %b; fma.rn.f32 %x3, %c, %d, %x1; st.global.f32 [%o], %x3;"
    );
}

#[test]
fn the_product_with_fewer_readers_is_taken_in() {
    assert_eq!(
        after(
            "mul.f32 %x1, %a, %b;\nmul.f32 %x2, %c, %d;\nadd.f32 %x3, %x1, %x2;\n\
             add.f32 %x4, %x1, %e;\nst.global.f32 [%o], %x3;\nst.global.f32 [%o], %x4;"
        ),
        "mul.rn.f32 %x1, %a, %b; fma.rn.f32 %x3, %c, %d, %x1; add.rn.f32 %x4, %x1, %e; \
         st.global.f32 [%o], %x3; st.global.f32 [%o], %x4;"
    );
}

#[test]
fn a_product_waits_for_one_that_only_its_other_reader_has() {
    assert_eq!(
        after(
            "mul.f32 %x1, %a, %b;\nmul.f32 %x2, %c, %d;\nadd.f32 %x4, %x1, %e;\n\
             add.f32 %x3, %x1, %x2;\nst.global.f32 [%o], %x3;\nst.global.f32 [%o], %x4;"
        ),
        "mul.rn.f32 %x1, %a, %b; add.rn.f32 %x4, %x1, %e; fma.rn.f32 %x3, %c, %d, %x1; \
         st.global.f32 [%o], %x3; st.global.f32 [%o], %x4;"
    );
}

#[test]
fn every_reader_repeats_the_product() {
    assert_eq!(
        after(
            "mul.f32 %x1, %a, %b;\nadd.f32 %x2, %x1, %c;\nadd.f32 %x3, %d, %x1;\n\
             st.global.f32 [%o], %x2;\nst.global.f32 [%o], %x3;"
        ),
        "fma.rn.f32 %x2, %a, %b, %c; fma.rn.f32 %x3, %a, %b, %d; \
         st.global.f32 [%o], %x2; st.global.f32 [%o], %x3;"
    );
}

#[test]
fn a_product_that_is_needed_besides_stays() {
    for other in [
        "st.global.f32 [%o+4], %x1;",
        "abs.f32 %x5, %x1; st.global.f32 [%o+4], %x5;",
        "fma.rn.f32 %x5, %c, %d, %x1; st.global.f32 [%o+4], %x5;",
        "@%p1 mov.f32 %x1, %e; st.global.f32 [%o+4], %x1;",
    ] {
        assert_eq!(
            after(&format!(
                "mul.f32 %x1, %a, %b;\nadd.f32 %x2, %x1, %c;\nst.global.f32 [%o], %x2;\n{other}"
            )),
            format!(
                "mul.rn.f32 %x1, %a, %b; add.rn.f32 %x2, %x1, %c; st.global.f32 [%o], %x2; {other}"
            )
        );
    }
}

#[test]
fn dead_readers_do_not_count() {
    assert_eq!(
        after(
            "mul.f32 %x1, %a, %b;\nadd.f32 %x2, %x1, %c;\n@%p1 add.f32 %x1, %x1, %d;\n\
             st.global.f32 [%o], %x2;"
        ),
        "mul.rn.f32 %x1, %a, %b; fma.rn.f32 %x2, %a, %b, %c; @%p1 add.rn.f32 %x1, %x1, %d; \
         st.global.f32 [%o], %x2;"
    );
}

#[test]
fn a_product_is_not_added_to_itself_or_an_equal_one() {
    assert_eq!(
        after("mul.f32 %x1, %a, %b;\nadd.f32 %x2, %x1, %x1;\nst.global.f32 [%o], %x2;"),
        "mul.rn.f32 %x1, %a, %b; add.rn.f32 %x2, %x1, %x1; st.global.f32 [%o], %x2;"
    );
    assert_eq!(
        after(
            "mul.f32 %x1, %a, %b;\nmul.f32 %x3, %b, %a;\nadd.f32 %x2, %x1, %x3;\n\
             st.global.f32 [%o], %x2;"
        ),
        "mul.rn.f32 %x1, %a, %b; mul.rn.f32 %x3, %b, %a; add.rn.f32 %x2, %x1, %x3; \
         st.global.f32 [%o], %x2;"
    );
}

#[test]
fn a_factor_that_is_overwritten_is_kept() {
    assert_eq!(
        after(
            "mul.f32 %x1, %a, %b;\nadd.f32 %a, %a, %d;\nadd.f32 %x2, %x1, %c;\n\
             st.global.f32 [%o], %x2;\nst.global.f32 [%o+4], %a;"
        ),
        "mov.b32 %fused_w0, %a; add.rn.f32 %a, %a, %d; \
         fma.rn.f32 %x2, %fused_w0, %b, %c; st.global.f32 [%o], %x2; st.global.f32 [%o+4], %a;"
    );
}

#[test]
fn guarded_sums_take_products_in_and_guarded_products_are_none() {
    assert_eq!(
        after("mul.f32 %x1, %a, %b;\n@!%p1 add.f32 %c, %x1, %c;\nst.global.f32 [%o], %c;"),
        "@!%p1 fma.rn.f32 %c, %a, %b, %c; st.global.f32 [%o], %c;"
    );
    assert_eq!(
        after("@%p1 mul.f32 %d, %a, %b;\nadd.f32 %c, %d, %c;\nst.global.f32 [%o], %c;"),
        "@%p1 mul.rn.f32 %d, %a, %b; add.rn.f32 %c, %d, %c; st.global.f32 [%o], %c;"
    );
}

#[test]
fn blocks_end_where_ptxas_ends_them() {
    let apart = |between: &str| {
        format!("mul.f32 %x1, %a, %b;\n{between}\nadd.f32 %x2, %x1, %c;\nst.global.f32 [%o], %x2;")
    };
    for between in [
        "membar.gl;",
        "fence.acq_rel.gpu;",
        "@%p1 st.global.f32 [%o+4], %d;",
        "@%p1 bra L; bar.sync 0; L:",
        "div.rn.f32 %x5, %a, %b; st.global.f32 [%o+4], %x5;",
        "@%p1 exit;",
    ] {
        assert!(after(&apart(between)).contains("mul.rn.f32"), "{between}");
    }
    for between in [
        "bar.sync 0;",
        "L:",
        "bra L; L:",
        "st.global.f32 [%o+4], %d;",
        "div.approx.f32 %x5, %a, %b; st.global.f32 [%o+4], %x5;",
        "div.rn.f32 %x5, %a, %b;",
        "@%p1 mov.f32 %d, %e;",
    ] {
        assert!(after(&apart(between)).contains("fma.rn.f32"), "{between}");
    }
}

#[test]
fn a_constant_factor_lets_a_product_be_read_elsewhere() {
    for factor in ["0f40490FDB", "%x9"] {
        let code = format!(
            "ld.param.f32 %x9, [f];\nmul.f32 %x1, %a, {factor};\n@%p1 bra L;\nbar.sync 0;\nL:\n\
             add.f32 %x2, %x1, %c;\nst.global.f32 [%o], %x2;"
        );
        assert!(after(&code).contains("fma.rn.f32 %x2"), "{factor}");
    }
}

#[test]
fn a_product_with_one_is_no_product() {
    assert_eq!(
        after(
            "mul.f32 %x1, %a, 0fBF800000;\nmul.f32 %x2, %c, %d;\nadd.f32 %x3, %x1, %x2;\n\
             st.global.f32 [%o], %x3;"
        ),
        "mul.f32 %x1, %a, 0fBF800000; fma.rn.f32 %x3, %c, %d, %x1; st.global.f32 [%o], %x3;"
    );
}

#[test]
fn without_contraction_everything_is_rounded() {
    assert_eq!(
        with(
            "mul.f32 %x1, %a, %b;\n@%p1 add.ftz.f32 %x2, %x1, %c;\nst.global.f32 [%o], %x2;",
            Contraction::Off
        ),
        "mul.rn.f32 %x1, %a, %b; @%p1 add.rn.ftz.f32 %x2, %x1, %c; st.global.f32 [%o], %x2;"
    );
    assert_eq!(
        with(
            "ld.global.b64 %rd1, [%o];\nmul.rn.f32x2 %rd2, %rd1, %rd1;\n\
             add.rn.f32x2 %rd3, %rd2, %rd1;\nst.global.b64 [%o], %rd3;",
            Contraction::Off
        ),
        "ld.global.b64 %rd1, [%o]; fma.rn.f32x2 %rd3, %rd1, %rd1, %rd1; st.global.b64 [%o], %rd3;",
        "ptxas fuses pairs of singles whatever it is told"
    );
    let source = function("mul.f32 %x1, %a, %b;\nst.global.f32 [%o], %x1;");
    assert_eq!(contract(&source, Contraction::Keep).unwrap().text, source);
}

const LOOP: &str = "add.s32 %r0, %r0, -1;\nsetp.ne.s32 %p3, %r0, 0;\n@%p3 bra LOOP;\n\
    st.global.f32 [%o], %x2;";

#[test]
fn a_product_that_the_next_turn_reads_is_an_obstacle() {
    let code = |pragma: &str| {
        format!(
            "mov.f32 %x1, %a;\nmov.f32 %x2, %b;\nLOOP:\n{pragma}\nadd.f32 %x2, %x2, %x1;\n\
             mul.f32 %x1, %x2, %c;\n{LOOP}"
        )
    };
    assert!(obstacle(&code("")).contains("the next turn of the loop reads it"));
    assert!(after(&code(".pragma \"nounroll\";")).contains("mul.rn.f32 %x1"));
}

#[test]
fn a_function_with_an_obstacle_stays_as_it_is() {
    let each = |text: &dyn Fn(usize) -> String| (0..30).map(text).collect::<String>();
    let loads = each(&|i| format!("ld.volatile.global.f32 %v{i}, [%o+{}];\n", 4 * i));
    let stores = each(&|i| format!("st.volatile.global.f32 [%o+{}], %v{i};\n", 4 * i));
    let turn = "mov.f32 %x1, %a;\nmov.f32 %x2, %b;\nLOOP:\nadd.f32 %x2, %x2, %x1;\nmul.f32 %x1, %x2, %c;\n";
    let source = function(&format!(".reg .f32 %v<30>;\n{loads}{turn}{LOOP}\n{stores}"));
    let outcome = |maxnreg, contraction| {
        let options = ModuleOptions {
            maxnreg: Some(maxnreg),
            contraction,
            ..ModuleOptions::default()
        };
        let mut result = allocate_module(&source, &options, None).unwrap();
        (result.functions.remove(0).outcome, result.text)
    };
    // With 64 registers it needs no spill code, and would still be scheduled.
    for maxnreg in [24, 64] {
        let (kept, text) = outcome(maxnreg, Contraction::Ptxas);
        let Outcome::Kept(reason) = kept else {
            panic!("it was allocated: {text}");
        };
        let product = "the next turn of the loop reads it";
        assert!(reason.contains(product), "{reason}");
        assert!(reason.contains("--contract keep"), "{reason}");
        assert!(text.contains(turn), "{text}");
        let keep = outcome(maxnreg, Contraction::Keep).0;
        assert!(matches!(keep, Outcome::Allocated(_)));
    }
}

#[test]
fn a_product_in_front_of_a_loop_depends_on_its_turns() {
    let code = |turns: &str| {
        format!(
            "{turns}\nmul.f32 %x1, %a, %b;\nmov.f32 %x2, %c;\nLOOP:\nadd.f32 %x2, %x2, %x1;\n{LOOP}"
        )
    };
    assert!(after(&code("")).contains("mul.rn.f32 %x1"));
    let known = code("mov.u32 %r0, 4;");
    assert!(obstacle(&known).contains("unrolled completely"));
}

#[test]
fn a_quotient_in_a_sum_is_an_obstacle() {
    let code = "div.approx.f32 %x1, %a, %b;\nadd.f32 %x2, %x1, %c;\nst.global.f32 [%o], %x2;";
    assert!(obstacle(code).contains("approximate quotient"));
}

#[test]
fn a_product_that_local_memory_takes_to_a_sum_is_an_obstacle() {
    let code = ".local .f32 v;\nmul.f32 %x1, %a, %b;\nst.local.f32 [v], %x1;\n\
        ld.local.f32 %x3, [v];\nadd.f32 %x2, %x3, %c;\nst.global.f32 [%o], %x2;";
    assert!(obstacle(code).contains("local memory"));
}

#[test]
fn a_product_between_branches_on_one_predicate_is_an_obstacle() {
    let code = "@%p1 st.global.f32 [%o+8], %d;\nmul.f32 %x1, %a, %b;\nadd.f32 %x2, %x1, %c;\n\
        membar.gl;\nadd.rn.f32 %x3, %x1, %d;\n@%p1 st.global.f32 [%o+8], %d;\n\
        st.global.f32 [%o], %x2;\nst.global.f32 [%o+4], %x3;";
    assert!(obstacle(code).contains("may be copied"));
}

#[test]
fn a_product_that_sums_of_several_blocks_read_is_an_obstacle() {
    for between in ["membar.gl;", "@%p1 bra L; bar.sync 0; L:"] {
        let code = format!(
            "mul.f32 %x1, %a, %b;\nadd.f32 %x2, %x1, %c;\n{between}\nadd.f32 %x3, %x1, %c;\n\
             st.global.f32 [%o], %x2;\nst.global.f32 [%o+4], %x3;"
        );
        assert!(obstacle(&code).contains("other blocks"), "{between}");
    }
}
