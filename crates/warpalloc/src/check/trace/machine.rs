//! The run after allocation, on registers and memory.

use super::Limits;
use super::original::Reads;
use super::report::{Difference, What};
use super::world::{Trace, World, hash};
use crate::allocation::{Allocation, Edit, Point, SlotAddr, Space};
use crate::function::{Block, Convention, Function, Inst, Kind};
use crate::target::{PReg, SpillPath, Target};
use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Edits that a report shows.
const SHOWN_EDITS: usize = 6;

pub(super) struct Run {
    pub trace: Trace,
    /// The first input that was not what it should be.
    pub first_wrong_read: Option<Box<Difference>>,
}

pub(super) fn run(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
    limits: Limits,
    seed: u64,
    expected: Option<&Reads>,
) -> Result<Run, Box<Difference>> {
    let mut machine = Machine {
        function,
        target,
        allocation,
        expected,
        seed,
        world: World::new(seed),
        registers: Vec::new(),
        memory: FxHashMap::default(),
        pieces: FxHashMap::default(),
        steps: 0,
        place: (function.entry(), function.terminator(function.entry())),
        recent: VecDeque::new(),
        first_wrong_read: None,
    };
    machine.well_formed()?;
    let mut block = Some(function.entry());
    while let Some(here) = block
        && machine.world.trace.blocks < limits.blocks
    {
        machine.world.trace.blocks += 1;
        block = machine.block(here)?;
    }
    Ok(Run {
        trace: machine.world.trace,
        first_wrong_read: machine.first_wrong_read,
    })
}

struct Machine<'a> {
    function: &'a Function,
    target: &'a Target,
    allocation: &'a Allocation,
    expected: Option<&'a Reads>,
    seed: u64,
    world: World,
    /// Units by file; those beyond the end hold garbage.
    registers: Vec<Vec<u64>>,
    /// By byte: which byte of how many of which unit's content.
    memory: FxHashMap<(Space, i64), (u64, usize, usize)>,
    /// What a register of another file was a piece of.
    pieces: FxHashMap<u64, (u64, usize, usize)>,
    steps: usize,
    place: (Block, Inst),
    recent: VecDeque<(Point, Edit)>,
    first_wrong_read: Option<Box<Difference>>,
}

