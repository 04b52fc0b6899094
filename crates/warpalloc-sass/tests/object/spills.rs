//! Spills of ptxas, moved to shared memory.

use std::collections::BTreeSet;
use std::path::Path;

use warpalloc_sass::Code;
use warpalloc_sass::isa::{Inst, SpillMemory};
use warpalloc_sass::object::Cubin;
use warpalloc_sass::spills::{Options, Refusal, spills_to_shared};

use crate::tools::{assemble, tool};

/// A file of the corpus, assembled with at most `cap` registers for every kernel; none where it
/// needs a newer architecture.
fn capped_for(ptxas: &Path, file: &str, arch: &str, cap: u32) -> Option<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/ptx");
    let text = std::fs::read_to_string(format!("{folder}/{file}.ptx")).unwrap();
    let flag = format!("-maxrregcount={cap}");
    assemble(ptxas, &text, arch, &[&flag])
}

fn capped(ptxas: &Path, file: &str, arch: &str, cap: u32) -> Vec<u8> {
    capped_for(ptxas, file, arch, cap).unwrap()
}

fn options(block: u32) -> Options {
    let mut options = Options::default();
    options.block = Some(block);
    options
}

fn code(bytes: &[u8], kernel: &str) -> Code {
    let cubin = Cubin::read(bytes).unwrap();
    Code::decode(cubin.function(kernel).unwrap().code, cubin.arch.sm).unwrap()
}

/// The loads and stores of a memory: mnemonic, data register, address register, offset.
fn accesses(code: &Code, memory: SpillMemory) -> Vec<(&'static str, u8, i32)> {
    let access = |inst: &Inst| {
        let (found, address) = inst.spill_address()?;
        let is_it = found == memory;
        is_it.then_some((inst.mnemonic(), address.register, address.offset))
    };
    code.insts().iter().filter_map(access).collect()
}

#[test]
fn every_spill_of_a_kernel_moves_and_keeps_its_registers() {
    let Some(ptxas) = tool("ptxas") else { return };
    let mut checked = 0;
    for arch in ["sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90"] {
        for (file, kernel, cap) in [
            ("stencil.sm_90", "stencil25", 24),
            ("wide.sm_90", "quads", 32),
        ] {
            if let Some(bytes) = capped_for(&ptxas, file, arch, cap) {
                moves_every_spill(&bytes, kernel, arch);
                checked += 1;
            }
        }
    }
    assert!(checked > 6, "{checked} kernels");
}

fn moves_every_spill(bytes: &[u8], kernel: &str, arch: &str) {
    let old = code(bytes, kernel);
    let local = accesses(&old, SpillMemory::Local);
    assert!(
        !local.is_empty(),
        "ptxas spills nothing of {kernel} for {arch}"
    );
    let mut options = options(100);
    options.force = true;
    let done = spills_to_shared(bytes, kernel, &options)
        .unwrap_or_else(|refusal| panic!("{kernel} for {arch}: {refusal}"));
    let new = code(&done.bytes, kernel);
    assert_eq!(accesses(&new, SpillMemory::Local), [], "{arch}");
    assert_eq!((done.moved, done.kept), (local.len(), 0));
    // Four warps of 32 lanes of a word each.
    let cubin = Cubin::read(&done.bytes).unwrap();
    let found = cubin.function(kernel).unwrap();
    let words = u64::from(done.shared_words);
    assert_eq!(found.shared_bytes, words * 4 * 128, "{arch}");
    assert_eq!((found.frame_bytes, found.stack_bytes), (Some(0), Some(0)));
    let shared = accesses(&new, SpillMemory::Shared);
    let at: BTreeSet<i32> = shared.iter().map(|&(_, _, at)| at).collect();
    assert!(shared.iter().all(|&(_, register, _)| register == 1));
    assert!(
        at.iter()
            .all(|at| at % 128 == 0 && *at < 128 * words as i32)
    );
    assert_eq!(at.len() as u64, words, "each word has a place of its own");
    let data = |memory, code| data_registers(code, memory);
    assert_eq!(
        data(SpillMemory::Local, &old),
        data(SpillMemory::Shared, &new),
        "{kernel} for {arch}"
    );
}

/// The registers that are loaded and stored, in the order of the code, whatever the width.
fn data_registers(code: &Code, memory: SpillMemory) -> Vec<u8> {
    let of = |inst: &Inst| {
        let is_it = inst
            .spill_address()
            .is_some_and(|(found, _)| found == memory);
        let operands = inst.operands().iter().filter(|o| o.field != Some(24));
        let registers = operands.flat_map(|o| o.registers().map(|reg| reg.index));
        registers.filter(|_| is_it).collect::<Vec<u8>>()
    };
    code.insts().iter().flat_map(of).collect()
}

