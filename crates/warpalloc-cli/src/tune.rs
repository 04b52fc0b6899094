//! `warpalloc tune`: which cap on registers to give a kernel.
//!
//! Every step of occupancy below what the kernel takes is tried: the kernel is assembled with that
//! cap as it is, and as the chooser has it, and the machine code is judged against the kernel
//! without a cap; where there is a GPU and a launch, it is timed. Without a ptxas there is nothing to judge, and the allocators say what spills.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::anyhow;
use clap::Args;
use rayon::prelude::*;
use serde_json::{Value, json};
use warpalloc::Strategy;
use warpalloc::target::occupancy::{Launch, cliffs, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc_choose::judge::{Estimate, Setting, gathers};
use warpalloc_choose::{
    Assembly, Cache, Candidate, Measure, Ptxas, Request, WORTH_IT_MEASURED, choose,
};
use warpalloc_ptx::module::{
    ModuleOptions, Outcome, ReadModule, Treatment, allocate_module, with_module,
};
use warpalloc_ptx::{EntryFacts, ModuleFacts};

use crate::UsageError;
use crate::assembled::{Assembler, Judged};
use crate::best::MeasureArgs;
use crate::files::{self, Input};
use crate::kernels::{FIGURES, PtxasArgs, alone, for_figures, named_entries, texts, with_facts};
use crate::occupancy::caps_below;
use crate::output;
use crate::report::document;

/// A gain in estimated cycles that is smaller is within the error of the estimate.
const WORTH_IT: f64 = 0.97;

const EXAMPLES: &str = "\
Examples:
  warpalloc tune gemm.ptx --block 256              every step of occupancy, and which to take
  warpalloc tune gemm.ptx --block 256 -o best.ptx  write the kernel with the cap that is recommended
  warpalloc tune gemm.ptx --kernel k --sm 90 --json
  warpalloc tune ptx/ --block 256                  every kernel of a folder
  warpalloc tune gemm.ptx --measure launches.json  time every cap on the GPU of this machine

Cycles are estimated from the machine code, over those of the kernel without a cap: for a warp alone,
and on a full machine. They order caps and predict no time: measure the one that is recommended.";

/// What to tune.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TuneArgs {
    /// PTX files, or folders of them; `-` for standard input
    #[arg(required = true)]
    input: Vec<PathBuf>,
    /// The kernel; all where it is left out
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Threads per block, where the kernel does not say
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    block: Option<u32>,
    /// Blocks of a launch, where that is known
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..))]
    grid: Option<u32>,
    /// Bytes of dynamic shared memory per block
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    smem: u32,
    /// The machine, where it is not what the file says: 90, sm_90
    #[arg(long, value_name = "SM")]
    sm: Option<Sm>,
    /// Launches to time every cap with, on the GPU of this machine: a JSON file that gives each
    /// kernel a grid, a block and arguments (bench/gpu/README.md). A cap whose output differs in a
    /// bit is left out
    #[arg(long, value_name = "MANIFEST", conflicts_with_all = ["no_ptxas", "block", "grid", "smem"])]
    measure: Option<PathBuf>,
    /// The program that launches for --measure [default: `warpalloc-gpu`, beside this one or on
    /// the path]
    #[arg(long, value_name = "FILE", requires = "measure")]
    gpu_runner: Option<PathBuf>,
    /// Where to write the module with the kernel as recommended: PTX, or a cubin where the name
    /// ends in .cubin
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON, see docs/json.md
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ptxas: PtxasArgs,
}

