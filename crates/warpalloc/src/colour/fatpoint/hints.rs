//! Hints: the affinities that are left once clusters have been joined.
//!
//! An affinity within a cluster is granted with the cluster's register, and one between
//! values that are live at once never can be: neither is looked at while registers are
//! assigned. That leaves the affinities that coalescing refused for other reasons, and the
//! ones of values with fixed places. Granted ones return when a cluster falls apart.

use super::affinity::Affinity;
use crate::analysis::Rows;
use crate::ir::{LiveRanges, Value};

/// A hint of a value: another value, how many units after the first it should start, and
/// the weight of that.
pub type Hint = (Value, i32, f32);

/// Hints by value.
#[derive(Default)]
pub struct Hints {
    by_value: Option<Rows<Value, Hint>>,
    /// Copies that may end up in one register, be it in one cluster.
    possible: Vec<Affinity>,
}

impl Hints {
    /// Lists the hints of values, except between values that `are_together` in one cluster.
    pub fn new(
        ranges: &LiveRanges,
        affinities: &[Affinity],
        are_together: impl Fn(Value, Value) -> bool,
    ) -> Hints {
        let mut open = Vec::new();
        let mut possible = Vec::with_capacity(affinities.len());
        for affinity in affinities {
            let granted = are_together(affinity.to, affinity.from);
            if granted || !ranges.overlap(affinity.to, affinity.from) {
                possible.push(*affinity);
                open.extend((!granted).then_some(*affinity));
            }
        }
        Hints {
            by_value: by_value(ranges, &open),
            possible,
        }
    }

    /// Takes back what was granted: a cluster has fallen apart.
    pub fn reopen(&mut self, ranges: &LiveRanges) {
        let mut all = std::mem::take(&mut self.possible);
        if !all.is_empty() {
            all.retain(|a| !ranges.overlap(a.to, a.from));
            self.by_value = by_value(ranges, &all);
        }
    }

    /// The hints of `value`.
    pub fn of(&self, value: Value) -> &[Hint] {
        let rows = self.by_value.as_ref();
        rows.map_or(&[], |rows| rows.row(value))
    }

    /// The other end of every open affinity, once for each.
    pub fn values(&self) -> impl Iterator<Item = Value> + '_ {
        let rows = self.by_value.iter();
        let hints = rows.flat_map(|rows| rows.items());
        hints.map(|&(other, ..)| other)
    }
}

/// Lists hints for both ends of each copy, if there are any.
fn by_value(ranges: &LiveRanges, affinities: &[Affinity]) -> Option<Rows<Value, Hint>> {
    let both = affinities.iter().flat_map(|a| {
        let (to, from) = ((a.to, a.shift), (a.from, -a.shift));
        [(to, a.from), (from, a.to)].map(|((of, shift), other)| (of, (other, shift, a.weight)))
    });
    (!affinities.is_empty()).then(|| Rows::from_pairs(ranges.value_count(), both))
}

#[cfg(test)]
mod tests {
    use super::super::affinity::affinities;
    use super::*;
    use crate::function::{Builder, Effect};
    use crate::ir::{Facts, Program};
    use crate::target::{Class, Target};
    use cranelift_entity::EntityRef;

    /// `x = load; y = x; z = y; inc z; store x, z`: `y` ends where `z` begins, and `x` lives
    /// beside both.
    #[test]
    fn an_affinity_within_a_cluster_is_no_hint_until_the_cluster_falls_apart() {
        let mut b = Builder::new("f");
        let block = b.block();
        let [x, y, z] = std::array::from_fn(|_| b.vreg(Class::R32));
        b.inst(block, "load").def(x).effect(Effect::Read);
        b.copy(block, y, x);
        b.copy(block, z, y);
        b.inst(block, "inc").use_def(z);
        b.inst(block, "store").use_(x).use_(z).effect(Effect::Write);
        b.exit(block, "exit");
        let function = b.finish();
        let target = Target::hardware(90).unwrap();
        let program = Program::new(&function, &target, None).unwrap();
        let facts = Facts::of(&program);
        let ranges = LiveRanges::compute(&program, &target, &facts);
        let copies = affinities(&program, &target, &ranges, &facts.frequencies);
        let [x, y, z] = [x, y, z].map(|vreg| Value::new(vreg.index()));
        let others = |hints: &Hints, value| {
            let hints = hints.of(value).iter();
            hints.map(|&(other, ..)| other).collect::<Vec<_>>()
        };

        let apart = Hints::new(&ranges, &copies, |_, _| false);
        assert_eq!(others(&apart, x), []);
        assert_eq!(others(&apart, y), [z]);
        assert_eq!(others(&apart, z), [y]);

        let joined = |a, b| [a, b] == [z, y];
        let mut granted = Hints::new(&ranges, &copies, joined);
        assert_eq!(granted.values().count(), 0);
        granted.reopen(&ranges);
        assert_eq!(others(&granted, y), [z]);
        assert_eq!(others(&granted, x), []);
    }
}
