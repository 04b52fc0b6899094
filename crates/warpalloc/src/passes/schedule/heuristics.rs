//! Orders for regions of any size, in near-linear time.
//!
//! *Forwards*, run the instruction that frees most and fills least; it frees more when it
//! becomes the last reader of a value. *Backwards*, the mirror image, run last the
//! instruction that makes the fewest values live. *Depth first*, finish one expression
//! before the next, the operand of highest need first (R. Sethi and J. Ullman, "The
//! Generation of Optimal Code for Arithmetic Expressions", 1970, applied to graphs). None
//! is best everywhere; all are cheap enough to try.
//!
//! Both greedy orders keep a heap of ready nodes by what they would change now. A change
//! only ever improves, and each improvement pushes the node again, so stale entries sink: they
//! come up once their node is done.

use super::region::{Node, Region, Version};
use cranelift_entity::{EntityRef, SecondaryMap};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Files that are short of units count this much more than others.
const SHORT_WEIGHT: i32 = 8;

/// How equal candidates are told apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    /// By their places in the source.
    Source,
    /// The one that became ready last goes first, which keeps expressions together.
    Newest,
}

/// Units of each version, weighted by how short its file is.
pub(super) struct Weights(SecondaryMap<Version, i32>);

impl Weights {
    /// Weights for `region`, in which the files of `short` lack units.
    pub fn new(region: &Region, short: &[bool]) -> Weights {
        let mut weights = SecondaryMap::with_capacity(region.versions.len());
        for (version, info) in region.versions.iter() {
            let scale = if short[info.file.index()] {
                SHORT_WEIGHT
            } else {
                1
            };
            weights[version] = info.width * scale;
        }
        Weights(weights)
    }
}

/// Ready nodes by key; smaller keys first.
struct Ready {
    heap: BinaryHeap<Reverse<(i32, i64, Node)>>,
    /// The key of each node as it is now, and its place among equals.
    keys: SecondaryMap<Node, (i32, i64)>,
    waits: SecondaryMap<Node, u32>,
    done: SecondaryMap<Node, bool>,
    clock: i64,
}

impl Ready {
    fn new(nodes: usize) -> Ready {
        Ready {
            heap: BinaryHeap::with_capacity(nodes),
            keys: SecondaryMap::with_capacity(nodes),
            waits: SecondaryMap::with_capacity(nodes),
            done: SecondaryMap::with_capacity(nodes),
            clock: 0,
        }
    }

    fn push(&mut self, node: Node) {
        super::count_step();
        let (key, place) = self.keys[node];
        self.heap.push(Reverse((key, place, node)));
    }

    /// Lowers the key of `node` by `units`.
    fn improve(&mut self, node: Node, units: i32) {
        self.keys[node].0 -= units;
        if self.waits[node] == 0 && !self.done[node] {
            self.push(node);
        }
    }

    /// One thing that `node` waited for has happened.
    fn release(&mut self, node: Node, tie: Tie) {
        self.waits[node] -= 1;
        if self.waits[node] == 0 {
            if tie == Tie::Newest {
                self.clock -= 1;
                self.keys[node].1 = self.clock;
            }
            self.push(node);
        }
    }

    fn pop(&mut self) -> Option<Node> {
        while let Some(Reverse((_, _, node))) = self.heap.pop() {
            if !std::mem::replace(&mut self.done[node], true) {
                return Some(node);
            }
        }
        None
    }
}

/// From first to last, the instruction that frees most first.
pub(super) fn forwards(region: &Region, weights: &Weights, tie: Tie) -> Vec<Node> {
    let mut ready = Ready::new(region.nodes.len());
    // Unread readers of each version: how many, and the exclusive or of their numbers,
    // which names the last one.
    let mut unread: SecondaryMap<Version, (u32, u32)> = SecondaryMap::new();
    for (version, info) in region.versions.iter() {
        let numbers = info.readers.iter().map(|r| r.as_u32());
        unread[version] = (
            info.readers.len() as u32,
            numbers.fold(0, std::ops::BitXor::bitxor),
        );
    }
    for (node, info) in region.nodes.iter() {
        let lasting =
            |v: &&Version| region.versions[**v].leaves || !region.versions[**v].readers.is_empty();
        let dying =
            |v: &&Version| !region.versions[**v].leaves && region.versions[**v].readers.len() == 1;
        let born: i32 = info
            .writes
            .iter()
            .filter(lasting)
            .map(|&v| weights.0[v])
            .sum();
        let freed: i32 = info.reads.iter().filter(dying).map(|&v| weights.0[v]).sum();
        ready.keys[node] = (born - freed, node.index() as i64);
        ready.waits[node] = info.preds.len() as u32;
    }
    let sources = region
        .nodes
        .keys()
        .filter(|&n| region.nodes[n].preds.is_empty());
    sources.for_each(|n| ready.push(n));
    let mut order = Vec::with_capacity(region.nodes.len());
    while let Some(node) = ready.pop() {
        order.push(node);
        for &version in &region.nodes[node].reads {
            let (count, numbers) = &mut unread[version];
            *count -= 1;
            *numbers ^= node.as_u32();
            if *count == 1 && !region.versions[version].leaves {
                ready.improve(Node::from_u32(*numbers), weights.0[version]);
            }
        }
        for &succ in &region.nodes[node].succs {
            ready.release(succ, tie);
        }
    }
    order
}

