//! Slot colouring: slots whose contents are never needed at the same time share a place.
//!
//! A slot is live from a store to the last reload before the next store, exactly like a
//! value in a register, so liveness is computed by the same analysis over slots instead
//! of values. Its live range is a list of segments of the program in block order; slots
//! take, in the order they first become live, the first place of their size whose
//! segments theirs do not touch.

use crate::allocation::{SlotAddr, Space};
use crate::analysis::Liveness;
use crate::analysis::{Cfg, Code};
use crate::error::Error;
use crate::frame::layout::FrameLayout;
use crate::function::{Block, Role};
use crate::ir::{Op, Program, Slot};
use crate::target::Target;
use cranelift_entity::{EntityRef, SecondaryMap};
use std::collections::BTreeMap;

/// Where every slot lies.
pub struct Layout {
    /// Address of each slot.
    pub places: SecondaryMap<Slot, Option<SlotAddr>>,
    /// The frames, local then shared, open for more slots.
    pub frames: [FrameLayout; 2],
    /// Bytes that sharing saved.
    pub saved: u32,
}

/// Gives each slot of `program` a place.
pub fn lay_out(program: &Program, target: &Target) -> Result<Layout, Error> {
    let mut layout = Layout {
        places: SecondaryMap::new(),
        frames: [
            FrameLayout::new(Space::Local, target),
            FrameLayout::new(Space::Shared, target),
        ],
        saved: 0,
    };
    if program.slots.is_empty() {
        return Ok(layout);
    }
    let mut ranges = live_ranges(program);
    let mut order: Vec<Slot> = program.slots.keys().collect();
    order.retain(|&slot| !ranges[slot.index()].is_empty());
    order.sort_by_key(|&slot| (ranges[slot.index()][0], slot));
    ranges.iter_mut().for_each(join_adjacent);
    let mut shared: BTreeMap<(Space, u32), Vec<Place>> = BTreeMap::new();
    for slot in order {
        let info = &program.slots[slot];
        let bytes = target.spill_bytes(info.class);
        let places = shared.entry((info.space, bytes)).or_default();
        let range = &ranges[slot.index()];
        let addr = match places.iter_mut().find(|place| place.is_free(range)) {
            Some(place) => {
                layout.saved += bytes;
                place.take(range);
                place.addr
            }
            None => {
                let addr = layout.frames[info.space as usize].push(bytes);
                let mut place = Place::new(addr);
                place.take(range);
                places.push(place);
                addr
            }
        };
        layout.places[slot] = Some(addr);
    }
    Ok(layout)
}

/// A segment of program positions, both ends included.
type Interval = (u32, u32);

struct Place {
    addr: SlotAddr,
    /// The occupied segments, ascending; they never overlap.
    taken: Vec<Interval>,
}

impl Place {
    fn new(addr: SlotAddr) -> Place {
        Place {
            addr,
            taken: Vec::new(),
        }
    }

    fn is_free(&self, range: &[Interval]) -> bool {
        range.iter().all(|&(start, end)| {
            let before_end = self.taken.partition_point(|&(taken, _)| taken <= end);
            let last = self.taken[..before_end].last();
            last.is_none_or(|&(_, taken_end)| taken_end < start)
        })
    }

    /// Slots come in the order in which they begin, so that few segments of the others lie
    /// behind the first of `range`: only these are moved.
    fn take(&mut self, range: &[Interval]) {
        let Some(first) = range.first() else {
            return;
        };
        let behind = self.taken.partition_point(|taken| taken < first);
        self.taken.extend_from_slice(range);
        self.taken[behind..].sort();
    }
}

/// Makes segments one of which each begins where the one before ends. What is live through many
/// blocks has one in each of them.
fn join_adjacent(range: &mut Vec<Interval>) {
    range.dedup_by(|next, last| {
        let is_adjacent = next.0 == last.1 + 1;
        if is_adjacent {
            last.1 = next.1;
        }
        is_adjacent
    });
}

