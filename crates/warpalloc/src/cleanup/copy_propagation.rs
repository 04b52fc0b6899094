//! Copy propagation, and redundant moves, stores and reloads.
//!
//! Every location holds a *content*, which is the number of the step that wrote it. Moves,
//! copies, stores and reloads hand contents on; all other steps make new ones. A block with
//! a single predecessor starts with the contents at its end; any other block starts with
//! contents unknown. Registers of the same content are interchangeable for a reader, so
//! readers are sent to the one that has held it longest: copies then lose their readers and
//! become dead. No reader is sent to the register of a pinned value, on which the hardware
//! may be at work.
//!
//! Blocks form trees that hang off those with several predecessors. A tree is walked from its
//! root, and what a block did to the contents is taken back before its sibling: nothing is
//! copied where paths part. Only contents that were handed on have several holders, so that
//! most operands are passed over at a glance.

use super::CleanupCounts;
use super::code::{Code, Locations, Step};
use crate::allocation::{Edit, SlotAddr};
use crate::function::{Block, Constraint, Function, Inst, Role};
use crate::target::{PReg, RegSet, Target, Unit};
use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Drops and redirects what it can in `code`.
pub(super) fn run(code: &mut Code, counts: &mut CleanupCounts) {
    let function = code.function;
    let pinned = pinned_registers(code);
    let mut walk = Walk {
        state: State::unknown(code.location_count(), code.target.unit_count()),
        code,
        counts,
        pinned: &pinned,
    };
    for block in function.blocks().filter(|&b| !has_only_way(function, b)) {
        walk.tree(block);
    }
}

/// Whether control comes to `block` along one edge only.
fn has_only_way(function: &Function, block: Block) -> bool {
    function.preds(block).len() == 1 && block != function.entry()
}

/// The registers of pinned values, each of which stays in one.
fn pinned_registers(code: &Code) -> RegSet {
    let function = code.function;
    let mut pinned = RegSet::new(code.target);
    if !function.has_pinned() {
        return pinned;
    }
    for inst in function.insts().filter(|&i| !code.deleted.contains(i)) {
        let regs = &code.registers[function.operand_range(inst)];
        for (operand, &reg) in function.operands(inst).iter().zip(regs) {
            let vreg = function.vreg(operand.vreg);
            let units = code.target.units(reg, code.target.width(vreg.class));
            units
                .filter(|_| vreg.pinned)
                .for_each(|unit| pinned.insert(unit));
        }
    }
    pinned
}

/// What a location holds: piece `piece` of the content `number`, which fills `of` pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    number: u32,
    piece: u8,
    of: u8,
}

impl Content {
    fn whole(number: u32) -> Content {
        Content {
            number,
            piece: 0,
            of: 1,
        }
    }
}

/// What every location holds.
struct State {
    contents: Vec<Content>,
    /// How many of the locations are units; the others are in memory.
    units: u32,
    /// The contents that there are: first what each location began with, then what steps made.
    made: Vec<Made>,
    /// Units that were given each content that was handed on, oldest first; some may hold
    /// another by now.
    holders: FxHashMap<u32, SmallVec<[u32; 2]>>,
    /// How to take back what happened.
    journal: Vec<Undo>,
}

/// How a content came to be.
#[derive(Clone, Copy)]
struct Made {
    /// The location that held it first.
    at: u32,
    /// How many units hold it.
    units: u32,
}

enum Undo {
    /// A location held this.
    Content(u32, Content),
    /// The last holder of a content was none before.
    Holder(u32),
}

/// A moment to go back to.
#[derive(Clone, Copy)]
struct Mark {
    made: usize,
    journal: usize,
}

impl State {
    fn unknown(locations: usize, units: usize) -> State {
        let (locations, units) = (locations as u32, units as u32);
        let first = |at| Made {
            at,
            units: u32::from(at < units),
        };
        State {
            units,
            contents: (0..locations).map(Content::whole).collect(),
            made: (0..locations).map(first).collect(),
            holders: FxHashMap::default(),
            journal: Vec::new(),
        }
    }

    fn mark(&self) -> Mark {
        Mark {
            made: self.made.len(),
            journal: self.journal.len(),
        }
    }

