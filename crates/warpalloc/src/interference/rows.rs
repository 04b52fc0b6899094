//! The neighbours of each value, ascending, as 16-bit steps.
//!
//! A row is nearly always some hundred numbers that are close to each other, so that what is
//! written down of each is how far it is from the one before: half the memory of the numbers
//! themselves, of which a large graph has tens of millions. While rows are filled in no order,
//! a neighbour is its distance from the value whose row it is. What 16 bits do not hold stands
//! apart meanwhile, and has steps in between later.

use super::Edge;
use crate::ir::Value;
use crate::scratch::Scratch;
use cranelift_entity::EntityRef;

/// Rows of neighbours.
#[derive(Clone, Debug)]
pub(super) struct Neighbours {
    /// One for each value, and one that ends the last row.
    heads: Vec<Head>,
    steps: Vec<u16>,
}

/// How a row begins.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// Where its steps stand; they end where those of the next row begin.
    start: u32,
    /// The least neighbour, from which the first step, of zero, leads.
    first: u32,
    degree: u32,
}

/// Set in a step to a neighbour whose edge is conditional.
const CONDITIONAL: u16 = 1 << 15;
/// A step of [`FARTHEST`] to no neighbour.
const SKIP: u16 = u16::MAX;
/// The widest step, so that no conditional one looks like a skip.
const FARTHEST: u32 = (CONDITIONAL - 2) as u32;

impl Neighbours {
    /// How many neighbours `value` has.
    pub(super) fn degree(&self, value: Value) -> usize {
        self.heads[value.index()].degree as usize
    }

    /// The edges of `value`, neighbours in ascending order.
    pub(super) fn edges(&self, value: Value) -> Edges<'_> {
        let (head, next) = (self.heads[value.index()], self.heads[value.index() + 1]);
        Edges {
            at: head.first,
            steps: self.steps[head.start as usize..next.start as usize].iter(),
        }
    }

    /// Leaves its memory to others.
    pub(super) fn recycle(self, scratch: &Scratch) {
        scratch.give(self.heads);
        scratch.give(self.steps);
    }
}

/// The edges of one value.
pub(super) struct Edges<'a> {
    at: u32,
    steps: std::slice::Iter<'a, u16>,
}

impl Iterator for Edges<'_> {
    type Item = Edge;

    #[inline]
    fn next(&mut self) -> Option<Edge> {
        loop {
            let step = *self.steps.next()?;
            let conditional = step >= CONDITIONAL;
            if conditional && step == SKIP {
                self.at += FARTHEST;
                continue;
            }
            self.at += u32::from(step & !CONDITIONAL);
            let value = Value::from_u32(self.at);
            return Some(Edge { value, conditional });
        }
    }
}

/// An edge that is to be added to the row of `of`, unless the two interfere anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Condition {
    pub(super) of: Value,
    pub(super) other: Value,
    /// Whether there is a distance at which the two may overlap.
    pub(super) may_overlap: bool,
}

/// Rows that are being filled.
pub(super) struct Staged {
    /// `starts[v]..starts[v + 1]` is the room for the row of `v`.
    starts: Vec<u32>,
    /// Where the neighbours noted so far end in it.
    ends: Vec<u32>,
    /// How far each neighbour is from its value, [`NEAR`] added.
    distances: Vec<u16>,
    /// Neighbours that are further away, and where the next of the same value stands.
    far: Vec<(u32, u32)>,
    /// The last of these for each value, if there are any.
    last_far: Vec<u32>,
}

/// Neighbours are near that are less than this above a value, or no more than this below.
const NEAR: u32 = 1 << 15;
/// The end of a list.
const NONE: u32 = u32::MAX;

impl Staged {
    /// Rows with room for as many neighbours as `counts` says, and for `conditions`, which are
    /// ascending.
    pub(super) fn new(counts: Vec<u32>, conditions: &[Condition], scratch: &Scratch) -> Staged {
        let mut ends = counts;
        for condition in conditions {
            ends[condition.of.index()] += 1;
        }
        // Skips cover all values at most.
        let skips = ends.len() as u32 / FARTHEST;
        let mut starts = scratch.take(ends.len() + 1);
        let mut start = 0;
        for end in &mut ends {
            starts.push(start);
            start += std::mem::replace(end, start) + skips;
        }
        starts.push(start);
        Staged {
            distances: scratch.filled(0, start as usize),
            last_far: scratch.filled(NONE, ends.len()),
            starts,
            ends,
            far: Vec::new(),
        }
    }

