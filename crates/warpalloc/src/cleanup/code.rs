//! Allocated code as a list of steps over locations.

use crate::allocation::{Allocation, Edit, Edits, Point, SlotAddr, Space};
use crate::function::{Block, Clobbers, Function, Inst, Kind, Operand, Role};
use crate::scratch::Scratch;
use crate::target::{MAX_FILES, PReg, SpillPath, Target};
use cranelift_entity::{EntityRef, EntitySet};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::Range;

/// One step of allocated code.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Inserted code, and the point where it stands.
    Edit(Point, Edit),
    /// An instruction that was not deleted.
    Inst(Inst),
}

impl Step {
    /// The edit and its point, if it is one.
    pub fn edit(&self) -> Option<(Point, &Edit)> {
        match self {
            Step::Edit(point, edit) => Some((*point, edit)),
            Step::Inst(_) => None,
        }
    }
}

/// The place in memory that `edit` reads or writes, and its size in bytes.
pub(crate) fn memory(target: &Target, edit: &Edit) -> Option<(SlotAddr, usize)> {
    let (addr, reg, width) = match *edit {
        Edit::Store { to, from, width } => (to, from, width),
        Edit::Reload { to, from, width } => (from, to, width),
        _ => return None,
    };
    Some((addr, width as usize * target.file(reg.file).unit_bytes))
}

/// Bytes in the smallest unit that goes to memory as it is.
fn smallest_unit(target: &Target) -> usize {
    let direct = target
        .files()
        .filter(|(_, f)| f.spill == SpillPath::Memory)
        .map(|(_, f)| f.unit_bytes);
    direct.min().unwrap_or(1).max(1)
}

/// Adds the edits before `inst`, what `between` adds, and the edits after it.
#[inline]
fn edits_around(
    allocation: &Allocation,
    inst: Inst,
    steps: &mut Vec<Step>,
    between: impl Fn(&mut Vec<Step>),
) {
    let edits = &allocation.edits;
    let has_edits = edits.has_any(inst);
    let edit = |point| move |e: &Edit| Step::Edit(point, e.clone());
    if has_edits {
        steps.extend(edits.before(inst).map(edit(Point::Before(inst))));
    }
    between(steps);
    if has_edits {
        steps.extend(edits.after(inst).map(edit(Point::After(inst))));
    }
}

/// Numbers for the pieces of the frame that `edits` touch, behind those of the units.
fn number_pieces(target: &Target, edits: &Edits, grain: usize) -> FxHashMap<(Space, i32), u32> {
    let mut pieces = FxHashMap::default();
    for (addr, bytes) in edits.iter().filter_map(|(_, edit)| memory(target, edit)) {
        for offset in (addr.offset..addr.offset + bytes as i32).step_by(grain) {
            let next = (target.unit_count() + pieces.len()) as u32;
            pieces.entry((addr.space, offset)).or_insert(next);
        }
    }
    pieces
}

/// Numbers of locations: the units of the target, then the pieces of the frame.
pub(crate) type Locations = SmallVec<[u32; 8]>;

/// Allocated code.
pub(crate) struct Code<'a> {
    pub function: &'a Function,
    pub target: &'a Target,
    pub registers: Vec<PReg>,
    pub deleted: EntitySet<Inst>,
    /// The steps of each block.
    pub blocks: Vec<Vec<Step>>,
    /// The steps on each edge of each block.
    pub edges: Vec<Vec<Vec<Step>>>,
    /// The pieces of the frame that any edit touched at first.
    pieces: FxHashMap<(Space, i32), u32>,
    /// Bytes in a piece.
    grain: usize,
    /// By class.
    widths: [u16; 256],
    /// The number of the first unit of each file.
    first_units: [u32; MAX_FILES],
}

