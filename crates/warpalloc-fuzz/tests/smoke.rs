//! Every fuzz target on a few thousand random inputs.

use warpalloc::generate::Rng;

/// Runs `target` on `count` inputs of up to `len` bytes.
fn run(target: fn(&[u8]), seed: u64, count: usize, len: usize) {
    let mut rng = Rng::new(seed);
    for _ in 0..count {
        let len = rng.below(len);
        let data: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
        target(&data);
    }
}

#[test]
fn text() {
    run(warpalloc_fuzz::text, 1, 4000, 400);
}

#[test]
fn naive() {
    run(warpalloc_fuzz::naive, 2, 2000, 400);
}

#[test]
fn briggs() {
    run(warpalloc_fuzz::briggs, 4, 600, 400);
}

#[test]
fn fatpoint() {
    run(warpalloc_fuzz::fatpoint, 5, 600, 400);
}

#[test]
fn scan() {
    run(warpalloc_fuzz::scan, 6, 600, 400);
}

#[test]
fn checker() {
    run(warpalloc_fuzz::checker, 3, 3000, 400);
}

#[test]
fn cubin() {
    run(warpalloc_fuzz::cubin, 6, 20_000, 400);
}

#[test]
fn ptx_parse() {
    run(warpalloc_fuzz::ptx_parse, 7, 4000, 400);
}

#[test]
fn ptx_alloc() {
    run(warpalloc_fuzz::ptx_alloc, 8, 1000, 400);
}
