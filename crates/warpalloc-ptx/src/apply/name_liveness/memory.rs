//! As what slots are stored and reloaded.
//!
//! Memory is bytes, so a slot has no names; but what is stored must be chosen. For each slot
//! we keep, over the whole function, as what it is ever reloaded.

use super::{Demands, NotExpressible, Op, Result};
use crate::apply::view::{Conversion, Kind, View, ViewSet};
use rustc_hash::FxHashMap;
use warpalloc::allocation::{SlotAddr, Space};
use warpalloc::target::{File, PReg};

/// As what each piece of memory is reloaded.
#[derive(Default)]
pub(super) struct Slots {
    uses: FxHashMap<(Space, i32), SlotUse>,
    /// Whether a use was noted that was not known.
    pub(super) changed: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct SlotUse {
    /// Kinds of views whose loads start here, as bits.
    starts: u8,
    /// Kinds of views whose loads include this unit.
    covers: u8,
}

impl Slots {
    fn get(&self, slot: SlotAddr) -> SlotUse {
        let found = self.uses.get(&(slot.space, slot.offset));
        found.copied().unwrap_or_default()
    }

    fn note(&mut self, slot: SlotAddr, kind: Kind, units: u16, unit_bytes: i32) {
        for unit in 0..i32::from(units) {
            let key = (slot.space, slot.offset + unit * unit_bytes);
            let entry = self.uses.entry(key).or_default();
            let old = *entry;
            entry.covers |= bit(kind);
            if unit == 0 {
                entry.starts |= bit(kind);
            }
            self.changed |= *entry != old;
        }
    }
}

fn bit(kind: Kind) -> u8 {
    1 << kind as u8
}

impl Demands<'_> {
    fn unit_bytes(&self) -> i32 {
        self.target.file(File::R).unit_bytes as i32
    }

    /// Whether a view of this kind can be read or written at a slot in one access.
    fn is_aligned(&self, slot: SlotAddr, kind: Kind) -> bool {
        // What counts is the distance from the frame's low end.
        let address = self.allocation.frame.size(slot.space) as i32 + slot.offset;
        address.rem_euclid(kind.bytes() as i32) == 0
    }

    /// Stores what is ever reloaded, by the widest names that are asked for.
    pub(super) fn store(
        &mut self,
        to: SlotAddr,
        from: PReg,
        width: u8,
        demand: &mut ViewSet,
        out: &mut Vec<Op>,
    ) -> Result<()> {
        self.only_general(from)?;
        let natural = self.hints.pop().flatten();
        let end = from.unit + u16::from(width);
        let mut unit = from.unit;
        while unit < end {
            let offset = to.offset + i32::from(unit - from.unit) * self.unit_bytes();
            let slot = SlotAddr { offset, ..to };
            let asked = self.slots.get(slot);
            let fits = |kind: &Kind| {
                let view = self.views.starting(*kind, unit)?;
                (self.views.end(view) <= end && self.is_aligned(slot, *kind)).then_some(view)
            };
            let exact = |kind: &Kind| asked.starts & bit(*kind) != 0;
            let natural = natural
                .filter(|view| view.unit == unit)
                .map(|view| view.kind);
            let order = natural.iter().chain(&Kind::GENERAL);
            let wide = order.filter(|k| exact(k)).find_map(fits);
            let piece = || {
                let only_half = asked.covers == bit(Kind::Half);
                let order = match only_half {
                    true => [Kind::Half, Kind::Word],
                    false => [Kind::Word, Kind::Half],
                };
                (asked.covers != 0)
                    .then(|| order.iter().find_map(fits))
                    .flatten()
            };
            match wide.or_else(piece) {
                Some(view) => {
                    demand.insert(&self.views, view);
                    out.push(Op::Store { slot, view });
                    unit = self.views.end(view);
                }
                None => unit += 1,
            }
        }
        Ok(())
    }

    pub(super) fn reload(
        &mut self,
        to: PReg,
        from: SlotAddr,
        width: u8,
        demand: &mut ViewSet,
        out: &mut Vec<Op>,
    ) -> Result<()> {
        self.only_general(to)?;
        let range = (to.unit, to.unit + u16::from(width));
        let taken = self.take(File::R, &[(to.unit, u16::from(width))], demand)?;
        for view in taken {
            self.loaded(view, range, from, demand, out);
        }
        Ok(())
    }

    /// Loads a view, or those of its parts that lie within the range.
    fn loaded(
        &mut self,
        view: View,
        range: (u16, u16),
        from: SlotAddr,
        demand: &mut ViewSet,
        out: &mut Vec<Op>,
    ) {
        if !self.views.meets(view, range.0, range.1) {
            demand.insert(&self.views, view);
            return;
        }
        let inside = range.0 <= view.unit && self.views.end(view) <= range.1;
        let distance = i32::from(view.unit) - i32::from(range.0);
        let offset = from.offset + distance * self.unit_bytes();
        let slot = SlotAddr { offset, ..from };
        if inside && self.is_aligned(slot, view.kind) {
            let op = Op::Load { view, slot };
            if !out.contains(&op) {
                out.push(op);
            }
            let units = self.views.width(view.kind);
            let bytes = self.unit_bytes();
            self.slots.note(slot, view.kind, units, bytes);
            return;
        }
        for part in self.views.parts(view) {
            self.loaded(part, range, from, demand, out);
        }
        let pack = Op::Convert(Conversion::Pack(view));
        if !out.contains(&pack) {
            out.push(pack);
        }
    }

    fn only_general(&self, reg: PReg) -> Result<()> {
        match reg.file {
            File::R => Ok(()),
            _ => {
                let name = self.target.reg_name(reg);
                Err(NotExpressible(format!(
                    "{name} cannot reach memory directly"
                )))
            }
        }
    }
}
