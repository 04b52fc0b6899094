//! Copies worth removing.

use crate::analysis::{Cfg, Frequencies, Liveness};
use crate::interference::copied_parts;
use crate::ir::{Program, Value};
use crate::target::Target;
use cranelift_entity::{EntitySet, PrimaryMap, entity_impl};
use rustc_hash::FxHashMap;

/// A [`Move`] among the moves of a program; lower numbers are worth more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoveId(u32);
entity_impl!(MoveId, "move");

/// An affinity: two values whose copies vanish if both share a register.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// What the copies write.
    pub to: Value,
    /// What they read.
    pub from: Value,
    /// Where `from` starts, counted in units from the start of `to`, if the copies are to
    /// vanish.
    pub distance: i32,
    /// How often the copies run.
    pub weight: f64,
    /// One of the values is live where blocks meet.
    pub is_global: bool,
}

/// Every move of `program`, the most frequent first.
pub fn moves(
    program: &Program,
    target: &Target,
    liveness: &Liveness<Value>,
    frequencies: &Frequencies,
) -> PrimaryMap<MoveId, Move> {
    let mut global: EntitySet<Value> = EntitySet::new();
    for block in program.all_blocks() {
        global.extend(liveness.live_in(block));
    }
    let mut found: Vec<Move> = Vec::new();
    let mut known: FxHashMap<(Value, Value, i32), usize> = FxHashMap::default();
    for block in program.all_blocks() {
        let weight = frequencies.block(block);
        for op in &program.blocks[block].ops {
            for part in copied_parts(program, target, op) {
                let swapped = part.from < part.to;
                let key = match swapped {
                    false => (part.to, part.from, part.distance),
                    true => (part.from, part.to, -part.distance),
                };
                let index = *known.entry(key).or_insert_with(|| {
                    found.push(Move {
                        to: part.to,
                        from: part.from,
                        distance: part.distance,
                        weight: 0.0,
                        is_global: global.contains(part.to) || global.contains(part.from),
                    });
                    found.len() - 1
                });
                found[index].weight += weight;
            }
        }
    }
    // Stable: moves of equal weight stay in code order.
    found.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    found.into_iter().collect()
}
