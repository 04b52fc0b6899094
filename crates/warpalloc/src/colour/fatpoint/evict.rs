//! Evicting clusters so that another finds a register.
//!
//! Clusters are joined from values all over the program, and first-fit may leave a value without
//! a register though pressure is within the budget: each start is taken somewhere in its live
//! range. It is placed all the same, at the start where the values in its way lose the least, and
//! these are placed again, the one that begins first first. A value that is joined to others
//! leaves them, and they stay where they are.
//!
//! In SSA form a start is free where a value begins, so that only later values are in its way
//! there, and evictions come to an end (Hack, Grund and Goos, 2006). Elsewhere they may not, and
//! are undone when they become too many.

use super::assign::Assign;
use super::cluster::{Cluster, ClusterInfo, Clusters};
use super::hints::Hint;
use super::overlap_index::OverlapIndex;
use crate::colour::Colours;
use crate::ir::Value;
use crate::target::UnitSet;
use cranelift_entity::EntitySet;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Steps that may be undone. Where values differ in size evictions often come to no end, and each
/// step looks at all that overlaps a cluster.
const MOST_STEPS: usize = 100;
/// What evicting a value costs besides copies: the fewer the better.
const EVICTION: f64 = 1e-3;
/// What evicting a value costs that must evict others in turn.
const CHAIN: f64 = 50.0;
/// What evicting a value costs that begins earlier or has just been placed: evictions may come
/// back to where they began.
const BACKWARDS: f64 = 1e6;

/// What was done to make room.
enum Step {
    /// A cluster got a register.
    Placed(Cluster),
    /// A cluster lost its register, which began there.
    Evicted(Cluster, usize),
}

