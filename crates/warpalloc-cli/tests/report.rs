//! `warpalloc report`: a page, a picture, a document and a text that tell the same of a kernel.

#[path = "common/ptxas.rs"]
mod ptxas;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/ptx");

/// Without a ptxas, unless the arguments name one.
fn report(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpalloc"));
    command.current_dir(folder).arg("report").args(args);
    if !args.contains(&"--ptxas") {
        command.arg("--no-ptxas");
    }
    command.output().unwrap()
}

fn out(run: &Output) -> String {
    assert!(run.status.success(), "{}", said(run));
    String::from_utf8_lossy(&run.stdout).into_owned()
}

fn said(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

fn json(folder: &Path, args: &[&str]) -> Value {
    let args = [args, &["--format", "json"]].concat();
    serde_json::from_str(&out(&report(folder, &args))).unwrap()
}

/// Loads that stay in their order and are all live at once; the source of each is a line of `k.cu`.
fn kernel(name: &str, values: usize) -> String {
    let mut text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n\
         .visible .entry {name}(.param .u64 p) .maxntid 256, 1, 1 {{\n\t.reg .b32 %r<{}>;\n\t.reg .b64 %rd<2>;\n\
         \tld.param.u64 %rd1, [p];\n",
        values + 1
    );
    for i in 1..=values {
        text += &format!(
            "\t.loc 1 {i} 0\n\tld.volatile.global.u32 %r{i}, [%rd1+{}];\n",
            4 * i
        );
    }
    for i in 1..=values {
        text += &format!("\tst.volatile.global.u32 [%rd1], %r{i};\n");
    }
    text + "\tret;\n}\n.file 1 \"/gone/k.cu\"\n"
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("k.ptx"), kernel("k", 60)).unwrap();
    folder
}

#[test]
fn the_document_tells_pressure_caps_and_ranges() {
    let folder = folder();
    let told = json(folder.path(), &["k.ptx"]);
    assert_eq!(told["launch"]["block"], 256);
    assert_eq!(told["launch"]["assumed"], false);
    let code = &told["code"];
    assert_eq!(code["first_line"], 4);
    let rows = &code["rows"];
    assert_eq!(rows["line"].as_array().unwrap().len(), 122);
    let peak = code["peak"].as_u64().unwrap() as usize;
    assert_eq!(rows["registers"][peak], 62, "sixty values and an address");
    assert_eq!(rows["source"][1], serde_json::json!([0, 1]));
    // Blocks of 256 threads: 64 registers hold four, 48 five.
    let caps: Vec<_> = told["caps"].as_array().unwrap().iter().collect();
    let numbers: Vec<_> = caps.iter().map(|cap| cap["cap"].as_u64()).collect();
    assert_eq!(numbers, [None, Some(48), Some(40), Some(32)]);
    assert_eq!(caps[1]["warps"], 40);
    for cap in &caps[1..] {
        for made in cap["allocators"].as_array().unwrap() {
            let (stores, cycles) = (&made["stores"], &made["cycles"]);
            assert!(
                stores.as_u64().unwrap() > 0 && cycles.as_f64().unwrap() > 0.0,
                "{made}"
            );
            let at = made["at"]["stores"].as_array().unwrap();
            let counted: u64 = at.iter().map(|pair| pair[1].as_u64().unwrap()).sum();
            assert_eq!(Some(counted), stores.as_u64());
            let value = &made["values"][0];
            let known = &code["values"][value["value"].as_u64().unwrap() as usize];
            assert_eq!(known["name"], value["name"]);
        }
    }
}

#[test]
fn what_is_live_at_the_peak_adds_up() {
    let folder = folder();
    let told = json(folder.path(), &["k.ptx"]);
    let code = &told["code"];
    let peak = code["peak"].as_u64().unwrap() as usize;
    let position = code["rows"]["position"][peak].as_u64().unwrap();
    let live = code["values"].as_array().unwrap().iter().filter(|value| {
        let mut segments = value["segments"].as_array().unwrap().iter();
        segments.any(|s| (s[0].as_u64().unwrap()..s[1].as_u64().unwrap()).contains(&position))
    });
    let registers: u64 = live.map(|value| value["registers"].as_u64().unwrap()).sum();
    assert_eq!(code["rows"]["registers"][peak], registers);
}

#[test]
fn the_page_needs_nothing_else_and_survives_hostile_names() {
    let folder = folder();
    let hostile = "</script><script>alert(1)</script>\u{2028}{{data}}";
    let text = kernel("k", 12).replace("/gone/k.cu", hostile);
    fs::write(folder.path().join("hostile.ptx"), text).unwrap();
    out(&report(folder.path(), &["hostile.ptx", "-o", "page.html"]));
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>"));
    assert_eq!(
        page.matches("</script>").count(),
        2,
        "the data and the script"
    );
    assert!(!page.contains("alert(1)</script>"));
    for fetched in ["src=", "@import", "url(http", "href=\"http", "//cdn"] {
        assert!(!page.contains(fetched), "{fetched}");
    }
    let data = page.split_once("id=\"data\">").unwrap().1;
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(data["sources"][0]["name"], hostile);
}

#[test]
fn a_source_is_shown_where_it_is_at_hand() {
    let folder = folder();
    let lines = |args: &[&str]| {
        let args = [&["k.ptx"], args].concat();
        json(folder.path(), &args)["sources"][0]["lines"].clone()
    };
    assert_eq!(lines(&[]), Value::Null);
    fs::write(folder.path().join("k.cu"), "first\nsecond\n").unwrap();
    assert_eq!(lines(&[]), serde_json::json!(["first", "second"]));
    assert_eq!(lines(&["--no-source"]), Value::Null);
}

#[test]
fn the_name_of_the_output_says_how_it_is_written() {
    let folder = folder();
    let start = |name: &str| {
        out(&report(folder.path(), &["k.ptx", "-o", name]));
        let written = fs::read_to_string(folder.path().join(name)).unwrap();
        written.chars().take(9).collect::<String>()
    };
    assert_eq!(start("a.svg"), "<svg xmln");
    assert_eq!(start("a.html"), "<!doctype");
    assert_eq!(start("a.json"), "{\n  \"arch");
    assert_eq!(start("a.txt"), "k.ptx: `k");
}

#[test]
fn the_text_shows_caps_side_by_side() {
    let folder = folder();
    let text = out(&report(folder.path(), &["k.ptx", "--maxnreg", "56"]));
    let head = "k.ptx: `k` for sm_90, 256 threads and 0 bytes of shared memory per block\n  \
        62 registers, 0 bytes of local memory by warpalloc's briggs, without a ptxas: 32 of 64 warps\n";
    assert!(text.starts_with(head), "{text}");
    assert!(
        text.contains("registers in use along 122 instructions; 62 at line 127"),
        "{text}"
    );
    let caps: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.contains("regs"))
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .take_while(|word| *word == "none" || word.parse::<u32>().is_ok())
        .collect();
    assert_eq!(caps, ["none", "56", "48", "40", "32"], "{text}");
}

