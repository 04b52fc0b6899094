//! One kernel on the GPU, in a process of its own.
//!
//! A fault in a kernel takes the whole CUDA context with it, and a kernel that never ends cannot be
//! stopped from inside. So a worker runs one kernel's variants, says what it does line by line, and
//! may die at any time: the supervisor knows from the last line whom to blame.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use cudarc::driver::CudaFunction;
use serde::{Deserialize, Serialize};

use crate::compare::{Difference, check_reference, first_difference};
use crate::device::{Device, Memory, Snapshot};
use crate::manifest::Launch;

/// What a worker is to do.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Plan {
    /// The entry.
    pub kernel: String,
    /// How it is launched.
    pub launch: Launch,
    /// Where inputs come from.
    pub seed: u64,
    /// How many timed launches per variant.
    pub reps: usize,
    /// The image whose output is the right one.
    pub reference: PathBuf,
    /// Variants that are timed side by side.
    pub groups: Vec<Group>,
}

/// Variants at one cap.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Group {
    /// Its name among the groups.
    pub id: usize,
    /// What is compared and timed.
    pub variants: Vec<Variant>,
}

/// One image of the kernel.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Variant {
    /// Its name among all variants.
    pub id: usize,
    /// What to load.
    pub image: PathBuf,
}

/// A line from a worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The reference ran; its time in microseconds.
    Ready(f64),
    /// The launch or its manifest is at fault, whatever the variant.
    Broken(String),
    /// A variant is about to run.
    Start(usize),
    /// A variant ran.
    Checked(usize, Outcome),
    /// The median time of a variant in microseconds.
    Timed(usize, f64),
    /// A group needs no more work.
    Finished(usize),
}

/// How a variant's output compares with the reference.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every bit is the same.
    Equal,
    /// Some are not.
    Different(Difference),
    /// It did not run.
    Failed(String),
}

/// Reads a plan from standard input, carries it out, and writes events to standard output.
pub fn main() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let plan: Plan = serde_json::from_str(&line).context("the plan")?;
    if let Err(error) = Bench::set_up(&plan).and_then(|mut bench| bench.work(&plan)) {
        say(&Event::Broken(format!("{error:#}")))?;
    }
    Ok(())
}

fn say(event: &Event) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(event)?)?;
    Ok(out.flush()?)
}

/// A kernel's memory, its right output, and the GPU.
struct Bench<'a> {
    device: Device,
    memory: Memory,
    launch: &'a Launch,
    expected: Vec<Snapshot>,
}

impl<'a> Bench<'a> {
    /// Runs the reference twice: output that differs from itself cannot judge anyone.
    fn set_up(plan: &'a Plan) -> Result<Self> {
        let mut device = Device::open()?;
        device.prepare_timing()?;
        device.set_stack(plan.launch.stack)?;
        let memory = Memory::new(&device, &plan.launch, plan.seed, &plan.kernel)?;
        let reference = device.load(&plan.reference, &plan.kernel, &plan.launch)?;
        let mut bench = Bench {
            device,
            memory,
            launch: &plan.launch,
            expected: Vec::new(),
        };
        bench.expected = bench.output(&reference).context("the reference")?;
        let again = bench.output(&reference).context("the reference")?;
        check_reference(&bench.memory.before(), &bench.expected, &again)?;
        let times = bench.times(&[reference], plan.reps)?;
        say(&Event::Ready(median(&times[0])))?;
        Ok(bench)
    }

    fn output(&mut self, function: &CudaFunction) -> Result<Vec<Snapshot>> {
        self.memory.restore()?;
        self.device.run(function, self.launch, &self.memory)?;
        Ok(self.memory.now()?)
    }

    fn work(&mut self, plan: &Plan) -> Result<()> {
        for group in &plan.groups {
            let mut right = Vec::new();
            for variant in &group.variants {
                say(&Event::Start(variant.id))?;
                let (outcome, function) = self.check(plan, variant);
                let died = matches!(outcome, Outcome::Failed(_)) && !self.device.is_alive();
                if outcome == Outcome::Equal {
                    right.extend(function.map(|function| (variant.id, function)));
                }
                say(&Event::Checked(variant.id, outcome))?;
                if died {
                    std::process::exit(1);
                }
            }
            let (ids, functions): (Vec<_>, Vec<_>) = right.into_iter().unzip();
            for (id, times) in ids.into_iter().zip(self.times(&functions, plan.reps)?) {
                say(&Event::Timed(id, median(&times)))?;
            }
            say(&Event::Finished(group.id))?;
        }
        Ok(())
    }

    fn check(&mut self, plan: &Plan, variant: &Variant) -> (Outcome, Option<CudaFunction>) {
        let loaded = self.device.load(&variant.image, &plan.kernel, &plan.launch);
        let ran = loaded.and_then(|function| Ok((self.output(&function)?, function)));
        match ran {
            Err(error) => (Outcome::Failed(format!("{error:#}")), None),
            Ok((output, function)) => match first_difference(&self.expected, &output) {
                None => (Outcome::Equal, Some(function)),
                Some(difference) => (Outcome::Different(difference), None),
            },
        }
    }

    /// Times every function `reps` times, one launch of each in turn, after a launch of each that
    /// does not count.
    fn times(&mut self, functions: &[CudaFunction], reps: usize) -> Result<Vec<Vec<f64>>> {
        let mut times = vec![Vec::with_capacity(reps); functions.len()];
        for rep in 0..=reps {
            for (function, times) in functions.iter().zip(&mut times) {
                self.memory.restore_updated()?;
                let time = self.device.time(function, self.launch, &self.memory)?;
                if rep > 0 {
                    times.push(time);
                }
            }
        }
        Ok(times)
    }
}

/// The middle of the times; zero where there are none.
fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    match times.len() {
        0 => 0.0,
        n => (times[(n - 1) / 2] + times[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn events_come_back_from_their_lines() {
        let difference = Difference {
            argument: 2,
            offset: 12,
            bytes: 3,
            of: 100,
        };
        for outcome in [
            Outcome::Equal,
            Outcome::Different(difference),
            Outcome::Failed("an illegal address".into()),
        ] {
            let line = serde_json::to_string(&Event::Checked(4, outcome.clone())).unwrap();
            assert!(!line.contains('\n'));
            let Event::Checked(4, read) = serde_json::from_str(&line).unwrap() else {
                panic!("{line}")
            };
            assert_eq!(read, outcome);
        }
    }
}
