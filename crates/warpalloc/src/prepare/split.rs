//! Splitting long live ranges where loops begin and end.
//!
//! A colouring allocator keeps a value in one place from its first definition to its last
//! use. A value that merely waits while a crowded loop runs then either takes a register
//! the loop needs or is reloaded at each of its uses, those inside other loops included.
//! Split, it becomes several values joined by copies on the edges where loops are entered
//! and left, and each piece is kept or spilled for itself: the idle piece goes to memory
//! for the price of one store and one reload outside the loop, the busy one stays.
//!
//! *How.* Every block has one *name* for each split value, that of its region. All
//! occurrences in a block take the block's name, and an edge between two names of a live
//! value gets a copy. At any point exactly one name is alive, so this is right for any
//! choice of regions, for values that are written many times, and on critical edges, as
//! the copies stand on the edges themselves. Coalescing undoes the splits that turn out
//! not to matter.
//!
//! *Where.* Nothing is split unless some block is too full. The documents split values that
//! live for more than a hundred instructions at loop boundaries, and everything when there
//! are more than twenty values for each register ([`SplitPolicy::documented`]). There a
//! value is split at the outermost loop that hardly touches it, if that loop is too full,
//! and at the outermost loop that uses it, if it also lives long outside and code there is
//! too full. Measured, that choice loses about as often as it wins, while splitting every
//! long value at every loop boundary and between stretches of straight code lowers memory
//! traffic at every budget: which piece matters is better left to colouring and
//! coalescing. So that is the default policy. Loops with several entries
//! are left alone.

use crate::analysis::{Cfg, LiveRanges, Loop, Pressure};
use crate::function::Block;
use crate::program::{Facts, Op, Program, Value};
use crate::target::{File, Target};
use cranelift_entity::{EntitySet, SecondaryMap};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// When to split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitPolicy {
    /// Only values that live for more instructions than this are split.
    pub length: usize,
    /// With more values per register than this, every long value is split everywhere.
    pub aggressive: usize,
    /// Operations in a stretch of straight code, where values are split everywhere.
    pub stretch: usize,
}

impl SplitPolicy {
    /// What the documents say.
    pub fn documented() -> SplitPolicy {
        SplitPolicy {
            length: 100,
            aggressive: 20,
            stretch: 400,
        }
    }
}

impl Default for SplitPolicy {
    fn default() -> SplitPolicy {
        SplitPolicy {
            length: 20,
            aggressive: 0,
            stretch: 100,
        }
    }
}

/// What splitting did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitCounts {
    /// Values that were split.
    pub values: u32,
    /// New values.
    pub pieces: u32,
    /// Copies on edges.
    pub copies: u32,
}

/// A loop that touches a value no more often than this hardly uses it.
const FEW: u32 = 2;

/// Splits long values of a program that needs more registers than `target` has.
pub fn split_at_loops(
    program: &mut Program,
    target: &Target,
    facts: &Facts,
    policy: SplitPolicy,
) -> SplitCounts {
    let crowds = Crowds::measure(program, target, facts);
    if crowds.total.iter().all(|&crowded| crowded == 0) {
        return SplitCounts::default();
    }
    let plan = Plan::make(program, target, facts, policy, &crowds);
    Names::new(plan).apply(program, facts)
}

/// How many blocks are too full, per file.
struct Crowds {
    /// In the whole program.
    total: Vec<u32>,
    /// In each loop.
    within: FxHashMap<(Loop, File), u32>,
}

impl Crowds {
    fn measure(program: &Program, target: &Target, facts: &Facts) -> Crowds {
        let size = |value: Value| {
            let class = target.class(program.values[value].class);
            (class.file, class.width)
        };
        let files = target.files().len();
        let pressure = Pressure::measure(program, &facts.liveness, files, size);
        let mut crowds = Crowds {
            total: vec![0; files],
            within: FxHashMap::default(),
        };
        for block in program.all_blocks() {
            for (file, info) in target.files() {
                if pressure.block_max(block, file) <= info.units {
                    continue;
                }
                crowds.total[file.index()] += 1;
                for l in facts.loops.around(block) {
                    *crowds.within.entry((l, file)).or_default() += 1;
                }
            }
        }
        crowds
    }

