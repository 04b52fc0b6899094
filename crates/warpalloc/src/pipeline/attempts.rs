//! Several attempts to allocate one function, of which the cheapest allocation is kept.

use super::{Base, Pipeline};
use crate::allocation::{Allocation, Frame};
use crate::colour::{
    self, Attempt, Colourer, FrameUse, Held, MAX_INSTS_TO_COMPARE, Positions, attempts, must_spill,
};
use crate::cycles::AddedCycles;
use crate::error::Error;
use crate::function::Function;
use crate::options::Strategy;
use crate::stats::Stats;
use std::cell::OnceCell;

/// Cycles that an allocation with a smaller frame in shared memory may add, over those of one with a
/// larger.
const WORTH_OF_ROOM: f64 = 1.15;

/// An allocation and the attempt that made it.
pub(super) struct Candidate {
    pub(super) allocation: Allocation,
    attempt: Attempt,
    /// Cycles that it adds to one run of the function, once it is compared with another.
    cycles: OnceCell<f64>,
}

impl Candidate {
    fn new(allocation: Allocation, attempt: Attempt) -> Candidate {
        Candidate {
            allocation,
            attempt,
            cycles: OnceCell::new(),
        }
    }

    /// Whether another attempt may be cheaper, and is worth its time: predicates that are
    /// carried in general registers or rematerialised gain nothing from one.
    fn is_improvable(&self, function: &Function) -> bool {
        let stats = &self.allocation.stats;
        let is_cheap = stats.edits.stores + stats.edits.reloads == 0 && !stats.fell_back;
        !is_cheap && function.inst_count() <= MAX_INSTS_TO_COMPARE
    }
}

impl<'a> Pipeline<'a> {
    /// The cheapest allocation that any attempt finds.
    pub(super) fn cheapest_attempt(
        &self,
        colourer: &mut dyn Colourer,
    ) -> Result<Allocation, Error> {
        let (first, others) = attempts(self.options);
        let hoisting = self.prepare(first.hoist)?;
        if self.function.inst_count() > MAX_INSTS_TO_COMPARE {
            return self.only_attempt(hoisting, first, colourer);
        }
        let mut best = self.attempt(&hoisting, first, colourer)?;
        if hoisting.hoisted.is_empty() || !best.is_improvable(self.function) {
            return self.try_rematerialised(hoisting, best, &others, colourer);
        }
        let plain = self.prepare(false)?;
        let without = self.another(&plain, first.without_hoisting(), colourer);
        best = self.cheaper(best, without, 0.0);
        let base = if best.attempt.hoist { hoisting } else { plain };
        self.try_rematerialised(base, best, &others, colourer)
    }

