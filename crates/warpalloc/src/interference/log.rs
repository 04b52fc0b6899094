//! What is defined and live where, in the order in which it is met.
//!
//! A definition makes a value interfere with all values that are live beside it. Written down
//! pair by pair, these would take half as much memory as the rows, and most pairs of one
//! definition are those of the next. So the log has the definitions and the changes of the live
//! set, and is read twice: to count what each row gets, and to fill the rows.
//!
//! Reading it takes no step per pair: a definition gets the live set as it stands, and a live
//! value the definitions since it became live, which stand one after the other.

use super::rows::{Condition, Neighbours, Staged};
use crate::analysis::LiveSet;
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

    /// The neighbours of all values; `file_of` has the file of each. To these come the
    /// `conditions` between values that do not interfere otherwise.
    pub(super) fn into_rows(
        self,
        file_of: &[File],
        conditions: &[Condition],
        scratch: &Scratch,
    ) -> Neighbours {
        let mut counts = scratch.filled(0u32, file_of.len());
        let mut reader = Reader::new(file_of, scratch);
        reader.read(&self.events, |value, neighbours| {
            counts[value as usize] += neighbours.len() as u32;
        });
        let mut staged = Staged::new(counts, conditions, scratch);
        reader.read(&self.events, |value, neighbours| {
            staged.add(value, neighbours);
        });
        reader.recycle(scratch);
        scratch.give(self.events);
        staged.sorted(conditions, scratch)
    }
}

/// The live values and the definitions of each file, as a log is read.
struct Reader<'f> {
    file_of: &'f [File],
    live: Vec<LiveSet<Value>>,
    /// What was defined so far.
    defined: Vec<Vec<Value>>,
    /// How much of its file had been defined when each value became live.
    since: Vec<u32>,
}

impl<'f> Reader<'f> {
    fn new(file_of: &'f [File], scratch: &Scratch) -> Reader<'f> {
        let files = file_of.iter().map(|file| file.index() + 1).max();
        let files = 0..files.unwrap_or(0);
        let set = |_| LiveSet::new_in(file_of.len(), scratch);
        Reader {
            file_of,
            live: files.clone().map(set).collect(),
            defined: files.map(|_| scratch.growing()).collect(),
            since: scratch.filled(0, file_of.len()),
        }
    }

    fn recycle(self, scratch: &Scratch) {
        self.live.into_iter().for_each(|set| set.recycle(scratch));
        self.defined.into_iter().for_each(|vec| scratch.give(vec));
        scratch.give(self.since);
    }

    /// Calls `add` with each value and some of its neighbours, until all were named, some of them
    /// several times.
    fn read(&mut self, events: &[u32], mut add: impl FnMut(u32, &[Value])) {
        self.defined.iter_mut().for_each(Vec::clear);
        let mut events = events.iter().copied();
        while let Some(event) = events.next() {
            if event == NONE {
                for (live, defined) in self.live.iter_mut().zip(&self.defined) {
                    for value in live.iter() {
                        let since = self.since[value.index()] as usize;
                        add(value.as_u32(), &defined[since..]);
                    }
                    live.clear();
                }
                continue;
            }
            let value = Value::new((event & !KIND) as usize);
            let file = self.file_of[value.index()].index();
            let (live, defined) = (&mut self.live[file], &mut self.defined[file]);
            match event & KIND {
                ENTER => {
                    live.insert(value);
                    self.since[value.index()] = defined.len() as u32;
                }
                LEAVE => {
                    live.remove(value);
                    let since = self.since[value.index()] as usize;
                    add(value.as_u32(), &defined[since..]);
                }
                DEFINE => {
                    add(value.as_u32(), live.as_slice());
                    defined.push(value);
                }
                _ => {
                    let other = Value::new(events.next().unwrap_or_default() as usize);
                    add(value.as_u32(), &[other]);
                    add(other.as_u32(), &[value]);
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
        let rows = log.into_rows(&file_of, &[], &scratch);
        for (value, expected) in expected.iter().enumerate() {
            let row = rows
                .edges(Value::new(value))
                .map(|edge| edge.value.as_u32());
            assert!(row.eq(expected.iter().copied()));
            assert_eq!(rows.degree(Value::new(value)), expected.len());
        }
    }
}
