//! Pinned values.
//!
//! Hardware writes a pinned value when it pleases, so that it may not be moved, stored or
//! reloaded. What touches one therefore wants the same of it everywhere: nothing, one
//! register, or to keep out of a few. Nobody else asks for the registers that are set aside
//! for pinned values with a place of their own: the highest of the file, or where there are
//! calls, the highest that these preserve.

use super::code::Draft;
use super::*;
use crate::function::{Constraint, Effect, Kind, Operand, Role, VReg};

/// A pinned value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    vreg: VReg,
    /// What its operands may ask for.
    wish: Constraint,
}

impl Generator<'_> {
    /// Starts a flight, looks at one or ends it.
    pub(super) fn flight(&mut self) {
        let one = self.rng.below(self.window.in_flight.len());
        match self.window.in_flight.get(one).copied() {
            Some(flight) if self.pins_left == 0 || self.rng.one_in(2) => self.touch(flight, one),
            _ if self.pins_left > 0 => self.start(),
            _ => {}
        }
    }

    fn start(&mut self) {
        self.pins_left -= 1;
        let vreg = self.builder.vreg(self.classes.word);
        self.builder.pin(vreg);
        let own = self.set_aside().nth(self.pins_left);
        let wish = match (self.rng.below(3), own) {
            (0, Some(own)) if self.shape.fixed => Constraint::Fixed(own),
            (1, _) if self.shape.except => Constraint::Except(self.register_list(2)),
            _ => Constraint::Any,
        };
        let address = self.value(self.classes.word);
        let result = Operand::writes(vreg).constrained(wish);
        let mut draft = Draft::new("async").operand(result).reads(address);
        draft.effect = Effect::Write;
        self.emit_apart(draft);
        self.window.in_flight.push(Flight { vreg, wish });
    }

    fn touch(&mut self, flight: Flight, index: usize) {
        let operand = |role| Operand::with_role(flight.vreg, role);
        let asked = |operand: Operand, asks: bool| match asks {
            true => operand.constrained(flight.wish),
            false => operand,
        };
        let asks = self.rng.one_in(2);
        let other = self.value(self.classes.word);
        match self.rng.below(4) {
            0 if self.shape.copies => {
                let to = self.builder.vreg(self.classes.word);
                let mut draft = Draft::new("mov").writes(to).operand(operand(Role::Use));
                draft.kind = Kind::Copy;
                self.emit(draft);
            }
            1 if self.shape.guards => {
                let changed = asked(operand(Role::UseDef), asks);
                self.emit_apart(Draft::new("acc").operand(changed).reads(other));
            }
            2 => {
                let mut draft = Draft::new("wait").operand(asked(operand(Role::Use), asks));
                draft.effect = Effect::Write;
                self.emit(draft);
                self.window.in_flight.remove(index);
            }
            _ => {
                let to = self.builder.vreg(self.classes.word);
                let mut result = Operand::writes(to);
                if self.shape.early_defs && self.rng.one_in(4) {
                    result.role = Role::EarlyDef;
                }
                let looked = asked(operand(Role::Use), asks);
                self.emit(
                    Draft::new("peek")
                        .operand(result)
                        .operand(looked)
                        .reads(other),
                );
            }
        }
    }
}
