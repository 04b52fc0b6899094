//! `warpalloc stats`: how large functions are and where they need registers.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use warpalloc_ptx::module::{FunctionMeasures, ModuleOptions, Peak, measure_module};

use crate::UsageError;
use crate::kernels::read_each;
use crate::output;
use crate::report::document;
use crate::stats_cubin::{self, CodeArgs, Source};

const EXAMPLES: &str = "\
Examples:
  warpalloc stats gemm.ptx                         pressure per function, and where it is highest
  warpalloc stats libkernels.so --sm 90            machine code: registers, spills, occupancy
  warpalloc stats libkernels.so --kernel gemm --block 256
  warpalloc stats build/ --json                    all files of a folder";

/// What to measure.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct StatsArgs {
    /// PTX files, files with machine code (cubins, fatbins, objects, archives, shared libraries,
    /// executables), or folders of them; `-` for standard input
    #[arg(required = true)]
    input: Vec<PathBuf>,
    /// Print JSON, see docs/json.md
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    code: CodeArgs,
}

/// The measures of a file.
pub enum Measures {
    /// Of PTX.
    Text {
        /// The file.
        file: String,
        /// Its functions.
        functions: Vec<FunctionMeasures>,
    },
    /// Of machine code.
    Code(stats_cubin::Report),
}

impl Measures {
    /// The measures as JSON (docs/json.md).
    pub fn as_json(&self) -> Value {
        document(vec![self.value()], "files")
    }

    fn value(&self) -> Value {
        match self {
            Measures::Text { file, functions } => {
                let functions: Value = functions.iter().map(as_json).collect();
                json!({ "file": file, "functions": functions })
            }
            Measures::Code(report) => report.as_json(),
        }
    }

    fn file(&self) -> &str {
        match self {
            Measures::Text { file, .. } => file,
            Measures::Code(report) => report.file(),
        }
    }

    fn as_text(&self) -> String {
        match self {
            Measures::Text { functions, .. } => as_text(functions),
            Measures::Code(report) => report.as_text(),
        }
    }
}

/// Prints the measures of files.
pub fn run(args: StatsArgs) -> anyhow::Result<()> {
    let found = read_each(&args.input, |path| measured(Source::open(path)?, &args))?;
    if found.is_empty() {
        bail!("there is no PTX and no machine code that was asked for");
    }
    output::print(&match (args.json, &found[..]) {
        (true, found) => {
            let values = found.iter().map(Measures::value).collect();
            format!("{:#}\n", document(values, "files"))
        }
        (false, [only]) => only.as_text(),
        (false, found) => {
            let each = found
                .iter()
                .map(|f| format!("{}:\n{}", f.file(), f.as_text()));
            each.collect::<Vec<_>>().join("\n")
        }
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
    Ok(Measures::Text {
        file: input.name,
        functions,
    })
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
