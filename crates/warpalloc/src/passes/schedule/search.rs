//! The order of least excess, by search over sets of instructions.
//!
//! Which values are live depends only on the instructions that have run, so whether the
//! region can be finished within a bound needs an answer once per set. Two rules keep the
//! sets few. An instruction that fits the bound and leaves no file fuller than it was can
//! run at once: no later instruction is worse off for it, because a value it is the last
//! to read now, it would also be the last to read later. And the bound starts at
//! what no order avoids and rises only to the smallest excess that was refused, so the
//! first order found is the best there is.

use super::region::{Meter, Node, Region, Units};
use cranelift_entity::EntityRef;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// Larger regions are left to the heuristics.
pub(super) const MOST_NODES: usize = 64;
/// Regions up to this size are searched to the end.
const SMALL: usize = 16;
/// Sets to visit in larger ones before giving up.
const MOST_SETS: usize = 4_000;

/// Sets to visit in one function before giving up on searching.
pub(super) const ALLOWANCE: usize = 300_000;

/// An order with less than `known` excess, if there is one and the search finds it.
///
/// What it visits comes off the allowance of the whole function.
pub(super) fn best_order(region: &Region, known: i32, allowance: &mut usize) -> Option<Vec<Node>> {
    let count = region.nodes.len();
    let least = least_excess(region);
    if count > MOST_NODES || known <= least {
        return None;
    }
    let limit = match count <= SMALL {
        true => *allowance,
        false => MOST_SETS.min(*allowance),
    };
    let mask = |nodes: &[Node]| nodes.iter().fold(0u64, |set, n| set | 1 << n.index());
    let mut search = Search {
        meter: Meter::new(region),
        preds: region.nodes.values().map(|n| mask(&n.preds)).collect(),
        bound: least,
        refused: i32::MAX,
        seen: FxHashSet::default(),
        left: limit,
        order: Vec::with_capacity(count),
    };
    let found = search.raise_bound(known);
    *allowance -= limit - search.left;
    found.then_some(search.order)
}

/// What no order avoids: the excess before the first instruction and after the last.
fn least_excess(region: &Region) -> i32 {
    let mut meter = Meter::new(region);
    for node in region.nodes.keys() {
        meter.run(node);
    }
    let [start, end] = [&region.start, &meter.units].map(|units| region.excess(units));
    start.max(end)
}

struct Search<'a> {
    meter: Meter<'a>,
    /// What must run before each node, as a set.
    preds: Vec<u64>,
    bound: i32,
    /// Smallest excess above the bound that was met.
    refused: i32,
    /// Sets from which the region cannot be finished within the bound.
    seen: FxHashSet<u64>,
    left: usize,
    order: Vec<Node>,
}

impl Search<'_> {
    /// Whether an order within the lowest possible bound below `known` was found.
    fn raise_bound(&mut self, known: i32) -> bool {
        while self.bound < known {
            if self.finish(0) {
                return true;
            }
            // Once no set is left to visit nothing is refused, which ends the search.
            self.bound = std::mem::replace(&mut self.refused, i32::MAX);
            self.seen.clear();
        }
        false
    }

    /// Whether the region can be finished once the nodes in `done` have run; if so, the
    /// order is complete.
    fn finish(&mut self, done: u64) -> bool {
        super::count_step();
        if self.order.len() == self.preds.len() {
            return true;
        }
        if self.left == 0 || !self.seen.insert(done) {
            return false;
        }
        self.left -= 1;
        let mut steps = self.steps(done);
        if let Some(free) = steps.iter().position(|step| step.is_free) {
            steps = SmallVec::from_slice(&[steps[free]]);
        } else if self.preds.len() > SMALL {
            steps.sort_by_key(|step| step.growth);
        }
        for step in steps {
            let before: Units = self.meter.units.clone();
            self.meter.run(step.node);
            self.order.push(step.node);
            if self.finish(done | 1 << step.node.index()) {
                return true;
            }
            self.order.pop();
            self.meter.take_back(step.node, before);
        }
        false
    }

    /// What may run next, in source order.
    fn steps(&mut self, done: u64) -> SmallVec<[Step; 8]> {
        let mut steps = SmallVec::new();
        for (index, &preds) in self.preds.iter().enumerate() {
            if done & (1 << index) != 0 || preds & !done != 0 {
                continue;
            }
            let node = Node::new(index);
            let (excess, units) = self.meter.effect(node);
            if excess > self.bound {
                self.refused = self.refused.min(excess);
                continue;
            }
            let change = || {
                units
                    .iter()
                    .zip(&self.meter.units)
                    .map(|(new, old)| new - old)
            };
            steps.push(Step {
                node,
                is_free: change().all(|c| c <= 0),
                growth: change().sum(),
            });
        }
        steps
    }
}

#[derive(Clone, Copy)]
struct Step {
    node: Node,
    /// It leaves no file fuller.
    is_free: bool,
    growth: i32,
}
