//! Slots that shared memory has no room for go to local memory.
//!
//! Where the frame in shared memory is limited, the slots whose bytes are accessed most often stay.
//! What accesses overlap in counts as one slot, so that merged accesses stay merged.

use super::compact::{Run, relocate, runs};
use crate::allocation::{Allocation, Edit, Frame, Point, SlotAddr, Space};
use crate::analysis::{Frequencies, Loops, Order};
use crate::function::Function;
use crate::target::Target;

/// Brings the frame of `allocation` in shared memory down to `limit` bytes, if it has more; the
/// frame in local memory grows.
pub fn demote(function: &Function, target: &Target, allocation: &mut Allocation, limit: u32) {
    let before = allocation.frame;
    if before.shared <= limit {
        return;
    }
    let slots = runs(target, allocation, Space::Shared);
    let accesses = accesses(function, allocation, &slots);
    let per_byte = |slot: usize| accesses[slot] / f64::from(slots[slot].bytes());
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by(|&a, &b| per_byte(b).total_cmp(&per_byte(a)));
    let (mut shared, mut local) = (0, 0);
    let mut places = vec![(Space::Local, 0); slots.len()];
    for slot in order {
        let Run { align, .. } = slots[slot];
        let start = u32::next_multiple_of(shared, align);
        places[slot] = if start + slots[slot].bytes() <= limit {
            shared = start + slots[slot].bytes();
            (Space::Shared, start)
        } else {
            let start = u32::next_multiple_of(local, align);
            local = start + slots[slot].bytes();
            (Space::Local, start)
        };
    }
    // What was in local memory before stays above, as far from the base as it was, and as aligned.
    allocation.frame = Frame {
        local: before.local + local.next_multiple_of(target.slot_align()),
        shared,
    };
    let frame = allocation.frame;
    relocate(function, allocation, |addr| match addr.space {
        Space::Shared => {
            let old = (addr.offset + before.shared as i32) as u32;
            let slot = slot_at(&slots, old);
            let (space, start) = places[slot];
            let from_start = start + (old - slots[slot].start);
            SlotAddr {
                space,
                offset: from_start as i32 - frame.size(space) as i32,
            }
        }
        _ => addr,
    });
}

/// How often each slot is accessed in one run of the function.
fn accesses(function: &Function, allocation: &Allocation, slots: &[Run]) -> Vec<f64> {
    let order = Order::compute(function);
    let loops = Loops::compute(function, &order);
    let frequencies = Frequencies::compute(function, &order, &loops);
    let mut accesses = vec![0.0; slots.len()];
    for (point, edit) in allocation.edits.iter() {
        let addr = match edit {
            Edit::Store { to: addr, .. } | Edit::Reload { from: addr, .. } => addr,
            _ => continue,
        };
        if addr.space == Space::Shared {
            let at = (addr.offset + allocation.frame.shared as i32) as u32;
            accesses[slot_at(slots, at)] += match point {
                Point::Before(inst) | Point::After(inst) => {
                    frequencies.block(function.block_of(inst))
                }
                Point::Edge(block, succ) => frequencies.edge(block, succ as usize),
            };
        }
    }
    accesses
}

/// The slot that has the byte `at` from the frame's low end.
fn slot_at(slots: &[Run], at: u32) -> usize {
    slots.partition_point(|slot| slot.start <= at) - 1
}
