//! By how much a figure may get worse.

use std::collections::BTreeMap;

use crate::UsageError;
use crate::kernels::Figure;

/// By how much one figure may get worse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// By so many.
    Absolute(u64),
    /// By so much of what it was.
    Percent(f64),
}

impl Tolerance {
    /// Reads `3` and `5%`.
    pub fn parse(text: &str) -> Option<Tolerance> {
        let text = text.trim();
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.trim().parse().ok()?;
                (0.0..=1000.0)
                    .contains(&percent)
                    .then_some(Tolerance::Percent(percent))
            }
            None => text.parse().ok().map(Tolerance::Absolute),
        }
    }

    /// The most by which a figure may be worse that was `was`.
    pub fn of(self, was: u64) -> u64 {
        match self {
            Tolerance::Absolute(most) => most,
            Tolerance::Percent(percent) => (was as f64 * percent / 100.0).floor() as u64,
        }
    }
}

/// By how much figures may get worse; not at all where nothing is said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tolerances(BTreeMap<Figure, Tolerance>);

impl Tolerances {
    pub fn get(&self, figure: Figure) -> Option<Tolerance> {
        self.0.get(&figure).copied()
    }

    pub fn set(&mut self, figure: Figure, tolerance: Tolerance) {
        self.0.insert(figure, tolerance);
    }

    /// Reads `FIGURE=N` flags.
    pub fn from_flags(flags: &[String]) -> Result<Tolerances, UsageError> {
        let mut tolerances = Tolerances::default();
        for flag in flags {
            let wrong = |why: String| UsageError(format!("--tolerance {flag}: {why}"));
            let (name, value) = flag
                .split_once('=')
                .ok_or_else(|| wrong("it is FIGURE=N".to_owned()))?;
            let figure = Figure::named(name).ok_or_else(|| wrong(known_figures()))?;
            let value = Tolerance::parse(value)
                .ok_or_else(|| wrong("N is a count such as 2, or a share such as 5%".to_owned()))?;
            tolerances.set(figure, value);
        }
        Ok(tolerances)
    }
}

/// What can be said where a name is none of a figure.
pub fn known_figures() -> String {
    format!(
        "the figures are {}",
        Figure::ALL.map(Figure::name).join(", ")
    )
}
