//! `warpalloc replay` as a shell user sees it.

mod common;

use std::process::Output;

const CASE: &str = "\
target cicc sm_80 R=8 P=7 UR=63 UP=7
options strategy=briggs

kernel add {
block0:
    v0:r32 = ld #1 : read
    v1:r32 = ld #2 : read
    v2:r32 = add v0, v1
    st v2 : write
    exit : exit write
}
";

fn replay(text: &str, flags: &[&str]) -> Output {
    common::with_input(&[&["replay", "-"], flags].concat(), text.as_bytes())
}

#[test]
fn shows_the_allocation_and_its_proof() {
    for flags in [&[][..], &["--regalloc", "naive"]] {
        let output = replay(CASE, flags);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(text.contains("R0"), "{text}");
        assert!(
            text.ends_with("; proved, and 4 executions agree\n"),
            "{text}"
        );
    }
}

#[test]
fn a_bad_text_is_pointed_at() {
    let output = replay(&CASE.replace("= add", "= = add"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("<stdin>:8:"), "{message}");
    assert!(message.contains('^'), "{message}");
}

#[test]
fn an_undefined_value_is_named() {
    let output = replay(&CASE.replace("v0, v1", "v0, v3:r32"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("v3"), "{message}");
}

#[test]
fn an_unknown_allocator_is_a_usage_error() {
    let output = replay(CASE, &["--regalloc", "greedy"]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("briggs"), "{message}");
}
