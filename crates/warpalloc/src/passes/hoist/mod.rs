//! Loop-invariant code motion (`docs/sources.md#invariant-hoisting`).
//!
//! An instruction of a loop that may run again, reads nothing the loop writes and has the
//! only definition of its result yields the same in every turn. The program then computes
//! it on the edges into the loop, and the instruction itself is deleted; the checker's
//! records prove that. Such instructions cannot trap and have no effects, so it does not
//! matter that some turns, or all, might not have executed them.
//!
//! The cost is a register throughout the loop. So an invariant stays where it is if
//! somewhere in the loop pressure would exceed the peak of the function, rounded up to the
//! next [granule](crate::target::FileInfo::granule): beyond, a warp takes more registers and
//! fewer warps fit, and beyond the budget a value would be spilled. An input whose last
//! reader leaves the loop makes room. The most expensive invariants per register go first,
//! each as soon as its inputs have gone. Predicates stay: seven are too few to keep one
//! through a loop.
//!
//! Loops are taken from the inside out, so that with [`HoistPolicy::Always`] an invariant
//! of several nested loops ends up before the outermost of them.

mod levels;
mod nest;
mod plan;
mod room;

use crate::allocation::{Allocation, Edit, Point};
use crate::analysis::{Cfg, Loop, Loops, Revision, Rows};
use crate::function::{Block, Inst};
use crate::ir::{Facts, Program};
use crate::options::HoistPolicy;
use crate::target::Target;
use cranelift_entity::EntityRef;
use nest::{Nest, Tallies};
use plan::Plan;

/// Files with fewer units than this are too scarce to hold an invariant through a loop: a
/// predicate that finds no register costs more than its comparison.
const SCARCE_UNITS: usize = 16;

/// Moves invariants of `program` before their loops, by `policy`; which ones moved.
///
/// With `chains`, instructions move too that become invariant because others moved. The
/// facts must be the program's, and are so afterwards.
pub fn hoist_invariants(
    program: &mut Program,
    target: &Target,
    facts: &mut Facts,
    policy: HoistPolicy,
    chains: bool,
) -> Vec<Inst> {
    let mut moved = Vec::new();
    if policy == HoistPolicy::Never || facts.loops.loop_count() == 0 {
        return moved;
    }
    let mut tallies = Tallies::new(program);
    // Loops of one round have no block in common, so their plans do not disturb each other.
    for round in (0..rounds(&facts.loops, policy)).rev() {
        let loops = loops_of(program, &facts.loops, policy, round);
        let mut levels = None;
        let plans = facts.loops.loops().filter_map(|(l, _)| {
            let blocks = loops.row(l);
            let nest = Nest::new(program, target, facts, &mut tallies, l, blocks)?;
            let plan = nest.plan(&mut levels, chains)?;
            Some((plan, blocks))
        });
        let plans: Vec<(Plan, &[Block])> = plans.collect();
        if plans.is_empty() {
            continue;
        }
        let new_blocks = program.blocks.next_key();
        let mut liveness = Revision::of(&facts.liveness);
        for (plan, blocks) in plans {
            moved.extend(plan.moved.iter().map(|c| c.inst));
            plan.apply(program, blocks, &mut liveness);
        }
        let liveness = liveness.finish(program.blocks.len());
        facts.add_blocks_on_edges(program, new_blocks, liveness);
    }
    moved.sort_unstable();
    moved.dedup();
    moved
}

/// How many of `moved` are computed before their loop in the end.
pub fn count_hoisted(allocation: &Allocation, moved: &[Inst]) -> u32 {
    let ahead = |(point, edit): (Point, &Edit)| match (point, edit) {
        (Point::Edge(..), Edit::Recompute { inst, .. }) => Some(*inst),
        _ => None,
    };
    let mut ahead: Vec<Inst> = allocation.edits.iter().filter_map(ahead).collect();
    ahead.sort_unstable();
    let is_ahead = |inst: &&Inst| ahead.binary_search(inst).is_ok();
    moved.iter().filter(is_ahead).count() as u32
}

/// All loops without loops in them can be treated at once, nested ones depth by depth.
fn rounds(loops: &Loops, policy: HoistPolicy) -> u32 {
    let depths = loops.loops().map(|(_, info)| info.depth);
    match policy {
        HoistPolicy::Always => depths.max().unwrap_or(0),
        HoistPolicy::Inner => 1,
        HoistPolicy::Never => 0,
    }
}

/// The blocks of the loops of a round.
fn loops_of(
    program: &Program,
    loops: &Loops,
    policy: HoistPolicy,
    round: u32,
) -> Rows<Loop, Block> {
    let mut has_inner = vec![false; loops.loop_count()];
    let parents = loops.loops().filter_map(|(_, info)| info.parent);
    parents.for_each(|parent| has_inner[parent.index()] = true);
    let named = |l: &Loop| match policy {
        HoistPolicy::Always => loops.info(*l).depth == round + 1,
        // `Never` has no rounds.
        HoistPolicy::Inner | HoistPolicy::Never => !has_inner[l.index()],
    };
    let pairs = program.all_blocks().filter_map(|block| {
        let here = loops.around(block).find(named);
        let here = here.filter(|&l| !loops.is_irreducible(l))?;
        Some((here, block))
    });
    let pairs: Vec<_> = pairs.collect();
    Rows::from_pairs(loops.loop_count(), pairs.iter().copied())
}

#[cfg(test)]
mod tests;
