//! Closing gaps in the spill frame.
//!
//! Slots of different sizes leave gaps between them. A profile of the frame says for each
//! word how wide the accesses to it are; each run of words moves down to the first word that
//! is free and suits its alignment, and every store and reload follows. The strictest
//! alignment goes first, which leaves fewer gaps than walking the frame upwards
//! (`docs/sources.md#fatpoint-slot-compaction`).
//!
//! Accesses that overlap move together, so that merged accesses stay merged.

use crate::allocation::{Allocation, Edit, Edits, Frame, SlotAddr, Space};
use crate::function::Function;
use crate::options::{Knobs, Options};
use crate::target::Target;
use std::cmp::Reverse;

/// How spill memory is handed out: a bucket at a time, and nothing straddles two of them
/// that fits into one. Frames are measured to the byte otherwise, which is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Buckets {
    /// Bytes handed out at a time.
    bucket: u32,
    /// Alignment of each bucket.
    align: u32,
    /// The most there may ever be; the limit on frames is stricter.
    max_bytes: u32,
}

impl Buckets {
    /// Small buckets where no cost threshold is set, large ones otherwise.
    fn for_threshold(cost_threshold: f64) -> Buckets {
        let (bucket, align) = if cost_threshold == 0.0 {
            (8, 4)
        } else {
            (16, 16)
        };
        Buckets {
            bucket,
            align,
            max_bytes: 1 << 20,
        }
    }

    /// What `knobs` ask for, if they ask for buckets.
    fn of(knobs: &Knobs) -> Option<Buckets> {
        let setup = Buckets::for_threshold(f64::from(knobs.spill_cost_threshold));
        knobs.spill_buckets.then_some(setup)
    }

    /// Where `bytes` begin, from `start` on, so that they straddle no boundary if they fit
    /// into a bucket.
    fn place(&self, start: u32, bytes: u32) -> u32 {
        let straddles = start / self.bucket != (start + bytes.max(1) - 1) / self.bucket;
        match straddles {
            true => start.next_multiple_of(self.bucket.max(self.align)),
            false => start,
        }
    }
}

/// A run of bytes that moves as one, counted from the frame's low end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) align: u32,
}

impl Run {
    pub(super) fn bytes(&self) -> u32 {
        self.end - self.start
    }
}

/// The runs of bytes of the frame in `space`, ascending: what accesses overlap in is one.
pub(super) fn runs(target: &Target, allocation: &Allocation, space: Space) -> Vec<Run> {
    let size = allocation.frame.size(space) as i32;
    let mut accesses: Vec<Run> = Vec::new();
    for (_, edit) in allocation.edits.iter() {
        let (addr, reg, width) = match *edit {
            Edit::Store { to, from, width } => (to, from, width),
            Edit::Reload { to, from, width } => (from, to, width),
            _ => continue,
        };
        if addr.space == space {
            let bytes = width as u32 * target.file(reg.file).unit_bytes as u32;
            let start = (addr.offset + size) as u32;
            let align = bytes.next_power_of_two().min(target.slot_align());
            accesses.push(Run {
                start,
                end: start + bytes,
                align,
            });
        }
    }
    accesses.sort_unstable_by_key(|run| (run.start, run.end));
    let mut runs: Vec<Run> = Vec::new();
    for access in accesses {
        match runs.last_mut() {
            Some(last) if access.start < last.end => {
                last.end = last.end.max(access.end);
                last.align = last.align.max(access.align);
            }
            _ => runs.push(access),
        }
    }
    runs
}

/// The accesses of `allocation` with each slot where `moved` says.
pub(super) fn relocate(
    function: &Function,
    allocation: &mut Allocation,
    moved: impl Fn(SlotAddr) -> SlotAddr,
) {
    let edits = std::mem::take(&mut allocation.edits);
    let relocated = edits.iter().map(|(point, edit)| {
        let mut edit = edit.clone();
        match &mut edit {
            Edit::Store { to, .. } => *to = moved(*to),
            Edit::Reload { from, .. } => *from = moved(*from),
            _ => {}
        }
        (point, edit)
    });
    allocation.edits = Edits::new(function, relocated.collect());
}

