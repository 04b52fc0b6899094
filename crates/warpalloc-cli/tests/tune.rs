//! `warpalloc tune`: a table of caps, and a recommendation that holds when it is followed.

#[path = "common/command.rs"]
mod command;
#[path = "common/ptxas.rs"]
mod ptxas;

use std::fs;
use std::path::Path;
use std::process::Output;

use command::{out, run_in, said};
use serde_json::{Value, json};

/// Loads that may stand anywhere before their use: the text has all of them live at once.
fn loose(values: usize) -> String {
    let mut text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n\
         .visible .entry k(.param .u64 p) {{\n\t.reg .b32 %r<{}>;\n\t.reg .b64 %rd<2>;\n\
         \tld.param.u64 %rd1, [p];\n",
        values + 1
    );
    for i in 1..=values {
        text += &format!("\tld.global.nc.u32 %r{i}, [%rd1+{}];\n", 4 * i);
    }
    for i in 1..=values {
        text += &format!("\tred.global.add.u32 [%rd1+{}], %r{i};\n", 4 * (values - i));
    }
    text + "\tret;\n}\n"
}

fn tune(folder: &Path, args: &[&str]) -> Output {
    run_in(folder, &[&["tune"], args].concat())
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("k.ptx"), loose(60)).unwrap();
    folder
}

#[test]
fn the_block_size_has_to_be_known() {
    let folder = folder();
    let run = tune(folder.path(), &["k.ptx"]);
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(
        said(&run),
        "error: `k` does not say how many threads its blocks have: --block N does\n"
    );
}

#[test]
fn without_ptxas_the_most_warps_without_spills_are_recommended() {
    let folder = folder();
    let args = ["k.ptx", "--block", "256", "--no-ptxas", "-o", "best.ptx"];
    let told = out(&tune(folder.path(), &args));
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(
        lines[0],
        "k.ptx:4: `k` for sm_90, 256 threads and 0 bytes of shared memory per block"
    );
    assert!(
        lines[2].starts_with("  none    62     32      0       0      -      -  fatpoint"),
        "{told}"
    );
    let best = lines.iter().find(|line| line.starts_with('>')).unwrap();
    let cap = best.split_whitespace().nth(1).unwrap();
    assert!(
        lines
            .last()
            .unwrap()
            .starts_with(&format!("recommended: a cap of {cap}: ")),
        "{told}"
    );
    let written = fs::read_to_string(folder.path().join("best.ptx")).unwrap();
    assert!(written.contains(&format!(".maxnreg {cap}")), "{written}");
    assert!(!written.contains(".local"), "no spill code: {written}");
}

#[test]
fn json_has_a_row_per_cap() {
    let folder = folder();
    let args = ["k.ptx", "--block", "256", "--no-ptxas", "--json"];
    let value: Value = serde_json::from_str(&out(&tune(folder.path(), &args))).unwrap();
    assert_eq!(value["schema"], 1);
    let caps = value["caps"].as_array().unwrap();
    let numbers: Vec<&Value> = caps.iter().map(|row| &row["cap"]).collect();
    assert_eq!(numbers, [&json!(null), &json!(48), &json!(40), &json!(32)]);
    let warps: Vec<u64> = caps
        .iter()
        .map(|row| row["warps"].as_u64().unwrap())
        .collect();
    assert_eq!(warps, [32, 40, 48, 64]);
}

#[test]
fn a_cubin_wants_a_ptxas() {
    let folder = folder();
    let args = ["k.ptx", "--block", "256", "--no-ptxas", "-o", "k.cubin"];
    let run = tune(folder.path(), &args);
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(
        said(&run),
        "error: a cubin is written by ptxas: --ptxas FILE names one\n"
    );
    assert!(!folder.path().join("k.cubin").exists());
}

/// A stencil that runs from registers: less of them make it slower, whatever the occupancy.
#[test]
fn with_ptxas_cycles_are_compared() {
    let Some(real) = ptxas::ptxas() else { return };
    let folder = folder();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/ptx/stencil.sm_90.ptx");
    fs::copy(corpus, folder.path().join("stencil.ptx")).unwrap();
    let real = real.to_str().unwrap();
    let args = ["stencil.ptx", "--block", "256", "--ptxas", real, "--json"];
    let value: Value = serde_json::from_str(&out(&tune(folder.path(), &args))).unwrap();
    let caps = value["caps"].as_array().unwrap();
    assert_eq!(caps[0]["cycles"], json!({ "alone": 1.0, "full": 1.0 }));
    assert_eq!(caps[1]["cap"], 32);
    assert!(caps[1]["local_accesses"].as_u64() > Some(0), "{value}");
    assert!(caps[1]["cycles"]["full"].as_f64() > Some(1.0), "{value}");
    assert_eq!(value["recommended"]["cap"], json!(null));
    assert_eq!(
        value["recommended"]["reason"],
        "no cap is expected to be faster"
    );
    let args = [
        "stencil.ptx",
        "--block",
        "256",
        "--ptxas",
        real,
        "-o",
        "out.cubin",
    ];
    out(&tune(folder.path(), &args));
    let cubin = fs::read(folder.path().join("out.cubin")).unwrap();
    assert!(cubin.starts_with(b"\x7fELF"));
}