    /// The allocation of the first attempt, if it needs no frame.
    pub(super) fn run_without_frame(
        &self,
        colourer: &mut dyn Colourer,
    ) -> Result<Option<Allocation>, Error> {
        if self.options.strategy == Strategy::Naive {
            return Ok(None);
        }
        let (first, _) = attempts(self.options);
        let mut base = self.build(None, first.hoist, None)?;
        // What must be in memory must be so in any order, and where others are computed at their
        // readers.
        if must_spill(&base.problem, Positions::Boundaries, &mut base.stats) {
            return Ok(None);
        }
        let mut base = self.scheduled(base, first.hoist)?;
        if must_spill(&base.problem, Positions::All, &mut base.stats) {
            return Ok(None);
        }
        let without_frame = |base: &Base<'a>, colourer: &mut dyn Colourer| {
            let stats = &mut base.stats.clone();
            let allocation =
                self.colour(base.shared(), first, FrameUse::Refused, colourer, stats)?;
            Ok::<_, Error>(allocation.filter(|a| a.frame == Frame::default()))
        };
        let plain = without_frame(&base, colourer)?;
        // Predicates that are carried in general registers are no better off there.
        let is_carried = |plain: &Allocation| plain.stats.spilled > 0;
        let base = match &plain {
            Some(plain) if !is_carried(plain) => None,
            _ => self.rematerialised(&base),
        };
        let rematerialised = match base {
            Some(base) => without_frame(&base, &mut *colour::colourer(self.options))?,
            None => None,
        };
        Ok(match (plain, rematerialised) {
            (Some(plain), Some(other)) => {
                let is_dearer = self.added_cycles(&other) > self.added_cycles(&plain);
                Some(match is_dearer || is_carried(&other) {
                    true => plain,
                    false => other,
                })
            }
            (plain, rematerialised) => plain.or(rematerialised),
        })
    }

    /// Goes on with values computed at their readers, where that is cheaper.
    fn try_rematerialised(
        &self,
        mut base: Base<'a>,
        mut best: Candidate,
        others: &[Attempt],
        colourer: &mut dyn Colourer,
    ) -> Result<Allocation, Error> {
        // It remembers what it learnt of another program.
        let fresh = &mut *colour::colourer(self.options);
        if best.is_improvable(self.function)
            && let Some(rematerialised) = self.rematerialised(&base)
            && let Ok(Some(candidate)) = self.another(&rematerialised, best.attempt, fresh)
            && self.is_better_rematerialised(&candidate, &best)
        {
            (base, best) = (rematerialised, candidate);
            return self.try_others(&base, best, others, fresh);
        }
        self.try_others(&base, best, others, colourer)
    }

    /// Whether values are better computed at their readers. Bytes of a frame in shared memory cost the
    /// other threads of the multiprocessor their room, which no count of cycles tells.
    fn is_better_rematerialised(&self, candidate: &Candidate, best: &Candidate) -> bool {
        let [(fell_back, cycles), (_, least)] = [candidate, best].map(|one| self.price(one));
        let [bytes, most] = [candidate, best].map(|one| one.allocation.frame.shared);
        let saves_room = !fell_back && bytes < most && cycles < WORTH_OF_ROOM * least;
        saves_room || self.price(candidate) < self.price(best)
    }

    fn try_others(
        &self,
        base: &Base<'a>,
        mut best: Candidate,
        others: &[Attempt],
        colourer: &mut dyn Colourer,
    ) -> Result<Allocation, Error> {
        if !best.is_improvable(self.function) {
            return Ok(best.allocation);
        }
        for other in others {
            if other.is_wanted(&base.problem, &mut base.stats.clone()) {
                let other = Attempt {
                    hoist: best.attempt.hoist,
                    ..*other
                };
                let found = self.another(base, other, colourer);
                best = self.cheaper(best, found, other.margin);
            }
        }
        Ok(best.allocation)
    }

    /// The allocation of the first attempt, which may have all of `base`.
    fn only_attempt(
        &self,
        base: Base<'a>,
        attempt: Attempt,
        colourer: &mut dyn Colourer,
    ) -> Result<Allocation, Error> {
        let mut stats = base.stats;
        let given = (Held::Own(Box::new(base.problem)), &base.hoisted[..]);
        match self.colour(given, attempt, FrameUse::Allowed, colourer, &mut stats)? {
            Some(allocation) => Ok(allocation),
            None => self.naive(stats),
        }
    }

    /// Allocates in one way, and where that fails, in memory.
    pub(super) fn attempt(
        &self,
        base: &Base<'a>,
        attempt: Attempt,
        colourer: &mut dyn Colourer,
    ) -> Result<Candidate, Error> {
        let mut stats = base.stats.clone();
        match self.candidate(base, attempt, colourer, &mut stats)? {
            Some(candidate) => Ok(candidate),
            None => Ok(Candidate::new(self.naive(stats)?, attempt)),
        }
    }

    /// Allocates in another way, if that succeeds.
    fn another(
        &self,
        base: &Base<'a>,
        attempt: Attempt,
        colourer: &mut dyn Colourer,
    ) -> Result<Option<Candidate>, Error> {
        self.candidate(base, attempt, colourer, &mut base.stats.clone())
    }

    fn candidate(
        &self,
        base: &Base<'a>,
        attempt: Attempt,
        colourer: &mut dyn Colourer,
        stats: &mut Stats,
    ) -> Result<Option<Candidate>, Error> {
        let allocation = self.colour(base.shared(), attempt, FrameUse::Allowed, colourer, stats)?;
        Ok(allocation.map(|allocation| Candidate::new(allocation, attempt)))
    }

    /// What candidates are compared by: whether they fell back, and cycles.
    fn price(&self, candidate: &Candidate) -> (bool, f64) {
        let Candidate {
            allocation,
            attempt,
            cycles,
        } = candidate;
        let cycles = *cycles.get_or_init(|| self.added_cycles(allocation));
        trace!("{attempt:?} adds {cycles} cycles");
        (allocation.stats.fell_back, cycles)
    }

    /// The cheaper of two, if the other saves more than `margin` cycles.
    fn cheaper(
        &self,
        best: Candidate,
        other: Result<Option<Candidate>, Error>,
        margin: f64,
    ) -> Candidate {
        let (fell_back, cycles) = self.price(&best);
        match other {
            Ok(Some(other)) if self.price(&other) < (fell_back, cycles - margin) => other,
            _ => best,
        }
    }

    /// Cycles that `allocation` adds to one run of the function.
    fn added_cycles(&self, allocation: &Allocation) -> f64 {
        let cycles = || AddedCycles::of(self.function, self.target);
        self.cycles.get_or_init(cycles).net(allocation)
    }
}