/// Tunes kernels.
pub fn run(args: TuneArgs) -> anyhow::Result<()> {
    let texts = with_facts(texts(&args.input)?)?;
    let kernels = named_entries(&texts, args.kernel.as_deref())?;
    if args.output.is_some() && kernels.len() > 1 {
        let message = format!(
            "-o writes one kernel, and {} are tuned: --kernel names one",
            kernels.len()
        );
        return Err(UsageError(message).into());
    }
    let ptxas = args.ptxas.ptxas()?;
    let measure = args.measure.as_deref().map(|manifest| {
        let program = args.gpu_runner.as_deref();
        MeasureArgs { manifest, program }.read(ptxas.as_ref())
    });
    // Kernels that are timed at once would slow each other down.
    let measure = measure.transpose()?.map(Mutex::new);
    let tuned = kernels.par_iter().map(|(input, facts, entry)| {
        let tuner = Tuner::new(&args, ptxas.as_ref(), measure.as_ref(), input, facts, entry)?;
        let rows = tuner.rows()?;
        Ok((tuner, rows))
    });
    let tuned: anyhow::Result<Vec<(Tuner, Vec<Row>)>> = tuned.collect();
    let tuned = tuned?;
    let text = match args.json {
        true => {
            let values = tuned.iter().map(|(tuner, rows)| as_json(tuner, rows));
            format!("{:#}\n", document(values.collect(), "kernels"))
        }
        false => {
            let texts = tuned.iter().map(|(tuner, rows)| as_text(tuner, rows));
            texts.collect::<Vec<_>>().join("\n")
        }
    };
    output::print(&text)?;
    match (&args.output, &tuned[..]) {
        (Some(path), [(tuner, rows)]) => tuner.write(path, &rows[recommended(rows)]),
        _ => Ok(()),
    }
}

/// A kernel within a cap.
struct Row {
    /// `None` for the kernel as it is.
    cap: Option<u32>,
    registers: u32,
    warps: u32,
    /// Bytes of local memory per thread.
    frame: u64,
    /// Loads and stores of local memory in the code; without ptxas stores and reloads.
    local: Option<usize>,
    /// Who allocated it.
    by: String,
    /// Cycles over those of the kernel as it is, alone and full.
    cycles: Option<[f64; 2]>,
    /// Microseconds of a launch, where it was timed.
    time: Option<f64>,
    /// The machine code, where there is a ptxas.
    cubin: Vec<u8>,
    text: Text,
}

/// The module with the kernel of a row.
enum Text {
    Made(String),
    /// Allocated anew where it is wanted.
    By(Strategy),
}

impl Row {
    /// What caps are ordered by: time over that of another, else cycles.
    fn score(&self, other: &Row) -> Option<f64> {
        if let (Some(time), Some(of)) = (self.time, other.time) {
            return Some(time / of);
        }
        let [alone, full] = self.cycles?;
        Some((alone * full).sqrt())
    }

    /// Whether it takes no more spill code than another.
    fn is_free(&self, other: &Row) -> bool {
        self.frame <= other.frame && self.local <= other.local
    }
}

struct Tuner<'t> {
    input: &'t Input,
    /// The same without other kernels.
    alone: Input,
    entry: &'t EntryFacts,
    ptxas: Option<&'t Ptxas>,
    ptxas_options: &'t [String],
    arch: String,
    sm: Sm,
    block: u32,
    grid: Option<u32>,
    dynamic: u32,
    measure: Option<&'t Mutex<Measure>>,
    options: ModuleOptions,
}

