//! Memory that one pass leaves to the next, and one function to the next.
//!
//! A pass takes vectors, fills them, and gives them back when nothing refers to them any
//! more. What a vector held is gone by then, so that no result depends on what was there.

use rustc_hash::FxHashMap;
use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};

/// Vectors of one type that are kept at most; more are freed.
const MAX_SPARES: usize = 1024;
/// Bytes that spare vectors have at most; what is given beyond is freed. That is more than
/// functions of some thousand instructions need, for which requests to the heap are dear; a
/// function of a hundred thousand would hold on to memory that its next pass wants in another
/// type.
const MAX_SPARE_BYTES: usize = 1 << 26;

/// Vectors that nobody uses, by the type of their items; those of one type by their capacity.
#[derive(Default)]
pub(crate) struct Scratch {
    spares: RefCell<FxHashMap<TypeId, Box<dyn Any + Send>>>,
    /// Bytes of all spare vectors.
    spare_bytes: Cell<usize>,
}

/// Bytes of heap memory that a vector holds.
fn bytes_of<T>(vec: &Vec<T>) -> usize {
    vec.capacity() * size_of::<T>()
}

impl Scratch {
    /// An empty vector with room for `capacity` items: the smallest spare one that has it, or
    /// else a new one.
    pub fn take<T: Send + 'static>(&self, capacity: usize) -> Vec<T> {
        let spare = self.with_room(capacity);
        spare.unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    /// The smallest spare vector with room for `capacity` items. Where there is none, the
    /// largest is freed: the one that is made instead comes back in its place.
    fn with_room<T: Send + 'static>(&self, capacity: usize) -> Option<Vec<T>> {
        let vec = self.chosen(|spares: &mut Vec<Vec<T>>| {
            let fit = spares.partition_point(|spare| spare.capacity() < capacity);
            match fit < spares.len() {
                true => Some(spares.remove(fit)),
                false => spares.pop(),
            }
        });
        (vec.capacity() >= capacity).then_some(vec)
    }

    /// An empty vector for nobody knows how many items: the largest spare one.
    pub fn growing<T: Send + 'static>(&self) -> Vec<T> {
        self.chosen(Vec::pop)
    }

    /// A vector of `len` items that are all `item`.
    pub fn filled<T: Clone + Send + 'static>(&self, item: T, len: usize) -> Vec<T> {
        match self.with_room(len) {
            Some(mut vec) => {
                vec.resize(len, item);
                vec
            }
            // Zeros need not be written where memory is new.
            None => vec![item; len],
        }
    }

    /// A vector of `items`.
    pub fn collected<T: Send + 'static>(&self, items: impl Iterator<Item = T>) -> Vec<T> {
        let mut vec = self.take(items.size_hint().0);
        vec.extend(items);
        vec
    }

    /// Leaves the memory of `vec` to others.
    pub fn give<T: Send + 'static>(&self, mut vec: Vec<T>) {
        let bytes = self.spare_bytes.get() + bytes_of(&vec);
        if vec.capacity() == 0 || bytes > MAX_SPARE_BYTES {
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
            self.spare_bytes.set(bytes);
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
        let vec = of_type.and_then(choose).unwrap_or_default();
        let left = self.spare_bytes.get() - bytes_of(&vec);
        self.spare_bytes.set(left);
        vec
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
    #[test]
    fn spare_vectors_have_a_bound() {
        let scratch = Scratch::default();
        let half = || vec![0u8; MAX_SPARE_BYTES / 2];
        let (first, second, third) = (half(), half(), half());
        let third_at = third.as_ptr();
        scratch.give(first);
        scratch.give(second);
        scratch.give(vec![0u8]);
        let taken = [(); 2].map(|()| scratch.growing::<u8>());
        assert_eq!(scratch.growing::<u8>().capacity(), 0, "it was freed");
        drop(taken);
        scratch.give(third);
        let again = scratch.growing::<u8>();
        assert_eq!(again.as_ptr(), third_at, "there is room again");
    }
}