    /// Adds neighbours of `value`; some may be there already.
    pub(super) fn add(&mut self, value: u32, neighbours: &[Value]) {
        let end = &mut self.ends[value as usize];
        let first = *end as usize;
        let distance = |to: Value| to.as_u32().wrapping_sub(value).wrapping_add(NEAR);
        let room = &mut self.distances[first..first + neighbours.len()];
        let mut all = 0;
        for (at, &neighbour) in room.iter_mut().zip(neighbours) {
            let distance = distance(neighbour);
            *at = distance as u16;
            all |= distance;
        }
        if all < 2 * NEAR {
            *end += neighbours.len() as u32;
            return;
        }
        for &neighbour in neighbours {
            match distance(neighbour) {
                near @ 0..0x1_0000 => {
                    self.distances[*end as usize] = near as u16;
                    *end += 1;
                }
                _ => {
                    let last = &mut self.last_far[value as usize];
                    let next = std::mem::replace(last, self.far.len() as u32);
                    self.far.push((neighbour.as_u32(), next));
                }
            }
        }
    }

    /// The rows, each sorted and without duplicates, and the `conditions` among them.
    ///
    /// A row is sorted by a set of bits, which takes time linear in its length and in the range
    /// of its near numbers. Rows move together where they stand, for a second copy of a large
    /// graph is dear.
    pub(super) fn sorted(self, mut conditions: &[Condition], scratch: &Scratch) -> Neighbours {
        let values = self.ends.len();
        let mut set = BitSet::new(values, scratch);
        let mut heads = scratch.take(values + 1);
        let mut writer = Writer {
            steps: self.distances,
            count: 0,
        };
        for value in 0..values as u32 {
            let row = self.starts[value as usize] as usize..self.ends[value as usize] as usize;
            set.insert_near(value, &writer.steps[row]);
            let mut next = self.last_far[value as usize];
            while let Some(&(neighbour, before)) = self.far.get(next as usize) {
                set.insert(neighbour);
                next = before;
            }
            set.remove(value);
            let new = take_new(&mut conditions, value, &set);
            new.iter().for_each(|c| set.insert(c.other.as_u32()));
            let mut row = writer.begin();
            if new.is_empty() {
                set.drain(|neighbour| writer.push(&mut row, neighbour, 0));
            } else {
                let mut overlapping = new.iter().filter(|c| c.may_overlap).peekable();
                set.drain(|neighbour| {
                    let overlaps = overlapping.next_if(|c| c.other.as_u32() == neighbour);
                    let flag = overlaps.map_or(0, |_| CONDITIONAL);
                    writer.push(&mut row, neighbour, flag);
                });
            }
            heads.push(row.head);
        }
        heads.push(writer.begin().head);
        set.recycle(scratch);
        scratch.give(self.starts);
        scratch.give(self.ends);
        scratch.give(self.last_far);
        let Writer { mut steps, count } = writer;
        steps.truncate(count);
        Neighbours { heads, steps }
    }
}

/// Takes the conditions of `value` off the front, and returns those whose other side is not in
/// `set`.
fn take_new<'c>(conditions: &mut &'c [Condition], value: u32, set: &BitSet) -> Vec<&'c Condition> {
    let end = conditions.partition_point(|c| c.of.as_u32() <= value);
    let (of_value, rest) = conditions.split_at(end);
    *conditions = rest;
    let is_new = |c: &&Condition| !set.contains(c.other.as_u32());
    of_value.iter().filter(is_new).collect()
}

/// Rows whose neighbours become steps, in place of the distances that stood there.
struct Writer {
    steps: Vec<u16>,
    /// How many steps there are; behind them stand distances.
    count: usize,
}

/// The row that is being written.
struct RowSoFar {
    head: Head,
    last: u32,
}

impl Writer {
    fn begin(&self) -> RowSoFar {
        let start = self.count as u32;
        let head = Head {
            start,
            ..Head::default()
        };
        RowSoFar { head, last: 0 }
    }

    /// Adds the next neighbour to `row`, its edge with this `flag`.
    #[inline]
    fn push(&mut self, row: &mut RowSoFar, neighbour: u32, flag: u16) {
        if row.head.degree == 0 {
            (row.head.first, row.last) = (neighbour, neighbour);
        }
        row.head.degree += 1;
        let mut step = neighbour - std::mem::replace(&mut row.last, neighbour);
        while step > FARTHEST {
            self.steps[self.count] = SKIP;
            self.count += 1;
            step -= FARTHEST;
        }
        self.steps[self.count] = step as u16 | flag;
        self.count += 1;
    }
}

/// A set of values that is emptied in ascending order.
struct BitSet {
    words: Vec<u64>,
    /// Words that may not be empty, a bit each.
    in_use: Vec<u64>,
}

impl BitSet {
    fn new(values: usize, scratch: &Scratch) -> BitSet {
        let words = values.div_ceil(64);
        BitSet {
            words: scratch.filled(0, words),
            in_use: scratch.filled(0, words.div_ceil(64)),
        }
    }

    fn recycle(self, scratch: &Scratch) {
        scratch.give(self.words);
        scratch.give(self.in_use);
    }

