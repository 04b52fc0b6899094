//! Recolouring: other registers for the values of a kernel, and nothing else.
//!
//! ```text
//! cubin ─decode→ Code ─lower→ Function ─allocate→ Allocation ─prove→ encode ─→ scoreboards ─→ cubin
//! ```
//!
//! `lower` makes each web of a general register a value of the allocator, `bundles` finds
//! those that move together, the strategy of the options colours them within fewer and fewer
//! registers, `encode` writes the new numbers, and `scoreboards` covers the hazards that
//! this brings. Nothing is inserted, moved or deleted: a colouring that would need a copy or a
//! spill slot is not taken, and the count of registers never rises.
//!
//! Functions in other sections that a kernel calls stand behind its code while it is recoloured
//! ([`Linked`]), so that values, hazards and registers are followed through each call; they keep
//! their own registers and schedule, because other kernels call them too.
//!
//! Three proofs stand between the original and the result: the allocator's checker proves the
//! assignment, decoding again proves the encoding, the hazard checker the schedule. What can't
//! be proved or is not known is refused, with the instruction and its offset.

pub(crate) mod attributes;
mod board_choice;
mod bundles;
mod constraints;
pub(crate) mod encode;
pub(crate) mod lower;
mod recompute;
pub(crate) mod scoreboards;
mod search;
mod webs;

pub use scoreboards::Added;

use crate::cfg::{Cfg, CfgError};
use crate::code::{Code, CodeError};
use crate::hazard::{self, Hazard};
use crate::isa::{EncodeError, File, Reg, RegSet};
use crate::loops::Loops;
use crate::object::{
    AttributeKind, Change, Cubin, Function, Linked, NewCode, RewriteError, Rewriter,
};
use bundles::Bundles;
use lower::{Form, Keep, Lowered, lower};
use search::Search;
use warpalloc::Strategy;
use warpalloc::target::REGISTER_GRANULE;

/// Why a kernel was left as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecolourError {
    /// The code can't be decoded.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// Where control goes can't be told.
    #[error(transparent)]
    Cfg(#[from] CfgError),
    /// There is no code.
    #[error("there is no code")]
    Empty,
    /// The cubin does not say how many registers a thread has.
    #[error("the cubin states no register count")]
    NoCount,
    /// It is entered from outside at a second place.
    #[error("at 0x{offset:04x}: it is entered from outside here too")]
    SecondEntry {
        /// Where.
        offset: usize,
    },
    /// An instruction stands in the way.
    #[error("at 0x{offset:04x}: {inst}: {why}")]
    Instruction {
        /// Where it is.
        offset: usize,
        /// The instruction.
        inst: String,
        /// What of it.
        why: &'static str,
    },
    /// An attribute names registers by a layout that is not known.
    #[error("{0} names registers")]
    Attribute(AttributeKind),
    /// The code has a hazard that nothing covers.
    #[error("hazard: {0}")]
    Hazard(Hazard),
    /// The original code has a hazard by the rules of the hazard checker.
    #[error("hazard in the original: {0}")]
    OriginalHazard(Hazard),
    /// A register can't be written into its field.
    #[error("at 0x{offset:04x}: {error}")]
    Encode {
        /// Where the instruction is.
        offset: usize,
        /// What is wrong.
        #[source]
        error: EncodeError,
    },
    /// The count of registers leaves no room for what a called function takes.
    #[error("a function that it calls takes {called} registers, more than its own {stated}")]
    CalledRegisters {
        /// What the called function takes.
        called: u32,
        /// What the kernel states.
        stated: u32,
    },
    /// Something in a kernel or in functions of other sections that it calls.
    #[error("{error} (behind its code: {})", places(called))]
    WithCalled {
        /// What it is.
        error: Box<RecolourError>,
        /// Where each function begins behind the kernel's code.
        called: Vec<(usize, String)>,
    },
    /// The allocator refuses the function.
    #[error(transparent)]
    Allocator(#[from] warpalloc::Error),
}

fn places(called: &[(usize, String)]) -> String {
    let places = called
        .iter()
        .map(|(at, name)| format!("{name} at 0x{at:04x}"));
    places.collect::<Vec<_>>().join(", ")
}

/// How far to go.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Goal {
    /// The fewest registers as the hardware gives them out, in multiples of eight. What is left
    /// of the last eight serves to leave values where they are, and a kernel that gains nothing
    /// stays as it was.
    #[default]
    Granules,
    /// The fewest registers.
    Fewest,
    /// At most so many, with as few values moved as that takes. A kernel that needs more stays as
    /// it was.
    AtMost(u32),
}

