//! Coalescing: joining clusters along affinities.
//!
//! Affinities are taken most frequent first. Two clusters become one when their filter bits
//! allow it, the result stays within the limits on fan-out, depth and width, and no two
//! members that would share a unit are ever live at once: a look-up by program point, no
//! graph. One overlap is harmless: a value made for a constraint that is only read holds,
//! while it is live, exactly what it was copied from, and may lie within it.
//!
//! Joining is optimistic. A cluster that then finds no register falls apart again
//! (after Park and Moon, TOPLAS 2004). Its parts may find none either, where other clusters stand
//! in their way; before anything is spilled, values are evicted from these.

use super::affinity::Affinity;
use super::cluster::{Cluster, ClusterInfo, Clusters};
use super::constraint::{chain, is_restricted};
use crate::ir::{LiveRanges, Origin, Program, Value};
use crate::options::Knobs;
use crate::target::{Target, UnitSet};

/// What coalescing needs to look at.
pub struct Coalescer<'a> {
    program: &'a Program<'a>,
    target: &'a Target,
    ranges: &'a LiveRanges,
    knobs: &'a Knobs,
}

impl<'a> Coalescer<'a> {
    /// A coalescer for `program`.
    pub fn new(
        program: &'a Program<'a>,
        target: &'a Target,
        ranges: &'a LiveRanges,
        knobs: &'a Knobs,
    ) -> Coalescer<'a> {
        Coalescer {
            program,
            target,
            ranges,
            knobs,
        }
    }

    /// Joins what may be joined, and keeps the other hints.
    pub fn run(&self, clusters: &mut Clusters, affinities: &[Affinity]) {
        if self.knobs.coalescing {
            for affinity in affinities.iter().filter(|a| a.filter.allows_join()) {
                self.consider(clusters, affinity);
            }
        }
        clusters.keep_hints(self.ranges, affinities);
    }

    fn consider(&self, clusters: &mut Clusters, affinity: &Affinity) {
        let &Affinity {
            to, from, shift, ..
        } = affinity;
        let (Some(a), Some(b)) = (clusters.of(to), clusters.of(from)) else {
            return;
        };
        if a == b {
            return;
        }
        // Where `b` starts, seen from the start of `a`.
        let shift = clusters.offset(to) as i32 + shift - clusters.offset(from) as i32;
        let (a, b, shift) = match shift < 0 {
            true => (b, a, -shift),
            false => (a, b, shift),
        };
        let within = self.lies_within(to, from).then_some(to);
        if self.may_join(clusters, (a, b), shift as u16, within, affinity) {
            clusters.join(a, b, shift as u16, within);
        }
    }

    /// Whether `seat` only ever repeats what `real` holds, while `real` holds it.
    fn lies_within(&self, seat: Value, real: Value) -> bool {
        let info = &self.program.values[seat];
        let is_seat = matches!(info.origin, Origin::Constraint(_));
        // What its instruction writes holds something new after it.
        is_seat && !info.is_result && self.ranges.is_within(seat, real)
    }

    fn may_join(
        &self,
        clusters: &Clusters,
        (a, b): (Cluster, Cluster),
        shift: u16,
        within: Option<Value>,
        affinity: &Affinity,
    ) -> bool {
        let (ia, ib) = (clusters.info(a), clusters.info(b));
        self.is_small_enough(ia, ib, shift)
            && shift.is_multiple_of(ib.align)
            && self.is_apart(ia, ib, shift, within.map(|seat| (seat, affinity.from)))
            && self.has_place(ia, ib, shift)
    }

    fn is_small_enough(&self, a: &ClusterInfo, b: &ClusterInfo, shift: u16) -> bool {
        let per_register = self.target.file(a.file).units_per_reg;
        let width = a.width.max(shift + b.width) as usize;
        let widest = self.knobs.coalesce_max_width as usize * per_register;
        a.file == b.file
            && a.fixed.is_none()
            && b.fixed.is_none()
            && width <= widest.max(a.width.max(b.width) as usize)
            && a.members.len() + b.members.len() <= self.knobs.coalesce_max_fanout as usize
            && u32::from(a.depth.max(b.depth)) < self.knobs.coalesce_max_depth
    }

    /// Whether no two members that would share a unit are ever live at once.
    fn is_apart(
        &self,
        a: &ClusterInfo,
        b: &ClusterInfo,
        shift: u16,
        harmless: Option<(Value, Value)>,
    ) -> bool {
        a.members.iter().filter(|m| !m.silent).all(|x| {
            b.members.iter().filter(|m| !m.silent).all(|y| {
                let (x_start, y_start) = (x.offset, y.offset + shift);
                let share_units = x_start < y_start + self.ranges.size(y.value).width
                    && y_start < x_start + self.ranges.size(x.value).width;
                let pair = Some((x.value, y.value));
                let exempt = harmless == pair || harmless.map(|(s, r)| (r, s)) == pair;
                !share_units || exempt || !self.ranges.overlap(x.value, y.value)
            })
        })
    }

    /// Whether some start satisfies everything that restricts either side. Only values
    /// that are kept out of registers can leave none.
    fn has_place(&self, a: &ClusterInfo, b: &ClusterInfo, shift: u16) -> bool {
        let restricted = |info| is_restricted(self.program, self.ranges, info);
        if !restricted(a) && !restricted(b) {
            return true;
        }
        let units = self.target.file(a.file).units;
        let width = a.width.max(shift + b.width) as usize;
        let mut starts: UnitSet<8> = UnitSet::first((units + 1).saturating_sub(width));
        for (info, down) in [(a, 0), (b, shift as usize)] {
            for constraint in chain::<8>(self.program, self.target, self.ranges, info) {
                starts = starts.without(&constraint.blocked().down(down));
            }
        }
        !starts.is_empty()
    }
}
