//! Widths of the operands of texture and surface instructions.
//!
//! A texture instruction takes coordinates, then the handle if it is in registers, then the
//! level of detail, the offset and the depth to compare with, as its modifiers ask for. They
//! fill the first operand with the coordinates and the second with the rest; with `.SCR`
//! (bit 60) they are dealt to both as evenly as pairs allow. Results fill the first
//! destination, a pair, and then the second.

use super::decode::bits;

/// Where the handle of the texture is.
const BINDLESS: u8 = 1;
const BOUND: u8 = 0;

/// The coordinates of a texture, by the dimensions in bits 61..64.
fn coordinates(word: u128) -> Option<u8> {
    match bits(word, 61, 3) {
        // 1D
        0 => Some(1),
        // 2D, ARRAY_1D
        1 | 4 => Some(2),
        // 3D, CUBE, ARRAY_2D
        2 | 3 | 5 => Some(3),
        // ARRAY_CUBE
        7 => Some(4),
        _ => None,
    }
}

/// The coordinates of a surface, by the dimensions in bits 61..64.
pub(super) fn surface(word: u128) -> Option<u8> {
    match bits(word, 61, 3) {
        // 1D
        0 => Some(1),
        // 1D_ARRAY, 2D
        2 | 3 => Some(2),
        // 2D_ARRAY, 3D
        4 | 5 => Some(3),
        _ => None,
    }
}

/// A reduction on a surface: 32-bit types only.
pub(super) fn surface_reduction(word: u128) -> Option<u8> {
    match bits(word, 73, 3) {
        0 | 1 => Some(1),
        _ => None,
    }
}

/// What follows the coordinates, without the handle; none for modifiers that are not known.
fn rest(word: u128) -> Option<u8> {
    let flag = |at| bits(word, at, 1) as u8;
    let depth = flag(78);
    match bits(word, 0, 9) {
        // TEX
        0x160 | 0x161 => {
            let level = match bits(word, 87, 3) {
                // None, zero
                0 | 1 => 0,
                // A bias, a level
                2 | 3 => 1,
                _ => return None,
            };
            Some(level + flag(76) + depth)
        }
        // TLD
        0x166 | 0x167 => match (bits(word, 87, 3), bits(word, 76, 3)) {
            (1, 0) => Some(0),
            (3, 0) => Some(1),
            _ => None,
        },
        // TLD4
        0x163 | 0x164 => (bits(word, 76, 2) == 0).then_some(depth),
        _ => None,
    }
}

/// The registers of both operands.
fn operands(word: u128, handle: u8) -> Option<(u8, u8)> {
    let coordinates = coordinates(word)?;
    let rest = rest(word)? + handle;
    if bits(word, 60, 1) == 0 {
        // A second operand that nothing is asked of is RZ, or read for nothing.
        return Some((coordinates, rest.max(1)));
    }
    match coordinates + rest {
        2 => Some((1, 1)),
        3 => Some((2, 1)),
        4 => Some((2, 2)),
        _ => None,
    }
}

pub(super) fn bound_first(word: u128) -> Option<u8> {
    operands(word, BOUND).map(|(first, _)| first)
}

pub(super) fn bound_second(word: u128) -> Option<u8> {
    operands(word, BOUND).map(|(_, second)| second)
}

pub(super) fn bindless_first(word: u128) -> Option<u8> {
    operands(word, BINDLESS).map(|(first, _)| first)
}

pub(super) fn bindless_second(word: u128) -> Option<u8> {
    operands(word, BINDLESS).map(|(_, second)| second)
}

/// The components that the mask in bits 72..76 keeps. Packed halves are not known.
fn components(word: u128) -> Option<u8> {
    match (bits(word, 72, 4), bits(word, 79, 2)) {
        (0, _) | (_, 1..) => None,
        (mask, _) => Some(mask.count_ones() as u8),
    }
}

/// The first destination.
pub(super) fn first_result(word: u128) -> Option<u8> {
    components(word).map(|components| components.min(2))
}

/// The second destination.
pub(super) fn second_result(word: u128) -> Option<u8> {
    components(word).map(|components| components.saturating_sub(2))
}
