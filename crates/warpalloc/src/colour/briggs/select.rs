//! Select: giving colours back in reverse order.
//!
//! Bodies come back from the stack and take the lowest free place. Among the places that
//! would not raise the highest register in use, a copy that was not coalesced may still
//! pull its body towards the other side (*biased colouring*), and see
//! [`Preferences`](super::prefer::Preferences) for what else decides.
//!
//! For a body that finds no place the remedies come in order of price:
//! 1. a merged body is taken apart into the bodies it was made of, and each looks for a
//!    place of its own (J. Park and S. Moon, TOPLAS 2004);
//! 2. a part that finds none may take the place of neighbours that are together cheaper to
//!    spill; the evicted look for another place first;
//! 3. the part is spilled.

use super::graph::Graph;
use super::prefer::Preferences;
use crate::coalesce::{Bodies, BodyId, Member};
use crate::interference::{Edge, Interference};
use crate::ir::{Program, Value};
use crate::target::UnitSet;
use crate::target::{File, PReg, Target};
use cranelift_entity::{EntityRef, SecondaryMap};
use std::collections::{BTreeSet, VecDeque};

/// The register of every value that has one.
pub type Colours = SecondaryMap<Value, Option<PReg>>;

/// What colouring came to.
pub struct Selected {
    /// Registers.
    pub colours: Colours,
    /// Values that need to go to memory, in ascending order.
    pub spilled: Vec<Value>,
    /// A value that must have a register and can get none.
    pub stuck: Option<Value>,
    /// Merged bodies that were taken apart.
    pub undone: u32,
}

/// How often bodies may evict each other, per body of the program.
const EVICTIONS_PER_BODY: usize = 4;
/// The price of evicting a body that cannot be spilled and must find another place.
const PUSH: f64 = 1e12;

/// Colours the bodies of `graph`, the last of `stack` first; `parts` makes them as they were
/// before any merge.
pub fn select<'a>(
    program: &Program,
    target: &'a Target,
    graph: &Graph<'a>,
    parts: &'a dyn Fn() -> Bodies,
    stack: &[BodyId],
    costs: &'a SecondaryMap<Value, f32>,
    preferences: &mut Preferences<'a>,
) -> Selected {
    let mut select = Select {
        target,
        interference: graph.interference,
        make_parts: parts,
        costs,
        preferences,
        units: vec![NOWHERE; program.values.len()],
        widths: program
            .values
            .values()
            .map(|info| target.width(info.class) as u16)
            .collect(),
        evictions_left: EVICTIONS_PER_BODY * graph.bodies.keys().len() + 64,
        spilled: Vec::new(),
        stuck: None,
        undone: 0,
    };
    let mut parts = None;
    let is_fixed = |id: &BodyId| graph.bodies.get(*id).fixed;
    let fixed = graph.bodies.keys().filter(is_fixed);
    let fixed: Vec<BodyId> = fixed
        .filter(|&id| !graph.bodies.get(id).members.is_empty())
        .collect();
    for &id in fixed.iter().chain(stack.iter().rev()) {
        let body = graph.bodies.get(id);
        if !select.colour(&body.members, *graph.bodies.starts(id), body.file) {
            let parts = parts.get_or_insert_with(|| select.parts());
            select.take_apart(parts, &body.members);
        }
    }
    select.finish(program)
}

/// The unit of a value that has no colour.
const NOWHERE: u16 = u16::MAX;

/// The bodies as they were before any merge.
struct Parts {
    bodies: Bodies,
    /// What it costs that a part has no place; infinite where it must have one.
    costs: Vec<f64>,
    /// What evicting a part costs: its spill, or a price that grows each time.
    prices: Vec<f64>,
}

impl Parts {
    fn is_spillable(&self, part: BodyId) -> bool {
        self.costs[part.index()].is_finite()
    }
}

struct Select<'a, 'p> {
    target: &'a Target,
    interference: &'a Interference,
    make_parts: &'a dyn Fn() -> Bodies,
    costs: &'a SecondaryMap<Value, f32>,
    preferences: &'p mut Preferences<'a>,
    /// First unit of each value.
    units: Vec<u16>,
    /// Units that each value takes.
    widths: Vec<u16>,
    evictions_left: usize,
    spilled: Vec<Value>,
    stuck: Option<Value>,
    undone: u32,
}

