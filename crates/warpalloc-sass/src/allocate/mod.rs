//! Allocation for fewer registers than a kernel takes: spill code in machine code.
//!
//! ```text
//! cubin ─decode→ Code ─lower→ Function ─allocate→ Allocation ─place→ insert ─→ scoreboards ─→ cubin
//! ```
//!
//! What ptxas writes without a cap keeps its schedule; values that do not fit go to local or
//! shared memory, or are computed again. [`lower`](crate::recolour) makes each web of a general
//! register a value of the allocator, the strategy of the options allocates within the cap,
//! `place` issues reloads ahead of their readers and stores behind their writers, `insert` turns
//! edits into instructions, and the schedule is covered as after recolouring.
//!
//! Where this is refused, as for a kernel that calls functions of other sections, the cap may
//! still be met without spill code: by recolouring alone, which moves nothing.
//!
//! Predicates, uniform registers and convergence barriers keep their names.
//!
//! The allocator's checker proves the allocation, also once its edits have been placed; decoding
//! again proves the encoding, the hazard checker the schedule. What can't be proved or is not
//! known is refused, with the instruction and its offset.

mod frame;
mod insert;
mod place;

use crate::cfg::Cfg;
use crate::code::Code;
use crate::edit::EditError;
use crate::hazard;
use crate::isa::Inst;
use crate::object::{Change, Cubin, Function, NewCode, ObjectError, RewriteError, Rewriter};
use crate::recolour::lower::{Form, Keep, lower};
use crate::recolour::{
    Added, Goal, RecolourError, RecolourOptions, Recoloured, attributes, named, recolour,
    scoreboards,
};
use crate::spills::{self, Refusal};
use frame::Place;
use warpalloc::allocation::Space;
use warpalloc::options::HoistPolicy;
use warpalloc::stats::EditCounts;
use warpalloc::target::{File, Target};
use warpalloc::{Options, Strategy};

/// Why a kernel was left as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// The kernel can't be lowered, proved or scheduled.
    #[error(transparent)]
    Recolour(#[from] RecolourError),
    /// Its spills can't be put where they should be.
    #[error(transparent)]
    Spills(#[from] Refusal),
    /// The cap is too low for what the code itself or its count of registers takes.
    #[error("{maxnreg} registers are too few")]
    TooFew {
        /// The cap.
        maxnreg: u32,
    },
    /// Spill code is needed where none can be put.
    #[error("at 0x{offset:04x}: {inst}: spill code can't be put on a way from it")]
    Edge {
        /// The instruction.
        offset: usize,
        /// As text.
        inst: String,
    },
    /// The new code does not read back as it was written.
    #[error("at 0x{offset:04x} of the new code: {found} where {expected} should be")]
    Differs {
        /// Where, in the new code.
        offset: usize,
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
}

macro_rules! through {
    ($by:ident: $($from:ty),*) => {
        $(impl From<$from> for AllocateError {
            fn from(error: $from) -> Self {
                $by::from(error).into()
            }
        })*
    };
}

through!(RecolourError: crate::code::CodeError, crate::cfg::CfgError, warpalloc::Error);
through!(Refusal: ObjectError, RewriteError, EditError, crate::isa::EncodeError, crate::edit::ScheduleError);

/// How to allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocateOptions {
    /// The most registers of a thread, as the cubin counts them.
    pub maxnreg: u32,
    /// Which allocator.
    pub strategy: Strategy,
    /// Where spilled values go.
    pub space: Space,
    /// What is not in the cubin, for spills in shared memory.
    pub launch: spills::Options,
}

impl AllocateOptions {
    /// Spills to local memory under a cap.
    pub fn new(maxnreg: u32) -> AllocateOptions {
        AllocateOptions {
            maxnreg,
            strategy: Strategy::default(),
            space: Space::default(),
            launch: spills::Options::default(),
        }
    }
}

/// A kernel under a cap.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Allocated {
    /// The cubin; `None` where the kernel takes no more registers than it may.
    pub bytes: Option<Vec<u8>>,
    /// The registers of a thread before.
    pub registers_before: u32,
    /// And after.
    pub registers_after: u32,
    /// What was inserted.
    pub inserted: EditCounts,
    /// Instructions before.
    pub instructions_before: usize,
    /// And after.
    pub instructions_after: usize,
    /// Bytes of spilled values per thread.
    pub frame_bytes: u32,
    /// Bytes of static shared memory after.
    pub shared_bytes: u64,
    /// What was added to the schedule.
    pub added: Added,
    /// For each instruction before, the offset that it has now; empty where nothing changed.
    pub offsets: Vec<usize>,
}

