//! Lazy reload: one reload for several readers.
//!
//! Spilling leaves a reload before every reader. Of the four phases reported of CICC
//! (`docs/sources.md#lazy-reload`) the last is left to this pass: spilled values and their
//! readers are known, reloads stand as late as they can, and a reload is redundant if a
//! piece reloaded or written earlier still holds the value. A reload goes when
//! - an earlier piece in the block can stay in its register until here;
//! - on *every* path to the block some piece can: availability is an intersection over all
//!   paths, one path on which the value is not in a register is enough to need the reload;
//! - it is in a loop that never changes the value: then the reload moves to the edges that
//!   enter the loop, if these run less often.
//!
//! A piece stays in its register only where there is room: the pressure of its file, this
//! piece included, must keep a margin below the budget at every operation in between, and
//! nothing there may clobber registers. A store leaves the register as it is; writing the
//! value anew ends the old piece. Pieces that were joined may be spilled again, and are
//! then reloaded for each reader: a wrong guess costs a round, never correctness.
//!
//! Rematerialised values are joined within blocks only. Their definition is gone, so
//! nothing in the program shows where on a path they changed.

use super::{Home, Spiller};
use crate::analysis::{Cfg, Loop, Loops, Rows};
use crate::function::{Block, Clobbers, Role};
use crate::ir::{Facts, LiveRanges, Op, Program, Slot, Value};
use crate::target::{File, Target};
use cranelift_entity::{EntityRef, SecondaryMap};
use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Blocks to walk back through before giving up on a reload.
const REGION_LIMIT: usize = 64;

/// Joins the pieces of spilled values of a program with these facts and live ranges; returns
/// how many reloads that saved.
pub(super) fn join_pieces(
    spiller: &mut Spiller,
    program: &mut Program,
    facts: &Facts,
    ranges: &LiveRanges,
) -> u32 {
    let mut join = Join::new(spiller, program, facts, ranges);
    let blocks: Vec<Block> = join.program.all_blocks().collect();
    for &block in &blocks {
        join.within_block(block);
    }
    join.out_of_loops();
    join.across_blocks();
    let plan = join.finish();
    plan.apply(spiller, program, ranges)
}

/// What a block does to a spilled value.
#[derive(Clone, Copy)]
struct Tail {
    /// The piece that holds it at the end.
    piece: Value,
    /// The last operation that touches that piece; it may stay from here to the end.
    last: usize,
}

/// A reload that comes before anything else its block does to the value.
#[derive(Clone, Copy)]
struct Head {
    block: Block,
    index: usize,
    value: Value,
    piece: Value,
}

struct Join<'a, 'p> {
    spiller: &'a Spiller<'a>,
    program: &'a Program<'p>,
    facts: &'a Facts,
    room: Room<'a>,
    owner_of_slot: SecondaryMap<Slot, Option<Value>>,
    owner_of_carrier: SecondaryMap<Value, Option<Value>>,
    tails: FxHashMap<(Block, Value), Tail>,
    /// Blocks that touch a value in any way.
    events: FxHashSet<(Block, Value)>,
    /// Blocks that write a value.
    writes: FxHashSet<(Block, Value)>,
    clobbering: SecondaryMap<Block, bool>,
    heads: Vec<Head>,
    plan: Plan,
}

/// What to change.
#[derive(Default)]
struct Plan {
    /// Each joined piece and the one it joined.
    parents: SecondaryMap<Value, Option<Value>>,
    /// Operations to remove, by the position before each.
    removed: FixedBitSet,
    /// Reloads to insert: a piece of a value, on the edge of a block at a position.
    hoisted: Vec<(Block, usize, Value, Value)>,
    next_piece: usize,
}

impl Plan {
    fn root(&self, mut piece: Value) -> Value {
        while let Some(parent) = self.parents[piece] {
            piece = parent;
        }
        piece
    }

