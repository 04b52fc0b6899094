//! Handing out registers.
//!
//! Clusters come from the assignment stack one by one. The register matrix tells in one look
//! which starts are free for all of a cluster's members; of these, one that makes a copy
//! vanish is best, and otherwise the histograms choose. The primary histogram counts how
//! contested a start is: what values not yet placed would lose if it were taken. The
//! secondary one counts what taking it costs in itself, such as saving a callee-saved
//! register. A start that conflicts with anything already placed is never taken.
//!
//! A cluster that finds no start falls apart into what it was joined from, and these are
//! placed: at one start as many of them as fit there, the others one by one. Only a single value
//! or link that finds none has failed.

use super::cluster::{Cluster, ClusterInfo, Clusters, Member};
use super::constraint;
use super::hints::Hints;
use super::histogram::{Histogram, choose};
use super::reg_matrix::RegMatrix;
use crate::colour::Colours;
use crate::function::Convention;
use crate::ir::{LiveRanges, Program, ReadWith, Value, overlap};
use crate::options::Knobs;
use crate::scratch::Scratch;
use crate::target::{File, PReg, Target, UnitSet};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;
use std::ops::Range;

/// Pending hints examined per placement; more would not pay.
const CLAIMS_EXAMINED: usize = 4;
/// A copy of frequency 1 contests a start this much.
const CLAIM_WEIGHT: f32 = 8.0;

/// What every placement looks at.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The program.
    pub program: &'a Program<'a>,
    /// The target.
    pub target: &'a Target,
    /// Where values are live.
    pub ranges: &'a LiveRanges,
    /// Settings.
    pub knobs: &'a Knobs,
    /// Pre-allocation priorities.
    pub priorities: &'a SecondaryMap<Value, u32>,
    /// Values read together, where banks matter.
    pub read_with: Option<&'a ReadWith>,
    /// Where memory comes from.
    pub scratch: &'a Scratch,
}

/// What a start costs that would raise the highest register: more than any bank is worth.
const RAISES: u32 = 32;

/// Placement in one file.
pub struct Assign<'a, const W: usize> {
    pub(super) scene: Scene<'a>,
    pub(super) file: File,
    /// Units looked at so far: all of the file, or as many as `W` words hold.
    pub(super) window: usize,
    /// Where something may start that is one unit wide, two, and so on.
    starts: [UnitSet<W>; 4],
    pub(super) occupancy: RegMatrix<W>,
    secondary: Histogram<W>,
    /// Starts at which a copy of a placed value vanishes, with the other value and a weight.
    claims: Vec<SmallVec<[(Value, u32); 2]>>,
    claimed: UnitSet<W>,
    /// Units that nothing may have.
    pub(super) closed: UnitSet<W>,
    /// Units of fixed places that others should leave alone.
    reserved: UnitSet<W>,
    /// Clusters that found no start, none of which is joined from others.
    pub(super) failed: Vec<Cluster>,
    /// One past the highest unit taken.
    used: usize,
}

