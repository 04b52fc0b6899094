//! Copy propagation, and redundant moves, stores and reloads.
//!
//! Every location holds a *content*, which is the number of the step that wrote it. Moves,
//! copies, stores and reloads hand contents on; all other steps make new ones. A block with
//! a single predecessor starts with the contents at its end; any other block starts with
//! contents unknown. Registers of the same content are interchangeable for a reader, so
//! readers are sent to the one that has held it longest: copies then lose their readers and
//! become dead. No reader is sent to the register of a pinned value, on which the hardware
//! may be at work.

use super::CleanupCounts;
use super::code::{Code, Locations, Step};
use crate::allocation::{Edit, SlotAddr};
use crate::analysis::Order;
use crate::function::{Block, Constraint, Inst, Role};
use crate::target::{PReg, RegSet, Target, Unit};
use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Drops and redirects what it can in `code`.
pub(super) fn run(code: &mut Code, counts: &mut CleanupCounts) {
    let function = code.function;
    let order = Order::compute(function);
    let mut kept: FxHashMap<Block, State> = FxHashMap::default();
    let mut clock = 1;
    let pinned = pinned_registers(code);
    for &block in order.reverse_postorder() {
        let inherited = match function.preds(block) {
            [_] if block != function.entry() => kept.remove(&block),
            _ => None,
        };
        let state = inherited.unwrap_or_else(|| State::unknown(code.location_count(), &mut clock));
        let mut walk = Walk {
            code: &mut *code,
            state,
            clock,
            counts: &mut *counts,
            pinned: &pinned,
        };
        walk.block(block);
        walk.state.drop_stale_holders();
        for (succ, edge) in function.succs(block).iter().enumerate() {
            let is_only_way = function.preds(edge.block).len() == 1;
            if !is_only_way && walk.code.edges[block.index()][succ].is_empty() {
                continue;
            }
            let at_end = walk.state.clone();
            walk.edge(block, succ);
            let on_edge = std::mem::replace(&mut walk.state, at_end);
            if is_only_way {
                kept.insert(edge.block, on_edge);
            }
        }
        clock = walk.clock;
    }
}

