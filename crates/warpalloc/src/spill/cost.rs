//! What spilling a value costs.
//!
//! CICC is reported to multiply how often a value is defined, how often it is used, the
//! latency of the memory it would go to, and `1.5^depth` for the loops it lives in
//! (`docs/sources.md#briggs-spill-cost`). The product is not the cost of any code: a value
//! defined twice and used twice costs four units, one defined once and used three times
//! costs three. It ranks values well enough and is what the `cicc` preset reproduces.

use crate::allocation::Space;
use crate::analysis::{Frequencies, Liveness, Loops};
use crate::ir::{Program, Value};
use crate::target::{File, Target};
use cranelift_entity::{EntityRef, SecondaryMap};

/// Each loop level weighs this much more.
pub const LOOP_BASE: f32 = 1.5;
/// No finite cost exceeds this.
pub const COST_LIMIT: f32 = 1e9;
/// A value that is the same in all threads is worth this much more.
pub const UNIFORM_WEIGHT: f32 = 1.5;

/// The weight of code nested in `depth` loops.
pub fn loop_factor(depth: u32) -> f32 {
    LOOP_BASE.powi(depth.min(64) as i32)
}

/// The cost of each value; infinite where spilling is no option.
pub fn spill_costs(
    program: &Program,
    target: &Target,
    liveness: &Liveness<Value>,
    frequencies: &Frequencies,
    loops: &Loops,
) -> SecondaryMap<Value, f32> {
    let mut tally: Vec<Tally> = vec![Tally::default(); program.values.len()];
    let mut most_live = 0;
    for (block, info) in program.blocks.iter() {
        let frequency = frequencies.block(block) as f32;
        let factor = loop_factor(loops.depth(block));
        most_live = most_live.max(liveness.live_in(block).len());
        for value in liveness.live_in(block) {
            tally[value.index()].live(frequency, factor);
        }
        for op in &info.ops {
            for (value, role) in op.accesses(program.function) {
                let entry = &mut tally[value.index()];
                entry.live(frequency, factor);
                if role.reads() {
                    entry.uses += frequency;
                }
                if role.writes() {
                    entry.defs += frequency;
                }
            }
        }
    }
    let main = target.file(File::MAIN);
    let live_bytes = main.units_per_reg * main.unit_bytes * most_live;
    let memory = target.memory(Space::Local);
    let latency = memory.map_or(1.0, |memory| memory.latency(live_bytes) as f32);
    let mut costs = SecondaryMap::with_default(0.0);
    costs.resize(program.values.len());
    for (value, info) in program.values.iter() {
        let tally = &tally[value.index()];
        let cost = tally.defs * tally.uses * latency * tally.loop_factor();
        let weight = if info.uniform { UNIFORM_WEIGHT } else { 1.0 };
        costs[value] = match info.unspillable {
            true => f32::INFINITY,
            false => (cost * weight).clamp(0.0, COST_LIMIT),
        };
    }
    costs
}

#[derive(Clone, Copy, Default)]
struct Tally {
    defs: f32,
    uses: f32,
    weighted_factor: f32,
    weight: f32,
}

impl Tally {
    fn live(&mut self, frequency: f32, factor: f32) {
        self.weighted_factor += frequency * factor;
        self.weight += frequency;
    }

    /// The loop factor of the blocks it lives in, averaged by how often they run.
    fn loop_factor(&self) -> f32 {
        match self.weight > 0.0 {
            true => self.weighted_factor / self.weight,
            false => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Builder, Effect};
    use crate::ir::Program;
    use crate::target::Class;

    /// The multipliers reported of CICC, `docs/sources.md#briggs-spill-cost`.
    #[test]
    fn loop_multipliers_are_the_documented_ones() {
        let documented = [1.0, 1.5, 2.25, 3.375, 5.0625, 7.59375];
        for (depth, expected) in documented.into_iter().enumerate() {
            assert_eq!(loop_factor(depth as u32), expected);
        }
    }

    /// The latencies reported of CICC, `docs/sources.md#memory-latency`.
    #[test]
    fn far_memory_is_nearer_from_sm_90_on() {
        let latency = |bytes, sm| {
            let target = Target::hardware(sm).unwrap();
            target.memory(Space::Local).unwrap().latency(bytes)
        };
        assert_eq!(latency(100, 80), 4.0);
        assert_eq!(latency(100 << 10, 80), 10.0);
        assert_eq!(latency(1 << 20, 80), 100.0);
        assert_eq!(latency(1 << 20, 90), 40.0);
    }

    #[test]
    fn a_value_of_one_def_and_two_uses_costs_twice_the_latency_and_uniform_half_more() {
        let target = Target::cicc();
        let mut b = Builder::new("f");
        let block = b.block();
        let (x, y) = (b.vreg(Class::R32), b.vreg(Class::R32));
        b.uniform(y);
        b.inst(block, "a").def(x).def(y);
        b.inst(block, "b").use_(x).use_(y).effect(Effect::Write);
        b.inst(block, "b").use_(x).use_(y).effect(Effect::Write);
        b.exit(block, "exit");
        let f = b.finish();
        let program = Program::new(&f, &target, None).unwrap();
        let facts = crate::ir::Facts::of(&program);
        let product = spill_costs(
            &program,
            &target,
            &facts.liveness,
            &facts.frequencies,
            &facts.loops,
        );
        assert_eq!(product[Value::new(0)], 8.0);
        assert_eq!(product[Value::new(1)], 12.0);
    }

    fn product_of_first(text: &str) -> f32 {
        let case = crate::text::parse(text).unwrap();
        let program = Program::new(&case.function, &case.target, None).unwrap();
        let facts = crate::ir::Facts::of(&program);
        let costs = spill_costs(
            &program,
            &case.target,
            &facts.liveness,
            &facts.frequencies,
            &facts.loops,
        );
        costs[Value::new(0)]
    }

    /// v0 is defined once and used where code runs eight times: 1 × 8 × 4 cycles. Of the weights of
    /// the places it is in, 1 is outside of the loop and 8 + 8 inside, which count × 1.5.
    #[test]
    fn uses_count_by_frequency_and_places_by_loop_depth() {
        let cost = product_of_first(
            "target cicc sm_80
             kernel f {
             block0 freq 1:
                 v0:r32 = load : write
                 bra -> block1
             block1 freq 8:
                 use v0 : write
                 v1:pred = setp : write
                 brp v1 -> block1, block2
             block2 freq 1:
                 exit : exit write
             }",
        );
        let factor = (1.0 + 16.0 * 1.5) / 17.0;
        assert_eq!(cost, 1.0 * 8.0 * 4.0 * factor);
    }

    #[test]
    fn no_finite_cost_exceeds_the_limit() {
        let cost = product_of_first(
            "target cicc sm_80
             kernel f {
             block0 freq 1000000:
                 v0:r32 = load : write
                 use v0 : write
                 exit : exit write
             }",
        );
        assert_eq!(cost, 1e9);
    }
}
