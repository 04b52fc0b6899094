//! The run after allocation, on registers and memory.

use super::original::Reads;
use super::report::{Difference, What};
use super::world::{Trace, World, hash};
use super::{Limits, Module};
use crate::allocation::{Allocation, Edit, Point, SlotAddr, Space};
use crate::function::{Block, Clobbers, Constraint, Convention, Function, Inst, Kind};
use crate::target::{MovePath, PReg, SpillPath, Target};
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
    module: Module<'_>,
    target: &Target,
    allocations: &[Allocation],
    start: (usize, &[u64]),
    limits: Limits,
    seed: u64,
    expected: Option<&Reads>,
) -> Result<Run, Box<Difference>> {
    let (number, arguments) = start;
    let function = &module.functions[number];
    let mut machine = Machine {
        module,
        allocations,
        number,
        function,
        allocation: allocations.get(number).ok_or_else(|| {
            let why = "there is not one allocation per function";
            refused(function, number, seed, why)
        })?,
        target,
        limits,
        expected,
        seed,
        world: World::new(module, seed),
        registers: Vec::new(),
        memory: FxHashMap::default(),
        pieces: FxHashMap::default(),
        activations: 0,
        frame: 0,
        steps: 0,
        place: (function.entry(), function.terminator(function.entry())),
        recent: VecDeque::new(),
        first_wrong_read: None,
    };
    for (reg, value) in machine.world.arguments(target, number, arguments) {
        machine.set(reg, value);
    }
    machine.activation()?;
    Ok(Run {
        trace: machine.world.trace,
        first_wrong_read: machine.first_wrong_read,
    })
}

struct Machine<'a> {
    module: Module<'a>,
    allocations: &'a [Allocation],
    /// The function that runs.
    number: usize,
    function: &'a Function,
    allocation: &'a Allocation,
    target: &'a Target,
    limits: Limits,
    expected: Option<&'a Reads>,
    seed: u64,
    world: World<'a>,
    /// Units by file, shared by all activations; those beyond the end hold garbage.
    registers: Vec<Vec<u64>>,
    /// By frame and byte: which byte of how many of which unit's content.
    memory: FxHashMap<(u64, Space, i64), (u64, usize, usize)>,
    /// What a register of another file was a piece of.
    pieces: FxHashMap<u64, (u64, usize, usize)>,
    /// Activations so far.
    activations: u64,
    /// The frame of the one that runs.
    frame: u64,
    steps: usize,
    place: (Block, Inst),
    recent: VecDeque<(Point, Edit)>,
    first_wrong_read: Option<Box<Difference>>,
}

/// How a part of the execution ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The function returned.
    Returned,
    /// The thread ended, or time is up.
    Stopped,
}