/// Allocates one kernel of a cubin for a number of registers.
pub fn allocate_kernel(
    bytes: &[u8],
    kernel: &str,
    options: &AllocateOptions,
) -> Result<Allocated, AllocateError> {
    let mut rewriter = Rewriter::new(bytes)?;
    let cubin = rewriter.cubin().clone();
    let function = spills::kernel(&cubin, kernel)?;
    attributes::check(function)?;
    let stated = function.registers.ok_or(RecolourError::NoCount)?;
    let code = Code::decode(function.code, cubin.arch.sm)?;
    let mut done = Allocated {
        bytes: None,
        registers_before: stated,
        registers_after: stated,
        inserted: EditCounts::default(),
        instructions_before: code.insts().len(),
        instructions_after: code.insts().len(),
        frame_bytes: 0,
        shared_bytes: function.shared_bytes,
        added: Added::default(),
        offsets: Vec::new(),
    };
    if stated <= options.maxnreg {
        return Ok(done);
    }
    let kernel = Kernel {
        cubin: &cubin,
        function,
        code: &code,
        stated,
        options,
    };
    let spilled = match kernel.spilled() {
        Ok(spilled) => spilled,
        Err(error) => {
            // Where nothing is inserted nothing moves, and less stands in the way.
            let found = kernel.recoloured().ok_or(error)?;
            done.registers_after = found.registers_after;
            done.added = found.added;
            done.offsets = (0..done.instructions_before).map(Code::offset).collect();
            if let Some(change) = found.change() {
                rewriter.change(function.name, change)?;
            }
            done.bytes = Some(rewriter.finish()?);
            return Ok(done);
        }
    };
    done.inserted = spilled.inserted;
    done.frame_bytes = spilled.frame_bytes;
    done.registers_after = spilled.change.registers.map_or(stated, u32::from);
    done.shared_bytes = spilled.change.shared_bytes.unwrap_or(done.shared_bytes);
    rewriter.change(function.name, spilled.change)?;
    let grown = rewriter.finish()?;
    let (bytes, added, count) = scheduled(&grown, function.name, &spilled.code)?;
    done.added = added;
    done.offsets.clone_from(&spilled.code.instructions);
    done.offsets.truncate(done.instructions_before);
    done.instructions_after = count;
    done.bytes = Some(bytes);
    Ok(done)
}

struct Kernel<'a> {
    cubin: &'a Cubin<'a>,
    function: &'a Function<'a>,
    code: &'a Code,
    stated: u32,
    options: &'a AllocateOptions,
}

/// A kernel with spill code that is not scheduled yet.
struct Spilled {
    change: Change,
    code: NewCode,
    inserted: EditCounts,
    frame_bytes: u32,
}

