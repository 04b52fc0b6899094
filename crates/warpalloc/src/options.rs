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

/// An option by the name it has on command lines and in text files.
struct Key {
    name: &'static str,
    get: fn(&Options) -> String,
    set: fn(&mut Options, &str) -> Option<()>,
    /// The values it takes.
    values: &'static str,
}

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
];

fn space_name(space: Space) -> &'static str {
    match space {
        Space::Local => "local",
        Space::Shared => "shared",
    }
}

impl Options {
    /// Every option by name, with its value.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, String)> {
        KEYS.iter().map(|key| (key.name, (key.get)(self)))
    }

    /// Sets the option called `name`, or says what was expected.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
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
fn edit_distance(a: &str, b: &str) -> usize {
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
        } = Options::default();
        assert_eq!(KEYS.len(), 3);
    }

    #[test]
    fn entries_set_what_they_say() {
        let mut changed = Options {
            verify: false,
            spill_space: Space::Shared,
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
