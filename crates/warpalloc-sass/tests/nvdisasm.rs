//! nvdisasm's word on the project's own kernels.
//!
//! ptxas assembles the corpus for each SM; the decoder must read all of it, its mnemonics,
//! registers and live registers must be nvdisasm's, and the hazard checker must find nothing. Both are taken from `WARPALLOC_PTXAS` and
//! `WARPALLOC_NVDISASM`. Without them the test says that it was skipped, unless
//! `WARPALLOC_REQUIRE_NVDISASM` is 1: then it fails.

mod common;

use common::{Cubin, Report, compare, list};
use std::path::{Path, PathBuf};
use std::process::Command;
use warpalloc_sass::{Cfg, hazard};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/ptx");

fn tool(variable: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    if found.is_none() {
        let required = std::env::var("WARPALLOC_REQUIRE_NVDISASM").is_ok_and(|value| value == "1");
        assert!(!required, "{variable} is not set");
        eprintln!("skipped: {variable} is not set");
    }
    found
}

/// Assembles for an SM; none where the source needs another one.
fn assemble(ptxas: &Path, source: &Path, sm: u32, folder: &Path) -> Option<Vec<u8>> {
    let text = std::fs::read_to_string(source).unwrap();
    let target = text.lines().find(|line| line.starts_with(".target"))?;
    let text = text.replacen(target, &format!(".target sm_{sm}"), 1);
    let stem = source.file_stem()?.to_str()?;
    let ptx = folder.join(format!("{stem}-{sm}.ptx"));
    let cubin = ptx.with_extension("cubin");
    std::fs::write(&ptx, text).unwrap();
    let output = Command::new(ptxas)
        .arg(format!("-arch=sm_{sm}"))
        .args([ptx.as_os_str(), "-o".as_ref(), cubin.as_os_str()])
        .output()
        .unwrap();
    output
        .status
        .success()
        .then(|| std::fs::read(&cubin).unwrap())
}

fn corpus_reads_as_nvdisasm_does(sm: u32, at_least: usize) {
    let (Some(ptxas), Some(nvdisasm)) = (tool("WARPALLOC_PTXAS"), tool("WARPALLOC_NVDISASM"))
    else {
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvdisasm-{sm}"));
    std::fs::create_dir_all(&folder).unwrap();
    let mut sources: Vec<_> = std::fs::read_dir(CORPUS)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".sm_90.ptx"))
        .collect();
    sources.sort();
    let mut report = Report::default();
    for source in &sources {
        let Some(bytes) = assemble(&ptxas, source, sm, &folder) else {
            continue;
        };
        let cubin = Cubin::read(&bytes).unwrap();
        assert_eq!(cubin.sm, sm);
        let image = folder.join("listed.cubin");
        std::fs::write(&image, &cubin.image).unwrap();
        let codes: Vec<_> = cubin
            .sections
            .iter()
            .map(|section| (section.name.as_str(), report.decode(section, sm)))
            .collect();
        if cubin.printable.is_empty() {
            continue;
        }
        list(&nvdisasm, &image, &cubin.printable, |listing| {
            let code = codes.iter().find(|(name, _)| *name == listing.name);
            if let Some((_, Some(code))) = code {
                compare(&mut report, code, &listing);
                let cfg = Cfg::build(code, &listing.links()).unwrap();
                let hazards = hazard::check(code, &cfg);
                assert!(hazards.is_empty(), "{}: {}", listing.name, hazards[0]);
            }
        })
        .unwrap();
    }
    assert!(report.refused.is_empty(), "refused: {:#?}", report.refused);
    assert_eq!(report.no_graph, 0, "{:#?}", report.examples);
    assert!(report.examples.is_empty(), "{:#?}", report.examples);
    assert!(
        report.compared_kernels >= at_least,
        "{} kernels compared",
        report.compared_kernels
    );
}

#[test]
fn corpus_for_sm_75_reads_as_nvdisasm_does_or_is_skipped() {
    corpus_reads_as_nvdisasm_does(75, 25);
}

#[test]
fn corpus_for_sm_80_reads_as_nvdisasm_does_or_is_skipped() {
    corpus_reads_as_nvdisasm_does(80, 30);
}

#[test]
fn corpus_for_sm_86_reads_as_nvdisasm_does_or_is_skipped() {
    corpus_reads_as_nvdisasm_does(86, 30);
}

#[test]
fn corpus_for_sm_87_reads_as_nvdisasm_does_or_is_skipped() {
    corpus_reads_as_nvdisasm_does(87, 30);
}

#[test]
fn corpus_for_sm_89_reads_as_nvdisasm_does_or_is_skipped() {
    corpus_reads_as_nvdisasm_does(89, 30);
}

#[test]
fn corpus_for_sm_90_reads_as_nvdisasm_does_or_is_skipped() {
    corpus_reads_as_nvdisasm_does(90, 30);
}
