//! Candidates timed on a GPU, by the program that launches kernels.
//!
//! Launching is foreign code with unsafe calls, and a kernel that faults takes its process with
//! it. So another program does it, `warpalloc-gpu measure`: it is given cubins and a launch,
//! compares every byte of memory with what a reference leaves, and answers with times.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Timed launches per candidate.
const LAUNCHES: u32 = 31;

/// The time of an allocation over the original's above which the original stays: a smaller gain is
/// within the error of the clock.
pub const WORTH_IT_MEASURED: f64 = 0.98;

/// Why candidates could not be timed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The manifest is at fault.
    #[error("the manifest: {0}")]
    Manifest(String),
    /// The program cannot be run.
    #[error("cannot run {program}: {error}")]
    Run {
        /// The program.
        program: String,
        /// Why.
        error: String,
    },
    /// It could not time the kernel.
    #[error("`{kernel}` cannot be measured: {reason}")]
    Kernel {
        /// The kernel.
        kernel: String,
        /// Why.
        reason: String,
    },
}

/// Launches of kernels, and the program that times them.
#[derive(Clone, Debug)]
pub struct Measure {
    program: PathBuf,
    manifest: Value,
}

/// What of a launch an allocation depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shape {
    /// Threads per block.
    pub block: u32,
    /// Blocks.
    pub grid: u32,
    /// Bytes of dynamic shared memory per block.
    pub dynamic_shared: u32,
}

impl Measure {
    /// Launches that a manifest describes (bench/gpu/README.md), timed by `program`.
    pub fn new(program: &Path, manifest: &str) -> Result<Measure, MeasureError> {
        let manifest: Value = serde_json::from_str(manifest)
            .map_err(|error| MeasureError::Manifest(error.to_string()))?;
        if !manifest["kernels"].is_object() {
            let message = "it has no `kernels`, an object with a launch for each";
            return Err(MeasureError::Manifest(message.to_owned()));
        }
        Ok(Measure {
            program: program.to_owned(),
            manifest,
        })
    }

    /// The launch of a kernel.
    pub fn shape(&self, kernel: &str) -> Result<Shape, MeasureError> {
        let launch = &self.manifest["kernels"][kernel];
        let wrong = |what: &str| MeasureError::Manifest(format!("{what} for `{kernel}`"));
        if launch.is_null() {
            return Err(wrong("there is no launch"));
        }
        let product = |key: &str| -> Option<u32> {
            let sides = launch[key].as_array()?.iter();
            let sides: Option<Vec<u64>> = sides.map(Value::as_u64).collect();
            let sides = sides.filter(|sides| (1..=3).contains(&sides.len()))?;
            let product = sides.iter().try_fold(1_u64, |a, &b| a.checked_mul(b))?;
            u32::try_from(product).ok().filter(|&product| product > 0)
        };
        let sides = |key: &str| {
            let message = format!("`{key}` is not one to three positive numbers");
            product(key).ok_or_else(|| wrong(&message))
        };
        let dynamic = launch["dynamic_shared"].as_u64().unwrap_or(0);
        Ok(Shape {
            block: sides("block")?,
            grid: sides("grid")?,
            dynamic_shared: u32::try_from(dynamic)
                .map_err(|_| wrong("`dynamic_shared` is too large"))?,
        })
    }

    /// Microseconds of each cubin, or why it has none: its output must be that of `reference`.
    pub fn times(
        &self,
        kernel: &str,
        reference: &[u8],
        cubins: &[&[u8]],
    ) -> Result<Vec<Result<f64, String>>, MeasureError> {
        let failed = |reason: String| MeasureError::Kernel {
            kernel: kernel.to_owned(),
            reason,
        };
        let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
        let write = |name: String, bytes: &[u8]| -> Result<PathBuf, MeasureError> {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).map_err(|error| failed(error.to_string()))?;
            Ok(path)
        };
        let reference = write("reference.cubin".to_owned(), reference)?;
        let images = cubins.iter().enumerate();
        let images: Result<Vec<PathBuf>, MeasureError> = images
            .map(|(index, cubin)| write(format!("{index}.cubin"), cubin))
            .collect();
        let question = json!({
            "kernel": kernel,
            "launch": self.manifest["kernels"][kernel],
            "reps": LAUNCHES,
            "reference": reference,
            "images": images?,
        });
        let answer = self.ask(&question)?;
        if let Some(reason) = answer["error"].as_str() {
            return Err(failed(reason.to_owned()));
        }
        let times = answer["images"].as_array().map_or(&[][..], Vec::as_slice);
        if times.len() != cubins.len() {
            return Err(failed("the answer has another number of times".to_owned()));
        }
        let time = |answer: &Value| match (answer["microseconds"].as_f64(), &answer["reason"]) {
            (Some(time), Value::Null) => Ok(time),
            (_, reason) => Err(reason.as_str().unwrap_or("it was not timed").to_owned()),
        };
        Ok(times.iter().map(time).collect())
    }

    fn ask(&self, question: &Value) -> Result<Value, MeasureError> {
        let wrong = |error: String| MeasureError::Run {
            program: self.program.display().to_string(),
            error,
        };
        let mut command = Command::new(&self.program);
        command
            .arg("measure")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| wrong(error.to_string()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends before it has read says why itself.
            let _ = writeln!(stdin, "{question}");
        }
        let output = child.wait_with_output();
        let output = output.map_err(|error| wrong(error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(wrong(said.trim().to_owned()));
        }
        let answer = serde_json::from_slice(&output.stdout);
        answer.map_err(|error| wrong(format!("its answer is no JSON: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(manifest: &str) -> Result<Measure, MeasureError> {
        Measure::new(Path::new("no such program"), manifest)
    }

    #[test]
    fn a_manifest_says_how_kernels_are_launched() {
        let text = r#"{"kernels": {"k": {"grid": [3, 5], "block": [32, 8], "dynamic_shared": 64,
                       "arguments": []}, "bad": {"grid": [0], "block": [32]}}}"#;
        let measure = measure(text).unwrap();
        let shape = Shape {
            block: 256,
            grid: 15,
            dynamic_shared: 64,
        };
        assert_eq!(measure.shape("k").unwrap(), shape);
        let error = |kernel: &str| measure.shape(kernel).unwrap_err().to_string();
        assert_eq!(
            error("other"),
            "the manifest: there is no launch for `other`"
        );
        assert_eq!(
            error("bad"),
            "the manifest: `grid` is not one to three positive numbers for `bad`"
        );
    }

    #[test]
    fn what_is_no_manifest_is_told() {
        assert!(
            measure("{")
                .unwrap_err()
                .to_string()
                .starts_with("the manifest: EOF")
        );
        assert!(
            measure("{}")
                .unwrap_err()
                .to_string()
                .contains("no `kernels`")
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let measure = measure(r#"{"kernels": {"k": {}}}"#).unwrap();
        let error = measure.times("k", &[], &[]).unwrap_err().to_string();
        assert!(error.starts_with("cannot run no such program"), "{error}");
    }
}
