//! The path of `scan`: one walk over the blocks instead of rounds of colouring.

use super::Pipeline;
use crate::allocation::Allocation;
use crate::colour::scan::{Scan, Walk};
use crate::error::Error;
use crate::frame::spill_space;
use crate::function::Inst;
use crate::ir::Program;
use crate::stats::{Clock, Stats};

impl<'a> Pipeline<'a> {
    /// The allocation of one walk over the blocks, which is compared with no other; none
    /// where a pinned value finds no place.
    pub(super) fn walk(&self) -> Result<Option<Allocation>, Error> {
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
    pub(super) fn scan(
        &self,
        order: Option<Vec<Inst>>,
        stats: &mut Stats,
    ) -> Result<Option<Scan<'a>>, Error> {
        let mut clock = Clock::start();
        let program = Program::without_edges(self.function, self.target, order)?;
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
        let mut walk = scan.walk(space.unwrap_or_default(), stats)?;
        if let Walk::Done(allocation, inserted) = &mut walk {
            clock.lap(&mut allocation.stats, "walk");
            self.clean_up(allocation, *inserted)?;
        }
        Ok(walk)
    }
}
