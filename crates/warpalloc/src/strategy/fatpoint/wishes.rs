//! What is left to wish for once clusters have been joined.
//!
//! A wish within a cluster is granted with the cluster's register, and one between values
//! that are alive at once never can be: neither is worth a look while registers are handed
//! out. That leaves the wishes that coalescing refused for other reasons, and those of
//! values with fixed places. Granted ones return when a cluster falls apart.

use super::affinity::Affinity;
use crate::analysis::Rows;
use crate::program::{Ranges, Value};

/// Another value, how many units after one's own start it should start, and how much that
/// is worth.
pub type Wish = (Value, i32, f32);

/// Wishes by value.
#[derive(Default)]
pub struct Wishes {
    by_value: Option<Rows<Value, Wish>>,
    /// Copies that may end up in one register, be it in one cluster.
    possible: Vec<Affinity>,
}

impl Wishes {
    /// Lists the wishes of values, less those that `are_together` in one cluster.
    pub fn new(
        ranges: &Ranges,
        affinities: &[Affinity],
        are_together: impl Fn(Value, Value) -> bool,
    ) -> Wishes {
        let mut open = Vec::new();
        let mut possible = Vec::with_capacity(affinities.len());
        for affinity in affinities {
            let granted = are_together(affinity.to, affinity.from);
            if granted || !ranges.overlap(affinity.to, affinity.from) {
                possible.push(*affinity);
                open.extend((!granted).then_some(*affinity));
            }
        }
        Wishes {
            by_value: by_value(ranges, &open),
            possible,
        }
    }

    /// Takes back what was granted: a cluster has fallen apart.
    pub fn reopen(&mut self, ranges: &Ranges) {
        let mut all = std::mem::take(&mut self.possible);
        if !all.is_empty() {
            all.retain(|a| !ranges.overlap(a.to, a.from));
            self.by_value = by_value(ranges, &all);
        }
    }

    /// The wishes of `value`.
    pub fn of(&self, value: Value) -> &[Wish] {
        let rows = self.by_value.as_ref();
        rows.map_or(&[], |rows| rows.row(value))
    }

    /// The other end of every open affinity, once for each.
    pub fn values(&self) -> impl Iterator<Item = Value> + '_ {
        let rows = self.by_value.iter();
        let wishes = rows.flat_map(|rows| rows.items());
        wishes.map(|&(other, ..)| other)
    }
}

/// Lists wishes for both ends of each copy, if there are any.
fn by_value(ranges: &Ranges, affinities: &[Affinity]) -> Option<Rows<Value, Wish>> {
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
    use crate::program::{Facts, Program};
    use crate::target::{Class, Target};
    use cranelift_entity::EntityRef;

    /// `x = load; y = x; z = y; inc z; store x, z`: `y` ends where `z` begins, and `x` lives
    /// beside both.
    #[test]
    fn what_is_granted_or_hopeless_is_nobodys_wish_until_a_cluster_falls_apart() {
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
        let ranges = Ranges::compute(&program, &target, &facts);
        let copies = affinities(&program, &ranges, &facts.frequencies);
        let [x, y, z] = [x, y, z].map(|vreg| Value::new(vreg.index()));
        let others = |wishes: &Wishes, value| {
            let wishes = wishes.of(value).iter();
            wishes.map(|&(other, ..)| other).collect::<Vec<_>>()
        };

        let apart = Wishes::new(&ranges, &copies, |_, _| false);
        assert_eq!(others(&apart, x), []);
        assert_eq!(others(&apart, y), [z]);
        assert_eq!(others(&apart, z), [y]);

        let joined = |a, b| [a, b] == [z, y];
        let mut granted = Wishes::new(&ranges, &copies, joined);
        assert_eq!(granted.values().count(), 0);
        granted.reopen(&ranges);
        assert_eq!(others(&granted, y), [z]);
        assert_eq!(others(&granted, x), []);
    }
}
