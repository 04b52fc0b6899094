//! The register matrix: conflicts by program point instead of by graph.
//!
//! For each position of the program there is a row of bits, one per unit of the file. A
//! value's conflicts with all units at once are the union of the rows it covers: one look
//! answers for 255 registers, which is what makes the point *fat*.
//!
//! Long segments do not walk their rows. Thirty-two rows are a span, and a span has two rows
//! of its own: `any`, units held somewhere in it, and `whole`, units held throughout by a
//! segment that covers it all. Marking a segment sets `whole` in the spans it covers and `any`
//! where it ends; a query gathers `any` of the spans it covers and `whole` where it ends.
//!
//! One such level is enough: as many values as there are units live at one time, so all of
//! them together cover at most `positions / 32 × units` spans. What more levels save on the
//! longest segments they cost at the ends of all others.

use crate::ir::Segment;
use crate::scratch::Scratch;
use crate::target::UnitSet;
use std::ops::Range;

const SHIFT: u32 = 5;

/// Units held at every position of a program.
pub struct RegMatrix<const W: usize> {
    /// By position: held there, except by segments that cover the whole span.
    rows: Vec<UnitSet<W>>,
    /// By span: held somewhere in it.
    any: Vec<UnitSet<W>>,
    /// By span: held throughout.
    whole: Vec<UnitSet<W>>,
    /// Whether anything is held throughout a span.
    has_whole: bool,
}

impl<const W: usize> RegMatrix<W> {
    /// All units free at `positions` positions.
    pub fn new(positions: u32, scratch: &Scratch) -> RegMatrix<W> {
        let positions = positions as usize;
        let spans = positions.div_ceil(1 << SHIFT);
        RegMatrix {
            rows: scratch.filled(UnitSet::EMPTY, positions),
            any: scratch.filled(UnitSet::EMPTY, spans),
            whole: scratch.filled(UnitSet::EMPTY, spans),
            has_whole: false,
        }
    }

    /// Leaves its memory to others.
    pub fn recycle(self, scratch: &Scratch) {
        for rows in [self.rows, self.any, self.whole] {
            scratch.give(rows);
        }
    }

    /// The same holders, with room for more units.
    pub fn widened<const V: usize>(self, scratch: &Scratch) -> RegMatrix<V> {
        let widen = |rows: &[UnitSet<W>]| scratch.collected(rows.iter().map(UnitSet::widened));
        let wide = RegMatrix {
            rows: widen(&self.rows),
            any: widen(&self.any),
            whole: widen(&self.whole),
            has_whole: self.has_whole,
        };
        self.recycle(scratch);
        wide
    }

    /// Adds to `held` the units that something holds somewhere in `segment`.
    #[inline]
    pub fn gather(&self, segment: Segment, held: &mut UnitSet<W>) {
        let Parts { head, spans, tail } = Parts::of(segment);
        union(&self.rows[head], held);
        if !spans.is_empty() {
            union(&self.any[spans], held);
            union(&self.rows[tail], held);
        }
        if self.has_whole {
            for span in ends(segment) {
                held.add(&self.whole[span]);
            }
        }
    }

    /// Notes that something holds `width` units from `unit` on throughout `segment`.
    #[inline]
    pub fn mark(&mut self, segment: Segment, unit: usize, width: usize) {
        let low = unit / 64;
        let high = (unit + width - 1) / 64;
        if low == high {
            let bits = (u64::MAX >> (64 - width)) << (unit % 64);
            self.mark_word(segment, low, bits);
            return;
        }
        for word in low..=high {
            self.mark_word(segment, word, bits_of(word, unit, width));
        }
    }

    /// Takes back a mark.
    pub fn clear(&mut self, segment: Segment, unit: usize, width: usize) {
        for word in unit / 64..=(unit + width - 1) / 64 {
            self.clear_word(segment, word, bits_of(word, unit, width));
        }
    }

    /// Nobody else holds the units where the segment did, but perhaps elsewhere in a span.
    fn clear_word(&mut self, segment: Segment, word: usize, bits: u64) {
        let Parts { head, spans, tail } = Parts::of(segment);
        release(&mut self.rows[head], word, bits);
        release(&mut self.any[spans.clone()], word, bits);
        release(&mut self.whole[spans], word, bits);
        release(&mut self.rows[tail], word, bits);
        for span in ends(segment) {
            let first = span << SHIFT;
            let last = (first + (1 << SHIFT)).min(self.rows.len());
            let rows = self.rows[first..last].iter();
            self.any[span].0[word] =
                rows.fold(self.whole[span].0[word], |any, row| any | row.0[word]);
        }
    }

    #[inline]
    fn mark_word(&mut self, segment: Segment, word: usize, bits: u64) {
        let Parts { head, spans, tail } = Parts::of(segment);
        hold(&mut self.rows[head], word, bits);
        if !spans.is_empty() {
            hold(&mut self.any[spans.clone()], word, bits);
            hold(&mut self.whole[spans], word, bits);
            hold(&mut self.rows[tail], word, bits);
            self.has_whole = true;
        }
        for span in ends(segment) {
            self.any[span].0[word] |= bits;
        }
    }
}

