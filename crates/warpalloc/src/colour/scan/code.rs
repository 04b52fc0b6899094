//! The code as the phases see it: steps over values, blocks and edges in flat arrays.
//!
//! A [`Program`] isolates the constrained operands of an instruction in short-lived values,
//! the *seats*, with a copy before and a copy after. Here an instruction and the copies
//! around it are one [`Step`]: seats never live between steps, so liveness, spilling and
//! edges deal with unconstrained values alone.
//!
//! Edges carry `(parameter, argument)` pairs. Where values of a file that cannot reach
//! memory were spilled into another file, the copies on edges became other code, and the
//! program's blocks on edges are blocks of their own that take no parameters.

use crate::analysis::{Cfg, Code as Points, Frequencies, Liveness, Loops, Order};
use crate::function::{Block, Function, Role};
use crate::ir::{Op, Origin, Program, Value};
use crate::target::{File, PReg, RegSet, SpillPath, Target};
use cranelift_entity::EntityRef;
use std::ops::Range;

pub(super) use super::steps::{Access, Step, is_rewritten};

/// No value, no link, no register.
pub(super) const NONE: u32 = u32::MAX;

/// How many register files a target has at most.
pub(super) const FILES: usize = crate::target::MAX_FILES;

/// What kind of register the values of a class need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub file: usize,
    pub width: usize,
    pub align: usize,
    /// Whether its values can be stored.
    pub reaches_memory: bool,
}

/// A way from one block to another.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub from: Block,
    pub to: Block,
    /// Position among the successors of `from`.
    pub succ: u32,
    pairs: Range<u32>,
}

/// A program with the facts every phase needs.
pub(super) struct Code<'a> {
    pub function: &'a Function,
    pub target: &'a Target,
    pub program: Program<'a>,
    pub order: Order,
    pub loops: Loops,
    pub frequencies: Frequencies,
    liveness: Liveness<Value>,
    /// By class; there are no more than a byte tells apart.
    shapes: Box<[Shape; 256]>,
    class: Vec<u8>,
    /// The files that values belong to, and those where some have to be aligned.
    used: u8,
    wide: u8,
    /// The link of each seat.
    pub(super) link: Vec<u32>,
    pub(super) steps: Vec<Step>,
    pub(super) has_copies: bool,
    pub(super) step_starts: Vec<u32>,
    /// What each step touches, row after row: reads, writes, and both at once. It is known
    /// once pinned values are.
    pub(super) accesses: Vec<Access>,
    pub(super) access_starts: Vec<u32>,
    edges: Vec<Edge>,
    edge_starts: Vec<u32>,
    pairs: Vec<(u32, u32)>,
    /// Numbers of the edges that lead to each block.
    incoming: Vec<u32>,
    incoming_starts: Vec<u32>,
    params: Vec<u32>,
    param_starts: Vec<u32>,
    units: [usize; FILES],
    /// Where each pinned value is for good; empty where there is none.
    pins: Vec<u16>,
    pinned_units: RegSet,
}

/// No register.
pub(super) const NOWHERE: u16 = u16::MAX;

