//! Which of several free places a body takes.
//!
//! The lowest free place wins, so that few registers are used and occupancy is high. A
//! place that does not raise the highest register in use is as good as the lowest, and
//! among these
//! - the body goes where copies that were not coalesced pull it, by how often they run;
//! - else it avoids the bank of values read together with it. Since Volta the register
//!   file has two banks, and an instruction whose three inputs share one stalls (Z. Jia et
//!   al., 2018). Edges between values of equal bank, which CICC is reported to add
//!   (`docs/sources.md#bank-conflicts`), would make cliques out of nothing; here banks
//!   never cost a register, let alone a spill.
//!
//! In a function that is called, a callee-saved register not yet in use costs a save and a
//! restore, so it is taken only where no other is free.
//!
//! Where the target has an order of preference, that order decides instead of height.

use crate::coalesce::{Member, Move, MoveId};
use crate::function::Convention;
use crate::interference::Interference;
use crate::ir::{Program, ReadWith, Value, read_together};
use crate::target::{File, Target, UnitSet};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use smallvec::SmallVec;

/// How many free places are looked at for the sake of banks.
const BANK_CHOICES: usize = 4;

/// What decides among free places.
pub struct Preferences<'a> {
    moves: &'a PrimaryMap<MoveId, Move>,
    moves_of: SecondaryMap<Value, SmallVec<[MoveId; 2]>>,
    /// Values that are read together with each value, three or more at a time.
    read_with: ReadWith,
    /// How many units are in use, by file: at first as many as are needed at once, since no
    /// colouring gets by with fewer.
    used: Vec<usize>,
    files: SecondaryMap<Value, u8>,
    target: &'a Target,
    /// First units that the client would like values to be in; empty where there are none.
    hints: Vec<u16>,
    /// Preserved registers of each file that are still untouched.
    preserved: Vec<UnitSet<8>>,
}

impl<'a> Preferences<'a> {
    /// What `moves`, the program's instructions and its convention prefer.
    pub fn new(
        program: &Program,
        target: &'a Target,
        interference: &Interference,
        moves: &'a PrimaryMap<MoveId, Move>,
    ) -> Preferences<'a> {
        let mut moves_of: SecondaryMap<Value, SmallVec<[MoveId; 2]>> = SecondaryMap::new();
        for (id, mv) in moves.iter() {
            moves_of[mv.to].push(id);
            moves_of[mv.from].push(id);
        }
        let mut files = SecondaryMap::new();
        files.resize(program.values.len());
        let mut used = vec![0; target.files().len()];
        for (value, info) in program.values.iter() {
            let file = target.class(info.class).file.index();
            files[value] = file as u8;
            used[file] = used[file].max(interference.peak(value) as usize);
        }
        let preserved = match program.function.convention() {
            Convention::Kernel => Vec::new(),
            Convention::Device => {
                let preserved = target.preserved();
                let files = target.files();
                let of_file = |(file, _)| UnitSet::of_file(target, file, &preserved);
                files.map(of_file).collect()
            }
        };
        Preferences {
            moves,
            moves_of,
            read_with: read_together(program, target),
            used,
            files,
            target,
            hints: match program.has_hints {
                false => Vec::new(),
                true => {
                    let hint = |v| program.hint_of(v).map_or(u16::MAX, |unit| unit as u16);
                    program.values.keys().map(hint).collect()
                }
            },
            preserved,
        }
    }

    /// The start that `members` take among the `free` ones; `units` are the places of
    /// values coloured so far.
    pub fn choose(
        &self,
        members: &[Member],
        file: File,
        free: &UnitSet<8>,
        units: &[u16],
    ) -> Option<usize> {
        let span = members.iter().map(|m| (m.offset + m.width) as usize);
        let width = span.max()?;
        let mut free = *free;
        let preserved = self.preserved.get(file.index());
        if let Some(preserved) = preserved.filter(|set| !set.is_empty()) {
            let mut unpreserved = free;
            unpreserved.subtract(&preserved.blocked_starts(width));
            if !unpreserved.is_empty() {
                free = unpreserved;
            }
        }
        let info = self.target.file(file);
        let best = info.best_start(&free)?;
        let end = match info.has_order() {
            true => info.units,
            false => self.used[file.index()].max(best + width),
        };
        let is_as_good = |start: usize| free.contains(start) && start + width <= end;
        let hinted = members.iter().filter_map(|m| {
            let hint = self.hints.get(m.value.index()).copied()?;
            let start = usize::from(hint).checked_sub(usize::from(m.offset))?;
            free.contains(start).then_some(start)
        });
        if let Some(start) = hinted.into_iter().next() {
            return Some(start);
        }
        let wishes = self.wishes(members, units);
        let wish = wishes
            .into_iter()
            .filter(|&(start, _)| is_as_good(start))
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        match wish {
            Some((start, _)) => Some(start),
            None if info.has_order() => Some(best),
            None if members.iter().all(|m| self.read_with[m.value].is_empty()) => {
                free.iter().take(BANK_CHOICES).find(|&s| is_as_good(s))
            }
            None => {
                let choices = free.iter().take(BANK_CHOICES).filter(|&s| is_as_good(s));
                choices.min_by_key(|&start| (self.bank_conflicts(members, start, units), start))
            }
        }
    }

    /// Starts of the members at which copies vanish, and their weights.
    fn wishes(&self, members: &[Member], units: &[u16]) -> SmallVec<[(usize, f64); 4]> {
        let mut wishes: SmallVec<[(usize, f64); 4]> = SmallVec::new();
        for m in members {
            for &id in &self.moves_of[m.value] {
                let mv = &self.moves[id];
                let (other, distance) = if mv.to == m.value {
                    (mv.from, -mv.distance)
                } else {
                    (mv.to, mv.distance)
                };
                let unit = units[other.index()];
                if unit == u16::MAX {
                    continue;
                }
                let start = unit as i32 + distance - m.offset as i32;
                let Ok(start) = usize::try_from(start) else {
                    continue;
                };
                match wishes.iter_mut().find(|(s, _)| *s == start) {
                    Some((_, weight)) => *weight += mv.weight,
                    None => wishes.push((start, mv.weight)),
                }
            }
        }
        wishes
    }

    /// How many values read together with the members would be in their bank.
    fn bank_conflicts(&self, members: &[Member], start: usize, units: &[u16]) -> usize {
        let main = self.target.file(File::MAIN);
        let bank = |unit: usize| unit / main.units_per_reg % main.banks;
        let conflicts = |m: &Member| {
            let own = bank(start + m.offset as usize);
            let others = self.read_with[m.value].iter();
            let coloured = others.map(|v| units[v.index()]).filter(|&u| u != u16::MAX);
            coloured.filter(|&u| bank(u as usize) == own).count()
        };
        members.iter().map(conflicts).sum()
    }

    /// Takes note that `members` are at `start`.
    pub fn note(&mut self, members: &[Member], start: usize) {
        for m in members {
            let file = self.files[m.value] as usize;
            let low = start + m.offset as usize;
            let high = low + m.width as usize;
            self.used[file] = self.used[file].max(high);
            if let Some(preserved) = self.preserved.get_mut(file) {
                preserved.remove_range(low as i32, high as i32);
            }
        }
    }
}
