//! The real assembler's word on what comes out.
//!
//! ptxas is taken from `WARPALLOC_PTXAS` or the path. Without it these tests say that they
//! were skipped, unless `WARPALLOC_REQUIRE_PTXAS` is 1: then they fail.

mod common;

use common::{assemble, ptxas};
use std::path::{Path, PathBuf};
use warpalloc::{Options, Strategy};
use warpalloc_ptx::module::{ModuleOptions, Outcome, SpillSpace, allocate_module};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/ptx");

fn corpus() -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(CORPUS)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

/// Functions of many thousand instructions without a branch, which take ptxas long.
fn is_huge(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.contains("fft16") || name.contains("sha256")
}

fn accepted(tag: &str, options: &ModuleOptions, wanted: impl Fn(&Path) -> bool) {
    let Some(ptxas) = ptxas() else { return };
    let mut allocated = 0;
    for path in corpus().iter().filter(|path| wanted(path)) {
        let source = std::fs::read_to_string(path).unwrap();
        let result = allocate_module(&source, options, None).unwrap();
        let is_allocated = |o: &Outcome| matches!(o, Outcome::Allocated(_));
        allocated += result
            .functions
            .iter()
            .filter(|f| is_allocated(&f.outcome))
            .count();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        assemble(&ptxas, &format!("{stem}-{tag}"), &result.text);
    }
    assert!(allocated > 0);
}

fn options(strategy: Strategy, maxnreg: Option<u32>) -> ModuleOptions {
    ModuleOptions {
        options: Options {
            strategy,
            ..Options::default()
        },
        maxnreg,
        ..ModuleOptions::default()
    }
}

#[test]
fn ptxas_accepts_naive_allocations_or_is_skipped() {
    accepted("naive", &options(Strategy::Naive, None), |path| {
        !is_huge(path)
    });
}

#[test]
fn ptxas_accepts_the_default_allocator_without_a_cap_or_is_skipped() {
    accepted("free", &ModuleOptions::default(), |path| !is_huge(path));
}

#[test]
fn ptxas_accepts_every_allocator_at_a_cap_or_is_skipped() {
    for strategy in Strategy::ALL.into_iter().filter(|&s| s != Strategy::Naive) {
        let tag = format!("{}-32", strategy.name());
        accepted(&tag, &options(strategy, Some(32)), |path| !is_huge(path));
    }
}

#[test]
fn ptxas_accepts_spills_to_shared_memory_or_is_skipped() {
    let options = ModuleOptions {
        spill_space: SpillSpace::Auto,
        ..options(Strategy::Naive, Some(32))
    };
    accepted("shared", &options, |path| !is_huge(path));
}

#[test]
fn ptxas_accepts_hoisted_invariants_or_is_skipped() {
    for maxnreg in [None, Some(40)] {
        let mut options = options(Strategy::Fatpoint, maxnreg);
        let set = options.options.set("HoistInvariantsPolicy", "always");
        set.unwrap();
        accepted("hoisted", &options, |path| {
            // Those with something to hoist.
            let name = path.to_string_lossy();
            ["async", "nbody", "sgemm", "switchboard", "warpops", "wide"]
                .iter()
                .any(|kernel| name.contains(kernel))
        });
    }
}

/// Every kind of access that promotion rewrites, with labels where addresses go.
const PROMOTABLE: &str = ".version 8.0\n.target sm_90\n.address_size 64\n\
.visible .entry k(.param .u64 out) {
	.local .align 16 .b8 depot[64];
	.reg .pred %p<3>;
	.reg .b16 %rs<3>;
	.reg .b32 %r<6>;
	.reg .f32 %f<5>;
	.reg .f64 %fd<2>;
	.reg .b64 %rd<8>, %SP, %SPL;
	mov.u64 %SPL, depot;
	cvta.local.u64 %SP, %SPL;
	ld.param.u64 %rd1, [out];
	cvta.to.global.u64 %rd2, %rd1;
	mov.u32 %r1, %tid.x;
	cvt.rn.f32.u32 %f1, %r1;
	setp.lt.u32 %p1, %r1, 7;
	st.local.v4.f32 [%SPL], {%f1, 0f3F800000, %f1, 0f40000000};
	st.f64 [%SP+16], 0d3FF0000000000000;
	st.local.u8 [depot+24], -1;
	st.local.u16 [depot+26], %r1;
	st.local.u64 [depot+32], 0;
	{
		add.u64 %rd3, %SPL, 40;
		st.local.u32 [%rd3], %rd1;
	again:
		add.u64 %rd4, %SP, 8;
	}
	@%p1 ld.local.v2.b32 {%f2, _}, [depot];
	@!%p1 ld.f32 %f2, [%rd4];
	ld.local.s8 %rs1, [depot+24];
	ld.local.s8 %r2, [depot+24];
	ld.local.u16 %rs2, [depot+26];
	ld.local.u16 %rd5, [depot+26];
	ld.local.s32 %rd6, [%rd3];
	ld.local.u64 %rd7, [depot+32];
	ld.f64 %fd1, [%SP+16];
	st.global.f32 [%rd2], %f2;
	st.global.u16 [%rd2+4], %rs1;
	st.global.u16 [%rd2+6], %rs2;
	st.global.u32 [%rd2+8], %r2;
	st.global.u64 [%rd2+16], %rd5;
	st.global.u64 [%rd2+24], %rd6;
	st.global.u64 [%rd2+32], %rd7;
	st.global.f64 [%rd2+40], %fd1;
	ret;
}
";

