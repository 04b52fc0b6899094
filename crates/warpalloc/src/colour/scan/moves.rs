//! Parallel moves in sequence.
//!
//! Every destination unit has one source unit, so the moves form trees that hang off cycles.
//! A move whose destination nobody still reads goes at once. When only cycles are left, one
//! is opened through a free unit, which costs one more move than the cycle has; without a
//! free unit, exchanges close it. Units are the grain, because a pair may overlap half of
//! another; neighbours that end up side by side move as one.

use crate::allocation::Edit;
use crate::target::PReg;
use smallvec::SmallVec;

/// One unit to move: destination, source.
type UnitMove = (PReg, PReg);

/// Appends edits that do `moves` (to, from, width) at once. `idle` is a unit that nothing
/// needs, if there is one.
pub(super) fn push_moves(moves: &[(PReg, PReg, usize)], idle: Option<PReg>, out: &mut Vec<Edit>) {
    let mut pending: SmallVec<[UnitMove; 16]> = SmallVec::new();
    for &(to, from, width) in moves.iter().filter(|(to, from, _)| to != from) {
        pending.extend((0..width).map(|unit| (to.offset(unit), from.offset(unit))));
    }
    match pending[..] {
        [] => return,
        [(to, from)] => return out.push(Edit::Move { to, from, width: 1 }),
        _ => {}
    }
    let first = out.len();
    while !pending.is_empty() {
        let mut at = 0;
        let before = pending.len();
        while at < pending.len() {
            let (to, from) = pending[at];
            let is_read = pending
                .iter()
                .enumerate()
                .any(|(n, m)| n != at && m.1 == to);
            if is_read {
                at += 1;
            } else {
                out.push(Edit::Move { to, from, width: 1 });
                pending.remove(at);
            }
        }
        if pending.len() == before {
            open_cycle(&mut pending, idle, first, out);
        }
    }
    join(out, first);
}

/// Only cycles are left: reads one destination from elsewhere. The edits of these moves are
/// those in `out` from `first` on.
fn open_cycle(
    pending: &mut SmallVec<[UnitMove; 16]>,
    idle: Option<PReg>,
    first: usize,
    out: &mut Vec<Edit>,
) {
    let (to, from) = pending[0];
    // A destination outside the cycle may have what this one holds already, unless exchanges
    // have changed that.
    let done = &out[first..];
    let is_exchanged = done.iter().any(|edit| matches!(edit, Edit::Swap { .. }));
    let copied = done.iter().find_map(|edit| match *edit {
        Edit::Move { to: copy, from, .. } if from == to && !is_exchanged => Some(copy),
        _ => None,
    });
    if let Some(copy) = copied {
        for read in pending.iter_mut().filter(|m| m.1 == to) {
            read.1 = copy;
        }
        return;
    }
    match idle.filter(|idle| idle.file == to.file) {
        Some(idle) => {
            out.push(Edit::Move {
                to: idle,
                from: to,
                width: 1,
            });
            for read in pending.iter_mut().filter(|m| m.1 == to) {
                read.1 = idle;
            }
        }
        None => {
            out.push(Edit::Swap {
                a: to,
                b: from,
                width: 1,
            });
            pending.remove(0);
            for read in pending.iter_mut().filter(|m| m.1 == to) {
                read.1 = from;
            }
            pending.retain(|m| m.0 != m.1);
        }
    }
}

/// Joins neighbouring unit moves into aligned wider ones, pairs first.
fn join(out: &mut Vec<Edit>, first: usize) {
    for width in [1u8, 2, 4] {
        let mut kept = first;
        for at in first..out.len() {
            let next = out[at].clone();
            let joined = match kept > first {
                true => joined_pair(&out[kept - 1], &next, width),
                false => None,
            };
            match joined {
                Some(wider) => out[kept - 1] = wider,
                None => {
                    out[kept] = next;
                    kept += 1;
                }
            }
        }
        out.truncate(kept);
    }
}

