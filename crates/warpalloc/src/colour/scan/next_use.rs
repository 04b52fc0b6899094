//! Next uses within a block.
//!
//! A backward walk over a block notes, for each access of each step, the position of the
//! value's next read after the step; the forward walk that follows takes the notes back in
//! the opposite order. Positions count steps from the block's start; beyond the block's end
//! they go on with the distances of [`crate::analysis::NextUses`], or end there where
//! nothing is spilled and only death matters.

use super::code::{Access, Code};
use crate::analysis::NEVER;
use crate::function::Block;

/// The next read of every value at the point at hand.
pub(super) struct NextUse {
    next: Vec<u32>,
    notes: Vec<u32>,
    /// The values that are live out of the block at hand.
    ahead: Vec<u32>,
}

impl NextUse {
    pub fn new(code: &Code) -> NextUse {
        NextUse {
            next: vec![NEVER; code.value_count()],
            notes: Vec::new(),
            ahead: Vec::new(),
        }
    }

    /// Moves to the start of `block`. `after` tells how many steps after the block each value
    /// live out of it is read.
    pub fn enter(&mut self, code: &Code, block: Block, after: impl Iterator<Item = (u32, u32)>) {
        let steps = code.steps(block);
        let length = steps.len() as u32;
        for (value, distance) in after {
            self.ahead.push(value);
            self.next[value as usize] = length.saturating_add(distance).min(NEVER - 1);
        }
        for (at, number) in steps.enumerate().rev() {
            let accesses = code.accesses(number);
            for access in accesses.iter().rev() {
                self.notes.push(self.next[access.value as usize]);
            }
            for access in accesses {
                if access.role.writes() {
                    self.next[access.value as usize] = NEVER;
                }
            }
            for access in accesses {
                if access.role.reads() {
                    self.next[access.value as usize] = at as u32;
                }
            }
        }
    }

    /// The position of the next read of `value`; [`NEVER`] if there is none.
    #[inline]
    pub fn of(&self, value: u32) -> u32 {
        self.next[value as usize]
    }

    /// Moves over a step.
    #[inline]
    pub fn advance(&mut self, accesses: &[Access]) {
        for access in accesses {
            if let Some(next) = self.notes.pop() {
                self.next[access.value as usize] = next;
            }
        }
    }

    /// The next read after the step at hand of what its access number `at` leaves behind.
    #[inline]
    pub fn after(&self, at: usize) -> u32 {
        self.notes[self.notes.len() - 1 - at]
    }

    /// Leaves `block` at its start.
    pub fn turn_back(&mut self, code: &Code, block: Block) {
        self.notes.clear();
        for number in code.steps(block) {
            for access in code.accesses(number) {
                self.next[access.value as usize] = NEVER;
            }
        }
        self.leave();
    }

    /// Leaves the block at its end.
    pub fn leave(&mut self) {
        for value in self.ahead.drain(..) {
            self.next[value as usize] = NEVER;
        }
    }
}
