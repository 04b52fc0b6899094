//! Whether coalescing two bodies keeps the graph as colourable as it was.
//!
//! *Briggs:* the merged body has fewer neighbours of significant degree than places, so it
//! will be removed once the others are gone. *George:* every neighbour of one side already
//! interferes with the other or is of low degree, so no degree rises. Both are stated
//! over ⟨p, q⟩ here: weights in place of counts, places in place of K.
//!
//! *The factor.* A neighbour counts as significant when its degree times the coalescing
//! factor (0.8) reaches its places: at fifteen registers, from degree 19 on instead of 15.
//! That is bolder than either test and may cost a colour; a merged body that finds none is
//! taken apart again when colours are given out.
//!
//! *Optimism.* Taking merges apart works so well that by default nothing is tested at all
//! where neither side is fixed (after Park and Moon, TOPLAS 2004): bodies that do not
//! interfere merge, and a body without a colour is taken apart again.
//! `optimistic-coalescing=false` brings the tests back.
//!
//! *Profitability.* Bodies that are both below half of their places merge untested; a
//! merge whose degree passes twice its places, with a significant neighbour among them, is
//! not made.

use super::graph::Status;
use super::simplify::Simplifier;
use crate::coalesce::{BodyId, Joint};

/// What a test said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The merge is made.
    Merge,
    /// Not now; it may pass once this many neighbours have become insignificant.
    After(u32),
}

impl Simplifier<'_, '_> {
    /// Whether the merge depends on degrees; if not, [`judge`](Self::judge) makes it.
    pub(super) fn needs_test(&self, joint: &Joint) -> bool {
        let fixed = [joint.a, joint.b].map(|side| self.graph.status(side) == Status::Fixed);
        match fixed {
            _ if self.is_roomy(joint) => false,
            [true, true] => false,
            [false, false] => !self.options.optimistic_coalescing,
            _ => true,
        }
    }

    /// Whether the merge is made.
    pub(super) fn judge(&mut self, joint: &Joint) -> Verdict {
        let fixed = |body| self.graph.status(body) == Status::Fixed;
        match (fixed(joint.a), fixed(joint.b)) {
            (true, true) => Verdict::Merge,
            _ if self.is_roomy(joint) => Verdict::Merge,
            (true, false) => self.george_fixed(joint, joint.b),
            (false, true) => self.george_fixed(joint, joint.a),
            (false, false) if self.options.optimistic_coalescing => Verdict::Merge,
            (false, false) if self.is_small(joint) => Verdict::Merge,
            (false, false) => self.briggs_or_george(joint),
        }
    }

    /// Neither side is live where pressure exceeds its limit. Merging lengthens no live
    /// range, so it stays that way; if alignment leaves no place, the merge is undone.
    fn is_roomy(&self, joint: &Joint) -> bool {
        self.graph.is_roomy(joint.a) && self.graph.is_roomy(joint.b)
    }

    /// Both sides are below half of their places and merging costs neither a place.
    fn is_small(&self, joint: &Joint) -> bool {
        let places = joint.starts.len() as u32;
        [joint.a, joint.b].into_iter().all(|side| {
            self.graph.bodies.get(side).shape == joint.shape && 2 * self.graph.degree(side) < places
        })
    }

