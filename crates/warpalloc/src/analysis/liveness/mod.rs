//! Which values are live where blocks meet.
//!
//! A value is live at a point when some path from there reads it before writing it. The
//! usual equations, solved backwards,
//!
//! ```text
//! in(b)  = exposed(b) ∪ (out(b) − written(b))        parameters of b are written in b
//! out(b) = arguments(b) ∪ ⋃ in(s) over successors s
//! ```
//!
//! keep a set of all values per block: V × B bits, of which nearly all are zero, for most
//! values live and die within one block. Only values that a block reads without having
//! written them take part at all. They are solved sixty-four at a time, one bit each of a
//! word per block: a worklist starts at the blocks that read them and walks against the
//! edges until bits meet blocks that write them or have had them. That is how B. Boissinot
//! et al. find liveness of SSA form one variable at a time ("Computing Liveness Sets for
//! SSA-Form Programs", 2011), but for any code, and values defined side by side, which tend
//! to be live in the same blocks, share their walk. Time and memory are linear in the code
//! plus the sets themselves, and there is no table over values and blocks.
//!
//! The sets are kept as they are found, as words: changes from one block to the next are
//! seen sixty-four values at a time too.
//!
//! Blocks need not be reachable, and a value read before it is ever written is simply live
//! into the entry.

mod live_set;
mod revise;
mod solve;

pub use live_set::LiveSet;
pub(crate) use revise::Revision;

use super::Code;
use super::rows::Rows;
use crate::function::{Block, VReg};
use crate::scratch::Scratch;
use cranelift_entity::EntityRef;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::Arc;

/// The values live into and out of each block.
#[derive(Clone, Debug)]
pub struct Liveness<V = VReg> {
    sets: Arc<Sets>,
    value: PhantomData<fn() -> V>,
}

#[derive(Debug)]
struct Sets {
    /// The values that outlive a block. Their places here are the numbers of their bits.
    shared: Vec<u32>,
    /// The place of each value among the shared, [`LOCAL`] for the others.
    numbers: Vec<u32>,
    live_in: Rows<Block, Bits>,
    live_out: Rows<Block, Bits>,
}

/// The number of a value that lives and dies within blocks.
const LOCAL: u32 = u32::MAX;

/// Some of sixty-four values that are kept together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    word: u32,
    bits: u64,
}

impl<V: EntityRef + Ord + Send + 'static> Liveness<V> {
    /// Solves liveness for `code`.
    pub fn compute(code: &impl Code<Value = V>) -> Liveness<V> {
        Liveness::compute_in(code, &Scratch::default())
    }

    /// The same in memory of `scratch`.
    pub(crate) fn compute_in(code: &impl Code<Value = V>, scratch: &Scratch) -> Liveness<V> {
        Liveness::around(solve::solve(code, scratch))
    }
}

impl<V: EntityRef + Ord> Liveness<V> {
    /// Leaves its memory to others, unless code of another type shares it; the last use.
    pub(crate) fn recycle(&mut self, scratch: &Scratch) {
        if let Some(sets) = Arc::get_mut(&mut self.sets) {
            scratch.give(std::mem::take(&mut sets.shared));
            scratch.give(std::mem::take(&mut sets.numbers));
            sets.live_in.recycle(scratch);
            sets.live_out.recycle(scratch);
        }
    }

    fn around(sets: Sets) -> Liveness<V> {
        Liveness {
            sets: Arc::new(sets),
            value: PhantomData,
        }
    }