    /// Goes back to `mark`.
    fn roll_back(&mut self, mark: Mark) {
        while self.journal.len() > mark.journal {
            match self.journal.pop() {
                Some(Undo::Content(location, content)) => {
                    self.put(location, content);
                }
                Some(Undo::Holder(number)) => {
                    if let Some(holders) = self.holders.get_mut(&number) {
                        holders.pop();
                    }
                }
                None => {}
            }
        }
        self.made.truncate(mark.made);
    }

    /// Units that may hold `content`, oldest first.
    fn candidates(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        let given = self.holders.get(&number).into_iter().flatten();
        std::iter::once(self.made[number as usize].at).chain(given.copied())
    }

    /// Makes `location` hold `content`; returns what it held.
    #[inline]
    fn put(&mut self, location: u32, content: Content) -> Content {
        let held = std::mem::replace(&mut self.contents[location as usize], content);
        if location < self.units {
            self.made[held.number as usize].units -= 1;
            self.made[content.number as usize].units += 1;
        }
        held
    }

    #[inline]
    fn set(&mut self, location: u32, content: Content) {
        let held = self.put(location, content);
        self.journal.push(Undo::Content(location, held));
    }

    /// Hands `content` on to `unit`.
    fn hand_on(&mut self, unit: u32, content: Content) {
        if self.contents[unit as usize] == content {
            return;
        }
        self.set(unit, content);
        if self.made[content.number as usize].at == unit {
            return;
        }
        let holders = self.holders.entry(content.number).or_default();
        // Those that hold another by now stay, so that there are never more than units.
        if !holders.contains(&unit) {
            holders.push(unit);
            self.journal.push(Undo::Holder(content.number));
        }
    }

    /// Makes a new content for `location`.
    #[inline]
    fn fresh(&mut self, location: u32) -> Content {
        self.made.push(Made {
            at: location,
            units: 0,
        });
        Content::whole(self.made.len() as u32 - 1)
    }

    /// Whether another unit holds what `unit` does.
    #[inline]
    fn is_shared(&self, unit: usize) -> bool {
        self.made[self.contents[unit].number as usize].units > 1
    }
}

struct Walk<'c, 'a> {
    code: &'c mut Code<'a>,
    state: State,
    counts: &'c mut CleanupCounts,
    /// Where pinned values are.
    pinned: &'c RegSet,
}

impl Walk<'_, '_> {
    /// Walks over `root` and the blocks to which the only way leads through it.
    fn tree(&mut self, root: Block) {
        let function = self.code.function;
        let before = self.state.mark();
        self.block(root);
        let mut path: SmallVec<[(Block, usize, Mark); 8]> = SmallVec::new();
        path.push((root, 0, self.state.mark()));
        while let Some((block, succ, end)) = path.last_mut() {
            let (block, at) = (*block, *succ);
            *succ += 1;
            self.state.roll_back(*end);
            let Some(edge) = function.succs(block).get(at) else {
                path.pop();
                continue;
            };
            self.edge(block, at);
            if has_only_way(function, edge.block) {
                self.block(edge.block);
                path.push((edge.block, 0, self.state.mark()));
            }
        }
        self.state.roll_back(before);
    }

    fn block(&mut self, block: Block) {
        let mut steps = std::mem::take(&mut self.code.blocks[block.index()]);
        self.steps(&mut steps);
        self.code.blocks[block.index()] = steps;
    }

    fn edge(&mut self, block: Block, succ: usize) {
        let mut steps = std::mem::take(&mut self.code.edges[block.index()][succ]);
        self.steps(&mut steps);
        self.code.edges[block.index()][succ] = steps;
    }

    fn steps(&mut self, steps: &mut Vec<Step>) {
        steps.retain_mut(|step| match step {
            Step::Inst(inst) => self.instruction(*inst),
            Step::Edit(_, edit) => {
                let stays = self.edit(edit);
                self.counts.redundant += u32::from(!stays);
                stays
            }
        });
    }

