//! Which values are split, and where.

use super::SplitPolicy;
use super::stretches::{Spot, Stretches};
use crate::analysis::{Cfg, Loop};
use crate::ir::{Facts, LiveRanges, Op, Program, Value};
use crate::target::{File, Target};
use cranelift_entity::EntitySet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// A loop that touches a value no more often than this hardly uses it.
const FEW: u32 = 2;
/// Stretches are so long that about this many copies come with each operation at most,
/// however many values are live: more copies would gain little and take much longer.
const COPIES_PER_OP: usize = 2;

/// How many blocks are over capacity, per file.
pub(crate) struct Crowds {
    /// In the whole program.
    total: Vec<u32>,
    /// Registers that are needed at once, of the file that needs most.
    peak: usize,
    /// In each loop.
    within: FxHashMap<(Loop, File), u32>,
}

impl Crowds {
    pub fn measure(
        program: &Program,
        target: &Target,
        facts: &Facts,
        ranges: &LiveRanges,
    ) -> Crowds {
        let pressure = ranges.pressure(target);
        let registers = target
            .files()
            .map(|(file, info)| ranges.peak(file) / info.units_per_reg);
        let mut crowds = Crowds {
            total: vec![0; target.files().len()],
            peak: registers.max().unwrap_or(0),
            within: FxHashMap::default(),
        };
        for block in program.all_blocks() {
            let positions = ranges.of_block(program, block);
            for (file, info) in target.files() {
                let mut units = pressure[file.index()][positions.clone()].iter();
                if units.all(|&at| at <= info.capacity as i32) {
                    continue;
                }
                crowds.total[file.index()] += 1;
                for l in facts.loops.around(block) {
                    *crowds.within.entry((l, file)).or_default() += 1;
                }
            }
        }
        crowds
    }

    /// Whether any block is over capacity.
    pub fn any(&self) -> bool {
        self.total.iter().any(|&crowded| crowded > 0)
    }

    /// Whether any block is over the capacity of `file`.
    pub fn of_file(&self, file: File) -> bool {
        self.total[file.index()] > 0
    }

    fn inside(&self, l: Loop, file: File) -> bool {
        self.within.contains_key(&(l, file))
    }

    fn outside(&self, l: Loop, file: File) -> bool {
        let within = self.within.get(&(l, file)).copied().unwrap_or(0);
        self.total[file.index()] > within
    }
}

/// A part of the program in which a value has one name: a loop less the loops inside it
/// that are regions themselves, or the code outside all of them, and of that one stretch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Region {
    inside: Option<Loop>,
    stretch: Option<u32>,
}

/// Which values are split, and where.
pub(super) struct Plan {
    /// Values that may be split; some have but one region.
    pub split: EntitySet<Value>,
    loops: FxHashMap<Value, SmallVec<[Loop; 2]>>,
    /// Where all of them are split besides.
    pub stretches: Option<Stretches>,
}

impl Plan {
    pub fn make(
        program: &Program,
        target: &Target,
        facts: &Facts,
        ranges: &LiveRanges,
        policy: SplitPolicy,
        crowds: &Crowds,
    ) -> Plan {
        let budget = target.budget(File::MAIN).max(1);
        let everywhere = program.values.len() > policy.aggressive * budget;
        let usage = Usage::count(program, facts);
        let length = |value: Value| ranges.length(value) as usize;
        let file = |value: Value| target.class(program.values[value].class).file;
        let fixed = recomputable(program);
        let may_split = |value: Value| {
            !program.values[value].unspillable
                && !fixed.contains(value)
                && length(value) > policy.length
                && crowds.of_file(file(value))
        };
        let mut plan = Plan {
            split: EntitySet::new(),
            loops: FxHashMap::default(),
            stretches: None,
        };
        for (l, crossing) in crossing_values(program, facts) {
            if facts.loops.is_irreducible(l) {
                continue;
            }
            for value in crossing.into_iter().filter(|&v| may_split(v)) {
                let file = file(value);
                let outside = length(value).saturating_sub(usage.size(l));
                let is_idle = usage.of(value, l) <= FEW;
                let pays = match is_idle {
                    true => crowds.inside(l, file),
                    false => outside > policy.length && crowds.outside(l, file),
                };
                let parent = facts.loops.info(l).parent;
                let as_outside = parent.is_some_and(|p| {
                    plan.is_region(value, p) && (usage.of(value, p) <= FEW) == is_idle
                });
                if (pays && !as_outside) || everywhere {
                    plan.split.insert(value);
                    plan.loops.entry(value).or_default().push(l);
                }
            }
        }
        if let (true, Some(stretch)) = (everywhere, policy.stretch) {
            let length = stretch.max(crowds.peak / COPIES_PER_OP);
            plan.stretches = Some(Stretches::of(program, facts, length));
            let long = program.values.keys().filter(|&v| may_split(v));
            plan.split.extend(long);
        }
        plan
    }

