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
//! values live and die within one block. Only values that a block reads without having
//! written them take part at all. They are solved sixty-four at a time, one bit each of a
//! word per block: a worklist starts at the blocks that read them and walks against the
//! edges until bits meet blocks that write them or have had them. That is how B. Boissinot et al. find
//! liveness of SSA form one variable at a time ("Computing Liveness Sets for SSA-Form
//! Programs", 2011), but for any code, and values defined side by side, which tend to live
//! in the same blocks, share their walk. Time and memory are linear in the code plus the sets
//! themselves, and there is no table over values and blocks. As words are taken in ascending order, the sets
//! come out sorted.
//!
//! Blocks need not be reachable, and a value read before it is ever written is simply live
//! into the entry.

use super::Code;
use super::rows::Rows;
use crate::function::{Block, Operand, Role, VReg};
use cranelift_entity::{EntityRef, SecondaryMap, entity_impl};
use rustc_hash::FxHashMap;

/// The values live into and out of each block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liveness<V = VReg> {
    live_in: Rows<Block, V>,
    live_out: Rows<Block, V>,
}

/// What is live around one block after a change, in ascending order.
pub(crate) struct Revision<V> {
    pub live_in: Vec<V>,
    pub live_out: Vec<V>,
}

impl<V: EntityRef + Ord> Liveness<V> {
    /// Solves liveness for `code`.
    pub fn compute(code: &impl Code<Value = V>) -> Liveness<V> {
        let summary = Summary::of(code);
        let mut walk = Walk::new(code.block_count());
        for word in summary.words() {
            walk.follow(code, &summary, word);
        }
        Liveness {
            live_in: summary.rows(code.block_count(), &walk.found, |found| found.live_in),
            live_out: summary.rows(code.block_count(), &walk.found, |found| found.live_out),
        }
    }

    /// The same sets for code that calls its values `name`.
    pub(crate) fn renamed<U: EntityRef + Ord>(&self, name: fn(V) -> U) -> Liveness<U> {
        Liveness {
            live_in: self.live_in.map(name),
            live_out: self.live_out.map(name),
        }
    }

    /// The same sets for code of `blocks` blocks, but for those that `revisions` names.
    pub(crate) fn revised(
        &self,
        blocks: usize,
        revisions: &FxHashMap<Block, Revision<V>>,
    ) -> Liveness<V> {
        let live_in = |block| revisions.get(&block).map(|r| &r.live_in[..]);
        let live_out = |block| revisions.get(&block).map(|r| &r.live_out[..]);
        Liveness {
            live_in: self.live_in.replaced(blocks, live_in),
            live_out: self.live_out.replaced(blocks, live_out),
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

/// Sixty-four values that are solved together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u32);
entity_impl!(Word);

/// What blocks do to the values that outlive a block.
struct Summary<V> {
    /// These values in ascending order, sixty-four to a word.
    shared: Vec<V>,
    /// Blocks that read a value before writing it, with the value's bit.
    exposed: Rows<Word, (Block, u64)>,
    /// Blocks that write a value.
    written: Rows<Word, (Block, u64)>,
    /// Blocks that pass a value along an edge.
    passed: Rows<Word, (Block, u64)>,
}

impl<V: EntityRef + Ord> Summary<V> {
    fn of(code: &impl Code<Value = V>) -> Summary<V> {
        let scan = Scan::of(code);
        let mut numbers = vec![LOCAL; code.value_count()];
        for &(value, _) in scan.exposed.iter().chain(&scan.passed) {
            numbers[value.index()] = 0;
        }
        let mut shared = Vec::new();
        for (value, number) in numbers.iter_mut().enumerate() {
            if *number != LOCAL {
                *number = shared.len() as u32;
                shared.push(V::new(value));
            }
        }
        let by_word = |pairs: &[(V, Block)]| {
            let numbered = pairs.iter().map(|&(v, block)| (numbers[v.index()], block));
            let bits = numbered
                .filter(|&(number, _)| number != LOCAL)
                .map(|(number, block)| (Word(number / 64), (block, 1u64 << (number % 64))));
            Rows::from_pairs(shared.len().div_ceil(64), &bits.collect::<Vec<_>>())
        };
        Summary {
            exposed: by_word(&scan.exposed),
            written: by_word(&scan.written),
            passed: by_word(&scan.passed),
            shared,
        }
    }

    fn words(&self) -> impl Iterator<Item = Word> + use<V> {
        (0..self.shared.len().div_ceil(64)).map(Word::new)
    }

    /// Lists by block the values whose bits `pick` takes from what was found.
    fn rows(&self, blocks: usize, found: &[Found], pick: fn(&Found) -> u64) -> Rows<Block, V> {
        let values = |found: &Found| Bits {
            shared: &self.shared[64 * found.word.index()..],
            bits: pick(found),
        };
        Rows::from_lists(
            blocks,
            found.iter().map(|found| (found.block, values(found))),
        )
    }
}

/// The number of a value that lives and dies within blocks.
const LOCAL: u32 = u32::MAX;

/// The values of one word that have their bits set.
#[derive(Clone)]
struct Bits<'a, V> {
    shared: &'a [V],
    bits: u64,
}

impl<V: Copy> Iterator for Bits<'_, V> {
    type Item = V;

    #[inline]
    fn next(&mut self) -> Option<V> {
        let lowest = (self.bits != 0).then(|| self.bits.trailing_zeros())?;
        self.bits &= self.bits - 1;
        Some(self.shared[lowest as usize])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.bits.count_ones() as usize;
        (count, Some(count))
    }
}

impl<V: Copy> ExactSizeIterator for Bits<'_, V> {}

/// Scans blocks backwards, one after the other.
struct Scan<V> {
    exposed: Vec<(V, Block)>,
    written: Vec<(V, Block)>,
    passed: Vec<(V, Block)>,
    /// What the last block to touch each value does to it: its number plus one, then a bit
    /// each for `EXPOSED` and `WRITTEN`.
    states: Vec<u32>,
    touched: Vec<V>,
}

const EXPOSED: u32 = 1;
const WRITTEN: u32 = 2;

impl<V: EntityRef + Ord> Scan<V> {
    fn of(code: &impl Code<Value = V>) -> Scan<V> {
        let mut scan = Scan {
            exposed: Vec::new(),
            written: Vec::with_capacity(code.value_count()),
            passed: Vec::new(),
            states: vec![0; code.value_count()],
            touched: Vec::new(),
        };
        for block in code.all_blocks() {
            scan.block(code, block);
        }
        scan
    }

