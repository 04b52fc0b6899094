//! Which instructions have their operands pre-allocated.
//!
//! ptxas is reported to test SASS opcode numbers against a 64-bit mask and a few cases
//! (`docs/sources.md#fatpoint-mac-operands`). The numbers mean nothing to us, so
//! [`sass_opcode`] says which of our opcodes they stand for. Values that an eligible
//! instruction reads or writes, as the preference level says, get a pre-allocation
//! priority: they are placed before the lists are made.

use crate::ir::{Op, Program, Value};
use crate::options::Knobs;
use cranelift_entity::SecondaryMap;

/// One bit for each opcode from 22 on: R2P (22), ATOM (50), EXIT (77) and TEX (83) are set.
pub const PREALLOC_MASK: u64 = 0x2080_0000_1000_0001;
const MASK_BASE: u32 = 22;
const MASK_BITS: u32 = 62;

/// Whether a SASS opcode passes the mask or is one of the two extra ones.
pub fn is_eligible_narrow(opcode: u32) -> bool {
    let shifted = opcode.wrapping_sub(MASK_BASE);
    (shifted < MASK_BITS && PREALLOC_MASK >> shifted & 1 == 1) || matches!(opcode, 297 | 352)
}

/// Whether a SASS opcode is eligible at all.
pub fn is_eligible_wide(opcode: u32) -> bool {
    is_eligible_narrow(opcode) || matches!(opcode, 51 | 110..=114 | 279 | 289)
}

/// The SASS opcode that an opcode of ours, such as `tex.2d.v4.f32`, becomes.
pub fn sass_opcode(name: &str) -> Option<u32> {
    Some(match name.split('.').next().unwrap_or(name) {
        "atom" => 50,
        "exit" => 77,
        "tex" | "tld4" => 83,
        "cctl" => 110,
        "membar" => 111,
        "suld" => 112,
        "sust" => 113,
        "sured" => 114,
        "fence" => 279,
        "selp" => 352,
        _ => return None,
    })
}

/// Pre-allocation priorities of values: 0 for most.
pub fn priorities(program: &Program, knobs: &Knobs) -> SecondaryMap<Value, u32> {
    let mut priorities = SecondaryMap::new();
    let level = match (knobs.mac_force, knobs.mac_gate) {
        (true, _) => 3,
        (false, true) => knobs.pref_mac_operands,
        (false, false) => 0,
    };
    if level == 0 {
        return priorities;
    }
    let function = program.function;
    for op in program.blocks.values().flat_map(|block| &block.ops) {
        let Op::Inst { inst, values } = op else {
            continue;
        };
        let opcode = sass_opcode(function.opcode_name(function.inst(*inst).opcode));
        let eligible = match knobs.mac_force {
            true => opcode.is_some_and(is_eligible_narrow),
            false => opcode.is_some_and(is_eligible_wide),
        };
        if !eligible {
            continue;
        }
        for (&value, operand) in values.iter().zip(function.operands(*inst)) {
            let read = level & 1 == 1 && operand.role.reads();
            let written = level & 2 == 2 && operand.role.writes();
            if read || written {
                priorities[value] = level;
            }
        }
    }
    priorities
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Builder, Effect};
    use crate::target::{Class, Target};
    use cranelift_entity::EntityRef;

    /// The opcodes of `docs/sources.md#fatpoint-mac-operands`.
    #[test]
    fn six_narrow_and_fourteen_wide_opcodes() {
        let bits: Vec<u32> = (0..64).filter(|b| PREALLOC_MASK >> b & 1 == 1).collect();
        assert_eq!(bits, [0, 28, 55, 61]);
        let narrow: Vec<u32> = (0..1000).filter(|&o| is_eligible_narrow(o)).collect();
        assert_eq!(narrow, [22, 50, 77, 83, 297, 352]);
        let wide: Vec<u32> = (0..1000).filter(|&o| is_eligible_wide(o)).collect();
        let documented = [
            22, 50, 51, 77, 83, 110, 111, 112, 113, 114, 279, 289, 297, 352,
        ];
        assert_eq!(wide, documented);
    }

    #[test]
    fn preference_levels_pick_what_is_read_written_or_both() {
        let target = Target::hardware(90).unwrap();
        let mut b = Builder::new("f");
        let block = b.block();
        let v: Vec<_> = (0..3).map(|_| b.vreg(Class::R32)).collect();
        b.inst(block, "mov").def(v[0]);
        b.inst(block, "tex.2d").def(v[1]).use_(v[0]);
        b.inst(block, "add").def(v[2]).use_(v[1]);
        b.inst(block, "st").use_(v[2]).effect(Effect::Write);
        b.exit(block, "exit");
        let f = b.finish();
        let program = Program::new(&f, &target, None).unwrap();
        let flagged = |level| {
            let knobs = Knobs {
                pref_mac_operands: level,
                ..Knobs::default()
            };
            let found = priorities(&program, &knobs);
            (0..3)
                .filter(|&i| found[Value::new(i)] > 0)
                .collect::<Vec<_>>()
        };
        assert_eq!(flagged(0), [0usize; 0]);
        assert_eq!(flagged(1), [0]);
        assert_eq!(flagged(2), [1]);
        assert_eq!(flagged(3), [0, 1]);
        let gated = Knobs {
            pref_mac_operands: 3,
            mac_gate: false,
            ..Knobs::default()
        };
        let found = priorities(&program, &gated);
        assert!((0..3).all(|i| found[Value::new(i)] == 0));
    }
}
