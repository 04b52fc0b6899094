//! Where spilled values are stored, and in which slot.
//!
//! A value that leaves its register must be in memory wherever it comes back. It is stored
//! where it leaves, unless its slot is current, or else right after each of its
//! definitions, which dominate everything: whichever runs less often. A value stored at its
//! definition is stored once, however often it leaves.

use super::code::{Code, Edge};
use super::share::share_slots;
use super::spill::{EventKind, Plan};
use crate::allocation::{SlotAddr, Space};
use crate::frame::layout::FrameLayout;
use crate::function::Block;
use crate::ir::Value;
use crate::target::{Class, Target};
use cranelift_entity::EntityRef;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

const NO_SLOT: u32 = u32::MAX;

/// The slots of spilled values.
pub(super) struct Stores {
    at_definition: Vec<bool>,
    slot: Vec<u32>,
    places: Vec<SlotAddr>,
    pub frame: FrameLayout,
    shadows: BTreeMap<(u32, usize), SlotAddr>,
    /// Values with a slot.
    pub spilled: u32,
    /// Values that are computed again.
    pub recomputed: u32,
}

impl Stores {
    /// Nothing is spilled.
    pub fn none(target: &Target, space: Space) -> Stores {
        Stores {
            at_definition: Vec::new(),
            slot: Vec::new(),
            places: Vec::new(),
            frame: FrameLayout::new(space, target),
            shadows: BTreeMap::new(),
            spilled: 0,
            recomputed: 0,
        }
    }

    pub fn place(code: &Code, plan: &Plan, space: Space) -> Stores {
        let mut stores = Stores::none(code.target, space);
        let count = code.value_count();
        let mut in_memory = vec![false; count];
        let mut at_evictions = vec![0.0f64; count];
        for block in (0..code.block_count()).map(Block::new) {
            let frequency = code.frequencies.block(block);
            for event in plan.events.of(block) {
                let value = event.value as usize;
                in_memory[value] |= event.kind == EventKind::Reload;
                if event.stores {
                    at_evictions[value] += frequency;
                }
            }
            for &value in plan.in_memory.of(block) {
                in_memory[value as usize] = true;
            }
        }
        let mut exits = Exits::new(code);
        for edge in code.edges() {
            exits.enter(plan, edge);
            exits.reloaded(code, plan, edge, |value| in_memory[value as usize] = true);
            let frequency = code.edge_frequency(edge);
            exits.stored(code, plan, edge, |value| {
                at_evictions[value as usize] += frequency;
            });
        }
        stores.recomputed = (0..count)
            .filter(|&v| in_memory[v] && plan.remat.is_free(v as u32))
            .count() as u32;
        for (value, spilled) in in_memory.iter_mut().enumerate() {
            *spilled &= !plan.remat.is_free(value as u32);
        }
        let at_definitions = cost_of_definitions(code, plan, &in_memory);
        stores.at_definition = (0..count)
            .map(|v| in_memory[v] && at_evictions[v] > 0.0 && at_definitions[v] <= at_evictions[v])
            .collect();
        stores.spilled = in_memory.iter().filter(|&&spilled| spilled).count() as u32;
        let classes = share_slots(code, &in_memory);
        stores.lay_out(code, &in_memory, &classes);
        stores
    }

    /// Whether `value` is stored after each definition.
    pub fn at_definition(&self, value: u32) -> bool {
        self.at_definition
            .get(value as usize)
            .copied()
            .unwrap_or(false)
    }

    /// The slot of a spilled value.
    pub fn slot(&self, value: u32) -> Option<SlotAddr> {
        let slot = self.slot.get(value as usize).copied()?;
        self.places.get(slot as usize).copied()
    }

    /// Slot number `index` of those that hold values of a class for the time of an edge.
    pub fn shadow(&mut self, bytes: u32, index: usize) -> SlotAddr {
        let frame = &mut self.frame;
        let place = self.shadows.entry((bytes, index));
        *place.or_insert_with(|| frame.push(bytes))
    }