/// Closes the gaps of both frames of `allocation`, in whole buckets where these are asked
/// for, and counts the bytes saved.
pub fn compact(
    function: &Function,
    target: &Target,
    allocation: &mut Allocation,
    options: &Options,
) {
    let buckets = Buckets::of(&options.knobs);
    allocation.stats.compacted_bytes = close_gaps(function, target, allocation, buckets);
}

fn close_gaps(
    function: &Function,
    target: &Target,
    allocation: &mut Allocation,
    buckets: Option<Buckets>,
) -> u32 {
    let before = allocation.frame;
    let spaces = [Space::Local, Space::Shared];
    let maps = spaces.map(|space| Relocation::of(target, allocation, space, buckets));
    if spaces
        .iter()
        .zip(&maps)
        .all(|(&s, map)| map.size == before.size(s))
    {
        return 0;
    }
    relocate(function, allocation, |addr| match addr.space {
        Space::Local => maps[0].moved(addr),
        Space::Shared => maps[1].moved(addr),
        Space::Argument => addr,
    });
    allocation.frame = Frame {
        local: maps[0].size,
        shared: maps[1].size,
    };
    (before.local + before.shared).saturating_sub(maps[0].size + maps[1].size)
}

/// Where each run of one space goes.
struct Relocation {
    old_size: u32,
    size: u32,
    /// Runs in ascending order and their new starts.
    runs: Vec<(Run, u32)>,
}

impl Relocation {
    fn of(
        target: &Target,
        allocation: &Allocation,
        space: Space,
        buckets: Option<Buckets>,
    ) -> Relocation {
        let old_size = allocation.frame.size(space);
        let runs = runs(target, allocation, space);
        // Strictest alignment first leaves no gap between runs of powers of two.
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by_key(|&i| (Reverse(runs[i].align), i));
        let (mut next, mut starts) = (0, vec![0; runs.len()]);
        for i in order {
            let Run { start, end, align } = runs[i];
            let free = next_aligned(next, start, align);
            let inside = buckets.map_or(free, |b| b.place(free, end - start));
            starts[i] = next_aligned(inside, start, align);
            next = starts[i] + (end - start);
        }
        let size = match buckets {
            Some(buckets) => next.next_multiple_of(buckets.bucket),
            None => next.min(old_size),
        };
        if buckets.is_none() && next >= old_size {
            starts = runs.iter().map(|run| run.start).collect();
        }
        Relocation {
            old_size,
            size,
            runs: runs.into_iter().zip(starts).collect(),
        }
    }

    fn moved(&self, addr: SlotAddr) -> SlotAddr {
        let old = (addr.offset + self.old_size as i32) as u32;
        let index = self.runs.partition_point(|(run, _)| run.start <= old);
        let new = match index.checked_sub(1).map(|i| self.runs[i]) {
            Some((run, start)) => start + (old - run.start),
            None => old,
        };
        SlotAddr {
            offset: new as i32 - self.size as i32,
            ..addr
        }
    }
}

