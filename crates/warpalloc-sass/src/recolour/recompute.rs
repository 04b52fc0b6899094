//! Instructions that may run again where their result is needed: rematerialisation.
//!
//! An instruction qualifies that runs under no guard, writes one general register and nothing
//! else, and reads general registers, numbers and constant banks only: all of these are the
//! same wherever the allocator proves that the registers are. Special registers that name a
//! thread qualify too, since a thread keeps its name; clocks and the like do not. Predicates
//! and uniform registers are not followed, so that what reads them does not qualify.

use crate::code::Code;
use crate::isa::{Access, File, Flow, Inst, Latency, Pipe};

/// Cycles of what reads a register of the thread's environment or a constant bank by a queue.
const QUEUED: u8 = 8;
/// Cycles of an operation on registers, whose inputs must be waited for.
const OPERATION: u8 = 2;
/// Cycles of a move of a number or constant.
const MOVE: u8 = 1;

/// Which instructions of some code may run again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// Numbers may be return addresses, which follow the code that moves.
    has_calls: bool,
}

impl Allowed {
    pub fn of(code: &Code) -> Allowed {
        let calls = |inst: &Inst| matches!(inst.flow(), Flow::Call { .. } | Flow::Return);
        Allowed {
            has_calls: code.insts().iter().any(calls),
        }
    }

    /// Cycles to run an instruction again, if it may.
    pub fn cycles(self, inst: &Inst) -> Option<u8> {
        let mut defs = inst.operands().iter().filter(|o| o.access == Access::Def);
        let (Some(result), None) = (defs.next(), defs.next()) else {
            return None;
        };
        let is_plain = inst.guard().is_none()
            && inst.flow() == Flow::Next
            && inst.is_rewritable()
            && (result.file, result.width) == (File::R, 1)
            && result.first != 1;
        let uses: Vec<_> = inst
            .operands()
            .iter()
            .filter(|o| o.access == Access::Use)
            .collect();
        let reads_single = uses.iter().all(|o| (o.file, o.width) == (File::R, 1));
        if !is_plain || !reads_single || self.has_calls && inst.moved_immediate().is_some() {
            return None;
        }
        match inst.mnemonic() {
            "S2R" => names_thread(inst).then_some(QUEUED),
            "LDC" => uses.is_empty().then_some(QUEUED),
            "SHFL" | "FSWZADD" | "CS2R" => None,
            _ => {
                let is_known = matches!(inst.pipe(), Pipe::Alu | Pipe::Fma | Pipe::Half)
                    && inst.latency() == Latency::Fixed
                    && inst.memory().is_none();
                is_known.then_some(if uses.is_empty() { MOVE } else { OPERATION })
            }
        }
    }
}

/// Whether S2R reads the number of a lane, of a thread in its block or of a block in the grid.
fn names_thread(inst: &Inst) -> bool {
    let number = (inst.word() >> 72) as u8;
    matches!(number, 0x00 | 0x21..=0x23 | 0x25..=0x27)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Builder, Constant, Sm, Source, SpecialRegister, decode};

    #[test]
    fn what_only_reads_registers_and_constants_may_run_again() {
        let sm = Sm::new(90).unwrap();
        let build = Builder::new(sm);
        let allowed = Allowed { has_calls: false };
        let cycles = |inst: Inst| allowed.cycles(&inst);
        let number = build.mov(4, Source::Immediate(7)).unwrap();
        assert_eq!(cycles(number.clone()), Some(MOVE));
        assert_eq!(Allowed { has_calls: true }.cycles(&number), None);
        let constant = Source::Constant(Constant::BLOCK_X);
        assert_eq!(cycles(build.mov(4, constant).unwrap()), Some(MOVE));
        let sum = build.iadd3(4, 5, Source::Reg(6), 255).unwrap();
        assert_eq!(cycles(sum.clone()), Some(OPERATION));
        let thread = build.s2r(4, SpecialRegister::ThreadX).unwrap();
        assert_eq!(cycles(thread.clone()), Some(QUEUED));
        // SR_CLOCKLO
        let clock = decode(thread.word() & !(0xff << 72) | 0x50 << 72, sm).unwrap();
        assert_eq!(cycles(clock), None);
        // @P0
        let guarded = decode(sum.word() & !(0xf << 12), sm).unwrap();
        assert_eq!(cycles(guarded), None);
        // R1 is the frame's.
        assert_eq!(cycles(build.mov(1, Source::Immediate(7)).unwrap()), None);
    }
}
