//! The chooser with the real ptxas, taken from `WARPALLOC_PTXAS`. Without it these tests say that
//! they were skipped, unless `WARPALLOC_REQUIRE_PTXAS` is 1: then they fail.

use std::path::{Path, PathBuf};

use warpalloc_choose::judge::{Machine, Setting, judge};
use warpalloc_choose::{Assembly, Cache, Candidate, Choice, Ptxas, Request, choose};
use warpalloc_ptx::contract::Contraction;
use warpalloc_ptx::module::{ModuleOptions, Outcome};

fn ptxas() -> Option<PathBuf> {
    let found = std::env::var_os("WARPALLOC_PTXAS").map(PathBuf::from);
    if found.is_none() {
        let required = std::env::var("WARPALLOC_REQUIRE_PTXAS").is_ok_and(|value| value == "1");
        assert!(!required, "ptxas is required: set WARPALLOC_PTXAS");
        eprintln!("skipped: no ptxas; set WARPALLOC_PTXAS");
    }
    found
}

fn corpus(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/ptx");
    std::fs::read_to_string(root.join(name)).unwrap()
}

fn options(entry: &str, cap: u32) -> ModuleOptions {
    ModuleOptions {
        maxnreg: Some(cap),
        block: Some(128),
        entries: vec![entry.to_owned()],
        ..ModuleOptions::default()
    }
}

fn request<'a>(
    source: &'a str,
    options: &'a ModuleOptions,
    ptxas: Option<&'a Ptxas>,
) -> Request<'a> {
    Request {
        source,
        options,
        ptxas,
        grid: Some(256),
        dynamic_shared: None,
        machine_code: false,
        cache: None,
    }
}

fn chosen(source: &str, options: &ModuleOptions, ptxas: Option<&Ptxas>) -> Choice {
    choose(request(source, options, ptxas), None).unwrap()
}

/// The kernel's 64-bit limbs spill at 24 registers inside its loop, where stores to local memory
/// are slow: on an H200 the choice takes half the time.
#[test]
fn spill_code_of_ours_is_chosen_where_it_is_faster() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let source = corpus("wide.sm_90.ptx");
    let choice = chosen(&source, &options("limbs", 24), Some(&ptxas));
    let kernel = &choice.kernels[0];
    assert!(
        matches!(kernel.chosen, Candidate::Allocated { .. }),
        "{}",
        kernel.reason
    );
    assert!(choice.result.text.contains("__warpalloc_slots"));
    let original = &kernel.candidates[0];
    assert_eq!(original.candidate, Candidate::Original);
    assert_eq!(original.score(), Some(1.0));
    let best = kernel.candidates.iter().filter_map(|c| c.score());
    let taken = kernel
        .candidates
        .iter()
        .find(|c| c.candidate == kernel.chosen);
    assert!(best.fold(f64::MAX, f64::min) >= taken.unwrap().score().unwrap());
    ptxas
        .assemble(Assembly {
            text: &choice.result.text,
            arch: "sm_90",
            entry: None,
            contraction: Contraction::Ptxas,
        })
        .unwrap();
}

#[test]
fn a_kernel_without_spills_stays_as_it_is_with_the_cap() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let source = corpus("saxpy.sm_90.ptx");
    let choice = chosen(&source, &options("saxpy", 64), Some(&ptxas));
    let kernel = &choice.kernels[0];
    assert_eq!(kernel.chosen, Candidate::Original);
    assert_eq!(kernel.reason, "left as it is: ptxas does not spill in it");
    let without_cap = choice.result.text.replace("\n.maxnreg 64\n", "");
    assert_eq!(without_cap, source);
}

#[test]
fn without_ptxas_every_kernel_stays_as_it_is() {
    let source = corpus("wide.sm_90.ptx");
    let options = ModuleOptions {
        entries: Vec::new(),
        ..options("", 24)
    };
    let choice = chosen(&source, &options, None);
    assert!(choice.kernels.len() > 1);
    for kernel in &choice.kernels {
        assert_eq!(kernel.chosen, Candidate::Original);
        assert!(
            kernel.reason.contains("there is no ptxas"),
            "{}",
            kernel.reason
        );
    }
    for function in &choice.result.functions {
        assert!(matches!(function.outcome, Outcome::Kept(_)));
    }
    assert!(!choice.result.text.contains("__warpalloc"));
}

