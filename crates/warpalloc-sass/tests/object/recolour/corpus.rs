//! The corpus, assembled by ptxas: recoloured by each strategy and at random.

use super::reaching::assert_same;
use crate::tools::{CorpusCubin, corpus_cubins};
use warpalloc::Strategy;
use warpalloc_sass::object::Cubin;
use warpalloc_sass::recolour::{Goal, Outcome, RecolourError, RecolourOptions, recolour_cubin};
use warpalloc_sass::{Cfg, Code, hazard};

/// The corpus for an SM; empty without ptxas.
fn cubins(sm: u32) -> Vec<&'static CorpusCubin> {
    let ending = format!("for sm_{sm}");
    let cubins = corpus_cubins().iter();
    cubins
        .filter(|cubin| cubin.name.ends_with(&ending))
        .collect()
}

/// What came of all kernels.
#[derive(Default)]
struct Sum {
    kernels: usize,
    refused: Vec<(String, RecolourError)>,
    fewer: usize,
    moved: usize,
    values: usize,
}

/// Recolours every kernel and checks each in every way.
fn recolour_all(cubins: &[&CorpusCubin], options: &RecolourOptions) -> Sum {
    let mut sum = Sum::default();
    for CorpusCubin { name: file, bytes } in cubins {
        let (written, outcomes) = recolour_cubin(bytes, options, |_| true).unwrap();
        let (old, new) = (Cubin::read(bytes).unwrap(), Cubin::read(&written).unwrap());
        for Outcome { name, result, .. } in outcomes {
            sum.kernels += 1;
            let find = |cubin: &Cubin| {
                let function = cubin.functions.iter().find(|f| f.name == name).unwrap();
                (function.registers.unwrap(), function.code.to_vec())
            };
            let (before, after) = (find(&old), find(&new));
            let done = match result {
                Ok(done) => done,
                Err(error) => {
                    assert_eq!(before, after, "{file} {name}");
                    sum.refused.push((name, error));
                    continue;
                }
            };
            sum.moved += done.moved;
            sum.values += done.values;
            assert_eq!(done.registers_before, before.0);
            assert_eq!(done.registers_after, after.0);
            assert!(after.0 <= before.0 && after.0 >= done.floor, "{name}");
            sum.fewer += usize::from(after.0 < before.0);
            let function = old.functions.iter().find(|f| f.name == name).unwrap();
            let old_code = Code::decode(&before.1, old.arch.sm).unwrap();
            let new_code = Code::decode(&after.1, old.arch.sm).unwrap();
            let cfg = Cfg::build(&old_code, &old.links(function, &old_code)).unwrap();
            assert_eq!(hazard::check(&new_code, &cfg), [], "{file} {name}");
            assert_same(&name, &old_code, &new_code, &cfg);
        }
    }
    sum
}

/// The kernel that is refused whatever the strategy: it has mbarriers.
const REFUSED: [&str; 1] = ["bulk"];

fn strategies_recolour(sm: u32, least_fewer: usize) {
    let cubins = cubins(sm);
    if cubins.is_empty() {
        return;
    }
    for strategy in [Strategy::Briggs, Strategy::Fatpoint] {
        let mut options = RecolourOptions::default();
        options.strategy = strategy;
        options.goal = Goal::Fewest;
        let sum = recolour_all(&cubins, &options);
        let is_known = |name: &str| REFUSED.contains(&name);
        let unknown: Vec<_> = sum
            .refused
            .iter()
            .filter(|(name, _)| !is_known(name))
            .collect();
        assert!(unknown.is_empty(), "{unknown:#?}");
        assert!(sum.fewer >= least_fewer, "{strategy}: {}", sum.fewer);
    }
    // What the hardware gives out in eights leaves most values where they are.
    let sum = recolour_all(&cubins, &RecolourOptions::default());
    let (moved, values) = (sum.moved, sum.values);
    assert!(sum.fewer > 0 && moved * 20 < values, "{moved} of {values}");
}

/// An address that counts from elsewhere may be that of any code.
#[test]
fn calls_by_address_from_the_beginning_reach_all_functions_of_the_section_or_is_skipped() {
    let mut cubins = corpus_cubins().iter();
    let Some(cubin) = cubins.find(|cubin| cubin.name == "calls.sm_90 for sm_90") else {
        return;
    };
    let cubin = Cubin::read(&cubin.bytes).unwrap();
    let function = cubin.function("calls").unwrap();
    let code = Code::decode(function.code, 90).unwrap();
    let inner: Vec<usize> = function.inner.iter().map(|f| f.offset as usize).collect();
    let links = cubin.links(function, &code);
    assert_eq!((inner.len(), links.by_address.len()), (5, 2));
    assert!(links.by_address.values().all(|places| *places == inner));
    assert!(links.entries.is_empty());
    let mut words: Vec<u128> = code.insts().iter().map(|inst| inst.word()).collect();
    for &at in links.by_address.keys() {
        let inst = &code.insts()[at / 16];
        words[at / 16] = inst.with_place(-(at as i64)).unwrap().word();
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let links = cubin.links(function, &Code::decode(&bytes, 90).unwrap());
    assert!(links.by_address.is_empty());
    assert_eq!(links.entries, inner);
}

#[test]
fn corpus_for_sm_90_takes_fewer_registers_or_is_skipped() {
    strategies_recolour(90, 20);
}

#[test]
fn corpus_for_sm_80_takes_fewer_registers_or_is_skipped() {
    strategies_recolour(80, 20);
}

#[test]
fn corpus_for_sm_75_takes_fewer_registers_or_is_skipped() {
    strategies_recolour(75, 15);
}

#[test]
fn random_registers_compute_the_same_or_is_skipped() {
    let cubins = cubins(90);
    for seed in 1..=3 {
        let mut options = RecolourOptions::default();
        options.random = Some(seed);
        let sum = recolour_all(&cubins, &options);
        let (moved, values) = (sum.moved, sum.values);
        assert!(
            moved * 2 > values || cubins.is_empty(),
            "{moved} of {values}"
        );
    }
}
