//! Cycles among the moves of an edge, each of which costs one move more than it has.
//!
//! An end of one of its moves goes to another register, alone or with its companions. That may
//! close a cycle on another edge, so all edges are weighed whose moves change.

use super::{Affinity, LEAST, Recolouring, Rows};
use smallvec::SmallVec;
use std::ops::Range;

/// On edges with more moves than this one move more is little, and finding cycles takes long.
const MAX_MOVES: usize = 16;
/// How many registers are tried for each fragment of the code, which bounds the time.
const TRIES: usize = 8;

/// The moves of all edges, edge after edge.
struct Edges<'a> {
    moves: &'a [Affinity],
    ranges: &'a [Range<usize>],
    /// The edges that move each fragment.
    of: Rows<u32>,
}

impl Recolouring<'_> {
    /// Opens the cycles that cost more than it does; says whether anything changed. Each range
    /// of `moves` is an edge.
    pub(super) fn open_cycles(&mut self, moves: &[Affinity], ranges: &[Range<usize>]) -> bool {
        let is_closed =
            |range: &&Range<usize>| !self.on_cycles(&moves[(*range).clone()]).is_empty();
        let closed: Vec<Range<usize>> = ranges.iter().filter(is_closed).cloned().collect();
        if closed.is_empty() {
            return false;
        }
        let ends = (0..).zip(ranges).flat_map(|(edge, range)| {
            let moves = moves[range.clone()].iter();
            moves.flat_map(move |&(_, to, from)| [(to, edge), (from, edge)])
        });
        let of = Rows::new(self.fragments.len(), ends);
        let edges = Edges { moves, ranges, of };
        let mut is_changed = false;
        let mut tries = TRIES * self.fragments.len();
        for range in closed {
            loop {
                let mut on_cycles = self.on_cycles(&moves[range.clone()]).into_iter();
                if !on_cycles.any(|(_, to, from)| self.open_cycle(&edges, to, from, &mut tries)) {
                    break;
                }
                is_changed = true;
            }
        }
        is_changed
    }

    /// Moves an end of a move to the register where that saves most, if anywhere.
    fn open_cycle(&mut self, edges: &Edges, to: u32, from: u32, tries: &mut usize) -> bool {
        let units = self.used[self.file(from)];
        let mut best: Option<(f32, u32, bool, u16)> = None;
        for (fragment, together) in [(from, false), (to, false), (from, true), (to, true)] {
            for unit in units.iter().map(|unit| unit as u16) {
                if *tries == 0 {
                    break;
                }
                *tries -= 1;
                let least = best.map_or(0.0, |b| b.0) + LEAST;
                if let Some(saved) = self.saved(edges, fragment, unit, together, least) {
                    best = Some((saved, fragment, together, unit));
                }
            }
        }
        let Some((_, fragment, together, unit)) = best else {
            return false;
        };
        let here = self.of(fragment).unit;
        self.find_chain(fragment, unit, together);
        self.exchange(here, unit);
        true
    }

    /// What it saves if `fragment` goes to `unit`, where it saves more than `least`.
    fn saved(
        &mut self,
        edges: &Edges,
        fragment: u32,
        unit: u16,
        together: bool,
        least: f32,
    ) -> Option<f32> {
        let here = self.of(fragment).unit;
        if unit == here || !self.find_chain(fragment, unit, together) {
            return None;
        }
        let changed = self.edges_of_chain(edges);
        let gain = self.gain(here, unit) + self.cost_of_cycles(edges, &changed);
        if gain <= least {
            return None;
        }
        self.exchange(here, unit);
        let saved = gain - self.cost_of_cycles(edges, &changed);
        self.exchange(unit, here);
        (saved > least).then_some(saved)
    }

    /// The edges that move a member of the chain.
    fn edges_of_chain(&self, edges: &Edges) -> SmallVec<[u32; 8]> {
        let members = self.chain.iter();
        let mut found: SmallVec<[u32; 8]> = members
            .flat_map(|&m| edges.of.of(m).iter().copied())
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// What the cycles on these edges cost: a move each.
    fn cost_of_cycles(&self, edges: &Edges, of: &[u32]) -> f32 {
        let cost = |&edge: &u32| {
            let moves = &edges.moves[edges.ranges[edge as usize].clone()];
            let on_cycles = self.on_cycles(moves);
            let parts = on_cycles.iter();
            parts
                .map(|m| m.0 / self.cycle_of(&on_cycles, m).unwrap_or(1) as f32)
                .sum::<f32>()
        };
        of.iter().map(cost).sum()
    }

    /// The moves of an edge that are part of a cycle, where it has few moves.
    fn on_cycles(&self, moves: &[Affinity]) -> SmallVec<[Affinity; 4]> {
        let open = moves.iter().filter(|m| !self.is_met(m));
        let open: SmallVec<[Affinity; MAX_MOVES]> = open.copied().collect();
        if open.len() > MAX_MOVES {
            return SmallVec::new();
        }
        let is_on_cycle = |m: &&Affinity| self.cycle_of(&open, m).is_some();
        open.iter().filter(is_on_cycle).copied().collect()
    }

    /// How many moves the cycle has that a move is part of, if it is.
    fn cycle_of(&self, open: &[Affinity], &(_, to, from): &Affinity) -> Option<usize> {
        let mut at = from;
        for length in 1..=open.len() {
            if self.place(at) == self.place(to) {
                return Some(length);
            }
            at = open.iter().find(|m| self.place(m.1) == self.place(at))?.2;
        }
        None
    }

    fn is_met(&self, &(_, a, b): &Affinity) -> bool {
        self.place(a) == self.place(b)
    }

    fn place(&self, fragment: u32) -> (usize, u16) {
        (self.file(fragment), self.of(fragment).unit)
    }
}
