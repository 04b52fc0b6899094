//! The order of passes. This is the only file that knows it.
//!
//! ```text
//! prepare   build the program, hoist invariants, schedule where pressure exceeds the budget,
//!           rematerialise where it still does
//! attempt   split ─→ rounds of (colour, choose spills, rewrite) ─→ join reloads ─→ shrink
//! finish    emit ─→ copy propagation, dead code ─→ frame: reorder, merge, compact
//! ```
//!
//! A function that must spill is attempted in several ways, and the cheapest allocation is
//! kept (D. Bernstein et al., PLDI 1989). Where no attempt succeeds, the naive allocator
//! does, and its code goes through the same clean-up.
//!
//! `scan` is one walk over the blocks, scheduled where pressure exceeds the budget and cleaned up:
//! nothing is hoisted, split or attempted again.

use crate::allocation::{Allocation, Frame};
use crate::analysis::{Liveness, live_through_calls};
use crate::cleanup::{self, CleanupCounts, Code, Inserted, legal_moves};
use crate::colour::scan::{Scan, Walk};
use crate::colour::{
    self, Attempt, Coloured, Colourer, FrameUse, MAX_INSTS_TO_COMPARE, Positions, Problem,
    attempts, colour_until_done, count_copies, join_reloads, must_spill, shrink,
};
use crate::cycles::AddedCycles;
use crate::emit::emit;
use crate::error::{Error, Place};
use crate::frame::{self, spill_space};
use crate::function::{Function, Inst};
use crate::ir::{Facts, Program};
use crate::memory_operands;
use crate::naive;
use crate::options::{Options, Strategy};
use crate::passes::hoist::{count_hoisted, hoist_invariants};
use crate::passes::rematerialise::rematerialise;
use crate::passes::schedule::schedule;
use crate::passes::split::split_long_values;
use crate::scratch::Scratch;
use crate::stats::{Clock, Stats};
use crate::target::{File, Target};
use std::cell::OnceCell;

/// Allocates a valid `function` whose liveness is known.
///
/// The address of the spill frame takes registers, but only where there is a frame. So the
/// whole budget is tried first, up to the first value that goes to memory.
pub(crate) fn allocate(
    function: &Function,
    liveness: &Liveness,
    target: &Target,
    options: &Options,
    scratch: &Scratch,
) -> Result<Allocation, Error> {
    if let Some(lowered) = memory_operands::lower(function, target) {
        return allocate_lowered(function, &lowered, target, options, scratch);
    }
    let whole = Pipeline::new(function, liveness, target, options, scratch);
    let colourer = &mut *colour::colourer(options);
    if options.frame_base == 0 {
        return whole.run(colourer);
    }
    if let Some(allocation) = whole.run_without_frame(colourer)? {
        return Ok(allocation);
    }
    let rest = target
        .budget(File::MAIN)
        .saturating_sub(options.frame_base as usize);
    let rest = target.clone().with_budget(File::MAIN, rest);
    let colourer = &mut *colour::colourer(options);
    Pipeline::new(function, liveness, &rest, options, scratch).run(colourer)
}

/// Allocates a function whose operands may be in memory.
fn allocate_lowered(
    function: &Function,
    lowered: &memory_operands::Lowered,
    target: &Target,
    options: &Options,
    scratch: &Scratch,
) -> Result<Allocation, Error> {
    let in_place = |error| lowered.place_in(error);
    let liveness = lowered.function.validated(target, scratch);
    let liveness = liveness.map_err(in_place)?;
    let allocation = allocate(&lowered.function, &liveness, target, options, scratch);
    let allocation = allocation.map_err(in_place)?;
    let space = spill_space(function, target, options)?;
    let allocation = lowered.raise(function, target, allocation, space, scratch);
    frame_within_limit(target, allocation.frame)?;
    Ok(allocation)
}

fn frame_within_limit(target: &Target, frame: Frame) -> Result<(), Error> {
    let (needed, limit) = (frame.local.max(frame.shared), target.frame_limit());
    match needed > limit {
        false => Ok(()),
        true => Err(Error::FrameTooLarge {
            place: Place::Function,
            value: None,
            needed,
            limit,
            help: "raise the register budget, or split the function".into(),
        }),
    }
}

/// A function, and how it is to be allocated.
struct Pipeline<'a> {
    function: &'a Function,
    liveness: &'a Liveness,
    target: &'a Target,
    options: &'a Options,
    scratch: &'a Scratch,
    /// A schedule of lower pressure, where one was looked for and found.
    order: OnceCell<Option<Vec<Inst>>>,
    cycles: OnceCell<AddedCycles<'a>>,
}

/// The program that attempts begin with.
struct Base<'a> {
    problem: Problem<'a>,
    /// Instructions whose results are computed before their loop.
    hoisted: Vec<Inst>,
    stats: Stats,
}

