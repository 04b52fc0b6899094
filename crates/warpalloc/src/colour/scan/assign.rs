//! Registers for everything that is in one, block after block in reverse post-order.
//!
//! A block starts with each value where the predecessor that most often leads there left it;
//! its other predecessors move theirs on the edge. Within the block a definition takes a
//! register that is free, the one its affinity names if it can. Since spilling has made sure
//! that what is in registers at once fits, a register of width one is always free; where a
//! wider value finds only scattered units, or a step is constrained, [`super::arrange`]
//! moves others out of the way.

use super::affinity::Affinities;
use super::code::{Access, Code, FILES, NONE, NOWHERE, Shape};
use super::congruence::Congruence;
use super::fragments::{Assigned, Located};
use super::recolour::recolour;
use super::spill::{Event, EventKind, Lists, Plan};
use super::stores::Stores;
use crate::allocation::Edit;
use crate::cleanup::Inserted;
use crate::function::Block;
use crate::target::{File, PReg, UnitSet};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// Gives every value its registers; the number of the step that could not be seated, if
/// there is one.
pub(super) fn assign<const W: usize>(
    code: &Code,
    plan: Option<&Plan>,
    stores: &Stores,
    most: [usize; FILES],
) -> Result<Assigned, usize> {
    let blocks = code.block_count();
    let unknown = PReg::new(File::MAIN, 0);
    let congruence = Congruence::find(code);
    // Where nothing is spilled, everything live is in a register.
    let [entering, leaving] = match plan {
        None => code.live_totals(),
        Some(plan) => [plan.entry.len(), plan.exit.len()],
    };
    let mut assigner = Assigner::<W> {
        code,
        plan,
        stores,
        affinities: Affinities::find(code, &congruence),
        whole: std::array::from_fn(|file| open_units(code, file)),
        free: [UnitSet::EMPTY; FILES],
        owner: std::array::from_fn(|_| [NONE; 512]),
        ghost: std::array::from_fn(|_| [NONE; 512]),
        files: (0..FILES).filter(|&file| code.is_used(file)).collect(),
        has_wide: std::array::from_fn(|file| code.has_wide(file)),
        used: [0; FILES],
        most,
        congruence,
        reserved: [UnitSet::EMPTY; FILES],
        claims: std::array::from_fn(|file| vec![SmallVec::new(); code.units(file)]),
        last: std::array::from_fn(|_| [NONE; 512]),
        now: 0,
        is_at_header: false,
        at: vec![NOWHERE; code.value_count()],
        fragment: vec![NONE; code.value_count()],
        arriving: vec![NONE; code.value_count()],
        residents: Vec::new(),
        located: Vec::new(),
        frequency: 0.0,
        waiting: Vec::new(),
        edited: Vec::new(),
        done: vec![false; blocks],
        out: Assigned {
            registers: vec![unknown; code.function.operand_count()],
            edits: Vec::new(),
            deleted: code.program.deleted.clone(),
            entry: Lists::with_capacity(blocks, entering),
            exit: Lists::with_capacity(blocks, leaving),
            continues: vec![NONE; blocks],
            copies: Vec::new(),
            inserted: Inserted::Unknown,
            fragments: Vec::with_capacity(code.value_count()),
            segments: Vec::with_capacity(2 * code.value_count()),
            operands: vec![NONE; code.function.operand_count()],
            edited: Vec::new(),
        },
    };
    for &block in code.order.all() {
        assigner.block(block)?;
    }
    let (mut out, fragment) = assigner.finish();
    recolour(code, &fragment, &mut out);
    Ok(out)
}