impl<const W: usize> Assign<'_, W> {
    /// Places clusters that found no register where evicting others makes room for them.
    pub fn place_by_evicting(&mut self, clusters: &mut Clusters, colours: &mut Colours) {
        if self.failed.is_empty() {
            return;
        }
        let ranges = self.scene.ranges;
        let mut index = OverlapIndex::new(ranges);
        clusters.reopen_hints(ranges);
        let mut moved = Vec::new();
        let mut allowance = MOST_STEPS;
        for cluster in std::mem::take(&mut self.failed) {
            match self.make_room(clusters, cluster, colours, &mut index, &mut allowance) {
                Some(placed) => moved.extend(placed),
                None => self.failed.push(cluster),
            }
        }
        self.grant_hints(clusters, moved, colours);
    }

    /// Moves clusters to free starts at which more copies vanish, and in turn the ones that they
    /// are copies of. The client's hints come first.
    fn grant_hints(&mut self, clusters: &Clusters, moved: Vec<Cluster>, colours: &mut Colours) {
        let partners = |cluster: Cluster| {
            let members = clusters.info(cluster).members.iter();
            let hints = members.flat_map(|m| clusters.hints().of(m.value));
            hints.filter_map(|&(other, ..)| clusters.of(other))
        };
        let mut pending: Vec<Cluster> = moved.iter().flat_map(|&c| partners(c)).collect();
        pending.extend(moved);
        while let Some(cluster) = pending.pop() {
            let info = clusters.info(cluster);
            if !is_movable(info) || info.members.iter().any(|m| colours[m.value].is_none()) {
                continue;
            }
            let start = self.release(info, colours);
            let free = self.free_starts(info);
            let votes = self.votes(clusters, info, &free, colours);
            let here = votes.iter().find(|(other, _)| *other == start);
            let here = here.map_or(0.0, |&(_, weight)| weight);
            let is_hinted = self.hinted(info, &free) == Some(start);
            let better = votes
                .iter()
                .filter(|&&(_, weight)| weight > here && !is_hinted);
            let better = better.reduce(|a, b| if b.1 > a.1 { b } else { a });
            self.take(
                clusters,
                info,
                better.map_or(start, |&(start, _)| start),
                colours,
            );
            if better.is_some() {
                pending.extend(partners(cluster));
            }
        }
    }

    /// Places `cluster` and what had to be evicted for it, and says what that is; or changes
    /// nothing.
    fn make_room(
        &mut self,
        clusters: &mut Clusters,
        cluster: Cluster,
        colours: &mut Colours,
        index: &mut OverlapIndex,
        allowance: &mut usize,
    ) -> Option<Vec<Cluster>> {
        let mut steps = Vec::new();
        let mut placed = EntitySet::new();
        let mut pending = BinaryHeap::from([Reverse((self.begin(clusters, cluster), cluster))]);
        while let Some(Reverse((_, next))) = pending.pop() {
            if !self.try_place(clusters, next, colours) {
                let start = match steps.len() < *allowance {
                    true => self.cheapest_start(clusters, next, colours, index, &placed),
                    false => None,
                };
                let Some((start, in_the_way)) = start else {
                    *allowance = allowance.saturating_sub(steps.len() + 1);
                    self.undo(clusters, steps, colours);
                    return None;
                };
                for value in in_the_way {
                    if let Some(part) = self.part_of(clusters, value, colours) {
                        let from = self.release(clusters.info(part), colours);
                        steps.push(Step::Evicted(part, from));
                        pending.push(Reverse((self.begin(clusters, part), part)));
                    }
                }
                self.take(clusters, clusters.info(next), start, colours);
            }
            placed.extend(clusters.info(next).members.iter().map(|m| m.value));
            steps.push(Step::Placed(next));
        }
        let placed = steps.into_iter().filter_map(|step| match step {
            Step::Placed(cluster) => Some(cluster),
            Step::Evicted(..) => None,
        });
        Some(placed.collect())
    }

    /// Where the live range of a cluster begins.
    fn begin(&self, clusters: &Clusters, cluster: Cluster) -> u32 {
        let members = clusters.info(cluster).members.iter();
        members.map(|m| self.begin_of(m.value)).min().unwrap_or(0)
    }

    fn begin_of(&self, value: Value) -> u32 {
        let first = self.scene.ranges.of(value).first();
        first.map_or(0, |segment| segment.start)
    }

    /// Undoes steps, the last first.
    fn undo(&mut self, clusters: &Clusters, steps: Vec<Step>, colours: &mut Colours) {
        for step in steps.into_iter().rev() {
            match step {
                Step::Placed(cluster) => {
                    self.release(clusters.info(cluster), colours);
                }
                Step::Evicted(cluster, start) => {
                    self.take(clusters, clusters.info(cluster), start, colours);
                }
            }
        }
    }

    /// The cluster of `value`, joined to nothing, if it has a register.
    fn part_of(&self, clusters: &mut Clusters, value: Value, colours: &Colours) -> Option<Cluster> {
        colours[value]?;
        let cluster = clusters.of(value)?;
        if clusters.info(cluster).parts() > 1 {
            clusters.fall_apart(self.scene.program, self.scene.ranges, cluster);
        }
        clusters.of(value)
    }

    /// Takes the register of a cluster without joins away, and says where it began.
    fn release(&mut self, info: &ClusterInfo, colours: &mut Colours) -> usize {
        let ranges = self.scene.ranges;
        let mut start = 0;
        for member in &info.members {
            // A value may be several members, at one offset.
            let Some(reg) = colours[member.value].take() else {
                continue;
            };
            let unit = reg.unit as usize;
            let width = ranges.size(member.value).width as usize;
            for &segment in ranges.of(member.value) {
                self.occupancy.clear(segment, unit, width);
            }
            start = unit - member.offset as usize;
        }
        start
    }

    /// The start of `cluster` at which the values in its way lose the least, and these values.
    fn cheapest_start(
        &self,
        clusters: &Clusters,
        cluster: Cluster,
        colours: &Colours,
        index: &mut OverlapIndex,
        placed: &EntitySet<Value>,
    ) -> Option<(usize, Vec<Value>)> {
        let ranges = self.scene.ranges;
        let info = clusters.info(cluster);
        let begin = self.begin(clusters, cluster);
        let mut allowed = self.allowed_starts(info);
        for member in &info.members {
            let width = ranges.size(member.value).width as usize;
            let closed = self.closed.blocked_starts(width);
            allowed.subtract(&closed.down(member.offset as usize));
        }
        let mut price = vec![f64::INFINITY; 64 * W];
        allowed.iter().for_each(|start| price[start] = 0.0);
        let mut in_the_way: Vec<(Value, usize, usize)> = Vec::new();
        for value in index.of(info.members.iter().map(|m| m.value)) {
            let Some(reg) = colours[value].filter(|reg| reg.file == self.file) else {
                continue;
            };
            let (unit, width) = (reg.unit as usize, ranges.size(value).width as usize);
            let mut cost = None;
            let members = info.members.iter();
            for m in members.filter(|m| ranges.overlap(m.value, value)) {
                // Starts at which the member would touch the value's units.
                let member_width = ranges.size(m.value).width as usize;
                let low = (unit + 1).saturating_sub(m.offset as usize + member_width);
                let high = (unit + width).saturating_sub(m.offset as usize);
                let is_backwards = || placed.contains(value) || self.begin_of(value) < begin;
                let cost = *cost.get_or_insert_with(|| match is_backwards() {
                    true => BACKWARDS + self.price(clusters, value, colours),
                    false => self.price(clusters, value, colours),
                });
                price[low..high].iter_mut().for_each(|price| *price += cost);
                in_the_way.push((value, low, high));
            }
        }
        let starts = (0..price.len()).filter(|&start| price[start].is_finite());
        let start = starts.min_by(|&a, &b| price[a].total_cmp(&price[b]))?;
        in_the_way.retain(|&(_, low, high)| (low..high).contains(&start));
        let values = in_the_way.into_iter().map(|(value, ..)| value);
        Some((start, values.collect()))
    }

    /// What evicting `value` costs: above all the copies that no longer vanish.
    fn price(&self, clusters: &Clusters, value: Value, colours: &Colours) -> f64 {
        let Some(info) = clusters.of(value).map(|cluster| clusters.info(cluster)) else {
            return f64::INFINITY;
        };
        if !is_movable(info) {
            return f64::INFINITY;
        }
        let unit = |value: Value| colours[value].map(|reg| i32::from(reg.unit));
        let is_granted = |&&(other, shift, _): &&Hint| {
            unit(other).is_some_and(|other| Some(other - shift) == unit(value))
        };
        let granted = clusters.hints().of(value).iter().filter(is_granted);
        let copies: f64 = granted.map(|&(.., weight)| f64::from(weight)).sum();
        let chain = if self.finds_another(value) {
            0.0
        } else {
            CHAIN
        };
        EVICTION + copies + chain
    }

    /// Whether `value` alone would find another start.
    fn finds_another(&self, value: Value) -> bool {
        let ranges = self.scene.ranges;
        let mut held = self.closed;
        for &segment in ranges.of(value) {
            self.occupancy.gather(segment, &mut held);
        }
        let size = ranges.size(value);
        let width = size.width as usize;
        let starts = UnitSet::first((self.window + 1).saturating_sub(width));
        let starts = starts.and(&UnitSet::multiples_of(size.align as usize));
        !starts.without(&held.blocked_starts(width)).is_empty()
    }
}

