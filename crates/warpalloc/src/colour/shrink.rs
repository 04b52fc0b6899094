//! Colouring again for fewer registers.
//!
//! Pairs and quads leave gaps, and coalesced bundles span many registers: a colouring
//! within the budget may reach far above the number of registers that are ever live at
//! once. Threads are given registers in granules, and more warps are resident the fewer
//! each takes. So a function without spill slots is coloured again within the fewest
//! granules that could do. A colouring that spills nothing and leaves no more copies is
//! kept. There is one try, because it takes as long as a round.

use super::rounds::copies;
use super::{Coloured, Colourer, Colours, Problem, Verdict};
use crate::analysis::{Liveness, register_floor};
use crate::function::Convention;
use crate::stats::{Clock, Stats};
use crate::target::File;

/// `coloured` in fewer registers, if that costs nothing; `liveness` is the function's.
pub(crate) fn shrink<'p, 'a>(
    mut coloured: Coloured<'p, 'a>,
    colourer: &mut dyn Colourer,
    liveness: &Liveness,
    stats: &mut Stats,
) -> Coloured<'p, 'a> {
    let Coloured {
        problem, colours, ..
    } = &coloured;
    if !problem.options.shrink {
        return coloured;
    }
    let mut clock = Clock::start();
    let Some(budget) = budget_to_try(problem, liveness, colours) else {
        return coloured;
    };
    let smaller = problem.target.clone().with_budget(File::MAIN, budget);
    // This time is a phase of its own, and no part of the rounds.
    let mut apart = stats.clone();
    let verdict = colourer.recolour(problem, &smaller, &mut apart);
    if let Ok(Verdict::Coloured(fewer)) = verdict
        && copies(problem, &fewer).1 <= copies(problem, colours).1
    {
        coloured.colours = fewer;
    }
    clock.lap(stats, "shrink");
    coloured
}

/// A budget below what `colours` take that is worth a try.
fn budget_to_try(problem: &Problem, liveness: &Liveness, colours: &Colours) -> Option<usize> {
    let function = problem.program.function;
    // A callee pays for registers it must preserve, not for those it takes.
    if function.convention() == Convention::Device || !problem.program.slots.is_empty() {
        return None;
    }
    let granule = problem.target.file(File::MAIN).granule;
    let used = in_use(problem, colours);
    if granule == 0 || used <= granule {
        return None;
    }
    let floor = register_floor(function, problem.target, liveness);
    let budget = floor.next_multiple_of(granule);
    (budget < used).then_some(budget)
}

/// Registers of the main file up to the highest in use.
fn in_use(problem: &Problem, colours: &Colours) -> usize {
    let info = problem.target.file(File::MAIN);
    let ends = problem.program.values.iter().filter_map(|(value, of)| {
        let reg = colours[value].filter(|reg| reg.file == File::MAIN)?;
        Some(reg.unit as usize + problem.target.width(of.class))
    });
    ends.max().unwrap_or(0).div_ceil(info.units_per_reg)
}
