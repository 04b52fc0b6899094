//! `warpalloc explain`: what is live where registers are scarcest, and what would help.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use warpalloc::target::occupancy::{Launch, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc_ptx::module::{Allocated, ModuleOptions, Outcome, allocate_module};
use warpalloc_ptx::{
    Decision, EntryFacts, FunctionValues, LEAST_CAP, LiveValue, TextPlace, entry_facts,
    function_values,
};

use crate::assembler::Assembler;
use crate::files::Input;
use crate::kernels::{PtxasArgs, named_entry};
use crate::output::{self, counted};
use crate::report::SCHEMA;
use crate::{UsageError, alloc};

const EXAMPLES: &str = "\
Examples:
  warpalloc explain gemm.ptx                       what is live at the peak, and what would help
  warpalloc explain gemm.ptx --line 88             what is live before line 88
  warpalloc explain gemm.ptx --value %r12          one value: where it is live, with whom, its cost
  warpalloc explain gemm.ptx --value %r12 --maxnreg 64
                                                   and what becomes of it within 64 registers
  warpalloc explain gemm.ptx --kernel k --block 256 --json

Cycles are of one run of the kernel, by how often the shape of its loops makes a line run. What
would help is printed only where it was tried on this kernel.";

/// What to explain.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// The PTX file; `-` for standard input
    input: PathBuf,
    /// The kernel or function; may be left out where there is one only
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

/// Explains a kernel.
pub fn run(args: ExplainArgs) -> anyhow::Result<()> {
    let input = Input::read(&args.input)?;
    let facts = entry_facts(&input.text).map_err(|error| input.explain(error))?;
    let name = match (
        named_entry(&facts, &input.name, args.kernel.as_deref()),
        &args.kernel,
    ) {
        (Ok(entry), _) => entry.name.clone(),
        // Device functions are found by the name in the text.
        (Err(_), Some(name)) => name.clone(),
        (Err(error), None) => return Err(error.into()),
    };
    let options = ModuleOptions {
        maxnreg: args.maxnreg,
        sm: args.sm.map(|sm| sm.number()),
        block: args.block,
        ..ModuleOptions::default()
    };
    let values = function_values(&input.text, &name, &options);
    let values = values.map_err(|error| input.explain(error))?;
    let values = values.map_err(|passed| {
        let error = warpalloc_ptx::ParseError::new(
            passed.span,
            format!("`{name}` is not understood: {}", passed.reason),
        );
        anyhow::anyhow!(error.render(&input.name, &input.text))
    })?;
    let (shown, suggestions) = match (&args.value, args.line) {
        (Some(register), _) => (Shown::Value(of_register(&values, register)?), Vec::new()),
        (None, Some(line)) => (Shown::Live(at_line(&values, &input, line)?), Vec::new()),
        (None, None) => {
            let suggestions = suggestions(&args, &input, &name, &options)?;
            (Shown::Live(values.live_at_peak()), suggestions)
        }
    };
    let text = match args.json {
        true => format!("{:#}\n", as_json(&input, &values, &shown, &suggestions)),
        false => as_text(&args, &input, &values, &shown, &suggestions),
    };
    output::print(&text)
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

/// Something that was tried on the kernel, and what came of it.
struct Suggestion {
    what: String,
    /// Registers before and after.
    registers: (u32, u32),
    /// What else it changes.
    effect: String,
}

/// Tries what may help and keeps what did.
fn suggestions(
    args: &ExplainArgs,
    input: &Input,
    name: &str,
    options: &ModuleOptions,
) -> anyhow::Result<Vec<Suggestion>> {
    let facts = entry_facts(&input.text).map_err(|error| input.explain(error))?;
    let Some(entry) = facts.entries.iter().find(|entry| entry.name == name) else {
        return Ok(Vec::new());
    };
    let trial = Trial {
        input,
        entry,
        assembler: args.ptxas.assembler()?,
        ptxas_options: args.ptxas.options(),
        arch: match args.sm {
            Some(sm) => sm.to_string(),
            None => facts.arch.clone().unwrap_or_else(|| "sm_75".to_owned()),
        },
        block: args.block.or(entry.block_threads),
        options: ModuleOptions {
            maxnreg: None,
            entries: vec![name.to_owned()],
            ..options.clone()
        },
    };
    let Some(before) = trial.registers(&input.text)? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    found.extend(trial.promotion(before)?);
    found.extend(trial.caps(before)?);
    Ok(found)
}

/// A kernel and who is asked what it takes.
struct Trial<'t> {
    input: &'t Input,
    entry: &'t EntryFacts,
    assembler: Option<Assembler>,
    ptxas_options: &'t [String],
    arch: String,
    block: Option<u32>,
    options: ModuleOptions,
}

/// What a text takes.
#[derive(Clone, Copy)]
struct Taken {
    registers: u32,
    /// Bytes of local memory.
    frame: u32,
}

