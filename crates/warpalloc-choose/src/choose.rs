//! What is chosen for each kernel of a module, and the module with it.

use std::sync::OnceLock;

use rayon::prelude::*;
use warpalloc::Strategy;
use warpalloc::allocation::Space;
use warpalloc_ptx::ast::{Function, Item, Linkage, Module, VarDecl};
use warpalloc_ptx::module::{
    FunctionReport, ModuleOptions, ModuleResult, Outcome, Progress, PtxError, Treatment,
    allocate_module,
};
use warpalloc_ptx::{Edits, Slices};
use warpalloc_sass::allocate::{AllocateError, AllocateOptions, allocate_kernel};
use warpalloc_sass::spills::{self, spills_to_shared};

use crate::cache::Cache;
use crate::candidate::Candidate;
use crate::contest::{Chosen, Contest};
use crate::measure::{Measure, MeasureError};
use crate::ptxas::{Assembly, Ptxas, PtxasError};

/// The most threads that are started, whatever the caller asks for.
const MOST_THREADS: usize = 256;

/// What to choose for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The module.
    pub source: &'a str,
    /// Cap, launch bounds, functions and the like. Who allocates, with which margin, and where
    /// spilled values go is chosen.
    pub options: &'a ModuleOptions,
    /// The assembler; without it texts are compared.
    pub ptxas: Option<&'a Ptxas>,
    /// Blocks of a launch, where that is known.
    pub grid: Option<u32>,
    /// Dynamic shared memory of a launch in bytes, where that is known.
    pub dynamic_shared: Option<u32>,
    /// Whether the result is machine code ([`assemble`]), so that what ptxas makes may be
    /// rewritten.
    pub machine_code: bool,
    /// Whether that may begin with what ptxas makes without the cap: the text of such a choice has
    /// no cap, and only what [`assemble`] makes of it keeps it.
    pub uncapped: bool,
    /// Launches to time candidates with, on the GPU of this machine. They say what blocks, grid
    /// and dynamic shared memory are.
    pub measure: Option<&'a Measure>,
    /// Where choices are kept that were not measured.
    pub cache: Option<&'a Cache>,
}

/// A candidate and what came of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Which.
    pub candidate: Candidate,
    /// Its cycles over the original's where one warp runs alone and where the machine is full
    /// (twice the same where the launch is known), or why it is out of the question.
    pub ratios: Result<[f64; 2], String>,
}

impl Judged {
    /// What candidates are ordered by.
    pub fn score(&self) -> Option<f64> {
        let [alone, full] = *self.ratios.as_ref().ok()?;
        Some((alone * full).sqrt())
    }

    /// Expects it to take no longer than `other`.
    pub(crate) fn at_most(&mut self, other: &Judged) {
        if let (Ok(own), Ok(others)) = (&mut self.ratios, &other.ratios) {
            for (own, other) in own.iter_mut().zip(others) {
                *own = own.min(*other);
            }
        }
    }

    pub(crate) fn is_better(&self, worth_it: f64) -> bool {
        let never_worse = |ratios: &[f64; 2]| ratios.iter().all(|&ratio| ratio <= 1.0);
        self.ratios.as_ref().is_ok_and(never_worse) && self.score().is_some_and(|s| s < worth_it)
    }
}

/// What was chosen for one kernel.
#[derive(Clone, Debug)]
pub struct KernelChoice {
    /// The kernel.
    pub name: String,
    /// What it is allocated by.
    pub chosen: Candidate,
    /// Why.
    pub reason: String,
    /// Everything that was compared, in the order it was tried.
    pub candidates: Vec<Judged>,
}

/// A module with the best that was found for each kernel.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The text, and a report per function.
    pub result: ModuleResult,
    /// One per kernel that was asked for.
    pub kernels: Vec<KernelChoice>,
}

