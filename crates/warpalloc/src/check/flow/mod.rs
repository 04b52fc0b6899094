//! The dataflow part of the proof: which location holds which value, block by block.

mod edits;
mod instruction;
mod locate;
mod records;

use self::instruction::ClobberedUnits;
use super::equations::Equations;
use super::live::{Lists, Live};
use super::locate::{DebugLocation, ValueLabel};
use super::state::{Content, Locations, Meet, Partition, Value, Words, file_bit};
use super::violation::{Fault, NamedReg, Site, Violation};
use super::webs::Split;
use crate::allocation::{Allocation, Point, Space};
use crate::error::Place;
use crate::function::{Block, Convention, Function, Inst, Operand, VReg};
use crate::scratch::Scratch;
use crate::target::{PReg, Target, Unit};
use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

type Outcome<T = ()> = Result<T, Box<Violation>>;

/// Checks the values of an allocation whose registers and order are known to be in order.
pub(super) fn check(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
    memory: &mut Memory,
    scratch: &Scratch,
) -> Outcome {
    run(function, target, allocation, memory, scratch, |flow| {
        flow.prove()
    })
}

/// Checks them and tells where the values of `labels` are.
pub(super) fn locate(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
    memory: &mut Memory,
    scratch: &Scratch,
    (split, labels): (Option<&Split>, &[ValueLabel]),
) -> Outcome<Vec<DebugLocation>> {
    run(function, target, allocation, memory, scratch, |flow| {
        flow.prove()?;
        flow.locate(split, labels)
    })
}

fn run<T>(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
    memory: &mut Memory,
    scratch: &Scratch,
    work: impl FnOnce(&mut Flow) -> Outcome<T>,
) -> Outcome<T> {
    let equations = Equations::collect(function, allocation, scratch);
    let live = Live::compute(function, allocation, &equations, scratch);
    let own = std::mem::take(memory);
    let mut flow = Flow::new(function, target, allocation, &live, equations, own, scratch);
    let outcome = work(&mut flow);
    *memory = flow.into_memory();
    live.recycle(scratch);
    outcome
}

/// Memory that one check leaves to the next. What it holds means nothing in between.
#[derive(Default)]
pub(super) struct Memory {
    part_base: Vec<u32>,
    part_files: Vec<u32>,
    current: Vec<Value>,
    homes: Vec<u32>,
    edge_values: Vec<Value>,
    states: Vec<Option<Partition>>,
    locations: Locations,
    meet: Meet,
}

/// Where the walk stands, for reports.
#[derive(Clone, Copy)]
struct Cursor {
    block: Block,
    /// Position of the current instruction in the block's final order.
    index: usize,
    inst: Inst,
    point: Point,
    /// Position of the current edit at the point.
    edit: usize,
}

struct Flow<'a> {
    function: &'a Function,
    target: &'a Target,
    allocation: &'a Allocation,
    live: &'a Live,
    equations: Equations,
    clobbers: ClobberedUnits,
    /// Units a called function gives back, by increasing number.
    preserved: Vec<Unit>,
    /// Virtual registers that stay where they are while they live.
    pinned: Vec<VReg>,
    watch_pinned: bool,

    /// First part of each virtual register, then of each record; those of preserved units
    /// come after all.
    part_base: Vec<u32>,
    /// By part: the file of its virtual register, as a bit.
    part_files: Vec<u32>,
    /// The parts of what is live at the start of each block.
    live_parts: Lists<u32>,
    /// The current value of each part.
    current: Vec<Value>,
    /// Values below belong to blocks left behind.
    base: Value,
    next: Value,
    /// By value from `base` on: the files it is a value of in its own right.
    homes: Vec<u32>,
    locations: Locations,
    words: Words,
    shared_words: usize,
    /// The first word of arguments in memory, and their bytes.
    argument_words: usize,
    argument_bytes: u32,

    scratch: &'a Scratch,
    /// By block, once reached.
    states: Vec<Option<Partition>>,
    meet: Meet,
    edge_values: Vec<Value>,
    /// Records that the edits of the present edge have overwritten, the latest last.
    overwritten: Vec<records::Overwritten>,
    at: Cursor,
}

