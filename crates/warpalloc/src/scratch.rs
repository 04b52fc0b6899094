//! Memory that one pass leaves to the next, and one function to the next.
//!
//! A pass takes vectors, fills them, and gives them back when nothing refers to them any
//! more. What a vector held is gone by then, so that no result depends on what was there.

use rustc_hash::FxHashMap;
use std::any::{Any, TypeId};
use std::cell::RefCell;

/// Vectors of one type that are kept at most; more are freed.
const MAX_SPARES: usize = 1024;

/// Vectors that nobody uses, by the type of their items; those of one type by their capacity.
#[derive(Default)]
pub(crate) struct Scratch {
    spares: RefCell<FxHashMap<TypeId, Box<dyn Any + Send>>>,
}

impl Scratch {
    /// An empty vector with room for `capacity` items: the smallest spare one that has it,
    /// or else the largest, made larger.
    pub fn take<T: Send + 'static>(&self, capacity: usize) -> Vec<T> {
        let mut vec = self.chosen(|spares: &mut Vec<Vec<T>>| {
            let fit = spares.partition_point(|spare| spare.capacity() < capacity);
            match fit < spares.len() {
                true => Some(spares.remove(fit)),
                false => spares.pop(),
            }
        });
        vec.reserve(capacity);
        vec
    }

    /// An empty vector for nobody knows how many items: the largest spare one.
    pub fn growing<T: Send + 'static>(&self) -> Vec<T> {
        self.chosen(Vec::pop)
    }

    /// A vector of `len` items that are all `item`.
    pub fn filled<T: Clone + Send + 'static>(&self, item: T, len: usize) -> Vec<T> {
        let mut vec = self.take(len);
        vec.resize(len, item);
        vec
    }

    /// A vector of `items`.
    pub fn collected<T: Send + 'static>(&self, items: impl Iterator<Item = T>) -> Vec<T> {
        let mut vec = self.take(items.size_hint().0);
        vec.extend(items);
        vec
    }

    /// Leaves the memory of `vec` to others.
    pub fn give<T: Send + 'static>(&self, mut vec: Vec<T>) {
        if vec.capacity() == 0 {
            return;
        }
        vec.clear();
        let mut spares = self.spares.borrow_mut();
        let of_type = spares.entry(TypeId::of::<T>());
        let of_type = of_type.or_insert_with(|| Box::new(Vec::<Vec<T>>::new()));
        if let Some(of_type) = of_type.downcast_mut::<Vec<Vec<T>>>()
            && of_type.len() < MAX_SPARES
        {
            let at = of_type.partition_point(|spare| spare.capacity() < vec.capacity());
            of_type.insert(at, vec);
        }
    }

    /// The spare vector that `choose` takes out, or else one without memory.
    fn chosen<T: Send + 'static>(
        &self,
        choose: impl FnOnce(&mut Vec<Vec<T>>) -> Option<Vec<T>>,
    ) -> Vec<T> {
        let mut spares = self.spares.borrow_mut();
        let of_type = spares.get_mut(&TypeId::of::<T>());
        let of_type = of_type.and_then(|of_type| of_type.downcast_mut());
        of_type.and_then(choose).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_given_back_is_handed_out_empty() {
        let scratch = Scratch::default();
        let (small, large) = (scratch.filled(7u32, 10), scratch.filled(7u32, 1000));
        let (small_at, large_at) = (small.as_ptr(), large.as_ptr());
        scratch.give(large);
        scratch.give(small);
        let vec = scratch.take::<u32>(5);
        assert!(vec.is_empty());
        assert_eq!(vec.as_ptr(), small_at, "the smallest with room");
        scratch.give(vec);
        let vec = scratch.growing::<u32>();
        assert_eq!(vec.as_ptr(), large_at, "the largest");
        assert_eq!(scratch.filled(1u32, 12), [1; 12]);
        assert_eq!(scratch.take::<u64>(0).capacity(), 0, "another type");
    }
}
