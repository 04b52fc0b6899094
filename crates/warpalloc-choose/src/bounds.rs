//! What a candidate must be expected to save before the original gives way to it.
//!
//! Each bound is a ratio of estimates, picked by measured times (`docs/choose.md` says which). They
//! make up for what the judge does not know of a kind of candidate.

use crate::candidate::Candidate;
use crate::choose::Judged;
use crate::contest::score;
use crate::judge::Estimate;

/// A smaller gain than this is within the error of the estimate.
const USUAL: f64 = 0.93;
/// What ptxas makes with the pragma. All it gains is what accesses to shared memory save,
/// and what they cost besides, in cache and in conflicts, is known least.
const WITH_PRAGMA: f64 = 0.85;
/// Spills that are moved and cost a resident block.
const MOVED: f64 = 0.92;
/// Spills that are moved and cost none: the code is that of the original, instruction for
/// instruction, and turns out faster than its estimate.
const IN_PLACE: f64 = 0.96;
/// The same where some of them stay in local memory, which shared memory takes cache from.
const IN_PART: f64 = 0.93;
/// Where the launch is not known.
const ANYWHERE: f64 = 0.8;
/// Where a loop is longer than the cache nearest to the schedulers: what fetching takes is known least.
const WITH_LONG_LOOP: f64 = 0.8;
/// The same where few warps hide that, or half of those that do so in the original.
const EXPOSED_LONG_LOOP: f64 = 0.5;
/// Every candidate where a multiprocessor holds few warps: what these do not hide depends on the exact
/// schedule.
const WITH_FEW_WARPS: [(u32, f64); 2] = [(2 * SCHEDULERS, 0.75), (4 * SCHEDULERS, 0.82)];
const SCHEDULERS: u32 = 4;
/// Moved spills where it holds as few: the schedule is that of the original.
const MOVED_WITH_FEW_WARPS: f64 = 0.86;
/// What the estimate of an allocation for fewer registers than the cap is multiplied by before it is
/// compared with others: what ptxas makes of the registers it is left is known least.
const LEFT_REGISTERS: f64 = 1.05;
/// The same for spill code in what ptxas made without the cap: nothing was scheduled around it, and
/// its estimates are the lowest for what they turn out to be.
const UNSCHEDULED: f64 = 1.1;

/// The estimate of a candidate over the original's above which the original stays. `made` is the
/// estimate of what was made of it.
pub(crate) fn worth_it(
    candidate: Candidate,
    made: &Estimate,
    original: &Estimate,
    grid: Option<u32>,
) -> f64 {
    let mut worth_it = of_kind(candidate);
    if matches!(candidate, Candidate::Moved { .. }) && made.local_stores > 0 {
        worth_it = worth_it.min(IN_PART);
    }
    let few = WITH_FEW_WARPS
        .into_iter()
        .find(|&(warps, _)| original.warps <= warps);
    if let Some((_, bound)) = few {
        worth_it = worth_it.min(match candidate {
            Candidate::Moved { .. } => MOVED_WITH_FEW_WARPS,
            _ => bound,
        });
    }
    if original.has_long_loop {
        let is_exposed = original.warps <= WITH_FEW_WARPS[0].0 || 2 * made.warps <= original.warps;
        worth_it = worth_it.min(match is_exposed {
            true => EXPOSED_LONG_LOOP,
            false => WITH_LONG_LOOP,
        });
    }
    match grid {
        Some(_) => worth_it,
        None => worth_it.min(ANYWHERE),
    }
}

/// The same by what kind of candidate it is.
fn of_kind(candidate: Candidate) -> f64 {
    match candidate {
        Candidate::SharedPragma => WITH_PRAGMA,
        Candidate::RestMoved { of, .. } => of_kind(of.into()),
        Candidate::Moved { all: true } => MOVED,
        Candidate::Moved { all: false } => IN_PLACE,
        Candidate::Spilled => USUAL / UNSCHEDULED,
        _ => USUAL,
    }
}

