//! What is known of the definitions of each value, found in one walk over the code.
//!
//! A value is computed again rather than kept in memory if its only definition is an
//! instruction that may run again anywhere and reads no register: a constant, an address, a
//! special register.

use super::code::{Access, Code, NONE};
use crate::function::{Block, Inst};
use crate::spill::remat::may_run_again;
use cranelift_entity::EntityRef;

/// The definitions of one value.
#[derive(Clone, Copy)]
struct Definitions {
    /// How often they run, parameters included.
    cost: f32,
    /// The instruction that computes the value again.
    by: u32,
    /// How many there are, as far as one differs from more.
    count: u8,
    /// The block of the last one in an instruction.
    block: u32,
}

/// The definitions of every value.
pub(super) struct Remat {
    of: Vec<Definitions>,
}

impl Remat {
    pub fn find(code: &Code) -> Remat {
        let none = Definitions {
            cost: 0.0,
            by: NONE,
            count: 0,
            block: NONE,
        };
        let mut remat = Remat {
            of: vec![none; code.value_count()],
        };
        for block in (0..code.block_count()).map(Block::new) {
            let frequency = code.frequencies.block(block) as f32;
            for &param in code.params(block) {
                remat.define(param, frequency, NONE);
            }
            for number in code.steps(block) {
                let accesses = code.accesses(number);
                let by = match accesses.iter().any(|a| a.role.reads()) {
                    true => NONE,
                    false => again(code, number),
                };
                for &Access { value, .. } in accesses.iter().filter(|a| a.role.writes()) {
                    remat.define(value, frequency, by);
                    remat.of[value as usize].block = block.as_u32();
                }
            }
        }
        remat
    }

    #[inline]
    fn define(&mut self, value: u32, frequency: f32, by: u32) {
        let of = &mut self.of[value as usize];
        of.cost += frequency;
        of.by = match of.count {
            0 => by,
            _ => NONE,
        };
        of.count = of.count.saturating_add(1);
    }

    /// The instruction that computes `value` again.
    pub fn instruction(&self, value: u32) -> Option<Inst> {
        let by = self.of[value as usize].by;
        (by != NONE).then(|| Inst::from_u32(by))
    }

    /// Whether `value` needs no slot.
    #[inline]
    pub fn is_free(&self, value: u32) -> bool {
        self.of[value as usize].by != NONE
    }

    /// Whether `value` is written in one place only.
    pub fn is_defined_once(&self, value: u32) -> bool {
        self.of[value as usize].count == 1
    }

    /// The block where an instruction is all that writes `value`.
    pub fn only_block(&self, value: u32) -> Option<Block> {
        let of = self.of[value as usize];
        (of.count == 1 && of.block != NONE).then(|| Block::from_u32(of.block))
    }

    /// How often the definitions of `value` run.
    #[inline]
    pub fn cost(&self, value: u32) -> f32 {
        self.of[value as usize].cost
    }
}

/// The instruction of a step that reads nothing, if it may run again.
fn again(code: &Code, number: usize) -> u32 {
    let inst = code.step(number).inst();
    let inst = inst.filter(|&inst| may_run_again(code.function, inst));
    inst.map_or(NONE, |inst| inst.as_u32())
}