    /// Slots whose values are live in different stretches of code share a place.
    fn lay_out(&mut self, code: &Code, in_memory: &[bool], classes: &[u32]) {
        let liveness = code.liveness();
        let wanted = liveness.wanted(|v| in_memory[v as usize]);
        let mut spans = vec![(u32::MAX, 0); in_memory.len()];
        let mut cover = |value: u32, at: usize| {
            if !in_memory[value as usize] {
                return;
            }
            let span: &mut (u32, u32) = &mut spans[classes[value as usize] as usize];
            *span = (span.0.min(at as u32), span.1.max(at as u32));
        };
        for block in (0..code.block_count()).map(Block::new) {
            let steps = code.steps(block);
            // Two positions per step, and two more per block for its ends.
            let base = 2 * (steps.start + block.index());
            let end = 2 * (steps.end + block.index()) + 1;
            let live_in = liveness.among(liveness.live_in_bits(block), &wanted);
            live_in.for_each(|v| cover(v.as_u32(), base));
            code.params(block).iter().for_each(|&v| cover(v, base));
            let live_out = liveness.among(liveness.live_out_bits(block), &wanted);
            live_out.for_each(|v| cover(v.as_u32(), end));
            for edge in &code.edges()[code.outgoing(block)] {
                code.pairs(edge)
                    .iter()
                    .for_each(|&(param, _)| cover(param, end));
            }
            for number in steps {
                let accesses = code.accesses(number);
                let at = 2 * (number + block.index()) + 1;
                // What lives on is seen again.
                let ends = accesses.iter().filter(|a| a.role.writes() || !a.lives);
                ends.for_each(|a| cover(a.value, at));
            }
        }
        let mut order: Vec<u32> = (0..in_memory.len() as u32)
            .filter(|&v| in_memory[v as usize] && classes[v as usize] == v)
            .collect();
        order.sort_unstable_by_key(|&v| (spans[v as usize], v));
        let mut busy = BinaryHeap::new();
        let mut idle: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        self.slot = vec![NO_SLOT; in_memory.len()];
        for value in order {
            let (start, end) = spans[value as usize];
            while let Some(&Reverse((last, bytes, slot))) = busy.peek() {
                if last >= start {
                    break;
                }
                busy.pop();
                idle.entry(bytes).or_default().push(slot);
            }
            let bytes = code.target.spill_bytes(class(code, value));
            let slot = idle.get_mut(&bytes).and_then(Vec::pop).unwrap_or_else(|| {
                self.places.push(self.frame.push(bytes));
                self.places.len() as u32 - 1
            });
            busy.push(Reverse((end, bytes, slot)));
            self.slot[value as usize] = slot;
        }
        for value in (0..in_memory.len()).filter(|&v| in_memory[v]) {
            self.slot[value] = self.slot[classes[value] as usize];
        }
    }
}

/// The class of a value.
pub(super) fn class(code: &Code, value: u32) -> Class {
    code.program.values[Value::from_u32(value)].class
}

/// How the values of one block at a time leave it.
pub(super) struct Exits {
    /// By value, the stamp of the last block that has it in a register, and whether its slot
    /// is current there.
    held: Vec<(u32, bool)>,
    stamp: u32,
    /// The block that was looked at last.
    of: Option<Block>,
}

impl Exits {
    pub fn new(code: &Code) -> Exits {
        Exits {
            held: vec![(0, false); code.value_count()],
            stamp: 0,
            of: None,
        }
    }

    /// Looks at what the block that `edge` leaves has in registers.
    pub fn enter(&mut self, plan: &Plan, edge: &Edge) {
        if self.of.replace(edge.from) == Some(edge.from) {
            return;
        }
        self.stamp += 1;
        for resident in plan.exit.of(edge.from) {
            self.held[resident.value as usize] = (self.stamp, resident.clean);
        }
    }

    /// Whether the slot of `value`, which is in a register, is current.
    pub fn is_clean(&self, value: u32) -> bool {
        self.held[value as usize] == (self.stamp, true)
    }

    fn is_held(&self, value: u32) -> bool {
        self.held[value as usize].0 == self.stamp
    }

    /// Calls `visit` with the values that are read from memory on the edge.
    fn reloaded(&self, code: &Code, plan: &Plan, edge: &Edge, mut visit: impl FnMut(u32)) {
        let pairs = code.pairs(edge);
        for &(_, arg) in pairs.iter().filter(|(_, arg)| !self.is_held(*arg)) {
            visit(arg);
        }
        let is_param = |v: u32| pairs.iter().any(|(param, _)| *param == v);
        for resident in plan.entry.of(edge.to) {
            if !self.is_held(resident.value) && !is_param(resident.value) {
                visit(resident.value);
            }
        }
    }

    /// Calls `visit` with the values whose slot becomes current on the edge only, parameters
    /// that arrive in memory aside.
    pub fn stored(&self, code: &Code, plan: &Plan, edge: &Edge, mut visit: impl FnMut(u32)) {
        let params = code.params(edge.to);
        let clean = plan.entry.of(edge.to).iter().filter(|r| r.clean);
        let expected = clean
            .map(|r| r.value)
            .chain(plan.in_memory.of(edge.to).iter().copied());
        for value in expected {
            if self.held[value as usize] == (self.stamp, false) && !params.contains(&value) {
                visit(value);
            }
        }
    }
}

/// What storing each value after its definitions costs.
fn cost_of_definitions(code: &Code, plan: &Plan, in_memory: &[bool]) -> Vec<f64> {
    let mut costs = vec![0.0; in_memory.len()];
    for block in (0..code.block_count()).map(Block::new) {
        let params = code.params(block);
        if params.is_empty() {
            continue;
        }
        for resident in plan.entry.of(block) {
            if params.contains(&resident.value) {
                costs[resident.value as usize] += code.frequencies.block(block);
            }
        }
    }
    let mut has_several = false;
    for value in (0..in_memory.len()).filter(|&v| in_memory[v]) {
        match plan.remat.only_block(value as u32) {
            Some(block) => costs[value] = code.frequencies.block(block),
            None => has_several |= !plan.remat.is_defined_once(value as u32),
        }
    }
    if has_several {
        add_several(code, plan, &mut costs);
    }
    costs
}

/// Adds how often the definitions run of values that have several.
fn add_several(code: &Code, plan: &Plan, costs: &mut [f64]) {
    for block in (0..code.block_count()).map(Block::new) {
        let frequency = code.frequencies.block(block);
        for number in code.steps(block) {
            let written = code.accesses(number).iter().filter(|a| a.role.writes());
            for access in written.filter(|a| !plan.remat.is_defined_once(a.value)) {
                costs[access.value as usize] += frequency;
            }
        }
    }
}
