//! The order of least excess, by search over sets of instructions.
//!
//! Which values are live depends only on the instructions that have run, so whether the
//! region can be finished within a bound needs an answer once per set. Two rules keep the
//! sets few. An instruction that fits the bound and leaves no file fuller than it was can
//! run at once: no later instruction is worse off for it, because a value it is the last
//! to read now, it would also be the last to read later. And a bound that is too low costs
//! most, because all sets are visited, so the first is just below what is known, and each
//! order that is found lowers it below its own excess, until there is none.

use super::region::{Meter, Node, Region};
use crate::target::MAX_FILES;
use cranelift_entity::EntityRef;
use rustc_hash::FxHashSet;
use std::ops::Range;

/// Larger regions are left to the heuristics.
pub(super) const MOST_NODES: usize = 64;
/// Regions up to this size are searched to the end.
const SMALL: usize = 16;
/// Sets to visit in larger ones before giving up.
const MOST_SETS: usize = 1_000;

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
    if region.nodes.len() > MOST_NODES || bounds.is_empty() {
        return None;
    }
    let mut files = region.versions.values().map(|version| version.file);
    let first = files.next()?;
    // Most regions have values of one file, and no order changes what others lack.
    if files.all(|file| file == first) {
        return Search::new(region, [first], seen).best_order(region, bounds, allowance);
    }
    let all: [usize; MAX_FILES] = std::array::from_fn(|file| file);
    Search::new(region, all, seen).best_order(region, bounds, allowance)
}

/// A search that follows the units of `FILES` files.
struct Search<'a, const FILES: usize> {
    /// Units that are lacking of each file, less than none where some are left.
    lacking: [i32; FILES],
    /// Units that are lacking of other files.
    elsewhere: i32,
    choices: Vec<Choice<FILES>>,
    /// The versions of several readers that end in the region, for one choice after the other.
    shared: Vec<Shared>,
    bound: i32,
    /// Sets from which the region cannot be finished within the bound.
    seen: &'a mut FxHashSet<u64>,
    left: usize,
    order: Vec<Node>,
}

/// A node, and what running it now would do.
struct Choice<const FILES: usize> {
    /// What must run before it, and after it, as sets.
    preds: u64,
    succs: u64,
    /// How many more units are in use once it has run; less for what it is the last to read.
    change: [i32; FILES],
    /// Units of results that nothing reads, and of those that it writes early.
    dead: [i32; FILES],
    early: [i32; FILES],
    /// Those of the shared versions that it reads.
    shared: Range<usize>,
}

#[derive(Clone, Copy)]
struct Shared {
    readers: u64,
    /// Position of its file among those of the search.
    file: usize,
    width: i32,
}

impl<'a, const FILES: usize> Search<'a, FILES> {
    /// A search of `region`, whose values are all in `files`.
    fn new(region: &Region, files: [usize; FILES], seen: &'a mut FxHashSet<u64>) -> Self {
        let set = |nodes: &[Node]| nodes.iter().fold(0u64, |set, n| set | 1 << n.index());
        let place = |file: usize| files.iter().position(|&f| f == file).unwrap_or(0);
        let mut choices = Vec::with_capacity(region.nodes.len());
        let mut shared = Vec::new();
        for node in region.nodes.values() {
            let mut choice = Choice {
                preds: set(&node.preds),
                succs: set(&node.succs),
                change: [0; FILES],
                dead: [0; FILES],
                early: node
                    .early
                    .map_or([0; FILES], |early| files.map(|f| early[f])),
                shared: shared.len()..shared.len(),
            };
            for &version in &node.writes {
                let info = &region.versions[version];
                match region.unread[version] {
                    0 => choice.dead[place(info.file)] += info.width,
                    _ => choice.change[place(info.file)] += info.width,
                }
            }
            for &version in &node.reads {
                let info = &region.versions[version];
                let (file, width) = (place(info.file), info.width);
                match region.unread[version] {
                    1 => choice.change[file] -= width,
                    _ if info.leaves => {}
                    _ => shared.push(Shared {
                        readers: set(&info.readers),
                        file,
                        width,
                    }),
                }
            }
            choice.shared.end = shared.len();
            choices.push(choice);
        }
        let lacking = files.map(|file| region.start[file] - region.budget[file]);
        Search {
            lacking,
            elsewhere: region.excess(&region.start) - excess(&lacking),
            choices,
            shared,
            bound: 0,
            seen,
            left: 0,
            order: Vec::new(),
        }
    }