    fn inside(&self, l: Loop, file: File) -> bool {
        self.within.contains_key(&(l, file))
    }

    fn outside(&self, l: Loop, file: File) -> bool {
        let within = self.within.get(&(l, file)).copied().unwrap_or(0);
        self.total[file.index()] > within
    }
}

/// A part of the program in which a value has one name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Region {
    /// A loop, less the loops inside it that are regions themselves.
    Loop(Loop),
    /// A stretch of code outside all loops.
    Stretch(u32),
}

/// Which values are split, and where.
struct Plan {
    split: EntitySet<Value>,
    loops: FxHashMap<Value, SmallVec<[Loop; 2]>>,
    /// The stretch of each block, where values are split between them too.
    stretches: Option<SecondaryMap<Block, u32>>,
}

impl Plan {
    fn make(
        program: &Program,
        target: &Target,
        facts: &Facts,
        policy: SplitPolicy,
        crowds: &Crowds,
    ) -> Plan {
        let budget = target.budget(File::R).max(1);
        let aggressive = program.values.len() > policy.aggressive * budget;
        let usage = Usage::count(program, facts);
        let ranges = LiveRanges::compute(program, &facts.liveness);
        // An instruction takes two positions.
        let length = |value: Value| ranges.length(value) / 2;
        let fixed = recomputable(program);
        let may_split = |value: Value| {
            !program.values[value].unspillable
                && !fixed.contains(value)
                && length(value) > policy.length
        };
        let mut plan = Plan {
            split: EntitySet::new(),
            loops: FxHashMap::default(),
            stretches: aggressive.then(|| stretches(program, facts, policy.stretch)),
        };
        for (l, crossing) in crossing_values(program, facts) {
            if facts.loops.is_irreducible(l) {
                continue;
            }
            for value in crossing.into_iter().filter(|&v| may_split(v)) {
                let file = target.class(program.values[value].class).file;
                let outside = length(value).saturating_sub(usage.size(l));
                let is_idle = usage.of(value, l) <= FEW;
                let pays = match is_idle {
                    true => crowds.inside(l, file),
                    false => outside > policy.length && crowds.outside(l, file),
                };
                let parent = facts.loops.info(l).parent;
                let as_outside = parent.is_some_and(|p| {
                    plan.is_region(value, p) && (usage.of(value, p) <= FEW) == is_idle
                });
                if (pays && !as_outside) || aggressive {
                    plan.split.insert(value);
                    plan.loops.entry(value).or_default().push(l);
                }
            }
        }
        if plan.stretches.is_some() {
            let long = program.values.keys().filter(|&v| may_split(v));
            plan.split.extend(long);
        }
        plan
    }

    fn is_region(&self, value: Value, l: Loop) -> bool {
        self.loops
            .get(&value)
            .is_some_and(|loops| loops.contains(&l))
    }

    fn region(&self, value: Value, block: Block, facts: &Facts) -> Option<Region> {
        if let Some(split_at) = self.loops.get(&value) {
            let mut around = facts.loops.around(block);
            if let Some(l) = around.find(|l| split_at.contains(l)) {
                return Some(Region::Loop(l));
            }
        }
        let stretches = self.stretches.as_ref()?;
        match facts.loops.innermost(block) {
            None => Some(Region::Stretch(stretches[block])),
            Some(_) => None,
        }
    }
}

/// How often loops touch values, and how long they are.
struct Usage {
    touches: FxHashMap<(Value, Loop), u32>,
    sizes: FxHashMap<Loop, usize>,
}

