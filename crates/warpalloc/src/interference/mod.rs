//! Which values may not share registers.
//!
//! Two values *interfere* when one is written while the other's contents are still
//! needed. Units decide the rest: interfering values may live anywhere in their file as
//! long as their units are apart, so pairs, quads and packed halves need no edges of their
//! own.
//!
//! *Copies.* A copy does not by itself make its two sides interfere: right after it both
//! hold the same contents. The edge is not added at the copy; other points may still make
//! them interfere. Where a copy packs or unpacks, a wide value may sit on a
//! narrow one only so that the matching parts coincide, and so may a tuple and its copy where
//! tuples of their class can overlap in part: such an edge is *conditional* and carries the
//! one distance at which the two may overlap.
//!
//! *Clobbers.* The registers that an instruction clobbers become forbidden units of every
//! value that is live across it.
//!
//! *Representation.* One sorted row of neighbours per value, as 16-bit steps in one piece of
//! memory, made from a log of definitions and live sets: linear in the edges, and no table
//! over pairs of values. A row is read from its beginning, so that a caller with tests against
//! one value marks its row first.

mod build;
mod crowd;
mod log;
mod rows;

use crate::target::UnitSet;
pub use build::{CopiedPart, copied_parts};

use crate::ir::Value;
use crate::scratch::Scratch;
use crate::stats::GraphStats;
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use rows::Neighbours;
use rustc_hash::FxHashMap;

/// The interference of a program's values.
#[derive(Clone, Debug)]
pub struct Interference {
    /// Neighbours in ascending order.
    rows: Neighbours,
    /// For conditional edges `(a, b)`: where `b` starts, counted from the start of `a`.
    distances: FxHashMap<(Value, Value), i32>,
    occurring: EntitySet<Value>,
    clobbered: SecondaryMap<Value, Option<Box<UnitSet<8>>>>,
    peaks: Vec<u16>,
}

/// One edge, seen from one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The other end.
    pub value: Value,
    /// Whether the two may overlap at [`Interference::distance`].
    pub conditional: bool,
}