/// The registers of pinned values, each of which stays in one.
fn pinned_registers(code: &Code) -> RegSet {
    let function = code.function;
    let mut pinned = RegSet::new(code.target);
    if !function.vregs().any(|v| function.vreg(v).pinned) {
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
#[derive(Clone)]
struct State {
    contents: Vec<Content>,
    /// Location `i` began with content `first + i`.
    first: u32,
    /// Units that were given each content, oldest first; some may hold another by now.
    holders: FxHashMap<u32, SmallVec<[u32; 2]>>,
}

impl State {
    fn unknown(locations: usize, clock: &mut u32) -> State {
        let first = *clock;
        *clock += locations as u32;
        State {
            contents: (first..*clock).map(Content::whole).collect(),
            first,
            holders: FxHashMap::default(),
        }
    }

    /// Units that may hold `content`, oldest first.
    fn candidates(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        let first = number.checked_sub(self.first);
        let begun_with = first.filter(|&location| (location as usize) < self.contents.len());
        let given = self.holders.get(&number).into_iter().flatten();
        begun_with.into_iter().chain(given.copied())
    }

    /// Drops what no unit holds any more, so that a long chain of blocks hands on no more than
    /// there are locations.
    fn drop_stale_holders(&mut self) {
        let contents = &self.contents;
        self.holders.retain(|&number, units| {
            units.retain(|unit| contents[*unit as usize].number == number);
            !units.is_empty()
        });
    }

    fn set_unit(&mut self, unit: u32, content: Content) {
        if self.contents[unit as usize] != content {
            self.contents[unit as usize] = content;
            let holders = self.holders.entry(content.number).or_default();
            holders.push(unit);
        }
    }
}

struct Walk<'c, 'a> {
    code: &'c mut Code<'a>,
    state: State,
    clock: u32,
    counts: &'c mut CleanupCounts,
    /// Where pinned values are.
    pinned: &'c RegSet,
}

impl Walk<'_, '_> {
    fn block(&mut self, block: Block) {
        let steps = std::mem::take(&mut self.code.blocks[block.index()]);
        self.code.blocks[block.index()] = self.steps(steps);
    }

    fn edge(&mut self, block: Block, succ: usize) {
        let steps = std::mem::take(&mut self.code.edges[block.index()][succ]);
        self.code.edges[block.index()][succ] = self.steps(steps);
    }

    fn steps(&mut self, steps: Vec<Step>) -> Vec<Step> {
        let kept = steps.into_iter().filter_map(|step| match step {
            Step::Inst(inst) => self.instruction(inst).then_some(step),
            Step::Edit(point, edit) => {
                let edit = self.edit(edit);
                self.counts.redundant += u32::from(edit.is_none());
                Some(Step::Edit(point, edit?))
            }
        });
        kept.collect()
    }

    /// Runs an instruction; whether it stays.
    fn instruction(&mut self, inst: Inst) -> bool {
        let row = self.code.function.operand_range(inst);
        let mut regs: SmallVec<[PReg; 8]> = SmallVec::from_slice(&self.code.registers[row.clone()]);
        self.redirect_inputs(inst, &mut regs);
        self.code.registers[row].copy_from_slice(&regs);
        if self.code.is_copy(inst) {
            return self.copy(inst, &regs);
        }
        for unit in self.code.clobbers(inst) {
            self.forget(unit);
        }
        self.write_results(inst, &regs);
        true
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
            self.state.set_unit(unit, content);
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

    /// Runs an edit, or says that it changes nothing.
    fn edit(&mut self, edit: Edit) -> Option<Edit> {
        match edit {
            Edit::Move { to, from, width } => self.move_units(to, from, width),
            Edit::Swap { a, b, width } => self.swap(a, b, width),
            Edit::Store { to, from, width } => self.store(to, from, width),
            Edit::Reload { to, from, width } => self.reload(to, from, width),
            Edit::Transfer { .. } => {
                let (_, writes) = self.code.edit_access(&edit);
                writes.into_iter().for_each(|unit| self.forget(unit));
                Some(edit)
            }
            Edit::Recompute { inst, mut regs } => {
                self.redirect_inputs(inst, &mut regs);
                self.write_results(inst, &regs);
                Some(Edit::Recompute { inst, regs })
            }
        }
    }

    fn move_units(&mut self, to: PReg, from: PReg, width: u8) -> Option<Edit> {
        let units = width as usize;
        if self.same(to, from, units) {
            return None;
        }
        let from = self.oldest(from, units, |reg| {
            is_aligned_like(reg, from, units) && !overlap(reg, units, to, units)
        });
        let contents = self.contents(from, units);
        for (unit, content) in self.code.units(to, units).into_iter().zip(contents) {
            self.state.set_unit(unit, content);
        }
        Some(Edit::Move { to, from, width })
    }

    fn swap(&mut self, a: PReg, b: PReg, width: u8) -> Option<Edit> {
        let units = width as usize;
        if self.same(a, b, units) {
            return None;
        }
        let (in_a, in_b) = (self.contents(a, units), self.contents(b, units));
        for (reg, contents) in [(a, in_b), (b, in_a)] {
            for (unit, content) in self.code.units(reg, units).into_iter().zip(contents) {
                self.state.set_unit(unit, content);
            }
        }
        Some(Edit::Swap { a, b, width })
    }

    fn store(&mut self, to: SlotAddr, from: PReg, width: u8) -> Option<Edit> {
        let stored = self.stored_form(from, width);
        let bytes = width as usize * self.code.target.file(from.file).unit_bytes;
        let pieces = self.code.pieces(to, bytes);
        let is_there = |(&piece, &content): (&u32, &Content)| self.content(piece) == content;
        if pieces.iter().zip(&stored).all(is_there) {
            return None;
        }
        for (piece, content) in pieces.into_iter().zip(stored) {
            self.state.contents[piece as usize] = content;
        }
        let units = width as usize;
        let from = self.oldest(from, units, |reg| is_aligned_like(reg, from, units));
        Some(Edit::Store { to, from, width })
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

    fn reload(&mut self, to: PReg, from: SlotAddr, width: u8) -> Option<Edit> {
        let file = self.code.target.file(to.file);
        let (units, per_unit) = (width as usize, file.unit_bytes / self.code.grain());
        let pieces = self.code.pieces(from, units * file.unit_bytes);
        let held: SmallVec<[Content; 8]> = pieces.iter().map(|&p| self.content(p)).collect();
        let mut contents: SmallVec<[Content; 8]> = SmallVec::new();
        for unit in held.chunks(per_unit) {
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
                false => self.fresh(),
            });
        }
        let units_to = self.code.units(to, units);
        let is_there = |(&unit, &content): (&u32, &Content)| self.content(unit) == content;
        if units_to.iter().zip(&contents).all(is_there) {
            return None;
        }
        let holder = self.holder(&contents, |reg| {
            reg.file == to.file
                && is_aligned_like(reg, to, units)
                && !overlap(reg, units, to, units)
                && !self.is_pinned(reg, units)
        });
        for (unit, &content) in units_to.into_iter().zip(&contents) {
            self.state.set_unit(unit, content);
        }
        Some(match holder {
            Some(from) => {
                self.counts.reloads_to_moves += 1;
                Edit::Move { to, from, width }
            }
            None => Edit::Reload { to, from, width },
        })
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

    fn forget(&mut self, unit: u32) {
        let content = self.fresh();
        self.state.set_unit(unit, content);
    }

    fn fresh(&mut self) -> Content {
        self.clock += 1;
        Content::whole(self.clock - 1)
    }
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

    /// Without this, the holders of a chain of blocks grow with its length, and they are copied
    /// at the end of every block.
    #[test]
    fn what_is_handed_on_is_bounded_by_the_locations() {
        let mut clock = 1;
        let mut state = State::unknown(4, &mut clock);
        for number in 100..200 {
            state.set_unit(number % 4, Content::whole(number));
        }
        state.set_unit(3, Content::whole(198));
        state.drop_stale_holders();
        assert_eq!(state.holders.len(), 3);
        let holders: Vec<u32> = state.candidates(198).collect();
        assert_eq!(holders, [2, 3], "oldest first");
    }
}
