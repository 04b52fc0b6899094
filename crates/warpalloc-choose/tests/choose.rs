//! The chooser with the real ptxas, taken from `WARPALLOC_PTXAS`. Without it these tests say that
//! they were skipped, unless `WARPALLOC_REQUIRE_PTXAS` is 1: then they fail.

use std::path::{Path, PathBuf};

use warpalloc::Strategy;
use warpalloc_choose::judge::{Machine, Setting, judge};
use warpalloc_choose::{
    Assembly, Cache, Candidate, Choice, Judged, KernelChoice, Measure, Ptxas, Request, SharedText,
    assemble, choose, keep_no_worse,
};
use warpalloc_ptx::contract::Contraction;
use warpalloc_ptx::module::{FunctionReport, ModuleOptions, Outcome, allocate_module};

/// Shared memory that every launch gets without asking for more.
const WITHOUT_OPT_IN: u32 = 48 * 1024;

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
        uncapped: false,
        measure: None,
        cache: None,
    }
}

fn chosen(source: &str, options: &ModuleOptions, ptxas: Option<&Ptxas>) -> Choice {
    choose(request(source, options, ptxas), None).unwrap()
}

/// The kernel spills much at 24 registers, and stores to local memory are slow.
#[test]
fn spill_code_of_ours_is_chosen_where_it_is_faster() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let source = corpus("sha256.sm_90.ptx");
    let choice = chosen(&source, &options("sha256_x3", 24), Some(&ptxas));
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

/// Groups that scan moves about in the loop of the product take ptxas many registers more.
#[test]
fn without_a_cap_a_kernel_that_an_allocator_makes_worse_goes_back() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let source = corpus("mma.sm_90.ptx");
    let mut options = ModuleOptions::default();
    options.options.strategy = Strategy::Scan;
    let allocated = allocate_module(&source, &options, None).unwrap();
    let kept = |options: &ModuleOptions| {
        keep_no_worse(&source, options, &ptxas, allocated.clone()).unwrap()
    };
    let result = kept(&options);
    let outcome = |name: &str| {
        let mut functions = result.functions.iter();
        &functions.find(|f| f.name == name).unwrap().outcome
    };
    let Outcome::Kept(reason) = outcome("wmma_hgemm") else {
        panic!("{:?}", outcome("wmma_hgemm"));
    };
    assert!(reason.starts_with("ptxas takes "), "{reason}");
    assert!(matches!(outcome("mma_bf16"), Outcome::Allocated(_)));
    let text = |module: &str, name: &str| {
        let facts = warpalloc_ptx::entry_facts(module).unwrap();
        let mut entries = facts.entries.into_iter();
        let entry = entries.find(|entry| entry.name == name).unwrap();
        entry.span.text(module).to_owned()
    };
    for (name, is_back) in [("wmma_hgemm", true), ("mma_bf16", false)] {
        assert_eq!(text(&result.text, name) == text(&source, name), is_back);
    }
    let capped = ModuleOptions {
        maxnreg: Some(255),
        ..options
    };
    assert_eq!(kept(&capped).text, allocated.text);
}

/// The kernel fits, has little to spill for the cap, or much.
#[test]
fn without_ptxas_it_counts_how_much_there_is_to_spill() {
    let fits = chosen(&corpus("wide.sm_90.ptx"), &options("carries", 64), None);
    assert_eq!(fits.kernels[0].chosen, Candidate::Original);
    assert!(fits.kernels[0].reason.ends_with("it is expected to fit"));
    assert!(!fits.result.text.contains("__warpalloc"));
    // The tiles of the product fit nearly: on an H200 spill code of ours makes it slower at 160 registers.
    let source = corpus("mma.sm_90.ptx");
    let at = |cap: u32| {
        let options = ModuleOptions {
            block: Some(32),
            ..options("wmma_hgemm", cap)
        };
        chosen(&source, &options, None)
    };
    let (little, much) = (at(160), at(64));
    assert_eq!(little.kernels[0].chosen, Candidate::SharedPragma);
    assert!(little.result.text.contains("enable_smem_spilling"));
    assert_eq!(much.kernels[0].chosen.to_string(), "briggs, shared");
    assert!(much.result.text.contains("__warpalloc_slots"));
}