    /// Adds the numbers at these `distances` from `value`, [`NEAR`] added. To note for each word
    /// by itself that it is in use would cost more than to look at all between the outermost.
    fn insert_near(&mut self, value: u32, distances: &[u16]) {
        let (mut least, mut most) = (u16::MAX, 0);
        for &distance in distances {
            (least, most) = (least.min(distance), most.max(distance));
        }
        let number = |distance: u16| (u32::from(distance) + value).wrapping_sub(NEAR);
        for &distance in distances {
            let number = number(distance);
            self.words[number as usize / 64] |= 1 << (number % 64);
        }
        if !distances.is_empty() {
            let (first, last) = (number(least) / 64, number(most) / 64);
            for at in first / 64..=last / 64 {
                let from = first.saturating_sub(at * 64);
                let to = (last - at * 64).min(63);
                self.in_use[at as usize] |= u64::MAX << from & u64::MAX >> (63 - to);
            }
        }
    }

    fn insert(&mut self, number: u32) {
        let word = number as usize / 64;
        self.words[word] |= 1 << (number % 64);
        self.in_use[word / 64] |= 1 << (word % 64);
    }

    fn remove(&mut self, number: u32) {
        self.words[number as usize / 64] &= !(1 << (number % 64));
    }

    fn contains(&self, number: u32) -> bool {
        self.words[number as usize / 64] & 1 << (number % 64) != 0
    }

    /// Takes all numbers out, in ascending order.
    fn drain(&mut self, mut take: impl FnMut(u32)) {
        let chunks = self.words.chunks_mut(64).zip(&mut self.in_use);
        for (chunk, (words, in_use)) in (0..).zip(chunks) {
            while *in_use != 0 {
                let word = in_use.trailing_zeros();
                *in_use &= *in_use - 1;
                let mut bits = std::mem::take(&mut words[word as usize]);
                while bits != 0 {
                    take((64 * chunk + word) * 64 + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neighbours further away than 16 bits reach, some of them named twice, and one that is
    /// conditional and is not, because the two interfere anyway.
    #[test]
    fn rows_reach_as_far_as_there_are_values() {
        const VALUES: u32 = 200_000;
        let numbers = |list: &[u32]| list.iter().map(|&n| Value::from_u32(n)).collect::<Vec<_>>();
        let condition = |of: u32, other: u32, may_overlap| Condition {
            of: Value::from_u32(of),
            other: Value::from_u32(other),
            may_overlap,
        };
        let conditions = [
            condition(70_000, 69_000, true),
            condition(70_000, 150_000, true),
            condition(70_000, 150_001, false),
            condition(70_000, 199_999, true),
        ];
        let scratch = Scratch::default();
        let given = [
            &[199_999, 70_001, 0, 70_000],
            &[36_000, 70_001, 102_767, 102_768][..],
        ];
        let mut counts = vec![0; VALUES as usize];
        counts[70_000] = given.iter().map(|list| list.len() as u32).sum();
        counts[199_999] = 1;
        let mut staged = Staged::new(counts, &conditions, &scratch);
        given
            .iter()
            .for_each(|list| staged.add(70_000, &numbers(list)));
        staged.add(199_999, &numbers(&[70_000]));
        let rows = staged.sorted(&conditions, &scratch);
        let edges = |value| {
            let edges = rows.edges(Value::from_u32(value));
            let edges = edges.map(|edge| (edge.value.as_u32(), edge.conditional));
            edges.collect::<Vec<_>>()
        };
        let expected = [
            (0, false),
            (36_000, false),
            (69_000, true),
            (70_001, false),
            (102_767, false),
            (102_768, false),
            (150_000, true),
            (150_001, false),
            (199_999, false),
        ];
        assert_eq!(edges(70_000), expected);
        assert_eq!(rows.degree(Value::from_u32(70_000)), expected.len());
        assert_eq!(edges(199_999), [(70_000, false)]);
        assert_eq!(edges(0), []);
    }

    /// The widest step, the first that is wider, and both where the edge is conditional.
    #[test]
    fn steps_wider_than_the_widest_are_several() {
        let at = [5, 5 + FARTHEST, 6 + 2 * FARTHEST];
        let far = at.map(|at| at + 3 * FARTHEST);
        for may_overlap in [false, true] {
            let all = at.into_iter().chain(far);
            let conditions: Vec<Condition> = all
                .clone()
                .map(|other| Condition {
                    of: Value::from_u32(1),
                    other: Value::from_u32(other),
                    may_overlap,
                })
                .collect();
            let (scratch, counts) = (Scratch::default(), vec![0; 300_000]);
            let rows = Staged::new(counts, &conditions, &scratch).sorted(&conditions, &scratch);
            let edges = rows.edges(Value::from_u32(1));
            let edges = edges.map(|edge| (edge.value.as_u32(), edge.conditional));
            assert!(edges.eq(all.map(|number| (number, may_overlap))));
        }
    }
}
