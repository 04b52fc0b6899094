//! Each flag of `warpalloc alloc` changes what its help says.

mod common;

use std::process::Output;

use serde_json::Value;

fn warpalloc(args: &[&str], input: &str) -> Output {
    common::with_input(args, input.as_bytes())
}

fn corpus(name: &str) -> String {
    format!("{}/../../corpus/ptx/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The text and the figures of a file of the corpus, allocated with 24 registers and `flags`.
fn allocated(file: &str, flags: &[&str]) -> (String, Vec<Value>) {
    let file = corpus(file);
    let stats = "--print-regalloc-stats=json";
    let named = |flag: &&&str| flag.starts_with("--regalloc");
    let briggs: &[&str] = match flags.iter().find(named) {
        Some(_) => &[],
        None => &["--regalloc=briggs"],
    };
    let args = [&["alloc", &file, "--maxnreg", "24", stats], briggs, flags].concat();
    let run = warpalloc(&args, "");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let stats: Value = serde_json::from_slice(&run.stderr).unwrap();
    let functions = stats["functions"].as_array().unwrap();
    (text(&run.stdout), functions.clone())
}

fn sum(stats: &[Value], figure: &str) -> u64 {
    stats.iter().filter_map(|f| f[figure].as_u64()).sum()
}

/// How the command refuses flags, and with which exit code.
fn refusal(flags: &[&str]) -> (Option<i32>, String) {
    let run = warpalloc(&[&["alloc", "-"], flags].concat(), "");
    assert!(run.stdout.is_empty());
    (run.status.code(), text(&run.stderr))
}

#[test]
fn flags_of_coalescing_leave_copies() {
    let moves = |flags: &[&str]| sum(&allocated("wide.sm_90.ptx", flags).1, "moves");
    let usual = moves(&[]);
    let none = moves(&["--disable-coalescing"]);
    let some = moves(&["--coalescing-limit", "16"]);
    assert!(usual < some && some < none, "{usual}, {some}, {none}");
    for flag in [
        "--join-globalcopies=false",
        "--join-liveintervals=false",
        "--optimistic-coalescing=false",
    ] {
        assert!(moves(&[flag]) > usual, "{flag}");
        let bare = flag.trim_end_matches("=false");
        assert_eq!(moves(&[bare]), usual, "{bare}");
    }
    assert_eq!(moves(&["--coalescing-limit", "none"]), usual);
}

/// Whole values only: where split ones are cheaper, it does not show.
#[test]
fn careful_coalescing_heeds_the_factor_and_the_pressure() {
    let moves = |flags: &[&str]| {
        let flags = [&["--optimistic-coalescing=false", "--no-split"], flags].concat();
        sum(&allocated("wide.sm_90.ptx", &flags).1, "moves")
    };
    let usual = moves(&[]);
    assert_eq!(moves(&["--coalescing-factor", "0.8"]), usual);
    assert!(moves(&["--coalescing-factor", "0.05"]) < usual);
    assert_eq!(moves(&["--pressure-limit", "80"]), usual);
    assert!(moves(&["--pressure-limit", "1"]) > usual);
    assert!(moves(&["--pressure-limit", "100"]) < usual);
}

/// Spilling down to the limit leaves room in which reloads serve several readers. Where
/// splitting does better, it does not show.
#[test]
fn spilling_turns_aggressive_at_the_pressure_limit() {
    let reloads = |flags: &[&str]| {
        let flags = [&["--no-split"], flags].concat();
        sum(&allocated("fft16.sm_90.ptx", &flags).1, "reloads")
    };
    let usual = reloads(&[]);
    assert_eq!(reloads(&["--pressure-limit", "80"]), usual);
    assert!(usual < reloads(&["--pressure-limit", "100"]));
    let (fits, stats) = allocated("saxpy.sm_90.ptx", &[]);
    assert_eq!(sum(&stats, "reloads"), 0);
    assert!(allocated("saxpy.sm_90.ptx", &["--pressure-limit", "10"]).0 == fits);
}

#[test]
fn phases_can_be_left_out() {
    let (usual, _) = allocated("wide.sm_90.ptx", &[]);
    for phase in ["schedule", "split", "cleanup"] {
        let (without, _) = allocated("wide.sm_90.ptx", &[&format!("--no-{phase}")]);
        assert!(without != usual, "{phase}");
        let setting = format!("{phase}=false");
        let (by_name, _) = allocated("wide.sm_90.ptx", &["--option", &setting]);
        assert!(by_name == without, "{phase}");
    }
}

#[test]
fn the_last_word_is_for_options_by_name() {
    let flags = [
        "--coalescing-limit",
        "1",
        "--option",
        "coalescing-limit=none",
    ];
    let (usual, _) = allocated("localarr.sm_90.ptx", &[]);
    assert!(allocated("localarr.sm_90.ptx", &flags).0 == usual);
}

/// Neither shows in a result that is right.
#[test]
fn proofs_change_nothing() {
    let (usual, _) = allocated("calls.sm_90.ptx", &[]);
    for flag in [
        "--verify-regalloc",
        "--verify-regalloc=false",
        "--no-verify",
        "--verify-coalescing",
    ] {
        assert!(allocated("calls.sm_90.ptx", &[flag]).0 == usual, "{flag}");
    }
    let (code, said) = refusal(&["--verify-regalloc", "--no-verify"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn a_spill_limit_refuses_with_a_reason() {
    let file = corpus("stencil.sm_90.ptx");
    let args = ["alloc", &file, "--maxnreg", "24", "--spill-limit", "0"];
    let run = warpalloc(&args, "");
    assert_eq!(run.status.code(), Some(1));
    assert!(run.stdout.is_empty());
    let said = text(&run.stderr);
    assert!(said.contains("but 0 is the limit"), "{said}");
    assert!(said.contains("raise the register budget"), "{said}");
    allocated("stencil.sm_90.ptx", &["--spill-limit", "10000"]);
}

#[test]
fn an_occupancy_target_sets_the_budget() {
    let kernel = |bound: &str| {
        format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.entry k() {bound} {{\n\tret;\n}}\n"
        )
    };
    let run = |flags: &[&str], bound: &str| {
        let fixed = [
            "alloc",
            "-",
            "--regalloc=briggs",
            "--print-regalloc-stats=json",
        ];
        warpalloc(&[&fixed, flags].concat(), &kernel(bound))
    };
    for (flags, registers) in [
        (&[][..], 255),
        (&["--occupancy-target=50"], 64),
        (&["--occupancy-target"], 40),
        (&["--occupancy-target=100"], 32),
        (&["--maxnreg", "24", "--occupancy-target=100"], 24),
        (&["--maxnreg", "100", "--occupancy-target=100"], 32),
    ] {
        let run = run(flags, ".maxntid 256");
        let stats: Value = serde_json::from_slice(&run.stderr).unwrap();
        assert_eq!(stats["functions"][0]["budget"], registers, "{flags:?}");
        let cap = format!(".maxnreg {registers}");
        assert_eq!(text(&run.stdout).contains(&cap), !flags.is_empty());
    }
    let source = kernel("");
    let aside = warpalloc(
        &["alloc", "--regalloc=briggs", "--occupancy-target=50", "-"],
        &source,
    );
    assert_eq!(aside.status.code(), Some(0));
    let said = text(&aside.stderr);
    assert!(
        said.starts_with("warning: <stdin>:4: `k`: the occupancy target of 50 % is left aside"),
        "{said}"
    );
    let by_caller = warpalloc(
        &[
            "alloc",
            "-",
            "--regalloc=briggs",
            "--block",
            "256",
            "--occupancy-target=50",
        ],
        &source,
    );
    assert!(text(&by_caller.stdout).contains(".maxnreg 64"));
    assert!(by_caller.stderr.is_empty(), "{}", text(&by_caller.stderr));
}

#[test]
fn wrong_values_name_the_flag_the_value_and_what_is_accepted() {
    for (flag, value, accepted) in [
        ("--spill-limit", "few", "a whole number or none"),
        ("--coalescing-limit", "-1", "a whole number or none"),
        ("--coalescing-factor", "1.5", "a number above 0 and up to 1"),
        ("--join-physregs", "maybe", "true or false"),
        ("--join-globalcopies", "maybe", "true or false"),
        ("--join-liveintervals", "maybe", "true or false"),
        ("--optimistic-coalescing", "maybe", "true or false"),
        ("--verify-regalloc", "maybe", "true or false"),
        ("--pressure-limit", "0", "1..=100"),
        ("--occupancy-target", "101", "1..=100"),
        ("--option", "spill-limit=few", "a whole number or none"),
        ("--option", "spil-limit=3", "did you mean `spill-limit`?"),
        ("--option", "spill-limit", "NAME=VALUE"),
        ("--option", "spill=shared", "--spill-space"),
        ("--option", "strategy=naive", "--regalloc"),
    ] {
        let (code, said) = refusal(&[&format!("{flag}={value}")]);
        assert_eq!(code, Some(2), "{flag}={value}: {said}");
        for part in [flag, value, accepted] {
            assert!(said.contains(part), "{flag}={value}: {said}");
        }
    }
}

/// A value that may be left out must not swallow the file behind it.
#[test]
fn an_occupancy_target_takes_its_value_behind_an_equals_sign() {
    let source = ".version 9.0\n.target sm_90\n.entry k() .maxntid 256 {\n\tret;\n}\n";
    let run = warpalloc(&["alloc", "--occupancy-target", "-"], source);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(text(&run.stdout).contains(".maxnreg 40"));
}

#[test]
fn a_knob_of_another_allocator_is_told() {
    let source = ".version 9.0\n.target sm_90\n.entry k() {\n\tret;\n}\n";
    let knob = ["alloc", "-", "--knob", "RegAllocMacForce=true"];
    let said = text(&warpalloc(&knob, source).stderr);
    assert!(
        said.starts_with("warning: --knob RegAllocMacForce=true"),
        "{said}"
    );
    assert!(said.contains("does nothing for briggs"), "{said}");
    let quiet = [&knob[..], &["--quiet"]].concat();
    assert!(warpalloc(&quiet, source).stderr.is_empty());
    let heeded = [&knob[..], &["--regalloc=fatpoint"]].concat();
    assert!(warpalloc(&heeded, source).stderr.is_empty());
}

/// Hoisting is a pass that `briggs` has too, and `scan` has not.
#[test]
fn a_knob_of_a_pass_that_several_allocators_have_is_no_knob_of_another() {
    let source = ".version 9.0\n.target sm_90\n.entry k() {\n\tret;\n}\n";
    let knob = ["alloc", "-", "--knob", "HoistInvariantsPolicy=never"];
    let briggs = [&knob[..], &["--regalloc=briggs"]].concat();
    assert!(warpalloc(&briggs, source).stderr.is_empty());
    let scan = [&knob[..], &["--regalloc=scan"]].concat();
    let said = text(&warpalloc(&scan, source).stderr);
    assert!(said.contains("does nothing for scan"), "{said}");
}

#[test]
fn every_option_is_listed_with_its_values() {
    let said = text(&warpalloc(&["options"], "").stdout);
    for option in ["spill-limit", "coalescing-factor", "schedule"] {
        assert!(said.contains(&format!("\n{option} ")), "{said}");
    }
    assert!(said.contains("a whole number or none"), "{said}");
}

#[test]
fn flags_of_one_allocator_are_refused_for_another() {
    let (code, said) = refusal(&["--regalloc=naive", "--disable-coalescing"]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("--disable-coalescing") && said.contains("naive"),
        "{said}"
    );
}
