//! How to allocate.

use crate::allocation::Space;

/// The allocators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Every value in memory, reloaded around each instruction.
    #[default]
    Naive,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 1] = [Strategy::Naive];

    /// The name used on command lines and in text files.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Naive => "naive",
        }
    }

    /// The strategy called `name`.
    pub fn named(name: &str) -> Option<Strategy> {
        Strategy::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// Choices that steer an allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which allocator.
    pub strategy: Strategy,
    /// Prove the result before returning it.
    pub verify: bool,
    /// Where spilled values go.
    pub spill_space: Space,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            strategy: Strategy::default(),
            verify: true,
            spill_space: Space::Local,
        }
    }
}
