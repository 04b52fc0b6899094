//! The parent's side of the workers: starts them, listens, and starts them again without the
//! variant that killed one.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::worker::{Event, Outcome, Plan};

/// The longest silence before a worker is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known of a kernel's variants.
#[derive(Debug, Default)]
pub struct Findings {
    /// The reference's time in microseconds.
    pub reference: Option<f64>,
    /// Why the kernel as a whole could not be judged.
    pub broken: Option<String>,
    /// How each variant's output compares.
    pub outcomes: BTreeMap<usize, Outcome>,
    /// Each variant's time in microseconds.
    pub times: BTreeMap<usize, f64>,
    finished: Vec<usize>,
    started: Option<usize>,
}

impl Findings {
    /// Nothing is known but that the kernel cannot be judged.
    pub fn broken(reason: &str) -> Self {
        Findings {
            broken: Some(reason.to_owned()),
            ..Findings::default()
        }
    }

    /// Takes a line from a worker.
    fn hear(&mut self, event: Event) {
        match event {
            Event::Ready(time) => self.reference = Some(time),
            Event::Broken(reason) => self.broken = Some(reason),
            Event::Start(variant) => self.started = Some(variant),
            Event::Checked(variant, outcome) => {
                self.started = None;
                self.outcomes.insert(variant, outcome);
            }
            Event::Timed(variant, time) => {
                self.times.insert(variant, time);
            }
            Event::Finished(group) => self.finished.push(group),
        }
    }

    /// Takes note that the worker is gone. Without a variant to blame the kernel is given up, lest
    /// the next worker go the same way.
    fn lose(&mut self, reason: &str, progressed: bool) {
        match self.started.take() {
            Some(variant) => {
                self.outcomes
                    .insert(variant, Outcome::Failed(reason.to_owned()));
            }
            None if !progressed && self.broken.is_none() => {
                self.broken = Some(reason.to_owned());
            }
            None => {}
        }
    }

    /// The part of the plan that is left: unfinished groups, without the variants known to fail.
    fn remaining(&self, plan: &Plan) -> Plan {
        let mut rest = plan.clone();
        rest.groups
            .retain(|group| !self.finished.contains(&group.id));
        for group in &mut rest.groups {
            let failed = |id: &usize| matches!(self.outcomes.get(id), Some(Outcome::Failed(_)));
            group.variants.retain(|variant| !failed(&variant.id));
        }
        rest
    }

    fn failures(&self) -> usize {
        self.outcomes
            .values()
            .filter(|outcome| matches!(outcome, Outcome::Failed(_)))
            .count()
    }
}

/// Carries out a plan with as many workers as it takes.
pub fn carry_out(plan: &Plan) -> Result<Findings> {
    let mut findings = Findings::default();
    loop {
        let rest = findings.remaining(plan);
        if rest.groups.is_empty() || findings.broken.is_some() {
            return Ok(findings);
        }
        let before = (findings.failures(), findings.finished.len());
        let end = run_worker(&rest, &mut findings)?;
        let progressed = (findings.failures(), findings.finished.len()) != before;
        findings.lose(&end, progressed);
    }
}

/// Runs one worker until it ends or falls silent, and says how it ended.
fn run_worker(plan: &Plan, findings: &mut Findings) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("worker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start a worker")?;
    let mut stdin = child
        .stdin
        .take()
        .context("the worker has no standard input")?;
    let sent = writeln!(stdin, "{}", serde_json::to_string(plan)?);
    drop(stdin);
    let events = listen(&mut child)?;
    let end = loop {
        match events.recv_timeout(PATIENCE) {
            Ok(event) => findings.hear(event),
            Err(RecvTimeoutError::Disconnected) => break format!("ended with {}", child.wait()?),
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                break format!("silent for {} seconds", PATIENCE.as_secs());
            }
        }
    };
    Ok(match sent {
        Ok(()) => format!("the worker {end}"),
        Err(error) => format!("the worker {end}: {error}"),
    })
}

/// The worker's lines as they come; whatever else a driver prints is passed over.
fn listen(child: &mut Child) -> Result<Receiver<Event>> {
    let stdout = child
        .stdout
        .take()
        .context("the worker has no standard output")?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let Ok(event) = serde_json::from_str(&line) else {
                continue;
            };
            if sender.send(event).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Extent, Launch};
    use crate::worker::{Group, Variant};

    fn plan() -> Plan {
        let variant = |id| Variant {
            id,
            image: "image".into(),
        };
        let one = Extent([1; 3]);
        Plan {
            kernel: "k".into(),
            launch: Launch {
                grid: one,
                block: one,
                dynamic_shared: 0,
                stack: 0,
                arguments: vec![],
            },
            seed: 0,
            reps: 1,
            reference: "image".into(),
            groups: vec![
                Group {
                    id: 0,
                    variants: vec![variant(0), variant(1)],
                },
                Group {
                    id: 1,
                    variants: vec![variant(2), variant(3)],
                },
            ],
        }
    }

    fn left(findings: &Findings) -> Vec<Vec<usize>> {
        let rest = findings.remaining(&plan());
        rest.groups
            .iter()
            .map(|group| group.variants.iter().map(|v| v.id).collect())
            .collect()
    }

    #[test]
    fn the_variant_that_killed_its_worker_is_blamed_and_left_out() {
        let mut findings = Findings::default();
        findings.hear(Event::Ready(1.0));
        findings.hear(Event::Start(0));
        findings.hear(Event::Checked(0, Outcome::Equal));
        findings.hear(Event::Start(1));
        findings.lose("gone", false);
        assert_eq!(findings.outcomes[&1], Outcome::Failed("gone".into()));
        assert_eq!(left(&findings), [vec![0], vec![2, 3]]);
        assert!(findings.broken.is_none());
    }

    #[test]
    fn finished_groups_are_not_run_again() {
        let mut findings = Findings::default();
        findings.hear(Event::Finished(0));
        assert_eq!(left(&findings), [vec![2, 3]]);
    }

    #[test]
    fn a_worker_that_dies_before_any_variant_gives_the_kernel_up() {
        let mut findings = Findings::default();
        findings.lose("gone", false);
        assert_eq!(findings.broken.as_deref(), Some("gone"));
        let mut explained = Findings::default();
        explained.hear(Event::Broken("the reference writes nothing".into()));
        explained.lose("gone", false);
        assert_eq!(
            explained.broken.as_deref(),
            Some("the reference writes nothing")
        );
        let mut later = Findings::default();
        later.lose("gone", true);
        assert!(later.broken.is_none());
    }
}