    fn briggs_or_george(&mut self, joint: &Joint) -> Verdict {
        let shape = self.graph.shape(joint.shape);
        let places = joint.starts.len() as u32;
        let mut around = std::mem::take(&mut self.shared);
        self.graph.neighbours_of_both(joint.a, joint.b, &mut around);
        let (mut degree, mut significant, mut largest) = (0, 0, 1);
        let (mut harmed, mut burdened) = (0, 0);
        for n in &around {
            let theirs = self.graph.shape_of(n.body);
            let inflicted = n.inflicts.min(self.graph.blocked(shape, theirs));
            let suffered = n.suffers().min(self.graph.blocked(theirs, shape));
            let now = self.graph.degree(n.body);
            let after = now + suffered - n.paid().min(now);
            let their_places = self.graph.places(n.body);
            degree += inflicted;
            if is_significant(after, their_places, self.options.coalescing_factor.get()) {
                significant += inflicted;
                largest = largest.max(inflicted);
                harmed += (after >= now && !n.is_of_both()) as u32;
            }
            burdened += (now < their_places && after >= their_places) as u32;
        }
        self.shared = around;
        let keeps_places = [joint.a, joint.b]
            .iter()
            .all(|&side| self.graph.places(side) == places);
        let briggs = (significant + 1).saturating_sub(places).div_ceil(largest);
        let george = if keeps_places { harmed } else { u32::MAX };
        // Neighbours that all surely find a place do not make a merge too wide.
        let excess = if significant == 0 { 0 } else { degree };
        let too_wide = excess.saturating_sub(2 * places).div_ceil(largest);
        match briggs.min(george).max(too_wide).max(burdened) {
            0 => Verdict::Merge,
            events => Verdict::After(events),
        }
    }

    /// Merging `joining` into a fixed body takes the fixed place from its neighbours. That is
    /// safe for a neighbour that surely finds another, or could not be there anyway.
    fn george_fixed(&self, joint: &Joint, joining: BodyId) -> Verdict {
        let Some(start) = joint.starts.lowest() else {
            return Verdict::After(u32::MAX);
        };
        let shift = match joining == joint.a {
            true => (-joint.distance).max(0),
            false => joint.distance.max(0),
        };
        let graph = &self.graph;
        let is_harmed = |value, low: i32, high: i32| {
            let other = graph.bodies.of(value).filter(|&other| other != joining);
            other.is_some_and(|other| {
                let (first, end) = graph.bodies.starts_touching(value, low, high);
                let starts = graph.bodies.starts(other);
                graph.status(other) == Status::Active
                    && graph.is_significant(other)
                    && (first.max(0)..end).any(|s| starts.contains(s as usize))
            })
        };
        let members = graph.bodies.get(joining).members.iter();
        let harmed: usize = members
            .map(|m| {
                let low = start as i32 + shift + m.offset as i32;
                let high = low + m.width as i32;
                let edges = graph.interference.edges(m.value);
                edges.filter(|e| is_harmed(e.value, low, high)).count()
            })
            .sum();
        match harmed as u32 {
            0 => Verdict::Merge,
            harmed => Verdict::After(harmed),
        }
    }
}

/// Whether a body of this degree and number of places counts as hard to colour.
pub fn is_significant(degree: u32, places: u32, factor: f32) -> bool {
    degree as f32 * factor >= places as f32
}

#[cfg(test)]
mod tests {
    use super::super::graph::Graph;
    use super::super::tests::with_graph;
    use super::*;
    use crate::coalesce::Bodies;
    use crate::ir::Value;
    use crate::options::{BriggsOptions, Fraction};
    use crate::target::UnitSet;
    use cranelift_entity::{EntityRef, PrimaryMap};

    /// At fifteen registers, as in `docs/sources.md#effective-degree-factor`.
    #[test]
    fn degree_seventeen_is_low_and_nineteen_high_under_the_factor() {
        assert!(!is_significant(17, 15, 0.8));
        assert!(!is_significant(18, 15, 0.8));
        assert!(is_significant(19, 15, 0.8));
        assert!(is_significant(15, 15, 1.0));
    }