impl<'a, const W: usize> Assign<'a, W> {
    /// Nothing placed in `file` yet.
    pub fn new(scene: Scene<'a>, file: File) -> Assign<'a, W> {
        let occupancy = RegMatrix::new(scene.ranges.positions(), scene.scratch);
        Assign::around(scene, file, occupancy)
    }

    fn around(scene: Scene<'a>, file: File, occupancy: RegMatrix<W>) -> Assign<'a, W> {
        let window = units(&scene, file).min(64 * W);
        Assign {
            scene,
            file,
            window,
            starts: std::array::from_fn(|wider| UnitSet::first(window.saturating_sub(wider))),
            occupancy,
            secondary: secondary(&scene, file),
            claims: vec![SmallVec::new(); window],
            claimed: UnitSet::EMPTY,
            closed: scene.target.file(file).reserved_units().widened(),
            reserved: reserved(&scene, file),
            failed: Vec::new(),
            used: 0,
        }
    }

    /// The same placements, with a window of `V` words.
    pub fn widened<const V: usize>(self) -> Assign<'a, V> {
        let occupancy = self.occupancy.widened(self.scene.scratch);
        let wide = Assign::<V>::around(self.scene, self.file, occupancy);
        let mut claims = self.claims;
        claims.resize(wide.window, SmallVec::new());
        Assign {
            claims,
            claimed: self.claimed.widened(),
            failed: self.failed,
            used: self.used,
            ..wide
        }
    }

    /// Ends placement; the clusters that found no register.
    pub fn finish(self) -> Vec<Cluster> {
        self.occupancy.recycle(self.scene.scratch);
        self.failed
    }

    /// Places the clusters of `order` one after the other, or what they fall apart into.
    /// Stops at one that finds nothing in a window narrower than the file, and says how many
    /// are done.
    pub fn place_all(
        &mut self,
        clusters: &mut Clusters,
        order: &[Cluster],
        colours: &mut Colours,
    ) -> usize {
        let is_narrow = self.window < units(&self.scene, self.file);
        for (done, &cluster) in order.iter().enumerate() {
            if !self.try_place(clusters, cluster, colours) {
                if is_narrow {
                    return done;
                }
                self.place_parts(clusters, cluster, colours);
            }
        }
        order.len()
    }

    fn place_parts(&mut self, clusters: &mut Clusters, cluster: Cluster, colours: &mut Colours) {
        if clusters.info(cluster).parts() == 1 {
            self.failed.push(cluster);
            return;
        }
        let members = clusters.info(cluster).members.clone();
        let mut parts = clusters.fall_apart(self.scene.program, self.scene.ranges, cluster);
        // Parts that cannot be spilled choose first.
        parts.sort_by_key(|&part| !self.is_stubborn(clusters.info(part)));
        self.place_together(clusters, &members, &mut parts, colours);
        for part in parts {
            if !self.try_place(clusters, part, colours) {
                self.failed.push(part);
            }
        }
    }

    /// Places parts of a cluster that had these `members` at the start where most copies vanish,
    /// and leaves the others in `parts`.
    fn place_together(
        &mut self,
        clusters: &Clusters,
        members: &[Member],
        parts: &mut SmallVec<[Cluster; 4]>,
        colours: &mut Colours,
    ) {
        let mut gain = vec![0f32; self.window];
        let mut offsets: SmallVec<[usize; 8]> = SmallVec::new();
        for &part in parts.iter() {
            let info = clusters.info(part);
            let first = info.members[0];
            let before = members.iter().find(|m| m.value == first.value);
            let offset = before.map_or(0, |m| m.offset) - first.offset;
            offsets.push(offset as usize);
            let hints = info
                .members
                .iter()
                .flat_map(|m| clusters.hints().of(m.value));
            let weight: f32 = hints.map(|&(.., weight)| weight).sum();
            for start in self.free_starts(info).down(offset as usize).iter() {
                gain[start] += weight;
            }
        }
        let best = (0..gain.len()).reduce(|a, b| if gain[b] > gain[a] { b } else { a });
        let Some(best) = best.filter(|&start| gain[start] > 0.0) else {
            return;
        };
        let mut offsets = offsets.into_iter();
        parts.retain(|part| {
            let info = clusters.info(*part);
            let start = best + offsets.next().unwrap_or(0);
            let is_free = self.free_starts(info).contains(start);
            if is_free {
                self.take(clusters, info, start, colours);
            }
            !is_free
        });
    }

    fn is_stubborn(&self, info: &ClusterInfo) -> bool {
        let values = &self.scene.program.values;
        info.members.iter().any(|m| values[m.value].unspillable)
    }

    pub(super) fn try_place(
        &mut self,
        clusters: &Clusters,
        cluster: Cluster,
        colours: &mut Colours,
    ) -> bool {
        let info = clusters.info(cluster);
        let free = self.unreserved(info, self.free_starts(info));
        let hinted = self.hinted(info, &free);
        let start = match hinted.or_else(|| self.wanted(clusters, info, &free, colours)) {
            Some(start) => Some(start),
            None => self.choose(clusters, cluster, &free, colours),
        };
        match start {
            Some(start) => {
                self.take(clusters, info, start, colours);
                true
            }
            None => false,
        }
    }

    /// Starts where no member meets anything placed before.
    #[inline(always)]
    pub(super) fn free_starts(&self, info: &ClusterInfo) -> UnitSet<W> {
        let Scene { ranges, .. } = self.scene;
        let mut blocked = UnitSet::EMPTY;
        for member in info.members.iter().filter(|m| !m.silent) {
            let mut held = self.closed;
            for &segment in ranges.of(member.value) {
                self.occupancy.gather(segment, &mut held);
            }
            let width = ranges.size(member.value).width as usize;
            blocked.add(&held.blocked_starts(width).down(member.offset as usize));
        }
        self.allowed_starts(info).without(&blocked)
    }

    /// Starts that constraints leave, whatever is placed.
    #[inline]
    pub(super) fn allowed_starts(&self, info: &ClusterInfo) -> UnitSet<W> {
        let Scene {
            program,
            target,
            ranges,
            ..
        } = self.scene;
        let width = info.width as usize;
        let mut blocked = UnitSet::EMPTY;
        if constraint::is_restricted(program, ranges, info) {
            constraint::each::<W>(program, target, ranges, info, |record| {
                blocked.add(&record.blocked());
            });
        }
        let starts = match self.starts.get(width - 1) {
            Some(starts) => *starts,
            None => UnitSet::first((self.window + 1).saturating_sub(width)),
        };
        let aligned = match info.align {
            1 => starts,
            align => starts.and(&UnitSet::multiples_of(align as usize)),
        };
        aligned.without(&blocked)
    }

    /// The starts of `free` that leave fixed places alone, if there are any.
    fn unreserved(&self, info: &ClusterInfo, free: UnitSet<W>) -> UnitSet<W> {
        if self.reserved.is_empty() {
            return free;
        }
        let apart = free.without(&self.reserved.blocked_starts(info.width as usize));
        if apart.is_empty() { free } else { apart }
    }

    /// The free start that puts a member where the client would like it to be.
    #[inline]
    pub(super) fn hinted(&self, info: &ClusterInfo, free: &UnitSet<W>) -> Option<usize> {
        let program = self.scene.program;
        if !program.has_hints {
            return None;
        }
        let hints = info.members.iter().filter_map(|m| {
            let hint = program.hint_of(m.value)?;
            hint.checked_sub(m.offset as usize)
        });
        hints.into_iter().find(|&start| free.contains(start))
    }

    /// The free start at which the most copies of placed values vanish.
    fn wanted(
        &self,
        clusters: &Clusters,
        info: &ClusterInfo,
        free: &UnitSet<W>,
        colours: &Colours,
    ) -> Option<usize> {
        let votes = self.votes(clusters, info, free, colours);
        let best = votes
            .into_iter()
            .reduce(|a, b| if b.1 > a.1 { b } else { a });
        best.map(|(start, _)| start)
    }

    /// Free starts at which copies of placed values vanish, and how often these run.
    pub(super) fn votes(
        &self,
        clusters: &Clusters,
        info: &ClusterInfo,
        free: &UnitSet<W>,
        colours: &Colours,
    ) -> SmallVec<[(usize, f32); 4]> {
        let mut votes: SmallVec<[(usize, f32); 4]> = SmallVec::new();
        if !info.has_hints || self.scene.knobs.no_retarget_prefs {
            return votes;
        }
        for member in &info.members {
            for &(other, shift, weight) in clusters.hints().of(member.value) {
                let Some(reg) = colours[other] else { continue };
                let start = i32::from(reg.unit) - shift - i32::from(member.offset);
                let Ok(start) = usize::try_from(start) else {
                    continue;
                };
                if free.contains(start) {
                    match votes.iter_mut().find(|(s, _)| *s == start) {
                        Some((_, votes)) => *votes += weight,
                        None => votes.push((start, weight)),
                    }
                }
            }
        }
        votes
    }

    fn choose(
        &mut self,
        clusters: &Clusters,
        cluster: Cluster,
        free: &UnitSet<W>,
        colours: &Colours,
    ) -> Option<usize> {
        let is_free_of_cost = self.secondary.is_clear() && self.scene.read_with.is_none();
        let file = self.scene.target.file(self.file);
        if file.has_order() {
            return file.best_start(free);
        }
        if self.claimed.is_empty() && is_free_of_cost {
            return free.lowest();
        }
        let width = clusters.info(cluster).width as usize;
        let contested = self.claimed.blocked_starts(width).and(free);
        let calm = free.without(&contested).lowest();
        let mut left = CLAIMS_EXAMINED;
        if let (Some(calm), true) = (calm, is_free_of_cost) {
            // No counter is below zero: the first start that costs no pending hint wins.
            let below = contested.and(&UnitSet::first(calm));
            let harmless = below.iter().find(|&start| {
                let units = start..start + width;
                self.loss(clusters, cluster, units, colours, &mut left) == 0
            });
            return harmless.or(Some(calm));
        }
        let mut primary = Histogram::default();
        let claimed = self.claimed;
        for unit in claimed.iter() {
            if left == 0 {
                break;
            }
            let loss = self.loss(clusters, cluster, unit..unit + 1, colours, &mut left);
            let unit = UnitSet::of(std::iter::once(unit));
            primary.add(&unit.blocked_starts(width), loss);
        }
        let threshold = self.scene.knobs.discard_threshold;
        match self.scene.read_with {
            None => choose(free, &primary, &self.secondary, threshold),
            Some(read_with) => {
                let secondary = self.with_banks(clusters.info(cluster), read_with, colours);
                choose(free, &primary, &secondary, threshold)
            }
        }
    }

    /// What starts cost, with the banks of values read together with the members: one for
    /// each that would share a bank, and more for a start that raises the highest
    /// register.
    fn with_banks(
        &self,
        info: &ClusterInfo,
        read_with: &ReadWith,
        colours: &Colours,
    ) -> Histogram<W> {
        let mut costs = self.secondary.clone();
        let info_of_file = self.scene.target.file(self.file);
        let (per_register, banks) = (info_of_file.units_per_reg, info_of_file.banks);
        let bank = |unit: usize| unit / per_register % banks;
        let starts = 64 * W;
        for member in &info.members {
            for &other in &read_with[member.value] {
                let Some(reg) = colours[other].filter(|reg| reg.file == self.file) else {
                    continue;
                };
                let taken = bank(reg.unit as usize);
                let same = |start: &usize| bank(start + member.offset as usize) == taken;
                costs.add(&UnitSet::of((0..starts).filter(same)), 1);
            }
        }
        let needed = self.used.max(self.scene.ranges.peak(self.file));
        let low = (needed + 1).saturating_sub(info.width as usize);
        costs.add(
            &UnitSet::first(starts).without(&UnitSet::first(low)),
            RAISES,
        );
        costs
    }

    /// What pending copies would lose by `units` being taken, as far as `left` claims tell.
    /// Claims of values that have been placed are dropped on the way.
    fn loss(
        &mut self,
        clusters: &Clusters,
        cluster: Cluster,
        units: Range<usize>,
        colours: &Colours,
        left: &mut usize,
    ) -> u32 {
        let info = clusters.info(cluster);
        let ranges = self.scene.ranges;
        let mut loss = 0;
        for unit in units {
            let claims = &mut self.claims[unit];
            let mut next = 0;
            while let Some(&(value, weight)) = claims.get(next).filter(|_| *left > 0) {
                if colours[value].is_some() {
                    claims.swap_remove(next);
                    continue;
                }
                (next, *left) = (next + 1, *left - 1);
                let meets = |m: &Member| overlap(ranges.of(m.value), ranges.of(value));
                if clusters.of(value) != Some(cluster) && info.members.iter().any(meets) {
                    loss += weight;
                }
            }
            if claims.is_empty() {
                self.claimed.remove(unit);
            }
        }
        loss
    }

    #[inline(always)]
    pub(super) fn take(
        &mut self,
        clusters: &Clusters,
        info: &ClusterInfo,
        start: usize,
        colours: &mut Colours,
    ) {
        let Scene { ranges, .. } = self.scene;
        for member in &info.members {
            let unit = start + member.offset as usize;
            let width = ranges.size(member.value).width as usize;
            colours[member.value] = Some(PReg::new(self.file, unit));
            if member.silent {
                continue;
            }
            for &segment in ranges.of(member.value) {
                self.occupancy.mark(segment, unit, width);
            }
        }
        self.used = self.used.max(start + info.width as usize);
        self.claim_for_partners(clusters.hints(), info, start, colours);
    }

    /// Notes the starts at which copies to values not yet placed vanish.
    fn claim_for_partners(
        &mut self,
        hints: &Hints,
        info: &ClusterInfo,
        start: usize,
        colours: &Colours,
    ) {
        if !info.has_hints {
            return;
        }
        for member in &info.members {
            for &(other, shift, weight) in hints.of(member.value) {
                let unit = start as i32 + i32::from(member.offset) + shift;
                let Ok(unit) = usize::try_from(unit) else {
                    continue;
                };
                if colours[other].is_some() {
                    continue;
                }
                let weight = (weight * CLAIM_WEIGHT).clamp(1.0, 127.0) as u32;
                self.claims[unit].push((other, weight));
                self.claimed.insert(unit);
            }
        }
    }
}

/// Units of fixed places, where other values are to keep out of them.
fn reserved<const W: usize>(scene: &Scene, file: File) -> UnitSet<W> {
    if scene.knobs.precolor_reuse {
        return UnitSet::EMPTY;
    }
    let links = scene.program.links.iter();
    let fixed = links.filter_map(|link| Some((link, link.fixed.filter(|reg| reg.file == file)?)));
    UnitSet::of(fixed.flat_map(|(link, reg)| {
        let members = link.members.iter();
        members.flat_map(move |&(value, offset)| {
            let first = reg.unit as usize + offset as usize;
            first..first + scene.ranges.size(value).width as usize
        })
    }))
}

/// How many units of `file` may be handed out.
fn units(scene: &Scene, file: File) -> usize {
    let per_register = scene.target.file(file).units_per_reg;
    per_register * scene.target.budget(file)
}

/// What each unit costs in itself: callee-saved registers must be saved.
fn secondary<const W: usize>(scene: &Scene, file: File) -> Histogram<W> {
    let mut histogram = Histogram::default();
    let Scene {
        program,
        target,
        knobs,
        ..
    } = *scene;
    if program.function.convention() == Convention::Device && knobs.abi {
        let units = UnitSet::of_file(target, file, &target.preserved());
        if !units.is_empty() {
            histogram.add(&units, 1);
        }
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_scene;
    use super::*;
    use cranelift_entity::EntityRef;

    /// The copy `v1` of `v0` runs four times; `v2` has the choice once both are placed.
    #[test]
    fn a_copy_claims_a_start_by_its_frequency_until_its_value_is_placed() {
        let text = "target hardware sm_90
            options RegAllocCoalescing=false
            kernel f {
            block0:
                bra -> block1
            block1 freq 4:
                v0:r32 = load : read
                v1:r32 = mov v0 : copy
                store v1 : write
                v2:r32 = load : read
                store v2 : write
                exit : exit write
            }";
        with_scene(text, |scene, mut clusters| {
            let mut assign = Assign::<1>::new(scene, File::R);
            let mut colours = Colours::new();
            let mut place = |assign: &mut Assign<1>, number: usize| {
                let order = [clusters.of(Value::new(number)).unwrap()];
                assign.place_all(&mut clusters, &order, &mut colours);
            };
            place(&mut assign, 0);
            assert_eq!(assign.claims[0][..], [(Value::new(1), 32)]);
            place(&mut assign, 1);
            place(&mut assign, 2);
            assert!(assign.claimed.is_empty());
        });
    }

    #[test]
    fn all_lanes_of_a_fixed_place_are_reserved() {
        let text = "target hardware sm_90
            options RegAllocPrecolorReuse=false
            kernel f {
            block0:
                v0:r32 @ R4, v1:r32 = load : read group 0..2 align 2
                store v0, v1 : write
                exit : exit write
            }";
        with_scene(text, |scene, _| {
            let units: UnitSet<1> = reserved(&scene, File::R);
            assert_eq!(units.iter().collect::<Vec<_>>(), [4, 5]);
        });
    }
}
