//! The equations, sixty-four values at a time.

use super::{Bits, LOCAL, Sets};
use crate::analysis::Code;
use crate::analysis::rows::Rows;
use crate::function::Block;
use crate::scratch::Scratch;
use cranelift_entity::{EntityRef, SecondaryMap, entity_impl};

/// Sixty-four values that are solved together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u32);
entity_impl!(Word);

/// Finds what is live around every block of `code`.
pub(super) fn solve<V: EntityRef + Ord + Send + 'static>(
    code: &impl Code<Value = V>,
    scratch: &Scratch,
) -> Sets {
    let summary = Summary::of(code, scratch);
    let mut walk = Walk::new(code.block_count(), scratch);
    for word in (0..summary.shared.len().div_ceil(64)).map(Word::new) {
        walk.follow(code, &summary, word);
    }
    let rows = |pick: fn(&Found) -> u64| {
        let found = walk.found.iter().filter(|found| pick(found) != 0);
        let bits = found.map(|found| {
            let (word, bits) = (found.word.0, pick(found));
            (found.block, Bits { word, bits })
        });
        Rows::from_pairs_in(code.block_count(), bits, scratch)
    };
    let [live_in, live_out] = [rows(|found| found.live_in), rows(|found| found.live_out)];
    scratch.give(walk.found);
    scratch.give(walk.touched);
    scratch.give(walk.worklist);
    let Summary {
        shared,
        numbers,
        exposed,
        written,
        passed,
    } = summary;
    [exposed, written, passed]
        .into_iter()
        .for_each(|mut rows| rows.recycle(scratch));
    Sets {
        live_in,
        live_out,
        shared,
        numbers,
    }
}

/// What blocks do to the values that outlive a block.
struct Summary {
    /// These values in ascending order, sixty-four to a word.
    shared: Vec<u32>,
    numbers: Vec<u32>,
    /// Blocks that read a value before writing it, with the value's bit.
    exposed: Rows<Word, (Block, u64)>,
    /// Blocks that write a value.
    written: Rows<Word, (Block, u64)>,
    /// Blocks that pass a value along an edge.
    passed: Rows<Word, (Block, u64)>,
}

impl Summary {
    fn of<V: EntityRef + Ord + Send + 'static>(
        code: &impl Code<Value = V>,
        scratch: &Scratch,
    ) -> Summary {
        let mut scan = Scan::of(code, scratch);
        let mut numbers = scratch.filled(LOCAL, code.value_count());
        for &(value, _) in scan.exposed.iter().chain(&scan.passed) {
            numbers[value.index()] = 0;
        }
        let mut shared = scratch.growing();
        for (value, number) in numbers.iter_mut().enumerate() {
            if *number != LOCAL {
                *number = shared.len() as u32;
                shared.push(value as u32);
            }
        }
        scan.written
            .retain(|(value, _)| numbers[value.index()] != LOCAL);
        let by_word = |pairs: &[(V, Block)]| {
            let numbered = pairs.iter().map(|&(v, block)| (numbers[v.index()], block));
            let bits =
                numbered.map(|(number, block)| (Word(number / 64), (block, 1u64 << (number % 64))));
            Rows::from_pairs_in(shared.len().div_ceil(64), bits, scratch)
        };
        let [exposed, written, passed] =
            [&scan.exposed, &scan.written, &scan.passed].map(|pairs| by_word(pairs));
        scan.recycle(scratch);
        Summary {
            exposed,
            written,
            passed,
            shared,
            numbers,
        }
    }
}

/// What each block does to values, found block by block.
struct Scan<V> {
    exposed: Vec<(V, Block)>,
    written: Vec<(V, Block)>,
    passed: Vec<(V, Block)>,
    /// What the last block to touch each value did to it so far: its number plus one, then
    /// a bit that tells whether it wrote the value.
    states: Vec<u32>,
}

const WRITTEN: u32 = 1;

