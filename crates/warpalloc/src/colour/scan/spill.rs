//! What is in registers where: spilling by next use.
//!
//! The algorithm of M. Braun and S. Hack ("Register Spilling and Live-Range Splitting for
//! SSA-Form Programs", CC 2009). A walk over the blocks in reverse post-order keeps `W`, the
//! values in registers. A step that reads a value outside `W` reloads it; where a step needs
//! more than there is, the value whose next use is furthest leaves. What a block begins with
//! is chosen from what its predecessors end with ([`super::entry`]); whatever differs is
//! reloaded or stored on the edges.
//!
//! Values need not be in SSA form: `W` and the set of values whose slot is current are kept
//! by program point, and a definition makes the slot stale.

use super::code::{Access, Code, FILES, NONE};
use super::demand::{ALL, Excess, Load, Rooms, demand, each_of};
use super::entry::EntrySets;
use super::next_use::NextUse;
use super::pressure::Pressure;
use super::remat::Remat;
use crate::analysis::{NEVER, NextUseSolver};
use crate::function::{Block, Role};
use crate::ir::Value;
use cranelift_entity::EntityRef;
use smallvec::SmallVec;
use std::ops::Range;

/// A few values.
type Values = SmallVec<[u32; 4]>;

/// What happens to a value before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// It leaves its register.
    Evict,
    /// It leaves its register once the step has read it.
    Release,
    /// It comes back.
    Reload,
}

/// A value leaves its register or comes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub step: u32,
    pub value: u32,
    pub kind: EventKind,
    /// Its slot is not current when it leaves.
    pub stores: bool,
}

/// A value in a register where blocks meet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resident {
    pub value: u32,
    /// Its slot holds the same.
    pub clean: bool,
}

/// Lists of one item type, one per block.
#[derive(Clone, Debug)]
pub(super) struct Lists<T> {
    items: Vec<T>,
    ranges: Vec<Range<u32>>,
}

impl<T> Lists<T> {
    pub fn new(blocks: usize) -> Lists<T> {
        Lists {
            items: Vec::new(),
            ranges: vec![0..0; blocks],
        }
    }

    /// No lists yet, with room for `items` in all.
    pub fn with_capacity(blocks: usize, items: usize) -> Lists<T> {
        Lists {
            items: Vec::with_capacity(items),
            ..Lists::new(blocks)
        }
    }

    /// How many items all lists have together.
    pub fn len(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    pub fn of(&self, block: Block) -> &[T] {
        &self.items[self.range(block)]
    }

    fn range(&self, block: Block) -> Range<usize> {
        let range = &self.ranges[block.index()];
        range.start as usize..range.end as usize
    }

    /// Adds the list of `block`.
    pub fn add(&mut self, block: Block, items: impl Iterator<Item = T>) {
        let start = self.items.len() as u32;
        self.items.extend(items);
        self.ranges[block.index()] = start..self.items.len() as u32;
    }

    /// Adds the list of `block`, which is known as a whole.
    pub fn add_slice(&mut self, block: Block, items: &[T])
    where
        T: Copy,
    {
        let start = self.items.len() as u32;
        self.items.extend_from_slice(items);
        self.ranges[block.index()] = start..self.items.len() as u32;
    }
}

/// Which values are in registers where.
pub(super) struct Plan {
    /// In registers at the start of each block.
    pub entry: Lists<Resident>,
    /// Live at the start of each block, but in memory only.
    pub in_memory: Lists<u32>,
    /// In registers at the end of each block.
    pub exit: Lists<Resident>,
    pub events: Lists<Event>,
    pub remat: Remat,
}

/// Decides what is in registers where; the number of a step whose own operands are more than
/// there is, if one is.
pub(super) fn spill(
    code: &Code,
    rooms: &Rooms,
    pressure: &Pressure,
    tight: &[u8],
) -> Result<Plan, usize> {
    let mut distances = NextUseSolver::solve(code, &code.order, &code.loops, code.liveness());
    let mut exit = Vec::new();
    let blocks = code.block_count();
    let mut spiller = Spiller {
        code,
        rooms,
        tight,
        next: NextUse::new(code),
        in_registers: Vec::new(),
        place: vec![NONE; code.value_count()],
        clean: vec![false; code.value_count()],
        untouched: vec![false; code.value_count()],
        dropped: Vec::new(),
        frequency: 0.0,
        load: Load::default(),
        events: Vec::new(),
        plan: Plan {
            entry: Lists::new(blocks),
            in_memory: Lists::new(blocks),
            exit: Lists::new(blocks),
            events: Lists::new(blocks),
            remat: Remat::find(code),
        },
    };
    let mut entries = EntrySets::new(code, pressure);
    for &block in code.order.all() {
        distances.fill_exit(block, code.liveness(), &mut exit);
        spiller.enter(block, &exit);
        entries.choose(code, rooms, block, &spiller.next, &mut spiller.plan);
        if code.edges()[code.outgoing(block)]
            .iter()
            .any(|e| e.to == block)
        {
            spiller.next.turn_back(code, block);
            spiller.enter(block, &exit);
        }
        spiller.block(block)?;
    }
    Ok(spiller.plan)
}

struct Spiller<'a> {
    code: &'a Code<'a>,
    rooms: &'a Rooms,
    tight: &'a [u8],
    next: NextUse,
    /// `W`, and the place of each value in it.
    in_registers: Vec<u32>,
    place: Vec<u32>,
    /// Whose slot is current.
    clean: Vec<bool>,
    /// Which of the values in registers the block has neither read nor written.
    untouched: Vec<bool>,
    /// Values that left before the block touched them.
    dropped: Vec<u32>,
    /// How often the block at hand runs.
    frequency: f32,
    load: Load,
    events: Vec<Event>,
    plan: Plan,
}