    fn join(&mut self, a: Value, b: Value) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.parents[a.max(b)] = Some(a.min(b));
        }
    }
}

impl<'a, 'p> Join<'a, 'p> {
    fn new(
        spiller: &'a Spiller<'a>,
        program: &'a Program<'p>,
        facts: &'a Facts,
        ranges: &'a LiveRanges,
    ) -> Join<'a, 'p> {
        let mut join = Join {
            spiller,
            program,
            facts,
            room: Room::new(spiller.target, ranges, !spiller.policy.lazy_reload),
            owner_of_slot: SecondaryMap::new(),
            owner_of_carrier: SecondaryMap::new(),
            tails: FxHashMap::default(),
            events: FxHashSet::default(),
            writes: FxHashSet::default(),
            clobbering: SecondaryMap::new(),
            heads: Vec::new(),
            plan: Plan {
                next_piece: program.values.len(),
                ..Plan::default()
            },
        };
        for value in program.values.keys().filter(|&v| spiller.is_gone(v)) {
            match spiller.home(value) {
                Some(Home::Slot(slot)) => {
                    join.owner_of_slot[slot] = Some(spiller.spilled_value(value))
                }
                Some(Home::Carrier(c)) => {
                    join.owner_of_carrier[c] = Some(spiller.spilled_value(value))
                }
                _ => {}
            }
        }
        join
    }

    fn within_block(&mut self, block: Block) {
        let program = self.program;
        let mut available: FxHashMap<Value, Tail> = FxHashMap::default();
        for (index, op) in program.blocks[block].ops.iter().enumerate() {
            if let Some(piece) = self.fetched_piece(op) {
                self.meet_fetch(block, index, piece, &mut available);
                continue;
            }
            for (value, role) in op.accesses(program.function) {
                let Some(of) = self.spiller.piece_of(value) else {
                    continue;
                };
                if role.writes() {
                    self.events.insert((block, of));
                    self.writes.insert((block, of));
                    available.insert(
                        of,
                        Tail {
                            piece: value,
                            last: index,
                        },
                    );
                } else if let Some(tail) = available.get_mut(&of)
                    && self.plan.root(tail.piece) == self.plan.root(value)
                {
                    tail.last = index;
                }
            }
            if let Some(of) = self.rewritten_at_home(op) {
                self.events.insert((block, of));
                self.writes.insert((block, of));
                available.remove(&of);
            }
            if self.clobbers(op) {
                self.clobbering[block] = true;
                available.clear();
            }
        }
        let tails = available
            .into_iter()
            .map(|(value, tail)| ((block, value), tail));
        self.tails.extend(tails);
    }

    fn meet_fetch(
        &mut self,
        block: Block,
        index: usize,
        piece: Value,
        available: &mut FxHashMap<Value, Tail>,
    ) {
        let value = self.spiller.spilled_value(piece);
        let first = self.events.insert((block, value));
        if self.spiller.is_eager(value) {
            return;
        }
        let mut now = Tail { piece, last: index };
        match available.get(&value) {
            Some(tail) if self.take_room(piece, block, tail.last + 1..index) => {
                self.plan.join(tail.piece, piece);
                self.remove(block, index);
                now.piece = tail.piece;
            }
            None if first => self.heads.push(Head {
                block,
                index,
                value,
                piece,
            }),
            _ => {}
        }
        available.insert(value, now);
    }

    /// Moves reloads out of loops that never write their value, outer loops first.
    fn out_of_loops(&mut self) {
        let mut of_value: FxHashMap<Value, Vec<Head>> = FxHashMap::default();
        for &head in &self.heads {
            of_value.entry(head.value).or_default().push(head);
        }
        let mut values: Vec<_> = of_value.into_iter().collect();
        values.sort_by_key(|(value, _)| *value);
        let inside = reloaded_inside(&self.facts.loops, &values);
        let mut blocks_of_loop = vec![Vec::new(); self.facts.loops.loop_count()];
        for block in self.program.all_blocks() {
            for l in self.facts.loops.around(block) {
                blocks_of_loop[l.index()].push(block);
            }
        }
        for (l, info) in self.facts.loops.loops() {
            if info.irreducible {
                continue;
            }
            let blocks = &blocks_of_loop[l.index()];
            for &number in inside.row(l) {
                let (value, heads) = &mut values[number as usize];
                self.hoist(l, blocks, *value, heads);
            }
        }
        self.heads = values.into_iter().flat_map(|(_, heads)| heads).collect();
    }

