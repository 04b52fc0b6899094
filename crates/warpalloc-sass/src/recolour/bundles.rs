//! Bundles of a lowered function, and moving them along the register file.
//!
//! A bundle is a set of webs whose lanes keep their distances. Its members have registers in
//! the original code, so that a place for it is one number: by how many registers it is moved.
//! Alignment of every group in it is kept by moving in multiples of the greatest one.

use super::lower::{Lowered, preg};
use crate::isa::{File, Reg};
use fixedbitset::FixedBitSet;
use warpalloc::analysis::{LiveRanges, Liveness};
use warpalloc::function::{Constraint, VReg};
use warpalloc::target::PReg;

/// Webs that move together.
#[derive(Clone, Debug)]
pub(super) struct Bundle {
    /// Virtual registers, by number.
    pub members: Vec<usize>,
    /// It moves by multiples of this.
    pub align: u8,
    /// It may not move.
    pub fixed: bool,
    /// How often its members are read and written, by the depth of loops.
    pub weight: f32,
}

/// All bundles of a function and where each web is live.
pub(super) struct Bundles<'a> {
    lowered: &'a Lowered,
    bundles: Vec<Bundle>,
    ranges: LiveRanges,
    positions: usize,
}

/// The number of a register among all: predicates behind general registers.
fn row(reg: Reg) -> usize {
    match reg.file {
        File::P => 256 + usize::from(reg.index),
        _ => usize::from(reg.index),
    }
}

const ROWS: usize = 256 + 8;

