//! How many registers are alive where, and how many may be.

use super::GRANULE;
use crate::analysis::LiveSet;
use crate::function::Block;
use crate::program::{Facts, Program, Value};
use crate::target::{File, Target};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;
use std::ops::Range;

/// How much is alive at once, and how much may be, worked out where someone asks.
pub(super) struct Peaks<'t> {
    target: &'t Target,
    live: LiveSet<Value>,
    /// Units of general registers that may be alive at once in a loop.
    general_ceiling: Option<i32>,
    /// General registers alive before and after each step in turn, block by block.
    general: Option<Levels>,
}

struct Levels {
    /// Where each block begins.
    starts: Vec<usize>,
    units: Vec<i32>,
}

impl<'t> Peaks<'t> {
    pub(super) fn new(program: &Program, target: &'t Target) -> Peaks<'t> {
        Peaks {
            target,
            live: LiveSet::new(program.values.len()),
            general_ceiling: None,
            general: None,
        }
    }

    /// The program has changed.
    pub(super) fn forget(&mut self) {
        self.general = None;
    }

    /// How many units of `file` are alive in `blocks`, and may be.
    pub(super) fn profile(
        &mut self,
        program: &Program,
        facts: &Facts,
        blocks: &[Block],
        file: File,
    ) -> Profile {
        let (levels, ceiling) = match file {
            File::R => self.of_general(program, facts, blocks),
            // Of other files a function may as well use all.
            _ => {
                let mut levels = Vec::new();
                let target = self.target;
                for &block in blocks {
                    let width = |value| width_in(program, target, file, value);
                    self.block(program, facts, width, block, &mut levels);
                }
                (levels, self.target.file(file).units as i32)
            }
        };
        Profile {
            peak: levels.iter().max().copied().unwrap_or(0),
            levels,
            added: Vec::new(),
            added_units: 0,
            freed: 0,
            ceiling,
            refused: 0,
        }
    }

    /// What the function needs anyway counts, so all of it is looked at, once.
    fn of_general(
        &mut self,
        program: &Program,
        facts: &Facts,
        blocks: &[Block],
    ) -> (Vec<i32>, i32) {
        let levels = match self.general.take() {
            Some(levels) => levels,
            None => {
                let (mut starts, mut units) = (Vec::new(), Vec::new());
                let all = program.values.keys();
                let widths = all.map(|v| width_in(program, self.target, File::R, v) as u8);
                let widths: Vec<u8> = widths.collect();
                for block in program.blocks.keys() {
                    starts.push(units.len());
                    let width = |value: Value| i32::from(widths[value.index()]);
                    self.block(program, facts, width, block, &mut units);
                }
                Levels { starts, units }
            }
        };
        let target = self.target;
        let ceiling = *self.general_ceiling.get_or_insert_with(|| {
            let peak = levels.units.iter().max().copied().unwrap_or(0);
            general_ceiling(target, peak as usize)
        });
        let of_block = |block: &Block| {
            let start = levels.starts[block.index()];
            let steps = program.blocks[*block].ops.len();
            &levels.units[start..start + 2 * steps]
        };
        let here = blocks.iter().flat_map(of_block).copied().collect();
        self.general = Some(levels);
        (here, ceiling)
    }

    /// Appends how many units are alive before and after each step of `block`. Results
    /// that nobody reads are alive right after they are written.
    fn block(
        &mut self,
        program: &Program,
        facts: &Facts,
        width: impl Fn(Value) -> i32,
        block: Block,
        units: &mut Vec<i32>,
    ) {
        let live = &mut self.live;
        let start = units.len();
        live.start_at_end(&facts.liveness, block);
        let mut now: i32 = live.iter().map(&width).sum();
        let mut reads: SmallVec<[Value; 8]> = SmallVec::new();
        for op in program.blocks[block].ops.iter().rev() {
            let mut after = now;
            for (value, role) in op.accesses(program.function) {
                if role.writes() {
                    match live.remove(value) {
                        true => now -= width(value),
                        false => after += width(value),
                    }
                }
                if role.reads() {
                    reads.push(value);
                }
            }
            units.push(after);
            for value in reads.drain(..) {
                if live.insert(value) {
                    now += width(value);
                }
            }
            units.push(now);
        }
        units[start..].reverse();
    }
}

/// How many units of `file` the value takes.
fn width_in(program: &Program, target: &Target, file: File, value: Value) -> i32 {
    let class = target.class(program.values[value].class);
    i32::from(class.file == file) * class.width as i32
}

/// What a function needs anyway, and what comes with it at no cost.
fn general_ceiling(target: &Target, peak: usize) -> i32 {
    let info = target.file(File::R);
    let step = GRANULE * info.units_per_reg;
    peak.next_multiple_of(step).min(info.units) as i32
}

/// How many units of a file are alive in a loop, before and after each step in turn.
pub(super) struct Profile {
    pub levels: Vec<i32>,
    /// The highest level.
    pub peak: i32,
    /// Values alive throughout that the levels do not know of yet, and their units.
    pub added: Vec<Value>,
    pub added_units: i32,
    /// Units alive throughout that have left since.
    pub freed: i32,
    pub ceiling: i32,
    /// Candidates that found no room.
    pub refused: usize,
}

impl Profile {
    /// Adds `units` in `ranges`, if that stays below the ceiling.
    pub(super) fn add(&mut self, ranges: &[Range<usize>], units: i32, freed: i32) -> bool {
        let here = ranges.iter().map(|range| &self.levels[range.clone()]);
        let most = here.flatten().max().copied().unwrap_or(0);
        if most + units - self.freed - freed > self.ceiling {
            return false;
        }
        for range in ranges {
            let levels = self.levels[range.clone()].iter_mut();
            levels.for_each(|level| *level += units);
        }
        self.peak = self.peak.max(most + units);
        true
    }
}
