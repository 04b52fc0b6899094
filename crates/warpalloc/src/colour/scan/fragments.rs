//! What assignment leaves: registers, inserted code, and the fragments of live ranges.

use super::spill::Lists;
use crate::allocation::{Edit, Point};
use crate::cleanup::Inserted;
use crate::function::Inst;
use crate::target::PReg;
use cranelift_entity::EntitySet;

/// A value where blocks meet, and the fragment that it is in there.
pub(super) type Located = (u32, u32);

/// Registers and inserted code.
pub(super) struct Assigned {
    pub registers: Vec<PReg>,
    pub edits: Vec<(Point, Edit)>,
    pub deleted: EntitySet<Inst>,
    pub entry: Lists<Located>,
    pub exit: Lists<Located>,
    /// By block, the edge along which everything is in its place already, if there is one.
    pub continues: Vec<u32>,
    /// Copies, with how often they run.
    pub copies: Vec<(Inst, f32)>,
    /// What is known of `edits` once edges are connected.
    pub inserted: Inserted,
    pub fragments: Vec<Fragment>,
    /// Segments of all fragments in the order in which they start.
    pub segments: Vec<Segment>,
    /// The fragment of each operand, and of the register of each edit.
    pub operands: Vec<u32>,
    pub edited: Vec<u32>,
}

impl Assigned {
    /// Notes that a fragment is live up to `end`.
    #[inline]
    pub fn end(&mut self, fragment: u32, end: u32) {
        let segment = self.fragments[fragment as usize].segment;
        self.segments[segment as usize].end = end;
    }

    /// Goes on with a fragment at `start`.
    #[inline]
    pub fn resume(&mut self, fragment: u32, start: u32) {
        let at = &mut self.fragments[fragment as usize].segment;
        // A block ends where the next one begins.
        if self.segments[*at as usize].end < start {
            *at = self.segments.len() as u32;
            self.segments.push(Segment {
                fragment,
                start,
                end: start,
            });
        }
    }

    /// A new fragment of `value` in `unit`, from `start` on.
    #[inline]
    pub fn begin(&mut self, value: u32, unit: u16, start: u32) -> u32 {
        let fragment = self.fragments.len() as u32;
        self.fragments.push(Fragment {
            value,
            unit,
            is_frozen: false,
            segment: self.segments.len() as u32,
        });
        self.segments.push(Segment {
            fragment,
            start,
            end: start,
        });
        fragment
    }

    #[inline]
    pub fn unit(&self, fragment: u32) -> u16 {
        self.fragments[fragment as usize].unit
    }
}

/// A value in one register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub value: u32,
    pub unit: u16,
    /// A constrained step relies on its register.
    pub is_frozen: bool,
    /// The segment at hand.
    segment: u32,
}

/// From where to where a fragment is in its register, in the order of the walk: two positions
/// per step, for what comes before it has read and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub fragment: u32,
    pub start: u32,
    pub end: u32,
}