    fn is_region(&self, value: Value, l: Loop) -> bool {
        self.loops
            .get(&value)
            .is_some_and(|loops| loops.contains(&l))
    }

    /// Where `value` has the same name as at `spot`.
    pub fn region(&self, value: Value, spot: Spot, facts: &Facts) -> Region {
        let split_at = self.loops.get(&value);
        let is_region = |l: &Loop| split_at.is_some_and(|loops| loops.contains(l));
        let stretches = self.stretches.as_ref();
        Region {
            inside: facts.loops.around(spot.block).find(is_region),
            stretch: stretches.and_then(|stretches| stretches.at(spot)),
        }
    }
}

/// How often loops touch values, and how long they are.
struct Usage {
    touches: FxHashMap<(Value, Loop), u32>,
    sizes: FxHashMap<Loop, usize>,
}

impl Usage {
    fn count(program: &Program, facts: &Facts) -> Usage {
        let mut usage = Usage {
            touches: FxHashMap::default(),
            sizes: FxHashMap::default(),
        };
        for (block, info) in program.blocks.iter() {
            for l in facts.loops.around(block) {
                *usage.sizes.entry(l).or_default() += info.ops.len();
                for op in &info.ops {
                    for (value, _) in op.accesses(program.function) {
                        *usage.touches.entry((value, l)).or_default() += 1;
                    }
                }
            }
        }
        usage
    }

    fn of(&self, value: Value, l: Loop) -> u32 {
        self.touches.get(&(value, l)).copied().unwrap_or(0)
    }

    fn size(&self, l: Loop) -> usize {
        self.sizes.get(&l).copied().unwrap_or(0)
    }
}

/// The values that are live on an edge into or out of each loop, outer loops first.
fn crossing_values(program: &Program, facts: &Facts) -> BTreeMap<Loop, BTreeSet<Value>> {
    let mut crossing: BTreeMap<Loop, BTreeSet<Value>> = BTreeMap::new();
    for (l, info) in facts.loops.loops() {
        let live = facts.liveness.live_in(info.header);
        crossing.entry(l).or_default().extend(live);
    }
    for block in program.all_blocks() {
        for succ in program.successors(block) {
            let left = facts
                .loops
                .around(block)
                .take_while(|&l| !facts.loops.contains(l, succ));
            for l in left {
                let live = facts.liveness.live_in(succ);
                crossing.entry(l).or_default().extend(live);
            }
        }
    }
    crossing
}

/// Values that are better rematerialised than kept: a copy would hide how.
fn recomputable(program: &Program) -> EntitySet<Value> {
    let mut found = EntitySet::new();
    for op in program.blocks.values().flat_map(|block| &block.ops) {
        let Op::Inst { inst, values } = op else {
            continue;
        };
        let operands = program.function.operands(*inst);
        let reads = operands.iter().any(|o| o.role.reads());
        if program.function.inst(*inst).remat.is_some() && !reads {
            found.extend(values.iter().copied());
        }
    }
    found
}
