//! `warpalloc knobs`: what can be set, and `--knob`.

use clap::Args;
use serde_json::json;
use warpalloc::options::Setting;
use warpalloc::options::knobs::{KNOBS, Knobs};

use crate::report::SCHEMA;
use crate::{UsageError, output};

/// How to list the knobs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpalloc knobs
  warpalloc alloc IN.ptx -o OUT.ptx --regalloc=fatpoint --knob RegAllocThresholdForDiscardConflicts=40")]
pub struct KnobsArgs {
    /// Print JSON, see docs/json.md
    #[arg(long)]
    json: bool,
}

/// Lists every knob with its type, default and meaning.
pub fn run(args: KnobsArgs) -> anyhow::Result<()> {
    let text = if args.json { as_json() } else { as_text() };
    output::print(&text)
}

fn as_text() -> String {
    let defaults = Knobs::default();
    let width = KNOBS.iter().map(|k| k.name.len()).max().unwrap_or(0);
    let mut out = format!(
        "{:<5} {:<width$} {:<6} {:<10} {:<6} meaning\n",
        "index", "name", "type", "default", "effect"
    );
    for knob in KNOBS {
        let index = knob.index.map_or("-".to_owned(), |i| i.to_string());
        out += &format!(
            "{index:<5} {:<width$} {:<6} {:<10} {:<6} {}\n",
            knob.name,
            knob.kind.name(),
            knob.value(&defaults),
            if knob.inert.is_some() { "none" } else { "yes" },
            meaning(knob)
        );
    }
    out
}

fn meaning(knob: &Setting<Knobs>) -> String {
    match knob.inert {
        Some(why) => format!("{} ({why})", knob.meaning.trim()),
        None => knob.meaning.trim().to_owned(),
    }
}

fn as_json() -> String {
    let defaults = Knobs::default();
    let rows: Vec<_> = KNOBS
        .iter()
        .map(|knob| {
            json!({
                "index": knob.index,
                "name": knob.name,
                "type": knob.kind.name(),
                "default": knob.value(&defaults),
                "inert": knob.inert,
                "meaning": knob.meaning.trim(),
            })
        })
        .collect();
    format!("{:#}\n", json!({ "schema": SCHEMA, "knobs": rows }))
}

/// The knobs that `settings` of the form `NAME=VALUE` make.
pub fn parse(settings: &[String]) -> Result<Knobs, UsageError> {
    let mut knobs = Knobs::default();
    for setting in settings {
        knobs
            .set(setting)
            .map_err(|error| UsageError(error.to_string()))?;
    }
    Ok(knobs)
}
