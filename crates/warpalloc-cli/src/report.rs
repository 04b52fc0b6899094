//! What became of the functions of a module, as text and as JSON (docs/json.md).

use clap::ValueEnum;
use serde_json::{Value, json};
use warpalloc_choose::KernelChoice;
use warpalloc_ptx::ParseError;
use warpalloc_ptx::module::{Allocated, FunctionReport, ModuleResult, Outcome};

use crate::best;
use crate::files::Input;

/// The version of every JSON document that the command prints. It grows when a field goes away
/// or changes its meaning; new fields leave it as it is.
pub const SCHEMA: u32 = 1;

/// One object for one thing, or a list of several, with the version (docs/json.md).
pub fn document(mut values: Vec<Value>, several: &str) -> Value {
    match &mut values[..] {
        [only] => {
            only["schema"] = SCHEMA.into();
            only.take()
        }
        _ => json!({ "schema": SCHEMA, several: values }),
    }
}

/// How to print statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table
    Text,
    /// One object, see docs/json.md
    Json,
}

/// A file and what became of it.
#[derive(Clone, Copy)]
pub struct File<'r> {
    /// The file.
    pub input: &'r Input,
    /// What became of it.
    pub result: &'r ModuleResult,
    /// What was chosen for its kernels, where that was asked for.
    pub kernels: &'r [KernelChoice],
}

impl File<'_> {
    /// Whether what became of a function was chosen.
    pub fn is_chosen(&self, function: &FunctionReport) -> bool {
        // Device functions go with the kernels that call them.
        !self.kernels.is_empty() && matches!(function.outcome, Outcome::Kept(_))
    }
}

/// The statistics of all functions.
pub fn render(files: &[File], format: Format) -> String {
    match format {
        Format::Text => as_text(files),
        Format::Json => format!("{:#}\n", as_json(files)),
    }
}

/// Why a function that was asked for stays as it is.
pub fn left_alone(
    input: &Input,
    result: &ModuleResult,
    function: &FunctionReport,
) -> Option<String> {
    let (file, line, name) = (&input.name, function.line, &function.name);
    match &function.outcome {
        Outcome::PassedThrough(passed) => {
            let text = match &result.promoted {
                Some(promoted) => &promoted.text,
                None => &input.text,
            };
            let message = format!("`{name}` is passed through unchanged: {}", passed.reason);
            Some(ParseError::new(passed.span, message).render(file, text))
        }
        Outcome::Kept(reason) => Some(format!("{file}:{line}: `{name}` stays as it is: {reason}")),
        Outcome::Refused(reason) => Some(format!("{file}:{line}: `{name}`: {reason}")),
        Outcome::Allocated(_) | Outcome::Skipped => None,
    }
}

/// An allocated function in one line.
pub fn summary(allocated: &Allocated) -> String {
    let (stats, frame) = (&allocated.stats, allocated.frame);
    let mut told = format!(
        "{} of {} registers, {} values spilled, {} bytes of spill memory",
        allocated.registers,
        allocated.budget,
        stats.spilled,
        frame.local + frame.shared
    );
    if allocated.stats.live_through_calls > 0 {
        let count = allocated.stats.live_through_calls;
        told += &format!(", {count} values live through calls");
    }
    if stats.fell_back {
        told += ", fell back to memory for every value";
    }
    told
}

