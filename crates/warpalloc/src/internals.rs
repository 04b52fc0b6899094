//! What measurements look at and clients do not: no part of the interface.

pub use crate::colour::fatpoint::histogram::{Histogram, choose};
pub use crate::passes::split::{SplitCounts, SplitPolicy};

use crate::analysis::Liveness;
use crate::function::Function;
use crate::interference::Interference;
use crate::ir::{Facts, LiveRanges, Program, Value};
use crate::passes::schedule::schedule;
use crate::passes::split::{Crowds, split_long_values};
use crate::scratch::Scratch;
use crate::stats::GraphStats;
use crate::target::Target;

/// A graph before and after splitting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Degrees {
    /// The graph of whole values.
    pub before: GraphStats,
    /// The graph of their pieces.
    pub after: GraphStats,
}

impl Degrees {
    /// How much lower the average degree is, as a part of what it was.
    pub fn fall(&self) -> f64 {
        let before = self.before.average_degree();
        match before > 0.0 {
            true => 1.0 - self.after.average_degree() / before,
            false => 0.0,
        }
    }

    /// Takes both graphs of `other` in, unconnected.
    pub fn add(&mut self, other: &Degrees) {
        self.before = together(self.before, other.before);
        self.after = together(self.after, other.after);
    }
}

fn together(a: GraphStats, b: GraphStats) -> GraphStats {
    GraphStats {
        nodes: a.nodes + b.nodes,
        edges: a.edges + b.edges,
        max_degree: a.max_degree.max(b.max_degree),
    }
}

/// What splitting does to the interference graph of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DegreeChange {
    /// The whole graph, as statistics report it.
    pub all: Degrees,
    /// The part of it that is split: the values of files that are too full somewhere. Values
    /// of different files never interfere, so this is a graph of its own.
    pub crowded: Degrees,
    /// What was split.
    pub counts: SplitCounts,
}

impl DegreeChange {
    /// Splits the live ranges of `function`, in the order that the allocator would choose if
    /// it may `reorder`, and compares; nothing where no file is too full.
    pub fn measure(
        function: &Function,
        target: &Target,
        reorder: bool,
        policy: SplitPolicy,
    ) -> Option<DegreeChange> {
        let liveness = Liveness::compute(function);
        let order = match reorder {
            true => schedule(function, target, &liveness),
            false => None,
        };
        let program = &Program::new(function, target, order).ok()?;
        let facts = Facts::of(program);
        let ranges = LiveRanges::compute(program, target, &facts);
        let crowds = Crowds::measure(program, target, &facts, &ranges);
        if !crowds.any() {
            return None;
        }
        let graphs = |program: &Program, facts: &Facts| {
            let graph = Interference::build(program, target, &facts.liveness, &Scratch::default());
            let is_crowded =
                |value: Value| crowds.of_file(target.class(program.values[value].class).file);
            (graph.stats(), graph.stats_of(is_crowded))
        };
        let before = graphs(program, &facts);
        let mut split = program.clone();
        let counts = split_long_values(&mut split, target, &facts, policy);
        let after = graphs(&split, &Facts::of(&split));
        let degrees = |before, after| Degrees { before, after };
        Some(DegreeChange {
            all: degrees(before.0, after.0),
            crowded: degrees(before.1, after.1),
            counts,
        })
    }
}