impl Usage {
    fn count(program: &Program, facts: &Facts) -> Usage {
        let mut usage = Usage {
            touches: FxHashMap::default(),
            sizes: FxHashMap::default(),
        };
        for (block, info) in program.blocks.iter() {
            for l in facts.loops.around(block) {
                *usage.sizes.entry(l).or_default() += info.ops.len();
                for op in &info.ops {
                    for (value, _) in op.accesses(program.function) {
                        *usage.touches.entry((value, l)).or_default() += 1;
                    }
                }
            }
        }
        usage
    }

    fn of(&self, value: Value, l: Loop) -> u32 {
        self.touches.get(&(value, l)).copied().unwrap_or(0)
    }

    fn size(&self, l: Loop) -> usize {
        self.sizes.get(&l).copied().unwrap_or(0)
    }
}

/// The values that are alive on an edge into or out of each loop, outer loops first.
fn crossing_values(program: &Program, facts: &Facts) -> BTreeMap<Loop, BTreeSet<Value>> {
    let mut crossing: BTreeMap<Loop, BTreeSet<Value>> = BTreeMap::new();
    for (l, info) in facts.loops.loops() {
        let live = facts.liveness.live_in(info.header).iter().copied();
        crossing.entry(l).or_default().extend(live);
    }
    for block in program.all_blocks() {
        for succ in program.successors(block) {
            let left = facts
                .loops
                .around(block)
                .take_while(|&l| !facts.loops.contains(l, succ));
            for l in left {
                let live = facts.liveness.live_in(succ).iter().copied();
                crossing.entry(l).or_default().extend(live);
            }
        }
    }
    crossing
}

/// Values that are better computed again than kept: a copy would hide how.
fn recomputable(program: &Program) -> EntitySet<Value> {
    let mut found = EntitySet::new();
    for op in program.blocks.values().flat_map(|block| &block.ops) {
        let Op::Inst { inst, values } = op else {
            continue;
        };
        let operands = program.function.operands(*inst);
        let reads = operands.iter().any(|o| o.role.reads());
        if program.function.inst(*inst).remat.is_some() && !reads {
            found.extend(values.iter().copied());
        }
    }
    found
}

/// Cuts the blocks outside loops, in reverse post-order, into stretches.
fn stretches(program: &Program, facts: &Facts, length: usize) -> SecondaryMap<Block, u32> {
    let mut stretches = SecondaryMap::new();
    let mut passed = 0;
    for &block in facts.order.reverse_postorder() {
        stretches[block] = (passed / length.max(1)) as u32;
        passed += program.blocks[block].ops.len();
    }
    stretches
}

/// The names of split values.
struct Names {
    plan: Plan,
    pieces: FxHashMap<(Value, Region), Value>,
    counts: SplitCounts,
}

/// Copies to put on one edge.
type Copies = SmallVec<[(Value, Value); 2]>;

impl Names {
    fn new(plan: Plan) -> Names {
        Names {
            plan,
            pieces: FxHashMap::default(),
            counts: SplitCounts::default(),
        }
    }

    fn apply(mut self, program: &mut Program, facts: &Facts) -> SplitCounts {
        self.counts.values = self.plan.split.keys().count() as u32;
        let edges = self.edge_copies(program, facts);
        for block in program.all_blocks() {
            self.rename(program, facts, block);
        }
        for ((block, succ), copies) in edges {
            self.counts.copies += copies.len() as u32;
            put_on_edge(program, block, succ, copies);
        }
        self.counts
    }

    /// What `value` is called in `block`.
    fn name(&mut self, program: &mut Program, facts: &Facts, value: Value, block: Block) -> Value {
        if !self.plan.split.contains(value) {
            return value;
        }
        let Some(region) = self.plan.region(value, block, facts) else {
            return value;
        };
        *self.pieces.entry((value, region)).or_insert_with(|| {
            self.counts.pieces += 1;
            program.piece_of(value)
        })
    }

