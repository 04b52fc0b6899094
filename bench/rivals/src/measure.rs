//! Measures every allocator on one function: code, cost, memory, and the least time of
//! several interleaved runs.

use crate::allocators::{Allocator, Job};
use crate::check::check;
use crate::code::Counts;
use crate::function::Func;
use anyhow::{Result, anyhow};
use std::time::{Duration, Instant};

/// What one allocator did with one function.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub nanos: f64,
    pub peak: Option<usize>,
    pub counts: Counts,
}

/// One function at one budget, with the outcome of every allocator.
#[derive(Clone, Debug)]
pub struct Sample {
    pub shape: String,
    /// The instructions asked for; those there are may differ a little.
    pub size: usize,
    pub insts: usize,
    pub k: usize,
    pub max_live: usize,
    /// What no allocation in the given order can be cheaper than, where that was searched.
    pub optimum: Option<f64>,
    /// What evicting by next use alone costs, in one block.
    pub furthest: Option<f64>,
    /// By allocator; nothing where the allocator cannot have that many registers or failed.
    pub outcomes: Vec<Option<Outcome>>,
}

impl Sample {
    pub fn fits(&self) -> bool {
        self.max_live <= self.k
    }
}

/// Measures with these allocators and collects what fails.
pub struct Measurer<'a> {
    pub allocators: &'a [Allocator],
    pub options: &'a [(String, String)],
    pub runs: usize,
    pub checked: u64,
    pub failures: Vec<String>,
    /// One line per function and allocator, for `--per-function`.
    pub lines: String,
    jobs: u64,
}

/// The columns of [`Measurer::lines`].
pub const COLUMNS: &str = "function\tinstructions\tK\tMaxLive\tallocator\tcost\tmoves\tstores\treloads\tremats\tns\tbytes\n";

/// Functions that take little time are run more often, for at most this long.
const WORTH_REPEATING: Duration = Duration::from_millis(60);

impl<'a> Measurer<'a> {
    pub fn new(
        allocators: &'a [Allocator],
        options: &'a [(String, String)],
        runs: usize,
    ) -> Measurer<'a> {
        Measurer {
            allocators,
            options,
            runs,
            checked: 0,
            failures: Vec::new(),
            lines: COLUMNS.to_owned(),
            jobs: 0,
        }
    }

    /// Fills in the outcomes of `sample`, whose function is `f`.
    pub fn measure(&mut self, f: &Func, sample: Sample) -> Result<Sample> {
        f.validate()?;
        let k = sample.k;
        self.jobs += 1;
        let job = Job::new(f, k, self.options, self.jobs)?;
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        for allocator in self.allocators {
            let outcome = (k <= allocator.most_registers).then(|| first(&job, allocator, f, k));
            outcomes.push(match outcome {
                None => None,
                Some(Ok(outcome)) => {
                    self.checked += 1;
                    Some(outcome)
                }
                Some(Err(error)) => {
                    let failure = format!("{} at {k}, {}: {error:#}", f.name, allocator.name);
                    eprintln!("{failure}");
                    self.failures.push(failure);
                    None
                }
            });
        }
        let begun = Instant::now();
        let mut runs = 0;
        while runs < self.runs || (runs < 5 * self.runs && begun.elapsed() < WORTH_REPEATING) {
            for (allocator, outcome) in self.allocators.iter().zip(&mut outcomes) {
                if let Some(outcome) = outcome {
                    let time = job.time(allocator)?.as_nanos() as f64;
                    outcome.nanos = outcome.nanos.min(time);
                }
            }
            runs += 1;
        }
        let sample = Sample { outcomes, ..sample };
        for (allocator, outcome) in self.allocators.iter().zip(&sample.outcomes) {
            if let Some(outcome) = outcome {
                self.lines += &line(&f.name, &sample, &allocator.name, outcome);
            }
        }
        Ok(sample)
    }
}

fn line(function: &str, of: &Sample, allocator: &str, outcome: &Outcome) -> String {
    let counts = &outcome.counts;
    let bytes = outcome
        .peak
        .map_or(String::new(), |bytes| bytes.to_string());
    format!(
        "{function}\t{}\t{}\t{}\t{allocator}\t{}\t{}\t{}\t{}\t{}\t{}\t{bytes}\n",
        of.insts,
        of.k,
        of.max_live,
        counts.cost,
        counts.moves,
        counts.stores,
        counts.loads,
        counts.remats,
        outcome.nanos,
    )
}

/// Everything but the time, with the code checked.
fn first(job: &Job, allocator: &Allocator, f: &Func, k: usize) -> Result<Outcome> {
    let code = job.code(allocator)?;
    check(f, &code, k).map_err(|e| anyhow!("wrong code: {e}"))?;
    Ok(Outcome {
        nanos: f64::INFINITY,
        peak: job.peak(allocator)?,
        counts: code.counts(f),
    })
}
