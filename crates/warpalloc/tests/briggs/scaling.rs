//! What colouring costs, counted in edges looked at rather than in time.

use warpalloc::generate::{self, Rng, Shape};
use warpalloc::stats::Stats;
use warpalloc::target::{File, Target};
use warpalloc::{Options, Strategy, allocate};

/// Statistics of a generated function of about `insts` instructions.
fn stats(insts: usize, budget: usize) -> Stats {
    let target = Target::hardware(90).unwrap();
    let shape = Shape {
        predicates: budget < 255,
        ..Shape::large(insts)
    };
    let function = generate::function(&shape, &target, &mut Rng::new(7));
    let target = target.with_budget(File::R, budget);
    let options = Options {
        verify: false,
        ..Options::with_strategy(Strategy::Briggs)
    };
    allocate(&function, &target, &options).unwrap().stats
}

/// How often each edge of the first graph is looked at per colouring.
fn visits_per_edge(stats: &Stats) -> f64 {
    let edges = stats.graph.edges * u64::from(stats.colourings);
    stats.edge_visits as f64 / edges.max(1) as f64
}

/// Merges that walk around the whole body they extend show up here: with two such walks per
/// merge, a thousand instructions already take fifteen visits an edge.
#[test]
fn an_edge_is_looked_at_a_few_times_whatever_the_size() {
    for budget in [255, 32] {
        for insts in [1_000, 8_000] {
            let stats = stats(insts, budget);
            assert_eq!(stats.spilled > 0, budget == 32);
            assert!(stats.edge_visits > 0);
            let visits = visits_per_edge(&stats);
            assert!(visits < 8.0, "{visits} visits at {insts} and {budget}");
        }
    }
}
