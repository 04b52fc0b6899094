//! Liveness of code that changed in a few places.

use super::{Bits, LOCAL, Liveness, Sets};
use crate::function::Block;
use crate::scratch::Scratch;
use cranelift_entity::EntityRef;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Liveness as it was, with other sets for some blocks.
pub(crate) struct Revision<'a, V> {
    old: &'a Liveness<V>,
    shared: Vec<u32>,
    numbers: Vec<u32>,
    /// The new sets, one after the other.
    sets: Vec<Bits>,
    /// Where the new sets of each block stand, if it has any.
    by_block: FxHashMap<Block, Around>,
}

/// The new sets of one block.
#[derive(Clone, Default)]
struct Around {
    live_in: Option<Range<usize>>,
    live_out: Option<Range<usize>>,
}

/// What comes into sets and what leaves them, in the order of their words.
pub(crate) struct Change(Vec<WordChange>);

#[derive(Clone, Copy)]
struct WordChange {
    word: u32,
    comes: u64,
    leaves: u64,
}

impl<'a, V: EntityRef + Ord + Send + 'static> Revision<'a, V> {
    /// Nothing changed yet.
    pub fn of(old: &'a Liveness<V>) -> Revision<'a, V> {
        Revision {
            old,
            shared: old.sets.shared.clone(),
            numbers: old.sets.numbers.clone(),
            sets: Vec::with_capacity(old.sets.live_in.items().len()),
            by_block: FxHashMap::default(),
        }
    }

    /// The change by which each value is in a set or not.
    pub fn change(&mut self, values: impl Iterator<Item = (V, bool)>) -> Change {
        let mut words: Vec<WordChange> = Vec::new();
        for (value, stays) in values {
            let number = self.number(value);
            let (word, bit) = (number / 64, 1 << (number % 64));
            words.push(WordChange {
                word,
                comes: if stays { bit } else { 0 },
                leaves: if stays { 0 } else { bit },
            });
        }
        words.sort_unstable_by_key(|change| change.word);
        words.dedup_by(|next, last| {
            let same = next.word == last.word;
            if same {
                last.comes |= next.comes;
                last.leaves |= next.leaves;
            }
            same
        });
        Change(words)
    }

    /// The number of a value that may have lived in one block only.
    fn number(&mut self, value: V) -> u32 {
        let number = &mut self.numbers[value.index()];
        if *number == LOCAL {
            *number = self.shared.len() as u32;
            self.shared.push(value.index() as u32);
        }
        *number
    }

    /// Makes `change` in what is live around `block`.
    pub fn alter(&mut self, block: Block, change: &Change) {
        let live_in = self.changed(self.old.live_in_bits(block), change);
        let live_out = self.changed(self.old.live_out_bits(block), change);
        self.by_block.insert(
            block,
            Around {
                live_in: Some(live_in),
                live_out: Some(live_out),
            },
        );
    }

    /// Makes what is live out of `block` what was live into `header`, with `change`, and
    /// what is live into it, if `is_new`, what was live into `header` without.
    pub fn lead_into(&mut self, block: Block, header: Block, change: &Change, is_new: bool) {
        let before = self.old.live_in_bits(header);
        let live_out = Some(self.changed(before, change));
        let live_in = is_new.then(|| {
            let start = self.sets.len();
            self.sets.extend_from_slice(before);
            start..self.sets.len()
        });
        self.by_block.insert(block, Around { live_in, live_out });
    }

    fn changed(&mut self, old: &[Bits], Change(change): &Change) -> Range<usize> {
        let start = self.sets.len();
        let mut old = old.iter().copied().peekable();
        for &WordChange {
            word,
            comes,
            leaves,
        } in change
        {
            while let Some(bits) = old.next_if(|old| old.word < word) {
                self.sets.push(bits);
            }
            let same = old.next_if(|old| old.word == word);
            let bits = same.map_or(0, |old| old.bits) & !leaves | comes;
            if bits != 0 {
                self.sets.push(Bits { word, bits });
            }
        }
        self.sets.extend(old);
        start..self.sets.len()
    }

    /// The sets of code that has `blocks` blocks by now.
    pub fn finish(self, blocks: usize) -> Liveness<V> {
        let sets = &self.sets;
        let of = |block| self.by_block.get(&block);
        let live_in = |block| of(block).and_then(|a| a.live_in.clone().map(|r| &sets[r]));
        let live_out = |block| of(block).and_then(|a| a.live_out.clone().map(|r| &sets[r]));
        Liveness::around(Sets {
            live_in: self
                .old
                .sets
                .live_in
                .replaced_in(blocks, live_in, &Scratch::default()),
            live_out: self
                .old
                .sets
                .live_out
                .replaced_in(blocks, live_out, &Scratch::default()),
            shared: self.shared,
            numbers: self.numbers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Builder, Effect, VReg};
    use crate::target::Class;

    /// Sets are rows of words, and a change is merged into them word by word.
    #[test]
    fn values_change_in_whatever_order_they_are_named() {
        let mut b = Builder::new("f");
        let (entry, end) = (b.block(), b.block());
        let values: Vec<VReg> = (0..70).map(|_| b.vreg(Class::R32)).collect();
        for &v in &values {
            b.inst(entry, "ld").def(v).effect(Effect::Read);
        }
        b.edge(entry, end, &[]);
        b.branch(entry, "bra");
        for &v in &values {
            b.inst(end, "st").use_(v).effect(Effect::Write);
        }
        b.exit(end, "exit");
        let function = b.finish();
        let liveness = Liveness::compute(&function);
        let mut revision = Revision::of(&liveness);
        let change = revision.change([(values[69], false), (values[0], false)].into_iter());
        revision.alter(end, &change);
        let revised = revision.finish(function.block_count());
        let live: Vec<VReg> = revised.live_in(end).collect();
        assert_eq!(live, values[1..69]);
    }
}
