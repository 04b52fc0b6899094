//! Real compilers with the shim in the place of ptxas: nvcc through a toolkit of links, Triton
//! through its variable.
//!
//! nvcc is tested where it lies beside the ptxas of `WARPALLOC_PTXAS` with all it needs, Triton
//! where `WARPALLOC_TRITON` names a Python that has it, clang where `WARPALLOC_CLANG` names one.
#![cfg(unix)]

#[path = "common/ptxas.rs"]
mod ptxas;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const WARPALLOC: &str = env!("CARGO_BIN_EXE_warpalloc");

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with the shim of `real` in it.
fn installed(real: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let run = Command::new(WARPALLOC)
        .args(["shim", "install", "--ptxas"])
        .arg(real)
        .arg(folder.path().join("shim"))
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    folder
}

fn calls(log: &Path) -> Vec<Value> {
    let log = fs::read_to_string(log).unwrap_or_default();
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn nvcc_compiles_through_a_toolkit_of_links() {
    compile_through_links(&["saxpy", "sgemm_rb", "localarr", "reduce"]);
}

/// Candidates of the largest kernels take minutes to compare.
#[test]
#[ignore = "minutes"]
fn nvcc_compiles_the_whole_corpus_through_a_toolkit_of_links() {
    let sources = fs::read_dir(repository().join("corpus")).unwrap();
    let sources = sources.map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| path.extension().is_some_and(|ending| ending == "cu"));
    let names: Vec<String> = sources
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert!(names.len() > 15, "{names:?}");
    compile_through_links(&names);
}

/// Compiles sources of the corpus with nvcc and with the nvcc of a toolkit of links. Results differ
/// where the log says that a kernel was replaced, and only there.
fn compile_through_links(names: &[impl AsRef<str>]) {
    let Some(real) = ptxas::ptxas() else { return };
    let real = fs::canonicalize(real).unwrap();
    let bin = real.parent().unwrap();
    let is_whole = bin.join("nvcc").is_file() && bin.join("../nvvm/bin/cicc").is_file();
    let has_host_compiler = Command::new("gcc").arg("--version").output().is_ok();
    if !is_whole || !has_host_compiler {
        eprintln!("skipped: no nvcc with cicc beside ptxas, or no gcc");
        return;
    }
    let folder = installed(&real);
    let log = folder.path().join("log");
    for name in names {
        let name = name.as_ref();
        let compiled = |nvcc: &Path, to: &str| {
            let out = folder.path().join(to);
            let run = Command::new(nvcc)
                .args(["-arch=sm_90", "-cubin", "-maxrregcount=40", "-o"])
                .arg(&out)
                .arg(repository().join(format!("corpus/{name}.cu")))
                .env("WARPALLOC_SHIM_LOG", &log)
                .env("XDG_CACHE_HOME", folder.path().join("cache"))
                .output()
                .unwrap();
            assert!(
                run.status.success(),
                "{}",
                String::from_utf8_lossy(&run.stderr)
            );
            fs::read(out).unwrap()
        };
        let before = calls(&log).len();
        let plain = compiled(&bin.join("nvcc"), "plain");
        assert_eq!(calls(&log).len(), before);
        let shimmed = compiled(&folder.path().join("shim/bin/nvcc"), "shimmed");
        let calls = calls(&log);
        assert_eq!(calls.len(), before + 1, "{name}: the shim was called");
        let is_replaced = calls[before]["outcome"] == "replaced";
        assert_eq!(plain == shimmed, !is_replaced, "{name}: {}", calls[before]);
    }
}

#[test]
fn triton_compiles_through_its_variable() {
    compile_with_triton("['softmax', 'matmul_fp16_capped', 'scans']", 3);
}

/// Kernels that Triton itself does not compile for this machine are no failure.
#[test]
#[ignore = "minutes"]
fn triton_compiles_thirty_kernels_through_its_variable() {
    compile_with_triton("cases.CASES", 30);
}