impl<'a> Flow<'a> {
    fn new(
        function: &'a Function,
        target: &'a Target,
        allocation: &'a Allocation,
        live: &'a Live,
        equations: Equations,
        memory: Memory,
        scratch: &'a Scratch,
    ) -> Flow<'a> {
        let preserved = match function.convention() {
            Convention::Kernel => Vec::new(),
            Convention::Device => target.preserved().iter().collect(),
        };
        let Memory {
            mut part_base,
            mut part_files,
            mut current,
            mut homes,
            mut edge_values,
            mut states,
            mut locations,
            mut meet,
        } = memory;
        meet.reset();
        part_base.clear();
        part_files.clear();
        homes.clear();
        edge_values.clear();
        let mut parts = 0;
        for vreg in function.vregs() {
            let class = target.class(function.vreg(vreg).class);
            part_base.push(parts);
            parts += class.width as u32;
            part_files.resize(parts as usize, file_bit(class.file));
        }
        for (_, inst) in equations.records() {
            part_base.push(parts);
            for operand in function.operands(inst) {
                let class = target.class(function.vreg(operand.vreg).class);
                parts += class.width as u32;
                part_files.resize(parts as usize, file_bit(class.file));
            }
        }
        part_base.push(parts);
        let live_parts = live.expand(
            |vreg| part_base[vreg.index()]..part_base[vreg.index() + 1],
            scratch,
        );
        let words = Words::of(target);
        let units = target.unit_count();
        let local_words = words.count(allocation.frame.size(Space::Local));
        let shared_words = words.count(allocation.frame.size(Space::Shared));
        let entry = function.entry();
        let inst = function.terminator(entry);
        current.clear();
        current.resize(parts as usize + preserved.len(), 0);
        states.clear();
        states.resize(function.block_count(), None);
        let argument_words = words.count(function.argument_bytes(target));
        locations.reset(units, local_words + shared_words + argument_words);
        Flow {
            function,
            target,
            allocation,
            live,
            equations,
            clobbers: ClobberedUnits::default(),
            pinned: function
                .vregs()
                .filter(|&v| function.vreg(v).pinned)
                .collect(),
            watch_pinned: false,
            current,
            preserved,
            part_base,
            part_files,
            live_parts,
            base: 1,
            next: 1,
            homes,
            locations,
            words,
            shared_words: units + local_words,
            argument_words: units + local_words + shared_words,
            argument_bytes: function.argument_bytes(target),
            scratch,
            states,
            meet,
            edge_values,
            overwritten: Vec::new(),
            at: Cursor {
                block: entry,
                index: 0,
                inst,
                point: Point::Before(inst),
                edit: 0,
            },
        }
    }

    fn prove(&mut self) -> Outcome {
        self.reach_fixpoint()?;
        match self.pinned.is_empty() {
            true => Ok(()),
            false => self.check_pinned(),
        }
    }

    fn into_memory(mut self) -> Memory {
        let scratch = self.scratch;
        self.live_parts.recycle(scratch);
        let states = self.states.drain(..).flatten();
        states.for_each(|state| state.recycle(scratch));
        Memory {
            part_base: self.part_base,
            part_files: self.part_files,
            current: self.current,
            homes: self.homes,
            edge_values: self.edge_values,
            states: self.states,
            locations: self.locations,
            meet: self.meet,
        }
    }

    fn reach_fixpoint(&mut self) -> Outcome {
        let order = reverse_post_order(self.function);
        let mut position = vec![0; self.function.block_count()];
        for (index, block) in order.iter().enumerate() {
            position[block.index()] = index;
        }
        let mut dirty = FixedBitSet::with_capacity(order.len());
        self.states[self.function.entry().index()] = Some(self.entry_state());
        dirty.insert(0);
        while !dirty.is_clear() {
            for (index, &block) in order.iter().enumerate() {
                if !dirty.contains(index) {
                    continue;
                }
                dirty.set(index, false);
                self.walk(block, |succ| dirty.insert(position[succ.index()]))?;
            }
        }
        Ok(())
    }

    /// One more pass over final states, looking at edits that touch pinned values.
    fn check_pinned(&mut self) -> Outcome {
        self.watch_pinned = true;
        for block in self.function.blocks() {
            if self.states[block.index()].is_some() {
                self.walk(block, |_| {})?;
            }
        }
        Ok(())
    }

    /// On entry every preserved unit holds its own value and nothing else is known.
    fn entry_state(&self) -> Partition {
        let undefined = self.live_parts.of(self.function.entry().index()).len() as u32;
        let classes = undefined + self.preserved.len() as u32;
        let held = (undefined..).zip(&self.preserved);
        Partition {
            parts: (0..classes).collect(),
            locations: held
                .map(|(class, unit)| (unit.index() as u32, class, 0))
                .collect(),
            classes,
            equations: Vec::new(),
        }
    }

    /// Walks `block` from its state and brings its successors' states down, naming those
    /// that changed.
    fn walk(&mut self, block: Block, mut changed: impl FnMut(Block)) -> Outcome {
        self.enter(block);
        let (function, allocation) = (self.function, self.allocation);
        self.at.block = block;
        for (index, inst) in allocation.block_insts(function, block).enumerate() {
            self.at.index = index;
            self.at.inst = inst;
            self.edits(Point::Before(inst), allocation.edits.before(inst))?;
            self.instruction(inst)?;
            self.edits(Point::After(inst), allocation.edits.after(inst))?;
        }
        for (succ, edge) in function.succs(block).iter().enumerate() {
            let succ = succ as u32;
            self.locations.remember();
            self.overwritten.clear();
            self.edits(
                Point::Edge(block, succ),
                allocation.edits.on_edge(block, succ),
            )?;
            if self.arrive(edge.block, &edge.args) {
                changed(edge.block);
            }
            self.locations.restore();
            self.restore_records();
        }
        Ok(())
    }

    fn enter(&mut self, block: Block) {
        let Some(state) = &self.states[block.index()] else {
            return;
        };
        self.base = self.next;
        self.next += state.classes as u64;
        self.homes.clear();
        self.homes.resize(state.classes as usize, 0);
        let mut classes = state.parts.iter();
        for (&part, &class) in self.live_parts.of(block.index()).iter().zip(&mut classes) {
            self.current[part as usize] = self.base + class as u64;
            self.homes[class as usize] |= self.part_files[part as usize];
        }
        let entry_parts = self.entry_parts();
        for (index, &class) in classes.enumerate() {
            let file = self.target.reg_at(self.preserved[index]).file;
            self.current[entry_parts + index] = self.base + class as u64;
            self.homes[class as usize] |= file_bit(file);
        }
        self.locations.clear();
        for &(location, class, pieces) in &state.locations {
            let content = Content::new(self.base + class as u64, pieces);
            self.locations.set(location as usize, content);
        }
        self.equations.enter(&state.equations);
    }

    /// Meets the present state into that of `block`; whether that changed.
    fn arrive(&mut self, block: Block, args: &[VReg]) -> bool {
        let mut values = std::mem::take(&mut self.edge_values);
        values.clear();
        let params = &self.function.block(block).params;
        match params.is_empty() {
            true => self.live_values(block, &mut values),
            false => {
                let before = self.assign_params(params, args);
                self.live_values(block, &mut values);
                self.restore_params(params, before);
            }
        }
        self.blank_records(block, &mut values);
        let equations = self.edge_equations(block, args);
        let state = &mut self.states[block.index()];
        let changed = match state {
            None => {
                let partition =
                    self.meet
                        .partition(self.base, &values, &self.locations, self.scratch);
                *state = Some(Partition {
                    equations,
                    ..partition
                });
                true
            }
            Some(state) => {
                let before = state.equations.len();
                state
                    .equations
                    .retain(|e| equations.binary_search(e).is_ok());
                let fewer = state.equations.len() < before;
                self.meet.refine(state, &values, &self.locations) || fewer
            }
        };
        self.edge_values = values;
        changed
    }

    /// The current values of what lives at the start of `block`. Each was set since the
    /// present block was entered, as it is written there or live at its start too.
    fn live_values(&self, block: Block, values: &mut Vec<Value>) {
        let parts = self.live_parts.of(block.index());
        values.extend(parts.iter().map(|&part| self.current[part as usize]));
        values.extend_from_slice(&self.current[self.entry_parts()..]);
    }

    /// Gives `params` the values of `args`, all at once; what they had before.
    fn assign_params(&mut self, params: &[VReg], args: &[VReg]) -> SmallVec<[Value; 16]> {
        let before = params
            .iter()
            .flat_map(|&p| self.parts(p))
            .copied()
            .collect();
        let values: SmallVec<[Value; 16]> =
            args.iter().flat_map(|&a| self.parts(a)).copied().collect();
        self.restore_params(params, values);
        before
    }

    fn restore_params(&mut self, params: &[VReg], values: SmallVec<[Value; 16]>) {
        let mut values = values.into_iter();
        for &param in params {
            let base = self.part_base[param.index()] as usize;
            let end = self.part_base[param.index() + 1] as usize;
            let parts = &mut self.current[base..end];
            parts.iter_mut().zip(&mut values).for_each(|(p, v)| *p = v);
        }
    }

    /// Equations that hold on the way into `block` and speak of a value that is live there,
    /// and records that someone asks for from there on.
    fn edge_equations(&self, block: Block, args: &[VReg]) -> Vec<u32> {
        if self.equations.is_empty() {
            return Vec::new();
        }
        let mut holding = self.equations.holding();
        let live = self.live.at_start(block);
        let params = &self.function.block(block).params;
        let redefined = |vreg: VReg| params.iter().zip(args).any(|(&p, &a)| p == vreg && a != p);
        holding.retain(|&equation| {
            let inst = self.equations.inst(equation);
            if let Some(record) = self.equations.record(inst) {
                return live.binary_search(&record).is_ok();
            }
            let operands = self.function.operands(inst);
            let wanted = |o: &&Operand| o.role.writes() && live.binary_search(&o.vreg).is_ok();
            operands.iter().any(|o| wanted(&o)) && !operands.iter().any(|o| redefined(o.vreg))
        });
        holding
    }

    fn preserved_are_back(&self) -> Outcome {
        let entry_parts = self.entry_parts();
        for (unit, &value) in self.preserved.iter().zip(&self.current[entry_parts..]) {
            if self.locations.get(unit.index()) != Content::whole(value) {
                let reg = self.named(self.target.reg_at(*unit));
                return Err(self.refuse(Site::Whole, None, Fault::NotPreserved { reg }));
            }
        }
        Ok(())
    }

    fn fresh(&mut self, part: usize) -> Value {
        self.homes.push(self.part_files[part]);
        self.next += 1;
        self.next - 1
    }

    /// The values of the parts of `vreg`.
    fn parts(&self, vreg: VReg) -> &[Value] {
        &self.current[self.part_base[vreg.index()] as usize..][..self.width(vreg)]
    }

    /// Where the parts of preserved units begin.
    fn entry_parts(&self) -> usize {
        self.current.len() - self.preserved.len()
    }

    fn width(&self, vreg: VReg) -> usize {
        let index = vreg.index();
        (self.part_base[index + 1] - self.part_base[index]) as usize
    }

    /// A part whose current value this is.
    fn holder(&self, content: Content) -> Option<(VReg, usize)> {
        let value = content.value();
        if value < self.base {
            return None;
        }
        self.function.vregs().find_map(|vreg| {
            let mut parts = self.parts(vreg).iter();
            Some((vreg, parts.position(|&part| part == value)?))
        })
    }

    fn named(&self, reg: PReg) -> NamedReg {
        NamedReg::new(self.target, reg)
    }

    fn refuse_edit(&self, fault: Fault) -> Box<Violation> {
        self.refuse(Site::Edit(self.at.point, self.at.edit), None, fault)
    }

    fn refuse(&self, site: Site, value: Option<(VReg, usize)>, fault: Fault) -> Box<Violation> {
        let place = match site {
            Site::Edit(Point::Edge(block, _), _) => Place::Block(block),
            _ => Place::Inst(self.at.block, self.at.inst),
        };
        Box::new(Violation {
            place,
            site,
            value,
            fault,
        })
    }
}

/// The blocks that execution can reach, each after its predecessors but for loops.
fn reverse_post_order(function: &Function) -> Vec<Block> {
    let mut seen = FixedBitSet::with_capacity(function.block_count());
    let mut order = Vec::with_capacity(function.block_count());
    let mut stack = vec![(function.entry(), 0)];
    seen.insert(function.entry().index());
    while let Some((block, next)) = stack.last_mut() {
        match function.succs(*block).get(*next) {
            Some(edge) => {
                *next += 1;
                if !seen.put(edge.block.index()) {
                    stack.push((edge.block, 0));
                }
            }
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }
    order.reverse();
    order
}
