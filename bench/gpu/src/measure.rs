//! Cubins of one kernel, timed for whoever chooses among them.

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::manifest::Launch;
use crate::supervise::{Findings, carry_out};
use crate::worker::{Group, Outcome, Plan, Variant};

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// The entry.
    kernel: String,
    /// How it is launched.
    launch: Launch,
    /// How many timed launches per image.
    reps: usize,
    /// The image whose output is the right one.
    reference: PathBuf,
    /// What is compared and timed.
    images: Vec<PathBuf>,
}

/// What is answered.
#[derive(Debug, PartialEq, Serialize)]
struct Answer {
    /// Why the kernel as a whole could not be judged.
    error: Option<String>,
    /// One per image.
    images: Vec<Timed>,
}

/// An image on the GPU.
#[derive(Debug, PartialEq, Serialize)]
struct Timed {
    /// The median.
    microseconds: Option<f64>,
    /// Why it is out of the question.
    reason: Option<String>,
}

/// Reads a question from standard input and writes the answer to standard output.
pub fn main() -> Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let question: Question = serde_json::from_str(&text).context("the question")?;
    // Without a driver no worker could say what is missing.
    drop(Device::open()?);
    let plan = question.plan();
    let answer = Answer::of(&carry_out(&plan)?, question.images.len());
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}

impl Question {
    fn plan(&self) -> Plan {
        let variants = self.images.iter().enumerate();
        let variants = variants.map(|(id, image)| Variant {
            id,
            image: image.clone(),
        });
        Plan {
            kernel: self.kernel.clone(),
            launch: self.launch.clone(),
            seed: 1,
            reps: self.reps,
            reference: self.reference.clone(),
            groups: vec![Group {
                id: 0,
                variants: variants.collect(),
            }],
        }
    }
}

impl Answer {
    fn of(findings: &Findings, images: usize) -> Answer {
        let timed = |id: usize| {
            let reason = match findings.outcomes.get(&id) {
                Some(Outcome::Equal) => None,
                Some(Outcome::Different(difference)) => {
                    Some(format!("its output differs: {difference}"))
                }
                Some(Outcome::Failed(reason)) => Some(format!("it failed: {reason}")),
                None => Some("it did not run".to_owned()),
            };
            Timed {
                microseconds: findings
                    .times
                    .get(&id)
                    .copied()
                    .filter(|_| reason.is_none()),
                reason,
            }
        };
        Answer {
            error: findings.broken.clone(),
            images: (0..images).map(timed).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Difference;

    #[test]
    fn an_image_whose_bits_differ_has_no_time() {
        let mut findings = Findings::default();
        let difference = Difference {
            argument: 1,
            offset: 4,
            bytes: 2,
            of: 64,
        };
        findings.outcomes.insert(0, Outcome::Equal);
        findings.outcomes.insert(1, Outcome::Different(difference));
        findings.times.insert(0, 7.0);
        findings.times.insert(1, 5.0);
        let answer = Answer::of(&findings, 3);
        let reasons: Vec<_> = answer.images.iter().map(|i| i.reason.as_deref()).collect();
        let differs = "its output differs: argument 1 differs in 2 of 64 bytes, first at 4";
        assert_eq!(reasons, [None, Some(differs), Some("it did not run")]);
        let times: Vec<_> = answer.images.iter().map(|i| i.microseconds).collect();
        assert_eq!(times, [Some(7.0), None, None]);
    }

    #[test]
    fn a_question_is_one_group() {
        let text = r#"{"kernel": "k", "reps": 3, "reference": "r", "images": ["a", "b"],
                       "launch": {"grid": [1], "block": [32], "arguments": []}}"#;
        let question: Question = serde_json::from_str(text).unwrap();
        let plan = question.plan();
        let ids: Vec<_> = plan.groups[0].variants.iter().map(|v| v.id).collect();
        assert_eq!((plan.groups.len(), ids), (1, vec![0, 1]));
    }
}
