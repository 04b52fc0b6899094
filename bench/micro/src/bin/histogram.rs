//! Measures the fat-point histogram against the form it is reported to have in ptxas: 512
//! counters in an array, scanned slot by slot (`docs/sources.md#fatpoint-histogram`).
//!
//! ```text
//! cargo run --release -p warpalloc-micro --bin histogram
//! ```
//!
//! Both forms do the same work: claims of random weight on random sets of units, then the
//! choice of a slot by threshold, primary and secondary count. The planes' loops have no
//! branches, so that the compiler makes vector code of them; the array is scanned by
//! branches that depend on its contents.

use std::hint::black_box;
use std::time::{Duration, Instant};
use warpalloc::generate::Rng;
use warpalloc::internals::{Histogram, choose};
use warpalloc::target::UnitSet;

const UNITS: usize = 512;
const CLAIMS: usize = 16;
const THRESHOLD: u32 = 50;
const ROUNDS: usize = 2_000;

/// One placement: who claims what, and which starts are free.
struct Case {
    claims: Vec<(UnitSet<8>, u32)>,
    free: UnitSet<8>,
}

fn case(rng: &mut Rng) -> Case {
    let mut set = |one_in: usize| UnitSet::of((0..UNITS).filter(|_| rng.one_in(one_in)));
    let (free, sets): (UnitSet<8>, Vec<UnitSet<8>>) =
        (set(3), (0..CLAIMS).map(|_| set(16)).collect());
    let claims = sets.into_iter().map(|s| (s, 1 + rng.below(12) as u32));
    Case {
        claims: claims.collect(),
        free,
    }
}

fn by_planes(case: &Case, secondary: &Histogram<8>) -> Option<usize> {
    let mut primary = Histogram::default();
    for (units, weight) in &case.claims {
        primary.add(units, *weight);
    }
    choose(&case.free, &primary, secondary, THRESHOLD)
}

fn by_counters(case: &Case, secondary: &[u32; UNITS]) -> Option<usize> {
    let mut primary = [0u32; UNITS];
    for (units, weight) in &case.claims {
        units.iter().for_each(|unit| primary[unit] += weight);
    }
    let mut best: Option<usize> = None;
    for slot in 0..UNITS {
        if !case.free.contains(slot) || primary[slot] > THRESHOLD {
            continue;
        }
        let better = |b: usize| (primary[slot], secondary[slot]) < (primary[b], secondary[b]);
        if best.is_none_or(better) {
            best = Some(slot);
        }
    }
    best
}

fn best_of(runs: usize, mut work: impl FnMut()) -> Duration {
    let once = |work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        begun.elapsed()
    };
    (0..runs).map(|_| once(&mut work)).min().unwrap_or_default()
}

fn main() {
    let mut rng = Rng::new(7);
    let cases: Vec<Case> = (0..64).map(|_| case(&mut rng)).collect();
    let preserved: UnitSet<8> = UnitSet::of((48..64).chain(300..340));
    let (mut planes, mut counters) = (Histogram::default(), [0u32; UNITS]);
    planes.add(&preserved, 1);
    preserved.iter().for_each(|unit| counters[unit] += 1);
    for case in &cases {
        assert_eq!(by_planes(case, &planes), by_counters(case, &counters));
    }
    let all = |choice: &dyn Fn(&Case) -> Option<usize>| {
        for round in 0..ROUNDS {
            black_box(choice(black_box(&cases[round % cases.len()])));
        }
    };
    let fast = best_of(20, || all(&|case| by_planes(case, &planes)));
    let slow = best_of(20, || all(&|case| by_counters(case, &counters)));
    let each = |time: Duration| time.as_nanos() as f64 / ROUNDS as f64;
    println!("{CLAIMS} claims, then a choice among {UNITS} units:");
    println!("  bit planes       {:>8.0} ns", each(fast));
    println!("  array, by slot   {:>8.0} ns", each(slow));
    println!("  ratio            {:>8.1}", each(slow) / each(fast));
}
