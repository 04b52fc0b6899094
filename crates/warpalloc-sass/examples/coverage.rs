//! How much of given cubins the decoder reads, and how it differs from nvdisasm.
//!
//! ```text
//! cargo run --release -p warpalloc-sass --example coverage -- [--every N] [--hazards] [--measure] FOLDER...
//! ```
//!
//! Reads every `.cubin` under the folders. With `WARPALLOC_NVDISASM` set, mnemonics, registers
//! read and written, and live registers are compared with it for each `N`th cubin (all by
//! default). Prints one table per SM, the forms refused and an example of each difference.
//! `--hazards` runs the hazard checker on every kernel whose control flow the cubin tells.
//! `--measure` prints the least cycles seen between a producer of fixed latency
//! and its readers, as rows of the latency table.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Cubin, Report, compare, list};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use warpalloc_sass::hazard::{Latencies, check, distances};
use warpalloc_sass::{Cfg, Code, Links, object};

fn cubins(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            cubins(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "cubin")
        {
            found.push(path);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut every = 1;
    let (mut hazards, mut measure) = (false, false);
    let mut paths = Vec::new();
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--hazards" {
            hazards = true;
        } else if argument == "--measure" {
            measure = true;
        } else if argument == "--every" {
            let number = arguments.next().ok_or("--every needs a number")?;
            every = number.to_string_lossy().parse()?;
        } else {
            cubins(Path::new(&argument), &mut paths)?;
        }
    }
    paths.sort();
    let nvdisasm = std::env::var_os("WARPALLOC_NVDISASM").map(PathBuf::from);
    let mut reports: BTreeMap<u32, Report> = BTreeMap::new();
    let mut schedules: BTreeMap<u32, Schedules> = BTreeMap::new();
    let mut reading = std::time::Duration::ZERO;
    let mut bytes_read = 0;
    let scratch =
        std::env::temp_dir().join(format!("warpalloc-coverage-{}.cubin", std::process::id()));
    for (number, path) in paths.iter().enumerate() {
        let bytes = std::fs::read(path)?;
        let Ok(cubin) = Cubin::read(&bytes) else {
            eprintln!("{}: not a cubin", path.display());
            continue;
        };
        let report = reports.entry(cubin.sm).or_default();
        let start = Instant::now();
        let codes: BTreeMap<_, _> = cubin
            .sections
            .iter()
            .filter_map(|section| Some((section.name.as_str(), report.decode(section, cubin.sm)?)))
            .collect();
        reading += start.elapsed();
        bytes_read += cubin
            .sections
            .iter()
            .map(|section| section.code.len())
            .sum::<usize>();
        if hazards || measure {
            let schedules = schedules.entry(cubin.sm).or_default();
            let whole = object::Cubin::read(&bytes)?;
            for (name, code) in &codes {
                let function = name.strip_prefix(".text.");
                let function = function.and_then(|name| whole.function(name));
                let links = function.map(|function| whole.links(function, code));
                schedules.add(name, code, &links.unwrap_or_default(), measure);
            }
        }
        if cubin.printable.is_empty() {
            continue;
        }
        let Some(nvdisasm) = nvdisasm.as_ref().filter(|_| number % every == 0) else {
            continue;
        };
        std::fs::write(&scratch, &cubin.image)?;
        let listed = list(nvdisasm, &scratch, &cubin.printable, |listing| {
            if let Some(code) = codes.get(listing.name.as_str()) {
                compare(report, code, &listing);
            }
        });
        if let Err(error) = listed {
            eprintln!("{}: {error}", path.display());
        }
    }
    std::fs::remove_file(&scratch).ok();
    println!(
        "{} cubins, {:.1} MB of code decoded in {:.2} s",
        paths.len(),
        bytes_read as f64 / 1e6,
        reading.as_secs_f64()
    );
    for (sm, report) in &reports {
        print(*sm, report);
    }
    for (sm, schedules) in &schedules {
        schedules.print(*sm, measure);
    }
    Ok(())
}

/// What the hazard checker says.
#[derive(Default)]
struct Schedules {
    kernels: usize,
    insts: usize,
    passed: usize,
    no_graph: usize,
    hazards: BTreeMap<String, (usize, String)>,
    latencies: Latencies,
}

impl Schedules {
    fn add(&mut self, name: &str, code: &Code, links: &Links, measure: bool) {
        self.kernels += 1;
        let Ok(cfg) = Cfg::build(code, links) else {
            self.no_graph += 1;
            return;
        };
        self.insts += code.insts().len();
        if measure {
            distances(code, &cfg, &mut self.latencies);
            return;
        }
        let hazards = check(code, &cfg);
        self.passed += usize::from(hazards.is_empty());
        for hazard in hazards {
            let (first, second) = (&code.insts()[hazard.first], &code.insts()[hazard.second]);
            let key = format!(
                "{:?} {} {}",
                hazard.kind,
                first.mnemonic(),
                second.mnemonic()
            );
            let example = || (0, format!("{name}: {hazard}"));
            self.hazards.entry(key).or_insert_with(example).0 += 1;
        }
    }

    fn print(&self, sm: u32, measure: bool) {
        if measure {
            println!("sm_{sm}");
            for (producer, reader, slot, cycles) in self.latencies.rows() {
                println!("    ({producer:?}, {reader:?}, {slot:?}, {cycles}),");
            }
            return;
        }
        println!(
            "sm_{sm}: {} of {} kernels have no hazard ({} instructions); {} without a known graph left out",
            self.passed, self.kernels, self.insts, self.no_graph
        );
        for (key, (count, example)) in &self.hazards {
            println!("  {key}: {count} times, e.g. {example}");
        }
    }
}

fn print(sm: u32, report: &Report) {
    let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    println!("sm_{sm}");
    println!(
        "  decoded: {} of {} instructions ({:.3} %), {} of {} kernels ({:.2} %)",
        report.decoded,
        report.insts,
        percent(report.decoded, report.insts),
        report.decoded_kernels,
        report.kernels,
        percent(report.decoded_kernels, report.kernels)
    );
    for (form, count) in &report.refused {
        println!("  refused: {form} {count} times");
    }
    if report.compared_kernels == 0 {
        return;
    }
    println!(
        "  against nvdisasm: {} kernels, {} instructions; {} mnemonics and {} register rows differ",
        report.compared_kernels, report.compared, report.mnemonics, report.registers
    );
    println!(
        "  live registers: {} of {} rows differ, {} once nvdisasm's rows are completed along control flow, in {} kernels without calls; {} kernels with calls and {} without a known graph left out",
        report.live,
        report.live_rows,
        report.live_unexplained,
        report.live_kernels,
        report.call_kernels,
        report.no_graph
    );
    println!(
        "  kernels without a difference beyond that: {} of {} ({:.2} %)",
        report.clean_kernels,
        report.compared_kernels,
        percent(report.clean_kernels, report.compared_kernels)
    );
    for (key, (count, example)) in &report.examples {
        println!("  {key}: {count} times, e.g. {example}");
    }
}