impl Select<'_, '_> {
    /// Gives the members a place among `starts` if one is free.
    fn colour(&mut self, members: &[Member], starts: UnitSet<8>, file: File) -> bool {
        let free = self.free_starts(members, starts);
        match self.preferences.choose(members, file, &free, &self.units) {
            Some(start) => {
                self.settle(members, start);
                true
            }
            None => false,
        }
    }

    fn settle(&mut self, members: &[Member], start: usize) {
        for m in members {
            self.units[m.value.index()] = start as u16 + m.offset;
        }
        self.preferences.note(members, start);
    }

    /// The starts at which no member overlaps a coloured neighbour.
    fn free_starts(&self, members: &[Member], mut starts: UnitSet<8>) -> UnitSet<8> {
        for m in members {
            let mut taken = UnitSet::EMPTY;
            for edge in self.interference.edges(m.value) {
                if edge.conditional {
                    self.keep_apart(m, edge, &mut starts);
                    continue;
                }
                let unit = self.units[edge.value.index()];
                if unit != NOWHERE {
                    match self.widths[edge.value.index()] {
                        1 => taken.insert(unit as usize),
                        width => taken.insert_range(unit as usize, width as usize),
                    }
                }
            }
            let blocked = taken.blocked_starts(m.width as usize);
            starts.subtract(&blocked.down(m.offset as usize));
        }
        starts
    }

    /// Takes out the starts that the coloured end of a conditional `edge` blocks for `m`.
    fn keep_apart(&self, m: &Member, edge: Edge, starts: &mut UnitSet<8>) {
        if let Some((first, end, spared)) = self.blocked(m, edge) {
            let spare = spared.filter(|&s| starts.contains(s));
            starts.remove_range(first, end);
            if let Some(start) = spare {
                starts.insert(start);
            }
        }
    }

    /// The starts `first..end` that the coloured end of `edge` blocks for `m`, and the one
    /// among them it does not.
    fn blocked(&self, m: &Member, edge: Edge) -> Option<(i32, i32, Option<usize>)> {
        let unit = self.units[edge.value.index()];
        if unit == NOWHERE {
            return None;
        }
        let (low, width) = (unit as i32, self.widths[edge.value.index()] as i32);
        let first = low - m.offset as i32 - m.width as i32 + 1;
        let end = low + width - m.offset as i32;
        let distance = match edge.conditional {
            true => self.interference.distance(m.value, edge.value),
            false => None,
        };
        let spared = distance.and_then(|d| usize::try_from(low - d - m.offset as i32).ok());
        Some((first, end, spared))
    }

    /// The bodies before any merge, and what becomes of them.
    fn parts(&self) -> Parts {
        let bodies = (self.make_parts)();
        let cost = |members: &[Member]| {
            let costs = members.iter().map(|m| f64::from(self.costs[m.value]));
            costs.sum()
        };
        let costs = bodies.keys().map(|id| cost(&bodies.get(id).members));
        let costs: Vec<f64> = costs.collect();
        let price = |(id, &cost): (BodyId, &f64)| match bodies.get(id).fixed {
            true => f64::INFINITY,
            false if cost.is_finite() => cost,
            false => PUSH,
        };
        let prices = bodies.keys().zip(&costs).map(price).collect();
        Parts {
            bodies,
            costs,
            prices,
        }
    }

    /// Colours the parts of a merged body one by one, the most expensive first.
    fn take_apart(&mut self, parts: &mut Parts, members: &[Member]) {
        let of_body = members.iter().filter_map(|m| parts.bodies.of(m.value));
        let mut of_body: Vec<BodyId> = of_body.collect();
        of_body.sort_unstable();
        of_body.dedup();
        self.undone += (of_body.len() > 1) as u32;
        of_body.sort_by(|&a, &b| parts.costs[b.index()].total_cmp(&parts.costs[a.index()]));
        let mut waiting: VecDeque<BodyId> = of_body.into();
        while let Some(part) = waiting.pop_front() {
            self.place(parts, part, &mut waiting);
        }
    }

