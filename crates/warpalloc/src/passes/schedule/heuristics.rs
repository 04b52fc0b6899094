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

use super::region::{Node, NodeInfo, Region, Version};
use crate::target::MAX_FILES;
use cranelift_entity::{EntityRef, PrimaryMap};
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
pub(super) struct Weights(PrimaryMap<Version, i32>);

impl Weights {
    /// Weights for `region`, in which the files of `short` lack units.
    pub fn new(region: &Region, short: &[bool; MAX_FILES]) -> Weights {
        let scale = short.map(|short| if short { SHORT_WEIGHT } else { 1 });
        let versions = region.versions.values();
        Weights(versions.map(|v| v.width * scale[v.file]).collect())
    }

    fn sum<'a>(&self, versions: impl Iterator<Item = &'a Version>) -> i32 {
        versions.map(|&v| self.0[v]).sum()
    }
}

/// Nodes that wait for others, and ready ones by key; smaller keys first.
struct Ready {
    heap: BinaryHeap<Reverse<(i32, i32, Node)>>,
    nodes: PrimaryMap<Node, Waiting>,
    tie: Tie,
    clock: i32,
}

struct Waiting {
    key: i32,
    /// Its place among equals.
    place: i32,
    /// How much it waits for.
    waits: u32,
    done: bool,
}

impl Ready {
    /// Nodes with these keys and places, and how many others each waits for.
    fn new(tie: Tie, nodes: impl ExactSizeIterator<Item = (i32, i32, usize)>) -> Ready {
        let mut ready = Ready {
            heap: BinaryHeap::with_capacity(nodes.len()),
            nodes: PrimaryMap::with_capacity(nodes.len()),
            tie,
            clock: 0,
        };
        for (key, place, waits) in nodes {
            let node = ready.nodes.push(Waiting {
                key,
                place,
                waits: waits as u32,
                done: false,
            });
            if waits == 0 {
                ready.push(node);
            }
        }
        ready
    }

    fn push(&mut self, node: Node) {
        super::count_step();
        let Waiting { key, place, .. } = self.nodes[node];
        self.heap.push(Reverse((key, place, node)));
    }

    /// Lowers the key of `node` by `units`.
    fn improve(&mut self, node: Node, units: i32) {
        let info = &mut self.nodes[node];
        info.key -= units;
        if info.waits == 0 && !info.done {
            self.push(node);
        }
    }

    /// One thing that `node` waited for has happened.
    fn release(&mut self, node: Node) {
        let info = &mut self.nodes[node];
        info.waits -= 1;
        if info.waits == 0 {
            if self.tie == Tie::Newest {
                self.clock -= 1;
                info.place = self.clock;
            }
            self.push(node);
        }
    }

    fn pop(&mut self) -> Option<Node> {
        while let Some(Reverse((_, _, node))) = self.heap.pop() {
            if !std::mem::replace(&mut self.nodes[node].done, true) {
                return Some(node);
            }
        }
        None
    }
}

/// From first to last, the instruction that frees most first.
pub(super) fn forwards(region: &Region, weights: &Weights, tie: Tie) -> Vec<Node> {
    // Unread readers of each version: how many, and the exclusive or of their numbers,
    // which names the last one.
    let versions = region.versions.values().zip(region.unread.values());
    let unread = versions.map(|(info, &count)| {
        let numbers = info.readers.iter().map(|r| r.as_u32());
        (count, numbers.fold(0, std::ops::BitXor::bitxor))
    });
    let mut unread: PrimaryMap<Version, (u32, u32)> = unread.collect();
    let start = |(node, info): (Node, &NodeInfo)| {
        let born = weights.sum(info.writes.iter().filter(|&&v| region.unread[v] > 0));
        let freed = weights.sum(info.reads.iter().filter(|&&v| region.unread[v] == 1));
        (born - freed, node.index() as i32, info.preds.len())
    };
    let mut ready = Ready::new(tie, region.nodes.iter().map(start));
    let mut order = Vec::with_capacity(region.nodes.len());
    while let Some(node) = ready.pop() {
        order.push(node);
        for &version in &region.nodes[node].reads {
            let (count, numbers) = &mut unread[version];
            *count -= 1;
            *numbers ^= node.as_u32();
            if *count == 1 {
                ready.improve(Node::from_u32(*numbers), weights.0[version]);
            }
        }
        for &succ in &region.nodes[node].succs {
            ready.release(succ);
        }
    }
    order
}

/// From last to first, the instruction with the fewest new values last.
pub(super) fn backwards(region: &Region, weights: &Weights, tie: Tie) -> Vec<Node> {
    let leaves = region.versions.values().map(|info| info.leaves);
    let mut alive: PrimaryMap<Version, bool> = leaves.collect();
    let start = |(node, info): (Node, &NodeInfo)| {
        let needed = weights.sum(info.reads.iter().filter(|&&v| !alive[v]));
        let ended = weights.sum(info.writes.iter().filter(|&&v| region.unread[v] > 0));
        (needed - ended, -(node.index() as i32), info.succs.len())
    };
    let mut ready = Ready::new(tie, region.nodes.iter().map(start));
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
            ready.release(pred);
        }
    }
    order.reverse();
    order
}

/// One expression after the other, each from its operand of highest need on.
pub(super) fn depth_first(region: &Region, weights: &Weights) -> Vec<Node> {
    let needs = needs(region, weights);
    let mut entered: PrimaryMap<Node, bool> = region.nodes.values().map(|_| false).collect();
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
            stack[first..].sort_unstable_by_key(|&(p, _)| (needs[p], Reverse(p)));
        }
    }
    order
}

/// About how many units it takes to compute each node from nothing.
fn needs(region: &Region, weights: &Weights) -> PrimaryMap<Node, i32> {
    let mut needs: PrimaryMap<Node, i32> = PrimaryMap::with_capacity(region.nodes.len());
    let mut operands: Vec<(i32, i32)> = Vec::new();
    for info in region.nodes.values() {
        operands.clear();
        for &version in &info.reads {
            let need = region.versions[version].writer.map_or(0, |w| needs[w]);
            operands.push((need, weights.0[version]));
        }
        operands.sort_unstable_by_key(|&(need, _)| Reverse(need));
        let mut held = 0;
        let mut most = weights.sum(info.writes.iter());
        for &(need, own) in &operands {
            most = most.max(held + need);
            held += own;
        }
        needs.push(most.max(held));
    }
    needs
}