/// A frame of 48 KB or more per block does not launch everywhere; what is accessed least is in local memory.
#[test]
fn without_ptxas_a_frame_that_does_not_fit_is_in_local_memory_in_part() {
    let options = ModuleOptions {
        block: Some(128),
        ..options("fft32", 32)
    };
    let choice = chosen(&corpus("fft16.sm_90.ptx"), &options, None);
    assert_eq!(choice.kernels[0].chosen.to_string(), "briggs, shared");
    let text = &choice.result.text;
    let memories = ["st.volatile.shared.b32", "st.local.b32", ".maxnreg 32"];
    assert!(memories.into_iter().all(|part| text.contains(part)));
}

/// Of the stencil's instructions a quarter loads from global memory, and few warps are left to the
/// transform: on an H200 spill code of ours makes both slower. The product loads as much, and
/// spills so much that it is faster all the same.
#[test]
fn without_ptxas_estimates_decide_in_doubt() {
    let judged = |file: &str, kernel: &str, cap: u32, block: u32| {
        let options = ModuleOptions {
            block: Some(block),
            ..options(kernel, cap)
        };
        let mut choice = chosen(&corpus(file), &options, None);
        let kernel = choice.kernels.remove(0);
        let [judged] = &kernel.candidates[..] else {
            panic!("{kernel:?}")
        };
        (kernel.chosen, judged.candidate, judged.score())
    };
    let slower = [
        judged("stencil.sm_90.ptx", "stencil25", 24, 256),
        judged("fft16.sm_90.ptx", "fft64", 128, 32),
    ];
    for (chosen, candidate, score) in slower {
        let is_doubtful = score.is_none_or(|score| score > 0.66);
        assert!(chosen != candidate && is_doubtful, "{chosen}: {score:?}");
    }
    let (chosen, candidate, score) = judged("mma.sm_90.ptx", "mma_bf16", 48, 32);
    let is_faster = score.is_some_and(|score| score < 0.66);
    assert!(chosen == candidate && is_faster, "{chosen}: {score:?}");
}

#[test]
fn without_ptxas_frames_leave_room_for_warps() {
    let mut options = options("fft64", 48);
    options.block = Some(32);
    let choice = chosen(&corpus("fft16.sm_90.ptx"), &options, None);
    let briggs = &choice.kernels[0].candidates[0];
    let reason = briggs.ratios.as_ref().unwrap_err();
    assert!(
        reason.ends_with("leave a multiprocessor 6 warps"),
        "{reason}"
    );
}

/// The text of this kernel has to stay. What is set aside for all blocks that could be resident
/// takes more of the frames of one block out of the cache than it moves; those of a large grid the cache
/// does not hold either way.
#[test]
fn without_ptxas_the_pragma_must_not_cost_more_cache_than_it_saves() {
    let source = corpus("../fresh/ptx/euler.sm_90.ptx");
    let at_24 = options("euler_step", 24);
    let with_grid = |grid: u32| {
        let request = Request {
            grid: Some(grid),
            ..request(&source, &at_24, None)
        };
        choose(request, None).unwrap().kernels.remove(0).chosen
    };
    assert_eq!(with_grid(132), Candidate::Original);
    assert_eq!(with_grid(16 * 132), Candidate::SharedPragma);
}

/// Nobody knows what ptxas fuses in this kernel, so that spill code might change its results; that of
/// ptxas does not.
#[test]
fn without_ptxas_a_text_that_must_stay_gets_the_pragma() {
    let source = corpus("../fresh/ptx/euler.sm_90.ptx");
    let at_40 = options("euler_step", 40);
    let request = Request {
        grid: Some(16 * 132),
        ..request(&source, &at_40, None)
    };
    let kernel = choose(request, None).unwrap().kernels.remove(0);
    assert_eq!(kernel.chosen, Candidate::SharedPragma);
    let reason = kernel.candidates[0].ratios.as_ref().unwrap_err();
    assert!(reason.contains("last bits"), "{reason}");
}

