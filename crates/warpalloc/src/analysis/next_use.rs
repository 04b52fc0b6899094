//! How far away the next use of each value is.
//!
//! Spilling picks the value whose next use lies furthest away (L. Belady, 1966). Across
//! branches the distance is the least over all paths, and an edge that leaves a loop adds
//! [`LOOP_EXIT`]: a use behind a loop is further than any use within, for the loop is
//! expected to run many times first (M. Braun and S. Hack, "Register Spilling and
//! Live-Range Splitting for SSA-Form Programs", CC 2009). Distances count instructions:
//!
//! ```text
//! entry(b, v) = i                          if instruction i of b is the first to read v
//!             = length(b) + exit(b, v)     if b does not mention v
//! exit(b, v)  = min over edges b → s of entry(s, w) + (LOOP_EXIT if the edge leaves a loop),
//!               where w is v or a parameter of s that the edge passes v to
//! ```
//!
//! for the values live there, which are those with a next use: what is passed to a parameter
//! waits for the use of that parameter, and what is passed on but never read is as far away
//! as can be. The equations describe shortest paths; starting from [`NEVER`] a worklist in
//! post-order lowers the distances until they hold.

use super::rows::Rows;
use super::{Code, Liveness, Loops, Order};
use crate::function::{Block, Role, VReg};
use crate::scratch::Scratch;
use cranelift_entity::{EntityRef, SecondaryMap};

/// The distance of a value that is not read any more.
pub const NEVER: u32 = u32::MAX;

/// What leaving a loop adds to a distance.
pub const LOOP_EXIT: u32 = 100_000;

/// Next-use distances at the boundaries of blocks.
#[derive(Clone, Debug)]
pub struct NextUses<V = VReg> {
    entry: Rows<Block, (V, u32)>,
    exit: Rows<Block, (V, u32)>,
}

impl<V: EntityRef + Ord + Send + 'static> NextUses<V> {
    /// Finds the distances of everything live at block boundaries.
    pub fn compute(
        code: &impl Code<Value = V>,
        order: &Order,
        loops: &Loops,
        liveness: &Liveness<V>,
    ) -> NextUses<V> {
        let mut solver = NextUseSolver::solve(code, order, loops, liveness);
        let items = solver.entry.rows.items().len();
        let mut exit = Rows::with_capacity(code.block_count(), items, &Scratch::default());
        let mut row = Vec::new();
        for block in code.all_blocks() {
            solver.fill_exit(block, liveness, &mut row);
            exit.push(&row);
        }
        NextUses {
            entry: solver.entry.rows,
            exit,
        }
    }

    /// The values live into `block` in ascending order, each with the number of
    /// instructions of `block` and beyond that come before its next use.
    pub fn entry(&self, block: Block) -> &[(V, u32)] {
        self.entry.row(block)
    }

    /// The values live out of `block` in ascending order, each with the number of
    /// instructions after `block` that come before its next use.
    pub fn exit(&self, block: Block) -> &[(V, u32)] {
        self.exit.row(block)
    }

    /// The distance of `value` at the start of `block`; [`NEVER`] if it is not live there.
    pub fn at_entry(&self, block: Block, value: V) -> u32 {
        look_up(self.entry(block), value)
    }

    /// The distance of `value` at the end of `block`; [`NEVER`] if it is not live there.
    pub fn at_exit(&self, block: Block, value: V) -> u32 {
        look_up(self.exit(block), value)
    }

    /// For every operand, in the row of all operands, how many instructions further on the
    /// value it holds after its instruction is read next.
    ///
    /// An input that its own instruction overwrites is not read again.
    pub fn operands(&self, code: &impl Code<Value = V>) -> Vec<u32> {
        let mut distances = Vec::new();
        let mut next = nowhere(code.value_count());
        for block in code.all_blocks() {
            let start = distances.len();
            let length = code.points(block).count() as u32;
            for &(value, distance) in self.exit(block) {
                next[value.index()] = later(length, distance);
            }
            for (index, point) in code.points(block).enumerate() {
                distances.extend(code.accesses(point).map(|_| index as u32));
            }
            self.fill_backward(code, block, &mut next, &mut distances[start..]);
        }
        distances
    }

    /// Turns the instruction index kept for each operand of `block` into its distance.
    fn fill_backward(
        &self,
        code: &impl Code<Value = V>,
        block: Block,
        next: &mut [u32],
        operands: &mut [u32],
    ) {
        let mut end = operands.len();
        for point in code.points(block).rev() {
            let accesses = || code.accesses(point);
            let start = end - accesses().count();
            let index = operands.get(start).copied().unwrap_or(0);
            let rewritten = |value, role| {
                let mut all = accesses();
                role == Role::Use && all.any(|(v, r)| v == value && r.writes())
            };
            for (slot, (value, role)) in operands[start..end].iter_mut().zip(accesses()) {
                *slot = match next[value.index()] {
                    NEVER => NEVER,
                    _ if rewritten(value, role) => NEVER,
                    at => at - index,
                };
            }
            for (value, _) in accesses().filter(|(_, role)| role.writes()) {
                next[value.index()] = NEVER;
            }
            for (value, _) in accesses().filter(|(_, role)| role.reads()) {
                next[value.index()] = index;
            }
            end = start;
        }
        // What is left is parameters and what is live in; the next block starts afresh.
        for value in code.parameters(block) {
            next[value.index()] = NEVER;
        }
        for &(value, _) in self.entry(block) {
            next[value.index()] = NEVER;
        }
    }
}

