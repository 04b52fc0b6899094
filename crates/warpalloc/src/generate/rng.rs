//! A small deterministic source of randomness.

/// Random numbers from a seed, or from a fuzzer's bytes while they last.
///
/// The same seed or bytes give the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
    bytes: Vec<u8>,
    used: usize,
}

impl Rng {
    /// Numbers determined by `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng {
            state: seed,
            bytes: Vec::new(),
            used: 0,
        }
    }

    /// Numbers taken from `bytes`, then numbers determined by all of them, so that a fuzzer
    /// steers each decision on its own.
    pub fn from_bytes(bytes: &[u8]) -> Rng {
        let mix = |hash: u64, &byte: &u8| (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
        Rng {
            state: bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix),
            bytes: bytes.to_vec(),
            used: 0,
        }
    }

    /// A number below `bound`, or 0 where there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound <= 1 {
            return 0;
        }
        let width = match bound {
            ..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        let value = self.take(width).unwrap_or_else(|| self.next());
        (value % bound as u64) as usize
    }

    /// A number in `range`, or its start where it is empty.
    pub fn within(&mut self, range: std::ops::RangeInclusive<usize>) -> usize {
        let (start, end) = range.into_inner();
        start + self.below((end + 1).saturating_sub(start))
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One element of `items`, if there is any.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// The next `width` bytes, if any are left.
    fn take(&mut self, width: usize) -> Option<u64> {
        let rest = &self.bytes[self.used..];
        if rest.is_empty() {
            return None;
        }
        let taken = &rest[..width.min(rest.len())];
        self.used += taken.len();
        Some(
            taken
                .iter()
                .fold(0, |value, &byte| value << 8 | byte as u64),
        )
    }

    /// SplitMix64: a Weyl sequence through a bijective mixer.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_first_and_in_order() {
        let mut rng = Rng::from_bytes(&[7, 1, 2, 9]);
        assert_eq!(rng.below(10), 7);
        assert_eq!(rng.below(1000), 0x0102);
        assert_eq!(rng.below(256), 9);
        assert!(rng.below(5) < 5);
    }

    #[test]
    fn equal_seeds_give_equal_numbers_and_all_of_them() {
        let (mut a, mut b) = (Rng::new(3), Rng::new(3));
        let mut seen = [false; 20];
        for _ in 0..1000 {
            let number = a.below(20);
            assert_eq!(number, b.below(20));
            seen[number] = true;
        }
        assert_eq!(seen, [true; 20]);
    }
}