impl Interference {
    /// The edges of `value`, neighbours in ascending order.
    pub fn edges(&self, value: Value) -> impl Iterator<Item = Edge> + '_ {
        self.rows.edges(value)
    }

    /// How many values `value` interferes with.
    pub fn degree(&self, value: Value) -> usize {
        self.rows.degree(value)
    }

    /// Where `b` starts, counted in units from the start of `a`, if that is the one way in
    /// which these interfering values may overlap.
    pub fn distance(&self, a: Value, b: Value) -> Option<i32> {
        if a < b {
            self.distances.get(&(a, b)).copied()
        } else {
            self.distances.get(&(b, a)).map(|d| -d)
        }
    }

    /// Whether the program reads or writes `value` anywhere.
    pub fn occurs(&self, value: Value) -> bool {
        self.occurring.contains(value)
    }

    /// Units of its file that are overwritten while `value` is needed.
    pub fn clobbered(&self, value: Value) -> Option<&UnitSet<8>> {
        self.clobbered[value].as_deref()
    }

    /// The most units of its file in use at once while `value` is live.
    pub fn peak(&self, value: Value) -> u32 {
        u32::from(self.peaks[value.index()])
    }

    /// Nodes, edges and degrees.
    pub fn stats(&self) -> GraphStats {
        self.stats_of(|_| true)
    }

    /// Nodes, edges and degrees of the values that `is_counted`, if no counted value
    /// interferes with one that is not.
    pub fn stats_of(&self, is_counted: impl Fn(Value) -> bool) -> GraphStats {
        let counted = self.occurring.iter().filter(|&value| is_counted(value));
        let mut stats = GraphStats::default();
        let mut ends = 0;
        for value in counted {
            let degree = self.degree(value);
            stats.nodes += 1;
            ends += degree as u64;
            stats.max_degree = stats.max_degree.max(degree as u32);
        }
        stats.edges = ends / 2;
        stats
    }

    /// Leaves its memory to others.
    pub fn recycle(self, scratch: &Scratch) {
        self.rows.recycle(scratch);
        scratch.give(self.peaks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Builder, Effect};
    use crate::generate::{self, Rng, Shape};
    use crate::ir::{Facts, Program};
    use crate::target::{Class, Target};

    /// The program of a function in the text format, and its target.
    fn with_program(body: &str, check: impl FnOnce(&Program, &Target)) {
        let text = format!("target hardware sm_90\nkernel f {{\nblock0:\n{body}\n}}\n");
        let case = crate::text::parse(&text).unwrap();
        case.function.validate(&case.target).unwrap();
        let program = Program::new(&case.function, &case.target, None).unwrap();
        check(&program, &case.target);
    }

    /// A copy of several values copies those that lie on each other, and no others.
    #[test]
    fn parts_of_a_copy_lie_on_each_other() {
        let body = "
            v0:r32 = load : read
            v1:r64 = load : read
            v2:r32 = load : read
            v3:r32, v4:r32, v5:r64 = mov v0, v1, v2 : copy
            store v3, v4, v5 : write
            exit : exit write";
        with_program(body, |program, target| {
            let ops = program.blocks.values().flat_map(|block| &block.ops);
            let parts = ops.flat_map(|op| copied_parts(program, target, op));
            let parts = parts.map(|p| (p.to.index(), p.from.index(), p.distance));
            assert_eq!(parts.collect::<Vec<_>>(), [(3, 0, 0), (4, 1, 0), (5, 2, 1)]);
        });
    }

    /// The hardware may write a pinned value while its copy still holds what it was.
    #[test]
    fn a_pinned_value_interferes_with_its_copies() {
        let body = "
            v0:r32 = load : read
            v1:r32.pinned = mov v0 : copy
            v2:r32 = mov v1 : copy
            async v1 : write
            store v0, v2 : write
            async v1 : write
            exit : exit write";
        with_program(body, |program, target| {
            let liveness = Facts::of(program).liveness;
            let graph = Interference::build(program, target, &liveness, &Default::default());
            let [source, pinned, copy] = [0, 1, 2].map(Value::from_u32);
            let neighbours = graph.edges(pinned).map(|edge| edge.value);
            assert_eq!(neighbours.collect::<Vec<_>>(), [source, copy]);
        });
    }

    /// Conditional edges stand among the others, so that an edge can be searched for.
    #[test]
    fn rows_are_in_ascending_order() {
        let target = Target::hardware_packed(80).unwrap();
        let mut conditional = 0;
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let shape = Shape {
                wide: true,
                copies: true,
                ..Shape::random(120, &mut rng)
            };
            let function = generate::function(&shape, &target, &mut rng);
            let program = Program::new(&function, &target, None).unwrap();
            let liveness = Facts::of(&program).liveness;
            let graph = Interference::build(&program, &target, &liveness, &Default::default());
            for value in program.values.keys() {
                assert!(graph.edges(value).map(|edge| edge.value).is_sorted());
                conditional += graph.edges(value).filter(|edge| edge.conditional).count();
            }
        }
        assert!(conditional > 20, "{conditional}");
    }

    #[test]
    fn values_that_do_not_occur_are_no_nodes() {
        let mut b = Builder::new("f");
        let block = b.block();
        let unused = b.vreg(Class::R32);
        let [x, y, condition] = [Class::R32, Class::R32, Class::PRED].map(|class| b.vreg(class));
        for v in [x, y, condition] {
            b.inst(block, "load").def(v).effect(Effect::Read);
        }
        for v in [x, y, condition] {
            b.inst(block, "store").use_(v).effect(Effect::Write);
        }
        b.exit(block, "exit");
        let f = b.finish();
        let target = Target::hardware(90).unwrap();
        let program = Program::new(&f, &target, None).unwrap();
        let graph = Interference::build(
            &program,
            &target,
            &Facts::of(&program).liveness,
            &Scratch::default(),
        );
        assert!(!graph.occurs(Value::new(unused.index())));
        let stats = graph.stats();
        assert_eq!((stats.nodes, stats.edges, stats.max_degree), (3, 1, 1));
        let predicates = graph.stats_of(|v| program.values[v].class == Class::PRED);
        assert_eq!((predicates.nodes, predicates.edges), (1, 0));
        assert_eq!(predicates.average_degree(), 0.0);
    }
}
