//! Sets of units of one register file, as words that fit vector registers.
//!
//! `W` words hold `64 × W` units: one word for predicates and uniform registers, four for
//! 255 general registers, eight where halves make 510 units of them. Every operation is a
//! loop over `W` words without branches, so that the compiler turns it into vector code.

use super::{File, PReg, RegSet, Target, Unit};

/// A set of units of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitSet<const W: usize>(pub [u64; W]);

impl<const W: usize> UnitSet<W> {
    /// The empty set.
    pub const EMPTY: UnitSet<W> = UnitSet([0; W]);

    /// The first `count` units.
    pub fn first(count: usize) -> UnitSet<W> {
        let mut mask = UnitSet::EMPTY;
        for (index, word) in mask.0.iter_mut().enumerate() {
            *word = match count.saturating_sub(64 * index) {
                0 => 0,
                left if left >= 64 => u64::MAX,
                left => (1 << left) - 1,
            };
        }
        mask
    }

    /// Every `align`-th unit from unit 0 on; `align` is a power of two.
    pub fn multiples_of(align: usize) -> UnitSet<W> {
        // A one, then zeros, repeated: u64::MAX / (2^align - 1).
        let word = match align {
            0 | 1 => u64::MAX,
            2 => u64::MAX / 0b11,
            4 => u64::MAX / 0xf,
            8 => u64::MAX / 0xff,
            16..64 => u64::MAX / ((1 << align) - 1),
            _ => 1,
        };
        let step = (align / 64).max(1);
        UnitSet(std::array::from_fn(
            |i| if i % step == 0 { word } else { 0 },
        ))
    }

    /// These units, less those beyond the set's reach.
    pub fn of(units: impl Iterator<Item = usize>) -> UnitSet<W> {
        let mut mask = UnitSet::EMPTY;
        units.filter(|&u| u < 64 * W).for_each(|u| mask.insert(u));
        mask
    }

    /// The units of `registers` that belong to `file`, less those beyond the set's reach.
    pub fn of_file(target: &Target, file: File, registers: &RegSet) -> UnitSet<W> {
        let first = target.unit(PReg::new(file, 0)).index();
        let is_in = |unit: &usize| registers.contains(Unit((first + unit) as u16));
        UnitSet::of((0..target.file(file).units).filter(is_in))
    }

    /// The same units in a set of another reach, less those beyond it.
    pub fn widened<const V: usize>(&self) -> UnitSet<V> {
        UnitSet(std::array::from_fn(|i| self.0.get(i).copied().unwrap_or(0)))
    }

    /// Adds one unit, unless it is beyond the set's reach.
    #[inline]
    pub fn insert(&mut self, unit: usize) {
        if let Some(word) = self.0.get_mut(unit / 64) {
            *word |= 1 << (unit % 64);
        }
    }

    /// Adds the `count` units from `low` on, less those beyond the set's reach.
    pub fn insert_range(&mut self, low: usize, count: usize) {
        for_words(low, low.saturating_add(count).min(64 * W), |word, mask| {
            self.0[word] |= mask;
        });
    }

    /// Removes every unit in `low..high`; either end may lie outside the file.
    pub fn remove_range(&mut self, low: i32, high: i32) {
        let low = low.max(0) as usize;
        let high = (high.max(0) as usize).min(64 * W);
        for_words(low, high, |word, mask| self.0[word] &= !mask);
    }

    /// Keeps the units that are in `other` too.
    pub fn intersect(&mut self, other: &UnitSet<W>) {
        *self = self.and(other);
    }

    /// Removes the units that are in `other`.
    pub fn subtract(&mut self, other: &UnitSet<W>) {
        *self = self.without(other);
    }

    /// How many units there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Removes one unit.
    #[inline]
    pub fn remove(&mut self, unit: usize) {
        if let Some(word) = self.0.get_mut(unit / 64) {
            *word &= !(1 << (unit % 64));
        }
    }

    /// Whether `unit` is in the set.
    pub fn contains(&self, unit: usize) -> bool {
        unit < 64 * W && self.0[unit / 64] >> (unit % 64) & 1 == 1
    }

