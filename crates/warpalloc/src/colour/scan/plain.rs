//! Steps whose operands may be anywhere.
//!
//! Inputs that end leave their registers, and results take free ones. Where there is room for
//! all of them nothing else moves; otherwise [`super::arrange`] makes room.

use super::assign::Assigner;
use super::code::{Access, Step};
use crate::function::{Block, Role};
use crate::ir::Op;
use crate::target::{File, PReg};
use smallvec::SmallVec;

/// Results, and where they start.
type Results = SmallVec<[(u32, u16); 4]>;

/// Whether `access` is an input that leaves its register once it is read.
#[inline]
fn ends(access: &Access, released: &[u32]) -> bool {
    access.dies || access.role == Role::Use && released.contains(&access.value)
}

impl<const W: usize> Assigner<'_, W> {
    /// Seats a step without constraints; says whether that succeeded without moving anything.
    /// If not, nothing has changed.
    pub(super) fn plain(
        &mut self,
        block: Block,
        step: Step,
        accesses: &[Access],
        reloads: &[u32],
        released: &[u32],
    ) -> bool {
        let mut intact: SmallVec<[u32; 4]> = SmallVec::new();
        if !self.seat_reloads(reloads, &mut intact) {
            return false;
        }
        self.read_inputs(step, accesses, released);
        let Some(results) = self.find_results(block, step, accesses, released) else {
            self.undo(step, accesses, released);
            reloads.iter().for_each(|&v| self.vacate(v));
            return false;
        };
        for &value in reloads.iter().filter(|v| !intact.contains(v)) {
            let fragment = self.fragment[value as usize];
            self.reload(value, self.at[value as usize] as usize, Some(fragment));
        }
        match step.inst() {
            Some(inst) => {
                self.write_results(step, accesses, results);
                self.finish_inst(step, inst);
            }
            None => self.copy_values(block, step, accesses, results),
        }
        true
    }

    /// Seats what comes back; those whose registers hold them still are `intact`. If there is
    /// no room for all, nothing has changed.
    fn seat_reloads(&mut self, reloads: &[u32], intact: &mut SmallVec<[u32; 4]>) -> bool {
        for (at, &value) in reloads.iter().enumerate() {
            if self.is_intact(value) {
                intact.push(value);
                self.end(value, 2 * self.now);
                self.settle(value, self.at[value as usize] as usize);
                continue;
            }
            match self.pick(value, None) {
                Some(unit) => self.settle(value, unit),
                None => {
                    reloads[..at].iter().for_each(|&v| self.vacate(v));
                    return false;
                }
            }
        }
        true
    }

    /// Writes down where an instruction reads its inputs, and takes those that end out of their
    /// registers.
    #[inline]
    fn read_inputs(&mut self, step: Step, accesses: &[Access], released: &[u32]) {
        let first = step.operands as usize;
        let is_inst = step.inst().is_some();
        for (at, access) in accesses.iter().enumerate() {
            if access.role == Role::Def {
                continue;
            }
            let fragment = self.fragment[access.value as usize];
            if is_inst {
                self.write_operand(first + at, access.file, fragment);
            }
            if ends(access, released) && self.is_held(access.value) {
                self.out.end(fragment, 2 * self.now + 1);
                self.vacate(access.value);
            }
        }
    }

    /// Finds registers for the results; nothing has changed if there are too few.
    #[inline]
    fn find_results(
        &mut self,
        block: Block,
        step: Step,
        accesses: &[Access],
        released: &[u32],
    ) -> Option<Results> {
        let mut results = Results::new();
        for access in accesses.iter().filter(|a| a.role == Role::Def) {
            let near = match step.copies {
                true => {
                    let ending = accesses.iter().filter(|a| ends(a, released));
                    let ending: SmallVec<[u32; 4]> = ending.map(|a| a.value).collect();
                    self.copied_from(block, step, access.value, &ending)
                }
                false => None,
            };
            let Some(unit) = self.pick(access.value, near) else {
                for &(value, unit) in &results {
                    self.vacate_units(self.code.shape(value), unit as usize);
                }
                return None;
            };
            self.occupy(access.value, unit);
            results.push((access.value, unit as u16));
        }
        Some(results)
    }

    /// Takes back that inputs were read.
    fn undo(&mut self, step: Step, accesses: &[Access], released: &[u32]) {
        if step.inst().is_some() {
            let first = step.operands as usize;
            self.out.operands[first..first + accesses.len()].fill(super::code::NONE);
        }
        for access in accesses.iter().filter(|a| ends(a, released)) {
            self.occupy(access.value, self.at[access.value as usize] as usize);
        }
    }

    /// Settles the results of an instruction, and writes them down.
    #[inline]
    fn write_results(&mut self, step: Step, accesses: &[Access], results: Results) {
        let first = step.operands as usize;
        let mut results = results.into_iter();
        for (at, access) in accesses.iter().enumerate() {
            if access.role != Role::Def {
                continue;
            }
            let Some((value, unit)) = results.next() else {
                return;
            };
            let fragment = self.begin_result(value, unit);
            self.write_operand(first + at, access.file, fragment);
        }
    }

    /// Settles a result, whose register it has already.
    #[inline]
    fn begin_result(&mut self, value: u32, unit: u16) -> u32 {
        let fragment = self.fragment_at(value, unit, 2 * self.now + 1);
        self.at[value as usize] = unit;
        self.fragment[value as usize] = fragment;
        self.claim(value, unit as usize);
        fragment
    }

    #[inline]
    fn write_operand(&mut self, at: usize, file: u8, fragment: u32) {
        let unit = self.out.unit(fragment);
        self.out.registers[at] = PReg::new(File::new(file.into()), unit.into());
        self.out.operands[at] = fragment;
    }

    /// Emits inserted code that copies values, which keep these registers.
    fn copy_values(&mut self, block: Block, step: Step, accesses: &[Access], results: Results) {
        let code = self.code;
        for access in accesses.iter().filter(|a| a.role != Role::Def) {
            let fragment = self.fragment[access.value as usize];
            self.out.fragments[fragment as usize].is_frozen = true;
        }
        let to = |value: u32| {
            let result = results.iter().find(|r| r.0 == value);
            let unit = result.map_or(self.at[value as usize], |r| r.1);
            PReg::new(File::new(code.shape(value).file), unit.into())
        };
        match code.op(block, step) {
            Some(Op::Copies(pairs)) => {
                let moves: SmallVec<[_; 4]> = pairs
                    .iter()
                    .map(|(result, input)| {
                        let (result, input) = (result.as_u32(), input.as_u32());
                        (to(result), self.register(input), code.shape(result).width)
                    })
                    .collect();
                self.move_all(&moves);
            }
            Some(Op::Transfer { to: result, from }) => {
                let (result, from) = (result.as_u32(), from.as_u32());
                let edit = self.transfer(to(result), self.register(from), from);
                self.waiting.push(edit);
            }
            _ => {}
        }
        for (value, unit) in results {
            let fragment = self.begin_result(value, unit);
            self.out.fragments[fragment as usize].is_frozen = true;
        }
    }
}
