//! Steps that need others out of the way.
//!
//! Around one step, everything in registers is an [`Item`]: a link with its seats, a value
//! that is read, one that is written, one that only lives through. An item takes units while
//! inputs are read, once results are written, or both; two items may overlap where they take
//! units at different times. Links go first, each where the fewest units have to move; then
//! every value that can stay does, and the others go wherever there is room. If that fails,
//! everything is packed anew, largest alignment first. A parallel copy before the step then
//! brings each value to its place, and what comes from memory comes straight there.

use super::assign::Assigner;
use super::code::{Access, FILES, Shape, Step};
use super::demand::is_shared;
use super::items::{Item, Items, What};
use super::pins::pinned_register;
use crate::function::{Block, Role};
use crate::ir::{Link, Op, Value};
use crate::target::{File, PReg, UnitSet};
use smallvec::SmallVec;
use std::cmp::Reverse;

/// A seat of a link, as far as its place matters.
struct Lane {
    offset: usize,
    width: usize,
    /// Where the value that goes there is now.
    now: Option<usize>,
    /// Where the value that comes from there would like to be.
    hints: [Option<usize>; 3],
}

/// Units that are taken, while inputs are read and once results are written.
struct Taken<const W: usize> {
    before: [UnitSet<W>; FILES],
    after: [UnitSet<W>; FILES],
}

impl<const W: usize> Taken<W> {
    fn new() -> Taken<W> {
        Taken {
            before: [UnitSet::EMPTY; FILES],
            after: [UnitSet::EMPTY; FILES],
        }
    }

    /// Units that `item` may not have.
    fn closed_to(&self, item: &Item<W>) -> UnitSet<W> {
        let file = item.shape.file;
        let mut closed = item.forbidden;
        if item.before {
            closed.add(&self.before[file]);
        }
        if item.after {
            closed.add(&self.after[file]);
        }
        closed
    }

    fn take(&mut self, item: &Item<W>, start: usize) {
        let file = item.shape.file;
        for unit in start..start + item.shape.width {
            if item.before {
                self.before[file].insert(unit);
            }
            if item.after {
                self.after[file].insert(unit);
            }
        }
    }
}

impl<'a, const W: usize> Assigner<'a, W> {
    /// Seats a step, moving what is in the way; fails with its number if nothing helps.
    pub(super) fn arrange(
        &mut self,
        block: Block,
        number: usize,
        step: Step,
        accesses: &[Access],
        reloads: &[u32],
        released: &[u32],
    ) -> Result<(), usize> {
        let mut items = self.items(block, step, accesses, reloads, released);
        if !self.place_near(block, step, &mut items) && !self.pack_all(&mut items) {
            return Err(number);
        }
        self.freeze();
        self.bring(block, step, &items, reloads);
        self.write_down(block, step, &items);
        self.settle_all(block, step, accesses, &items);
        self.freeze();
        Ok(())
    }

