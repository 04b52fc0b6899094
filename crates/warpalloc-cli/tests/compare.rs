//! `warpalloc compare` on two builds, two commits, two ptxas.

#[path = "common/command.rs"]
mod command;
#[path = "common/ptxas.rs"]
mod ptxas;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use command::{out, run_in};
use serde_json::Value;

/// A kernel that keeps `values` values live at once.
fn kernel(name: &str, values: usize) -> String {
    let mut text = format!(
        ".visible .entry {name}(.param .u64 p) {{\n\t.reg .b32 %r<{}>;\n\t.reg .b64 %rd<2>;\n\
         \tld.param.u64 %rd1, [p];\n",
        values + 1
    );
    for i in 1..=values {
        text += &format!("\tld.volatile.global.u32 %r{i}, [%rd1+{}];\n", 4 * i);
    }
    for i in 1..=values {
        text += &format!(
            "\tst.volatile.global.u32 [%rd1+{}], %r{i};\n",
            4 * (values - i)
        );
    }
    text + "\tret;\n}\n"
}

fn module(kernels: &[String]) -> String {
    format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n{}",
        kernels.concat()
    )
}

fn compare(folder: &Path, args: &[&str]) -> Output {
    run_in(folder, &[&["compare"], args].concat())
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

#[test]
fn what_moved_is_told_with_what_moved_it() {
    let folder = tempfile::tempdir().unwrap();
    let same = kernel("same", 4);
    let old = [same.clone(), kernel("_Z1kPj", 20), kernel("old", 4)];
    write(folder.path(), "a.ptx", &module(&old));
    write(
        folder.path(),
        "b.ptx",
        &module(&[same, kernel("_Z1kPj", 24), kernel("new", 4)]),
    );
    let run = compare(folder.path(), &["a.ptx", "b.ptx", "--no-ptxas"]);
    assert_eq!(
        out(&run),
        "a.ptx -> b.ptx\n\
         k(unsigned int*) (sm_90)\n  \
         registers            22 -> 26             +4  worse\n  \
         because: instructions 42 -> 50\n  \
         because: live at the peak 22 (line 42) -> 26 (line 46)\n\
         old (sm_90): gone\n\
         new (sm_90): new, registers 6, spill_bytes 0, frame_bytes 0, shared_bytes 0\n\
         3 kernels: 1 moved, 1 the same, 1 new, 1 gone\n"
    );
    let run = compare(folder.path(), &["b.ptx", "a.ptx", "--no-ptxas", "--json"]);
    let value: Value = serde_json::from_str(&out(&run)).unwrap();
    assert_eq!(value["schema"], 1);
    let kernels = value["kernels"].as_array().unwrap();
    let k = kernels
        .iter()
        .find(|k| k["name"] == "k(unsigned int*)")
        .unwrap();
    assert_eq!(k["was"]["figures"]["registers"], 26);
    assert_eq!(k["is"]["figures"]["registers"], 22);
    assert_eq!(k["because"][0], "instructions 50 -> 42");
}

#[test]
fn a_file_of_another_commit_is_read_through_git() {
    let folder = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(folder.path());
        command.args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        command
            .args(args)
            .output()
            .is_ok_and(|run| run.status.success())
    };
    if !git(&["init"]) {
        eprintln!("skipped: no git");
        return;
    }
    write(folder.path(), "a.ptx", &module(&[kernel("k", 20)]));
    assert!(git(&["add", "."]) && git(&["commit", "-m", "one"]));
    write(folder.path(), "a.ptx", &module(&[kernel("k", 12)]));
    let told = out(&compare(
        folder.path(),
        &["HEAD:a.ptx", "a.ptx", "--no-ptxas"],
    ));
    assert!(
        told.starts_with("HEAD:a.ptx -> a.ptx\nk (sm_90)\n"),
        "{told}"
    );
    assert!(told.contains("22 -> 14             -8  better"), "{told}");
    let missing = compare(folder.path(), &["HEAD:b.ptx", "a.ptx", "--no-ptxas"]);
    assert_eq!(missing.status.code(), Some(1));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        said.starts_with("error: cannot read HEAD:b.ptx: "),
        "{said}"
    );
}

#[test]
fn one_file_wants_two_ptxas() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.ptx", &module(&[kernel("k", 4)]));
    let run = compare(folder.path(), &["a.ptx"]);
    assert_eq!(run.status.code(), Some(2));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(
        said,
        "error: two files are compared, or one file with two --ptxas\n"
    );
}

/// The second ptxas is the first with a cap, which stands for another release.
#[cfg(unix)]
#[test]
fn two_ptxas_on_one_file() {
    use std::os::unix::fs::PermissionsExt;
    let Some(real) = ptxas::ptxas() else { return };
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.ptx", &module(&[kernel("k", 40)]));
    let script = format!(
        "#!/bin/sh\nexec {} -maxrregcount=24 \"$@\"\n",
        real.display()
    );
    write(folder.path(), "capped", &script);
    let capped = folder.path().join("capped");
    fs::set_permissions(&capped, fs::Permissions::from_mode(0o755)).unwrap();
    let both = [
        "a.ptx",
        "--ptxas",
        real.to_str().unwrap(),
        "--ptxas",
        "./capped",
    ];
    let told = out(&compare(folder.path(), &both));
    let registers = told
        .lines()
        .find(|line| line.contains("registers"))
        .unwrap();
    assert!(registers.ends_with("better"), "{told}");
    let spills = told
        .lines()
        .find(|line| line.contains("spill_bytes"))
        .unwrap();
    assert!(spills.ends_with("worse"), "{told}");
    assert!(told.contains("because: its PTX is the same"), "{told}");
}
