//! One list per entity, all in one piece of memory.

use cranelift_entity::EntityRef;
use std::marker::PhantomData;
use std::ops::Range;

/// Lists of `T`, one for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rows<K, T> {
    /// `starts[k]..starts[k + 1]` are the items of key `k`.
    starts: Vec<usize>,
    items: Vec<T>,
    key: PhantomData<K>,
}

impl<K: EntityRef, T: Copy> Rows<K, T> {
    /// Sorts pairs by key, keeping the order of pairs with equal keys: a counting sort,
    /// linear in the number of pairs and keys.
    pub fn from_pairs(keys: usize, pairs: &[(K, T)]) -> Rows<K, T> {
        let mut starts = vec![0; keys + 1];
        for (key, _) in pairs {
            starts[key.index() + 1] += 1;
        }
        for key in 0..keys {
            starts[key + 1] += starts[key];
        }
        let mut items = match pairs.first() {
            Some(&(_, any)) => vec![any; pairs.len()],
            None => Vec::new(),
        };
        let mut next = starts.clone();
        for &(key, item) in pairs {
            items[next[key.index()]] = item;
            next[key.index()] += 1;
        }
        Rows {
            starts,
            items,
            key: PhantomData,
        }
    }

    /// Puts the lists given for each key one after the other.
    pub fn from_lists<I>(keys: usize, lists: impl Iterator<Item = (K, I)> + Clone) -> Rows<K, T>
    where
        I: ExactSizeIterator<Item = T>,
    {
        let mut starts = vec![0; keys + 1];
        let mut any = None;
        for (key, mut list) in lists.clone() {
            starts[key.index() + 1] += list.len();
            any = any.or_else(|| list.next());
        }
        for key in 0..keys {
            starts[key + 1] += starts[key];
        }
        let mut items = any.map_or(Vec::new(), |any| vec![any; starts[keys]]);
        let mut next = starts.clone();
        for (key, list) in lists {
            let at = &mut next[key.index()];
            let end = *at + list.len();
            for (place, item) in items[*at..end].iter_mut().zip(list) {
                *place = item;
            }
            *at = end;
        }
        Rows {
            starts,
            items,
            key: PhantomData,
        }
    }

    /// The same lists, with each item replaced.
    pub fn map<U: Copy>(&self, change: fn(T) -> U) -> Rows<K, U> {
        Rows {
            starts: self.starts.clone(),
            items: self.items.iter().map(|&item| change(item)).collect(),
            key: PhantomData,
        }
    }

    /// The same lists for `keys` keys, but for those that `other` gives. Keys that have no
    /// list yet get an empty one.
    pub fn replaced<'a>(&self, keys: usize, other: impl Fn(K) -> Option<&'a [T]>) -> Rows<K, T>
    where
        T: 'a,
    {
        let mut starts = Vec::with_capacity(keys + 1);
        let mut items = Vec::with_capacity(self.items.len());
        starts.push(0);
        for key in (0..keys).map(K::new) {
            match other(key) {
                Some(list) => items.extend_from_slice(list),
                None if key.index() + 1 < self.starts.len() => {
                    items.extend_from_slice(self.row(key));
                }
                None => {}
            }
            starts.push(items.len());
        }
        Rows {
            starts,
            items,
            key: PhantomData,
        }
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
        self.starts[key.index()]..self.starts[key.index() + 1]
    }

    /// How many items all lists have together.
    pub fn len(&self) -> usize {
        self.items.len()
    }
}
