//! Assigning registers to one instruction's operands.
//!
//! Each rigid body has a list of places; the most constrained body chooses first and a
//! bounded search backs out of dead ends. Aligned power-of-two widths taken largest first
//! never fragment a file, so the search only ever works where fixed registers interfere.

use super::slots::Homes;
use crate::error::{Error, Place};
use crate::function::{Function, Inst, Role};
use crate::ir::constraints::{Body, Member, bodies};
use crate::scratch::Scratch;
use crate::target::{PReg, RegSet, Target};
use smallvec::SmallVec;
use std::cmp::Reverse;

/// Search steps before an instruction counts as impossible.
const PATIENCE: u32 = 200_000;

/// What the assignment must respect besides the instruction itself.
pub struct Rules<'a> {
    /// Pinned values keep their registers, and no other value takes these.
    pub homes: &'a Homes,
    /// Registers to take last.
    pub avoid: &'a RegSet,
    /// Whether `avoid` is out of the question.
    pub forbid_avoided: bool,
}

/// One register per operand of an instruction.
pub type Seats = SmallVec<[PReg; 8]>;

struct Choice {
    body: Body,
    starts: Vec<PReg>,
}

fn choice(
    function: &Function,
    target: &Target,
    inst: Inst,
    rules: &Rules,
    body: Body,
    scratch: &Scratch,
) -> Choice {
    let operands = function.operands(inst);
    // A result tied to a pinned value takes over its register.
    let home = |m: &Member| rules.homes.pinned(operands[m.operand].vreg);
    let homes: SmallVec<[PReg; 1]> = body.members.iter().filter_map(home).collect();
    let allowed = |&start: &PReg| {
        body.members.iter().all(|m| {
            let vreg = operands[m.operand].vreg;
            let (reg, width) = (
                start.offset(m.offset),
                target.width(function.vreg(vreg).class),
            );
            match rules.homes.pinned(vreg) {
                Some(home) => reg == home,
                None if homes.contains(&reg) => true,
                None => {
                    let taken = rules.homes.pinned_units().overlaps(target, reg, width);
                    let avoided = rules.forbid_avoided && rules.avoid.overlaps(target, reg, width);
                    !taken && !avoided
                }
            }
        })
    };
    let mut starts = scratch.growing();
    starts.extend(body.starts(function, target, inst).filter(allowed));
    starts.sort_by_key(|&start| rules.avoid.overlaps(target, start, body.width));
    Choice { body, starts }
}

/// The registers that operands of one instruction after the other take.
pub struct Table<'a> {
    function: &'a Function,
    target: &'a Target,
    scratch: &'a Scratch,
    inst: Inst,
    read: RegSet,
    written: RegSet,
    early: RegSet,
    patience: u32,
}

impl<'a> Table<'a> {
    /// A table for the instructions of `function`.
    pub fn new(function: &'a Function, target: &'a Target, scratch: &'a Scratch) -> Table<'a> {
        Table {
            function,
            target,
            scratch,
            inst: Inst::NONE,
            read: RegSet::new(target),
            written: RegSet::new(target),
            early: RegSet::new(target),
            patience: PATIENCE,
        }
    }

    /// One register per operand of `inst`.
    pub fn seat(&mut self, inst: Inst, rules: &Rules) -> Result<Seats, Error> {
        let Table {
            function,
            target,
            scratch,
            ..
        } = *self;
        let bodies = bodies(function, target, inst)?.into_iter();
        let choices = bodies.map(|body| choice(function, target, inst, rules, body, scratch));
        let mut all: SmallVec<[Choice; 8]> = choices.collect();
        all.sort_by_key(|c| (c.starts.len(), Reverse(c.body.width)));
        [&mut self.read, &mut self.written, &mut self.early]
            .into_iter()
            .for_each(RegSet::clear);
        (self.inst, self.patience) = (inst, PATIENCE);
        let none = PReg::new(crate::target::File::MAIN, 0);
        let mut seats = Seats::from_elem(none, function.operands(inst).len());
        let is_done = self.place(&all, &mut seats);
        all.into_iter()
            .for_each(|choice| scratch.give(choice.starts));
        if is_done {
            return Ok(seats);
        }
        Err(Error::Impossible {
            place: Place::Inst(function.block_of(inst), inst),
            value: None,
            message: format!(
                "the operands of `{}` do not fit into the registers side by side",
                function.opcode_name(function.inst(inst).opcode)
            ),
            help: match function.vregs().any(|v| function.vreg(v).pinned) {
                true => "raise the register budget, or pin fewer values".into(),
                false => "raise the register budget or relax its fixed registers".into(),
            },
        })
    }

    fn place(&mut self, rest: &[Choice], seats: &mut [PReg]) -> bool {
        let Some((first, rest)) = rest.split_first() else {
            return true;
        };
        for &start in &first.starts {
            if self.patience == 0 {
                return false;
            }
            self.patience -= 1;
            if !self.is_free(&first.body, start) {
                continue;
            }
            self.mark(&first.body, start, true);
            for m in &first.body.members {
                seats[m.operand] = start.offset(m.offset);
            }
            if self.place(rest, seats) {
                return true;
            }
            self.mark(&first.body, start, false);
        }
        false
    }

    /// Calls `visit` with each member's register, width in units and role.
    fn members(&self, body: &Body, start: PReg) -> impl Iterator<Item = (PReg, usize, Role)> {
        let operands = self.function.operands(self.inst);
        body.members.iter().map(move |m| {
            let operand = operands[m.operand];
            let width = self.target.width(self.function.vreg(operand.vreg).class);
            (start.offset(m.offset), width, operand.role)
        })
    }

    fn is_free(&self, body: &Body, start: PReg) -> bool {
        self.members(body, start).all(|(reg, width, role)| {
            let hits = |set: &RegSet| set.overlaps(self.target, reg, width);
            let read = role.reads() && (hits(&self.read) || hits(&self.early));
            let written = role.writes() && hits(&self.written);
            let early = role == Role::EarlyDef && hits(&self.read);
            !read && !written && !early
        })
    }

    fn mark(&mut self, body: &Body, start: PReg, taken: bool) {
        let members: SmallVec<[_; 4]> = self.members(body, start).collect();
        for (reg, width, role) in members {
            for unit in self.target.units(reg, width) {
                let put = |set: &mut RegSet| match taken {
                    true => set.insert(unit),
                    false => set.remove(unit),
                };
                if role.reads() {
                    put(&mut self.read);
                }
                if role.writes() {
                    put(&mut self.written);
                }
                if role == Role::EarlyDef {
                    put(&mut self.early);
                }
            }
        }
    }
}
