//! Where spill code stands: reloads ahead of their readers, stores behind their writers.
//!
//! A reload right before its reader makes it wait for memory, and a store right behind a load
//! waits for what is loaded. So within each block
//!
//! - a store goes down until its value is there: some cycles behind what computes it, or behind
//!   the first instruction that waits for it anyway;
//! - a reload goes up until its latency has passed where its value is first read, as far as
//!   some register is free that long. Where the value is read by instructions that take any
//!   register, it takes the one that is free longest.
//!
//! Nothing passes an access to its slot or to its registers. The checker proves the result.

use crate::code::Code;
use crate::isa::{File, Latency, Pipe, Reg, RegSet};
use crate::recolour::lower::{Lowered, STACK_POINTER, preg, reg};
use warpalloc::Allocation;
use warpalloc::allocation::{Edit, Edits, Point, SlotAddr, Space};
use warpalloc::function::{Block, Function, Inst, Kind, Role};
use warpalloc::target::{PReg, Target};

/// Cycles behind an operation of fixed latency after which a store may read its result without
/// a longer stall.
fn cycles_to_store(pipe: Option<Pipe>) -> u32 {
    match pipe {
        Some(Pipe::Tensor) => 24,
        Some(Pipe::Double | Pipe::Half) => 11,
        _ => 7,
    }
}
/// Cycles from a recomputation to its reader.
const CYCLES_TO_COMPUTE: u32 = 7;
/// Cycles from a load of shared memory to its reader.
const CYCLES_FROM_SHARED: u32 = 32;
/// Cycles from a load of local memory to its reader.
const CYCLES_FROM_LOCAL: u32 = 42;
/// How far up a register is looked for.
const REACH: usize = 96;

/// Moves the stores, reloads and recomputations of an allocation to better places.
pub(super) fn place(
    lowered: &Lowered,
    code: &Code,
    target: &Target,
    allocation: &mut Allocation,
    space: Space,
) {
    let mut placer = Placer {
        function: &lowered.function,
        lowered,
        code,
        budget: target.budget(warpalloc::target::File::R),
        reload_cycles: match space {
            Space::Shared => CYCLES_FROM_SHARED,
            Space::Local | Space::Argument => CYCLES_FROM_LOCAL,
        },
        allocation,
    };
    let live_out = placer.live_out();
    let mut list = Vec::new();
    for block in placer.function.blocks() {
        let mut steps = placer.steps(block);
        placer.sink_stores(&mut steps);
        let mut live = placer.live_after(&steps, live_out[block.as_u32() as usize]);
        placer.raise_reloads(&mut steps, &mut live);
        placer.write(&steps, &mut list);
    }
    let edges = placer.allocation.edits.iter();
    let edges = edges.filter(|(point, _)| matches!(point, Point::Edge(..)));
    list.extend(edges.map(|(point, edit)| (point, edit.clone())));
    allocation.edits = Edits::new(&lowered.function, list);
}

/// An instruction of the function, or an edit between two.
#[derive(Clone, Debug)]
enum Step {
    Inst(Inst),
    Edit(Edit),
}

struct Placer<'a> {
    function: &'a Function,
    lowered: &'a Lowered,
    code: &'a Code,
    budget: usize,
    reload_cycles: u32,
    allocation: &'a mut Allocation,
}

/// The general registers that a step reads and writes.
#[derive(Clone, Copy, Default)]
struct Touched {
    reads: RegSet,
    writes: RegSet,
}

impl Touched {
    fn add(&mut self, first: PReg, width: u8, reads: bool, writes: bool) {
        for lane in 0..width {
            let one = reg(first.offset(lane.into()));
            if one.file != File::R {
                continue;
            }
            if reads {
                self.reads.insert(one);
            }
            if writes {
                self.writes.insert(one);
            }
        }
    }

    fn all(&self) -> RegSet {
        let mut all = self.reads;
        all.union_with(&self.writes);
        all
    }
}

