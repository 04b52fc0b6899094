//! One kernel's candidates: built, judged or timed, and compared.

use std::cmp::Ordering;
use std::sync::OnceLock;

use rayon::prelude::*;
use warpalloc_ptx::module::{FunctionReport, ModuleResult, Outcome, allocate_module};
use warpalloc_sass::allocate::allocate_kernel;
use warpalloc_sass::object::Cubin;
use warpalloc_sass::spills::spills_to_shared;

use crate::bounds;
use crate::candidate::Candidate;
use crate::choose::{ChooseError, Facts, Judged, KernelChoice, Request};
use crate::judge::{Estimate, JudgeError, Machine, Setting, gathers, judge};
use crate::measure::{Measure, MeasureError, WORTH_IT_MEASURED};
use crate::ptxas::{Assembly, Ptxas, PtxasError};

/// The estimate over the original's above which another budget makes nothing better of it.
const HOPELESS: f64 = 1.05;
/// The share of the original's spills that ptxas may add to an allocation for lack of registers
/// before it is worth giving it some.
const FEW_SPILLS: f64 = 0.05;

/// The most instructions of machine code that is allocated: up to there that takes about as long as
/// two runs of ptxas.
const FEW_INSTRUCTIONS: usize = 2048;

/// The share of gathers among loads from global memory above which spill code in machine code that ptxas
/// made for all registers is not tried: that code keeps as many gathers in flight as it had registers
/// for, and how they share what is left of the cache is not known.
const MOSTLY_GATHERS: f64 = 0.5;

/// Shared memory that every launch gets without asking for more.
const WITHOUT_OPT_IN: u64 = 48 * 1024;

/// One kernel's candidates against each other.
pub(crate) struct Contest<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) facts: &'a Facts,
    pub(crate) kernel: &'a str,
    /// [`gathers`] of the kernel, once something is judged.
    pub(crate) gathers: OnceLock<f64>,
}

/// What was chosen for a kernel, and the module with it, where that was built.
pub(crate) struct Chosen {
    pub(crate) choice: KernelChoice,
    pub(crate) result: Option<ModuleResult>,
}

/// A candidate, and what was built of it.
struct Entrant {
    judged: Judged,
    /// That of its machine code.
    estimate: Option<Estimate>,
    /// Its machine code.
    cubin: Option<Vec<u8>>,
    /// The module with it; moved spills are those of the original's.
    result: Option<ModuleResult>,
}

impl Entrant {
    /// Stores to local memory that ptxas added.
    fn local_stores(&self) -> usize {
        self.estimate.map_or(0, |estimate| estimate.local_stores)
    }

    /// Whether the same allocator with another budget may be better than the original, if this is
    /// what it made before.
    fn leaves_chance(&self, next: Candidate, original: &Built) -> bool {
        let Candidate::Allocated { margin, .. } = next else {
            return true;
        };
        match self.judged.score() {
            Some(score) if score > HOPELESS => false,
            // Fewer registers for the text are more for ptxas, which must lack some.
            Some(_) if margin > 0 => {
                self.local_stores() as f64 > FEW_SPILLS * original.estimate.local_stores as f64
            }
            Some(_) => true,
            None => false,
        }
    }
}