impl Trial<'_> {
    /// What ptxas makes of a text; without one, what the allocator does.
    fn registers(&self, text: &str) -> anyhow::Result<Option<Taken>> {
        let Some(assembler) = &self.assembler else {
            let made = self.allocated(&self.options)?;
            return Ok(made.map(|(allocated, _)| self.taken(&allocated)));
        };
        let made = assembler.assemble(&self.input.name, text, &self.arch, self.ptxas_options)?;
        let cubin = warpalloc_sass::object::Cubin::read(&made.cubin)?;
        let function = cubin.functions.iter().find(|f| f.name == self.entry.name);
        Ok(function.and_then(|function| {
            Some(Taken {
                registers: function.registers?,
                frame: function.stack_bytes?,
            })
        }))
    }

    fn taken(&self, allocated: &Allocated) -> Taken {
        let local = u32::try_from(self.entry.local_bytes).unwrap_or(u32::MAX);
        Taken {
            registers: allocated.registers,
            frame: local.saturating_add(allocated.frame.local),
        }
    }

    /// The kernel allocated so, and the text; `None` where it is not.
    fn allocated(&self, options: &ModuleOptions) -> anyhow::Result<Option<(Allocated, String)>> {
        let result = allocate_module(&self.input.text, options, None);
        let result = result.map_err(|error| self.input.explain(error))?;
        let own = result
            .functions
            .into_iter()
            .find(|f| f.name == self.entry.name);
        Ok(match own.map(|function| function.outcome) {
            Some(Outcome::Allocated(allocated)) => Some((*allocated, result.text)),
            _ => None,
        })
    }

    /// Local variables in registers.
    fn promotion(&self, before: Taken) -> anyhow::Result<Option<Suggestion>> {
        if self.entry.local_bytes == 0 {
            return Ok(None);
        }
        let options = ModuleOptions {
            promote_local: true,
            ..self.options.clone()
        };
        let result = allocate_module(&self.input.text, &options, None);
        let result = result.map_err(|error| self.input.explain(error))?;
        let promoted = result.promoted.as_ref();
        let bytes = promoted.map_or(0, |p| p.variables.iter().map(|v| v.bytes).sum());
        let own = result.functions.iter().find(|f| f.name == self.entry.name);
        let Some(Outcome::Allocated(allocated)) = own.map(|function| &function.outcome) else {
            return Ok(None);
        };
        let after = match &self.assembler {
            Some(_) => self.registers(&result.text)?,
            None => Some(Taken {
                frame: self.taken(allocated).frame.saturating_sub(bytes as u32),
                ..self.taken(allocated)
            }),
        };
        let after = after.filter(|after| after.frame < before.frame);
        Ok(after.map(|after| Suggestion {
            what: "keep its local arrays in registers: `warpalloc alloc --promote-local`"
                .to_owned(),
            registers: (before.registers, after.registers),
            effect: format!("local memory {} -> {} bytes", before.frame, after.frame),
        }))
    }

    /// The next steps of occupancy that are reached without spill code.
    fn caps(&self, before: Taken) -> anyhow::Result<Vec<Suggestion>> {
        let (Some(block), Ok(sm)) = (self.block, self.arch.parse::<Sm>()) else {
            return Ok(Vec::new());
        };
        let shared_bytes = u32::try_from(self.entry.shared_bytes).unwrap_or(u32::MAX);
        let resident = |registers_per_thread: u32| {
            let launch = Launch {
                registers_per_thread: registers_per_thread.max(1),
                block_threads: block,
                shared_bytes,
            };
            occupancy(sm, &launch).ok()
        };
        let mut found = Vec::new();
        let mut at = before.registers;
        let most = resident(before.registers).map_or(0, |o| o.warps);
        while let Some(step) = resident(at).and_then(|o| o.next_higher) {
            let cap = step.last_registers;
            if cap < LEAST_CAP {
                break;
            }
            let options = ModuleOptions {
                maxnreg: Some(cap),
                ..self.options.clone()
            };
            let Some((allocated, text)) = self.allocated(&options)? else {
                break;
            };
            if allocated.frame.local + allocated.frame.shared > 0 {
                break;
            }
            let after = match &self.assembler {
                Some(_) => self.registers(&text)?,
                None => Some(self.taken(&allocated)),
            };
            let Some(after) = after.filter(|a| a.frame <= before.frame && a.registers <= cap)
            else {
                break;
            };
            let again = match allocated.stats.rematerialised {
                0 => String::new(),
                count => format!(", {} computed again", counted(count as usize, "value")),
            };
            found.push(Suggestion {
                what: format!(
                    "cap it at {cap}: `__launch_bounds__({block}, {})`, or `warpalloc alloc --maxnreg {cap}`",
                    step.blocks
                ),
                registers: (before.registers, after.registers),
                effect: format!("warps {most} -> {}, no spill code{again}", step.warps),
            });
            at = cap;
        }
        Ok(found)
    }
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
    if !suggestions.is_empty() {
        out += "what would help, each tried on this kernel:\n";
    }
    for suggestion in suggestions {
        let (was, is) = suggestion.registers;
        let _ = writeln!(
            out,
            "  {}\n    registers {was} -> {is}, {}",
            suggestion.what, suggestion.effect
        );
    }
    out
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
    let suggestions = suggestions.iter().map(|s| {
        json!({
            "what": s.what,
            "registers": [s.registers.0, s.registers.1],
            "effect": s.effect,
        })
    });
    json!({
        "schema": SCHEMA,
        "file": input.name,
        "name": values.name,
        "line": values.line,
        "peak": values.peak,
        "peak_at": values.peak_at.as_ref().map(place),
        "values": shown.iter().map(value).collect::<Value>(),
        "suggestions": suggestions.collect::<Value>(),
    })
}
