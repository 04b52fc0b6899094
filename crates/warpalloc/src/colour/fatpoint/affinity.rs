//! Affinities: copies that vanish if both sides share a register.
//!
//! Copies at isolated constraints, parallel copies on edges and the function's own copies
//! all have one form: they vanish if one value starts a number of units after another.
//! Packing and unpacking are copies too: a scalar may be the second unit of a pair.
//!
//! Each affinity carries the candidate filter bits reported of ptxas, which decide what
//! coalescing may do with it (`docs/sources.md#fatpoint-filter-bits`).

use crate::analysis::Frequencies;
use crate::function::Kind;
use crate::interference::{CopiedPart, copied_parts};
use crate::ir::{LiveRanges, Origin, Program, Value};
use crate::target::Target;
use cranelift_entity::EntityRef;

/// Why a copy may or may not be coalesced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter(pub u8);

impl Filter {
    /// A side is live across a call.
    pub const CROSSES_CALL: Filter = Filter(0x01);
    /// There is a copy at all.
    pub const HAS_COPY: Filter = Filter(0x02);
    /// The destination may have to be in a callee-saved register.
    pub const CALLEE_SAVED: Filter = Filter(0x04);
    /// A side is in a register of the calling convention.
    pub const ABI: Filter = Filter(0x10);
    /// It stands on an edge: a phi web.
    pub const CSSA: Filter = Filter(0x20);
    /// A side is fixed by its instruction's encoding.
    pub const PINNED: Filter = Filter(0x80);

    /// The bits of both.
    pub fn with(self, other: Filter) -> Filter {
        Filter(self.0 | other.0)
    }

    /// Whether any bit of `other` is set.
    pub fn has(self, other: Filter) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether both sides may become one cluster. Where a side already has its register, the
    /// affinity is a hint only.
    pub fn allows_join(self) -> bool {
        let refused = Filter::ABI.with(Filter::PINNED);
        self.has(Filter::HAS_COPY) && !self.has(refused)
    }
}

/// An affinity: the copy vanishes if `from` starts `shift` units after `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affinity {
    /// What is written.
    pub to: Value,
    /// What is read.
    pub from: Value,
    /// Units from the start of `to` to the start of `from`.
    pub shift: i32,
    /// How often the copy runs.
    pub weight: f32,
    /// What may be done about it.
    pub filter: Filter,
}

/// Every affinity of `program`, most frequent first, of equals in code order.
pub fn affinities(
    program: &Program,
    target: &Target,
    ranges: &LiveRanges,
    frequencies: &Frequencies,
) -> Vec<Affinity> {
    let mut gather = Gather {
        program,
        ranges,
        found: Vec::new(),
        fixed: Vec::new(),
    };
    gather.find_fixed();
    for (block, info) in program.blocks.iter() {
        let weight = frequencies.block(block) as f32;
        let on_edge = if info.edge.is_some() {
            Filter::CSSA
        } else {
            Filter(0)
        };
        let ops = info.ops.iter();
        for part in ops.flat_map(|op| copied_parts(program, target, op)) {
            gather.push(part, weight, on_edge);
        }
    }
    most_frequent_first(&gather.found)
}

/// Sorts numbers instead of affinities: weights are not negative, so their bits have their order
/// once there is but one zero.
fn most_frequent_first(found: &[Affinity]) -> Vec<Affinity> {
    let weights = found.iter().map(|a| !(a.weight + 0.0).to_bits());
    let mut order: Vec<(u32, u32)> = weights.zip(0..).collect();
    order.sort_unstable();
    let sorted = order.iter().map(|&(_, index)| found[index as usize]);
    sorted.collect()
}

struct Gather<'a> {
    program: &'a Program<'a>,
    ranges: &'a LiveRanges,
    found: Vec<Affinity>,
    /// The filter bits of values whose link has only one place.
    fixed: Vec<Filter>,
}

impl Gather<'_> {
    fn find_fixed(&mut self) {
        let function = self.program.function;
        for link in self.program.links.iter().filter(|l| l.fixed.is_some()) {
            self.fixed.resize(self.program.values.len(), Filter(0));
            for &(value, _) in &link.members {
                let kind = match self.program.values[value].origin {
                    Origin::Constraint(inst) => Some(function.inst(inst).kind),
                    _ => None,
                };
                self.fixed[value.index()] = match kind {
                    Some(Kind::Call | Kind::Return | Kind::LiveIn) => Filter::ABI,
                    _ => Filter::PINNED,
                };
            }
        }
    }

    fn push(&mut self, part: CopiedPart, weight: f32, filter: Filter) {
        let CopiedPart { to, from, distance } = part;
        if to == from {
            return;
        }
        let mut filter = filter.with(Filter::HAS_COPY);
        for value in [to, from] {
            let fixed = self.fixed.get(value.index()).copied().unwrap_or_default();
            filter = filter.with(fixed);
            if self.ranges.crosses_clobber(value) {
                filter = filter.with(Filter::CROSSES_CALL).with(Filter::CALLEE_SAVED);
            }
        }
        self.found.push(Affinity {
            to,
            from,
            shift: distance,
            weight,
            filter,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_zero_comes_last() {
        let hint = |number, weight| Affinity {
            to: Value::new(number),
            from: Value::new(9),
            shift: 0,
            weight,
            filter: Filter::HAS_COPY,
        };
        let weights = [-0.0, 0.5, f32::INFINITY, 0.0, 0.5];
        let found: Vec<Affinity> = (0..).zip(weights).map(|(n, w)| hint(n, w)).collect();
        let sorted = most_frequent_first(&found);
        let order = sorted.iter().map(|hint| hint.to.index());
        assert_eq!(order.collect::<Vec<_>>(), [2, 1, 4, 0, 3]);
    }

    /// The bits of `docs/sources.md#fatpoint-filter-bits`.
    #[test]
    fn bits_are_the_documented_ones() {
        let bits = [
            Filter::CROSSES_CALL,
            Filter::HAS_COPY,
            Filter::CALLEE_SAVED,
            Filter::ABI,
            Filter::CSSA,
            Filter::PINNED,
        ];
        assert_eq!(bits.map(|f| f.0), [0x01, 0x02, 0x04, 0x10, 0x20, 0x80]);
        assert!(Filter::HAS_COPY.with(Filter::CSSA).allows_join());
        assert!(!Filter::CSSA.allows_join());
        for refused in [Filter::ABI, Filter::PINNED] {
            assert!(!Filter::HAS_COPY.with(refused).allows_join());
        }
    }
}