impl Placer<'_> {
    fn steps(&self, block: Block) -> Vec<Step> {
        let edits = &self.allocation.edits;
        let mut steps = Vec::new();
        for inst in self.function.block_insts(block) {
            steps.extend(edits.before(inst).cloned().map(Step::Edit));
            steps.push(Step::Inst(inst));
            steps.extend(edits.after(inst).cloned().map(Step::Edit));
        }
        steps
    }

    /// Every edit before the next instruction.
    fn write(&self, steps: &[Step], list: &mut Vec<(Point, Edit)>) {
        let mut waiting = Vec::new();
        for step in steps {
            match step {
                Step::Edit(edit) => waiting.push(edit.clone()),
                Step::Inst(inst) => {
                    list.extend(waiting.drain(..).map(|edit| (Point::Before(*inst), edit)));
                }
            }
        }
    }

    fn touched(&self, step: &Step) -> Touched {
        match step {
            Step::Inst(inst) if self.allocation.deleted.contains(*inst) => Touched::default(),
            Step::Inst(inst) => {
                self.of_operands(*inst, self.allocation.operands(self.function, *inst))
            }
            Step::Edit(edit) => self.of_edit(edit),
        }
    }

    fn of_operands(&self, inst: Inst, registers: &[PReg]) -> Touched {
        let mut touched = Touched::default();
        for (operand, &register) in self.function.operands(inst).iter().zip(registers) {
            touched.add(register, 1, operand.role.reads(), operand.role.writes());
        }
        touched
    }

    fn of_edit(&self, edit: &Edit) -> Touched {
        let mut touched = Touched::default();
        match *edit {
            Edit::Move { to, from, width } => {
                touched.add(from, width, true, false);
                touched.add(to, width, false, true);
            }
            Edit::Swap { a, b, width } => {
                touched.add(a, width, true, true);
                touched.add(b, width, true, true);
            }
            Edit::Transfer { to, from, regs } => {
                touched.add(from, regs, true, false);
                touched.add(to, regs, false, true);
            }
            Edit::Store { from, width, .. } => touched.add(from, width, true, false),
            Edit::Reload { to, width, .. } => touched.add(to, width, false, true),
            Edit::Recompute { inst, ref regs } => return self.of_operands(inst, regs),
        }
        touched
    }

    /// Cycles from the issue of a step to that of the next.
    fn cycles(&self, step: &Step) -> u32 {
        match step {
            Step::Inst(inst) => match self.code_of(*inst) {
                Some(inst) => u32::from(inst.control().stall.max(1)),
                None => 0,
            },
            Step::Edit(Edit::Swap { .. }) => 3,
            Step::Edit(_) => 1,
        }
    }

    fn code_of(&self, inst: Inst) -> Option<&crate::isa::Inst> {
        let at = usize::try_from(self.function.inst(inst).imm).ok()?;
        let is_it = self.lowered.insts.get(at) == Some(&Some(inst));
        is_it.then(|| &self.code.insts()[at])
    }

    /// The general registers that are live where each block ends.
    fn live_out(&self) -> Vec<RegSet> {
        let function = self.function;
        let count = function.block_count();
        let steps: Vec<Vec<Step>> = function.blocks().map(|b| self.steps(b)).collect();
        let mut live_in = vec![RegSet::EMPTY; count];
        let mut live_out = vec![RegSet::EMPTY; count];
        let mut is_changed = true;
        while is_changed {
            is_changed = false;
            for block in function.blocks().rev() {
                let number = block.as_u32() as usize;
                let mut out = RegSet::EMPTY;
                for (succ, edge) in function.succs(block).iter().enumerate() {
                    let mut live = live_in[edge.block.as_u32() as usize];
                    let edits = self.allocation.edits.on_edge(block, succ as u32);
                    let edits: Vec<&Edit> = edits.collect();
                    for edit in edits.into_iter().rev() {
                        step_back(&mut live, &self.of_edit(edit));
                    }
                    out.union_with(&live);
                }
                let mut live = out;
                for step in steps[number].iter().rev() {
                    step_back(&mut live, &self.touched(step));
                }
                is_changed |= live != live_in[number] || out != live_out[number];
                (live_in[number], live_out[number]) = (live, out);
            }
        }
        live_out
    }

    /// The general registers that are live behind each step.
    fn live_after(&self, steps: &[Step], mut live: RegSet) -> Vec<RegSet> {
        let mut rows = vec![RegSet::EMPTY; steps.len()];
        for (row, step) in rows.iter_mut().zip(steps).rev() {
            *row = live;
            step_back(&mut live, &self.touched(step));
        }
        rows
    }

    fn sink_stores(&self, steps: &mut [Step]) {
        for at in (0..steps.len()).rev() {
            let Step::Edit(Edit::Store { to, width, .. }) = steps[at] else {
                continue;
            };
            let to = self.sunk(steps, at, (to, width));
            steps[at..=to].rotate_left(1);
        }
    }

    /// Where the store at `at` goes.
    fn sunk(&self, steps: &[Step], at: usize, slot: (SlotAddr, u8)) -> usize {
        let value = self.touched(&steps[at]).reads;
        let writer = steps[..at].iter().rposition(|step| {
            let writes = self.touched(step).writes;
            value.iter().any(|one| writes.contains(one))
        });
        let Some(writer) = writer else {
            return at;
        };
        let producer = match &steps[writer] {
            Step::Inst(inst) => self.code_of(*inst),
            Step::Edit(_) => None,
        };
        let board = producer
            .filter(|inst| inst.latency() == Latency::Variable)
            .and_then(|inst| inst.control().write_scoreboard);
        let needed = cycles_to_store(producer.map(|inst| inst.pipe()));
        let between = &steps[writer + 1..at];
        if board.is_some() && between.iter().any(|step| self.waits(step, board)) {
            return at;
        }
        let mut cycles: u32 = steps[writer..at].iter().map(|s| self.cycles(s)).sum();
        let is_ready = |cycles: u32, board: Option<u8>| match board {
            Some(_) => false,
            None => cycles >= needed,
        };
        let mut to = at;
        while !is_ready(cycles, board) && to + 1 < steps.len() {
            let next = &steps[to + 1];
            if let Step::Inst(inst) = next
                && self.function.inst(*inst).kind.is_terminator()
            {
                break;
            }
            let touched = self.touched(next);
            let is_overwritten = value.iter().any(|one| touched.writes.contains(one));
            if is_overwritten || accesses(next, slot) {
                break;
            }
            to += 1;
            cycles += self.cycles(next);
            if board.is_some() && self.waits(next, board) {
                break;
            }
        }
        to
    }

    /// Whether a step waits for a scoreboard.
    fn waits(&self, step: &Step, board: Option<u8>) -> bool {
        let (Step::Inst(inst), Some(board)) = (step, board) else {
            return false;
        };
        let inst = self.code_of(*inst);
        inst.is_some_and(|inst| inst.control().wait_mask >> board & 1 != 0)
    }

    fn raise_reloads(&mut self, steps: &mut [Step], live: &mut [RegSet]) {
        for at in 0..steps.len() {
            let wanted = match &steps[at] {
                Step::Edit(Edit::Reload { .. }) => self.reload_cycles,
                Step::Edit(Edit::Recompute { inst, .. }) => match self.code_of(*inst) {
                    Some(inst) if inst.latency() == Latency::Variable => self.reload_cycles,
                    _ => CYCLES_TO_COMPUTE,
                },
                _ => continue,
            };
            self.raise(steps, live, at, wanted);
        }
    }

    /// Moves the step at `at` up so that `wanted` cycles lie between it and the first reader.
    fn raise(&mut self, steps: &mut [Step], live: &mut [RegSet], at: usize, wanted: u32) {
        let touched = self.touched(&steps[at]);
        let Some(range) = self.range(steps, live, at) else {
            return;
        };
        // Registers that nothing touches from where the step goes to the last reader.
        let mut free: RegSet = match range.is_renamable {
            true => (0..self.budget)
                .map(|index| Reg {
                    file: File::R,
                    index: index as u8,
                })
                .filter(|&one| one != STACK_POINTER)
                .collect(),
            false => touched.writes,
        };
        if range.is_renamable {
            let mut taken = live[range.last];
            for step in &steps[at + 1..=range.last] {
                taken.union_with(&self.touched(step).all());
            }
            taken.subtract(&touched.writes);
            free.subtract(&taken);
        }
        let slot = match steps[at] {
            Step::Edit(Edit::Reload { from, width, .. }) => Some((from, width)),
            _ => None,
        };
        let mut cycles: u32 = steps[at..range.first].iter().map(|s| self.cycles(s)).sum();
        let is_whole = |free: &RegSet| match range.is_renamable {
            true => !free.is_empty(),
            false => *free == touched.writes,
        };
        let mut to = at;
        while cycles < wanted && to > 0 && at - to < REACH {
            let above = &steps[to - 1];
            let of_above = self.touched(above);
            let is_input = touched
                .reads
                .iter()
                .any(|one| of_above.writes.contains(one));
            let is_entry = matches!(above, Step::Inst(inst) if self.is_entry(*inst));
            let is_slot = slot.is_some_and(|slot| accesses_as_store(above, slot));
            let mut left = free;
            left.subtract(&of_above.all());
            if is_input || is_entry || is_slot || !is_whole(&left) {
                break;
            }
            free = left;
            to -= 1;
            cycles += self.cycles(&steps[to]);
        }
        if range.is_renamable {
            let old = touched.writes.iter().next();
            let same_bank = |one: &Reg| old.is_some_and(|old| old.index % 2 == one.index % 2);
            let keeps = old.filter(|&old| free.contains(old));
            let new = keeps.or_else(|| free.iter().find(same_bank));
            if let (Some(old), Some(new)) = (old, new.or_else(|| free.iter().next())) {
                self.rename(&mut steps[at..=range.last], old, new);
            }
        }
        steps[to..=at].rotate_right(1);
        live[to..=at].rotate_right(1);
        let mut behind = live[range.last];
        for number in (to..=range.last).rev() {
            live[number] = behind;
            step_back(&mut behind, &self.touched(&steps[number]));
        }
    }

    fn is_entry(&self, inst: Inst) -> bool {
        self.function.inst(inst).kind == Kind::LiveIn
    }

    /// The readers of what the step at `at` writes; none where there are none in the block.
    fn range(&self, steps: &[Step], live: &[RegSet], at: usize) -> Option<Range> {
        let written = self.touched(&steps[at]).writes;
        let mut range = Range {
            first: 0,
            last: 0,
            is_renamable: written.iter().count() == 1,
        };
        let value = written.iter().next()?;
        let mut is_over = false;
        for (number, step) in steps.iter().enumerate().skip(at + 1) {
            let touched = self.touched(step);
            let reads = written.iter().any(|one| touched.reads.contains(one));
            let writes = written.iter().any(|one| touched.writes.contains(one));
            if reads {
                if range.first == 0 {
                    range.first = number;
                }
                range.last = number;
                range.is_renamable &= self.takes_any(step, value);
            }
            if writes {
                is_over = true;
                break;
            }
        }
        let is_live_out = !is_over && live.last().is_some_and(|out| out.contains(value));
        range.is_renamable &= !is_live_out;
        (range.last > 0).then_some(range)
    }

    /// Whether a step that reads a register could read any other in its place.
    fn takes_any(&self, step: &Step, value: Reg) -> bool {
        match step {
            Step::Inst(inst) => {
                let operands = self.function.operands(*inst);
                let registers = self.allocation.operands(self.function, *inst);
                let grouped = |number: usize| {
                    let mut groups = self.function.groups(*inst).iter();
                    groups.any(|group| group.range().contains(&number))
                };
                // What is updated in place stays where it is.
                let is_free = |number: usize| {
                    let operand = &operands[number];
                    operand.is_free() && operand.role == Role::Use && !grouped(number)
                };
                let reads = |&n: &usize| reg(registers[n]) == value && operands[n].role.reads();
                let mut here = (0..operands.len()).filter(reads);
                let has_early = operands.iter().any(|o| o.role == Role::EarlyDef);
                !has_early && here.all(is_free)
            }
            Step::Edit(Edit::Move { width, .. } | Edit::Store { width, .. }) => *width == 1,
            Step::Edit(Edit::Recompute { .. }) => true,
            Step::Edit(_) => false,
        }
    }

    /// Renames what the first of `steps` writes in it and in the readers behind it.
    fn rename(&mut self, steps: &mut [Step], old: Reg, new: Reg) {
        if old == new {
            return;
        }
        let now = |register: &mut PReg| {
            if reg(*register) == old {
                *register = preg(new);
            }
        };
        for (number, step) in steps.iter_mut().enumerate() {
            match step {
                Step::Inst(inst) => {
                    let range = self.function.operand_range(*inst);
                    let operands = self.function.operands(*inst).iter();
                    let registers = &mut self.allocation.registers[range];
                    for (operand, register) in operands.zip(registers) {
                        if operand.role == Role::Use {
                            now(register);
                        }
                    }
                }
                Step::Edit(Edit::Reload { to, .. }) if number == 0 => now(to),
                Step::Edit(Edit::Move { from, .. } | Edit::Store { from, .. }) => now(from),
                Step::Edit(Edit::Recompute { inst, regs }) => {
                    let operands = self.function.operands(*inst).iter();
                    for (operand, register) in operands.zip(regs) {
                        if operand.role.writes() == (number == 0) {
                            now(register);
                        }
                    }
                }
                Step::Edit(_) => {}
            }
        }
    }
}

/// The first and the last reader of a reloaded value, by step.
struct Range {
    first: usize,
    last: usize,
    /// Whether all of them take any register, and nothing else sees it.
    is_renamable: bool,
}

fn step_back(live: &mut RegSet, touched: &Touched) {
    live.subtract(&touched.writes);
    live.union_with(&touched.reads);
}

fn overlap(a: (SlotAddr, u8), b: (SlotAddr, u8)) -> bool {
    let end = |(slot, width): (SlotAddr, u8)| slot.offset + i32::from(width) * 4;
    a.0.space == b.0.space && a.0.offset < end(b) && b.0.offset < end(a)
}

/// Whether a step reads or writes a slot.
fn accesses(step: &Step, slot: (SlotAddr, u8)) -> bool {
    match *step {
        Step::Edit(Edit::Reload { from, width, .. }) => overlap((from, width), slot),
        _ => accesses_as_store(step, slot),
    }
}

/// Whether a step writes a slot.
fn accesses_as_store(step: &Step, slot: (SlotAddr, u8)) -> bool {
    match *step {
        Step::Edit(Edit::Store { to, width, .. }) => overlap((to, width), slot),
        _ => false,
    }
}
