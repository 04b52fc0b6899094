//! Pressure at every position, counted in one sweep.
//!
//! Positions stand between operations, as those of [`LiveRanges`](crate::ir::LiveRanges) do,
//! which would tell the same and much more. But live ranges would have to be computed anew
//! after each move, and hoisting needs only the pressure of most positions.

use super::SCARCE_UNITS;
use crate::analysis::Bits;
use crate::function::{Block, Role};
use crate::ir::{Facts, Op, Program, Value, ValueInfo};
use crate::target::{File, Target};
use cranelift_entity::EntityRef;
use std::ops::Range;

/// Units of every file at each position, with the moves so far. Unused files are left out,
/// and scarce ones, because no invariant moves into them.
pub(super) struct Levels {
    /// The first position of each block, by number. It has one more than operations.
    bases: Vec<u32>,
    files: Vec<Level>,
}

/// Units of one file.
struct Level {
    file: File,
    /// At each position.
    units: Vec<i32>,
    /// That may be live at once in a loop.
    ceiling: i32,
}

impl Levels {
    /// Counts the live units of each file at each position. The ceiling of a file that is
    /// handed out in granules is its peak, rounded up to one; of others it is their size.
    pub(super) fn of(program: &Program, target: &Target, facts: &Facts) -> Levels {
        let mut sweep = Sweep::new(program, target);
        let mut after: &[Bits] = &[];
        for block in program.blocks.keys().rev() {
            let before = facts.liveness.live_out_bits(block);
            for value in facts.liveness.only_in_one(before, after) {
                sweep.turn(value);
            }
            sweep.block(program, block);
            after = facts.liveness.live_in_bits(block);
        }
        let mut levels = sweep.levels;
        for level in &mut levels.files {
            let info = target.file(level.file);
            let step = info.granule * info.units_per_reg;
            let peak = highest(&level.units) as usize;
            level.ceiling = match step {
                0 => info.capacity as i32,
                _ => peak.next_multiple_of(step).min(info.capacity) as i32,
            };
        }
        levels
    }

    /// The positions of `block`.
    pub(super) fn positions(&self, program: &Program, block: Block) -> Range<u32> {
        let base = self.bases[block.index()];
        base..base + 1 + program.blocks[block].ops.len() as u32
    }

    /// Units of `file` that may be live at once in a loop.
    pub(super) fn ceiling(&self, file: File) -> i32 {
        self.of_file(file).map_or(0, |level| level.ceiling)
    }

    /// The highest level of `file` in `ranges`.
    pub(super) fn most(&self, file: File, ranges: &[Range<u32>]) -> i32 {
        let Some(level) = self.of_file(file) else {
            return 0;
        };
        let highest = |r: &Range<u32>| highest(&level.units[indices(r)]);
        ranges.iter().map(highest).max().unwrap_or(0)
    }

    /// Adds `units` of `file` in `ranges`, and tells the highest level that makes.
    pub(super) fn raise(&mut self, file: File, ranges: &[Range<u32>], units: i32) -> i32 {
        let mut highest = 0;
        for level in self.files.iter_mut().filter(|level| level.file == file) {
            for range in ranges {
                for level in &mut level.units[indices(range)] {
                    *level += units;
                    highest = highest.max(*level);
                }
            }
        }
        highest
    }

    fn of_file(&self, file: File) -> Option<&Level> {
        self.files.iter().find(|level| level.file == file)
    }
}

fn highest(units: &[i32]) -> i32 {
    units.iter().fold(0, |most, &units| most.max(units))
}

fn indices(positions: &Range<u32>) -> Range<usize> {
    positions.start as usize..positions.end as usize
}

/// A walk over all blocks, backwards.
struct Sweep {
    levels: Levels,
    /// By value.
    holders: Vec<Holder>,
    /// Units in use, by file of `levels`.
    now: Vec<i32>,
}

