//! A whole module: each function lowered, allocated, proved and applied, all at once.
//!
//! Functions know nothing of each other, so they are worked on in parallel; their edits are
//! joined in the order of the text, and the result does not depend on who was first.

use crate::ast::{self, Body, Module, Span};
use crate::contract::{Contracted, ContractedFunction, Contraction, contract_where};
use crate::diag::ParseError;
use crate::job::{Job, LoweredFunction};
use crate::lower::{self, LowerError, Lowered, ModuleNames, PassedThrough};
pub use crate::measure::{FunctionMeasures, Measures, Peak, measure_module};
use crate::param_lanes::take_apart;
use crate::printer::EditConflict;
use crate::promote::{Promoted, promote_where};
use crate::spill_code::SpillCode;
use rustc_hash::FxHashMap;
use warpalloc::allocation::Frame;
use warpalloc::function::Function;
use warpalloc::stats::Stats;
use warpalloc::target::Target;
use warpalloc::{Options, Strategy};

/// Where spilled values go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpillSpace {
    /// Local memory.
    #[default]
    Local,
    /// Shared memory, and local memory for the slots accessed least where it has no room for all;
    /// local memory alone, with a warning, where a function cannot have it.
    Shared,
    /// The same; a function that cannot have it is refused.
    SharedOnly,
    /// Shared memory where that costs no occupancy, else local memory.
    Auto,
}

/// Who allocates the registers of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Treatment {
    /// The allocator that the options name.
    #[default]
    Allocate,
    /// ptxas: the code stays as it is, and gets the cap.
    Leave,
    /// The same, and ptxas may spill to shared memory where a block's size is known.
    LeaveWithSharedSpills,
}

/// How to allocate a module.
#[derive(Clone, Debug, Default)]
pub struct ModuleOptions {
    /// Who allocates.
    pub treatment: Treatment,
    /// Registers below the cap to allocate for, where there is a cap: ptxas needs some of its
    /// own. Below zero, ptxas spills what does not fit the cap.
    pub margin: i32,
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
    /// Threads of the largest block that entries without `.maxntid` and `.reqntid` are
    /// launched with.
    pub block: Option<u32>,
    /// Bytes of dynamic shared memory of the launch, which frames leave free.
    pub dynamic_shared: u32,
    /// Whether `ptxas -c` comes next, so that device functions need the cap too; found out
    /// from the linkage of the functions where it does not say.
    pub relocatable: Option<bool>,
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
    /// Whether [`Allocated::spill_code`] is wanted.
    pub spill_code: bool,
}

/// The most threads that are started, whatever the caller asks for.
const MOST_THREADS: usize = 256;

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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    /// Its registers were allocated.
    Allocated(Box<Allocated>),
    /// It stays as it is, for it holds something beyond what is understood.
    PassedThrough(PassedThrough),
    /// It stays as it is, for no allocation exists within the limits.
    Refused(String),
    /// It stays as it is: in the order of its text it does not fit, and nobody asked for a cap
    /// that would be worth spill code.
    Kept(String),
    /// It was not asked for.
    Skipped,
}

/// An allocated function in figures.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// What was inserted and where, if that was asked for.
    pub spill_code: Option<SpillCode>,
}

/// What happened to one function.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// Where it did not come out as asked for: a cap lowered, an occupancy out of reach,
    /// another memory than the one wanted.
    pub warnings: Vec<String>,
    /// What became of its contraction, where it has something to contract.
    pub contraction: Option<ContractedFunction>,
    /// What became of it.
    pub outcome: Outcome,
}

/// An allocated module.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    let text = ReadText::new(source, options)?;
    let module = crate::parse(&text.contracted.text).map_err(Box::new)?;
    let job = text.job(&module, options)?;
    let work = || job.run(progress);
    match options.jobs {
        Some(jobs) => rayon::ThreadPoolBuilder::new()
            // More threads than functions have nothing to do.
            .num_threads(
                jobs.clamp(
                    1,
                    functions_with_bodies(&module)
                        .count()
                        .clamp(1, MOST_THREADS),
                ),
            )
            .build()?
            .install(work),
        None => work(),
    }
}

