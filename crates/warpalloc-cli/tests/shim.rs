//! `warpalloc ptxas` beside the real ptxas, and `warpalloc shim`.
#![cfg(unix)]

#[path = "common/ptxas.rs"]
mod ptxas;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const WARPALLOC: &str = env!("CARGO_BIN_EXE_warpalloc");

/// A program that says what it was given and ends with 7.
const ECHO: &str = "#!/bin/sh\nfor word; do echo \"[$word]\"; done\necho complaint >&2\nexit 7\n";

/// A folder for one test, with a ptxas in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        place.program("real/ptxas", ECHO);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A command that finds no ptxas but what it is told of.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path());
        for name in [
            "CUDA_HOME",
            "CUDA_PATH",
            "CUDA_ROOT",
            "WARPALLOC_PTXAS",
            "WARPALLOC_SHIM",
        ] {
            command.env_remove(name);
        }
        command.env("PATH", "/usr/bin:/bin");
        command.env("WARPALLOC_SHIM_LOG", self.path("log"));
        command.env("XDG_CACHE_HOME", self.path("cache"));
        command
    }

    fn ptxas(&self, real: &Path, args: &[&str]) -> Output {
        let mut command = self.command(Path::new(WARPALLOC));
        command.env("WARPALLOC_REAL_PTXAS", real);
        command.arg("ptxas").args(args).output().unwrap()
    }

    /// The last call in the log.
    fn last(&self) -> Value {
        let log = fs::read_to_string(self.path("log")).unwrap();
        serde_json::from_str(log.lines().last().unwrap()).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What ptxas says, without the time it took.
fn said(bytes: &[u8]) -> String {
    let text = text(bytes);
    let lines = text.lines().filter(|line| !line.contains("Compile time"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn what_is_not_understood_goes_to_the_real_one_word_for_word() {
    let place = Place::new();
    let run = place.ptxas(&place.path("real/ptxas"), &["--bogus", "a b.ptx", "-o", ""]);
    assert_eq!(text(&run.stdout), "[--bogus]\n[a b.ptx]\n[-o]\n[]\n");
    assert_eq!(text(&run.stderr), "complaint\n");
    assert_eq!(run.status.code(), Some(7));
    assert_eq!(place.last()["outcome"], "passed");
    assert_eq!(place.last()["reason"], "not understood: `--bogus`");
}

#[test]
fn a_module_without_a_cap_goes_to_the_real_one() {
    let place = Place::new();
    place.write(
        "a.ptx",
        ".version 9.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n",
    );
    let run = place.ptxas(&place.path("real/ptxas"), &["a.ptx"]);
    assert_eq!(text(&run.stdout), "[a.ptx]\n");
    assert_eq!(place.last()["reason"], "no cap on registers");
}

#[test]
fn a_refusal_of_the_real_one_is_repeated() {
    let place = Place::new();
    place.write("a.ptx", "no PTX");
    let run = place.ptxas(&place.path("real/ptxas"), &["-maxrregcount=32", "a.ptx"]);
    assert_eq!(text(&run.stdout), "[-maxrregcount=32]\n[a.ptx]\n");
    assert_eq!(text(&run.stderr), "complaint\n");
    assert_eq!(run.status.code(), Some(7));
    assert_eq!(place.last()["outcome"], "failed");
}

#[test]
fn a_death_by_signal_shows() {
    let place = Place::new();
    let real = place.program("real/ptxas", "#!/bin/sh\nkill -9 $$\n");
    place.write("a.ptx", "");
    let run = place.ptxas(&real, &["-maxrregcount=32", "a.ptx"]);
    assert_eq!(run.status.code(), Some(137));
}

#[test]
fn the_switch_passes_all_on_and_keeps_no_log() {
    let place = Place::new();
    let mut command = place.command(Path::new(WARPALLOC));
    command.env("WARPALLOC_REAL_PTXAS", place.path("real/ptxas"));
    command
        .env("WARPALLOC_SHIM", "off")
        .args(["ptxas", "--version"]);
    let run = command.output().unwrap();
    assert_eq!(text(&run.stdout), "[--version]\n");
    assert!(!place.path("log").exists());
}

#[test]
fn without_a_ptxas_it_says_what_to_set() {
    let place = Place::new();
    let mut command = place.command(Path::new(WARPALLOC));
    let run = command.args(["ptxas", "a.ptx"]).output().unwrap();
    assert_eq!(run.status.code(), Some(255));
    assert_eq!(
        text(&run.stderr),
        "ptxas fatal   : warpalloc finds no ptxas to call: set WARPALLOC_REAL_PTXAS to one\n"
    );
}

#[test]
fn the_real_one_is_found_beside_the_shim_and_behind_it_on_the_path() {
    let place = Place::new();
    fs::create_dir(place.path("shim")).unwrap();
    symlink(WARPALLOC, place.path("shim/ptxas")).unwrap();
    let beside = "#!/bin/sh\necho beside\n";
    let run = place
        .command(Path::new("ptxas"))
        .env(
            "PATH",
            format!(
                "{}:{}:/usr/bin:/bin",
                place.path("shim").display(),
                place.path("real").display()
            ),
        )
        .arg("-x")
        .output()
        .unwrap();
    assert_eq!(text(&run.stdout), "[-x]\n", "the next on the path");
    place.program("shim/ptxas.real", beside);
    let run = place
        .command(&place.path("shim/ptxas"))
        .arg("-x")
        .output()
        .unwrap();
    assert_eq!(text(&run.stdout), "beside\n");
}

/// ptxas writes the name it is called by into its output.
#[test]
fn the_real_one_is_called_by_its_own_name() {
    let place = Place::new();
    let real = place.program("real/ptxas-13", "#!/bin/sh\necho \"${0##*/}\"\n");
    fs::create_dir(place.path("shim")).unwrap();
    symlink(WARPALLOC, place.path("shim/ptxas")).unwrap();
    symlink(real, place.path("shim/ptxas.real")).unwrap();
    let run = place
        .command(&place.path("shim/ptxas"))
        .arg("-x")
        .output()
        .unwrap();
    assert_eq!(text(&run.stdout), "ptxas-13\n");
}

#[test]
fn version_has_one_line_more() {
    let place = Place::new();
    let real = place.program("real/ptxas", "#!/bin/sh\necho 'release 13.0, V13.0.88'\n");
    for flag in ["--version", "-V"] {
        let run = place.ptxas(&real, &[flag]);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            text(&run.stdout),
            format!("release 13.0, V13.0.88\nwarpalloc {version} allocates before it\n")
        );
    }
}

/// A toolkit of files that are not programs.
fn toolkit(place: &Place) {
    place.program("cuda/bin/ptxas", ECHO);
    place.program("cuda/bin/nvcc", ECHO);
    place.write("cuda/bin/nvcc.profile", "");
    place.write("cuda/nvvm/libdevice/libdevice.10.bc", "bits");
}

#[test]
fn install_lays_out_a_toolkit_of_links() {
    let place = Place::new();
    toolkit(&place);
    let install = |folder: &str| {
        let mut command = place.command(Path::new(WARPALLOC));
        command.args(["shim", "install", folder, "--ptxas", "cuda/bin/ptxas"]);
        command.output().unwrap()
    };
    let run = install("shadow");
    assert!(run.status.success(), "{}", text(&run.stderr));
    let told = text(&run.stdout);
    let shadow = fs::canonicalize(place.path("shadow")).unwrap();
    let shadow = shadow.display();
    for line in [
        format!("export TRITON_PTXAS_PATH={shadow}/bin/ptxas"),
        format!("export TRITON_PTXAS_BLACKWELL_PATH={shadow}/bin/ptxas"),
        format!("clang++ --ptxas-path={shadow}/bin/ptxas"),
        format!("export CUTE_DSL_PTXAS_PATH={shadow}/bin/ptxas  # untried"),
        format!("export MODULAR_NVPTX_COMPILER_PATH={shadow}/bin/ptxas"),
        format!("export CUDA_ROOT={shadow} XLA_FLAGS=--xla_gpu_cuda_data_dir={shadow}"),
        format!("{shadow}/bin/nvcc in place of nvcc"),
    ] {
        assert!(told.contains(&line), "{line}\n{told}");
    }
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(read("shadow/nvvm/libdevice/libdevice.10.bc"), "bits");
    assert_eq!(read("shadow/bin/nvcc"), ECHO);
    let run = place
        .command(&place.path("shadow/bin/ptxas"))
        .arg("-x")
        .output()
        .unwrap();
    assert_eq!(text(&run.stdout), "[-x]\n");
    assert!(install("shadow").status.success(), "links are made anew");
    let inside = install("cuda/own");
    assert_eq!(inside.status.code(), Some(2), "{}", text(&inside.stderr));
    fs::remove_file(place.path("shadow/bin/nvcc")).unwrap();
    fs::write(place.path("shadow/bin/nvcc"), "mine").unwrap();
    let in_the_way = install("shadow");
    assert_eq!(in_the_way.status.code(), Some(1));
    assert_eq!(read("shadow/bin/nvcc"), "mine");
}

#[test]
fn the_log_shows_calls() {
    let place = Place::new();
    let log = |args: &[&str]| {
        let mut command = place.command(Path::new(WARPALLOC));
        text(
            &command
                .args(["shim", "log"])
                .args(args)
                .output()
                .unwrap()
                .stdout,
        )
    };
    assert_eq!(log(&[]), "");
    place.write("a.ptx", ".target sm_90\n");
    place.ptxas(&place.path("real/ptxas"), &["a.ptx", "-g"]);
    place.ptxas(&place.path("real/ptxas"), &["a.ptx", "-O0"]);
    let shown = log(&[]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(
        lines[0].ends_with(" ms  a.ptx: -g asks for code that can be debugged"),
        "{shown}"
    );
    assert!(
        lines[1].ends_with(" ms  a.ptx: -O0 asks for less optimisation"),
        "{shown}"
    );
    assert_eq!(log(&["-n", "1"]).lines().count(), 1);
    assert_eq!(log(&["--replaced"]), "");
    let value: Value = serde_json::from_str(&log(&["--json"])).unwrap();
    assert_eq!(value["schema"], 1);
    assert_eq!(value["calls"][1]["outcome"], "passed");
}

/// Sums of values that are loaded long before they are used: the text keeps all of them live,
/// and at 24 registers ptxas spills.
fn pressing() -> String {
    let n = 40;
    let mut text = String::from(".version 9.0\n.target sm_90\n.address_size 64\n");
    text += &format!(
        ".visible .entry k(.param .u64 p) {{\n\t.reg .b32 %r<{}>;\n\t.reg .b64 %rd<2>;\n\
         \tld.param.u64 %rd1, [p];\n",
        n + 1
    );
    for i in 1..=n {
        text += &format!("\tld.volatile.global.u32 %r{i}, [%rd1+{}];\n", 4 * i);
    }
    for i in 1..=n {
        text += &format!("\tst.volatile.global.u32 [%rd1+{}], %r{i};\n", 4 * (n - i));
    }
    text + "\tret;\n}\n"
}

/// Whatever the arguments are, both leave the same file and say the same.
#[test]
fn beside_the_real_one_nothing_differs() {
    let Some(real) = ptxas::ptxas() else { return };
    let place = Place::new();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/ptx");
    for name in ["saxpy", "sgemm_rb", "calls", "localarr"] {
        let file = format!("{name}.sm_90.ptx");
        fs::copy(corpus.join(&file), place.path(&format!("{name}.ptx"))).unwrap();
    }
    place.write("pressing.ptx", &pressing());
    place.write(
        "broken.ptx",
        ".version 9.0\n.target sm_90\n.entry k( { ret; }\n",
    );
    place.write("options", "-arch sm_90 -v saxpy.ptx -o out");
    let same: [&[&str]; 16] = [
        &["-arch", "sm_90", "saxpy.ptx", "-o", "out"],
        &["-arch=sm_90", "-v", "sgemm_rb.ptx", "-o", "out"],
        &[
            "--gpu-name",
            "sm_90",
            "--maxrregcount=64",
            "-v",
            "sgemm_rb.ptx",
            "--output-file=out",
        ],
        &[
            "-arch=sm_90",
            "-v",
            "-maxrregcount=24",
            "pressing.ptx",
            "-o",
            "out",
        ],
        &[
            "-arch=sm_90",
            "-warn-spills",
            "-Werror",
            "-maxrregcount=24",
            "pressing.ptx",
            "-o",
            "out",
        ],
        &[
            "-arch=sm_90",
            "-c",
            "-maxrregcount=32",
            "calls.ptx",
            "-o",
            "out",
        ],
        &[
            "-arch=sm_90",
            "-g",
            "-maxrregcount=32",
            "saxpy.ptx",
            "-o",
            "out",
        ],
        &[
            "-arch=sm_90",
            "-O0",
            "-maxrregcount=32",
            "saxpy.ptx",
            "-o",
            "out",
        ],
        &[
            "-arch=sm_90",
            "-lineinfo",
            "-maxrregcount=32",
            "localarr.ptx",
            "-o",
            "out",
        ],
        &[
            "-arch=sm_90",
            "-maxrregcount=32",
            "saxpy.ptx",
            "localarr.ptx",
            "-o",
            "out",
        ],
        &["-arch=sm_90", "-maxrregcount=32", "broken.ptx", "-o", "out"],
        &[
            "-arch=sm_90",
            "-maxrregcount=32",
            "missing.ptx",
            "-o",
            "out",
        ],
        &[
            "-arch=compute_90",
            "-maxrregcount=32",
            "saxpy.ptx",
            "-o",
            "out",
        ],
        &["-optf", "options"],
        &["-arch=sm_90", "-maxrregcount"],
        &["--help"],
    ];
    for args in same {
        let out = place.path("out");
        let take = || {
            fs::read(&out)
                .inspect(|_| fs::remove_file(&out).unwrap())
                .ok()
        };
        let mut command = place.command(&real);
        let theirs = command.args(args).output().unwrap();
        let their_file = take();
        let ours = place.ptxas(&real, args);
        let our_file = take();
        assert_eq!(said(&ours.stdout), said(&theirs.stdout), "{args:?}");
        assert_eq!(said(&ours.stderr), said(&theirs.stderr), "{args:?}");
        assert_eq!(ours.status.code(), theirs.status.code(), "{args:?}");
        assert!(our_file == their_file, "{args:?}: the files differ");
    }
}

#[test]
fn standard_input_is_read_once() {
    let Some(real) = ptxas::ptxas() else { return };
    let place = Place::new();
    let input = place.write("pressing.ptx", &pressing());
    let run = |program: &Path, first: &[&str]| {
        let mut command = place.command(program);
        command.env("WARPALLOC_REAL_PTXAS", &real).args(first);
        command.args(["-arch=sm_90", "-maxrregcount=32", "-v", "-", "-o", "out"]);
        let run = command
            .stdin(fs::File::open(&input).unwrap())
            .stdout(Stdio::piped());
        let run = run.stderr(Stdio::piped()).output().unwrap();
        assert!(run.status.success(), "{}", text(&run.stderr));
        (said(&run.stderr), fs::read(place.path("out")).unwrap())
    };
    assert!(run(&real, &[]) == run(Path::new(WARPALLOC), &["ptxas"]));
}

/// A loop over more values than the cap has registers.
fn looping() -> String {
    let n = 30;
    let mut text = String::from(
        ".version 9.0\n.target sm_90\n.address_size 64\n\
         .visible .entry k(.param .u64 p, .param .u32 n) .maxntid 64 .maxnreg 24 {\n\
         \t.reg .pred %p<2>;\n\t.reg .b32 %r<40>;\n\t.reg .b64 %rd<2>;\n\
         \tld.param.u64 %rd1, [p];\n\tld.param.u32 %r0, [n];\n",
    );
    for i in 1..=n {
        text += &format!("\tld.global.u32 %r{i}, [%rd1+{}];\n", 4 * i);
    }
    text += "loop:\n";
    for i in 1..=n {
        let (a, b) = (i * 7 % n + 1, i * 11 % n + 1);
        text += &format!("\tmad.lo.u32 %r{i}, %r{i}, %r{a}, %r{b};\n");
    }
    text += "\tsub.u32 %r0, %r0, 1;\n\tsetp.ne.u32 %p1, %r0, 0;\n\t@%p1 bra loop;\n";
    for i in 1..=n {
        text += &format!("\tst.global.u32 [%rd1+{}], %r{i};\n", 4 * i);
    }
    text + "\tret;\n}\n"
}

#[test]
fn a_kernel_that_spills_in_a_loop_is_replaced() {
    let Some(real) = ptxas::ptxas() else { return };
    let place = Place::new();
    place.write("loop.ptx", &looping());
    let args = ["-arch=sm_90", "-warn-spills", "loop.ptx", "-o", "out"];
    let run = place.ptxas(&real, &args);
    assert_eq!(run.status.code(), Some(0));
    let call = place.last();
    assert_eq!(call["outcome"], "replaced", "{call}");
    let kernel = &call["kernels"][0];
    assert_eq!(kernel["registers"][0], kernel["registers"][1]);
    assert!(kernel["stack_bytes"][0].as_u64() > kernel["stack_bytes"][1].as_u64());
    let ours = fs::read(place.path("out")).unwrap();
    let mut command = place.command(&real);
    assert!(command.args(args).status().unwrap().success());
    assert!(ours != fs::read(place.path("out")).unwrap());
    // Only what was asked for is left behind, and it is whole.
    let mut left: Vec<_> = fs::read_dir(place.0.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["cache", "log", "loop.ptx", "out", "real"]);
    let shown = place
        .command(Path::new(WARPALLOC))
        .args(["shim", "log", "--replaced"])
        .output()
        .unwrap();
    assert!(
        text(&shown.stdout).contains("loop.ptx\n    k: by "),
        "{}",
        text(&shown.stdout)
    );
    // Options of a file count, and the output they name is written.
    place.write("options", "-arch=sm_90 loop.ptx -o out");
    fs::remove_file(place.path("out")).unwrap();
    place.ptxas(&real, &["-optf", "options"]);
    assert_eq!(place.last()["outcome"], "replaced");
    assert!(place.path("out").is_file());
    // What is sized at the launch leaves no room to count on.
    let dynamic = looping().replace(
        ".visible .entry",
        ".extern .shared .b8 dynamic[];\n.visible .entry",
    );
    place.write("loop.ptx", &dynamic);
    place.ptxas(&real, &args);
    let reason = place.last()["reason"].to_string();
    assert!(
        reason.contains("its shared memory is sized at the launch"),
        "{reason}"
    );
}
