//! Where results go, and that nothing is broken on the way.
#![cfg(unix)]

mod common;

use common::with_input;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SOURCE: &str = ".version 9.0\n.target sm_90\n.address_size 64\n.entry k() {\n\
    \t.reg .b32 %r<2>;\n\t.shared .b32 s;\n\tmov.u32 %r1, %tid.x;\n\tst.shared.b32 [s], %r1;\n\tret;\n}\n";

fn alloc(output: &Path) -> Output {
    let path = output.to_str().unwrap();
    with_input(
        &["alloc", "-", "--regalloc=briggs", "-o", path],
        SOURCE.as_bytes(),
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn written(path: &Path) -> bool {
    fs::read_to_string(path).unwrap().contains("%R0")
}

#[test]
fn a_symbolic_link_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "old").unwrap();
    symlink(&file, &link).unwrap();
    assert!(alloc(&link).status.success());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(written(&file));
    let dangling = folder.path().join("dangling");
    symlink(folder.path().join("new"), &dangling).unwrap();
    assert!(alloc(&dangling).status.success());
    assert!(written(&folder.path().join("new")));
}

#[test]
fn permissions_and_further_names_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(alloc(&file).status.success());
    assert!(written(&file));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
    let other = folder.path().join("other");
    fs::hard_link(&file, &other).unwrap();
    fs::write(&file, "old").unwrap();
    assert!(alloc(&file).status.success());
    assert!(written(&other), "both names are of one file");
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "nothing temporary is left");
}

#[test]
fn a_read_only_file_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let run = alloc(&file);
    assert_eq!(run.status.code(), Some(1));
    assert!(text(&run.stderr).contains("the file is read-only"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
}

#[test]
fn standard_output_may_be_called_by_its_path() {
    let run = alloc(Path::new("/dev/stdout"));
    assert!(run.status.success());
    assert!(text(&run.stdout).contains("%R0"));
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "first\n").unwrap();
    let appended = fs::OpenOptions::new().append(true).open(&log).unwrap();
    let input = folder.path().join("in.ptx");
    fs::write(&input, SOURCE).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_warpalloc"))
        .args([
            "alloc",
            "--regalloc=briggs",
            input.to_str().unwrap(),
            "-o",
            "/dev/stdout",
        ])
        .stdout(appended)
        .status()
        .unwrap();
    assert!(status.success());
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.starts_with("first\n") && log.contains("%R0"), "{log}");
}

#[test]
fn several_inputs_go_to_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for name in ["a.ptx", "b.ptx"] {
        fs::write(path(name), SOURCE).unwrap();
    }
    fs::create_dir(path("out")).unwrap();
    let run = with_input(
        &[
            "alloc",
            "--regalloc=briggs",
            &path("a.ptx"),
            &path("b.ptx"),
            "-o",
            &path("out"),
        ],
        b"",
    );
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert!(written(Path::new(&path("out/a.ptx"))) && written(Path::new(&path("out/b.ptx"))));
    let nowhere = with_input(&["alloc", &path("a.ptx"), &path("b.ptx")], b"");
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(nowhere.stdout.is_empty());
    let twice = [
        "alloc",
        &path("a.ptx"),
        &path("out/a.ptx"),
        "-o",
        &path("out"),
    ];
    assert_eq!(with_input(&twice, b"").status.code(), Some(2));
}

/// Files are allocated side by side; who is ready first must not show.
#[test]
fn of_several_faulty_inputs_the_first_is_told_whatever_the_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("out")).unwrap();
    // The first is the longest, so that its fault is found last.
    let long = "// a comment\n".repeat(100_000);
    let names = ["a.ptx", "b.ptx", "c.ptx", "d.ptx"].map(path);
    for (name, before) in names.iter().zip([long.as_str(), "", "", ""]) {
        fs::write(name, format!("{before}.version nine\n")).unwrap();
    }
    let out = path("out");
    for jobs in ["1", "2", "8"] {
        let mut args = vec!["alloc", "--regalloc=briggs", "--jobs", jobs, "-o", &out];
        args.extend(names.iter().map(String::as_str));
        let run = with_input(&args, b"");
        assert_eq!(run.status.code(), Some(1));
        let said = text(&run.stderr);
        assert!(said.contains("a.ptx") && !said.contains("b.ptx"), "{said}");
    }
}

fn to_full(args: &[&str], errors_too: bool) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.ptx");
    fs::write(&input, SOURCE).unwrap();
    let full = || {
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpalloc"));
    command.args(args).stdin(fs::File::open(&input).unwrap());
    command.stdout(full()).stderr(Stdio::piped());
    if errors_too {
        command.stderr(full());
    }
    command.output().unwrap()
}

#[test]
fn a_full_disk_is_an_error_and_no_panic() {
    for args in [
        &["alloc", "-"][..],
        &["stats", "-"],
        &["knobs"],
        &["options"],
        &["lower", "-"],
        &["explain", "-", "--no-ptxas"],
        &["tune", "-", "--block", "64", "--no-ptxas"],
    ] {
        let run = to_full(args, false);
        assert_eq!(run.status.code(), Some(1), "{args:?}");
        let said = text(&run.stderr);
        assert!(
            said.starts_with("error: cannot write to standard output"),
            "{said}"
        );
        assert_eq!(to_full(args, true).status.code(), Some(1), "{args:?}");
    }
    assert_eq!(
        to_full(&["alloc", "no such file"], true).status.code(),
        Some(1)
    );
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.ptx");
    // More than a pipe holds.
    let padding = "// padding\n".repeat(100_000);
    fs::write(&input, format!("{SOURCE}{padding}")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_warpalloc"))
        .args(["alloc", input.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let run = child.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(0));
    assert!(run.stderr.is_empty(), "{}", text(&run.stderr));
}
