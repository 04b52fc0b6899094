//! More registers never cost more.
//!
//! For each function of the corpus and each strategy: at caps from the registers that an allocation
//! without a cap takes, nothing spills. Heuristics that see a limit err just above it, so those
//! caps are tried; `--ignored` tries all of them in steps of eight.

use std::collections::BTreeSet;
use std::path::PathBuf;
use warpalloc::{Options, Strategy};
use warpalloc_ptx::LEAST_CAP;
use warpalloc_ptx::module::{ModuleOptions, ModuleResult, Outcome, allocate_module};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/ptx");

fn corpus() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(CORPUS).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    // Straight-line monsters that add minutes, not cases.
    let is_huge = |path: &PathBuf| {
        let name = path.to_string_lossy();
        ["fft16", "sha256"].iter().any(|huge| name.contains(huge))
    };
    paths.retain(|path| !is_huge(path));
    paths.sort();
    paths
}

fn allocated(source: &str, strategy: Strategy, maxnreg: Option<u32>) -> ModuleResult {
    let options = ModuleOptions {
        options: Options::with_strategy(strategy),
        maxnreg,
        ..ModuleOptions::default()
    };
    allocate_module(source, &options, None).unwrap()
}

/// The registers of the functions that do without spill memory.
fn unspilled(result: &ModuleResult) -> Vec<Option<u32>> {
    let registers = |outcome: &Outcome| match outcome {
        Outcome::Allocated(a) if a.frame.local + a.frame.shared == 0 => Some(a.registers),
        _ => None,
    };
    let functions = result.functions.iter();
    functions.map(|f| registers(&f.outcome)).collect()
}

/// The caps just above what some function needs.
fn near(needed: &[Option<u32>]) -> BTreeSet<u32> {
    let above = |&needed: &u32| [0, 16].map(|more| (needed + more).clamp(LEAST_CAP, 255));
    needed.iter().flatten().flat_map(above).collect()
}

fn nothing_spills_from_the_cap_that_suffices(
    strategy: Strategy,
    caps: impl Fn(&[Option<u32>]) -> BTreeSet<u32>,
) {
    let mut compared = 0;
    for path in corpus() {
        let source = std::fs::read_to_string(&path).unwrap();
        let free = allocated(&source, strategy, None);
        let needed = unspilled(&free);
        for cap in caps(&needed) {
            let capped = allocated(&source, strategy, Some(cap));
            let functions = unspilled(&capped).into_iter().zip(&needed).enumerate();
            for (function, (registers, &needed)) in functions {
                if needed.is_none_or(|needed| needed > cap) {
                    continue;
                }
                let report = &capped.functions[function];
                // A cap that ptxas could not honour is refused.
                if matches!(report.outcome, Outcome::Refused(_)) {
                    continue;
                }
                let name = &report.name;
                assert!(
                    registers.is_some(),
                    "{}: `{name}` spills at {cap}, and needs {needed:?} without a cap",
                    path.display()
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn briggs_spills_nothing_at_a_cap_that_suffices() {
    nothing_spills_from_the_cap_that_suffices(Strategy::Briggs, near);
}

#[test]
fn fatpoint_spills_nothing_at_a_cap_that_suffices() {
    nothing_spills_from_the_cap_that_suffices(Strategy::Fatpoint, near);
}

#[test]
#[ignore = "a thousand allocations of each strategy take minutes"]
fn no_strategy_spills_at_any_cap_that_suffices() {
    for strategy in [Strategy::Briggs, Strategy::Fatpoint] {
        nothing_spills_from_the_cap_that_suffices(strategy, |_| (24..=255).step_by(8).collect());
    }
}