    fn hoist(&mut self, l: Loop, blocks: &[Block], value: Value, heads: &mut Vec<Head>) {
        let loops = &self.facts.loops;
        let inside = |head: &Head| loops.contains(l, head.block);
        if self.is_recomputed(value) || !heads.iter().any(inside) {
            return;
        }
        let frequency = |block: Block| self.facts.frequencies.block(block);
        let saved: f64 = heads
            .iter()
            .filter(|h| inside(h))
            .map(|h| frequency(h.block))
            .sum();
        let header = loops.info(l).header;
        let entries: Vec<(Block, usize)> = self
            .program
            .predecessors(header)
            .filter(|&pred| !loops.contains(l, pred))
            .flat_map(|pred| {
                let succs = self.program.successors(pred).enumerate();
                succs
                    .filter(|(_, to)| *to == header)
                    .map(move |(i, _)| (pred, i))
            })
            .collect();
        let cost: f64 = entries
            .iter()
            .map(|&(p, i)| self.facts.frequencies.edge(p, i))
            .sum();
        let changes = |b: &Block| self.writes.contains(&(*b, value)) || self.clobbering[*b];
        if cost >= saved || entries.is_empty() || blocks.iter().any(changes) {
            return;
        }
        let piece = heads[0].piece;
        let whole = |b: Block| (b, 0..self.program.blocks[b].ops.len());
        if !self.take_room_everywhere(piece, blocks.iter().map(|&b| whole(b)).collect()) {
            return;
        }
        let hoisted = Value::new(self.plan.next_piece);
        self.plan.next_piece += 1;
        for (pred, succ) in entries {
            self.plan.hoisted.push((pred, succ, value, hoisted));
        }
        for &block in blocks {
            let last = self.program.blocks[block].ops.len();
            self.join_fetches_in(block, value, hoisted);
            self.tails.insert(
                (block, value),
                Tail {
                    piece: hoisted,
                    last,
                },
            );
        }
        heads.retain(|h| !inside(h));
    }

    /// Every reload of `value` in `block` finds it in the hoisted piece already.
    fn join_fetches_in(&mut self, block: Block, value: Value, hoisted: Value) {
        let program = self.program;
        for (index, op) in program.blocks[block].ops.iter().enumerate() {
            if let Some(piece) = self.fetched_piece(op)
                && self.spiller.spilled_value(piece) == value
            {
                self.plan.join(piece, hoisted);
                self.remove(block, index);
            }
        }
    }

    /// Removes reloads whose value every path leaves in a piece, the most frequent first.
    fn across_blocks(&mut self) {
        let mut heads = std::mem::take(&mut self.heads);
        let frequency = |h: &Head| self.facts.frequencies.block(h.block);
        heads.sort_by(|a, b| {
            let by_heat = frequency(b).total_cmp(&frequency(a));
            by_heat.then((a.block, a.index).cmp(&(b.block, b.index)))
        });
        for head in heads {
            if !self.is_recomputed(head.value) {
                self.join_over_paths(head);
            }
        }
    }

