//! Which values are live where blocks meet.
//!
//! A value is live at a point when some path from there reads it before writing it. The
//! usual equations, solved backwards,
//!
//! ```text
//! in(b)  = exposed(b) ∪ (out(b) − written(b))        parameters of b are written in b
//! out(b) = arguments(b) ∪ ⋃ in(s) over successors s
//! ```
//!
//! keep a set of all values per block: V × B bits, of which nearly all are zero, for most
//! values live and die within one block. Instead the equations are solved one value at a
//! time, as B. Boissinot et al. do for SSA form ("Computing Liveness Sets for SSA-Form
//! Programs", 2011) but for any code: a worklist starts at the blocks that read the value
//! before writing it and walks against the edges until it meets a block that writes it or
//! has been there. Each step finds one new element of the result, so time and memory are
//! linear in the code plus the sets themselves, and a value local to its block costs
//! nothing at all. As values are taken in ascending order, the sets come out sorted.
//!
//! Blocks need not be reachable, and a value read before it is ever written is simply live
//! into the entry.

use super::Code;
use super::rows::Rows;
use crate::function::{Block, Operand, Role, VReg};
use cranelift_entity::{EntityRef, SecondaryMap};

/// The values live into and out of each block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liveness<V = VReg> {
    live_in: Rows<Block, V>,
    live_out: Rows<Block, V>,
}

impl<V: EntityRef + Ord> Liveness<V> {
    /// Solves liveness for `code`.
    pub fn compute(code: &impl Code<Value = V>) -> Liveness<V> {
        let summary = Summary::of(code);
        let mut walk = Walk::new(code.block_count());
        for value in (0..code.value_count()).map(V::new) {
            walk.follow(code, &summary, value);
        }
        Liveness {
            live_in: Rows::from_pairs(code.block_count(), &walk.live_in),
            live_out: Rows::from_pairs(code.block_count(), &walk.live_out),
        }
    }

    /// Values whose contents at the start of `block` are read later, in ascending order.
    /// Parameters of `block` are not among them: they are written there.
    pub fn live_in(&self, block: Block) -> &[V] {
        self.live_in.row(block)
    }

    /// Values whose contents at the end of `block` are read later, arguments of its edges
    /// included, in ascending order.
    pub fn live_out(&self, block: Block) -> &[V] {
        self.live_out.row(block)
    }

    /// Whether `value` is live into `block`.
    pub fn is_live_in(&self, block: Block, value: V) -> bool {
        self.live_in(block).binary_search(&value).is_ok()
    }

    /// Whether `value` is live out of `block`.
    pub fn is_live_out(&self, block: Block, value: V) -> bool {
        self.live_out(block).binary_search(&value).is_ok()
    }

    /// How many elements all live-in sets have together.
    pub fn live_in_total(&self) -> usize {
        self.live_in.len()
    }

    /// Where the elements of `live_in(block)` stand in the row of all live-in elements, so
    /// that a fact about each can be kept in one vector.
    pub fn live_in_range(&self, block: Block) -> std::ops::Range<usize> {
        self.live_in.range(block)
    }
}

/// What blocks do to values, listed by value.
struct Summary<V> {
    /// Blocks that read the value before writing it.
    exposed: Rows<V, Block>,
    /// Blocks that write the value.
    written: Rows<V, Block>,
    /// Blocks that pass the value along an edge.
    passed: Rows<V, Block>,
}

impl<V: EntityRef + Ord> Summary<V> {
    fn of(code: &impl Code<Value = V>) -> Summary<V> {
        let mut scan = BlockScan::new(code.value_count());
        let (mut exposed, mut written, mut passed) = (Vec::new(), Vec::new(), Vec::new());
        for block in code.all_blocks() {
            passed.extend(code.arguments(block).map(|value| (value, block)));
            scan.run(code, block);
            for value in scan.touched.drain(..) {
                let state = std::mem::take(&mut scan.states[value]);
                if state.exposed {
                    exposed.push((value, block));
                }
                if state.written {
                    written.push((value, block));
                }
            }
        }
        let values = code.value_count();
        Summary {
            exposed: Rows::from_pairs(values, &exposed),
            written: Rows::from_pairs(values, &written),
            passed: Rows::from_pairs(values, &passed),
        }
    }
}

/// What one block does to a value.
#[derive(Clone, Copy, Default)]
struct State {
    touched: bool,
    exposed: bool,
    written: bool,
}

/// Scans one block after the other, with memory for the values touched.
struct BlockScan<V: EntityRef> {
    states: SecondaryMap<V, State>,
    touched: Vec<V>,
}

impl<V: EntityRef + Ord> BlockScan<V> {
    fn new(values: usize) -> BlockScan<V> {
        let mut states = SecondaryMap::new();
        states.resize(values);
        BlockScan {
            states,
            touched: Vec::new(),
        }
    }

    fn run(&mut self, code: &impl Code<Value = V>, block: Block) {
        for value in code.arguments(block) {
            self.read(value);
        }
        for point in code.points(block).rev() {
            for (value, _) in code.accesses(point).filter(|(_, role)| role.writes()) {
                self.write(value);
            }
            for (value, _) in code.accesses(point).filter(|(_, role)| role.reads()) {
                self.read(value);
            }
        }
        for value in code.parameters(block) {
            self.write(value);
        }
    }

    fn touch(&mut self, value: V) -> &mut State {
        let state = &mut self.states[value];
        if !state.touched {
            state.touched = true;
            self.touched.push(value);
        }
        state
    }

    fn read(&mut self, value: V) {
        self.touch(value).exposed = true;
    }

