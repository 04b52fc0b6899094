//! `warpalloc explain`: what is live where registers are scarcest, and what would help.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use rayon::prelude::*;
use serde_json::{Value, json};
use warpalloc::target::sm::Sm;
use warpalloc_choose::Ptxas;
use warpalloc_ptx::module::ModuleOptions;
use warpalloc_ptx::{Decision, FunctionValues, LiveValue, ModuleFacts, TextPlace, function_values};

use crate::files::Input;
use crate::kernels::{PtxasArgs, named_entries, texts, with_facts};
use crate::output::{self, counted};
use crate::report::document;
use crate::suggest::{self, Suggestion, Trial};
use crate::{UsageError, alloc};

const EXAMPLES: &str = "\
Examples:
  warpalloc explain gemm.ptx                       what is live at the peak, and what would help
  warpalloc explain gemm.ptx --line 88             what is live before line 88
  warpalloc explain gemm.ptx --value %r12          one value: where it is live, with whom, its cost
  warpalloc explain gemm.ptx --value %r12 --maxnreg 64
                                                   and what becomes of it within 64 registers
  warpalloc explain gemm.ptx --kernel k --block 256 --json
  warpalloc explain ptx/                           every kernel of a folder

Cycles are of one run of the kernel, by how often the shape of its loops makes a line run. What
would help is printed only where it was tried on this kernel.";

/// What to explain.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// PTX files, or folders of them; `-` for standard input
    #[arg(required = true)]
    input: Vec<PathBuf>,
    /// The kernel or function; all kernels where it is left out
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Explain a value, by its register
    #[arg(long, value_name = "REGISTER", conflicts_with_all = ["line", "peak"])]
    value: Option<String>,
    /// Show what is live before a line
    #[arg(long, value_name = "N", conflicts_with = "peak")]
    line: Option<usize>,
    /// Show what is live at the peak; the default
    #[arg(long)]
    peak: bool,
    /// Say what becomes of values within so many registers
    #[arg(long, value_name = "N", value_parser = alloc::cap)]
    maxnreg: Option<u32>,
    /// Threads per block, where the kernel does not say
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    block: Option<u32>,
    /// The machine, where it is not what the file says: 90, sm_90
    #[arg(long, value_name = "SM")]
    sm: Option<Sm>,
    /// Print JSON, see docs/json.md
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ptxas: PtxasArgs,
}

