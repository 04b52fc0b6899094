//! `warpalloc explain` as a person with a kernel that takes too many registers meets it.

#[path = "common/command.rs"]
mod command;
#[path = "common/ptxas.rs"]
mod ptxas;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use command::{out, run_in, said};
use serde_json::{Value, json};

/// Values that are loaded in a row and used in the same order: another order needs few registers.
fn sums(values: usize) -> String {
    let mut text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n\
         .visible .entry sums(.param .u64 p) .maxntid 256 {{\n\t.reg .b32 %r<{}>;\n\t.reg .b64 %rd<2>;\n\
         \t.loc 1 4 0\n\tld.param.u64 %rd1, [p];\n\tmov.u32 %r0, 7;\n",
        values + 1
    );
    for i in 1..=values {
        text += &format!("\tld.volatile.global.u32 %r{i}, [%rd1+{}];\n", 4 * i);
    }
    text += "\t.loc 1 9 0\n";
    for i in 1..=values {
        text += &format!(
            "\tst.volatile.global.u32 [%rd1+{}], %r{i};\n",
            4 * (values - i)
        );
    }
    text + "\tst.global.u32 [%rd1], %r0;\n\tret;\n}\n.file 1 \"sums.cu\"\n"
}

fn explain(folder: &Path, args: &[&str]) -> Output {
    run_in(folder, &[&["explain"], args].concat())
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sums.ptx"), sums(4)).unwrap();
    folder
}

#[test]
fn what_is_live_at_the_peak_comes_with_its_places_and_costs() {
    let folder = folder();
    let told = out(&explain(folder.path(), &["sums.ptx", "--no-ptxas"]));
    assert_eq!(
        told,
        "sums.ptx:4: `sums`: 7 registers live at the peak, line 15 (sums.cu:9) `st.volatile.global.u32`\n  \
         value  regs  written              next read            reads  to spill  to remake\n  \
         %r0       1  line 9 (sums.cu:4)   line 19 (sums.cu:9)      1         8          1\n  \
         %r1       1  line 10 (sums.cu:4)  line 15 (sums.cu:9)      1         8          -\n  \
         %r2       1  line 11 (sums.cu:4)  line 16 (sums.cu:9)      1         8          -\n  \
         %r3       1  line 12 (sums.cu:4)  line 17 (sums.cu:9)      1         8          -\n  \
         %r4       1  line 13 (sums.cu:4)  line 18 (sums.cu:9)      1         8          -\n  \
         %rd1      2  line 8 (sums.cu:4)   line 15 (sums.cu:9)      9        40          0\n"
    );
}

#[test]
fn one_value_is_explained() {
    let folder = folder();
    let told = out(&explain(folder.path(), &["sums.ptx", "--value", "%r0"]));
    let lines: Vec<&str> = told.lines().skip(1).collect();
    assert_eq!(
        lines[..4],
        [
            "  %r0: 1 register, live at the peak, live at once with 5 others in 6 registers",
            "    written  line 9 (sums.cu:4) `mov.u32`",
            "    read     line 19 (sums.cu:9) `st.global.u32`",
            "    spilling it costs 8 cycles a run; it can be computed again in 1 cycle",
        ]
    );
    assert_eq!(lines.len(), 4, "nothing is said of caps: {told}");
    fs::write(folder.path().join("sums.ptx"), sums(40)).unwrap();
    let fates = |value: &str| {
        let args = ["sums.ptx", "--maxnreg", "24", "--value", value];
        let told = out(&explain(folder.path(), &args));
        told.lines().last().unwrap().trim().to_owned()
    };
    let fate = fates("%r1");
    assert!(fate.starts_with("within 24 registers it "), "{fate}");
    let spilled =
        (1..=40).filter(|i| fates(&format!("%r{i}")).contains("it is spilled, stored at line"));
    assert!(spilled.count() > 10);
    let wrong = explain(folder.path(), &["sums.ptx", "--value", "%x"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(
        said(&wrong),
        "error: `sums` has no value in a general register called %x\n"
    );
}

#[test]
fn a_line_is_explained() {
    let folder = folder();
    let told = out(&explain(folder.path(), &["sums.ptx", "--line", "12"]));
    assert!(
        told.contains("\nbefore line 12: 5 registers live\n"),
        "{told}"
    );
    assert_eq!(told.lines().count(), 2 + 1 + 4, "{told}");
    let wrong = explain(folder.path(), &["sums.ptx", "--line", "2"]);
    assert_eq!(
        said(&wrong),
        "error: no statement of `sums` begins in line 2 of sums.ptx\n"
    );
}

#[test]
fn json_holds_the_same() {
    let folder = folder();
    let told = out(&explain(
        folder.path(),
        &["sums.ptx", "--json", "--no-ptxas"],
    ));
    let value: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&value["schema"], &value["peak"]), (&json!(1), &json!(7)));
    assert_eq!(value["values"].as_array().map(Vec::len), Some(6));
    assert_eq!(
        value["peak_at"]["source"],
        json!({ "file": "sums.cu", "line": 9 })
    );
}

#[test]
fn several_kernels_want_a_name() {
    let folder = folder();
    let text = sums(4);
    let (_, second) = text.split_once(".address_size 64\n").unwrap();
    let second = second.replace("sums", "_Z3addPj");
    fs::write(folder.path().join("two.ptx"), format!("{text}{second}")).unwrap();
    let run = explain(folder.path(), &["two.ptx"]);
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(
        said(&run),
        "error: --kernel names one of the kernels that two.ptx has: sums, _Z3addPj\n"
    );
    for name in ["_Z3addPj", "add", "add(unsigned int*)"] {
        let told = out(&explain(
            folder.path(),
            &["two.ptx", "--kernel", name, "--no-ptxas"],
        ));
        assert!(told.contains("`_Z3addPj`"), "{name}: {told}");
    }
}

/// Sums of loads whose order is free: the text has all of them live, and fewer registers do.
fn loose(values: usize) -> String {
    sums(values)
        .replace("ld.volatile.global", "ld.global.nc")
        .replace("st.volatile.global.u32 [%rd1+", "red.global.add.u32 [%rd1+")
}

/// What a suggestion promises is what comes out when it is followed.
#[test]
fn suggestions_hold_when_they_are_followed() {
    let folder = folder();
    fs::write(folder.path().join("loose.ptx"), loose(60)).unwrap();
    let told = out(&explain(
        folder.path(),
        &["loose.ptx", "--json", "--no-ptxas"],
    ));
    let value: Value = serde_json::from_str(&told).unwrap();
    let suggestions = value["suggestions"].as_array().unwrap();
    assert!(!suggestions.is_empty(), "{told}");
    for suggestion in suggestions {
        let what = suggestion["what"].as_str().unwrap();
        let (_, cap) = what.split_once("--maxnreg ").unwrap();
        let cap = cap.trim_end_matches('`');
        let run = Command::new(env!("CARGO_BIN_EXE_warpalloc"))
            .current_dir(folder.path())
            .args([
                "alloc",
                "loose.ptx",
                "-o",
                "out.ptx",
                "--regalloc=briggs",
                "--maxnreg",
                cap,
            ])
            .arg("--print-regalloc-stats=json")
            .output()
            .unwrap();
        let value: Value = serde_json::from_str(&out(&run)).unwrap();
        let function = &value["functions"][0];
        assert_eq!(function["frame_local"], 0, "{what}");
        assert_eq!(function["registers"], suggestion["registers"][1], "{what}");
    }
}

#[test]
fn with_ptxas_suggestions_are_tried_on_machine_code() {
    let Some(real) = ptxas::ptxas() else { return };
    let folder = folder();
    fs::write(folder.path().join("loose.ptx"), loose(60)).unwrap();
    let args = ["loose.ptx", "--json", "--ptxas", real.to_str().unwrap()];
    let value: Value = serde_json::from_str(&out(&explain(folder.path(), &args))).unwrap();
    for suggestion in value["suggestions"].as_array().unwrap() {
        let effect = suggestion["effect"].as_str().unwrap();
        assert!(effect.contains("no spill code"), "{effect}");
        let registers = &suggestion["registers"];
        assert!(
            registers[1].as_u64() < registers[0].as_u64(),
            "{suggestion}"
        );
    }
}