impl<'a> Code<'a> {
    /// The code of `allocation`.
    pub fn new(
        function: &'a Function,
        target: &'a Target,
        allocation: &Allocation,
        scratch: &Scratch,
    ) -> Code<'a> {
        let block_steps = |block: Block| {
            let mut steps = scratch.take(2 * function.block_insts(block).len());
            for inst in allocation.block_insts(function, block) {
                edits_around(allocation, inst, &mut steps, |steps| {
                    if !allocation.deleted.contains(inst) {
                        steps.push(Step::Inst(inst));
                    }
                });
            }
            steps
        };
        let blocks = function.blocks().map(block_steps).collect();
        Code {
            registers: scratch.collected(allocation.registers.iter().copied()),
            deleted: allocation.deleted.clone(),
            ..Code::around(function, target, allocation, blocks)
        }
    }

    /// The inserted code of `allocation`, without the instructions and their registers.
    pub fn of_edits(
        function: &'a Function,
        target: &'a Target,
        allocation: &Allocation,
    ) -> Code<'a> {
        let block_steps = |block: Block| {
            let mut steps = Vec::new();
            if allocation.edits.has_any_within(function.block_insts(block)) {
                for inst in allocation.block_insts(function, block) {
                    edits_around(allocation, inst, &mut steps, |_| {});
                }
            }
            steps
        };
        let blocks = function.blocks().map(block_steps).collect();
        Code::around(function, target, allocation, blocks)
    }

    /// The code of `allocation` with these steps in its `blocks`, and nothing but edits known.
    fn around(
        function: &'a Function,
        target: &'a Target,
        allocation: &Allocation,
        blocks: Vec<Vec<Step>>,
    ) -> Code<'a> {
        let edits = &allocation.edits;
        let no_steps = |block: Block| vec![Vec::new(); function.succs(block).len()];
        let mut edges: Vec<Vec<Vec<Step>>> = function.blocks().map(no_steps).collect();
        for (point, edit) in edits.on_edges() {
            if let Point::Edge(block, succ) = point {
                let steps = &mut edges[block.index()][succ as usize];
                steps.push(Step::Edit(point, edit.clone()));
            }
        }
        let grain = smallest_unit(target);
        let mut widths = [1; 256];
        for (width, (_, class)) in widths.iter_mut().zip(target.classes()) {
            *width = class.width as u16;
        }
        let mut first_units = [0; MAX_FILES];
        for (file, _) in target.files() {
            first_units[file.index()] = target.unit(PReg::new(file, 0)).index() as u32;
        }
        Code {
            function,
            target,
            registers: Vec::new(),
            deleted: EntitySet::new(),
            blocks,
            edges,
            pieces: number_pieces(target, edits, grain),
            grain,
            widths,
            first_units,
        }
    }

    /// Whether no edit touches memory.
    pub fn is_frameless(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How many locations there are.
    pub fn location_count(&self) -> usize {
        self.target.unit_count() + self.pieces.len()
    }

    /// Bytes in a piece of the frame.
    pub fn grain(&self) -> usize {
        self.grain
    }

    /// The pieces of a place in memory.
    pub fn pieces(&self, addr: SlotAddr, bytes: usize) -> Locations {
        let offsets = (addr.offset..addr.offset + bytes as i32).step_by(self.grain);
        offsets
            .filter_map(|offset| self.pieces.get(&(addr.space, offset)).copied())
            .collect()
    }

    /// The `width` units from `reg` on.
    pub fn units(&self, reg: PReg, width: usize) -> Locations {
        let units = self.target.units(reg, width);
        units.map(|unit| unit.index() as u32).collect()
    }

    /// Units of a virtual register's class.
    pub fn width(&self, inst: Inst, operand: usize) -> usize {
        self.width_of(&self.function.operands(inst)[operand])
    }

    /// Units that `operand` takes.
    #[inline]
    pub fn width_of(&self, operand: &Operand) -> usize {
        usize::from(self.widths[self.function.class(operand.vreg).index()])
    }

    /// The units of an operand in `reg`.
    #[inline]
    pub fn operand_units(&self, operand: &Operand, reg: PReg) -> Range<usize> {
        let start = self.first_units[reg.file.index()] as usize + usize::from(reg.unit);
        start..start + self.width_of(operand)
    }

    /// What `edit` reads and what it writes.
    pub fn edit_access(&self, edit: &Edit) -> (Locations, Locations) {
        match *edit {
            Edit::Move { to, from, width } => (
                self.units(from, width as usize),
                self.units(to, width as usize),
            ),
            Edit::Swap { a, b, width } => {
                let mut both = self.units(a, width as usize);
                both.extend(self.units(b, width as usize));
                (both.clone(), both)
            }
            Edit::Transfer { to, from, regs } => {
                let whole = |reg: PReg| regs as usize * self.target.file(reg.file).units_per_reg;
                (self.units(from, whole(from)), self.units(to, whole(to)))
            }
            Edit::Store { to, from, width } => {
                let bytes = width as usize * self.target.file(from.file).unit_bytes;
                (self.units(from, width as usize), self.pieces(to, bytes))
            }
            Edit::Reload { to, from, width } => {
                let bytes = width as usize * self.target.file(to.file).unit_bytes;
                (self.pieces(from, bytes), self.units(to, width as usize))
            }
            Edit::Recompute { inst, ref regs } => self.operand_access(inst, regs),
        }
    }

    /// What `inst` reads and what it writes.
    pub fn inst_access(&self, inst: Inst) -> (Locations, Locations) {
        self.operand_access(inst, &self.registers[self.function.operand_range(inst)])
    }

    /// What the operands of `inst` read and write when they are in `regs`.
    fn operand_access(&self, inst: Inst, regs: &[PReg]) -> (Locations, Locations) {
        let (mut reads, mut writes) = (Locations::new(), Locations::new());
        for (position, operand) in self.function.operands(inst).iter().enumerate() {
            let units = self.units(regs[position], self.width(inst, position));
            if operand.role.reads() {
                reads.extend(units.iter().copied());
            }
            if operand.role.writes() {
                writes.extend(units);
            }
        }
        (reads, writes)
    }

    /// The units that `inst` clobbers.
    pub fn clobbers(&self, inst: Inst) -> Vec<u32> {
        match self.function.inst(inst).clobbers {
            Clobbers::None => Vec::new(),
            _ => {
                let units = self.function.clobbers(self.target, inst);
                units.iter().map(|unit| unit.index() as u32).collect()
            }
        }
    }

    /// Whether all that `inst` does is write its results.
    pub fn only_computes(&self, inst: Inst) -> bool {
        !self.function.traits(inst).has_effect() && !self.touches_pinned(inst)
    }

    /// Whether `inst` is a copy of whole values: its results, laid end to end, are its
    /// inputs, laid end to end.
    pub fn is_copy(&self, inst: Inst) -> bool {
        let operands = self.function.operands(inst);
        let total = |reads: bool| -> usize {
            let positions = (0..operands.len()).filter(|&i| operands[i].role.reads() == reads);
            positions.map(|i| self.width(inst, i)).sum()
        };
        self.function.inst(inst).kind == Kind::Copy
            && operands.iter().all(|o| o.role != Role::UseDef)
            && total(true) == total(false)
            && !self.touches_pinned(inst)
    }

    /// Whether an operand of `inst` may not be moved.
    pub fn touches_pinned(&self, inst: Inst) -> bool {
        let mut operands = self.function.operands(inst).iter();
        self.function.has_pinned() && operands.any(|o| self.function.vreg(o.vreg).pinned)
    }

    /// Makes `allocation` what the code has become.
    pub fn write_to(mut self, allocation: &mut Allocation, scratch: &Scratch) {
        std::mem::swap(&mut allocation.registers, &mut self.registers);
        std::mem::swap(&mut allocation.deleted, &mut self.deleted);
        self.write_edits_to(allocation, scratch);
    }

    /// Makes the edits of `allocation` what they have become.
    pub fn write_edits_to(mut self, allocation: &mut Allocation, scratch: &Scratch) {
        allocation.edits = Edits::new(self.function, self.edits());
        self.recycle(scratch);
        allocation.stats.edits = allocation.edits.counts();
    }

    /// Leaves its memory to others.
    pub fn recycle(mut self, scratch: &Scratch) {
        self.blocks.drain(..).for_each(|steps| scratch.give(steps));
        scratch.give(self.registers);
    }

    /// Every edit with its point.
    fn edits(&mut self) -> Vec<(Point, Edit)> {
        let edges = self.edges.iter_mut().flatten();
        let lists = self.blocks.iter_mut().chain(edges);
        let steps = lists.flat_map(|steps| steps.drain(..));
        let edit = |step| match step {
            Step::Edit(point, edit) => Some((point, edit)),
            Step::Inst(_) => None,
        };
        steps.filter_map(edit).collect()
    }

    /// Every list of steps, those of a block before those of its edges.
    pub fn lists(&self) -> impl Iterator<Item = (Block, &Vec<Step>)> {
        let blocks = self.blocks.iter().zip(&self.edges).enumerate();
        blocks.flat_map(|(index, (steps, edges))| {
            let lists = std::iter::once(steps).chain(edges);
            lists.map(move |list| (Block::new(index), list))
        })
    }

    /// The same, to change them.
    pub fn lists_mut(&mut self) -> impl Iterator<Item = (Block, &mut Vec<Step>)> {
        let blocks = self.blocks.iter_mut().zip(&mut self.edges).enumerate();
        blocks.flat_map(|(index, (steps, edges))| {
            let lists = std::iter::once(steps).chain(edges);
            lists.map(move |list| (Block::new(index), list))
        })
    }
}