impl<'a> Bundles<'a> {
    /// Finds the bundles; `weights` says how often each instruction of the function runs.
    pub fn of(lowered: &'a Lowered, weights: &[f32]) -> Bundles<'a> {
        let function = &lowered.function;
        let count = function.vreg_count();
        let mut parents: Vec<usize> = (0..count).collect();
        let mut aligns = vec![1u8; count];
        let mut fixed = vec![false; count];
        let mut weight = vec![0f32; count];
        for inst in function.insts() {
            let operands = function.operands(inst);
            for operand in operands {
                let vreg = number(operand.vreg);
                fixed[vreg] |= matches!(operand.constraint, Constraint::Fixed(_));
                weight[vreg] += weights.get(inst_number(inst)).copied().unwrap_or(1.0);
            }
            for group in function.groups(inst) {
                let first = number(operands[group.range().start].vreg);
                aligns[first] = aligns[first].max(group.align);
                for lane in group.range() {
                    let (a, b) = (
                        find(&mut parents, first),
                        find(&mut parents, number(operands[lane].vreg)),
                    );
                    parents[a.max(b)] = a.min(b);
                }
            }
        }
        let mut bundles: Vec<Bundle> = Vec::new();
        let mut bundle_of = vec![usize::MAX; count];
        for vreg in 0..count {
            let root = find(&mut parents, vreg);
            if bundle_of[root] == usize::MAX {
                bundle_of[root] = bundles.len();
                bundles.push(Bundle {
                    members: Vec::new(),
                    align: 1,
                    fixed: false,
                    weight: 0.0,
                });
            }
            let bundle = &mut bundles[bundle_of[root]];
            bundle.members.push(vreg);
            bundle.align = bundle.align.max(aligns[vreg]);
            bundle.fixed |= fixed[vreg];
            bundle.weight += weight[vreg];
        }
        let liveness = Liveness::compute(function);
        Bundles {
            lowered,
            bundles,
            ranges: LiveRanges::compute(function, &liveness),
            positions: 2 * function.inst_count(),
        }
    }

    /// Moves bundles of `assignment` back to their original registers, or at least into their
    /// original banks, within the first `budget` registers.
    pub fn settle(&self, assignment: &mut [Reg], budget: u8) {
        let mut order: Vec<usize> = (0..self.bundles.len()).collect();
        order.sort_by(|&a, &b| self.bundles[b].weight.total_cmp(&self.bundles[a].weight));
        let mut file = Occupied::new(self, assignment);
        for _ in 0..SETTLING_PASSES {
            let mut moved = false;
            for &number in &order {
                let bundle = &self.bundles[number];
                let now = file.distances[number];
                if bundle.fixed || now == 0 || self.file(bundle) != File::R {
                    continue;
                }
                let mut better: Vec<i16> = self
                    .distances(bundle, budget)
                    .filter(|&to| cost(to) < cost(now))
                    .collect();
                better.sort_by_key(|&to| (cost(to), to.unsigned_abs()));
                moved |= better.iter().any(|&to| file.is_moved(number, to))
                    || better
                        .iter()
                        .take(EVICTING_TRIES)
                        .any(|&to| file.is_exchanged(number, to, budget));
            }
            if !moved {
                break;
            }
        }
        file.write_to(assignment);
    }

    /// The original assignment with as few bundles moved as it takes to leave the registers
    /// from `budget` on; nothing if one finds no place.
    pub fn squeeze(&self, budget: u8) -> Option<Vec<Reg>> {
        let mut assignment = self.lowered.registers.clone();
        let mut file = Occupied::new(self, &assignment);
        let is_above = |bundle: &Bundle| {
            let mut members = bundle.members.iter();
            self.file(bundle) == File::R
                && members.any(|&member| assignment[member].index >= budget)
        };
        let mut above: Vec<usize> = (0..self.bundles.len())
            .filter(|&number| is_above(&self.bundles[number]))
            .collect();
        // The widest and longest are the hardest to place.
        above.sort_by_key(|&number| std::cmp::Reverse(self.size(number)));
        for &number in &above {
            file.take_out(number);
        }
        for &number in &above {
            let bundle = &self.bundles[number];
            let mut distances: Vec<i16> = self.distances(bundle, budget).collect();
            distances.sort_by_key(|&to| (cost(to), to.unsigned_abs()));
            let is_placed = distances.iter().any(|&to| file.is_put(number, to))
                || distances
                    .iter()
                    .any(|&to| file.is_squeezed_in(number, to, budget));
            if !is_placed || bundle.fixed {
                return None;
            }
        }
        file.write_to(&mut assignment);
        Some(assignment)
    }

    /// Positions that the members take together.
    fn size(&self, number: usize) -> usize {
        let members = self.bundles[number].members.iter();
        let segments = members.flat_map(|&member| self.segments(member));
        segments.map(|positions| positions.len()).sum()
    }

    /// Moves every bundle that can be moved to a random place among the first `budget`
    /// registers; `random` gives a number below its argument.
    pub fn shuffle(
        &self,
        assignment: &mut [Reg],
        budget: u8,
        random: &mut dyn FnMut(usize) -> usize,
    ) {
        let mut file = Occupied::new(self, assignment);
        for number in (0..SHUFFLING_PASSES).flat_map(|_| 0..self.bundles.len()) {
            let bundle = &self.bundles[number];
            if bundle.fixed {
                continue;
            }
            let now = file.distances[number];
            file.take_out(number);
            let free: Vec<i16> = self
                .distances(bundle, budget)
                .filter(|&to| file.is_free(number, to))
                .collect();
            let to = match free.is_empty() {
                true => now,
                false => free[random(free.len())],
            };
            file.put(number, to);
        }
        file.write_to(assignment);
    }

    /// The part of all accesses, by how often they run, whose register is in its original bank.
    pub fn kept_banks(&self, assignment: &[Reg]) -> f32 {
        let bundles = self.bundles.iter().filter(|b| self.file(b) == File::R);
        let (mut kept, mut all) = (0.0, 0.0);
        for bundle in bundles {
            all += bundle.weight;
            if self.distance(bundle, assignment).rem_euclid(4) == 0 {
                kept += bundle.weight;
            }
        }
        if all > 0.0 { kept / all } else { 1.0 }
    }

    fn file(&self, bundle: &Bundle) -> File {
        self.lowered.registers[bundle.members[0]].file
    }

    fn distance(&self, bundle: &Bundle, assignment: &[Reg]) -> i16 {
        let member = bundle.members[0];
        i16::from(assignment[member].index) - i16::from(self.lowered.registers[member].index)
    }

    /// All distances that the bundle may be moved by.
    fn distances(&self, bundle: &Bundle, budget: u8) -> impl Iterator<Item = i16> + use<> {
        let indices = bundle.members.iter();
        let indices = indices.map(|&member| i16::from(self.lowered.registers[member].index));
        let low = indices.clone().min().unwrap_or(0);
        let high = indices.max().unwrap_or(0);
        let end = match self.file(bundle) {
            File::P => i16::from(File::P.registers()),
            _ => i16::from(budget),
        };
        let align = i16::from(bundle.align);
        (-low..end - high).filter(move |distance| distance.rem_euclid(align) == 0)
    }

    fn places(&self, bundle: &Bundle, distance: i16) -> impl Iterator<Item = (usize, Reg)> {
        bundle.members.iter().map(move |&member| {
            let old = self.lowered.registers[member];
            let index = (i16::from(old.index) + distance) as u8;
            (member, Reg { index, ..old })
        })
    }

    fn segments(&self, member: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let vreg = self.vreg(member);
        self.ranges.segments(vreg).iter().map(|s| s.positions())
    }

    fn vreg(&self, member: usize) -> VReg {
        VReg::from_u32(member as u32)
    }
}

/// Which bundle is where.
struct Occupied<'a, 'l> {
    all: &'a Bundles<'l>,
    /// For each register, the positions at which it is taken.
    rows: Vec<FixedBitSet>,
    /// For each register, the bundles there and which of their members.
    occupants: Vec<Vec<(usize, usize)>>,
    /// By how much each bundle is moved; that of a bundle taken out is the last one.
    distances: Vec<i16>,
}

impl<'a, 'l> Occupied<'a, 'l> {
    fn new(all: &'a Bundles<'l>, assignment: &[Reg]) -> Self {
        let bundles = all.bundles.iter();
        let distances: Vec<i16> = bundles.map(|b| all.distance(b, assignment)).collect();
        let mut file = Occupied {
            all,
            rows: vec![FixedBitSet::with_capacity(all.positions); ROWS],
            occupants: vec![Vec::new(); ROWS],
            distances: distances.clone(),
        };
        for (number, distance) in distances.into_iter().enumerate() {
            file.put(number, distance);
        }
        file
    }

