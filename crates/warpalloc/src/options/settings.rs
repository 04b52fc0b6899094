//! One declaration per setting, from which the struct, its defaults, parsing, text form and help
//! come.

use std::fmt;
use thiserror::Error;

/// A setting of `S`: a field that is known by name on command lines and in text files.
pub struct Setting<S> {
    /// Its index in ptxas, where that is reported.
    pub index: Option<u16>,
    /// Its name.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// What it does.
    pub meaning: &'static str,
    /// Why it does nothing, if it does nothing.
    pub inert: Option<&'static str>,
    pub(super) get: fn(&S) -> String,
    pub(super) set: fn(&mut S, &str) -> Option<()>,
}

impl<S: Default> Setting<S> {
    /// Its value in `settings`, as text.
    pub fn value(&self, settings: &S) -> String {
        (self.get)(settings)
    }

    /// Its value where nobody chose another.
    pub fn default_value(&self) -> String {
        self.value(&S::default())
    }
}

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number that is not negative.
    Int,
    /// A number.
    Float,
    /// A number above 0 and up to 1.
    Fraction,
    /// A whole number, or `none`.
    Limit,
    /// A number above 0 and up to 1, or `auto`.
    AutoFraction,
    /// One of these words.
    Choice(&'static str),
    /// Whole numbers with commas between them.
    List,
}

impl Kind {
    /// The name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Int | Kind::Limit => "int",
            Kind::Float | Kind::Fraction | Kind::AutoFraction => "float",
            Kind::Choice(_) => "choice",
            Kind::List => "list",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Bool => "true or false",
            Kind::Int => "a whole number",
            Kind::Float => "a number",
            Kind::Fraction => "a number above 0 and up to 1",
            Kind::Limit => "a whole number or none",
            Kind::AutoFraction => "auto or a number above 0 and up to 1",
            Kind::Choice(words) => words,
            Kind::List => "whole numbers with commas between them",
        })
    }
}

/// A setting that was set wrongly.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// No setting has this name.
    #[error("there is no {what} `{name}`; did you mean `{nearest}`?")]
    Unknown {
        /// Whether an option or a knob was asked for.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// The name that comes nearest.
        nearest: &'static str,
    },
    /// The value is not one that the setting takes.
    #[error("{what} `{name}` takes {kind}, not `{value}`")]
    IllTyped {
        /// Whether it is an option or a knob.
        what: &'static str,
        /// The setting.
        name: &'static str,
        /// What it takes.
        kind: Kind,
        /// What it was given.
        value: String,
    },
    /// The text has no `=`.
    #[error("`{0}` sets nothing; write NAME=VALUE")]
    NoValue(String),
}

/// Sets what is called `name` in `table`; `what` is the word for such a setting.
pub(super) fn set<S>(
    table: &[Setting<S>],
    settings: &mut S,
    what: &'static str,
    name: &str,
    value: &str,
) -> Option<Result<(), SettingError>> {
    let setting = table.iter().find(|setting| setting.name == name)?;
    let ill_typed = || SettingError::IllTyped {
        what,
        name: setting.name,
        kind: setting.kind,
        value: value.to_owned(),
    };
    Some((setting.set)(settings, value).ok_or_else(ill_typed))
}

/// The error for a name that no setting has, with the nearest of `names`.
pub(super) fn unknown(
    what: &'static str,
    name: &str,
    names: impl Iterator<Item = &'static str>,
) -> SettingError {
    let nearest = names.min_by_key(|known| edit_distance(known, name));
    SettingError::Unknown {
        what,
        name: name.to_owned(),
        nearest: nearest.unwrap_or(""),
    }
}

/// Insertions, deletions and replacements that turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    // Names are short; whatever is longer is no misspelling of one.
    let b: Vec<char> = b.chars().take(40).collect();
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

/// How values of one type are written: what they are, their text, and the value of a text.
pub(super) trait Written: Sized {
    const KIND: Kind;
    fn text(&self) -> String;
    fn parse(text: &str) -> Option<Self>;
}

macro_rules! written {
    ($($type:ty: $kind:expr;)*) => {$(
        impl Written for $type {
            const KIND: Kind = $kind;
            fn text(&self) -> String {
                self.to_string()
            }
            fn parse(text: &str) -> Option<$type> {
                text.parse().ok()
            }
        }
    )*};
}
pub(super) use written;

written! {
    bool: Kind::Bool;
    u32: Kind::Int;
    f32: Kind::Float;
}

impl Written for Option<u32> {
    const KIND: Kind = Kind::Limit;
    fn text(&self) -> String {
        self.map_or("none".to_owned(), |limit| limit.to_string())
    }
    fn parse(text: &str) -> Option<Option<u32>> {
        match text {
            "none" => Some(None),
            number => number.parse().ok().map(Some),
        }
    }
}

/// A part of a whole: above 0 and up to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Fraction(f32);

impl Fraction {
    /// `part`, if it is above 0 and up to 1.
    pub const fn new(part: f32) -> Option<Fraction> {
        match part > 0.0 && part <= 1.0 {
            true => Some(Fraction(part)),
            false => None,
        }
    }

    /// Hundredths, of which there are at least one and at most a hundred.
    pub(crate) const fn percent(percent: u32) -> Fraction {
        assert!(percent > 0 && percent <= 100);
        Fraction(percent as f32 / 100.0)
    }

    /// The part as a number.
    pub const fn get(self) -> f32 {
        self.0
    }
}

impl Written for Fraction {
    const KIND: Kind = Kind::Fraction;
    fn text(&self) -> String {
        self.0.to_string()
    }
    fn parse(text: &str) -> Option<Fraction> {
        Fraction::new(text.parse().ok()?)
    }
}

impl Written for Option<Fraction> {
    const KIND: Kind = Kind::AutoFraction;
    fn text(&self) -> String {
        self.map_or("auto".to_owned(), |part| part.text())
    }
    fn parse(text: &str) -> Option<Option<Fraction>> {
        match text {
            "auto" => Some(None),
            part => Fraction::parse(part).map(Some),
        }
    }
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}
pub(super) use optional;

/// Declares a struct of settings, its defaults and the table of its settings. A row reads
/// `[index] "name" field: type = default` after its documentation, which is also its help;
/// `inert "reason"` may follow. Fields after `plain:` are no settings of their own.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $Struct:ident, $TABLE:ident {$(
            $(#[doc = $doc:literal])+
            $([$index:literal])? $name:literal $field:ident: $type:ty = $default:expr
            $(, inert $inert:literal)?;
        )*}
        $(plain {$(
            $(#[doc = $plain_doc:literal])+
            $plain:ident: $plain_type:ty = $plain_default:expr;
        )*})?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Struct {
            $($(#[doc = $doc])+ pub $field: $type,)*
            $($($(#[doc = $plain_doc])+ pub $plain: $plain_type,)*)?
        }

        impl Default for $Struct {
            fn default() -> $Struct {
                $Struct {
                    $($field: $default,)*
                    $($($plain: $plain_default,)*)?
                }
            }
        }

        #[doc = concat!("Every setting of [`", stringify!($Struct), "`].")]
        pub const $TABLE: &[Setting<$Struct>] = &[$(
            Setting {
                index: optional!($($index)?),
                name: $name,
                kind: <$type as Written>::KIND,
                meaning: concat!($($doc),+),
                inert: optional!($($inert)?),
                get: |s| Written::text(&s.$field),
                set: |s, text| Written::parse(text).map(|value| s.$field = value),
            },
        )*];
    };
}
pub(super) use settings;
