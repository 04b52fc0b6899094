//! Optimistic graph colouring, with optimistic or conservative coalescing.
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
mod fewer;
mod foresee;
mod graph;
mod prefer;
mod select;
mod simplify;
#[cfg(test)]
mod tests;
mod worklists;

use crate::allocation::Allocation;
use crate::analysis::Loops;
use crate::coalesce::{self, Bodies, Move, MoveId};
use crate::error::{Error, Place};
use crate::function::Function;
use crate::interference::{Interference, copied_parts};
use crate::options::Options;
use crate::prepare::schedule::schedule;
use crate::prepare::split::{SplitPolicy, split_long_values};
use crate::program::{Facts, Program, Value, emit};
use crate::spill::cost::{CostModel, added_cycles, spill_costs};
use crate::spill::{Home, SpillCounts, SpillPolicy, Spiller};
use crate::stats::Stats;
use crate::strategy::naive;
use crate::target::Target;
use cranelift_entity::{PrimaryMap, SecondaryMap};
use fewer::{budget_to_try, recolour};
use foresee::{Choice, Foresight};
use graph::{Graph, Limits};
use prefer::Preferences;
use select::{Colours, Selected, select};
use simplify::simplify;
use std::time::Instant;

/// Rounds after which colouring gives up; four are enough for nearly every function.
const MAX_ROUNDS: u32 = 24;
/// Rounds in which joined reloads may settle before they are given up.
const MAX_JOIN_ROUNDS: u32 = 4;

/// Functions of more instructions are coloured once, whatever it costs them.
const MAX_INSTS_TO_COMPARE: usize = 20_000;

/// Another colouring takes a third of the time of the others; larger functions than this
/// make do with two.
const MAX_INSTS_TO_TRY_MORE: usize = 8_000;

/// Where there are loops, splitting takes two colourings of many more values; larger
/// functions than this, which gain little from it, do without.
const MAX_INSTS_TO_SPLIT_LOOPS: usize = 4_000;

/// One way to allocate; where values must be spilled, the cheapest of several is kept
/// (Bernstein et al., PLDI 1989).
#[derive(Clone, Copy)]
struct Attempt {
    cost_model: CostModel,
    split: Split,
    /// Spill down to the pressure limit, not just until everything fits.
    aggressive: bool,
}

/// Whether long values are split first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Split {
    Never,
    /// Where loops begin and end.
    AtLoops,
    /// Between short stretches of code too.
    Finely,
}

const ATTEMPTS: [Attempt; 5] = [
    Attempt {
        cost_model: CostModel::Product,
        split: Split::Never,
        aggressive: false,
    },
    Attempt {
        cost_model: CostModel::Traffic,
        split: Split::Never,
        aggressive: false,
    },
    Attempt {
        cost_model: CostModel::Traffic,
        split: Split::AtLoops,
        aggressive: false,
    },
    Attempt {
        cost_model: CostModel::Traffic,
        split: Split::Finely,
        aggressive: false,
    },
    Attempt {
        cost_model: CostModel::Product,
        split: Split::Never,
        aggressive: true,
    },
];

/// Allocates `function` by colouring.
pub fn allocate(
    function: &Function,
    target: &Target,
    options: &Options,
) -> Result<Allocation, Error> {
    let order = match options.schedule {
        true => schedule(function, target),
        false => None,
    };
    let program = Program::new(function, target, order)?;
    let mut stats = Stats {
        values: program.values.len() as u32,
        ..Stats::default()
    };
    let built = Built::new(&program, target, &mut stats);
    let [first, others @ ..] = ATTEMPTS;
    let attempt = |a: Attempt| attempt(&program, &built, target, options, &stats, a);
    let mut best = attempt(first)?;
    let spilled = best.stats.spilled + best.stats.rematerialised > 0 || best.stats.fell_back;
    if !spilled || function.inst_count() > MAX_INSTS_TO_COMPARE {
        return Ok(best);
    }
    let mut least = added_cycles(function, &best);
    let wanted = |a: &Attempt| is_wanted(a, function, target, options, &built.facts.loops);
    for other in others.into_iter().filter(wanted) {
        let Ok(next) = attempt(other) else {
            continue;
        };
        let cycles = added_cycles(function, &next);
        let better = (next.stats.fell_back, cycles) < (best.stats.fell_back, least);
        if better {
            (best, least) = (next, cycles);
        }
    }
    Ok(best)
}