#[test]
fn what_costs_blocks_stays_in_local_memory() {
    let Some(ptxas) = tool("ptxas") else { return };
    let bytes = capped(&ptxas, "bigbb.sm_90", "sm_90", 64);
    let refusal = spills_to_shared(&bytes, "bigbb", &options(128)).unwrap_err();
    assert!(matches!(refusal, Refusal::Occupancy { .. }), "{refusal}");
    let mut partial = options(128);
    partial.partial = true;
    let done = spills_to_shared(&bytes, "bigbb", &partial).unwrap();
    assert_eq!(done.blocks_before, done.blocks_after);
    assert!(
        done.moved > 0 && done.kept > 0,
        "{} and {}",
        done.moved,
        done.kept
    );
    let new = code(&done.bytes, "bigbb");
    let local = accesses(&new, SpillMemory::Local);
    assert_eq!(local.len(), done.kept);
    assert!(
        local.iter().all(|&(_, register, _)| register == 255),
        "by a uniform register"
    );
    let cubin = Cubin::read(&done.bytes).unwrap();
    let (old, new) = (
        Cubin::read(&bytes).unwrap(),
        cubin.function("bigbb").unwrap(),
    );
    assert_eq!(new.stack_bytes, old.function("bigbb").unwrap().stack_bytes);
    // Smaller blocks have room for all of it; with force fewer of the large ones run.
    let mut forced = options(128);
    forced.force = true;
    let forced = spills_to_shared(&bytes, "bigbb", &forced).unwrap();
    assert_eq!(forced.kept, 0);
    assert!(forced.blocks_after < forced.blocks_before);
    // Where an address through a uniform register has not run, it is all or nothing.
    let bytes = capped(&ptxas, "bigbb.sm_90", "sm_80", 64);
    let refusal = spills_to_shared(&bytes, "bigbb", &partial).unwrap_err();
    assert!(matches!(refusal, Refusal::TooLarge { .. }), "{refusal}");
}

#[test]
fn shared_memory_of_a_kernel_is_left_alone() {
    let Some(ptxas) = tool("ptxas") else { return };
    let bytes = capped(&ptxas, "sgemm_rb.sm_90", "sm_90", 104);
    let refusal = spills_to_shared(&bytes, "sgemm_rb8", &options(256)).unwrap_err();
    assert_eq!(refusal, Refusal::DynamicShared);
    for dynamic in [0, 100, 1024] {
        let mut options = options(256);
        options.dynamic_shared = Some(dynamic);
        let done = spills_to_shared(&bytes, "sgemm_rb8", &options).unwrap();
        let own = 16384 + u64::from(dynamic).next_multiple_of(128);
        let spills = u64::from(done.shared_words) * 8 * 128;
        assert_eq!(done.shared_before, 16384);
        assert_eq!(done.shared_after + u64::from(dynamic), own + spills);
        let code = code(&done.bytes, "sgemm_rb8");
        // LEA R0, R0, base, 2
        let is_base =
            |inst: &&Inst| inst.mnemonic() == "LEA" && inst.word() as u16 & 0xfff == 0x811;
        let base = code.insts().iter().find(is_base).unwrap();
        assert_eq!((base.word() >> 32) as u32, 0x400 + own as u32);
    }
}

#[test]
fn what_cannot_be_proved_is_refused() {
    let Some(ptxas) = tool("ptxas") else { return };
    let refusal = |file, kernel, cap, options: Options| {
        let bytes = capped(&ptxas, file, "sm_90", cap);
        spills_to_shared(&bytes, kernel, &options).unwrap_err()
    };
    let none = Options::default();
    assert_eq!(refusal("wide.sm_90", "quads", 128, none), Refusal::NoSpills);
    assert_eq!(refusal("wide.sm_90", "quads", 32, none), Refusal::NoBlock);
    let absent = refusal("wide.sm_90", "other", 32, none);
    assert_eq!(absent.to_string(), "there is no kernel other");
    let arrays = refusal("localarr.sm_90", "topk", 32, options(128));
    assert!(matches!(arrays, Refusal::Escapes { .. }), "{arrays}");
    let calls = refusal("calls.sm_90", "calls", 24, options(128));
    assert!(
        matches!(calls, Refusal::StackMoves { .. } | Refusal::Calls { .. }),
        "{calls}"
    );
}
