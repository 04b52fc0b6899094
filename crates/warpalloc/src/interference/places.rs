//! Sets of positions in one register file.

use crate::target::{File, PReg};
use crate::target::{RegSet, Target};

const WORDS: usize = 8;

/// A set of units of one file, or of units where something may start.
///
/// Files have at most [`Places::CAPACITY`] units; positions beyond that are never in a
/// set, so that a larger file is merely not used in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    words: [u64; WORDS],
}

impl Places {
    /// One more than the highest position a set can hold.
    pub const CAPACITY: usize = 64 * WORDS;

    /// The empty set.
    pub fn none() -> Places {
        Places::default()
    }

    /// The units of `file` in `set`.
    pub fn of_file(target: &Target, set: &RegSet, file: File) -> Places {
        let units = target.file(file).units;
        let mut places = Places::none();
        for unit in 0..units {
            if set.contains(target.unit(PReg::new(file, unit))) {
                places.insert(unit);
            }
        }
        places
    }

    /// The multiples of `step` below `end`.
    pub fn multiples(step: usize, end: usize) -> Places {
        let mut places = Places::none();
        (0..end).step_by(step).for_each(|at| places.insert(at));
        places
    }

    /// Adds `at`.
    pub fn insert(&mut self, at: usize) {
        if let Some(word) = self.words.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Adds the `count` positions from `low` on.
    pub fn insert_range(&mut self, low: usize, count: usize) {
        for_words(low, (low + count).min(Places::CAPACITY), |word, mask| {
            self.words[word] |= mask;
        });
    }

    /// Whether `at` is in the set.
    pub fn contains(&self, at: usize) -> bool {
        let word = self.words.get(at / 64);
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Removes every position in `low..high`; either end may lie outside the file.
    pub fn remove_range(&mut self, low: i32, high: i32) {
        let low = low.max(0) as usize;
        let high = (high.max(0) as usize).min(Places::CAPACITY);
        for_words(low, high, |word, mask| self.words[word] &= !mask);
    }

    /// Keeps what is in `other` too.
    pub fn intersect(&mut self, other: &Places) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Adds what is in `other`.
    pub fn unite(&mut self, other: &Places) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Removes what is in `other`.
    pub fn subtract(&mut self, other: &Places) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
    }

    /// The positions `p` with `p + distance` in this set.
    pub fn moved_down(&self, distance: usize) -> Places {
        let (skip, shift) = (distance / 64, distance % 64);
        let mut moved = Places::none();
        for (i, word) in moved.words.iter_mut().enumerate() {
            let at = |j: usize| self.words.get(j).copied().unwrap_or(0);
            *word = at(i + skip) >> shift;
            if shift > 0 {
                *word |= at(i + skip + 1) << (64 - shift);
            }
        }
        moved
    }

    /// The positions `p` with `p - distance` in this set.
    pub fn moved_up(&self, distance: usize) -> Places {
        let (skip, shift) = (distance / 64, distance % 64);
        let mut moved = Places::none();
        for (i, word) in moved.words.iter_mut().enumerate() {
            let at = |j: Option<usize>| j.map_or(0, |j| self.words[j]);
            *word = at(i.checked_sub(skip)) << shift;
            if shift > 0 {
                *word |= at(i.checked_sub(skip + 1)) >> (64 - shift);
            }
        }
        moved
    }

    /// The starts from which `width` units touch this set.
    pub fn touching(&self, width: usize) -> Places {
        let mut starts = *self;
        for distance in 1..width {
            starts.unite(&self.moved_down(distance));
        }
        starts
    }

    /// How many positions there are.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// The lowest position.
    pub fn first(&self) -> Option<usize> {
        let word = self.words.iter().position(|&w| w != 0)?;
        Some(64 * word + self.words[word].trailing_zeros() as usize)
    }

    /// The positions in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(i, &word)| {
            let rest = |w: &u64| Some(w & (w - 1)).filter(|&w| w != 0);
            std::iter::successors(Some(word).filter(|&w| w != 0), rest)
                .map(move |w| 64 * i + w.trailing_zeros() as usize)
        })
    }
}

/// The words that hold the positions `low..high`, each with a mask of those it holds.
fn for_words(low: usize, high: usize, mut visit: impl FnMut(usize, u64)) {
    let mut at = low;
    while at < high {
        let count = (64 - at % 64).min(high - at);
        visit(at / 64, u64::MAX >> (64 - count) << (at % 64));
        at += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_crosses_words() {
        let places = Places::multiples(7, 255);
        for distance in [0, 1, 5, 63, 64, 65, 130] {
            let down: Vec<_> = places.moved_down(distance).iter().collect();
            let expected = places.iter().filter_map(|p| p.checked_sub(distance));
            assert_eq!(down, expected.collect::<Vec<_>>());
            let up: Vec<_> = places.moved_up(distance).iter().collect();
            assert_eq!(up, places.iter().map(|p| p + distance).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_quad_touches_a_unit_from_four_starts() {
        let mut unit = Places::none();
        unit.insert(65);
        let starts: Vec<_> = unit.touching(4).iter().collect();
        assert_eq!(starts, [62, 63, 64, 65]);
        assert_eq!(unit.touching(4).len(), 4);
    }

    #[test]
    fn ranges_cross_words() {
        for (low, count) in [(0, 0), (0, 64), (63, 2), (60, 140), (508, 9)] {
            let mut places = Places::none();
            places.insert_range(low, count);
            let end = (low + count).min(Places::CAPACITY);
            assert_eq!(
                places.iter().collect::<Vec<_>>(),
                (low..end).collect::<Vec<_>>()
            );
            let mut all = Places::multiples(1, Places::CAPACITY);
            all.remove_range(low as i32, (low + count) as i32);
            assert_eq!(all.len(), Places::CAPACITY - places.len());
            all.intersect(&places);
            assert!(all.is_empty());
        }
    }

    #[test]
    fn ranges_outside_the_file_are_cut() {
        let mut places = Places::multiples(1, Places::CAPACITY);
        places.remove_range(-3, 2);
        places.remove_range(510, 600);
        assert_eq!(places.first(), Some(2));
        assert_eq!(places.len(), Places::CAPACITY - 4);
        assert!(places.contains(509) && !places.contains(510));
    }
}
