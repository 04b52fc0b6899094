//! `warpalloc knobs` and `--knob` as a user sees them.

use std::process::{Command, Output};

fn warpalloc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpalloc"))
        .args(arguments)
        .output()
        .expect("the command starts")
}

#[test]
fn every_knob_is_listed_with_type_default_and_meaning() {
    let output = warpalloc(&["knobs"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text
        .lines()
        .find(|line| line.contains("RegAllocThresholdForDiscardConflicts"))
        .expect("the knob is listed");
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(
        words[..5],
        [
            "684",
            "RegAllocThresholdForDiscardConflicts",
            "int",
            "50",
            "none"
        ]
    );
    let inert = |line: &&str| line.contains(" none ");
    let inert: Vec<_> = text.lines().filter(inert).collect();
    let has_reason = |line: &&str| line.ends_with(')');
    assert_eq!(inert.len(), 7, "{inert:?}");
    assert!(inert.iter().all(has_reason), "{inert:?}");
    let json = warpalloc(&["knobs", "--json"]).stdout;
    let document: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(document["schema"], 1);
    assert_eq!(
        document["knobs"].as_array().map(Vec::len),
        Some(text.lines().count() - 1)
    );
}

#[test]
fn a_wrong_knob_ends_with_the_nearest_name_and_exit_code_two() {
    let output = warpalloc(&["alloc", "-", "--knob", "RegAllocMacForc=true"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.contains("did you mean `RegAllocMacForce`?"), "{text}");
    let output = warpalloc(&["alloc", "-", "--knob", "RegAllocMacForce=maybe"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.contains("takes true or false, not `maybe`"), "{text}");
}