/// A value as far as the sweep has come.
#[derive(Clone, Copy)]
struct Holder {
    /// Before which operation it was last found to be read.
    read: u32,
    /// Before which operation it was last found to be read and not live after.
    begun: u32,
    alive: bool,
    /// Among those of `levels`; any for a value of a file left out, which has no width.
    file: u8,
    width: u16,
}

impl Sweep {
    fn new(program: &Program, target: &Target) -> Sweep {
        let mut positions = 0;
        let bases = program.blocks.values().map(|info| {
            let base = positions;
            positions += 1 + info.ops.len() as u32;
            base
        });
        let bases = bases.collect();
        let mut used = vec![false; target.files().len()];
        for value in program.values.values() {
            used[target.class(value.class).file.index()] = true;
        }
        let files = target.files();
        let files =
            files.filter(|(file, info)| used[file.index()] && info.capacity >= SCARCE_UNITS);
        let files = files.map(|(file, _)| Level {
            file,
            units: vec![0; positions as usize],
            ceiling: 0,
        });
        let files: Vec<Level> = files.collect();
        let fresh = target.classes().map(|(_, class)| {
            let file = files.iter().position(|level| level.file == class.file);
            Holder {
                read: u32::MAX,
                begun: u32::MAX,
                alive: false,
                file: file.unwrap_or(0) as u8,
                width: file.map_or(0, |_| class.width as u16),
            }
        });
        let fresh: Vec<Holder> = fresh.collect();
        let holder = |value: &ValueInfo| fresh[value.class.index()];
        Sweep {
            holders: program.values.values().map(holder).collect(),
            now: vec![0; files.len().max(1)],
            levels: Levels { bases, files },
        }
    }

    /// `value` is live on one side only.
    #[inline]
    fn turn(&mut self, value: Value) {
        let holder = &mut self.holders[value.index()];
        holder.alive = !holder.alive;
        let width = i32::from(holder.width);
        self.now[holder.file as usize] += if holder.alive { width } else { -width };
    }

    fn block(&mut self, program: &Program, block: Block) {
        let base = self.levels.bases[block.index()] as usize;
        let ops = &program.blocks[block].ops;
        self.note(base + ops.len());
        for (index, op) in ops.iter().enumerate().rev() {
            self.operation(program, op, base + index);
        }
    }

    fn operation(&mut self, program: &Program, op: &Op, before: usize) {
        let mut has_early = false;
        op.for_each_access(program.function, |value, role| {
            if role != Role::Use {
                has_early |= role == Role::EarlyDef;
                self.write(value, before);
            }
            if role.reads() {
                self.read(value, before);
            }
        });
        self.note(before);
        if has_early {
            // Early results are live together with all inputs.
            op.for_each_access(program.function, |value, role| {
                if role == Role::EarlyDef {
                    self.add(value, before);
                }
            });
        }
    }

    /// Begins an input of the operation after `before`.
    #[inline]
    fn read(&mut self, value: Value, before: usize) {
        let holder = &mut self.holders[value.index()];
        holder.read = before as u32;
        if !holder.alive {
            holder.begun = before as u32;
            self.turn(value);
        }
    }

    /// Ends a result, which takes a register for a moment even without a reader. An input
    /// that is written too is live before the operation, whichever operand comes first.
    #[inline]
    fn write(&mut self, value: Value, before: usize) {
        let holder = self.holders[value.index()];
        let is_input = holder.read == before as u32;
        if !holder.alive || (is_input && holder.begun == before as u32) {
            self.add(value, before + 1);
        } else if !is_input {
            self.turn(value);
        }
    }

    /// Counts `value` at one position.
    fn add(&mut self, value: Value, position: usize) {
        let holder = self.holders[value.index()];
        if let Some(level) = self.levels.files.get_mut(holder.file as usize) {
            level.units[position] += i32::from(holder.width);
        }
    }

    /// Notes what is in use at `position`.
    fn note(&mut self, position: usize) {
        for (level, &now) in self.levels.files.iter_mut().zip(&self.now) {
            level.units[position] = now;
        }
    }
}