/// The least start from `from` on that equals `old` modulo `align`.
fn next_aligned(from: u32, old: u32, align: u32) -> u32 {
    let residue = old % align;
    let base = from.saturating_sub(residue);
    residue + base.div_ceil(align) * align
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_sizes_by_cost_threshold() {
        let row = |t| {
            let s = Buckets::for_threshold(t);
            (s.bucket, s.align, s.max_bytes)
        };
        assert_eq!(row(0.0), (8, 4, 1_048_576));
        assert_eq!(row(-1.0), (16, 16, 1_048_576));
        let large = Buckets::for_threshold(-1.0);
        assert_eq!((large.place(4, 12), large.place(8, 12)), (4, 16));
        assert_eq!(large.place(8, 8), 8);
        let small = Buckets::for_threshold(0.0);
        assert_eq!((small.place(4, 4), small.place(4, 8)), (4, 8));
    }
    use crate::allocation::Point;
    use crate::function::{Builder, Inst};
    use crate::stats::Stats;
    use crate::target::{File, PReg};
    use cranelift_entity::{EntityRef, EntitySet};

    fn frame_of(slots: &[(i32, u8)], size: u32) -> (Function, Target, Allocation) {
        let target = Target::hardware(90).unwrap();
        let mut b = Builder::new("f");
        let block = b.block();
        b.exit(block, "exit");
        let f = b.finish();
        let edits = slots.iter().map(|&(offset, width)| {
            let to = SlotAddr {
                space: Space::Local,
                offset,
            };
            let from = PReg::new(File::R, 0);
            (Point::Before(Inst::new(0)), Edit::Store { to, from, width })
        });
        let allocation = Allocation {
            registers: Vec::new(),
            memory: Vec::new(),
            edits: Edits::new(&f, edits.collect()),
            deleted: EntitySet::new(),
            order: None,
            frame: Frame {
                local: size,
                shared: 0,
            },
            stats: Stats::default(),
        };
        (f, target, allocation)
    }

    fn offsets(allocation: &Allocation) -> Vec<i32> {
        let edits = allocation.edits.iter();
        edits
            .map(|(_, edit)| match edit {
                Edit::Store { to, .. } => to.offset,
                other => panic!("unexpected {other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_gap_is_closed_and_accesses_follow() {
        // From the low end: a word at 0, a pair at 16, a word at 28.
        let (f, target, mut allocation) = frame_of(&[(-32, 1), (-16, 2), (-4, 1)], 32);
        assert_eq!(close_gaps(&f, &target, &mut allocation, None), 16);
        assert_eq!(allocation.frame.local, 16);
        // Pair at 0, words at 8 and 12.
        assert_eq!(offsets(&allocation), [-8, -16, -4]);
    }

    #[test]
    fn overlapping_accesses_move_together() {
        let (f, target, mut allocation) = frame_of(&[(-16, 4), (-8, 1)], 32);
        assert_eq!(close_gaps(&f, &target, &mut allocation, None), 16);
        assert_eq!(offsets(&allocation), [-16, -8]);
    }

    #[test]
    fn a_full_frame_stays_as_it_is() {
        let (f, target, mut allocation) = frame_of(&[(-8, 1), (-4, 1)], 8);
        assert_eq!(close_gaps(&f, &target, &mut allocation, None), 0);
        assert_eq!(offsets(&allocation), [-8, -4]);
    }

    /// Local memory could be laid out in another order, which would gain nothing.
    #[test]
    fn a_full_frame_stays_as_it_is_where_the_other_has_gaps() {
        let (f, target, mut allocation) = frame_of(&[(-16, 1), (-12, 1), (-8, 2)], 16);
        let local = allocation
            .edits
            .iter()
            .map(|(point, edit)| (point, edit.clone()));
        let shared = Edit::Store {
            to: SlotAddr {
                space: Space::Shared,
                offset: -16,
            },
            from: PReg::new(File::R, 0),
            width: 1,
        };
        let shared = (Point::Before(Inst::new(0)), shared);
        allocation.edits = Edits::new(&f, local.chain([shared]).collect());
        allocation.frame.shared = 16;
        assert_eq!(close_gaps(&f, &target, &mut allocation, None), 12);
        assert_eq!(offsets(&allocation), [-16, -12, -8, -4]);
    }

    #[test]
    fn alignment_rounds_up_within_the_old_place() {
        assert_eq!(next_aligned(4, 16, 8), 8);
        assert_eq!(next_aligned(0, 12, 4), 0);
        assert_eq!(next_aligned(5, 16, 16), 16);
        assert_eq!(next_aligned(1, 20, 16), 4);
    }
}
