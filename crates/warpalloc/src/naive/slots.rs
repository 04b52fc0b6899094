//! Where each value lives between instructions: a slot in memory, or, for a pinned value,
//! a register of its own.
//!
//! A value occupies its slot from the first to the last place where it is live in code
//! order. Values whose spans are apart share slots, so that the frame grows with the
//! number of values live at once rather than with the length of the function.

use crate::allocation::{Frame, SlotAddr, Space};
use crate::analysis::Liveness;
use crate::error::{Error, Place};
use crate::frame::layout::FrameLayout;
use crate::function::{Clobbers, Constraint, Function, VReg};
use crate::ir::constraints::satisfies;
use crate::target::{PReg, RegSet, Target};
use cranelift_entity::{EntityRef, SecondaryMap};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The home of every value.
pub struct Homes {
    slots: SecondaryMap<VReg, Option<SlotAddr>>,
    pins: SecondaryMap<VReg, Option<PReg>>,
    pinned_units: RegSet,
    shadows: BTreeMap<u32, Vec<SlotAddr>>,
    layout: FrameLayout,
    space: Space,
}

impl Homes {
    /// Gives each value of `function` a home.
    pub fn assign(function: &Function, target: &Target, space: Space) -> Result<Homes, Error> {
        let mut homes = Homes {
            slots: SecondaryMap::new(),
            pins: SecondaryMap::new(),
            pinned_units: target.reserved().clone(),
            shadows: BTreeMap::new(),
            layout: FrameLayout::new(space, target),
            space,
        };
        homes.pin_all(function, target)?;
        homes.lay_out(function, target);
        Ok(homes)
    }

    /// The slot of `value`, unless it is pinned.
    pub fn slot(&self, value: VReg) -> Option<SlotAddr> {
        self.slots[value]
    }

    /// The register of `value`, if it is pinned.
    pub fn pinned(&self, value: VReg) -> Option<PReg> {
        self.pins[value]
    }

    /// Units that belong to pinned values.
    pub fn pinned_units(&self) -> &RegSet {
        &self.pinned_units
    }

    /// A slot to set the argument at position `index` of an edge aside.
    ///
    /// Different positions never share one; different edges may, as they never overlap.
    pub fn shadow(&mut self, index: usize, bytes: u32) -> SlotAddr {
        let row = self.shadows.entry(bytes).or_default();
        while row.len() <= index {
            row.push(self.layout.push(bytes));
        }
        row[index]
    }

    /// One more slot, shared with no value.
    pub fn extra(&mut self, bytes: u32) -> SlotAddr {
        self.layout.push(bytes)
    }

    /// How much memory all homes take.
    pub fn frame(&self) -> Frame {
        let size = self.layout.size();
        match self.space {
            Space::Shared => Frame {
                local: 0,
                shared: size,
            },
            _ => Frame {
                local: size,
                shared: 0,
            },
        }
    }

    fn pin_all(&mut self, function: &Function, target: &Target) -> Result<(), Error> {
        if !function.vregs().any(|v| function.vreg(v).pinned) {
            return Ok(());
        }
        let contested = contested_units(function, target);
        for value in function.vregs().filter(|&v| function.vreg(v).pinned) {
            let class = function.vreg(value).class;
            let width = target.width(class);
            let free = |reg: &PReg| {
                suits(function, target, value, *reg)
                    && !self.pinned_units.overlaps(target, *reg, width)
                    && !contested.overlaps(target, *reg, width)
            };
            let Some(reg) = target.registers(class).find(free) else {
                return Err(Error::Impossible {
                    place: Place::Function,
                    value: Some(value),
                    message: format!("no register is left to pin {value} to"),
                    help: "raise the register budget or pin fewer values".into(),
                });
            };
            self.pins[value] = Some(reg);
            for unit in target.units(reg, width) {
                self.pinned_units.insert(unit);
            }
        }
        Ok(())
    }

    fn lay_out(&mut self, function: &Function, target: &Target) {
        let mut spans = Spans::of(function).0;
        spans.retain(|s| s.start <= s.end && !function.vreg(s.value).pinned);
        spans.sort_by_key(|s| (s.start, s.value));
        let mut busy = BinaryHeap::new();
        let mut free: BTreeMap<u32, Vec<SlotAddr>> = BTreeMap::new();
        for span in spans {
            while let Some(&Reverse((end, bytes, slot))) = busy.peek() {
                if end >= span.start {
                    break;
                }
                busy.pop();
                free.entry(bytes).or_default().push(slot);
            }
            let bytes = target.spill_bytes(function.vreg(span.value).class);
            let reused = free.get_mut(&bytes).and_then(Vec::pop);
            let slot = reused.unwrap_or_else(|| self.layout.push(bytes));
            busy.push(Reverse((span.end, bytes, slot)));
            self.slots[span.value] = Some(slot);
        }
    }
}

/// Whether every operand that mentions `value` may be in `reg`.
fn suits(function: &Function, target: &Target, value: VReg, reg: PReg) -> bool {
    let operands = function.insts().flat_map(|inst| function.operands(inst));
    let mut of_value = operands.filter(|o| o.vreg == value);
    of_value.all(|o| satisfies(function, target, o, reg))
}

/// Units that clobbers and fixed operands lay claim to anywhere, pinned values aside.
fn contested_units(function: &Function, target: &Target) -> RegSet {
    let mut contested = RegSet::new(target);
    for inst in function.insts() {
        if function.inst(inst).clobbers != Clobbers::None {
            contested.union_with(&function.clobbers(target, inst));
        }
        for operand in function.operands(inst) {
            if let Constraint::Fixed(reg) = operand.constraint
                && !function.vreg(operand.vreg).pinned
            {
                let width = target.width(function.vreg(operand.vreg).class);
                for unit in target.units(reg, width) {
                    contested.insert(unit);
                }
            }
        }
    }
    contested
}

#[derive(Clone, Copy)]
struct Span {
    value: VReg,
    start: usize,
    end: usize,
}

/// First and last position where each value is live: `2 * inst` before an instruction,
/// `2 * inst + 1` after it.
struct Spans(Vec<Span>);

impl Spans {
    fn of(function: &Function) -> Spans {
        let empty = |value| Span {
            value,
            start: usize::MAX,
            end: 0,
        };
        let mut spans = Spans(function.vregs().map(empty).collect());
        let liveness = Liveness::compute(function);
        for block in function.blocks() {
            let top = function
                .block_insts(block)
                .next()
                .map_or(0, |i| 2 * i.index());
            let bottom = 2 * function.terminator(block).index() + 1;
            liveness.live_in(block).for_each(|v| spans.cover(v, top));
            liveness
                .live_out(block)
                .for_each(|v| spans.cover(v, bottom));
            for &param in &function.block(block).params {
                spans.cover(param, top);
                for &pred in function.preds(block) {
                    spans.cover(param, 2 * function.terminator(pred).index() + 1);
                }
            }
        }
        for inst in function.insts() {
            for operand in function.operands(inst) {
                if operand.role.reads() {
                    spans.cover(operand.vreg, 2 * inst.index());
                }
                if operand.role.writes() {
                    spans.cover(operand.vreg, 2 * inst.index() + 1);
                }
            }
        }
        spans
    }

    fn cover(&mut self, value: VReg, position: usize) {
        let span = &mut self.0[value.index()];
        span.start = span.start.min(position);
        span.end = span.end.max(position);
    }
}
