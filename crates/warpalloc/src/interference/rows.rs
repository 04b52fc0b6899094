//! From a log of live sets to sorted rows.
//!
//! A definition makes a value interfere with all values that are live beside it. Written down
//! pair by pair, these would take half as much memory as the rows, and most pairs of one
//! definition are those of the next. So the log has the definitions and the changes of the live
//! set, and is read twice: to count what each row gets, and to fill the rows. A row is sorted
//! by a set of bits, which takes time linear in its length and in the range of its numbers.

use crate::analysis::{LiveSet, Rows};
use crate::ir::Value;
use crate::scratch::Scratch;
use crate::target::File;
use cranelift_entity::EntityRef;

/// Definitions and the live sets around them, in the order in which they are met.
#[derive(Debug)]
pub(super) struct Log {
    /// A kind and a value each; a pair has its second value behind it.
    events: Vec<u32>,
}

/// The value becomes live.
const ENTER: u32 = 0;
/// The value is live no more.
const LEAVE: u32 = 1 << 30;
/// The value interferes with all live values of its file.
const DEFINE: u32 = 2 << 30;
/// The value interferes with the next.
const PAIR: u32 = 3 << 30;
const KIND: u32 = 3 << 30;
/// In place of a value that becomes live: none is live any more.
const NONE: u32 = ENTER | !KIND;

impl Log {
    pub(super) fn new(scratch: &Scratch) -> Log {
        Log {
            events: scratch.growing(),
        }
    }

    pub(super) fn enter(&mut self, value: Value) {
        self.events.push(ENTER | value.as_u32());
    }

    pub(super) fn leave(&mut self, value: Value) {
        self.events.push(LEAVE | value.as_u32());
    }

    pub(super) fn define(&mut self, value: Value) {
        self.events.push(DEFINE | value.as_u32());
    }

    /// Two values of one file; the same value twice does no harm.
    pub(super) fn pair(&mut self, a: Value, b: Value) {
        self.events.extend([PAIR | a.as_u32(), b.as_u32()]);
    }

    /// No value is live any more.
    pub(super) fn clear(&mut self) {
        self.events.push(NONE);
    }

    /// The neighbours of all values, ascending; `file_of` has the file of each.
    pub(super) fn into_rows(self, file_of: &[File], scratch: &Scratch) -> Rows<Value, u32> {
        let values = file_of.len();
        let mut live = Live::new(file_of, scratch);
        let mut starts = scratch.filled(0u32, values + 1);
        live.count(&self.events, &mut starts[1..], scratch);
        for value in 0..values {
            starts[value + 1] += starts[value];
        }
        let mut ends = scratch.collected(starts[..values].iter().copied());
        let mut neighbours = scratch.filled(0u32, starts[values] as usize);
        live.fill(&self.events, &mut ends, &mut neighbours);
        live.recycle(scratch);
        scratch.give(self.events);
        // Rows move together where they stand, for a second copy of a large graph is dear.
        let mut bits = scratch.filled(0u64, values.div_ceil(64));
        let mut count = 0;
        for value in 0..values {
            let row = starts[value] as usize..ends[value] as usize;
            starts[value] = count as u32;
            let (mut low, mut high) = (bits.len(), 0);
            for &neighbour in &neighbours[row] {
                let word = neighbour as usize / 64;
                (low, high) = (low.min(word), high.max(word + 1));
                bits[word] |= 1 << (neighbour % 64);
            }
            bits[value / 64] &= !(1 << (value % 64));
            for (word, bits) in (low..high).zip(&mut bits[low.min(high)..high]) {
                while *bits != 0 {
                    neighbours[count] = word as u32 * 64 + bits.trailing_zeros();
                    *bits &= *bits - 1;
                    count += 1;
                }
            }
        }
        starts[values] = count as u32;
        neighbours.truncate(count);
        scratch.give(bits);
        scratch.give(ends);
        Rows::from_parts(starts, neighbours)
    }
}

/// The live values of each file, as a log is read.
struct Live<'f> {
    file_of: &'f [File],
    files: Vec<LiveSet<Value>>,
}

