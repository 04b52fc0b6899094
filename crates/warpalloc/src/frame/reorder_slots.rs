//! Slots in an order in which their accesses can be joined.
//!
//! Slots of one size may change places freely. Two of them belong side by side if they are
//! often stored, or reloaded, at one point from neighbouring registers. The pairs that pay
//! most are tied first, then pairs of pairs, and each bundle goes to a run of places that
//! is free and aligned; a bundle that fits nowhere falls apart again.

use super::merge_accesses::Access;
use crate::allocation::{Edit, Frame, Point, Space};
use crate::analysis::{Frequencies, Loops, Order};
use crate::cleanup::{Code, Step, memory};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Slots of these sizes change places, in bytes.
const SIZES: [usize; 2] = [8, 4];

/// Permutes the slots of each size in a frame of this size.
pub(crate) fn run(code: &mut Code, frame: Frame) {
    if code.is_frameless() {
        return;
    }
    let order = Order::compute(code.function);
    let loops = Loops::compute(code.function, &order);
    let frequencies = Frequencies::compute(code.function, &order, &loops);
    let used = used(code);
    for space in [Space::Local, Space::Shared] {
        for bytes in SIZES
            .into_iter()
            .filter(|&bytes| used.contains(&(space, bytes)))
        {
            let places = places_of_size(code, space, bytes);
            let bundles = bundles(code, &places, space, bytes, &frequencies);
            if bundles.iter().any(|bundle| bundle.len() > 1) {
                let moved = assign(places, bundles, frame.size(space) as i32, bytes as i32);
                relabel(code, space, &moved);
            }
        }
    }
}

/// The spaces that are accessed, and the sizes of accesses to each.
fn used(code: &Code) -> Vec<(Space, usize)> {
    let edits = code
        .lists()
        .flat_map(|(_, steps)| steps)
        .filter_map(Step::edit);
    let mut used = Vec::new();
    for (addr, size) in edits.filter_map(|(_, edit)| memory(code.target, edit)) {
        if !used.contains(&(addr.space, size)) {
            used.push((addr.space, size));
        }
    }
    used
}

/// Offsets that are only ever accessed as a whole of `bytes`.
fn places_of_size(code: &Code, space: Space, bytes: usize) -> BTreeSet<i32> {
    let edits = code
        .lists()
        .flat_map(|(_, steps)| steps)
        .filter_map(Step::edit);
    let memory = edits.filter_map(|(_, edit)| memory(code.target, edit));
    let in_space = memory.filter(|(addr, _)| addr.space == space);
    let accesses: BTreeSet<(i32, usize)> = in_space.map(|(a, size)| (a.offset, size)).collect();
    let mut places = BTreeSet::new();
    let mut covered_to = i32::MIN;
    let mut ranges = accesses.iter().peekable();
    while let Some(&(offset, size)) = ranges.next() {
        let end = offset + size as i32;
        let alone = ranges.peek().is_none_or(|&&(next, _)| next >= end);
        if size == bytes && offset >= covered_to && alone {
            places.insert(offset);
        }
        covered_to = covered_to.max(end);
    }
    places
}

/// Slots that should lie side by side, lowest first; none where another bundle took them.
type Bundle = Vec<i32>;

/// An access to a bundle at some point.
#[derive(Clone, Copy)]
struct Occurrence {
    access: Access,
    bundle: usize,
}

/// All accesses at one point, by kind and register.
struct Meeting {
    frequency: f64,
    occurrences: Vec<Occurrence>,
}

fn bundles(
    code: &Code,
    places: &BTreeSet<i32>,
    space: Space,
    bytes: usize,
    frequencies: &Frequencies,
) -> Vec<Bundle> {
    let mut bundles: Vec<Bundle> = places.iter().map(|&offset| vec![offset]).collect();
    let numbers: FxHashMap<i32, usize> = places.iter().copied().zip(0..).collect();
    let mut meetings = meetings(code, &numbers, space, bytes, frequencies);
    let mut size = bytes;
    while size <= code.target.widest_access() / 2 {
        let pairs = best_pairs(&meetings, bundles.len());
        for meeting in &mut meetings {
            meeting.join(&pairs);
        }
        for (low, &high) in pairs.iter().enumerate() {
            if let Some(high) = high {
                let upper = std::mem::take(&mut bundles[high]);
                bundles[low].extend(upper);
            }
        }
        size *= 2;
    }
    bundles
}

