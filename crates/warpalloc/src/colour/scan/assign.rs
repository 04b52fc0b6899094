//! Registers for everything that is in one, block after block in reverse post-order.
//!
//! A block starts with each value where the predecessor that most often leads there left it;
//! its other predecessors move theirs on the edge. Within the block a definition takes a
//! register that is free, the one its affinity names if it can. Since spilling has made sure
//! that what is in registers at once fits, a register of width one is always free; where a
//! wider value finds only scattered units, or a step is constrained, [`super::arrange`]
//! moves others out of the way.

use super::affinity::Affinities;
use super::code::{Access, Code, FILES, NONE, NOWHERE, Shape, Step, is_rewritten};
use super::congruence::Congruence;
use super::next_use::NextUse;
use super::recolour::recolour;
use super::spill::{Event, EventKind, Lists, Plan};
use super::stores::Stores;
use crate::allocation::{Edit, Point};
use crate::analysis::NEVER;
use crate::cleanup::Inserted;
use crate::function::{Block, Kind, Role};
use crate::ir::Op;
use crate::target::{File, PReg, UnitSet};
use cranelift_entity::{EntityRef, EntitySet};
use smallvec::SmallVec;

/// A value where blocks meet, and the fragment that it is in there.
pub(super) type Located = (u32, u32);

/// Registers and inserted code.
pub(super) struct Assigned {
    pub registers: Vec<PReg>,
    pub edits: Vec<(Point, Edit)>,
    pub deleted: EntitySet<crate::function::Inst>,
    pub entry: Lists<Located>,
    pub exit: Lists<Located>,
    /// By block, the edge along which everything is in its place already, if there is one.
    pub continues: Vec<u32>,
    /// Copies, with how often they run.
    pub copies: Vec<(crate::function::Inst, f32)>,
    /// What is known of `edits` once edges are connected.
    pub inserted: Inserted,
    pub fragments: Vec<Fragment>,
    /// Segments of all fragments in the order in which they start.
    pub segments: Vec<Segment>,
    /// The fragment of each operand, and of the register of each edit.
    pub operands: Vec<u32>,
    pub edited: Vec<u32>,
}

impl Assigned {
    /// Notes that a fragment is live up to `end`.
    #[inline]
    fn end(&mut self, fragment: u32, end: u32) {
        let segment = self.fragments[fragment as usize].segment;
        self.segments[segment as usize].end = end;
    }

    /// Goes on with a fragment at `start`.
    #[inline]
    fn resume(&mut self, fragment: u32, start: u32) {
        let at = &mut self.fragments[fragment as usize].segment;
        // Nothing lies between the end of a block and the start of the next.
        if self.segments[*at as usize].end + 1 < start {
            *at = self.segments.len() as u32;
            self.segments.push(Segment {
                fragment,
                start,
                end: start,
            });
        }
    }

    pub fn unit(&self, fragment: u32) -> u16 {
        self.fragments[fragment as usize].unit
    }
}

/// A value in one register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub value: u32,
    pub unit: u16,
    /// A constrained step relies on its register.
    pub is_frozen: bool,
    /// The segment at hand.
    segment: u32,
}

