//! Whether a function's variables are promoted at all, before any of them is looked at.
//!
//! ptxas is reported (`docs/sources.md#promotion-gate`) to ask a mode, a budget that goes
//! with mode 1, and how the function is allocated. In allocation modes 4 and 5 it adds up
//! the bytes that instructions move and refuses more than 64 KB; elsewhere flags decide.
//! Then each function takes one from `NumOptPhasesBudget`, and without any left it is not
//! promoted.

/// Bytes that the accesses of one function may move if it is to be promoted.
pub const MOST_BYTES: u64 = 0x10000;

/// When to promote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Mode 0: whenever there is something to promote.
    #[default]
    Always,
    /// Mode 1: within the given budget.
    Budgeted(u32),
    /// Any other mode.
    Never,
}

/// How the function at hand is allocated, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Modes 4 and 5: what is moved is counted.
    Counted,
    /// Any other mode: flags decide.
    Flagged {
        /// 0 for nothing to promote; bit 0 asks for local variables.
        flags: u32,
        /// How many local variables there are.
        variables: u32,
    },
}

/// What the gate goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// When to promote.
    pub mode: Mode,
    /// How the function is allocated.
    pub allocation: Allocation,
    /// Whether the function asks for a budget above 2.
    pub is_reluctant: bool,
}

impl Default for Gate {
    /// Promote whatever stays within the cap.
    fn default() -> Self {
        Gate {
            mode: Mode::Always,
            allocation: Allocation::Counted,
            is_reluctant: false,
        }
    }
}

impl Gate {
    /// Whether a function is promoted whose instructions move so many bytes each.
    pub fn admits(&self, sizes: impl IntoIterator<Item = u64>) -> bool {
        match (self.mode, self.allocation) {
            (Mode::Never | Mode::Budgeted(0), _) => false,
            (Mode::Budgeted(..=2), _) if self.is_reluctant => false,
            (Mode::Budgeted(budget), Allocation::Counted) => budget > 1,
            (_, Allocation::Flagged { flags: 0, .. }) => false,
            (_, Allocation::Flagged { flags, variables }) => flags & 1 == 0 || variables > 0,
            (Mode::Always, Allocation::Counted) => {
                let total = sizes.into_iter().fold(0, u64::saturating_add);
                total > 0 && total <= MOST_BYTES
            }
        }
    }
}

/// `NumOptPhasesBudget`: functions that may still be promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseBudget(pub u32);

impl PhaseBudget {
    /// Takes one; false where nothing is left.
    pub fn consume(&mut self) -> bool {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(mode: Mode, allocation: Allocation, is_reluctant: bool) -> Gate {
        Gate {
            mode,
            allocation,
            is_reluctant,
        }
    }

    #[test]
    fn counted_functions_are_capped_at_64_kilobytes() {
        let gate = Gate::default();
        assert!(!gate.admits([]));
        assert!(!gate.admits([0, 0]));
        assert!(gate.admits([4]));
        assert!(gate.admits([0x8000, 0x8000]));
        assert!(!gate.admits([0x8000, 0x8000, 1]));
    }

    #[test]
    fn flags_decide_elsewhere() {
        let admits = |flags, variables| {
            let allocation = Allocation::Flagged { flags, variables };
            gate(Mode::Always, allocation, false).admits([])
        };
        assert!(!admits(0, 5));
        assert!(!admits(1, 0));
        assert!(admits(1, 1));
        assert!(admits(2, 0));
        assert!(!admits(3, 0));
    }

    #[test]
    fn mode_one_asks_its_budget() {
        use Allocation::{Counted, Flagged};
        let flagged = Flagged {
            flags: 2,
            variables: 0,
        };
        assert!(!gate(Mode::Budgeted(0), flagged, false).admits([4]));
        assert!(gate(Mode::Budgeted(1), flagged, false).admits([4]));
        assert!(!gate(Mode::Budgeted(2), flagged, true).admits([4]));
        assert!(gate(Mode::Budgeted(3), flagged, true).admits([4]));
        assert!(!gate(Mode::Budgeted(1), Counted, false).admits([4]));
        assert!(gate(Mode::Budgeted(2), Counted, false).admits([4]));
        assert!(!gate(Mode::Never, Counted, false).admits([4]));
    }

    #[test]
    fn the_phase_budget_runs_out() {
        let mut budget = PhaseBudget(1);
        assert!(budget.consume());
        assert!(!budget.consume());
        assert!(!budget.consume());
    }
}
