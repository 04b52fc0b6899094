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

/// Prints the measures of a file.
pub fn run(args: StatsArgs) -> anyhow::Result<()> {
    let input = match Source::open(&args.input)? {
        Source::Code(file) => return stats_cubin::run(&file, &args.code, args.json),
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
    let text = match args.json {
        true => {
            let functions: Value = functions.iter().map(as_json).collect();
            format!(
                "{:#}\n",
                json!({ "schema": SCHEMA, "functions": functions })
            )
        }
        false => as_text(&functions),
    };
    output::print(&text)
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
