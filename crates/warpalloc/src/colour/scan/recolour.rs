//! Registers exchanged after the walk, where that saves moves.
//!
//! The walk gives registers before it knows what later definitions and back edges want. Here
//! fragments that a move connects are brought together, after S. Hack and G. Goos ("Copy
//! Coalescing by Graph Recoloring", PLDI 2008), the most frequent moves first:
//!
//! - Of two registers, one fragment and all that interfere with it, directly or through
//!   others, exchange places. Such a Kempe chain is possible whatever the pressure.
//! - Fragments in the way go to registers that are free for them.
//! - What one chain loses, another may win back.
//!
//! Each is done if the moves it saves weigh more than those it makes. Then cycles of moves are
//! opened. In the place of an interference graph, the segments that each unit holds stand in
//! order, in chunks of the code, so that a change costs no more in long code.

mod cycles;

use super::code::{Code, FILES, NONE};
use super::fragments::{Assigned, Fragment, Segment};
use crate::allocation::Edit;
use crate::target::{PReg, UnitSet};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;
use std::ops::Range;

/// How many fragments exchange registers at most, which bounds the time.
const MAX_CHAIN: usize = 24;
/// How many fragments make way for one at most.
const MAX_DISPLACED: usize = 4;
/// What is saved and what is lost may be the same but for rounding.
const LEAST: f32 = 1e-3;
/// How often all moves are looked at.
const ROUNDS: usize = 2;

/// Two fragments that had better have the same register, the one that a move writes first, and
/// what the move costs otherwise.
type Affinity = (f32, u32, u32);

/// Exchanges registers of fragments; `last` is the last fragment of each value.
pub(super) fn recolour(code: &Code, last: &[u32], assigned: &mut Assigned) {
    if code.program.has_hints {
        return;
    }
    let (mut affinities, edges) = affinities(code, last, assigned);
    let is_met = |a: &Affinity| assigned.unit(a.1) == assigned.unit(a.2);
    if affinities.iter().all(is_met) {
        return;
    }
    let mut recolouring = Recolouring::new(
        code,
        &affinities,
        &mut assigned.fragments,
        &assigned.segments,
    );
    let moves = affinities.clone();
    affinities.retain(|&(_, a, b)| !recolouring.overlap(a, b));
    affinities.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut is_changed = false;
    for _ in 0..ROUNDS {
        let mut is_better = false;
        for &(_, a, b) in &affinities {
            is_better |= recolouring.bring_together(a, b);
        }
        is_changed |= is_better;
        if !is_better {
            break;
        }
    }
    is_changed |= recolouring.open_cycles(&moves, &edges);
    if is_changed {
        write_down(code, assigned);
    }
}

/// What had better be in one register, both ends of each edge and of each copy; and which of
/// these are on one edge.
fn affinities(
    code: &Code,
    last: &[u32],
    assigned: &Assigned,
) -> (Vec<Affinity>, Vec<Range<usize>>) {
    let mut found: Vec<Affinity> = Vec::new();
    let mut edges: Vec<Range<usize>> = Vec::new();
    let is_scalar = |v: u32| code.shape(v).width == 1;
    // Where no value has a second fragment, edges move parameters only.
    let is_whole = assigned.fragments.len() <= code.value_count() && {
        let mut fragments = assigned.fragments.iter().enumerate();
        fragments.all(|(n, f)| last[f.value as usize] == n as u32)
    };
    let mut at = match is_whole {
        true => Vec::new(),
        false => vec![NONE; code.value_count()],
    };
    for (number, edge) in (0..).zip(code.edges()) {
        let frequency = code.edge_frequency(edge) as f32;
        let first = found.len();
        if is_whole {
            for &(param, arg) in code.pairs(edge).iter().filter(|p| is_scalar(p.0)) {
                let [to, from] = [param, arg].map(|v| last[v as usize]);
                if to != from && to != NONE && from != NONE {
                    found.push((frequency, to, from));
                }
            }
        } else {
            let params = code.params(edge.to);
            // What goes on where it was is in the same fragment.
            if params.is_empty() && assigned.continues[edge.to.index()] == number {
                continue;
            }
            let exit = assigned.exit.of(edge.from);
            for &(value, fragment) in exit {
                at[value as usize] = fragment;
            }
            for &(value, fragment) in assigned.entry.of(edge.to) {
                let index = match params.is_empty() {
                    true => None,
                    false => params.iter().position(|&p| p == value),
                };
                let source = index.map_or(value, |index| code.pairs(edge)[index].1);
                let from = at[source as usize];
                if from != NONE && from != fragment && is_scalar(value) {
                    found.push((frequency, fragment, from));
                }
            }
            for &(value, _) in exit {
                at[value as usize] = NONE;
            }
        }
        if found.len() > first + 1 {
            edges.push(first..found.len());
        }
    }
    for &(inst, frequency) in &assigned.copies {
        let operands = &assigned.operands[code.function.operand_range(inst)];
        if let &[a, b] = operands
            && a != NONE
            && b != NONE
        {
            let [x, y] = [a, b].map(|f| code.shape(assigned.fragments[f as usize].value));
            if x.file == y.file && x.width == 1 && y.width == 1 {
                found.push((frequency, a, b));
            }
        }
    }
    (found, edges)
}

