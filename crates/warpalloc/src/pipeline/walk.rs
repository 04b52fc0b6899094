//! The path of `scan`: one walk over the blocks instead of rounds of colouring.

use super::Pipeline;
use crate::allocation::Allocation;
use crate::colour::scan::{Scan, Walk};
use crate::error::Error;
use crate::frame::spill_space;
use crate::function::Inst;
use crate::ir::Program;
use crate::stats::{Clock, Stats};
use crate::target::MAX_FILES;

impl<'a> Pipeline<'a> {
    /// The allocation of one walk over the blocks, which is compared with no other; none
    /// where a pinned value finds no place.
    pub(super) fn walk(&self) -> Result<Option<Allocation>, Error> {
        let mut stats = self.stats();
        // Nothing is measured twice where an order is certain to be looked for.
        let mut order = match self.options.schedule && self.is_over_budget_at_ends() {
            true => self.timed_order(&mut stats),
            false => None,
        };
        let is_scheduled = order.is_some();
        let Some(mut scan) = self.scan(order, &mut stats)? else {
            return Ok(None);
        };
        if !is_scheduled && self.options.schedule && scan.is_over_budget() {
            order = self.timed_order(&mut stats);
            if order.is_some() {
                let Some(scheduled) = self.scan(order, &mut stats)? else {
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

    /// A schedule of lower pressure, if there is one.
    fn timed_order(&self, stats: &mut Stats) -> Option<Vec<Inst>> {
        let mut clock = Clock::start();
        let order = self.order().clone();
        clock.lap(stats, "schedule");
        order
    }

    /// Whether more is live at the end of some block than a file has, in any order.
    fn is_over_budget_at_ends(&self) -> bool {
        let (function, target) = (self.function, self.target);
        function.blocks().any(|block| {
            let mut units = [0; MAX_FILES];
            for vreg in self.liveness.live_out(block) {
                let class = target.class(function.vreg(vreg).class);
                units[class.file.index()] += class.width;
            }
            let mut files = target.files();
            files.any(|(file, info)| units[file.index()] > info.capacity)
        })
    }

    /// The function in this order, ready for a walk over its blocks.
    pub(super) fn scan(
        &self,
        order: Option<Vec<Inst>>,
        stats: &mut Stats,
    ) -> Result<Option<Scan<'a>>, Error> {
        let mut clock = Clock::start();
        let program = Program::of_constraints(self.function, self.target, order)?;
        stats.values = program.values.len() as u32;
        clock.lap(stats, "build");
        let scan = Scan::of_function(program, self.target, self.liveness);
        clock.lap(stats, "analyse");
        Ok(scan)
    }

    /// Walks over the blocks, and cleans up.
    pub(super) fn walked(&self, scan: Scan, stats: &mut Stats) -> Result<Walk, Error> {
        let mut clock = Clock::start();
        let space = spill_space(self.function, self.target, self.options);
        let mut walk = scan.walk(space, stats)?;
        if let Walk::Done(allocation, inserted) = &mut walk {
            clock.lap(&mut allocation.stats, "walk");
            self.clean_up(allocation, *inserted)?;
        }
        Ok(walk)
    }
}
