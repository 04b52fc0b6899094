//! A choice where there is no ptxas to compare with.
//!
//! What ptxas would make of the original is not known, so allocations of ours that spill to local
//! memory stand for it: where those spill, ptxas does too, and about as much. It is the better
//! allocator of the two now and then, mostly because it orders instructions anew, so the same with a
//! few registers more, and with a few more again, stand for its best. Against all of them, spill code in
//! shared memory must win, judged from the texts.

use warpalloc::Strategy;
use warpalloc::target::Target;
use warpalloc::target::sm::Sm;
use warpalloc_ptx::EntryFacts;
use warpalloc_ptx::module::{
    Allocated, ModuleOptions, Outcome, PtxError, SpillSpace, allocate_module, lower_function,
};

use crate::candidate::Candidate;
use crate::choose::{ChooseError, Judged, KernelChoice};
use crate::contest::{Chosen, Contest, WITHOUT_OPT_IN, obstacle, score};
use crate::judge::{Estimate, Machine, Resources, judge_text};

/// Registers above the cap that a stand-in is allocated for.
const STAND_INS: [i32; 3] = [0, 8, 16];
/// The estimate of a candidate over that of every stand-in up to which it is taken.
const WORTH_IT_UNSEEN: f64 = 0.8;
/// The same where it also [withstands a better ptxas](withstands).
const HARDLY_WORTH_IT: f64 = 0.97;
/// The estimate of such a candidate over that of a stand-in with as many registers again.
const STILL_WORTH_IT: f64 = 1.1;
/// Warps of a multiprocessor below which nothing hides the latency of another warp: texts do not
/// tell how much of it there is.
const LEAST_WARPS: u32 = 6;

/// Words of the stand-in's frame over the cap below which little has to be spilled: ptxas, which
/// orders instructions anew, then does without most of it.
const MUCH_TO_SPILL: f64 = 0.5;
/// The frame of ptxas over that of the stand-in: which of these is not known, and the corpus has all.
const LARGER_FRAMES: [u32; 3] = [1, 2, 4];
/// Shared memory of a multiprocessor that ptxas takes for spills, those blocks included that the
/// launch may not have: 160 KB less what the system takes of each.
const PRAGMA_TAKES: u32 = 160 * 1024;

/// An allocation and its estimate.
struct Text {
    allocated: Box<Allocated>,
    resources: Resources,
    estimate: Estimate,
}