    fn is_free(&self, number: usize, distance: i16) -> bool {
        let mut places = self.all.places(&self.all.bundles[number], distance);
        places.all(|(member, reg)| {
            let row = &self.rows[row(reg)];
            let mut segments = self.all.segments(member);
            segments.all(|positions| row.count_ones(positions) == 0)
        })
    }

    fn put(&mut self, number: usize, distance: i16) {
        let all = self.all;
        self.distances[number] = distance;
        for (member, reg) in all.places(&all.bundles[number], distance) {
            self.occupants[row(reg)].push((number, member));
            for positions in all.segments(member) {
                self.rows[row(reg)].insert_range(positions);
            }
        }
    }

    fn take_out(&mut self, number: usize) {
        let all = self.all;
        for (member, reg) in all.places(&all.bundles[number], self.distances[number]) {
            self.occupants[row(reg)].retain(|&occupant| occupant != (number, member));
            for positions in all.segments(member) {
                self.rows[row(reg)].set_range(positions, false);
            }
        }
    }

    /// Puts a bundle that was taken out where nothing else is, and says whether it could.
    fn is_put(&mut self, number: usize, distance: i16) -> bool {
        let is_free = self.is_free(number, distance);
        if is_free {
            self.put(number, distance);
        }
        is_free
    }

    /// Moves a bundle where nothing else is, and says whether it could.
    fn is_moved(&mut self, number: usize, distance: i16) -> bool {
        let now = self.distances[number];
        self.take_out(number);
        let is_put = self.is_put(number, distance);
        if !is_put {
            self.put(number, now);
        }
        is_put
    }

    /// The bundles that are in the way of one that was taken out.
    fn blockers(&self, number: usize, distance: i16) -> Vec<usize> {
        let mut found = Vec::new();
        for (member, reg) in self.all.places(&self.all.bundles[number], distance) {
            let own = self.all.vreg(member);
            for &(other, theirs) in &self.occupants[row(reg)] {
                let theirs = self.all.vreg(theirs);
                if !found.contains(&other) && self.all.ranges.overlap(own, theirs) {
                    found.push(other);
                }
            }
        }
        found
    }

