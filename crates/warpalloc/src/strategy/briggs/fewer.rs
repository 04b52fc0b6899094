//! Colouring again for fewer registers.
//!
//! Pairs and quads leave gaps, and merged bodies stretch over many: a colouring within the
//! budget may reach far above the number of registers that are ever in use at once. Threads
//! are given registers in steps of eight, and more of them run at a time the fewer each
//! takes. So a function of which nothing is in memory is coloured again with the file cut
//! down to the fewest registers that could do. A colouring without a spill that leaves no
//! more copies is kept. One try, because it takes as long as a round.

use super::select::Colours;
use super::{Built, colour, copies};
use crate::analysis::{Liveness, register_floor};
use crate::coalesce::Bodies;
use crate::function::Convention;
use crate::options::Options;
use crate::program::{Program, Value};
use crate::stats::Stats;
use crate::target::{File, Target};
use cranelift_entity::SecondaryMap;

/// Threads get registers in multiples of this, on every generation.
const STEP: usize = 8;

/// A budget below what `colours` take that is worth a try.
pub fn budget_to_try(program: &Program, target: &Target, colours: &Colours) -> Option<usize> {
    let function = program.function;
    // What is called pays for registers it must preserve, not for those it takes.
    if function.convention() == Convention::Device || !program.slots.is_empty() {
        return None;
    }
    let used = in_use(program, target, colours);
    if used <= STEP {
        return None;
    }
    let floor = register_floor(function, target, &Liveness::compute(function));
    let budget = floor.next_multiple_of(STEP);
    (budget < used).then_some(budget)
}

/// A colouring of `program` within `budget` that needs no more copies than `colours`.
pub fn recolour(
    program: &Program,
    target: &Target,
    options: &Options,
    built: &Built,
    (budget, costs): (usize, &SecondaryMap<Value, f32>),
    colours: &Colours,
    stats: &mut Stats,
) -> Option<Colours> {
    let smaller = target.clone().with_budget(File::R, budget);
    let bodies = Bodies::new(program, &smaller, &built.interference);
    let selected = colour(program, &smaller, options, built, &bodies, costs, stats).ok()?;
    let copied = |colours| copies(program, target, colours).1;
    let found = selected.spilled.is_empty() && selected.stuck.is_none();
    (found && copied(&selected.colours) <= copied(colours)).then_some(selected.colours)
}

/// Registers of the general file up to the highest in use.
fn in_use(program: &Program, target: &Target, colours: &Colours) -> usize {
    let info = target.file(File::R);
    let ends = program.values.iter().filter_map(|(value, of)| {
        let reg = colours[value].filter(|reg| reg.file == File::R)?;
        Some(reg.unit as usize + target.width(of.class))
    });
    ends.max().unwrap_or(0).div_ceil(info.units_per_reg)
}
