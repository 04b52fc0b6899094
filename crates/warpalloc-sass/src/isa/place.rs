//! How instructions name places in the code.

use super::decode::{bits, decode};
use super::inst::{EncodeError, Inst, set_bits};

/// A place in the code that an instruction names, as a distance in bytes from the instruction
/// behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PlaceRef {
    /// The place itself: where a branch or a call goes, where threads of a barrier meet.
    Target(i64),
    /// The place that an address in registers counts from: of an indirect branch, a return, an
    /// indirect call.
    Origin(i64),
}

/// Where an instruction has its distance, in units of four bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Bits 34..82; from sm_90 on the eight lowest bits stand in 16..24.
    Long,
    /// Bits 34..64.
    Short,
}

impl Inst {
    fn place_layout(&self) -> Option<(Layout, fn(i64) -> PlaceRef)> {
        let bit = |at| bits(self.word(), at, 1) != 0;
        Some(match bits(self.word(), 0, 12) {
            // BRA, CALL.REL
            0x947 | 0x547 | 0x944 => (Layout::Long, PlaceRef::Target as fn(i64) -> PlaceRef),
            // BSSY
            0x945 => (Layout::Short, PlaceRef::Target),
            // WARPSYNC.COLLECTIVE; up to sm_89 the bit means something else.
            0x348 if self.sm().number() >= 90 && bit(86) => (Layout::Long, PlaceRef::Target),
            // BRX, BRXU, CALL.REL by registers
            0x949 | 0x958 | 0x344 => (Layout::Long, PlaceRef::Origin),
            // RET.REL; bit 85 makes it absolute.
            0x950 if !bit(85) => (Layout::Long, PlaceRef::Origin),
            _ => return None,
        })
    }

    /// The place in the code that the instruction names, if it names one.
    pub fn place(&self) -> Option<PlaceRef> {
        let (layout, kind) = self.place_layout()?;
        let word = self.word();
        let units = match layout {
            Layout::Short => (bits(word, 34, 30) << 34) as i64 >> 34,
            Layout::Long => long(word, self.sm().number()),
        };
        Some(kind(units * 4))
    }

    /// The same instruction naming another place.
    pub fn with_place(&self, distance: i64) -> Result<Self, EncodeError> {
        let out_of_reach = EncodeError::Distance {
            mnemonic: self.mnemonic(),
            distance,
        };
        let (layout, kind) = self.place_layout().ok_or(out_of_reach)?;
        let units = distance as u64 >> 2;
        let mut word = self.word();
        match layout {
            Layout::Short => set_bits(&mut word, 34, 30, units.into()),
            Layout::Long if self.sm().number() < 90 => set_bits(&mut word, 34, 48, units.into()),
            Layout::Long => {
                set_bits(&mut word, 16, 8, units.into());
                set_bits(&mut word, 34, 48, (units >> 8).into());
            }
        }
        let inst = decode(word, self.sm())?;
        match inst.place() == Some(kind(distance)) {
            true => Ok(inst),
            false => Err(out_of_reach),
        }
    }
}

/// The signed distance of [`Layout::Long`], in units of four bytes.
pub(super) fn long(word: u128, sm: u32) -> i64 {
    match sm {
        ..90 => (bits(word, 34, 48) << 16) as i64 >> 16,
        _ => ((bits(word, 34, 48) << 8 | bits(word, 16, 8)) << 8) as i64 >> 8,
    }
}