#[test]
fn a_kernel_that_is_not_there_is_named() {
    let folder = folder();
    let run = report(folder.path(), &["k.ptx", "--kernel", "other"]);
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(
        said(&run),
        "error: --kernel names one of the kernels that k.ptx has: k\n"
    );
}

/// Each kernel of the corpus: its file and its name.
fn kernels() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in [CORPUS.to_owned(), CORPUS.replace("/ptx", "/holdout/ptx")] {
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        files.sort();
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for part in text.split(".entry").skip(1) {
                let name: String = part
                    .trim_start()
                    .chars()
                    .take_while(|c| !"( \n\t{".contains(*c))
                    .collect();
                found.push((file.clone(), name));
            }
        }
    }
    found
}

#[test]
fn every_kernel_of_the_corpus_has_a_report() {
    let kernels = kernels();
    assert!(kernels.len() > 40, "{}", kernels.len());
    for (file, name) in kernels {
        let file = file.to_str().unwrap();
        let told = json(Path::new("."), &[file, "--kernel", &name]);
        assert_eq!(told["symbol"], name.as_str());
        let code = &told["code"];
        let lines = code["lines"].as_array().unwrap();
        assert!(lines[0].as_str().unwrap().contains(".entry"), "{name}");
        let rows = code["rows"]["line"].as_array().unwrap();
        assert!(
            rows.iter()
                .all(|line| (line.as_u64().unwrap() as usize) < lines.len())
        );
        assert!(!rows.is_empty(), "{file} {name}: {}", told["notes"]);
    }
}

#[test]
fn machine_code_stands_beside_its_ptx() {
    let Some(ptxas) = ptxas::ptxas() else { return };
    let ptxas = ptxas.to_str().unwrap();
    let folder = folder();
    let told = json(folder.path(), &["k.ptx", "--ptxas", ptxas]);
    let machine = &told["machine"];
    let lines = machine["rows"]["ptx_line"].as_array().unwrap();
    assert!(lines.iter().filter(|line| line.is_number()).count() > 100);
    assert_eq!(told["taken"]["registers"], machine["registers"]);
    let names = told["caps"][1]["allocators"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|made| made["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["briggs", "fatpoint", "scan", "ptxas"]);

    // The same from a cubin, with PTX and alone.
    let made = Command::new(ptxas)
        .current_dir(folder.path())
        .args(["-arch", "sm_90", "k.ptx", "-o", "k.cubin"])
        .status();
    assert!(made.unwrap().success());
    let beside = json(folder.path(), &["k.ptx", "--cubin", "k.cubin"]);
    assert_eq!(beside["taken"]["by"], "k.cubin");
    assert_eq!(beside["machine"]["registers"], machine["registers"]);
    let alone = json(folder.path(), &["k.cubin"]);
    assert_eq!(alone["code"], Value::Null);
    assert_eq!(alone["taken"]["registers"], machine["registers"]);
    let rows = &alone["machine"]["rows"]["registers"];
    let most = rows
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_u64)
        .max();
    assert!((60..=64).contains(&most.unwrap()), "{most:?}");
}
