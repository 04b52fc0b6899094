//! How many registers a loop has left.

use super::levels::Levels;
use super::plan::Candidate;
use crate::analysis::Liveness;
use crate::function::Block;
use crate::ir::{Program, Value};
use crate::target::{ClassInfo, File, Target};
use smallvec::SmallVec;
use std::ops::Range;

/// The number of candidates without room after which a loop counts as full.
const REFUSALS: usize = 16;

/// Positions, as ranges that do not overlap. Some may be empty.
type Positions = SmallVec<[Range<u32>; 8]>;

/// A loop, and the values live in it.
pub(super) struct Extent<'a> {
    pub program: &'a Program<'a>,
    pub target: &'a Target,
    pub liveness: &'a Liveness<Value>,
    pub blocks: &'a [Block],
}

impl Extent<'_> {
    /// The class of `value`.
    pub(super) fn class(&self, value: Value) -> &ClassInfo {
        self.target.class(self.program.values[value].class)
    }

    /// The positions of the loop.
    fn positions(&self, levels: &Levels) -> Positions {
        let of = |&block: &Block| levels.positions(self.program, block);
        self.blocks.iter().map(of).collect()
    }

    /// The positions of the loop where the candidate's result is not live yet. Nothing
    /// else in the loop writes it, and it does not come in from outside.
    pub(super) fn without(&self, levels: &Levels, candidate: &Candidate) -> Positions {
        let mut without = Positions::new();
        let mut reads = candidate.reads;
        for &block in self.blocks {
            let Range { start, end } = levels.positions(self.program, block);
            let written = start + candidate.index as u32 + 1;
            let (begins, first) = match block == candidate.block {
                true => (written, candidate.index + 1),
                false if self.liveness.is_live_in(block, candidate.result) => (start, 0),
                false => (end, 0),
            };
            without.push(start..begins);
            if begins < end && !self.liveness.is_live_out(block, candidate.result) {
                let last = self.last_read(block, first, candidate.result, &mut reads);
                let dies = start + last.unwrap_or(first) as u32 + 1;
                without.push(dies..end);
            }
        }
        without
    }

    /// The last operation of `block`, from the one numbered `first` on, that is among the
    /// next `reads` to read `value`.
    fn last_read(
        &self,
        block: Block,
        first: usize,
        value: Value,
        reads: &mut u32,
    ) -> Option<usize> {
        let mut last = None;
        let ops = self.program.blocks[block].ops.iter().enumerate();
        for (index, op) in ops.skip(first) {
            if *reads == 0 {
                break;
            }
            op.for_each_access(self.program.function, |read, role| {
                if read == value && role.reads() {
                    (last, *reads) = (Some(index), *reads - 1);
                }
            });
        }
        last
    }
}

/// Room for values of one file in one loop.
pub(super) struct Room {
    file: File,
    /// The highest level.
    peak: i32,
    /// Candidates whose results are live throughout that the levels do not count yet,
    /// and their units.
    added: Vec<Candidate>,
    added_units: i32,
    /// Units live throughout that have left since.
    freed: i32,
    /// Candidates that found no room.
    refused: usize,
}

impl Room {
    pub(super) fn new(file: File, levels: &Levels, extent: &Extent) -> Room {
        Room {
            file,
            peak: levels.most(file, &extent.positions(levels)),
            added: Vec::with_capacity(16),
            added_units: 0,
            freed: 0,
            refused: 0,
        }
    }

    /// Takes room for the result of a candidate throughout the loop, if pressure stays within
    /// the ceiling once `freed` units have left. As long as there is plenty, where the value
    /// is live already does not matter.
    pub(super) fn take(
        &mut self,
        levels: &mut Levels,
        extent: &Extent,
        candidate: &Candidate,
        freed: i32,
    ) -> bool {
        if self.refused == REFUSALS {
            return false;
        }
        let width = extent.class(candidate.result).width as i32;
        let ceiling = levels.ceiling(self.file) + self.freed + freed;
        if self.peak + self.added_units + width <= ceiling {
            self.added.push(candidate.clone());
            self.added_units += width;
            self.freed += freed;
            return true;
        }
        for added in std::mem::take(&mut self.added) {
            let width = extent.class(added.result).width as i32;
            self.raise(levels, &extent.without(levels, &added), width);
        }
        self.added_units = 0;
        let without = extent.without(levels, candidate);
        let fits = levels.most(self.file, &without) + width <= ceiling;
        match fits {
            true => {
                self.raise(levels, &without, width);
                self.freed += freed;
            }
            false => self.refused += 1,
        }
        fits
    }

    /// Makes a value live where it was not.
    fn raise(&mut self, levels: &mut Levels, without: &Positions, width: i32) {
        let highest = levels.raise(self.file, without, width);
        self.peak = self.peak.max(highest);
    }
}
