//! A choice where there is no ptxas to compare with.
//!
//! What ptxas would spill is not known, and by how much its code would be slower cannot be told from texts.
//! What can be told is how much there is to spill for the cap: the frame of an allocation by `scan`,
//! of which nothing else is made, stands for it. Where that is much, spill code in shared memory is
//! faster than whatever ptxas makes of it; where it is little, ptxas, which orders
//! instructions anew, does without most of it. So one allocation is made, by `briggs`, where it is
//! wanted, and estimates of texts are compared only where one of two things is at work that frames do not
//! tell of: few warps, and many loads from global memory.

use std::cell::Cell;

use warpalloc::Strategy;
use warpalloc::target::Target;
use warpalloc::target::sm::Sm;
use warpalloc_ptx::EntryFacts;
use warpalloc_ptx::module::{
    LocalFrame, ModuleOptions, ModuleResult, Outcome, PtxError, ReadModule, SpillSpace,
    allocate_module, lower_function, with_module,
};

use crate::candidate::Candidate;
use crate::choose::{ChooseError, Judged, KernelChoice};
use crate::contest::{Chosen, Contest, obstacle, score};
use crate::judge::{Machine, Resources, Shape, judge_text};

/// What spill code is made by.
const SPILL_CODE: Candidate = Candidate::Allocated {
    strategy: Strategy::Briggs,
    margin: 0,
};
/// What stands for ptxas: the allocator that takes the least time.
const STAND_IN: Strategy = Strategy::Scan;
/// The registers below the cap of the allocation that estimates are compared with: ptxas, which orders
/// instructions anew, may do as if it had more.
const BETTER_PTXAS: i32 = -16;
/// Words of a frame over the cap below which little has to be spilled.
const MUCH_TO_SPILL: f64 = 0.5;
/// Warps of a multiprocessor below which nothing hides the latency of another warp.
const LEAST_WARPS: u32 = 8;
/// Warps below which that is in doubt.
const FEW_WARPS: u32 = 12;
/// The share of loads from global memory above which much depends on how early they are: ptxas moves
/// them ahead of their readers, and spill code, which stays in its place, is in their way.
const MANY_LOADS: f64 = 0.125;
/// The share of gathers from global memory above which they decide how long a kernel takes: they live
/// on the first-level cache, which shared memory takes from.
const MANY_GATHERS: f64 = 0.02;
/// The share of instructions that ptxas expands above which a text does not tell how many registers
/// its machine code takes: spill code for the cap leaves none to the sequences.
const MANY_EXPANDED: f64 = 0.125;
/// The estimate over that of the [better ptxas](BETTER_PTXAS) up to which a doubtful candidate is taken.
const CLEARLY_BETTER: f64 = 0.66;

/// The frame of ptxas over that of the stand-in: which of these is not known, and the corpus has all.
const LARGER_FRAMES: [u32; 3] = [1, 2, 4];
/// Shared memory of a multiprocessor that ptxas takes for spills, those blocks included that the
/// launch may not have: 160 KB less what the system takes of each.
const PRAGMA_TAKES: u32 = 160 * 1024;

/// Said with every choice.
const UNSEEN: &str = "there is no ptxas to compare with";

/// How often a kernel was allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Effort {
    /// For the size of its frame.
    frames: u32,
    /// For its text.
    texts: u32,
}

/// A kernel that was read once, to be allocated.
struct Reading<'r, 'm, 'a> {
    module: &'r ReadModule<'m, 'a>,
    effort: Cell<Effort>,
}

/// Spill code in shared memory that can be launched.
struct Spilled {
    result: ModuleResult,
    /// Bytes of its frame per thread, in shared and in local memory.
    frame: u32,
    /// What it takes of a multiprocessor.
    resources: Resources,
}

impl Reading<'_, '_, '_> {
    fn frame(
        &self,
        kernel: &str,
        options: &ModuleOptions,
    ) -> Result<Result<LocalFrame, String>, PtxError> {
        let Effort { frames, texts } = self.effort.get();
        let frames = frames + 1;
        self.effort.set(Effort { frames, texts });
        self.module.local_frame(kernel, options)
    }

    fn text(&self, options: &ModuleOptions) -> Result<ModuleResult, PtxError> {
        let Effort { frames, texts } = self.effort.get();
        let texts = texts + 1;
        self.effort.set(Effort { frames, texts });
        self.module.allocate_with(options)
    }
}