impl<'a> Code<'a> {
    /// The code of a program as it was made from its function.
    pub fn of_function(program: Program<'a>, target: &'a Target, liveness: &Liveness) -> Code<'a> {
        let function = program.function;
        let order = Order::compute(function);
        let loops = Loops::compute(function, &order);
        let frequencies = Frequencies::compute(function, &order, &loops);
        let facts = (order, loops, frequencies);
        let mut code = Code::around(program, target, facts, liveness.renamed());
        code.add_steps(function.block_count());
        code.add_parameters();
        code.add_edges(function.block_count(), |code, block, succ| {
            let edge = &function.succs(block)[succ];
            let params = function.block(edge.block).params.iter().zip(&edge.args);
            let alive = code.params(edge.block).to_vec();
            let pairs = params.map(|(p, a)| (p.as_u32(), a.as_u32()));
            code.pairs.extend(pairs.filter(|(p, _)| alive.contains(p)));
            edge.block
        });
        code
    }

    /// The code of a program whose edges hold code.
    pub fn of_program(program: Program<'a>, target: &'a Target) -> Code<'a> {
        let order = Order::compute(&program);
        let loops = Loops::compute(&program, &order);
        let frequencies = Frequencies::compute(&program, &order, &loops);
        let liveness = Liveness::compute(&program);
        let facts = (order, loops, frequencies);
        let mut code = Code::around(program, target, facts, liveness);
        let blocks = code.program.blocks.len();
        code.add_steps(blocks);
        code.param_starts = vec![0; blocks + 1];
        code.add_edges(blocks, |code, block, succ| {
            code.program.blocks[block].succs[succ]
        });
        code
    }

    fn around(
        program: Program<'a>,
        target: &'a Target,
        (order, loops, frequencies): (Order, Loops, Frequencies),
        liveness: Liveness<Value>,
    ) -> Code<'a> {
        let shape = |class: &crate::target::ClassInfo| Shape {
            file: class.file.index(),
            width: class.width,
            align: class.align,
            reaches_memory: target.file(class.file).spill == SpillPath::Memory,
        };
        const NO_SHAPE: Shape = Shape {
            file: 0,
            width: 1,
            align: 1,
            reaches_memory: false,
        };
        let mut shapes = Box::new([NO_SHAPE; 256]);
        for (known, (_, class)) in shapes.iter_mut().zip(target.classes()) {
            *known = shape(class);
        }
        let mut units = [0; FILES];
        for (file, info) in target.files() {
            units[file.index()] = info.units;
        }
        let mut link = Vec::new();
        if !program.links.is_empty() {
            link = vec![NONE; program.values.len()];
            for (number, info) in program.links.iter().enumerate() {
                let seats = info.members.iter().map(|m| m.0);
                for seat in seats.filter(|&seat| !is_pinned(&program, seat)) {
                    link[seat.index()] = number as u32;
                }
            }
        }
        let class = program.values.values().map(|v| v.class.index() as u8);
        let class: Vec<u8> = class.collect();
        let mut is_present = [false; 256];
        class
            .iter()
            .for_each(|&c| is_present[usize::from(c)] = true);
        let present = || (0..256).filter(|&c| is_present[c]).map(|c| shapes[c]);
        let used = present().fold(0, |used, shape| used | 1 << shape.file);
        let aligned = present().filter(|shape| shape.align > 1);
        let wide = aligned.fold(0, |wide, shape| wide | 1 << shape.file);
        Code {
            function: program.function,
            target,
            order,
            loops,
            frequencies,
            liveness,
            shapes,
            class,
            used,
            wide,
            link,
            steps: Vec::new(),
            has_copies: false,
            step_starts: vec![0],
            accesses: Vec::new(),
            access_starts: Vec::new(),
            edges: Vec::new(),
            edge_starts: vec![0],
            pairs: Vec::new(),
            incoming: Vec::new(),
            incoming_starts: Vec::new(),
            params: Vec::new(),
            param_starts: vec![0],
            units,
            pins: Vec::new(),
            pinned_units: target.reserved().clone(),
            program,
        }
    }

    /// Keeps the parameters whose contents are read, or passed on.
    fn add_parameters(&mut self) {
        let function = self.function;
        let mut live = vec![false; function.vreg_count()];
        for block in function.blocks() {
            let params = &function.block(block).params;
            for &param in params {
                live[param.index()] = self.liveness.is_live_out(block, Value::new(param.index()));
            }
            if !params.is_empty() {
                for inst in function.block_insts(block).rev() {
                    let operands = function.operands(inst);
                    for operand in operands.iter().filter(|o| o.role.writes()) {
                        live[operand.vreg.index()] = false;
                    }
                    for operand in operands.iter().filter(|o| o.role.reads()) {
                        live[operand.vreg.index()] = true;
                    }
                }
            }
            let read = params.iter().filter(|param| live[param.index()]);
            self.params.extend(read.map(|param| param.as_u32()));
            self.param_starts.push(self.params.len() as u32);
        }
    }

    fn add_edges(
        &mut self,
        blocks: usize,
        mut add: impl FnMut(&mut Code<'a>, Block, usize) -> Block,
    ) {
        for block in (0..blocks).map(Block::new) {
            for succ in 0..self.program.blocks[block].succs.len() {
                let first = self.pairs.len() as u32;
                let to = add(self, block, succ);
                self.edges.push(Edge {
                    from: block,
                    to,
                    succ: succ as u32,
                    pairs: first..self.pairs.len() as u32,
                });
            }
            self.edge_starts.push(self.edges.len() as u32);
        }
        let mut starts = vec![0u32; blocks + 2];
        for edge in &self.edges {
            starts[edge.to.index() + 2] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        self.incoming = vec![0; self.edges.len()];
        for (number, edge) in self.edges.iter().enumerate() {
            let at = &mut starts[edge.to.index() + 1];
            self.incoming[*at as usize] = number as u32;
            *at += 1;
        }
        self.incoming_starts = starts;
    }

    pub fn block_count(&self) -> usize {
        self.step_starts.len() - 1
    }

    pub fn value_count(&self) -> usize {
        self.class.len()
    }

    /// Whether some step copies values, into its seats and out of them aside.
    pub fn has_copies(&self) -> bool {
        self.has_copies
    }

    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// Numbers of the steps of `block`.
    pub fn steps(&self, block: Block) -> Range<usize> {
        self.step_starts[block.index()] as usize..self.step_starts[block.index() + 1] as usize
    }

    pub fn step(&self, number: usize) -> Step {
        self.steps[number]
    }

    /// The operation of a step of `block`; none where nothing in the block is constrained and
    /// every step is an instruction.
    pub fn op(&self, block: Block, step: Step) -> Option<&Op> {
        self.program.blocks[block].ops.get(step.op as usize)
    }

    /// The copies into the seats of a step.
    pub fn seated(&self, block: Block, step: Step) -> &[(Value, Value)] {
        let ops = &self.program.blocks[block].ops;
        match ops.get(step.op as usize - usize::from(step.seats)) {
            Some(Op::Copies(pairs)) if step.seats => pairs,
            _ => &[],
        }
    }

    /// The copies out of the seats of a step.
    pub fn unseated(&self, block: Block, step: Step) -> &[(Value, Value)] {
        let ops = &self.program.blocks[block].ops;
        match ops.get(step.op as usize + usize::from(step.unseats)) {
            Some(Op::Copies(pairs)) if step.unseats => pairs,
            _ => &[],
        }
    }

    /// What a step reads and writes, seats aside.
    #[inline]
    pub fn accesses(&self, number: usize) -> &[Access] {
        let start = self.access_starts[number] as usize;
        &self.accesses[start..self.access_starts[number + 1] as usize]
    }

    /// Where `value` is for good, if it is pinned.
    #[inline]
    pub fn pin(&self, value: u32) -> Option<usize> {
        let pin = self.pins.get(value as usize).copied();
        pin.filter(|&pin| pin != NOWHERE).map(usize::from)
    }

    /// Units that belong to pinned values, and reserved ones.
    pub fn pinned_units(&self) -> &RegSet {
        &self.pinned_units
    }

    /// Keeps pinned values in these registers; from now on nobody else sees them.
    pub fn set_pins(&mut self, pins: Vec<u16>) {
        for (value, &pin) in pins.iter().enumerate().filter(|(_, pin)| **pin != NOWHERE) {
            let shape = self.shape(value as u32);
            let register = PReg::new(File::new(shape.file), pin as usize);
            for unit in self.target.units(register, shape.width) {
                self.pinned_units.insert(unit);
            }
        }
        self.pins = pins;
        self.add_accesses();
    }

    /// The link that `value` is a seat of.
    #[inline]
    pub fn link_of(&self, value: u32) -> Option<u32> {
        let link = self.link.get(value as usize).copied();
        link.filter(|&link| link != NONE)
    }

    #[inline]
    pub fn shape(&self, value: u32) -> Shape {
        self.shapes[self.class[value as usize] as usize]
    }

    /// Whether some value belongs to a file.
    pub fn is_used(&self, file: usize) -> bool {
        self.used & 1 << file != 0
    }

    /// Whether values of a file may start at some of its units only.
    pub fn has_wide(&self, file: usize) -> bool {
        self.wide & 1 << file != 0
    }

    /// Units of a file.
    pub fn units(&self, file: usize) -> usize {
        self.units[file]
    }

    /// Values live into `block`, its parameters that are ever read included.
    pub fn live_in(&self, block: Block) -> impl Iterator<Item = u32> + '_ {
        let live = self.liveness.live_in(block).map(|v| v.as_u32());
        let live = live.filter(|&v| self.pin(v).is_none());
        live.chain(self.params(block).iter().copied())
    }

    /// Values live out of `block`, arguments of its edges included.
    pub fn live_out(&self, block: Block) -> impl Iterator<Item = u32> + '_ {
        let live = self.liveness.live_out(block).map(|v| v.as_u32());
        live.filter(|&v| self.pin(v).is_none())
    }

    /// How many values live into blocks, and out of them, in all.
    pub fn live_totals(&self) -> [usize; 2] {
        let entering = self.liveness.live_in_total() + self.params.len();
        [entering, self.liveness.live_out_total()]
    }

    /// The parameters of `block` that are ever read.
    pub fn params(&self, block: Block) -> &[u32] {
        let start = self.param_starts[block.index()] as usize;
        &self.params[start..self.param_starts[block.index() + 1] as usize]
    }

    /// Every edge.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Numbers of the edges that leave `block`.
    pub fn outgoing(&self, block: Block) -> Range<usize> {
        self.edge_starts[block.index()] as usize..self.edge_starts[block.index() + 1] as usize
    }

    /// Numbers of the edges that lead to `block`.
    pub fn incoming(&self, block: Block) -> &[u32] {
        let start = self.incoming_starts[block.index()] as usize;
        &self.incoming[start..self.incoming_starts[block.index() + 1] as usize]
    }

    /// What an edge passes: `(parameter, argument)`.
    pub fn pairs(&self, edge: &Edge) -> &[(u32, u32)] {
        &self.pairs[edge.pairs.start as usize..edge.pairs.end as usize]
    }

    pub fn liveness(&self) -> &Liveness<Value> {
        &self.liveness
    }

    /// How often control takes an edge.
    pub fn edge_frequency(&self, edge: &Edge) -> f64 {
        self.frequencies.edge(edge.from, edge.succ as usize)
    }
}