impl Kernel<'_> {
    /// The kernel within the cap without spill code, where there is such a colouring.
    fn recoloured(&self) -> Option<Recoloured> {
        let options = RecolourOptions {
            strategy: self.options.strategy,
            goal: Goal::AtMost(self.options.maxnreg),
            ..RecolourOptions::default()
        };
        let found = recolour(self.cubin, self.function, &options).ok()?;
        (found.registers_after <= self.options.maxnreg).then_some(found)
    }

    fn spilled(&self) -> Result<Spilled, AllocateError> {
        let links = self.cubin.links(self.function, self.code);
        let cfg = Cfg::build(self.code, &links)?;
        if let Some(&hazard) = hazard::check(self.code, &cfg).first() {
            return Err(RecolourError::OriginalHazard(hazard).into());
        }
        let name = self.function.name;
        let lowered = lower(
            name,
            self.code,
            &cfg,
            self.code.insts().len(),
            Keep::Predicates,
            Form::Spilled,
        )?;
        let maxnreg = self.options.maxnreg;
        let beyond = self.stated.saturating_sub(named(self.code).into());
        let budget = maxnreg.checked_sub(beyond).filter(|&budget| budget > 8);
        let budget = budget.ok_or(AllocateError::TooFew { maxnreg })? as usize;
        let mut place = Place::of(self.code, &cfg, self.options.space)?;
        let target = Target::hardware(self.cubin.arch.sm);
        let target = target.map_err(|error| warpalloc::Error::Unproved(error.to_string()))?;
        // Where R1 is the frame's, the thread's address in shared memory takes the last register.
        let budget = place.reserve(budget);
        let target = target.with_budget(File::R, budget);
        let mut options = Options {
            schedule: false,
            shrink: false,
            spill_space: self.options.space,
            ..Options::with_strategy(self.options.strategy)
        };
        options.knobs.hoist_policy = HoistPolicy::Never;
        let mut allocation = warpalloc::allocate(&lowered.function, &target, &options)?;
        place::place(
            &lowered,
            self.code,
            &target,
            &mut allocation,
            self.options.space,
        );
        warpalloc::check::check(&lowered.function, &target, &allocation)
            .map_err(warpalloc::Error::from)?;
        let frame_bytes = allocation.frame.size(self.options.space);
        let layout = place.layout(self, frame_bytes)?;
        let new = insert::insert(self, &links, &cfg, &lowered, &allocation, &layout)?;
        let written = Code::decode(&new.bytes, self.cubin.arch.sm)?;
        let registers = u32::from(named(&written)).max(layout.registers()) + beyond;
        if registers > maxnreg {
            return Err(AllocateError::TooFew { maxnreg });
        }
        let mut change = layout.change(self.function);
        change.registers = u8::try_from(registers).ok();
        change.code = Some(new.clone());
        Ok(Spilled {
            change,
            code: new,
            inserted: allocation.edits.counts(),
            frame_bytes,
        })
    }
}

/// Covers the hazards of new code, and proves that there are none left.
fn scheduled(
    bytes: &[u8],
    kernel: &str,
    new: &NewCode,
) -> Result<(Vec<u8>, Added, usize), AllocateError> {
    let mut rewriter = Rewriter::new(bytes)?;
    let cubin = rewriter.cubin().clone();
    let function = spills::kernel(&cubin, kernel)?;
    let code = Code::decode(function.code, cubin.arch.sm)?;
    if function.code != new.bytes {
        let expected = Code::decode(&new.bytes, cubin.arch.sm)?;
        let pairs = code.insts().iter().zip(expected.insts()).enumerate();
        let mut differing = pairs.filter(|(_, (found, expected))| found != expected);
        if let Some((at, (found, expected))) = differing.next() {
            return Err(AllocateError::Differs {
                offset: Code::offset(at),
                found: found.to_string(),
                expected: expected.to_string(),
            });
        }
    }
    let cfg = Cfg::build(&code, &cubin.links(function, &code))?;
    let mut is_new = vec![true; code.insts().len()];
    for &old in &new.instructions {
        if let Some(is_new) = is_new.get_mut(old / 16) {
            *is_new = false;
        }
    }
    let (covered, added) = scoreboards::cover(&code, &cfg, code.insts().len(), &is_new)?;
    if let Some(inst) = covered.insts().iter().find(|inst| !inst.is_issuable()) {
        return Err(Refusal::Control(Inst::to_string(inst)).into());
    }
    let change = Change {
        code: Some(NewCode::in_place(covered.encode())),
        ..Change::default()
    };
    rewriter.change(kernel, change)?;
    Ok((rewriter.finish()?, added, covered.insts().len()))
}
