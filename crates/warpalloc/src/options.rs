//! How to allocate.

use crate::allocation::Space;
use crate::strategy::fatpoint::knobs::KNOBS;
pub use crate::strategy::fatpoint::knobs::Knobs;
use crate::target::Target;
use crate::target::sm::Sm;

/// The allocators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Every value in memory, reloaded around each instruction.
    Naive,
    /// Optimistic graph colouring with conservative coalescing.
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

/// Choices that steer an allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which allocator.
    pub strategy: Strategy,
    /// Prove the result before returning it.
    pub verify: bool,
    /// Where spilled values go.
    pub spill_space: Space,
    /// Reorder crowded blocks before allocation.
    pub schedule: bool,
    /// Split long live ranges around loops before allocation.
    pub split: bool,
    /// Remove and join needless code after allocation.
    pub finish: bool,
    /// Choices of [`Strategy::Briggs`].
    pub briggs: BriggsOptions,
    /// Choices of [`Strategy::Fatpoint`].
    pub knobs: Knobs,
}

/// Choices that steer [`Strategy::Briggs`].
#[derive(Clone, Debug, PartialEq)]
pub struct BriggsOptions {
    /// A neighbour stands in the way of coalescing when its degree times this reaches the
    /// number of its registers.
    pub coalescing_factor: f32,
    /// Merge without asking whether the merged value can be coloured; a merge that costs a
    /// colour is undone.
    pub optimistic_coalescing: bool,
    /// Coalesce nothing.
    pub disable_coalescing: bool,
    /// Merge at most so many times in each round.
    pub coalescing_limit: Option<u32>,
    /// Verify the graph after each merge.
    pub verify_coalescing: bool,
    /// Coalesce copies of values that are live where blocks meet.
    pub join_global_copies: bool,
    /// Coalesce with values in fixed registers: arguments, results, pinned operands.
    pub join_phys_regs: bool,
    /// Coalesce copies between values that stay within a block.
    pub join_live_intervals: bool,
    /// Let one reload serve several readers where registers allow it.
    pub lazy_reload: bool,
    /// Recompute values instead of reloading them where that is cheaper.
    pub rematerialise: bool,
    /// Give up where more values than this would be spilled.
    pub spill_limit: Option<u32>,
    /// The part of a register file in use above which registers count as scarce; by
    /// default, what suits the generation. A function that must spill is also tried with
    /// spilling that goes on to this limit, and that is kept where it costs fewer cycles;
    /// at 1 it is never tried.
    pub pressure_limit: Option<f32>,
}

impl BriggsOptions {
    /// The part of a register file in use above which registers count as scarce: 70 % on
    /// SM 70 to 89, 80 % from SM 90 on, unless chosen otherwise.
    pub fn pressure_limit_on(&self, target: &Target) -> f32 {
        let percent = Sm::from_number(target.sm()).map_or(100, Sm::pressure_limit_percent);
        self.pressure_limit.unwrap_or(percent as f32 / 100.0)
    }
}

impl Default for BriggsOptions {
    fn default() -> BriggsOptions {
        BriggsOptions {
            coalescing_factor: 0.8,
            optimistic_coalescing: true,
            disable_coalescing: false,
            coalescing_limit: None,
            verify_coalescing: false,
            join_global_copies: true,
            join_phys_regs: true,
            join_live_intervals: true,
            lazy_reload: true,
            rematerialise: true,
            spill_limit: None,
            pressure_limit: None,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            strategy: Strategy::default(),
            verify: true,
            spill_space: Space::Local,
            schedule: true,
            split: true,
            finish: true,
            briggs: BriggsOptions::default(),
            knobs: Knobs::default(),
        }
    }
}

/// An option by the name it has on command lines and in text files.
struct Key {
    name: &'static str,
    get: fn(&Options) -> String,
    set: fn(&mut Options, &str) -> Option<()>,
    /// The values it takes.
    values: &'static str,
}

/// How many of [`KEYS`] are shown even at their default.
const ALWAYS_NOTABLE: usize = 3;

