//! How well the judge orders what was measured.
//!
//! ```sh
//! warpalloc-gpu --work WORK --json RESULTS.json ...
//! cargo run --release -p warpalloc-choose --example rank -- WORK RESULTS.json MANIFESTS
//! ```
//!
//! WORK holds the cubins of a run, RESULTS.json their times, MANIFESTS the launches, beside the folder
//! with the texts. For every
//! kind of row: how far the estimate is from the measured time, both over those of ptxas at the
//! same cap. The constants of the judge are fitted to bring these errors down on the corpus.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use serde_json::Value;
use warpalloc_choose::judge::{Estimate, Machine, Setting, gathers, judge};

/// Logarithms of estimated over measured ratios.
#[derive(Default)]
struct Errors(Vec<f64>);

impl Errors {
    fn root_mean_square(&self) -> f64 {
        let squares: f64 = self.0.iter().map(|error| error * error).sum();
        (squares / self.0.len().max(1) as f64).sqrt()
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [work, results, manifests] = &arguments[..] else {
        return Err("expected WORK RESULTS.json MANIFESTS".into());
    };
    let results: Value = serde_json::from_str(&std::fs::read_to_string(results)?)?;
    let rows = results["rows"].as_array().ok_or("no rows")?;
    let mut kinds: BTreeMap<String, Errors> = BTreeMap::new();
    for row in rows {
        let spills = row["ptxas"]["resources"]["spill_stores"].as_u64() > Some(0);
        let Some(measured) = row["time_ratio"].as_f64().filter(|_| spills) else {
            continue;
        };
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        if text("space") == "chosen" {
            continue;
        }
        let setting = setting(Path::new(manifests), text("source"), text("kernel"))?;
        let cap = row["cap"].as_u64();
        let cap = cap.map_or("none".to_owned(), |cap| cap.to_string());
        let estimate = |maker: &str| -> Option<Estimate> {
            let stem = format!("{}.{}.{cap}.{maker}", text("source"), text("kernel"));
            let cubin = std::fs::read(Path::new(work).join(format!("{stem}.cubin"))).ok()?;
            judge(&Machine::H200, &cubin, text("kernel"), setting).ok()
        };
        let (strategy, space) = (text("strategy"), text("space"));
        let maker = match strategy {
            "ptxas" => format!("pragma.{space}"),
            _ => format!("{strategy}.{space}"),
        };
        // Builds of the same text share the cubin of the first.
        let (Some(original), Some(ours)) = (estimate("original"), estimate(&maker)) else {
            continue;
        };
        let [_, estimated] = ours.over(&original);
        let errors = kinds.entry(format!("{strategy} {space}")).or_default();
        errors.0.push((estimated / measured).ln());
    }
    println!("| row | cubins | mean error | root mean square |\n|---|---|---|---|");
    for (kind, errors) in &kinds {
        let (mean, spread) = (errors.mean(), errors.root_mean_square());
        println!("| {kind} | {} | {mean:+.3} | {spread:.3} |", errors.0.len());
    }
    Ok(())
}

/// The launch of a kernel, from the manifest of its source.
fn setting(manifests: &Path, source: &str, kernel: &str) -> Result<Setting, Box<dyn Error>> {
    let stem = source.split('.').next().unwrap_or_default();
    let text = std::fs::read_to_string(manifests.join(format!("{stem}.json")))?;
    let manifest: Value = serde_json::from_str(&text)?;
    let launch = &manifest["kernels"][kernel];
    let product = |key: &str| -> Option<u32> {
        let sides = launch[key].as_array()?.iter();
        let sides: Option<Vec<u64>> = sides.map(Value::as_u64).collect();
        u32::try_from(sides?.iter().product::<u64>()).ok()
    };
    let dynamic = launch["dynamic_shared"].as_u64().unwrap_or(0);
    let sources = manifests.parent().unwrap_or(manifests).join("ptx");
    let ptx = std::fs::read_to_string(sources.join(format!("{source}.ptx")))?;
    Ok(Setting {
        block_threads: product("block"),
        blocks: product("grid"),
        dynamic_shared: u32::try_from(dynamic)?,
        gathers: gathers(&ptx, kernel),
    })
}
