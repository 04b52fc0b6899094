//! Kernels of the corpus, assembled by ptxas: allocated for fewer registers by each strategy.

use super::walk::walk;
use crate::recolour::reaching::assert_same;
use crate::tools::{assemble, corpus, tool};
use warpalloc::Strategy;
use warpalloc::allocation::Space;
use warpalloc_sass::allocate::{AllocateError, AllocateOptions, Allocated, allocate_kernel};
use warpalloc_sass::isa::{Builder, Sm};
use warpalloc_sass::object::{Change, NewCode};
use warpalloc_sass::object::{Cubin, Rewriter};
use warpalloc_sass::{Cfg, Code, hazard};

/// A block no larger than those that the corpus is launched with.
const BLOCK: u32 = 64;
const PATHS: u64 = 12;

fn cubins(names: &[&str]) -> Vec<(String, Vec<u8>)> {
    let Some(ptxas) = tool("ptxas") else {
        return Vec::new();
    };
    let wanted = corpus().into_iter().filter(|(name, _)| {
        names
            .iter()
            .any(|wanted| *name == format!("{wanted}.sm_90"))
    });
    let built = wanted.map(|(name, text)| {
        let bytes = assemble(&ptxas, &text, "sm_90", &[]);
        (name, bytes.unwrap())
    });
    built.collect()
}

fn options(maxnreg: u32, space: Space, strategy: Strategy) -> AllocateOptions {
    let mut options = AllocateOptions::new(maxnreg);
    options.space = space;
    options.strategy = strategy;
    options.launch.block = Some(BLOCK);
    options.launch.dynamic_shared = Some(0);
    options
}

fn code_of(cubin: &[u8], kernel: &str) -> (Code, Cfg) {
    let cubin = Cubin::read(cubin).unwrap();
    let function = cubin.function(kernel).unwrap();
    let code = Code::decode(function.code, cubin.arch.sm).unwrap();
    let cfg = Cfg::build(&code, &cubin.links(function, &code)).unwrap();
    (code, cfg)
}

/// The first difference between the old and the new code on some paths.
fn difference(old: &[u8], new: &[u8], kernel: &str, offsets: &[usize]) -> Option<String> {
    let (old, old_cfg) = code_of(old, kernel);
    let (new, _) = code_of(new, kernel);
    (1..=PATHS).find_map(|seed| walk((&old, &old_cfg), &new, offsets, seed).err())
}

#[test]
fn spilled_code_computes_what_the_original_does_within_the_cap() {
    let cubins = cubins(&[
        "wide",
        "dynshared",
        "switchboard",
        "stencil",
        "localarr",
        "sgemm_rb",
    ]);
    let has_tools = !cubins.is_empty();
    let mut spilled = 0;
    for (file, bytes) in &cubins {
        for function in &Cubin::read(bytes).unwrap().functions {
            for (maxnreg, space, strategy) in [
                (32, Space::Local, Strategy::Briggs),
                (32, Space::Shared, Strategy::Briggs),
                (32, Space::Shared, Strategy::Scan),
                (64, Space::Shared, Strategy::Fatpoint),
            ] {
                let name = function.name;
                let told = format!("{file} {name} {maxnreg} {space:?} {strategy}");
                let options = options(maxnreg, space, strategy);
                let done = match allocate_kernel(bytes, name, &options) {
                    Ok(done) => done,
                    // A block may not have all that shared memory.
                    Err(AllocateError::Spills(_)) => continue,
                    Err(error) => panic!("{told}: {error}"),
                };
                let Some(new) = &done.bytes else { continue };
                assert!(done.registers_after <= maxnreg, "{told}");
                let found = difference(bytes, new, name, &done.offsets);
                assert_eq!(found, None, "{told}");
                let (code, cfg) = code_of(new, name);
                assert_eq!(hazard::check(&code, &cfg), [], "{told}");
                let read = Cubin::read(new).unwrap();
                let after = read.function(name).unwrap();
                assert_eq!(after.registers, Some(done.registers_after), "{told}");
                let grows = match space {
                    Space::Local | Space::Argument => after.stack_bytes > function.stack_bytes,
                    Space::Shared => after.shared_bytes > function.shared_bytes,
                };
                assert_eq!(grows, done.frame_bytes > 0, "{told}");
                spilled += usize::from(done.frame_bytes > 0);
            }
        }
    }
    assert!(!has_tools || spilled > 15, "{spilled}");
}