    /// Places links where the fewest units have to move and lets values stay that can.
    fn place_near(&mut self, block: Block, step: Step, items: &mut Items<'a, W>) -> bool {
        let mut taken = Taken::new();
        let mut order: SmallVec<[usize; 8]> = (0..items.len())
            .filter(|&at| matches!(items[at].what, What::Link(_)))
            .collect();
        order.sort_by_key(|&at| (items[at].fixed.is_none(), Reverse(items[at].shape.width)));
        while let Some(at) = self.next_to_place(&mut order, items, &taken) {
            let Some(start) = self.best_start(block, step, &items[at], items, &taken) else {
                return false;
            };
            taken.take(&items[at], start);
            items[at].place = Some(start);
        }
        for item in items.iter_mut() {
            let Some(now) = item.now else { continue };
            let closed = taken.closed_to(item);
            if (now..now + item.shape.width).all(|unit| !closed.contains(unit)) {
                taken.take(item, now);
                item.place = Some(now);
            }
        }
        let mut rest: SmallVec<[usize; 8]> = (0..items.len())
            .filter(|&at| items[at].place.is_none())
            .collect();
        let size = |items: &Items<'a, W>, at: usize| {
            let item = &items[at];
            let both = item.before && item.after;
            (item.shape.align, item.shape.width, both)
        };
        rest.sort_by_key(|&at| size(items, at));
        while let Some(at) = rest.pop() {
            let closed = taken.closed_to(&items[at]);
            let starts = self.open_starts(items[at].shape, &closed);
            let hints = match items[at].what {
                What::Old(value) | What::New(value) => self.hints(value),
                What::Link(_) => [None; 3],
            };
            let mut hints = hints.into_iter().flatten();
            let hinted = hints.find(|&unit| starts.contains(unit));
            let Some(start) = hinted.or_else(|| starts.lowest()) else {
                let Some((start, displaced)) = self.cheapest_window(items, at) else {
                    return false;
                };
                for &other in &displaced {
                    items[other].place = None;
                }
                items[at].place = Some(start);
                rest.extend(displaced);
                rest.sort_by_key(|&at| size(items, at));
                taken = Taken::new();
                for item in items.iter() {
                    if let Some(place) = item.place {
                        taken.take(item, place);
                    }
                }
                continue;
            };
            taken.take(&items[at], start);
            items[at].place = Some(start);
        }
        true
    }

    /// Where an item that finds no room displaces the fewest units, and whom: only items
    /// that are smaller, so that the search ends.
    fn cheapest_window(
        &self,
        items: &Items<'a, W>,
        at: usize,
    ) -> Option<(usize, SmallVec<[usize; 8]>)> {
        let item = &items[at];
        let shape = item.shape;
        let is_smaller = |other: Shape| (other.align, other.width) < (shape.align, shape.width);
        // What each unit costs, and who is there.
        let mut cost = [0u16; 512];
        let mut owners: [[Option<u16>; 2]; 512] = [[None; 2]; 512];
        const NEVER_MOVES: u16 = 1000;
        for (number, other) in items.iter().enumerate() {
            let times = [item.before && other.before, item.after && other.after];
            let (Some(place), true) = (other.place, times.contains(&true)) else {
                continue;
            };
            if other.shape.file != shape.file {
                continue;
            }
            let movable = !matches!(other.what, What::Link(_)) && is_smaller(other.shape);
            for unit in place..place + other.shape.width {
                cost[unit] += if movable { 1 } else { NEVER_MOVES };
                let free = owners[unit].iter_mut().find(|owner| owner.is_none());
                if let Some(owner) = free {
                    *owner = Some(number as u16);
                }
            }
        }
        let starts = self.open_starts(shape, &item.forbidden);
        let total = |start: &usize| -> u32 {
            let units = &cost[*start..*start + shape.width];
            units.iter().map(|&c| u32::from(c)).sum()
        };
        let start = starts.iter().min_by_key(total)?;
        if total(&start) >= u32::from(NEVER_MOVES) {
            return None;
        }
        let mut displaced: SmallVec<[usize; 8]> = SmallVec::new();
        let owners = owners[start..start + shape.width].as_flattened().iter();
        for owner in owners.flatten().map(|&owner| usize::from(owner)) {
            if !displaced.contains(&owner) {
                displaced.push(owner);
            }
        }
        Some((start, displaced))
    }

    /// Places everything anew, largest alignment first.
    fn pack_all(&self, items: &mut Items<'a, W>) -> bool {
        let mut taken = Taken::new();
        let mut order: SmallVec<[usize; 32]> = (0..items.len()).collect();
        order.sort_by_key(|&at| {
            let item = &items[at];
            (
                item.fixed.is_none(),
                Reverse(item.shape.align),
                Reverse(item.shape.width),
                Reverse(item.before && item.after),
                item.forbidden == UnitSet::EMPTY,
            )
        });
        while let Some(at) = self.next_to_place(&mut order, items, &taken) {
            let item = &items[at];
            let closed = taken.closed_to(item);
            let start = match (item.what, item.fixed) {
                (What::Link(link), fixed) => {
                    let starts = self.open_starts(item.shape, &closed);
                    let fits = |start: &usize| self.link_fits(link, *start, &closed);
                    match fixed {
                        Some(start) => Some(start).filter(fits),
                        None => starts.iter().find(fits),
                    }
                }
                _ => self.open_starts(item.shape, &closed).lowest(),
            };
            let Some(start) = start else {
                return false;
            };
            taken.take(&items[at], start);
            items[at].place = Some(start);
        }
        true
    }

    /// Takes the item to place next out of `order`: the first, unless registers are excluded.
    /// Then a link in a fixed register or else the one with the fewest starts left goes first,
    /// lest another take its last.
    fn next_to_place<A: smallvec::Array<Item = usize>>(
        &self,
        order: &mut SmallVec<A>,
        items: &Items<'a, W>,
        taken: &Taken<W>,
    ) -> Option<usize> {
        let excludes = |&at: &usize| match items[at].what {
            What::Link(link) => {
                let values = &self.code.program.values;
                let mut seats = link.members.iter().map(|m| &values[m.0]);
                seats.any(|seat| seat.forbidden.is_some())
            }
            _ => false,
        };
        let mut next = 0;
        if order.len() > 1 && order.iter().any(excludes) {
            let starts = |at: usize| match (items[at].what, items[at].fixed) {
                (What::Link(_), Some(_)) => Some(0),
                (What::Link(link), None) => {
                    let closed = taken.closed_to(&items[at]);
                    let starts = self.open_starts(items[at].shape, &closed);
                    let open = starts.iter().filter(|&s| self.link_fits(link, s, &closed));
                    Some(open.count())
                }
                _ => None,
            };
            let links = order.iter().enumerate();
            let links = links.filter_map(|(n, &at)| Some((starts(at)?, n)));
            next = links.min().map_or(0, |(_, n)| n);
        }
        (next < order.len()).then(|| order.remove(next))
    }

    fn open_starts(&self, shape: Shape, closed: &UnitSet<W>) -> UnitSet<W> {
        let units = self.code.units(shape.file);
        let within = UnitSet::first((units + 1).saturating_sub(shape.width));
        let aligned = UnitSet::multiples_of(shape.align).and(&within);
        let mut closed = *closed;
        closed.add(&UnitSet::first(units).without(&self.whole[shape.file]));
        aligned.without(&closed.blocked_starts(shape.width))
    }

    /// Whether each seat of a link that starts at `start` may be where it then is.
    fn link_fits(&self, link: &Link, start: usize, closed: &UnitSet<W>) -> bool {
        let code = self.code;
        link.members.iter().all(|&(seat, offset)| {
            let shape = code.shape(seat.as_u32());
            let at = start + offset as usize;
            let units = at..at + shape.width;
            let info = &code.program.values[seat];
            let forbidden = info.forbidden.as_ref().is_some_and(|set| {
                let register = PReg::new(File::new(shape.file), at);
                set.overlaps(code.target, register, shape.width)
            });
            at.is_multiple_of(shape.align)
                && units.end <= code.units(shape.file)
                && units.clone().all(|unit| !closed.contains(unit))
                && !forbidden
        })
    }

    /// The start of a link that moves the fewest units.
    fn best_start(
        &mut self,
        block: Block,
        step: Step,
        item: &Item<'a, W>,
        items: &Items<'a, W>,
        taken: &Taken<W>,
    ) -> Option<usize> {
        let What::Link(link) = item.what else {
            return None;
        };
        let closed = taken.closed_to(item);
        if let Some(start) = item.fixed {
            return Some(start).filter(|&start| self.link_fits(link, start, &closed));
        }
        // Units of values that would have to move, where they and the link overlap in time.
        let mut busy = [0u8; 512];
        for other in items.iter().filter(|o| o.shape.file == item.shape.file) {
            let overlaps = other.before && item.before || other.after && item.after;
            if let (Some(now), true) = (other.now, overlaps) {
                busy[now..now + other.shape.width].fill(1);
            }
        }
        let mut members: SmallVec<[Lane; 8]> = SmallVec::new();
        for &(seat, offset) in &link.members {
            let seated = self.code.seated(block, step).iter().find(|s| s.0 == seat);
            let now = seated.filter(|s| self.is_held(s.1.as_u32()));
            let now = now.map(|s| self.at[s.1.as_u32() as usize] as usize);
            let unseated = self.code.unseated(block, step).iter().find(|s| s.1 == seat);
            let hints = match unseated.or(seated.filter(|_| now.is_none())) {
                Some(&(a, b)) => {
                    let real = if unseated.is_some() { a } else { b };
                    self.hints(real.as_u32())
                }
                None => [None; 3],
            };
            let width = self.code.shape(seat.as_u32()).width;
            members.push(Lane {
                offset: offset as usize,
                width,
                now,
                hints,
            });
        }
        let mut best: Option<(i32, usize)> = None;
        let starts = self.open_starts(item.shape, &closed);
        for start in starts.iter() {
            let mut cost = 0;
            for &Lane {
                offset,
                width,
                now,
                hints,
            } in &members
            {
                let at = start + offset;
                let wide = 4 * width as i32;
                match now {
                    Some(now) if now == at => cost -= wide,
                    _ => {
                        let evicts = busy[at..(at + width).min(512)].iter();
                        cost += 4 * evicts.map(|&b| i32::from(b)).sum::<i32>();
                    }
                }
                let is_hinted = hints.contains(&Some(at));
                let met = hints.iter().filter(|&&hint| hint == Some(at)).count();
                cost -= met as i32;
                let reserved = &self.reserved[item.shape.file];
                cost += i32::from(!is_hinted && (at..at + width).any(|u| reserved.contains(u)));
            }
            if best.is_none_or(|(least, _)| cost < least) && self.link_fits(link, start, &closed) {
                best = Some((cost, start));
            }
        }
        best.map(|(_, start)| start)
    }

    /// Emits the code that brings everything to its place before the step.
    fn bring(&mut self, block: Block, step: Step, items: &Items<'a, W>, reloads: &[u32]) {
        let code = self.code;
        let register = |file: usize, unit: usize| PReg::new(File::new(file), unit);
        let mut moves: SmallVec<[(PReg, PReg, usize); 8]> = SmallVec::new();
        let mut fetched: SmallVec<[(u32, usize); 8]> = SmallVec::new();
        for item in items {
            match (item.what, item.place, item.now) {
                (What::Old(_), Some(place), Some(now)) if place != now => {
                    let (to, from) = (
                        register(item.shape.file, place),
                        register(item.shape.file, now),
                    );
                    moves.push((to, from, item.shape.width));
                }
                (What::Old(value), Some(place), None) => fetched.push((value, place)),
                (What::Link(link), Some(place), _) => {
                    for &(seat, real) in code.seated(block, step) {
                        let Some(member) = link.members.iter().find(|m| m.0 == seat) else {
                            continue;
                        };
                        let (real, at) = (real.as_u32(), place + member.1 as usize);
                        if reloads.contains(&real) {
                            fetched.push((real, at));
                            continue;
                        }
                        let from = self.at[real as usize] as usize;
                        if from != at {
                            let shape = code.shape(real);
                            let (to, from) = (register(shape.file, at), register(shape.file, from));
                            moves.push((to, from, shape.width));
                        }
                    }
                }
                _ => {}
            }
        }
        self.move_all(&moves);
        for (value, unit) in fetched {
            self.reload(value, unit, None);
        }
    }

    /// Writes down the registers of the step.
    fn write_down(&mut self, block: Block, step: Step, items: &Items<'a, W>) {
        let code = self.code;
        let find = |value: u32, writes: bool| {
            if let Some(register) = pinned_register(code, value) {
                return register;
            }
            let found = items.iter().find_map(|item| match item.what {
                What::Old(v) if v == value && !writes => item.place,
                What::New(v) if v == value && writes => item.place,
                What::Link(link) => {
                    let member = link.members.iter().find(|m| m.0.as_u32() == value)?;
                    Some(item.place? + member.1 as usize)
                }
                _ => None,
            });
            let file = File::new(code.shape(value).file);
            PReg::new(file, found.unwrap_or(0))
        };
        if let Some(inst) = step.inst() {
            let range = code.function.operand_range(inst);
            let operands = code.function.operands(inst);
            for (at, operand) in operands.iter().enumerate() {
                let value = match code.op(block, step) {
                    Some(Op::Inst { values, .. }) => values[at].as_u32(),
                    _ => operand.vreg.as_u32(),
                };
                let writes = matches!(operand.role, Role::Def | Role::EarlyDef);
                self.out.registers[range.start + at] = find(value, writes);
            }
            self.finish_inst(step, inst);
            return;
        }
        match code.op(block, step) {
            Some(Op::Copies(pairs)) => {
                let side = |v: Value, writes| find(v.as_u32(), writes);
                let moves: SmallVec<[_; 4]> = pairs
                    .iter()
                    .map(|&(to, from)| {
                        let width = code.shape(to.as_u32()).width;
                        (side(to, true), side(from, false), width)
                    })
                    .collect();
                self.move_all(&moves);
            }
            Some(Op::Transfer { to, from }) => {
                let (to, from) = (to.as_u32(), from.as_u32());
                let edit = self.transfer(find(to, true), find(from, false), from);
                self.waiting.push(edit);
            }
            _ => {}
        }
    }

    /// Makes the places once the results are written those of the values.
    fn settle_all(&mut self, block: Block, step: Step, accesses: &[Access], items: &Items<'a, W>) {
        let code = self.code;
        self.clear();
        for item in items.iter().filter(|item| item.after) {
            let Some(place) = item.place else { continue };
            match item.what {
                What::Old(value) | What::New(value) => self.settle(value, place),
                What::Link(link) => {
                    let offset = |seat: Value| {
                        let member = link.members.iter().find(|m| m.0 == seat);
                        member.map(|m| place + m.1 as usize)
                    };
                    for &(real, seat) in code.unseated(block, step) {
                        if let Some(at) = offset(seat) {
                            self.settle(real.as_u32(), at);
                        }
                    }
                    for &(seat, real) in code.seated(block, step) {
                        let (seat_value, value) = (seat.as_u32(), real.as_u32());
                        if let Some(at) = offset(seat)
                            && is_shared(code, block, step, seat_value, value)
                            && self.is_absorbed_survivor(block, step, accesses, value, items)
                        {
                            self.settle(value, at);
                        }
                    }
                }
            }
        }
    }

    /// Whether a seated value lives on in its seat: it is in no item of its own and still
    /// read.
    fn is_absorbed_survivor(
        &self,
        block: Block,
        step: Step,
        accesses: &[Access],
        value: u32,
        items: &Items<'a, W>,
    ) -> bool {
        let code = self.code;
        let own = |item: &Item<W>| matches!(item.what, What::Old(v) | What::New(v) if v == value);
        let unseated = code
            .unseated(block, step)
            .iter()
            .any(|u| u.0.as_u32() == value);
        let reads = |a: &&Access| a.value == value && a.role.reads();
        let is_read = accesses.iter().find(reads).is_some_and(|a| a.lives);
        !items.iter().any(own) && !unseated && is_read
    }
}