impl Contest<'_> {
    /// Chooses by what can be told without ptxas.
    pub(crate) fn hold_without_ptxas(&self) -> Result<Chosen, ChooseError> {
        Ok(self.hold_counting()?.0)
    }

    fn hold_counting(&self) -> Result<(Chosen, Effort), ChooseError> {
        let left = |reason: &str| Ok((self.left(reason, Vec::new()), Effort::default()));
        if self.facts.sized_at_launch && self.request.dynamic_shared.is_none() {
            return left(
                "its shared memory is sized at the launch; --dynamic-shared says how much there is",
            );
        }
        let facts = warpalloc_ptx::entry_facts(self.request.source)?;
        let entry = facts.entries.iter().find(|entry| entry.name == self.kernel);
        let Some(entry) = entry else {
            return left("it is no entry");
        };
        if entry.block_threads.or(self.request.options.block).is_none() {
            return left(
                "nobody says how many threads its blocks have; `__launch_bounds__` or --block does",
            );
        }
        let options = Candidate::Allocated {
            strategy: STAND_IN,
            margin: 0,
        };
        let options = options.options(self.request.options, self.kernel);
        with_module(self.request.source, &options, |module| {
            let effort = Cell::default();
            let reading = Reading { module, effort };
            let chosen = self.hold_read(entry, &reading)?;
            Ok((chosen, reading.effort.get()))
        })?
    }

    fn hold_read(&self, entry: &EntryFacts, reading: &Reading) -> Result<Chosen, ChooseError> {
        let left = |reason: &str| Ok(self.left(reason, Vec::new()));
        let (bytes, cap) = match reading.frame(self.kernel, &self.stand_in_options(0))? {
            Ok(LocalFrame { bytes: 0, .. }) => return left("it is expected to fit"),
            Ok(LocalFrame { bytes, cap, .. }) => (bytes, cap),
            Err(reason) => return left(&reason),
        };
        let (Some(function), Some(cap)) = (reading.module.function(self.kernel), cap) else {
            return left("nobody limits its registers");
        };
        let Ok(sm) = self.facts.arch.parse::<Sm>() else {
            return left(&format!("no figures are known for {}", self.facts.arch));
        };
        let machine = &Machine::H200;
        let shape = Shape::of(machine, function);
        if shape.longest_loop > machine.held_instructions {
            return left(&format!(
                "a loop of {} instructions is fetched slowly, and spill code makes it longer",
                shape.longest_loop
            ));
        }
        if shape.expanded > MANY_EXPANDED {
            return left(
                "ptxas makes sequences of its products and divisions, which take registers of their own",
            );
        }
        if shape.global_loads * shape.gathers > MANY_GATHERS {
            return left("its gathers may need the cache that shared memory is taken from");
        }
        let dynamic = self.request.dynamic_shared;
        let dynamic = dynamic.filter(|_| self.facts.sized_at_launch).unwrap_or(0);
        let threads = entry.block_threads.or(self.request.options.block);
        let kernel = Resources {
            sm,
            registers: cap,
            block_threads: threads.unwrap_or(1),
            shared: entry.shared_bytes + u64::from(dynamic),
            frame: u32::try_from(entry.local_bytes).unwrap_or(u32::MAX),
            gathers: shape.gathers,
        };
        let mut candidates = Vec::new();
        if is_much(bytes, cap) {
            let chosen = self.by_spill_code(reading, kernel, &shape, &mut candidates)?;
            if let Some(chosen) = chosen {
                return Ok(chosen);
            }
        }
        if self.pragma_is_safe(kernel.with_local(bytes)) {
            let candidate = Candidate::SharedPragma;
            let options = candidate.options(self.request.options, self.kernel);
            let reason = format!("expected to spill; {UNSEEN}");
            let result = allocate_module(self.request.source, &options, None)?;
            return Ok(self.chosen(candidate, reason, candidates, Some(result)));
        }
        let reason = "no candidate is expected to be faster in every launch";
        Ok(self.left(reason, candidates))
    }

    fn chosen(
        &self,
        chosen: Candidate,
        reason: String,
        candidates: Vec<Judged>,
        result: Option<ModuleResult>,
    ) -> Chosen {
        Chosen {
            choice: KernelChoice {
                name: self.kernel.to_owned(),
                chosen,
                reason,
                candidates,
            },
            result,
        }
    }

    fn left(&self, reason: &str, candidates: Vec<Judged>) -> Chosen {
        let reason = format!("left as it is, for {UNSEEN}: {reason}");
        self.chosen(Candidate::Original, reason, candidates, None)
    }

    /// Spill code in shared memory, where it is worth it. `kernel` says what the kernel takes without
    /// spills.
    fn by_spill_code(
        &self,
        reading: &Reading,
        kernel: Resources,
        shape: &Shape,
        candidates: &mut Vec<Judged>,
    ) -> Result<Option<Chosen>, ChooseError> {
        let candidate = SPILL_CODE;
        let mut judged = |ratios| candidates.push(Judged { candidate, ratios });
        let spilled = match self.spill(reading, kernel)? {
            Ok(spilled) => spilled,
            Err(reason) => {
                judged(Err(reason));
                return Ok(None);
            }
        };
        let reason = if is_in_doubt(spilled.resources.warps(), shape) {
            let over = self.over_better_ptxas(reading, &spilled, kernel)?;
            judged(over.clone());
            let over = Judged {
                candidate,
                ratios: over,
            };
            if !over.is_better(CLEARLY_BETTER) {
                return Ok(None);
            }
            let expected = score(&over);
            format!("expected to take {expected:.2} of the original's time; {UNSEEN}")
        } else {
            let words = spilled.frame.div_ceil(4);
            format!("{words} words of each thread are to be spilled; {UNSEEN}")
        };
        let candidates = std::mem::take(candidates);
        let result = Some(spilled.result);
        Ok(Some(self.chosen(candidate, reason, candidates, result)))
    }

    /// Makes spill code in shared memory, or says why there is none.
    fn spill(
        &self,
        reading: &Reading,
        kernel: Resources,
    ) -> Result<Result<Spilled, String>, ChooseError> {
        let result = reading.text(&SPILL_CODE.options(self.request.options, self.kernel))?;
        if let Some(reason) = obstacle(SPILL_CODE, &result, self.kernel) {
            return Ok(Err(reason));
        }
        let own = result.functions.iter().find(|f| f.name == self.kernel);
        let Some(Outcome::Allocated(allocated)) = own.map(|own| &own.outcome) else {
            return Ok(Err("it was not allocated".to_owned()));
        };
        let frame = allocated.frame;
        if !is_much(frame.local + frame.shared, kernel.registers) {
            return Ok(Err("it has little to spill".to_owned()));
        }
        let resources = Resources {
            shared: kernel.shared + u64::from(frame.shared) * u64::from(kernel.block_threads),
            ..kernel.with_local(frame.local)
        };
        let (shared, warps) = (resources.shared, resources.warps());
        if warps < LEAST_WARPS {
            return Ok(Err(format!(
                "{shared} bytes of shared memory leave a multiprocessor {warps} warps"
            )));
        }
        Ok(Ok(Spilled {
            frame: frame.local + frame.shared,
            result,
            resources,
        }))
    }

    /// The estimate of spill code over that of a stand-in with more registers.
    fn over_better_ptxas(
        &self,
        reading: &Reading,
        spilled: &Spilled,
        kernel: Resources,
    ) -> Result<Result<[f64; 2], String>, ChooseError> {
        let stand_in = reading.text(&self.stand_in_options(BETTER_PTXAS))?;
        let own = stand_in.functions.iter().find(|f| f.name == self.kernel);
        let Some(Outcome::Allocated(allocated)) = own.map(|own| &own.outcome) else {
            return Ok(Err("there is nothing to compare it with".to_owned()));
        };
        let target = Target::preset("hardware", kernel.sm.number());
        let target = target.map_err(|error| PtxError::Target(error.to_string()))?;
        let estimate = |text: &str, resources: Resources| {
            let Some(function) = lower_function(text, self.kernel, &target)? else {
                return Ok(Err("its allocated text is not understood".to_owned()));
            };
            let estimate = judge_text(&Machine::H200, &function, resources, self.request.grid);
            Ok::<_, PtxError>(estimate.map_err(|error| format!("it cannot be judged: {error}")))
        };
        let stand_in = estimate(&stand_in.text, kernel.with_local(allocated.frame.local))?;
        let own = estimate(&spilled.result.text, spilled.resources)?;
        Ok(own.and_then(|own| Ok(own.over(&stand_in?))))
    }

    /// What stands for ptxas with registers below the cap.
    fn stand_in_options(&self, margin: i32) -> ModuleOptions {
        let strategy = STAND_IN;
        let candidate = Candidate::Allocated { strategy, margin };
        ModuleOptions {
            spill_space: SpillSpace::Local,
            ..candidate.options(self.request.options, self.kernel)
        }
    }

    /// Whether nothing is lost where ptxas spills to shared memory by itself: what it takes may cost
    /// a kernel with shared memory of its own a block, and what is set aside for it takes bytes of frames
    /// out of the first-level cache, which may be no more than it moves to shared memory.
    fn pragma_is_safe(&self, stand_in: Resources) -> bool {
        if stand_in.shared > 0 || self.facts.sized_at_launch {
            return false;
        }
        let threads = stand_in.block_threads.max(1);
        let limits = stand_in.sm.limits();
        let blocks = (limits.threads_per_sm() / threads).clamp(1, limits.blocks_per_sm);
        let per_block = (PRAGMA_TAKES / blocks).saturating_sub(limits.reserved_shared_per_block);
        let frames = |resources: Resources| resources.frames(&Machine::H200, self.request.grid);
        LARGER_FRAMES.into_iter().all(|larger| {
            let frame = larger.saturating_mul(stand_in.frame);
            let moved = frame.min(per_block / threads);
            let before = Resources { frame, ..stand_in };
            let after = Resources {
                shared: u64::from(moved) * u64::from(threads),
                frame: frame - moved,
                ..stand_in
            };
            match (frames(before), frames(after)) {
                (Some(before), Some(after)) => {
                    let moved = f64::from(moved) * after.threads;
                    after.uncached - before.uncached <= moved
                }
                _ => false,
            }
        })
    }
}