impl<'t> Tuner<'t> {
    fn new(
        args: &'t TuneArgs,
        ptxas: Option<&'t Ptxas>,
        measure: Option<&'t Mutex<Measure>>,
        input: &'t Input,
        facts: &ModuleFacts,
        entry: &'t EntryFacts,
    ) -> anyhow::Result<Tuner<'t>> {
        let declared = facts.arch.clone().unwrap_or_else(|| "sm_75".to_owned());
        let arch = args.sm.map_or(declared, |sm| sm.to_string());
        let sm: Sm = arch.parse()?;
        let shape = match measure {
            Some(measure) => Some(locked(measure).shape(&entry.name)?),
            None => None,
        };
        let block = shape.map(|shape| shape.block).or(args.block);
        let threads = block.or(entry.block_threads).ok_or_else(|| {
            UsageError(format!(
                "`{}` does not say how many threads its blocks have: --block N does",
                entry.name
            ))
        })?;
        Ok(Tuner {
            input,
            alone: alone(input, facts, entry),
            entry,
            ptxas,
            ptxas_options: args.ptxas.options(),
            arch,
            sm,
            block: threads,
            grid: shape.map(|shape| shape.grid).or(args.grid),
            dynamic: shape.map_or(args.smem, |shape| shape.dynamic_shared),
            measure,
            options: ModuleOptions {
                sm: args.sm.map(|sm| sm.number()),
                block,
                entries: vec![entry.name.clone()],
                ..ModuleOptions::default()
            },
        })
    }

    fn shared_bytes(&self) -> u32 {
        self.with_dynamic(self.entry.shared_bytes)
    }

    fn with_dynamic(&self, own: u64) -> u32 {
        let own = u32::try_from(own).unwrap_or(u32::MAX);
        own.saturating_add(self.dynamic)
    }

    fn warps(&self, registers_per_thread: u32, shared_bytes: u32) -> u32 {
        let launch = Launch {
            registers_per_thread: registers_per_thread.max(1),
            block_threads: self.block,
            shared_bytes,
        };
        occupancy(self.sm, &launch).map_or(0, |answer| answer.warps)
    }

    /// The kernel as it is, then within each cap, from the highest on.
    fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let rows = match self.ptxas {
            Some(ptxas) => self.rows_with(ptxas)?,
            None => {
                let options = self.figures(None, FIGURES);
                let rows = with_module(&self.alone.text, &options, |module| self.rows_of(module));
                rows.map_err(|error| self.input.explain(error))??
            }
        };
        match self.measure {
            Some(measure) => self.timed(&locked(measure), rows),
            None => Ok(rows),
        }
    }

    fn caps(&self, first: &Row) -> anyhow::Result<Vec<u32>> {
        let steps = cliffs(self.sm, self.block, self.shared_bytes())?;
        Ok(caps_below(&steps, first.registers))
    }

    /// The rows that ptxas and the chooser make.
    fn rows_with(&self, ptxas: &Ptxas) -> anyhow::Result<Vec<Row>> {
        let (first, base) = self.original(ptxas)?;
        let caps = self.caps(&first)?;
        let within = caps.par_iter();
        let within = within.map(|&cap| self.within(ptxas, cap, base.as_ref()));
        let within: Vec<Vec<Row>> = within.collect::<anyhow::Result<_>>()?;
        let within = within.into_iter().flatten();
        Ok([first].into_iter().chain(within).collect())
    }

    /// The rows that our allocators make.
    fn rows_of(&self, module: &ReadModule) -> anyhow::Result<Vec<Row>> {
        let first = self.allocated(module, None, FIGURES)?.ok_or_else(|| {
            anyhow!(
                "{}: `{}` is not understood, and there is no ptxas",
                self.input.name,
                self.entry.name
            )
        })?;
        let caps = self.caps(&first)?;
        let within = self.allocated_within(module, &caps, &first)?;
        let within = within.into_iter().flatten();
        Ok([first].into_iter().chain(within).collect())
    }

    /// Rows with their times. The kernel without a cap says what the output is, and takes turns with the
    /// others.
    fn timed(&self, measure: &Measure, rows: Vec<Row>) -> anyhow::Result<Vec<Row>> {
        let cubins: Vec<&[u8]> = rows.iter().map(|row| row.cubin.as_slice()).collect();
        let times = measure.times(&self.entry.name, cubins[0], &cubins)?;
        let mut timed = Vec::new();
        for (row, time) in rows.into_iter().zip(times) {
            match time {
                Ok(time) => timed.push(Row {
                    time: Some(time),
                    ..row
                }),
                Err(reason) if timed.is_empty() => {
                    return Err(anyhow!(
                        "{}: `{}` without a cap: {reason}",
                        self.input.name,
                        self.entry.name
                    ));
                }
                Err(reason) => output::warning(&format!(
                    "{}: `{}` within a cap of {} by {}: {reason}",
                    self.input.name,
                    self.entry.name,
                    told(&row),
                    row.by
                )),
            }
        }
        Ok(timed)
    }

    /// The kernel within caps, from the highest on. Below one that takes spill code, which may be the kernel
    /// as it is, no cap does without: none is recommended, and what they take is for the quick allocator to
    /// say.
    fn allocated_within(
        &self,
        module: &ReadModule,
        caps: &[u32],
        first: &Row,
    ) -> anyhow::Result<Vec<Option<Row>>> {
        let mut rows = Vec::new();
        let near = caps.iter().filter(|_| first.local == Some(0));
        for &cap in near {
            let row = self.allocated(module, Some(cap), FIGURES)?;
            let is_free = row.as_ref().is_none_or(|row| row.is_free(first));
            rows.push(row);
            if !is_free {
                break;
            }
        }
        let rest = caps[rows.len()..].par_iter();
        let rest = rest.map(
            |&cap| match self.allocated(module, Some(cap), Strategy::Scan)? {
                None => self.allocated(module, Some(cap), FIGURES),
                row => Ok(row),
            },
        );
        let rest: anyhow::Result<Vec<Option<Row>>> = rest.collect();
        rows.extend(rest?);
        Ok(rows)
    }

    fn original(&self, ptxas: &Ptxas) -> anyhow::Result<(Row, Option<Estimate>)> {
        let text = &self.input.text;
        let judged = self.judged(ptxas, text)?;
        let row = self.row(
            None,
            &judged,
            "ptxas".to_owned(),
            judged.estimate.map(|_| [1.0, 1.0]),
            text,
        );
        Ok((row, judged.estimate))
    }

    /// What a text is assembled to.
    fn judged(&self, ptxas: &Ptxas, text: &str) -> anyhow::Result<Judged> {
        let assembler = Assembler {
            file: &self.input.name,
            entry: &self.entry.name,
            ptxas,
            options: self.ptxas_options,
            arch: &self.arch,
            contraction: self.options.contraction,
            setting: Setting {
                block_threads: Some(self.block),
                blocks: self.grid,
                dynamic_shared: self.dynamic,
                gathers: gathers(&self.input.text, &self.entry.name),
            },
        };
        assembler.judged(text)
    }

    fn row(
        &self,
        cap: Option<u32>,
        judged: &Judged,
        by: String,
        cycles: Option<[f64; 2]>,
        text: &str,
    ) -> Row {
        Row {
            cap,
            registers: judged.registers,
            warps: self.warps(judged.registers, self.with_dynamic(judged.shared)),
            frame: judged.frame,
            local: judged.local,
            by,
            cycles,
            time: None,
            cubin: judged.cubin.clone(),
            text: Text::Made(text.to_owned()),
        }
    }

    /// The kernel within a cap, as it is or as the chooser has it, whichever is expected to be better; where
    /// they are timed, both. None where ptxas refuses the cap, as an instruction does not fit into it.
    fn within(&self, ptxas: &Ptxas, cap: u32, base: Option<&Estimate>) -> anyhow::Result<Vec<Row>> {
        let options = ModuleOptions {
            maxnreg: Some(cap),
            dynamic_shared: self.dynamic,
            ..self.options.clone()
        };
        let cache = Cache::of_user();
        let request = Request {
            source: &self.input.text,
            options: &options,
            ptxas: Some(ptxas),
            grid: self.grid,
            dynamic_shared: self.measure.map(|_| self.dynamic),
            machine_code: false,
            uncapped: false,
            measure: None,
            cache: cache.as_ref(),
        };
        let choice = choose(request, None).map_err(|error| match error {
            warpalloc_choose::ChooseError::Ptx(error) => self.input.explain(error),
            other => anyhow!(other),
        })?;
        let own = choice
            .kernels
            .iter()
            .find(|own| own.name == self.entry.name);
        let chosen = own.map_or(Candidate::Original, |own| own.chosen);
        let mut texts = Vec::new();
        if chosen == Candidate::Original || self.measure.is_some() {
            texts.push(("ptxas".to_owned(), self.left(&options)?));
        }
        if chosen != Candidate::Original {
            texts.push((chosen.to_string(), choice.result.text));
        }
        let rows = texts.into_iter().filter_map(|(by, text)| {
            let judged = self.judged(ptxas, &text).ok()?;
            let cycles = base
                .zip(judged.estimate.as_ref())
                .map(|(base, own)| own.over(base));
            Some(self.row(Some(cap), &judged, by, cycles, &text))
        });
        Ok(rows.collect())
    }

    /// The module with nothing but the cap.
    fn left(&self, options: &ModuleOptions) -> anyhow::Result<String> {
        let options = ModuleOptions {
            treatment: Treatment::Leave,
            ..options.clone()
        };
        let result = allocate_module(&self.input.text, &options, None);
        Ok(result.map_err(|error| self.input.explain(error))?.text)
    }

    fn figures(&self, cap: Option<u32>, strategy: Strategy) -> ModuleOptions {
        let mut options = for_figures(&ModuleOptions {
            maxnreg: cap,
            ..self.options.clone()
        });
        options.options.strategy = strategy;
        options
    }

    /// What an allocator does within a cap; `None` where it does not.
    fn allocated(
        &self,
        module: &ReadModule,
        cap: Option<u32>,
        strategy: Strategy,
    ) -> anyhow::Result<Option<Row>> {
        let result = module.allocate(self.figures(cap, strategy).maxnreg, strategy);
        let result = result.map_err(|error| self.input.explain(error))?;
        let own = result.functions.iter().find(|f| f.name == self.entry.name);
        let Some(Outcome::Allocated(allocated)) = own.map(|function| &function.outcome) else {
            return Ok(None);
        };
        let edits = &allocated.stats.edits;
        Ok(Some(Row {
            cap,
            registers: allocated.registers,
            warps: self.warps(cap.unwrap_or(allocated.registers), self.shared_bytes()),
            frame: self.entry.local_bytes + u64::from(allocated.frame.local),
            local: Some((edits.stores + edits.reloads) as usize),
            by: strategy.name().to_owned(),
            cycles: None,
            time: None,
            cubin: Vec::new(),
            text: Text::By(strategy),
        }))
    }

    /// Writes the module with the kernel of a row.
    fn write(&self, path: &std::path::Path, row: &Row) -> anyhow::Result<()> {
        let anew;
        let text = match (row.cap, &row.text) {
            (None, _) => &self.input.text,
            (_, Text::Made(text)) => text,
            (_, Text::By(strategy)) => {
                let options = self.figures(row.cap, *strategy);
                let result = allocate_module(&self.input.text, &options, None);
                anew = result.map_err(|error| self.input.explain(error))?.text;
                &anew
            }
        };
        if path.extension().is_none_or(|ending| ending != "cubin") {
            return files::write(path, text);
        }
        let ptxas = self.ptxas.ok_or_else(|| {
            UsageError("a cubin is written by ptxas: --ptxas FILE names one".to_owned())
        })?;
        let assembly = Assembly {
            text,
            arch: &self.arch,
            entry: None,
            contraction: self.options.contraction,
        };
        files::write(
            path,
            ptxas.assemble_with(assembly, self.ptxas_options)?.cubin,
        )
    }
}

