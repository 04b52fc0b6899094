//! Rounds of colouring and spilling.

use super::join_reloads::join_early;
use super::{Colourer, Colours, Join, Problem, Verdict};
use crate::error::{Error, Place};
use crate::frame::spill_space;
use crate::interference::copied_parts;
use crate::options::Options;
use crate::spill::Spiller;
use crate::stats::{Clock, Stats};
use std::ops::Deref;

/// A problem that is shared with other attempts until it is rewritten.
pub(crate) enum Held<'p, 'a> {
    /// As it was given.
    Shared(&'p Problem<'a>),
    /// Rewritten.
    Own(Box<Problem<'a>>),
}

impl<'a> Deref for Held<'_, 'a> {
    type Target = Problem<'a>;

    fn deref(&self) -> &Problem<'a> {
        match self {
            Held::Shared(problem) => problem,
            Held::Own(problem) => problem,
        }
    }
}

impl<'a> Held<'_, 'a> {
    /// The problem, to be rewritten.
    pub fn to_mut(&mut self) -> &mut Problem<'a> {
        if let Held::Shared(problem) = self {
            *self = Held::Own(Box::new(problem.rewritable()));
        }
        match self {
            Held::Own(problem) => problem,
            Held::Shared(_) => unreachable!("a shared problem was just copied"),
        }
    }
}

/// A problem, solved.
pub(crate) struct Coloured<'p, 'a> {
    /// The program as it was coloured, spill code included.
    pub problem: Held<'p, 'a>,
    /// A register for every value that occurs.
    pub colours: Colours,
    /// What spilled values became, where any was spilled.
    pub spiller: Option<Spiller<'a>>,
}

/// Whether spilled values may go to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameUse {
    /// They may.
    Allowed,
    /// The first value that would go to memory ends the rounds.
    Refused,
}

/// Colours and spills until every value has a register; nothing if that never happens.
pub(crate) fn colour_until_done<'p, 'a>(
    mut problem: Held<'p, 'a>,
    colourer: &mut dyn Colourer,
    frame: FrameUse,
    stats: &mut Stats,
) -> Result<Option<Coloured<'p, 'a>>, Error> {
    let mut spiller: Option<Spiller> = None;
    for _ in 0..colourer.max_rounds(problem.options) {
        let verdict = colourer.colour(&problem, stats)?;
        stats.iterations += 1;
        let choice = match verdict {
            Verdict::Spill(choice) => {
                trace!("round {}: spill {:?}", stats.iterations, choice.values);
                choice
            }
            Verdict::Stuck => return Ok(None),
            Verdict::Coloured(colours) => {
                return Ok(Some(Coloured {
                    problem,
                    colours,
                    spiller,
                }));
            }
        };
        let mut clock = Clock::start();
        let is_first = spiller.is_none();
        let spiller = match &mut spiller {
            Some(spiller) => spiller,
            None => {
                let space = spill_space(problem.program.function, problem.target, problem.options)?;
                let policy = colourer.spill_policy(problem.options);
                spiller.insert(Spiller::new(problem.target, policy, space))
            }
        };
        let problem = problem.to_mut();
        let counts = problem.spill(spiller, &choice);
        stats.spilled += counts.memory + counts.carried;
        stats.rematerialised += counts.recomputed;
        clock.lap(stats, "spill");
        if is_first && colourer.joins_reloads(problem.options) == Some(Join::Early) {
            join_early(problem, spiller, stats);
        }
        trace!("the program with spill code:\n{}", problem.program);
        if frame == FrameUse::Refused && !problem.program.slots.is_empty() {
            return Ok(None);
        }
        check_spill_limit(stats, problem.options)?;
    }
    Ok(None)
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

/// Counts the copies of a coloured program, and the ones that need no code.
pub(crate) fn count_copies(coloured: &Coloured, stats: &mut Stats) {
    let (all, left) = copies(&coloured.problem, &coloured.colours);
    stats.copies = all;
    stats.coalesced = all - left;
}

/// How many copies there are, and how many of them need code.
pub(super) fn copies(problem: &Problem, colours: &Colours) -> (u32, u32) {
    let Problem {
        program, target, ..
    } = problem;
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
