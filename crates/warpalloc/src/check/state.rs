//! Value numbers in locations, and partitions of them at block boundaries.

use crate::scratch::Scratch;
use crate::target::{File, SpillPath, Target};
use rustc_hash::FxHashMap;

/// A value number. Numbers are never reused, so one that is out of date matches nothing.
pub(super) type Value = u64;

/// What a location holds: nothing known, a value, or a piece of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Content(u64);

impl Content {
    pub(super) const NOTHING: Content = Content(0);

    /// The whole of `value`.
    pub(super) fn whole(value: Value) -> Content {
        Content(value << 16)
    }

    /// What [`Content::pieces`] says is left of `value`.
    pub(super) fn new(value: Value, pieces: u16) -> Content {
        Content(value << 16 | pieces as u64)
    }

    pub(super) fn is_nothing(self) -> bool {
        self == Content::NOTHING
    }

    pub(super) fn value(self) -> Value {
        self.0 >> 16
    }

    /// Which piece of its value this is; 0 for the whole.
    fn pieces(self) -> u16 {
        self.0 as u16
    }

    /// Piece `index` of `count` units that this content takes in another file.
    pub(super) fn unit_piece(self, index: usize, count: usize) -> Content {
        match count {
            1 => self,
            _ => Content(self.0 | (index as u64 + 1)),
        }
    }

    /// Piece `index` of `count` words of memory that this content takes.
    pub(super) fn word_piece(self, index: usize, count: usize) -> Content {
        match count {
            1 => self,
            _ => Content(self.0 | (index as u64 + 1) << 8),
        }
    }

    /// Whether this is a piece in a unit of another file.
    pub(super) fn is_unit_piece(self) -> bool {
        self.0 & 0xff != 0
    }

    /// What this is piece 0 of among units.
    pub(super) fn unit_whole(self, count: usize) -> Content {
        match count {
            1 => self,
            _ => Content(self.0 & !0xff),
        }
    }

    /// What this is piece 0 of among words.
    pub(super) fn word_whole(self, count: usize) -> Content {
        match count {
            1 => self,
            _ => Content(self.0 & !0xff00),
        }
    }
}

/// The partition at the start of a block, in terms of its live parts.
///
/// Classes are numbered densely and each has a part in it.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    /// The class of each live part, in the order of the block's parts.
    pub parts: Vec<u32>,
    /// Locations that hold a live part: location, class, pieces.
    pub locations: Vec<(u32, u32, u16)>,
    /// How many classes there are.
    pub classes: u32,
    /// Equations that hold, ascending.
    pub equations: Vec<u32>,
}

impl Partition {
    /// Leaves its memory to others.
    pub(super) fn recycle(self, scratch: &Scratch) {
        scratch.give(self.parts);
        scratch.give(self.locations);
    }
}

/// The contents of all locations, units first and then words of the frame.
#[derive(Default)]
pub(super) struct Locations {
    contents: Vec<Content>,
    units: usize,
    /// Words that hold something.
    touched: Vec<u32>,
    /// What was overwritten since [`Locations::remember`].
    undo: Vec<(u32, Content)>,
    remembering: bool,
}

impl Locations {
    /// Makes room for so many locations, all holding nothing.
    pub(super) fn reset(&mut self, units: usize, words: usize) {
        self.contents.clear();
        self.contents.resize(units + words, Content::NOTHING);
        self.units = units;
        self.touched.clear();
        self.undo.clear();
        self.remembering = false;
    }

    pub(super) fn clear(&mut self) {
        self.contents[..self.units].fill(Content::NOTHING);
        for word in self.touched.drain(..) {
            self.contents[word as usize] = Content::NOTHING;
        }
    }

    pub(super) fn get(&self, location: usize) -> Content {
        self.contents[location]
    }

    pub(super) fn set(&mut self, location: usize, content: Content) {
        let old = std::mem::replace(&mut self.contents[location], content);
        if location >= self.units && old.is_nothing() {
            self.touched.push(location as u32);
        }
        if self.remembering {
            self.undo.push((location as u32, old));
        }
    }

    /// Remembers the present for [`Locations::restore`].
    pub(super) fn remember(&mut self) {
        self.remembering = true;
    }

    /// Goes back to what was remembered.
    pub(super) fn restore(&mut self) {
        self.remembering = false;
        while let Some((location, old)) = self.undo.pop() {
            self.contents[location as usize] = old;
            if location as usize >= self.units && old.is_nothing() {
                self.touched.pop();
            }
        }
    }