/// Its loop does not fit the cache nearest to the schedulers: on an H200 it is slower with spill code of
/// ours and with that of ptxas in shared memory.
#[test]
fn without_ptxas_a_long_loop_stays_as_it_is() {
    let source = corpus("../holdout/ptx/blake2b.sm_90.ptx");
    let choice = chosen(&source, &options("blake2b", 40), None);
    let kernel = &choice.kernels[0];
    assert_eq!(kernel.chosen, Candidate::Original);
    assert!(kernel.reason.contains("instructions is fetched slowly"));
    assert!(choice.result.text.contains(".maxnreg 40"));
}

#[test]
fn without_a_block_nothing_goes_to_shared_memory() {
    let source = corpus("wide.sm_90.ptx");
    let options = ModuleOptions {
        block: None,
        ..options("limbs", 24)
    };
    let mut choices = vec![chosen(&source, &options, None)];
    if let Some(program) = ptxas() {
        let ptxas = Ptxas::at(&program).unwrap();
        choices.push(chosen(&source, &options, Some(&ptxas)));
    }
    for choice in choices {
        let kernel = &choice.kernels[0];
        assert_eq!(kernel.chosen, Candidate::Original);
        assert!(
            kernel
                .reason
                .ends_with("`__launch_bounds__` or --block does"),
            "{}",
            kernel.reason
        );
        assert!(kernel.candidates.len() <= 1);
    }
}

/// Only that much shared memory launches for sure, and a launch may take some of it.
#[test]
fn frames_leave_shared_memory_to_the_kernel_and_to_its_launch() {
    let source = corpus("sgemm_rb.sm_90.ptx");
    let frame = |dynamic_shared: u32| {
        let options = ModuleOptions {
            block: Some(256),
            dynamic_shared,
            ..options("sgemm_rb8", 40)
        };
        let strategy = Strategy::Briggs;
        let margin = 0;
        let made = Candidate::Allocated { strategy, margin }.options(&options, "sgemm_rb8");
        let made = allocate_module(&source, &made, None).unwrap();
        let own = made.functions.iter().find(|f| f.name == "sgemm_rb8");
        match &own.unwrap().outcome {
            Outcome::Allocated(allocated) => (allocated.frame.local, allocated.frame.shared),
            other => panic!("{other:?}"),
        }
    };
    let room = (WITHOUT_OPT_IN - 16 * 1024) / 256;
    let (local, shared) = frame(0);
    assert!(
        local > 0 && shared <= room && shared + 16 > room,
        "{shared} of {room}"
    );
    let (more, less) = frame(16 * 256);
    assert!(more > local && less <= room - 16, "{less} of {room}");
}

#[test]
fn a_choice_for_one_function_is_what_its_options_make() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let source = corpus("wide.sm_90.ptx");
    for cap in [24, 64] {
        let options = options("limbs", cap);
        let choice = chosen(&source, &options, Some(&ptxas));
        let made = choice.kernels[0].chosen.options(&options, "limbs");
        let made = allocate_module(&source, &made, None).unwrap();
        assert_eq!(choice.result.text, made.text);
        let own = choice.result.functions.iter().find(|f| f.name == "limbs");
        if let Outcome::Kept(reason) = &own.unwrap().outcome {
            assert_eq!(*reason, choice.kernels[0].reason);
        }
    }
}

