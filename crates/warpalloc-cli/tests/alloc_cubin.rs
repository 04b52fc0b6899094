//! `warpalloc alloc` on cubins as a shell user meets it.

use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use warpalloc_fuzz::image;
use warpalloc_sass::object::Cubin;

/// LDG.E R4, desc[UR4][R2.64]; FADD R20, R4, R5; STG.E desc[UR4][R2.64], R20; EXIT; NOP; NOP
const WORDS: [u128; 6] = [
    0x000e_2400_0c1e_1900_0000_0004_0204_7981,
    0x001f_ca00_0000_0000_0000_0005_0414_7221,
    0x000f_e200_0c10_1914_0000_0004_0200_7986,
    0x000f_ea00_0380_0000_0000_0000_0000_794d,
    0x000f_c000_0000_0000_0000_0000_0000_7918,
    0x000f_c000_0000_0000_0000_0000_0000_7918,
];

/// A kernel `k` for blocks of 128 threads with these words, which states 24 registers.
fn cubin(words: [u128; 6]) -> Vec<u8> {
    image_of(&parts(words))
}

fn parts(words: [u128; 6]) -> Vec<image::Part> {
    let mut parts = image::cubin_parts();
    parts[0].data = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    parts
}

fn image_of(parts: &[image::Part]) -> Vec<u8> {
    image::elf(190, 8, 0x0600_5a04, parts)
}

struct Run {
    folder: TempDir,
    output: Output,
}

impl Run {
    fn of(input: &[u8], flags: &[&str]) -> Run {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("in.cubin"), input).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpalloc"));
        command.current_dir(&folder);
        command.args(["alloc", "in.cubin", "-o", "out.cubin"]);
        let output = command.args(flags).output().unwrap();
        Run { folder, output }
    }

    fn written(&self) -> Option<Vec<u8>> {
        std::fs::read(self.folder.path().join("out.cubin")).ok()
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn shown(&self) -> String {
        assert!(self.output.status.success(), "{}", self.said());
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }
}

#[test]
fn a_cubin_comes_out_with_fewer_registers() {
    let run = Run::of(&cubin(WORDS), &["--fewest", "--print-regalloc-stats"]);
    assert_eq!(
        run.shown(),
        "in.cubin\n  registers  fewest  warps     block  kernel\n  \
         24 > 8          8  64          128  k\n"
    );
    let written = run.written().unwrap();
    let read = Cubin::read(&written).unwrap();
    assert_eq!(read.functions[0].registers, Some(8));
}

#[test]
fn json_says_what_became_of_each_kernel() {
    let run = Run::of(&cubin(WORDS), &["--print-regalloc-stats=json"]);
    let value: Value = serde_json::from_str(&run.shown()).unwrap();
    let kernel = &value["files"][0]["kernels"][0];
    assert_eq!(kernel["registers_before"], 24);
    assert_eq!(kernel["registers_after"], 8);
    assert_eq!(kernel["occupancy_after"]["warps"], 64);
}

#[test]
fn a_kernel_that_is_refused_stays_as_it_was() {
    let mut words = WORDS;
    // RET.REL.NODEC R20 0x0
    words[3] = 0x000f_ea00_03c3_ffff_ffff_ffff_1400_7950;
    let original = cubin(words);
    let run = Run::of(&original, &[]);
    assert_eq!(run.shown(), "");
    assert!(
        run.said().contains(
            "in.cubin: `k` stays as it is: at 0x0030: RET R20..22: it returns to code that is not here"
        ),
        "{}",
        run.said()
    );
    assert_eq!(run.written(), Some(original.clone()));
    let strict = Run::of(&original, &["--strict"]);
    assert_eq!(strict.output.status.code(), Some(1));
    assert_eq!(strict.written(), None);
}

#[test]
fn flags_that_mean_nothing_for_a_cubin_are_refused() {
    for flags in [
        &["--promote-local"][..],
        &["--maxnreg", "32", "--fewest"],
        &["--spills", "local"],
        &["--regalloc=naive"],
        &["--entry=other"],
    ] {
        let run = Run::of(&cubin(WORDS), flags);
        assert_eq!(run.output.status.code(), Some(2), "{flags:?}");
        assert_eq!(run.written(), None);
    }
    let ptx = Run::of(b".version 9.0\n", &["--fewest"]);
    assert_eq!(ptx.output.status.code(), Some(2));
}

#[test]
fn a_cap_that_a_kernel_keeps_changes_nothing() {
    let original = cubin(WORDS);
    let flags = ["--maxnreg", "32", "--print-regalloc-stats=json"];
    let run = Run::of(&original, &flags);
    let value: Value = serde_json::from_str(&run.shown()).unwrap();
    let kernel = &value["files"][0]["kernels"][0];
    assert_eq!(kernel["registers_after"], 24);
    assert_eq!(kernel["reloads"], 0);
    assert_eq!(run.written(), Some(original));
}

#[test]
fn registers_above_the_cap_are_given_back() {
    let mut parts = parts(WORDS);
    let info = parts.iter_mut().find(|part| part.name == ".nv.info");
    // The count of registers is the second word of the first attribute.
    info.unwrap().data[8] = 26;
    let run = Run::of(
        &image_of(&parts),
        &["--maxnreg", "24", "--print-regalloc-stats"],
    );
    let shown = run.shown();
    assert!(shown.contains("26 > "), "{shown}{}", run.said());
    let written = run.written().unwrap();
    let read = Cubin::read(&written).unwrap();
    assert!(read.functions[0].registers <= Some(24));
}
