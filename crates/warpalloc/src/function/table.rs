//! What passes over all code ask of each instruction, side by side: a description of an
//! instruction fills a cache line, and most passes want a few bits of it.

use super::{Clobbers, Effect, Inst, InstInfo, Kind, VReg, VRegInfo};
use crate::target::Class;
use cranelift_entity::{EntityRef, PrimaryMap};
use std::ops::Range;

/// Bits that tell an instruction's kind apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits(u8);

impl Traits {
    const FREE: u8 = 1;
    const EFFECT: u8 = 2;
    const COPY: u8 = 4;
    const CALL: u8 = 8;
    const CLOBBERS: u8 = 16;

    /// Of an instruction that does not exist.
    const NONE: Traits = Traits(Traits::FREE);

    fn of(info: &InstInfo) -> Traits {
        let clobbers = info.clobbers != Clobbers::None;
        let has_effect = info.effect != Effect::Pure || info.kind.is_terminator() || clobbers;
        let bits = [
            (info.is_free, Traits::FREE),
            (has_effect, Traits::EFFECT),
            (info.kind == Kind::Copy, Traits::COPY),
            (info.kind == Kind::Call, Traits::CALL),
            (clobbers, Traits::CLOBBERS),
        ];
        let held = bits.iter().filter(|(holds, _)| *holds);
        Traits(held.fold(0, |all, (_, bit)| all | bit))
    }

    /// Whether each operand may be anywhere.
    #[inline]
    pub fn is_free(self) -> bool {
        self.0 & Traits::FREE != 0
    }

    /// Whether it does more than write its results.
    #[inline]
    pub fn has_effect(self) -> bool {
        self.0 & Traits::EFFECT != 0
    }

    #[inline]
    pub fn is_copy(self) -> bool {
        self.0 & Traits::COPY != 0
    }

    #[inline]
    pub fn is_call(self) -> bool {
        self.0 & Traits::CALL != 0
    }

    /// Whether it overwrites registers besides its results.
    #[inline]
    pub fn clobbers(self) -> bool {
        self.0 & Traits::CLOBBERS != 0
    }
}

/// The table of a finished function.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    /// Where the operands of each instruction begin, which stand in the order of instructions.
    starts: Vec<u32>,
    traits: Vec<Traits>,
    /// By virtual register.
    classes: Vec<Class>,
    pub has_pinned: bool,
    pub has_hints: bool,
}

impl Table {
    pub fn of(insts: &PrimaryMap<Inst, InstInfo>, vregs: &PrimaryMap<VReg, VRegInfo>) -> Table {
        let mut starts = Vec::with_capacity(insts.len() + 1);
        starts.push(0);
        for info in insts.values() {
            debug_assert_eq!(starts.last(), Some(&info.operands.start));
            starts.push(info.operands.end);
        }
        Table {
            starts,
            traits: insts.values().map(Traits::of).collect(),
            classes: vregs.values().map(|info| info.class).collect(),
            has_pinned: vregs.values().any(|info| info.pinned),
            has_hints: vregs.values().any(|info| info.hint.is_some()),
        }
    }

    #[inline]
    pub fn operands(&self, inst: Inst) -> Range<usize> {
        match self.starts.get(inst.index()..inst.index() + 2) {
            Some(&[start, end]) => start as usize..end as usize,
            _ => 0..0,
        }
    }

    #[inline]
    pub fn class(&self, vreg: VReg) -> Class {
        let class = self.classes.get(vreg.index());
        class.copied().unwrap_or(VRegInfo::NONE.class)
    }

    #[inline]
    pub fn traits(&self, inst: Inst) -> Traits {
        let traits = self.traits.get(inst.index());
        traits.copied().unwrap_or(Traits::NONE)
    }
}