    /// Adds every unit of `other`.
    #[inline(always)]
    pub fn add(&mut self, other: &UnitSet<W>) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// The units of this set that are also in `other`.
    #[inline(always)]
    pub fn and(&self, other: &UnitSet<W>) -> UnitSet<W> {
        UnitSet(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// The units of this set that are not in `other`.
    #[inline(always)]
    pub fn without(&self, other: &UnitSet<W>) -> UnitSet<W> {
        UnitSet(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Units that are in exactly one of the two sets.
    #[inline(always)]
    pub fn xor(&self, other: &UnitSet<W>) -> UnitSet<W> {
        UnitSet(std::array::from_fn(|i| self.0[i] ^ other.0[i]))
    }

    /// Each unit `distance` places further down; those below `distance` fall off.
    #[inline]
    pub fn down(&self, distance: usize) -> UnitSet<W> {
        if distance == 0 {
            return *self;
        }
        let (words, bits) = (distance / 64, distance % 64);
        let word = |i: usize| self.0.get(i).copied().unwrap_or(0);
        UnitSet(std::array::from_fn(|i| {
            let low = word(i + words) >> bits;
            match bits {
                0 => low,
                bits => low | word(i + words + 1) << (64 - bits),
            }
        }))
    }

    /// Where something `width` units wide may not start, given the units it may not touch.
    #[inline]
    pub fn blocked_starts(&self, width: usize) -> UnitSet<W> {
        match width {
            1 => return *self,
            2 => {
                let next = |i: usize| self.0.get(i + 1).copied().unwrap_or(0);
                return UnitSet(std::array::from_fn(|i| {
                    self.0[i] | self.0[i] >> 1 | next(i) << 63
                }));
            }
            _ => {}
        }
        let (mut blocked, mut covered) = (*self, 1);
        // Doubling the distance covers any width in a few steps.
        while covered < width {
            let step = covered.min(width - covered);
            let shifted = blocked.down(step);
            blocked.add(&shifted);
            covered += step;
        }
        blocked
    }

    /// Whether the set has no unit.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |all, word| all | word) == 0
    }

    /// The lowest unit.
    #[inline]
    pub fn lowest(&self) -> Option<usize> {
        let index = self.0.iter().position(|&word| word != 0)?;
        Some(64 * index + self.0[index].trailing_zeros() as usize)
    }

    /// The units in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(64 * index + bit)
            })
        })
    }
}

/// The words that hold the units `low..high`, each with a mask of those it holds.
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
    fn shifting_down_crosses_words() {
        let mut mask: UnitSet<4> = UnitSet::EMPTY;
        [3, 64, 130, 255].into_iter().for_each(|u| mask.insert(u));
        for distance in [0, 1, 3, 63, 64, 65, 130, 200, 255, 256] {
            let expected: Vec<_> = mask
                .iter()
                .filter_map(|u| u.checked_sub(distance))
                .collect();
            assert_eq!(
                mask.down(distance).iter().collect::<Vec<_>>(),
                expected,
                "{distance}"
            );
        }
    }

    #[test]
    fn a_wide_value_may_start_only_where_all_its_units_are_free() {
        let mut taken: UnitSet<1> = UnitSet::EMPTY;
        taken.insert(9);
        for width in 1..=8 {
            let blocked: Vec<_> = taken.blocked_starts(width).iter().collect();
            assert_eq!(blocked, ((10 - width)..=9).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_units_and_the_multiples() {
        assert_eq!(UnitSet::<4>::first(255).iter().count(), 255);
        assert_eq!(UnitSet::<4>::first(64).lowest(), Some(0));
        for align in [1, 2, 4, 8, 16, 32, 64, 128] {
            let all: Vec<_> = UnitSet::<8>::multiples_of(align).iter().collect();
            assert_eq!(all, (0..512).step_by(align).collect::<Vec<_>>());
        }
        assert_eq!(
            UnitSet::<4>::multiples_of(4)
                .and(&UnitSet::first(15))
                .iter()
                .collect::<Vec<_>>(),
            [0, 4, 8, 12]
        );
    }

    #[test]
    fn a_quad_touches_a_unit_from_four_starts() {
        let mut unit = UnitSet::<8>::EMPTY;
        unit.insert(65);
        let starts: Vec<_> = unit.blocked_starts(4).iter().collect();
        assert_eq!(starts, [62, 63, 64, 65]);
        assert_eq!(unit.blocked_starts(4).len(), 4);
    }

    #[test]
    fn ranges_cross_words() {
        for (low, count) in [(0, 0), (0, 64), (63, 2), (60, 140), (508, 9)] {
            let mut units = UnitSet::<8>::EMPTY;
            units.insert_range(low, count);
            let end = (low + count).min(512);
            assert_eq!(
                units.iter().collect::<Vec<_>>(),
                (low..end).collect::<Vec<_>>()
            );
            let mut all = UnitSet::<8>::first(512);
            all.remove_range(low as i32, (low + count) as i32);
            assert_eq!(all.len(), 512 - units.len());
            all.intersect(&units);
            assert!(all.is_empty());
        }
    }

    #[test]
    fn ranges_outside_the_file_are_cut() {
        let mut units = UnitSet::<8>::first(512);
        units.remove_range(-3, 2);
        units.remove_range(510, 600);
        assert_eq!(units.lowest(), Some(2));
        assert_eq!(units.len(), 512 - 4);
        assert!(units.contains(509) && !units.contains(510));
    }
}
