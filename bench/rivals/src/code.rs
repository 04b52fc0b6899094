//! Allocated code in one form for every allocator, and the one cost function.

use crate::function::{Func, Kind};

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    Reg(u16),
    Slot(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An instruction of the function, with the places of its definitions, then of its uses.
    Inst { inst: u32, places: Vec<Place> },
    /// A move between registers, a store or a reload.
    Move { to: Place, from: Place },
    /// An exchange of two registers.
    Swap { a: Place, b: Place },
    /// A rematerialisation: a constant instruction executed again.
    Remat { inst: u32, to: Place },
}

/// The items of every block of the function. Code on an edge stands in the block that has the
/// edge to itself, which exists because no edge is critical.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    pub blocks: Vec<Vec<Item>>,
}

/// What a move between registers costs.
pub const MOVE: f64 = 1.0;
/// What a reload costs.
pub const LOAD: f64 = 4.0;
/// What a store costs.
pub const STORE: f64 = 4.0;
/// What a rematerialisation costs: one instruction without memory access.
pub const REMAT: f64 = 1.0;

/// The inserted code, register by register: a swap is three moves, and an access of several
/// registers counts several times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// The sum over the inserted code of its cost times `10^depth`.
    pub cost: f64,
    pub moves: u64,
    pub loads: u64,
    pub stores: u64,
    pub remats: u64,
}

impl Counts {
    pub fn spills(&self) -> bool {
        self.loads + self.stores + self.remats > 0
    }

    fn here(&self) -> f64 {
        let of = |count: u64, cost: f64| count as f64 * cost;
        of(self.moves, MOVE)
            + of(self.loads, LOAD)
            + of(self.stores, STORE)
            + of(self.remats, REMAT)
    }
}

impl Code {
    /// Counts the inserted code. A constant that is gone, because it is rematerialised
    /// wherever it is read, is taken off the cost.
    pub fn counts(&self, f: &Func) -> Counts {
        let mut sum = Counts::default();
        for (block, items) in f.blocks.iter().zip(&self.blocks) {
            let mut here = Counts::default();
            for item in items {
                match item {
                    Item::Inst { .. } => {}
                    Item::Move { to, from } => match (to, from) {
                        (Place::Reg(_), Place::Reg(_)) => here.moves += 1,
                        (Place::Reg(_), Place::Slot(_)) => here.loads += 1,
                        (Place::Slot(_), Place::Reg(_)) => here.stores += 1,
                        (Place::Slot(_), Place::Slot(_)) => {
                            here.loads += 1;
                            here.stores += 1;
                        }
                    },
                    Item::Swap { .. } => here.moves += 3,
                    Item::Remat { .. } => here.remats += 1,
                }
            }
            let is_const = |i: &u32| f.insts[*i as usize].kind == Kind::Const;
            let present = items.iter().filter_map(|item| match item {
                Item::Inst { inst, .. } => Some(*inst),
                _ => None,
            });
            let gone =
                block.insts.clone().filter(is_const).count() - present.filter(is_const).count();
            sum.cost += (here.here() - gone as f64 * REMAT) * block.frequency();
            sum.moves += here.moves;
            sum.loads += here.loads;
            sum.stores += here.stores;
            sum.remats += here.remats;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    /// One of each kind outside the loop (1 + 4 + 4 + 1, and 3 for the swap), and a reload
    /// and a move within it (10 times 4 + 1).
    #[test]
    fn inserted_code_costs_by_kind_and_depth() {
        let f = text::function(
            "function hand registers 4
             block depth 0
             const v0 =
             jump args v0 to 1
             block depth 1 params v1
             op v2 = v1
             branch v2 to 2 3
             block depth 1
             jump args v2 to 1
             block depth 0
             store v2
             ret
             end",
        )
        .expect("a function");
        let code = text::code(
            "block
             inst 0 r0
             move s0 r0
             move r1 s0
             move r2 r1
             swap r1 r2
             remat 0 r3
             inst 1
             block
             inst 2 r1 r0
             inst 3 r1
             block
             move s1 r1
             move r0 s1
             move r0 r1
             inst 4
             block
             inst 5 r1
             inst 6
             end",
        )
        .expect("code");
        let counts = code.counts(&f.0);
        let expected = Counts {
            cost: 13.0 + 10.0 * 9.0,
            moves: 5,
            loads: 2,
            stores: 2,
            remats: 1,
        };
        assert_eq!(counts, expected);
    }

    /// The constant is executed once after the loop instead of ten times within it.
    #[test]
    fn a_constant_that_is_gone_is_taken_off() {
        let (f, _) = text::function(
            "function sunk registers 2
             block depth 1
             const v0 =
             branch to 1
             block depth 0
             store v0
             ret
             end",
        )
        .expect("a function");
        let code = text::code("block\ninst 1\nblock\nremat 0 r0\ninst 2 r0\ninst 3\nend");
        let counts = code.expect("code").counts(&f);
        assert_eq!((counts.cost, counts.remats), (1.0 - 10.0, 1));
    }
}
