//! `warpalloc stats` on machine code as a shell user meets it.

mod common;

use std::process::Output;

use common::with_input;
use serde_json::{Value, json};
use warpalloc_fuzz::image;

fn text(run: &Output) -> String {
    assert!(run.status.success(), "{}", said(run));
    String::from_utf8(run.stdout.clone()).unwrap()
}

fn said(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

fn stats(args: &[&str], input: &[u8]) -> Output {
    with_input(&[&["stats", "-"], args].concat(), input)
}

/// A kernel with words of zeros for code.
fn unknown_code() -> Vec<u8> {
    let mut parts = image::cubin_parts();
    parts[0].data.fill(0);
    image::elf(190, 8, 0x0600_5a04, &parts)
}

#[test]
fn a_kernel_that_cannot_be_decoded_still_has_its_facts() {
    let shown = text(&stats(&[], &unknown_code()));
    assert_eq!(
        shown,
        "<stdin>: sm_90, 1 function\n   \
         regs  live  stack  shared         local  block      warps     cliffs  most are live at\n  \
         k\n     \
         24     -     32     272             -    128   64 of 64       >=33  \
         refused: at 0x0000: unknown opcode 0x000 (word 0x00000000000000000000000000000000) for sm_90\n"
    );
}

#[test]
fn json_has_all_that_the_container_says() {
    let value: Value = serde_json::from_str(&text(&stats(&["--json"], &unknown_code()))).unwrap();
    assert_eq!(
        (&value["schema"], &value["format"]),
        (&json!(1), &json!("cubin"))
    );
    let k = &value["images"][0]["functions"][0];
    let facts = json!({
        "name": "k", "demangled": null, "entry": true, "code_bytes": 96, "registers": 24,
        "frame_bytes": 16, "stack_bytes": 32, "shared_bytes": 272, "constant_bytes": 528,
        "block_threads": 128, "inner": ["inner"],
    });
    for (key, fact) in facts.as_object().unwrap() {
        assert_eq!(&k[key], fact, "{key}");
    }
    assert_eq!(k["refused"]["offset"], 0);
    assert_eq!(k["occupancy"]["next_lower"]["first_registers"], 33);
}

#[test]
fn a_block_size_that_is_given_counts() {
    let run = stats(&["--json", "--block", "1000"], &image::cubin());
    let value: Value = serde_json::from_str(&text(&run)).unwrap();
    let k = &value["images"][0]["functions"][0];
    assert_eq!(
        (&k["block_threads"], &k["occupancy"]["blocks"]),
        (&json!(1000), &json!(2))
    );
}

/// A fatbin with the same cubin for two architectures, and PTX.
fn fatbin() -> Vec<u8> {
    let older = image::elf(190, 7, 0x0050_0550, &image::cubin_parts());
    image::fatbin(&[
        image::entry(2, 80, 0x11, &older, 0),
        image::entry(2, 90, 0x10_0011, &image::cubin(), 0),
        image::entry(1, 75, 0x11, b".version 7.0", 0),
    ])
}

fn headings(shown: &str) -> Vec<&str> {
    shown
        .lines()
        .filter(|line| line.starts_with("<stdin>"))
        .collect()
}

#[test]
fn images_are_chosen_by_architecture() {
    let host = image::elf(
        62,
        0,
        0,
        &[image::part(".nv_fatbin", image::PROGBITS, 0, fatbin())],
    );
    let both = [
        "<stdin> .nv_fatbin image 0: sm_80, 1 function",
        "<stdin> .nv_fatbin image 1: sm_90a, 1 function",
    ];
    assert_eq!(headings(&text(&stats(&[], &host))), both);
    assert_eq!(headings(&text(&stats(&["--sm", "80"], &host))), both[..1]);
    assert_eq!(
        headings(&text(&stats(&["--sm", "sm_90"], &host))),
        both[1..]
    );
    assert_eq!(
        headings(&text(&stats(&["--sm", "90a", "--sm", "80"], &host))),
        both
    );
    let run = stats(&["--sm", "75"], &host);
    assert_eq!(run.status.code(), Some(1));
    assert_eq!(
        said(&run),
        "error: <stdin>: no cubin for sm_75; there are sm_80, sm_90a\n"
    );
}

#[test]
fn functions_are_chosen_by_name() {
    assert!(text(&stats(&["--kernel", "k"], &image::cubin())).contains("1 function\n"));
    let run = stats(&["--kernel", "gemm"], &image::cubin());
    assert_eq!(run.status.code(), Some(1));
    assert_eq!(
        said(&run),
        "error: <stdin>: no function has gemm in its name\n"
    );
}

#[test]
fn an_image_that_cannot_be_read_leaves_the_others() {
    let broken = image::fatbin(&[
        image::entry(2, 80, 0x2011, b"\xff", 3),
        image::entry(2, 90, 0x11, &image::cubin(), 0),
    ]);
    let shown = text(&stats(&[], &broken));
    assert!(
        shown.contains("sm_80, 0 functions\n  not read: compressed image, offset 0x0: "),
        "{shown}"
    );
    assert!(shown.contains("<stdin>: sm_90, 1 function\n"), "{shown}");
    let only = image::fatbin(&[image::entry(2, 80, 0x2011, b"\xff", 3)]);
    let run = stats(&[], &only);
    assert_eq!(run.status.code(), Some(1));
    assert!(
        said(&run).starts_with("error: <stdin>: compressed image, offset 0x0: LZ4: "),
        "{}",
        said(&run)
    );
}

#[test]
fn a_file_without_cubins_says_what_it_has() {
    let ptx = image::fatbin(&[image::entry(1, 75, 0x11, b".version 7.0", 0)]);
    assert_eq!(
        said(&stats(&[], &ptx)),
        "error: <stdin>: no cubin, only PTX for sm_75: `cuobjdump -xptx all` extracts it\n"
    );
    assert_eq!(
        said(&stats(&[], &image::elf(62, 0, 0, &[]))),
        "error: <stdin>: no device code: there is no section .nv_fatbin or __nv_relfatbin with an image\n"
    );
}

#[test]
fn files_on_disk_are_read_by_seeking() {
    let name = format!("warpalloc-stats-cubin-{}.so", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, fatbin()).unwrap();
    let run = with_input(&["stats", path.to_str().unwrap(), "--json"], b"");
    std::fs::remove_file(&path).unwrap();
    let value: Value = serde_json::from_str(&text(&run)).unwrap();
    assert_eq!(value["images"].as_array().map(Vec::len), Some(2));
}

#[test]
fn commands_for_ptx_name_the_one_for_machine_code() {
    let run = with_input(&["alloc", "-"], &image::cubin());
    assert_eq!(run.status.code(), Some(1));
    assert_eq!(
        said(&run),
        "error: <stdin> is a cubin, and PTX is wanted here: `warpalloc stats` reads machine code\n"
    );
}

#[test]
fn flags_for_machine_code_are_refused_on_text() {
    let run = stats(
        &["--block", "64"],
        b".version 8.0\n.target sm_90\n.address_size 64\n",
    );
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(
        said(&run),
        "error: --block is for machine code, and <stdin> is text\n"
    );
}

/// `MOV R0, 0x1`, `MOV R2, 0x2`, `FADD R3, R2, R0`, `EXIT`: three registers hold a value while
/// the third instruction runs.
#[test]
fn the_peak_is_named_by_instruction() {
    let mut parts = image::cubin_parts();
    let code = [
        [0x0000_7802, 0x0000_0001, 0x0000_0f00, 0x000f_e200],
        [0x0002_7802, 0x0000_0002, 0x0000_0f00, 0x000f_e200],
        [0x0203_7221, 0x0000_0000, 0x0000_0000, 0x000f_e200],
        [0x0000_794d, 0x0000_0000, 0x0380_0000, 0x000f_ea00],
    ];
    parts[0].data = code.iter().flat_map(|word| image::words(word)).collect();
    parts[0].size = parts[0].data.len() as u64;
    let file = image::elf(190, 8, 0x0600_5a04, &parts);
    let shown = text(&stats(&[], &file));
    let row = shown.lines().last().unwrap();
    assert!(
        row.starts_with("     24     3     32     272             0    128"),
        "{row}"
    );
    assert!(row.ends_with("  0x0020 FADD"), "{row}");
    let value: Value = serde_json::from_str(&text(&stats(&["--json"], &file))).unwrap();
    let k = &value["images"][0]["functions"][0];
    assert_eq!(k["instructions"], 4);
    let peak = &k["peaks"][0];
    assert_eq!(
        (&peak["file"], &peak["registers"]),
        (&json!("R"), &json!(3))
    );
    assert_eq!((&peak["named"], &peak["offset"]), (&json!(4), &json!(0x20)));
}