fn as_text(files: &[File]) -> String {
    let functions = || files.iter().flat_map(|file| &file.result.functions);
    let width = functions().map(|f| f.name.len()).max().unwrap_or(0).max(8);
    let mut out = format!(
        "{:<width$} {:>7} {:>7} {:>5} {:>7} {:>6} {:>7} {:>6} {:>6} {:>6} {:>5}\n",
        "function",
        "instr.",
        "vregs",
        "regs",
        "spilled",
        "stores",
        "reloads",
        "moves",
        "remat",
        "frame",
        "calls"
    );
    for function in functions() {
        let (name, instructions, vregs) = (&function.name, function.instructions, function.vregs);
        let line = match &function.outcome {
            Outcome::Allocated(a) => {
                let (s, e) = (&a.stats, &a.stats.edits);
                let frame = a.frame.local + a.frame.shared;
                let fallback = if s.fell_back { " fallback" } else { "" };
                format!(
                    "{name:<width$} {instructions:>7} {vregs:>7} {:>5} {:>7} {:>6} {:>7} {:>6} {:>6} {frame:>6} {:>5}{fallback}",
                    a.registers,
                    s.spilled,
                    e.stores,
                    e.reloads,
                    e.moves,
                    e.recomputes,
                    a.stats.live_through_calls
                )
            }
            Outcome::PassedThrough(passed) => {
                format!("{name:<width$} passed through: {}", passed.reason)
            }
            Outcome::Kept(reason) => format!("{name:<width$} stays as it is: {reason}"),
            Outcome::Refused(reason) => format!("{name:<width$} refused: {reason}"),
            Outcome::Skipped => format!("{name:<width$} not asked for"),
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// The statistics of all functions as JSON (docs/json.md).
pub fn as_json(files: &[File]) -> Value {
    let functions = files.iter().flat_map(|file| {
        let functions = file.result.functions.iter();
        functions.map(|function| {
            let mut value = function_json(&file.input.name, function);
            let choice = file.kernels.iter().find(|k| k.name == function.name);
            if let Some(choice) = choice {
                value["choice"] = best::as_json(choice);
            }
            value
        })
    });
    json!({ "schema": SCHEMA, "functions": functions.collect::<Value>() })
}

fn function_json(file: &str, function: &FunctionReport) -> Value {
    let mut value = json!({
        "file": file,
        "name": function.name,
        "entry": function.is_entry,
        "line": function.line,
        "instructions": function.instructions,
        "vregs": function.vregs,
        "warnings": function.warnings,
    });
    let (outcome, more) = match &function.outcome {
        Outcome::Allocated(allocated) => ("allocated", allocated_json(allocated)),
        Outcome::PassedThrough(passed) => ("passed", json!({ "reason": passed.reason })),
        Outcome::Kept(reason) => ("kept", json!({ "reason": reason })),
        Outcome::Refused(reason) => ("refused", json!({ "reason": reason })),
        Outcome::Skipped => ("skipped", json!({})),
    };
    value["outcome"] = outcome.into();
    if let Value::Object(fields) = more {
        for (key, field) in fields {
            value[key] = field;
        }
    }
    value
}

fn allocated_json(allocated: &Allocated) -> Value {
    let stats = &allocated.stats;
    let phases: serde_json::Map<String, Value> = stats
        .phases
        .iter()
        .map(|(name, time)| ((*name).to_owned(), time.as_secs_f64().into()))
        .collect();
    json!({
        "budget": allocated.budget,
        "registers": allocated.registers,
        "registers_named": allocated.named,
        "predicates": allocated.predicates,
        "frame_local": allocated.frame.local,
        "frame_shared": allocated.frame.shared,
        "values": stats.values,
        "spilled": stats.spilled,
        "spill_rate": stats.spill_rate(),
        "rematerialised": stats.rematerialised,
        "hoisted": stats.hoisted,
        "copies": stats.copies,
        "coalesced": stats.coalesced,
        "coalescing_rate": stats.coalescing_rate(),
        "iterations": stats.iterations,
        "fell_back": stats.fell_back,
        "live_through_calls": allocated.stats.live_through_calls,
        "moves": stats.edits.moves,
        "stores": stats.edits.stores,
        "reloads": stats.edits.reloads,
        "recomputes": stats.edits.recomputes,
        "shared_slot_bytes": stats.shared_slot_bytes,
        "graph": {
            "nodes": stats.graph.nodes,
            "edges": stats.graph.edges,
            "density": stats.graph.density(),
            "max_degree": stats.graph.max_degree,
            "average_degree": stats.graph.average_degree(),
        },
        "seconds": phases,
    })
}
