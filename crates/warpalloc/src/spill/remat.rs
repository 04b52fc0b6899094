//! Rematerialisation: which spilled values are computed again instead of reloaded.
//!
//! A value qualifies when one instruction defines it, that instruction may run again and
//! has no other result, and its inputs are at hand wherever the value is read: each input
//! is itself written only once, so it cannot have changed, and is live there anyway, so
//! that no live range grows (after Briggs, Cooper and Torczon, PLDI 1992). It is
//! rematerialised when that takes less than a given part of the cycles its reloads would.

use crate::analysis::{Code, LiveSet};
use crate::function::{Constraint, Effect, Function, Inst, Role};
use crate::ir::{Facts, Op, Program, Value};
use cranelift_entity::{EntityRef, SecondaryMap};
use smallvec::SmallVec;

/// Cycles to reach the first level of memory (`docs/sources.md#memory-latency`).
const LATENCY_L1: f32 = 4.0;
/// The second level.
const LATENCY_L2: f32 = 10.0;

/// Cycles a reload takes where `depth` loops enclose it: data used in loops stays near.
pub fn reload_latency(depth: u32) -> f32 {
    match depth {
        0 => LATENCY_L2,
        _ => LATENCY_L1,
    }
}

/// The instructions that rematerialise values.
#[derive(Clone, Debug, Default)]
pub struct Remat {
    instructions: SecondaryMap<Value, Option<Inst>>,
}

impl Remat {
    /// Chooses the `values` to rematerialise at less than `ratio` of a reload's cost.
    /// Inputs that `has_home` are not in registers and do not count as at hand.
    pub fn find(
        program: &Program,
        facts: &Facts,
        ratio: f32,
        values: &[Value],
        has_home: impl Fn(Value) -> bool,
    ) -> Remat {
        let mut found = candidates(program, values, has_home);
        if found.values().all(Option::is_none) {
            return Remat::default();
        }
        let mut balance: SecondaryMap<Value, f32> = SecondaryMap::with_default(0.0);
        let mut live = LiveSet::new(program.values.len());
        for block in program.blocks.keys() {
            let frequency = facts.frequencies.block(block) as f32;
            let latency = reload_latency(facts.loops.depth(block));
            live.start_at_end(&facts.liveness, block);
            for point in program.points(block).rev() {
                let accesses: SmallVec<[(Value, Role); 8]> = program.accesses(point).collect();
                live.step_back_over(accesses.iter().copied());
                for &(value, _) in accesses.iter().filter(|(_, role)| role.reads()) {
                    let Some(inst) = found[value] else { continue };
                    if !inputs(program.function, inst).all(|input| live.contains(input)) {
                        found[value] = None;
                        continue;
                    }
                    let cycles = f32::from(program.function.inst(inst).remat.unwrap_or(u8::MAX));
                    balance[value] += frequency * (ratio * latency - cycles);
                }
            }
        }
        for &value in values {
            if balance[value] <= 0.0 {
                found[value] = None;
            }
        }
        Remat {
            instructions: found,
        }
    }

    /// The instruction that rematerialises `value`, if that pays.
    pub fn instruction(&self, value: Value) -> Option<Inst> {
        self.instructions[value]
    }
}

fn inputs(function: &Function, inst: Inst) -> impl Iterator<Item = Value> + '_ {
    let operands = function.operands(inst).iter();
    operands
        .filter(|o| o.role.reads())
        .map(|o| Value::new(o.vreg.index()))
}

/// Values with a single definition that may run again on unchanging inputs.
fn candidates(
    program: &Program,
    values: &[Value],
    has_home: impl Fn(Value) -> bool,
) -> SecondaryMap<Value, Option<Inst>> {
    let mut wanted: SecondaryMap<Value, bool> = SecondaryMap::new();
    values.iter().for_each(|&v| wanted[v] = true);
    let mut definitions: SecondaryMap<Value, u32> = SecondaryMap::new();
    let mut by: SecondaryMap<Value, Option<Inst>> = SecondaryMap::new();
    for info in program.blocks.values() {
        for op in &info.ops {
            for (value, role) in op.accesses(program.function) {
                definitions[value] += role.writes() as u32;
                if let (true, true, Op::Inst { inst, .. } | Op::Recompute { inst, .. }) =
                    (role.writes(), wanted[value], op)
                {
                    by[value] = Some(*inst);
                }
            }
        }
    }
    for &value in values {
        let steady = |v: Value| definitions[v] == 1 && !has_home(v) && !wanted[v];
        let good = |inst: Inst| {
            definitions[value] == 1
                && may_run_again(program.function, inst)
                && inputs(program.function, inst).all(steady)
        };
        by[value] = by[value].filter(|&inst| good(inst));
    }
    by
}

/// Whether the instruction alone permits it: one free result, free inputs, no effects. A
/// pinned value may belong to the hardware when it would be read once more.
pub(crate) fn may_run_again(function: &Function, inst: Inst) -> bool {
    let info = function.inst(inst);
    let operands = function.operands(inst);
    let results = operands.iter().filter(|o| o.role.writes()).count();
    let free = operands.iter().all(|o| {
        let is_pinned = function.vreg(o.vreg).pinned;
        o.constraint == Constraint::Any && o.role != Role::UseDef && !is_pinned
    });
    let plain = info.remat.is_some() && info.effect == Effect::Pure;
    plain && results == 1 && free && function.groups(inst).is_empty()
}
