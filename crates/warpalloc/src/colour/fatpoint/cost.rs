//! What spilling a value costs.

use super::guidance::Costs;
use crate::allocation::Space;
use crate::ir::{Facts, Program};
use crate::options::Knobs;
use cranelift_entity::SecondaryMap;

/// What one access to a spilled value costs.
pub const DEFAULT_COST: f32 = 15.0;
/// What it costs where the memory is near: shared memory.
pub const NEAR_COST: f32 = 3.0;

/// What spilling each value costs: its accesses, by how often their blocks run.
pub fn costs(program: &Program, facts: &Facts, knobs: &Knobs, space: Space) -> Costs {
    let access = match space {
        Space::Shared => NEAR_COST,
        _ => DEFAULT_COST,
    };
    let scale = access * knobs.spill_cost_multiplier / 4.0;
    let mut costs: Costs = SecondaryMap::with_default(0.0);
    for (block, info) in program.blocks.iter() {
        let assumed = knobs.loop_iterations.at_depth(facts.loops.depth(block));
        let often = match knobs.epoch_aware {
            false => 1.0,
            true => assumed.unwrap_or(facts.frequencies.block(block) as f32),
        };
        for op in &info.ops {
            for (value, role) in op.accesses(program.function) {
                let accesses = role.reads() as u8 + role.writes() as u8;
                costs[value] += often * scale * f32::from(accesses);
            }
        }
    }
    for (value, info) in program.values.iter() {
        if info.unspillable {
            costs[value] = f32::INFINITY;
        } else {
            costs[value] = costs[value].min(f32::MAX);
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Builder, Effect};
    use crate::ir::Value;
    use crate::target::{Class, Target};
    use cranelift_entity::EntityRef;

    #[test]
    fn an_access_costs_fifteen_in_local_and_three_in_shared_memory() {
        let target = Target::hardware(90).unwrap();
        let mut b = Builder::new("f");
        let block = b.block();
        let x = b.vreg(Class::R32);
        b.inst(block, "a").def(x);
        b.inst(block, "b").use_(x).effect(Effect::Write);
        b.exit(block, "exit");
        let f = b.finish();
        let program = Program::new(&f, &target, None).unwrap();
        let facts = Facts::of(&program);
        let cost = |space| costs(&program, &facts, &Knobs::default(), space)[Value::new(0)];
        assert_eq!(cost(Space::Local), 30.0);
        assert_eq!(cost(Space::Shared), 6.0);
        let often = Knobs {
            loop_iterations: "7".parse().unwrap(),
            ..Knobs::default()
        };
        // Outside loops nothing is assumed.
        assert_eq!(
            costs(&program, &facts, &often, Space::Local)[Value::new(0)],
            30.0
        );
        let dear = Knobs {
            spill_cost_multiplier: 8.0,
            ..Knobs::default()
        };
        assert_eq!(
            costs(&program, &facts, &dear, Space::Local)[Value::new(0)],
            60.0
        );
    }
}