    fn join_over_paths(&mut self, head: Head) {
        let mut through: Vec<Block> = Vec::new();
        let mut ends: Vec<Block> = Vec::new();
        let mut stack: Vec<Block> = self.program.predecessors(head.block).collect();
        if stack.is_empty() {
            return;
        }
        while let Some(block) = stack.pop() {
            if through.contains(&block) || ends.contains(&block) {
                continue;
            }
            if self.tails.contains_key(&(block, head.value)) {
                ends.push(block);
                continue;
            }
            let silent = !self.events.contains(&(block, head.value)) && !self.clobbering[block];
            let preds_before = stack.len();
            stack.extend(self.program.predecessors(block));
            if !silent || stack.len() == preds_before || through.len() >= REGION_LIMIT {
                return;
            }
            through.push(block);
        }
        let length = |b: Block| self.program.blocks[b].ops.len();
        let mut stretches: Vec<(Block, Range<usize>)> = vec![(head.block, 0..head.index)];
        stretches.extend(through.iter().map(|&b| (b, 0..length(b))));
        for &block in &ends {
            let tail = self.tails[&(block, head.value)];
            stretches.push((block, (tail.last + 1).min(length(block))..length(block)));
        }
        if !self.take_room_everywhere(head.piece, stretches) {
            return;
        }
        self.remove(head.block, head.index);
        for &block in &ends {
            let last = length(block);
            if let Some(tail) = self.tails.get_mut(&(block, head.value)) {
                tail.last = last;
                self.plan.join(tail.piece, head.piece);
            }
        }
        for block in through {
            let last = length(block);
            self.tails.insert(
                (block, head.value),
                Tail {
                    piece: head.piece,
                    last,
                },
            );
        }
    }

    /// Plans to take the operation at `index` of `block` out.
    fn remove(&mut self, block: Block, index: usize) {
        let position = self.room.ranges.base(block) as usize + index;
        self.plan.removed.grow_and_insert(position);
    }

    fn finish(self) -> Plan {
        self.plan
    }

    fn is_recomputed(&self, value: Value) -> bool {
        matches!(self.spiller.home(value), Some(Home::Recompute(_)))
    }

    /// The piece that `op` reloads from home, if it does nothing else.
    fn fetched_piece(&self, op: &Op) -> Option<Value> {
        let home = |piece: Value| {
            self.spiller
                .piece_of(piece)
                .and_then(|_| self.spiller.home(piece))
        };
        match op {
            Op::Reload { value, slot } => {
                (home(*value) == Some(Home::Slot(*slot))).then_some(*value)
            }
            Op::Transfer { to, from } => match home(*to) {
                Some(Home::Carrier(c)) if self.spiller.spilled_value(*from) == c => Some(*to),
                _ => None,
            },
            Op::Recompute { inst, values } => values
                .iter()
                .copied()
                .find(|&v| home(v) == Some(Home::Recompute(*inst))),
            _ => None,
        }
    }

    /// The value whose home `op` overwrites with something that is no piece of it.
    fn rewritten_at_home(&self, op: &Op) -> Option<Value> {
        let (owner, from) = match op {
            Op::Store { slot, value } => (self.owner_of_slot[*slot]?, *value),
            Op::Transfer { to, from } => (
                self.owner_of_carrier[self.spiller.spilled_value(*to)]?,
                *from,
            ),
            _ => return None,
        };
        (self.spiller.piece_of(from) != Some(owner)).then_some(owner)
    }

    fn clobbers(&self, op: &Op) -> bool {
        match op {
            Op::Inst { inst, .. } => self.program.function.inst(*inst).clobbers != Clobbers::None,
            _ => false,
        }
    }

    fn take_room(&mut self, piece: Value, block: Block, range: Range<usize>) -> bool {
        self.take_room_everywhere(piece, vec![(block, range)])
    }

    fn take_room_everywhere(
        &mut self,
        piece: Value,
        stretches: Vec<(Block, Range<usize>)>,
    ) -> bool {
        let class = self.spiller.target.class(self.program.values[piece].class);
        self.room.take(class.file, class.width as i32, &stretches)
    }
}