/// Each kernel is tried in a module without the others, and stands in the result as if it had been
/// allocated among them.
#[test]
fn kernels_of_a_module_are_what_their_options_make_of_the_whole() {
    let source = corpus("wide.sm_90.ptx");
    let mut options = options("", 24);
    options.entries.clear();
    let choice = chosen(&source, &options, None);
    let is_changed = |kernel: &KernelChoice| kernel.chosen != Candidate::Original;
    assert!(choice.kernels.iter().any(is_changed));
    let mut text = source.clone();
    for kernel in &choice.kernels {
        let options = kernel.chosen.options(&options, &kernel.name);
        let result = allocate_module(&text, &options, None).unwrap();
        let is_own = |report: &&FunctionReport| report.name == kernel.name;
        let lines = [&result, &choice.result]
            .map(|r| r.functions.iter().find(is_own).map(|f| f.instructions));
        assert_eq!(lines[0], lines[1]);
        text = result.text;
    }
    assert_eq!(choice.result.text, text);
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
        machine_code: true,
        ..request(&source, &options, Some(&ptxas))
    };
    let first = choose(request, None).unwrap();
    let cubin = assemble(request, &first).unwrap();
    std::fs::remove_file(&link).unwrap();
    let second = choose(request, None).unwrap();
    assert_eq!(first.result.text, second.result.text);
    assert_eq!(first.kernels[0].reason, second.kernels[0].reason);
    assert_eq!(assemble(request, &second).unwrap(), cubin);
    let mut changed = second;
    changed.result.text.push('\n');
    assert!(
        assemble(request, &changed).is_err(),
        "another text is other machine code"
    );
    let other = Request {
        grid: None,
        ..request
    };
    assert!(
        choose(other, None).is_err(),
        "another launch is another question"
    );
}

/// Kernels that were looked at, which `progress` is told of.
fn looked_at(request: Request) -> (Choice, usize) {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let one_more = |_, _| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let choice = choose(request, Some(&one_more)).unwrap();
    (choice, count.into_inner())
}

/// The second call looks at no kernel: what it gives back is what is kept, also where that was written
/// by hand.
#[test]
fn what_is_kept_is_given_back_and_what_is_damaged_is_made_again() {
    use sha2::{Digest, Sha256};
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    let source = corpus("wide.sm_90.ptx");
    let options = options("limbs", 24);
    let request = Request {
        cache: Some(&cache),
        ..request(&source, &options, None)
    };
    let (first, count) = looked_at(request);
    assert_eq!(count, 1);
    let mut files = std::fs::read_dir(folder.path()).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none(), "nothing else is left behind");
    let kept = std::fs::read(&file).unwrap();

    // No allocator makes this text, so that no allocator was run.
    let (json, _) = kept.split_at(kept.len() - 32);
    let mut by_hand = String::from_utf8(json.to_vec()).unwrap();
    by_hand = by_hand.replacen(".version", "// by hand\\n.version", 1);
    let mut signed = by_hand.into_bytes();
    signed.extend(Sha256::digest(&signed));
    std::fs::write(&file, &signed).unwrap();
    let (second, count) = looked_at(request);
    assert_eq!(count, 0);
    let expected = first
        .result
        .text
        .replacen(".version", "// by hand\n.version", 1);
    assert_eq!(second.result.text, expected);
    assert_eq!(
        second.kernels[0].candidates.len(),
        first.kernels[0].candidates.len()
    );

    let mut flipped = kept.clone();
    flipped[100] ^= 1;
    for damaged in [&flipped[..], &kept[..kept.len() - 1], &kept[..5], b""] {
        std::fs::write(&file, damaged).unwrap();
        let (third, count) = looked_at(request);
        assert_eq!(count, 1);
        assert_eq!(third.result.text, first.result.text);
        assert_eq!(std::fs::read(&file).unwrap(), kept, "it is kept again");
    }
}