/// Whether an attempt is allowed, can make a difference, and takes no longer than it should.
fn is_wanted(
    attempt: &Attempt,
    function: &Function,
    target: &Target,
    options: &Options,
    loops: &Loops,
) -> bool {
    let is_small = function.inst_count() <= MAX_INSTS_TO_TRY_MORE;
    let has_loops = loops.loop_count() > 0;
    let may_split = match has_loops {
        true => options.split && function.inst_count() <= MAX_INSTS_TO_SPLIT_LOOPS,
        false => options.split && is_small,
    };
    let split = match attempt.split {
        Split::Never => true,
        Split::AtLoops => may_split && has_loops,
        Split::Finely => may_split,
    };
    let aggressive = options.briggs.pressure_limit_on(target) < 1.0 && is_small;
    split && (aggressive || !attempt.aggressive)
}

/// What is known of a program before anything is chosen.
struct Built {
    facts: Facts,
    interference: Interference,
    moves: PrimaryMap<MoveId, Move>,
    bodies: Bodies,
}

impl Built {
    fn new(program: &Program, target: &Target, stats: &mut Stats) -> Built {
        let mut clock = Clock::start();
        let facts = Facts::of(program);
        clock.lap(stats, "analyse");
        let interference = Interference::build(program, target, &facts.liveness);
        if stats.iterations == 0 {
            stats.graph = interference.stats();
        }
        clock.lap(stats, "interference");
        let moves = coalesce::moves(program, target, &facts.liveness, &facts.frequencies);
        clock.lap(stats, "moves");
        let bodies = Bodies::new(program, target, &interference);
        clock.lap(stats, "graph");
        Built {
            facts,
            interference,
            moves,
            bodies,
        }
    }

    /// What spilling each value costs.
    fn costs(
        &self,
        program: &Program,
        target: &Target,
        model: CostModel,
    ) -> SecondaryMap<Value, f32> {
        let Facts {
            liveness,
            frequencies,
            loops,
            ..
        } = &self.facts;
        spill_costs(program, target, liveness, frequencies, loops, model)
    }
}

/// Allocates `program`, of which `built` and `stats` are known, in one way.
fn attempt(
    program: &Program,
    built: &Built,
    target: &Target,
    options: &Options,
    stats: &Stats,
    attempt: Attempt,
) -> Result<Allocation, Error> {
    let (mut program, mut stats) = (program.clone(), stats.clone());
    let policy = match attempt.split {
        Split::Never => None,
        Split::AtLoops => Some(SplitPolicy::default()),
        Split::Finely => Some(SplitPolicy::finely()),
    };
    let of_split = policy.map(|policy| {
        split_long_values(&mut program, target, &built.facts, policy);
        Built::new(&program, target, &mut stats)
    });
    let built = of_split.as_ref().unwrap_or(built);
    let eager = SpillPolicy {
        lazy_reload: false,
        rematerialise: options.briggs.rematerialise,
        cost_model: attempt.cost_model,
        ..SpillPolicy::default()
    };
    let mut spiller = Spiller::new(target, eager, options.spill_space);
    let limit = options.briggs.pressure_limit_on(target);
    let coloured = until_coloured(
        &mut program,
        built,
        &mut spiller,
        target,
        options,
        attempt.aggressive.then_some(limit),
        &mut stats,
    )?;
    let Some(colours) = coloured else {
        return fall_back(program.function, target, options, stats);
    };
    let (program, colours) = match join_reloads(&program, &mut spiller, target, options, &mut stats)
    {
        Some(joined) => joined,
        None => (program, colours),
    };
    let fewer = in_fewer_registers(
        &program, built, &spiller, target, options, &colours, &mut stats,
    );
    finish(&program, target, options, &fewer.unwrap_or(colours), stats)
}

