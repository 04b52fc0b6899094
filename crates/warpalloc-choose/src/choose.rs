//! Candidates built, judged and compared, kernel by kernel.

use rayon::prelude::*;
use warpalloc_ptx::ast::{Item, Linkage, Module, VarDecl};
use warpalloc_ptx::module::{
    FunctionReport, ModuleOptions, ModuleResult, Outcome, Progress, PtxError, Treatment,
    allocate_module,
};
use warpalloc_sass::spills::{self, spills_to_shared};

use crate::cache::Cache;
use crate::candidate::Candidate;
use crate::judge::{Estimate, JudgeError, Machine, Setting, judge};
use crate::ptxas::{Assembly, Ptxas, PtxasError};

/// The estimate of a candidate over the original's above which the original stays, where the launch
/// is known: a smaller gain is within the error of the estimate.
const WORTH_IT: f64 = 0.9;
/// The same where it is not known.
const WORTH_IT_ANYWHERE: f64 = 0.8;

/// The most threads that are started, whatever the caller asks for.
const MOST_THREADS: usize = 256;

/// Shared memory that every launch gets without asking for more.
const WITHOUT_OPT_IN: u64 = 48 * 1024;

/// What to choose for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The module.
    pub source: &'a str,
    /// Cap, launch bounds, functions and the like. Who allocates, with which margin, and where
    /// spilled values go is chosen.
    pub options: &'a ModuleOptions,
    /// The assembler; without it nothing can be compared, and every kernel stays as it is.
    pub ptxas: Option<&'a Ptxas>,
    /// Blocks of a launch, where that is known.
    pub grid: Option<u32>,
    /// Dynamic shared memory of a launch in bytes, where that is known.
    pub dynamic_shared: Option<u32>,
    /// Whether the result is machine code ([`assemble`]), so that what ptxas makes may be
    /// rewritten.
    pub machine_code: bool,
    /// Where choices are kept.
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

    fn is_better(&self, worth_it: f64) -> bool {
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
    /// Spills that could be moved in a kernel alone cannot in the whole module.
    #[error("`{kernel}`: {refusal}")]
    Moved {
        /// The kernel.
        kernel: String,
        /// Why.
        refusal: spills::Refusal,
    },
}

impl Request<'_> {
    fn move_options(&self, facts: &Facts, all: bool) -> spills::Options {
        let mut options = spills::Options::default();
        options.block = self.options.block;
        // A module without such memory has no use for what a launch gives it.
        let none = (!facts.sized_at_launch).then_some(0);
        options.dynamic_shared = self.dynamic_shared.or(none);
        options.force = all;
        options
    }
}

/// The machine code of a choice.
pub fn assemble(request: Request, choice: &Choice) -> Result<Vec<u8>, ChooseError> {
    let ptxas = request.ptxas.ok_or(ChooseError::NoPtxas)?;
    let module = warpalloc_ptx::parse(request.source).map_err(|e| PtxError::Source(Box::new(e)))?;
    let facts = Facts::of(&module, request.options);
    let mut cubin = ptxas.assemble(Assembly {
        text: &choice.result.text,
        arch: &facts.arch,
        entry: None,
        contraction: request.options.contraction,
    })?;
    for kernel in &choice.kernels {
        if let Candidate::Moved { all } = kernel.chosen {
            let moved = spills_to_shared(&cubin, &kernel.name, &request.move_options(&facts, all));
            cubin = moved
                .map_err(|refusal| ChooseError::Moved {
                    kernel: kernel.name.clone(),
                    refusal,
                })?
                .bytes;
        }
    }
    Ok(cubin)
}