/// Whether a cluster may have another start. A silent member has no room of its own to return to.
fn is_movable(info: &ClusterInfo) -> bool {
    info.fixed.is_none() && !info.members.iter().any(|m| m.silent)
}

#[cfg(test)]
mod tests {
    use super::super::assign::Scene;
    use super::super::tests::with_scene;
    use super::*;
    use crate::target::File;
    use cranelift_entity::EntityRef;

    /// Places values in the order given, of which the last finds no register, and makes room for
    /// it; the registers before and after, and whether there was room.
    fn registers(text: &str, order: &[usize]) -> (Vec<Option<u16>>, Vec<Option<u16>>, bool) {
        let mut result = None;
        with_scene(text, |scene, mut clusters| {
            let mut assign = Assign::<1>::new(scene, File::R);
            let mut colours = Colours::new();
            let order: Vec<Value> = order.iter().map(|&number| Value::new(number)).collect();
            let mut clusters_in_order: Vec<Cluster> = Vec::new();
            for &value in &order {
                let cluster = clusters.of(value).unwrap();
                if !clusters_in_order.contains(&cluster) {
                    clusters_in_order.push(cluster);
                }
            }
            assign.place_all(&mut clusters, &clusters_in_order, &mut colours);
            assert_eq!(
                assign.failed,
                clusters_in_order[clusters_in_order.len() - 1..]
            );
            let units = |colours: &Colours| {
                let mut values = order.clone();
                values.sort_unstable();
                let units = values.iter().map(|&value| Some(colours[value]?.unit));
                units.collect::<Vec<_>>()
            };
            let before = units(&colours);
            let held = rows(&assign, scene);
            assign.place_by_evicting(&mut clusters, &mut colours);
            if !assign.failed.is_empty() {
                assert_eq!(rows(&assign, scene), held);
            }
            result = Some((before, units(&colours), assign.failed.is_empty()));
        });
        result.unwrap()
    }

    /// What is held at each position.
    fn rows(assign: &Assign<1>, scene: Scene) -> Vec<UnitSet<1>> {
        let positions = 0..scene.ranges.positions();
        let rows = positions.map(|start| {
            let mut held = UnitSet::EMPTY;
            let end = start + 1;
            assign
                .occupancy
                .gather(crate::ir::Segment { start, end }, &mut held);
            held
        });
        rows.collect()
    }