pub(super) struct Assigner<'a, const W: usize> {
    pub(super) code: &'a Code<'a>,
    pub(super) plan: Option<&'a Plan>,
    pub(super) stores: &'a Stores,
    pub(super) affinities: Affinities,
    pub(super) whole: [UnitSet<W>; FILES],
    pub(super) free: [UnitSet<W>; FILES],
    /// The files that some value belongs to.
    files: SmallVec<[usize; FILES]>,
    /// The value that each unit holds.
    pub(super) owner: [[u32; 512]; FILES],
    /// The evicted value that each unit still holds.
    pub(super) ghost: [[u32; 512]; FILES],
    pub(super) has_wide: [bool; FILES],
    /// How many units are in use, counted up to the highest.
    pub(super) used: [usize; FILES],
    /// How many units are needed at once.
    pub(super) most: [usize; FILES],
    pub(super) congruence: Congruence,
    /// Units of windows whose members are yet to come.
    pub(super) reserved: [UnitSet<W>; FILES],
    /// The classes of values whose register each unit is.
    pub(super) claims: [Vec<SmallVec<[u32; 2]>>; FILES],
    /// Of the values that each unit had, the one that lives furthest; where values are
    /// spilled, and leave their registers early, the last.
    pub(super) last: [[u32; 512]; FILES],
    /// The position at hand.
    pub(super) now: u32,
    /// The position is the start of a loop.
    pub(super) is_at_header: bool,
    /// Where each value in a register starts.
    pub(super) at: Vec<u16>,
    /// The last fragment of each value.
    pub(super) fragment: Vec<u32>,
    /// The fragment in which the predecessor at hand left each value.
    pub(super) arriving: Vec<u32>,
    /// What the block at hand begins with.
    pub(super) residents: Vec<u32>,
    /// Where values are at one end of the block at hand.
    pub(super) located: Vec<Located>,
    /// How often the block at hand runs.
    pub(super) frequency: f32,
    /// Edits for the next instruction or the block's edge.
    pub(super) waiting: Vec<Edit>,
    /// The fragment of the register of each of them, if it has one.
    pub(super) edited: Vec<u32>,
    pub(super) done: Vec<bool>,
    pub(super) out: Assigned,
}