    /// An order of an excess within `bounds`, the best one found.
    fn best_order(
        mut self,
        region: &Region,
        bounds: Range<i32>,
        allowance: &mut usize,
    ) -> Option<Vec<Node>> {
        let limit = match self.choices.len() <= SMALL {
            true => *allowance,
            false => MOST_SETS.min(*allowance),
        };
        self.left = limit;
        let mut best = None;
        let mut known = bounds.end;
        while known > bounds.start
            && let Some(order) = self.order_within(known - 1)
        {
            let mut meter = Meter::new(region);
            known = order.iter().map(|&node| meter.run(node)).max()?;
            best = Some(order);
        }
        *allowance -= limit - self.left;
        best
    }

    /// An order of at most this excess, if it is found.
    fn order_within(&mut self, bound: i32) -> Option<Vec<Node>> {
        self.bound = bound - self.elsewhere;
        self.seen.clear();
        let nodes = self.choices.iter().enumerate();
        let sources = nodes.filter(|(_, choice)| choice.preds == 0);
        let ready = sources.fold(0, |set, (index, _)| set | 1 << index);
        self.finish(0, ready).then(|| {
            self.order.reverse();
            std::mem::take(&mut self.order)
        })
    }

    /// Whether the region can be finished once the nodes in `done` have run, so that those in
    /// `ready` may; if so, the order of the others is put down, last first.
    fn finish(&mut self, done: u64, ready: u64) -> bool {
        super::count_step();
        if ready == 0 {
            return true;
        }
        if self.left == 0 || !self.seen.insert(done) {
            return false;
        }
        self.left -= 1;
        let mut steps = self.steps(ready);
        while let Some(index) = self.first(steps) {
            steps &= !(1 << index);
            let done = done | 1 << index;
            let waiting = bits(self.choices[index].succs);
            let released = waiting.filter(|&succ| self.choices[succ].preds & !done == 0);
            let ready = released.fold(ready & !(1 << index), |set, succ| set | 1 << succ);
            self.run(index, done, 1);
            let is_finished = self.finish(done, ready);
            self.run(index, done, -1);
            if is_finished {
                self.order.push(Node::new(index));
                return true;
            }
        }
        false
    }

    /// Runs a node, which makes the nodes that have run those of `done`; with the other sign,
    /// takes it back.
    fn run(&mut self, index: usize, done: u64, sign: i32) {
        let Choice { change, shared, .. } = &self.choices[index];
        add(&mut self.lacking, &change.map(|units| sign * units));
        for &Shared {
            readers,
            file,
            width,
        } in &self.shared[shared.clone()]
        {
            let left = readers & !done;
            if left.is_power_of_two() {
                self.choices[left.trailing_zeros() as usize].change[file] -= sign * width;
            }
        }
    }

    /// What may run next: one that leaves no file fuller, if there is one, or all that keep
    /// within the bound.
    fn steps(&self, ready: u64) -> u64 {
        let mut steps = 0;
        for index in bits(ready) {
            let choice = &self.choices[index];
            let [mut before, mut after] = [self.lacking; 2];
            add(&mut before, &choice.early);
            add(&mut after, &choice.change);
            add(&mut after, &choice.dead);
            let excess = excess(&before).max(excess(&after));
            if excess > self.bound {
                continue;
            }
            if choice.change.iter().all(|&units| units <= 0) {
                return 1 << index;
            }
            steps |= 1 << index;
        }
        steps
    }

    /// The step to try first: in small regions as in the source, and in large ones that which
    /// takes the fewest units.
    fn first(&self, steps: u64) -> Option<usize> {
        match self.choices.len() <= SMALL {
            true => bits(steps).next(),
            false => {
                bits(steps).min_by_key(|&index| self.choices[index].change.iter().sum::<i32>())
            }
        }
    }
}

/// How many units are lacking, over all files.
fn excess<const FILES: usize>(lacking: &[i32; FILES]) -> i32 {
    lacking.iter().map(|&units| units.max(0)).sum()
}

fn add<const FILES: usize>(units: &mut [i32; FILES], more: &[i32; FILES]) {
    units.iter_mut().zip(more).for_each(|(u, m)| *u += m);
}

/// The members of a set.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        lowest
    })
}