impl Contest<'_> {
    /// Chooses by texts alone.
    pub(crate) fn hold_without_ptxas(&self) -> Result<Chosen, ChooseError> {
        let chosen = |chosen: Candidate, reason: String, candidates| Chosen {
            choice: KernelChoice {
                name: self.kernel.to_owned(),
                chosen,
                reason,
                candidates,
            },
            result: None,
        };
        let left = |reason: &str| {
            let reason = format!("left as it is, for there is no ptxas to compare with: {reason}");
            Ok(chosen(Candidate::Original, reason, Vec::new()))
        };
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
        let mut stand_ins = Vec::new();
        for more in STAND_INS {
            match self.stand_in(entry, -more)? {
                Ok(text) => stand_ins.push(text),
                Err(reason) => return left(&reason),
            }
            if stand_ins[0].allocated.frame.local == 0 {
                return left("it is expected to fit");
            }
        }
        let stand_in = &stand_ins[0];
        let mut candidates = vec![Judged {
            candidate: Candidate::Original,
            ratios: Ok([1.0, 1.0]),
        }];
        let cap = stand_in.resources.registers;
        let words = f64::from(stand_in.allocated.frame.local) / 4.0;
        let much = words >= MUCH_TO_SPILL * f64::from(cap);
        // The second allocator is the slower one more often than its estimates say: it is there for
        // kernels in which the first finds no room.
        for strategy in [Strategy::Briggs, Strategy::Fatpoint] {
            let margin = 0;
            let candidate = Candidate::Allocated { strategy, margin };
            let options = candidate.options(self.request.options, self.kernel);
            let built = match self.text(entry, candidate, &options)? {
                Ok(built) => built,
                Err(reason) => {
                    let ratios = Err(reason);
                    candidates.push(Judged { candidate, ratios });
                    continue;
                }
            };
            let over = |against: &Text| Judged {
                candidate,
                ratios: Ok(built.estimate.over(&against.estimate)),
            };
            let judged: Vec<Judged> = stand_ins.iter().map(over).collect();
            candidates.push(judged[0].clone());
            if much && is_better_unseen(&judged, [stand_in, &built].map(|t| t.resources.warps())) {
                let reason = format!(
                    "expected to take {:.2} of the original's time; there is no ptxas to compare with",
                    score(&judged[0])
                );
                return Ok(chosen(candidate, reason, candidates));
            }
            break;
        }
        if !stand_in.estimate.has_long_loop && self.pragma_is_safe(entry, stand_in.resources) {
            let reason = "expected to spill; there is no ptxas to compare with".to_owned();
            return Ok(chosen(Candidate::SharedPragma, reason, candidates));
        }
        let reason = "left as it is, for there is no ptxas to compare with: no candidate is expected \
                      to be faster in every launch";
        Ok(chosen(Candidate::Original, reason.to_owned(), candidates))
    }

    /// Whether nothing is lost where ptxas spills to shared memory by itself: what it takes may cost
    /// a kernel with shared memory of its own a block, and what is set aside for it takes bytes of frames
    /// out of the first-level cache, which may be no more than it moves to shared memory.
    fn pragma_is_safe(&self, entry: &EntryFacts, stand_in: Resources) -> bool {
        if entry.shared_bytes > 0 || self.facts.sized_at_launch {
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

    /// What stands for that which ptxas makes of the original.
    fn stand_in(
        &self,
        entry: &EntryFacts,
        margin: i32,
    ) -> Result<Result<Text, String>, ChooseError> {
        let strategy = Strategy::Briggs;
        let candidate = Candidate::Allocated { strategy, margin };
        let options = ModuleOptions {
            spill_space: SpillSpace::Local,
            ..candidate.options(self.request.options, self.kernel)
        };
        self.text(entry, Candidate::Original, &options)
    }

    /// An allocation, judged by its text, or why there is none.
    fn text(
        &self,
        entry: &EntryFacts,
        candidate: Candidate,
        options: &ModuleOptions,
    ) -> Result<Result<Text, String>, ChooseError> {
        let result = allocate_module(self.request.source, options, None)?;
        let is_candidate = candidate != Candidate::Original;
        let obstacle = obstacle(candidate, &result, self.kernel).filter(|_| is_candidate);
        if let Some(reason) = obstacle {
            return Ok(Err(reason));
        }
        let mut functions = result.functions.into_iter();
        let own = functions.find(|function| function.name == self.kernel);
        let allocated = match own.map(|function| function.outcome) {
            Some(Outcome::Allocated(allocated)) => allocated,
            Some(Outcome::Refused(reason) | Outcome::Kept(reason)) => return Ok(Err(reason)),
            Some(Outcome::PassedThrough(passed)) => return Ok(Err(passed.reason)),
            _ => return Ok(Err("it was not allocated".to_owned())),
        };
        let Ok(sm) = self.facts.arch.parse::<Sm>() else {
            return Ok(Err(format!("no figures are known for {}", self.facts.arch)));
        };
        let target = Target::preset("hardware", sm.number());
        let target = target.map_err(|error| PtxError::Target(error.to_string()))?;
        let Some(function) = lower_function(&result.text, self.kernel, &target)? else {
            return Ok(Err("its allocated text is not understood".to_owned()));
        };
        let threads = entry.block_threads.or(options.block).unwrap_or(1);
        let frame = u64::from(allocated.frame.shared) * u64::from(threads);
        let dynamic = self
            .request
            .dynamic_shared
            .filter(|_| self.facts.sized_at_launch);
        let shared = entry.shared_bytes + frame + u64::from(dynamic.unwrap_or(0));
        if frame > 0 && shared > WITHOUT_OPT_IN {
            return Ok(Err(format!(
                "{shared} bytes of shared memory, {WITHOUT_OPT_IN} launch for sure"
            )));
        }
        let own_local = u32::try_from(entry.local_bytes).unwrap_or(u32::MAX);
        let resources = Resources {
            sm,
            registers: self.request.options.maxnreg.unwrap_or(allocated.budget),
            block_threads: threads,
            shared,
            frame: own_local.saturating_add(allocated.frame.local),
        };
        let warps = resources.warps();
        if frame > 0 && warps < LEAST_WARPS {
            return Ok(Err(format!(
                "{shared} bytes of shared memory leave a multiprocessor {warps} warps"
            )));
        }
        let estimate = judge_text(&Machine::H200, &function, resources, self.request.grid);
        Ok(match estimate {
            Ok(estimate) => Ok(Text {
                allocated,
                resources,
                estimate,
            }),
            Err(error) => Err(format!("it cannot be judged: {error}")),
        })
    }
}

/// Whether a candidate is better than each of the stand-ins, by their estimates, by enough. `warps` are
/// those of a multiprocessor with the stand-in and with the candidate.
fn is_better_unseen(over: &[Judged], warps: [u32; 2]) -> bool {
    let by = |worth_it: f64| over.iter().all(|judged| judged.is_better(worth_it));
    by(WORTH_IT_UNSEEN) || by(HARDLY_WORTH_IT) && withstands(over, warps)
}

/// Whether a candidate stays about as good where ptxas saves as many registers again as the last
/// stand-in has more than the first: where a few registers change much, an error of the stand-ins does
/// too. So do lost warps, whose worth texts do not tell.
fn withstands(over: &[Judged], [before, after]: [u32; 2]) -> bool {
    let ends = over.first().zip(over.last());
    let again = ends.map(|(first, last)| score(last) * score(last) / score(first));
    again.is_some_and(|again| again <= STILL_WORTH_IT) && 2 * after >= before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_is_better_than_every_stand_in_or_withstands_a_better_ptxas() {
        let is_better = |ratios: [f64; 3], warps: [u32; 2]| {
            let judged = ratios.map(|ratio| Judged {
                candidate: Candidate::Original,
                ratios: Ok([ratio; 2]),
            });
            is_better_unseen(&judged, warps)
        };
        assert!(is_better([0.4, 0.5, 0.7], [32, 7]), "by much");
        assert!(!is_better([0.5, 0.6, 0.85], [12, 12]), "0.85 * 0.85 / 0.5");
        assert!(is_better([0.9, 0.92, 0.95], [48, 24]));
        assert!(
            !is_better([0.9, 0.92, 0.95], [48, 23]),
            "too few warps are left"
        );
        assert!(!is_better([0.95, 0.96, 0.98], [48, 48]), "by little");
        assert!(!is_better([0.7, 1.01, 0.7], [48, 48]));
    }
}
