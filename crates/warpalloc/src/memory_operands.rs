//! Operands in memory.
//!
//! Strategies know registers alone. A function with operands that may be in memory is
//! allocated as one without: an input that has to be in memory is stored right before its
//! instruction, a result is loaded right after it, and arguments are loaded from where the
//! caller left them. Afterwards the stores and loads become edits again.
//!
//! An operand that may be anywhere is in a register at first, unless there are too many of
//! them. Where it has just been reloaded and nobody else needs the register, it is read from
//! its slot instead; the same goes for inputs that were reloaded only to be stored again.

use crate::allocation::{Allocation, Edit, Edits, Point, SlotAddr, Space};
use crate::cleanup::{Code, Step};
use crate::cleanup::{Dead, Needs};
use crate::error::{Error, Place};
use crate::function::{Constraint, Function, Inst, Role, Stands};
use crate::scratch::Scratch;
use crate::target::{PReg, SpillPath, Target};
use cranelift_entity::{EntityRef, EntitySet};
use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

/// A function without operands in memory.
pub(crate) struct Lowered {
    /// That function.
    pub function: Function,
    stands: Vec<Stands>,
    /// Operands of the function as it was that were taken out.
    out: Vec<bool>,
}

/// `function` without operands in memory, if it has any that may be.
pub(crate) fn lower(function: &Function, target: &Target) -> Option<Lowered> {
    if !function.has_memory_operands() {
        return None;
    }
    let mut out: Vec<bool> = vec![false; function.operand_count()];
    for inst in function.insts().filter(|&inst| !function.is_free(inst)) {
        choose(function, target, inst, &mut out);
    }
    let is_out = |inst, at| out[function.operand_range(inst).start + at];
    let cycles = target.memory(Space::Argument).map_or(4.0, |m| m.cycles);
    let (function, stands) = function.without_memory_operands(is_out, cycles.min(255.0) as u8);
    Some(Lowered {
        function,
        stands,
        out,
    })
}

/// Decides which operands of `inst` are in memory from the start.
fn choose(function: &Function, target: &Target, inst: Inst, out: &mut [bool]) {
    let first = function.operand_range(inst).start;
    let operands = function.operands(inst);
    let class = |at: usize| target.class(function.vreg(operands[at].vreg).class);
    for (at, operand) in operands.iter().enumerate() {
        let is_out = matches!(
            operand.constraint,
            Constraint::Memory | Constraint::Argument(_)
        );
        out[first + at] |= is_out;
    }
    for (file, info) in target.files() {
        if info.spill != SpillPath::Memory {
            continue;
        }
        for side in [Role::Use, Role::Def] {
            let is_here = |at: usize| {
                let role = operands[at].role;
                class(at).file == file && (role == side || role == Role::UseDef)
            };
            let here: SmallVec<[usize; 16]> =
                (0..operands.len()).filter(|&at| is_here(at)).collect();
            let slack = here.iter().map(|&at| class(at).width).max().unwrap_or(0);
            let mut units: usize = here
                .iter()
                .filter(|&&at| !out[first + at])
                .map(|&at| class(at).width)
                .sum();
            for &at in here.iter().rev() {
                let is_choice = operands[at].constraint == Constraint::Anywhere;
                if units + slack > info.capacity && is_choice && !out[first + at] {
                    out[first + at] = true;
                    units -= class(at).width;
                }
            }
        }
    }
}

impl Lowered {
    /// `error` with its place in the function as it was.
    pub fn place_in(&self, error: Error) -> Error {
        let back = |place: Place| match place {
            Place::Inst(block, inst) => Place::Inst(block, self.origin(inst)),
            other => other,
        };
        match error {
            Error::Invalid { place, message } => Error::Invalid {
                place: back(place),
                message,
            },
            Error::Impossible {
                place,
                value,
                message,
                help,
            } => Error::Impossible {
                place: back(place),
                value,
                message,
                help,
            },
            other => other,
        }
    }

    fn origin(&self, inst: Inst) -> Inst {
        match self.stands.get(inst.index()) {
            Some(
                &(Stands::For(inst)
                | Stands::Store(inst, _)
                | Stands::Load(inst, _)
                | Stands::Argument(inst, _, _)),
            ) => inst,
            None => inst,
        }
    }