/// Explains kernels.
pub fn run(args: ExplainArgs) -> anyhow::Result<()> {
    let texts = with_facts(texts(&args.input)?)?;
    let explainer = Explainer {
        ptxas: args.ptxas.ptxas()?,
        args: &args,
    };
    let functions = functions(&args, &texts)?;
    let explained = functions.par_iter().map(|(input, facts, name)| {
        let values = explainer.values(input, name)?;
        explainer.explain(input, facts, name, &values)
    });
    let explained: Vec<anyhow::Result<Explained>> = explained.collect();
    let only = explained.len() == 1;
    let mut told = Vec::new();
    let mut last = None;
    for explained in explained {
        match explained {
            Ok(explained) => told.push(explained),
            // One kernel that is not understood keeps nobody from the others.
            Err(error) if !only && !error.is::<UsageError>() => {
                output::warning(&format!("{error:#}"));
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    if let (Some(error), true) = (last, told.is_empty()) {
        return Err(error);
    }
    output::print(&match args.json {
        true => {
            let values = told.into_iter().map(|explained| explained.json).collect();
            format!("{:#}\n", document(values, "kernels"))
        }
        false => {
            let texts: Vec<String> = told.into_iter().map(|explained| explained.text).collect();
            texts.join("\n")
        }
    })
}

/// The functions to explain: kernels, or the device function that is named.
fn functions<'t>(
    args: &ExplainArgs,
    texts: &'t [(Input, ModuleFacts)],
) -> Result<Vec<(&'t Input, &'t ModuleFacts, String)>, UsageError> {
    let found = match named_entries(texts, args.kernel.as_deref()) {
        Ok(found) => found,
        Err(error) => {
            // Device functions are found by the name in the text.
            let named = args.kernel.as_ref().zip(texts.first());
            let (name, (input, facts)) = named.filter(|_| texts.len() == 1).ok_or(error)?;
            return Ok(vec![(input, facts, name.clone())]);
        }
    };
    if found.len() > 1 && (args.value.is_some() || args.line.is_some()) {
        let names: Vec<&str> = found.iter().map(|(.., e)| e.name.as_str()).collect();
        return Err(UsageError(format!(
            "a value or a line is one kernel's: --kernel names one of {}",
            names.join(", ")
        )));
    }
    let found = found.into_iter();
    Ok(found
        .map(|(input, facts, entry)| (input, facts, entry.name.clone()))
        .collect())
}

/// What is said of a function.
struct Explained {
    text: String,
    json: Value,
}

struct Explainer<'a> {
    args: &'a ExplainArgs,
    ptxas: Option<Ptxas>,
}

impl Explainer<'_> {
    fn options(&self) -> ModuleOptions {
        ModuleOptions {
            maxnreg: self.args.maxnreg,
            sm: self.args.sm.map(|sm| sm.number()),
            block: self.args.block,
            ..ModuleOptions::default()
        }
    }

    fn values(&self, input: &Input, name: &str) -> anyhow::Result<FunctionValues> {
        let values = function_values(&input.text, name, &self.options());
        let values = values.map_err(|error| input.explain(error))?;
        values.map_err(|passed| {
            let error = warpalloc_ptx::ParseError::new(
                passed.span,
                format!("`{name}` is not understood: {}", passed.reason),
            );
            anyhow::anyhow!(error.render(&input.name, &input.text))
        })
    }

    fn explain(
        &self,
        input: &Input,
        facts: &ModuleFacts,
        name: &str,
        values: &FunctionValues,
    ) -> anyhow::Result<Explained> {
        let args = self.args;
        let (shown, suggestions) = match (&args.value, args.line) {
            (Some(register), _) => (Shown::Value(of_register(values, register)?), Vec::new()),
            (None, Some(line)) => (Shown::Live(at_line(values, input, line)?), Vec::new()),
            (None, None) => {
                let suggestions = self.suggestions(input, facts, name)?;
                (Shown::Live(values.live_at_peak()), suggestions)
            }
        };
        Ok(Explained {
            text: as_text(args, input, values, &shown, &suggestions),
            json: as_json(input, values, &shown, &suggestions),
        })
    }

    /// Tries what may help and keeps what did.
    fn suggestions(
        &self,
        input: &Input,
        facts: &ModuleFacts,
        name: &str,
    ) -> anyhow::Result<Vec<Suggestion>> {
        let Some(entry) = facts.entries.iter().find(|entry| entry.name == name) else {
            return Ok(Vec::new());
        };
        let declared = || facts.arch.clone().unwrap_or_else(|| "sm_75".to_owned());
        let trial = Trial {
            input,
            facts,
            entry,
            ptxas: self.ptxas.as_ref(),
            ptxas_options: self.args.ptxas.options(),
            arch: self.args.sm.map_or_else(declared, |sm| sm.to_string()),
            block: self.args.block.or(entry.block_threads),
            options: ModuleOptions {
                maxnreg: None,
                entries: vec![name.to_owned()],
                ..self.options()
            },
        };
        trial.suggestions()
    }
}

/// What was asked for.
enum Shown<'v> {
    Live(Vec<&'v LiveValue>),
    Value(Vec<&'v LiveValue>),
}

fn of_register<'v>(
    values: &'v FunctionValues,
    register: &'v str,
) -> Result<Vec<&'v LiveValue>, UsageError> {
    let found: Vec<_> = values.named(register).collect();
    match found.is_empty() {
        true => Err(UsageError(format!(
            "`{}` has no value in a general register called {register}",
            values.name
        ))),
        false => Ok(found),
    }
}

fn at_line<'v>(
    values: &'v FunctionValues,
    input: &Input,
    line: usize,
) -> Result<Vec<&'v LiveValue>, UsageError> {
    values.live_at_line(line).ok_or_else(|| {
        UsageError(format!(
            "no statement of `{}` begins in line {line} of {}",
            values.name, input.name
        ))
    })
}

fn told(place: &TextPlace) -> String {
    match &place.source {
        Some(source) => format!("line {} ({}:{})", place.line, source.file, source.line),
        None => format!("line {}", place.line),
    }
}

fn as_text(
    args: &ExplainArgs,
    input: &Input,
    values: &FunctionValues,
    shown: &Shown,
    suggestions: &[Suggestion],
) -> String {
    let mut out = format!(
        "{}:{}: `{}`: {} live at the peak",
        input.name,
        values.line,
        values.name,
        counted(values.peak, "register")
    );
    if let Some(place) = &values.peak_at {
        // Writing to a string does not fail.
        let _ = write!(out, ", {} `{}`", told(place), place.opcode);
    }
    out.push('\n');
    match shown {
        Shown::Live(live) => {
            if let Some(line) = args.line {
                let registers = live.iter().map(|v| v.registers).sum();
                let registers = counted(registers, "register");
                let _ = writeln!(out, "before line {line}: {registers} live");
            }
            table(
                &mut out,
                live,
                args.line.or(values.peak_at.as_ref().map(|p| p.line)),
            );
        }
        Shown::Value(found) => {
            for value in found {
                one(&mut out, values, value, args.maxnreg);
            }
        }
    }
    out + &suggest::told(suggestions)
}