/// One move for `a` then `b`, if both are `width` wide and side by side, aligned.
fn joined_pair(a: &Edit, b: &Edit, width: u8) -> Option<Edit> {
    let (
        &Edit::Move {
            to: a_to,
            from: a_from,
            width: a_width,
        },
        &Edit::Move {
            to: b_to,
            from: b_from,
            width: b_width,
        },
    ) = (a, b)
    else {
        return None;
    };
    let step = width as usize;
    let aligned = |reg: PReg| (reg.unit as usize).is_multiple_of(2 * step);
    let beside = |low: PReg, high: PReg| low.offset(step) == high && aligned(low);
    let (to, from) = match (
        a_width == width && b_width == width,
        beside(a_to, b_to),
        beside(b_to, a_to),
    ) {
        (true, true, _) if beside(a_from, b_from) => (a_to, a_from),
        (true, _, true) if beside(b_from, a_from) => (b_to, b_from),
        _ => return None,
    };
    Some(Edit::Move {
        to,
        from,
        width: 2 * width,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::File;

    fn run(moves: &[(usize, usize, usize)], idle: Option<usize>) -> (Vec<usize>, Vec<Edit>) {
        let reg = |unit| PReg::new(File::R, unit);
        let moves: Vec<_> = moves.iter().map(|&(t, f, w)| (reg(t), reg(f), w)).collect();
        let mut edits = Vec::new();
        push_moves(&moves, idle.map(reg), &mut edits);
        let mut units: Vec<usize> = (0..32).collect();
        for edit in &edits {
            match *edit {
                Edit::Move { to, from, width } => {
                    let read: Vec<_> = (0..width as usize)
                        .map(|n| units[from.unit as usize + n])
                        .collect();
                    for (n, value) in read.into_iter().enumerate() {
                        units[to.unit as usize + n] = value;
                    }
                }
                Edit::Swap { a, b, .. } => units.swap(a.unit as usize, b.unit as usize),
                ref other => panic!("{other:?} moves nothing"),
            }
        }
        (units, edits)
    }

    #[test]
    fn a_cycle_takes_one_more_move_than_it_has_units_where_one_is_idle() {
        let (units, edits) = run(&[(0, 1, 1), (1, 2, 1), (2, 0, 1)], Some(9));
        assert_eq!(units[..3], [1, 2, 0]);
        assert_eq!(edits.len(), 4);
        let (units, edits) = run(&[(0, 1, 1), (1, 2, 1), (2, 0, 1)], None);
        assert_eq!(units[..3], [1, 2, 0]);
        assert_eq!(edits.len(), 2);
    }

    #[test]
    fn a_cycle_is_opened_where_one_of_its_units_is_copied_to() {
        let (units, edits) = run(&[(5, 0, 1), (0, 1, 1), (1, 0, 1)], Some(9));
        assert_eq!((units[0], units[1], units[5]), (1, 0, 0));
        assert_eq!(edits.len(), 3);
    }

    #[test]
    fn an_aligned_quad_moves_at_once() {
        let (units, edits) = run(&[(8, 4, 4)], None);
        assert_eq!(units[8..12], [4, 5, 6, 7]);
        assert_eq!(edits.len(), 1);
    }

    #[test]
    fn random_moves_agree_with_doing_them_at_once() {
        let mut rng = crate::generate::Rng::new(3);
        for _ in 0..5_000 {
            let (mut moves, mut taken) = (Vec::new(), [false; 24]);
            for _ in 0..rng.within(1..=8) {
                let width = [1, 1, 2, 4][rng.below(4)];
                let to = rng.below(24 / width) * width;
                let from = rng.below(24 / width) * width;
                if taken[to..to + width].iter().any(|&t| t) {
                    continue;
                }
                taken[to..to + width].fill(true);
                moves.push((to, from, width));
            }
            let mut expected: Vec<usize> = (0..24).collect();
            for &(to, from, width) in &moves {
                for n in 0..width {
                    expected[to + n] = from + n;
                }
            }
            for idle in [None, Some(30)] {
                assert_eq!(run(&moves, idle).0[..24], expected, "{moves:?}");
            }
        }
    }
}