    /// The same sets without the values that are `gone`, in memory of `scratch`. The code may
    /// have more values by now, if each of them lives and dies within a block.
    pub(crate) fn without(&self, is_gone: impl Fn(V) -> bool, scratch: &Scratch) -> Liveness<V>
    where
        V: Send + 'static,
    {
        let sets = &*self.sets;
        let left = self.wanted(|value| !is_gone(V::new(value as usize)));
        let thinned = |rows: &Rows<Block, Bits>| {
            rows.filter_mapped(scratch, |Bits { word, bits }| {
                let bits = bits & left[word as usize];
                (bits != 0).then_some(Bits { word, bits })
            })
        };
        Liveness::around(Sets {
            shared: scratch.collected(sets.shared.iter().copied()),
            numbers: scratch.collected(sets.numbers.iter().copied()),
            live_in: thinned(&sets.live_in),
            live_out: thinned(&sets.live_out),
        })
    }

    /// The same sets for code that has the same values under another type.
    pub(crate) fn renamed<U: EntityRef + Ord>(&self) -> Liveness<U> {
        Liveness {
            sets: Arc::clone(&self.sets),
            value: PhantomData,
        }
    }

    /// Values whose contents at the start of `block` are read later. Parameters of `block`
    /// are not among them: they are written there.
    ///
    /// They are in ascending order, except that values which hoisting made outlive a block
    /// come after all others.
    pub fn live_in(&self, block: Block) -> Live<'_, V> {
        self.values(self.live_in_bits(block))
    }

    /// Values whose contents at the end of `block` are read later, arguments of its edges
    /// included, in the order of [`Liveness::live_in`].
    pub fn live_out(&self, block: Block) -> Live<'_, V> {
        self.values(self.live_out_bits(block))
    }

    /// Whether `value` is live into `block`.
    pub fn is_live_in(&self, block: Block, value: V) -> bool {
        self.has(self.live_in_bits(block), value)
    }

    /// Whether `value` is live out of `block`.
    pub fn is_live_out(&self, block: Block, value: V) -> bool {
        self.has(self.live_out_bits(block), value)
    }

    /// How many elements all live-in sets have together.
    pub fn live_in_total(&self) -> usize {
        self.sets.live_in.items().iter().map(Bits::count).sum()
    }

    /// How many elements all live-out sets have together.
    pub(crate) fn live_out_total(&self) -> usize {
        self.sets.live_out.items().iter().map(Bits::count).sum()
    }

    pub(crate) fn live_in_bits(&self, block: Block) -> &[Bits] {
        self.sets.live_in.row(block)
    }

    pub(crate) fn live_out_bits(&self, block: Block) -> &[Bits] {
        self.sets.live_out.row(block)
    }

    /// The values of one set, in the order of their bits.
    pub(crate) fn values<'a>(&'a self, set: &'a [Bits]) -> Live<'a, V> {
        Live {
            shared: &self.sets.shared,
            rest: set.iter(),
            now: Bits { word: 0, bits: 0 },
            value: PhantomData,
        }
    }

    /// The values for which `is_wanted` holds, for [`Liveness::among`].
    pub(crate) fn wanted(&self, is_wanted: impl Fn(u32) -> bool) -> Vec<u64> {
        let words = self.sets.shared.chunks(64).map(|values| {
            let bits = values.iter().enumerate();
            bits.fold(0, |word, (at, &v)| word | u64::from(is_wanted(v)) << at)
        });
        words.collect()
    }

    /// The values of `set` that are among `wanted`.
    pub(crate) fn among<'a>(
        &'a self,
        set: &'a [Bits],
        wanted: &'a [u64],
    ) -> impl Iterator<Item = V> + 'a {
        let common = set.iter().map(|both| Bits {
            word: both.word,
            bits: both.bits & wanted[both.word as usize],
        });
        common.filter(|both| both.bits != 0).flat_map(|both| Live {
            shared: &self.sets.shared,
            rest: [].iter(),
            now: both,
            value: PhantomData,
        })
    }

    /// The values that only one of the two sets has.
    pub(crate) fn only_in_one<'a>(
        &'a self,
        first: &'a [Bits],
        second: &'a [Bits],
    ) -> impl Iterator<Item = V> + 'a {
        differences(first, second).flat_map(|left| Live {
            shared: &self.sets.shared,
            rest: [].iter(),
            now: left,
            value: PhantomData,
        })
    }

    fn has(&self, set: &[Bits], value: V) -> bool {
        let number = self.sets.numbers.get(value.index()).copied();
        let Some(number) = number.filter(|&number| number != LOCAL) else {
            return false;
        };
        let found = set.binary_search_by_key(&(number / 64), |bits| bits.word);
        found.is_ok_and(|at| set[at].bits >> (number % 64) & 1 == 1)
    }
}