/// Why nothing could be chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChooseError {
    /// The module is at fault.
    #[error(transparent)]
    Ptx(#[from] PtxError),
    /// ptxas cannot be run.
    #[error(transparent)]
    Ptxas(#[from] PtxasError),
    /// Machine code was asked for, and there is no ptxas to make it.
    #[error("machine code needs ptxas: --ptxas names one")]
    NoPtxas,
    /// Candidates cannot be timed.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// Spills that could be moved in a kernel alone cannot in the whole module.
    #[error("`{kernel}`: {refusal}")]
    Moved {
        /// The kernel.
        kernel: String,
        /// Why.
        refusal: spills::Refusal,
    },
    /// Machine code that could be allocated for a kernel alone cannot in the whole module.
    #[error("`{kernel}`: {error}")]
    Spilled {
        /// The kernel.
        kernel: String,
        /// Why.
        error: Box<AllocateError>,
    },
}

impl Request<'_> {
    pub(crate) fn move_options(&self, facts: &Facts, all: bool) -> spills::Options {
        let mut options = spills::Options::default();
        options.block = self.options.block;
        // A module without such memory has no use for what a launch gives it.
        let none = (!facts.sized_at_launch).then_some(0);
        options.dynamic_shared = self.dynamic_shared.or(none);
        options.force = all;
        options.partial = !all;
        options
    }

    /// How machine code without a cap is allocated for the cap, where that is a number.
    pub(crate) fn spill_options(&self, facts: &Facts) -> Option<AllocateOptions> {
        let cap = self.options.maxnreg;
        let cap = cap.filter(|_| self.options.occupancy_target.is_none())?;
        let mut options = AllocateOptions::new(cap);
        options.strategy = Strategy::Briggs;
        options.space = Space::Shared;
        options.launch = self.move_options(facts, true);
        Some(options)
    }
}

/// The machine code of a choice.
pub fn assemble(request: Request, choice: &Choice) -> Result<Vec<u8>, ChooseError> {
    let ptxas = request.ptxas.ok_or(ChooseError::NoPtxas)?;
    let cache = request.cache.filter(|_| request.measure.is_none());
    if let Some(cubin) = cache.and_then(|cache| cache.cubin(&request, choice)) {
        return Ok(cubin);
    }
    let module = parse(request.source)?;
    let facts = Facts::of(&module, request.options);
    let mut cubin = ptxas.assemble(Assembly {
        text: &choice.result.text,
        arch: &facts.arch,
        entry: None,
        contraction: request.options.contraction,
    })?;
    for kernel in &choice.kernels {
        if let Some(all) = kernel.chosen.moves() {
            let moved = launched(request, &kernel.name, |request| {
                let options = request.move_options(&facts, all);
                spills_to_shared(&cubin, &kernel.name, &options).map_err(|refusal| {
                    ChooseError::Moved {
                        kernel: kernel.name.clone(),
                        refusal,
                    }
                })
            })?;
            cubin = moved.bytes;
        }
        if kernel.chosen == Candidate::Spilled {
            let spilled = launched(request, &kernel.name, |request| {
                let Some(options) = request.spill_options(&facts) else {
                    return Ok(None);
                };
                let spilled = allocate_kernel(&cubin, &kernel.name, &options);
                spilled
                    .map(|s| s.bytes)
                    .map_err(|error| ChooseError::Spilled {
                        kernel: kernel.name.clone(),
                        error: Box::new(error),
                    })
            })?;
            cubin = spilled.unwrap_or(cubin);
        }
    }
    if let Some(cache) = cache {
        cache.put_cubin(&request, choice, &cubin);
    }
    Ok(cubin)
}