    /// Moves a bundle where others are, and these elsewhere; says whether that is possible and
    /// costs less.
    fn is_exchanged(&mut self, number: usize, distance: i16, budget: u8) -> bool {
        let now = self.distances[number];
        self.take_out(number);
        let price = |file: &Self, number: usize| {
            file.all.bundles[number].weight * f32::from(cost(file.distances[number]))
        };
        let blockers = self.blockers(number, distance);
        let gain =
            self.all.bundles[number].weight * (f32::from(cost(now)) - f32::from(cost(distance)));
        let before: f32 = blockers.iter().map(|&b| price(self, b)).sum();
        let places: Vec<i16> = blockers.iter().map(|&b| self.distances[b]).collect();
        let is_done = self.is_put_among(number, distance, &blockers, budget);
        let after: f32 = blockers.iter().map(|&b| price(self, b)).sum();
        if is_done && after - before < gain {
            return true;
        }
        if is_done {
            self.take_out(number);
            for &blocker in &blockers {
                self.take_out(blocker);
            }
            for (&blocker, &place) in blockers.iter().zip(&places) {
                self.put(blocker, place);
            }
        }
        self.put(number, now);
        false
    }

    /// Puts a bundle that was taken out where others are, and these elsewhere; says whether
    /// that is possible.
    fn is_squeezed_in(&mut self, number: usize, distance: i16, budget: u8) -> bool {
        let blockers = self.blockers(number, distance);
        self.is_put_among(number, distance, &blockers, budget)
    }

    /// The same, with the bundles that are in the way. Where it is not possible, those stay.
    fn is_put_among(
        &mut self,
        number: usize,
        distance: i16,
        blockers: &[usize],
        budget: u8,
    ) -> bool {
        let all = self.all;
        let is_bound = |&b: &usize| all.bundles[b].fixed;
        if blockers.len() > MOST_BLOCKERS || blockers.iter().any(is_bound) {
            return false;
        }
        let places: Vec<i16> = blockers.iter().map(|&b| self.distances[b]).collect();
        for &blocker in blockers {
            self.take_out(blocker);
        }
        self.put(number, distance);
        for (count, &blocker) in blockers.iter().enumerate() {
            let free = all.distances(&all.bundles[blocker], budget);
            let free = free.filter(|&to| self.is_free(blocker, to));
            let Some(to) = free.min_by_key(|&to| (cost(to), to.unsigned_abs())) else {
                for &moved in &blockers[..count] {
                    self.take_out(moved);
                }
                self.take_out(number);
                for (&blocker, &place) in blockers.iter().zip(&places) {
                    self.put(blocker, place);
                }
                return false;
            };
            self.put(blocker, to);
        }
        true
    }

    fn write_to(&self, assignment: &mut [Reg]) {
        for (bundle, &distance) in self.all.bundles.iter().zip(&self.distances) {
            for (member, reg) in self.all.places(bundle, distance) {
                assignment[member] = reg;
            }
        }
    }
}

/// How often all bundles are looked at again.
const SETTLING_PASSES: usize = 4;
const SHUFFLING_PASSES: usize = 3;
/// How many places of others a bundle tries to get.
const EVICTING_TRIES: usize = 6;
/// More bundles than this are not moved out of the way of one.
const MOST_BLOCKERS: usize = 8;

/// What it costs to move a value by so many registers. Where it stays, no hazard is new; a
/// multiple of four keeps its bank, however many banks there are, and one of two if there are
/// two.
fn cost(distance: i16) -> u8 {
    match (distance, distance.rem_euclid(4)) {
        (0, _) => 0,
        (_, 0) => 1,
        (_, 2) => 4,
        _ => 6,
    }
}

fn find(parents: &mut [usize], mut element: usize) -> usize {
    while parents[element] != element {
        parents[element] = parents[parents[element]];
        element = parents[element];
    }
    element
}

fn number(vreg: VReg) -> usize {
    vreg.as_u32() as usize
}

fn inst_number(inst: warpalloc::function::Inst) -> usize {
    inst.as_u32() as usize
}

/// The allocator's registers of every operand, for a register of each virtual register.
pub(super) fn operand_registers(lowered: &Lowered, assignment: &[Reg]) -> Vec<PReg> {
    let function = &lowered.function;
    let operands = function.insts().flat_map(|inst| function.operands(inst));
    operands
        .map(|operand| preg(assignment[number(operand.vreg)]))
        .collect()
}