    fn write(&mut self, value: V) {
        let state = self.touch(value);
        state.exposed = false;
        state.written = true;
    }
}

/// The walk against the edges, one value after the other.
struct Walk<V> {
    /// For each block, the last value (plus one) it was found to write, have live in, and
    /// have live out; nothing needs clearing between values.
    marks: SecondaryMap<Block, Marks>,
    worklist: Vec<Block>,
    live_in: Vec<(Block, V)>,
    live_out: Vec<(Block, V)>,
}

#[derive(Clone, Copy, Default)]
struct Marks {
    written: u32,
    live_in: u32,
    live_out: u32,
}

impl<V: EntityRef> Walk<V> {
    fn new(blocks: usize) -> Walk<V> {
        let mut marks = SecondaryMap::new();
        marks.resize(blocks);
        Walk {
            marks,
            worklist: Vec::new(),
            live_in: Vec::new(),
            live_out: Vec::new(),
        }
    }

    fn follow(&mut self, code: &impl Code<Value = V>, summary: &Summary<V>, value: V) {
        let mark = value.index() as u32 + 1;
        for &block in summary.passed.row(value) {
            self.add_live_out(block, value, mark);
        }
        if summary.exposed.row(value).is_empty() {
            return;
        }
        for &block in summary.written.row(value) {
            self.marks[block].written = mark;
        }
        for &block in summary.exposed.row(value) {
            self.add_live_in(block, value, mark);
        }
        while let Some(block) = self.worklist.pop() {
            for pred in code.predecessors(block) {
                self.add_live_out(pred, value, mark);
                if self.marks[pred].written != mark {
                    self.add_live_in(pred, value, mark);
                }
            }
        }
    }

    fn add_live_in(&mut self, block: Block, value: V, mark: u32) {
        if self.marks[block].live_in != mark {
            self.marks[block].live_in = mark;
            self.live_in.push((block, value));
            self.worklist.push(block);
        }
    }

    fn add_live_out(&mut self, block: Block, value: V, mark: u32) {
        if self.marks[block].live_out != mark {
            self.marks[block].live_out = mark;
            self.live_out.push((block, value));
        }
    }
}

/// The values live at one point, moved backwards through a block.
///
/// A sparse set (P. Briggs and L. Torczon, 1993): adding, removing and asking take constant
/// time, emptying it costs its size, so one set serves a whole function.
///
/// ```
/// use warpalloc::analysis::{Liveness, LiveSet};
/// use warpalloc::function::{Builder, Effect};
/// use warpalloc::target::Class;
///
/// let mut b = Builder::new("f");
/// let entry = b.block();
/// let x = b.vreg(Class::R32);
/// b.inst(entry, "load").def(x).effect(Effect::Read);
/// b.inst(entry, "store").use_(x).effect(Effect::Write);
/// b.exit(entry, "exit");
/// let function = b.finish();
///
/// let liveness = Liveness::compute(&function);
/// let mut live = LiveSet::new(function.vreg_count());
/// live.start_at_end(&liveness, entry);
/// let mut live_after = Vec::new();
/// for inst in function.block_insts(entry).rev() {
///     live_after.push(live.len());
///     live.step_back(function.operands(inst));
/// }
/// assert_eq!(live_after, [0, 0, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct LiveSet<V = VReg> {
    members: Vec<V>,
    /// Where each value stands among the members, if it is one.
    places: Vec<u32>,
}

impl<V: EntityRef + Ord> LiveSet<V> {
    /// The empty set for values numbered below `values`.
    pub fn new(values: usize) -> LiveSet<V> {
        LiveSet {
            members: Vec::new(),
            places: vec![0; values],
        }
    }

    /// Whether `value` is in the set.
    pub fn contains(&self, value: V) -> bool {
        let place = self.places[value.index()] as usize;
        self.members.get(place) == Some(&value)
    }

    /// Adds `value`; says whether it was not there.
    pub fn insert(&mut self, value: V) -> bool {
        let new = !self.contains(value);
        if new {
            self.places[value.index()] = self.members.len() as u32;
            self.members.push(value);
        }
        new
    }

    /// Removes `value`; says whether it was there.
    pub fn remove(&mut self, value: V) -> bool {
        let old = self.contains(value);
        if old {
            let place = self.places[value.index()];
            self.members.swap_remove(place as usize);
            if let Some(&moved) = self.members.get(place as usize) {
                self.places[moved.index()] = place;
            }
        }
        old
    }

    /// The values, in an order that depends only on the steps that led here.
    pub fn as_slice(&self) -> &[V] {
        &self.members
    }

    /// The values, in the order of [`LiveSet::as_slice`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = V> + '_ {
        self.members.iter().copied()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.members.clear();
    }

    /// Makes it the set live out of `block`.
    pub fn start_at_end(&mut self, liveness: &Liveness<V>, block: Block) {
        self.clear();
        for &value in liveness.live_out(block) {
            self.insert(value);
        }
    }

    /// Moves from after an instruction with these accesses to before it.
    pub fn step_back_over<I>(&mut self, accesses: I)
    where
        I: Iterator<Item = (V, Role)> + Clone,
    {
        for (value, role) in accesses.clone() {
            if role.writes() {
                self.remove(value);
            }
        }
        for (value, role) in accesses {
            if role.reads() {
                self.insert(value);
            }
        }
    }
}

impl LiveSet<VReg> {
    /// Moves from after an instruction with these operands to before it.
    pub fn step_back(&mut self, operands: &[Operand]) {
        self.step_back_over(operands.iter().map(|o| (o.vreg, o.role)));
    }
}
