//! From runs of neighbours to sorted rows.
//!
//! A definition yields one *run*: the value it writes and all values live beside it. The
//! rows are the symmetric closure of all runs. Transposing a relation whose rows are
//! visited in ascending order leaves ascending rows, and a symmetric relation is its own
//! transpose. Everything but the order of the runs is linear in them.

use crate::analysis::Rows;
use crate::ir::Value;
use crate::scratch::Scratch;

/// Values that interfere, run by run; duplicates and a value's own number do no harm.
#[derive(Debug)]
pub(super) struct Runs {
    /// The value each run is about, and where its neighbours begin.
    heads: Vec<(u32, u32)>,
    items: Vec<u32>,
}

impl Runs {
    /// No runs yet.
    pub(super) fn new(scratch: &Scratch) -> Runs {
        Runs {
            heads: scratch.growing(),
            items: scratch.growing(),
        }
    }

    /// Begins a run about `value`.
    pub(super) fn begin(&mut self, value: u32) {
        self.heads.push((value, self.items.len() as u32));
    }

    /// Adds neighbours to the run begun last.
    pub(super) fn extend(&mut self, items: impl Iterator<Item = u32>) {
        self.items.extend(items);
    }

    /// The neighbours of all values below `values`, ascending.
    pub(super) fn into_rows(self, values: usize, scratch: &Scratch) -> Rows<Value, u32> {
        let mut order = scratch.collected(0..self.heads.len());
        order.sort_by_key(|&run| self.heads[run].0);
        // Room for both directions of each pair, behind an entry that is no value: the first
        // neighbour is compared with it.
        let mut starts = scratch.filled(1u32, values + 1);
        let mut back_starts = scratch.filled(0u32, values + 1);
        starts[0] = 0;
        for (run, &(value, _)) in self.heads.iter().enumerate() {
            let items = self.run(run);
            starts[value as usize + 1] += items.len() as u32;
            for &item in items {
                back_starts[item as usize + 1] += 1;
            }
        }
        for value in 0..values {
            starts[value + 1] += starts[value] + back_starts[value + 1];
            back_starts[value + 1] += back_starts[value];
        }
        let mut back_ends = scratch.collected(back_starts.iter().copied());
        let mut backward = scratch.filled(0u32, back_starts[values] as usize);
        for &run in &order {
            let value = self.heads[run].0;
            for &item in self.run(run) {
                let end = &mut back_ends[item as usize];
                backward[*end as usize] = value;
                *end += 1;
            }
        }
        let mut ends = scratch.collected(starts.iter().map(|start| start + 1));
        let mut neighbours = scratch.filled(u32::MAX, starts[values] as usize + 1);
        let mut add = |value: u32, neighbour: u32| {
            let end = &mut ends[value as usize];
            // A pair that is met again is met next.
            let is_new = neighbours[*end as usize - 1] != neighbour && neighbour != value;
            neighbours[*end as usize] = neighbour;
            *end += u32::from(is_new);
        };
        let mut runs = order.iter().peekable();
        for value in 0..values {
            let number = value as u32;
            while let Some(&run) = runs.next_if(|&&run| self.heads[run].0 == number) {
                self.run(run).iter().for_each(|&item| add(item, number));
            }
            let defined = back_starts[value] as usize..back_starts[value + 1] as usize;
            backward[defined]
                .iter()
                .for_each(|&other| add(other, number));
        }
        scratch.give(order);
        [back_starts, back_ends, backward, self.items]
            .into_iter()
            .for_each(|vec| scratch.give(vec));
        scratch.give(self.heads);
        // Rows move together where they stand, for a second copy of a large graph is dear.
        let mut count = 0;
        for (start, &end) in starts.iter_mut().zip(&ends).take(values) {
            let row = *start as usize + 1..end as usize;
            *start = count as u32;
            count += row.len();
            neighbours.copy_within(row, *start as usize);
        }
        starts[values] = count as u32;
        neighbours.truncate(count);
        scratch.give(ends);
        Rows::from_parts(starts, neighbours)
    }

    fn run(&self, index: usize) -> &[u32] {
        let start = self.heads[index].1 as usize;
        let end = self.heads.get(index + 1);
        &self.items[start..end.map_or(self.items.len(), |next| next.1 as usize)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_entity::EntityRef;
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
        const VALUES: usize = 40;
        let scratch = Scratch::default();
        let mut runs = Runs::new(&scratch);
        let mut expected = vec![BTreeSet::new(); VALUES];
        for _ in 0..60 {
            let value = next(VALUES as u64);
            let others: Vec<u32> = (0..next(6)).map(|_| next(VALUES as u64)).collect();
            for &other in others.iter().filter(|&&other| other != value) {
                expected[value as usize].insert(other);
                expected[other as usize].insert(value);
            }
            runs.begin(value);
            runs.extend(others.into_iter());
        }
        let rows = runs.into_rows(VALUES, &scratch);
        for (value, expected) in expected.iter().enumerate() {
            let row = rows.row(Value::new(value));
            assert_eq!(row, expected.iter().copied().collect::<Vec<_>>());
        }
    }
}
