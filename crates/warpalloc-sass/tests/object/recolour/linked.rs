//! Kernels that call functions of other sections, linked by nvlink.

use super::reaching::assert_same;
use crate::tools::{Folder, output, tool};
use std::path::{Path, PathBuf};
use std::process::Command;
use warpalloc::Strategy;
use warpalloc::generate::Rng;
use warpalloc_fuzz::damage;
use warpalloc_sass::allocate::{AllocateOptions, allocate_kernel};
use warpalloc_sass::object::Cubin;
use warpalloc_sass::recolour::{Goal, Outcome, RecolourOptions, recolour_cubin};
use warpalloc_sass::{Cfg, Code, hazard};

const HEADER: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

/// A function with a division, which calls a third one, and one that calls itself.
const FUNCTIONS: &str = "
.visible .func (.param .b32 r) ratio(.param .b32 a, .param .b32 b) {
    .reg .f32 %f<4>;
    ld.param.f32 %f1, [a];
    ld.param.f32 %f2, [b];
    div.rn.f32 %f3, %f1, %f2;
    st.param.f32 [r], %f3;
    ret;
}
.visible .func (.param .b32 r) depth(.param .b32 n) {
    .reg .b32 %r<6>;
    .reg .pred %p;
    ld.param.u32 %r1, [n];
    setp.eq.u32 %p, %r1, 0;
    mov.u32 %r4, 7;
    @%p bra DONE;
    sub.u32 %r2, %r1, 1;
    { .param .b32 p; .param .b32 q;
      st.param.b32 [p], %r2;
      call (q), depth, (p);
      ld.param.b32 %r3, [q]; }
    mad.lo.u32 %r4, %r3, 3, %r1;
DONE:
    st.param.b32 [r], %r4;
    ret;
}";

const DECLARED: &str = "
.extern .func (.param .b32 r) ratio(.param .b32 a, .param .b32 b);
.extern .func (.param .b32 r) depth(.param .b32 n);
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);";

/// Sixteen values live across both calls, which is more than the functions take; `print` calls
/// what no cubin has, `pointer` by an address, `address` calls nothing and takes that of a function.
fn kernels() -> String {
    let loads: String = (0..16)
        .map(|i| format!("ld.global.f32 %f{i}, [%d0+{}];\n", 4 * i))
        .collect();
    let stores: String = (0..16)
        .map(|i| {
            format!(
                "fma.rn.f32 %f{i}, %f{i}, %f20, %f21;\nst.global.f32 [%d0+{}], %f{i};\n",
                4 * i
            )
        })
        .collect();
    format!(
        "
.visible .entry wide(.param .u64 x, .param .u32 n) {{
    .reg .b64 %d<4>; .reg .f32 %f<24>; .reg .b32 %r<4>;
    ld.param.u64 %d1, [x];
    cvta.to.global.u64 %d1, %d1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d2, %r1, 64;
    add.u64 %d0, %d1, %d2;
    {loads}
    {{ .param .b32 p; .param .b32 q; .param .b32 o;
      st.param.f32 [p], %f0; st.param.f32 [q], %f1;
      call (o), ratio, (p, q);
      ld.param.f32 %f20, [o]; }}
    ld.param.u32 %r2, [n];
    {{ .param .b32 p; .param .b32 o;
      st.param.b32 [p], %r2;
      call (o), depth, (p);
      ld.param.b32 %r3, [o]; }}
    cvt.rn.f32.u32 %f21, %r3;
    {stores}
    ret;
}}
.visible .entry print(.param .u64 x) {{
    .reg .b64 %d<2>; .reg .b32 %r<2>;
    ld.param.u64 %d1, [x];
    {{ .param .b64 p; .param .b64 q; .param .b32 o;
      st.param.b64 [p], %d1; st.param.b64 [q], %d1;
      call (o), vprintf, (p, q);
      ld.param.b32 %r1, [o]; }}
    st.global.u32 [%d1], %r1;
    ret;
}}
.visible .entry address(.param .u64 x) {{
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [x];
    mov.u64 %d2, depth;
    st.global.u64 [%d1], %d2;
    ret;
}}
.visible .entry pointer(.param .u64 x) {{
    .reg .b64 %d<3>; .reg .b32 %r<2>;
    ld.param.u64 %d1, [x];
    ld.global.u64 %d2, [%d1];
    {{ .param .b32 p; .param .b32 o;
      st.param.b32 [p], 3;
      prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
      call (o), %d2, (p), prototype;
      ld.param.b32 %r1, [o]; }}
    st.global.u32 [%d1], %r1;
    ret;
}}"
    )
}

