//! Code cut into stretches.

use crate::analysis::LiveSet;
use crate::function::Block;
use crate::ir::{Facts, Origin, Program, Value};
use cranelift_entity::SecondaryMap;

/// A part of a block in which every value has one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub block: Block,
    part: usize,
}

impl Spot {
    /// Where `block` begins.
    pub fn start(block: Block) -> Spot {
        Spot::part(block, 0)
    }

    /// One part of `block`, counted from its first.
    pub fn part(block: Block, part: usize) -> Spot {
        Spot { block, part }
    }

    /// The part before this one, which is not the first.
    pub fn before(self) -> Spot {
        Spot {
            part: self.part - 1,
            ..self
        }
    }
}

/// All code, in stretches of about equal length.
///
/// Outside loops, stretches follow reverse post-order, from block to block. A block in a
/// loop is cut for itself, and its first and last part belong to no stretch: a value that is
/// live from one turn to the next has one name wherever the blocks of the loop meet, and
/// needs no copy there.
#[derive(Default)]
pub(super) struct Stretches {
    blocks: SecondaryMap<Block, Parts>,
    count: u32,
}

/// How a block is cut.
#[derive(Clone, Default)]
struct Parts {
    /// The operations before which another part begins.
    cuts: Vec<usize>,
    /// The stretch that the first part belongs to, if it belongs to any.
    first: u32,
    is_in_loop: bool,
}

impl Stretches {
    /// Stretches of `length` operations, or a little more where the code does not allow
    /// a cut.
    pub fn of(program: &Program, facts: &Facts, length: usize) -> Stretches {
        let mut stretches = Stretches::default();
        let mut live = LiveSet::new(program.values.len());
        let mut passed = 0;
        for &block in facts.order.reverse_postorder() {
            let is_in_loop = facts.loops.innermost(block).is_some();
            let (cuts, left) = match is_in_loop {
                true => (cuts(program, facts, &mut live, block, length, 0).0, passed),
                false => cuts(program, facts, &mut live, block, length, passed),
            };
            passed = left;
            let first = stretches.count;
            stretches.count += cuts.len() as u32;
            stretches.blocks[block] = Parts {
                cuts,
                first,
                is_in_loop,
            };
        }
        stretches
    }

    /// The operations of `block` before which another part begins, in order.
    pub fn cuts(&self, block: Block) -> &[usize] {
        &self.blocks[block].cuts
    }

    /// The stretch that `spot` belongs to.
    pub fn at(&self, spot: Spot) -> Option<u32> {
        let parts = &self.blocks[spot.block];
        let is_inner = spot.part > 0 && spot.part < parts.cuts.len();
        (is_inner || !parts.is_in_loop).then_some(parts.first + spot.part as u32)
    }
}

/// Cuts `block` so that its parts are `length` operations long, the first of them together
/// with the `passed` ones before the block. Returns the cuts and how many operations come
/// after the last.
fn cuts(
    program: &Program,
    facts: &Facts,
    live: &mut LiveSet<Value>,
    block: Block,
    length: usize,
    passed: usize,
) -> (Vec<usize>, usize) {
    let ops = program.blocks[block].ops.len();
    if passed + ops <= length {
        return (Vec::new(), passed + ops);
    }
    let mut cuts = Vec::new();
    // What came before the block counts as operations before its first.
    let mut last = 0;
    let mut before = passed;
    for at in places(program, facts, live, block) {
        if before + (at - last) >= length {
            cuts.push(at);
            (last, before) = (at, 0);
        }
    }
    (cuts, before + (ops - last))
}

/// The operations of `block` before which code may be put, in order: no constrained operand
/// waits there for its instruction.
fn places(program: &Program, facts: &Facts, live: &mut LiveSet<Value>, block: Block) -> Vec<usize> {
    let must_stay = |value: Value| {
        let origin = program.values[value].origin;
        matches!(origin, Origin::Constraint(_))
    };
    live.start_at_end(&facts.liveness, block);
    let mut waiting = live.iter().filter(|&value| must_stay(value)).count();
    let mut places = Vec::new();
    for (index, op) in program.blocks[block].ops.iter().enumerate().rev() {
        let accesses = || op.accesses(program.function);
        for (value, _) in accesses().filter(|(_, role)| role.writes()) {
            waiting -= usize::from(live.remove(value) && must_stay(value));
        }
        for (value, _) in accesses().filter(|(_, role)| role.reads()) {
            waiting += usize::from(live.insert(value) && must_stay(value));
        }
        if waiting == 0 {
            places.push(index);
        }
    }
    places.reverse();
    places
}
