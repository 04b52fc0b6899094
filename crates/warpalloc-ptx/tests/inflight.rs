//! Kernels whose registers are in flight: `wgmma`, `tcgen05`, TMA and its barriers.

mod common;

use common::{assemble, ptxas};
use warpalloc::{Options, Strategy};
use warpalloc_ptx::module::{ModuleOptions, ModuleResult, Outcome, allocate_module};

const KERNELS: [(&str, &str); 3] = [
    ("wgmma", include_str!("inflight/wgmma.sm_90a.ptx")),
    ("tma", include_str!("inflight/tma.sm_90a.ptx")),
    (
        "tensor_memory",
        include_str!("inflight/tensor_memory.sm_100a.ptx"),
    ),
];

fn allocated(source: &str, strategy: Strategy, maxnreg: Option<u32>) -> ModuleResult {
    let options = ModuleOptions {
        options: Options {
            strategy,
            ..Options::default()
        },
        maxnreg,
        ..ModuleOptions::default()
    };
    allocate_module(source, &options, None).unwrap()
}

/// Every result is proved before it comes back.
#[test]
fn every_allocator_manages_registers_in_flight() {
    for (name, source) in KERNELS {
        for strategy in Strategy::ALL {
            let result = allocated(source, strategy, None);
            for function in &result.functions {
                let Outcome::Allocated(allocated) = &function.outcome else {
                    panic!("{name}, {}: {:?}", strategy.name(), function.outcome);
                };
                let own = strategy == Strategy::Naive || !allocated.stats.fell_back;
                assert!(own, "{name}, {}: fell back", strategy.name());
            }
        }
    }
}

/// Fragments are copies of values that are stored while the hardware still reads the fragments:
/// under pressure these come from memory, not from the registers in flight.
#[test]
fn nothing_reads_fragments_in_flight_that_are_copies() {
    let each = |line: &dyn Fn(u32) -> String, registers: std::ops::Range<u32>| -> String {
        registers.map(line).collect()
    };
    let load = |r: u32| format!("ld.global.b32 %r{r}, [%rd+{}];\n", 4 * r);
    let store = |r: u32| format!("st.global.b32 [%rd+{}], %r{r};\n", 4 * r);
    let copy = |r: u32| format!("mov.b32 %a{r}, %r{r};\n");
    // The copied values are worth least, so that they are the ones in memory.
    let others = each(&store, 4..16).repeat(3);
    let source = format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out)\n{{\n\
         .reg .b32 %r<16>, %a<4>, %f<4>; .reg .b64 %rd;\nld.param.u64 %rd, [out];\n\
         {}{others}ld.global.v4.b32 {{%f0, %f1, %f2, %f3}}, [%rd];\n{}wgmma.fence.sync.aligned;\n\
         wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, \
         {{%a0, %a1, %a2, %a3}}, %rd, 1, 1, 1, 0;\nwgmma.commit_group.sync.aligned;\n{}{others}\
         wgmma.wait_group.sync.aligned 0;\nst.global.v4.b32 [%rd], {{%f0, %f1, %f2, %f3}};\nret;\n}}\n",
        each(&load, 0..16),
        each(&copy, 0..4),
        each(&store, 0..4),
    );
    for strategy in Strategy::ALL {
        for maxnreg in [None, Some(20), Some(24)] {
            let text = allocated(&source, strategy, maxnreg).text;
            for stretch in in_flight(&text, "wgmma.mma_async", "wgmma.wait_group") {
                let (product, rest) = stretch.split_once(';').unwrap();
                let fragment = product.split(['{', '}']).nth(3).unwrap();
                for register in fragment.split(',').map(str::trim) {
                    let read = format!("{register};");
                    assert!(!rest.contains(&read), "{}: {text}", strategy.name());
                }
            }
        }
    }
}

/// `wmma.mma` may write over its last operand, but not where a product is to have that from.
#[test]
fn what_is_multiplied_in_place_may_also_be_a_fragment_in_flight() {
    let fragment = |from: u32, len: u32| {
        let names: Vec<String> = (from..from + len).map(|r| format!("%r{r}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    let (c, d, a, b) = (
        fragment(0, 4),
        fragment(4, 4),
        fragment(8, 8),
        fragment(16, 8),
    );
    let source = format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out)\n{{\n\
         .reg .b32 %r<24>, %f<4>; .reg .b64 %rd;\nld.param.u64 %rd, [out];\n\
         ld.global.v4.b32 {{%f0, %f1, %f2, %f3}}, [%rd];\nld.global.v4.b32 {c}, [%rd];\n\
         wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {a}, [%rd];\n\
         wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {b}, [%rd];\n\
         wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16 {d}, {a}, {b}, {c};\n\
         wgmma.fence.sync.aligned;\n\
         wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, {c}, %rd, 1, 1, 1, 0;\n\
         wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n\
         st.global.v4.b32 [%rd], {{%f0, %f1, %f2, %f3}};\nst.global.v4.b32 [%rd+16], {d};\nret;\n}}\n"
    );
    for strategy in Strategy::ALL {
        let result = allocated(&source, strategy, None);
        let outcome = &result.functions[0].outcome;
        assert!(matches!(outcome, Outcome::Allocated(_)), "{outcome:?}");
    }
}

/// The text between where registers are handed over and where they are waited for.
fn in_flight<'t>(text: &'t str, start: &str, wait: &str) -> Vec<&'t str> {
    let starts = text.match_indices(start).map(|(at, _)| &text[at..]);
    let stretches = starts.filter_map(|rest| rest.split(wait).next());
    stretches.collect()
}

/// The products of a kernel that waits for everything: nothing between one and its wait names
/// an accumulator, not even to make another name of it.
#[test]
fn nothing_touches_accumulators_in_flight() {
    let (_, source) = KERNELS[0];
    for strategy in Strategy::ALL {
        for maxnreg in [None, Some(64)] {
            let text = allocated(source, strategy, maxnreg).text;
            let kernel = text.split("wgmma_registers").nth(1).unwrap();
            for stretch in in_flight(kernel, "wgmma.mma_async", "wgmma.wait_group") {
                let (product, rest) = stretch.split_once(';').unwrap();
                assert!(product.contains("%R") || product.contains("%A"));
                assert!(!rest.contains('%'), "{}: {rest}", strategy.name());
            }
        }
    }
}

/// Copies into accumulators or out of them would serialise products, which ptxas tells.
#[test]
fn ptxas_has_nothing_to_add_about_allocated_products_or_is_skipped() {
    let Some(ptxas) = ptxas() else { return };
    let remarks = |said: &str| said.matches("(C7").count();
    for (name, source) in KERNELS {
        let before = remarks(&assemble(&ptxas, name, source));
        for strategy in Strategy::ALL {
            for maxnreg in [None, Some(64)].into_iter() {
                if strategy == Strategy::Naive && maxnreg.is_some() {
                    continue;
                }
                let tag = format!("{name}-{}-{maxnreg:?}", strategy.name());
                let text = allocated(source, strategy, maxnreg).text;
                let said = assemble(&ptxas, &tag, &text);
                assert!(remarks(&said) <= before, "{tag}: {said}");
            }
        }
    }
}