struct Recolouring<'a> {
    code: &'a Code<'a>,
    fragments: &'a mut [Fragment],
    /// The affinities of each fragment, row after row.
    affinities: Rows<(u32, f32)>,
    /// The segments of each fragment, cut where chunks end.
    segments: Rows<(u32, u32)>,
    /// What each unit holds in each chunk of the code, in order.
    held: Vec<Vec<Segment>>,
    /// The number of the first unit of each file, and of all units.
    first_unit: [usize; FILES],
    units: usize,
    /// The units of each file that somebody has.
    used: [UnitSet<8>; FILES],
    /// By fragment, the last chain that it was part of.
    stamps: Vec<u32>,
    stamp: u32,
    chain: Vec<u32>,
}

/// Lists of items, one per fragment.
struct Rows<T> {
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T: Copy + Default> Rows<T> {
    /// `items` is gone through twice.
    fn new(count: usize, items: impl Iterator<Item = (u32, T)> + Clone) -> Rows<T> {
        let mut starts = vec![0u32; count + 2];
        for (fragment, _) in items.clone() {
            starts[fragment as usize + 2] += 1;
        }
        for at in 2..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut all = vec![T::default(); starts[count + 1] as usize];
        for (fragment, item) in items {
            let at = &mut starts[fragment as usize + 1];
            all[*at as usize] = item;
            *at += 1;
        }
        Rows { starts, items: all }
    }

    #[inline]
    fn range(&self, fragment: u32) -> Range<usize> {
        let starts = &self.starts[fragment as usize..];
        starts[0] as usize..starts[1] as usize
    }

    #[inline]
    fn of(&self, fragment: u32) -> &[T] {
        &self.items[self.range(fragment)]
    }
}

/// Positions of a chunk, as a power of two. A change in one chunk leaves the others alone.
const CHUNK: u32 = 11;

/// The segments that are not empty, cut where chunks end.
fn cut(segments: &[Segment]) -> Vec<Segment> {
    let mut parts: Vec<Segment> = Vec::with_capacity(segments.len() + segments.len() / 4);
    for &segment in segments.iter().filter(|s| s.start < s.end) {
        let mut rest = segment;
        while rest.start >> CHUNK < (rest.end - 1) >> CHUNK {
            let end = ((rest.start >> CHUNK) + 1) << CHUNK;
            parts.push(Segment { end, ..rest });
            rest.start = end;
        }
        parts.push(rest);
    }
    parts
}

/// What a unit holds of `segment` beside what it held `before`. Around a constrained step, the
/// result of a tied operand begins where the input has not ended, and may end first; neither
/// moves, and the unit's segments stay in order by their ends as well.
fn behind(before: Option<&Segment>, segment: Segment) -> Option<Segment> {
    let start = before.map_or(segment.start, |before| segment.start.max(before.end));
    (start < segment.end).then_some(Segment { start, ..segment })
}

impl<'a> Recolouring<'a> {
    fn new(
        code: &'a Code<'a>,
        affinities: &[Affinity],
        fragments: &'a mut [Fragment],
        segments: &[Segment],
    ) -> Recolouring<'a> {
        let count = fragments.len();
        let both = affinities
            .iter()
            .flat_map(|&(weight, a, b)| [(a, (b, weight)), (b, (a, weight))]);
        let parts = cut(segments);
        let mut first_unit = [0; FILES];
        let mut units = 0;
        for (file, first) in first_unit.iter_mut().enumerate() {
            *first = units;
            units += code.units(file);
        }
        let chunks = parts.iter().map(|s| s.start >> CHUNK).max();
        let lists = units * (chunks.unwrap_or(0) as usize + 1);
        let mut used = [UnitSet::EMPTY; FILES];
        let mut counts = vec![0; lists];
        let lists_of = |segment: &Segment| {
            let Fragment { value, unit, .. } = fragments[segment.fragment as usize];
            let shape = code.shape(value);
            let chunk = (segment.start >> CHUNK) as usize * units;
            let first = chunk + first_unit[shape.file] + usize::from(unit);
            (shape.file, usize::from(unit), first..first + shape.width)
        };
        for segment in &parts {
            let (file, unit, lists) = lists_of(segment);
            used[file].insert(unit);
            lists.for_each(|list| counts[list] += 1);
        }
        // Room for a few more, which exchanges bring.
        let lists = counts.into_iter().map(|count| match count {
            0 => Vec::new(),
            count => Vec::with_capacity(count + 4),
        });
        let mut held: Vec<Vec<Segment>> = lists.collect();
        for segment in &parts {
            let (_, _, lists) = lists_of(segment);
            for list in lists {
                let left = behind(held[list].last(), *segment);
                held[list].extend(left);
            }
        }
        let segments = parts.iter().map(|s| (s.fragment, (s.start, s.end)));
        Recolouring {
            code,
            affinities: Rows::new(count, both),
            segments: Rows::new(count, segments),
            fragments,
            held,
            first_unit,
            units,
            used,
            stamps: vec![0; count],
            stamp: 0,
            chain: Vec::new(),
        }
    }