/// Walking would find a fault: where a reload is missing a value differs, but for one that comes
/// to a register that holds the value already.
#[test]
fn a_reload_that_is_missing_is_noticed() {
    for (_, bytes) in cubins(&["stencil"]) {
        let options = options(32, Space::Shared, Strategy::Briggs);
        let done = allocate_kernel(&bytes, "stencil25", &options).unwrap();
        let Allocated {
            bytes: Some(new),
            offsets,
            ..
        } = done
        else {
            panic!("nothing was spilled");
        };
        let cubin = Cubin::read(&new).unwrap();
        let code = Code::decode(cubin.function("stencil25").unwrap().code, 90).unwrap();
        let is_reload =
            |at: &usize| code.insts()[*at].mnemonic() == "LDS" && !offsets.contains(&(at * 16));
        let reloads: Vec<usize> = (0..code.insts().len()).filter(is_reload).collect();
        assert!(reloads.len() > 10);
        let nop = Builder::new(Sm::new(90).unwrap()).nop().unwrap();
        let mut noticed = 0;
        for &at in &reloads {
            let mut words = code.encode();
            let control = code.insts()[at].control();
            let word = nop.with_control(control).word();
            words[at * 16..at * 16 + 16].copy_from_slice(&word.to_le_bytes());
            let mut rewriter = Rewriter::new(&new).unwrap();
            let change = Change {
                code: Some(NewCode::in_place(words)),
                ..Change::default()
            };
            rewriter.change("stencil25", change).unwrap();
            let mutant = rewriter.finish().unwrap();
            noticed += usize::from(difference(&bytes, &mutant, "stencil25", &offsets).is_some());
        }
        assert!(noticed + 1 >= reloads.len(), "{noticed}");
    }
}

/// Functions that are called by their addresses can't move, so that nothing is inserted; below
/// what recolouring takes that leaves nothing.
#[test]
fn a_kernel_that_takes_no_insertions_meets_the_cap_by_recolouring_alone() {
    for (_, bytes) in cubins(&["calls"]) {
        for strategy in [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan] {
            for space in [Space::Local, Space::Shared] {
                let within =
                    |cap: u32| allocate_kernel(&bytes, "calls", &options(cap, space, strategy));
                let done = within(40).unwrap();
                assert_eq!((done.registers_before, done.frame_bytes), (42, 0));
                assert_eq!(done.instructions_before, done.instructions_after);
                let new = done.bytes.unwrap();
                let read = Cubin::read(&new).unwrap();
                assert_eq!(
                    read.function("calls").unwrap().registers,
                    Some(done.registers_after)
                );
                assert!(done.registers_after <= 40, "{}", done.registers_after);
                let (code, cfg) = code_of(&new, "calls");
                assert_same("calls", &code_of(&bytes, "calls").0, &code, &cfg);
                assert_eq!(hazard::check(&code, &cfg), []);
                let error = within(32).unwrap_err().to_string();
                assert!(
                    error.ends_with("sets R1 anew, which has to stay the frame"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn a_kernel_that_fits_stays_and_one_that_cannot_is_refused() {
    for (_, bytes) in cubins(&["wide"]) {
        let done = allocate_kernel(
            &bytes,
            "limbs",
            &options(128, Space::Local, Strategy::Briggs),
        );
        assert_eq!(done.unwrap().bytes, None);
        let few = allocate_kernel(&bytes, "limbs", &options(8, Space::Local, Strategy::Briggs));
        assert_eq!(few, Err(AllocateError::TooFew { maxnreg: 8 }));
        let none = allocate_kernel(
            &bytes,
            "other",
            &options(32, Space::Local, Strategy::Briggs),
        );
        assert_eq!(none.unwrap_err().to_string(), "there is no kernel other");
    }
}