/// The numbers of the values that are reloaded in each loop, ascending. A loop asks no other
/// value, so that loops and values that have nothing to do with each other cost nothing.
fn reloaded_inside(loops: &Loops, values: &[(Value, Vec<Head>)]) -> Rows<Loop, u32> {
    let mut last = vec![u32::MAX; loops.loop_count()];
    let mut pairs: Vec<(Loop, u32)> = Vec::new();
    for ((_, heads), number) in values.iter().zip(0..) {
        for l in heads.iter().flat_map(|head| loops.around(head.block)) {
            if std::mem::replace(&mut last[l.index()], number) != number {
                pairs.push((l, number));
            }
        }
    }
    Rows::from_pairs(loops.loop_count(), pairs.iter().copied())
}

/// The pressure of each file at every operation.
struct Room<'a> {
    target: &'a Target,
    ranges: &'a LiveRanges,
    /// By file, and by the position before each operation, the greater of the units in use
    /// before and after it.
    units: Vec<Vec<i32>>,
    /// By file, whether its values differ in size. Where reloads are joined in every round, each
    /// needs some room for the next.
    is_mixed: Vec<bool>,
}

impl<'a> Room<'a> {
    fn new(target: &'a Target, ranges: &'a LiveRanges, joins_once: bool) -> Room<'a> {
        let mut units = ranges.pressure(target);
        for of_file in &mut units {
            for at in 1..of_file.len() {
                of_file[at - 1] = of_file[at - 1].max(of_file[at]);
            }
        }
        let mut widths = vec![None; target.files().len()];
        let mut is_mixed = vec![!joins_once; target.files().len()];
        for &value in ranges.by_start() {
            let size = ranges.size(value);
            let width = widths[size.file.index()].get_or_insert(size.width);
            is_mixed[size.file.index()] |= *width != size.width;
        }
        Room {
            target,
            ranges,
            units,
            is_mixed,
        }
    }

    /// Alignment leaves holes, the more the larger the file; registers of one size leave none.
    fn limit(&self, file: File) -> i32 {
        let info = self.target.file(file);
        let margin = match self.is_mixed[file.index()] {
            true => (self.target.budget(file) / 16).max(1) * info.units_per_reg,
            false => 0,
        };
        info.capacity.saturating_sub(margin) as i32
    }

    /// The pressure of `file` at a range of operations.
    fn row(&mut self, file: File, (block, range): &(Block, Range<usize>)) -> &mut [i32] {
        let base = self.ranges.base(*block) as usize;
        &mut self.units[file.index()][base + range.start..base + range.end]
    }

    /// Keeps `width` units of `file` throughout `stretches`, if they are free there.
    fn take(&mut self, file: File, width: i32, stretches: &[(Block, Range<usize>)]) -> bool {
        let limit = self.limit(file);
        let mut rows = stretches.iter();
        let fits = rows.all(|at| {
            self.row(file, at)
                .iter()
                .all(|units| units + width <= limit)
        });
        if fits {
            for at in stretches {
                self.row(file, at)
                    .iter_mut()
                    .for_each(|units| *units += width);
            }
        }
        fits
    }
}

impl Plan {
    /// Carries the plan out; returns how many reloads are gone.
    fn apply(self, spiller: &mut Spiller, program: &mut Program, ranges: &LiveRanges) -> u32 {
        // A piece that comes in by several edges has its entries in a row.
        for of_piece in self.hoisted.chunk_by(|a, b| a.3 == b.3) {
            let (_, _, value, expected) = of_piece[0];
            let piece = spiller.piece(program, value);
            debug_assert_eq!(piece, expected);
        }
        let (mut saved, mut has_lost_reader) = (0, false);
        for block in program.blocks.keys() {
            let ops = std::mem::take(&mut program.blocks[block].ops);
            let positions = ranges.base(block) as usize..;
            let kept = ops.into_iter().zip(positions).filter_map(|(op, position)| {
                let gone = self.removed.contains(position);
                saved += gone as u32;
                has_lost_reader |= gone && !matches!(op, Op::Reload { .. });
                (!gone).then_some(op)
            });
            program.blocks[block].ops = kept.collect();
        }
        for (pred, succ, value, piece) in &self.hoisted {
            let mut ops = Vec::new();
            spiller.fetch(program, *value, *piece, &mut ops);
            let at = program.split_edge(*pred, *succ);
            program.blocks[at].ops.extend(ops);
            saved = saved.saturating_sub(1);
        }
        self.rename(program);
        if has_lost_reader {
            remove_unread_fetches(spiller, program);
        }
        saved
    }