#[test]
fn several_kernels_are_tuned_one_after_another() {
    let folder = folder();
    fs::create_dir(folder.path().join("ptx")).unwrap();
    let other = loose(30).replace("entry k(", "entry other(");
    fs::write(folder.path().join("ptx/other.ptx"), other).unwrap();
    let args = ["k.ptx", "ptx", "--block", "256", "--no-ptxas"];
    let told = out(&tune(folder.path(), &args));
    assert!(
        told.contains("k.ptx:4: `k`") && told.contains("\nptx/other.ptx:4: `other`"),
        "{told}"
    );
    let value = out(&tune(folder.path(), &[&args[..], &["--json"]].concat()));
    let value: Value = serde_json::from_str(&value).unwrap();
    assert_eq!(value["kernels"][1]["name"], "other");
    let run = tune(folder.path(), &[&args[..], &["-o", "out.ptx"]].concat());
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(
        said(&run),
        "error: -o writes one kernel, and 2 are tuned: --kernel names one\n"
    );
}

/// A program in the place of `warpalloc-gpu`. The chooser replaces the kernel within 32 registers, and there
/// ptxas alone is timed too: the estimate does not decide which of the two is the faster one.
#[cfg(unix)]
#[test]
fn with_a_manifest_caps_are_ordered_by_time() {
    use std::os::unix::fs::PermissionsExt;
    let Some(real) = ptxas::ptxas() else { return };
    let folder = folder();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/ptx/wide.sm_90.ptx");
    fs::copy(corpus, folder.path().join("wide.ptx")).unwrap();
    let manifest = r#"{"kernels": {"quads": {"grid": [4096], "block": [256], "arguments": []}}}"#;
    fs::write(folder.path().join("launches.json"), manifest).unwrap();
    let runner = folder.path().join("runner");
    // The kernel without a cap, within 48, whatever else there is, and within 32 as the chooser has it.
    let answers = |first: f64, second: &str, last: f64| {
        let script = format!(
            r#"#!/bin/sh
cat > asked.json
left=$(tr , '\n' < asked.json | grep -c '[0-9].cubin')
images='{{"microseconds": {first}}}, {second}'
while [ $left -gt 3 ]; do images="$images, {{\"microseconds\": 20}}"; left=$((left - 1)); done
echo "{{\"images\": [$images, {{\"microseconds\": {last}}}]}}"
"#
        );
        fs::write(&runner, script).unwrap();
        fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).unwrap();
    };
    answers(9.0, r#"{"reason": "other bits"}"#, 4.5);
    let args = [
        "wide.ptx",
        "--kernel=quads",
        "--measure=launches.json",
        "--gpu-runner=./runner",
        "--ptxas",
        real.to_str().unwrap(),
    ];
    let run = tune(folder.path(), &args);
    let told = out(&run);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[1].ends_with("full       us  by"), "{told}");
    assert!(lines[2].ends_with("      9.0  ptxas"), "{told}");
    let [.., alone, chosen, recommended] = &lines[..] else {
        panic!("{told}")
    };
    assert!(
        alone.starts_with("    32") && alone.ends_with("     20.0  ptxas"),
        "{told}"
    );
    assert!(
        chosen.starts_with(">   32") && chosen.contains("      4.5  "),
        "{told}"
    );
    assert_eq!(
        *recommended,
        "recommended: a cap of 32: 64 warps instead of 32; 0.50 of the time, measured"
    );
    assert_eq!(
        said(&run),
        "warning: wide.ptx: `quads` within a cap of 48 by ptxas: other bits\n"
    );
    let value = out(&tune(folder.path(), &[&args[..], &["--json"]].concat()));
    let value: Value = serde_json::from_str(&value).unwrap();
    let last = value["caps"].as_array().unwrap().last().unwrap();
    assert_eq!(last["microseconds"], 4.5);
    assert_eq!(value["recommended"]["by"], last["by"]);
    assert_ne!(last["by"], "ptxas");
    // A gain within the error of the clock is none.
    let times = |at48: f64| {
        answers(10.0, &format!(r#"{{"microseconds": {at48}}}"#), 11.0);
        let told = out(&tune(folder.path(), &args));
        told.lines().last().unwrap().to_owned()
    };
    assert_eq!(
        times(9.79),
        "recommended: a cap of 48: 40 warps instead of 32; 0.98 of the time, measured"
    );
    assert_eq!(
        times(9.81),
        "recommended: no cap: no cap is faster by more than 2 %"
    );
    let run = tune(
        folder.path(),
        &["k.ptx", "--measure=launches.json", "--no-ptxas"],
    );
    assert_eq!(run.status.code(), Some(2));
}