/// The accesses of this size, point by point.
fn meetings(
    code: &Code,
    numbers: &FxHashMap<i32, usize>,
    space: Space,
    bytes: usize,
    frequencies: &Frequencies,
) -> Vec<Meeting> {
    let mut meetings: Vec<Meeting> = Vec::new();
    let mut at: Option<Point> = None;
    for (block, steps) in code.lists() {
        for (point, edit) in steps.iter().filter_map(Step::edit) {
            let access = Access::of(code.target, edit, bytes).filter(|a| a.addr.space == space);
            let Some(access) = access else { continue };
            let Some(&bundle) = numbers.get(&access.addr.offset) else {
                continue;
            };
            if at.replace(point) != Some(point) {
                meetings.push(Meeting {
                    frequency: frequencies.block(block),
                    occurrences: Vec::new(),
                });
            }
            if let Some(meeting) = meetings.last_mut() {
                meeting.occurrences.push(Occurrence { access, bundle });
            }
        }
    }
    for meeting in &mut meetings {
        let key = |o: &Occurrence| (o.access.is_store, o.access.reg, o.bundle);
        meeting.occurrences.sort_unstable_by_key(key);
    }
    meetings
}

/// For each bundle the one to put right above it, the most frequent pairs first.
fn best_pairs(meetings: &[Meeting], bundles: usize) -> Vec<Option<usize>> {
    let mut gains: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for meeting in meetings {
        for pair in meeting.occurrences.windows(2) {
            if pair[0].access.is_below(&pair[1].access) && pair[0].bundle != pair[1].bundle {
                *gains.entry((pair[0].bundle, pair[1].bundle)).or_default() += meeting.frequency;
            }
        }
    }
    let mut by_gain: Vec<((usize, usize), f64)> = gains.into_iter().collect();
    by_gain.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut taken = vec![false; bundles];
    let mut above = vec![None; bundles];
    for ((low, high), _) in by_gain {
        if !taken[low] && !taken[high] {
            (taken[low], taken[high]) = (true, true);
            above[low] = Some(high);
        }
    }
    above
}

impl Meeting {
    /// Joins the accesses to bundles that were paired.
    fn join(&mut self, above: &[Option<usize>]) {
        let mut joined = Vec::with_capacity(self.occurrences.len());
        let mut rest = &self.occurrences[..];
        while let [first, others @ ..] = rest {
            rest = others;
            let upper = others.first().filter(|next| {
                above[first.bundle] == Some(next.bundle) && first.access.is_below(&next.access)
            });
            if upper.is_some() {
                let mut both = *first;
                both.access.width *= 2;
                both.access.bytes *= 2;
                joined.push(both);
                rest = &others[1..];
            }
        }
        self.occurrences = joined;
    }
}

/// A new place for every slot, bundles on aligned runs of places.
fn assign(
    mut free: BTreeSet<i32>,
    mut bundles: Vec<Bundle>,
    frame: i32,
    bytes: i32,
) -> FxHashMap<i32, i32> {
    let mut moved = FxHashMap::default();
    let lengths = bundles.iter().map(|bundle| bundle.len() as i32);
    let mut size = lengths.max().unwrap_or(0);
    while size >= 1 {
        let starts: Vec<i32> = free.iter().copied().collect();
        let mut starts = starts.into_iter();
        let (now, later): (Vec<_>, Vec<_>) = bundles
            .into_iter()
            .partition(|bundle| bundle.len() as i32 == size);
        bundles = later;
        for bundle in now {
            let run = starts.find(|&start| {
                let aligned = (start + frame).rem_euclid(size * bytes) == 0;
                aligned && (0..size).all(|i| free.contains(&(start + i * bytes)))
            });
            match run {
                Some(start) => {
                    for (i, slot) in (0..size).zip(bundle) {
                        free.remove(&(start + i * bytes));
                        moved.insert(slot, start + i * bytes);
                    }
                }
                None => {
                    let (low, high) = bundle.split_at(bundle.len() / 2);
                    bundles.extend([low.to_vec(), high.to_vec()]);
                }
            }
        }
        size /= 2;
    }
    moved
}

/// Sends the accesses to `space` to the new places, which are the old ones in another order.
/// What moved is accessed as a whole only.
fn relabel(code: &mut Code, space: Space, moved: &FxHashMap<i32, i32>) {
    for step in code.lists_mut().flat_map(|(_, steps)| steps) {
        if let Step::Edit(_, Edit::Store { to: addr, .. } | Edit::Reload { from: addr, .. }) = step
            && addr.space == space
            && let Some(&offset) = moved.get(&addr.offset)
        {
            addr.offset = offset;
        }
    }
}
