//! How many registers are alive where, and how many may be.

use super::GRANULE;
use crate::program::{Ranges, Value};
use crate::target::{File, Target};
use std::ops::Range;

/// So many candidates without room, and a loop counts as full.
const REFUSALS: usize = 16;

/// The positions of a loop.
pub(super) struct Extent<'a> {
    pub ranges: &'a Ranges,
    /// Block by block.
    pub blocks: Vec<Range<u32>>,
}

impl Extent<'_> {
    /// Visits the positions of the loop where `value` is not alive.
    fn without(&self, value: Value, mut visit: impl FnMut(Range<usize>)) {
        let alive = self.ranges.of(value);
        for block in &self.blocks {
            let first = alive.partition_point(|s| s.end <= block.start);
            let mut from = block.start;
            for stretch in alive[first..].iter().take_while(|s| s.start < block.end) {
                if from < stretch.start {
                    visit(from as usize..stretch.start as usize);
                }
                from = stretch.end;
            }
            if from < block.end {
                visit(from as usize..block.end as usize);
            }
        }
    }
}

/// Units of one file at each position, with what has moved so far.
pub(super) struct Levels {
    units: Vec<i32>,
    /// Units that may be alive at once in a loop.
    ceiling: i32,
}

impl Levels {
    /// Counts what is alive. Of general registers what the function needs anyway may be
    /// used, and what comes with it at no cost; of other files all.
    pub(super) fn of(ranges: &Ranges, target: &Target, file: File) -> Levels {
        let info = target.file(file);
        let step = GRANULE * info.units_per_reg;
        let ceiling = match file {
            File::R => ranges.peak(file).next_multiple_of(step).min(info.units),
            _ => info.units,
        };
        Levels {
            units: ranges.levels(file),
            ceiling: ceiling as i32,
        }
    }

    /// The highest level in the loop.
    fn most(&self, extent: &Extent) -> i32 {
        let blocks = extent.blocks.iter();
        let levels = blocks.flat_map(|b| &self.units[b.start as usize..b.end as usize]);
        levels.max().copied().unwrap_or(0)
    }

    /// The highest level in the loop where `value` is not alive yet.
    fn most_without(&self, extent: &Extent, value: Value) -> i32 {
        let mut most = 0;
        extent.without(value, |range| {
            let here = self.units[range].iter().max();
            most = most.max(here.copied().unwrap_or(0));
        });
        most
    }

    /// Makes `value` alive throughout the loop, and tells the highest level it raised.
    fn raise(&mut self, extent: &Extent, value: Value) -> i32 {
        let width = i32::from(extent.ranges.size(value).width);
        let mut highest = 0;
        extent.without(value, |range| {
            for level in &mut self.units[range] {
                *level += width;
                highest = highest.max(*level);
            }
        });
        highest
    }
}

/// Room for values of one file in one loop.
pub(super) struct Room {
    /// The highest level.
    peak: i32,
    /// Values alive throughout that the levels do not know of yet, and their units.
    added: Vec<Value>,
    added_units: i32,
    /// Units alive throughout that have left since.
    freed: i32,
    /// Candidates that found no room.
    refused: usize,
}

impl Room {
    pub(super) fn new(levels: &Levels, extent: &Extent) -> Room {
        Room {
            peak: levels.most(extent),
            added: Vec::with_capacity(16),
            added_units: 0,
            freed: 0,
            refused: 0,
        }
    }

    /// Takes room for `value` throughout the loop, if nowhere too much would be alive once
    /// `freed` units have left.
    pub(super) fn take(
        &mut self,
        levels: &mut Levels,
        extent: &Extent,
        value: Value,
        freed: i32,
    ) -> bool {
        let fits = self.refused < REFUSALS && self.fits(levels, extent, value, freed);
        match fits {
            true => self.freed += freed,
            false => self.refused += 1,
        }
        fits
    }

    /// As long as there is plenty, where the value lives already does not matter.
    fn fits(&mut self, levels: &mut Levels, extent: &Extent, value: Value, freed: i32) -> bool {
        let width = i32::from(extent.ranges.size(value).width);
        let roughly = self.peak + self.added_units + width - self.freed - freed;
        if roughly <= levels.ceiling {
            self.added.push(value);
            self.added_units += width;
            return true;
        }
        for added in std::mem::take(&mut self.added) {
            self.peak = self.peak.max(levels.raise(extent, added));
        }
        self.added_units = 0;
        let most = levels.most_without(extent, value) + width - self.freed - freed;
        let has_room = most <= levels.ceiling;
        if has_room {
            self.peak = self.peak.max(levels.raise(extent, value));
        }
        has_room
    }
}