    fn of(&self, fragment: u32) -> &Fragment {
        &self.fragments[fragment as usize]
    }

    /// The list of what `unit` holds around a position.
    #[inline]
    fn list(&self, file: usize, unit: u16, position: u32) -> usize {
        let chunk = (position >> CHUNK) as usize * self.units;
        chunk + self.first_unit[file] + usize::from(unit)
    }

    /// Whether two fragments are live at once.
    fn overlap(&self, a: u32, b: u32) -> bool {
        let (mut a, mut b) = (self.segments.of(a), self.segments.of(b));
        while let (Some(x), Some(y)) = (a.first(), b.first()) {
            if x.0 < y.1 && y.0 < x.1 {
                return true;
            }
            match x.1 <= y.1 {
                true => a = &a[1..],
                false => b = &b[1..],
            }
        }
        false
    }

    /// Gives `a` and `b` one register if that costs less than it saves; says whether it did.
    fn bring_together(&mut self, a: u32, b: u32) -> bool {
        if self.of(a).unit == self.of(b).unit {
            return false;
        }
        self.move_to(a, b, false, 1)
            || self.move_to(b, a, false, 1)
            || self.displace(a, b)
            || self.displace(b, a)
            || self.move_to(a, b, true, 0)
            || self.move_to(b, a, true, 0)
    }

    /// Moves `fragment` to the register of `other`, with what is in its register for its sake
    /// if it goes `together`. If that alone does not pay, it may together with moving one
    /// more that lost its own.
    fn move_to(&mut self, fragment: u32, other: u32, together: bool, more: u32) -> bool {
        let (from, to) = (self.of(fragment).unit, self.of(other).unit);
        if from == to || !self.find_chain(fragment, to, together) {
            return false;
        }
        let gain = self.gain(from, to);
        if gain > LEAST {
            self.exchange(from, to);
            return true;
        }
        if more == 0 || self.chain.len() > MAX_DISPLACED {
            return false;
        }
        let lost = self.lost(from, to);
        let most: f32 = lost.iter().map(|l| l.0).sum();
        if gain + most <= LEAST {
            return false;
        }
        self.exchange(from, to);
        let chain = self.chain.clone();
        for (_, a, b) in lost {
            for (a, b) in [(a, b), (b, a)] {
                let [here, there] = [a, b].map(|f| self.of(f).unit);
                if here != there
                    && self.find_chain(a, there, false)
                    && gain + self.gain(here, there) > LEAST
                {
                    self.exchange(here, there);
                    return true;
                }
            }
        }
        self.chain = chain;
        self.exchange(to, from);
        false
    }