/// The program answers that the first candidate is the fastest and differs, and that the second
/// is faster than the original; the estimate of neither counts.
#[cfg(unix)]
#[test]
fn times_decide_where_there_is_a_gpu() {
    use std::os::unix::fs::PermissionsExt;
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let runner = folder.path().join("runner");
    let script = r#"#!/bin/sh
images=$(grep -o '/[0-9][0-9]*\.cubin"' | wc -l)
printf '{"error": null, "images": [{"microseconds": 10}, {"microseconds": null, "reason": "its output differs"}'
printf ', {"microseconds": 8}'
i=3
while [ $i -lt $images ]; do printf ', {"microseconds": 20}'; i=$((i + 1)); done
printf ']}'
"#;
    std::fs::write(&runner, script).unwrap();
    std::fs::set_permissions(&runner, std::fs::Permissions::from_mode(0o755)).unwrap();
    let manifest = r#"{"kernels": {"limbs": {"grid": [256], "block": [128], "arguments": []}}}"#;
    let measure = Measure::new(&runner, manifest).unwrap();
    let source = corpus("wide.sm_90.ptx");
    let options = ModuleOptions {
        block: None,
        ..options("limbs", 24)
    };
    let request = Request {
        measure: Some(&measure),
        ..request(&source, &options, Some(&ptxas))
    };
    let choice = choose(request, None).unwrap();
    let kernel = &choice.kernels[0];
    let [_, pragma, briggs, ..] = &kernel.candidates[..] else {
        panic!("{:?}", kernel.candidates)
    };
    assert_eq!(pragma.ratios, Err("its output differs".to_owned()));
    assert_eq!(briggs.ratios, Ok([0.8; 2]));
    assert_eq!(kernel.chosen, briggs.candidate);
    assert_eq!(kernel.reason, "measured at 0.80 of the original's time");
    let unknown = ModuleOptions {
        entries: vec!["carries".to_owned()],
        ..options.clone()
    };
    let unknown = Request {
        options: &unknown,
        ..request
    };
    let error = choose(unknown, None).unwrap_err().to_string();
    assert_eq!(error, "the manifest: there is no launch for `carries`");
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
    assert!(!free.spills() && at_80.spills() && at_48.spills());
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

/// What ptxas adds to spill code in shared memory is moved there too, where the result is machine
/// code.
#[test]
fn what_ptxas_leaves_in_local_memory_is_moved() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let source = corpus("wide.sm_90.ptx");
    let options = options("quads", 40);
    let request = Request {
        machine_code: true,
        ..request(&source, &options, Some(&ptxas))
    };
    let rests = |choice: &Choice| -> Vec<Judged> {
        let candidates = choice.kernels[0].candidates.iter().cloned();
        let is_rest = |c: &Judged| matches!(c.candidate, Candidate::RestMoved { .. });
        candidates.filter(is_rest).collect()
    };
    let text = Request {
        machine_code: false,
        ..request
    };
    assert!(rests(&choose(text, None).unwrap()).is_empty());
    let mut choice = choose(request, None).unwrap();
    let score = |candidate: Candidate| {
        let mut candidates = choice.kernels[0].candidates.iter();
        let judged = candidates.find(|c| c.candidate == candidate);
        judged.and_then(|judged| judged.score())
    };
    let strategy = Strategy::Fatpoint;
    let of = SharedText::Allocated {
        strategy,
        margin: 0,
    };
    let rest = Candidate::RestMoved { of, all: false };
    let (before, after) = (score(of.into()).unwrap(), score(rest).unwrap());
    assert!(after < before, "{after}, {before}");
    // Whatever was chosen: this is the code of that candidate.
    let own = rest.options(&options, "quads");
    choice.kernels[0].chosen = rest;
    choice.result = allocate_module(&source, &own, None).unwrap();
    let cubin = assemble(request, &choice).unwrap();
    let cubin = warpalloc_sass::object::Cubin::read(&cubin).unwrap();
    assert_eq!(cubin.function("quads").unwrap().stack_bytes, Some(0));
}