    /// The allocation of `function`, from that of the function without operands in memory.
    pub fn raise(
        &self,
        function: &Function,
        target: &Target,
        lowered: Allocation,
        space: Space,
        scratch: &Scratch,
    ) -> Allocation {
        let slots = Slots::new(function, target, &self.stands, &lowered, space);
        let dead = DeadAfter::find(&self.function, target, &lowered, scratch);
        let mut raise = Raise {
            function,
            target,
            lowered: self,
            from: &lowered,
            slots: &slots,
            dead: &dead,
            registers: vec![PReg::new(crate::target::File::MAIN, 0); function.operand_count()],
            memory: Vec::new(),
            edits: Vec::new(),
            order: Vec::with_capacity(function.inst_count()),
            deleted: EntitySet::new(),
            used: 0,
        };
        raise.blocks();
        let Raise {
            used,
            registers,
            mut memory,
            edits,
            order,
            deleted,
            ..
        } = raise;
        memory.sort_unstable_by_key(|m| m.0);
        let is_same = order.iter().copied().eq(function.insts());
        let edits = Edits::new(function, edits);
        let mut frame = lowered.frame;
        match space {
            Space::Shared => frame.shared += used * slots.step,
            _ => frame.local += used * slots.step,
        }
        let mut stats = lowered.stats;
        stats.edits = edits.counts();
        Allocation {
            registers,
            memory,
            edits,
            deleted,
            order: (!is_same).then_some(order),
            frame,
            stats,
        }
    }
}

/// The slots that operands in memory pass through, below the rest of the frame.
struct Slots {
    space: Space,
    /// Bytes of the rest.
    size: u32,
    /// Bytes of each place, so that any operand fits.
    step: u32,
}

impl Slots {
    fn new(
        function: &Function,
        target: &Target,
        stands: &[Stands],
        lowered: &Allocation,
        space: Space,
    ) -> Slots {
        let bytes = stands.iter().filter_map(|stand| match *stand {
            Stands::Store(inst, at) | Stands::Load(inst, at) => {
                let vreg = function.operands(inst)[at].vreg;
                Some(target.spill_bytes(function.vreg(vreg).class))
            }
            _ => None,
        });
        let widest = bytes.max().unwrap_or(0);
        Slots {
            space,
            size: lowered.frame.size(space),
            // What lay aligned from the low end still does.
            step: widest.next_multiple_of(target.slot_align()),
        }
    }

    fn place(&self, index: u32) -> SlotAddr {
        SlotAddr {
            space: self.space,
            offset: -((self.size + (index + 1) * self.step) as i32),
        }
    }
}

/// Operands whose registers nothing needs after their instruction, by their place in the row
/// of all operands.
struct DeadAfter(FixedBitSet);

impl DeadAfter {
    fn find(
        function: &Function,
        target: &Target,
        allocation: &Allocation,
        scratch: &Scratch,
    ) -> DeadAfter {
        let code = Code::new(function, target, allocation, scratch);
        let needs = Needs::solve(&code, Dead::Stays);
        let mut dead = FixedBitSet::with_capacity(function.operand_count());
        for block in function.blocks() {
            let mut needed = FixedBitSet::with_capacity(code.location_count());
            for (succ, edge) in function.succs(block).iter().enumerate() {
                let mut on_edge = needs.at_start(edge.block).clone();
                for step in code.edges[block.index()][succ].iter().rev() {
                    needs.step_back(&code, step, &mut on_edge);
                }
                needed.union_with(&on_edge);
            }
            for step in code.blocks[block.index()].iter().rev() {
                if let Step::Inst(inst) = step {
                    let range = function.operand_range(*inst);
                    for (at, index) in range.enumerate() {
                        let units = code.units(code.registers[index], code.width(*inst, at));
                        let is_dead = units.iter().all(|&unit| !needed.contains(unit as usize));
                        dead.set(index, is_dead);
                    }
                }
                needs.step_back(&code, step, &mut needed);
            }
        }
        DeadAfter(dead)
    }
}

struct Raise<'a> {
    function: &'a Function,
    target: &'a Target,
    lowered: &'a Lowered,
    from: &'a Allocation,
    slots: &'a Slots,
    dead: &'a DeadAfter,
    registers: Vec<PReg>,
    memory: Vec<(u32, SlotAddr)>,
    edits: Vec<(Point, Edit)>,
    order: Vec<Inst>,
    deleted: EntitySet<Inst>,
    /// How many places operands pass through.
    used: u32,
}

