//! Optimistic graph colouring with conservative coalescing.
//!
//! The allocator NVIDIA's `cicc` is reported to have, after G. Chaitin (1982), P. Briggs
//! (1994), L. George and A. Appel (1996), over register files with aliasing:
//!
//! ```text
//! build ─→ simplify ⇄ coalesce ⇄ freeze ⇄ spill candidates ─→ select ─→ emit
//!   ▲                                                            │
//!   └──────────────── spill code ←── values without a colour ────┘
//! ```
//!
//! `docs/briggs.md` tells the whole story.

mod conservative;
mod graph;
mod prefer;
mod select;
mod simplify;
mod worklists;

use crate::allocation::Allocation;
use crate::analysis::{Frequencies, Liveness, Loops, Order};
use crate::coalesce::{self, Bodies};
use crate::error::Error;
use crate::function::Function;
use crate::interference::Interference;
use crate::options::Options;
use crate::program::{Program, Value, emit};
use crate::stats::Stats;
use crate::strategy::naive;
use crate::target::Target;
use cranelift_entity::SecondaryMap;
use graph::Graph;
use prefer::Preferences;
use select::{Selected, select};
use simplify::simplify;
use std::time::Instant;

/// Allocates `function` by colouring.
pub fn allocate(
    function: &Function,
    target: &Target,
    options: &Options,
) -> Result<Allocation, Error> {
    let mut stats = Stats::default();
    let program = Program::new(function, target, None)?;
    stats.values = program.values.len() as u32;
    let selected = colour(&program, target, options, &mut stats);
    stats.iterations += 1;
    if selected.stuck.is_none() && selected.spilled.is_empty() {
        return emit(&program, target, options, &selected.colours, stats);
    }
    naive::allocate(function, target, options)
}

fn colour(program: &Program, target: &Target, options: &Options, stats: &mut Stats) -> Selected {
    let mut clock = Clock::start();
    let liveness = Liveness::compute(program);
    clock.lap(stats, "liveness");
    let interference = Interference::build(program, target, &liveness);
    if stats.iterations == 0 {
        stats.graph = interference.stats();
    }
    clock.lap(stats, "interference");
    let order = Order::compute(program);
    let loops = Loops::compute(program, &order);
    let frequencies = Frequencies::compute(program, &order, &loops);
    let costs = costs(program, &frequencies);
    let moves = coalesce::moves(program, target, &liveness, &frequencies);
    clock.lap(stats, "costs");
    let parts = Bodies::new(program, target, &interference);
    let graph = Graph::new(program, target, &interference, &costs);
    clock.lap(stats, "graph");
    let simplified = simplify(graph, &moves, &options.briggs);
    clock.lap(stats, "simplify");
    let mut preferences = Preferences::new(program, target, &moves);
    let selected = select(
        program,
        target,
        &simplified.graph,
        &parts,
        &simplified.stack,
        &costs,
        &mut preferences,
    );
    clock.lap(stats, "select");
    selected
}

fn costs(program: &Program, frequencies: &Frequencies) -> SecondaryMap<Value, f32> {
    let mut costs = SecondaryMap::new();
    for (value, info) in program.values.iter() {
        costs[value] = if info.unspillable { f32::INFINITY } else { 0.0 };
    }
    for (block, info) in program.blocks.iter() {
        for op in &info.ops {
            for (value, _) in op.accesses(program.function) {
                costs[value] += frequencies.block(block) as f32;
            }
        }
    }
    costs
}

/// Measures phase after phase.
struct Clock(Instant);

impl Clock {
    fn start() -> Clock {
        Clock(Instant::now())
    }

    fn lap(&mut self, stats: &mut Stats, phase: &'static str) {
        let now = Instant::now();
        stats.add_time(phase, now - self.0);
        self.0 = now;
    }
}
