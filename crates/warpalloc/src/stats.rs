//! What an allocation did, counted.

use std::time::{Duration, Instant};

/// The interference graph as it was built the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct GraphStats {
    /// Nodes.
    pub nodes: u32,
    /// Edges.
    pub edges: u64,
    /// Largest number of neighbours.
    pub max_degree: u32,
}

impl GraphStats {
    /// Edges over the edges of a complete graph.
    pub fn density(&self) -> f64 {
        let nodes = self.nodes as f64;
        let all = nodes * (nodes - 1.0) / 2.0;
        if all > 0.0 {
            self.edges as f64 / all
        } else {
            0.0
        }
    }

    /// Mean number of neighbours.
    pub fn average_degree(&self) -> f64 {
        if self.nodes > 0 {
            2.0 * self.edges as f64 / self.nodes as f64
        } else {
            0.0
        }
    }
}

/// Edits by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct EditCounts {
    /// Moves, swaps and transfers between files.
    pub moves: u32,
    /// Stores to the spill frame.
    pub stores: u32,
    /// Loads from the spill frame.
    pub reloads: u32,
    /// Rematerialisations.
    pub recomputes: u32,
}

/// Statistics of one allocation.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Stats {
    /// Values that competed for registers.
    pub values: u32,
    /// Values that went to memory.
    pub spilled: u32,
    /// Values that are rematerialised instead.
    pub rematerialised: u32,
    /// Loop invariants that are computed before their loop.
    pub hoisted: u32,
    /// Copies the function had, constraint copies included.
    pub copies: u32,
    /// Copies that need no code because both sides share a register.
    pub coalesced: u32,
    /// Merges of bodies that coalescing made.
    pub merges: u32,
    /// Merged bodies that were taken apart again because they found no register, or others did
    /// not.
    pub undone: u32,
    /// Rounds of allocation.
    pub iterations: u32,
    /// No round succeeded, and every value went to memory instead.
    pub fell_back: bool,
    /// The interference graph, for strategies that build one.
    pub graph: GraphStats,
    /// Graphs that were coloured: one per round, and the ones that improve on a colouring.
    pub colourings: u32,
    /// Edges looked at while all those graphs were taken apart: what that costs.
    pub edge_visits: u64,
    /// Inserted code.
    pub edits: EditCounts,
    /// Bytes of frame saved because values share slots.
    pub shared_slot_bytes: u32,
    /// Bytes of frame saved by closing gaps between slots.
    pub compacted_bytes: u32,
    /// Virtual registers that are live while a call runs.
    pub live_through_calls: u32,
    /// Time by phase, in the order the phases first ran.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub phases: Vec<(&'static str, Duration)>,
}

impl Stats {
    /// Adds time to a phase.
    pub fn add_time(&mut self, phase: &'static str, time: Duration) {
        match self.phases.iter_mut().find(|(name, _)| *name == phase) {
            Some((_, total)) => *total += time,
            None => self.phases.push((phase, time)),
        }
    }

    /// Adds the time of every phase of `other`.
    pub(crate) fn add_times(&mut self, other: &Stats) {
        for &(phase, time) in &other.phases {
            self.add_time(phase, time);
        }
    }

    /// Spilled values over all values.
    pub fn spill_rate(&self) -> f64 {
        ratio(self.spilled, self.values)
    }

    /// Copies that vanished over all copies; 1 where there were none.
    pub fn coalescing_rate(&self) -> f64 {
        match self.copies {
            0 => 1.0,
            copies => ratio(self.coalesced, copies),
        }
    }
}

/// Measures one phase after the other.
pub(crate) struct Clock(Instant);

impl Clock {
    /// The first phase begins.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Ends a phase; the next one begins.
    pub fn lap(&mut self, stats: &mut Stats, phase: &'static str) {
        let now = Instant::now();
        stats.add_time(phase, now - self.0);
        self.0 = now;
    }
}

fn ratio(part: u32, whole: u32) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of three nodes and a node apart: two edges of six, one neighbour in the mean.
    #[test]
    fn degrees_and_rates_are_counted_by_definition() {
        let graph = GraphStats {
            nodes: 4,
            edges: 2,
            max_degree: 2,
        };
        assert_eq!(graph.average_degree(), 1.0);
        assert_eq!(graph.density(), 2.0 / 6.0);
        assert_eq!(GraphStats::default().average_degree(), 0.0);
        let stats = Stats {
            values: 8,
            spilled: 2,
            rematerialised: 1,
            copies: 4,
            coalesced: 3,
            ..Stats::default()
        };
        assert_eq!(stats.spill_rate(), 0.25);
        assert_eq!(stats.coalescing_rate(), 0.75);
        assert_eq!(Stats::default().coalescing_rate(), 1.0);
    }
}
