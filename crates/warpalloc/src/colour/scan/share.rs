//! One slot for parameters and their arguments.
//!
//! A parameter in memory whose argument is in memory costs nothing where both have the same
//! slot. They may share one if they are never live at once. Each class of values that share
//! keeps the stretches of code in which any of them is live; pairs are joined, those that are
//! passed most often by all edges together first, where the stretches are apart.

use super::code::{Access, Code};
use crate::function::Block;
use cranelift_entity::EntityRef;

/// A stretch of positions, both ends included: two per step, for what it reads and what it
/// writes, and two per block for its ends.
type Segment = (u32, u32);

/// The representative of each value among those that share its slot.
pub(super) fn share_slots(code: &Code, in_memory: &[bool]) -> Vec<u32> {
    let mut parent: Vec<u32> = (0..in_memory.len() as u32).collect();
    let joins = joins(code, in_memory);
    if joins.is_empty() {
        return parent;
    }
    let mut stretches = stretches(code, &joins);
    for (_, param, arg) in joins {
        let (a, b) = (root(&mut parent, param), root(&mut parent, arg));
        if a == b {
            continue;
        }
        if let Some(both) = merged(&stretches[a as usize], &stretches[b as usize]) {
            let (low, high) = (a.min(b), a.max(b));
            parent[high as usize] = low;
            stretches[high as usize] = Vec::new();
            stretches[low as usize] = both;
        }
    }
    for value in 0..parent.len() as u32 {
        parent[value as usize] = root(&mut parent, value);
    }
    parent
}

/// Parameters and arguments in memory, with how often an edge passes one to the other, most
/// often first.
fn joins(code: &Code, in_memory: &[bool]) -> Vec<(f64, u32, u32)> {
    let mut joins: Vec<(f64, u32, u32)> = Vec::new();
    for edge in code.edges() {
        let frequency = code.edge_frequency(edge);
        for &(param, arg) in code.pairs(edge) {
            if param != arg && in_memory[param as usize] && in_memory[arg as usize] {
                joins.push((frequency, param, arg));
            }
        }
    }
    joins.sort_by_key(|&(_, param, arg)| (param, arg));
    joins.dedup_by(|next, first| {
        let is_same = (first.1, first.2) == (next.1, next.2);
        first.0 += if is_same { next.0 } else { 0.0 };
        is_same
    });
    joins.sort_by(|a, b| b.0.total_cmp(&a.0));
    joins
}

fn root(parent: &mut [u32], mut value: u32) -> u32 {
    while parent[value as usize] != value {
        parent[value as usize] = parent[parent[value as usize] as usize];
        value = parent[value as usize];
    }
    value
}

/// Both lists in one, if no two stretches overlap.
fn merged(a: &[Segment], b: &[Segment]) -> Option<Vec<Segment>> {
    let mut all: Vec<Segment> = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x < y => a.next(),
            (Some(_), None) => a.next(),
            (_, Some(_)) => b.next(),
            (None, None) => return Some(all),
        };
        let &(start, end) = next?;
        if all.last().is_some_and(|last| last.1 >= start) {
            return None;
        }
        all.push((start, end));
    }
}

/// Where each value of a pair is live.
fn stretches(code: &Code, joins: &[(f64, u32, u32)]) -> Vec<Vec<Segment>> {
    const CLOSED: u32 = u32::MAX;
    let count = code.value_count();
    let mut wanted = vec![false; count];
    for &(_, param, arg) in joins {
        wanted[param as usize] = true;
        wanted[arg as usize] = true;
    }
    let mut stretches: Vec<Vec<Segment>> = vec![Vec::new(); count];
    let mut open = vec![(CLOSED, 0); count];
    let mut here: Vec<u32> = Vec::new();
    for block in (0..code.block_count()).map(Block::new) {
        let steps = code.steps(block);
        let base = 2 * (steps.start + block.index()) as u32;
        let end = 2 * (steps.end + block.index()) as u32 + 1;
        here.clear();
        for value in code.live_in(block).filter(|&v| wanted[v as usize]) {
            open[value as usize] = (base, base);
            here.push(value);
        }
        for number in steps {
            let accesses = code.accesses(number);
            let reads = 2 * (number + block.index()) as u32 + 1;
            for &Access { value, role, .. } in accesses.iter().filter(|a| wanted[a.value as usize])
            {
                let at = reads + u32::from(role.writes());
                let stretch = &mut open[value as usize];
                if stretch.0 == CLOSED {
                    stretch.0 = at;
                    here.push(value);
                }
                stretch.1 = stretch.1.max(at);
            }
        }
        for value in code.live_out(block).filter(|&v| wanted[v as usize]) {
            open[value as usize].1 = end;
        }
        for &value in &here {
            let stretch = std::mem::replace(&mut open[value as usize], (CLOSED, 0));
            stretches[value as usize].push(stretch);
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::super::tests::{case, code};
    use super::*;

    /// `v0` and `v1` are live at once, so that `v3` shares with one of them only.
    #[test]
    fn a_parameter_shares_with_the_argument_that_is_passed_most_often() {
        let case = case(
            8,
            "block0:
                v0:r32, v1:r32, v2:pred = a : read
                brp v2 -> block1, block2
            block1:
                brp v2 -> block3(v0), block4
            block2:
                bra -> block3(v1)
            block3(v3:r32):
                use v3 : write
                bra -> block4
            block4:
                exit : exit",
        );
        assert_eq!(share_slots(&code(&case), &[true; 4]), [0, 1, 2, 1]);
    }

    /// One edge passes `v0` more often than any other passes `v1`, but two pass `v1`.
    #[test]
    fn a_parameter_shares_with_the_argument_that_most_edges_pass() {
        let case = case(
            8,
            "block0 freq 10:
                v0:r32, v1:r32, v2:pred = a : read
                brp v2 -> block1, block2
            block1 freq 6:
                brp v2 -> block3, block4
            block2 freq 4:
                bra -> block5(v0)
            block3 freq 3:
                bra -> block5(v1)
            block4 freq 3:
                bra -> block5(v1)
            block5(v3:r32) freq 10:
                use v3 : write
                exit : exit",
        );
        assert_eq!(share_slots(&code(&case), &[true; 4]), [0, 1, 2, 1]);
    }

    #[test]
    fn stretches_that_overlap_are_not_merged() {
        assert_eq!(
            merged(&[(0, 3), (8, 9)], &[(4, 7)]),
            Some(vec![(0, 3), (4, 7), (8, 9)])
        );
        assert_eq!(merged(&[(0, 4)], &[(4, 7)]), None);
        assert_eq!(merged(&[(5, 6)], &[(4, 7)]), None);
    }
}