/// The spans that a segment covers, and the positions before and after them; without such
/// spans, all positions are before.
struct Parts {
    head: Range<usize>,
    spans: Range<usize>,
    tail: Range<usize>,
}

impl Parts {
    #[inline(always)]
    fn of(segment: Segment) -> Parts {
        let (start, end) = (segment.start as usize, segment.end as usize);
        let (first, last) = ((start + (1 << SHIFT) - 1) >> SHIFT, end >> SHIFT);
        match first < last {
            true => Parts {
                head: start..first << SHIFT,
                spans: first..last,
                tail: last << SHIFT..end,
            },
            false => Parts {
                head: start..end,
                spans: 0..0,
                tail: end..end,
            },
        }
    }
}

/// The spans that `segment` begins and ends in.
#[inline(always)]
fn ends(segment: Segment) -> [usize; 2] {
    [segment.start, segment.end - 1].map(|position| (position >> SHIFT) as usize)
}

#[inline(always)]
fn union<const W: usize>(rows: &[UnitSet<W>], into: &mut UnitSet<W>) {
    for row in rows {
        into.add(row);
    }
}

#[inline(always)]
fn hold<const W: usize>(rows: &mut [UnitSet<W>], word: usize, bits: u64) {
    for row in rows {
        row.0[word] |= bits;
    }
}

#[inline(always)]
fn release<const W: usize>(rows: &mut [UnitSet<W>], word: usize, bits: u64) {
    for row in rows {
        row.0[word] &= !bits;
    }
}

/// The bits of `word` that stand for `width` units from `unit` on.
#[inline(always)]
fn bits_of(word: usize, unit: usize, width: usize) -> u64 {
    let from = unit.max(64 * word) - 64 * word;
    let to = (unit + width).min(64 * word + 64) - 64 * word;
    (u64::MAX >> (64 - (to - from))) << from
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Rng;

    /// Conflicts are exact without an interference graph.
    #[test]
    fn agrees_with_one_row_per_position() {
        let mut rng = Rng::new(11);
        for positions in [1usize, 5, 8, 9, 63, 64, 65, 700, 5000] {
            let mut occupancy: RegMatrix<4> = RegMatrix::new(positions as u32, &Scratch::default());
            let mut rows = vec![UnitSet::<4>::EMPTY; positions];
            for _ in 0..300 {
                let start = rng.below(positions);
                let longest = if rng.one_in(2) {
                    positions - start
                } else {
                    9.min(positions - start)
                };
                let end = start + 1 + rng.below(longest);
                let segment = Segment {
                    start: start as u32,
                    end: end as u32,
                };
                let mut found = UnitSet::EMPTY;
                occupancy.gather(segment, &mut found);
                let mut expected = UnitSet::EMPTY;
                rows[start..end].iter().for_each(|row| expected.add(row));
                assert_eq!(found, expected, "{start}..{end} of {positions}");
                let width = 1 + rng.below(8);
                let unit = rng.below(256 - width);
                occupancy.mark(segment, unit, width);
                for row in &mut rows[start..end] {
                    (unit..unit + width).for_each(|u| row.insert(u));
                }
            }
        }
    }

    /// Marks that are taken back leave what others hold, in the same span too.
    #[test]
    fn a_mark_that_is_taken_back_leaves_the_others() {
        let mut rng = Rng::new(7);
        for positions in [5usize, 64, 65, 700] {
            let mut occupancy: RegMatrix<2> = RegMatrix::new(positions as u32, &Scratch::default());
            let mut rows = vec![UnitSet::<2>::EMPTY; positions];
            let mut marks: Vec<(Segment, usize, usize)> = Vec::new();
            for _ in 0..600 {
                let start = rng.below(positions);
                let end = start + 1 + rng.below(positions - start);
                let covered = |s: Segment| s.start as usize..s.end as usize;
                let segment = Segment {
                    start: start as u32,
                    end: end as u32,
                };
                let (unit, width) = (rng.below(120), 1 + rng.below(8));
                let units = UnitSet::of(unit..unit + width);
                let mut held = UnitSet::EMPTY;
                occupancy.gather(segment, &mut held);
                if held.and(&units).is_empty() {
                    occupancy.mark(segment, unit, width);
                    rows[covered(segment)]
                        .iter_mut()
                        .for_each(|row| row.add(&units));
                    marks.push((segment, unit, width));
                } else {
                    let (segment, unit, width) = marks.swap_remove(rng.below(marks.len()));
                    occupancy.clear(segment, unit, width);
                    let units = UnitSet::of(unit..unit + width);
                    rows[covered(segment)]
                        .iter_mut()
                        .for_each(|row| row.subtract(&units));
                }
                let mut expected = UnitSet::EMPTY;
                rows[start..end].iter().for_each(|row| expected.add(row));
                let mut found = UnitSet::EMPTY;
                occupancy.gather(segment, &mut found);
                assert_eq!(found, expected, "{start}..{end} of {positions}");
            }
        }
    }
}
