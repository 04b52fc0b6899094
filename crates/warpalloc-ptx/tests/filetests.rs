//! Small modules of PTX with the PTX that is expected of them.
//!
//! `tests/filetests/NAME.ptx` begins with a line `// run: SETTINGS`: options and knobs by their
//! names, `maxnreg=24`, `sm=90`, `preset=cicc`, `occupancy-target=50`, `promote-local=true`, and
//! `spill=local`, `shared` or `auto`. `NAME.out.ptx` is what comes out of it, and a comment for
//! each function that says what became of it.
//!
//! `WARPALLOC_UPDATE=1 cargo test -p warpalloc-ptx --test filetests` writes what comes out into
//! the files; the difference is for a person to read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};
use warpalloc_ptx::module::{FunctionReport, ModuleOptions, Outcome, SpillSpace, allocate_module};

/// What stands before the settings.
const RUN: &str = "// run:";
/// How the names of expected files end.
const OUT: &str = ".out.ptx";

fn options(settings: &str) -> ModuleOptions {
    let mut module = ModuleOptions::default();
    for setting in settings.split_whitespace() {
        let (name, value) = setting.split_once('=').expect("NAME=VALUE");
        let number = || Some(value.parse().expect("a number"));
        match name {
            "maxnreg" => module.maxnreg = number(),
            "sm" => module.sm = number(),
            "occupancy-target" => module.occupancy_target = number(),
            "preset" => module.preset = Some(value.to_owned()),
            "promote-local" => module.promote_local = value == "true",
            "spill" => {
                module.spill_space = match value {
                    "local" => SpillSpace::Local,
                    "shared" => SpillSpace::Shared,
                    "shared-only" => SpillSpace::SharedOnly,
                    "auto" => SpillSpace::Auto,
                    _ => panic!("spill takes local, shared, shared-only or auto, not {value}"),
                }
            }
            _ => module.options.set(name, value).unwrap(),
        }
    }
    module
}

/// What became of a function, in one line.
fn report(report: &FunctionReport) -> String {
    let name = &report.name;
    let mut line = match &report.outcome {
        Outcome::Allocated(a) => {
            let (local, shared) = (a.frame.local, a.frame.shared);
            let (registers, predicates) = (a.registers, a.predicates);
            format!(
                "{name}: {registers} registers, {predicates} predicates, {} spilled, {} \
                 rematerialised, {local} bytes local, {shared} bytes shared",
                a.stats.spilled, a.stats.rematerialised
            )
        }
        Outcome::PassedThrough(passed) => format!("{name}: passed through: {}", passed.reason),
        Outcome::Refused(why) => format!("{name}: refused: {why}"),
        Outcome::Kept(why) => format!("{name}: left as it is: {why}"),
        Outcome::Skipped => format!("{name}: skipped"),
    };
    for warning in &report.warnings {
        let _ = write!(line, "; {warning}");
    }
    line
}

fn outcome(source: &str) -> String {
    let settings = source.lines().next().and_then(|l| l.strip_prefix(RUN));
    let settings = settings.unwrap_or_else(|| panic!("the first line is no `{RUN}`"));
    match allocate_module(source, &options(settings), None) {
        Err(error) => format!("// {error}\n"),
        Ok(result) => {
            warpalloc_ptx::parse(&result.text).expect("what comes out is PTX");
            let reports = result.functions.iter().map(report);
            reports.fold(result.text, |text, line| format!("{text}// {line}\n"))
        }
    }
}

fn inputs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let entries = fs::read_dir(&folder).expect("the folder of file tests");
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_input = |path: &PathBuf| !path.to_string_lossy().ends_with(OUT);
    let mut inputs: Vec<PathBuf> = paths.filter(is_input).collect();
    inputs.sort();
    inputs
}

#[test]
fn modules_come_out_as_their_files_say() {
    let update = env::var_os("WARPALLOC_UPDATE").is_some();
    let mut failures = Vec::new();
    for input in inputs() {
        let now = outcome(&fs::read_to_string(&input).unwrap());
        let path = input.with_extension("out.ptx");
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if now == expected {
            continue;
        }
        if update {
            fs::write(&path, now).unwrap();
            continue;
        }
        let mut lines = expected.lines().zip(now.lines()).enumerate();
        let at = lines.find(|(_, (expected, now))| expected != now);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        failures.push(match at {
            Some((line, (expected, now))) => {
                format!("{name}:{}\n  file: {expected}\n  now:  {now}", line + 1)
            }
            None => format!("{name}: one is longer than the other"),
        });
    }
    assert!(
        failures.is_empty(),
        "{} files; WARPALLOC_UPDATE=1 rewrites them\n{}",
        failures.len(),
        failures.join("\n")
    );
}
