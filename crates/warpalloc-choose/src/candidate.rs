//! The ways to come to machine code from one kernel.

use std::fmt;

use warpalloc::Strategy;
use warpalloc_ptx::module::{ModuleOptions, SpillSpace, Treatment};

/// Registers above the cap of an allocation that leaves some spills to ptxas.
const SOME_ROOM: i32 = -16;
/// Registers above the cap beyond which an allocation says little of what ptxas will do.
const MOST_ROOM: i32 = -96;

/// One way to allocate a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Candidate {
    /// The kernel as it is, with the cap.
    Original,
    /// The same, where ptxas may spill to shared memory.
    SharedPragma,
    /// The machine code of the original, its spills moved to shared memory in place.
    Moved {
        /// Whether all of them are, also where fewer blocks then fit a multiprocessor.
        all: bool,
    },
    /// The machine code that ptxas makes without a cap, its schedule kept, with spill code of ours
    /// for the cap.
    Spilled,
    /// An allocation of ours that spills to shared memory.
    Allocated {
        /// The allocator.
        strategy: Strategy,
        /// Registers below the cap that it allocates for; below zero, ptxas spills the rest.
        margin: i32,
    },
}

impl Candidate {
    /// What is tried for a kernel that ptxas spills in besides the original. A later candidate of a
    /// row is tried only where the one before it leaves it a chance.
    ///
    /// Local memory is not among the spaces: what ptxas writes there itself is scheduled freely,
    /// and ours is not. Nor is every allocator: one whose results are hardly ever the best adds
    /// more wrong choices than right ones (docs/choose.md has the figures).
    pub(crate) fn rows(machine_code: bool) -> Vec<Vec<Candidate>> {
        let allocated = |strategy, margin| Candidate::Allocated { strategy, margin };
        let row = |strategy, margins: [i32; 2]| margins.map(|m| allocated(strategy, m)).to_vec();
        let mut rows = vec![
            vec![Candidate::SharedPragma],
            // Where the text fits the cap and ptxas spills all the same, it lacks registers of its
            // own.
            row(Strategy::Briggs, [0, 4]),
            row(Strategy::Fatpoint, [0, SOME_ROOM]),
        ];
        if machine_code {
            rows.extend([false, true].map(|all| vec![Candidate::Moved { all }]));
            rows.push(vec![Candidate::Spilled]);
        }
        rows
    }

    /// The same with more registers, so that less spills and ptxas spills the rest: for an
    /// allocation whose frame shared memory does not hold.
    pub(crate) fn roomier(self) -> Option<Candidate> {
        let Candidate::Allocated { strategy, margin } = self else {
            return None;
        };
        let margin = match margin {
            0 => SOME_ROOM,
            margin if (MOST_ROOM + 1..0).contains(&margin) => (margin * 3).max(MOST_ROOM),
            _ => return None,
        };
        Some(Candidate::Allocated { strategy, margin })
    }

    /// The candidate that displays as `name`.
    pub(crate) fn named(name: &str) -> Option<Candidate> {
        let with_room = |candidate: Candidate| {
            std::iter::successors(Some(candidate), |candidate| candidate.roomier())
        };
        let rows = Candidate::rows(true).into_iter().flatten();
        let mut all = [Candidate::Original]
            .into_iter()
            .chain(rows)
            .flat_map(with_room);
        all.find(|candidate| candidate.to_string() == name)
    }

    /// The options that make this candidate of a kernel.
    pub fn options(self, base: &ModuleOptions, kernel: &str) -> ModuleOptions {
        let mut options = ModuleOptions {
            entries: vec![kernel.to_owned()],
            jobs: Some(1),
            ..base.clone()
        };
        match self {
            Candidate::Original | Candidate::Moved { .. } => options.treatment = Treatment::Leave,
            Candidate::Spilled => {
                options.treatment = Treatment::Leave;
                options.maxnreg = None;
            }
            Candidate::SharedPragma => options.treatment = Treatment::LeaveWithSharedSpills,
            Candidate::Allocated { strategy, margin } => {
                options.treatment = Treatment::Allocate;
                options.options.strategy = strategy;
                options.spill_space = SpillSpace::Shared;
                options.margin = margin;
            }
        }
        options
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Candidate::Original => f.write_str("original"),
            Candidate::SharedPragma => f.write_str("ptxas, shared spills"),
            Candidate::Moved { all: false } => f.write_str("ptxas, spills moved"),
            Candidate::Moved { all: true } => f.write_str("ptxas, all spills moved"),
            Candidate::Spilled => f.write_str("ptxas uncapped, spilled"),
            Candidate::Allocated { strategy, margin } => {
                write!(f, "{}, shared", strategy.name())?;
                match margin {
                    0 => Ok(()),
                    margin => write!(f, ", cap {:+}", -margin),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_that_does_not_fit_is_given_more_registers() {
        let strategy = Strategy::Briggs;
        let margins = |margin| -> Vec<i32> {
            let first = Some(Candidate::Allocated { strategy, margin });
            let all = std::iter::successors(first, |candidate| candidate.roomier());
            let margins = all.map(|candidate| match candidate {
                Candidate::Allocated { margin, .. } => margin,
                _ => unreachable!("{candidate} is no allocation"),
            });
            margins.collect()
        };
        assert_eq!(margins(0), [0, -16, -48, -96]);
        assert_eq!(margins(4), [4]);
        assert_eq!(Candidate::SharedPragma.roomier(), None);
    }
}
