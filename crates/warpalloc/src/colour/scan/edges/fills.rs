//! The slots of parameters that arrive in memory, filled one after another.
//!
//! All fills of an edge happen at once, but from slot to slot a value passes through a
//! register. A slot is filled once nobody reads it any more. When only cycles are left, one of
//! their values waits in a second register. Where too few registers are free, others go to
//! memory until all slots are filled.

use super::super::code::Edge;
use super::super::fragments::Assigned;
use super::super::spill::Plan;
use super::super::stores::class;
use super::{Connector, Fetches, Source, fetch};
use crate::allocation::{Edit, SlotAddr};
use crate::target::{File, PReg};
use smallvec::SmallVec;

/// The slot of a parameter that arrives in memory, and what goes there.
#[derive(Clone, Copy)]
struct Fill {
    param: u32,
    to: SlotAddr,
    source: Source,
}

/// The fills of one edge while they are put in sequence.
struct Sequence<'a> {
    edge: &'a Edge,
    assigned: &'a Assigned,
    /// Registers that were free and have been loaded ahead of fills.
    held: SmallVec<[(PReg, usize); 4]>,
    /// Values that are in memory until all slots are filled: where they were, and are, unless
    /// nothing reads them any more.
    displaced: SmallVec<[(u32, PReg, Option<SlotAddr>); 4]>,
    /// The slots that are filled.
    overwritten: SmallVec<[SlotAddr; 4]>,
    /// Slots that were taken for the time.
    shadows: usize,
}

/// Whether a slot is read for two of them, one of which is a fill.
fn reads_twice(fills: &[Fill], fetches: &Fetches) -> bool {
    let mut rest = fills;
    while let [fill, others @ ..] = rest {
        rest = others;
        let mut sources = others.iter().map(|f| f.source);
        let mut fetched = fetches.iter().map(|f| f.1);
        let is_slot = matches!(fill.source, Source::Slot(_));
        if is_slot && (sources.any(|s| s == fill.source) || fetched.any(|s| s == fill.source)) {
            return true;
        }
    }
    false
}

impl Sequence<'_> {
    fn is_held(&self, register: PReg, width: usize) -> bool {
        let [start, end] = [register.unit as usize, register.unit as usize + width];
        self.held.iter().any(|&(held, width)| {
            let at = held.unit as usize;
            held.file == register.file && at < end && start < at + width
        })
    }
}

