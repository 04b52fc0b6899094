//! A whole module: each function lowered, allocated, proved and applied, all at once.
//!
//! Functions know nothing of each other, so they are worked on in parallel; their edits are
//! joined in the order of the text, and the result does not depend on who was first.

use crate::apply::{self, Surroundings, Unspeakable};
use crate::ast::{self, Body, Item, Module, Span};
use crate::budget::{Block, Budget, Limits, MOST_REGISTERS};
use crate::contract::{ContractedFunction, Contraction, contract_where};
use crate::diag::{ParseError, line_and_column};
use crate::launch::{block_threads, has_instruction, is_static_shared, static_shared, write_cap};
use crate::lower::{self, Lowered, ModuleNames, Passed, Stop};
use crate::printer::{EditConflict, Edits};
use crate::promote::{Promoted, promote_where};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use warpalloc::allocation::{Frame, Space};
use warpalloc::analysis::{Liveness, Moment, Pressure, register_floor};
use warpalloc::function::Function;
use warpalloc::stats::Stats;
use warpalloc::target::occupancy::{Launch, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc::target::{File, Target};
use warpalloc::{Error, Options, allocate};

/// Where spilled values go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpillSpace {
    /// Local memory.
    #[default]
    Local,
    /// Shared memory; refused where a function cannot have it.
    Shared,
    /// Shared memory where that costs no occupancy, else local memory.
    Auto,
}

/// How to allocate a module.
#[derive(Clone, Debug, Default)]
pub struct ModuleOptions {
    /// How to allocate each function; where it spills is for [`Self::spill_space`] to say.
    pub options: Options,
    /// The preset to allocate for; `hardware` where there is none.
    pub preset: Option<String>,
    /// The compute capability, where it is not what `.target` says.
    pub sm: Option<u32>,
    /// The most registers a thread may use.
    pub maxnreg: Option<u32>,
    /// The occupancy in percent that entries which declare their block size shall reach:
    /// lowers the registers they may use, and is written into them as `.maxnreg`.
    pub occupancy_target: Option<u32>,
    /// The functions to allocate; all where the list is empty.
    pub entries: Vec<String>,
    /// Where spilled values go.
    pub spill_space: SpillSpace,
    /// How many threads work; all cores where it does not say.
    pub jobs: Option<usize>,
    /// Whether `.local` variables that need no address become registers first.
    pub promote_local: bool,
    /// What becomes of products and sums without a rounding modifier.
    pub contraction: Contraction,
}

/// Told how many functions are done, and how many there are.
pub type Progress<'p> = &'p (dyn Fn(usize, usize) + Sync);