/// Values by what it costs to spill a register of them, the cheapest first.
fn table(out: &mut String, live: &[&LiveValue], line: Option<usize>) {
    let mut live = live.to_vec();
    let cost = |value: &LiveValue| value.spill_cycles / value.registers.max(1) as f64;
    live.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    let written = |value: &LiveValue| value.written.first().map_or("-".to_owned(), told);
    // Behind the last read in the text a loop leads back to the first.
    let next = |value: &LiveValue| {
        let after = value
            .read
            .iter()
            .find(|p| line.is_none_or(|line| p.line >= line));
        let next = after.or(value.read.first());
        next.map_or("-".to_owned(), told)
    };
    let width = |text: &dyn Fn(&LiveValue) -> String, least: usize| {
        let widths = live.iter().map(|value| text(value).len());
        widths.max().unwrap_or(0).max(least)
    };
    let names = width(&|value| value.name.clone(), 5);
    let (a, b) = (width(&written, 7), width(&next, 9));
    let _ = writeln!(
        out,
        "  {:<names$} {:>5}  {:<a$}  {:<b$} {:>6} {:>9} {:>10}",
        "value", "regs", "written", "next read", "reads", "to spill", "to remake"
    );
    for value in &live {
        let remake = value.recompute_cycles;
        let _ = writeln!(
            out,
            "  {:<names$} {:>5}  {:<a$}  {:<b$} {:>6} {:>9.0} {:>10}",
            value.name,
            value.registers,
            written(value),
            next(value),
            value.read.len(),
            value.spill_cycles,
            remake.map_or("-".to_owned(), |cycles| cycles.to_string())
        );
    }
}

fn one(out: &mut String, values: &FunctionValues, value: &LiveValue, cap: Option<u32>) {
    let others = values.neighbours(value);
    let registers: usize = others.iter().map(|v| v.registers).sum();
    let at_peak = match values.is_live_at_peak(value) {
        true => ", live at the peak",
        false => "",
    };
    let _ = writeln!(
        out,
        "  {}: {}{at_peak}, live at once with {} in {}",
        value.name,
        counted(value.registers, "register"),
        counted(others.len(), "other"),
        counted(registers, "register")
    );
    for (what, places) in [("written", &value.written), ("read", &value.read)] {
        for place in places {
            let depth = match place.loop_depth {
                0 => String::new(),
                depth => format!(", in {}", counted(depth as usize, "loop")),
            };
            let _ = writeln!(
                out,
                "    {what:<8} {} `{}`{depth}",
                told(place),
                place.opcode
            );
        }
    }
    let remake = match value.recompute_cycles {
        Some(cycles) => format!(
            "; it can be computed again in {}",
            counted(cycles.into(), "cycle")
        ),
        None => String::new(),
    };
    let _ = writeln!(
        out,
        "    spilling it costs {:.0} cycles a run{remake}",
        value.spill_cycles
    );
    if let (Some(decision), Some(cap)) = (&value.decision, cap) {
        let told = match decision {
            Decision::Register => "it stays in registers".to_owned(),
            Decision::Spilled(lines) => {
                let lines: Vec<_> = lines.iter().map(usize::to_string).collect();
                format!("it is spilled, stored at line {}", lines.join(", "))
            }
            Decision::Recomputed(times) => {
                format!("it is computed again {}", counted(*times, "time"))
            }
            _ => return,
        };
        let _ = writeln!(out, "    within {cap} registers {told}");
    }
}

fn as_json(
    input: &Input,
    values: &FunctionValues,
    shown: &Shown,
    suggestions: &[Suggestion],
) -> Value {
    let place = |place: &TextPlace| {
        let source = place.source.as_ref();
        json!({
            "line": place.line,
            "opcode": place.opcode,
            "loop_depth": place.loop_depth,
            "source": source.map(|s| json!({ "file": s.file, "line": s.line })),
        })
    };
    let value = |value: &&LiveValue| {
        let decision = value.decision.as_ref().and_then(|decision| match decision {
            Decision::Register => Some("register"),
            Decision::Spilled(_) => Some("spilled"),
            Decision::Recomputed(_) => Some("recomputed"),
            _ => None,
        });
        json!({
            "name": value.name,
            "registers": value.registers,
            "at_peak": values.is_live_at_peak(value),
            "written": value.written.iter().map(place).collect::<Value>(),
            "read": value.read.iter().map(place).collect::<Value>(),
            "spill_cycles": value.spill_cycles,
            "recompute_cycles": value.recompute_cycles,
            "decision": decision,
        })
    };
    let (Shown::Live(shown) | Shown::Value(shown)) = shown;
    let suggestions = suggestions.iter().map(Suggestion::as_json);
    json!({
        "file": input.name,
        "name": values.name,
        "line": values.line,
        "peak": values.peak,
        "peak_at": values.peak_at.as_ref().map(place),
        "values": shown.iter().map(value).collect::<Value>(),
        "suggestions": suggestions.collect::<Value>(),
    })
}
