use crate::interpret::interpret;
use crate::language::parse;
use crate::samples::{self, SAMPLES};
use std::process::{Command, Stdio};
use warpalloc::Strategy;

#[test]
fn programs_mean_what_they_say() {
    let result = |sample: usize, i| {
        let program = parse(SAMPLES[sample].1).unwrap();
        interpret(&program, "main", &[i])
    };
    assert_eq!(result(0, 10), 55);
    assert_eq!(result(1, 26), 111, "27 takes 111 steps");
    assert_eq!(result(2, 4), 11, "the fifth prime");
}

#[test]
fn mistakes_are_named() {
    let error = parse("fn f(a) { a = ; }").unwrap_err();
    assert_eq!(error, "token 9: `;` is no name");
}

/// Every sample, by every strategy, in few registers and in many.
#[test]
fn ptxas_assembles_what_it_compiles() {
    let Some(ptxas) = std::env::var_os("WARPALLOC_PTXAS") else {
        assert!(
            std::env::var_os("WARPALLOC_REQUIRE_PTXAS").is_none(),
            "WARPALLOC_PTXAS names no ptxas"
        );
        eprintln!("skipped: WARPALLOC_PTXAS names no ptxas");
        return;
    };
    let folder = std::env::temp_dir().join(format!("toy_compiler.{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    samples::write(&folder).unwrap();
    let mut assembled = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "ptx") {
            let mut command = Command::new(&ptxas);
            command.args(["-arch=sm_90", "-O1", "-o"]);
            let output = command.arg(path.with_extension("cubin")).arg(&path);
            let output = output.stdin(Stdio::null()).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {message}", path.display());
            assembled += 1;
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(assembled, SAMPLES.len() * Strategy::ALL.len() * 3);
}
