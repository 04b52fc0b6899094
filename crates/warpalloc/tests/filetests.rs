//! Small functions with the allocation that is expected of them.
//!
//! A file of `tests/filetests` begins with lines `; run: SETTINGS`. Settings are options and
//! knobs by their names, `R=8` and the like for budgets, `preset=NAME` and `sm=NUMBER` for the
//! target (`hardware` and 90 unless said otherwise; `amd` is the machine of the examples, with a
//! budget `v=8`). A comment states the rule, and one
//! function in the text format follows. Below, each run has a line `---- SETTINGS` and what
//! comes out of it: a line of statistics and the allocated function, or the error.
//!
//! `WARPALLOC_UPDATE=1 cargo test -p warpalloc --test filetests` writes what comes out into
//! the files; the difference is for a person to read.

#[path = "../examples/targets/amd.rs"]
mod amd;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};
use warpalloc::text::{Allocated, Case};
use warpalloc::{Allocation, allocate, text};

/// What stands before the settings of a run.
const RUN: &str = "; run:";
/// What stands before each expectation.
const SECTION: &str = "----";

/// One run of the function in a file.
fn case(input: &str, settings: &str) -> Result<Case, String> {
    let (mut preset, mut sm) = ("hardware", "90");
    let (mut budgets, mut options) = (String::new(), String::new());
    for setting in settings.split_whitespace() {
        match setting.split_once('=') {
            Some(("preset", name)) => preset = name,
            Some(("sm", number)) => sm = number,
            Some(("R" | "P" | "UR" | "UP" | "v", _)) => budgets += &format!(" {setting}"),
            _ => options += &format!(" {setting}"),
        }
    }
    let target = match preset {
        "amd" => preset.to_owned(),
        _ => format!("{preset} sm_{sm}"),
    };
    let head = format!("target {target}{budgets}\noptions{options}\n");
    let machines = amd::target(256).map_err(|error| error.to_string())?;
    let case = text::parse_for(&format!("{head}{input}"), &[machines]);
    case.map_err(|error| error.to_string())
}

/// What happened, in one line.
fn summary(case: &Case, allocation: &Allocation) -> String {
    let stats = &allocation.stats;
    let mut line = format!(
        "; {} merges, {} of {} copies coalesced, {} spilled, {} rematerialised, {} hoisted",
        stats.merges,
        stats.coalesced,
        stats.copies,
        stats.spilled,
        stats.rematerialised,
        stats.hoisted
    );
    let touched = allocation.touched(&case.function, &case.target);
    for (file, info) in case.target.files() {
        let units = 0..info.units;
        let highest = units.rev().find(|&unit| {
            let reg = warpalloc::target::PReg::new(file, unit);
            touched.contains(case.target.unit(reg))
        });
        if let Some(highest) = highest {
            let count = highest / info.units_per_reg + 1;
            let _ = write!(line, ", {}={count}", info.name);
        }
    }
    if stats.undone > 0 {
        let _ = write!(line, ", {} merges undone", stats.undone);
    }
    if stats.fell_back {
        line += ", fell back";
    }
    line
}

/// What comes out of one run.
fn outcome(input: &str, settings: &str) -> String {
    let case = match case(input, settings) {
        Ok(case) => case,
        Err(error) => return format!("{error}\n"),
    };
    match allocate(&case.function, &case.target, &case.options) {
        Err(error) => format!("{error}\n"),
        Ok(allocation) => {
            let shown = Allocated {
                function: &case.function,
                target: &case.target,
                allocation: &allocation,
            };
            format!("{}\n{shown}", summary(&case, &allocation))
        }
    }
}

/// The file as it should be: its own input, and what comes out of it.
fn expected(content: &str) -> String {
    let end = content.find(&format!("\n{SECTION} "));
    let input = &content[..end.map_or(content.len(), |at| at + 1)];
    let runs = input.lines().filter_map(|line| line.strip_prefix(RUN));
    let mut whole = input.trim_end().to_owned() + "\n";
    for settings in runs.map(str::trim) {
        let outcome = outcome(input, settings);
        let lines: Vec<&str> = outcome.lines().map(str::trim_end).collect();
        let _ = write!(whole, "\n{SECTION} {settings}\n{}\n", lines.join("\n"));
    }
    whole
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let entries = fs::read_dir(&folder).expect("the folder of file tests");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The first line in which two texts differ.
fn first_difference(is: &str, should: &str) -> String {
    let ends = [None, None];
    let pairs = is.lines().map(Some).chain(ends);
    let mut pairs = pairs.zip(should.lines().map(Some).chain(ends)).enumerate();
    match pairs.find(|(_, (is, should))| is != should) {
        Some((line, (is, should))) => {
            let [is, should] = [is, should].map(|text| text.unwrap_or("(the end)"));
            format!("line {}\n  file: {is}\n  now:  {should}", line + 1)
        }
        None => "white space".to_owned(),
    }
}

#[test]
fn functions_are_allocated_as_their_files_say() {
    let update = env::var_os("WARPALLOC_UPDATE").is_some();
    let mut failures = Vec::new();
    for path in files() {
        let content = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(content.starts_with(RUN), "{name} starts with no `{RUN}`");
        let expected = expected(&content);
        if expected == content {
            continue;
        }
        match update {
            true => fs::write(&path, expected).unwrap(),
            false => failures.push(format!("{name}, {}", first_difference(&content, &expected))),
        }
    }
    assert!(
        failures.is_empty(),
        "{} files; WARPALLOC_UPDATE=1 rewrites them\n{}",
        failures.len(),
        failures.join("\n")
    );
}
