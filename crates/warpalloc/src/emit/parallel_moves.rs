//! Parallel moves in sequence.
//!
//! Every destination unit has one source unit, so the moves form a graph in which each
//! unit has one way in: trees hanging off cycles. A move whose destination has no reader
//! left may go at once; when only cycles are left, an exchange shortens one (Rideau,
//! Serpette and Leroy, 2008, with swaps in place of a scratch register). Units are the
//! grain because a pair may overlap another pair's half; neighbours that end up side by
//! side are joined again.

use crate::allocation::Edit;
use crate::target::PReg;
use rustc_hash::FxHashMap;

/// Edits that together do what `moves` (to, from, width in units) do at once.
///
/// Destinations do not overlap each other. All registers of one move share a file.
pub fn sequence(moves: &[(PReg, PReg, usize)]) -> Vec<Edit> {
    let mut pending: Vec<(PReg, PReg)> = Vec::new();
    for &(to, from, width) in moves {
        for i in 0..width {
            if to != from {
                pending.push((to.offset(i), from.offset(i)));
            }
        }
    }
    let mut readers: FxHashMap<PReg, u32> = FxHashMap::default();
    for (_, from) in &pending {
        *readers.entry(*from).or_default() += 1;
    }
    let mut out = Vec::new();
    while !pending.is_empty() {
        let before = pending.len();
        pending.retain(|&(to, from)| {
            let waits = readers.get(&to).is_some_and(|&n| n > 0);
            if !waits {
                out.push(unit_move(to, from));
                readers.entry(from).and_modify(|n| *n -= 1);
            }
            waits
        });
        if pending.len() == before {
            break_cycle(&mut pending, &mut out);
        }
    }
    join(out)
}

fn unit_move(to: PReg, from: PReg) -> Edit {
    Edit::Move { to, from, width: 1 }
}

/// Only cycles are left: exchange one destination with its source. The destination is
/// then done, and the reader of its old contents finds them in the source, which has one
/// reader as before.
fn break_cycle(pending: &mut Vec<(PReg, PReg)>, out: &mut Vec<Edit>) {
    let (to, from) = pending.remove(0);
    out.push(Edit::Swap {
        a: to,
        b: from,
        width: 1,
    });
    // Each unit of a cycle is read exactly once; the reader of `to` now reads `from`.
    for (_, source) in pending.iter_mut().filter(|(_, source)| *source == to) {
        *source = from;
    }
    pending.retain(|(to, from)| to != from);
}

/// Joins neighbouring unit moves into aligned wider ones.
fn join(edits: Vec<Edit>) -> Vec<Edit> {
    let mut edits = edits;
    // Pairs first, then quads, then eights.
    for width in [1u8, 2, 4] {
        let mut joined: Vec<Edit> = Vec::with_capacity(edits.len());
        for edit in edits {
            match joined
                .last()
                .and_then(|last| joined_pair(last, &edit, width))
            {
                Some(wider) => {
                    joined.pop();
                    joined.push(wider);
                }
                None => joined.push(edit),
            }
        }
        edits = joined;
    }
    edits
}

/// One edit for `first` then `second`, if both are `width` wide and together they make an
/// aligned one of twice the width that reads nothing the first one wrote.
fn joined_pair(first: &Edit, second: &Edit, width: u8) -> Option<Edit> {
    let step = width as usize;
    let aligned = |reg: PReg| (reg.unit as usize).is_multiple_of(2 * step);
    let beside = |low: PReg, high: PReg| low.offset(step) == high && aligned(low);
    match (first, second) {
        (
            &Edit::Move {
                to: t0,
                from: f0,
                width: w0,
            },
            &Edit::Move {
                to: t1,
                from: f1,
                width: w1,
            },
        ) if w0 == width && w1 == width => {
            let (to, from) = if beside(t0, t1) && beside(f0, f1) {
                (t0, f0)
            } else if beside(t1, t0) && beside(f1, f0) {
                (t1, f1)
            } else {
                return None;
            };
            // Aligned runs of one width are equal or apart, so one cannot read the other.
            Some(Edit::Move {
                to,
                from,
                width: 2 * width,
            })
        }
        (
            &Edit::Swap {
                a: a0,
                b: b0,
                width: w0,
            },
            &Edit::Swap {
                a: a1,
                b: b1,
                width: w1,
            },
        ) if w0 == width && w1 == width && beside(a0, a1) && beside(b0, b1) => Some(Edit::Swap {
            a: a0,
            b: b0,
            width: 2 * width,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::File;

    fn reg(unit: usize) -> PReg {
        PReg::new(File::R, unit)
    }

    fn run(edits: &[Edit], units: usize) -> Vec<usize> {
        let mut state: Vec<usize> = (0..units).collect();
        for edit in edits {
            match *edit {
                Edit::Move { to, from, width } => {
                    let old = state.clone();
                    for i in 0..width as usize {
                        state[to.unit as usize + i] = old[from.unit as usize + i];
                    }
                }
                Edit::Swap { a, b, width } => {
                    for i in 0..width as usize {
                        state.swap(a.unit as usize + i, b.unit as usize + i);
                    }
                }
                _ => panic!("unexpected {edit:?}"),
            }
        }
        state
    }

    /// Three moves in a cycle: sequentialised one by one, they would lose a value.
    #[test]
    fn a_cycle_keeps_every_value() {
        let edits = sequence(&[
            (reg(0), reg(1), 1),
            (reg(1), reg(2), 1),
            (reg(2), reg(0), 1),
        ]);
        assert_eq!(run(&edits, 3), [1, 2, 0]);
    }

    #[test]
    fn an_exchange_of_pairs_is_one_swap() {
        let edits = sequence(&[(reg(0), reg(4), 2), (reg(4), reg(0), 2)]);
        assert_eq!(run(&edits, 6), [4, 5, 2, 3, 0, 1]);
        assert_eq!(edits.len(), 1, "{edits:?}");
    }

    #[test]
    fn an_aligned_quad_moves_at_once() {
        let edits = sequence(&[(reg(8), reg(4), 4)]);
        let whole = Edit::Move {
            to: reg(8),
            from: reg(4),
            width: 4,
        };
        assert_eq!(edits, [whole]);
    }

    #[test]
    fn random_parallel_moves_agree_with_doing_them_at_once() {
        let mut state = 7u64;
        let mut next = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % n
        };
        for _ in 0..20_000 {
            let (mut moves, mut taken) = (Vec::new(), [false; 24]);
            for _ in 0..next(8) + 1 {
                let width = [1, 1, 2, 4][next(4)];
                let (to, from) = (next(24 / width) * width, next(24 / width) * width);
                if taken[to..to + width].iter().any(|&t| t) {
                    continue;
                }
                taken[to..to + width].fill(true);
                moves.push((reg(to), reg(from), width));
            }
            let mut expected: Vec<usize> = (0..24).collect();
            for &(to, from, width) in &moves {
                for i in 0..width {
                    expected[to.unit as usize + i] = from.unit as usize + i;
                }
            }
            assert_eq!(run(&sequence(&moves), 24), expected, "{moves:?}");
        }
    }
}