/// Why a module could not be allocated.
#[derive(Debug, thiserror::Error)]
pub enum PtxError {
    /// The text is wrong.
    #[error(transparent)]
    Source(#[from] Box<ParseError>),
    /// The machine to allocate for is unknown.
    #[error("{0}")]
    Target(String),
    /// A function that was asked for is not there.
    #[error("there is no function `{0}` with a body")]
    NoSuchFunction(String),
    /// A result could not be proved: a bug, caught in time.
    #[error("`{function}`: {message}")]
    Unproved {
        /// The function.
        function: String,
        /// What went wrong.
        message: String,
    },
    /// Edits contradict each other: a bug, caught in time.
    #[error(transparent)]
    Conflict(#[from] EditConflict),
    /// The threads to work with could not be had.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// What became of a function.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Its registers were allocated.
    Allocated(Box<Allocated>),
    /// It stays as it is, for it holds something beyond what is understood.
    Passed(Passed),
    /// It stays as it is, for no allocation exists within the limits.
    Refused(String),
    /// It was not asked for.
    Skipped,
}

/// An allocated function in figures.
#[derive(Clone, Debug)]
pub struct Allocated {
    /// What the allocator did.
    pub stats: Stats,
    /// Spill memory per thread.
    pub frame: Frame,
    /// Registers it was allowed to use, those that reach spill memory not among them.
    pub budget: u32,
    /// General registers it uses, counted up to the highest.
    pub registers: u32,
    /// Those among them that it names. Around calls, values that survive them are above all
    /// registers that calls overwrite, many of which the function may have no use for.
    pub named: u32,
    /// Predicates it uses, counted up to the highest.
    pub predicates: u32,
}

/// What happened to one function.
#[derive(Clone, Debug)]
pub struct FunctionReport {
    /// Its name.
    pub name: String,
    /// Whether the host can launch it.
    pub is_entry: bool,
    /// The line its body begins at.
    pub line: usize,
    /// Instructions of the model, those without code included.
    pub instructions: usize,
    /// Virtual registers.
    pub vregs: usize,
    /// Why the wanted occupancy or cap is not what will be had.
    pub shortfall: Option<String>,
    /// What became of its contraction, where it has something to contract.
    pub contraction: Option<ContractedFunction>,
    /// What became of it.
    pub outcome: Outcome,
}

/// An allocated module.
#[derive(Clone, Debug)]
pub struct ModuleResult {
    /// The new text.
    pub text: String,
    /// One report per function with a body, in the order of the text.
    pub functions: Vec<FunctionReport>,
    /// What was promoted to registers first, if that was asked for; spans in the reports
    /// then refer to its text, which has the lines of the original.
    pub promoted: Option<Promoted>,
}

/// Allocates the registers of every function of a module.
///
/// ```
/// use warpalloc_ptx::module::{ModuleOptions, Outcome, allocate_module};
/// let source = ".version 9.0\n.target sm_90\n.address_size 64\n\
///               .entry k() {\n\t.reg .b32 %r<2>;\n\t.shared .b32 s;\n\tmov.u32 %r1, %tid.x;\n\
///               \tst.shared.b32 [s], %r1;\n\tret;\n}\n";
/// let result = allocate_module(source, &ModuleOptions::default(), None)?;
/// assert!(matches!(result.functions[0].outcome, Outcome::Allocated(_)));
/// assert!(result.text.contains("%R"));
/// # Ok::<(), warpalloc_ptx::module::PtxError>(())
/// ```
pub fn allocate_module(
    source: &str,
    options: &ModuleOptions,
    progress: Option<Progress>,
) -> Result<ModuleResult, PtxError> {
    if options.promote_local {
        let promoted = promoted(source, options)?;
        match allocate_text(&promoted.text, options, progress) {
            // The message must point into the text that the caller has.
            Err(PtxError::Source(_)) => {}
            result => {
                let mut result = result?;
                result.promoted = Some(promoted);
                return Ok(result);
            }
        }
    }
    allocate_text(source, options, progress)
}

/// The module with the local variables of the wanted functions in registers.
fn promoted(source: &str, options: &ModuleOptions) -> Result<Promoted, PtxError> {
    let wanted = |name: &str| {
        let names = &options.entries;
        names.is_empty() || names.iter().any(|n| n == name)
    };
    let budget = options.options.knobs.opt_phases_budget;
    Ok(promote_where(source, budget, wanted).map_err(Box::new)?)
}

fn allocate_text(
    source: &str,
    options: &ModuleOptions,
    progress: Option<Progress>,
) -> Result<ModuleResult, PtxError> {
    let wanted =
        |name: &str| options.entries.is_empty() || options.entries.iter().any(|n| n == name);
    let contracted = contract_where(source, options.contraction, wanted).map_err(Box::new)?;
    let module = crate::parse(&contracted.text).map_err(Box::new)?;
    let mut job = Job::new(&module, options)?;
    job.contracted = &contracted.functions;
    let work = || job.run(progress);
    match options.jobs {
        Some(jobs) => rayon::ThreadPoolBuilder::new()
            .num_threads(jobs)
            .build()?
            .install(work),
        None => work(),
    }
}

/// What a function asks of a machine before it is allocated.
#[derive(Clone, Debug)]
pub struct FunctionMeasures {
    /// Its name.
    pub name: String,
    /// Whether the host can launch it.
    pub is_entry: bool,
    /// The line of its name.
    pub line: usize,
    /// What was measured, or why it was not.
    pub measures: Result<Measures, Passed>,
}

/// The size of a function and the pressure in it.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Instructions in the text.
    pub instructions: usize,
    /// Independent values that want a register.
    pub vregs: usize,
    /// The greatest pressure on each register file that is used.
    pub peaks: Vec<Peak>,
    /// General registers needed at least, with what calls overwrite and predicates beyond
    /// those the hardware has.
    pub floor: usize,
}

/// The greatest pressure on a register file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The name of the file.
    pub file: String,
    /// Registers in use at once.
    pub registers: usize,
    /// The line of an instruction around which they are.
    pub line: Option<usize>,
}

