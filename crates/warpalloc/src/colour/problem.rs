//! What a colourer is given.

use crate::analysis::Loops;
use crate::coalesce::{self, Move, MoveId};
use crate::interference::Interference;
use crate::ir::{Facts, LiveRanges, Program};
use crate::options::Options;
use crate::scratch::Scratch;
use crate::spill::{SpillChoice, SpillCounts, Spiller};
use crate::stats::{Clock, Stats};
use crate::target::{File, Target};
use cranelift_entity::PrimaryMap;
use std::cell::OnceCell;

/// A program whose values need registers, and what is known of it.
///
/// Live ranges, interference and moves are computed when they are first asked for,
/// because not every strategy needs them. The program changes only through
/// [`rewrite`](Problem::rewrite), which computes the facts anew, so that none is ever stale.
pub(crate) struct Problem<'a> {
    pub program: Program<'a>,
    pub facts: Facts,
    pub target: &'a Target,
    pub options: &'a Options,
    /// Where memory comes from, and where it goes when the program changes.
    pub scratch: &'a Scratch,
    ranges: OnceCell<LiveRanges>,
    interference: OnceCell<Interference>,
    moves: OnceCell<PrimaryMap<MoveId, Move>>,
}

impl<'a> Problem<'a> {
    /// The problem of colouring `program`, whose facts are known.
    pub fn new(
        program: Program<'a>,
        facts: Facts,
        target: &'a Target,
        options: &'a Options,
        scratch: &'a Scratch,
    ) -> Problem<'a> {
        Problem {
            program,
            facts,
            target,
            options,
            scratch,
            ranges: OnceCell::new(),
            interference: OnceCell::new(),
            moves: OnceCell::new(),
        }
    }

    /// A copy of the program to rewrite.
    pub fn rewritable(&self) -> Problem<'a> {
        let (program, facts) = (self.program.clone(), self.facts.clone());
        Problem::new(program, facts, self.target, self.options, self.scratch)
    }

    /// Spills the values of `choice`. Where these go to memory, and spill code lives around
    /// single operations, nothing differs between blocks but that they are gone.
    pub fn spill(&mut self, spiller: &mut Spiller, choice: &SpillChoice) -> SpillCounts {
        let counts = spiller.spill(&mut self.program, &self.facts, choice);
        if !spiller.is_local(choice) {
            self.analyse();
            return counts;
        }
        self.recycle();
        let is_gone = |value| choice.values.binary_search(&value).is_ok();
        let liveness = self.facts.liveness.without(is_gone, self.scratch);
        let mut stale = std::mem::replace(&mut self.facts.liveness, liveness);
        stale.recycle(self.scratch);
        counts
    }

    /// Changes the program and analyses it anew.
    pub fn rewrite<T>(&mut self, change: impl FnOnce(&mut Program<'a>, &Facts) -> T) -> T {
        let result = change(&mut self.program, &self.facts);
        self.analyse();
        result
    }

    /// The same for a change that says whether it made any.
    pub fn rewrite_if(&mut self, change: impl FnOnce(&mut Program<'a>, &Facts) -> bool) -> bool {
        let is_changed = change(&mut self.program, &self.facts);
        if is_changed {
            self.analyse();
        }
        is_changed
    }

    fn analyse(&mut self) {
        self.recycle();
        let facts = Facts::of_in(&self.program, self.scratch);
        let mut stale = std::mem::replace(&mut self.facts, facts);
        stale.liveness.recycle(self.scratch);
    }

    /// Leaves the memory of what was computed to others.
    fn recycle(&mut self) {
        let scratch = self.scratch;
        self.moves.take();
        if let Some(ranges) = self.ranges.take() {
            ranges.recycle(scratch);
        }
        if let Some(interference) = self.interference.take() {
            interference.recycle(scratch);
        }
    }

    /// The live range of every value.
    pub fn ranges(&self, stats: &mut Stats) -> &LiveRanges {
        timed(&self.ranges, stats, "live ranges", || {
            LiveRanges::compute_in(&self.program, self.target, &self.facts, self.scratch)
        })
    }

    /// The interference graph.
    pub fn interference(&self, stats: &mut Stats) -> &Interference {
        timed(&self.interference, stats, "interference", || {
            Interference::build(
                &self.program,
                self.target,
                &self.facts.liveness,
                self.scratch,
            )
        })
    }

    /// Copies worth removing, the most frequent first.
    pub fn moves(&self, stats: &mut Stats) -> &PrimaryMap<MoveId, Move> {
        timed(&self.moves, stats, "moves", || {
            let Facts {
                liveness,
                frequencies,
                ..
            } = &self.facts;
            coalesce::moves(&self.program, self.target, liveness, frequencies)
        })
    }

    /// Loops of the program.
    pub fn loops(&self) -> &Loops {
        &self.facts.loops
    }

    /// Whether more units of some file are live at once than it has.
    pub fn is_over_budget(&self, stats: &mut Stats) -> bool {
        self.files_over_budget(stats).next().is_some()
    }

    /// Files of which more units are live at once than they have.
    pub fn files_over_budget(&self, stats: &mut Stats) -> impl Iterator<Item = File> + use<'_, 'a> {
        let ranges = self.ranges(stats);
        let files = self.target.files();
        let over = files.filter(|(file, info)| ranges.peak(*file) > info.capacity);
        over.map(|(file, _)| file)
    }
}

impl Drop for Problem<'_> {
    fn drop(&mut self) {
        self.recycle();
        self.facts.liveness.recycle(self.scratch);
    }
}

fn timed<'c, T>(
    cell: &'c OnceCell<T>,
    stats: &mut Stats,
    phase: &'static str,
    compute: impl FnOnce() -> T,
) -> &'c T {
    cell.get_or_init(|| {
        let mut clock = Clock::start();
        let result = compute();
        clock.lap(stats, phase);
        result
    })
}