/// A lock that a panic elsewhere does not take away.
fn locked(measure: &Mutex<Measure>) -> MutexGuard<'_, Measure> {
    measure.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The row to take: the least time, or the least estimated cycles, where that is worth it; without estimates the most
/// warps among those that spill no more than the kernel as it is.
fn recommended(rows: &[Row]) -> usize {
    let first = &rows[0];
    if first.score(first).is_some() {
        let scores = rows
            .iter()
            .enumerate()
            .filter_map(|(at, row)| Some((at, row.score(first)?)));
        let best = scores.min_by(|a, b| a.1.total_cmp(&b.1));
        let worth_it = first.time.map_or(WORTH_IT, |_| WORTH_IT_MEASURED);
        return best
            .filter(|(_, score)| *score < worth_it)
            .map_or(0, |(at, _)| at);
    }
    let free = rows.iter().filter(|row| row.is_free(first));
    let most = free.map(|row| row.warps).max().unwrap_or(first.warps);
    let is_best = |row: &Row| row.warps == most && row.is_free(first);
    rows.iter().position(is_best).unwrap_or(0)
}

/// Why a row is recommended.
fn reason(rows: &[Row], best: usize) -> String {
    let (first, row) = (&rows[0], &rows[best]);
    let warps = format!("{} warps instead of {}", row.warps, first.warps);
    if let (Some(time), Some(of)) = (row.time, first.time) {
        return match best {
            0 => format!(
                "no cap is faster by more than {:.0} %",
                100.0 * (1.0 - WORTH_IT_MEASURED)
            ),
            _ => format!("{warps}; {:.2} of the time, measured", time / of),
        };
    }
    match (best, row.cycles) {
        (0, Some(_)) if rows.len() == 1 => {
            "no step of occupancy is within reach of a cap".to_owned()
        }
        (0, Some(_)) => "no cap is expected to be faster".to_owned(),
        (0, None) => "every cap that holds more warps spills".to_owned(),
        (_, Some([alone, full])) => format!(
            "{warps}; {full:.2} of the cycles on a full machine, {alone:.2} for a warp alone"
        ),
        (_, None) => format!("{warps}, and no spill code more"),
    }
}

