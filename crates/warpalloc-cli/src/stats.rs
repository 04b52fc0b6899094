//! `warpalloc stats`: how large functions are and where they need registers.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use warpalloc_ptx::module::{FunctionMeasures, ModuleOptions, Peak, measure_module};

use crate::UsageError;
use crate::output;
use crate::report::SCHEMA;
use crate::stats_cubin::{self, CodeArgs, Source};

/// What to measure.
#[derive(Args, Debug)]
pub struct StatsArgs {
    /// A PTX file, or a file with machine code: a cubin, fatbin, object, archive, shared
    /// library or executable; `-` for standard input
    input: PathBuf,
    /// Print JSON, see docs/json.md
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    code: CodeArgs,
}

/// The measures of a file.
pub enum Measures {
    /// Of PTX.
    Text(Vec<FunctionMeasures>),
    /// Of machine code.
    Code(stats_cubin::Report),
}

impl Measures {
    /// The measures as JSON (docs/json.md).
    pub fn as_json(&self) -> Value {
        match self {
            Measures::Text(functions) => {
                let functions: Value = functions.iter().map(as_json).collect();
                json!({ "schema": SCHEMA, "functions": functions })
            }
            Measures::Code(report) => report.as_json(),
        }
    }

    fn as_text(&self) -> String {
        match self {
            Measures::Text(functions) => as_text(functions),
            Measures::Code(report) => report.as_text(),
        }
    }
}

/// Prints the measures of a file.
pub fn run(args: StatsArgs) -> anyhow::Result<()> {
    let measures = measured(Source::open(&args.input)?, &args)?;
    output::print(&match args.json {
        true => format!("{:#}\n", measures.as_json()),
        false => measures.as_text(),
    })
}

/// Measures what was opened.
pub fn measured(source: Source, args: &StatsArgs) -> anyhow::Result<Measures> {
    let input = match source {
        Source::Code(file) => return Ok(Measures::Code(stats_cubin::report(&file, &args.code)?)),
        Source::Text(input) => input,
    };
    if let Some(flag) = args.code.given() {
        let message = format!("{flag} is for machine code, and {} is text", input.name);
        return Err(UsageError(message).into());
    }
    let options = ModuleOptions {
        sm: args.code.text_arch()?.map(|arch| arch.sm),
        ..ModuleOptions::default()
    };
    let functions = measure_module(&input.text, &options);
    let functions = functions.map_err(|error| input.explain(error))?;
    Ok(Measures::Text(functions))
}

fn as_text(functions: &[FunctionMeasures]) -> String {
    let width = functions
        .iter()
        .map(|f| f.name.len())
        .max()
        .unwrap_or(0)
        .max(8);
    let mut out = format!(
        "{:<width$} {:>7} {:>7}  peak pressure\n",
        "function", "instr.", "vregs"
    );
    for function in functions {
        let name = &function.name;
        let line = match &function.measures {
            Ok(m) => {
                let peaks: Vec<String> = m.peaks.iter().map(peak_text).collect();
                let (instructions, vregs) = (m.instructions, m.vregs);
                format!(
                    "{name:<width$} {instructions:>7} {vregs:>7}  {}\n",
                    peaks.join(", ")
                )
            }
            Err(passed) => format!("{name:<width$} not understood: {}\n", passed.reason),
        };
        out.push_str(&line);
    }
    out
}

fn peak_text(peak: &Peak) -> String {
    let (registers, file) = (peak.registers, &peak.file);
    match peak.line {
        Some(line) => format!("{registers} {file} at line {line}"),
        None => format!("{registers} {file}"),
    }
}

fn as_json(function: &FunctionMeasures) -> Value {
    let mut value = json!({
        "name": function.name,
        "entry": function.is_entry,
        "line": function.line,
    });
    match &function.measures {
        Ok(m) => {
            let peak =
                |p: &Peak| json!({ "file": p.file, "registers": p.registers, "line": p.line });
            value["instructions"] = m.instructions.into();
            value["vregs"] = m.vregs.into();
            value["peaks"] = m.peaks.iter().map(peak).collect();
            value["floor"] = m.floor.into();
        }
        Err(passed) => value["reason"] = passed.reason.clone().into(),
    }
    value
}
