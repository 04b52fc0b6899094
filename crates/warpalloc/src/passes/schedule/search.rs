//! The order of least excess, by search over sets of instructions.
//!
//! Which values are live depends only on the instructions that have run, so whether the
//! region can be finished within a bound needs an answer once per set. Two rules keep the
//! sets few. An instruction that fits the bound and leaves no file fuller than it was can
//! run at once: no later instruction is worse off for it, because a value it is the last
//! to read now, it would also be the last to read later. And the bound starts at
//! what no order avoids and rises only to the smallest excess that was refused, so the
//! first order found is the best there is.

use super::region::{Node, Region, Units, Version, add};
use cranelift_entity::{EntityRef, PrimaryMap};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::ops::Range;

/// Larger regions are left to the heuristics.
pub(super) const MOST_NODES: usize = 64;
/// Regions up to this size are searched to the end.
const SMALL: usize = 16;
/// Sets to visit in larger ones before giving up.
const MOST_SETS: usize = 4_000;

/// Sets to visit in one function before giving up on searching.
pub(super) const ALLOWANCE: usize = 300_000;

/// An order of an excess within `bounds`, if there is one and the search finds it. No order
/// is below them.
///
/// What it visits comes off the allowance of the whole function; `seen` is its memory.
pub(super) fn best_order(
    region: &Region,
    bounds: Range<i32>,
    allowance: &mut usize,
    seen: &mut FxHashSet<u64>,
) -> Option<Vec<Node>> {
    let count = region.nodes.len();
    if count > MOST_NODES || bounds.is_empty() {
        return None;
    }
    let limit = match count <= SMALL {
        true => *allowance,
        false => MOST_SETS.min(*allowance),
    };
    let mut search = Search::new(region, bounds.start, limit, seen);
    let found = search.raise_bound(bounds.end);
    *allowance -= limit - search.left;
    found.then_some(search.order)
}

struct Search<'a> {
    region: &'a Region,
    /// Units in use.
    units: Units,
    choices: Vec<Choice>,
    /// The readers of each version that ends in the region, as a set; of others, none.
    readers: PrimaryMap<Version, u64>,
    bound: i32,
    /// Smallest excess above the bound that was met.
    refused: i32,
    /// Sets from which the region cannot be finished within the bound.
    seen: &'a mut FxHashSet<u64>,
    left: usize,
    order: Vec<Node>,
}

/// A node, and what running it now would do.
#[derive(Clone, Copy, Default)]
struct Choice {
    /// What must run before it, and after it, as sets.
    preds: u64,
    succs: u64,
    /// How many more units are in use once it has run. It is less by what it reads as the
    /// last reader, which follows the nodes that have run.
    change: Units,
    /// Units of results that nothing reads.
    dead: Units,
}

impl<'a> Search<'a> {
    fn new(
        region: &'a Region,
        bound: i32,
        left: usize,
        seen: &'a mut FxHashSet<u64>,
    ) -> Search<'a> {
        let set = |nodes: &[Node]| nodes.iter().fold(0u64, |set, n| set | 1 << n.index());
        let nodes = region.nodes.values().map(|node| Choice {
            preds: set(&node.preds),
            succs: set(&node.succs),
            ..Choice::default()
        });
        let mut choices: Vec<Choice> = nodes.collect();
        for version in region.versions.values() {
            if let Some(writer) = version.writer {
                let writer = &mut choices[writer.index()];
                match version.leaves || !version.readers.is_empty() {
                    true => writer.change[version.file] += version.width,
                    false => writer.dead[version.file] += version.width,
                }
            }
            if let ([reader], false) = (&version.readers[..], version.leaves) {
                choices[reader.index()].change[version.file] -= version.width;
            }
        }
        let ending = region
            .versions
            .values()
            .map(|version| match version.leaves {
                true => 0,
                false => set(&version.readers),
            });
        seen.clear();
        Search {
            region,
            units: region.start,
            readers: ending.collect(),
            bound,
            refused: i32::MAX,
            seen,
            left,
            order: Vec::with_capacity(choices.len()),
            choices,
        }
    }

    /// Whether an order within the lowest possible bound below `known` was found.
    fn raise_bound(&mut self, known: i32) -> bool {
        let nodes = self.choices.iter().enumerate();
        let sources = nodes.filter(|(_, choice)| choice.preds == 0);
        let ready = sources.fold(0, |set, (index, _)| set | 1 << index);
        while self.bound < known {
            if self.finish(0, ready) {
                return true;
            }
            // Once no set is left to visit nothing is refused, which ends the search.
            self.bound = std::mem::replace(&mut self.refused, i32::MAX);
            self.seen.clear();
        }
        false
    }

    /// Whether the region can be finished once the nodes in `done` have run, so that those in
    /// `ready` may; if so, the order is complete.
    fn finish(&mut self, done: u64, ready: u64) -> bool {
        super::count_step();
        if self.order.len() == self.choices.len() {
            return true;
        }
        if self.left == 0 || !self.seen.insert(done) {
            return false;
        }
        self.left -= 1;
        for step in self.steps(ready) {
            let index = step.node.index();
            let done = done | 1 << index;
            let waiting = bits(self.choices[index].succs);
            let released = waiting.filter(|&succ| self.choices[succ].preds & !done == 0);
            let ready = released.fold(ready & !(1 << index), |set, succ| set | 1 << succ);
            self.run(step.node, done, 1);
            self.order.push(step.node);
            if self.finish(done, ready) {
                return true;
            }
            self.order.pop();
            self.run(step.node, done, -1);
        }
        false
    }

    /// Runs `node`, which makes the nodes that have run those of `done`; with the other sign,
    /// takes it back.
    fn run(&mut self, node: Node, done: u64, sign: i32) {
        let change = self.choices[node.index()].change;
        add(&mut self.units, &change.map(|units| sign * units));
        for &version in &self.region.nodes[node].reads {
            let left = self.readers[version] & !done;
            if left.is_power_of_two() {
                let version = &self.region.versions[version];
                let last = &mut self.choices[left.trailing_zeros() as usize];
                last.change[version.file] -= sign * version.width;
            }
        }
    }

    /// What may run next, in the order in which it is tried: one that leaves no file fuller
    /// alone, else by what they take in large regions, and as in the source in small ones.
    fn steps(&mut self, ready: u64) -> SmallVec<[Step; 8]> {
        let mut steps: SmallVec<[Step; 8]> = SmallVec::new();
        let mut free = None;
        let before = self.region.excess(&self.units);
        for index in bits(ready) {
            let node = Node::new(index);
            let Choice { change, dead, .. } = &self.choices[index];
            let mut after = self.units;
            add(&mut after, change);
            add(&mut after, dead);
            let mut excess = before.max(self.region.excess(&after));
            if let Some(early) = &self.region.nodes[node].early {
                let mut moment = self.units;
                add(&mut moment, early);
                excess = excess.max(self.region.excess(&moment));
            }
            if excess > self.bound {
                self.refused = self.refused.min(excess);
                continue;
            }
            let growth = change.iter().sum();
            let step = Step { node, growth };
            if free.is_none() && change.iter().all(|&units| units <= 0) {
                free = Some(step);
            }
            steps.push(step);
        }
        if let Some(free) = free {
            steps = SmallVec::from_slice(&[free]);
        } else if self.choices.len() > SMALL {
            steps.sort_by_key(|step| step.growth);
        }
        steps
    }
}

/// The members of a set.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        lowest
    })
}

#[derive(Clone, Copy)]
struct Step {
    node: Node,
    /// How many more units are in use once it has run.
    growth: i32,
}