fn told(row: &Row) -> String {
    row.cap.map_or("none".to_owned(), |cap| cap.to_string())
}

fn as_text(tuner: &Tuner, rows: &[Row]) -> String {
    let best = recommended(rows);
    let mut out = format!(
        "{}:{}: `{}` for {}, {} threads and {} bytes of shared memory per block\n",
        tuner.input.name,
        tuner.entry.line,
        tuner.entry.name,
        tuner.arch,
        tuner.block,
        tuner.shared_bytes()
    );
    let is_timed = rows[0].time.is_some();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "  {:>4} {:>5} {:>6} {:>6} {:>7} {:>6} {:>6}{}  by",
        "cap",
        "regs",
        "warps",
        "frame",
        "local",
        "alone",
        "full",
        if is_timed { "       us" } else { "" }
    );
    for (at, row) in rows.iter().enumerate() {
        let known = |value: Option<usize>| value.map_or("-".to_owned(), |v| v.to_string());
        let cycles = |which: usize| {
            row.cycles
                .map_or("-".to_owned(), |c| format!("{:.2}", c[which]))
        };
        let mark = if at == best { '>' } else { ' ' };
        let _ = writeln!(
            out,
            "{mark} {:>4} {:>5} {:>6} {:>6} {:>7} {:>6} {:>6}{}  {}",
            told(row),
            row.registers,
            row.warps,
            row.frame,
            known(row.local),
            cycles(0),
            cycles(1),
            row.time
                .map_or(String::new(), |time| format!(" {time:>8.1}")),
            row.by
        );
    }
    let cap = match rows[best].cap {
        Some(cap) => format!("a cap of {cap}"),
        None => "no cap".to_owned(),
    };
    let _ = writeln!(out, "recommended: {cap}: {}", reason(rows, best));
    out
}

fn as_json(tuner: &Tuner, rows: &[Row]) -> Value {
    let best = recommended(rows);
    let values = rows.iter().map(|row| {
        json!({
            "cap": row.cap,
            "registers": row.registers,
            "warps": row.warps,
            "frame_bytes": row.frame,
            "local_accesses": row.local,
            "by": row.by,
            "microseconds": row.time,
            "cycles": row.cycles.map(|[alone, full]| json!({ "alone": alone, "full": full })),
        })
    });
    json!({
        "file": tuner.input.name,
        "name": tuner.entry.name,
        "arch": tuner.arch,
        "block": tuner.block,
        "shared_bytes": tuner.shared_bytes(),
        "caps": values.collect::<Value>(),
        "recommended": { "cap": rows[best].cap, "by": rows[best].by, "reason": reason(rows, best) },
    })
}
