//! The order of passes. This is the only file that knows it.
//!
//! ```text
//! prepare   build the program, hoist invariants, schedule where pressure exceeds the budget,
//!           rematerialise where it still does
//! attempt   split ─→ rounds of (colour, choose spills, rewrite) ─→ join reloads ─→ shrink
//! finish    emit ─→ copy propagation, dead code ─→ frame: reorder, merge, demote, compact
//! ```
//!
//! A function that must spill is attempted in several ways, and the cheapest allocation is
//! kept ([`attempts`]; D. Bernstein et al., PLDI 1989). Where no attempt succeeds, the naive
//! allocator does, and its code goes through the same clean-up.
//!
//! `scan` is one walk over the blocks ([`walk`]), scheduled where pressure exceeds the budget and
//! cleaned up: nothing is hoisted, split or attempted again.

mod attempts;
#[cfg(test)]
mod tests;
mod walk;

use crate::allocation::{Allocation, Edit, Point};
use crate::analysis::{Liveness, live_through_calls};
use crate::cleanup::{self, CleanupCounts, Code, Inserted, early_reloads, legal_moves};
use crate::colour::scan::Walk;
use crate::colour::{
    self, Attempt, Coloured, Colourer, FrameUse, Held, Join, Problem, colour_until_done,
    count_copies, join_late, shrink,
};
use crate::cycles::AddedCycles;
use crate::emit::emit;
use crate::error::Error;
use crate::frame::{self, callee_saves, spill_space};
use crate::function::{Convention, Function, Inst};
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
    let pipeline = Pipeline::new(function, liveness, &rest, options, scratch);
    let mut allocation = pipeline.run(colourer)?;
    callee_saves::save_beyond(function, target, &rest, &mut allocation);
    frame::within_limit(target, allocation.frame)?;
    Ok(allocation)
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
    let liveness = liveness.map_err(in_place)?.liveness;
    let allocation = allocate(&lowered.function, &liveness, target, options, scratch);
    let allocation = allocation.map_err(in_place)?;
    let space = spill_space(function, target, options)?;
    let allocation = lowered.raise(function, target, allocation, space, scratch);
    frame::within_limit(target, allocation.frame)?;
    Ok(allocation)
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