/// What estimates are ordered by.
pub(crate) fn rank(judged: &Judged) -> f64 {
    let text = match judged.candidate {
        Candidate::RestMoved { of, .. } => of.into(),
        candidate => candidate,
    };
    match text {
        Candidate::Allocated { margin: 1.., .. } => LEFT_REGISTERS * score(judged),
        Candidate::Spilled => UNSCHEDULED * score(judged),
        _ => score(judged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::SharedText;
    use warpalloc::Strategy;

    /// The bound of a candidate that leaves nothing in local memory, in a known launch.
    fn worth_it(candidate: Candidate, original: &Estimate) -> f64 {
        let mut made = *original;
        made.local_stores = 0;
        super::worth_it(candidate, &made, original, Some(1))
    }

    #[test]
    fn a_candidate_must_be_better_in_both_settings_and_by_enough() {
        let is_better = |ratios: [f64; 2], worth_it: f64| {
            let judged = Judged {
                candidate: Candidate::SharedPragma,
                ratios: Ok(ratios),
            };
            judged.is_better(worth_it)
        };
        assert!(is_better([0.7, 0.9], ANYWHERE));
        assert!(!is_better([1.01, 0.3], ANYWHERE));
        assert!(!is_better([0.3, 1.01], ANYWHERE));
        assert!(!is_better([0.85, 0.85], ANYWHERE));
        assert!(is_better([0.9, 0.9], USUAL));
        assert!(!is_better([0.95, 0.95], USUAL));
    }

    #[test]
    fn what_is_known_least_must_be_worth_more() {
        let strategy = Strategy::Briggs;
        let own = Candidate::Allocated {
            strategy,
            margin: 0,
        };
        let original = Estimate::of_stores(64);
        let [all, some] = [true, false].map(|all| Candidate::Moved { all });
        for candidate in [Candidate::SharedPragma, all, Candidate::Spilled] {
            assert!(worth_it(candidate, &original) < worth_it(own, &original));
        }
        assert!(worth_it(some, &original) > worth_it(own, &original));
        let rest = |of, all| Candidate::RestMoved { of, all };
        let [pragma, text] = [
            SharedText::Pragma,
            SharedText::Allocated {
                strategy,
                margin: 0,
            },
        ];
        assert!(worth_it(rest(pragma, false), &original) < worth_it(rest(text, false), &original));
        assert_eq!(
            worth_it(rest(text, true), &original),
            worth_it(own, &original)
        );
    }

    #[test]
    fn a_long_loop_must_be_worth_more_and_most_where_few_warps_are_left() {
        let mut original = Estimate::of_stores(64);
        original.has_long_loop = true;
        let bound = |of: u32, left: u32| {
            let mut original = original;
            original.warps = of;
            let mut made = original;
            made.warps = left;
            let candidate = Candidate::Moved { all: true };
            super::worth_it(candidate, &made, &original, Some(1))
        };
        assert_eq!(bound(32, 32), WITH_LONG_LOOP);
        assert_eq!(bound(32, 17), WITH_LONG_LOOP);
        assert_eq!(bound(32, 16), EXPOSED_LONG_LOOP);
        assert_eq!(bound(8, 8), EXPOSED_LONG_LOOP);
    }

    #[test]
    fn with_few_warps_every_candidate_must_be_worth_more() {
        let with_warps = |candidate, warps: u32| {
            let mut original = Estimate::of_stores(64);
            original.warps = warps;
            worth_it(candidate, &original)
        };
        let strategy = Strategy::Briggs;
        let own = Candidate::Allocated {
            strategy,
            margin: 0,
        };
        for candidate in [own, Candidate::SharedPragma, Candidate::Spilled] {
            let bounds = [1, 8, 9, 16, 17].map(|warps| with_warps(candidate, warps));
            assert!(
                bounds[0] == bounds[1] && bounds[1] < bounds[2],
                "{candidate}"
            );
            assert!(
                bounds[2] == bounds[3] && bounds[3] < bounds[4],
                "{candidate}"
            );
        }
    }

    #[test]
    fn moved_spills_must_be_worth_more_where_some_stay() {
        let bound = |candidate, local_stores| {
            let original = Estimate::of_stores(64);
            let made = Estimate::of_stores(local_stores);
            super::worth_it(candidate, &made, &original, Some(1))
        };
        let [all, some] = [true, false].map(|all| Candidate::Moved { all });
        assert!(bound(some, 8) < bound(some, 0));
        assert_eq!(bound(all, 8), bound(all, 0));
        let pragma = Candidate::SharedPragma;
        assert_eq!(bound(pragma, 8), bound(pragma, 0));
    }

    #[test]
    fn what_is_known_least_must_be_better_by_more() {
        let strategy = Strategy::Briggs;
        let rank = |margin, ratio: f64| {
            super::rank(&Judged {
                candidate: Candidate::Allocated { strategy, margin },
                ratios: Ok([ratio; 2]),
            })
        };
        let rest = |margin, all, ratio: f64| {
            let of = SharedText::Allocated { strategy, margin };
            super::rank(&Judged {
                candidate: Candidate::RestMoved { of, all },
                ratios: Ok([ratio; 2]),
            })
        };
        for (margin, all) in [(0, true), (4, true), (4, false)] {
            assert_eq!(rest(margin, all, 0.62), rank(margin, 0.62));
        }
        assert!(rank(4, 0.67) > rank(0, 0.70));
        assert!(rank(4, 0.66) < rank(0, 0.70));
        assert!(rank(-16, 0.68) < rank(0, 0.70));
        let spilled = |ratio: f64| {
            super::rank(&Judged {
                candidate: Candidate::Spilled,
                ratios: Ok([ratio; 2]),
            })
        };
        assert!(spilled(0.64) > rank(0, 0.70));
        assert!(spilled(0.63) < rank(0, 0.70));
    }

    #[test]
    fn in_an_unknown_launch_every_candidate_must_be_worth_more() {
        let original = Estimate::of_stores(64);
        for candidate in [Candidate::SharedPragma, Candidate::Moved { all: false }] {
            assert_eq!(
                super::worth_it(candidate, &original, &original, None),
                ANYWHERE
            );
        }
    }
}