impl<V: EntityRef + Ord + Send + 'static> Scan<V> {
    fn of(code: &impl Code<Value = V>, scratch: &Scratch) -> Scan<V> {
        let mut scan = Scan {
            exposed: scratch.take(code.value_count()),
            written: scratch.take(code.value_count()),
            passed: scratch.growing(),
            states: scratch.filled(0, code.value_count()),
        };
        for block in code.all_blocks() {
            scan.block(code, block);
        }
        scan
    }

    fn recycle(self, scratch: &Scratch) {
        [self.exposed, self.written, self.passed]
            .into_iter()
            .for_each(|pairs| scratch.give(pairs));
        scratch.give(self.states);
    }

    fn block(&mut self, code: &impl Code<Value = V>, block: Block) {
        for value in code.parameters(block) {
            self.write(value, block);
        }
        for point in code.points(block) {
            for (value, _) in code.accesses(point).filter(|(_, role)| role.reads()) {
                self.read(value, block);
            }
            for (value, _) in code.accesses(point).filter(|(_, role)| role.writes()) {
                self.write(value, block);
            }
        }
        for value in code.arguments(block) {
            self.passed.push((value, block));
            self.read(value, block);
        }
    }

    #[inline]
    fn read(&mut self, value: V, block: Block) {
        let stamp = stamp(block);
        let state = &mut self.states[value.index()];
        if *state & !WRITTEN != stamp {
            *state = stamp;
            self.exposed.push((value, block));
        }
    }

    #[inline]
    fn write(&mut self, value: V, block: Block) {
        let written = stamp(block) | WRITTEN;
        let state = &mut self.states[value.index()];
        if *state != written {
            *state = written;
            self.written.push((value, block));
        }
    }
}

fn stamp(block: Block) -> u32 {
    (block.index() as u32 + 1) << 1
}

/// The values of a word that are live around a block.
struct Found {
    word: Word,
    block: Block,
    live_in: u64,
    live_out: u64,
}

/// The walk against the edges, one word after the other.
struct Walk {
    marks: SecondaryMap<Block, Marks>,
    /// Blocks whose marks belong to the current word.
    touched: Vec<Block>,
    worklist: Vec<Block>,
    found: Vec<Found>,
}

/// What is known of one block and the current word.
#[derive(Clone, Copy, Default)]
struct Marks {
    touched: bool,
    queued: bool,
    written: u64,
    live_in: u64,
    live_out: u64,
}

impl Walk {
    fn new(blocks: usize, scratch: &Scratch) -> Walk {
        let mut marks = SecondaryMap::new();
        marks.resize(blocks);
        Walk {
            marks,
            touched: scratch.growing(),
            worklist: scratch.growing(),
            // Most blocks have live values of a few words.
            found: scratch.take(8 * blocks),
        }
    }

    fn follow<V: EntityRef + Ord>(
        &mut self,
        code: &impl Code<Value = V>,
        summary: &Summary,
        word: Word,
    ) {
        for &(block, bit) in summary.written.row(word) {
            self.touch(block).written |= bit;
        }
        for &(block, bit) in summary.passed.row(word) {
            self.touch(block).live_out |= bit;
        }
        for &(block, bit) in summary.exposed.row(word) {
            self.add_live_in(block, bit);
        }
        while let Some(block) = self.worklist.pop() {
            self.marks[block].queued = false;
            let needed = self.marks[block].live_in;
            for pred in code.predecessors(block) {
                let marks = self.touch(pred);
                marks.live_out |= needed;
                let through = needed & !marks.written;
                self.add_live_in(pred, through);
            }
        }
        for block in self.touched.drain(..) {
            let marks = std::mem::take(&mut self.marks[block]);
            if marks.live_in | marks.live_out != 0 {
                self.found.push(Found {
                    word,
                    block,
                    live_in: marks.live_in,
                    live_out: marks.live_out,
                });
            }
        }
    }

    fn touch(&mut self, block: Block) -> &mut Marks {
        let marks = &mut self.marks[block];
        if !marks.touched {
            marks.touched = true;
            self.touched.push(block);
        }
        marks
    }

    fn add_live_in(&mut self, block: Block, bits: u64) {
        let marks = self.touch(block);
        if bits & !marks.live_in != 0 {
            marks.live_in |= bits;
            if !std::mem::replace(&mut marks.queued, true) {
                self.worklist.push(block);
            }
        }
    }
}