/// Compiles kernels of bench/triton_ptx.py with Triton's ptxas and with the shim: at least so many
/// compile, the same ones both times, and each to the same machine code unless it was replaced.
fn compile_with_triton(names: &str, least: usize) {
    let Some(python) = std::env::var_os("WARPALLOC_TRITON") else {
        eprintln!("skipped: no Triton; set WARPALLOC_TRITON to a Python that has it");
        return;
    };
    let script = format!(
        "
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import triton_ptx as cases
cases.triton.set_allocator(cases.scratch)
for name in {names}:
    try:
        print(name, hashlib.sha256(cases.compiled(name, 90).asm['cubin']).hexdigest())
    except Exception as error:
        print(name, type(error).__name__)
"
    );
    let asked = Command::new(&python)
        .args([
            "-c",
            "from triton import knobs; print(knobs.nvidia.ptxas_blackwell.path)",
        ])
        .output()
        .unwrap();
    let real = PathBuf::from(String::from_utf8(asked.stdout).unwrap().trim());
    let folder = installed(&real);
    let log = folder.path().join("log");
    let hashes = |cache: &str, shim: Option<PathBuf>| {
        let mut command = Command::new(&python);
        command
            .args(["-c", &script])
            .arg(repository().join("bench"));
        command.env("TRITON_CACHE_DIR", folder.path().join(cache));
        command.env("WARPALLOC_SHIM_LOG", &log);
        command.env("XDG_CACHE_HOME", folder.path().join("cache"));
        if let Some(shim) = shim {
            command.env("TRITON_PTXAS_PATH", &shim);
            command.env("TRITON_PTXAS_BLACKWELL_PATH", &shim);
        }
        let run = command.output().unwrap();
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        String::from_utf8(run.stdout).unwrap()
    };
    let plain = hashes("plain", None);
    assert!(calls(&log).is_empty());
    let shimmed = hashes("shimmed", Some(folder.path().join("shim/bin/ptxas")));
    let calls = calls(&log);
    let compilations = calls.iter().filter(|call| call["inputs"][0].is_string());
    let is_compiled = |line: &&str| line.rsplit(' ').next().is_some_and(|hash| hash.len() == 64);
    let compiled = plain.lines().filter(is_compiled).count();
    assert!(compiled >= least, "{plain}");
    assert_eq!(compilations.count(), compiled, "{calls:?}");
    let understood = |call: &Value| {
        let reason = call["reason"].as_str().unwrap_or_default();
        !reason.starts_with("not understood")
    };
    assert!(calls.iter().all(understood), "{calls:?}");
    let replaced = calls.iter().filter(|call| call["outcome"] == "replaced");
    let lines = plain.lines().zip(shimmed.lines());
    let other: Vec<_> = lines.filter(|(plain, shimmed)| plain != shimmed).collect();
    assert_eq!(other.len(), replaced.count(), "{other:?}");
}

/// Headers that clang's own ask for and CUDA 13 does not have.
const GONE: [&str; 4] = [
    "texture_fetch_functions.h",
    "texture_indirect_functions.h",
    "surface_functions.h",
    "curand_mtgp32_kernel.h",
];

/// Sources of the corpus, of which one says how it is launched. That one is replaced.
#[test]
fn clang_compiles_through_its_flag() {
    let (Some(clang), Some(real)) = (std::env::var_os("WARPALLOC_CLANG"), ptxas::ptxas()) else {
        eprintln!("skipped: no clang; set WARPALLOC_CLANG to one");
        return;
    };
    let real = fs::canonicalize(real).unwrap();
    let toolkit = real.parent().unwrap().parent().unwrap();
    if !toolkit.join("include/cuda_runtime.h").is_file() {
        eprintln!("skipped: no headers of CUDA beside ptxas");
        return;
    }
    let folder = installed(&real);
    let log = folder.path().join("log");
    for name in GONE {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let compiled = |source: &str, ptxas: &Path| {
        let (from, out) = (folder.path().join("k.cu"), folder.path().join("k.cubin"));
        fs::write(&from, source).unwrap();
        let mut command = Command::new(&clang);
        command.args(["-w", "-x", "cuda", "--cuda-device-only", "-c", "-O3"]);
        command.args(["--cuda-gpu-arch=sm_90", "-Xcuda-ptxas", "-maxrregcount=32"]);
        command.arg("-I").arg(folder.path());
        command.arg(format!("--cuda-path={}", toolkit.display()));
        command.arg(format!("--ptxas-path={}", ptxas.display()));
        command.arg("-o").arg(&out).arg(&from);
        command.env("WARPALLOC_SHIM_LOG", &log);
        command.env("XDG_CACHE_HOME", folder.path().join("cache"));
        let run = command.output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{said}");
        fs::read(out).unwrap()
    };
    let source = |name: &str| fs::read_to_string(repository().join("corpus").join(name)).unwrap();
    let bounded = source("wide.cu").replace("void quads(", "void __launch_bounds__(256, 8) quads(");
    let sources = [("kept", source("stencil.cu")), ("replaced", bounded)];
    for (index, (outcome, source)) in sources.iter().enumerate() {
        let plain = compiled(source, &real);
        assert_eq!(calls(&log).len(), index);
        let shimmed = compiled(source, &folder.path().join("shim/bin/ptxas"));
        let calls = calls(&log);
        assert_eq!(calls.len(), index + 1, "the shim was called");
        assert_eq!(calls[index]["outcome"], *outcome, "{}", calls[index]);
        assert_eq!(plain == shimmed, *outcome == "kept");
    }
}