/// Chooses for each kernel of a module.
///
/// `progress` is told how many kernels are done.
pub fn choose(request: Request, progress: Option<Progress>) -> Result<Choice, ChooseError> {
    let cache = request.cache.filter(|_| request.measure.is_none());
    if let Some(kept) = cache.and_then(|cache| cache.get(&request)) {
        return Ok(kept);
    }
    let module = parse(request.source)?;
    let wanted = wanted_functions(&module, request.options)?;
    let facts = Facts::of(&module, request.options);
    let slices = Slices::new(&module);
    let chosen = choose_all(request, &wanted, &facts, &slices, progress)?;
    let (kernels, made): (Vec<_>, Vec<_>) = chosen.into_iter().unzip();
    let result = joined(request, &wanted, &kernels, made)?;
    let choice = Choice { result, kernels };
    if let Some(cache) = cache {
        cache.put(&request, &choice);
    }
    Ok(choice)
}

fn choose_all(
    request: Request,
    wanted: &[Wanted],
    facts: &Facts,
    slices: &Slices,
    progress: Option<Progress>,
) -> Result<Vec<(KernelChoice, Option<Made>)>, ChooseError> {
    let work = || choose_each(request, wanted, facts, slices, progress);
    match request.options.jobs {
        Some(jobs) => rayon::ThreadPoolBuilder::new()
            // More threads than functions have nothing to do.
            .num_threads(jobs.clamp(1, wanted.len().clamp(1, MOST_THREADS)))
            .build()
            .map_err(PtxError::from)?
            .install(work),
        None => work(),
    }
}

/// What was made of one kernel.
struct Made {
    text: String,
    report: FunctionReport,
}

impl Made {
    /// The part of a module that is the kernel's.
    fn of(result: ModuleResult, kernel: &str) -> Result<Option<Made>, PtxError> {
        let module = parse(&result.text)?;
        let text = defined(&module, kernel).map(|function| function.span.text(&result.text));
        let mut reports = result.functions.into_iter();
        let report = reports.find(|report| report.name == kernel);
        let made = text.zip(report).map(|(text, report)| Made {
            text: text.to_owned(),
            report,
        });
        Ok(made)
    }
}

/// A function with a body.
struct Wanted {
    name: String,
    is_entry: bool,
}

fn wanted_functions(module: &Module, options: &ModuleOptions) -> Result<Vec<Wanted>, PtxError> {
    let defined = || module.functions().filter(|f| f.body.is_some());
    for name in &options.entries {
        if !defined().any(|f| f.name.text == name) {
            return Err(PtxError::NoSuchFunction(name.clone()));
        }
    }
    let names = &options.entries;
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let wanted = defined().filter(|f| is_wanted(f.name.text));
    let named = wanted.map(|f| Wanted {
        name: f.name.text.to_owned(),
        is_entry: f.is_entry,
    });
    Ok(named.collect())
}

/// What a module says of all its kernels.
pub(crate) struct Facts {
    /// What to assemble for.
    pub(crate) arch: String,
    /// Whether launches say how much shared memory there is.
    pub(crate) sized_at_launch: bool,
    /// The functions that bound the threads of their blocks.
    bounded: Vec<String>,
}

impl Facts {
    pub(crate) fn of(module: &Module, options: &ModuleOptions) -> Facts {
        let is_bounded = |function: &&Function| {
            let bounds = ["maxntid", "reqntid"];
            let mut directives = function.directives.iter();
            directives.any(|directive| bounds.contains(&directive.keyword))
        };
        let bounded = module.functions().filter(is_bounded);
        Facts {
            arch: architecture(module, options),
            sized_at_launch: module.items.iter().any(is_dynamic_shared),
            bounded: bounded.map(|f| f.name.text.to_owned()).collect(),
        }
    }

    /// Whether a kernel says how many threads its blocks have.
    pub(crate) fn bounded(&self, kernel: &str) -> bool {
        self.bounded.iter().any(|name| name == kernel)
    }
}

fn is_dynamic_shared(item: &Item) -> bool {
    let is_extern = |var: &VarDecl| var.linkage == Linkage::Extern;
    matches!(item, Item::Var(var) if var.space.starts_with("shared") && is_extern(var))
}