    fn rename(&self, program: &mut Program) {
        for piece in program.values.keys() {
            if self.parents[piece].is_some() {
                program.values[self.root(piece)].unspillable = false;
            }
        }
        let program_blocks = program.blocks.keys();
        for block in program_blocks {
            let mut ops = std::mem::take(&mut program.blocks[block].ops);
            for op in &mut ops {
                super::rewrite::replace(program, op, |value, _| Some(self.root(value)));
            }
            program.blocks[block].ops = ops;
        }
    }
}

/// Inputs that were reloaded for a rematerialisation that is gone have no reader left.
fn remove_unread_fetches(spiller: &Spiller, program: &mut Program) {
    loop {
        let mut read: SecondaryMap<Value, bool> = SecondaryMap::new();
        for info in program.blocks.values() {
            for op in &info.ops {
                let accesses = op.accesses(program.function);
                let reads = accesses.filter(|(_, role)| role.reads());
                reads.for_each(|(value, _)| read[value] = true);
            }
        }
        let mut removed = false;
        for block in program.blocks.keys() {
            let mut ops = std::mem::take(&mut program.blocks[block].ops);
            ops.retain(|op| {
                let is_fetch = matches!(
                    op,
                    Op::Reload { .. } | Op::Transfer { .. } | Op::Recompute { .. }
                );
                let accesses = op.accesses(program.function);
                let mut writes = accesses.filter(|(_, role)| *role != Role::Use);
                let unread =
                    |(value, _): (Value, Role)| spiller.piece_of(value).is_some() && !read[value];
                let dead = is_fetch && writes.all(unread);
                removed |= dead;
                !dead
            });
            program.blocks[block].ops = ops;
        }
        if !removed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Facts;
    use crate::text;
    use std::fmt::Write;

    /// Loops in a row, each of which reads a value of its own: the pairs of a loop and a value
    /// that hoisting looks at grow with the code, not with its square.
    #[test]
    fn a_loop_asks_the_values_that_are_reloaded_in_it() {
        let pairs = |count: u32| {
            let mut code = "target hardware sm_90\nkernel f {\nblock0:\n".to_owned();
            for n in 0..count {
                writeln!(code, "v{n}:r32 = load : read").unwrap();
            }
            code += "bra : branch -> block1\n";
            for n in 0..count {
                let (here, next) = (n + 1, n + 2);
                writeln!(code, "block{here}:\nuse v{n} : write").unwrap();
                writeln!(code, "if v{n} : branch -> block{here}, block{next}").unwrap();
            }
            writeln!(code, "block{}:\nexit : exit write\n}}", count + 1).unwrap();
            let case = text::parse(&code).unwrap();
            let program = Program::new(&case.function, &case.target, None).unwrap();
            let facts = Facts::of(&program);
            let head = |n: usize| Head {
                block: Block::new(n + 1),
                index: 0,
                value: Value::new(n),
                piece: Value::new(n),
            };
            let values: Vec<(Value, Vec<Head>)> = (0..count as usize)
                .map(|n| (Value::new(n), vec![head(n), head(n)]))
                .collect();
            let inside = reloaded_inside(&facts.loops, &values);
            for (l, info) in facts.loops.loops() {
                assert_eq!(inside.row(l), [info.header.index() as u32 - 1]);
            }
            inside.items().len()
        };
        assert_eq!([pairs(10), pairs(100)], [10, 100]);
    }
}
