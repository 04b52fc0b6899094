//! Ways to allocate a function, of which the cheapest result is kept.

use super::{Join, Problem};
use crate::ir::Value;
use crate::options::{Options, Strategy};
use crate::passes::split::SplitPolicy;
use crate::stats::Stats;
use crate::target::File;

/// Functions of more instructions are attempted once.
pub(crate) const MAX_INSTS_TO_COMPARE: usize = 20_000;
/// Each further colouring takes as long as the first; functions of more instructions than
/// this are attempted twice.
const MAX_INSTS_TO_TRY_MORE: usize = 8_000;
/// Splitting multiplies the values to colour, which makes it the dearest of all attempts; larger
/// functions than this gain little from it.
const MAX_INSTS_TO_SPLIT: usize = 4_000;

/// A function of no more instructions is attempted in every way: it takes little time, and one
/// choice that pressure gets wrong weighs much in it.
const MAX_INSTS_TO_VARY: usize = 300;

/// Which live ranges are split before the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// None.
    Never,
    /// Long ones, where loops begin and end.
    AtLoops,
}

impl Split {
    /// How to split, if at all.
    pub fn policy(self) -> Option<SplitPolicy> {
        match self {
            Split::Never => None,
            Split::AtLoops => Some(SplitPolicy::default()),
        }
    }
}

/// One way to allocate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attempt {
    /// Which live ranges are split first.
    pub split: Split,
    /// Loop invariants may be computed before their loops.
    pub hoist: bool,
    /// Spilling goes on to the pressure limit, not just until everything fits.
    pub aggressive: bool,
    /// When reloads are joined.
    pub join: Join,
    /// It relies on pressure as a guide to what fits; others are worth their time only where
    /// pressure is none.
    pub is_guided: bool,
    /// Cycles that the attempt must save to be kept.
    pub margin: f64,
}

const PLAIN: Attempt = Attempt {
    split: Split::Never,
    hoist: true,
    aggressive: false,
    is_guided: true,
    join: Join::Early,
    margin: 0.0,
};

impl Default for Attempt {
    fn default() -> Attempt {
        PLAIN
    }
}

/// The first attempt, and others in the order in which they are tried.
pub(crate) fn attempts(options: &Options) -> (Attempt, Vec<Attempt>) {
    match options.strategy {
        Strategy::Fatpoint => (PLAIN, fatpoint(options)),
        Strategy::Briggs | Strategy::Naive => (PLAIN, briggs()),
        // It splits where it spills, and decides once.
        Strategy::Scan => (PLAIN.without_hoisting(), Vec::new()),
    }
}

/// Where pressure is no exact guide to what fits, only the result tells what a graph of all
/// values, more room or shorter live ranges are worth.
fn briggs() -> Vec<Attempt> {
    let coloured_first = Attempt {
        join: Join::Late,
        is_guided: false,
        ..PLAIN
    };
    let split = Attempt {
        split: Split::AtLoops,
        is_guided: false,
        ..PLAIN
    };
    let aggressive = Attempt {
        aggressive: true,
        is_guided: false,
        ..PLAIN
    };
    let split_first = Attempt {
        split: Split::AtLoops,
        ..coloured_first
    };
    vec![coloured_first, split, split_first, aggressive]
}

fn fatpoint(options: &Options) -> Vec<Attempt> {
    let split = Attempt {
        split: Split::AtLoops,
        margin: f64::from(options.knobs.split_threshold),
        ..PLAIN
    };
    match options.knobs.split_rounds {
        0 => Vec::new(),
        _ => vec![split],
    }
}

impl Attempt {
    /// The same without hoisting.
    pub const fn without_hoisting(self) -> Attempt {
        Attempt {
            hoist: false,
            ..self
        }
    }

