//! The table: one line per kernel, cap, strategy and spill space, on the screen and as JSON.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Value, json};

use crate::resources::Resources;
use crate::worker::Outcome;

/// Where and how everything was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Setup {
    /// The GPU's name; none in a dry run.
    pub gpu: Option<String>,
    /// The version of the kernel driver.
    pub driver: Option<String>,
    /// The version of CUDA that the driver speaks.
    pub cuda: Option<String>,
    /// What ptxas says of itself; none where the driver compiled.
    pub ptxas: Option<String>,
    /// What the `warpalloc` command says of itself.
    pub warpalloc: Option<String>,
    /// The architecture assembled for.
    pub arch: String,
    /// Whether ptxas was free to contract products and sums.
    pub fmad: bool,
    /// Where inputs came from.
    pub seed: u64,
    /// Timed launches per variant.
    pub reps: usize,
}

/// One variant of one kernel.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// What ptxas says of it.
    pub resources: Option<Resources>,
    /// A digest of its machine code; none where the driver compiled.
    pub code: Option<u64>,
    /// How its output compares; none where it was not run.
    pub outcome: Option<Outcome>,
    /// Its median time in microseconds.
    pub time: Option<f64>,
    /// Why it does not exist, where it could not be built.
    pub refusal: Option<String>,
}

impl Measured {
    /// Whether it ran and was wrong, or should have run and did not.
    pub fn is_wrong(&self) -> bool {
        matches!(
            self.outcome,
            Some(Outcome::Different(_) | Outcome::Failed(_))
        )
    }

    fn verdict(&self) -> String {
        match (&self.refusal, &self.outcome) {
            (Some(reason), _) => format!("not built: {reason}"),
            (None, None) => "not run".to_owned(),
            (None, Some(Outcome::Equal)) => "yes".to_owned(),
            (None, Some(Outcome::Different(difference))) => format!("NO: {difference}"),
            (None, Some(Outcome::Failed(reason))) => format!("FAILED: {reason}"),
        }
    }

    fn as_json(&self) -> Value {
        json!({
            "resources": self.resources,
            "microseconds": self.time,
            "bits_equal": self.outcome.as_ref().map(|outcome| *outcome == Outcome::Equal),
            "verdict": self.verdict(),
        })
    }
}

/// A kernel at a cap: ptxas alone beside one of our strategies.
#[derive(Clone, Debug)]
pub struct Row {
    /// The PTX file without its extension.
    pub source: String,
    /// The entry.
    pub kernel: String,
    /// The cap.
    pub cap: Option<u32>,
    /// The original without a cap, in microseconds.
    pub reference: Option<f64>,
    /// The original at the cap.
    pub ptxas: Measured,
    /// Ours, with its strategy and spill space.
    pub ours: Option<(String, String, Measured)>,
}

impl Row {
    /// Whether our machine code is that of ptxas at the same cap, so that times differ by noise.
    fn is_unchanged(&self) -> bool {
        let ours = self.ours.as_ref().and_then(|(_, _, ours)| ours.code);
        ours.is_some() && ours == self.ptxas.code
    }

    /// Our time over ptxas's: below one is faster.
    pub fn ratio(&self) -> Option<f64> {
        let (_, _, ours) = self.ours.as_ref()?;
        Some(ours.time? / self.ptxas.time.filter(|&time| time > 0.0)?)
    }

    fn cap_text(&self) -> String {
        self.cap.map_or("none".to_owned(), |cap| cap.to_string())
    }