    /// Runs an instruction; whether it stays.
    fn instruction(&mut self, inst: Inst) -> bool {
        let function = self.code.function;
        let row = function.operand_range(inst);
        if self.reads_shared(inst, &self.code.registers[row.clone()]) {
            let registers = &self.code.registers[row.clone()];
            let mut regs: SmallVec<[PReg; 8]> = SmallVec::from_slice(registers);
            self.redirect_inputs(inst, &mut regs);
            self.code.registers[row.clone()].copy_from_slice(&regs);
        }
        let traits = function.traits(inst);
        if traits.is_copy() && self.code.is_copy(inst) {
            let regs: SmallVec<[PReg; 8]> = SmallVec::from_slice(&self.code.registers[row]);
            return self.copy(inst, &regs);
        }
        if traits.clobbers() {
            for unit in self.code.clobbers(inst) {
                self.forget(unit);
            }
        }
        for (operand, at) in function.operands(inst).iter().zip(row) {
            if operand.role.writes() {
                let units = self.code.operand_units(operand, self.code.registers[at]);
                units.for_each(|unit| self.forget(unit as u32));
            }
        }
        true
    }

    /// Whether `inst` with operands in `regs` reads a unit whose content another may hold.
    #[inline]
    fn reads_shared(&self, inst: Inst, regs: &[PReg]) -> bool {
        let mut operands = self.code.function.operands(inst).iter().zip(regs);
        operands.any(|(operand, &reg)| {
            operand.role.reads() && {
                let mut units = self.code.operand_units(operand, reg);
                units.any(|unit| self.state.is_shared(unit))
            }
        })
    }

    /// Runs a copy; whether it changes anything.
    fn copy(&mut self, inst: Inst, regs: &[PReg]) -> bool {
        let function = self.code.function;
        let units = |reads: bool| -> Locations {
            let operands = function.operands(inst).iter().enumerate();
            let of_side = operands.filter(|(_, o)| o.role.reads() == reads);
            of_side
                .flat_map(|(i, _)| self.code.units(regs[i], self.code.width(inst, i)))
                .collect()
        };
        let (inputs, results) = (units(true), units(false));
        let contents: SmallVec<[Content; 8]> = inputs.iter().map(|&u| self.content(u)).collect();
        let is_there = |(&unit, &content): (&u32, &Content)| self.content(unit) == content;
        if results.iter().zip(&contents).all(is_there) {
            self.counts.redundant += 1;
            self.code.deleted.insert(inst);
            return false;
        }
        for (unit, content) in results.into_iter().zip(contents) {
            self.state.hand_on(unit, content);
        }
        true
    }

    fn write_results(&mut self, inst: Inst, regs: &[PReg]) {
        let operands = self.code.function.operands(inst);
        for (position, operand) in operands.iter().enumerate() {
            if operand.role.writes() {
                let width = self.code.width(inst, position);
                for unit in self.code.units(regs[position], width) {
                    self.forget(unit);
                }
            }
        }
    }

    /// Sends inputs that may be anywhere to the oldest register with their contents.
    fn redirect_inputs(&mut self, inst: Inst, regs: &mut [PReg]) {
        let function = self.code.function;
        for (position, operand) in function.operands(inst).iter().enumerate() {
            let pinned = function.vreg(operand.vreg).pinned;
            if operand.role != Role::Use || pinned || !self.may_be_anywhere(inst, position) {
                continue;
            }
            let class = function.vreg(operand.vreg).class;
            let width = self.code.width(inst, position);
            let avoids_early = |reg: PReg| {
                let operands = function.operands(inst).iter().enumerate();
                let mut early = operands.filter(|(_, o)| o.role == Role::EarlyDef);
                early.all(|(i, _)| !overlap(reg, width, regs[i], self.code.width(inst, i)))
            };
            let suits = |reg| self.code.target.fits(class, reg) && avoids_early(reg);
            let oldest = self.oldest(regs[position], width, suits);
            if oldest != regs[position] {
                regs[position] = oldest;
                self.counts.propagated += 1;
            }
        }
    }

    fn may_be_anywhere(&self, inst: Inst, position: usize) -> bool {
        let function = self.code.function;
        let operands = function.operands(inst);
        let tied = Constraint::Tied(position as u8);
        let mut groups = function.groups(inst).iter();
        operands[position].constraint == Constraint::Any
            && operands.iter().all(|o| o.constraint != tied)
            && groups.all(|g| !g.range().contains(&position))
    }