impl Raise<'_> {
    fn blocks(&mut self) {
        for block in self.function.blocks() {
            // Edits for the next instruction of the function.
            let mut waiting: Vec<Edit> = Vec::new();
            let mut stores = 0;
            let new = &self.lowered.function;
            let steps: Vec<Inst> = self.from.block_insts(new, block).collect();
            for (number, &step) in steps.iter().enumerate() {
                let before = self.from.edits.before(step);
                waiting.extend(before.map(|edit| self.edit(edit)));
                let is_deleted = self.from.deleted.contains(step);
                let mut after: Vec<Edit> = Vec::new();
                match self.lowered.stands[step.index()] {
                    Stands::For(inst) => {
                        self.instruction(inst, step, is_deleted, &mut waiting);
                        let here = waiting.drain(..).map(|edit| (Point::Before(inst), edit));
                        self.edits.extend(here);
                        self.order.push(inst);
                        let edits = self.from.edits.after(step).map(|edit| self.edit(edit));
                        let edits: Vec<Edit> = edits.collect();
                        let here = edits.into_iter().map(|edit| (Point::After(inst), edit));
                        self.edits.extend(here);
                        stores = 0;
                        continue;
                    }
                    Stands::Store(inst, at) => {
                        let slot = self.slots.place(stores);
                        stores += 1;
                        self.used = self.used.max(stores);
                        self.store(inst, at, &steps[number..], slot, &mut waiting);
                    }
                    Stands::Load(inst, at) => {
                        let slot = self.slots.place(stores);
                        stores += 1;
                        self.used = self.used.max(stores);
                        self.put(inst, at, slot);
                        after.push(self.reload(inst, at, self.register(step, 0), slot));
                    }
                    Stands::Argument(inst, at, offset) => {
                        let slot = argument(offset);
                        self.put(inst, at, slot);
                        if !is_deleted {
                            after.push(self.reload(inst, at, self.register(step, 0), slot));
                        }
                    }
                }
                waiting.extend(after);
                let edits = self.from.edits.after(step).map(|edit| self.edit(edit));
                waiting.extend(edits);
            }
            for succ in 0..self.function.succs(block).len() as u32 {
                let edits = self.from.edits.on_edge(block, succ);
                let edits: Vec<Edit> = edits.map(|edit| self.edit(edit)).collect();
                let point = Point::Edge(block, succ);
                self.edits
                    .extend(edits.into_iter().map(|edit| (point, edit)));
            }
        }
    }

    fn register(&self, step: Inst, at: usize) -> PReg {
        self.from.operands(&self.lowered.function, step)[at]
    }

    fn put(&mut self, inst: Inst, at: usize, slot: SlotAddr) {
        let index = self.function.operand_range(inst).start + at;
        self.memory.push((index as u32, slot));
    }

    fn width(&self, inst: Inst, at: usize) -> u8 {
        let vreg = self.function.operands(inst)[at].vreg;
        self.target.width(self.function.vreg(vreg).class) as u8
    }

    fn reload(&self, inst: Inst, at: usize, to: PReg, from: SlotAddr) -> Edit {
        let width = self.width(inst, at);
        Edit::Reload { to, from, width }
    }

    /// An edit in terms of the function as it was.
    fn edit(&self, edit: &Edit) -> Edit {
        let Edit::Recompute { inst, regs } = edit else {
            return edit.clone();
        };
        match self.lowered.stands[inst.index()] {
            Stands::Argument(of, at, offset) => self.reload(of, at, regs[0], argument(offset)),
            _ => Edit::Recompute {
                inst: self.lowered.origin(*inst),
                regs: regs.clone(),
            },
        }
    }

    /// Puts an input into memory, unless it has just come from there. `steps` begin with the
    /// store.
    fn store(
        &mut self,
        inst: Inst,
        at: usize,
        steps: &[Inst],
        slot: SlotAddr,
        waiting: &mut Vec<Edit>,
    ) {
        let from = self.register(steps[0], 0);
        let width = self.width(inst, at);
        let index = self.lowered.function.operand_range(steps[0]).start;
        let home = match self.stores_ahead(steps) {
            true => None,
            false => self.folded(from, width, index, waiting),
        };
        match home {
            Some(home) => self.put(inst, at, home),
            None => {
                waiting.push(Edit::Store {
                    to: slot,
                    from,
                    width,
                });
                self.put(inst, at, slot);
            }
        }
    }

    /// Whether anything is stored between the first of `steps` and the next instruction: it
    /// may go to the slot that an input has just come from.
    fn stores_ahead(&self, steps: &[Inst]) -> bool {
        let is_store = |edit: &Edit| matches!(edit, Edit::Store { .. });
        for (number, &step) in steps.iter().enumerate() {
            if number > 0 && self.from.edits.before(step).any(is_store) {
                return true;
            }
            if matches!(self.lowered.stands[step.index()], Stands::For(_)) {
                return false;
            }
            if self.from.edits.after(step).any(is_store) {
                return true;
            }
        }
        true
    }

    /// Writes down where the operands of `inst` are. Inputs that may be anywhere and have just
    /// come from memory stay there.
    fn instruction(&mut self, inst: Inst, step: Inst, is_deleted: bool, waiting: &mut Vec<Edit>) {
        if is_deleted {
            self.deleted.insert(inst);
        }
        let new = &self.lowered.function;
        let kept = self.function.operand_range(inst);
        let mut next = new.operand_range(step);
        let places: Vec<(usize, usize)> = kept
            .clone()
            .filter(|&index| !self.lowered.out[index])
            .zip(&mut next)
            .collect();
        for &(index, from) in &places {
            let at = index - kept.start;
            let operand = self.function.operands(inst)[at];
            let reg = self.from.registers[from];
            self.registers[index] = reg;
            let is_alone = self.is_alone(inst, step, from, reg);
            let may_fold = operand.constraint == Constraint::Anywhere
                && operand.role == Role::Use
                && !is_deleted
                && is_alone;
            if may_fold && let Some(home) = self.folded(reg, self.width(inst, at), from, waiting) {
                self.memory.push((index as u32, home));
            }
        }
    }

    /// Whether no other input of `step` overlaps `reg`, which the operand at `index` is in.
    fn is_alone(&self, inst: Inst, step: Inst, index: usize, reg: PReg) -> bool {
        let new = &self.lowered.function;
        let width = |index: usize| {
            let at = index - new.operand_range(step).start;
            let vreg = new.operands(step)[at].vreg;
            self.target.width(self.function.vreg(vreg).class)
        };
        debug_assert_eq!(self.lowered.origin(step), inst);
        let mut others = new.operand_range(step).filter(|&other| other != index);
        others.all(|other| {
            let at = other - new.operand_range(step).start;
            let its = self.from.registers[other];
            let reads = new.operands(step)[at].role.reads();
            !reads || !overlap(its, width(other), reg, width(index))
        })
    }

    /// Takes the reload of `reg` out of `waiting` and returns the slot it came from, if nobody
    /// else needs the register: the operand at `index` of the lowered function is the last.
    fn folded(
        &self,
        reg: PReg,
        width: u8,
        index: usize,
        waiting: &mut Vec<Edit>,
    ) -> Option<SlotAddr> {
        if !self.dead.0.contains(index) {
            return None;
        }
        let is_reload = |edit: &Edit| matches!(*edit, Edit::Reload { to, width: w, .. } if to == reg && w == width);
        let at = waiting.iter().rposition(is_reload)?;
        let Edit::Reload { from, .. } = waiting[at] else {
            return None;
        };
        // Later stores go to slots of other values, or to those that operands pass through.
        let later = &waiting[at + 1..];
        let is_apart = |edit: &Edit| match *edit {
            Edit::Reload { to, width: w, .. } => !overlap(to, w.into(), reg, width.into()),
            Edit::Store {
                to,
                from: r,
                width: w,
            } => {
                let bytes = i32::from(w) * self.target.file(r.file).unit_bytes as i32;
                let own = i32::from(width) * self.target.file(reg.file).unit_bytes as i32;
                let in_memory = to.space != from.space
                    || to.offset + bytes <= from.offset
                    || from.offset + own <= to.offset;
                in_memory && !overlap(r, w.into(), reg, width.into())
            }
            _ => false,
        };
        if !later.iter().all(is_apart) {
            return None;
        }
        waiting.remove(at);
        Some(from)
    }
}

fn argument(offset: u32) -> SlotAddr {
    SlotAddr {
        space: Space::Argument,
        offset: offset as i32,
    }
}

fn overlap(a: PReg, a_width: usize, b: PReg, b_width: usize) -> bool {
    let (x, y) = (usize::from(a.unit), usize::from(b.unit));
    a.file == b.file && x < y + b_width && y < x + a_width
}
