//! What all subcommands have in common: help with examples, several files, JSON with a version, pages
//! and completions.

#[path = "common/command.rs"]
mod command;

use std::fs;
use std::path::Path;

use command::{out, run_in, said};
use serde_json::Value;

const KERNEL: &str = ".version 9.0\n.target sm_90\n.address_size 64\n\
    .visible .entry NAME(.param .u64 p) .maxntid 256 {\n\t.reg .b64 %rd<2>;\n\
    \tld.param.u64 %rd1, [p];\n\tst.global.u64 [%rd1], %rd1;\n\tret;\n}\n";

/// A folder with two kernels, one of them in a folder of its own.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("more")).unwrap();
    for (path, name) in [("a.ptx", "first"), ("more/b.ptx", "second")] {
        fs::write(folder.path().join(path), KERNEL.replace("NAME", name)).unwrap();
    }
    folder
}

/// The names that `warpalloc --help` lists.
fn subcommands() -> Vec<String> {
    let told = out(&run_in(Path::new("."), &["--help"]));
    let (_, listed) = told.split_once("Commands:\n").unwrap();
    let (listed, _) = listed.split_once("\n\n").unwrap();
    let lines = listed
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    lines
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_help_has_examples() {
    let names = subcommands();
    assert!(names.len() > 10, "{names:?}");
    for name in names.iter().filter(|name| *name != "help") {
        let told = out(&run_in(Path::new("."), &["help", name]));
        assert!(told.contains("\nExamples:\n"), "{name}: {told}");
    }
    assert!(out(&run_in(Path::new("."), &["--help"])).contains("\nExamples:\n"));
}

#[test]
fn pages_and_completions_name_every_subcommand() {
    let folder = folder();
    out(&run_in(folder.path(), &["man", "man"]));
    let script = out(&run_in(folder.path(), &["completions", "bash"]));
    for name in subcommands().iter().filter(|name| *name != "help") {
        let page = fs::read_to_string(folder.path().join(format!("man/warpalloc-{name}.1")));
        assert!(page.unwrap().contains("Examples"), "{name}");
        assert!(
            script.contains(&format!("warpalloc__{name}")) || script.contains(name),
            "{name}"
        );
    }
}

#[test]
fn files_and_folders_may_be_mixed() {
    let folder = folder();
    for command in [
        &["stats"][..],
        &["explain", "--no-ptxas"],
        &["tune", "--no-ptxas"],
        &["check", "--no-ptxas", "--update"],
    ] {
        let told = run_in(folder.path(), &[command, &["a.ptx", "more"]].concat());
        let told = out(&told) + &said(&told);
        let has_both = told.contains("first") && told.contains("second");
        assert!(
            has_both || told.contains("2 kernels"),
            "{command:?}: {told}"
        );
    }
    fs::create_dir(folder.path().join("out")).unwrap();
    let args = ["alloc", "a.ptx", "more", "--regalloc=scan", "-o", "out"];
    out(&run_in(folder.path(), &args));
    for name in ["a.ptx", "b.ptx"] {
        assert!(folder.path().join("out").join(name).exists(), "{name}");
    }
    fs::create_dir(folder.path().join("empty")).unwrap();
    let run = run_in(folder.path(), &["explain", "empty"]);
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(
        said(&run),
        "error: empty has no file whose name ends in .ptx\n"
    );
}

#[test]
fn every_document_has_a_version() {
    let folder = folder();
    out(&run_in(
        folder.path(),
        &["check", ".", "--no-ptxas", "--update"],
    ));
    for args in [
        &["stats", "a.ptx", "--json"][..],
        &["stats", ".", "--json"],
        &["knobs", "--json"],
        &["occupancy", "--sm=90", "--regs=32", "--block=256", "--json"],
        &["check", ".", "--no-ptxas", "--json"],
        &["compare", "a.ptx", "more", "--no-ptxas", "--json"],
        &["explain", "a.ptx", "--no-ptxas", "--json"],
        &["explain", ".", "--no-ptxas", "--json"],
        &["tune", "a.ptx", "--no-ptxas", "--json"],
        &["tune", ".", "--no-ptxas", "--json"],
        &["shim", "log", "--json"],
        &[
            "alloc",
            "a.ptx",
            "-o",
            "o.ptx",
            "--regalloc=scan",
            "--print-regalloc-stats=json",
        ],
    ] {
        let told = out(&run_in(folder.path(), args));
        let value: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(value["schema"], 1, "{args:?}: {told}");
    }
}

#[test]
fn colours_heed_the_environment_and_the_flag() {
    let folder = folder();
    let plain = said(&run_in(folder.path(), &["stats", "no such file"]));
    assert!(plain.starts_with("error: "), "{plain:?}");
    let coloured = said(&run_in(
        folder.path(),
        &["--color=always", "stats", "no such file"],
    ));
    assert!(coloured.contains("\u{1b}[1;31m"), "{coloured:?}");
}