    /// Runs an edit; whether it changes anything.
    fn edit(&mut self, edit: &mut Edit) -> bool {
        match edit {
            Edit::Move { to, from, width } => self.move_units(*to, from, *width),
            Edit::Swap { a, b, width } => self.swap(*a, *b, *width),
            Edit::Store { to, from, width } => self.store(*to, from, *width),
            Edit::Reload { to, from, width } => match self.reload(*to, *from, *width) {
                Reloaded::IsThere => false,
                Reloaded::FromMemory => true,
                Reloaded::FromRegister(from) => {
                    let (to, width) = (*to, *width);
                    *edit = Edit::Move { to, from, width };
                    true
                }
            },
            Edit::Transfer { .. } => {
                let (_, writes) = self.code.edit_access(edit);
                writes.into_iter().for_each(|unit| self.forget(unit));
                true
            }
            Edit::Recompute { inst, regs } => {
                if self.reads_shared(*inst, regs) {
                    self.redirect_inputs(*inst, regs);
                }
                self.write_results(*inst, regs);
                true
            }
        }
    }

    fn move_units(&mut self, to: PReg, from: &mut PReg, width: u8) -> bool {
        let units = width as usize;
        if self.same(to, *from, units) {
            return false;
        }
        let given = *from;
        *from = self.oldest(given, units, |reg| {
            is_aligned_like(reg, given, units) && !overlap(reg, units, to, units)
        });
        let contents = self.contents(given, units);
        for (unit, content) in self.code.units(to, units).into_iter().zip(contents) {
            self.state.hand_on(unit, content);
        }
        true
    }

    fn swap(&mut self, a: PReg, b: PReg, width: u8) -> bool {
        let units = width as usize;
        if self.same(a, b, units) {
            return false;
        }
        let (in_a, in_b) = (self.contents(a, units), self.contents(b, units));
        for (reg, contents) in [(a, in_b), (b, in_a)] {
            for (unit, content) in self.code.units(reg, units).into_iter().zip(contents) {
                self.state.hand_on(unit, content);
            }
        }
        true
    }

    fn store(&mut self, to: SlotAddr, from: &mut PReg, width: u8) -> bool {
        let stored = self.stored_form(*from, width);
        let bytes = width as usize * self.code.target.file(from.file).unit_bytes;
        let pieces = self.code.pieces(to, bytes);
        let is_there = |(&piece, &content): (&u32, &Content)| self.content(piece) == content;
        if pieces.iter().zip(&stored).all(is_there) {
            return false;
        }
        for (piece, content) in pieces.into_iter().zip(stored) {
            self.state.set(piece, content);
        }
        let (given, units) = (*from, width as usize);
        *from = self.oldest(given, units, |reg| is_aligned_like(reg, given, units));
        true
    }

    /// What memory holds once the units from `from` on are stored.
    fn stored_form(&self, from: PReg, width: u8) -> SmallVec<[Content; 8]> {
        let bytes = self.code.target.file(from.file).unit_bytes;
        let of = (bytes / self.code.grain()) as u8;
        let contents = self.contents(from, width as usize);
        let pieces = contents.into_iter().flat_map(|content| {
            let split = move |piece| Content {
                piece,
                of,
                ..content
            };
            (0..of).map(split)
        });
        pieces.collect()
    }

    fn reload(&mut self, to: PReg, from: SlotAddr, width: u8) -> Reloaded {
        let file = self.code.target.file(to.file);
        let (units, per_unit) = (width as usize, file.unit_bytes / self.code.grain());
        let pieces = self.code.pieces(from, units * file.unit_bytes);
        let held: SmallVec<[Content; 8]> = pieces.iter().map(|&p| self.content(p)).collect();
        let units_to = self.code.units(to, units);
        let mut contents: SmallVec<[Content; 8]> = SmallVec::new();
        for (unit, &to) in held.chunks(per_unit).zip(&units_to) {
            let number = unit[0].number;
            let fits = |(piece, c): (usize, &Content)| {
                *c == Content {
                    number,
                    piece: piece as u8,
                    of: per_unit as u8,
                }
            };
            contents.push(match unit.iter().enumerate().all(fits) {
                true => Content::whole(number),
                false => self.state.fresh(to),
            });
        }
        let is_there = |(&unit, &content): (&u32, &Content)| self.content(unit) == content;
        if units_to.iter().zip(&contents).all(is_there) {
            return Reloaded::IsThere;
        }
        let holder = self.holder(&contents, |reg| {
            reg.file == to.file
                && is_aligned_like(reg, to, units)
                && !overlap(reg, units, to, units)
                && !self.is_pinned(reg, units)
        });
        for (unit, &content) in units_to.into_iter().zip(&contents) {
            self.state.hand_on(unit, content);
        }
        match holder {
            Some(from) => {
                self.counts.reloads_to_moves += 1;
                Reloaded::FromRegister(from)
            }
            None => Reloaded::FromMemory,
        }
    }