/// How to recolour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecolourOptions {
    /// Which allocator colours.
    pub strategy: Strategy,
    /// How far to go.
    pub goal: Goal,
    /// For tests: every value is moved to a random register, by this seed, within as many
    /// registers as the original has.
    pub random: Option<u64>,
}

/// A kernel in other registers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recoloured {
    /// The registers of a thread as the cubin states them, before.
    pub registers_before: u32,
    /// The same now; equal to the former where the kernel stays as it was.
    pub registers_after: u32,
    /// The fewest that the strategy needs, counted in the same way.
    pub fewest: u32,
    /// The fewest that any could, by how many are live at once.
    pub floor: u32,
    /// The new code; `None` where no colouring takes fewer registers.
    pub code: Option<Code>,
    /// How many values there are.
    pub values: usize,
    /// How many of them have another register than before.
    pub moved: usize,
    /// The part of all register accesses, by loop depth, that stay in their bank.
    pub kept_banks: f32,
    /// What was added to the schedule.
    pub added: Added,
    /// What `EIATTR_COOP_GROUP_MASK_REGIDS` says now, where the kernel has it.
    pub mask_registers: Option<Vec<u32>>,
}

impl Recoloured {
    /// What changes in the cubin; nothing where the kernel stays as it was.
    pub(crate) fn change(&self) -> Option<Change> {
        Some(Change {
            code: Some(NewCode::in_place(self.code.as_ref()?.encode())),
            // A count fits: it is no greater than the one that was read.
            registers: u8::try_from(self.registers_after).ok(),
            mask_registers: self.mask_registers.clone(),
            ..Change::default()
        })
    }
}

/// Recolours one kernel of a cubin.
pub fn recolour(
    cubin: &Cubin,
    function: &Function,
    options: &RecolourOptions,
) -> Result<Recoloured, RecolourError> {
    attributes::check(function)?;
    let linked = cubin.linked(function)?;
    recolour_linked(function, &linked, options).map_err(|error| match linked.called.is_empty() {
        true => error,
        false => RecolourError::WithCalled {
            error: Box::new(error),
            called: linked.called.clone(),
        },
    })
}

fn recolour_linked(
    function: &Function,
    linked: &Linked,
    options: &RecolourOptions,
) -> Result<Recoloured, RecolourError> {
    let Linked { code, own, .. } = linked;
    let cfg = Cfg::build(code, &linked.links)?;
    let stated = function.registers.ok_or(RecolourError::NoCount)?;
    let called = linked.called_registers;
    if called > stated {
        return Err(RecolourError::CalledRegisters { called, stated });
    }
    let counts = (called, stated);
    let mut done = recolour_own(function.name, code, &cfg, *own, counts, options)?;
    if let Some(new) = done.code.take() {
        done.mask_registers = attributes::mask_registers(function, code, &new, &cfg)?;
        done.code = Some(new.with_insts(new.insts()[..*own].to_vec()));
    }
    Ok(done)
}

/// Recolours code that is launched with `stated` registers.
pub fn recolour_code(
    name: &str,
    code: &Code,
    cfg: &Cfg,
    stated: u32,
    options: &RecolourOptions,
) -> Result<Recoloured, RecolourError> {
    recolour_own(name, code, cfg, code.insts().len(), (0, stated), options)
}

