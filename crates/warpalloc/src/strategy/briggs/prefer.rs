//! Which of several free places a body takes.
//!
//! The lowest free place wins, so that few registers are used and occupancy is high. A
//! place that does not raise the highest register in use is as good as the lowest, and
//! among these the body goes where copies that were not coalesced pull it, by how often
//! they run.

use crate::coalesce::{Member, Move, MoveId};
use crate::interference::Places;
use crate::program::{Program, Value};
use crate::target::{File, Target};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use smallvec::SmallVec;

/// What has a say in the choice of a place.
pub struct Preferences<'a> {
    moves: &'a PrimaryMap<MoveId, Move>,
    moves_of: SecondaryMap<Value, SmallVec<[MoveId; 2]>>,
    /// One past the highest unit in use, by file.
    used: Vec<usize>,
    files: SecondaryMap<Value, u8>,
}

impl<'a> Preferences<'a> {
    /// Preferences by `moves`, which may be none.
    pub fn new(
        program: &Program,
        target: &Target,
        moves: &'a PrimaryMap<MoveId, Move>,
    ) -> Preferences<'a> {
        let mut moves_of: SecondaryMap<Value, SmallVec<[MoveId; 2]>> = SecondaryMap::new();
        for (id, mv) in moves.iter() {
            moves_of[mv.to].push(id);
            moves_of[mv.from].push(id);
        }
        let mut files = SecondaryMap::new();
        for (value, info) in program.values.iter() {
            files[value] = target.class(info.class).file.index() as u8;
        }
        Preferences {
            moves,
            moves_of,
            used: vec![0; target.files().len()],
            files,
        }
    }

    /// The start that `members` take among the `free` ones; `units` are the places of
    /// values coloured so far.
    pub fn choose(
        &self,
        members: &[Member],
        file: File,
        free: &Places,
        units: &[u16],
    ) -> Option<usize> {
        let lowest = free.first()?;
        let width = members
            .iter()
            .map(|m| (m.offset + m.width) as usize)
            .max()?;
        let end = self.used[file.index()].max(lowest + width);
        let is_as_good = |start: usize| free.contains(start) && start + width <= end;
        let wishes = self.wishes(members, units);
        let wish = wishes
            .into_iter()
            .filter(|&(start, _)| is_as_good(start))
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        Some(wish.map_or(lowest, |(start, _)| start))
    }

    /// Where copies would like the members to start, and how much.
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

    /// Takes note that `members` are at `start`.
    pub fn note(&mut self, members: &[Member], start: usize) {
        for m in members {
            let used = &mut self.used[self.files[m.value] as usize];
            *used = (*used).max(start + (m.offset + m.width) as usize);
        }
    }
}