    fn same(&self, a: PReg, b: PReg, width: usize) -> bool {
        self.contents(a, width) == self.contents(b, width)
    }

    /// The suitable register that has held the contents of `reg` longest.
    fn oldest(&self, reg: PReg, width: usize, suits: impl Fn(PReg) -> bool) -> PReg {
        let contents = self.contents(reg, width);
        let suits = |other: PReg| {
            let may_change = || suits(other) && !self.is_pinned(other, width);
            other.file == reg.file && (other == reg || may_change())
        };
        self.holder(&contents, suits).unwrap_or(reg)
    }

    /// Whether a pinned value is ever in one of the `width` units from `reg` on.
    fn is_pinned(&self, reg: PReg, width: usize) -> bool {
        !self.pinned.is_empty() && self.pinned.overlaps(self.code.target, reg, width)
    }

    /// The suitable register that has held `contents` longest.
    fn holder(&self, contents: &[Content], suits: impl Fn(PReg) -> bool) -> Option<PReg> {
        let first = contents.first()?;
        let target: &Target = self.code.target;
        let units = self.state.candidates(first.number);
        let is_unit = |&unit: &u32| (unit as usize) < target.unit_count();
        let regs = units
            .filter(is_unit)
            .map(|unit| target.reg_at(Unit(unit as u16)));
        regs.into_iter().find(|&reg| {
            let info = target.file(reg.file);
            let within = reg.unit as usize + contents.len() <= info.units;
            within && suits(reg) && self.contents(reg, contents.len())[..] == *contents
        })
    }

    fn contents(&self, reg: PReg, width: usize) -> SmallVec<[Content; 8]> {
        let units = self.code.target.units(reg, width);
        units
            .map(|unit| self.content(unit.index() as u32))
            .collect()
    }

    fn content(&self, location: u32) -> Content {
        self.state.contents[location as usize]
    }

    #[inline]
    fn forget(&mut self, unit: u32) {
        let content = self.state.fresh(unit);
        self.state.set(unit, content);
    }
}

/// What a reload comes to.
enum Reloaded {
    /// The register holds the content already.
    IsThere,
    FromMemory,
    /// Another register holds it.
    FromRegister(PReg),
}

/// Whether `reg` may stand in for `like` in an edit of this width.
fn is_aligned_like(reg: PReg, like: PReg, width: usize) -> bool {
    let width = width.next_power_of_two();
    reg.unit as usize % width == like.unit as usize % width
}

fn overlap(a: PReg, a_width: usize, b: PReg, b_width: usize) -> bool {
    let (a_start, b_start) = (a.unit as usize, b.unit as usize);
    a.file == b.file && a_start < b_start + b_width && b_start < a_start + a_width
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without this, they grow with the length of a block, and each reload looks at all of
    /// them.
    #[test]
    fn a_content_has_no_more_holders_than_there_are_units() {
        let mut state = State::unknown(5, 4);
        let content = state.fresh(0);
        state.set(0, content);
        for _ in 0..100 {
            for unit in 1..4 {
                state.hand_on(unit, content);
                let other = state.fresh(unit);
                state.set(unit, other);
            }
        }
        let holders: Vec<u32> = state.candidates(content.number).collect();
        assert_eq!(holders, [0, 1, 2, 3], "oldest first");
    }

    #[test]
    fn what_a_block_did_is_taken_back_before_its_sibling() {
        let mut state = State::unknown(5, 4);
        let content = state.fresh(0);
        state.set(0, content);
        state.hand_on(1, content);
        let (mark, contents) = (state.mark(), state.contents.clone());
        state.hand_on(2, content);
        let other = state.fresh(0);
        state.set(0, other);
        state.hand_on(3, other);
        state.roll_back(mark);
        assert_eq!(state.contents, contents);
        let holders: Vec<u32> = state.candidates(content.number).collect();
        assert_eq!(holders, [0, 1]);
        // The number is free again, and so are its holders.
        let again = state.fresh(2);
        assert_eq!(again, other);
        assert_eq!(state.candidates(again.number).collect::<Vec<_>>(), [2]);
    }
}