impl Contest<'_> {
    pub(crate) fn hold(&self) -> Result<Chosen, ChooseError> {
        let Some(ptxas) = self.request.ptxas else {
            return self.hold_without_ptxas();
        };
        let left = |reason: String, candidates| KernelChoice {
            name: self.kernel.to_owned(),
            chosen: Candidate::Original,
            reason,
            candidates,
        };
        let original = match self.build(ptxas, Candidate::Original)? {
            Ok(built) => built,
            Err(why) => {
                let reason = format!("left as it is: {why}");
                return Ok(Chosen {
                    choice: left(reason, Vec::new()),
                    result: None,
                });
            }
        };
        let mut candidates = vec![Judged {
            candidate: Candidate::Original,
            ratios: Ok([1.0, 1.0]),
        }];
        if let Some(reason) = self.settled(&original) {
            return Ok(Chosen {
                choice: left(format!("left as it is: {reason}"), candidates),
                result: Some(original.result),
            });
        }
        let mut rows = Candidate::rows(self.request.machine_code);
        if !self.request.uncapped || self.setting().gathers > MOSTLY_GATHERS {
            rows.retain(|row| *row != [Candidate::Spilled]);
        }
        let entrants: Result<Vec<Vec<Entrant>>, ChooseError> = rows
            .par_iter()
            .map(|row| self.row(ptxas, row, &original))
            .collect();
        let mut entrants: Vec<Entrant> = entrants?.into_iter().flatten().collect();
        if let Some(measure) = self.request.measure {
            entrants = self.timed(measure, ptxas, &original, entrants)?;
        }
        candidates.extend(entrants.iter().map(|entrant| entrant.judged.clone()));
        let is_measured = self.request.measure.is_some();
        let worth_it = |entrant: &Entrant| match is_measured {
            true => WORTH_IT_MEASURED,
            false => bounds::worth_it(
                entrant.judged.candidate,
                entrant.estimate.as_ref().unwrap_or(&original.estimate),
                &original.estimate,
                self.request.grid,
            ),
        };
        let better = |entrant: &Entrant| entrant.judged.is_better(worth_it(entrant));
        let rank = |entrant: &Entrant| match is_measured {
            true => score(&entrant.judged),
            false => bounds::rank(&entrant.judged),
        };
        let best = entrants.into_iter().filter(better);
        let best = best.min_by(|a, b| in_order((a, rank(a)), (b, rank(b))));
        let Some(best) = best else {
            let reason = match is_measured {
                true => "left as it is: no candidate is faster",
                false => "left as it is: no candidate is expected to be faster in every launch",
            };
            return Ok(Chosen {
                choice: left(reason.to_owned(), candidates),
                result: Some(original.result),
            });
        };
        let expected = score(&best.judged);
        Ok(Chosen {
            choice: KernelChoice {
                name: self.kernel.to_owned(),
                chosen: best.judged.candidate,
                reason: match is_measured {
                    true => format!("measured at {expected:.2} of the original's time"),
                    false => format!("expected to take {expected:.2} of the original's time"),
                },
                candidates,
            },
            result: best.result.or(Some(original.result)),
        })
    }

    /// Why no candidate can be better than the original, where that is known at once.
    fn settled(&self, original: &Built) -> Option<&'static str> {
        if !original.estimate.spills() {
            Some("ptxas does not spill in it")
        } else if self.facts.sized_at_launch && self.request.dynamic_shared.is_none() {
            Some(
                "its shared memory is sized at the launch; --dynamic-shared says how much there is",
            )
        } else if self.request.options.block.is_none() && !self.facts.bounded(self.kernel) {
            Some(
                "nobody says how many threads its blocks have, which spills to shared memory need; `__launch_bounds__` or --block does",
            )
        } else {
            None
        }
    }

    /// The candidates of a row, up to the first that has no chance after the one before it.
    fn row(
        &self,
        ptxas: &Ptxas,
        row: &[Candidate],
        original: &Built,
    ) -> Result<Vec<Entrant>, ChooseError> {
        let mut entrants: Vec<Entrant> = Vec::new();
        let mut rests: Vec<Entrant> = Vec::new();
        for &candidate in row {
            let has_chance = |before: &Entrant| before.leaves_chance(candidate, original);
            if !entrants.last().is_none_or(has_chance) {
                break;
            }
            let entrant = self.entrant(ptxas, candidate, original)?;
            rests.extend(self.rest_moved(&entrant, original));
            entrants.push(entrant);
        }
        entrants.extend(rests);
        Ok(entrants)
    }

    /// The same with the spills that ptxas added in shared memory too, where that is machine code and
    /// has any.
    fn rest_moved(&self, entrant: &Entrant, original: &Built) -> Vec<Entrant> {
        let of = entrant.judged.candidate.shared_text();
        let (Some(of), Some(cubin)) = (of, entrant.cubin.as_deref()) else {
            return Vec::new();
        };
        if !self.request.machine_code || entrant.local_stores() == 0 {
            return Vec::new();
        }
        let moved = |all| {
            let result = entrant.result.clone();
            self.moved(Candidate::RestMoved { of, all }, cubin, result, original)
        };
        let mut in_place = moved(false);
        in_place.judged.at_most(&entrant.judged);
        let is_all = in_place.cubin.is_some() && in_place.local_stores() == 0;
        match is_all {
            true => vec![in_place],
            false => vec![in_place, moved(true)],
        }
    }

    fn entrant(
        &self,
        ptxas: &Ptxas,
        candidate: Candidate,
        original: &Built,
    ) -> Result<Entrant, ChooseError> {
        if let Candidate::Moved { .. } = candidate {
            return Ok(self.moved(candidate, &original.cubin, None, original));
        }
        let built = self.build(ptxas, candidate)?;
        let ratios = match &built {
            Ok(built) => Ok(built.estimate.over(&original.estimate)),
            Err(why) => Err(why.clone()),
        };
        let estimate = built.as_ref().ok().map(|built| built.estimate);
        let (cubin, result) = built.ok().map(|b| (b.cubin, b.result)).unzip();
        Ok(Entrant {
            judged: Judged { candidate, ratios },
            estimate,
            cubin,
            result,
        })
    }

    /// Machine code of ptxas with its spills in shared memory.
    fn moved(
        &self,
        candidate: Candidate,
        cubin: &[u8],
        result: Option<ModuleResult>,
        original: &Built,
    ) -> Entrant {
        let all = candidate.moves() == Some(true);
        let options = self.request.move_options(self.facts, all);
        let moved = spills_to_shared(cubin, self.kernel, &options);
        let moved = moved.map_err(|refusal| refusal.to_string());
        let judged = moved.and_then(|moved| {
            let estimate = judge(&Machine::H200, &moved.bytes, self.kernel, self.setting());
            let estimate = estimate.map_err(|error| unjudged(&error))?;
            Ok((estimate, moved.bytes))
        });
        let (ratios, estimate, cubin) = match judged {
            Ok((estimate, cubin)) => (
                Ok(estimate.over(&original.estimate)),
                Some(estimate),
                Some(cubin),
            ),
            Err(reason) => (Err(reason), None, None),
        };
        Entrant {
            judged: Judged { candidate, ratios },
            estimate,
            cubin,
            result,
        }
    }

    /// The machine code without a cap, with spill code for the cap, and the module that ptxas makes
    /// it of.
    fn spilled(&self, ptxas: &Ptxas) -> Result<Result<Made, String>, ChooseError> {
        let Some(options) = self.request.spill_options(self.facts) else {
            return Ok(Err("there is no cap to allocate for".to_owned()));
        };
        let made = self.assembled(ptxas, Candidate::Spilled)?;
        Ok(made.and_then(|(uncapped, result)| {
            if instructions(&uncapped, self.kernel) > FEW_INSTRUCTIONS {
                let reason =
                    format!("it has more than {FEW_INSTRUCTIONS} instructions without a cap");
                return Err(reason);
            }
            let spilled = allocate_kernel(&uncapped, self.kernel, &options);
            match spilled.map(|spilled| spilled.bytes) {
                Ok(Some(bytes)) => Ok((bytes, result)),
                Ok(None) => Err("it takes no more registers than it may".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        }))
    }

    /// The same entrants with times in the place of estimates.
    fn timed(
        &self,
        measure: &Measure,
        ptxas: &Ptxas,
        original: &Built,
        mut entrants: Vec<Entrant>,
    ) -> Result<Vec<Entrant>, ChooseError> {
        let reference = ptxas.assemble(Assembly {
            text: self.request.source,
            arch: &self.facts.arch,
            entry: Some(self.kernel),
            contraction: self.request.options.contraction,
        })?;
        let cubins = entrants.iter().filter_map(|e| e.cubin.as_deref());
        let cubins: Vec<&[u8]> = [&original.cubin[..]].into_iter().chain(cubins).collect();
        let mut times = measure.times(self.kernel, &reference, &cubins)?.into_iter();
        let own = match times.next() {
            Some(Ok(own)) => own,
            Some(Err(reason)) => {
                let kernel = self.kernel.to_owned();
                return Err(MeasureError::Kernel { kernel, reason }.into());
            }
            None => return Ok(entrants),
        };
        let measured = entrants
            .iter_mut()
            .filter(|entrant| entrant.cubin.is_some());
        for (entrant, time) in measured.zip(times) {
            entrant.judged.ratios = time.map(|time| [time / own; 2]);
        }
        Ok(entrants)
    }

    fn setting(&self) -> Setting {
        Setting {
            block_threads: self.request.options.block,
            blocks: self.request.grid,
            dynamic_shared: self.request.dynamic_shared.unwrap_or(0),
            gathers: *self
                .gathers
                .get_or_init(|| gathers(self.request.source, self.kernel)),
        }
    }

    /// What ptxas makes of a candidate, and of which module, or why there is none.
    fn assembled(
        &self,
        ptxas: &Ptxas,
        candidate: Candidate,
    ) -> Result<Result<Made, String>, ChooseError> {
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
        match ptxas.assemble(assembly) {
            Ok(cubin) => Ok(Ok((cubin, result))),
            Err(error @ PtxasError::Refused(_)) => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// A candidate that ptxas makes, judged.
    fn build(
        &self,
        ptxas: &Ptxas,
        candidate: Candidate,
    ) -> Result<Result<Built, String>, ChooseError> {
        let made = match candidate {
            Candidate::Spilled => self.spilled(ptxas)?,
            _ => self.assembled(ptxas, candidate)?,
        };
        Ok(made.and_then(|(cubin, result)| {
            let estimate = judge(&Machine::H200, &cubin, self.kernel, self.setting());
            let estimate = estimate.map_err(|error| unjudged(&error))?;
            if let Some(reason) = self.beyond_the_launch(candidate, &estimate) {
                return Err(reason);
            }
            Ok(Built {
                cubin,
                estimate,
                result,
            })
        }))
    }

    /// Why a launch that gives the kernel dynamic shared memory might fail.
    fn beyond_the_launch(&self, candidate: Candidate, estimate: &Estimate) -> Option<String> {
        let dynamic = self
            .request
            .dynamic_shared
            .filter(|_| self.facts.sized_at_launch)?;
        let bytes = estimate.shared_bytes + u64::from(dynamic);
        let is_ours = candidate != Candidate::Original;
        (is_ours && bytes > WITHOUT_OPT_IN).then(|| {
            format!(
                "{bytes} bytes of shared memory with the dynamic share, {WITHOUT_OPT_IN} launch for sure"
            )
        })
    }
}

/// A candidate that was assembled.
struct Built {
    cubin: Vec<u8>,
    estimate: Estimate,
    /// The module with it.
    result: ModuleResult,
}

/// A cubin, and the module that it is made of.
type Made = (Vec<u8>, ModuleResult);

pub(crate) fn score(judged: &Judged) -> f64 {
    judged.score().unwrap_or(f64::INFINITY)
}

/// The instructions of a kernel of a cubin.
fn instructions(cubin: &[u8], kernel: &str) -> usize {
    let cubin = Cubin::read(cubin).ok();
    let function = cubin.as_ref().and_then(|cubin| cubin.function(kernel));
    function.map_or(0, |function| function.code.len() / 16)
}

/// The order of two entrants with these ranks: where a text and the same with its rest moved are
/// expected to be alike, the moved one comes first.
fn in_order(a: (&Entrant, f64), b: (&Entrant, f64)) -> Ordering {
    let is_moved = |entrant: &Entrant| entrant.judged.candidate.moves().is_some();
    let by_rank = f64::total_cmp(&a.1, &b.1);
    by_rank.then_with(|| is_moved(b.0).cmp(&is_moved(a.0)))
}

fn unjudged(error: &JudgeError) -> String {
    format!("its machine code cannot be judged: {error}")
}

/// Why what was made of a kernel is not the candidate it was meant to be.
pub(crate) fn obstacle(
    candidate: Candidate,
    result: &ModuleResult,
    kernel: &str,
) -> Option<String> {
    let report = result.functions.iter().find(|f| f.name == kernel)?;
    match (&report.outcome, candidate) {
        (Outcome::Refused(reason), _) => Some(reason.clone()),
        (Outcome::PassedThrough(passed), _) => Some(passed.reason.clone()),
        (Outcome::Kept(reason), Candidate::Allocated { .. }) => Some(reason.clone()),
        (Outcome::Allocated(allocated), _)
            if allocated.frame.local > 0 && allocated.frame.shared == 0 =>
        {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::SharedText;
    use warpalloc::Strategy;

    fn judged(alone: f64, full: f64) -> Judged {
        Judged {
            candidate: Candidate::SharedPragma,
            ratios: Ok([alone, full]),
        }
    }

    #[test]
    fn a_moved_rest_is_expected_to_be_no_slower_than_its_text() {
        let mut rest = judged(0.6, 0.8);
        rest.at_most(&judged(0.7, 0.75));
        assert_eq!(rest.ratios, Ok([0.6, 0.75]));
        let mut refused = judged(0.6, 0.8);
        refused.ratios = Err("why".to_owned());
        refused.at_most(&judged(0.7, 0.75));
        assert_eq!(refused.ratios, Err("why".to_owned()));
    }

    #[test]
    fn of_two_that_are_expected_alike_the_moved_one_is_taken() {
        let of = SharedText::Pragma;
        let entrant = |candidate| Entrant {
            judged: Judged {
                candidate,
                ratios: Ok([0.5; 2]),
            },
            estimate: None,
            cubin: None,
            result: None,
        };
        let text = entrant(of.into());
        let rest = entrant(Candidate::RestMoved { of, all: false });
        assert_eq!(in_order((&rest, 0.5), (&text, 0.5)), Ordering::Less);
        assert_eq!(in_order((&text, 0.5), (&rest, 0.5)), Ordering::Greater);
        assert_eq!(in_order((&text, 0.4), (&rest, 0.5)), Ordering::Less);
    }

    #[test]
    fn another_budget_is_tried_where_it_has_a_chance() {
        let built = |local_stores: usize| Built {
            cubin: Vec::new(),
            estimate: Estimate::of_stores(local_stores),
            result: ModuleResult {
                text: String::new(),
                functions: Vec::new(),
                promoted: None,
            },
        };
        let entrant = |ratio: Option<f64>, local_stores: usize| Entrant {
            judged: Judged {
                candidate: Candidate::SharedPragma,
                ratios: ratio.map(|ratio| [ratio; 2]).ok_or_else(String::new),
            },
            estimate: Some(Estimate::of_stores(local_stores)),
            cubin: None,
            result: None,
        };
        let leaves = |ratio: Option<f64>, local_stores: usize, margin: i32| {
            let strategy = Strategy::Briggs;
            let next = Candidate::Allocated { strategy, margin };
            entrant(ratio, local_stores).leaves_chance(next, &built(100))
        };
        assert!(leaves(Some(0.9), 6, 4), "ptxas spills in it");
        assert!(!leaves(Some(0.9), 5, 4), "hardly");
        assert!(!leaves(Some(1.1), 50, 4), "it is slow");
        assert!(!leaves(None, 0, 4), "it could not be made");
        assert!(leaves(Some(0.9), 0, -16));
        assert!(!leaves(Some(1.1), 0, -16), "it is slow");
    }
}