/// What ptxas is to assemble for: the caller's machine, or the module's.
fn architecture(module: &Module, options: &ModuleOptions) -> String {
    let declared = module
        .target
        .iter()
        .find(|target| target.starts_with("sm_"));
    match (options.sm, declared) {
        (Some(sm), Some(declared)) if !declared.starts_with(&format!("sm_{sm}")) => {
            format!("sm_{sm}")
        }
        (_, Some(declared)) => (*declared).to_owned(),
        (Some(sm), None) => format!("sm_{sm}"),
        (None, None) => "sm_75".to_owned(),
    }
}

fn choose_each(
    request: Request,
    wanted: &[Wanted],
    facts: &Facts,
    slices: &Slices,
    progress: Option<Progress>,
) -> Result<Vec<(KernelChoice, Option<Made>)>, ChooseError> {
    let kernels: Vec<&Wanted> = wanted.iter().filter(|w| w.is_entry).collect();
    let done = std::sync::atomic::AtomicUsize::new(0);
    let chosen = kernels.par_iter().map(|kernel| {
        let source = slices.of(&kernel.name);
        let chosen = launched(request, &kernel.name, |request| {
            let contest = Contest {
                request: Request {
                    source: &source,
                    ..request
                },
                facts,
                kernel: &kernel.name,
                gathers: OnceLock::new(),
            };
            contest.hold()
        });
        if let Some(progress) = progress {
            let done = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            progress(done + 1, kernels.len());
        }
        let Chosen { choice, result } = chosen?;
        let made = result.map(|result| Made::of(result, &kernel.name));
        Ok((choice, made.transpose()?.flatten()))
    });
    chosen.collect()
}

/// Works on a request with the launch of a kernel, where there is one to time it with.
fn launched<T>(
    request: Request,
    kernel: &str,
    work: impl Fn(Request) -> Result<T, ChooseError>,
) -> Result<T, ChooseError> {
    let Some(measure) = request.measure else {
        return work(request);
    };
    let shape = measure.shape(kernel)?;
    let options = ModuleOptions {
        block: Some(shape.block),
        dynamic_shared: shape.dynamic_shared,
        ..request.options.clone()
    };
    work(Request {
        options: &options,
        grid: Some(shape.grid),
        dynamic_shared: Some(shape.dynamic_shared),
        ..request
    })
}

/// The module with what was made of each kernel, and with all else as it is.
fn joined(
    request: Request,
    wanted: &[Wanted],
    kernels: &[KernelChoice],
    made: Vec<Option<Made>>,
) -> Result<ModuleResult, ChooseError> {
    let names = wanted.iter().map(|function| function.name.clone());
    let left = ModuleOptions {
        treatment: Treatment::Leave,
        entries: names.collect(),
        ..request.options.clone()
    };
    let result = allocate_module(request.source, &left, None)?;
    let module = parse(&result.text)?;
    let mut functions = result.functions;
    let mut edits = Edits::new();
    for (choice, made) in kernels.iter().zip(made) {
        let Some(report) = functions.iter_mut().find(|f| f.name == choice.name) else {
            continue;
        };
        let place = defined(&module, &choice.name).map(|function| function.span);
        if let Some((made, place)) = made.zip(place) {
            edits.replace(place, &made.text);
            *report = made.report;
        }
        if let Outcome::Kept(reason) = &mut report.outcome {
            reason.clone_from(&choice.reason);
        }
    }
    let text = edits.apply(&result.text).map_err(PtxError::from)?;
    Ok(ModuleResult {
        text,
        functions,
        promoted: None,
    })
}

pub(crate) fn parse(text: &str) -> Result<Module<'_>, PtxError> {
    warpalloc_ptx::parse(text).map_err(|error| PtxError::Source(Box::new(error)))
}

pub(crate) fn defined<'m, 'a>(module: &'m Module<'a>, name: &str) -> Option<&'m Function<'a>> {
    let mut functions = module.functions();
    functions.find(|function| function.name.text == name && function.body.is_some())
}
