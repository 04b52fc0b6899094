//! Neighbouring accesses to memory as one.
//!
//! Two stores, or two reloads, of four or eight bytes make one of twice the size when they
//! stand at one point, their places lie side by side from an address aligned to the
//! greater size, and their registers do too, in the same order. The second moves up to the
//! first, so nothing between them may touch its register or its slot.

use crate::allocation::{Edit, Frame, SlotAddr};
use crate::cleanup::{Code, Step, memory};
use crate::target::{PReg, Target};

/// Sizes that are doubled, in bytes.
const SIZES: [usize; 2] = [4, 8];
/// How many steps further on to look for a neighbour.
const REACH: usize = 16;

/// Joins the accesses of `code` in a frame of this size; returns how many joined another.
pub(crate) fn run(code: &mut Code, frame: Frame) -> u32 {
    if code.is_frameless() {
        return 0;
    }
    let mut merged = 0;
    let mut lists: Vec<Vec<Step>> = code.lists_mut().map(|(_, l)| std::mem::take(l)).collect();
    for list in lists.iter_mut().filter(|l| has_accesses(code.target, l)) {
        for bytes in SIZES {
            if 2 * bytes <= code.target.widest_access() {
                merged += join_all(code, frame, list, bytes);
            }
        }
    }
    for ((_, place), list) in code.lists_mut().zip(lists) {
        *place = list;
    }
    merged
}

/// Whether there is more than one access to memory among `steps`.
fn has_accesses(target: &Target, steps: &[Step]) -> bool {
    let edits = steps.iter().filter_map(Step::edit);
    edits
        .filter_map(|(_, edit)| memory(target, edit))
        .nth(1)
        .is_some()
}

fn join_all(code: &Code, frame: Frame, steps: &mut Vec<Step>, bytes: usize) -> u32 {
    let mut joined = 0;
    let mut gone = vec![false; steps.len()];
    for first in 0..steps.len() {
        if gone[first] {
            continue;
        }
        if let Some((second, edit)) = partner(code, frame, steps, &gone, first, bytes) {
            if let Step::Edit(_, place) = &mut steps[first] {
                *place = edit;
            }
            gone[second] = true;
            joined += 1;
        }
    }
    let mut gone = gone.into_iter();
    steps.retain(|_| gone.next() != Some(true));
    joined
}

/// A later step at the same point that the step at `first` can absorb, and the result.
fn partner(
    code: &Code,
    frame: Frame,
    steps: &[Step],
    gone: &[bool],
    first: usize,
    bytes: usize,
) -> Option<(usize, Edit)> {
    let Step::Edit(point, edit) = &steps[first] else {
        return None;
    };
    let access = Access::of(code.target, edit, bytes)?;
    let end = steps.len().min(first + 1 + REACH);
    for second in first + 1..end {
        let Step::Edit(other_point, other) = &steps[second] else {
            return None;
        };
        if other_point != point {
            return None;
        }
        if gone[second] {
            continue;
        }
        let both =
            Access::of(code.target, other, bytes).and_then(|other| access.join(other, frame));
        let between = steps[first + 1..second]
            .iter()
            .zip(&gone[first + 1..second]);
        let passed = between.filter(|(_, gone)| !**gone);
        let mut passed = passed.filter_map(|(step, _)| step.edit());
        if let Some(both) = both
            && passed.all(|(_, edit)| commute(code, edit, other))
        {
            return Some((second, both.edit()));
        }
    }
    None
}

/// Whether `other` may run before `edit`.
fn commute(code: &Code, edit: &Edit, other: &Edit) -> bool {
    let (reads, writes) = code.edit_access(edit);
    let (other_reads, other_writes) = code.edit_access(other);
    let apart = |a: &[u32], b: &[u32]| a.iter().all(|x| !b.contains(x));
    apart(&writes, &other_reads) && apart(&reads, &other_writes) && apart(&writes, &other_writes)
}

/// A store or a reload.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub is_store: bool,
    pub addr: SlotAddr,
    pub reg: PReg,
    pub width: u8,
    pub bytes: usize,
}

impl Access {
    /// The access of `edit`, if it is one of this size.
    pub fn of(target: &Target, edit: &Edit, bytes: usize) -> Option<Access> {
        let (is_store, addr, reg, width) = match *edit {
            Edit::Store { to, from, width } => (true, to, from, width),
            Edit::Reload { to, from, width } => (false, from, to, width),
            _ => return None,
        };
        let (_, size) = memory(target, edit)?;
        (size == bytes).then_some(Access {
            is_store,
            addr,
            reg,
            width,
            bytes,
        })
    }

    /// Whether `high` uses the registers right above this one's, and both together are
    /// aligned.
    pub fn is_below(&self, high: &Access) -> bool {
        let width = self.width as usize;
        self.is_store == high.is_store
            && self.width == high.width
            && self.addr.space == high.addr.space
            && self.reg.offset(width) == high.reg
            && (self.reg.unit as usize).is_multiple_of(2 * width)
    }

    fn join(self, other: Access, frame: Frame) -> Option<Access> {
        let (low, high) = match self.addr.offset < other.addr.offset {
            true => (self, other),
            false => (other, self),
        };
        let bytes = low.bytes as i32;
        let from_low_end = low.addr.offset + frame.size(low.addr.space) as i32;
        let beside = low.addr.offset + bytes == high.addr.offset;
        let aligned = from_low_end.rem_euclid(2 * bytes) == 0;
        (low.is_below(&high) && beside && aligned).then_some(Access {
            width: 2 * low.width,
            bytes: 2 * low.bytes,
            ..low
        })
    }

    fn edit(self) -> Edit {
        let Access {
            addr, reg, width, ..
        } = self;
        match self.is_store {
            true => Edit::Store {
                to: addr,
                from: reg,
                width,
            },
            false => Edit::Reload {
                to: reg,
                from: addr,
                width,
            },
        }
    }
}