fn object(ptxas: &Path, folder: &Folder, name: &str, text: &str) -> PathBuf {
    let ptx = folder.write(&format!("{name}.ptx"), [HEADER, text].concat());
    let cubin = folder.path(&format!("{name}.cubin"));
    let mut command = Command::new(ptxas);
    command.args(["-c", "-arch", "sm_90", "-o"]);
    output(command.arg(&cubin).arg(&ptx));
    cubin
}

/// The cubin of all of it, linked, and one yet to be linked.
fn cubins() -> Option<(Vec<u8>, Vec<u8>)> {
    let (ptxas, nvlink) = (tool("ptxas")?, tool("nvlink")?);
    let folder = Folder::new();
    let kernels = kernels();
    let functions = object(&ptxas, &folder, "functions", FUNCTIONS);
    let callers = object(&ptxas, &folder, "kernels", &[DECLARED, &kernels].concat());
    let printing = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);";
    let all = [FUNCTIONS, printing, &kernels].concat();
    let unlinked = object(&ptxas, &folder, "all", &all);
    let linked = folder.path("linked.cubin");
    let mut command = Command::new(nvlink);
    command.args(["-arch", "sm_90", "-o"]).arg(&linked);
    output(command.args([functions, callers]));
    let read = |path: PathBuf| std::fs::read(path).unwrap();
    Some((read(linked), read(unlinked)))
}

fn outcome<'a>(outcomes: &'a [Outcome], name: &str) -> &'a Outcome {
    outcomes.iter().find(|o| o.name == name).unwrap()
}

fn options(strategy: Strategy, random: Option<u64>) -> RecolourOptions {
    let mut options = RecolourOptions::default();
    options.strategy = strategy;
    options.goal = Goal::Fewest;
    options.random = random;
    options
}

#[test]
fn a_kernel_that_calls_other_sections_is_recoloured_and_they_are_not_or_is_skipped() {
    let Some((linked, _)) = cubins() else { return };
    let old = Cubin::read(&linked).unwrap();
    let kernel = old.function("wide").unwrap();
    let before = old.linked(kernel).unwrap();
    let names: Vec<&str> = before
        .called
        .iter()
        .map(|(_, name)| name.as_str())
        .collect();
    assert_eq!(names[..2], ["ratio", "depth"]);
    assert_eq!(names.len(), 3, "and what divides for `ratio`: {names:?}");
    let cfg = Cfg::build(&before.code, &before.links).unwrap();
    let strategies = [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan];
    let chosen = strategies.map(|strategy| options(strategy, None));
    let random = (1..=20).map(|seed| options(Strategy::Briggs, Some(seed)));
    for options in chosen.into_iter().chain(random) {
        let (written, outcomes) = recolour_cubin(&linked, &options, |_| true).unwrap();
        let result = &outcome(&outcomes, "wide").result;
        let done = result.as_ref().unwrap_or_else(|error| panic!("{error}"));
        let new = Cubin::read(&written).unwrap();
        for (old, new) in old.functions.iter().zip(&new.functions) {
            assert_eq!(old.code == new.code, old.name != "wide", "{}", old.name);
        }
        let after = new.linked(new.function("wide").unwrap()).unwrap();
        assert_eq!(hazard::check(&after.code, &cfg), []);
        assert_same("wide", &before.code, &after.code, &cfg);
        assert!(done.moved > 0);
        assert_eq!(
            new.function("wide").unwrap().registers,
            Some(done.registers_after)
        );
        assert!(done.registers_after >= before.called_registers);
        if options.random.is_none() {
            assert!(done.registers_after < done.registers_before);
        }
    }
}

#[test]
fn a_cap_is_met_without_spill_code_and_not_below_what_is_called_or_is_skipped() {
    let Some((linked, _)) = cubins() else {
        return;
    };
    let cubin = Cubin::read(&linked).unwrap();
    let kernel = cubin.function("wide").unwrap();
    let count = kernel.registers.unwrap();
    let called = cubin.linked(kernel).unwrap().called_registers;
    assert!(called + 1 < count, "{called} {count}");
    let within = |cap: u32| allocate_kernel(&linked, "wide", &AllocateOptions::new(cap));
    let done = within(count - 1).unwrap();
    assert_eq!(done.instructions_before, done.instructions_after);
    assert!(done.registers_after < count && done.bytes.is_some());
    let error = within(called - 1).unwrap_err().to_string();
    assert!(error.contains("it calls code that is not here"), "{error}");
}