    /// Whether the attempt is allowed, may make a difference, and takes no longer than that is
    /// worth.
    pub fn is_wanted(&self, problem: &Problem, stats: &mut Stats) -> bool {
        let Problem {
            options, target, ..
        } = *problem;
        let insts = problem.program.function.inst_count();
        let has_loops = problem.loops().loop_count() > 0;
        let may_split = || options.split && insts <= MAX_INSTS_TO_SPLIT;
        let split = match self.split {
            Split::Never => true,
            Split::AtLoops => may_split() && has_loops,
        };
        let aggressive =
            || options.briggs.pressure_limit_on(target) < 1.0 && insts <= MAX_INSTS_TO_TRY_MORE;
        split
            && (!self.aggressive || aggressive())
            && (self.is_guided || insts <= MAX_INSTS_TO_VARY || !is_pressure_exact(problem, stats))
    }
}

/// Whether pressure tells exactly what fits: values of a file that is over capacity have one
/// size and may be in any register, whatever others do.
fn is_pressure_exact(problem: &Problem, stats: &mut Stats) -> bool {
    let over: Vec<File> = problem.files_over_budget(stats).collect();
    let ranges = problem.ranges(stats);
    let is_over = |value: Value| over.contains(&ranges.size(value).file);
    let mut links = problem.program.links.iter().flat_map(|link| &link.members);
    let mut values = ranges.by_start().iter().copied();
    let has_one_size = over.iter().all(|&file| {
        let sizes = ranges.by_start().iter().map(|&value| ranges.size(value));
        let mut widths = sizes
            .filter(|size| size.file == file)
            .map(|size| size.width);
        let first = widths.next();
        widths.all(|width| Some(width) == first)
    });
    has_one_size
        && !links.any(|&(value, _)| is_over(value))
        && !values.any(|value| is_over(value) && ranges.crosses_clobber(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Facts, Program};
    use crate::scratch::Scratch;
    use crate::text;

    /// Elsewhere nothing would be split, and the attempt would find what another has found.
    #[test]
    fn splitting_at_loops_is_attempted_where_there_are_loops() {
        let is_wanted = |target: &str| {
            let case = text::parse(&format!(
                "target hardware sm_90
                 kernel f {{
                 block0:
                     bra -> block1
                 block1:
                     v0:pred = test : read
                     brp v0 -> {target}, block2
                 block2:
                     exit : exit write
                 }}"
            ))
            .unwrap();
            let program = Program::new(&case.function, &case.target, None).unwrap();
            let facts = Facts::of(&program);
            let (options, scratch) = (Options::default(), Scratch::default());
            let problem = Problem::new(program, facts, &case.target, &options, &scratch);
            let at_loops = Attempt {
                split: Split::AtLoops,
                ..PLAIN
            };
            at_loops.is_wanted(&problem, &mut Stats::default())
        };
        assert!(is_wanted("block1"));
        assert!(!is_wanted("block2"));
    }

    /// Three registers are live where there are two.
    #[test]
    fn pressure_is_exact_for_values_of_one_size_that_may_be_anywhere() {
        let is_exact = |first: &str, between: &str| {
            let case = text::parse(&format!(
                "target hardware sm_90 R=2
                 kernel f {{
                 block0:
                     {first} = load : read
                     v1:r32 = load : read
                     v2:r32 = load : read
                     {between}
                     use v0 : write
                     use v1, v2 : write
                     exit : exit write
                 }}"
            ))
            .unwrap();
            let program = Program::new(&case.function, &case.target, None).unwrap();
            let facts = Facts::of(&program);
            let (options, scratch) = (Options::default(), Scratch::default());
            let problem = Problem::new(program, facts, &case.target, &options, &scratch);
            is_pressure_exact(&problem, &mut Stats::default())
        };
        assert!(is_exact("v0:r32", ""));
        assert!(!is_exact("v0:r64", ""));
        assert!(!is_exact("v0:r32", "call : call write clobbers abi"));
        assert!(!is_exact("v0:r32", "use v1, v2 : write group 0..2 align 2"));
    }
}
