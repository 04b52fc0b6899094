//! `warpalloc explain` as a person with a kernel that takes too many registers meets it.

#[path = "common/command.rs"]
mod command;
#[path = "common/ptxas.rs"]
mod ptxas;

use std::collections::BTreeSet;
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
fn several_kernels_are_explained_one_after_another() {
    let folder = folder();
    let text = sums(4);
    let (_, second) = text.split_once(".address_size 64\n").unwrap();
    let second = second.replace("sums", "_Z3addPj");
    fs::create_dir(folder.path().join("ptx")).unwrap();
    let path = folder.path().join("ptx/two.ptx");
    fs::write(path, format!("{text}{second}")).unwrap();
    let told = out(&explain(folder.path(), &["sums.ptx", "ptx", "--no-ptxas"]));
    for line in ["sums.ptx:4: `sums`", "ptx/two.ptx:4: `sums`", "`_Z3addPj`"] {
        assert!(told.contains(line), "{told}");
    }
    let args = ["sums.ptx", "ptx", "--no-ptxas", "--json"];
    let value: Value = serde_json::from_str(&out(&explain(folder.path(), &args))).unwrap();
    assert_eq!(value["kernels"].as_array().map(Vec::len), Some(3));
    let run = explain(folder.path(), &["ptx", "--value", "%r1"]);
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(
        said(&run),
        "error: a value or a line is one kernel's: --kernel names one of sums, _Z3addPj\n"
    );
    for name in ["_Z3addPj", "add", "add(unsigned int*)"] {
        let told = out(&explain(
            folder.path(),
            &["ptx/two.ptx", "--kernel", name, "--no-ptxas"],
        ));
        assert!(told.contains("`_Z3addPj`"), "{name}: {told}");
        assert!(!told.contains("`sums`"), "{name}: {told}");
    }
}

/// Sums of loads whose order is free: the text has all of them live, and fewer registers do.
fn loose(values: usize) -> String {
    sums(values)
        .replace("ld.volatile.global", "ld.global.nc")
        .replace("st.volatile.global.u32 [%rd1+", "red.global.add.u32 [%rd1+")
}