impl<'f> Live<'f> {
    fn new(file_of: &'f [File], scratch: &Scratch) -> Live<'f> {
        let files = file_of.iter().map(|file| file.index() + 1).max();
        let set = |_| LiveSet::new_in(file_of.len(), scratch);
        Live {
            file_of,
            files: (0..files.unwrap_or(0)).map(set).collect(),
        }
    }

    fn recycle(self, scratch: &Scratch) {
        self.files.into_iter().for_each(|set| set.recycle(scratch));
    }

    /// Adds to `counts` how many neighbours each value gets. A value gets one for each
    /// definition while it is live, which the numbers of definitions before and after tell.
    fn count(&mut self, events: &[u32], counts: &mut [u32], scratch: &Scratch) {
        let mut defined = vec![0u32; self.files.len()];
        let mut since = scratch.filled(0u32, self.file_of.len());
        let mut events = events.iter().copied();
        while let Some(event) = events.next() {
            if event == NONE {
                for (set, &defined) in self.files.iter_mut().zip(&defined) {
                    for value in set.iter().map(|value| value.index()) {
                        counts[value] += defined - since[value];
                    }
                    set.clear();
                }
                continue;
            }
            let value = (event & !KIND) as usize;
            let file = self.file_of[value].index();
            match event & KIND {
                ENTER => {
                    self.files[file].insert(Value::new(value));
                    since[value] = defined[file];
                }
                LEAVE => {
                    self.files[file].remove(Value::new(value));
                    counts[value] += defined[file] - since[value];
                }
                DEFINE => {
                    counts[value] += self.files[file].len() as u32;
                    defined[file] += 1;
                }
                _ => {
                    let other = events.next().unwrap_or_default();
                    counts[value] += 1;
                    counts[other as usize] += 1;
                }
            }
        }
        scratch.give(since);
    }

    /// Writes the neighbours of each value at its end, which moves.
    fn fill(&mut self, events: &[u32], ends: &mut [u32], neighbours: &mut [u32]) {
        let mut add = |value: usize, neighbour: u32| {
            let end = &mut ends[value];
            neighbours[*end as usize] = neighbour;
            *end += 1;
        };
        let mut events = events.iter().copied();
        while let Some(event) = events.next() {
            if event == NONE {
                self.files.iter_mut().for_each(LiveSet::clear);
                continue;
            }
            let number = event & !KIND;
            let value = number as usize;
            let set = &mut self.files[self.file_of[value].index()];
            match event & KIND {
                ENTER => {
                    set.insert(Value::new(value));
                }
                LEAVE => {
                    set.remove(Value::new(value));
                }
                DEFINE => {
                    for other in set.iter() {
                        add(value, other.as_u32());
                        add(other.index(), number);
                    }
                }
                _ => {
                    let other = events.next().unwrap_or_default();
                    add(value, other);
                    add(other as usize, number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_symmetric_sorted_and_without_duplicates() {
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            ((state >> 33) % n) as u32
        };
        const VALUES: usize = 200;
        let scratch = Scratch::default();
        let file_of: Vec<File> = (0..VALUES)
            .map(|value| if value % 3 == 0 { File::P } else { File::R })
            .collect();
        let mut log = Log::new(&scratch);
        let mut live = BTreeSet::new();
        let mut expected = vec![BTreeSet::new(); VALUES];
        let mut join = |a: u32, b: u32| {
            if a != b {
                expected[a as usize].insert(b);
                expected[b as usize].insert(a);
            }
        };
        for _ in 0..3_000 {
            let (value, other) = (next(VALUES as u64), next(VALUES as u64));
            let number = Value::from_u32(value);
            let is_beside = |&other: &u32| file_of[other as usize] == file_of[value as usize];
            match next(8) {
                0..3 if live.insert(value) => log.enter(number),
                3..5 if live.remove(&value) => log.leave(number),
                5 => {
                    log.define(number);
                    let beside = live.iter().copied().filter(is_beside);
                    beside.for_each(|other| join(value, other));
                }
                6 if is_beside(&other) => {
                    log.pair(number, Value::from_u32(other));
                    join(value, other);
                }
                7 if next(20) == 0 => {
                    log.clear();
                    live.clear();
                }
                _ => {}
            }
        }
        log.clear();
        let rows = log.into_rows(&file_of, &scratch);
        for (value, expected) in expected.iter().enumerate() {
            let row = rows.row(Value::new(value));
            assert_eq!(row, expected.iter().copied().collect::<Vec<_>>());
        }
    }
}