impl Resources {
    /// The same with so many bytes per thread of local memory more.
    fn with_local(self, bytes: u32) -> Resources {
        Resources {
            frame: self.frame.saturating_add(bytes),
            ..self
        }
    }
}

/// Whether a frame of so many bytes is much to spill for a cap.
fn is_much(bytes: u32, cap: u32) -> bool {
    f64::from(bytes) / 4.0 >= MUCH_TO_SPILL * f64::from(cap)
}

/// Whether something is at work that frames do not tell of, where so many warps are left.
fn is_in_doubt(warps: u32, shape: &Shape) -> bool {
    warps < FEW_WARPS || shape.global_loads > MANY_LOADS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::{Facts, Request};

    /// What was chosen for a kernel of the corpus, and what that took.
    fn effort(file: &str, kernel: &str, cap: u32, block: u32) -> (String, Effort) {
        let path = format!("{}/../../corpus/ptx/{file}", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(path).unwrap();
        let options = ModuleOptions {
            maxnreg: Some(cap),
            block: Some(block),
            ..ModuleOptions::default()
        };
        let facts = Facts::of(&warpalloc_ptx::parse(&source).unwrap(), &options);
        let contest = Contest {
            request: Request {
                source: &source,
                options: &options,
                ptxas: None,
                grid: None,
                dynamic_shared: None,
                machine_code: false,
                uncapped: false,
                measure: None,
                cache: None,
            },
            facts: &facts,
            kernel,
            gathers: Default::default(),
        };
        let (chosen, effort) = contest.hold_counting().unwrap();
        let is_left = chosen.choice.chosen == Candidate::Original;
        // What was made is not to be made again.
        assert_eq!(chosen.result.is_none(), is_left);
        (chosen.choice.chosen.to_string(), effort)
    }

    #[test]
    fn a_kernel_is_allocated_no_more_often_than_the_answer_takes() {
        let told = |file, kernel, cap, block| {
            let (chosen, Effort { frames, texts }) = effort(file, kernel, cap, block);
            (chosen, frames, texts)
        };
        let is = |chosen: &str, frames, texts| (chosen.to_owned(), frames, texts);
        let [mma, sha, fft] = ["mma.sm_90.ptx", "sha256.sm_90.ptx", "fft16.sm_90.ptx"];
        assert_eq!(
            told("wide.sm_90.ptx", "carries", 64, 128),
            is("original", 1, 0)
        );
        let pragma = "ptxas, shared spills";
        assert_eq!(told(mma, "wmma_hgemm", 160, 32), is(pragma, 1, 0), "little");
        assert_eq!(
            told(fft, "fft64", 24, 128),
            is("briggs, shared", 1, 1),
            "more than shared memory holds"
        );
        assert_eq!(told(sha, "sha256_x3", 24, 128), is("briggs, shared", 1, 1));
        assert_eq!(
            told(mma, "mma_bf16", 48, 32),
            is("briggs, shared", 1, 2),
            "in doubt"
        );
        assert_eq!(
            told(sha, "sha256_x3", 64, 256),
            is("briggs, shared", 1, 1),
            "a frame that fits a large block"
        );
        assert_eq!(
            told("wide.sm_90.ptx", "limbs", 24, 128),
            is("original", 1, 0),
            "products of 64 bits"
        );
    }

    #[test]
    fn much_to_spill_is_half_a_word_per_register() {
        assert!(is_much(80, 40));
        assert!(!is_much(76, 40));
    }

    #[test]
    fn few_warps_and_many_loads_are_in_doubt() {
        let shape = |global_loads: f64| Shape {
            longest_loop: 0,
            global_loads,
            gathers: 0.0,
            expanded: 0.0,
        };
        assert!(!is_in_doubt(12, &shape(0.1)));
        assert!(is_in_doubt(11, &shape(0.0)));
        assert!(is_in_doubt(64, &shape(0.2)));
    }
}
