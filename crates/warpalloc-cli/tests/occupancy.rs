//! `warpalloc occupancy` as a user sees it.

use std::process::{Command, Output};

fn warpalloc(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpalloc"))
        .args(arguments.split_whitespace())
        .output()
        .expect("the command starts")
}

fn stdout(arguments: &str) -> String {
    let output = warpalloc(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn text_says_what_limits_and_where_the_cliffs_are() {
    let text = stdout("occupancy --sm 90 --regs 80 --block 256");
    for line in [
        "  blocks per SM   3\n",
        "  warps per SM    24 of 64 (37.5 %)\n",
        "  limited by      registers\n",
        "  room in blocks  warps 8, blocks 32, registers 3, shared memory 228\n",
        "  next cliff up   64 registers or fewer: 4 blocks, 32 warps (50 %)\n",
        "  next cliff down 81 registers or more: 2 blocks, 16 warps (25 %)\n",
        "> 65-80                3     24     37.5 %\n",
    ] {
        assert!(text.contains(line), "{line:?} is missing from:\n{text}");
    }
}

#[test]
fn json_holds_the_same() {
    let text = stdout("occupancy --sm sm_86 --regs 41 --block 128 --smem 20480 --json");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["sm"], 86);
    assert_eq!(json["blocks"], 4);
    assert_eq!(json["warps"], 16);
    assert_eq!(json["max_warps"], 48);
    assert_eq!(json["limiters"], serde_json::json!(["shared memory"]));
    assert_eq!(json["refusal"], serde_json::Value::Null);
    assert_eq!(json["next_higher"], serde_json::Value::Null);
    assert_eq!(json["next_lower"]["first_registers"], 129);
    assert_eq!(json["cliffs"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_launch_that_cannot_be_is_explained() {
    let text = stdout("occupancy --sm 90a --regs 128 --block 1024");
    assert!(text.contains("  blocks per SM   0\n"), "{text}");
    assert!(
        text.contains("a block needs 131072 registers and may have 65536\n"),
        "{text}"
    );
    assert!(
        text.contains("next cliff up   64 registers or fewer: 1 block,"),
        "{text}"
    );
    assert!(text.contains("none: no block is left to lose\n"), "{text}");
}

#[test]
fn bad_values_are_named_with_what_is_valid() {
    for (arguments, value, valid) in [
        ("--sm 90 --regs 80 --block 0", "block size 0", "1 to 1024"),
        (
            "--sm 90 --regs 80 --block 2000",
            "block size 2000",
            "1 to 1024",
        ),
        (
            "--sm 90 --regs 300 --block 256",
            "300 registers",
            "1 to 255",
        ),
        ("--sm 90 --regs 0 --block 256", "0 registers", "1 to 255"),
        (
            "--sm 91 --regs 80 --block 256",
            "`91`",
            "sm_89, sm_90, sm_100",
        ),
        ("--sm 90 --regs x --block 256", "'x'", "--regs"),
        ("--sm 90 --regs 80", "--block", "required"),
    ] {
        let output = warpalloc(&format!("occupancy {arguments}"));
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(output.stdout.is_empty(), "{arguments}");
        let message = String::from_utf8(output.stderr).expect("text");
        assert!(
            message.contains(value) && message.contains(valid),
            "{arguments}: {message}"
        );
    }
}
