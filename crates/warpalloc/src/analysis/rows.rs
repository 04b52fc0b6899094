//! One list per entity, all in one piece of memory.

use crate::scratch::Scratch;
use cranelift_entity::EntityRef;
use std::marker::PhantomData;
use std::ops::Range;

/// Lists of `T`, one for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rows<K, T> {
    /// `starts[k]..starts[k + 1]` are the items of key `k`.
    starts: Vec<u32>,
    items: Vec<T>,
    key: PhantomData<K>,
}

impl<K: EntityRef, T: Copy + Send + 'static> Rows<K, T> {
    /// Sorts pairs by key, keeping the order of pairs with equal keys: a counting sort,
    /// linear in the number of pairs and keys.
    pub fn from_pairs(keys: usize, pairs: impl Iterator<Item = (K, T)> + Clone) -> Rows<K, T> {
        Rows::from_pairs_in(keys, pairs, &Scratch::default())
    }

    /// The same in memory of `scratch`.
    pub fn from_pairs_in(
        keys: usize,
        pairs: impl Iterator<Item = (K, T)> + Clone,
        scratch: &Scratch,
    ) -> Rows<K, T> {
        let mut starts = scratch.filled(0u32, keys + 1);
        let mut any = None;
        pairs.clone().for_each(|(key, item)| {
            starts[key.index() + 1] += 1;
            any = Some(item);
        });
        for key in 0..keys {
            starts[key + 1] += starts[key];
        }
        let filled = |any| scratch.filled(any, starts[keys] as usize);
        let mut items = any.map_or(Vec::new(), filled);
        // Each start moves to its row's end, which is the next row's start.
        pairs.for_each(|(key, item)| {
            let at = &mut starts[key.index()];
            items[*at as usize] = item;
            *at += 1;
        });
        starts.rotate_right(1);
        starts[0] = 0;
        Rows {
            starts,
            items,
            key: PhantomData,
        }
    }

    /// The same lists for `keys` keys, except where `other` gives one. Keys that have no
    /// list yet get an empty one.
    pub fn replaced_in<'a>(
        &self,
        keys: usize,
        other: impl Fn(K) -> Option<&'a [T]>,
        scratch: &Scratch,
    ) -> Rows<K, T> {
        let mut starts = scratch.take(keys + 1);
        let mut items = scratch.take(self.items.len() + self.items.len() / 4);
        starts.push(0);
        for key in (0..keys).map(K::new) {
            match other(key) {
                Some(list) => items.extend_from_slice(list),
                None if key.index() + 1 < self.starts.len() => {
                    items.extend_from_slice(self.row(key));
                }
                None => {}
            }
            starts.push(items.len() as u32);
        }
        Rows {
            starts,
            items,
            key: PhantomData,
        }
    }

    /// The same lists of what becomes of their items, in memory of `scratch`.
    pub fn filter_mapped(&self, scratch: &Scratch, change: impl Fn(T) -> Option<T>) -> Rows<K, T> {
        let keys = self.starts.len() - 1;
        let mut rows = Rows::with_capacity(keys, self.items.len(), scratch);
        for key in (0..keys).map(K::new) {
            let changed = self.row(key).iter().filter_map(|&item| change(item));
            rows.items.extend(changed);
            rows.starts.push(rows.items.len() as u32);
        }
        rows
    }

    /// No lists yet, with room for `keys` of them and `items` items in all.
    pub fn with_capacity(keys: usize, items: usize, scratch: &Scratch) -> Rows<K, T> {
        let mut starts = scratch.take(keys + 1);
        starts.push(0);
        Rows {
            starts,
            items: scratch.take(items),
            key: PhantomData,
        }
    }

    /// Leaves its memory to others; no key has a list any more.
    pub fn recycle(&mut self, scratch: &Scratch) {
        scratch.give(std::mem::take(&mut self.starts));
        scratch.give(std::mem::take(&mut self.items));
    }

    /// Adds a list, for the next key.
    pub fn push(&mut self, list: &[T]) {
        self.items.extend_from_slice(list);
        self.starts.push(self.items.len() as u32);
    }

    /// The list of `key`.
    pub fn row(&self, key: K) -> &[T] {
        &self.items[self.range(key)]
    }

    /// The list of `key`, its items open to change.
    pub fn row_mut(&mut self, key: K) -> &mut [T] {
        let range = self.range(key);
        &mut self.items[range]
    }

    /// Where the list of `key` stands among all items.
    pub fn range(&self, key: K) -> Range<usize> {
        self.starts[key.index()] as usize..self.starts[key.index() + 1] as usize
    }

    /// The items of all lists.
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::Block;

    #[test]
    fn no_keys_have_no_lists() {
        let scratch = Scratch::default();
        let none: Rows<Block, u32> = Rows::with_capacity(0, 0, &scratch);
        assert_eq!(none, none.replaced_in(0, |_| None, &scratch));
        assert!(none.items().is_empty());
    }
}