/// Every option.
const KEYS: &[Key] = &[
    Key {
        name: "strategy",
        get: |o| o.strategy.name().to_owned(),
        set: |o, v| Strategy::named(v).map(|s| o.strategy = s),
        values: "the name of a strategy",
    },
    Key {
        name: "verify",
        get: |o| o.verify.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.verify = b),
        values: "true or false",
    },
    Key {
        name: "spill",
        get: |o| space_name(o.spill_space).to_owned(),
        set: |o, v| {
            let spaces = [Space::Local, Space::Shared];
            let space = spaces.into_iter().find(|&s| space_name(s) == v);
            space.map(|s| o.spill_space = s)
        },
        values: "local or shared",
    },
    Key {
        name: "schedule",
        get: |o| o.schedule.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.schedule = b),
        values: "true or false",
    },
    Key {
        name: "split",
        get: |o| o.split.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.split = b),
        values: "true or false",
    },
    Key {
        name: "finish",
        get: |o| o.finish.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.finish = b),
        values: "true or false",
    },
    Key {
        name: "coalescing-factor",
        get: |o| o.briggs.coalescing_factor.to_string(),
        set: |o, v| fraction(v).map(|f| o.briggs.coalescing_factor = f),
        values: "a number above 0 and up to 1",
    },
    Key {
        name: "optimistic-coalescing",
        get: |o| o.briggs.optimistic_coalescing.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.briggs.optimistic_coalescing = b),
        values: "true or false",
    },
    Key {
        name: "disable-coalescing",
        get: |o| o.briggs.disable_coalescing.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.briggs.disable_coalescing = b),
        values: "true or false",
    },
    Key {
        name: "coalescing-limit",
        get: |o| limit_name(o.briggs.coalescing_limit),
        set: |o, v| limit(v).map(|n| o.briggs.coalescing_limit = n),
        values: "a number or none",
    },
    Key {
        name: "verify-coalescing",
        get: |o| o.briggs.verify_coalescing.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.briggs.verify_coalescing = b),
        values: "true or false",
    },
    Key {
        name: "join-globalcopies",
        get: |o| o.briggs.join_global_copies.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.briggs.join_global_copies = b),
        values: "true or false",
    },
    Key {
        name: "join-physregs",
        get: |o| o.briggs.join_phys_regs.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.briggs.join_phys_regs = b),
        values: "true or false",
    },
    Key {
        name: "join-liveintervals",
        get: |o| o.briggs.join_live_intervals.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.briggs.join_live_intervals = b),
        values: "true or false",
    },
    Key {
        name: "lazy-reload",
        get: |o| o.briggs.lazy_reload.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.briggs.lazy_reload = b),
        values: "true or false",
    },
    Key {
        name: "rematerialise",
        get: |o| o.briggs.rematerialise.to_string(),
        set: |o, v| v.parse().ok().map(|b| o.briggs.rematerialise = b),
        values: "true or false",
    },
    Key {
        name: "spill-limit",
        get: |o| limit_name(o.briggs.spill_limit),
        set: |o, v| limit(v).map(|n| o.briggs.spill_limit = n),
        values: "a number or none",
    },
    Key {
        name: "pressure-limit",
        get: |o| {
            let limit = o.briggs.pressure_limit;
            limit.map_or("auto".to_owned(), |part| part.to_string())
        },
        set: |o, v| {
            let limit = match v {
                "auto" => Some(None),
                part => fraction(part).map(Some),
            };
            limit.map(|limit| o.briggs.pressure_limit = limit)
        },
        values: "auto or a number above 0 and up to 1",
    },
];

fn limit(value: &str) -> Option<Option<u32>> {
    match value {
        "none" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

fn limit_name(limit: Option<u32>) -> String {
    limit.map_or("none".to_owned(), |n| n.to_string())
}

fn fraction(value: &str) -> Option<f32> {
    value.parse().ok().filter(|&f| f > 0.0 && f <= 1.0)
}

fn space_name(space: Space) -> &'static str {
    match space {
        Space::Local => "local",
        Space::Shared => "shared",
    }
}

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
        let options = KEYS.iter().map(|key| (key.name, (key.get)(self)));
        let knobs = KNOBS
            .iter()
            .map(|knob| (knob.name, knob.value(&self.knobs)));
        options.chain(knobs)
    }

    /// The options every reader wants to see, and those that are not at their default.
    pub fn notable_entries(&self) -> impl Iterator<Item = (&'static str, String)> {
        let usual = Options::default();
        let notable = move |(index, key): (usize, &'static Key)| {
            let value = (key.get)(self);
            let shown = index < ALWAYS_NOTABLE || value != (key.get)(&usual);
            shown.then_some((key.name, value))
        };
        let options = KEYS.iter().enumerate().filter_map(notable);
        let plain = Knobs::default();
        let turned = KNOBS.iter().filter_map(move |knob| {
            let value = knob.value(&self.knobs);
            (value != knob.value(&plain)).then_some((knob.name, value))
        });
        options.chain(turned)
    }

    /// Sets the option or knob called `name`, or says what was expected.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if KNOBS.iter().any(|knob| knob.name == name) {
            let result = self.knobs.set_named(name, value);
            return result.map_err(|error| error.to_string());
        }
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let nearest = KEYS.iter().min_by_key(|key| edit_distance(key.name, name));
            let hint = nearest.map_or("", |key| key.name);
            return Err(format!(
                "there is no option `{name}`; did you mean `{hint}`?"
            ));
        };
        let values = key.values;
        (key.set)(self, value).ok_or_else(|| format!("option `{name}` takes {values}"))
    }
}

/// Insertions, deletions and replacements that turn `a` into `b`.
pub(crate) fn edit_distance(a: &str, b: &str) -> usize {
    // Names are short; whatever is longer is no misspelling of one.
    let b: Vec<char> = b.chars().take(32).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_key() {
        // A field added here wants a line in `KEYS`.
        let Options {
            strategy: _,
            verify: _,
            spill_space: _,
            schedule: _,
            split: _,
            finish: _,
            briggs:
                BriggsOptions {
                    coalescing_factor: _,
                    optimistic_coalescing: _,
                    disable_coalescing: _,
                    coalescing_limit: _,
                    verify_coalescing: _,
                    join_global_copies: _,
                    join_phys_regs: _,
                    join_live_intervals: _,
                    lazy_reload: _,
                    rematerialise: _,
                    spill_limit: _,
                    pressure_limit: _,
                },
            // Knobs keep a table of their own.
            knobs: _,
        } = Options::default();
        assert_eq!(KEYS.len(), 18);
    }

    #[test]
    fn entries_set_what_they_say() {
        let mut changed = Options {
            verify: false,
            spill_space: Space::Shared,
            briggs: BriggsOptions {
                coalescing_factor: 0.5,
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
        assert_eq!(
            changed.set("verify", "maybe").unwrap_err(),
            "option `verify` takes true or false"
        );
        let error = changed.set("verfy", "true").unwrap_err();
        assert_eq!(error, "there is no option `verfy`; did you mean `verify`?");
    }
}