/// Chooses for each kernel of a module.
///
/// `progress` is told how many kernels are done.
pub fn choose(request: Request, progress: Option<Progress>) -> Result<Choice, ChooseError> {
    let module = warpalloc_ptx::parse(request.source).map_err(|e| PtxError::Source(Box::new(e)))?;
    let wanted = wanted_functions(&module, request.options)?;
    let facts = Facts::of(&module, request.options);
    let kept = request.cache.and_then(|cache| cache.get(&request));
    let kernels = match kept {
        Some(kernels) => kernels,
        None => chosen(request, &wanted, &facts, progress)?,
    };
    let result = joined(request, &wanted, &kernels)?;
    Ok(Choice { result, kernels })
}

fn chosen(
    request: Request,
    wanted: &[Wanted],
    facts: &Facts,
    progress: Option<Progress>,
) -> Result<Vec<KernelChoice>, ChooseError> {
    let work = || choose_each(request, wanted, facts, progress);
    let kernels = match request.options.jobs {
        Some(jobs) => rayon::ThreadPoolBuilder::new()
            // More threads than functions have nothing to do.
            .num_threads(jobs.clamp(1, wanted.len().clamp(1, MOST_THREADS)))
            .build()
            .map_err(PtxError::from)?
            .install(work)?,
        None => work()?,
    };
    if let Some(cache) = request.cache.filter(|_| request.ptxas.is_some()) {
        cache.put(&request, &kernels);
    }
    Ok(kernels)
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
struct Facts {
    /// What to assemble for.
    arch: String,
    /// Whether launches say how much shared memory there is.
    sized_at_launch: bool,
}

impl Facts {
    fn of(module: &Module, options: &ModuleOptions) -> Facts {
        Facts {
            arch: architecture(module, options),
            sized_at_launch: module.items.iter().any(is_dynamic_shared),
        }
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
    progress: Option<Progress>,
) -> Result<Vec<KernelChoice>, ChooseError> {
    let kernels: Vec<&Wanted> = wanted.iter().filter(|w| w.is_entry).collect();
    let done = std::sync::atomic::AtomicUsize::new(0);
    let chosen = kernels.par_iter().map(|kernel| {
        let choice = Contest {
            request,
            facts,
            kernel: &kernel.name,
        }
        .hold();
        if let Some(progress) = progress {
            let done = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            progress(done + 1, kernels.len());
        }
        choice
    });
    chosen.collect()
}

/// One kernel's candidates against each other.
struct Contest<'a> {
    request: Request<'a>,
    facts: &'a Facts,
    kernel: &'a str,
}

impl Contest<'_> {
    fn hold(&self) -> Result<KernelChoice, ChooseError> {
        let left = |reason: String, candidates| KernelChoice {
            name: self.kernel.to_owned(),
            chosen: Candidate::Original,
            reason,
            candidates,
        };
        let Some(ptxas) = self.request.ptxas else {
            let reason = "left as it is: there is no ptxas to compare with; --ptxas names one";
            return Ok(left(reason.to_owned(), Vec::new()));
        };
        let original = self.build(ptxas, Candidate::Original)?;
        let original = match original {
            Ok(built) => built,
            Err(reason) => return Ok(left(format!("left as it is: {reason}"), Vec::new())),
        };
        let baseline = Judged {
            candidate: Candidate::Original,
            ratios: Ok([1.0, 1.0]),
        };
        if !original.estimate.spills {
            let reason = "left as it is: ptxas does not spill in it".to_owned();
            return Ok(left(reason, vec![baseline]));
        }
        if self.facts.sized_at_launch && self.request.dynamic_shared.is_none() {
            let reason = "left as it is: its shared memory is sized at the launch; \
                          --dynamic-shared says how much there is";
            return Ok(left(reason.to_owned(), vec![baseline]));
        }
        let mut candidates = vec![baseline];
        let others = match self.request.machine_code {
            true => Candidate::of_machine_code(),
            false => Candidate::all(),
        };
        let judged: Result<Vec<_>, ChooseError> = others[1..]
            .par_iter()
            .map(|&candidate| self.judged(ptxas, candidate, &original))
            .collect();
        candidates.extend(judged?);
        let worth_it = match self.request.grid {
            Some(_) => WORTH_IT,
            None => WORTH_IT_ANYWHERE,
        };
        let better = |judged: &&Judged| judged.is_better(worth_it);
        let best = candidates.iter().filter(better);
        let best = best.min_by(|a, b| f64::total_cmp(&score(a), &score(b)));
        let Some(best) = best else {
            let reason = "left as it is: no candidate is expected to be faster in every launch";
            return Ok(left(reason.to_owned(), candidates));
        };
        Ok(KernelChoice {
            name: self.kernel.to_owned(),
            chosen: best.candidate,
            reason: format!("expected to take {:.2} of the original's time", score(best)),
            candidates,
        })
    }

    fn judged(
        &self,
        ptxas: &Ptxas,
        mut candidate: Candidate,
        original: &Built,
    ) -> Result<Judged, ChooseError> {
        if let Candidate::Moved { all } = candidate {
            return Ok(self.moved(all, original));
        }
        let mut built = self.build(ptxas, candidate)?;
        while let (Err(_), Some(roomier)) = (&built, candidate.roomier()) {
            candidate = roomier;
            built = self.build(ptxas, candidate)?;
        }
        Ok(Judged {
            candidate,
            ratios: built.map(|built| built.estimate.over(&original.estimate)),
        })
    }

    /// The original's machine code with its spills in shared memory.
    fn moved(&self, all: bool, original: &Built) -> Judged {
        let options = self.request.move_options(self.facts, all);
        let moved = spills_to_shared(&original.cubin, self.kernel, &options);
        let estimate = moved.map_err(|refusal| refusal.to_string());
        let estimate = estimate.and_then(|moved| {
            let estimate = judge(&Machine::H200, &moved.bytes, self.kernel, self.setting());
            estimate.map_err(|error| unjudged(&error))
        });
        Judged {
            candidate: Candidate::Moved { all },
            ratios: estimate.map(|estimate| estimate.over(&original.estimate)),
        }
    }

    fn setting(&self) -> Setting {
        Setting {
            block_threads: self.request.options.block,
            blocks: self.request.grid,
            dynamic_shared: self.request.dynamic_shared.unwrap_or(0),
        }
    }

    /// What ptxas makes of a candidate, or why there is none.
    fn build(
        &self,
        ptxas: &Ptxas,
        candidate: Candidate,
    ) -> Result<Result<Built, String>, ChooseError> {
        let options = candidate.options(self.request.options, self.kernel);
        let result = allocate_module(self.request.source, &options, None)?;
        if let Some(reason) = obstacle(candidate, &result, self.kernel) {
            return Ok(Err(reason));
        }
        let assembly = Assembly {
            text: &result.text,
            arch: &self.facts.arch,
            entry: Some(self.kernel),
            contraction: options.contraction,
        };
        let cubin = match ptxas.assemble(assembly) {
            Ok(cubin) => cubin,
            Err(error @ PtxasError::Refused(_)) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let estimate = judge(&Machine::H200, &cubin, self.kernel, self.setting());
        let estimate = estimate.map_err(|error| unjudged(&error));
        let estimate = estimate.and_then(|estimate| match self.overflow(candidate, &estimate) {
            Some(reason) => Err(reason),
            None => Ok(estimate),
        });
        Ok(estimate.map(|estimate| Built { cubin, estimate }))
    }

    /// Why a launch that gives the kernel dynamic shared memory might fail.
    fn overflow(&self, candidate: Candidate, estimate: &Estimate) -> Option<String> {
        let dynamic = self
            .request
            .dynamic_shared
            .filter(|_| self.facts.sized_at_launch)?;
        let bytes = estimate.shared_bytes + u64::from(dynamic);
        let is_ours = candidate != Candidate::Original;
        (is_ours && bytes > WITHOUT_OPT_IN).then(|| {
            format!("{bytes} bytes of shared memory with the dynamic share, {WITHOUT_OPT_IN} launch for sure")
        })
    }
}

/// A candidate that was assembled.
struct Built {
    cubin: Vec<u8>,
    estimate: Estimate,
}

fn score(judged: &Judged) -> f64 {
    judged.score().unwrap_or(f64::INFINITY)
}

fn unjudged(error: &JudgeError) -> String {
    format!("its machine code cannot be judged: {error}")
}

/// Why what was made of a kernel is not the candidate it was meant to be.
fn obstacle(candidate: Candidate, result: &ModuleResult, kernel: &str) -> Option<String> {
    let report = result.functions.iter().find(|f| f.name == kernel)?;
    match (&report.outcome, candidate) {
        (Outcome::Refused(reason), _) => Some(reason.clone()),
        (Outcome::PassedThrough(passed), _) => Some(passed.reason.clone()),
        (Outcome::Kept(reason), Candidate::Allocated { .. }) => Some(reason.clone()),
        (Outcome::Allocated(allocated), _) if allocated.frame.local > 0 => {
            let about_space = |warning: &&String| warning.contains("local memory");
            let warning = report.warnings.iter().find(about_space);
            Some(warning.map_or("it spills to local memory".to_owned(), Clone::clone))
        }
        (Outcome::Allocated(_), _) if may_differ(report) => {
            Some("the last bits of its results might differ".to_owned())
        }
        (Outcome::Allocated(allocated), _) if allocated.stats.fell_back => {
            Some("no round of allocation succeeded".to_owned())
        }
        _ => None,
    }
}

/// Whether ptxas might round otherwise than in the original.
fn may_differ(function: &FunctionReport) -> bool {
    let contraction = function.contraction.as_ref();
    contraction.is_some_and(|contraction| contraction.obstacle.is_some())
}

/// The module with each kernel allocated as chosen, and each device function as it is.
fn joined(
    request: Request,
    wanted: &[Wanted],
    kernels: &[KernelChoice],
) -> Result<ModuleResult, ChooseError> {
    let mut text = request.source.to_owned();
    let mut reports: Vec<FunctionReport> = Vec::new();
    let mut last = None;
    for function in wanted {
        let choice = kernels.iter().find(|choice| choice.name == function.name);
        let candidate = choice.map_or(Candidate::Original, |choice| choice.chosen);
        let mut options = candidate.options(request.options, &function.name);
        if !function.is_entry {
            options.treatment = Treatment::Leave;
        }
        let mut result = allocate_module(&text, &options, None)?;
        text = std::mem::take(&mut result.text);
        let mut own = result
            .functions
            .iter_mut()
            .find(|f| f.name == function.name);
        if let (Some(report), Some(choice)) = (&mut own, choice)
            && let Outcome::Kept(reason) = &mut report.outcome
        {
            reason.clone_from(&choice.reason);
        }
        reports.extend(own.cloned());
        last = Some(result);
    }
    let mut functions = last.map(|result| result.functions).unwrap_or_default();
    for function in &mut functions {
        if let Some(report) = reports.iter().find(|report| report.name == function.name) {
            *function = report.clone();
        }
    }
    Ok(ModuleResult {
        text,
        functions,
        promoted: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(alone: f64, full: f64) -> Judged {
        Judged {
            candidate: Candidate::SharedPragma,
            ratios: Ok([alone, full]),
        }
    }

    #[test]
    fn a_candidate_must_be_better_in_both_settings_and_by_enough() {
        assert!(judged(0.7, 0.9).is_better(WORTH_IT_ANYWHERE));
        assert!(!judged(1.01, 0.3).is_better(WORTH_IT_ANYWHERE));
        assert!(!judged(0.3, 1.01).is_better(WORTH_IT_ANYWHERE));
        assert!(!judged(0.85, 0.85).is_better(WORTH_IT_ANYWHERE));
        assert!(judged(0.85, 0.85).is_better(WORTH_IT));
        assert!(!judged(0.95, 0.95).is_better(WORTH_IT));
    }
}