/// A text made ready for lowering.
struct ReadText {
    contracted: Contracted,
    originals: FxHashMap<String, String>,
}

impl ReadText {
    fn new(source: &str, options: &ModuleOptions) -> Result<ReadText, PtxError> {
        let wanted =
            |name: &str| options.entries.is_empty() || options.entries.iter().any(|n| n == name);
        // What is left to ptxas is contracted by ptxas, and stays as it is.
        let is_left = options.treatment != Treatment::Allocate;
        let contraction = match is_left {
            true => Contraction::Keep,
            false => options.contraction,
        };
        let scalar = take_apart(source, |name| !is_left && wanted(name)).map_err(Box::new)?;
        let contracted = contract_where(&scalar.text, contraction, wanted).map_err(Box::new)?;
        Ok(ReadText {
            contracted,
            originals: scalar.originals,
        })
    }

    fn job<'m, 'a>(
        &'m self,
        module: &'m Module<'a>,
        options: &'m ModuleOptions,
    ) -> Result<Job<'m, 'a>, PtxError> {
        Job::new(module, &self.contracted.functions, &self.originals, options)
    }
}

/// A module that was read and lowered, to be allocated several times ([`with_module`]).
pub struct ReadModule<'m, 'a> {
    text: &'m ReadText,
    module: &'m Module<'a>,
    lowered: &'m [LoweredFunction<'m, 'a>],
    options: &'m ModuleOptions,
}

/// What spill code takes of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalFrame {
    /// Bytes per thread.
    pub bytes: u32,
    /// The most registers that the function may use, where somebody limits them.
    pub cap: Option<u32>,
}

impl<'m, 'a> ReadModule<'m, 'a> {
    /// Does what [`allocate_module`] does, by `strategy` within `maxnreg` registers.
    pub fn allocate(
        &self,
        maxnreg: Option<u32>,
        strategy: Strategy,
    ) -> Result<ModuleResult, PtxError> {
        let mut options = ModuleOptions {
            maxnreg,
            ..self.options.clone()
        };
        options.options.strategy = strategy;
        self.allocate_with(&options)
    }

    /// Does what [`allocate_module`] does with `options`, of which those that say how the text is read
    /// (what is promoted and contracted, and which functions are wanted) are the same as it was read with.
    pub fn allocate_with(&self, options: &ModuleOptions) -> Result<ModuleResult, PtxError> {
        let job = self.text.job(self.module, options)?;
        job.with_lowered(self.lowered).run(None)
    }

    /// The function called `name` as allocators see it; `None` where it would be passed through.
    pub fn function(&self, name: &str) -> Option<&'m Function> {
        let lowered = self.lowered_function(name)?.as_ref().ok()?;
        Some(&lowered.function)
    }

    /// What `options` spill to local memory in the function called `name`, or why they do not say. No text
    /// is made of the allocation.
    pub fn local_frame(
        &self,
        name: &str,
        options: &ModuleOptions,
    ) -> Result<Result<LocalFrame, String>, PtxError> {
        match self.lowered_function(name) {
            Some(Ok(lowered)) => {
                let job = self.text.job(self.module, options)?;
                job.local_frame(lowered, &job.target()?)
            }
            Some(Err(LowerError::Pass(passed))) => Ok(Err(passed.reason.clone())),
            Some(Err(LowerError::Error(error))) => Err(PtxError::Source(error.clone())),
            None => Ok(Err("it was not read".to_owned())),
        }
    }

    fn lowered_function(&self, name: &str) -> Option<&'m Result<Lowered<'m, 'a>, LowerError>> {
        let functions = functions_with_bodies(self.module).zip(self.lowered);
        let mut named = functions.filter(|((function, _), _)| function.name.text == name);
        named.next()?.1.as_ref()
    }
}

