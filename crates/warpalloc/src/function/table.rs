//! What passes over all code ask of each instruction and block, side by side: a description of
//! an instruction fills a cache line, and that of a block several, where most passes want a few
//! bits.

use super::{Block, BlockInfo, Clobbers, Effect, Inst, InstInfo, Kind, VReg, VRegInfo};
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

/// Rows of `T`, one for each index.
#[derive(Clone, Debug, PartialEq)]
struct Lists<T> {
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Lists<T> {
    fn default() -> Lists<T> {
        Lists {
            starts: Vec::new(),
            items: Vec::new(),
        }
    }
}

impl<T> Lists<T> {
    fn of<I: Iterator<Item = T>>(rows: impl Iterator<Item = I>) -> Lists<T> {
        let (mut starts, mut items) = (vec![0], Vec::new());
        for row in rows {
            items.extend(row);
            starts.push(items.len() as u32);
        }
        Lists { starts, items }
    }

    #[inline]
    fn row(&self, index: usize) -> &[T] {
        &self.items[range(&self.starts, index)]
    }
}

/// From one start to the next; nothing beyond the last.
#[inline]
fn range(starts: &[u32], index: usize) -> Range<usize> {
    match starts.get(index..index + 2) {
        Some(&[start, end]) => start as usize..end as usize,
        _ => 0..0,
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
    /// Where the instructions of each block begin, which stand in the order of blocks.
    block_starts: Vec<u32>,
    succs: Lists<Block>,
    preds: Lists<Block>,
    pub has_pinned: bool,
    pub has_hints: bool,
}

impl Table {
    pub fn of(
        insts: &PrimaryMap<Inst, InstInfo>,
        vregs: &PrimaryMap<VReg, VRegInfo>,
        blocks: &PrimaryMap<Block, BlockInfo>,
    ) -> Table {
        let mut block_starts = vec![0];
        for info in blocks.values() {
            debug_assert_eq!(block_starts.last(), Some(&info.insts.start));
            block_starts.push(info.insts.end);
        }
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
            block_starts,
            succs: Lists::of(blocks.values().map(|b| b.succs.iter().map(|e| e.block))),
            preds: Lists::of(blocks.values().map(|b| b.preds.iter().copied())),
            has_pinned: vregs.values().any(|info| info.pinned),
            has_hints: vregs.values().any(|info| info.hint.is_some()),
        }
    }

    #[inline]
    pub fn operands(&self, inst: Inst) -> Range<usize> {
        range(&self.starts, inst.index())
    }

    #[inline]
    pub fn insts(&self, block: Block) -> Range<usize> {
        range(&self.block_starts, block.index())
    }

    #[inline]
    pub fn succs(&self, block: Block) -> &[Block] {
        self.succs.row(block.index())
    }

    #[inline]
    pub fn preds(&self, block: Block) -> &[Block] {
        self.preds.row(block.index())
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
