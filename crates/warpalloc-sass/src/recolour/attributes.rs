//! Attributes of a kernel that name registers.
//!
//! `EIATTR_COOP_GROUP_MASK_REGIDS` has a word for each instruction of
//! `EIATTR_COOP_GROUP_INSTR_OFFSETS`: the register that holds the mask of threads there, or a
//! number that no register has. Tools read it, the hardware does not. The others that name
//! registers have layouts that are not known.

use super::RecolourError;
use super::webs::renamed_lanes;
use crate::cfg::Cfg;
use crate::code::Code;
use crate::isa::{File, Reg};
use crate::object::{AttributeKind, Function};
use fixedbitset::FixedBitSet;
use std::ops::Range;

/// A word that names no register.
const NONE: u32 = u32::MAX;
/// The upper byte of a word that names a general register.
const GENERAL: u32 = 5;

/// Refuses attributes whose layout is not known.
pub(crate) fn check(function: &Function) -> Result<(), RecolourError> {
    let kinds = [
        AttributeKind::ATOM16_EMUL_INSTR_REG_MAP,
        AttributeKind::INSTR_REG_MAP,
    ];
    match kinds
        .iter()
        .find(|&&kind| function.attribute(kind).is_some())
    {
        Some(&kind) => Err(RecolourError::Attribute(kind)),
        None => Ok(()),
    }
}

/// The words of `EIATTR_COOP_GROUP_MASK_REGIDS` for renamed code; nothing where the kernel has
/// none.
pub(crate) fn mask_registers(
    function: &Function,
    old: &Code,
    new: &Code,
    cfg: &Cfg,
) -> Result<Option<Vec<u32>>, RecolourError> {
    let kind = AttributeKind::COOP_GROUP_MASK_REGIDS;
    let Some(masks) = function.attribute(kind) else {
        return Ok(None);
    };
    let offsets = function.attribute(AttributeKind::COOP_GROUP_INSTR_OFFSETS);
    let mut offsets = offsets.into_iter().flat_map(|a| a.words());
    let renamed = masks.words().map(|mask| {
        let offset = offsets.next();
        if mask == NONE {
            return Some(NONE);
        }
        let at = Some(offset?).filter(|offset| offset % 16 == 0)? as usize / 16;
        let index = u8::try_from(mask & 0x00ff_ffff).ok()?;
        let file = (mask >> 24 == GENERAL).then_some(File::R)?;
        let reg = name_at(old, new, cfg, at, Reg { file, index })?;
        Some(GENERAL << 24 | u32::from(reg.index))
    });
    let renamed: Option<Vec<u32>> = renamed.collect();
    renamed.map(Some).ok_or(RecolourError::Attribute(kind))
}

/// What became of a register at an instruction, by those that name it last on each way there;
/// nothing where these differ.
fn name_at(old: &Code, new: &Code, cfg: &Cfg, at: usize, reg: Reg) -> Option<Reg> {
    old.insts().get(at)?;
    let last_in = |insts: Range<usize>| {
        insts.rev().find_map(|at| {
            let lanes = renamed_lanes(&old.insts()[at]).zip(renamed_lanes(&new.insts()[at]));
            let mut lanes = lanes.filter(|((_, named, _), _)| *named == reg);
            lanes.next().map(|(_, (_, now, _))| now)
        })
    };
    let mut found = None;
    let mut seen = FixedBitSet::with_capacity(cfg.blocks().len());
    let here = cfg.block_of(at);
    let mut work = vec![(here, cfg.blocks()[here].insts.start..at + 1)];
    while let Some((block, insts)) = work.pop() {
        match last_in(insts) {
            Some(name) if found.is_some_and(|found| found != name) => return None,
            Some(name) => found = Some(name),
            None => {
                let preds = cfg.blocks()[block].preds.iter();
                let new = preds.filter(|&&pred| !seen.put(pred));
                work.extend(new.map(|&pred| (pred, cfg.blocks()[pred].insts.clone())));
            }
        }
    }
    found
}