    /// Every location that holds something.
    fn occupied(&self) -> impl Iterator<Item = (u32, Content)> + '_ {
        let units = 0..self.units as u32;
        let all = units.chain(self.touched.iter().copied());
        all.map(|location| (location, self.contents[location as usize]))
            .filter(|(_, content)| !content.is_nothing())
    }
}

/// Turns the values at the end of an edge into partitions; keeps its memory between edges.
#[derive(Default)]
pub(super) struct Meet {
    /// By value, counted from the first of the block that ends: round and class.
    class_of: Vec<(u32, u32)>,
    round: u32,
    /// By class of the partition being refined: the value it has along this edge.
    kept: Vec<Value>,
    split: FxHashMap<(u32, Value), u32>,
}

impl Meet {
    /// Forgets everything but its memory.
    pub(super) fn reset(&mut self) {
        self.class_of.clear();
        self.round = 0;
        self.kept.clear();
        self.split.clear();
    }

    /// The partition of an edge whose live parts have `values`, all of them at least `base`.
    pub(super) fn partition(
        &mut self,
        base: Value,
        values: &[Value],
        locations: &Locations,
        scratch: &Scratch,
    ) -> Partition {
        self.round += 1;
        let mut classes = 0;
        let mut parts = scratch.take(values.len());
        for &value in values {
            let index = (value - base) as usize;
            if self.class_of.len() <= index {
                self.class_of.resize(index + 1, (0, 0));
            }
            let entry = &mut self.class_of[index];
            if entry.0 != self.round {
                *entry = (self.round, classes);
                classes += 1;
            }
            parts.push(entry.1);
        }
        let mut held = scratch.take(values.len());
        for (location, content) in locations.occupied() {
            let index = (content.value() - base) as usize;
            if let Some(&(round, class)) = self.class_of.get(index)
                && round == self.round
            {
                held.push((location, class, content.pieces()));
            }
        }
        Partition {
            parts,
            locations: held,
            classes,
            equations: Vec::new(),
        }
    }

    /// Refines `partition` by an edge; whether that changed it.
    pub(super) fn refine(
        &mut self,
        partition: &mut Partition,
        values: &[Value],
        locations: &Locations,
    ) -> bool {
        let before = (partition.classes, partition.locations.len());
        self.kept.clear();
        self.kept.resize(partition.classes as usize, 0);
        self.split.clear();
        for (class, &value) in partition.parts.iter_mut().zip(values) {
            let kept = &mut self.kept[*class as usize];
            if *kept == 0 {
                *kept = value;
            } else if *kept != value {
                let next = &mut partition.classes;
                *class = *self.split.entry((*class, value)).or_insert_with(|| {
                    *next += 1;
                    *next - 1
                });
            }
        }
        partition.locations.retain_mut(|(location, class, pieces)| {
            let content = locations.get(*location as usize);
            if content.pieces() != *pieces {
                return false;
            }
            if self.kept[*class as usize] == content.value() {
                return true;
            }
            match self.split.get(&(*class, content.value())) {
                Some(&other) => {
                    *class = other;
                    true
                }
                None => false,
            }
        });
        before != (partition.classes, partition.locations.len())
    }
}

/// A file as a bit, for sets of the files that can represent a value.
pub(super) fn file_bit(file: File) -> u32 {
    1 << (file.index() % 32)
}

/// The pieces of memory that the frame is tracked in, counted from its lowest byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    bytes: usize,
}

impl Words {
    /// The largest power of two that divides every unit that reaches memory.
    pub(super) fn of(target: &Target) -> Words {
        let direct = target
            .files()
            .filter(|(_, file)| file.spill == SpillPath::Memory);
        let bits = direct.fold(0, |bits, (_, file)| bits | file.unit_bytes);
        Words {
            bytes: 1 << bits.trailing_zeros().min(4),
        }
    }

    /// Bytes of one word.
    pub(super) fn size(self) -> usize {
        self.bytes
    }

    /// How many words one unit of `file` takes.
    pub(super) fn per_unit(self, target: &Target, file: File) -> usize {
        target.file(file).unit_bytes / self.bytes
    }

    /// How many words a space of `bytes` has.
    pub(super) fn count(self, bytes: u32) -> usize {
        (bytes as usize).div_ceil(self.bytes)
    }

    /// The word that starts at `offset` of a space of `size` bytes.
    pub(super) fn at(self, offset: i32, size: u32) -> usize {
        (size as i64 + offset as i64) as usize / self.bytes
    }
}