impl Machine<'_> {
    /// Runs the function from its entry in a frame of its own.
    fn activation(&mut self) -> Result<End, Box<Difference>> {
        self.well_formed()?;
        self.frame = self.activations;
        self.activations += 1;
        let preserved = self.target.preserved();
        let before: Vec<(PReg, u64)> = preserved
            .iter()
            .map(|unit| self.target.reg_at(unit))
            .map(|reg| (reg, self.get(reg)))
            .collect();
        let mut block = self.function.entry();
        while self.world.trace.blocks < self.limits.blocks {
            self.world.trace.blocks += 1;
            match self.block(block)? {
                Next::Block(next) => block = next,
                Next::End(End::Stopped) => return Ok(End::Stopped),
                Next::End(End::Returned) => {
                    self.preserved_are_back(&before)?;
                    return Ok(End::Returned);
                }
            }
        }
        Ok(End::Stopped)
    }

    /// Runs function `callee`, called by `inst`, and comes back.
    fn call(&mut self, callee: usize, inst: Inst) -> Result<End, Box<Difference>> {
        let target = self.target;
        let caller = (self.number, self.function, self.allocation);
        let (frame, place) = (self.frame, self.place);
        let called = &self.module.functions[callee];
        if called.convention() != Convention::Device
            || self.function.inst(inst).clobbers != Clobbers::Abi
        {
            return Err(
                self.malformed("a call between functions that does not follow the convention")
            );
        }
        let Some(allocation) = self.allocations.get(callee) else {
            return Err(self.malformed("there is not one allocation per function"));
        };
        (self.number, self.function, self.allocation) = (callee, called, allocation);
        if self.activation()? == End::Stopped {
            return Ok(End::Stopped);
        }
        let returned = self.place.1;
        let mut garbage = target.clobbered();
        for operand in called.operands(returned) {
            if let Constraint::Fixed(reg) = operand.constraint {
                let width = target.width(called.vreg(operand.vreg).class);
                target
                    .units(reg, width)
                    .for_each(|unit| garbage.remove(unit));
            }
        }
        for unit in garbage.iter() {
            let garbage = hash(&[self.seed, self.activations, unit.index() as u64, 11]);
            self.set(target.reg_at(unit), garbage);
        }
        (self.number, self.function, self.allocation) = caller;
        (self.frame, self.place) = (frame, place);
        Ok(End::Returned)
    }

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

    fn block(&mut self, block: Block) -> Result<Next, Box<Difference>> {
        let (function, allocation) = (self.function, self.allocation);
        let mut inputs = Vec::new();
        for inst in allocation.block_insts(function, block) {
            self.place = (block, inst);
            for edit in allocation.edits.before(inst) {
                self.edit(Point::Before(inst), edit)?;
            }
            if !allocation.deleted.contains(inst) {
                match self.instruction(inst)? {
                    Some(read) => inputs = read,
                    None => return Ok(Next::End(End::Stopped)),
                }
            }
            for edit in allocation.edits.after(inst) {
                self.edit(Point::After(inst), edit)?;
            }
        }
        let succs = function.succs(block);
        let terminator = function.terminator(block);
        let way = self
            .world
            .way(self.number, terminator, &inputs, succs.len());
        let Some(edge) = succs.get(way as usize) else {
            return Ok(Next::End(match function.inst(terminator).kind {
                Kind::Return => End::Returned,
                _ => End::Stopped,
            }));
        };
        for edit in allocation.edits.on_edge(block, way) {
            self.edit(Point::Edge(block, way), edit)?;
        }
        Ok(Next::Block(edge.block))
    }

    /// Executes `inst` where the allocation has it; the inputs it read, or nothing if
    /// execution ended in a function it called.
    fn instruction(&mut self, inst: Inst) -> Result<Option<Vec<u64>>, Box<Difference>> {
        let registers = self.allocation.operands(self.function, inst);
        let visit = self.world.visit(self.number, inst);
        let in_memory = |at: usize| self.allocation.slot(self.function, inst, at);
        let places: Vec<Option<SlotAddr>> = match self.allocation.memory.is_empty() {
            true => Vec::new(),
            false => (0..registers.len()).map(in_memory).collect(),
        };
        let inputs = self.read(inst, registers, &places);
        self.steps += 1;
        self.compare_inputs(inst, visit, &inputs);
        if self.function.inst(inst).kind == Kind::LiveIn {
            // Its results are in their registers already, or in the caller's memory.
            self.leave_arguments(inst);
            return Ok(Some(inputs));
        }
        let clobbers = self.function.clobbers(self.target, inst);
        let results = self.world.execute(self.number, self.target, inst, &inputs);
        if let Some(callee) = self.module.callee(self.function, inst) {
            let end = self.call(callee, inst)?;
            return Ok((end == End::Returned).then_some(inputs));
        }
        for unit in clobbers.iter() {
            let garbage = [inst.index() as u64, unit.index() as u64, visit as u64, 5];
            self.set(self.target.reg_at(unit), hash(&garbage));
        }
        self.write(inst, registers, &places, results);
        Ok(Some(inputs))
    }

    fn read(&self, inst: Inst, registers: &[PReg], places: &[Option<SlotAddr>]) -> Vec<u64> {
        let operands = self.function.operands(inst).iter().zip(registers);
        let reads = operands
            .enumerate()
            .filter(|(_, (operand, _))| operand.role.reads());
        reads
            .flat_map(|(at, (operand, &reg))| {
                let class = self.target.class(self.function.vreg(operand.vreg).class);
                let bytes = self.target.file(class.file).unit_bytes;
                let slot = places.get(at).copied().flatten();
                (0..class.width).map(move |part| match slot {
                    None => self.get(reg.offset(part)),
                    Some(slot) => self.load(slot, part * bytes, bytes),
                })
            })
            .collect()
    }

    fn write(
        &mut self,
        inst: Inst,
        registers: &[PReg],
        places: &[Option<SlotAddr>],
        results: Vec<u64>,
    ) {
        let mut results = results.into_iter();
        let operands = self.function.operands(inst).iter().zip(registers);
        for (at, (operand, &reg)) in operands.enumerate() {
            if operand.role.writes() {
                let class = self.target.class(self.function.vreg(operand.vreg).class);
                let bytes = self.target.file(class.file).unit_bytes;
                for (part, result) in (0..class.width).zip(&mut results) {
                    match places.get(at).copied().flatten() {
                        None => self.set(reg.offset(part), result),
                        Some(slot) => self.store(slot, part * bytes, result, bytes),
                    }
                }
            }
        }
    }

    /// Puts arguments that the caller leaves in memory there.
    fn leave_arguments(&mut self, inst: Inst) {
        for operand in self.function.operands(inst) {
            let Constraint::Argument(offset) = operand.constraint else {
                continue;
            };
            let class = self.target.class(self.function.vreg(operand.vreg).class);
            let bytes = self.target.file(class.file).unit_bytes;
            let slot = SlotAddr {
                space: Space::Argument,
                offset: offset as i32,
            };
            for part in 0..class.width {
                let value = argument_in_memory(self.seed, offset, part);
                self.store(slot, part * bytes, value, bytes);
            }
        }
    }

    fn compare_inputs(&mut self, inst: Inst, visit: u32, inputs: &[u64]) {
        let expected = self
            .expected
            .and_then(|reads| reads.get(&(self.number, inst, visit)));
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

    /// A called function gives preserved registers back as they were `before`.
    fn preserved_are_back(&self, before: &[(PReg, u64)]) -> Result<(), Box<Difference>> {
        if self.function.convention() == Convention::Kernel {
            return Ok(());
        }
        match before.iter().find(|&&(reg, held)| self.get(reg) != held) {
            Some(&(reg, _)) => {
                let reg = self.target.reg_name(reg).to_string();
                Err(self.difference(What::NotPreserved { reg }))
            }
            None => Ok(()),
        }
    }

    fn edit(&mut self, point: Point, edit: &Edit) -> Result<(), Box<Difference>> {
        if self.recent.len() == SHOWN_EDITS {
            self.recent.pop_front();
        }
        self.recent.push_back((point, edit.clone()));
        match *edit {
            Edit::Move { to, from, width } => {
                if matches!(self.file(to)?.moves, MovePath::Via(_)) {
                    return Err(self.malformed("a copy within a file that has none"));
                }
                let units = self.units(from, width as usize);
                self.set_units(to, &units);
            }
            Edit::Swap { a, b, width } => {
                if self.file(a)?.moves != MovePath::Swap {
                    return Err(self.malformed("an exchange within a file that has none"));
                }
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
                let inputs = self.read(inst, regs, &[]);
                let results = self.world.execute(self.number, self.target, inst, &inputs);
                self.write(inst, regs, &[], results);
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
            let address = (self.frame, slot.space, start + byte as i64);
            self.memory.insert(address, (content, byte, bytes));
        }
    }

    fn load(&self, slot: SlotAddr, distance: usize, bytes: usize) -> u64 {
        let start = slot.offset as i64 + distance as i64;
        let byte = |byte: usize| {
            let address = start + byte as i64;
            let garbage = (hash(&[self.seed, self.frame, address as u64, 7]), 0, 1);
            self.memory
                .get(&(self.frame, slot.space, address))
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
            function: self.number,
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

/// Where a block leads.
enum Next {
    Block(Block),
    End(End),
}

/// A part of the argument that a caller leaves at `offset`.
pub(super) fn argument_in_memory(seed: u64, offset: u32, part: usize) -> u64 {
    hash(&[seed, u64::from(offset), part as u64, 13])
}

fn refused(function: &Function, number: usize, seed: u64, why: &'static str) -> Box<Difference> {
    Box::new(Difference {
        function: number,
        seed,
        step: 0,
        block: function.entry(),
        inst: function.terminator(function.entry()),
        what: What::Malformed(why),
        edits: Vec::new(),
    })
}