/// Colours the finished `program` for fewer registers, if that costs nothing.
fn in_fewer_registers(
    program: &Program,
    first: &Built,
    spiller: &Spiller,
    target: &Target,
    options: &Options,
    colours: &Colours,
    stats: &mut Stats,
) -> Option<Colours> {
    let budget = budget_to_try(program, target, colours)?;
    let mut clock = Clock::start();
    // What this takes is a phase of its own, and no part of the rounds.
    let mut apart = stats.clone();
    let unspilled = stats.spilled + stats.rematerialised == 0;
    let rebuilt = (!unspilled).then(|| Built::new(program, target, &mut apart));
    let built = rebuilt.as_ref().unwrap_or(first);
    let costs = built.costs(program, target, spiller.cost_model());
    let wanted = (budget, &costs);
    let fewer = recolour(program, target, options, built, wanted, colours, &mut apart);
    clock.lap(stats, "recolour");
    fewer
}

/// Colours and spills until every value has a register; nothing if that never happens.
/// Spilling goes on until no more than the `aim`, a part of the file, is in use.
fn until_coloured(
    program: &mut Program,
    first: &Built,
    spiller: &mut Spiller,
    target: &Target,
    options: &Options,
    aim: Option<f32>,
    stats: &mut Stats,
) -> Result<Option<Colours>, Error> {
    let mut rebuilt;
    let mut built = first;
    while stats.iterations < MAX_ROUNDS {
        if stats.iterations > 0 {
            rebuilt = Built::new(program, target, stats);
            built = &rebuilt;
        }
        let mut clock = Clock::start();
        let costs = built.costs(program, target, spiller.cost_model());
        clock.lap(stats, "costs");
        let foresight = Foresight::new(program, target, built, &costs);
        clock.lap(stats, "foresee");
        let costs = foresight.as_ref().map_or(&costs, Foresight::costs);
        let selected = colour(program, target, options, built, &built.bodies, costs, stats)?;
        stats.iterations += 1;
        if selected.spilled.is_empty() {
            return Ok(selected.stuck.is_none().then_some(selected.colours));
        }
        let mut clock = Clock::start();
        let choice = match foresight {
            Some(foresight) => foresight.settle(&selected.spilled, stats.iterations == 1, aim),
            None => Choice::exactly(selected.spilled),
        };
        clock.lap(stats, "foresee");
        let counts = spill_chosen(spiller, program, &built.facts, &choice);
        stats.spilled += counts.memory + counts.carried;
        stats.rematerialised += counts.recomputed;
        clock.lap(stats, "spill");
        check_spill_limit(stats, options)?;
    }
    Ok(None)
}

/// Spills what was chosen; what carries a value that has nowhere to stay goes with it.
fn spill_chosen(
    spiller: &mut Spiller,
    program: &mut Program,
    facts: &Facts,
    choice: &Choice,
) -> SpillCounts {
    let mut counts = spiller.spill(program, facts, &choice.spilled);
    let carrier = |&value: &Value| match spiller.home(value) {
        Some(Home::Carrier(carrier)) => Some(carrier),
        _ => None,
    };
    let carriers: Vec<Value> = choice.uncarried.iter().filter_map(carrier).collect();
    if !carriers.is_empty() {
        counts.memory += spiller.spill(program, facts, &carriers).memory;
    }
    counts
}

