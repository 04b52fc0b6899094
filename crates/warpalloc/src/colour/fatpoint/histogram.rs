//! Counters for every unit at once.
//!
//! ptxas is reported to keep an array of 512 counters and to scan it slot by slot for each
//! value (`docs/sources.md#fatpoint-histogram`). Ours is turned by ninety degrees: plane *p*
//! holds bit *p* of every counter, so that adding to any set of units is a ripple-carry
//! addition over a few masks, and both "all counters above the threshold" and "the least
//! counter" are one pass over the planes. 512 counters fit in seven vector registers' worth
//! of planes.

use crate::target::UnitSet;

/// Planes, so counters saturate at 127: well above any threshold worth setting.
const PLANES: usize = 7;
/// The greatest count.
pub const MOST: u32 = (1 << PLANES) - 1;

/// A counter for each of `64 × W` units.
#[derive(Clone, Debug)]
pub struct Histogram<const W: usize> {
    planes: [UnitSet<W>; PLANES],
    /// Whether all counters are zero.
    clear: bool,
}

impl<const W: usize> Default for Histogram<W> {
    fn default() -> Histogram<W> {
        Histogram {
            planes: [UnitSet::EMPTY; PLANES],
            clear: true,
        }
    }
}

impl<const W: usize> Histogram<W> {
    /// Adds `weight` to the counter of each unit in `units`; counters stop at [`MOST`].
    pub fn add(&mut self, units: &UnitSet<W>, weight: u32) {
        self.clear &= weight == 0;
        let weight = weight.min(MOST);
        let mut carry = UnitSet::EMPTY;
        for (bit, plane) in self.planes.iter_mut().enumerate() {
            let addend = if weight >> bit & 1 == 1 {
                *units
            } else {
                UnitSet::EMPTY
            };
            let half = plane.xor(&addend);
            let mut carried = plane.and(&addend);
            carried.add(&half.and(&carry));
            *plane = half.xor(&carry);
            carry = carried;
        }
        for plane in &mut self.planes {
            plane.add(&carry);
        }
    }

    /// Whether all counters are zero.
    pub fn is_clear(&self) -> bool {
        self.clear
    }

    /// The counter of one unit.
    #[cfg(any(test, feature = "internals"))]
    pub fn count(&self, unit: usize) -> u32 {
        let bits = self.planes.iter().enumerate();
        bits.map(|(bit, plane)| u32::from(plane.contains(unit)) << bit)
            .sum()
    }

    /// Units whose counter exceeds `threshold`.
    pub fn above(&self, threshold: u32) -> UnitSet<W> {
        if self.clear {
            return UnitSet::EMPTY;
        }
        let threshold = threshold.min(MOST);
        let mut above = UnitSet::EMPTY;
        let mut equal = UnitSet([u64::MAX; W]);
        for (bit, plane) in self.planes.iter().enumerate().rev() {
            if threshold >> bit & 1 == 0 {
                above.add(&equal.and(plane));
                equal = equal.without(plane);
            } else {
                equal = equal.and(plane);
            }
        }
        above
    }

    /// The `candidates` whose counter is least.
    pub fn least(&self, candidates: &UnitSet<W>) -> UnitSet<W> {
        let mut best = *candidates;
        if self.clear {
            return best;
        }
        for plane in self.planes.iter().rev() {
            let without = best.without(plane);
            if !without.is_empty() {
                best = without;
            }
        }
        best
    }
}

/// Of the `free` slots, discards those whose primary counter exceeds `threshold`, takes the
/// least of the rest, and breaks ties by the secondary counter, then by the lower number.
/// Where every free slot is contested, the least contested is taken: a free slot is never
/// refused.
pub fn choose<const W: usize>(
    free: &UnitSet<W>,
    primary: &Histogram<W>,
    secondary: &Histogram<W>,
    threshold: u32,
) -> Option<usize> {
    let calm = free.without(&primary.above(threshold));
    let pool = if calm.is_empty() { *free } else { calm };
    secondary.least(&primary.least(&pool)).lowest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Rng;

    #[test]
    fn planes_count_like_an_array_of_512() {
        let mut rng = Rng::new(5);
        let mut histogram: Histogram<8> = Histogram::default();
        let mut counts = [0u32; 512];
        for _ in 0..60 {
            let mut mask = UnitSet::EMPTY;
            let weight = rng.below(20) as u32;
            for (unit, count) in counts.iter_mut().enumerate() {
                if rng.one_in(3) {
                    mask.insert(unit);
                    *count = (*count + weight).min(MOST);
                }
            }
            histogram.add(&mask, weight);
            for (unit, &count) in counts.iter().enumerate() {
                assert_eq!(histogram.count(unit), count);
            }
            for threshold in [0, 17, 50, 126, 127, 200] {
                let above = histogram.above(threshold);
                assert!((0..512).all(|u| above.contains(u) == (counts[u] > threshold)));
            }
            let least = histogram.least(&mask);
            let minimum = mask.iter().map(|u| counts[u]).min().unwrap_or(0);
            assert!(
                least
                    .iter()
                    .eq(mask.iter().filter(|&u| counts[u] == minimum))
            );
        }
    }

    /// The scan as reported, slot by slot (`docs/sources.md#fatpoint-histogram`).
    fn scan(
        free: &UnitSet<8>,
        primary: &[u32],
        secondary: &[u32],
        threshold: u32,
    ) -> Option<usize> {
        let mut best: Option<usize> = None;
        for slot in free.iter().filter(|&s| primary[s] <= threshold) {
            let better = |b: usize| (primary[slot], secondary[slot]) < (primary[b], secondary[b]);
            if best.is_none_or(better) {
                best = Some(slot);
            }
        }
        best
    }

    #[test]
    fn the_choice_is_the_documented_scan_with_threshold_50() {
        let mut rng = Rng::new(9);
        for _ in 0..500 {
            let (mut free, mut primary, mut secondary) = (UnitSet::EMPTY, [0; 512], [0; 512]);
            let (mut p, mut s): (Histogram<8>, Histogram<8>) = Default::default();
            for unit in 0..512 {
                let mut one = UnitSet::EMPTY;
                one.insert(unit);
                if rng.one_in(4) {
                    free.insert(unit);
                }
                (primary[unit], secondary[unit]) = (rng.below(100) as u32, rng.below(4) as u32);
                p.add(&one, primary[unit]);
                s.add(&one, secondary[unit]);
            }
            let documented = scan(&free, &primary, &secondary, 50);
            assert!(documented.is_some());
            assert_eq!(choose(&free, &p, &s, 50), documented);
        }
    }

    /// The threshold never makes a free slot unavailable.
    #[test]
    fn a_free_slot_above_the_threshold_is_taken_where_no_other_is_left() {
        let (mut free, mut primary) = (UnitSet::<1>::EMPTY, Histogram::default());
        free.insert(3);
        primary.add(&free, 90);
        assert_eq!(choose(&free, &primary, &Histogram::default(), 50), Some(3));
        free.insert(7);
        assert_eq!(choose(&free, &primary, &Histogram::default(), 50), Some(7));
        assert_eq!(
            choose(&UnitSet::EMPTY, &primary, &Histogram::default(), 50),
            None
        );
    }
}
