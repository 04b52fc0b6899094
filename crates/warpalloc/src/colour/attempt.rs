//! Ways to allocate a function, of which the cheapest result is kept.

use super::Problem;
use crate::options::{Options, Strategy};
use crate::passes::split::SplitPolicy;
use crate::spill::cost::CostModel;

/// Functions of more instructions are attempted once.
pub(crate) const MAX_INSTS_TO_COMPARE: usize = 20_000;
/// Each further colouring takes as long as the first; functions of more instructions than
/// this are attempted twice.
const MAX_INSTS_TO_TRY_MORE: usize = 8_000;
/// Splitting multiplies the values to colour, which makes it the dearest of all attempts; larger
/// functions than this gain little from it.
const MAX_INSTS_TO_SPLIT: usize = 4_000;

/// Which live ranges are split before the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// None.
    Never,
    /// Long ones, where loops begin and end.
    AtLoops,
    /// Long ones, also between short stretches of code.
    Finely,
}

impl Split {
    /// How to split, if at all.
    pub fn policy(self) -> Option<SplitPolicy> {
        match self {
            Split::Never => None,
            Split::AtLoops => Some(SplitPolicy::default()),
            Split::Finely => Some(SplitPolicy::finely()),
        }
    }
}

/// One way to allocate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attempt {
    /// How the cost of a spill is estimated.
    pub cost_model: CostModel,
    /// Which live ranges are split first.
    pub split: Split,
    /// Loop invariants may be computed before their loops.
    pub hoist: bool,
    /// Spilling goes on to the pressure limit, not just until everything fits.
    pub aggressive: bool,
    /// Cycles that the attempt must save to be kept.
    pub margin: f64,
}

const PRODUCT: Attempt = Attempt {
    cost_model: CostModel::Product,
    split: Split::Never,
    hoist: true,
    aggressive: false,
    margin: 0.0,
};

impl Default for Attempt {
    fn default() -> Attempt {
        PRODUCT
    }
}

const TRAFFIC: Attempt = Attempt {
    cost_model: CostModel::Traffic,
    ..PRODUCT
};

/// The first attempt, and others in the order in which they are tried.
pub(crate) fn attempts(options: &Options) -> (Attempt, Vec<Attempt>) {
    match options.strategy {
        Strategy::Fatpoint => (PRODUCT, fatpoint(options)),
        Strategy::Briggs | Strategy::Naive => (PRODUCT, briggs()),
        // It splits where it spills, and decides once.
        Strategy::Scan => (PRODUCT.without_hoisting(), Vec::new()),
    }
}

fn briggs() -> Vec<Attempt> {
    let split = |split| Attempt { split, ..TRAFFIC };
    let aggressive = Attempt {
        aggressive: true,
        ..PRODUCT
    };
    vec![
        TRAFFIC,
        split(Split::AtLoops),
        split(Split::Finely),
        aggressive,
    ]
}

fn fatpoint(options: &Options) -> Vec<Attempt> {
    let split = Attempt {
        split: Split::AtLoops,
        margin: f64::from(options.knobs.split_threshold),
        ..PRODUCT
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

    /// Whether the first round of `other` colours the same program at the same costs.
    pub fn begins_like(&self, other: &Attempt) -> bool {
        let same = Attempt {
            aggressive: self.aggressive,
            margin: self.margin,
            ..*other
        };
        *self == same
    }

    /// Whether the attempt is allowed, may make a difference, and takes no longer than that is
    /// worth.
    pub fn is_wanted(&self, problem: &Problem) -> bool {
        let Problem {
            options, target, ..
        } = *problem;
        let insts = problem.program.function.inst_count();
        let has_loops = problem.loops().loop_count() > 0;
        let may_split = || options.split && insts <= MAX_INSTS_TO_SPLIT;
        let split = match self.split {
            Split::Never => true,
            Split::AtLoops => may_split() && has_loops,
            Split::Finely => may_split(),
        };
        let aggressive =
            || options.briggs.pressure_limit_on(target) < 1.0 && insts <= MAX_INSTS_TO_TRY_MORE;
        split && (!self.aggressive || aggressive())
    }
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
                ..PRODUCT
            };
            at_loops.is_wanted(&problem)
        };
        assert!(is_wanted("block1"));
        assert!(!is_wanted("block2"));
    }
}
