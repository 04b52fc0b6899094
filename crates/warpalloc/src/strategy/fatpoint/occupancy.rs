//! Who holds which unit when: conflicts by program point instead of by graph.
//!
//! For each position of the program there is a row of bits, one per unit of the file. A
//! value's conflicts with all units at once are the union of the rows it covers: one look
//! answers for 255 registers, which is what makes the point *fat*.
//!
//! Long stretches do not walk their rows. Rows form a tree in which each node stands for
//! `FAN` nodes below it and has two rows of its own: `any`, units held somewhere below,
//! and `whole`, units held throughout by a stretch that covers the node. A stretch is cut
//! into the largest nodes it covers, at most `2 × FAN` per level. Marking sets `whole`
//! there and `any` above; asking gathers `any` there and `whole` above. Both take time
//! logarithmic in the length of the program whatever is asked.

use super::mask::Mask;
use super::ranges::Stretch;

const SHIFT: u32 = 3;
/// Nodes below one node.
const FAN: u32 = 1 << SHIFT;

/// One level of the tree.
struct Level<const W: usize> {
    /// Units held somewhere below each node.
    any: Vec<Mask<W>>,
    /// Units held throughout each node. At the leaves the two are the same, and this is empty.
    whole: Vec<Mask<W>>,
    /// Whether any `whole` row of the level has a unit.
    has_whole: bool,
}

/// Units held at every position of a program.
pub struct Occupancy<const W: usize> {
    levels: Vec<Level<W>>,
}

impl<const W: usize> Occupancy<W> {
    /// All units free at `positions` positions.
    pub fn new(positions: u32) -> Occupancy<W> {
        let mut levels = Vec::new();
        let mut nodes = positions.max(1);
        loop {
            let whole = if levels.is_empty() { 0 } else { nodes as usize };
            levels.push(Level {
                any: vec![Mask::EMPTY; nodes as usize],
                whole: vec![Mask::EMPTY; whole],
                has_whole: false,
            });
            if nodes <= FAN {
                return Occupancy { levels };
            }
            nodes = nodes.div_ceil(FAN);
        }
    }

    /// Adds to `held` the units that something holds somewhere in `stretch`.
    pub fn gather(&self, stretch: Stretch, held: &mut Mask<W>) {
        let (mut start, mut end) = (stretch.start, stretch.end);
        let (first, last) = (start, end - 1);
        let mut open = true;
        for (depth, level) in self.levels.iter().enumerate() {
            let shift = SHIFT * depth as u32;
            if level.has_whole {
                let (low, high) = ((first >> shift) as usize, (last >> shift) as usize);
                held.add(&level.whole[low]);
                if high != low {
                    held.add(&level.whole[high]);
                }
            }
            if open {
                let (inner_start, inner_end) = (start.div_ceil(FAN), end / FAN);
                let is_top = depth + 1 == self.levels.len();
                if is_top || inner_start >= inner_end {
                    union(&level.any, start, end, held);
                    open = false;
                } else {
                    union(&level.any, start, inner_start * FAN, held);
                    union(&level.any, inner_end * FAN, end, held);
                    (start, end) = (inner_start, inner_end);
                }
            }
        }
    }

    /// Notes that something holds `width` units from `unit` on throughout `stretch`.
    pub fn mark(&mut self, stretch: Stretch, unit: usize, width: usize) {
        let low = unit / 64;
        let high = (unit + width - 1) / 64;
        for word in low..=high {
            let from = unit.max(64 * word) - 64 * word;
            let to = (unit + width).min(64 * word + 64) - 64 * word;
            let bits = (u64::MAX >> (64 - (to - from))) << from;
            self.mark_word(stretch, word, bits);
        }
    }

    fn mark_word(&mut self, stretch: Stretch, word: usize, bits: u64) {
        let (mut start, mut end) = (stretch.start, stretch.end);
        let (first, last) = (start, end - 1);
        let top = self.levels.len() - 1;
        let mut open = true;
        for (depth, level) in self.levels.iter_mut().enumerate() {
            let shift = SHIFT * depth as u32;
            level.any[(first >> shift) as usize].0[word] |= bits;
            level.any[(last >> shift) as usize].0[word] |= bits;
            if open {
                let (inner_start, inner_end) = (start.div_ceil(FAN), end / FAN);
                if depth == top || inner_start >= inner_end {
                    level.hold(start, end, word, bits);
                    open = false;
                } else {
                    level.hold(start, inner_start * FAN, word, bits);
                    level.hold(inner_end * FAN, end, word, bits);
                    (start, end) = (inner_start, inner_end);
                }
            }
        }
    }
}

impl<const W: usize> Level<W> {
    fn hold(&mut self, start: u32, end: u32, word: usize, bits: u64) {
        let range = start as usize..end as usize;
        for node in &mut self.any[range.clone()] {
            node.0[word] |= bits;
        }
        if !self.whole.is_empty() && start < end {
            self.has_whole = true;
            for node in &mut self.whole[range] {
                node.0[word] |= bits;
            }
        }
    }
}

#[inline]
fn union<const W: usize>(rows: &[Mask<W>], start: u32, end: u32, into: &mut Mask<W>) {
    for row in &rows[start as usize..end as usize] {
        into.add(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Rng;

    /// Document 003 has no graph in this path; neither have we, and the answer is exact.
    #[test]
    fn agrees_with_one_row_per_position() {
        let mut rng = Rng::new(11);
        for positions in [1usize, 5, 8, 9, 63, 64, 65, 700, 5000] {
            let mut occupancy: Occupancy<4> = Occupancy::new(positions as u32);
            let mut rows = vec![Mask::<4>::EMPTY; positions];
            for _ in 0..300 {
                let start = rng.below(positions);
                let longest = if rng.one_in(2) {
                    positions - start
                } else {
                    9.min(positions - start)
                };
                let end = start + 1 + rng.below(longest);
                let stretch = Stretch {
                    start: start as u32,
                    end: end as u32,
                };
                let mut found = Mask::EMPTY;
                occupancy.gather(stretch, &mut found);
                let mut expected = Mask::EMPTY;
                rows[start..end].iter().for_each(|row| expected.add(row));
                assert_eq!(found, expected, "{start}..{end} of {positions}");
                let width = 1 + rng.below(8);
                let unit = rng.below(256 - width);
                occupancy.mark(stretch, unit, width);
                for row in &mut rows[start..end] {
                    (unit..unit + width).for_each(|u| row.insert(u));
                }
            }
        }
    }
}
