//! Which values may not share registers.
//!
//! Two values *interfere* when one is written while the other's contents are still
//! needed. Units decide the rest: interfering values may live anywhere in their file as
//! long as their units are apart, so pairs, quads and packed halves need no edges of their
//! own.
//!
//! *Copies.* A copy does not by itself make its two sides interfere (row A6): right after
//! it both hold the same contents. The edge is not added at the copy; whatever else makes
//! them interfere still does. Where a copy packs or unpacks, a wide value may sit on a
//! narrow one only so that the matching parts coincide: such an edge is *conditional* and
//! carries the one distance at which the two may overlap.
//!
//! *Clobbers.* What an instruction overwrites becomes a set of forbidden units of every
//! value that lives across it.
//!
//! *Representation.* One sorted row of neighbours per value, all in one piece of memory,
//! made from (written, live) pairs by counting sorts: linear in the pairs, and no table
//! over pairs of values. Whoever needs many tests against one value marks its row first;
//! a single test searches the shorter row.

mod build;
mod crowd;
mod places;
mod rows;

pub use build::{CopiedPart, copied_parts};
pub use places::Places;

use crate::program::Value;
use crate::stats::GraphStats;
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use rustc_hash::FxHashMap;

/// Set in a row entry whose edge is conditional.
const CONDITIONAL: u32 = 1 << 31;

/// The interference of a program's values.
#[derive(Clone, Debug)]
pub struct Interference {
    /// `starts[v]..starts[v + 1]` are the neighbours of `v`.
    starts: Vec<u32>,
    neighbours: Vec<u32>,
    /// For conditional edges `(a, b)`: where `b` starts, counted from the start of `a`.
    distances: FxHashMap<(Value, Value), i32>,
    occurring: EntitySet<Value>,
    clobbered: SecondaryMap<Value, Option<Box<Places>>>,
    peaks: Vec<u16>,
}

/// One edge, seen from one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The other end.
    pub value: Value,
    /// Whether the two may overlap at [`Interference::distance`].
    pub conditional: bool,
}

impl Interference {
    /// The edges of `value`, neighbours in ascending order.
    pub fn edges(&self, value: Value) -> impl ExactSizeIterator<Item = Edge> + '_ {
        self.row(value).iter().map(|&entry| Edge {
            value: Value::new((entry & !CONDITIONAL) as usize),
            conditional: entry & CONDITIONAL != 0,
        })
    }

    /// How many values `value` interferes with.
    pub fn degree(&self, value: Value) -> usize {
        self.row(value).len()
    }

    /// Where `b` starts, counted in units from the start of `a`, if that is the one way in
    /// which these interfering values may overlap.
    pub fn distance(&self, a: Value, b: Value) -> Option<i32> {
        if a < b {
            self.distances.get(&(a, b)).copied()
        } else {
            self.distances.get(&(b, a)).map(|d| -d)
        }
    }

    /// Whether `a` and `b` interfere, be it conditionally.
    pub fn interferes(&self, a: Value, b: Value) -> bool {
        let (row, other) = if self.degree(a) <= self.degree(b) {
            (self.row(a), b)
        } else {
            (self.row(b), a)
        };
        let key = other.index() as u32;
        row.binary_search_by_key(&key, |entry| entry & !CONDITIONAL)
            .is_ok()
    }

    /// Whether the program reads or writes `value` anywhere.
    pub fn occurs(&self, value: Value) -> bool {
        self.occurring.contains(value)
    }

    /// Units of its file that are overwritten while `value` is needed.
    pub fn clobbered(&self, value: Value) -> Option<&Places> {
        self.clobbered[value].as_deref()
    }

    /// The most units of its file in use at once while `value` is live.
    pub fn peak(&self, value: Value) -> u32 {
        u32::from(self.peaks[value.index()])
    }

    /// Nodes, edges and degrees.
    pub fn stats(&self) -> GraphStats {
        let degrees = self.starts.windows(2).map(|w| w[1] - w[0]);
        GraphStats {
            nodes: self.occurring.keys().count() as u32,
            edges: self.neighbours.len() as u64 / 2,
            max_degree: degrees.max().unwrap_or(0),
        }
    }

    fn row(&self, value: Value) -> &[u32] {
        let start = self.starts[value.index()] as usize;
        &self.neighbours[start..self.starts[value.index() + 1] as usize]
    }
}