/// Measures every function of a module.
pub fn measure_module(
    source: &str,
    options: &ModuleOptions,
) -> Result<Vec<FunctionMeasures>, PtxError> {
    let module = crate::parse(source).map_err(Box::new)?;
    let job = Job::new(&module, options)?;
    let target = job.target(MOST_REGISTERS)?;
    let functions: Vec<_> = functions_with_bodies(&module).collect();
    functions
        .par_iter()
        .filter(|(function, _)| job.is_wanted(function))
        .map(|(function, body)| {
            let measures = match lower::lower(source, &job.names, function, body, &target) {
                Ok(lowered) => Ok(measures(&lowered, &target)),
                Err(Stop::Pass(passed)) => Err(passed),
                Err(Stop::Error(error)) => return Err(PtxError::Source(error)),
            };
            Ok(FunctionMeasures {
                name: function.name.text.to_owned(),
                is_entry: function.is_entry,
                line: line_and_column(source, function.name.span.start).0,
                measures,
            })
        })
        .collect()
}

/// The functions of a module as an allocator for `target` sees them, with their names;
/// those that would be passed through are left out.
pub fn lower_module(source: &str, target: &Target) -> Result<Vec<Function>, PtxError> {
    let module = crate::parse(source).map_err(Box::new)?;
    let names = ModuleNames::of(&module);
    let lowered =
        functions_with_bodies(&module).filter_map(|(function, body)| {
            match lower::lower(source, &names, function, body, target) {
                Ok(lowered) => Some(Ok(lowered.function)),
                Err(Stop::Pass(_)) => None,
                Err(Stop::Error(error)) => Some(Err(PtxError::Source(error))),
            }
        });
    lowered.collect()
}

fn measures(lowered: &Lowered, target: &Target) -> Measures {
    let function = &lowered.function;
    let liveness = Liveness::compute(function);
    let pressure = Pressure::compute(function, target, &liveness);
    let span_of = |moment| match moment {
        Moment::Entry(block) => function.block_insts(block).find_map(|i| lowered.span(i)),
        Moment::Before(inst) | Moment::After(inst) => lowered.span(inst),
    };
    let peaks = target.files().filter_map(|(file, info)| {
        let peak = pressure.peak(file);
        let line = |span: Span| line_and_column(lowered.source, span.start).0;
        (peak.units > 0).then(|| Peak {
            file: info.name.clone(),
            registers: peak.units.div_ceil(info.units_per_reg),
            line: peak.at.and_then(span_of).map(line),
        })
    });
    Measures {
        instructions: function
            .insts()
            .filter(|&i| lowered.span(i).is_some())
            .count(),
        vregs: function.vreg_count(),
        peaks: peaks.collect(),
        floor: register_floor(function, target, &liveness),
    }
}

fn functions_with_bodies<'m, 'a>(
    module: &'m Module<'a>,
) -> impl Iterator<Item = (&'m ast::Function<'a>, &'m Body<'a>)> {
    let with_body = |f: &'m ast::Function<'a>| Some((f, f.body.as_ref()?));
    module.functions().filter_map(with_body)
}