    fn block(&mut self, code: &impl Code<Value = V>, block: Block) {
        let stamp = (block.index() as u32 + 1) << 2;
        for value in code.arguments(block) {
            self.passed.push((value, block));
            self.read(value, stamp);
        }
        for point in code.points(block).rev() {
            for (value, _) in code.accesses(point).filter(|(_, role)| role.writes()) {
                self.write(value, stamp);
            }
            for (value, _) in code.accesses(point).filter(|(_, role)| role.reads()) {
                self.read(value, stamp);
            }
        }
        for value in code.parameters(block) {
            self.write(value, stamp);
        }
        for value in self.touched.drain(..) {
            let state = self.states[value.index()];
            if state & EXPOSED != 0 {
                self.exposed.push((value, block));
            }
            if state & WRITTEN != 0 {
                self.written.push((value, block));
            }
        }
    }

    fn read(&mut self, value: V, stamp: u32) {
        *self.touch(value, stamp) |= EXPOSED;
    }

    fn write(&mut self, value: V, stamp: u32) {
        *self.touch(value, stamp) = stamp | WRITTEN;
    }

    fn touch(&mut self, value: V, stamp: u32) -> &mut u32 {
        let state = &mut self.states[value.index()];
        if *state & !(EXPOSED | WRITTEN) != stamp {
            *state = stamp;
            self.touched.push(value);
        }
        state
    }
}

/// The values of a word that are live around a block.
struct Found {
    word: Word,
    block: Block,
    live_in: u64,
    live_out: u64,
}

/// The walk against the edges, one word after the other.
struct Walk {
    marks: SecondaryMap<Block, Marks>,
    /// Blocks whose marks belong to the current word.
    touched: Vec<Block>,
    worklist: Vec<Block>,
    found: Vec<Found>,
}

/// What is known of one block and the current word.
#[derive(Clone, Copy, Default)]
struct Marks {
    touched: bool,
    queued: bool,
    written: u64,
    live_in: u64,
    live_out: u64,
}

impl Walk {
    fn new(blocks: usize) -> Walk {
        let mut marks = SecondaryMap::new();
        marks.resize(blocks);
        Walk {
            marks,
            touched: Vec::new(),
            worklist: Vec::new(),
            found: Vec::new(),
        }
    }

    fn follow<V: EntityRef + Ord>(
        &mut self,
        code: &impl Code<Value = V>,
        summary: &Summary<V>,
        word: Word,
    ) {
        for &(block, bit) in summary.written.row(word) {
            self.touch(block).written |= bit;
        }
        for &(block, bit) in summary.passed.row(word) {
            self.touch(block).live_out |= bit;
        }
        for &(block, bit) in summary.exposed.row(word) {
            self.add_live_in(block, bit);
        }
        while let Some(block) = self.worklist.pop() {
            self.marks[block].queued = false;
            let needed = self.marks[block].live_in;
            for pred in code.predecessors(block) {
                let marks = self.touch(pred);
                marks.live_out |= needed;
                let through = needed & !marks.written;
                self.add_live_in(pred, through);
            }
        }
        for block in self.touched.drain(..) {
            let marks = std::mem::take(&mut self.marks[block]);
            if marks.live_in | marks.live_out != 0 {
                self.found.push(Found {
                    word,
                    block,
                    live_in: marks.live_in,
                    live_out: marks.live_out,
                });
            }
        }
    }

    fn touch(&mut self, block: Block) -> &mut Marks {
        let marks = &mut self.marks[block];
        if !marks.touched {
            marks.touched = true;
            self.touched.push(block);
        }
        marks
    }

    fn add_live_in(&mut self, block: Block, bits: u64) {
        let marks = self.touch(block);
        if bits & !marks.live_in != 0 {
            marks.live_in |= bits;
            if !std::mem::replace(&mut marks.queued, true) {
                self.worklist.push(block);
            }
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