impl<'a> Base<'a> {
    /// The same for one attempt among several.
    fn shared(&self) -> (Held<'_, 'a>, &[Inst]) {
        (Held::Shared(&self.problem), &self.hoisted)
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

    fn run(&self, colourer: &mut dyn Colourer) -> Result<Allocation, Error> {
        let walked = match self.options.strategy {
            Strategy::Naive => return self.naive(self.stats()),
            Strategy::Scan => self.walk()?,
            Strategy::Briggs | Strategy::Fatpoint => None,
        };
        match walked {
            Some(allocation) => Ok(allocation),
            None => self.cheapest_attempt(colourer),
        }
    }

    /// The rewrites that all attempts share.
    fn prepare(&self, hoist: bool) -> Result<Base<'a>, Error> {
        let base = self.build(None, hoist, None)?;
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
            let stats = std::mem::take(&mut base.stats);
            base = self.build(Some(order.clone()), hoist, Some(base))?;
            base.stats.add_times(&stats);
        }
        Ok(base)
    }

    /// A schedule of lower pressure, if there is one.
    fn order(&self) -> &Option<Vec<Inst>> {
        self.order
            .get_or_init(|| schedule(self.function, self.target, self.liveness))
    }

    /// The program in an `order`, of which another is `known`. Instructions move within their
    /// blocks, so that nothing differs where these meet.
    fn build(
        &self,
        order: Option<Vec<Inst>>,
        hoist: bool,
        known: Option<Base<'a>>,
    ) -> Result<Base<'a>, Error> {
        let mut stats = self.stats();
        let mut clock = Clock::start();
        let mut program = Program::new(self.function, self.target, order)?;
        clock.lap(&mut stats, "build");
        let mut facts = match known {
            Some(known) if known.hoisted.is_empty() => known.problem.facts.clone(),
            _ => Facts::of_fresh(&program, self.liveness, self.scratch),
        };
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

    /// The same program with values computed at their readers where pressure exceeds the
    /// budget, if there are such values.
    fn rematerialised(&self, base: &Base<'a>) -> Option<Base<'a>> {
        let mut stats = base.stats.clone();
        // It walks over the function's own code.
        let is_off = !self.options.briggs.rematerialise || self.options.strategy == Strategy::Scan;
        let may_run_again = |inst| self.function.inst(inst).remat.is_some();
        if is_off
            || !self.function.insts().any(may_run_again)
            || !base.problem.is_over_budget(&mut stats)
        {
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

    fn stats(&self) -> Stats {
        let through = live_through_calls(self.function, self.liveness);
        Stats {
            live_through_calls: through.iter().count() as u32,
            ..Stats::default()
        }
    }

    /// Splits, colours and spills until every value has a register, if that is possible.
    /// Instructions that were `hoisted` are counted.
    fn colour(
        &self,
        (problem, hoisted): (Held<'_, 'a>, &[Inst]),
        attempt: Attempt,
        frame: FrameUse,
        colourer: &mut dyn Colourer,
        stats: &mut Stats,
    ) -> Result<Option<Allocation>, Error> {
        let order = &problem.program.order;
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
            problem.program
        );
        let mut problem = problem;
        if let Some(policy) = attempt.split.policy() {
            problem.to_mut().rewrite(|program, facts| {
                split_long_values(program, self.target, facts, policy);
            });
        }
        let Some(coloured) = colour_until_done(problem, colourer, frame, stats)? else {
            return Ok(None);
        };
        let coloured = match colourer.joins_reloads(self.options) {
            Some(Join::Late) => join_late(coloured, colourer, stats),
            _ => coloured,
        };
        let coloured = shrink(coloured, colourer, self.liveness, stats);
        let mut allocation = self.emitted(coloured, std::mem::take(stats))?;
        let inserted = self.inserted(&allocation);
        self.clean_up(&mut allocation, inserted)?;
        allocation.stats.hoisted = count_hoisted(&allocation, hoisted);
        Ok(Some(allocation))
    }

    /// Writes down an allocation whose every value has a register. What coloured it goes before
    /// anything else takes memory.
    fn emitted(&self, coloured: Coloured, mut stats: Stats) -> Result<Allocation, Error> {
        let mut clock = Clock::start();
        count_copies(&coloured, &mut stats);
        let Coloured {
            problem, colours, ..
        } = coloured;
        let space = spill_space(self.function, self.target, self.options).unwrap_or_default();
        let mut allocation = emit(&problem.program, self.target, space, &colours, stats)?;
        clock.lap(&mut allocation.stats, "emit");
        Ok(allocation)
    }

    /// What is known of the edits of a coloured program. Moves of what is live, where paths meet,
    /// are needed: nothing hands on what they move but themselves.
    fn inserted(&self, allocation: &Allocation) -> Inserted {
        let is_needed = |(point, edit): (Point, &Edit)| match (point, edit) {
            (Point::Edge(from, succ), Edit::Move { .. } | Edit::Swap { .. }) => {
                let to = self.function.succs(from)[succ as usize].block;
                self.function.preds(to).len() > 1
            }
            _ => false,
        };
        let is_kernel = self.function.convention() == Convention::Kernel;
        match is_kernel && allocation.edits.iter().all(is_needed) {
            true => Inserted::Needed,
            false => Inserted::Unknown,
        }
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
        // What moves others, or makes other code of them, has to know all of it.
        let inserted = match limits_moves || self.options.early_reloads > 0 {
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
            if self.options.cleanup {
                is_changed |= early_reloads::run(&mut code, self.options.early_reloads) > 0;
            }
            match is_changed {
                true => code.write_to(allocation, self.scratch),
                false => code.recycle(self.scratch),
            }
        } else if self.options.cleanup && allocation.edits.touch_memory() {
            let mut code = Code::of_edits(self.function, self.target, allocation);
            frame::reorder_slots::run(&mut code, allocation.frame);
            frame::merge_accesses::run(&mut code, allocation.frame);
            code.write_edits_to(allocation, self.scratch);
        }
        clock.lap(&mut allocation.stats, "clean up");
        if let Some(limit) = self.options.shared_limit {
            frame::demote::demote(self.function, self.target, allocation, limit);
        }
        frame::compact::compact(self.function, self.target, allocation, self.options);
        clock.lap(&mut allocation.stats, "compact");
        frame::within_limit(self.target, allocation.frame)
    }
}
