//! What moved since the baseline, and whether that is allowed.

use std::collections::BTreeSet;

use anyhow::bail;

use super::baseline::{Baseline, Entry};
use super::tolerance::{Tolerance, Tolerances};
use crate::kernels::{Figure, Figures, Kernel, Key, Keyed};

/// What became of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Worse by more than is allowed.
    Regression,
    /// Worse, and allowed to be.
    Tolerated,
    Better,
    Same,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Regression => "regression",
            Verdict::Tolerated => "tolerated",
            Verdict::Better => "better",
            Verdict::Same => "same",
        }
    }
}

/// A figure then and now.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub figure: Figure,
    /// What the baseline holds; for new kernels the most they may take.
    pub was: u64,
    pub is: u64,
    /// By how much it may be worse.
    pub tolerance: u64,
    pub verdict: Verdict,
}

/// A kernel beside its table.
pub struct Row<'r> {
    pub key: &'r Key,
    pub kernel: &'r Kernel,
    pub entry: Option<&'r Entry>,
    pub moves: Vec<Move>,
}

impl Row<'_> {
    pub fn is_new(&self) -> bool {
        self.entry.is_none()
    }

    pub fn is_measured(&self) -> bool {
        self.kernel.figures.is_ok()
    }

    /// The figures that ended in such a way.
    pub fn with(&self, verdict: Verdict) -> impl Iterator<Item = &Move> {
        self.moves.iter().filter(move |m| m.verdict == verdict)
    }

    pub fn has(&self, verdict: Verdict) -> bool {
        self.with(verdict).next().is_some()
    }

    /// Whether there is something to tell.
    pub fn moved(&self) -> bool {
        self.is_new()
            || !self.is_measured()
            || self.moves.iter().any(|m| m.verdict != Verdict::Same)
    }
}

/// All kernels beside their tables.
pub struct Judgement<'r> {
    /// The name of the baseline.
    pub baseline: &'r str,
    pub rows: Vec<Row<'r>>,
    /// Tables whose kernel is not there any more.
    pub gone: Vec<&'r Entry>,
}

/// How many kernels ended in which way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub kernels: usize,
    pub regressions: usize,
    pub better: usize,
    pub tolerated: usize,
    pub new: usize,
    pub gone: usize,
    pub unmeasured: usize,
}

impl<'r> Judgement<'r> {
    pub fn new(
        baseline: &'r Baseline,
        kernels: &'r [Keyed],
        tolerance: &Tolerances,
        is_partial: bool,
    ) -> anyhow::Result<Judgement<'r>> {
        let mut rows = Vec::with_capacity(kernels.len());
        for Keyed { key, kernel } in kernels {
            let entry = baseline.entry(key);
            if let Some(origin) = entry.and_then(|entry| entry.origin)
                && !origin.compares_with(kernel.origin)
            {
                bail!(crate::UsageError(format!(
                    "the figures of `{}` in {} are from {}, and these are from {}: {}",
                    key.name,
                    baseline.name,
                    origin.name(),
                    kernel.origin.name(),
                    match kernel.origin {
                        crate::kernels::Origin::Warpalloc => "name a ptxas with --ptxas FILE",
                        _ => "use --no-ptxas, or make the baseline anew with --update",
                    }
                )));
            }
            let moves = match (&kernel.figures, entry) {
                (Err(_), _) => Vec::new(),
                (Ok(figures), Some(entry)) => {
                    let allowed = |figure| {
                        let own = entry.tolerance.get(figure).or(tolerance.get(figure));
                        own.or(baseline.tolerance.get(figure))
                    };
                    moves(&entry.figures, figures, allowed)
                }
                (Ok(figures), None) => {
                    let mut moves = moves(&baseline.limits, figures, |_| None);
                    // A limit that is kept is nothing to tell.
                    moves.retain(|m| m.verdict == Verdict::Regression);
                    moves
                }
            };
            rows.push(Row {
                key,
                kernel,
                entry,
                moves,
            });
        }
        let here: BTreeSet<&Key> = rows
            .iter()
            .filter_map(|row| Some(&row.entry?.key))
            .collect();
        let entries = baseline.entries.iter();
        let gone = entries.filter(|entry| !here.contains(&entry.key));
        let gone = gone.filter(|_| !is_partial).collect();
        Ok(Judgement {
            baseline: &baseline.name,
            rows,
            gone,
        })
    }

    pub fn counts(&self) -> Counts {
        let count = |is: &dyn Fn(&Row) -> bool| self.rows.iter().filter(|row| is(row)).count();
        let regresses = |row: &Row| row.has(Verdict::Regression);
        Counts {
            kernels: self.rows.len(),
            regressions: count(&regresses),
            better: count(&|row| !regresses(row) && row.has(Verdict::Better)),
            tolerated: count(&|row| !regresses(row) && row.has(Verdict::Tolerated)),
            new: count(&|row| row.is_new() && row.is_measured()),
            gone: self.gone.len(),
            unmeasured: count(&|row| !row.is_measured()),
        }
    }

    /// Whether the command is to fail.
    pub fn fails(&self, strict: bool) -> bool {
        let c = self.counts();
        let out_of_date = c.better + c.new + c.gone + c.unmeasured > 0;
        c.regressions > 0 || strict && out_of_date
    }
}

fn moves(was: &Figures, is: &Figures, allowed: impl Fn(Figure) -> Option<Tolerance>) -> Vec<Move> {
    let both = was.iter().filter_map(|(figure, was)| {
        let is = is.get(figure)?;
        let tolerance = allowed(figure).map_or(0, |tolerance| tolerance.of(was));
        let verdict = match figure.worse_by(was, is) {
            0 => Verdict::Same,
            ..0 => Verdict::Better,
            worse if worse.unsigned_abs() <= tolerance => Verdict::Tolerated,
            _ => Verdict::Regression,
        };
        Some(Move {
            figure,
            was,
            is,
            tolerance,
            verdict,
        })
    });
    both.collect()
}