impl Machine<'_> {
    /// What has no meaning at all is said before running.
    fn well_formed(&self) -> Result<(), Box<Difference>> {
        let (function, allocation) = (self.function, self.allocation);
        if allocation.registers.len() != function.operand_count() {
            return Err(self.malformed("there is not one register per operand"));
        }
        if !allocation.edits.fit(function) {
            return Err(self.malformed("an edit stands at a point that does not exist"));
        }
        if let Some(order) = &allocation.order {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if !sorted.into_iter().eq(function.insts()) {
                return Err(self.malformed("the order is no permutation"));
            }
            for block in function.blocks() {
                let last = allocation.block_insts(function, block).last();
                if last != Some(function.terminator(block)) {
                    return Err(self.malformed("the order moves a terminator"));
                }
            }
        }
        let mut terminators = function.blocks().map(|block| function.terminator(block));
        if terminators.any(|inst| allocation.deleted.contains(inst)) {
            return Err(self.malformed("a terminator was deleted"));
        }
        Ok(())
    }

    fn block(&mut self, block: Block) -> Result<Option<Block>, Box<Difference>> {
        let (function, allocation) = (self.function, self.allocation);
        let mut inputs = Vec::new();
        for inst in allocation.block_insts(function, block) {
            self.place = (block, inst);
            for edit in allocation.edits.before(inst) {
                self.edit(Point::Before(inst), edit)?;
            }
            if !allocation.deleted.contains(inst) {
                inputs = self.instruction(inst)?;
            }
            for edit in allocation.edits.after(inst) {
                self.edit(Point::After(inst), edit)?;
            }
        }
        let succs = function.succs(block);
        let terminator = function.terminator(block);
        let way = self.world.way(function, terminator, &inputs, succs.len());
        let Some(edge) = succs.get(way as usize) else {
            return Ok(None);
        };
        for edit in allocation.edits.on_edge(block, way) {
            self.edit(Point::Edge(block, way), edit)?;
        }
        Ok(Some(edge.block))
    }

    /// Executes `inst` where the allocation has it; the inputs it read.
    fn instruction(&mut self, inst: Inst) -> Result<Vec<u64>, Box<Difference>> {
        let registers = self.allocation.operands(self.function, inst);
        let visit = self.world.visit(inst);
        let inputs = self.read(inst, registers);
        self.steps += 1;
        self.compare_inputs(inst, visit, &inputs);
        let clobbers = self.function.clobbers(self.target, inst);
        let results = self
            .world
            .execute(self.function, self.target, inst, &inputs);
        for unit in clobbers.iter() {
            let garbage = [inst.index() as u64, unit.index() as u64, visit as u64, 5];
            self.set(self.target.reg_at(unit), hash(&garbage));
        }
        self.write(inst, registers, results);
        if self.function.inst(inst).kind == Kind::Return {
            self.preserved_are_back()?;
        }
        Ok(inputs)
    }

    fn read(&self, inst: Inst, registers: &[PReg]) -> Vec<u64> {
        let operands = self.function.operands(inst).iter().zip(registers);
        operands
            .filter(|(operand, _)| operand.role.reads())
            .flat_map(|(operand, &reg)| {
                let width = self.target.width(self.function.vreg(operand.vreg).class);
                (0..width).map(move |part| self.get(reg.offset(part)))
            })
            .collect()
    }

    fn write(&mut self, inst: Inst, registers: &[PReg], results: Vec<u64>) {
        let mut results = results.into_iter();
        for (operand, &reg) in self.function.operands(inst).iter().zip(registers) {
            if operand.role.writes() {
                let width = self.target.width(self.function.vreg(operand.vreg).class);
                for (part, result) in (0..width).zip(&mut results) {
                    self.set(reg.offset(part), result);
                }
            }
        }
    }

    fn compare_inputs(&mut self, inst: Inst, visit: u32, inputs: &[u64]) {
        let expected = self.expected.and_then(|reads| reads.get(&(inst, visit)));
        let (None, Some(expected)) = (&self.first_wrong_read, expected) else {
            return;
        };
        let apart = expected.iter().zip(inputs).position(|(e, g)| e != g);
        let Some(apart) = apart else { return };
        let (mut part, mut operand) = (apart, 0);
        for (position, candidate) in self.function.operands(inst).iter().enumerate() {
            let class = self.function.vreg(candidate.vreg).class;
            let width = self.target.width(class);
            if candidate.role.reads() && part < width {
                operand = position;
                break;
            }
            part -= if candidate.role.reads() { width } else { 0 };
        }
        let reg = self.allocation.operands(self.function, inst)[operand].offset(part);
        let what = What::Input {
            operand,
            part,
            value: self.function.operands(inst)[operand].vreg,
            reg: self.target.reg_name(reg).to_string(),
            expected: expected[apart],
            got: inputs[apart],
        };
        self.first_wrong_read = Some(self.difference(what));
    }

    fn preserved_are_back(&self) -> Result<(), Box<Difference>> {
        if self.function.convention() == Convention::Kernel {
            return Ok(());
        }
        for &reg in &self.target.abi().preserved {
            let info = self.target.file(reg.file);
            let end = (reg.unit as usize + info.units_per_reg).min(info.units);
            for unit in reg.unit as usize..end {
                let reg = PReg::new(reg.file, unit);
                if self.get(reg) != self.garbage(reg) {
                    let reg = self.target.reg_name(reg).to_string();
                    return Err(self.difference(What::NotPreserved { reg }));
                }
            }
        }
        Ok(())
    }

    fn edit(&mut self, point: Point, edit: &Edit) -> Result<(), Box<Difference>> {
        if self.recent.len() == SHOWN_EDITS {
            self.recent.pop_front();
        }
        self.recent.push_back((point, edit.clone()));
        match *edit {
            Edit::Move { to, from, width } => {
                let units = self.units(from, width as usize);
                self.set_units(to, &units);
            }
            Edit::Swap { a, b, width } => {
                let from_a = self.units(a, width as usize);
                let from_b = self.units(b, width as usize);
                self.set_units(a, &from_b);
                self.set_units(b, &from_a);
            }
            Edit::Transfer { to, from, regs } => self.transfer(to, from, regs as usize)?,
            Edit::Store { to, from, width } => {
                let bytes = self.file(from)?.unit_bytes;
                for (index, unit) in self.units(from, width as usize).into_iter().enumerate() {
                    self.store(to, index * bytes, unit, bytes);
                }
            }
            Edit::Reload { to, from, width } => {
                let bytes = self.file(to)?.unit_bytes;
                for unit in 0..width as usize {
                    let loaded = self.load(from, unit * bytes, bytes);
                    self.set(to.offset(unit), loaded);
                }
            }
            Edit::Recompute { inst, ref regs } => {
                if inst.index() >= self.function.inst_count()
                    || regs.len() != self.function.operands(inst).len()
                    || self.function.inst(inst).kind.is_terminator()
                {
                    return Err(self.malformed("a recomputation of no such instruction"));
                }
                let inputs = self.read(inst, regs);
                let results = self
                    .world
                    .execute(self.function, self.target, inst, &inputs);
                self.write(inst, regs, results);
            }
        }
        Ok(())
    }

    /// Copies whole registers between a file and the one it spills through.
    fn transfer(&mut self, to: PReg, from: PReg, regs: usize) -> Result<(), Box<Difference>> {
        let (to_file, from_file) = (self.file(to)?, self.file(from)?);
        let returns = to_file.spill == SpillPath::Via(from.file);
        if !returns && from_file.spill != SpillPath::Via(to.file) {
            return Err(self.malformed("a transfer between files without a path"));
        }
        let (small, large) = match returns {
            true => (to_file.units_per_reg, from_file.units_per_reg),
            false => (from_file.units_per_reg, to_file.units_per_reg),
        };
        let pieces = large / small.max(1);
        for unit in 0..regs * small {
            if returns {
                let cut = self.units(from.offset(unit * pieces), pieces);
                let whole = self.join(&cut);
                self.set(to.offset(unit), whole);
            } else {
                let whole = self.get(from.offset(unit));
                let cut = self.cut(whole, pieces);
                self.set_units(to.offset(unit * pieces), &cut);
            }
        }
        Ok(())
    }

    fn cut(&mut self, whole: u64, count: usize) -> Vec<u64> {
        if count == 1 {
            return vec![whole];
        }
        let cut = |index: usize| hash(&[whole, index as u64, count as u64, 6]);
        let pieces: Vec<u64> = (0..count).map(cut).collect();
        for (index, &piece) in pieces.iter().enumerate() {
            self.pieces.insert(piece, (whole, index, count));
        }
        pieces
    }

    fn join(&self, pieces: &[u64]) -> u64 {
        if let [whole] = *pieces {
            return whole;
        }
        let first = self.pieces.get(&pieces[0]).copied();
        let whole = first.map_or(0, |(whole, _, _)| whole);
        let in_place = |(index, piece): (usize, &u64)| {
            self.pieces.get(piece) == Some(&(whole, index, pieces.len()))
        };
        match pieces.iter().enumerate().all(in_place) {
            true => whole,
            false => hash(pieces),
        }
    }

    fn store(&mut self, slot: SlotAddr, distance: usize, content: u64, bytes: usize) {
        let start = slot.offset as i64 + distance as i64;
        for byte in 0..bytes {
            let address = (slot.space, start + byte as i64);
            self.memory.insert(address, (content, byte, bytes));
        }
    }

    fn load(&self, slot: SlotAddr, distance: usize, bytes: usize) -> u64 {
        let start = slot.offset as i64 + distance as i64;
        let byte = |byte: usize| {
            let address = start + byte as i64;
            let garbage = (hash(&[self.seed, address as u64, 7]), 0, 1);
            self.memory
                .get(&(slot.space, address))
                .copied()
                .unwrap_or(garbage)
        };
        let (content, _, _) = byte(0);
        match (0..bytes).all(|index| byte(index) == (content, index, bytes)) {
            true => content,
            false => (0..bytes).fold(8, |h, index| {
                let (content, at, of) = byte(index);
                hash(&[h, content, at as u64, of as u64])
            }),
        }
    }

    fn file(&self, reg: PReg) -> Result<&crate::target::FileInfo, Box<Difference>> {
        match reg.file.index() < self.target.files().len() {
            true => Ok(self.target.file(reg.file)),
            false => Err(self.malformed("a register of no file")),
        }
    }

    fn units(&self, reg: PReg, width: usize) -> Vec<u64> {
        (0..width).map(|unit| self.get(reg.offset(unit))).collect()
    }

    fn set_units(&mut self, reg: PReg, contents: &[u64]) {
        for (unit, &content) in contents.iter().enumerate() {
            self.set(reg.offset(unit), content);
        }
    }

    fn get(&self, reg: PReg) -> u64 {
        let file = self.registers.get(reg.file.index());
        let unit = file.and_then(|units| units.get(reg.unit as usize));
        unit.copied().unwrap_or_else(|| self.garbage(reg))
    }

    fn set(&mut self, reg: PReg, content: u64) {
        let file = reg.file.index();
        while self.registers.len() <= file {
            self.registers.push(Vec::new());
        }
        while self.registers[file].len() <= reg.unit as usize {
            let next = PReg::new(reg.file, self.registers[file].len());
            let garbage = self.garbage(next);
            self.registers[file].push(garbage);
        }
        self.registers[file][reg.unit as usize] = content;
    }

    /// What a unit holds before anything is written to it.
    fn garbage(&self, reg: PReg) -> u64 {
        hash(&[self.seed, reg.file.index() as u64, reg.unit as u64, 9])
    }

    fn malformed(&self, why: &'static str) -> Box<Difference> {
        self.difference(What::Malformed(why))
    }

    fn difference(&self, what: What) -> Box<Difference> {
        let shown = self.recent.iter();
        Box::new(Difference {
            seed: self.seed,
            step: self.steps,
            block: self.place.0,
            inst: self.place.1,
            what,
            edits: shown
                .map(|(point, edit)| super::report::edit_text(self.target, *point, edit))
                .collect(),
        })
    }
}
