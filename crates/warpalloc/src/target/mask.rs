//! Sets of units of one register file, as words that fit vector registers.
//!
//! `W` words hold `64 × W` units: one word for predicates and uniform registers, four for
//! 255 general registers, eight where halves make 510 units of them. Every operation is a
//! loop over `W` words without branches, so that the compiler turns it into vector code.

use super::{File, PReg, RegSet, Target, Unit};

/// A set of units of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask<const W: usize>(pub [u64; W]);

impl<const W: usize> Mask<W> {
    /// The empty set.
    pub const EMPTY: Mask<W> = Mask([0; W]);

    /// The first `count` units.
    pub fn first(count: usize) -> Mask<W> {
        let mut mask = Mask::EMPTY;
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
    pub fn multiples_of(align: usize) -> Mask<W> {
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
        Mask(std::array::from_fn(
            |i| if i % step == 0 { word } else { 0 },
        ))
    }

    /// These units, less those beyond the set's reach.
    pub fn of(units: impl Iterator<Item = usize>) -> Mask<W> {
        let mut mask = Mask::EMPTY;
        units.filter(|&u| u < 64 * W).for_each(|u| mask.insert(u));
        mask
    }

    /// The units of `registers` that belong to `file`, less those beyond the set's reach.
    pub fn of_file(target: &Target, file: File, registers: &RegSet) -> Mask<W> {
        let first = target.unit(PReg::new(file, 0)).index();
        let is_in = |unit: &usize| registers.contains(Unit((first + unit) as u16));
        Mask::of((0..target.file(file).units).filter(is_in))
    }

    /// The same units in a set of another reach, less those beyond it.
    pub fn widened<const V: usize>(&self) -> Mask<V> {
        Mask(std::array::from_fn(|i| self.0.get(i).copied().unwrap_or(0)))
    }

    /// Adds one unit.
    pub fn insert(&mut self, unit: usize) {
        self.0[unit / 64] |= 1 << (unit % 64);
    }

    /// Removes one unit.
    pub fn remove(&mut self, unit: usize) {
        self.0[unit / 64] &= !(1 << (unit % 64));
    }

    /// Whether `unit` is in the set.
    pub fn contains(&self, unit: usize) -> bool {
        unit < 64 * W && self.0[unit / 64] >> (unit % 64) & 1 == 1
    }

    /// Adds every unit of `other`.
    #[inline(always)]
    pub fn add(&mut self, other: &Mask<W>) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    /// The units of this set that are also in `other`.
    #[inline(always)]
    pub fn and(&self, other: &Mask<W>) -> Mask<W> {
        Mask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// The units of this set that are not in `other`.
    #[inline(always)]
    pub fn without(&self, other: &Mask<W>) -> Mask<W> {
        Mask(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Units that are in exactly one of the two sets.
    #[inline(always)]
    pub fn xor(&self, other: &Mask<W>) -> Mask<W> {
        Mask(std::array::from_fn(|i| self.0[i] ^ other.0[i]))
    }

    /// Each unit `distance` places further down; those below `distance` fall off.
    #[inline]
    pub fn down(&self, distance: usize) -> Mask<W> {
        if distance == 0 {
            return *self;
        }
        let (words, bits) = (distance / 64, distance % 64);
        let word = |i: usize| self.0.get(i).copied().unwrap_or(0);
        Mask(std::array::from_fn(|i| {
            let low = word(i + words) >> bits;
            match bits {
                0 => low,
                bits => low | word(i + words + 1) << (64 - bits),
            }
        }))
    }

    /// Where something `width` units wide may not start, given the units it may not touch.
    #[inline]
    pub fn blocked_starts(&self, width: usize) -> Mask<W> {
        match width {
            1 => return *self,
            2 => {
                let next = |i: usize| self.0.get(i + 1).copied().unwrap_or(0);
                return Mask(std::array::from_fn(|i| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifting_down_crosses_words() {
        let mut mask: Mask<4> = Mask::EMPTY;
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
        let mut taken: Mask<1> = Mask::EMPTY;
        taken.insert(9);
        for width in 1..=8 {
            let blocked: Vec<_> = taken.blocked_starts(width).iter().collect();
            assert_eq!(blocked, ((10 - width)..=9).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_units_and_the_multiples() {
        assert_eq!(Mask::<4>::first(255).iter().count(), 255);
        assert_eq!(Mask::<4>::first(64).lowest(), Some(0));
        for align in [1, 2, 4, 8, 16, 32, 64, 128] {
            let all: Vec<_> = Mask::<8>::multiples_of(align).iter().collect();
            assert_eq!(all, (0..512).step_by(align).collect::<Vec<_>>());
        }
        assert_eq!(
            Mask::<4>::multiples_of(4)
                .and(&Mask::first(15))
                .iter()
                .collect::<Vec<_>>(),
            [0, 4, 8, 12]
        );
    }
}