/// The second call is answered by a ptxas that is no longer there.
#[cfg(unix)]
#[test]
fn a_choice_is_kept_by_content() {
    let Some(program) = ptxas() else { return };
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("ptxas");
    std::os::unix::fs::symlink(&program, &link).unwrap();
    let ptxas = Ptxas::at(&link).unwrap();
    let cache = Cache::at(&folder.path().join("choices"));
    let source = corpus("wide.sm_90.ptx");
    let options = options("limbs", 24);
    let request = Request {
        cache: Some(&cache),
        ..request(&source, &options, Some(&ptxas))
    };
    let first = choose(request, None).unwrap();
    std::fs::remove_file(&link).unwrap();
    let second = choose(request, None).unwrap();
    assert_eq!(first.result.text, second.result.text);
    assert_eq!(first.kernels[0].reason, second.kernels[0].reason);
    let other = Request {
        grid: None,
        ..request
    };
    assert!(
        choose(other, None).is_err(),
        "another launch is another question"
    );
}

#[test]
fn the_judge_sees_what_a_cap_costs() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let source = corpus("sgemm_rb.sm_90.ptx");
    let estimate = |cap: Option<u32>| {
        let text = match cap {
            Some(cap) => source.replacen("\n{", &format!("\n.maxnreg {cap}\n{{"), 1),
            None => source.clone(),
        };
        let assembly = Assembly {
            text: &text,
            arch: "sm_90",
            entry: Some("sgemm_rb8"),
            contraction: Contraction::Ptxas,
        };
        let cubin = ptxas.assemble(assembly).unwrap();
        let setting = Setting {
            block_threads: Some(256),
            blocks: Some(64),
            ..Setting::default()
        };
        judge(&Machine::H200, &cubin, "sgemm_rb8", setting).unwrap()
    };
    let (free, at_80, at_48) = (estimate(None), estimate(Some(80)), estimate(Some(48)));
    assert!(!free.spills && at_80.spills && at_48.spills);
    let [slower, _] = at_80.over(&free);
    let [slowest, _] = at_48.over(&free);
    assert!(1.2 < slower && slower < slowest, "{slower}, {slowest}");
}

/// Where the result is machine code, the spills of ptxas may be moved in place.
#[test]
fn machine_code_is_chosen_and_assembled() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let source = corpus("wide.sm_90.ptx");
    let options = options("limbs", 24);
    let request = Request {
        machine_code: true,
        ..request(&source, &options, Some(&ptxas))
    };
    let choice = choose(request, None).unwrap();
    let kernel = &choice.kernels[0];
    let moved = Candidate::Moved { all: true };
    let judged = kernel.candidates.iter().find(|c| c.candidate == moved);
    assert!(judged.unwrap().score().unwrap() < 1.0, "{}", kernel.reason);
    let cubin = warpalloc_choose::assemble(request, &choice).unwrap();
    let capped = source.replacen("\n{", "\n.maxnreg 24\n{", 1);
    let original = Assembly {
        text: &capped,
        arch: "sm_90",
        entry: None,
        contraction: Contraction::Ptxas,
    };
    let original = ptxas.assemble(original).unwrap();
    let setting = Setting {
        block_threads: Some(128),
        blocks: Some(256),
        ..Setting::default()
    };
    let estimate = |cubin: &[u8]| judge(&Machine::H200, cubin, "limbs", setting).unwrap();
    let [ratio, _] = estimate(&cubin).over(&estimate(&original));
    let taken = kernel
        .candidates
        .iter()
        .find(|c| c.candidate == kernel.chosen);
    let expected = taken.unwrap().score().unwrap();
    assert!((ratio - expected).abs() < 1e-9, "{ratio}, {expected}");
}

/// What a launch adds to shared memory is not in the text, and more of it may not launch.
#[test]
fn spills_keep_out_of_shared_memory_that_launches_size() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let source = corpus("dynshared.sm_90.ptx");
    let mut options = options("tiled", 32);
    options.block = Some(256);
    let unknown = chosen(&source, &options, Some(&ptxas));
    let kernel = &unknown.kernels[0];
    assert_eq!(kernel.chosen, Candidate::Original);
    assert!(
        kernel.reason.contains("sized at the launch"),
        "{}",
        kernel.reason
    );
    let full = Request {
        dynamic_shared: Some(48 * 1024),
        grid: Some(1024),
        ..request(&source, &options, Some(&ptxas))
    };
    let full = choose(full, None).unwrap();
    assert_eq!(full.kernels[0].chosen, Candidate::Original);
    let known = Request {
        dynamic_shared: Some(8512),
        grid: Some(1024),
        ..request(&source, &options, Some(&ptxas))
    };
    let known = choose(known, None).unwrap();
    assert_ne!(known.kernels[0].chosen, Candidate::Original);
}