/// The segments where each slot's contents are needed, in ascending order.
///
/// A position is an operation's number in block order. A reload at a position reads
/// before a store there writes, but the two never share one, so a store's own position
/// belongs to its segment and a slot reloaded right before it may share its place.
fn live_ranges(program: &Program) -> Vec<Vec<Interval>> {
    let view = SlotView(program);
    let liveness = Liveness::compute(&view);
    let mut ranges: Vec<Vec<Interval>> = vec![Vec::new(); program.slots.len()];
    let mut open: SecondaryMap<Slot, Option<u32>> = SecondaryMap::new();
    let mut base = 0u32;
    for block in view.all_blocks() {
        let ops = &program.blocks[block].ops;
        // One position at each end stands for the block's boundary.
        let end = base + ops.len() as u32 + 1;
        for slot in liveness.live_out(block) {
            open[slot] = Some(end);
        }
        for (index, op) in ops.iter().enumerate().rev() {
            let position = base + 1 + index as u32;
            match op {
                Op::Store { slot, .. } => {
                    let last = open[*slot].take().unwrap_or(position);
                    ranges[slot.index()].push((position, last));
                }
                Op::Reload { slot, .. } => {
                    open[*slot].get_or_insert(position);
                }
                _ => {}
            }
        }
        for slot in liveness.live_in(block) {
            if let Some(last) = open[slot].take() {
                ranges[slot.index()].push((base, last));
            }
        }
        base = end + 1;
    }
    for range in &mut ranges {
        range.sort_unstable();
    }
    ranges
}

/// A program in which only slots are read and written.
struct SlotView<'a>(&'a Program<'a>);

impl Cfg for SlotView<'_> {
    fn block_count(&self) -> usize {
        self.0.block_count()
    }

    fn successors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        self.0.successors(block)
    }

    fn predecessors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        self.0.predecessors(block)
    }
}

impl Code for SlotView<'_> {
    type Value = Slot;
    type Point = (Block, u32);

    fn value_count(&self) -> usize {
        self.0.slots.len()
    }

    fn points(&self, block: Block) -> impl DoubleEndedIterator<Item = (Block, u32)> + '_ {
        self.0.points(block)
    }

    fn accesses(&self, (block, index): (Block, u32)) -> impl Iterator<Item = (Slot, Role)> + '_ {
        let access = match self.0.blocks[block].ops[index as usize] {
            Op::Store { slot, .. } => Some((slot, Role::Def)),
            Op::Reload { slot, .. } => Some((slot, Role::Use)),
            _ => None,
        };
        access.into_iter()
    }

    fn parameters(&self, _: Block) -> impl Iterator<Item = Slot> + '_ {
        std::iter::empty()
    }

    fn arguments(&self, _: Block) -> impl Iterator<Item = Slot> + '_ {
        std::iter::empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{SlotInfo, Value};
    use crate::target::Class;
    use crate::text;

    #[test]
    fn a_slot_that_nothing_touches_takes_no_room() {
        let case = text::parse(
            "target cicc sm_80
             kernel f {
             block0:
                 v0:r32 = load : read
                 use v0 : write
                 exit : exit write
             }",
        )
        .unwrap();
        let mut program = Program::new(&case.function, &case.target, None).unwrap();
        let info = SlotInfo {
            class: Class::R32,
            space: Space::Local,
        };
        let [untouched, slot] = [(); 2].map(|()| program.slots.push(info.clone()));
        let value = Value::new(0);
        let entry = &mut program.blocks[Block::new(0)].ops;
        entry.insert(1, Op::Store { slot, value });
        entry.insert(2, Op::Reload { value, slot });
        let layout = lay_out(&program, &case.target).unwrap();
        assert_eq!(layout.places[untouched], None);
        assert_eq!(layout.places[slot].map(|addr| addr.offset), Some(-4));
        assert_eq!(layout.frames[0].size(), 4);
    }

    #[test]
    fn segments_stay_in_order_whatever_is_taken_first() {
        let mut place = Place::new(SlotAddr {
            space: Space::Local,
            offset: 0,
        });
        place.take(&[(1, 2), (20, 25), (40, 41)]);
        place.take(&[(4, 6), (30, 32), (50, 60)]);
        place.take(&[]);
        place.take(&[(8, 9)]);
        assert!(place.taken.is_sorted());
        assert_eq!(place.taken.len(), 7);
        assert!(
            !place.is_free(&[(9, 10)]) && !place.is_free(&[(10, 20)]),
            "ends count"
        );
        assert!(!place.is_free(&[(3, 3), (31, 31)]));
        assert!(place.is_free(&[(3, 3), (10, 19), (61, 70)]));
    }
}
