//! The ways to come to machine code from one kernel.

use std::fmt;

use warpalloc::Strategy;
use warpalloc_ptx::module::{ModuleOptions, SpillSpace, Treatment};

/// Registers above the cap of an allocation that leaves some spills to ptxas.
const SOME_ROOM: i32 = -16;

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
    /// An allocation of ours that spills to shared memory, as far as that goes.
    Allocated {
        /// The allocator.
        strategy: Strategy,
        /// Registers below the cap that it allocates for; below zero, ptxas spills the rest.
        margin: i32,
    },
    /// What ptxas makes of a text that spills to shared memory, with the spills that it leaves in
    /// local memory moved there in place.
    RestMoved {
        /// The text.
        of: SharedText,
        /// Whether that costs a resident block.
        all: bool,
    },
}

/// A text whose spills lie in shared memory but for those that ptxas adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedText {
    /// That of [`Candidate::SharedPragma`].
    Pragma,
    /// That of [`Candidate::Allocated`].
    Allocated {
        /// The allocator.
        strategy: Strategy,
        /// Registers below the cap that it allocates for.
        margin: i32,
    },
}

impl From<SharedText> for Candidate {
    fn from(text: SharedText) -> Candidate {
        match text {
            SharedText::Pragma => Candidate::SharedPragma,
            SharedText::Allocated { strategy, margin } => Candidate::Allocated { strategy, margin },
        }
    }
}

impl Candidate {
    /// The text of the candidate, if it is one that spills to shared memory.
    pub(crate) fn shared_text(self) -> Option<SharedText> {
        match self {
            Candidate::SharedPragma => Some(SharedText::Pragma),
            Candidate::Allocated { strategy, margin } => {
                Some(SharedText::Allocated { strategy, margin })
            }
            _ => None,
        }
    }

    /// Whether spills of ptxas's machine code are moved, and then whether also at the cost of
    /// resident blocks.
    pub(crate) fn moves(self) -> Option<bool> {
        match self {
            Candidate::Moved { all } | Candidate::RestMoved { all, .. } => Some(all),
            _ => None,
        }
    }

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

    /// The candidate that displays as `name`.
    pub(crate) fn named(name: &str) -> Option<Candidate> {
        let rows = Candidate::rows(true).into_iter().flatten();
        let with_rest = |candidate: Candidate| {
            let of = candidate.shared_text().into_iter();
            let rest = of.flat_map(|of| [false, true].map(|all| Candidate::RestMoved { of, all }));
            [candidate].into_iter().chain(rest)
        };
        let mut all = [Candidate::Original]
            .into_iter()
            .chain(rows)
            .flat_map(with_rest);
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
                options.spill_space = SpillSpace::SharedOnly;
                options.margin = margin;
            }
            Candidate::RestMoved { of, .. } => return Candidate::from(of).options(base, kernel),
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
            Candidate::RestMoved { of, all: false } => {
                write!(f, "{}, rest moved", Candidate::from(*of))
            }
            Candidate::RestMoved { of, all: true } => {
                write!(f, "{}, all the rest moved", Candidate::from(*of))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_is_found_by_its_name() {
        for candidate in Candidate::rows(true).into_iter().flatten() {
            assert_eq!(Candidate::named(&candidate.to_string()), Some(candidate));
        }
        let text = SharedText::Allocated {
            strategy: Strategy::Fatpoint,
            margin: SOME_ROOM,
        };
        for all in [false, true] {
            let moved = Candidate::Moved { all };
            assert_eq!(Candidate::named(&moved.to_string()), Some(moved));
            for of in [SharedText::Pragma, text] {
                let rest = Candidate::RestMoved { of, all };
                assert_eq!(Candidate::named(&rest.to_string()), Some(rest));
            }
        }
        assert_eq!(Candidate::named("another"), None);
    }
}