/// A module and how to allocate it.
struct Job<'m, 'a> {
    module: &'m Module<'a>,
    names: ModuleNames<'a>,
    options: &'m ModuleOptions,
    preset: &'m str,
    sm: Sm,
    /// Whether the module's target has `.relaxed` accesses.
    relaxed: bool,
    /// Shared memory declared at module level.
    shared_bytes: u64,
    /// Whether a device function has a `setmaxnreg`.
    callees_share_registers: bool,
    /// What was contracted in the text.
    contracted: &'m [ContractedFunction],
}

impl<'m, 'a> Job<'m, 'a> {
    fn new(module: &'m Module<'a>, options: &'m ModuleOptions) -> Result<Self, PtxError> {
        let declared = module.target.iter().find_map(|t| sm_number(t));
        let number = options.sm.or(declared).unwrap_or(70);
        // PTX for an older machine runs on every newer one.
        let sm = Sm::from_number(number.max(70))
            .ok_or_else(|| PtxError::Target(format!("sm_{number} is not a supported target")))?;
        for name in &options.entries {
            if !functions_with_bodies(module).any(|(f, _)| f.name.text == name) {
                return Err(PtxError::NoSuchFunction(name.clone()));
            }
        }
        let vars = module.items.iter().filter_map(|item| match item {
            Item::Var(var) if is_static_shared(var) => Some(apply::variable_bytes(var)),
            _ => None,
        });
        Ok(Job {
            module,
            names: ModuleNames::of(module),
            options,
            preset: options.preset.as_deref().unwrap_or("hardware"),
            sm,
            relaxed: declared.is_some_and(|sm| sm >= 70) && module.version >= (6, 0),
            shared_bytes: vars.fold(0, u64::saturating_add),
            callees_share_registers: functions_with_bodies(module)
                .any(|(f, body)| !f.is_entry && has_instruction(body, "setmaxnreg")),
            contracted: &[],
        })
    }

    fn target(&self, budget: u32) -> Result<Target, PtxError> {
        let target = Target::preset(self.preset, self.sm.number());
        let target = target.map_err(|error| PtxError::Target(error.to_string()))?;
        Ok(target.with_budget(File::R, budget as usize))
    }

    fn is_wanted(&self, function: &ast::Function) -> bool {
        let names = &self.options.entries;
        names.is_empty() || names.iter().any(|name| name == function.name.text)
    }

