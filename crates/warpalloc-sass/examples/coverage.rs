//! How much of given cubins the decoder reads, and how it differs from nvdisasm.
//!
//! ```text
//! cargo run --release -p warpalloc-sass --example coverage -- [--every N] FOLDER...
//! ```
//!
//! Reads every `.cubin` under the folders. With `WARPALLOC_NVDISASM` set, mnemonics, registers
//! read and written, and live registers are compared with it for each `N`th cubin (all by
//! default). Prints one table per SM, the forms refused and an example of each difference.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Cubin, Report, compare, list};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

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
    let mut paths = Vec::new();
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--every" {
            let number = arguments.next().ok_or("--every needs a number")?;
            every = number.to_string_lossy().parse()?;
        } else {
            cubins(Path::new(&argument), &mut paths)?;
        }
    }
    paths.sort();
    let nvdisasm = std::env::var_os("WARPALLOC_NVDISASM").map(PathBuf::from);
    let mut reports: BTreeMap<u32, Report> = BTreeMap::new();
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
    Ok(())
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
        "  live registers: {} of {} rows differ in {} kernels without calls; {} kernels with calls and {} without a known graph left out",
        report.live, report.live_rows, report.live_kernels, report.call_kernels, report.no_graph
    );
    println!(
        "  kernels without any difference: {} of {} ({:.2} %)",
        report.clean_kernels,
        report.compared_kernels,
        percent(report.clean_kernels, report.compared_kernels)
    );
    for (key, (count, example)) in &report.examples {
        println!("  {key}: {count} times, e.g. {example}");
    }
}
