//! From runs of neighbours to sorted rows.
//!
//! A definition yields one *run*: the value it writes and all values live beside it. The
//! rows are the symmetric closure of all runs. Transposing a relation whose rows are
//! visited in ascending order leaves ascending rows, so transposing twice sorts, and each
//! row is then merged from the two directions. Everything is linear in the runs.

/// Values that interfere, run by run; duplicates and a value's own number do no harm.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// The value each run is about, and where its neighbours begin.
    heads: Vec<(u32, u32)>,
    items: Vec<u32>,
}

impl Runs {
    /// Begins a run about `value`.
    pub(super) fn begin(&mut self, value: u32) {
        self.heads.push((value, self.items.len() as u32));
    }

    /// Adds neighbours to the run begun last.
    pub(super) fn extend(&mut self, items: impl Iterator<Item = u32>) {
        self.items.extend(items);
    }

    /// The rows of all values below `values`: where each begins, and the neighbours.
    pub(super) fn into_rows(self, values: usize) -> (Vec<u32>, Vec<u32>) {
        let forward = self.grouped(values);
        drop(self);
        let backward = forward.transposed();
        let forward = backward.transposed();
        merged(&forward, &backward)
    }

    /// The runs of each value together, without duplicates.
    fn grouped(&self, values: usize) -> Relation {
        let mut first = vec![0u32; values + 1];
        for &(value, _) in &self.heads {
            first[value as usize + 1] += 1;
        }
        accumulate(&mut first);
        let mut next = first.clone();
        let mut order = vec![0u32; self.heads.len()];
        for (index, &(value, _)) in self.heads.iter().enumerate() {
            order[next[value as usize] as usize] = index as u32;
            next[value as usize] += 1;
        }
        let mut starts = Vec::with_capacity(values + 1);
        let mut items = Vec::with_capacity(self.items.len());
        let mut seen = vec![u32::MAX; values];
        starts.push(0);
        for value in 0..values as u32 {
            seen[value as usize] = value;
            let runs = first[value as usize] as usize..first[value as usize + 1] as usize;
            for &run in &order[runs] {
                for &item in self.run(run as usize) {
                    if seen[item as usize] != value {
                        seen[item as usize] = value;
                        items.push(item);
                    }
                }
            }
            starts.push(items.len() as u32);
        }
        Relation { starts, items }
    }

    fn run(&self, index: usize) -> &[u32] {
        let start = self.heads[index].1 as usize;
        let end = self.heads.get(index + 1);
        &self.items[start..end.map_or(self.items.len(), |next| next.1 as usize)]
    }
}

/// Rows of one direction.
struct Relation {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Relation {
    fn row(&self, value: usize) -> &[u32] {
        &self.items[self.starts[value] as usize..self.starts[value + 1] as usize]
    }

    /// The other direction, in ascending rows.
    fn transposed(&self) -> Relation {
        let mut starts = vec![0u32; self.starts.len()];
        for &item in &self.items {
            starts[item as usize + 1] += 1;
        }
        accumulate(&mut starts);
        let mut next = starts.clone();
        let mut items = vec![0u32; self.items.len()];
        for value in 0..self.starts.len() - 1 {
            for &item in self.row(value) {
                let at = &mut next[item as usize];
                items[*at as usize] = value as u32;
                *at += 1;
            }
        }
        Relation { starts, items }
    }
}

fn accumulate(counts: &mut [u32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}

/// The union of two relations with ascending rows.
fn merged(a: &Relation, b: &Relation) -> (Vec<u32>, Vec<u32>) {
    let values = a.starts.len() - 1;
    let mut starts = Vec::with_capacity(values + 1);
    let mut items = Vec::with_capacity(a.items.len() + b.items.len());
    starts.push(0);
    for value in 0..values {
        let (mut x, mut y) = (a.row(value), b.row(value));
        while let (Some(&left), Some(&right)) = (x.first(), y.first()) {
            items.push(left.min(right));
            x = &x[(left <= right) as usize..];
            y = &y[(right <= left) as usize..];
        }
        items.extend_from_slice(x);
        items.extend_from_slice(y);
        starts.push(items.len() as u32);
    }
    (starts, items)
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
        const VALUES: usize = 40;
        let mut runs = Runs::default();
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
        let (starts, items) = runs.into_rows(VALUES);
        for (value, expected) in expected.iter().enumerate() {
            let row = &items[starts[value] as usize..starts[value + 1] as usize];
            assert_eq!(row, expected.iter().copied().collect::<Vec<_>>());
        }
    }
}
