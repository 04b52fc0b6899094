//! Values that are computed again instead of being kept in memory.
//!
//! A value qualifies when its only definition is an instruction that may run again anywhere
//! and reads no register: a constant, an address, a special register.

use super::code::{Code, NONE};
use crate::function::{Block, Inst};
use crate::spill::remat::may_run_again;
use cranelift_entity::EntityRef;

/// The instructions that compute values again.
pub(super) struct Remat {
    by: Vec<u32>,
    definitions: Vec<u8>,
}

impl Remat {
    pub fn find(code: &Code) -> Remat {
        let mut remat = Remat {
            by: vec![NONE; code.value_count()],
            definitions: vec![0; code.value_count()],
        };
        for block in (0..code.block_count()).map(Block::new) {
            for &param in code.params(block) {
                remat.define(param);
            }
            for number in code.steps(block) {
                let step = code.step(number);
                let accesses = code.accesses(number);
                let reads = accesses.iter().any(|(_, role)| role.reads());
                let again = |inst: &Inst| !reads && may_run_again(code.function, *inst);
                let inst = code.inst(block, step).filter(again);
                for &(value, role) in accesses {
                    if role.writes() {
                        remat.define(value);
                        remat.by[value as usize] = inst.map_or(NONE, |inst| inst.as_u32());
                    }
                }
            }
        }
        for (by, &definitions) in remat.by.iter_mut().zip(&remat.definitions) {
            if definitions != 1 {
                *by = NONE;
            }
        }
        remat
    }

    fn define(&mut self, value: u32) {
        let definitions = &mut self.definitions[value as usize];
        *definitions = definitions.saturating_add(1);
    }

    /// The instruction that computes `value` again.
    pub fn instruction(&self, value: u32) -> Option<Inst> {
        let by = self.by[value as usize];
        (by != NONE).then(|| Inst::from_u32(by))
    }

    /// Whether `value` needs no slot.
    pub fn is_free(&self, value: u32) -> bool {
        self.by[value as usize] != NONE
    }

    /// Whether `value` is written in one place only.
    pub fn is_defined_once(&self, value: u32) -> bool {
        self.definitions[value as usize] == 1
    }
}