#[test]
fn promoted_variables_are_accepted() {
    let promoted = warpalloc_ptx::promote::promote(PROMOTABLE).unwrap();
    assert_eq!(promoted.refused, []);
    assert_eq!(promoted.variables[0].accesses, 15);
    assert!(!promoted.text.contains("depot"));
    let options = ModuleOptions {
        promote_local: true,
        ..ModuleOptions::default()
    };
    let result = allocate_module(PROMOTABLE, &options, None).unwrap();
    assert!(matches!(result.functions[0].outcome, Outcome::Allocated(_)));
    assert!(!result.text.contains("depot"));
    let Some(ptxas) = ptxas() else { return };
    assemble(&ptxas, "promotable", PROMOTABLE);
    assemble(&ptxas, "promoted", &promoted.text);
    assemble(&ptxas, "promoted-allocated", &result.text);
}

/// Forty values live at once in a function that a kernel of another cap calls.
fn crowded_callee(version: &str) -> String {
    let lines = |format: fn(u32) -> String| (0..40).map(format).collect::<String>();
    let loads = lines(|i| format!("ld.global.u32 %r{i}, [%rd1+{}];\n", 4 * i));
    let sums = lines(|i| format!("mad.lo.u32 %s, %r{i}, %r{}, %s;\n", (7 * i + 3) % 40));
    format!(
        ".version {version}\n.target sm_90\n.address_size 64\n\
         .visible .func (.param .b32 out) heavy(.param .b64 in)\n{{\n.reg .b32 %r<40>, %s;\n\
         .reg .b64 %rd<2>;\nld.param.u64 %rd1, [in];\n{loads}mov.u32 %s, 0;\n{sums}\
         st.param.b32 [out], %s;\nret;\n}}\n\
         .visible .entry k(.param .u64 p)\n{{\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n\
         ld.param.u64 %rd1, [p];\n{{\n.param .b64 a;\n.param .b32 b;\nst.param.b64 [a], %rd1;\n\
         call.uni (b), heavy, (a);\nld.param.b32 %r1, [b];\n}}\nst.global.u32 [%rd1], %r1;\nret;\n}}\n"
    )
}

/// `ptxas -c` compiles device functions for any caller unless they have a cap of their own, and
/// then refuses the entry whose cap is lower.
#[test]
fn ptxas_takes_capped_modules_for_separate_compilation_or_is_skipped() {
    let Some(ptxas) = ptxas() else { return };
    let folder = std::env::temp_dir().join(format!("warpalloc-separate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let run = |text: &str| {
        let input = folder.join("k.ptx");
        std::fs::write(&input, text).unwrap();
        let mut command = std::process::Command::new(&ptxas);
        command.args(["-c", "-arch", "sm_90", "-o"]);
        command
            .arg(folder.join("k.o"))
            .arg(&input)
            .output()
            .unwrap()
    };
    for version in ["8.0", "9.0"] {
        let source = crowded_callee(version);
        let mut options = options(Strategy::Briggs, Some(32));
        let capped = allocate_module(&source, &options, None).unwrap().text;
        let taken = run(&capped);
        let said = String::from_utf8_lossy(&taken.stderr).into_owned();
        assert!(taken.status.success(), "{version}: {said}");
        options.relocatable = Some(false);
        let uncapped = allocate_module(&source, &options, None).unwrap().text;
        assert!(!run(&uncapped).status.success(), "nothing to mend");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