    /// Finds a place for `part`, spilling it or others if there is none. Evicted parts join
    /// the queue.
    fn place(&mut self, parts: &mut Parts, part: BodyId, waiting: &mut VecDeque<BodyId>) {
        let body = parts.bodies.get(part);
        if self.colour(&body.members, *parts.bodies.starts(part), body.file) {
            return;
        }
        let own = parts.costs[part.index()];
        match self.cheapest_start(parts, part) {
            Some((start, price)) if price < own && self.evictions_left > 0 => {
                let victims = self.occupants(parts, part, start);
                self.evictions_left = self.evictions_left.saturating_sub(victims.len());
                for victim in victims {
                    if !parts.is_spillable(victim) {
                        parts.prices[victim.index()] += PUSH;
                    }
                    for m in &parts.bodies.get(victim).members {
                        self.units[m.value.index()] = NOWHERE;
                    }
                    waiting.push_back(victim);
                }
                self.settle(&body.members, start);
            }
            _ if parts.is_spillable(part) => {
                self.spilled.extend(body.members.iter().map(|m| m.value));
            }
            _ => self.stuck = self.stuck.or(Some(body.members[0].value)),
        }
    }

    /// The start of `part` whose occupants are cheapest to evict, and their price.
    fn cheapest_start(&self, parts: &Parts, part: BodyId) -> Option<(usize, f64)> {
        let body = parts.bodies.get(part);
        let units = self.target.file(body.file).units;
        let mut prices = vec![0.0f64; units];
        for m in &body.members {
            for edge in self.interference.edges(m.value) {
                let Some((first, end, spared)) = self.blocked(m, edge) else {
                    continue;
                };
                let Some(occupant) = parts.bodies.of(edge.value) else {
                    continue;
                };
                let price = parts.prices[occupant.index()];
                let range = first.max(0) as usize..(end.max(0) as usize).min(units);
                for start in range.filter(|&start| spared != Some(start)) {
                    prices[start] += price;
                }
            }
        }
        let starts = parts.bodies.starts(part).iter().filter(|&s| s < units);
        let priced = starts.map(|start| (start, prices[start]));
        priced.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The parts that interfere with `part` at `start`.
    fn occupants(&self, parts: &Parts, part: BodyId, start: usize) -> BTreeSet<BodyId> {
        let mut found = BTreeSet::new();
        for m in &parts.bodies.get(part).members {
            for edge in self.interference.edges(m.value) {
                let Some((first, end, spared)) = self.blocked(m, edge) else {
                    continue;
                };
                if (first..end).contains(&(start as i32)) && spared != Some(start) {
                    found.extend(parts.bodies.of(edge.value));
                }
            }
        }
        found
    }

    fn finish(self, program: &Program) -> Selected {
        let mut colours = SecondaryMap::new();
        colours.resize(program.values.len());
        for (value, info) in program.values.iter() {
            let unit = self.units[value.index()];
            let file = self.target.class(info.class).file;
            colours[value] = (unit != NOWHERE).then(|| PReg::new(file, unit as usize));
        }
        let mut spilled = self.spilled;
        spilled.sort_unstable();
        Selected {
            colours,
            spilled,
            stuck: self.stuck,
            undone: self.undone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_graph;
    use super::*;
    use crate::stats::Stats;

    /// `v0` gives way to `v1`. Then `v3` wants the place of either `v0` or `v2`, who both could
    /// go elsewhere, and it is the turn of `v2`.
    #[test]
    fn bodies_that_need_a_place_and_moved_before_are_dearer_to_move() {
        let body = "
            v0:r32, v1:r32, v2:r32, v3:r32 = load : read
            store v0, v1, v2, v3 : write";
        let places = [&[0, 1, 3][..], &[0], &[0, 1, 2, 3], &[1, 2]];
        let restrict = |parts: &mut Bodies| {
            for (number, places) in places.into_iter().enumerate() {
                let id = parts.of(Value::new(number)).unwrap();
                parts.set_starts(id, UnitSet::of(places.iter().copied()));
            }
        };
        with_graph(4, body, restrict, |graph, parts, problem| {
            let stats = &mut Stats::default();
            let (program, target) = (&problem.program, problem.target);
            let interference = problem.interference(stats);
            let moves = problem.moves(stats);
            let mut preferences = Preferences::new(program, target, interference, moves);
            let stack = [3, 2, 1, 0].map(|number| parts.of(Value::new(number)).unwrap());
            let costs = SecondaryMap::with_default(f32::INFINITY);
            let selected = select(
                program,
                target,
                &graph,
                &|| parts.clone(),
                &stack,
                &costs,
                &mut preferences,
            );
            let units = [0, 1, 2, 3].map(|number| selected.colours[Value::new(number)]);
            let units = units.map(|reg| reg.unwrap().unit);
            assert_eq!(units, [1, 0, 3, 2]);
        });
    }
}
