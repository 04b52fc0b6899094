//! Layout of the spill frame.
//!
//! The frame grows downwards from its base, so every offset is negative. What must be
//! aligned is the address, not the offset: the client aligns the frame's *lowest* byte as
//! [`Target::slot_align`] says, and a slot is aligned when its distance from there is. The first slot of a
//! stricter alignment than the slots before it may therefore stand anywhere that suits
//! these; it decides for all that follow, and the finished frame is padded at its low end
//! to agree.

use crate::allocation::{SlotAddr, Space};
use crate::target::Target;

/// Rounds towards minus infinity to a multiple of `align`.
pub fn align_down(offset: i32, align: i32) -> i32 {
    offset.div_euclid(align) * align
}

/// Hands out slots of one space.
#[derive(Clone, Debug, Default)]
pub struct FrameLayout {
    space: Space,
    /// Offset of the lowest byte in use.
    low: i32,
    /// Strictest alignment so far and the residue that slots of that alignment have.
    align: i32,
    residue: i32,
    /// No slot is aligned more strictly.
    most: i32,
}

impl FrameLayout {
    /// An empty frame in `space` of `target`.
    pub fn new(space: Space, target: &Target) -> FrameLayout {
        FrameLayout {
            space,
            low: 0,
            align: 1,
            residue: 0,
            most: target.slot_align() as i32,
        }
    }

    /// A new slot of `bytes`, aligned to their next power of two as far as slots are.
    pub fn push(&mut self, bytes: u32) -> SlotAddr {
        let align = (bytes.next_power_of_two() as i32).min(self.most);
        let low = self.low - bytes as i32;
        self.low = if align > self.align {
            let low = align_down(low - self.residue, self.align) + self.residue;
            (self.align, self.residue) = (align, low.rem_euclid(align));
            low
        } else {
            align_down(low - self.residue, align) + self.residue
        };
        SlotAddr {
            space: self.space,
            offset: self.low,
        }
    }

    /// Size of the whole frame, padded so that its low end suits every slot.
    pub fn size(&self) -> u32 {
        -(align_down(self.low - self.residue, self.align) + self.residue) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn align_down_rounds_towards_minus_infinity() {
        assert_eq!(align_down(-12, 8), -16);
        assert_eq!(align_down(-16, 8), -16);
        assert_eq!(align_down(-1, 4), -4);
    }

    /// Two words, two doubles and a quad, as laid out in `docs/sources.md#spill-slots`.
    #[test]
    fn the_documented_layout_takes_forty_bytes() {
        let mut frame = FrameLayout::new(Space::Local, &Target::cicc());
        let offsets = [4, 4, 8, 8, 16].map(|bytes| frame.push(bytes).offset);
        assert_eq!(offsets, [-4, -8, -16, -24, -40]);
        assert_eq!(frame.size(), 40);
    }

    #[test]
    fn every_slot_is_aligned_from_the_low_end_whatever_the_order() {
        let sizes = [2u32, 4, 8, 12, 16, 32];
        let mut state = 1u32;
        for _ in 0..2000 {
            let mut frame = FrameLayout::new(Space::Local, &Target::cicc());
            let mut slots = Vec::new();
            for _ in 0..12 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let bytes = sizes[(state >> 16) as usize % sizes.len()];
                slots.push((frame.push(bytes).offset, bytes));
            }
            let size = frame.size() as i32;
            for (i, &(offset, bytes)) in slots.iter().enumerate() {
                let align = (bytes.next_power_of_two() as i32).min(16);
                assert_eq!((offset + size) % align, 0, "{slots:?} in {size}");
                assert!(offset >= -size && offset + bytes as i32 <= 0);
                let apart =
                    |&(o, b): &(i32, u32)| o >= offset + bytes as i32 || o + b as i32 <= offset;
                assert!(slots[..i].iter().all(apart), "{slots:?}");
            }
        }
    }
}