#[test]
fn the_count_stays_what_called_functions_state_or_is_skipped() {
    let Some((mut linked, _)) = cubins() else {
        return;
    };
    // `depth` states as many as the kernel: a number that is in no instruction.
    let stated = |bytes: &[u8], name: &str| {
        Cubin::read(bytes)
            .unwrap()
            .function(name)
            .unwrap()
            .registers
    };
    let (symbol, count) = {
        let cubin = Cubin::read(&linked).unwrap();
        let kernel = cubin.function("wide").unwrap();
        (
            cubin.function("depth").unwrap().symbol as u32,
            kernel.registers.unwrap(),
        )
    };
    // EIATTR_REGCOUNT: format, kind, size, symbol, count.
    let row = [&[0x04, 0x2f, 0x08, 0x00][..], &symbol.to_le_bytes()].concat();
    let at = linked.windows(8).position(|bytes| bytes == row).unwrap();
    for (more, is_refused) in [(0, false), (1, true)] {
        linked[at + 8] = (count + more) as u8;
        assert_eq!(stated(&linked, "depth"), Some(count + more));
        let (written, outcomes) =
            recolour_cubin(&linked, &options(Strategy::Briggs, None), |_| true).unwrap();
        let result = &outcome(&outcomes, "wide").result;
        assert_eq!(result.is_err(), is_refused);
        assert_eq!(stated(&written, "wide"), Some(count));
    }
}

#[test]
fn a_function_whose_address_is_taken_is_not_called_or_is_skipped() {
    let Some((linked, _)) = cubins() else {
        return;
    };
    let cubin = Cubin::read(&linked).unwrap();
    let kernel = cubin.function("address").unwrap();
    assert_eq!(cubin.linked(kernel).unwrap().called, []);
    let options = options(Strategy::Briggs, None);
    let (_, outcomes) = recolour_cubin(&linked, &options, |_| true).unwrap();
    assert!(outcome(&outcomes, "address").result.is_ok());
}

#[test]
fn damaged_linked_cubins_never_panic_or_is_skipped() {
    let Some((linked, _)) = cubins() else {
        return;
    };
    let mut rng = Rng::new(5);
    for _ in 0..2_000 {
        let mut bytes = linked.clone();
        damage::bytes(&mut bytes, &mut rng);
        // Whatever comes of it, it is no panic.
        let _ = recolour_cubin(&bytes, &options(Strategy::Briggs, None), |_| true);
    }
}

#[test]
fn a_call_goes_where_symbol_and_addend_say_or_is_skipped() {
    let Some((mut linked, _)) = cubins() else {
        return;
    };
    let target = |bytes: &[u8]| {
        let cubin = Cubin::read(bytes).unwrap();
        let ratio = cubin.function("ratio").unwrap().symbol as u32;
        let kernel = cubin.function("wide").unwrap();
        let mut calls = kernel.relocations.iter();
        let call = *calls.find(|at| at.symbol == ratio).unwrap();
        let all = cubin.linked(kernel).unwrap();
        let called = all.links.calls[&(call.offset as usize)].unwrap();
        (call, called - all.called[0].0)
    };
    let (call, behind) = target(&linked);
    assert_eq!(behind, 0);
    // Elf64_Rela: offset, kind, symbol, addend.
    let (kind, symbol) = (call.kind.to_le_bytes(), call.symbol.to_le_bytes());
    let row = [&call.offset.to_le_bytes()[..], &kind, &symbol].concat();
    let at = linked.windows(16).position(|bytes| bytes == row).unwrap();
    linked[at + 16] = 32;
    assert_eq!(target(&linked).1, 32);
}

/// Why a kernel of a cubin is refused.
fn refusal(cubin: &[u8], kernel: &str) -> String {
    let (written, outcomes) = recolour_cubin(cubin, &options(Strategy::Briggs, None), |f| {
        f.name == kernel
    })
    .unwrap();
    assert_eq!(written, cubin);
    outcome(&outcomes, kernel)
        .result
        .as_ref()
        .unwrap_err()
        .to_string()
}

#[test]
fn calls_of_what_is_not_known_are_refused_by_name_or_is_skipped() {
    let Some((linked, unlinked)) = cubins() else {
        return;
    };
    for (cubin, kernel) in [
        (&linked, "print"),
        (&linked, "pointer"),
        (&unlinked, "wide"),
    ] {
        let said = refusal(cubin, kernel);
        assert!(
            said.contains("it calls code that is not here"),
            "{kernel}: {said}"
        );
    }
    // What is yet to be linked may get another `ratio`.
    let cubin = Cubin::read(&unlinked).unwrap();
    let kernel = cubin.function("wide").unwrap();
    let code = Code::decode(kernel.code, 90).unwrap();
    assert_eq!(cubin.linked(kernel).unwrap().code, code);
}