    /// `v2` is in the way of `v1` and begins after it; `v0` has ended by then.
    #[test]
    fn a_later_value_gives_way() {
        let text = "target hardware sm_90 R=2
            kernel f {
            block0:
                v0:r32 = load : read
                v1:r32 = load : read
                store v0 : write
                v2:r32.hint_R1 = load : read
                store v1 : write
                store v2 : write
                exit : exit write
            }";
        let (before, after, has_room) = registers(text, &[0, 2, 1]);
        assert_eq!(before, [Some(0), None, Some(1)]);
        assert_eq!(after, [Some(0), Some(1), Some(0)]);
        assert!(has_room);
    }

    /// `v1`, of which `v2` is a copy, gives way to `v3`, and its copy follows it.
    #[test]
    fn copies_follow_a_value_that_gives_way() {
        let text = "target hardware sm_90 R=2
            kernel f {
            block0:
                v0:r32.hint_R1 = load : read
                v3:r32 = load : read
                store v0 : write
                v1:r32.hint_R0 = load : read
                store v3 : write
                v2:r32 = mov v1 : copy
                store v2 : write
                exit : exit write
            }";
        let (before, after, has_room) = registers(text, &[0, 1, 2, 3]);
        assert_eq!(before, [Some(1), Some(0), Some(0), None]);
        assert_eq!(after, [Some(1), Some(1), Some(1), Some(0)]);
        assert!(has_room);
    }

    /// `v1` is listed twice, as a value that two lanes of an instruction read.
    #[test]
    fn a_value_that_is_two_members_is_released_once() {
        let text = "target hardware sm_90 R=2
            kernel f {
            block0:
                v0:r32 = load : read
                v1:r32 = load : read
                store v0 : write
                store v1 : write
                exit : exit write
            }";
        with_scene(text, |scene, mut clusters| {
            let mut assign = Assign::<1>::new(scene, File::R);
            let mut colours = Colours::new();
            let alone = [0].map(|n| clusters.of(Value::new(n)).unwrap());
            assign.place_all(&mut clusters, &alone, &mut colours);
            let held = rows(&assign, scene);
            let other = clusters.of(Value::new(1)).unwrap();
            assign.place_all(&mut clusters, &[other], &mut colours);
            let mut info = clusters.info(other).clone();
            info.members.push(info.members[0]);
            assert_eq!(assign.release(&info, &mut colours), 1);
            assert_eq!(rows(&assign, scene), held);
        });
    }

    /// Three values are live at once, so that one evicts another for ever.
    #[test]
    fn evictions_without_end_are_undone() {
        let text = "target hardware sm_90 R=2
            kernel f {
            block0:
                v0:r32 = load : read
                v1:r32 = load : read
                v2:r32 = load : read
                store v0 : write
                store v1 : write
                store v2 : write
                exit : exit write
            }";
        let (before, after, has_room) = registers(text, &[0, 1, 2]);
        assert_eq!(before, [Some(0), Some(1), None]);
        assert_eq!(after, before);
        assert!(!has_room);
    }

    /// `v5` would find room as in `a_later_value_gives_way`, but `v2` has used up all steps.
    #[test]
    fn evictions_in_vain_are_limited_for_all_clusters_together() {
        let text = "target hardware sm_90 R=2
            kernel f {
            block0:
                v0:r32 = load : read
                v1:r32 = load : read
                v2:r32 = load : read
                store v0 : write
                store v1 : write
                store v2 : write
                v3:r32 = load : read
                v5:r32 = load : read
                store v3 : write
                v4:r32.hint_R1 = load : read
                store v5 : write
                store v4 : write
                exit : exit write
            }";
        let left = |order: [usize; 6]| {
            let mut left = 0;
            with_scene(text, |scene, mut clusters| {
                let mut assign = Assign::<1>::new(scene, File::R);
                let mut colours = Colours::new();
                let order = order.map(|number| clusters.of(Value::new(number)).unwrap());
                assign.place_all(&mut clusters, &order, &mut colours);
                assert_eq!(assign.failed.len(), 2);
                assign.place_by_evicting(&mut clusters, &mut colours);
                left = assign.failed.len();
            });
            left
        };
        assert_eq!(
            left([3, 4, 5, 0, 1, 2]),
            1,
            "the one that finds room comes first"
        );
        assert_eq!(left([0, 1, 2, 3, 4, 5]), 2);
    }
}