/// Joins reloads of one value into longer-lived pieces, now that there is a colouring to
/// return to: pieces that find no register are cut up again, and if anything else finds
/// none, all stays as it was.
fn join_reloads<'a>(
    program: &Program<'a>,
    spiller: &mut Spiller,
    target: &Target,
    options: &Options,
    stats: &mut Stats,
) -> Option<(Program<'a>, Colours)> {
    if stats.spilled + stats.rematerialised == 0 || !options.briggs.lazy_reload {
        return None;
    }
    let mut clock = Clock::start();
    let mut joined = program.clone();
    if spiller.join(&mut joined) == 0 {
        return None;
    }
    clock.lap(stats, "join reloads");
    for _ in 0..MAX_JOIN_ROUNDS {
        let built = Built::new(&joined, target, stats);
        let costs = built.costs(&joined, target, spiller.cost_model());
        let selected = colour(
            &joined,
            target,
            options,
            &built,
            &built.bodies,
            &costs,
            stats,
        )
        .ok()?;
        if selected.spilled.is_empty() {
            return selected
                .stuck
                .is_none()
                .then_some((joined, selected.colours));
        }
        let is_piece = |v: &Value| spiller.home(*v).is_some();
        if !selected.spilled.iter().all(is_piece) {
            return None;
        }
        spiller.spill(&mut joined, &built.facts, &selected.spilled);
    }
    None
}

/// Keeps every value in memory: always possible where anything is.
fn fall_back(
    function: &Function,
    target: &Target,
    options: &Options,
    stats: Stats,
) -> Result<Allocation, Error> {
    let allocation = naive::allocate(function, target, options)?;
    Ok(Allocation {
        stats: Stats {
            fell_back: true,
            iterations: stats.iterations,
            ..allocation.stats
        },
        ..allocation
    })
}

/// One round: take apart, give colours.
fn colour(
    program: &Program,
    target: &Target,
    options: &Options,
    built: &Built,
    bodies: &Bodies,
    costs: &SecondaryMap<Value, f32>,
    stats: &mut Stats,
) -> Result<Selected, Error> {
    let Built {
        interference,
        moves,
        ..
    } = built;
    let mut clock = Clock::start();
    let limits = Limits {
        factor: options.briggs.coalescing_factor,
        pressure: options.briggs.pressure_limit_on(target),
    };
    let graph = Graph::new(program, target, interference, bodies.clone(), costs, limits);
    clock.lap(stats, "graph");
    let simplified = simplify(graph, moves, &options.briggs);
    if let Some(body) = simplified.unsound {
        let message = format!("coalescing made {body} of values that interfere");
        return Err(Error::Unproved(message));
    }
    stats.merges += simplified.merges;
    stats.colourings += 1;
    stats.edge_visits += simplified.graph.visits;
    clock.lap(stats, "simplify");
    let mut preferences = Preferences::new(program, target, interference, moves);
    let selected = select(
        program,
        target,
        &simplified.graph,
        bodies,
        &simplified.stack,
        costs,
        &mut preferences,
    );
    stats.undone += selected.undone;
    clock.lap(stats, "select");
    Ok(selected)
}

/// Every value has its register: count what became of the copies, and write it all down.
fn finish(
    program: &Program,
    target: &Target,
    options: &Options,
    colours: &Colours,
    mut stats: Stats,
) -> Result<Allocation, Error> {
    let mut clock = Clock::start();
    let (copies, left) = copies(program, target, colours);
    stats.copies += copies;
    stats.coalesced += copies - left;
    let mut allocation = emit(program, target, options, colours, stats)?;
    clock.lap(&mut allocation.stats, "emit");
    Ok(allocation)
}

/// How many copies there are, and how many of them need code.
fn copies(program: &Program, target: &Target, colours: &Colours) -> (u32, u32) {
    let unit = |v| colours[v].map_or(0, |reg| reg.unit as i32);
    let (mut all, mut left) = (0, 0);
    for op in program.blocks.values().flat_map(|block| &block.ops) {
        for part in copied_parts(program, target, op) {
            all += 1;
            left += (unit(part.to) + part.distance != unit(part.from)) as u32;
        }
    }
    (all, left)
}

fn check_spill_limit(stats: &Stats, options: &Options) -> Result<(), Error> {
    match options.briggs.spill_limit {
        Some(limit) if stats.spilled > limit => Err(Error::Impossible {
            place: Place::Function,
            value: None,
            message: format!(
                "{} values are spilled, but {limit} is the limit",
                stats.spilled
            ),
            help: "raise the register budget or the spill limit".into(),
        }),
        _ => Ok(()),
    }
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