impl Cfg for Code<'_> {
    fn block_count(&self) -> usize {
        Code::block_count(self)
    }

    fn successors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        self.edges[self.outgoing(block)].iter().map(|edge| edge.to)
    }

    fn predecessors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        let edges = self.incoming(block).iter();
        edges.map(|&number| self.edges[number as usize].from)
    }
}

impl Points for Code<'_> {
    type Value = Value;
    type Point = (Block, u32);

    fn value_count(&self) -> usize {
        Code::value_count(self)
    }

    fn points(&self, block: Block) -> impl DoubleEndedIterator<Item = (Block, u32)> + '_ {
        self.steps(block).map(move |number| (block, number as u32))
    }

    fn accesses(&self, (_, number): (Block, u32)) -> impl Iterator<Item = (Value, Role)> + '_ {
        let accesses = Code::accesses(self, number as usize).iter();
        accesses.map(|a| (Value::from_u32(a.value), a.role))
    }

    fn parameters(&self, block: Block) -> impl Iterator<Item = Value> + '_ {
        self.params(block)
            .iter()
            .map(|&value| Value::from_u32(value))
    }

    fn arguments(&self, block: Block) -> impl Iterator<Item = Value> + '_ {
        let edges = self.edges[self.outgoing(block)].iter();
        edges.flat_map(|edge| {
            self.pairs(edge)
                .iter()
                .map(|&(_, arg)| Value::from_u32(arg))
        })
    }
}

/// Whether `value` is a pinned virtual register.
pub(super) fn is_pinned(program: &Program, value: Value) -> bool {
    match program.values[value].origin {
        Origin::VReg(vreg) => program.function.vreg(vreg).pinned,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{case, code};
    use super::*;

    /// What is passed to `v2` and `v4` is never seen. `v3` is read before it is overwritten.
    #[test]
    fn parameters_that_are_overwritten_unread_take_no_argument() {
        let case = case(
            16,
            "block0:
                v0:r32 = a : read
                bra -> block1(v0, v0, v0, v0)
            block1(v1:r32, v2:r32, v3:r32, v4:r32):
                v2 = b : read
                v3 = c v3
                use v1, v2, v3 : write
                exit : exit",
        );
        let code = code(&case);
        assert_eq!(code.params(Block::new(0)), [0; 0]);
        assert_eq!(code.params(Block::new(1)), [1, 3]);
        assert_eq!(code.pairs(&code.edges()[0]), [(1, 0), (3, 0)]);
    }
}