    /// Moves `fragment` to the register of `other`, and each fragment that is in its way there
    /// to a register that is free for it.
    fn displace(&mut self, fragment: u32, other: u32) -> bool {
        let (from, to) = (self.of(fragment).unit, self.of(other).unit);
        let mut gain = self.worth(fragment, to) - self.worth(fragment, from);
        if gain <= LEAST || !self.can_move(fragment) {
            return false;
        }
        let mut in_the_way: SmallVec<[u32; MAX_DISPLACED]> = SmallVec::new();
        for at in self.segments.range(fragment) {
            let span = self.segments.items[at];
            for held in self.held_in(self.file(fragment), to, span) {
                if in_the_way.contains(&held.fragment) {
                    continue;
                }
                if in_the_way.len() == MAX_DISPLACED || !self.can_move(held.fragment) {
                    return false;
                }
                in_the_way.push(held.fragment);
            }
        }
        let mut moved: SmallVec<[(u32, u16); MAX_DISPLACED]> = SmallVec::new();
        for displaced in in_the_way {
            let file = self.file(displaced);
            let units = self.used[file].iter().map(|unit| unit as u16);
            let free = units.filter(|&unit| self.is_free_for(displaced, unit));
            let best = free
                .map(|unit| (self.worth(displaced, unit), unit))
                .reduce(|a, b| if b.0 > a.0 { b } else { a });
            let Some((worth, unit)) = best else { break };
            gain += worth - self.worth(displaced, to);
            if gain <= LEAST {
                break;
            }
            moved.push((displaced, unit));
            self.move_alone(displaced, unit);
        }
        let pays = gain > LEAST && self.is_free_for(fragment, to);
        if pays {
            self.move_alone(fragment, to);
        } else {
            for (displaced, _) in moved {
                self.move_alone(displaced, to);
            }
        }
        pays
    }

    /// What the affinities of `fragment` are worth in `unit`.
    fn worth(&self, fragment: u32, unit: u16) -> f32 {
        let affinities = self.affinities.of(fragment).iter();
        let met = affinities.filter(|(other, _)| self.of(*other).unit == unit);
        met.map(|(_, weight)| weight).sum()
    }

    /// What `unit` holds between two positions of one chunk.
    #[inline]
    fn held_in(
        &self,
        file: usize,
        unit: u16,
        (start, end): (u32, u32),
    ) -> impl Iterator<Item = &Segment> {
        let list = &self.held[self.list(file, unit, start)];
        let first = list.partition_point(|s| s.end <= start);
        list[first..].iter().take_while(move |s| s.start < end)
    }

    fn is_free_for(&self, fragment: u32, unit: u16) -> bool {
        let file = self.file(fragment);
        let mut segments = self.segments.of(fragment).iter();
        segments.all(|&span| self.held_in(file, unit, span).next().is_none())
    }

    fn move_alone(&mut self, fragment: u32, unit: u16) {
        let from = self.of(fragment).unit;
        self.chain.clear();
        self.chain.push(fragment);
        self.exchange(from, unit);
    }

    /// The affinities that are no longer met if the chain exchanges two units.
    fn lost(&self, here: u16, there: u16) -> SmallVec<[Affinity; 4]> {
        let mut lost = SmallVec::new();
        for &member in &self.chain {
            let from = self.of(member).unit;
            debug_assert!(from == here || from == there);
            for &(other, weight) in self.affinities.of(member) {
                if self.stamps[other as usize] != self.stamp && self.of(other).unit == from {
                    lost.push((weight, member, other));
                }
            }
        }
        lost
    }

    fn file(&self, fragment: u32) -> usize {
        self.code.shape(self.of(fragment).value).file
    }

    fn can_move(&self, fragment: u32) -> bool {
        let Fragment {
            value, is_frozen, ..
        } = *self.of(fragment);
        !is_frozen && self.code.shape(value).width == 1
    }

    /// Adds a fragment to the chain; fails if it cannot move.
    fn add(&mut self, fragment: u32) -> bool {
        if !self.can_move(fragment) || self.chain.len() == MAX_CHAIN {
            return false;
        }
        self.stamps[fragment as usize] = self.stamp;
        self.chain.push(fragment);
        true
    }

