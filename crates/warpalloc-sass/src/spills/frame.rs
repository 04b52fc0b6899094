//! What a kernel keeps in local memory, and the proof that nothing else sees it.

use super::refusal::Refusal;
use crate::cfg::Cfg;
use crate::code::Code;
use crate::isa::{Constant, File, Flow, Inst, Reg, Space, SpillMemory};
use crate::loops::Loops;

/// R1.
pub(crate) const STACK: Reg = Reg {
    file: File::R,
    index: 1,
};

/// A load or store of the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spill {
    /// The instruction.
    pub index: usize,
    /// Where in the frame.
    pub offset: u32,
    /// How many bytes.
    pub bytes: u32,
    /// How often it runs, by the depth of its loop.
    pub weight: u64,
}

impl Spill {
    /// The words of the frame that it touches.
    pub fn words(&self) -> std::ops::Range<usize> {
        let first = self.offset / 4;
        let end = (self.offset + self.bytes).div_ceil(4);
        first as usize..end as usize
    }
}

/// The frame of a kernel in local memory.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// Its bytes: what is taken off the end of the stack.
    pub bytes: u32,
    /// The instructions that set R1.
    pub setup: Vec<usize>,
    /// All loads and stores of local memory.
    pub spills: Vec<Spill>,
}

/// Reads how a kernel uses local memory.
pub(super) fn frame(code: &Code, cfg: &Cfg, loops: &Loops) -> Result<Frame, Refusal> {
    let (setup, bytes) = setup(code, cfg)?;
    // Between the two R1 is not yet the frame.
    let between = match setup[..] {
        [first, second] => first..second,
        _ => 0..0,
    };
    let mut spills = Vec::new();
    for (index, inst) in code.insts().iter().enumerate() {
        let offset = Code::offset(index);
        let block = cfg.block_of(index);
        let text = || inst.to_string();
        if let Flow::Call { .. } = inst.flow()
            && cfg.blocks()[block].calls_outside
        {
            return Err(Refusal::Calls {
                offset,
                inst: text(),
            });
        }
        if setup.contains(&index) {
            continue;
        }
        let is_local = inst.memory().is_some_and(|m| m.space == Space::Local);
        let escapes = inst.uses().contains(STACK) && (!is_local || between.contains(&index));
        if escapes || reads_stack_constant(inst) {
            return Err(Refusal::Escapes {
                offset,
                inst: text(),
            });
        }
        if !is_local {
            continue;
        }
        let address = inst.spill_address().filter(|(memory, address)| {
            *memory == SpillMemory::Local
                && address.register == STACK.index
                && address.uniform.is_none()
        });
        let bytes_of_access = inst.memory().and_then(|memory| memory.bytes);
        let (Some((_, address)), Some(size)) = (address, bytes_of_access) else {
            return Err(Refusal::Indirect {
                offset,
                inst: text(),
            });
        };
        // R1 may also be what is stored.
        let stores_stack = inst.operands().iter().any(|operand| {
            let is_address = operand.field == Some(24);
            !is_address && operand.registers().any(|reg| reg == STACK)
        });
        if stores_stack {
            return Err(Refusal::Escapes {
                offset,
                inst: text(),
            });
        }
        let place = u32::try_from(address.offset).ok();
        let place = place.filter(|&place| {
            let end = place.saturating_add(size.into());
            end <= bytes && place.is_multiple_of(u32::from(size).min(4))
        });
        let place = place.ok_or_else(|| Refusal::OutsideFrame {
            offset,
            inst: text(),
            at: address.offset,
            frame: bytes,
        })?;
        spills.push(Spill {
            index,
            offset: place,
            bytes: size.into(),
            weight: 10u64.pow(loops.depth(block).min(6)),
        });
    }
    match spills.is_empty() {
        true => Err(Refusal::NoSpills),
        false => Ok(Frame {
            bytes,
            setup,
            spills,
        }),
    }
}

/// The instructions that set R1 and the bytes that they take off the stack: a move of
/// c[0x0][0x28] and a subtraction in the same block, and no others anywhere. However often the
/// block runs, R1 is then the same wherever it is set.
pub(crate) fn setup(code: &Code, cfg: &Cfg) -> Result<(Vec<usize>, u32), Refusal> {
    let insts = code.insts().iter().enumerate();
    let defs: Vec<(usize, &Inst)> = insts
        .filter(|(_, inst)| inst.defs().contains(STACK))
        .collect();
    let moves = |index: usize, inst: &Inst| Refusal::StackMoves {
        offset: Code::offset(index),
        inst: inst.to_string(),
    };
    let (&(first, stack), rest) = defs.split_first().ok_or_else(|| {
        match code
            .insts()
            .iter()
            .any(|i| i.memory().is_some_and(|m| m.space == Space::Local))
        {
            true => Refusal::NoStack,
            false => Refusal::NoSpills,
        }
    })?;
    let is_stack = matches!(stack.mnemonic(), "LDC" | "MOV" | "IMAD")
        && stack.uses().is_empty()
        && stack.defs().count(File::R) == 1
        && reads_stack_constant(stack);
    if !is_stack {
        return Err(moves(first, stack));
    }
    match rest {
        [] => Ok((vec![first], 0)),
        &[(second, sub)] => {
            let bytes = subtraction(sub).filter(|_| cfg.block_of(second) == cfg.block_of(first));
            let bytes = bytes.ok_or_else(|| moves(second, sub))?;
            Ok((vec![first, second], bytes))
        }
        &[_, (third, inst), ..] => Err(moves(third, inst)),
    }
}

/// The bytes that `IADD3 R1, R1, -bytes, RZ` or `VIADD R1, R1, -bytes` takes off.
fn subtraction(inst: &Inst) -> Option<u32> {
    let byte = |at: u32| (inst.word() >> at) as u8;
    let is_it = match inst.word() as u16 & 0xfff {
        // No carry in, no negation, a third source that is zero.
        0x810 => byte(64) == 255 && inst.word() >> 72 & 7 == 0 && inst.word() >> 74 & 1 == 0,
        0x836 => inst.word() >> 72 & 0xff == 0,
        _ => false,
    };
    let is_own = inst.operands().iter().all(|operand| {
        operand.file == File::R && operand.first == STACK.index && operand.width == 1
    });
    if !is_it || !is_own || inst.guard().is_some() {
        return None;
    }
    let number = (inst.word() >> 32) as u32 as i32;
    (number < 0).then(|| number.unsigned_abs())
}

/// Whether an instruction reads c[0x0][0x28], as far as it says so itself.
pub(crate) fn reads_stack_constant(inst: &Inst) -> bool {
    let word = inst.word();
    let opcode = word as u16 & 0xfff;
    let is_constant_load = matches!(inst.mnemonic(), "LDC" | "ULDC");
    let is_alu = matches!(opcode >> 9, 3 | 5) && inst.memory().is_none() && word >> 91 & 1 == 0;
    let is_alu = is_alu && inst.flow() == Flow::Next && !matches!(inst.mnemonic(), "S2R" | "S2UR");
    if !is_constant_load && !is_alu {
        return false;
    }
    let bank = (word >> 54) as u8 & 0x1f;
    let offset = (word >> 38) as u16;
    // An access of 64 bits may begin a word before.
    let stack = Constant::STACK;
    bank == stack.bank && (stack.offset - 4..stack.offset + 4).contains(&offset) && {
        offset >= stack.offset || inst.defs().iter().count() > 1
    }
}