/// From where to where a fragment is in its register, in the order of the walk: two positions
/// per step, for what comes before it has read and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub fragment: u32,
    pub start: u32,
    pub end: u32,
}

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
    let mut assigner = Assigner::<W> {
        code,
        plan,
        stores,
        affinities: Affinities::find(code, &congruence),
        next: NextUse::new(code),
        whole: std::array::from_fn(|file| open_units(code, file)),
        free: [UnitSet::EMPTY; FILES],
        owner: std::array::from_fn(|_| [NONE; 512]),
        ghost: std::array::from_fn(|_| [NONE; 512]),
        has_wide: [false; FILES],
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
        frequency: 0.0,
        waiting: Vec::new(),
        edited: Vec::new(),
        done: vec![false; blocks],
        out: Assigned {
            registers: vec![unknown; code.function.operand_count()],
            edits: Vec::new(),
            deleted: code.program.deleted.clone(),
            entry: Lists::new(blocks),
            exit: Lists::new(blocks),
            continues: vec![NONE; blocks],
            copies: Vec::new(),
            inserted: Inserted::Unknown,
            fragments: Vec::with_capacity(code.value_count()),
            segments: Vec::with_capacity(2 * code.value_count()),
            operands: vec![NONE; code.function.operand_count()],
            edited: Vec::new(),
        },
    };
    for value in 0..code.value_count() as u32 {
        let shape = code.shape(value);
        assigner.has_wide[shape.file] |= shape.align > 1;
    }
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
    stores: &'a Stores,
    pub(super) affinities: Affinities,
    pub(super) next: NextUse,
    pub(super) whole: [UnitSet<W>; FILES],
    pub(super) free: [UnitSet<W>; FILES],
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
    arriving: Vec<u32>,
    /// How often the block at hand runs.
    frequency: f32,
    /// Edits for the next instruction or the block's edge.
    pub(super) waiting: Vec<Edit>,
    /// The fragment of the register of each of them, if it has one.
    edited: Vec<u32>,
    done: Vec<bool>,
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
        let after = code.live_out(block).map(|v| (v, 0));
        self.next.enter(code, block, after);
        self.now = self.congruence.position(block);
        self.is_at_header = code.loops.is_header(block);
        self.frequency = code.frequencies.block(block) as f32;
        self.enter(block)?;
        self.is_at_header = false;
        let events = self.plan.map_or(&[][..], |plan| plan.events.of(block));
        let mut events = events.iter().peekable();
        let mut here: SmallVec<[Event; 8]> = SmallVec::new();
        for number in code.steps(block) {
            here.clear();
            while let Some(event) = events.next_if(|e| e.step as usize == number) {
                here.push(*event);
            }
            self.now += 1;
            let step = code.step(number);
            let accesses = code.accesses(number);
            self.step(block, number, step, accesses, &here)?;
        }
        self.flush_edge(block);
        let live = self.next.ahead().iter().copied();
        let live = live.filter(|&v| self.is_held(v) || self.is_intact(v));
        let exit: SmallVec<[Located; 64]> = live.map(|v| (v, self.fragment[v as usize])).collect();
        let end = 2 * self.now + 3;
        for &(_, fragment) in &exit {
            self.out.end(fragment, end);
        }
        self.out.exit.add(block, exit.into_iter());
        self.next.leave();
        self.done[block.index()] = true;
        Ok(())
    }

    /// Whether `value` is in a register now.
    #[inline]
    pub(super) fn is_held(&self, value: u32) -> bool {
        let at = self.at[value as usize];
        at != NOWHERE && self.owner[self.code.shape(value).file][at as usize] == value
    }

    /// Seats what the block begins with.
    fn enter(&mut self, block: Block) -> Result<(), usize> {
        let code = self.code;
        for file in 0..FILES {
            self.ghost[file][..code.units(file)].fill(NONE);
            self.free[file] = self.whole[file];
            self.owner[file][..code.units(file)].fill(NONE);
        }
        let residents: SmallVec<[u32; 64]> = match self.plan {
            Some(plan) => plan.entry.of(block).iter().map(|r| r.value).collect(),
            None => code.live_in(block).collect(),
        };
        let known = code.incoming(block).iter().copied();
        let known = known.filter(|&e| self.done[code.edges()[e as usize].from.index()]);
        let from = known.max_by(|&a, &b| {
            let [a, b] = [a, b].map(|e| &code.edges()[e as usize]);
            let [often_a, often_b] = [a, b].map(|e| code.edge_frequency(e));
            often_a.total_cmp(&often_b).then(b.from.cmp(&a.from))
        });
        let mut rest: SmallVec<[u32; 16]> = SmallVec::new();
        if let Some(number) = from {
            let edge = &code.edges()[number as usize];
            let exit = self.out.exit.of(edge.from);
            for &(value, fragment) in exit {
                self.arriving[value as usize] = fragment;
            }
            let params = code.params(block);
            let mut waiting: SmallVec<[(u32, u16); 16]> = SmallVec::new();
            for &value in &residents {
                let index = match params.is_empty() {
                    true => None,
                    false => params.iter().position(|&p| p == value),
                };
                match index {
                    None => match self.arriving[value as usize] {
                        NONE => rest.push(value),
                        // Its class and its affinities know of its register since it was
                        // defined.
                        fragment => {
                            let at = self.out.unit(fragment);
                            self.occupy(value, at as usize);
                            self.at[value as usize] = at;
                            self.fragment[value as usize] = fragment;
                            self.out.resume(fragment, 2 * self.now);
                        }
                    },
                    Some(index) => {
                        let arg = code.pairs(edge)[index].1;
                        let at = match self.arriving[arg as usize] {
                            NONE => NOWHERE,
                            fragment => self.out.unit(fragment),
                        };
                        waiting.push((value, at));
                    }
                }
            }
            let is_moved = self.seat_params(waiting, &mut rest);
            for at in 0..self.out.exit.of(edge.from).len() {
                let (value, _) = self.out.exit.of(edge.from)[at];
                self.arriving[value as usize] = NONE;
            }
            if rest.is_empty() && !is_moved {
                self.out.continues[block.index()] = number;
            }
        } else {
            rest.extend(residents.iter().copied());
        }
        rest.sort_by_key(|&v| std::cmp::Reverse(code.shape(v).align));
        let mut fits = true;
        for &value in &rest {
            match self.pick(value, None) {
                Some(at) => self.settle(value, at),
                None => fits = false,
            }
        }
        if !fits {
            self.pack(block, &residents)?;
        }
        let entry = residents.iter().map(|&v| (v, self.fragment[v as usize]));
        self.out.entry.add(block, entry);
        for &param in code.params(block) {
            if self.stores.at_definition(param) && self.is_held(param) {
                self.store(param);
            }
        }
        Ok(())
    }

    /// Seats parameters where their arguments are, as far as there is room; says whether one
    /// is elsewhere. At the start of a loop groups go first, to where they can stay: others
    /// are moved once, on the way in.
    fn seat_params(
        &mut self,
        mut arrivals: SmallVec<[(u32, u16); 16]>,
        rest: &mut SmallVec<[u32; 16]>,
    ) -> bool {
        if self.is_at_header {
            arrivals.sort_by_key(|&(value, _)| self.window(value).is_none());
        }
        let mut is_moved = false;
        for (value, at) in arrivals {
            let window = self.window(value).filter(|_| self.is_at_header);
            let shape = self.code.shape(value);
            let stays = at != NOWHERE
                && self.is_free(shape, at as usize)
                && window.is_none_or(|window| self.suits(value, window, at as usize));
            if stays {
                self.settle(value, at as usize);
            } else if window.is_some()
                && let Some(at) = self.pick(value, None)
            {
                self.settle(value, at);
                is_moved = true;
            } else {
                rest.push(value);
            }
        }
        is_moved
    }

    /// Seats what the block begins with largest first, wherever it comes from.
    fn pack(&mut self, block: Block, residents: &[u32]) -> Result<(), usize> {
        let code = self.code;
        for file in 0..FILES {
            self.free[file] = self.whole[file];
            self.owner[file][..code.units(file)].fill(NONE);
        }
        let mut order: SmallVec<[u32; 64]> = SmallVec::from_slice(residents);
        order.sort_by_key(|&v| std::cmp::Reverse(code.shape(v).align));
        for value in order {
            let shape = code.shape(value);
            let starts = self.starts(shape);
            let at = starts.lowest().ok_or(code.steps(block).start)?;
            self.settle(value, at);
        }
        Ok(())
    }

    fn step(
        &mut self,
        block: Block,
        number: usize,
        step: Step,
        accesses: &[Access],
        events: &[Event],
    ) -> Result<(), usize> {
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
        self.next.advance(accesses);
        for &(value, role) in accesses.iter().filter(|a| a.1.writes()) {
            if role.writes() && self.stores.at_definition(value) {
                self.store(value);
            }
            if self.next.of(value) == NEVER {
                self.end(value, 2 * self.now + 2);
                self.vacate(value);
            }
        }
        Ok(())
    }

    /// Seats a step whose operands may be anywhere; says whether that succeeded without
    /// moving anything. If not, nothing has changed.
    fn plain(
        &mut self,
        block: Block,
        step: Step,
        accesses: &[Access],
        reloads: &[u32],
        released: &[u32],
    ) -> bool {
        let mut intact: SmallVec<[u32; 4]> = SmallVec::new();
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
        let mut dying: SmallVec<[u32; 4]> = SmallVec::new();
        for (at, &(value, role)) in accesses.iter().enumerate() {
            if role == Role::Use
                && (self.next.after(at) == NEVER
                    || released.contains(&value)
                    || step.rewrites && is_rewritten(accesses, value))
                && self.is_held(value)
            {
                self.end(value, 2 * self.now + 1);
                self.vacate(value);
                dying.push(value);
            }
        }
        let mut results: SmallVec<[(u32, u16); 4]> = SmallVec::new();
        let mut fits = true;
        for &(value, role) in accesses {
            if role == Role::Def {
                let near = match dying.is_empty() {
                    true => None,
                    false => self.copied_from(block, step, value, &dying),
                };
                let Some(unit) = self.pick(value, near) else {
                    fits = false;
                    break;
                };
                self.occupy(value, unit);
                results.push((value, unit as u16));
            }
        }
        if !fits {
            for &(value, unit) in &results {
                self.vacate_units(self.code.shape(value), unit as usize);
            }
            for &value in &dying {
                self.occupy(value, self.at[value as usize] as usize);
            }
            reloads.iter().for_each(|&v| self.vacate(v));
            return false;
        }
        for &value in reloads.iter().filter(|v| !intact.contains(v)) {
            let fragment = self.fragment[value as usize];
            self.reload(value, self.at[value as usize] as usize, Some(fragment));
        }
        let start = 2 * self.now + 1;
        let written = results.iter().map(|&(value, unit)| {
            let fragment = self.fragment_at(value, unit, start);
            (value, fragment)
        });
        let written: SmallVec<[Located; 4]> = written.collect();
        self.emit(block, step, accesses, &written);
        for (value, fragment) in written {
            let unit = self.out.unit(fragment);
            self.at[value as usize] = unit;
            self.fragment[value as usize] = fragment;
            self.claim(value, unit as usize);
        }
        true
    }

    /// The fragment of `value` in `unit`: its last one if that is there, or a new one.
    #[inline]
    fn fragment_at(&mut self, value: u32, unit: u16, start: u32) -> u32 {
        let last = self.fragment[value as usize];
        if last != NONE && self.out.unit(last) == unit {
            self.out.resume(last, start);
            return last;
        }
        let fragment = self.out.fragments.len() as u32;
        self.out.fragments.push(Fragment {
            value,
            unit,
            is_frozen: false,
            segment: self.out.segments.len() as u32,
        });
        self.out.segments.push(Segment {
            fragment,
            start,
            end: start,
        });
        fragment
    }

    /// Notes that the last fragment of `value` is live up to `end`.
    #[inline]
    fn end(&mut self, value: u32, end: u32) {
        self.out.end(self.fragment[value as usize], end);
    }

    /// Keeps everything that is in a register now there for good.
    pub(super) fn freeze(&mut self) {
        for file in 0..FILES {
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
    fn is_intact(&self, value: u32) -> bool {
        let shape = self.code.shape(value);
        let at = self.at[value as usize];
        at != NOWHERE && {
            let units = at as usize..at as usize + shape.width;
            self.ghost[shape.file][units].iter().all(|&v| v == value)
        }
    }

    /// Writes down the registers of a plain step whose results are in `results`.
    fn emit(&mut self, block: Block, step: Step, accesses: &[Access], results: &[Located]) {
        let code = self.code;
        let fragment_of = |value: u32, writes: bool| {
            let result = results.iter().find(|r| writes && r.0 == value);
            result.map_or(self.fragment[value as usize], |r| r.1)
        };
        if let Op::Inst { inst, .. } = code.op(block, step) {
            let range = code.function.operand_range(*inst);
            for (at, &(value, role)) in range.zip(accesses) {
                let fragment = fragment_of(value, role == Role::Def);
                let file = File::new(code.shape(value).file);
                self.out.registers[at] = PReg::new(file, self.out.unit(fragment) as usize);
                self.out.operands[at] = fragment;
            }
            self.finish_inst(*inst);
            return;
        }
        for &(value, role) in accesses {
            let fragment = fragment_of(value, role == Role::Def);
            self.out.fragments[fragment as usize].is_frozen = true;
        }
        let register = |value: u32, writes: bool| {
            let file = File::new(code.shape(value).file);
            PReg::new(file, self.out.unit(fragment_of(value, writes)) as usize)
        };
        match code.op(block, step) {
            Op::Copies(pairs) => {
                let moves: SmallVec<[_; 4]> = pairs
                    .iter()
                    .map(|(to, from)| {
                        let width = code.shape(to.as_u32()).width;
                        (
                            register(to.as_u32(), true),
                            register(from.as_u32(), false),
                            width,
                        )
                    })
                    .collect();
                self.move_all(&moves);
            }
            Op::Transfer { to, from } => {
                let (to, from) = (to.as_u32(), from.as_u32());
                let edit = self.transfer(register(to, true), self.register(from), from);
                self.waiting.push(edit);
            }
            Op::Inst { .. } | Op::Store { .. } | Op::Reload { .. } | Op::Recompute { .. } => {}
        }
    }

    /// A copy of `input` into another file, where it takes as many registers.
    pub(super) fn transfer(&self, to: PReg, from: PReg, input: u32) -> Edit {
        let shape = self.code.shape(input);
        let regs = shape.width / self.code.target.file(from.file).units_per_reg;
        Edit::Transfer {
            to,
            from,
            regs: regs as u8,
        }
    }

    /// Puts the edits that wait before `inst`, whose registers are known.
    pub(super) fn finish_inst(&mut self, inst: crate::function::Inst) {
        self.flush(Point::Before(inst));
        if self.code.function.inst(inst).kind == Kind::Copy {
            self.out.copies.push((inst, self.frequency));
        }
    }

    fn flush(&mut self, point: Point) {
        if self.waiting.is_empty() {
            return;
        }
        self.edited.resize(self.waiting.len(), NONE);
        self.out.edited.append(&mut self.edited);
        let edits = self.waiting.drain(..).map(|edit| (point, edit));
        self.out.edits.extend(edits);
    }

    /// Puts the edits that wait on the edge that `block` stands on. In other blocks none
    /// waits: a terminator comes last and writes nothing.
    fn flush_edge(&mut self, block: Block) {
        if let Some((from, succ)) = self.code.program.blocks[block].edge {
            self.flush(Point::Edge(from, succ));
        }
        debug_assert!(self.waiting.is_empty());
    }

    /// Moves that happen at once, `(to, from, width)`.
    pub(super) fn move_all(&mut self, moves: &[(PReg, PReg, usize)]) {
        super::moves::push_moves(moves, None, &mut self.waiting);
    }

    fn store(&mut self, value: u32) {
        let from = self.register(value);
        if let Some(to) = self.stores.slot(value) {
            let width = self.code.shape(value).width as u8;
            self.push(
                Some(self.fragment[value as usize]),
                Edit::Store { to, from, width },
            );
        }
    }

    /// Brings `value` back to `unit`, in a fragment unless that is the seat of a step.
    pub(super) fn reload(&mut self, value: u32, unit: usize, fragment: Option<u32>) {
        let shape = self.code.shape(value);
        let to = PReg::new(File::new(shape.file), unit);
        let remat = self.plan.and_then(|plan| plan.remat.instruction(value));
        if let Some(inst) = remat {
            let regs = self
                .code
                .function
                .operands(inst)
                .iter()
                .map(|_| to)
                .collect();
            self.push(fragment, Edit::Recompute { inst, regs });
        } else if let Some(from) = self.stores.slot(value) {
            let width = shape.width as u8;
            self.push(fragment, Edit::Reload { to, from, width });
        }
    }

    /// Adds an edit of the register of `fragment`.
    fn push(&mut self, fragment: Option<u32>, edit: Edit) {
        self.edited.resize(self.waiting.len(), NONE);
        self.edited.push(fragment.unwrap_or(NONE));
        self.waiting.push(edit);
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