/// Recolours the first `own` instructions of code that is launched with `stated` registers, and
/// for no fewer than `called`: a thread gets its registers once, for the kernel and all it calls.
fn recolour_own(
    name: &str,
    code: &Code,
    cfg: &Cfg,
    own: usize,
    (called, stated): (u32, u32),
    options: &RecolourOptions,
) -> Result<Recoloured, RecolourError> {
    if let Some(&hazard) = hazard::check(code, cfg).first() {
        return Err(RecolourError::OriginalHazard(hazard));
    }
    let keep = match options.random {
        Some(_) => Keep::Implied,
        None => Keep::Predicates,
    };
    let lowered = lower(name, code, cfg, own, keep, Form::Coloured)?;
    let used = named(code);
    let beyond = stated.saturating_sub(u32::from(used));
    let search = Search::new(&lowered, code.sm(), used)?;
    let bundles = Bundles::of(&lowered, &weights(&lowered, cfg));
    let mut result = Recoloured {
        registers_before: stated,
        registers_after: stated,
        fewest: stated,
        // What the count has beyond the highest register stays.
        floor: (search.floor() as u32 + beyond).max(called).min(stated),
        code: None,
        values: lowered.registers.len(),
        moved: 0,
        kept_banks: 1.0,
        added: Added::default(),
        mask_registers: None,
    };
    let assignment = match options.random {
        Some(seed) => {
            let mut random = Random(seed);
            let mut assignment = lowered.registers.clone();
            bundles.shuffle(&mut assignment, used, &mut |below| random.below(below));
            assignment
        }
        None => {
            let Some((colours, least)) = search.fewest(options.strategy)? else {
                return Ok(result);
            };
            result.fewest = (u32::from(least) + beyond).max(called);
            let granted = |registers: u32| registers.next_multiple_of(REGISTER_GRANULE as u32);
            let budget = match options.goal {
                Goal::Fewest => least,
                Goal::Granules if granted(result.fewest) == granted(stated) => {
                    return Ok(result);
                }
                // Fits: it is no more than the original takes.
                Goal::Granules => (granted(result.fewest) - beyond).min(used.into()) as u8,
                Goal::AtMost(cap) if result.fewest > cap || stated <= cap => return Ok(result),
                Goal::AtMost(cap) => (cap - beyond).min(used.into()) as u8,
            };
            let squeezed = match options.goal {
                Goal::Fewest => None,
                Goal::Granules | Goal::AtMost(_) => bundles.squeeze(budget),
            };
            let mut assignment = squeezed.unwrap_or(colours);
            bundles.settle(&mut assignment, budget);
            assignment
        }
    };
    search.prove(&assignment)?;
    let mut insts = Vec::with_capacity(code.insts().len());
    for (at, inst) in code.insts().iter().enumerate() {
        let Some(of) = lowered.insts[at] else {
            insts.push(inst.clone());
            continue;
        };
        let operands = lowered.function.operands(of).iter();
        let to: Vec<Reg> = operands
            .map(|operand| assignment[operand.vreg.as_u32() as usize])
            .collect();
        insts.push(encode::rename(at, inst, &to)?);
    }
    let (recoloured, added) = scoreboards::cover(&code.with_insts(insts), cfg, own, &[])?;
    let changed = (own..code.insts().len()).find(|&at| recoloured.insts()[at] != code.insts()[at]);
    if let Some(at) = changed {
        return Err(RecolourError::Instruction {
            offset: Code::offset(at),
            inst: code.insts()[at].to_string(),
            why: "it is of a called function, and would change",
        });
    }
    let now = named(&recoloured);
    result.registers_after = (u32::from(now) + beyond).max(called).min(stated);
    let moved = assignment.iter().zip(&lowered.registers);
    result.moved = moved.filter(|(new, old)| new != old).count();
    result.kept_banks = bundles.kept_banks(&assignment);
    result.added = added;
    result.code = Some(recoloured);
    Ok(result)
}

/// What became of one function of a cubin.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The function's name.
    pub name: String,
    /// Its new registers, or why it stays as it was.
    pub result: Result<Recoloured, RecolourError>,
}

/// Recolours every kernel of a cubin that can be, and says what became of each.
pub fn recolour_cubin(
    bytes: &[u8],
    options: &RecolourOptions,
    is_wanted: impl Fn(&Function) -> bool,
) -> Result<(Vec<u8>, Vec<Outcome>), RewriteError> {
    let mut rewriter = Rewriter::new(bytes)?;
    let cubin = rewriter.cubin().clone();
    let mut outcomes = Vec::new();
    for function in cubin
        .functions
        .iter()
        .filter(|f| f.is_entry && is_wanted(f))
    {
        let result = recolour(&cubin, function, options);
        if let Some(change) = result.as_ref().ok().and_then(Recoloured::change) {
            rewriter.change(function.name, change)?;
        }
        outcomes.push(Outcome {
            name: function.name.to_owned(),
            result,
        });
    }
    Ok((rewriter.finish()?, outcomes))
}

/// One more than the highest general register that the code names.
pub(crate) fn named(code: &Code) -> u8 {
    let mut all = RegSet::EMPTY;
    for inst in code.insts() {
        all.union_with(&inst.defs());
        all.union_with(&inst.uses());
    }
    all.highest(File::R).map_or(0, |highest| highest + 1)
}

/// How often each instruction of the function runs, by the depth of its loops.
fn weights(lowered: &Lowered, cfg: &Cfg) -> Vec<f32> {
    /// Rounds that a loop is taken to make.
    const ROUNDS: f32 = 8.0;
    let loops = Loops::compute(cfg);
    let mut weights = vec![1.0; lowered.function.inst_count()];
    for (at, inst) in lowered.insts.iter().enumerate() {
        if let Some(inst) = inst {
            let depth = loops.depth(cfg.block_of(at));
            weights[inst.as_u32() as usize] = ROUNDS.powi(depth as i32);
        }
    }
    weights
}

/// Random numbers for tests, after G. Steele, D. Lea and C. Flood (SplitMix, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }
}