fn nowhere(values: usize) -> Vec<u32> {
    vec![NEVER; values]
}

/// Makes `row` what `live` is, in ascending order for look-ups: sets are out of order only where
/// code was hoisted, and nobody asks for distances there.
fn fill<V: Ord>(row: &mut Vec<(V, u32)>, live: impl Iterator<Item = (V, u32)>) {
    row.clear();
    row.extend(live);
    debug_assert!(row.is_sorted());
}

fn look_up<V: EntityRef + Ord>(row: &[(V, u32)], value: V) -> u32 {
    let found = row.binary_search_by_key(&value, |&(v, _)| v);
    found.map_or(NEVER, |at| row[at].1)
}

/// `distance` seen from `steps` earlier. A use that exists never becomes [`NEVER`].
fn later(steps: u32, distance: u32) -> u32 {
    match distance {
        NEVER => NEVER,
        _ => distance.saturating_add(steps).min(NEVER - 1),
    }
}

/// The distance of a parameter whose contents are overwritten unread.
const OVERWRITTEN: u32 = NEVER - 1;

/// For each value live into a block, and for each of its parameters, the index of the first
/// instruction that reads it there, [`NEVER`] if it passes through.
fn first_reads<V: EntityRef + Ord + Send + 'static>(
    code: &impl Code<Value = V>,
    liveness: &Liveness<V>,
) -> [Rows<Block, (V, u32)>; 2] {
    // By value, the last block that mentions it, counted from one, and where it does first.
    let mut first = vec![(0, NEVER); code.value_count()];
    let items = liveness.live_in_total();
    let mut entry = Rows::with_capacity(code.block_count(), items, &Scratch::default());
    let mut params = Rows::with_capacity(code.block_count(), 0, &Scratch::default());
    let mut row = Vec::new();
    for block in code.all_blocks() {
        let here = block.index() as u32 + 1;
        let mut index = code.points(block).count() as u32;
        for point in code.points(block).rev() {
            index -= 1;
            for (value, _) in code.accesses(point).filter(|(_, role)| role.writes()) {
                first[value.index()] = (here, OVERWRITTEN);
            }
            for (value, _) in code.accesses(point).filter(|(_, role)| role.reads()) {
                first[value.index()] = (here, index);
            }
        }
        let first = |value: V| match first[value.index()] {
            (block, at) if block == here => at,
            _ => NEVER,
        };
        fill(&mut row, liveness.live_in(block).map(|v| (v, first(v))));
        entry.push(&row);
        row.clear();
        row.extend(code.parameters(block).map(|v| (v, first(v))));
        params.push(&row);
    }
    [entry, params]
}

/// The distances at the start of each block so far.
struct Distances<V> {
    rows: Rows<Block, (V, u32)>,
    /// By item, whether no instruction of the block mentions the value: the other distances do
    /// not change.
    passing: Vec<bool>,
}

