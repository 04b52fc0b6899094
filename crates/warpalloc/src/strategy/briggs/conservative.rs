//! Whether coalescing two bodies keeps the graph as colourable as it was.
//!
//! *Briggs:* the merged body has fewer neighbours of significant degree than places, so it
//! will be removed once the others are gone. *George:* every neighbour of one side already
//! interferes with the other or is of low degree, so nobody is worse off. Both are stated
//! over ⟨p, q⟩ here: weights in place of counts, places in place of K.
//!
//! *The factor.* A neighbour counts as significant when its degree times the coalescing
//! factor (0.8) reaches its places: at fifteen registers, from degree 19 on instead of 15.
//! That is bolder than either test and may cost a colour; a merged body that finds none is
//! taken apart again when colours are given out.
//!
//! *Profitability.* Bodies that are both below half of their places merge untested; a
//! merge whose degree passes twice its places is never made.

use super::graph::Status;
use super::simplify::Simplifier;
use crate::coalesce::{BodyId, Joint};

impl Simplifier<'_, '_> {
    /// Whether the merge is made.
    pub(super) fn is_conservative(&mut self, joint: &Joint) -> bool {
        let fixed = |body| self.graph.status(body) == Status::Fixed;
        match (fixed(joint.a), fixed(joint.b)) {
            (true, true) => true,
            (true, false) => self.george_fixed(joint, joint.b),
            (false, true) => self.george_fixed(joint, joint.a),
            (false, false) => self.is_small(joint) || self.briggs_or_george(joint),
        }
    }

    /// Whether a body of this degree and number of places counts as hard to colour.
    fn is_significant(&self, degree: u32, places: u32) -> bool {
        is_significant(degree, places, self.options.coalescing_factor)
    }

    /// Both sides are below half of their places and merging costs neither a place.
    fn is_small(&self, joint: &Joint) -> bool {
        let places = joint.starts.len() as u32;
        [joint.a, joint.b].into_iter().all(|side| {
            self.graph.bodies.get(side).shape == joint.shape && 2 * self.graph.degree(side) < places
        })
    }

    fn briggs_or_george(&mut self, joint: &Joint) -> bool {
        let shape = self.graph.shape(joint.shape);
        let places = joint.starts.len() as u32;
        let around = self.union_of_neighbours(joint);
        let (mut degree, mut significant, mut harmless) = (0, 0, true);
        for n in &around {
            if n.body == joint.a || n.body == joint.b {
                continue;
            }
            let theirs = self.graph.shape_of(n.body);
            let inflicted = n.inflicts.min(self.graph.blocked(shape, theirs));
            let suffered = n.suffers.min(self.graph.blocked(theirs, shape));
            let now = self.graph.degree(n.body);
            let after = now + suffered - n.paid.min(now);
            degree += inflicted;
            let their_places = self.graph.places(n.body);
            if self.is_significant(after, their_places) {
                significant += inflicted;
                // George: someone significant gains a neighbour or suffers more than before.
                harmless &= after < now || (n.of_both && after <= now);
            }
            if now < their_places && after >= their_places {
                return false;
            }
        }
        let keeps_places = [joint.a, joint.b]
            .iter()
            .all(|&side| self.graph.places(side) == places);
        degree <= 2 * places && (significant < places || (harmless && keeps_places))
    }

    /// Neighbours of either side, with the weights the merged body will have.
    fn union_of_neighbours(&mut self, joint: &Joint) -> Vec<Around> {
        let mut union: Vec<Around> = Vec::new();
        let mut list = std::mem::take(&mut self.around);
        self.graph.neighbours(joint.a, &mut list);
        for n in &list {
            union.push(Around {
                body: n.body,
                suffers: n.suffers,
                inflicts: n.inflicts,
                paid: self.graph.suffered(joint.a, n),
                of_both: false,
            });
        }
        let places: rustc_hash::FxHashMap<BodyId, usize> =
            union.iter().enumerate().map(|(i, n)| (n.body, i)).collect();
        self.graph.neighbours(joint.b, &mut list);
        for n in &list {
            let paid = self.graph.suffered(joint.b, n);
            match places.get(&n.body) {
                Some(&at) => {
                    union[at].suffers += n.suffers;
                    union[at].inflicts += n.inflicts;
                    union[at].paid += paid;
                    union[at].of_both = true;
                }
                None => union.push(Around {
                    body: n.body,
                    suffers: n.suffers,
                    inflicts: n.inflicts,
                    paid,
                    of_both: false,
                }),
            }
        }
        self.around = list;
        union
    }

    /// Merging `joining` into a fixed body takes the fixed place from its neighbours: fine
    /// for those that surely find another, and for those that could not be there anyway.
    fn george_fixed(&self, joint: &Joint, joining: BodyId) -> bool {
        let Some(start) = joint.starts.first() else {
            return false;
        };
        let shift = match joining == joint.a {
            true => (-joint.distance).max(0),
            false => joint.distance.max(0),
        };
        let graph = &self.graph;
        graph.bodies.get(joining).members.iter().all(|m| {
            let low = start as i32 + shift + m.offset as i32;
            let high = low + m.width as i32;
            graph.interference.edges(m.value).all(|edge| {
                let Some(other) = graph.bodies.of(edge.value) else {
                    return true;
                };
                if other == joining || graph.status(other) != Status::Active {
                    return true;
                }
                if !self.is_significant(graph.degree(other), graph.places(other)) {
                    return true;
                }
                let (first, end) = graph.bodies.starts_touching(edge.value, low, high);
                let starts = &graph.bodies.get(other).starts;
                !(first.max(0)..end).any(|s| starts.contains(s as usize))
            })
        })
    }
}

/// Whether a body of this degree and number of places counts as hard to colour.
pub fn is_significant(degree: u32, places: u32, factor: f32) -> bool {
    degree as f32 * factor >= places as f32
}

/// A neighbour of two bodies about to merge.
struct Around {
    body: BodyId,
    suffers: u32,
    inflicts: u32,
    /// What the two add to its degree now.
    paid: u32,
    of_both: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Document 004, "Why 0.8 Factor?": degree 17 is low and 19 high at fifteen registers.
    #[test]
    fn degree_seventeen_is_low_and_nineteen_high_under_the_factor() {
        assert!(!is_significant(17, 15, 0.8));
        assert!(!is_significant(18, 15, 0.8));
        assert!(is_significant(19, 15, 0.8));
        assert!(is_significant(15, 15, 1.0));
    }
}
