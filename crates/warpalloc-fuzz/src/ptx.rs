//! PTX: small kernels, damaged.

use crate::damage;
use warpalloc::Strategy;
use warpalloc::generate::Rng;
use warpalloc_ptx::Edits;
use warpalloc_ptx::module::{ModuleOptions, PtxError, SpillSpace, allocate_module};

/// Kernels to begin with.
const KERNELS: [&str; 7] = [
    include_str!("../../warpalloc-ptx/tests/filetests/call.ptx"),
    include_str!("../../warpalloc-ptx/tests/filetests/guarded.ptx"),
    include_str!("../../warpalloc-ptx/tests/filetests/nothing_to_do.ptx"),
    include_str!("../../warpalloc-ptx/tests/filetests/predicates.ptx"),
    include_str!("../../warpalloc-ptx/tests/filetests/rematerialise.ptx"),
    include_str!("../../warpalloc-ptx/tests/filetests/spill_to_shared.ptx"),
    include_str!("../../warpalloc-ptx/tests/filetests/vector_load.ptx"),
];

/// Text never makes the parser panic, and what parses prints as it was.
///
/// Bytes that start with an even one are text as they are; others damage a kernel.
pub fn parse(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    if first % 2 == 0 {
        return prints_back(&String::from_utf8_lossy(rest));
    }
    let mut rng = Rng::from_bytes(rest);
    let kernel = kernel(&mut rng);
    prints_back(&kernel);
    prints_back(&damage::text(&kernel, &mut rng));
}

fn prints_back(source: &str) {
    if warpalloc_ptx::parse(source).is_ok() {
        let printed = Edits::default().apply(source);
        assert_eq!(printed.as_deref(), Ok(source));
    }
}

/// Whatever a module says, each of its functions is allocated and proved, refused or passed
/// through, and what comes out is PTX that can be allocated again.
pub fn alloc(data: &[u8]) {
    let mut rng = Rng::from_bytes(data);
    let mut kernel = kernel(&mut rng);
    if rng.one_in(4) {
        kernel = damage::text(&kernel, &mut rng);
    }
    let mut options = ModuleOptions {
        maxnreg: [None, Some(16), Some(20), Some(32)][rng.below(4)],
        spill_space: [SpillSpace::Local, SpillSpace::Shared, SpillSpace::Auto][rng.below(3)],
        jobs: Some(1),
        promote_local: rng.one_in(2),
        ..ModuleOptions::default()
    };
    options.options.strategy = Strategy::ALL[rng.below(Strategy::ALL.len())];
    if let Some(text) = allocated(&kernel, &options) {
        let parsed = warpalloc_ptx::parse(&text);
        assert!(parsed.is_ok(), "{}\n{kernel}\n{text}", parsed.unwrap_err());
        allocated(&text, &options);
    }
}

/// The new text of a module, unless something is wrong with the module.
fn allocated(source: &str, options: &ModuleOptions) -> Option<String> {
    match allocate_module(source, options, None) {
        Ok(result) => Some(result.text),
        Err(error @ (PtxError::Unproved { .. } | PtxError::Conflict(_))) => {
            panic!("{error}\n{source}")
        }
        Err(_) => None,
    }
}

/// A kernel with some of its instructions repeated, left out or moved.
fn kernel(rng: &mut Rng) -> String {
    let source = KERNELS[rng.below(KERNELS.len())];
    let mut lines: Vec<&str> = source.lines().collect();
    for _ in 0..rng.below(6) {
        let from = rng.below(lines.len());
        let to = rng.below(lines.len());
        // Instructions are indented, and braces and directives are not.
        if !lines[from].starts_with('\t') || !lines[to].starts_with('\t') {
            continue;
        }
        match rng.below(3) {
            0 => lines.insert(to, lines[from]),
            1 => lines.swap(from, to),
            _ => {
                lines.remove(from);
            }
        }
    }
    lines.join("\n") + "\n"
}