    fn cells(&self) -> Vec<String> {
        let (strategy, space) = match &self.ours {
            Some((strategy, space, _)) => (strategy.as_str(), space.as_str()),
            None => ("-", "-"),
        };
        let ours = self.ours.as_ref().map(|(_, _, measured)| measured);
        let mut cells = vec![
            format!("{}/{}", self.source, self.kernel),
            self.cap_text(),
            strategy.to_owned(),
            space.to_owned(),
        ];
        cells.extend(resource_cells(self.ptxas.resources));
        cells.extend(resource_cells(ours.and_then(|ours| ours.resources)));
        cells.push(number(self.ptxas.time, 1));
        cells.push(number(ours.and_then(|ours| ours.time), 1));
        cells.push(number(self.ratio(), 3));
        let ptxas_is_right = matches!(self.ptxas.outcome, Some(Outcome::Equal) | None);
        let mut verdict = ours.unwrap_or(&self.ptxas).verdict();
        if ours.is_some() && !ptxas_is_right {
            let _ = write!(verdict, " (ptxas alone: {})", self.ptxas.verdict());
        }
        cells.push(verdict);
        cells
    }

    fn as_json(&self) -> Value {
        let ours = self.ours.as_ref();
        json!({
            "source": self.source,
            "kernel": self.kernel,
            "cap": self.cap,
            "strategy": ours.map(|(strategy, _, _)| strategy),
            "space": ours.map(|(_, space, _)| space),
            "reference_microseconds": self.reference,
            "ptxas": self.ptxas.as_json(),
            "ours": ours.map(|(_, _, measured)| measured.as_json()),
            "time_ratio": self.ratio(),
            "unchanged": self.is_unchanged(),
        })
    }
}

