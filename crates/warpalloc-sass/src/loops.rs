//! Natural loops and how deep each block is nested in them.

use crate::cfg::Cfg;
use fixedbitset::FixedBitSet;

/// The loops of a function.
#[derive(Clone, Debug)]
pub struct Loops {
    depth: Vec<u32>,
    /// Instructions of the innermost loop around each block.
    length: Vec<usize>,
    headers: Vec<usize>,
}

impl Loops {
    /// Finds the natural loops: back edges to a block that dominates their source. Loops with
    /// the same header are one. A cycle that can be entered in two places has no header and
    /// adds no depth.
    pub fn compute(cfg: &Cfg) -> Self {
        let blocks = cfg.blocks();
        let order = cfg.reverse_postorder();
        let dominators = dominators(cfg, &order);
        let mut depth = vec![0; blocks.len()];
        let mut length = vec![0; blocks.len()];
        let mut headers = Vec::new();
        for &header in &order {
            let mut body = FixedBitSet::with_capacity(blocks.len());
            let mut work = Vec::new();
            for &tail in &blocks[header].preds {
                if cfg.is_reachable(tail) && dominates(&dominators, header, tail) {
                    work.push(tail);
                }
            }
            if work.is_empty() {
                continue;
            }
            headers.push(header);
            body.insert(header);
            while let Some(block) = work.pop() {
                if !body.put(block) {
                    work.extend(
                        blocks[block]
                            .preds
                            .iter()
                            .filter(|&&pred| cfg.is_reachable(pred)),
                    );
                }
            }
            let own = body.ones().map(|block| blocks[block].insts.len()).sum();
            for block in body.ones() {
                depth[block] += 1;
                // Headers of outer loops come first in this order.
                length[block] = own;
            }
        }
        headers.sort_unstable();
        Self {
            depth,
            length,
            headers,
        }
    }

    /// How many loops a block is in.
    pub fn depth(&self, block: usize) -> u32 {
        self.depth[block]
    }

    /// Instructions of the innermost loop around a block; none where there is no loop.
    pub fn innermost_length(&self, block: usize) -> usize {
        self.length[block]
    }

    /// Instructions of the longest loop.
    pub fn longest(&self) -> usize {
        self.length.iter().copied().max().unwrap_or(0)
    }

    /// The first blocks of the loops.
    pub fn headers(&self) -> &[usize] {
        &self.headers
    }
}

/// For each block the number of its immediate dominator in `order`, counted from 1; 0 is the
/// virtual root above all entries. None for an unreachable block.
struct Dominators {
    place: Vec<Option<usize>>,
    parent: Vec<usize>,
}

/// The algorithm of Cooper, Harvey and Kennedy.
fn dominators(cfg: &Cfg, order: &[usize]) -> Dominators {
    let mut place = vec![None; cfg.blocks().len()];
    for (index, &block) in order.iter().enumerate() {
        place[block] = Some(index + 1);
    }
    let mut parent: Vec<Option<usize>> = vec![None; order.len() + 1];
    parent[0] = Some(0);
    for &entry in cfg.entries() {
        if let Some(at) = place[entry] {
            parent[at] = Some(0);
        }
    }
    let mut changed = true;
    while changed {
        changed = false;
        for (index, &block) in order.iter().enumerate() {
            let at = index + 1;
            if cfg.entries().contains(&block) {
                continue;
            }
            let mut new = None;
            for pred in cfg.blocks()[block].preds.iter().filter_map(|&p| place[p]) {
                if parent[pred].is_none() {
                    continue;
                }
                new = Some(match new {
                    None => pred,
                    Some(other) => intersect(&parent, pred, other),
                });
            }
            if new.is_some() && parent[at] != new {
                parent[at] = new;
                changed = true;
            }
        }
    }
    Dominators {
        place,
        parent: parent.into_iter().map(|p| p.unwrap_or(0)).collect(),
    }
}

fn intersect(parent: &[Option<usize>], mut a: usize, mut b: usize) -> usize {
    while a != b {
        if a > b {
            a = parent[a].unwrap_or(0);
        } else {
            b = parent[b].unwrap_or(0);
        }
    }
    a
}

fn dominates(dominators: &Dominators, header: usize, block: usize) -> bool {
    let (Some(header), Some(mut at)) = (dominators.place[header], dominators.place[block]) else {
        return false;
    };
    while at > header {
        at = dominators.parent[at];
    }
    at == header
}