    /// Finds what has to move if `fragment` moves to `unit`; fails if something cannot.
    fn find_chain(&mut self, fragment: u32, unit: u16, together: bool) -> bool {
        let here = self.of(fragment).unit;
        let file = self.file(fragment);
        self.stamp += 1;
        self.chain.clear();
        if !self.add(fragment) {
            return false;
        }
        let mut next = 0;
        while together && next < self.chain.len() {
            for at in self.affinities.range(self.chain[next]) {
                let other = self.affinities.items[at].0;
                let is_here = self.of(other).unit == here;
                if is_here && self.stamps[other as usize] != self.stamp && !self.add(other) {
                    return false;
                }
            }
            next += 1;
        }
        next = 0;
        while let Some(&member) = self.chain.get(next) {
            next += 1;
            let to = if self.of(member).unit == here {
                unit
            } else {
                here
            };
            for at in self.segments.range(member) {
                let (start, end) = self.segments.items[at];
                let list = self.list(file, to, start);
                let first = self.held[list].partition_point(|s| s.end <= start);
                for at in first..self.held[list].len() {
                    let Segment {
                        fragment: other,
                        start,
                        ..
                    } = self.held[list][at];
                    if start >= end {
                        break;
                    }
                    if self.stamps[other as usize] != self.stamp && !self.add(other) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// What it saves if the chain exchanges two units.
    fn gain(&self, here: u16, there: u16) -> f32 {
        let mut gain = 0.0;
        for &member in &self.chain {
            let from = self.of(member).unit;
            let to = if from == here { there } else { here };
            for &(other, weight) in self.affinities.of(member) {
                if self.stamps[other as usize] == self.stamp {
                    continue;
                }
                let unit = self.of(other).unit;
                if unit == to {
                    gain += weight;
                } else if unit == from {
                    gain -= weight;
                }
            }
        }
        gain
    }

    /// Exchanges two units for the chain.
    fn exchange(&mut self, here: u16, there: u16) {
        let file = self.file(self.chain[0]);
        let mut parts: SmallVec<[(usize, Segment); 64]> = SmallVec::new();
        for at in 0..self.chain.len() {
            let fragment = self.chain[at];
            let from = self.of(fragment).unit;
            let to = if from == here { there } else { here };
            self.fragments[fragment as usize].unit = to;
            for &(start, end) in self.segments.of(fragment) {
                let segment = Segment {
                    fragment,
                    start,
                    end,
                };
                let list = self.list(file, from, start);
                let held = &mut self.held[list];
                let place = held.partition_point(|s| s.start < start);
                let removed = held.remove(place);
                debug_assert_eq!(removed.fragment, fragment);
                parts.push((self.list(file, to, start), segment));
            }
        }
        for (list, segment) in parts {
            let held = &mut self.held[list];
            let place = held.partition_point(|s| s.start < segment.start);
            held.insert(place, segment);
        }
    }
}

/// Makes the registers of fragments those of operands and edits.
fn write_down(code: &Code, assigned: &mut Assigned) {
    let fragments = &assigned.fragments;
    for (register, &fragment) in assigned.registers.iter_mut().zip(&assigned.operands) {
        if fragment != NONE {
            register.unit = fragments[fragment as usize].unit;
        }
    }
    for ((_, edit), &fragment) in assigned.edits.iter_mut().zip(&assigned.edited) {
        if fragment == NONE {
            continue;
        }
        let set = |register: &mut PReg| register.unit = fragments[fragment as usize].unit;
        match edit {
            Edit::Store { from, .. } => set(from),
            Edit::Reload { to, .. } => set(to),
            Edit::Recompute { regs, .. } => regs.iter_mut().for_each(set),
            _ => {}
        }
    }
    for (block, continues) in assigned.continues.iter_mut().enumerate() {
        if *continues == NONE {
            continue;
        }
        let edge = &code.edges()[*continues as usize];
        debug_assert_eq!(edge.to.as_u32() as usize, block);
        let moves = code.pairs(edge).iter().any(|&(param, arg)| {
            let at = |list: &[(u32, u32)], value: u32| {
                let found = list.iter().find(|l| l.0 == value);
                found.map(|l| fragments[l.1 as usize].unit)
            };
            let to = at(assigned.entry.of(edge.to), param);
            to.is_some() && to != at(assigned.exit.of(edge.from), arg)
        });
        if moves {
            *continues = NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result that is tied to the value of a longer segment and never read, one that outlives
    /// its input by a step, and one that begins behind all of these.
    #[test]
    fn what_a_unit_holds_is_in_order_by_its_ends() {
        let spans = [(2, 20), (8, 10), (18, 26), (26, 30)];
        let mut held: Vec<Segment> = Vec::new();
        for (fragment, (start, end)) in (0..).zip(spans) {
            let segment = Segment {
                fragment,
                start,
                end,
            };
            held.extend(behind(held.last(), segment));
        }
        let held = held.iter().map(|s| (s.fragment, s.start, s.end));
        let expected = [(0, 2, 20), (2, 20, 26), (3, 26, 30)];
        assert!(held.eq(expected));
    }
}
