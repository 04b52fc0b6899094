//! Colouring again for fewer registers.
//!
//! Pairs and quads leave gaps, and coalesced bundles span many registers: a colouring
//! within the budget may reach far above the number of registers that are ever live at
//! once. Threads are given registers in granules, and more warps are resident the fewer
//! each takes. So a function without spill slots is coloured again within the fewest
//! granules that could do. A colouring that spills nothing, leaves no more copies and follows
//! as many hints of the client is kept: registers that hints name and that were granted are
//! within the smaller budget. There is one try, because it takes as long as a round.

use super::rounds::copies;
use super::{Coloured, Colourer, Colours, Problem, Verdict};
use crate::analysis::{Liveness, register_floor};
use crate::function::Convention;
use crate::ir::Value;
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
    let peak = problem.ranges(stats).peak(File::MAIN);
    let Some(budget) = budget_to_try(problem, liveness, peak, colours) else {
        return coloured;
    };
    let smaller = problem.target.clone().with_budget(File::MAIN, budget);
    // This time is a phase of its own, and no part of the rounds.
    let mut apart = stats.clone();
    let verdict = colourer.recolour(problem, &smaller, &mut apart);
    if let Ok(Verdict::Coloured(fewer)) = verdict
        && copies(problem, &fewer).1 <= copies(problem, colours).1
        && granted(problem, &fewer).count() >= granted(problem, colours).count()
    {
        coloured.colours = fewer;
    }
    clock.lap(stats, "shrink");
    coloured
}

/// A budget below what `colours` take that is worth a try; `peak` is the highest pressure.
fn budget_to_try(
    problem: &Problem,
    liveness: &Liveness,
    peak: usize,
    colours: &Colours,
) -> Option<usize> {
    let function = problem.program.function;
    // A callee pays for registers it must preserve, not for those it takes.
    if function.convention() == Convention::Device || !problem.program.slots.is_empty() {
        return None;
    }
    let info = problem.target.file(File::MAIN);
    if info.granule == 0 {
        return None;
    }
    let used = highest(problem, problem.program.values.keys(), colours);
    let below_used = |registers: usize| {
        let budget = registers.max(1).next_multiple_of(info.granule);
        (budget < used).then_some(budget)
    };
    // No colouring does with fewer registers than are live at once, and most take no granule
    // more, so that the floor is hardly ever asked for.
    let hinted = highest(problem, granted(problem, colours), colours);
    let least = hinted.max(peak.div_ceil(info.units_per_reg));
    below_used(least)?;
    below_used(least.max(register_floor(function, problem.target, liveness)))
}

/// Registers of the main file up to the highest that one of `values` is in.
fn highest(problem: &Problem, values: impl Iterator<Item = Value>, colours: &Colours) -> usize {
    let info = problem.target.file(File::MAIN);
    let ends = values.filter_map(|value| {
        let reg = colours[value].filter(|reg| reg.file == File::MAIN)?;
        let class = problem.program.values[value].class;
        Some(reg.unit as usize + problem.target.width(class))
    });
    ends.max().unwrap_or(0).div_ceil(info.units_per_reg)
}

/// Values in the register that the client has hinted.
fn granted<'c>(problem: &'c Problem, colours: &'c Colours) -> impl Iterator<Item = Value> + 'c {
    let program = &problem.program;
    let values = program.has_hints.then(|| program.values.keys());
    values.into_iter().flatten().filter(|&value| {
        let unit = colours[value].map(|reg| usize::from(reg.unit));
        unit.is_some() && unit == program.hint_of(value)
    })
}

#[cfg(test)]
mod tests {
    use crate::function::{Builder, Effect, Inst};
    use crate::target::{FileInfo, Target};
    use crate::{Options, Strategy, allocate, text};

    /// So the register that the machine prefers is not given up for a lower one.
    #[test]
    fn a_machine_that_hands_registers_out_one_by_one_takes_any() {
        let mut machine = Target::builder("toy");
        let file = machine.file(FileInfo::new("r", 16).preferred([9]));
        let word = machine.class("word", file, 1, 1);
        let target = machine.finish().unwrap();
        let mut b = Builder::new("f");
        let block = b.block();
        let value = b.vreg(word);
        b.inst(block, "load").def(value).effect(Effect::Read);
        b.inst(block, "store").use_(value).effect(Effect::Write);
        b.exit(block, "exit");
        let function = b.finish();
        for strategy in [Strategy::Briggs, Strategy::Fatpoint] {
            let options = Options::with_strategy(strategy);
            let allocation = allocate(&function, &target, &options).unwrap();
            assert_eq!(allocation.registers[0].unit, 9, "{strategy}");
        }
    }

    /// Two values, for which a granule of registers is enough.
    const HINTED: &str = "
target hardware sm_90
kernel hinted {
block0:
    v0:r32.hint_R20 = load #0 : read
    v1:r32 = load #1 : read
    store v0, v1 : write
    exit : exit write
}
";

    #[test]
    fn a_register_that_was_hinted_and_granted_is_kept() {
        let case = text::parse(HINTED).unwrap();
        for strategy in [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan] {
            let options = Options::with_strategy(strategy);
            let allocation = allocate(&case.function, &case.target, &options).unwrap();
            let store = allocation.operands(&case.function, Inst::from_u32(2));
            let names = store
                .iter()
                .map(|&reg| case.target.reg_name(reg).to_string());
            let names: Vec<String> = names.collect();
            assert_eq!(names, ["R20", "R0"], "{strategy}");
        }
    }
}