impl<V: EntityRef + Send + 'static> Distances<V> {
    fn new(rows: Rows<Block, (V, u32)>) -> Distances<V> {
        let passes_through = |&(_, distance): &(V, u32)| distance == NEVER;
        let passing = rows.items().iter().map(passes_through).collect();
        Distances { rows, passing }
    }

    /// Updates the values that pass through a block of that `length`; says whether any fell.
    fn update(&mut self, block: Block, length: u32, at_end: &Nearest) -> bool {
        let mut changed = false;
        let passing = &self.passing[self.rows.range(block)];
        for ((value, distance), &passes) in self.rows.row_mut(block).iter_mut().zip(passing) {
            if passes {
                let new = later(length, at_end.of(*value));
                changed |= new != *distance;
                *distance = new;
            }
        }
        changed
    }
}

/// Distances at the start of each block, from which those at the ends of blocks are found one by
/// one: nothing is kept of these.
pub(crate) struct NextUseSolver<'a, C: Code> {
    code: &'a C,
    loops: &'a Loops,
    /// Of the values live into blocks, and of the parameters of blocks.
    entry: Distances<C::Value>,
    params: Distances<C::Value>,
    /// Distances at the end of the block at hand.
    nearest: Nearest,
}

/// The least distances seen from one point at a time.
struct Nearest {
    /// By value, the point that it was seen from last, and how far away it is from there.
    found: Vec<(u32, u32)>,
    point: u32,
}

impl Nearest {
    fn nothing(values: usize) -> Nearest {
        Nearest {
            found: vec![(0, NEVER); values],
            point: 0,
        }
    }

    /// Forgets everything: the next point is looked at.
    fn clear(&mut self) {
        self.point += 1;
    }

    #[inline]
    fn of(&self, value: impl EntityRef) -> u32 {
        match self.found[value.index()] {
            (point, distance) if point == self.point => distance,
            _ => NEVER,
        }
    }

    #[inline]
    fn lower(&mut self, value: impl EntityRef, distance: u32) {
        let distance = distance.min(self.of(value));
        self.found[value.index()] = (self.point, distance);
    }
}

impl<'a, C: Code> NextUseSolver<'a, C>
where
    C::Value: EntityRef + Ord + Send + 'static,
{
    pub fn solve(
        code: &'a C,
        order: &Order,
        loops: &'a Loops,
        liveness: &Liveness<C::Value>,
    ) -> NextUseSolver<'a, C> {
        let [entry, params] = first_reads(code, liveness);
        let mut solver = NextUseSolver {
            code,
            loops,
            entry: Distances::new(entry),
            params: Distances::new(params),
            nearest: Nearest::nothing(code.value_count()),
        };
        solver.iterate(order);
        solver
    }

    /// Makes `row` the values live out of `block` in ascending order, each with the number of
    /// instructions after `block` that come before its next use.
    pub fn fill_exit(
        &mut self,
        block: Block,
        liveness: &Liveness<C::Value>,
        row: &mut Vec<(C::Value, u32)>,
    ) {
        self.look_ahead(block);
        let live = liveness.live_out(block);
        fill(row, live.map(|v| (v, self.nearest.of(v))));
    }

    /// Passes in post-order over the blocks whose successors changed, until none did.
    fn iterate(&mut self, order: &Order) {
        let mut dirty: SecondaryMap<Block, bool> = SecondaryMap::with_default(true);
        dirty.resize(self.code.block_count());
        let mut again = true;
        while again {
            again = false;
            for &block in order.all().iter().rev() {
                if std::mem::take(&mut dirty[block]) && self.update(block) {
                    for pred in self.code.predecessors(block) {
                        dirty[pred] = true;
                        again = true;
                    }
                }
            }
        }
    }

    /// Updates the distances at the start of `block`; says whether any fell.
    fn update(&mut self, block: Block) -> bool {
        self.look_ahead(block);
        let length = self.code.points(block).count() as u32;
        self.entry.update(block, length, &self.nearest)
            | self.params.update(block, length, &self.nearest)
    }

    /// Gathers the distances at the end of `block`.
    fn look_ahead(&mut self, block: Block) {
        self.nearest.clear();
        let mut arguments = self.code.arguments(block);
        for succ in self.code.successors(block) {
            let cost = match self.loops.leaves_loop(block, succ) {
                true => LOOP_EXIT,
                false => 0,
            };
            for &(value, distance) in self.entry.rows.row(succ) {
                self.nearest.lower(value, later(cost, distance));
            }
            for &(_, distance) in self.params.rows.row(succ) {
                let Some(value) = arguments.next() else { break };
                // An argument is live even where its parameter is not.
                let distance = later(cost, distance).min(NEVER - 1);
                self.nearest.lower(value, distance);
            }
        }
    }
}
