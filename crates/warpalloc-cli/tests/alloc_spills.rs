//! `warpalloc alloc X.cubin --spills shared` as a shell user meets it.

mod common;

use std::path::Path;
use std::process::Output;

use common::with_input;
use serde_json::{Value, json};
use warpalloc_fuzz::image;
use warpalloc_sass::object::Cubin;

/// A kernel of 128 threads with 0x110 bytes of shared memory that spills R4.
fn spilling() -> Vec<u8> {
    let words: [u128; 6] = [
        // LDC R1, c[0x0][0x28]
        0x000e_2200_0000_0800_0000_0a00_ff01_7b82,
        // VIADD R1, R1, -0x10
        0x001f_ca00_0000_0000_ffff_fff0_0101_7836,
        // STL [R1+0x8], R4
        0x0001_e800_0010_0800_0000_0804_0100_7387,
        // LDL.LU R4, [R1+0x8]
        0x000e_a800_0030_0800_0000_0800_0104_7983,
        // EXIT
        0x000f_ea00_0380_0000_0000_0000_0000_794d,
        // NOP
        0x000f_c000_0000_0000_0000_0000_0000_7918,
    ];
    let mut parts = image::cubin_parts();
    parts[0].data = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    parts[2].data = image::attribute(0x05, &[128, 1, 1]);
    parts[2].size = parts[2].data.len() as u64;
    parts[7].data.clear();
    parts[7].size = 0;
    image::elf(190, 8, 0x0600_5a04, &parts)
}

fn alloc(folder: &Path, args: &[&str]) -> Output {
    let (input, output) = (folder.join("k.cubin"), folder.join("out.cubin"));
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    with_input(&[&["alloc", input, "-o", output], args].concat(), b"")
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("k.cubin"), spilling()).unwrap();
    folder
}

fn said(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

#[test]
fn spills_move_and_the_occupancy_is_told() {
    let folder = folder();
    let flags = ["--spills", "shared", "--dynamic-shared", "0"];
    let run = alloc(
        folder.path(),
        &[&flags[..], &["--print-regalloc-stats=json"]].concat(),
    );
    assert!(run.status.success(), "{}", said(&run));
    let value: Value = serde_json::from_slice(&run.stdout).unwrap();
    let kernel = &value["files"][0]["kernels"][0];
    let facts = json!({
        "name": "k", "block_threads": 128, "spills_moved": 2, "spills_kept": 0, "shared_words": 1,
        "local_words": 0, "shared_bytes_before": 0x110, "shared_bytes_after": 0x180 + 4 * 128,
        "blocks_before": 16, "blocks_after": 16,
    });
    for (key, fact) in facts.as_object().unwrap() {
        assert_eq!(&kernel[key], fact, "{key}");
    }
    let written = std::fs::read(folder.path().join("out.cubin")).unwrap();
    let cubin = Cubin::read(&written).unwrap();
    let k = cubin.function("k").unwrap();
    assert_eq!((k.shared_bytes, k.stack_bytes), (0x380, Some(0)));
    let run = alloc(
        folder.path(),
        &[&flags[..], &["--print-regalloc-stats"]].concat(),
    );
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(text.contains("272 > 896        16 > 16   k"), "{text}");
}

#[test]
fn what_is_refused_stays_or_nothing_is_written() {
    let folder = folder();
    let output = folder.path().join("out.cubin");
    let strict = alloc(folder.path(), &["--spills", "shared", "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
    assert!(said(&strict).contains("`k` keeps its spills: it uses shared memory"));
    assert!(
        said(&strict).contains("--dynamic-shared"),
        "{}",
        said(&strict)
    );
    assert!(!output.exists());
    let kept = alloc(folder.path(), &["--spills", "shared"]);
    assert!(kept.status.success(), "{}", said(&kept));
    assert!(said(&kept).starts_with("warning"), "{}", said(&kept));
    assert_eq!(std::fs::read(&output).unwrap(), spilling());
}

#[test]
fn flags_and_files_that_do_not_fit_are_refused() {
    let folder = folder();
    let alone = alloc(folder.path(), &["--force"]);
    assert_eq!(alone.status.code(), Some(2), "{}", said(&alone));
    let unknown = alloc(folder.path(), &["--spills", "shared", "--entry", "other"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        said(&unknown).contains("has no function `other`"),
        "{}",
        said(&unknown)
    );
    std::fs::write(folder.path().join("k.cubin"), ".version 9.0\n").unwrap();
    let text = alloc(folder.path(), &["--spills", "shared"]);
    assert_eq!(text.status.code(), Some(1));
    assert!(said(&text).contains("not a cubin"), "{}", said(&text));
}