impl<const W: usize> Assigner<'_, W> {
    /// What was assigned, and the last fragment of each value. Nothing else is kept, since
    /// recolouring needs room of its own.
    fn finish(self) -> (Assigned, Vec<u32>) {
        (self.out, self.fragment)
    }

    fn block(&mut self, block: Block) -> Result<(), usize> {
        let code = self.code;
        self.now = self.congruence.position(block);
        self.is_at_header = code.loops.is_header(block);
        self.frequency = code.frequencies.block(block) as f32;
        self.enter(block)?;
        self.is_at_header = false;
        let mut events = self.plan.map_or(&[][..], |plan| plan.events.of(block));
        for number in code.steps(block) {
            self.now += 1;
            let is_here = |event: &Event| event.step as usize == number;
            let count = events.iter().take_while(|e| is_here(e)).count();
            let (here, later) = events.split_at(count);
            events = later;
            self.step(block, number, here)?;
        }
        self.flush_edge(block);
        self.leave(block);
        self.done[block.index()] = true;
        Ok(())
    }

    /// Writes down where the block leaves what is live behind it.
    fn leave(&mut self, block: Block) {
        let mut located = std::mem::take(&mut self.located);
        let end = 2 * self.now + 4;
        self.code.live_out(block).for_each(|value| {
            if self.is_held(value) || self.is_intact(value) {
                let fragment = self.fragment[value as usize];
                self.out.end(fragment, end);
                located.push((value, fragment));
            }
        });
        self.out.exit.add_slice(block, &located);
        located.clear();
        self.located = located;
    }

    /// Whether `value` is in a register now.
    #[inline]
    pub(super) fn is_held(&self, value: u32) -> bool {
        let at = self.at[value as usize];
        at != NOWHERE && self.owner[self.code.shape(value).file][at as usize] == value
    }

    fn step(&mut self, block: Block, number: usize, events: &[Event]) -> Result<(), usize> {
        let (step, accesses) = (self.code.step(number), self.code.accesses(number));
        let mut reloads: SmallVec<[u32; 8]> = SmallVec::new();
        let mut released: SmallVec<[u32; 8]> = SmallVec::new();
        for event in events {
            if event.stores && !self.stores.at_definition(event.value) {
                self.store(event.value);
            }
            match event.kind {
                EventKind::Evict => self.evict(event.value),
                EventKind::Release => released.push(event.value),
                EventKind::Reload => reloads.push(event.value),
            }
        }
        if step.constrained || !self.plain(block, step, accesses, &reloads, &released) {
            self.arrange(block, number, step, accesses, &reloads, &released)?;
            released.iter().for_each(|&value| self.vacate(value));
        }
        self.finish_results(accesses);
        Ok(())
    }

    /// Stores what has to be, and takes results that nothing reads out of their registers.
    #[inline]
    fn finish_results(&mut self, accesses: &[Access]) {
        for access in accesses.iter().filter(|a| a.role.writes()) {
            if self.stores.at_definition(access.value) {
                self.store(access.value);
            }
            if !access.lives {
                self.end(access.value, 2 * self.now + 2);
                self.vacate(access.value);
            }
        }
    }

    /// The fragment of `value` in `unit`: its last one if that is there, or a new one.
    #[inline]
    pub(super) fn fragment_at(&mut self, value: u32, unit: u16, start: u32) -> u32 {
        let last = self.fragment[value as usize];
        if last != NONE && self.out.unit(last) == unit {
            self.out.resume(last, start);
            return last;
        }
        self.out.begin(value, unit, start)
    }

    /// Notes that the last fragment of `value` is live up to `end`.
    #[inline]
    pub(super) fn end(&mut self, value: u32, end: u32) {
        self.out.end(self.fragment[value as usize], end);
    }

    /// Keeps everything that is in a register now there for good.
    pub(super) fn freeze(&mut self) {
        for &file in &self.files {
            for unit in 0..self.code.units(file) {
                let value = self.owner[file][unit];
                if value != NONE {
                    let fragment = self.fragment[value as usize];
                    self.out.fragments[fragment as usize].is_frozen = true;
                    self.out.end(fragment, 2 * self.now + 2);
                }
            }
        }
    }

    /// Takes `value` out of its register, which still holds it until somebody else comes.
    fn evict(&mut self, value: u32) {
        if self.is_held(value) {
            let shape = self.code.shape(value);
            let at = self.at[value as usize] as usize;
            self.end(value, 2 * self.now);
            self.vacate_units(shape, at);
            self.ghost[shape.file][at..at + shape.width].fill(value);
        }
    }

    /// Whether the register that `value` left holds it still.
    pub(super) fn is_intact(&self, value: u32) -> bool {
        let at = self.at[value as usize];
        self.plan.is_some() && at != NOWHERE && {
            let shape = self.code.shape(value);
            let units = at as usize..at as usize + shape.width;
            self.ghost[shape.file][units].iter().all(|&v| v == value)
        }
    }

    pub(super) fn register(&self, value: u32) -> PReg {
        let file = File::new(self.code.shape(value).file);
        PReg::new(file, self.at[value as usize] as usize)
    }

    /// Puts `value` at `unit`.
    #[inline]
    pub(super) fn settle(&mut self, value: u32, unit: usize) {
        self.occupy(value, unit);
        self.at[value as usize] = unit as u16;
        self.fragment[value as usize] = self.fragment_at(value, unit as u16, 2 * self.now);
        self.claim(value, unit);
    }

    #[inline]
    pub(super) fn occupy(&mut self, value: u32, unit: usize) {
        let shape = self.code.shape(value);
        let used = &mut self.used[shape.file];
        *used = (*used).max(unit + shape.width);
        for unit in unit..unit + shape.width {
            self.free[shape.file].remove(unit);
            self.owner[shape.file][unit] = value;
            self.ghost[shape.file][unit] = NONE;
            let last = &mut self.last[shape.file][unit];
            let congruence = &self.congruence;
            let is_left = self.plan.is_some() || *last == NONE;
            if is_left || congruence.end(*last) < congruence.end(value) {
                *last = value;
            }
        }
    }

    /// Takes everything out of its register.
    pub(super) fn clear(&mut self) {
        for &file in &self.files {
            let units = self.code.units(file);
            self.free[file] = self.whole[file];
            self.owner[file][..units].fill(NONE);
            if self.plan.is_some() {
                self.ghost[file][..units].fill(NONE);
            }
        }
    }

    /// Takes `value` out of its register, if it is in one.
    #[inline]
    pub(super) fn vacate(&mut self, value: u32) {
        if self.is_held(value) {
            let shape = self.code.shape(value);
            self.vacate_units(shape, self.at[value as usize] as usize);
        }
    }

    #[inline]
    pub(super) fn vacate_units(&mut self, shape: Shape, unit: usize) {
        for unit in unit..unit + shape.width {
            self.free[shape.file].insert(unit);
            self.owner[shape.file][unit] = NONE;
        }
    }
}

/// The units of a file that no pinned value has.
fn open_units<const W: usize>(code: &Code, file: usize) -> UnitSet<W> {
    let all = UnitSet::first(code.units(file));
    match file < code.target.files().len() {
        true => all.without(&UnitSet::of_file(
            code.target,
            File::new(file),
            code.pinned_units(),
        )),
        false => all,
    }
}
