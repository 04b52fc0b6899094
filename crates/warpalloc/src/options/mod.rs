//! How to allocate.

mod hoist;
pub mod knobs;
mod settings;

pub use hoist::HoistPolicy;
pub use knobs::Knobs;
pub use settings::{Fraction, Kind, Setting, SettingError};

use crate::allocation::Space;
use crate::target::Target;
use crate::target::sm::Sm;
use knobs::KNOBS;
use settings::{Written, optional, settings, written};
use std::fmt;
use std::str::FromStr;

/// The allocators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// Every value in memory, reloaded around each instruction.
    Naive,
    /// Optimistic graph colouring, with optimistic or conservative coalescing.
    #[default]
    Briggs,
    /// Conflicts by program point, after ptxas.
    Fatpoint,
    /// Spilling by next use, then registers in dominance order.
    Scan,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 4] = [
        Strategy::Naive,
        Strategy::Briggs,
        Strategy::Fatpoint,
        Strategy::Scan,
    ];

    /// The name used on command lines and in text files.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Naive => "naive",
            Strategy::Briggs => "briggs",
            Strategy::Fatpoint => "fatpoint",
            Strategy::Scan => "scan",
        }
    }

    /// The strategy called `name`.
    pub fn named(name: &str) -> Option<Strategy> {
        Strategy::ALL.into_iter().find(|s| s.name() == name)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Strategy {
    type Err = ();

    fn from_str(name: &str) -> Result<Strategy, ()> {
        Strategy::named(name).ok_or(())
    }
}

written! {
    Strategy: Kind::Choice("the name of a strategy");
}

impl Written for Space {
    const KIND: Kind = Kind::Choice("local or shared");
    fn text(&self) -> String {
        match self {
            Space::Local => "local",
            Space::Shared => "shared",
            Space::Argument => "argument",
        }
        .to_owned()
    }
    fn parse(text: &str) -> Option<Space> {
        let spaces = [Space::Local, Space::Shared];
        spaces.into_iter().find(|space| space.text() == text)
    }
}

settings! {
    /// Choices that steer an allocation.
    pub struct Options, OPTIONS {
        /// Which allocator.
        "strategy" strategy: Strategy = Strategy::default();
        /// Prove the result before returning it.
        "verify" verify: bool = true;
        /// Where spilled values go.
        "spill" spill_space: Space = Space::Local;
        /// Bytes of a frame in shared memory at most; the slots accessed least lie in local memory.
        "shared-limit" shared_limit: Option<u32> = None;
        /// Reorder crowded blocks before allocation.
        "schedule" schedule: bool = true;
        /// Split long live ranges around loops before allocation.
        "split" split: bool = true;
        /// Propagate copies, remove dead code and join accesses after allocation.
        "cleanup" cleanup: bool = true;
        /// Instructions that stand between a reload and its first reader where its register is
        /// free that long; at 0 reloads stay where they are needed.
        "early-reloads" early_reloads: u32 = 0;
        /// Colour again for fewer registers where that costs nothing.
        "shrink" shrink: bool = true;
        /// General registers that hold the address of the spill frame, where there is a frame.
        "frame-base" frame_base: u32 = 0;
    }
    plain {
        /// Choices of [`Strategy::Briggs`].
        briggs: BriggsOptions = BriggsOptions::default();
        /// Choices of [`Strategy::Fatpoint`].
        knobs: Knobs = Knobs::default();
    }
}

settings! {
    /// Choices that steer [`Strategy::Briggs`].
    pub struct BriggsOptions, BRIGGS_OPTIONS {
        /// A neighbour stands in the way of coalescing when its degree times this reaches the
        /// number of its registers.
        "coalescing-factor" coalescing_factor: Fraction = Fraction::percent(80);
        /// Merge without asking whether the merged value can be coloured; a merge that costs a
        /// colour is undone.
        "optimistic-coalescing" optimistic_coalescing: bool = true;
        /// Coalesce nothing.
        "disable-coalescing" disable_coalescing: bool = false;
        /// Merge at most so many times in each round.
        "coalescing-limit" coalescing_limit: Option<u32> = None;
        /// Verify the graph after each merge.
        "verify-coalescing" verify_coalescing: bool = false;
        /// Coalesce copies of values that are live where blocks meet.
        "join-globalcopies" join_global_copies: bool = true;
        /// Coalesce with values in fixed registers: arguments, results, pinned operands.
        "join-physregs" join_phys_regs: bool = true;
        /// Coalesce copies between values that stay within a block.
        "join-liveintervals" join_live_intervals: bool = true;
        /// Let one reload serve several readers where registers allow it.
        "lazy-reload" lazy_reload: bool = true;
        /// Recompute values instead of reloading them where that is cheaper.
        "rematerialise" rematerialise: bool = true;
        /// Give up where more values than this would be spilled.
        "spill-limit" spill_limit: Option<u32> = None;
        /// The part of a register file in use above which registers count as scarce; by
        /// default, what suits the generation. A function that must spill is also tried with
        /// spilling that goes on to this limit, and that is kept where it costs fewer cycles;
        /// at 1 it is never tried.
        "pressure-limit" pressure_limit: Option<Fraction> = None;
    }
}

impl BriggsOptions {
    /// The part of a register file in use above which registers count as scarce: 70 % on
    /// SM 70 to 89, 80 % from SM 90 on, unless chosen otherwise.
    pub fn pressure_limit_on(&self, target: &Target) -> f32 {
        let percent = Sm::from_number(target.sm()).map_or(100, Sm::pressure_limit_percent);
        let usual = Fraction::percent(percent);
        self.pressure_limit.unwrap_or(usual).get()
    }
}

/// Options that are shown even at their default.
const ALWAYS_NOTABLE: [&str; 3] = ["strategy", "verify", "spill"];

impl Options {
    /// The default choices with another allocator.
    pub fn with_strategy(strategy: Strategy) -> Options {
        Options {
            strategy,
            ..Options::default()
        }
    }

    /// Every option by name, with its value, then every knob.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, String)> {
        let options = OPTIONS.iter().map(|o| (o.name, o.value(self)));
        let briggs = BRIGGS_OPTIONS.iter();
        let briggs = briggs.map(|o| (o.name, o.value(&self.briggs)));
        let knobs = KNOBS.iter().map(|k| (k.name, k.value(&self.knobs)));
        options.chain(briggs).chain(knobs)
    }

    /// The options that always matter, and those that are not at their default.
    pub fn notable_entries(&self) -> impl Iterator<Item = (&'static str, String)> {
        let usual = Options::default();
        let usual: Vec<_> = usual.entries().collect();
        let is_notable = |((name, value), (_, usual)): ((&'static str, String), (_, String))| {
            let is_shown = ALWAYS_NOTABLE.contains(&name) || value != usual;
            is_shown.then_some((name, value))
        };
        self.entries().zip(usual).filter_map(is_notable)
    }

    /// Every option by name, with its default, the values it takes and its meaning; knobs have
    /// a table of their own, [`KNOBS`].
    pub fn known() -> impl Iterator<Item = (&'static str, String, Kind, &'static str)> {
        let options = OPTIONS.iter();
        let options = options.map(|o| (o.name, o.default_value(), o.kind, o.meaning.trim()));
        let briggs = BRIGGS_OPTIONS.iter();
        let briggs = briggs.map(|o| (o.name, o.default_value(), o.kind, o.meaning.trim()));
        options.chain(briggs)
    }

    /// Sets the option or knob called `name`, or says what was expected.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let names = || {
            Options::default()
                .entries()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        settings::set(OPTIONS, self, "option", name, value)
            .or_else(|| settings::set(BRIGGS_OPTIONS, &mut self.briggs, "option", name, value))
            .or_else(|| settings::set(KNOBS, &mut self.knobs, "knob", name, value))
            .unwrap_or_else(|| Err(settings::unknown("option", name, names().into_iter())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let options = Options::default();
        let mut names: Vec<_> = options.entries().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn entries_set_what_they_say() {
        let mut changed = Options {
            verify: false,
            spill_space: Space::Shared,
            briggs: BriggsOptions {
                coalescing_factor: Fraction::percent(50),
                coalescing_limit: Some(7),
                join_phys_regs: false,
                ..BriggsOptions::default()
            },
            ..Options::default()
        };
        let entries: Vec<_> = changed.entries().collect();
        let mut options = Options::default();
        for (name, value) in entries {
            options.set(name, &value).unwrap();
        }
        assert_eq!(options, changed);
        let notable: Vec<_> = changed.notable_entries().map(|(name, _)| name).collect();
        let expected = [
            "strategy",
            "verify",
            "spill",
            "coalescing-factor",
            "coalescing-limit",
            "join-physregs",
        ];
        assert_eq!(notable, expected);
        let mut said = |name, value| changed.set(name, value).unwrap_err().to_string();
        assert_eq!(
            said("verify", "maybe"),
            "option `verify` takes true or false, not `maybe`"
        );
        assert_eq!(
            said("verfy", "true"),
            "there is no option `verfy`; did you mean `verify`?"
        );
    }

    #[test]
    fn a_fraction_is_above_nothing_and_up_to_all() {
        let mut options = Options::default();
        for wrong in ["0", "1.5", "-1", "NaN", "x"] {
            assert!(options.set("coalescing-factor", wrong).is_err(), "{wrong}");
        }
        assert!(options.set("coalescing-factor", "1").is_ok());
        assert!(options.set("pressure-limit", "auto").is_ok());
    }
}
