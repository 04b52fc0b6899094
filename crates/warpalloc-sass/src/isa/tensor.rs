//! Widths of the operands of matrix products, by shape and type.
//!
//! A fragment's registers follow from its elements per thread: an M×N×K product has M·K/32
//! elements of A, K·N/32 of B (twice that of what A holds when A is sparse), M·N/32 of C and D.

use super::decode::bits;

/// Registers of A, B and of the sum, C and D.
struct Shape {
    a: u8,
    b: u8,
    sum: u8,
}

const fn shape(a: u8, b: u8, sum: u8) -> Option<Shape> {
    Some(Shape { a, b, sum })
}

/// HMMA: shape in bits 75 and 78, types in 82..84, sparse in 73, F32 sum in 76.
fn hmma(word: u128) -> Option<Shape> {
    let sum = if bits(word, 76, 1) != 0 { 4 } else { 2 };
    let size = bits(word, 75, 1) | bits(word, 78, 1) << 1;
    let tf32 = match bits(word, 82, 2) {
        // F16, BF16
        0 | 1 => false,
        // TF32
        2 => true,
        _ => return None,
    };
    match (bits(word, 73, 1), tf32, size) {
        // 1688, 16816
        (0, false, 0) => shape(2, 1, sum),
        (0, false, 1) => shape(4, 2, sum),
        // 1684, 1688
        (0, true, 2) => shape(2, 1, sum),
        (0, true, 0) => shape(4, 2, sum),
        // 16816, 16832
        (1, false, 1) => shape(2, 2, sum),
        (1, false, 3) => shape(4, 4, sum),
        // 1688, 16816
        (1, true, 0) => shape(2, 2, sum),
        (1, true, 1) => shape(4, 4, sum),
        _ => None,
    }
}

/// IMMA from sm_80 on: shape in bit 75 below 85..87, 4-bit types in 83 and 84, sparse in 72.
fn imma(word: u128) -> Option<Shape> {
    let size = bits(word, 75, 1) | bits(word, 85, 2) << 1;
    let four = match bits(word, 83, 2) {
        0 => false,
        3 => true,
        _ => return None,
    };
    match (bits(word, 72, 1), four, size) {
        // 8816, 8832
        (0, false, 0) | (0, true, 2) => shape(1, 1, 2),
        // 16816, 16832
        (0, false, 4) | (0, true, 5) => shape(2, 1, 4),
        // 16832, 16864
        (0, false, 5) | (0, true, 6) => shape(4, 2, 4),
        // 16832, 16864
        (1, false, 5) | (1, true, 6) => shape(2, 2, 4),
        // 16864, 168128
        (1, false, 6) | (1, true, 7) => shape(4, 4, 4),
        _ => None,
    }
}

/// IMMA on sm_75, which has 8816 and 8832 only.
fn imma75(word: u128) -> Option<Shape> {
    let size = bits(word, 75, 1) | bits(word, 85, 2) << 1;
    match (bits(word, 83, 2), size) {
        (0, 0) | (3, 2) => shape(1, 1, 2),
        _ => None,
    }
}

/// BMMA: shape in bits 75..77.
fn bmma(word: u128) -> Option<Shape> {
    match bits(word, 75, 2) {
        0 => shape(1, 1, 2),
        1 => shape(2, 1, 4),
        2 => shape(4, 2, 4),
        _ => None,
    }
}

/// DMMA on sm_90: shape in bits 76..78.
fn dmma(word: u128) -> Option<Shape> {
    match bits(word, 76, 2) {
        0 => shape(2, 2, 4),
        1 => shape(4, 2, 8),
        2 => shape(8, 4, 8),
        _ => shape(16, 8, 8),
    }
}

/// QMMA: shape in bits 75..77, F32 sum in 77.
fn qmma(word: u128) -> Option<Shape> {
    let sum = if bits(word, 77, 1) != 0 { 4 } else { 2 };
    match (bits(word, 80, 1), bits(word, 75, 2)) {
        // 16816, 16832
        (0, 0) => shape(2, 1, sum),
        (0, 1) => shape(4, 2, sum),
        // 16832, 16864
        (1, 1) => shape(2, 2, sum),
        (1, 2) => shape(4, 4, sum),
        _ => None,
    }
}

macro_rules! operands {
    ($of:ident: $a:ident, $b:ident, $sum:ident) => {
        pub(super) fn $a(word: u128) -> Option<u8> {
            $of(word).map(|shape| shape.a)
        }

        pub(super) fn $b(word: u128) -> Option<u8> {
            $of(word).map(|shape| shape.b)
        }

        pub(super) fn $sum(word: u128) -> Option<u8> {
            $of(word).map(|shape| shape.sum)
        }
    };
}

operands!(hmma: hmma_a, hmma_b, hmma_sum);
operands!(imma: imma_a, imma_b, imma_sum);
operands!(imma75: imma75_a, imma75_b, imma75_sum);
operands!(bmma: bmma_a, bmma_b, bmma_sum);
operands!(dmma: dmma_a, dmma_b, dmma_sum);
operands!(qmma: qmma_a, qmma_b, qmma_sum);

/// N of a warp-group product, in units of 8, in bits 53..58.
fn columns(word: u128) -> u8 {
    bits(word, 53, 5) as u8 + 1
}

/// The sum of HGMMA: 64×N elements over 128 threads, F32 where bit 75 is set, else F16.
pub(super) fn hgmma_sum(word: u128) -> Option<u8> {
    let tf32 = bits(word, 77, 1) != 0;
    let sparse = bits(word, 73, 1) != 0;
    // K is halved for TF32 and doubled by sparsity; other values of its bits are not known.
    let known = match (sparse, bits(word, 58, 2)) {
        (false, 0) => !tf32,
        (false, 1) => tf32,
        (true, 2) => !tf32,
        _ => false,
    };
    let f32 = bits(word, 75, 1) != 0;
    known.then(|| columns(word) * if f32 { 4 } else { 2 })
}

/// The sum of IGMMA: N in units of 4 in bits 53..59.
pub(super) fn igmma_sum(word: u128) -> Option<u8> {
    let quarters = bits(word, 53, 6) as u8 + 1;
    (quarters.is_multiple_of(2) && bits(word, 59, 2) == 0).then_some(quarters * 2)
}

/// The sum of QGMMA: as HGMMA's, F32 where bit 75 is set, else F16.
pub(super) fn qgmma_sum(word: u128) -> Option<u8> {
    let f32 = bits(word, 75, 1) != 0;
    (bits(word, 58, 3) == 0).then(|| columns(word) * if f32 { 4 } else { 2 })
}