    fn edge_copies(
        &mut self,
        program: &mut Program,
        facts: &Facts,
    ) -> Vec<((Block, usize), Copies)> {
        let mut edges = Vec::new();
        for block in program.all_blocks() {
            for (index, succ) in program.blocks[block].succs.clone().into_iter().enumerate() {
                let mut copies = Copies::new();
                for &value in facts.liveness.live_in(succ) {
                    let from = self.name(program, facts, value, block);
                    let to = self.name(program, facts, value, succ);
                    if from != to {
                        copies.push((to, from));
                    }
                }
                if !copies.is_empty() {
                    edges.push(((block, index), copies));
                }
            }
        }
        edges
    }

    fn rename(&mut self, program: &mut Program, facts: &Facts, block: Block) {
        let mut ops = std::mem::take(&mut program.blocks[block].ops);
        for op in &mut ops {
            op.rename(|value| self.name(program, facts, value, block));
        }
        program.blocks[block].ops = ops;
    }
}

/// Puts `copies` where an edge begins or ends, if nothing else does there, or else on the
/// edge itself.
fn put_on_edge(program: &mut Program, block: Block, succ: usize, copies: Copies) {
    let op = Op::Copies(copies);
    let from = &mut program.blocks[block];
    if from.edge.is_some() {
        from.ops.push(op);
        return;
    }
    if from.succs.len() == 1 {
        let terminator = from.ops.len().saturating_sub(1);
        from.ops.insert(terminator, op);
        return;
    }
    let to = from.succs[succ];
    let at_start = match program.blocks[to].preds.len() {
        1 => to,
        _ => program.split_edge(block, succ),
    };
    program.blocks[at_start].ops.insert(0, op);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Builder, Effect, Function, VReg};
    use crate::generate::{self, Rng, Shape};
    use crate::interference::Interference;
    use crate::options::{Options, Strategy};
    use crate::stats::GraphStats;
    use crate::target::Class;
    use crate::{allocate, check};
    use cranelift_entity::EntityRef;

    fn target(registers: usize) -> Target {
        Target::hardware(90)
            .unwrap()
            .with_budget(File::R, registers)
    }

    /// `idle` is written before and read after a loop of `length` instructions that keeps
    /// `busy` values alive.
    fn loop_beside(idle: usize, busy: usize, length: usize) -> Function {
        let mut b = Builder::new("f");
        let (before, body, after) = (b.block(), b.block(), b.block());
        let values: Vec<VReg> = (0..idle + busy).map(|_| b.vreg(Class::R32)).collect();
        let condition = b.vreg(Class::PRED);
        for &v in &values {
            b.inst(before, "load").def(v).effect(Effect::Read);
        }
        b.jump(before, body, &[]);
        for i in 0..length {
            let v = values[idle + i % busy];
            b.inst(body, "add")
                .use_def(v)
                .use_(values[idle + (i + 1) % busy]);
        }
        b.inst(body, "test").def(condition).effect(Effect::Read);
        b.branch(body, "bra").use_(condition);
        b.edge(body, body, &[]);
        b.edge(body, after, &[]);
        for &v in &values {
            b.inst(after, "store").use_(v).effect(Effect::Write);
        }
        b.exit(after, "exit");
        b.finish()
    }

    fn split(function: &Function, target: &Target, policy: SplitPolicy) -> (SplitCounts, Vec<Op>) {
        let mut program = Program::new(function, target, None).unwrap();
        let facts = Facts::of(&program);
        let counts = split_at_loops(&mut program, target, &facts, policy);
        let ops = program.blocks.values().flat_map(|b| b.ops.clone());
        (counts, ops.collect())
    }

    #[test]
    fn a_value_that_waits_for_a_crowded_loop_gets_a_piece_of_its_own() {
        let f = loop_beside(2, 7, 120);
        let (counts, ops) = split(&f, &target(8), SplitPolicy::documented());
        // In at one edge, out at the other; the busy values stay whole.
        assert_eq!((counts.values, counts.pieces, counts.copies), (2, 2, 4));
        let waiting = Value::new(0);
        let readers = ops.iter().flat_map(|op| op.accesses(&f));
        let touches = readers.filter(|(value, _)| *value == waiting).count();
        assert_eq!(touches, 4, "written, copied, copied back, read");
    }

    #[test]
    fn nothing_is_split_where_everything_fits_or_lives_briefly() {
        let f = loop_beside(2, 7, 120);
        let policy = SplitPolicy::default();
        assert_eq!(split(&f, &target(12), policy).0, SplitCounts::default());
        let short = loop_beside(2, 7, 30);
        let policy = SplitPolicy::documented();
        assert_eq!(split(&short, &target(8), policy).0, SplitCounts::default());
    }

    #[test]
    fn with_many_values_per_register_every_long_value_is_split() {
        let f = loop_beside(2, 40, 120);
        let (counts, _) = split(&f, &target(8), SplitPolicy::documented());
        assert!(counts.values < 42, "{counts:?}");
        let eager = SplitPolicy {
            aggressive: 4,
            ..SplitPolicy::documented()
        };
        assert_eq!(split(&f, &target(8), eager).0.values, 42);
    }

    #[test]
    fn idle_values_are_stored_and_reloaded_outside_the_loop() {
        let f = loop_beside(2, 7, 120);
        let options = Options {
            strategy: Strategy::Briggs,
            ..Options::default()
        };
        let allocation = allocate(&f, &target(8), &options).unwrap();
        let body = Block::new(1);
        let inside = f
            .block_insts(body)
            .map(|inst| allocation.edits.before(inst).count());
        assert_eq!(inside.sum::<usize>(), 0);
        assert!(allocation.stats.edits.stores <= 2 && allocation.stats.edits.reloads <= 2);
    }

    #[test]
    fn split_functions_of_every_shape_are_proved() {
        let mut rng = Rng::new(14);
        let mut split_values = 0;
        for number in 0..300 {
            let shape = Shape::random(250, &mut rng);
            let budget = [6, 8, 12, 16][rng.below(4)];
            let target = target(budget);
            let function = generate::function(&shape, &target, &mut rng);
            split_values += split(&function, &target, SplitPolicy::default()).0.values;
            let options = Options {
                strategy: Strategy::Briggs,
                ..Options::default()
            };
            // It proves what it returns; the executor has the second word.
            let Ok(allocation) = allocate(&function, &target, &options) else {
                continue;
            };
            let limits = check::trace::Limits::default();
            check::trace::compare(&function, &target, &allocation, limits, number)
                .unwrap_or_else(|difference| panic!("function {number}: {difference}"));
        }
        assert!(split_values > 1_000, "{split_values}");
    }

    fn average_degree(function: &Function, target: &Target, is_split: bool) -> f64 {
        let mut program = Program::new(function, target, None).unwrap();
        let mut facts = Facts::of(&program);
        if is_split {
            split_at_loops(&mut program, target, &facts, SplitPolicy::default());
            facts = Facts::of(&program);
        }
        let graph: GraphStats = Interference::build(&program, target, &facts.liveness).stats();
        graph.average_degree()
    }

    /// Document 001 claims fifteen percent.
    #[test]
    fn the_average_degree_of_crowded_functions_falls_by_fifteen_percent() {
        let target = target(24);
        let shape = Shape {
            pressure: 30,
            insts: 600,
            blocks: 30,
            loop_depth: 3,
            ..Shape::typical()
        };
        let (mut whole, mut split) = (0.0, 0.0);
        for seed in 0..20 {
            let function = generate::function(&shape, &target, &mut Rng::new(seed));
            whole += average_degree(&function, &target, false);
            split += average_degree(&function, &target, true);
        }
        assert!(split <= 0.85 * whole, "{whole} became {split}");
    }
}