/// The words in which two sets differ, and the bits that only one of them has.
fn differences<'a>(
    mut first: &'a [Bits],
    mut second: &'a [Bits],
) -> impl Iterator<Item = Bits> + 'a {
    let next = move || match (first.split_first(), second.split_first()) {
        (Some((a, after_a)), Some((b, after_b))) => {
            let (word, bits) = match a.word.cmp(&b.word) {
                Ordering::Less => (a.word, a.bits),
                Ordering::Equal => (a.word, a.bits ^ b.bits),
                Ordering::Greater => (b.word, b.bits),
            };
            if a.word <= b.word {
                first = after_a;
            }
            if b.word <= a.word {
                second = after_b;
            }
            Some(Bits { word, bits })
        }
        (Some((a, rest)), None) => {
            first = rest;
            Some(*a)
        }
        (None, Some((b, rest))) => {
            second = rest;
            Some(*b)
        }
        (None, None) => None,
    };
    std::iter::from_fn(next).filter(|left| left.bits != 0)
}

impl Bits {
    fn count(&self) -> usize {
        self.bits.count_ones() as usize
    }
}

/// Values that are live at one end of a block.
#[derive(Clone, Debug)]
pub struct Live<'a, V> {
    shared: &'a [u32],
    rest: std::slice::Iter<'a, Bits>,
    now: Bits,
    value: PhantomData<fn() -> V>,
}

impl<V: EntityRef> Iterator for Live<'_, V> {
    type Item = V;

    #[inline]
    fn next(&mut self) -> Option<V> {
        while self.now.bits == 0 {
            self.now = *self.rest.next()?;
        }
        let lowest = self.now.bits.trailing_zeros();
        self.now.bits &= self.now.bits - 1;
        let value = self.shared[(64 * self.now.word + lowest) as usize];
        Some(V::new(value as usize))
    }

    // Of whole words at a time.
    #[inline]
    fn fold<B, F: FnMut(B, V) -> B>(self, init: B, mut add: F) -> B {
        let mut all = init;
        for word in std::iter::once(&self.now).chain(self.rest) {
            let values = self.shared.get(64 * word.word as usize..).unwrap_or(&[]);
            let mut bits = word.bits;
            while bits != 0 {
                let value = values[bits.trailing_zeros() as usize];
                bits &= bits - 1;
                all = add(all, V::new(value as usize));
            }
        }
        all
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = self.rest.clone().map(Bits::count);
        let count = self.now.count() + rest.sum::<usize>();
        (count, Some(count))
    }
}

impl<V: EntityRef> ExactSizeIterator for Live<'_, V> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    /// What is spilled to memory is live between blocks no more, and nothing else changes.
    #[test]
    fn values_that_are_gone_leave_the_others_where_they_were() {
        let case = text::parse(
            "target hardware sm_90
             kernel f {
             block0:
                 v0:r32, v1:r32, v2:r32 = load : read
                 bra -> block1
             block1:
                 use v0, v1 : write
                 use v2 : write
                 exit : exit write
             }",
        )
        .unwrap();
        let liveness = Liveness::compute(&case.function);
        let left = liveness.without(|v: VReg| v.index() == 1, &Scratch::default());
        let body = case.function.blocks().nth(1).unwrap();
        let live: Vec<usize> = left.live_in(body).map(|v| v.index()).collect();
        assert_eq!(live, [0, 2]);
        assert!(!left.is_live_in(body, VReg::new(1)) && left.is_live_in(body, VReg::new(2)));
    }
}
