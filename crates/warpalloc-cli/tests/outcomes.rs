//! What the command does with functions it does not allocate, and what it says of those it does.

mod common;

use common::with_input;
use serde_json::Value;
use std::fmt::Write;
use std::process::Output;

fn run(args: &[&str], source: &str) -> Output {
    let is_named = args.iter().any(|arg| arg.starts_with("--regalloc"));
    let fixed = ["alloc", "-", "--regalloc=briggs"];
    let fixed = if is_named { &fixed[..2] } else { &fixed[..] };
    with_input(&[fixed, args].concat(), source.as_bytes())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const HEAD: &str = ".version 9.0\n.target sm_90\n.address_size 64\n";

/// A kernel in which `count` values are live at once.
fn crowded(name: &str, directives: &str, count: u32) -> String {
    let mut body = String::new();
    for i in 0..count {
        let _ = writeln!(body, "\tld.volatile.global.u32 %r{i}, [%rd1+{}];", 4 * i);
    }
    for i in 0..count {
        let _ = writeln!(
            body,
            "\tst.volatile.global.u32 [%rd1+{}], %r{i};",
            4 * (count - i)
        );
    }
    format!(
        ".visible .entry {name}(.param .u64 p)\n{directives}\n{{\n\t.reg .b32 %r<{count}>;\n\
         \t.reg .b64 %rd<2>;\n\tld.param.u64 %rd1, [p];\n{body}\tret;\n}}\n"
    )
}

const SMALL: &str = ".entry small() {\n\t.reg .b32 %r<2>;\n\t.shared .b32 s;\n\tmov.u32 %r1, %tid.x;\n\
    \tst.shared.b32 [s], %r1;\n\tret;\n}\n";

const UNKNOWN: &str = ".entry odd() {\n\tfrobnicate.u32 1;\n\tret;\n}\n";

#[test]
fn nothing_spills_where_no_cap_is_asked_for() {
    let source = format!("{HEAD}{}", crowded("k", ".maxntid 1024", 80));
    let free = run(&[], &source);
    assert_eq!(free.status.code(), Some(0));
    assert_eq!(text(&free.stdout), source, "it stays as it is");
    let said = text(&free.stderr);
    assert!(
        said.starts_with("warning: <stdin>:4: `k` stays as it is: in the order of its text it does not fit 64 registers"),
        "{said}"
    );
    let capped = run(&["--maxnreg", "64"], &source);
    assert!(text(&capped.stdout).contains("__warpalloc_frame"));
    let strict = run(&["--strict"], &source);
    assert_eq!(strict.status.code(), Some(1));
    assert!(strict.stdout.is_empty());
}

#[test]
fn one_refused_function_need_not_discard_the_module() {
    let source = format!("{HEAD}{SMALL}{}", crowded("k", "", 80));
    let flags = ["--maxnreg", "32", "--spill-limit", "0"];
    let stopped = run(&flags, &source);
    assert_eq!(stopped.status.code(), Some(1));
    assert!(stopped.stdout.is_empty());
    assert!(text(&stopped.stderr).starts_with("error: <stdin>:11: `k`: cannot allocate"));
    let kept = run(&[&flags[..], &["--keep-going"]].concat(), &source);
    assert_eq!(kept.status.code(), Some(0));
    let result = text(&kept.stdout);
    assert!(
        result.contains("%R0") && result.contains("%r79"),
        "{result}"
    );
    assert!(text(&kept.stderr).starts_with("warning: <stdin>:11: `k`: cannot allocate"));
    let figures = run(&[&flags[..], &["--print-regalloc-stats"]].concat(), &source);
    let said = text(&figures.stderr);
    assert!(
        said.contains("\nsmall ") && said.contains("refused: "),
        "{said}"
    );
}

#[test]
fn strictness_makes_an_error_of_what_is_passed_through() {
    let source = format!("{HEAD}{SMALL}{UNKNOWN}");
    assert_eq!(run(&[], &source).status.code(), Some(0));
    let strict = run(&["--strict"], &source);
    assert_eq!(strict.status.code(), Some(1));
    assert!(strict.stdout.is_empty());
    let said = text(&strict.stderr);
    assert!(said.starts_with("error: `odd` is passed through"), "{said}");
    let one = run(&["--strict", "--entry", "small"], &source);
    assert_eq!(one.status.code(), Some(0), "{}", text(&one.stderr));
}

/// PTX on standard output, JSON on standard error: each can be read by a program.
#[test]
fn json_is_alone_on_its_stream() {
    let source = format!(
        "{HEAD}{SMALL}{UNKNOWN}{}",
        crowded("k", ".maxntid 1024", 80)
    );
    let json = run(&["--maxnreg", "96", "--print-regalloc-stats=json"], &source);
    let document: Value = serde_json::from_slice(&json.stderr).unwrap();
    assert_eq!(document["schema"], 1);
    let functions = document["functions"].as_array().unwrap();
    assert_eq!(functions[1]["outcome"], "passed");
    assert_eq!(functions[0]["file"], "<stdin>");
    assert_eq!(functions[0]["fell_back"], false);
    assert_eq!(functions[0]["live_through_calls"], 0);
    let warning = functions[2]["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("96 registers is lowered to 64"),
        "{warning}"
    );
    let refused = [
        "--maxnreg",
        "32",
        "--spill-limit=0",
        "--print-regalloc-stats=json",
    ];
    let refused = run(&refused, &source);
    assert_eq!(refused.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert_eq!(document["functions"][2]["outcome"], "refused");
}

#[test]
fn values_live_through_calls_are_counted() {
    let file = format!(
        "{}/../../corpus/ptx/calls.sm_90.ptx",
        env!("CARGO_MANIFEST_DIR")
    );
    let through = |strategy: &str| {
        let fixed = ["alloc", &file, "-o", "/dev/null", "--regalloc", strategy];
        let json = [&fixed[..], &["--print-regalloc-stats=json"]].concat();
        let json: Value = serde_json::from_slice(&with_input(&json, b"").stdout).unwrap();
        let functions = json["functions"].as_array().unwrap();
        let find = |name: &str| functions.iter().find(|f| f["name"] == name).unwrap();
        let table = [&fixed[..], &["--print-regalloc-stats"]].concat();
        let table = text(&with_input(&table, b"").stdout);
        let line = table
            .lines()
            .find(|line| line.starts_with("_Z9ackermannii"));
        let told = line.unwrap().split_whitespace().last().unwrap().to_owned();
        let count = |name| find(name)["live_through_calls"].as_u64().unwrap();
        assert_eq!(told, count("_Z9ackermannii").to_string());
        (count("_Z9ackermannii"), count("_Z5powerf"))
    };
    let briggs = through("briggs");
    assert!(briggs.0 > 0 && briggs.1 == 0, "{briggs:?}");
    assert_eq!(through("fatpoint"), briggs);
}

#[test]
fn shared_memory_falls_back_to_local_memory_with_a_warning() {
    let source = format!("{HEAD}{}", crowded("k", "", 60));
    let flags = ["--maxnreg", "32", "--spill-space", "shared"];
    let unbounded = run(&flags, &source);
    assert_eq!(unbounded.status.code(), Some(0));
    assert!(text(&unbounded.stdout).contains("__warpalloc_frame"));
    let said = text(&unbounded.stderr);
    assert!(
        said.contains("spills go to local memory: shared memory needs `.maxntid`"),
        "{said}"
    );
    let bounded = run(&[&flags[..], &["--block", "128"]].concat(), &source);
    let result = text(&bounded.stdout);
    assert!(
        result.contains("__warpalloc_slots") && result.contains(".maxntid 128"),
        "{result}"
    );
    assert!(bounded.stderr.is_empty(), "{}", text(&bounded.stderr));
    let small = run(&["--spill-space", "shared"], &format!("{HEAD}{SMALL}"));
    assert!(small.stderr.is_empty(), "nothing spills");
    let knob = [
        "--maxnreg",
        "32",
        "--regalloc=fatpoint",
        "--knob",
        "RegAllocSmemSpill=true",
    ];
    let knob = run(&knob, &source);
    assert_eq!(knob.status.code(), Some(0), "{}", text(&knob.stderr));
    assert!(text(&knob.stderr).contains("spills go to local memory"));
}

/// ptxas compiles device functions of relocatable code without a cap unless it is told one.
#[test]
fn visible_functions_get_the_cap_for_separate_compilation() {
    let source = |version: &str, linkage: &str| {
        format!(
            ".version {version}\n.target sm_90\n.address_size 64\n{linkage} .func f()\n{{\n\tret;\n}}\n{SMALL}"
        )
    };
    let capped = |version: &str, linkage: &str, more: &[&str]| {
        let flags = [&["--maxnreg", "32"], more].concat();
        text(&run(&flags, &source(version, linkage)).stdout)
    };
    assert!(capped("9.0", ".visible", &[]).contains(".local_maxnreg 32"));
    assert!(capped("8.0", ".visible", &[]).contains(".pragma \"local_maxnreg 32\";"));
    assert!(!capped("9.0", "", &[]).contains("local_maxnreg"));
    assert!(capped("9.0", "", &["--relocatable"]).contains(".local_maxnreg 32"));
    assert!(!capped("9.0", ".visible", &["--relocatable=false"]).contains("local_maxnreg"));
}

#[test]
fn debug_information_that_names_registers_is_left_alone() {
    let source = format!(
        ".version 9.0\n.target sm_90, debug\n.address_size 64\n{SMALL}\
         \t.section\t.debug_loc\n\t{{\n.b64 0\n.b8 144, 1\n\t}}\n"
    );
    let result = run(&[], &source);
    assert_eq!(text(&result.stdout), source);
    let said = text(&result.stderr);
    assert!(
        said.contains("`.debug_loc` says where variables are"),
        "{said}"
    );
}

#[test]
fn line_ends_are_kept() {
    let source = format!("{HEAD}{}", crowded("k", "", 60)).replace('\n', "\r\n");
    let result = text(&run(&["--maxnreg", "32"], &source).stdout);
    assert!(result.contains("__warpalloc_frame"));
    assert_eq!(result.matches('\n').count(), result.matches("\r\n").count());
}

#[test]
fn a_machine_between_two_known_ones_is_taken() {
    let source = HEAD.replace("sm_90", "sm_88") + SMALL;
    assert_eq!(run(&[], &source).status.code(), Some(0));
    let source = HEAD.replace("sm_90", "sm_999") + SMALL;
    assert_eq!(run(&[], &source).status.code(), Some(1));
}

#[test]
fn a_cubin_is_told_to_be_one() {
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend([2, 0, 190, 0, 1, 0]);
    let result = with_input(&["alloc", "-"], &elf);
    assert_eq!(result.status.code(), Some(1));
    assert!(text(&result.stderr).contains("<stdin> is a cubin, and PTX is wanted here"));
}

#[test]
fn invalid_text_does_not_become_valid() {
    let source = format!(
        "{HEAD}.entry k() {{\n\t.reg .b32 %r<3>;\n\t.reg .f32 %f<3>;\n\tmov.f32 %f1, 0f00000000;\n\
         \tadd.u32 %r1, %f1, 1;\n\tret;\n}}\n"
    );
    let result = run(&[], &source);
    assert_eq!(result.status.code(), Some(1));
    assert!(result.stdout.is_empty());
    let said = text(&result.stderr);
    assert!(
        said.contains("<stdin>:8:15") && said.contains("`%f1` is declared `.f32`"),
        "{said}"
    );
}

#[test]
fn the_command_says_its_name_and_writes_its_manual() {
    let version = with_input(&["--version"], b"").stdout;
    assert!(text(&version).starts_with("warpalloc "));
    let script = with_input(&["completions", "bash"], b"").stdout;
    assert!(text(&script).contains("--maxnreg"));
    let folder = tempfile::tempdir().unwrap();
    let pages = with_input(&["man", folder.path().to_str().unwrap()], b"");
    assert!(pages.status.success(), "{}", text(&pages.stderr));
    assert!(folder.path().join("warpalloc-alloc.1").is_file());
}

#[test]
fn any_number_of_threads_may_be_asked_for() {
    let source = format!("{HEAD}{SMALL}");
    let result = run(&["--jobs", "65535"], &source);
    assert_eq!(result.status.code(), Some(0));
    assert_eq!(result.stdout, run(&["--jobs", "1"], &source).stdout);
}

#[test]
fn messages_are_coloured_on_request_and_told_in_detail() {
    let source = format!("{HEAD}{UNKNOWN}{SMALL}");
    let plain = text(&run(&["--color", "never"], &source).stderr);
    assert!(!plain.contains('\x1b') && plain.starts_with("warning: "));
    let coloured = text(&run(&["--color", "always"], &source).stderr);
    assert!(coloured.contains("\x1b[1;33mwarning"), "{coloured:?}");
    let told = text(&run(&["-v"], &source).stderr);
    assert!(
        told.contains("note: <stdin>:8: `small`: 1 of 255 registers"),
        "{told}"
    );
    assert!(run(&["-q"], &source).stderr.is_empty());
}

#[test]
fn a_function_of_a_file_is_lowered_for_replay() {
    let source = format!("{HEAD}{SMALL}{}", crowded("k", "", 60));
    let unnamed = with_input(&["lower", "-"], source.as_bytes());
    assert_eq!(unnamed.status.code(), Some(2));
    assert!(text(&unnamed.stderr).contains("small, k"));
    let case = with_input(
        &["lower", "-", "--kernel", "k", "--maxnreg", "32"],
        source.as_bytes(),
    );
    assert_eq!(case.status.code(), Some(0), "{}", text(&case.stderr));
    let replay = with_input(&["replay", "-"], &case.stdout);
    assert!(text(&replay.stdout).ends_with("; proved, and 4 executions agree\n"));
}