/// Sums of a base and constants that are live all along: they can be computed again.
fn again(values: usize) -> String {
    let mut text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n\
         .visible .entry again(.param .u64 p, .param .u32 n) {{\n\t.reg .b32 %r<{}>;\n\t.reg .b64 %rd<2>;\n\
         \tld.param.u64 %rd1, [p];\n\tld.param.u32 %r0, [n];\n",
        values + 1
    );
    for i in 1..=values {
        text += &format!("\tadd.u32 %r{i}, %r0, {};\n", 77 * i);
    }
    for i in 1..=values {
        text += &format!("\tst.volatile.global.u32 [%rd1+{}], %r{i};\n", 4 * i);
    }
    for i in 1..=values {
        text += &format!("\tst.volatile.global.u32 [%rd1+{}], %r{i};\n", 8 * i);
    }
    text + "\tret;\n}\n"
}

/// What `warpalloc alloc` with the flags of a suggestion makes of its kernel.
fn followed(folder: &Path, file: &str, name: &str, suggestion: &Value) -> Value {
    let flags = suggestion["flags"].as_array().unwrap();
    let mut args = vec!["alloc", file, "-o", "out.ptx", "--entry", name];
    args.extend(flags.iter().map(|flag| flag.as_str().unwrap()));
    args.push("--print-regalloc-stats=json");
    let value: Value = serde_json::from_str(&out(&run_in(folder, &args))).unwrap();
    let mut functions = value["functions"].as_array().unwrap().iter();
    functions.find(|f| f["name"] == *name).unwrap().clone()
}

/// What a suggestion promises is what comes out when it is followed, on every kernel there is.
#[test]
fn suggestions_hold_when_they_are_followed() {
    let folder = folder();
    fs::write(folder.path().join("loose.ptx"), loose(60)).unwrap();
    fs::write(folder.path().join("again.ptx"), again(60)).unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/ptx");
    let corpus = corpus.to_str().unwrap();
    let args = [
        "loose.ptx",
        "again.ptx",
        corpus,
        "--block=256",
        "--json",
        "--no-ptxas",
    ];
    let value: Value = serde_json::from_str(&out(&explain(folder.path(), &args))).unwrap();
    let mut kinds = BTreeSet::new();
    for kernel in value["kernels"].as_array().unwrap() {
        let (file, name) = (
            kernel["file"].as_str().unwrap(),
            kernel["name"].as_str().unwrap(),
        );
        for suggestion in kernel["suggestions"].as_array().unwrap() {
            let what = suggestion["what"].as_str().unwrap();
            kinds.insert(what.split(' ').next().unwrap().to_owned());
            let made = followed(folder.path(), file, name, suggestion);
            assert_eq!(
                made["registers"], suggestion["registers"][1],
                "{file} {name}: {what}"
            );
            if suggestion["effect"]
                .as_str()
                .unwrap()
                .contains("no spill code")
            {
                assert_eq!(made["frame_local"], 0, "{file} {name}: {what}");
                assert_eq!(made["frame_shared"], 0, "{file} {name}: {what}");
            }
        }
    }
    let expected = ["cap", "compute", "keep"].map(str::to_owned);
    assert_eq!(kinds, expected.into(), "every kind is among them");
}

/// A loop that ptxas unrolls, with loads that it brings to the front.
fn looping() -> String {
    let mut text = String::from(
        ".version 9.0\n.target sm_90\n.address_size 64\n\
         .visible .entry sums(.param .u64 p, .param .u32 n) {\n\t.reg .pred %p;\n\t.reg .f32 %f<9>;\n\
         \t.reg .b32 %r<4>;\n\t.reg .b64 %rd<9>;\n\tld.param.u64 %rd1, [p];\n\tld.param.u32 %r2, [n];\n\
         \tmov.u32 %r1, 0;\n\tmov.f32 %f1, 0f00000000;\nagain:\n",
    );
    for i in 2..=8 {
        text += &format!("\tld.global.nc.f32 %f{i}, [%rd1+{}];\n", 4096 * i);
    }
    for i in 2..=8 {
        text += &format!("\tfma.rn.f32 %f1, %f1, %f{i}, %f{i};\n");
    }
    text + "\tadd.s64 %rd1, %rd1, 4;\n\tadd.s32 %r1, %r1, 1;\n\tsetp.lt.u32 %p, %r1, %r2;\n\
            \t@%p bra again;\n\tld.param.u64 %rd2, [p];\n\tst.global.f32 [%rd2], %f1;\n\tret;\n}\n"
}

/// The text of a kernel with directives before its body.
fn with_directives(text: &str, name: &str, directives: &str) -> String {
    let entry = text.find(&format!(".entry {name}(")).unwrap();
    let body = entry + text[entry..].find('{').unwrap();
    format!("{}{directives}\n{}", &text[..body], &text[body..])
}

/// The text that comes of doing what a suggestion says.
fn applied(folder: &Path, file: &str, name: &str, suggestion: &Value) -> String {
    let what = suggestion["what"].as_str().unwrap();
    let text = || fs::read_to_string(folder.join(file)).unwrap();
    if what.starts_with("unroll") {
        return with_directives(&text(), name, ".pragma \"nounroll\";");
    }
    if let Some((_, bounds)) = what.split_once("`__launch_bounds__(") {
        let (block, blocks) = bounds.trim_end_matches(")`").split_once(", ").unwrap();
        let text = text();
        let entry = &text[text.find(&format!(".entry {name}(")).unwrap()..];
        let most = match entry[..entry.find('{').unwrap()].contains("ntid") {
            true => String::new(),
            false => format!(".maxntid {block} "),
        };
        let bounds = format!("{most}.minnctapersm {blocks}");
        return with_directives(&text, name, &bounds);
    }
    followed(folder, file, name, suggestion);
    let text = fs::read_to_string(folder.join("out.ptx")).unwrap();
    let lines = text.lines().filter(|line| {
        // A value that is computed again has to help without a cap.
        !(what.starts_with("compute") && line.starts_with(".maxnreg"))
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Registers and stack bytes of a kernel, as ptxas tells them.
fn assembled(real: &Path, folder: &Path, name: &str, text: &str) -> (u64, u64) {
    fs::write(folder.join("tried"), text).unwrap();
    let mut command = Command::new(real);
    command.current_dir(folder);
    let target = text.split(".target ").nth(1).unwrap();
    let arch = target.split([',', '\n']).next().unwrap();
    command.args([
        "-v",
        "-o",
        "tried.cubin",
        "tried",
        "-e",
        name,
        "-arch",
        arch,
    ]);
    let told = said(&command.output().unwrap());
    let (_, told) = told.split_once(&format!("'{name}' for")).expect(&told);
    let before = |word: &str| {
        let (figure, _) = told.split_once(word).expect(told);
        let figure = figure.trim_end().rsplit([' ', '\n']).next().unwrap();
        figure.parse::<u64>().unwrap()
    };
    (before(" registers"), before(" bytes stack frame"))
}

/// Follows each suggestion for the kernels of `folder` and compares with what it promises; the kinds.
fn follow_all(real: &Path, folder: &Path) -> BTreeSet<String> {
    let args = [
        ".",
        "--json",
        "--block=256",
        "--ptxas",
        real.to_str().unwrap(),
    ];
    let value: Value = serde_json::from_str(&out(&explain(folder, &args))).unwrap();
    let mut kinds = BTreeSet::new();
    for kernel in value["kernels"].as_array().unwrap() {
        let (file, name) = (
            kernel["file"].as_str().unwrap(),
            kernel["name"].as_str().unwrap(),
        );
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let before = assembled(real, folder, name, &text);
        for suggestion in kernel["suggestions"].as_array().unwrap() {
            let what = suggestion["what"].as_str().unwrap();
            let text = applied(folder, file, name, suggestion);
            let after = assembled(real, folder, name, &text);
            let registers = json!([before.0, after.0]);
            assert_eq!(suggestion["registers"], registers, "{file} {name}: {what}");
            let effect = suggestion["effect"].as_str().unwrap();
            match effect.starts_with("local memory") {
                true => assert_eq!(
                    effect,
                    format!("local memory {} -> {} bytes", before.1, after.1),
                    "{file} {name}: {what}"
                ),
                false => assert!(after.1 <= before.1, "{file} {name}: {what}"),
            }
            let kind = match what.contains("__launch_bounds__") {
                true => "bound",
                false => what.split(' ').next().unwrap(),
            };
            kinds.insert(kind.to_owned());
        }
    }
    kinds
}

/// With ptxas, what it takes of the text that was tried is what is told.
#[test]
fn with_ptxas_suggestions_are_tried_on_machine_code() {
    let Some(real) = ptxas::ptxas() else { return };
    let folder = folder();
    fs::write(folder.path().join("loose.ptx"), loose(60)).unwrap();
    fs::write(folder.path().join("again.ptx"), again(60)).unwrap();
    fs::write(folder.path().join("loop.ptx"), looping()).unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/ptx");
    for name in ["saxpy", "reduce", "stencil", "localarr", "locals"] {
        let file = format!("{name}.sm_90.ptx");
        fs::copy(corpus.join(&file), folder.path().join(&file)).unwrap();
    }
    let kinds = follow_all(&real, folder.path());
    let expected = ["bound", "cap", "keep", "unroll"].map(str::to_owned);
    assert_eq!(kinds, expected.into(), "every kind is among them");
}

#[test]
#[ignore = "takes minutes: every kernel of the corpus, with ptxas"]
fn with_ptxas_every_suggestion_for_the_corpus_holds() {
    let Some(real) = ptxas::ptxas() else { return };
    let folder = folder();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    for (from, to) in [("ptx", "own"), ("holdout/ptx", "holdout")] {
        fs::create_dir(folder.path().join(to)).unwrap();
        for file in fs::read_dir(corpus.join(from)).unwrap() {
            let file = file.unwrap();
            let to = folder.path().join(to).join(file.file_name());
            fs::copy(file.path(), to).unwrap();
        }
    }
    let kinds = follow_all(&real, folder.path());
    let expected = ["bound", "cap", "compute", "keep"].map(str::to_owned);
    assert_eq!(kinds, expected.into());
}