    fn run(&self, progress: Option<Progress>) -> Result<ModuleResult, PtxError> {
        let functions: Vec<_> = functions_with_bodies(self.module).collect();
        let done = AtomicUsize::new(0);
        let results: Vec<_> = functions
            .par_iter()
            .map(|(function, body)| {
                let result = self.function(function, body);
                if let Some(progress) = progress {
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, functions.len());
                }
                result
            })
            .collect();
        let mut edits = Edits::new();
        let mut reports = Vec::with_capacity(results.len());
        for result in results {
            let (report, own) = result?;
            edits.append(&own);
            reports.push(report);
        }
        let text = edits.apply(self.module.source)?;
        Ok(ModuleResult {
            text,
            functions: reports,
            promoted: None,
        })
    }

    fn function(
        &self,
        function: &ast::Function<'a>,
        body: &Body<'a>,
    ) -> Result<(FunctionReport, Edits), PtxError> {
        let (line, _) = line_and_column(self.module.source, function.name.span.start);
        let mut report = FunctionReport {
            name: function.name.text.to_owned(),
            is_entry: function.is_entry,
            line,
            instructions: 0,
            vregs: 0,
            shortfall: None,
            contraction: None,
            outcome: Outcome::Skipped,
        };
        if !self.is_wanted(function) {
            return Ok((report, Edits::new()));
        }
        let budget = self.budget(function);
        report.shortfall = budget.shortfall;
        let target = self.target(budget.registers)?;
        let lowered = lower::lower(self.module.source, &self.names, function, body, &target);
        let mut edits = Edits::new();
        match lowered {
            Err(Stop::Error(error)) => return Err(PtxError::Source(error)),
            Err(Stop::Pass(passed)) => report.outcome = Outcome::Passed(passed),
            Ok(lowered) => {
                report.instructions = lowered.function.inst_count();
                report.vregs = lowered.function.vreg_count();
                report.outcome = self.allocated(&lowered, &target, budget.registers, &mut edits)?;
            }
        }
        let mut contracted = self.contracted.iter();
        report.contraction = contracted.find(|c| c.name == function.name.text).cloned();
        if let Some(contracted) = &report.contraction
            && !matches!(report.outcome, Outcome::Allocated(_))
        {
            // What is not allocated stays as it was.
            edits.replace(body.span(), &contracted.original);
        }
        if let Some(cap) = budget.cap
            && function.is_entry
            && !matches!(report.outcome, Outcome::Refused(_))
        {
            write_cap(function, cap, &mut edits);
        }
        Ok((report, edits))
    }

    fn allocated(
        &self,
        lowered: &Lowered,
        target: &Target,
        budget: u32,
        edits: &mut Edits,
    ) -> Result<Outcome, PtxError> {
        let surroundings = self.surroundings(lowered.ast);
        let mut refusal = String::new();
        for space in self.spaces(lowered, &surroundings) {
            let space = match space {
                Ok(space) => space,
                Err(reason) => return Ok(Outcome::Refused(reason)),
            };
            match self.attempt(lowered, target, budget, space, surroundings) {
                Ok((allocated, own)) => {
                    if space == Space::Shared && !self.is_worth_it(&allocated, &surroundings) {
                        continue;
                    }
                    *edits = own;
                    return Ok(Outcome::Allocated(Box::new(allocated)));
                }
                Err(Failure::Refused(reason) | Failure::Unspeakable(reason)) => refusal = reason,
                Err(Failure::Fatal(error)) => return Err(error),
            }
        }
        Ok(Outcome::Refused(refusal))
    }

    /// The memories to try, in order.
    fn spaces(&self, lowered: &Lowered, surroundings: &Surroundings) -> Vec<Result<Space, String>> {
        let obstacle = if !lowered.ast.is_entry {
            Some("a function that is called cannot spill to shared memory")
        } else if lowered.has_calls {
            Some("a kernel that calls functions cannot spill to shared memory")
        } else if surroundings.threads.is_none() {
            Some("spilling to shared memory needs `.maxntid` or `.reqntid`")
        } else {
            None
        };
        match (self.options.spill_space, obstacle) {
            (SpillSpace::Local, _) | (SpillSpace::Auto, Some(_)) => vec![Ok(Space::Local)],
            (SpillSpace::Shared, None) => vec![Ok(Space::Shared)],
            (SpillSpace::Shared, Some(obstacle)) => vec![Err(obstacle.to_owned())],
            (SpillSpace::Auto, None) => vec![Ok(Space::Shared), Ok(Space::Local)],
        }
    }

    /// Where the choice is ours, shared memory must not cost a resident block.
    fn is_worth_it(&self, allocated: &Allocated, surroundings: &Surroundings) -> bool {
        let (SpillSpace::Auto, Some(threads)) = (self.options.spill_space, surroundings.threads)
        else {
            return true;
        };
        let block_threads = threads.count;
        let blocks = |bytes: u64| {
            let launch = Launch {
                registers_per_thread: allocated.budget.max(1),
                block_threads,
                shared_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            };
            occupancy(self.sm, &launch).map_or(0, |answer| answer.blocks)
        };
        let own = surroundings.shared_bytes;
        let ours = u64::from(allocated.frame.shared) * u64::from(block_threads);
        blocks(own + ours) >= blocks(own)
    }

    /// Allocates and applies. Where scheduling took an instruction out of the braces that
    /// declare what it names, as around the parameters of calls, it is done without.
    fn attempt(
        &self,
        lowered: &Lowered,
        target: &Target,
        budget: u32,
        space: Space,
        surroundings: Surroundings,
    ) -> Result<(Allocated, Edits), Failure> {
        let mut options = Options {
            spill_space: space,
            // Names local to braces hold statements in place, which the model cannot say.
            schedule: self.options.options.schedule && !lowered.has_nested_symbols(),
            ..self.options.options.clone()
        };
        let first = self.attempt_with(lowered, target, budget, &options, surroundings);
        if !matches!(first, Err(Failure::Unspeakable(_))) || !options.schedule {
            return first;
        }
        options.schedule = false;
        self.attempt_with(lowered, target, budget, &options, surroundings)
    }

    fn attempt_with(
        &self,
        lowered: &Lowered,
        target: &Target,
        mut budget: u32,
        options: &Options,
        surroundings: Surroundings,
    ) -> Result<(Allocated, Edits), Failure> {
        let failed = |error: Error| self.failure(lowered, error);
        let mut target = target.clone();
        let mut allocation = allocate(&lowered.function, &target, options).map_err(failed)?;
        let bases = apply::base_registers(allocation.frame, &surroundings) as u32;
        if bases > 0 {
            // The addresses of spill memory live in registers too.
            budget = budget.saturating_sub(bases);
            target = target.with_budget(File::R, budget as usize);
            allocation = allocate(&lowered.function, &target, options).map_err(failed)?;
        }
        let unspeakable = |Unspeakable(message)| Failure::Unspeakable(message);
        let edits =
            apply::apply(lowered, &target, &allocation, surroundings).map_err(unspeakable)?;
        let touched = allocation.touched(&lowered.function, &target);
        let highest = |file| touched.registers(&target, file).last();
        let up_to_highest = |file| highest(file).map_or(0, |register| register as u32 + 1);
        let allocated = Allocated {
            frame: allocation.frame,
            stats: allocation.stats,
            budget,
            registers: up_to_highest(File::R),
            named: touched.registers(&target, File::R).count() as u32,
            predicates: up_to_highest(File::P),
        };
        Ok((allocated, edits))
    }

    fn failure(&self, lowered: &Lowered, error: Error) -> Failure {
        match error {
            Error::Impossible { .. } | Error::FrameTooLarge { .. } => {
                Failure::Refused(lowered.explain(&error))
            }
            Error::Invalid { .. } | Error::Unproved(_) => Failure::Fatal(PtxError::Unproved {
                function: lowered.function.name().to_owned(),
                message: lowered.explain(&error),
            }),
        }
    }

    fn budget(&self, function: &ast::Function) -> Budget {
        let limits = Limits {
            sm: self.sm,
            maxnreg: self.options.maxnreg,
            occupancy_target: self.options.occupancy_target,
        };
        let block = Block {
            threads: block_threads(function).map(|threads| threads.count),
            shared_bytes: self.shared_bytes_of(function),
            shares_registers: self.shares_registers(function),
        };
        limits.budget(function, block)
    }

    /// Whether `setmaxnreg` moves registers between warps in `function` or what it may call.
    fn shares_registers(&self, function: &ast::Function) -> bool {
        function.body.as_ref().is_some_and(|body| {
            has_instruction(body, "setmaxnreg")
                || self.callees_share_registers && has_instruction(body, "call")
        })
    }

    fn shared_bytes_of(&self, function: &ast::Function) -> u64 {
        let own = function.body.as_ref().map_or(0, static_shared);
        self.shared_bytes.saturating_add(own)
    }

    fn surroundings(&self, function: &ast::Function) -> Surroundings {
        Surroundings {
            address_size: self.module.address_size,
            relaxed: self.relaxed,
            threads: block_threads(function).filter(|_| function.is_entry),
            shared_bytes: self.shared_bytes_of(function),
        }
    }
}

enum Failure {
    Refused(String),
    Unspeakable(String),
    Fatal(PtxError),
}

/// `sm_90a` is 90.
fn sm_number(target: &str) -> Option<u32> {
    let digits = target.strip_prefix("sm_")?;
    digits
        .trim_end_matches(|c: char| c.is_ascii_lowercase())
        .parse()
        .ok()
}

impl FunctionReport {
    /// The text that keeps the function from being allocated, where there is one.
    pub fn cause(&self) -> Option<Span> {
        match &self.outcome {
            Outcome::Passed(passed) => Some(passed.span),
            _ => None,
        }
    }
}