impl Spiller<'_> {
    /// Looks ahead from the start of `block`. What a back edge passes to a parameter that is in
    /// a register is needed in one at the edge, wherever the parameter is read. Other arguments
    /// count as twice as near as the parameter's use, because the slot of the parameter is
    /// stored to if they are outside registers.
    fn enter(&mut self, block: Block, exit: &[(Value, u32)]) {
        let code = self.code;
        let mut passed: SmallVec<[(u32, bool); 16]> = SmallVec::new();
        for edge in &code.edges()[code.outgoing(block)] {
            let entry = self.plan.entry.of(edge.to);
            let is_resident = |param: u32| entry.iter().any(|r| r.value == param);
            let pairs = code.pairs(edge).iter();
            passed.extend(pairs.map(|&(param, arg)| (arg, !is_resident(param))));
        }
        passed.sort_unstable();
        passed.dedup_by_key(|p| p.0);
        let ahead = exit.iter().map(|&(value, distance)| {
            let value = value.as_u32();
            let at = passed.binary_search_by_key(&value, |p| p.0);
            let distance = match at.map(|at| passed[at].1) {
                Ok(false) => 0,
                Ok(true) => distance / 2,
                Err(_) => distance,
            };
            (value, distance)
        });
        self.next.enter(code, block, ahead);
    }

    fn block(&mut self, block: Block) -> Result<(), usize> {
        let code = self.code;
        for &value in &self.in_registers {
            self.place[value as usize] = NONE;
        }
        self.in_registers.clear();
        self.load = Load::default();
        self.frequency = code.frequencies.block(block) as f32;
        // What comes before the code of a block on an edge has no place of its own.
        let has_place = code.program.blocks[block].edge.is_none();
        for at in self.plan.entry.range(block) {
            let Resident { value, clean } = self.plan.entry.items[at];
            self.insert(value);
            self.clean[value as usize] = clean;
            self.untouched[value as usize] = has_place;
        }
        for &value in self.plan.in_memory.of(block) {
            self.clean[value as usize] = true;
        }
        for number in code.steps(block) {
            let accesses = code.accesses(number);
            self.step(block, number, accesses)?;
        }
        self.drop_untouched(block);
        self.plan.events.add_slice(block, &self.events);
        self.events.clear();
        let (next, clean) = (&self.next, &self.clean);
        let live = self.in_registers.iter().filter(|&&v| next.of(v) != NEVER);
        let residents = live.map(|&value| Resident {
            value,
            clean: clean[value as usize],
        });
        self.plan.exit.add(block, residents);
        self.next.leave();
        Ok(())
    }

    /// Values that left before the block touched them need not have been in registers when it
    /// was entered.
    fn drop_untouched(&mut self, block: Block) {
        if self.dropped.is_empty() {
            return;
        }
        self.dropped.sort_unstable();
        let entry = self.plan.entry.of(block).to_vec();
        let stays = |r: &Resident| self.dropped.binary_search(&r.value).is_err();
        self.plan.entry.add(block, entry.into_iter().filter(stays));
        let mut in_memory = self.plan.in_memory.of(block).to_vec();
        in_memory.append(&mut self.dropped);
        self.plan.in_memory.add(block, in_memory.into_iter());
    }

    fn step(&mut self, block: Block, number: usize, accesses: &[Access]) -> Result<(), usize> {
        let code = self.code;
        let step = code.step(number);
        let tight = self.tight.get(number).map_or(0, |&units| i32::from(units));
        let mut reloads: Values = Values::new();
        for &Access { value, role, .. } in accesses {
            self.untouched[value as usize] = false;
            if role.reads() && self.place[value as usize] == NONE {
                self.insert(value);
                reloads.push(value);
            }
        }
        let event = |value, kind, stores| Event {
            step: number as u32,
            value,
            kind,
            stores,
        };
        let mut released: Values = Values::new();
        if tight > 0 || step.constrained || !self.has_room(accesses) {
            self.make_room(block, number, accesses, tight, &mut released)?;
        }
        // What leaves makes room for what comes back.
        for value in reloads {
            self.events.push(event(value, EventKind::Reload, false));
        }
        self.next.advance(accesses);
        for &Access {
            value, role, lives, ..
        } in accesses
        {
            if role == Role::Use && (!lives || released.contains(&value)) {
                self.remove(value);
            }
        }
        for &Access { value, lives, .. } in accesses.iter().filter(|a| a.role.writes()) {
            self.clean[value as usize] = self.plan.remat.is_free(value);
            match lives {
                true => self.insert(value),
                false => self.remove(value),
            }
        }
        Ok(())
    }

    /// Lets values leave until what a step needs is there; those that leave only once the step
    /// has read them are `released`.
    fn make_room(
        &mut self,
        block: Block,
        number: usize,
        accesses: &[Access],
        tight: i32,
        released: &mut Values,
    ) -> Result<(), usize> {
        let code = self.code;
        let step = code.step(number);
        let at = (number - code.steps(block).start) as u32;
        let event = |value, kind, stores| Event {
            step: number as u32,
            value,
            kind,
            stores,
        };
        loop {
            let dies = |value: u32| self.dies(accesses, value);
            let demand = demand(code, block, step, accesses, self.load, dies);
            let Some(excess) = self.rooms.excess_before(code, &demand, tight, ALL) else {
                break;
            };
            let is_operand = |v: u32| accesses.iter().any(|a| a.value == v && a.role.reads());
            let victim = self.furthest(excess, at, |v| !is_operand(v));
            let Some(value) = victim else {
                // Nothing else can leave: what was to be kept free has to do.
                match self.rooms.excess_before(code, &demand, 0, ALL) {
                    Some(_) => return Err(number),
                    None => break,
                }
            };
            if let Some(stores) = self.evict(value) {
                self.events.push(event(value, EventKind::Evict, stores));
            }
        }
        loop {
            let dies = |value: u32| released.contains(&value) || self.dies(accesses, value);
            let demand = demand(code, block, step, accesses, self.load, dies);
            let Some(excess) = self.rooms.excess(code, step, &demand, tight, ALL) else {
                break;
            };
            let may_leave = |v: u32| {
                let written = accesses.iter().any(|a| a.value == v && a.role.writes());
                !written && !dies(v)
            };
            let Some(value) = self.furthest_after(excess, at, accesses, may_leave) else {
                match self.rooms.excess(code, step, &demand, 0, ALL) {
                    Some(_) => return Err(number),
                    None => break,
                }
            };
            let is_operand = accesses.iter().any(|a| a.value == value);
            if is_operand {
                let stores = !self.clean[value as usize] && !self.plan.remat.is_free(value);
                self.clean[value as usize] = true;
                released.push(value);
                self.events.push(event(value, EventKind::Release, stores));
            } else {
                if let Some(stores) = self.evict(value) {
                    self.events.push(event(value, EventKind::Evict, stores));
                }
            }
        }
        Ok(())
    }

    /// Whether what a step needs whose operands may be anywhere is there, in the files that it
    /// touches. In the others nothing changes.
    fn has_room(&self, accesses: &[Access]) -> bool {
        let touched = accesses.iter().fold(0, |files, a| files | 1 << a.file);
        each_of(touched).all(|file| self.has_room_in(file, accesses))
    }

    fn has_room_in(&self, file: usize, accesses: &[Access]) -> bool {
        let whole = self.rooms.whole();
        if !self.load.fits_file(whole, file) {
            return false;
        }
        let mut after = self.load.of_file(file);
        for access in accesses.iter().filter(|a| usize::from(a.file) == file) {
            match access.role {
                Role::Use if access.dies => after.remove(self.code.shape(access.value)),
                Role::Use | Role::UseDef => {}
                Role::Def => after.add(self.code.shape(access.value)),
                // An instruction that writes early is not free, and inserted code never does.
                Role::EarlyDef => unreachable!("what writes early is constrained"),
            }
        }
        after.fits(whole, file)
    }

    /// Whether the contents that the step at hand reads in `value` are not read again.
    fn dies(&self, accesses: &[Access], value: u32) -> bool {
        let is_read = |a: &&Access| a.value == value && a.role == Role::Use;
        accesses.iter().find(is_read).is_some_and(|a| !a.lives)
    }

    /// The value in registers that counts towards `excess` and is read last of those that
    /// may leave.
    fn furthest(&self, excess: Excess, now: u32, may_leave: impl Fn(u32) -> bool) -> Option<u32> {
        self.worst(excess, may_leave, |v| self.next.of(v).saturating_sub(now))
    }

    /// The same as seen after the step at hand.
    fn furthest_after(
        &self,
        excess: Excess,
        now: u32,
        accesses: &[Access],
        may_leave: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        self.worst(excess, may_leave, |value| {
            let at = accesses.iter().position(|a| a.value == value);
            let next = at.map_or(self.next.of(value), |at| self.next.after(at));
            next.saturating_sub(now)
        })
    }

    fn worst(
        &self,
        excess: Excess,
        may_leave: impl Fn(u32) -> bool,
        distance: impl Fn(u32) -> u32,
    ) -> Option<u32> {
        let mut worst: Option<((f32, u32), u32)> = None;
        for &value in &self.in_registers {
            let shape = self.code.shape(value);
            let counts = shape.file == excess.file && shape.align >= excess.align;
            if !counts || !shape.reaches_memory || self.is_unspillable(value) {
                continue;
            }
            let key = (distance(value) as f32 / self.price(value), value);
            if worst.is_none_or(|(w, _)| key > w) && may_leave(value) {
                worst = Some((key, value));
            }
        }
        worst.map(|(_, value)| value)
    }

    /// What it costs to do without a register until the next use, in reloads: one, and a
    /// store where the slot is not current, here or at the definitions.
    fn price(&self, value: u32) -> f32 {
        if self.plan.remat.is_free(value) {
            return 0.5;
        }
        match self.clean[value as usize] {
            true => 1.0,
            false => 1.0 + (self.plan.remat.cost(value) / self.frequency.max(1e-9)).min(1.0),
        }
    }

    fn is_unspillable(&self, value: u32) -> bool {
        self.code.program.values[Value::from_u32(value)].unspillable
    }

    /// Takes `value` out of its register; says whether it must be stored, or nothing if it need
    /// not have been there.
    fn evict(&mut self, value: u32) -> Option<bool> {
        self.remove(value);
        let stores = !std::mem::replace(&mut self.clean[value as usize], true);
        match std::mem::replace(&mut self.untouched[value as usize], false) {
            true => {
                self.dropped.push(value);
                None
            }
            false => Some(stores),
        }
    }

    #[inline]
    fn insert(&mut self, value: u32) {
        if self.place[value as usize] == NONE {
            self.place[value as usize] = self.in_registers.len() as u32;
            self.in_registers.push(value);
            self.load.add(self.code.shape(value));
        }
    }

    fn remove(&mut self, value: u32) {
        let place = self.place[value as usize];
        if place == NONE {
            return;
        }
        self.place[value as usize] = NONE;
        self.load.remove(self.code.shape(value));
        self.in_registers.swap_remove(place as usize);
        if let Some(&moved) = self.in_registers.get(place as usize) {
            self.place[moved as usize] = place;
        }
    }
}

/// One counter per file.
pub(super) type PerFile = [i32; FILES];
