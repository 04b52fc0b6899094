//! Who holds which unit when: conflicts by program point instead of by graph.
//!
//! For each position of the program there is a row of bits, one per unit of the file. A
//! value's conflicts with all units at once are the union of the rows it covers: one look
//! answers for 255 registers, which is what makes the point *fat*.
//!
//! Long stretches do not walk their rows. Eight rows have a row above them, and eight of
//! those another, each twice over: `any`, units held somewhere below, and `whole`, units
//! held throughout by a stretch that covers it all. A stretch is cut into the largest nodes
//! it covers. Marking sets `whole` there and `any` above; asking gathers `any` there and
//! `whole` above.
//!
//! Three levels are enough: as many values as there are units live at one time, so all of
//! them together cover at most `positions / 64 × units` nodes of the third.

use crate::program::Stretch;
use crate::target::Mask;
use std::ops::Range;

const LEVELS: usize = 3;
const SHIFT: u32 = 3;
/// Nodes below one node.
const FAN: usize = 1 << SHIFT;

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
    levels: [Level<W>; LEVELS],
}

impl<const W: usize> Occupancy<W> {
    /// All units free at `positions` positions.
    pub fn new(positions: u32) -> Occupancy<W> {
        let levels = std::array::from_fn(|depth| {
            let nodes = (positions as usize).div_ceil(1 << (SHIFT * depth as u32));
            Level {
                any: vec![Mask::EMPTY; nodes],
                whole: vec![Mask::EMPTY; if depth == 0 { 0 } else { nodes }],
                has_whole: false,
            }
        });
        Occupancy { levels }
    }

    /// The same holders, with room for more units.
    pub fn widened<const V: usize>(self) -> Occupancy<V> {
        let widen = |rows: Vec<Mask<W>>| rows.iter().map(Mask::widened).collect();
        let levels = self.levels.map(|level| Level {
            any: widen(level.any),
            whole: widen(level.whole),
            has_whole: level.has_whole,
        });
        Occupancy { levels }
    }

    /// Adds to `held` the units that something holds somewhere in `stretch`.
    #[inline]
    pub fn gather(&self, stretch: Stretch, held: &mut Mask<W>) {
        match is_short(stretch) {
            true => self.gather_short(stretch, held),
            false => self.gather_long(stretch, held),
        }
    }

    /// Most values are read soon after they are written, and look at leaves alone.
    #[inline(always)]
    fn gather_short(&self, stretch: Stretch, held: &mut Mask<W>) {
        let [leaves, above @ ..] = &self.levels;
        union(
            &leaves.any[stretch.start as usize..stretch.end as usize],
            held,
        );
        for (depth, level) in above.iter().enumerate() {
            if level.has_whole {
                let (low, high) = ends(stretch, depth + 1);
                held.add(&level.whole[low]);
                held.add(&level.whole[high]);
            }
        }
    }

    fn gather_long(&self, stretch: Stretch, held: &mut Mask<W>) {
        for (depth, level) in self.levels.iter().enumerate() {
            if level.has_whole {
                let (low, high) = ends(stretch, depth);
                held.add(&level.whole[low]);
                held.add(&level.whole[high]);
            }
        }
        for (level, [head, tail]) in self.levels.iter().zip(nodes(stretch)) {
            union(&level.any[head], held);
            union(&level.any[tail], held);
        }
    }

    /// Notes that something holds `width` units from `unit` on throughout `stretch`.
    #[inline]
    pub fn mark(&mut self, stretch: Stretch, unit: usize, width: usize) {
        let low = unit / 64;
        let high = (unit + width - 1) / 64;
        if low == high {
            let bits = (u64::MAX >> (64 - width)) << (unit % 64);
            self.mark_word(stretch, low, bits);
            return;
        }
        for word in low..=high {
            let from = unit.max(64 * word) - 64 * word;
            let to = (unit + width).min(64 * word + 64) - 64 * word;
            let bits = (u64::MAX >> (64 - (to - from))) << from;
            self.mark_word(stretch, word, bits);
        }
    }

    #[inline]
    fn mark_word(&mut self, stretch: Stretch, word: usize, bits: u64) {
        match is_short(stretch) {
            true => self.mark_short(stretch, word, bits),
            false => self.mark_long(stretch, word, bits),
        }
    }

    #[inline(always)]
    fn mark_short(&mut self, stretch: Stretch, word: usize, bits: u64) {
        let [leaves, above @ ..] = &mut self.levels;
        for row in &mut leaves.any[stretch.start as usize..stretch.end as usize] {
            row.0[word] |= bits;
        }
        for (depth, level) in above.iter_mut().enumerate() {
            let (low, high) = ends(stretch, depth + 1);
            level.any[low].0[word] |= bits;
            level.any[high].0[word] |= bits;
        }
    }

    fn mark_long(&mut self, stretch: Stretch, word: usize, bits: u64) {
        let parts = nodes(stretch);
        for (depth, (level, [head, tail])) in self.levels.iter_mut().zip(parts).enumerate() {
            let (low, high) = ends(stretch, depth);
            level.any[low].0[word] |= bits;
            level.any[high].0[word] |= bits;
            level.hold(head, word, bits);
            level.hold(tail, word, bits);
        }
    }
}

/// Whether `stretch` is not worth looking for nodes that it covers.
#[inline(always)]
fn is_short(stretch: Stretch) -> bool {
    stretch.end - stretch.start <= FAN as u32
}

/// The nodes `depth` levels up that `stretch` begins and ends in.
#[inline(always)]
fn ends(stretch: Stretch, depth: usize) -> (usize, usize) {
    let shift = SHIFT * depth as u32;
    let (first, last) = (stretch.start >> shift, (stretch.end - 1) >> shift);
    (first as usize, last as usize)
}

/// The largest nodes that make up `stretch`: on each level those before and those after the
/// ones that the level above stands for.
#[inline(always)]
fn nodes(stretch: Stretch) -> [[Range<usize>; 2]; LEVELS] {
    let (mut start, mut end) = (stretch.start as usize, stretch.end as usize);
    std::array::from_fn(|depth| {
        let (up, down) = ((start + FAN - 1) >> SHIFT << SHIFT, end >> SHIFT << SHIFT);
        if depth + 1 == LEVELS || up >= down {
            let all = start..end;
            (start, end) = (0, 0);
            return [all, 0..0];
        }
        let parts = [start..up, down..end];
        (start, end) = (up >> SHIFT, down >> SHIFT);
        parts
    })
}

impl<const W: usize> Level<W> {
    #[inline(always)]
    fn hold(&mut self, range: Range<usize>, word: usize, bits: u64) {
        for node in &mut self.any[range.clone()] {
            node.0[word] |= bits;
        }
        if !self.whole.is_empty() && !range.is_empty() {
            self.has_whole = true;
            for node in &mut self.whole[range] {
                node.0[word] |= bits;
            }
        }
    }
}

#[inline(always)]
fn union<const W: usize>(rows: &[Mask<W>], into: &mut Mask<W>) {
    for row in rows {
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
