//! Where spilled values go and what that costs.

use super::guidance::Costs;
use super::knobs::Knobs;
use crate::allocation::Space;
use crate::error::{Error, Place};
use crate::function::{Convention, Function, Kind};
use crate::options::Options;
use crate::program::{Facts, Program};
use cranelift_entity::SecondaryMap;

/// What one access to a spilled value costs.
pub const DEFAULT_COST: f32 = 15.0;
/// What it costs where the memory is near: shared memory.
pub const NEAR_COST: f32 = 3.0;

/// How spill memory is handed out: a bucket at a time, and nothing straddles two of them
/// that fits into one. Frames are measured to the byte otherwise, which is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillSetup {
    /// Bytes handed out at a time.
    pub bucket: u32,
    /// Alignment of each bucket.
    pub align: u32,
    /// The most there may ever be; the limit on frames is stricter.
    pub max_bytes: u32,
}

impl SpillSetup {
    /// Small buckets where no cost threshold is set, large ones otherwise.
    pub fn for_threshold(cost_threshold: f64) -> SpillSetup {
        let (bucket, align) = if cost_threshold == 0.0 {
            (8, 4)
        } else {
            (16, 16)
        };
        SpillSetup {
            bucket,
            align,
            max_bytes: 1 << 20,
        }
    }

    /// What `knobs` ask for, if they ask for buckets.
    pub fn of(knobs: &Knobs) -> Option<SpillSetup> {
        let setup = SpillSetup::for_threshold(f64::from(knobs.spill_cost_threshold));
        knobs.spill_buckets.then_some(setup)
    }

    /// Where `bytes` begin, from `start` on, so that they straddle no boundary in vain.
    pub fn place(&self, start: u32, bytes: u32) -> u32 {
        let straddles = start / self.bucket != (start + bytes.max(1) - 1) / self.bucket;
        match straddles {
            true => start.next_multiple_of(self.bucket.max(self.align)),
            false => start,
        }
    }
}

/// The memory to spill to, or why it cannot be had.
///
/// Shared memory has one frame per thread of the block at an address that the kernel
/// knows; a function that is called, or calls, shares it with code that knows nothing of
/// that frame.
pub fn spill_space(function: &Function, options: &Options) -> Result<Space, Error> {
    let calls = function
        .insts()
        .any(|i| function.inst(i).kind == Kind::Call);
    let uses_abi = calls || function.convention() == Convention::Device;
    match (options.spill_space, uses_abi) {
        (Space::Shared, true) => Err(Error::Impossible {
            place: Place::Function,
            value: None,
            message: "it uses the calling convention, so it cannot spill to shared memory".into(),
            help: "spill to local memory, or inline the calls".into(),
        }),
        (Space::Local, false) if options.knobs.smem_spill => Ok(Space::Shared),
        (space, _) => Ok(space),
    }
}

/// What spilling each value costs: its accesses, by how often their blocks run.
pub fn costs(program: &Program, facts: &Facts, knobs: &Knobs, space: Space) -> Costs {
    let access = match space {
        Space::Local => DEFAULT_COST,
        Space::Shared => NEAR_COST,
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
    use crate::program::Value;
    use crate::target::{Class, Target};
    use cranelift_entity::EntityRef;

    /// The buckets of `docs/sources.md#fatpoint-spill-buckets`.
    #[test]
    fn bucket_sizes_by_cost_threshold() {
        let row = |t| {
            let s = SpillSetup::for_threshold(t);
            (s.bucket, s.align, s.max_bytes)
        };
        assert_eq!(row(0.0), (8, 4, 1_048_576));
        assert_eq!(row(-1.0), (16, 16, 1_048_576));
        let large = SpillSetup::for_threshold(-1.0);
        assert_eq!((large.place(4, 12), large.place(8, 12)), (4, 16));
        assert_eq!(large.place(8, 8), 8);
    }

    #[test]
    fn shared_memory_is_refused_where_the_convention_is_used() {
        let function = |calls: bool| {
            let mut b = Builder::new("f");
            let block = b.block();
            if calls {
                b.inst(block, "call").kind(Kind::Call).effect(Effect::Write);
            }
            b.exit(block, "exit");
            b.finish()
        };
        let shared = Options {
            spill_space: Space::Shared,
            ..Options::default()
        };
        assert_eq!(spill_space(&function(false), &shared), Ok(Space::Shared));
        let error = spill_space(&function(true), &shared)
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot spill to shared memory"), "{error}");
        let mut by_knob = Options::default();
        by_knob.knobs.smem_spill = true;
        assert_eq!(spill_space(&function(false), &by_knob), Ok(Space::Shared));
        assert_eq!(spill_space(&function(true), &by_knob), Ok(Space::Local));
    }

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