/// From last to first, the instruction with the fewest new values last.
pub(super) fn backwards(region: &Region, weights: &Weights, tie: Tie) -> Vec<Node> {
    let mut ready = Ready::new(region.nodes.len());
    let mut alive: SecondaryMap<Version, bool> = SecondaryMap::new();
    for (version, info) in region.versions.iter() {
        alive[version] = info.leaves;
    }
    for (node, info) in region.nodes.iter() {
        let needed = info
            .reads
            .iter()
            .filter(|&&v| !alive[v])
            .map(|&v| weights.0[v]);
        let ended = info
            .writes
            .iter()
            .filter(|&&v| region.versions[v].leaves || !region.versions[v].readers.is_empty());
        let change = needed.sum::<i32>() - ended.map(|&v| weights.0[v]).sum::<i32>();
        ready.keys[node] = (change, -(node.index() as i64));
        ready.waits[node] = info.succs.len() as u32;
    }
    let sinks = region
        .nodes
        .keys()
        .filter(|&n| region.nodes[n].succs.is_empty());
    sinks.for_each(|n| ready.push(n));
    let mut order = Vec::with_capacity(region.nodes.len());
    while let Some(node) = ready.pop() {
        order.push(node);
        for &version in &region.nodes[node].reads {
            if !std::mem::replace(&mut alive[version], true) {
                for &reader in &region.versions[version].readers {
                    ready.improve(reader, weights.0[version]);
                }
            }
        }
        for &pred in &region.nodes[node].preds {
            ready.release(pred, tie);
        }
    }
    order.reverse();
    order
}

/// One expression after the other, each from its operand of highest need on.
pub(super) fn depth_first(region: &Region, weights: &Weights) -> Vec<Node> {
    let needs = needs(region, weights);
    let mut entered: SecondaryMap<Node, bool> = SecondaryMap::new();
    let mut order = Vec::with_capacity(region.nodes.len());
    let mut stack: Vec<(Node, bool)> = Vec::new();
    let roots = region
        .nodes
        .keys()
        .filter(|&n| region.nodes[n].succs.is_empty());
    for root in roots {
        stack.push((root, false));
        while let Some((node, finished)) = stack.pop() {
            if finished {
                order.push(node);
                continue;
            }
            if std::mem::replace(&mut entered[node], true) {
                continue;
            }
            stack.push((node, true));
            let first = stack.len();
            let preds = region.nodes[node].preds.iter();
            stack.extend(preds.filter(|&&p| !entered[p]).map(|&p| (p, false)));
            // The last on the stack comes off first.
            stack[first..].sort_by_key(|&(p, _)| (needs[p], Reverse(p)));
        }
    }
    order
}

/// About how many units it takes to compute each node from nothing.
fn needs(region: &Region, weights: &Weights) -> SecondaryMap<Node, i32> {
    let mut needs: SecondaryMap<Node, i32> = SecondaryMap::with_capacity(region.nodes.len());
    let mut operands: Vec<(i32, i32)> = Vec::new();
    let mut writer: SecondaryMap<Version, Option<Node>> = SecondaryMap::new();
    for (node, info) in region.nodes.iter() {
        let result: i32 = info.writes.iter().map(|&v| weights.0[v]).sum();
        operands.clear();
        for &version in &info.reads {
            let own = weights.0[version];
            operands.push((writer[version].map_or(0, |w| needs[w]), own));
        }
        operands.sort_unstable_by_key(|&(need, _)| Reverse(need));
        let mut held = 0;
        let mut most = result;
        for &(need, own) in &operands {
            most = most.max(held + need);
            held += own;
        }
        needs[node] = most.max(held);
        for &version in &info.writes {
            writer[version] = Some(node);
        }
    }
    needs
}
