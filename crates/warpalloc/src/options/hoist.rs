//! Which loop invariants are hoisted.

use std::fmt;

/// Which loop invariants are computed before their loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoistPolicy {
    /// All of them.
    Always,
    /// Those of loops that contain no other.
    #[default]
    Inner,
    /// None.
    Never,
}

impl HoistPolicy {
    /// The number ptxas has for the policy (`docs/sources.md#invariant-hoisting`).
    pub fn number(self) -> u32 {
        match self {
            HoistPolicy::Always => 0,
            HoistPolicy::Inner => 1,
            HoistPolicy::Never => 3,
        }
    }
}

impl fmt::Display for HoistPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HoistPolicy::Always => "always",
            HoistPolicy::Inner => "inner",
            HoistPolicy::Never => "never",
        })
    }
}

impl std::str::FromStr for HoistPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<HoistPolicy, ()> {
        let all = [HoistPolicy::Always, HoistPolicy::Inner, HoistPolicy::Never];
        let named = |p: &HoistPolicy| p.to_string() == text || p.number().to_string() == text;
        all.into_iter().find(named).ok_or(())
    }
}