/// An allocation and the attempt that made it.
struct Candidate {
    allocation: Allocation,
    attempt: Attempt,
    /// Cycles that it adds to one run of the function.
    cycles: f64,
}

impl Candidate {
    /// Whether another attempt may be cheaper, and is worth its time: predicates that are
    /// carried in general registers or rematerialised gain nothing from one.
    fn is_improvable(&self, function: &Function) -> bool {
        let stats = &self.allocation.stats;
        let is_cheap = stats.edits.stores + stats.edits.reloads == 0 && !stats.fell_back;
        !is_cheap && function.inst_count() <= MAX_INSTS_TO_COMPARE
    }

    /// What candidates are compared by: whether they fell back, and cycles.
    fn price(&self) -> (bool, f64) {
        (self.allocation.stats.fell_back, self.cycles)
    }

    /// The cheaper of two, if the other saves more than `margin` cycles.
    fn or_cheaper(self, other: Result<Candidate, Error>, margin: f64) -> Candidate {
        let (fell_back, cycles) = self.price();
        match other {
            Ok(other) if other.price() < (fell_back, cycles - margin) => other,
            _ => self,
        }
    }
}

impl<'a> Pipeline<'a> {
    fn new(
        function: &'a Function,
        liveness: &'a Liveness,
        target: &'a Target,
        options: &'a Options,
        scratch: &'a Scratch,
    ) -> Pipeline<'a> {
        Pipeline {
            function,
            liveness,
            target,
            options,
            scratch,
            order: OnceCell::new(),
            cycles: OnceCell::new(),
        }
    }

    /// The cheapest allocation that any attempt finds.
    fn run(&self, colourer: &mut dyn Colourer) -> Result<Allocation, Error> {
        if self.options.strategy == Strategy::Naive {
            return self.naive(self.stats());
        }
        if self.options.strategy == Strategy::Scan
            && let Some(allocation) = self.walk()?
        {
            return Ok(allocation);
        }
        let (first, others) = attempts(self.options);
        let hoisting = self.prepare(first.hoist)?;
        let mut best = self.attempt(&hoisting, first, colourer)?;
        if hoisting.hoisted.is_empty() || !best.is_improvable(self.function) {
            return self.try_rematerialised(hoisting, best, &others, colourer);
        }
        let plain = self.prepare(false)?;
        let without = self.attempt(&plain, first.without_hoisting(), colourer);
        best = best.or_cheaper(without, 0.0);
        let base = if best.attempt.hoist { hoisting } else { plain };
        self.try_rematerialised(base, best, &others, colourer)
    }

    /// The allocation of one walk over the blocks, which is compared with no other; none
    /// where a pinned value finds no place.
    fn walk(&self) -> Result<Option<Allocation>, Error> {
        let mut stats = self.stats();
        let Some(mut scan) = self.scan(None, &mut stats)? else {
            return Ok(None);
        };
        if self.options.schedule && scan.is_over_budget() {
            let mut clock = Clock::start();
            let order = self.order();
            clock.lap(&mut stats, "schedule");
            if order.is_some() {
                let Some(scheduled) = self.scan(order.clone(), &mut stats)? else {
                    return Ok(None);
                };
                scan = scheduled;
            }
        }
        match self.walked(scan, &mut stats)? {
            Walk::Done(allocation, _) => Ok(Some(*allocation)),
            Walk::Stuck => self.naive(stats).map(Some),
            Walk::Unpinned => Ok(None),
        }
    }

    /// The function in this order, ready for a walk over its blocks.
    fn scan(&self, order: Option<Vec<Inst>>, stats: &mut Stats) -> Result<Option<Scan<'a>>, Error> {
        let mut clock = Clock::start();
        let program = Program::without_edges(self.function, self.target, order)?;
        stats.values = program.values.len() as u32;
        clock.lap(stats, "build");
        let scan = Scan::of_function(program, self.target, self.liveness);
        clock.lap(stats, "analyse");
        Ok(scan)
    }

    /// Walks over the blocks, and cleans up.
    fn walked(&self, scan: Scan, stats: &mut Stats) -> Result<Walk, Error> {
        let mut clock = Clock::start();
        let space = spill_space(self.function, self.target, self.options);
        let mut walk = scan.walk(space.unwrap_or_default(), stats)?;
        if let Walk::Done(allocation, inserted) = &mut walk {
            clock.lap(&mut allocation.stats, "walk");
            self.clean_up(allocation, *inserted)?;
        }
        Ok(walk)
    }

    /// A schedule of lower pressure, if there is one.
    fn order(&self) -> &Option<Vec<Inst>> {
        self.order
            .get_or_init(|| schedule(self.function, self.target, self.liveness))
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
            && let Ok(candidate) = self.attempt(&rematerialised, best.attempt, fresh)
            && candidate.price() < best.price()
        {
            (base, best) = (rematerialised, candidate);
            return self.try_others(&base, best, others, fresh);
        }
        self.try_others(&base, best, others, colourer)
    }

    /// The same program with values computed at their readers where pressure exceeds the
    /// budget, if there are such values.
    fn rematerialised(&self, base: &Base<'a>) -> Option<Base<'a>> {
        let mut stats = base.stats.clone();
        // It walks over the function's own code.
        let is_off = !self.options.briggs.rematerialise || self.options.strategy == Strategy::Scan;
        if is_off || !base.problem.is_over_budget(&mut stats) {
            return None;
        }
        let mut clock = Clock::start();
        let mut problem = base.problem.rewritable();
        let is_changed = problem.rewrite_if(|program, facts| {
            stats.rematerialised += rematerialise(program, self.target, facts);
            stats.rematerialised > base.stats.rematerialised
        });
        clock.lap(&mut stats, "rematerialise");
        is_changed.then(|| Base {
            problem,
            hoisted: base.hoisted.clone(),
            stats,
        })
    }

    /// The allocation of the first attempt, if it needs no frame.
    fn run_without_frame(&self, colourer: &mut dyn Colourer) -> Result<Option<Allocation>, Error> {
        if self.options.strategy == Strategy::Naive {
            return Ok(None);
        }
        let (first, _) = attempts(self.options);
        let mut base = self.build(None, first.hoist)?;
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
            let allocation = self.colour(base, first, FrameUse::Refused, colourer, stats)?;
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
                let cycles = self
                    .cycles
                    .get_or_init(|| AddedCycles::of(self.function, self.target));
                let is_dearer = cycles.net(&other) > cycles.net(&plain);
                Some(match is_dearer || is_carried(&other) {
                    true => plain,
                    false => other,
                })
            }
            (plain, rematerialised) => plain.or(rematerialised),
        })
    }

    /// The rewrites that all attempts share.
    fn prepare(&self, hoist: bool) -> Result<Base<'a>, Error> {
        let base = self.build(None, hoist)?;
        self.scheduled(base, hoist)
    }

    /// `base` in an order of lower pressure, where it needs one and there is one.
    fn scheduled(&self, mut base: Base<'a>, hoist: bool) -> Result<Base<'a>, Error> {
        if !self.options.schedule || !base.problem.is_over_budget(&mut base.stats) {
            return Ok(base);
        }
        let mut clock = Clock::start();
        let order = self.order();
        clock.lap(&mut base.stats, "schedule");
        if let Some(order) = order {
            let stats = base.stats;
            base = self.build(Some(order.clone()), hoist)?;
            base.stats.add_times(&stats);
        }
        Ok(base)
    }

    fn build(&self, order: Option<Vec<Inst>>, hoist: bool) -> Result<Base<'a>, Error> {
        let mut stats = self.stats();
        let mut clock = Clock::start();
        let mut program = Program::new(self.function, self.target, order)?;
        clock.lap(&mut stats, "build");
        let mut facts = Facts::of_fresh(&program, self.liveness, self.scratch);
        clock.lap(&mut stats, "analyse");
        stats.values = program.values.len() as u32;
        let knobs = &self.options.knobs;
        let hoisted = match hoist {
            true => hoist_invariants(
                &mut program,
                self.target,
                &mut facts,
                knobs.hoist_policy,
                knobs.new_hoisting,
            ),
            false => Vec::new(),
        };
        clock.lap(&mut stats, "hoist");
        Ok(Base {
            problem: Problem::new(program, facts, self.target, self.options, self.scratch),
            hoisted,
            stats,
        })
    }

    fn stats(&self) -> Stats {
        let through = live_through_calls(self.function, self.liveness);
        Stats {
            live_through_calls: through.keys().count() as u32,
            ..Stats::default()
        }
    }

    fn try_others(
        &self,
        base: &Base<'a>,
        mut best: Candidate,
        others: &[Attempt],
        colourer: &mut dyn Colourer,
    ) -> Result<Allocation, Error> {
        if best.is_improvable(self.function) {
            for &other in others {
                if other.is_wanted(&base.problem) {
                    let other = Attempt {
                        hoist: best.attempt.hoist,
                        ..other
                    };
                    best = best.or_cheaper(self.attempt(base, other, colourer), other.margin);
                }
            }
        }
        Ok(best.allocation)
    }

    /// Allocates in one way.
    fn attempt(
        &self,
        base: &Base<'a>,
        attempt: Attempt,
        colourer: &mut dyn Colourer,
    ) -> Result<Candidate, Error> {
        let mut stats = base.stats.clone();
        let coloured = self.colour(base, attempt, FrameUse::Allowed, colourer, &mut stats)?;
        let allocation = match coloured {
            Some(allocation) => allocation,
            None => self.naive(stats)?,
        };
        let cycles = self
            .cycles
            .get_or_init(|| AddedCycles::of(self.function, self.target));
        let cycles = cycles.net(&allocation);
        trace!("{attempt:?} adds {cycles} cycles");
        Ok(Candidate {
            allocation,
            attempt,
            cycles,
        })
    }

    /// Splits, colours and spills until every value has a register, if that is possible.
    fn colour(
        &self,
        base: &Base<'a>,
        attempt: Attempt,
        frame: FrameUse,
        colourer: &mut dyn Colourer,
        stats: &mut Stats,
    ) -> Result<Option<Allocation>, Error> {
        let order = &base.problem.program.order;
        if self.options.strategy == Strategy::Scan
            && let Some(scan) = self.scan(order.clone(), stats)?
        {
            match self.walked(scan, stats)? {
                Walk::Done(allocation, _) => return Ok(Some(*allocation)),
                Walk::Stuck => return Ok(None),
                Walk::Unpinned => {}
            }
        }
        colourer.begin(attempt);
        trace!(
            "{attempt:?} of {}:\n{}",
            self.function.name(),
            base.problem.program
        );
        let split = attempt.split.policy().map(|policy| {
            let mut problem = base.problem.rewritable();
            problem.rewrite(|program, facts| {
                split_long_values(program, self.target, facts, policy);
            });
            problem
        });
        let problem = split.as_ref().unwrap_or(&base.problem);
        let Some(coloured) = colour_until_done(problem, colourer, frame, stats)? else {
            return Ok(None);
        };
        let coloured = join_reloads(coloured, colourer, stats);
        let coloured = shrink(coloured, colourer, self.liveness, stats);
        self.finish(base, coloured, std::mem::take(stats)).map(Some)
    }

    /// Writes down an allocation whose every value has a register.
    fn finish(
        &self,
        base: &Base,
        coloured: Coloured,
        mut stats: Stats,
    ) -> Result<Allocation, Error> {
        let mut clock = Clock::start();
        count_copies(&coloured, &mut stats);
        let Coloured {
            problem, colours, ..
        } = coloured;
        let space = spill_space(self.function, self.target, self.options).unwrap_or_default();
        let mut allocation = emit(&problem.program, self.target, space, &colours, stats)?;
        clock.lap(&mut allocation.stats, "emit");
        self.clean_up(&mut allocation, Inserted::Unknown)?;
        allocation.stats.hoisted = count_hoisted(&allocation, &base.hoisted);
        Ok(allocation)
    }

    /// Keeps every value in memory: always possible where anything is.
    fn naive(&self, stats: Stats) -> Result<Allocation, Error> {
        let space = spill_space(self.function, self.target, self.options)?;
        let mut allocation = naive::allocate(self.function, self.target, space, self.scratch)?;
        allocation.stats.fell_back = self.options.strategy != Strategy::Naive;
        allocation.stats.iterations = stats.iterations;
        allocation.stats.live_through_calls = stats.live_through_calls;
        self.clean_up(&mut allocation, Inserted::Unknown)?;
        Ok(allocation)
    }

    fn clean_up(&self, allocation: &mut Allocation, inserted: Inserted) -> Result<(), Error> {
        let mut clock = Clock::start();
        let limits_moves = self.target.limits_moves();
        let is_wanted = self.options.cleanup || limits_moves;
        let inserted = match limits_moves {
            true => Inserted::Unknown,
            false => inserted,
        };
        // A walk over the blocks inserts next to nothing that a second round would find.
        let rounds = match self.options.strategy {
            Strategy::Scan => 1,
            _ => cleanup::ROUNDS,
        };
        if is_wanted && cleanup::has_work(self.function, allocation, inserted) {
            let mut code = Code::new(self.function, self.target, allocation, self.scratch);
            let mut is_changed = !code.is_frameless();
            if self.options.cleanup {
                is_changed |= cleanup::run(&mut code, rounds) != CleanupCounts::default();
                frame::reorder_slots::run(&mut code, allocation.frame);
                frame::merge_accesses::run(&mut code, allocation.frame);
            }
            if limits_moves && !legal_moves::is_legal(&code) {
                let space = spill_space(self.function, self.target, self.options)?;
                legal_moves::run(&mut code, space, &mut allocation.frame);
                is_changed = true;
            }
            match is_changed {
                true => code.write_to(allocation, self.scratch),
                false => code.recycle(self.scratch),
            }
        }
        clock.lap(&mut allocation.stats, "clean up");
        frame::compact::compact(self.function, self.target, allocation, self.options);
        clock.lap(&mut allocation.stats, "compact");
        frame_within_limit(self.target, allocation.frame)
    }
}

#[cfg(test)]
mod tests;