impl Connector<'_> {
    /// Fills the slots of parameters that arrive in memory.
    pub(super) fn parameters_in_memory(
        &mut self,
        plan: &Plan,
        edge: &Edge,
        assigned: &Assigned,
        fetches: &mut Fetches,
        out: &mut Vec<Edit>,
    ) {
        let code = self.code;
        let in_memory = plan.in_memory.of(edge.to);
        let mut fills: SmallVec<[Fill; 4]> = SmallVec::new();
        for &(param, arg) in code.pairs(edge) {
            let Some(to) = self
                .stores
                .slot(param)
                .filter(|_| in_memory.contains(&param))
            else {
                continue;
            };
            let slot = self.stores.slot(arg);
            let clean = self.stores.at_definition(arg) || self.exits.is_clean(arg);
            match self.source(arg) {
                Some(Source::Slot(from)) if from == to => {}
                // The argument is in memory already, and in the right place.
                Some(Source::Register(_)) if slot == Some(to) && clean => {}
                Some(source) => fills.push(Fill { param, to, source }),
                None => {}
            }
        }
        self.has_detours |= reads_twice(&fills, fetches);
        let mut sequence = Sequence {
            edge,
            assigned,
            held: SmallVec::new(),
            displaced: SmallVec::new(),
            overwritten: fills.iter().map(|f| f.to).collect(),
            shadows: 0,
        };
        self.read_ahead(&mut sequence, &mut fills, fetches, out);
        while !fills.is_empty() {
            let is_read = |slot: SlotAddr| fills.iter().any(|f| f.source.is_slot(slot));
            match fills.iter().position(|f| !is_read(f.to)) {
                Some(ready) => {
                    let fill = fills.remove(ready);
                    self.fill(&mut sequence, fill, &mut fills, out);
                    if let Source::Register(register) = fill.source
                        && fills.iter().all(|f| f.source != fill.source)
                    {
                        sequence.held.retain(|held| held.0 != register);
                    }
                }
                None => self.open_cycle(&mut sequence, &mut fills, out),
            }
        }
        self.has_detours |= !sequence.displaced.is_empty();
        for (value, to, from) in sequence.displaced {
            let width = code.shape(value).width as u8;
            out.extend(from.map(|from| Edit::Reload { to, from, width }));
        }
    }

    /// Reads slots that fills overwrite for registers: into them, where they are free before
    /// the registers move and others are too, else into other slots.
    fn read_ahead(
        &mut self,
        sequence: &mut Sequence,
        fills: &mut [Fill],
        fetches: &mut Fetches,
        out: &mut Vec<Edit>,
    ) {
        let mut at = 0;
        while at < fetches.len() {
            let (to, source, width) = fetches[at];
            let Some(&fill) = fills.iter().find(|f| source.is_slot(f.to)) else {
                at += 1;
                continue;
            };
            if self.is_free(sequence, to, width) && self.free(sequence, fill.param, 2).len() == 2 {
                fetch(self.code, to, source, width, out);
                sequence.held.push((to, width));
                fetches.remove(at);
                continue;
            }
            let shadow = self.copy_to_shadow(sequence, fills, Fill { source, ..fill }, out);
            for fetch in fetches.iter_mut().filter(|f| f.1 == source) {
                fetch.1 = shadow;
            }
        }
    }

    /// Only cycles of slots are left: reads what one of them holds ahead of everything, into a
    /// register beside the one that the other slots pass through.
    fn open_cycle(&mut self, sequence: &mut Sequence, fills: &mut [Fill], out: &mut Vec<Edit>) {
        let Fill { param, source, .. } = fills[0];
        let width = self.code.shape(param).width;
        let aside = match self.free_registers(sequence, fills, param, 2, out)[..] {
            [register, _, ..] => {
                fetch(self.code, register, source, width, out);
                sequence.held.push((register, width));
                Source::Register(register)
            }
            _ => self.copy_to_shadow(sequence, fills, fills[0], out),
        };
        for fill in fills.iter_mut().filter(|f| f.source == source) {
            fill.source = aside;
        }
    }

    /// Copies what a fill reads to a slot of its own.
    fn copy_to_shadow(
        &mut self,
        sequence: &mut Sequence,
        fills: &mut [Fill],
        mut fill: Fill,
        out: &mut Vec<Edit>,
    ) -> Source {
        let bytes = self.code.target.spill_bytes(class(self.code, fill.param));
        fill.to = self.stores.shadow(bytes, sequence.shadows);
        sequence.shadows += 1;
        self.fill(sequence, fill, fills, out);
        Source::Slot(fill.to)
    }

    /// Fills a slot, through a register if need be; `fills` are those that follow.
    fn fill(
        &mut self,
        sequence: &mut Sequence,
        fill: Fill,
        fills: &mut [Fill],
        out: &mut Vec<Edit>,
    ) {
        let Fill { param, to, source } = fill;
        let width = self.code.shape(param).width;
        let from = match source {
            Source::Register(register) => register,
            source => {
                let free = self.free_registers(sequence, fills, param, 1, out);
                let Some(&register) = free.first() else {
                    return;
                };
                fetch(self.code, register, source, width, out);
                register
            }
        };
        let width = width as u8;
        out.push(Edit::Store { to, from, width });
    }

    /// As many registers of the class of `value`, if they can be had, that hold nothing before
    /// the registers move: other values go to memory until all slots are filled.
    fn free_registers(
        &mut self,
        sequence: &mut Sequence,
        fills: &mut [Fill],
        value: u32,
        count: usize,
        out: &mut Vec<Edit>,
    ) -> SmallVec<[PReg; 2]> {
        let width = self.code.shape(value).width;
        loop {
            let free = self.free(sequence, value, count);
            if free.len() == count {
                return free;
            }
            let accesses = |register: PReg| {
                let values = self.in_the_way(sequence, register, width);
                let accesses = values.map(|(v, _)| match self.kept_in(sequence, v) {
                    Some(_) => 1,
                    None => 2,
                });
                accesses.sum::<u32>()
            };
            let open = self.open_registers(sequence, value);
            let taken = open.filter(|register| !free.contains(register));
            let Some(register) = taken.min_by_key(|&register| accesses(register)) else {
                return free;
            };
            self.displace(sequence, fills, register, width, out);
        }
    }

    /// So many registers of the class of `value`, if there are, that hold nothing before the
    /// registers move.
    fn free(&self, sequence: &Sequence, value: u32, count: usize) -> SmallVec<[PReg; 2]> {
        let width = self.code.shape(value).width;
        let open = self.open_registers(sequence, value);
        let free = open.filter(|&register| self.is_free(sequence, register, width));
        free.take(count).collect()
    }

    fn is_free(&self, sequence: &Sequence, register: PReg, width: usize) -> bool {
        self.in_the_way(sequence, register, width).next().is_none()
    }

    /// The slot that holds what `value` has in a register, if no fill overwrites it.
    fn kept_in(&self, sequence: &Sequence, value: u32) -> Option<SlotAddr> {
        let is_clean = self.stores.at_definition(value) || self.exits.is_clean(value);
        let slot = self.stores.slot(value).filter(|_| is_clean);
        slot.filter(|slot| !sequence.overwritten.contains(slot))
    }

    /// Keeps what is in a register in memory until all slots are filled.
    fn displace(
        &mut self,
        sequence: &mut Sequence,
        fills: &mut [Fill],
        register: PReg,
        width: usize,
        out: &mut Vec<Edit>,
    ) {
        let values: SmallVec<[(u32, u32); 4]> =
            self.in_the_way(sequence, register, width).collect();
        for (value, fragment) in values {
            let from = self.register(value, sequence.assigned.unit(fragment));
            let is_filled = fills.iter().any(|f| f.source == Source::Register(from));
            if !is_filled && !self.is_passed_on(value, sequence.edge) {
                sequence.displaced.push((value, from, None));
                continue;
            }
            let slot = self.kept_in(sequence, value).unwrap_or_else(|| {
                let bytes = self.code.target.spill_bytes(class(self.code, value));
                let to = self.stores.shadow(bytes, sequence.shadows);
                sequence.shadows += 1;
                let width = self.code.shape(value).width as u8;
                out.push(Edit::Store { to, from, width });
                to
            });
            for fill in fills.iter_mut() {
                if fill.source == Source::Register(from) {
                    fill.source = Source::Slot(slot);
                }
            }
            sequence.displaced.push((value, from, Some(slot)));
        }
    }

    /// The values that are in a register before the registers move.
    fn in_the_way<'s>(
        &self,
        sequence: &'s Sequence,
        register: PReg,
        width: usize,
    ) -> impl Iterator<Item = (u32, u32)> + use<'s, '_> {
        let code = self.code;
        let start = register.unit as usize;
        let exit = sequence.assigned.exit.of(sequence.edge.from).iter();
        exit.copied().filter(move |&(value, fragment)| {
            let shape = code.shape(value);
            let at = sequence.assigned.unit(fragment) as usize;
            shape.file == register.file.index()
                && at < start + width
                && start < at + shape.width
                && sequence.displaced.iter().all(|d| d.0 != value)
        })
    }

    /// Registers of the class of `value` that may be used for the time.
    fn open_registers<'s>(
        &self,
        sequence: &'s Sequence,
        value: u32,
    ) -> impl Iterator<Item = PReg> + use<'s, '_> {
        let code = self.code;
        let shape = code.shape(value);
        let file = File::new(shape.file);
        let last = code.units(shape.file).saturating_sub(shape.width);
        let registers = (0..=last).step_by(shape.align);
        let registers = registers.map(move |start| PReg::new(file, start));
        registers.filter(move |&register| {
            let pinned = code.pinned_units();
            !pinned.overlaps(code.target, register, shape.width)
                && !sequence.is_held(register, shape.width)
        })
    }
}