/// What ptxas makes without a cap is spilled for the cap, unless the text has to keep the cap.
#[test]
fn uncapped_machine_code_is_spilled_where_the_text_may_lose_its_cap() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let source = corpus("sgemm_rb.sm_90.ptx");
    let mut options = options("sgemm_rb8", 48);
    options.block = Some(256);
    let made = |uncapped| {
        let request = Request {
            machine_code: true,
            uncapped,
            ..request(&source, &options, Some(&ptxas))
        };
        let mut choice = choose(request, None).unwrap();
        let mut candidates = choice.kernels[0].candidates.iter();
        // All of its spills would leave one block of five: those accessed most are moved.
        let in_place = Candidate::Moved { all: false };
        let in_place = candidates.find(|c| c.candidate == in_place).unwrap();
        assert!(in_place.score().is_some(), "{:?}", in_place.ratios);
        let candidates = choice.kernels[0].candidates.iter();
        let spilled = candidates
            .filter(|c| c.candidate == Candidate::Spilled)
            .map(|c| c.score())
            .next();
        // Whatever was chosen: the code of this candidate is what its cap says.
        let cubin = spilled.map(|_| {
            choice.kernels[0].chosen = Candidate::Spilled;
            choice.result.text.clone_from(&source);
            warpalloc_choose::assemble(request, &choice).unwrap()
        });
        (spilled, cubin)
    };
    assert_eq!(made(false), (None, None));
    let (score, cubin) = made(true);
    assert!(score.flatten().unwrap() < 1.0, "{score:?}");
    let cubin = cubin.unwrap();
    let cubin = warpalloc_sass::object::Cubin::read(&cubin).unwrap();
    let kernel = cubin.function("sgemm_rb8").unwrap();
    assert!(kernel.registers.unwrap() <= 48);
    assert_eq!(kernel.stack_bytes, Some(0));
}

/// Forty loads from where `index` says, and as many stores behind a barrier.
fn forty_loads(index: &str) -> String {
    let each = |text: &dyn Fn(usize) -> String| (0..40).map(text).collect::<String>();
    let loads = each(&|i| {
        format!(
            "mul.wide.u32 %a, %i, 4;\nadd.s64 %a, %q, %a;\n\
                 ld.volatile.global.u32 %v{i}, [%a+{}];\n",
            4 * i
        )
    });
    let stores = each(&|i| format!("st.volatile.global.u32 [%q+{}], %v{i};\n", 4 * i));
    format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p, .param .u64 q)\n\
             .maxntid 128, 1, 1\n{{\n.reg .b32 %v<40>, %i;\n.reg .b64 %p, %q, %a;\n\
             ld.param.u64 %p, [p];\nld.param.u64 %q, [q];\n{index}\n{loads}bar.sync 0;\n{stores}ret;\n}}\n"
    )
}

/// On an H200 spill code in what ptxas makes without a cap made a kernel of gathers twice as slow.
#[test]
fn machine_code_without_a_cap_is_not_spilled_where_it_gathers() {
    let Some(program) = ptxas() else { return };
    let ptxas = Ptxas::at(&program).unwrap();
    let tries = |source: &str| {
        let options = options("k", 24);
        let request = Request {
            machine_code: true,
            uncapped: true,
            ..request(source, &options, Some(&ptxas))
        };
        let choice = choose(request, None).unwrap();
        let mut candidates = choice.kernels[0].candidates.iter();
        candidates.any(|judged| judged.candidate == Candidate::Spilled)
    };
    assert!(tries(&forty_loads("mov.u32 %i, %tid.x;")));
    assert!(!tries(&forty_loads("ld.global.u32 %i, [%p];")));
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

#[test]
fn without_ptxas_a_kernel_of_gathers_stays_as_it_is() {
    let left = |index: &str| {
        let source = forty_loads(index);
        let choice = chosen(&source, &options("k", 24), None);
        let kernel = &choice.kernels[0];
        kernel.chosen == Candidate::Original && kernel.reason.contains("its gathers")
    };
    assert!(!left("mov.u32 %i, %tid.x;"));
    assert!(left("ld.global.u32 %i, [%p];"));
}