fn resource_cells(resources: Option<Resources>) -> [String; 3] {
    let Some(found) = resources else {
        return ["-", "-", "-"].map(str::to_owned);
    };
    let spilled = format!("{}/{}", found.spill_stores, found.spill_loads);
    [
        found.registers.to_string(),
        spilled,
        found.stack.to_string(),
    ]
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

const HEADER: [&str; 14] = [
    "kernel",
    "cap",
    "strategy",
    "space",
    "regs",
    "spill b",
    "stack",
    "our regs",
    "our spill b",
    "our stack",
    "us",
    "our us",
    "ratio",
    "bits equal",
];

/// The rows as text in columns.
pub fn as_text(rows: &[Row]) -> String {
    let mut lines = vec![HEADER.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(Row::cells));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..HEADER.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &lines {
        let mut padded = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            let is_number = (4..13).contains(&column);
            let _ = match is_number {
                true => write!(padded, "{cell:>width$}  "),
                false => write!(padded, "{cell:<width$}  "),
            };
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text
}

/// The setup, the rows and what they come to, as JSON.
pub fn as_json(setup: &Setup, rows: &[Row]) -> Value {
    json!({
        "setup": setup,
        "summary": Summary::of(rows),
        "rows": rows.iter().map(Row::as_json).collect::<Vec<_>>(),
    })
}

/// What the rows come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Rows with code of ours.
    pub rows: usize,
    /// Those that gave every bit.
    pub equal: usize,
    /// Those that did not.
    pub different: usize,
    /// Those that did not run to the end.
    pub failed: usize,
    /// Those at a cap for which ptxas cannot assemble the original either.
    pub impossible: usize,
    /// Those that were not built though ptxas builds the original.
    pub not_built: usize,
    /// Those that were built and not run.
    pub not_run: usize,
    /// The geometric mean of the time ratios.
    pub mean_ratio: Option<f64>,
}

impl Summary {
    /// Counts the rows.
    pub fn of(rows: &[Row]) -> Self {
        let mut summary = Summary::default();
        for row in rows {
            let Some((_, _, ours)) = &row.ours else {
                continue;
            };
            summary.rows += 1;
            let counter = match (&ours.refusal, &ours.outcome) {
                (Some(_), _) if row.ptxas.refusal.is_some() => &mut summary.impossible,
                (Some(_), _) => &mut summary.not_built,
                (None, None) => &mut summary.not_run,
                (None, Some(Outcome::Equal)) => &mut summary.equal,
                (None, Some(Outcome::Different(_))) => &mut summary.different,
                (None, Some(Outcome::Failed(_))) => &mut summary.failed,
            };
            *counter += 1;
        }
        let ratios: Vec<f64> = rows.iter().filter_map(Row::ratio).collect();
        if !ratios.is_empty() {
            let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
            summary.mean_ratio = Some((logarithms / ratios.len() as f64).exp());
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Difference;

    fn measured(outcome: Outcome, time: f64) -> Measured {
        let resources = Resources {
            registers: 32,
            spill_stores: 8,
            spill_loads: 12,
            ..Default::default()
        };
        Measured {
            resources: Some(resources),
            code: Some(1),
            outcome: Some(outcome),
            time: Some(time),
            refusal: None,
        }
    }

    fn row(ours: Measured) -> Row {
        Row {
            source: "halves.sm_90".into(),
            kernel: "shorts".into(),
            cap: Some(32),
            reference: Some(5.0),
            ptxas: measured(Outcome::Equal, 20.0),
            ours: Some(("briggs".into(), "local".into(), ours)),
        }
    }

    #[test]
    fn a_row_shows_resources_times_and_verdict() {
        let text = as_text(&[row(measured(Outcome::Equal, 10.0))]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        let expected = [
            "halves.sm_90/shorts",
            "32",
            "briggs",
            "local",
            "32",
            "8/12",
            "0",
            "32",
            "8/12",
            "0",
            "20.0",
            "10.0",
            "0.500",
            "yes",
        ];
        assert_eq!(words, expected);
        assert_eq!(lines[0].find("bits equal"), lines[1].find("yes"));
    }

    #[test]
    fn what_is_wrong_says_so() {
        let difference = Difference {
            argument: 1,
            offset: 4,
            bytes: 2,
            of: 8,
        };
        let wrong = row(measured(Outcome::Different(difference), 1.0));
        assert!(as_text(&[wrong]).contains("NO: argument 1 differs in 2 of 8 bytes"));
        let refusal = Some("a fragment needs 64 registers".to_owned());
        let refused = row(Measured {
            refusal,
            ..Measured::default()
        });
        assert!(as_text(&[refused]).contains("not built: a fragment needs 64 registers"));
    }

    #[test]
    fn the_summary_counts_every_row_once() {
        let rows = [
            row(measured(Outcome::Equal, 10.0)),
            row(measured(Outcome::Equal, 40.0)),
            row(Measured {
                outcome: Some(Outcome::Failed("died".into())),
                ..Measured::default()
            }),
            row(Measured {
                refusal: Some("no".into()),
                ..Measured::default()
            }),
            Row {
                ours: None,
                ..row(Measured::default())
            },
        ];
        let summary = Summary::of(&rows);
        assert_eq!(
            (
                summary.rows,
                summary.equal,
                summary.failed,
                summary.not_built
            ),
            (4, 2, 1, 1)
        );
        assert_eq!((summary.different, summary.not_run), (0, 0));
        assert!(
            (summary.mean_ratio.unwrap() - 1.0).abs() < 1e-12,
            "half and twice cancel"
        );
    }

    #[test]
    fn json_carries_the_setup_and_every_row() {
        let setup = Setup {
            gpu: Some("a GPU".into()),
            seed: 3,
            ..Setup::default()
        };
        let json = as_json(&setup, &[row(measured(Outcome::Equal, 10.0))]);
        assert_eq!(json["setup"]["gpu"], "a GPU");
        assert_eq!(json["rows"][0]["ours"]["bits_equal"], true);
        assert_eq!(json["rows"][0]["ptxas"]["resources"]["spill_loads"], 12);
        assert_eq!(json["rows"][0]["time_ratio"], 0.5);
        assert_eq!(json["rows"][0]["unchanged"], true);
        let changed = Measured {
            code: Some(2),
            ..measured(Outcome::Equal, 10.0)
        };
        assert_eq!(row(changed).as_json()["unchanged"], false);
        let compiled_by_the_driver = Row {
            ptxas: Measured {
                code: None,
                ..measured(Outcome::Equal, 20.0)
            },
            ours: None,
            ..row(measured(Outcome::Equal, 10.0))
        };
        assert_eq!(compiled_by_the_driver.as_json()["unchanged"], false);
    }
}