/// Reads and lowers a module once for all the allocations that `work` makes of it: that depends
/// on neither the cap nor the allocator nor the memory that is spilled to.
///
/// ```
/// use warpalloc::Strategy;
/// use warpalloc_ptx::module::{ModuleOptions, allocate_module, with_module};
/// let source = ".version 9.0\n.target sm_90\n.address_size 64\n\
///               .entry k() {\n\t.reg .b32 %r<2>;\n\t.shared .b32 s;\n\tmov.u32 %r1, %tid.x;\n\
///               \tst.shared.b32 [s], %r1;\n\tret;\n}\n";
/// let texts = with_module(source, &ModuleOptions::default(), |module| {
///     [32, 64].map(|cap| module.allocate(Some(cap), Strategy::Briggs).map(|result| result.text))
/// })?;
/// let options = ModuleOptions {
///     maxnreg: Some(64),
///     ..ModuleOptions::default()
/// };
/// let [_, at_64] = texts;
/// assert_eq!(at_64?, allocate_module(source, &options, None)?.text);
/// # Ok::<(), warpalloc_ptx::module::PtxError>(())
/// ```
pub fn with_module<T>(
    source: &str,
    options: &ModuleOptions,
    work: impl FnOnce(&ReadModule) -> T,
) -> Result<T, PtxError> {
    let promoted = options.promote_local.then(|| promoted(source, options));
    let promoted = promoted.transpose()?;
    let source = promoted.as_ref().map_or(source, |promoted| &promoted.text);
    let text = ReadText::new(source, options)?;
    let module = crate::parse(&text.contracted.text).map_err(Box::new)?;
    let job = text.job(&module, options)?;
    let target = job.target()?;
    let functions: Vec<_> = functions_with_bodies(&module).collect();
    let lowered = job.lower_ahead(&functions, &target);
    Ok(work(&ReadModule {
        text: &text,
        module: &module,
        lowered: &lowered,
        options,
    }))
}

/// The functions of a module as an allocator for `target` sees them, with their names;
/// those that would be passed through are left out.
pub fn lower_module(source: &str, target: &Target) -> Result<Vec<Function>, PtxError> {
    lower_where(source, target, |_| true)
}

/// The function called `name` as an allocator for `target` sees it; `None` where there is none
/// or it would be passed through.
pub fn lower_function(
    source: &str,
    name: &str,
    target: &Target,
) -> Result<Option<Function>, PtxError> {
    Ok(lower_where(source, target, |own| own == name)?.pop())
}

fn lower_where(
    source: &str,
    target: &Target,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Function>, PtxError> {
    let module = crate::parse(source).map_err(Box::new)?;
    let names = ModuleNames::of(&module);
    let wanted = functions_with_bodies(&module).filter(|(f, _)| is_wanted(f.name.text));
    let lowered = wanted.filter_map(|(function, body)| {
        match lower::lower(source, &names, function, body, target) {
            Ok(lowered) => Some(Ok(lowered.function)),
            Err(LowerError::Pass(_)) => None,
            Err(LowerError::Error(error)) => Some(Err(PtxError::Source(error))),
        }
    });
    lowered.collect()
}

pub(crate) fn functions_with_bodies<'m, 'a>(
    module: &'m Module<'a>,
) -> impl Iterator<Item = (&'m ast::Function<'a>, &'m Body<'a>)> {
    let with_body = |f: &'m ast::Function<'a>| Some((f, f.body.as_ref()?));
    module.functions().filter_map(with_body)
}

impl FunctionReport {
    /// The text that keeps the function from being allocated, where there is one.
    pub fn cause(&self) -> Option<Span> {
        match &self.outcome {
            Outcome::PassedThrough(passed) => Some(passed.span),
            _ => None,
        }
    }
}
