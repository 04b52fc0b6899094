//! The live values by file, and the greatest pressure that each lives through.
//!
//! Asking every live value at every point would cost the pressure each time. Instead, a
//! stack keeps the points of a block whose pressure no later point reaches. The greatest
//! pressure since some time is then the first entry that is not older, and it is asked for
//! once per value and block.

use super::log::Log;
use super::rows::{Condition, Neighbours};
use crate::analysis::{LiveSet, Liveness};
use crate::function::{Block, Role};
use crate::ir::{Program, Value};
use crate::scratch::Scratch;
use crate::target::{File, Target};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// The values live at one point, moved backwards through blocks.
pub(super) struct Crowd {
    files: Vec<OfFile>,
    file_of: Vec<File>,
    widths: Vec<u16>,
    /// Points met so far in this block.
    now: u32,
    /// How many points had been met when each value became live.
    since: Vec<u32>,
    /// The greatest pressure found for each value.
    peaks: Vec<u16>,
    /// What interferes.
    pub(super) log: Log,
}

struct OfFile {
    live: LiveSet<Value>,
    units: u32,
    /// Points and their pressure, descending: no later point reaches the pressure of one.
    crests: Vec<(u32, u32)>,
}

impl Crowd {
    pub(super) fn new(program: &Program, target: &Target, scratch: &Scratch) -> Crowd {
        let infos = || program.values.values();
        let values = program.values.len();
        let of_file = |_| OfFile {
            live: LiveSet::new_in(values, scratch),
            units: 0,
            crests: Vec::new(),
        };
        Crowd {
            files: target.files().map(of_file).collect(),
            file_of: scratch.collected(infos().map(|info| target.class(info.class).file)),
            widths: scratch.collected(infos().map(|info| target.width(info.class) as u16)),
            now: 0,
            since: scratch.filled(0, values),
            peaks: scratch.filled(0, values),
            log: Log::new(scratch),
        }
    }

    /// The file `value` lives in.
    pub(super) fn file(&self, value: Value) -> File {
        self.file_of[value.index()]
    }

    /// The live values of `file`.
    pub(super) fn live(&self, file: File) -> &LiveSet<Value> {
        &self.files[file.index()].live
    }

    /// All live values.
    pub(super) fn all_live(&self) -> impl Iterator<Item = Value> + '_ {
        self.files.iter().flat_map(|of_file| of_file.live.iter())
    }

    /// Makes it the set live out of `block`.
    pub(super) fn start_at_end(&mut self, liveness: &Liveness<Value>, block: Block) {
        self.now = 0;
        for of_file in &mut self.files {
            of_file.live.clear();
            of_file.units = 0;
            of_file.crests.clear();
        }
        for value in liveness.live_out(block) {
            self.enter(value);
        }
    }

    /// Notes the pressure right after an operation that writes `written`.
    pub(super) fn note_pressure(&mut self, written: impl Iterator<Item = Value>) {
        // Results that are never read take registers all the same.
        let is_dead = |v: &Value| !self.live(self.file(*v)).contains(*v);
        let dead: SmallVec<[Value; 4]> = written.filter(is_dead).collect();
        for &value in &dead {
            let width = self.width(value);
            self.of_value(value).units += width;
        }
        // Where nothing is in use, no value asks how much is.
        for of_file in self.files.iter_mut().filter(|of_file| of_file.units > 0) {
            let crests = &mut of_file.crests;
            while crests.last().is_some_and(|crest| crest.1 <= of_file.units) {
                crests.pop();
            }
            crests.push((self.now, of_file.units));
        }
        for value in dead {
            self.since[value.index()] = self.now;
            self.note_peak(value);
            let width = self.width(value);
            self.of_value(value).units -= width;
        }
        self.now += 1;
    }

    /// Moves from after an operation with these accesses to before it.
    pub(super) fn step_back(&mut self, accesses: &[(Value, Role)]) {
        for &(value, _) in accesses.iter().filter(|(_, role)| role.writes()) {
            if self.of_value(value).live.remove(value) {
                self.log.leave(value);
                let width = self.width(value);
                self.of_value(value).units -= width;
                self.note_peak(value);
            }
        }
        for &(value, _) in accesses.iter().filter(|(_, role)| role.reads()) {
            self.enter(value);
        }
    }

    /// Leaves a block at its beginning.
    pub(super) fn finish_block(&mut self) {
        for file in 0..self.files.len() {
            for index in 0..self.files[file].live.len() {
                self.note_peak(self.files[file].live.as_slice()[index]);
            }
        }
        self.log.clear();
    }

    /// The neighbours of each value, and the most units of its file in use at once while it is
    /// live.
    pub(super) fn finish(
        self,
        conditions: &[Condition],
        scratch: &Scratch,
    ) -> (Neighbours, Vec<u16>) {
        let rows = self.log.into_rows(&self.file_of, conditions, scratch);
        for of_file in self.files {
            of_file.live.recycle(scratch);
        }
        scratch.give(self.file_of);
        scratch.give(self.widths);
        scratch.give(self.since);
        (rows, self.peaks)
    }

    fn enter(&mut self, value: Value) {
        if self.of_value(value).live.insert(value) {
            self.log.enter(value);
            let width = self.width(value);
            self.of_value(value).units += width;
            self.since[value.index()] = self.now;
        }
    }

    fn note_peak(&mut self, value: Value) {
        let since = self.since[value.index()];
        let crests = &self.files[self.file(value).index()].crests;
        let first = crests.partition_point(|crest| crest.0 < since);
        let highest = crests.get(first).map_or(0, |crest| crest.1);
        let peak = &mut self.peaks[value.index()];
        *peak = (*peak).max(highest.min(u32::from(u16::MAX)) as u16);
    }

    fn of_value(&mut self, value: Value) -> &mut OfFile {
        &mut self.files[self.file_of[value.index()].index()]
    }

    fn width(&self, value: Value) -> u32 {
        u32::from(self.widths[value.index()])
    }
}
