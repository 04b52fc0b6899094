//! The bytes that buffers and images hold before a launch: a function of the seed, the kernel's
//! name and the argument's position alone, so that any two launches start from the same memory.

use crate::manifest::{Buffer, Element, Init};

/// SplitMix64: small, fast, and the same on every machine.
struct Random(u64);

impl Random {
    /// A stream of its own for one argument of one kernel.
    fn new(seed: u64, kernel: &str, argument: usize) -> Self {
        let mut state = seed ^ 0xcbf2_9ce4_8422_2325;
        for byte in kernel.bytes().chain(argument.to_le_bytes()) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Random(state)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1, 1 excluded.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The content of a buffer.
pub fn buffer(buffer: &Buffer, seed: u64, kernel: &str, argument: usize) -> Vec<u8> {
    let mut random = Random::new(seed, kernel, argument);
    let element = buffer.element;
    let mut bytes = Vec::with_capacity(buffer.bytes());
    for index in 0..buffer.count {
        match &buffer.init {
            Init::Bits => bytes.extend_from_slice(&random.next().to_le_bytes()[..element.size()]),
            Init::Zero => bytes.extend_from_slice(&[0; 8][..element.size()]),
            Init::Iota => push_integer(&mut bytes, element, index as i64),
            Init::Below(bound) => {
                push_integer(&mut bytes, element, (random.next() % bound.max(&1)) as i64);
            }
            Init::Values(values) => {
                let value = values
                    .get(index % values.len().max(1))
                    .copied()
                    .unwrap_or(0);
                push_integer(&mut bytes, element, value);
            }
            Init::Uniform(low, high) => {
                push_number(&mut bytes, element, low + (high - low) * random.unit());
            }
        }
    }
    bytes
}

/// Bytes of random bits, as surfaces and guard zones hold them.
pub fn bits(count: usize, seed: u64, kernel: &str, argument: usize) -> Vec<u8> {
    let mut random = Random::new(!seed, kernel, argument);
    (0..count).map(|_| random.next() as u8).collect()
}

/// Floats from 0 to 256, as textures hold them.
pub fn floats(count: usize, seed: u64, kernel: &str, argument: usize) -> Vec<u8> {
    let mut random = Random::new(seed, kernel, argument);
    (0..count)
        .flat_map(|_| ((256.0 * random.unit()) as f32).to_le_bytes())
        .collect()
}

fn push_integer(bytes: &mut Vec<u8>, element: Element, value: i64) {
    match element {
        Element::I8 | Element::I16 | Element::I32 | Element::I64 => {
            bytes.extend_from_slice(&value.to_le_bytes()[..element.size()]);
        }
        _ => push_number(bytes, element, value as f64),
    }
}

fn push_number(bytes: &mut Vec<u8>, element: Element, value: f64) {
    match element {
        Element::F16 => bytes.extend_from_slice(&half_bits(value as f32).to_le_bytes()),
        Element::Bf16 => {
            bytes.extend_from_slice(&((value as f32).to_bits() >> 16).to_le_bytes()[..2]);
        }
        Element::F32 => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
        Element::F64 => bytes.extend_from_slice(&value.to_le_bytes()),
        _ => push_integer(bytes, element, value as i64),
    }
}

/// A half near `value`: rounded towards zero, small values to zero, large ones to the largest.
/// Inputs need to be plausible and repeatable, not exact.
fn half_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    let magnitude = match exponent {
        ..=0 => 0,
        31.. => 0x7bff,
        _ => (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16,
    };
    sign | magnitude
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Access;

    fn filled(element: Element, count: usize, init: Init, argument: usize) -> Vec<u8> {
        let described = Buffer {
            element,
            count,
            access: Access::In,
            init,
        };
        buffer(&described, 7, "kernel", argument)
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_argument_others() {
        let once = filled(Element::I32, 100, Init::Bits, 0);
        assert_eq!(once, filled(Element::I32, 100, Init::Bits, 0));
        assert_ne!(once, filled(Element::I32, 100, Init::Bits, 1));
        assert_eq!(once.len(), 400);
    }

    #[test]
    fn uniform_numbers_stay_in_their_range() {
        let bytes = filled(Element::F32, 1000, Init::Uniform(-2.0, 3.0), 0);
        let numbers: Vec<f32> = bytes
            .chunks(4)
            .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert!(numbers.iter().all(|number| (-2.0..3.0).contains(number)));
        assert!(numbers.iter().any(|&number| number < -1.5));
        assert!(numbers.iter().any(|&number| number > 2.5));
    }

    #[test]
    fn integers_count_or_stay_below_their_bound() {
        assert_eq!(filled(Element::I16, 3, Init::Iota, 0), [0, 0, 1, 0, 2, 0]);
        assert_eq!(
            filled(Element::I8, 5, Init::Values(vec![4, -1]), 0),
            [4, 255, 4, 255, 4]
        );
        let indices = filled(Element::I8, 1000, Init::Below(10), 0);
        assert_eq!(indices.iter().max(), Some(&9));
        assert_eq!(indices.iter().min(), Some(&0));
    }

    #[test]
    fn halves_have_the_bits_of_the_standard() {
        let cases = [
            (0.0, 0),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (0.5, 0x3800),
            (1e9, 0x7bff),
            (1e-9, 0),
        ];
        for (value, bits) in cases {
            assert_eq!(half_bits(value), bits, "{value}");
        }
        assert_eq!(
            filled(Element::Bf16, 1, Init::Values(vec![1]), 0),
            [0x80, 0x3f]
        );
    }
}