    /// What `ask` says of a merge of `to` and `from`, which starts `distance` units after it,
    /// on eight registers; `merged` are one already, and values may start `only` there.
    fn asked<T>(
        body: &str,
        only: &[(usize, std::ops::Range<usize>)],
        merged: &[(usize, usize, i32)],
        (to, from, distance): (usize, usize, i32),
        ask: impl FnOnce(&mut Simplifier, &Joint) -> T,
    ) -> T {
        let restrict = |bodies: &mut Bodies| {
            for (value, starts) in only {
                let id = bodies.of(Value::new(*value)).unwrap();
                bodies.set_starts(id, UnitSet::of(starts.clone()));
            }
        };
        let options = BriggsOptions {
            optimistic_coalescing: false,
            coalescing_factor: Fraction::percent(100),
            ..BriggsOptions::default()
        };
        let mut answer = None;
        with_graph(8, body, restrict, |mut graph, _, _| {
            let joint = |graph: &Graph, to, from, distance| {
                let [to, from] = [to, from].map(Value::new);
                let joint = graph.bodies.joint(graph.interference, to, from, distance);
                joint.unwrap()
            };
            for &(to, from, distance) in merged {
                graph.unite(&joint(&graph, to, from, distance));
            }
            graph.count_degrees();
            let joint = joint(&graph, to, from, distance);
            let moves = PrimaryMap::new();
            let mut simplifier = Simplifier::new(graph, &moves, &options);
            answer = Some(ask(&mut simplifier, &joint));
        });
        answer.unwrap()
    }

    fn verdict(
        body: &str,
        only: &[(usize, std::ops::Range<usize>)],
        merged: &[(usize, usize, i32)],
        ends: (usize, usize, i32),
    ) -> Verdict {
        asked(body, only, merged, ends, |simplifier, joint| {
            simplifier.judge(joint)
        })
    }

    /// Two pinned values take turns in R4 whether they are merged or not, so that the merge
    /// takes nothing from their neighbours. One with a value that could go elsewhere may.
    #[test]
    fn values_that_share_their_only_register_merge_without_a_test() {
        let body = "
            v0:r32.pinned @ R4 = load : read
            v1:r32.pinned @ R4 = mov v0 : copy
            v2:r32 = mov v1 : copy
            store v2 : write";
        let needs_test = |ends| {
            asked(body, &[], &[], ends, |simplifier, joint| {
                simplifier.needs_test(joint)
            })
        };
        assert!(!needs_test((1, 0, 0)));
        assert!(needs_test((2, 1, 0)));
    }

    /// Nine values are live at once, more than Briggs's test allows. Side by side, two of them
    /// take from each of the others what they took on their own.
    #[test]
    fn neighbours_of_both_sides_lose_nothing_when_these_stand_side_by_side() {
        let body = "
            v0:r32, v1:r32, v2:r32, v3:r32 = load : read
            v4:r32, v5:r32, v6:r32, v7:r32, v8:r32 = load : read
            store v0, v1, v2, v3 : write
            store v4, v5, v6, v7, v8 : write";
        let only = [(0, 0..7), (1, 1..8)];
        assert_eq!(verdict(body, &only, &[], (0, 1, 1)), Verdict::Merge);
    }

    /// Seven values are live beside both `v7` and its copy `v8`, which take one place from
    /// them as long as they are one, and count as two in the pair `v9`.
    #[test]
    fn a_merge_waits_that_would_make_a_neighbour_as_hard_to_place_as_it_has_places() {
        let body = "
            v0:r32, v1:r32, v2:r32, v3:r32, v4:r32, v5:r32, v6:r32, v7:r32 = load : read
            v8:r32 = mov v7 : copy
            store v0, v1, v2, v3, v4, v5, v6 : write
            v10:r32 = load : read
            v9:r64 = mov v8, v10 : copy
            store v9 : write";
        let said = verdict(body, &[], &[(8, 7, 0)], (9, 8, 0));
        assert_eq!(said, Verdict::After(7));
    }

    /// `v1` would become the upper half of a pair in R4, where `v0` can only be in R5.
    #[test]
    fn the_upper_half_of_a_fixed_pair_is_taken_from_those_who_need_it() {
        let body = "
            v0:r32, v1:r32 = load : read
            store v0 : write
            v2:r32 = load : read
            v3:r64 @ R4 = mov v2, v1 : copy
            store v3 : write";
        let made = 4;
        let said = |place| verdict(body, &[(0, place..place + 1)], &[], (1, made, -1));
        assert_eq!(said(4), Verdict::Merge);
        assert_eq!(said(5), Verdict::After(1));
    }
}
