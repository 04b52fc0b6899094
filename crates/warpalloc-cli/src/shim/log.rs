//! What the shim did, a line of JSON per call.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::choose::{Replaced, Taken};
use super::invocation::Invocation;
use crate::output;
use crate::report::SCHEMA;

/// Names the file; `off` for none.
const VARIABLE: &str = "WARPALLOC_SHIM_LOG";

/// From this size on, the file is begun anew and the old one kept beside it.
const MOST_BYTES: u64 = 4 << 20;

/// What to show.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpalloc shim log                 the last calls
  warpalloc shim log --replaced      those that assembled other code than they were given
  warpalloc shim log --json -n 1000  as JSON, see docs/json.md

The file is what WARPALLOC_SHIM_LOG names, else warpalloc/shim.log under XDG_STATE_HOME or
~/.local/state. WARPALLOC_SHIM_LOG=off keeps none.")]
pub struct LogArgs {
    /// How many calls to show
    #[arg(short = 'n', value_name = "N", default_value_t = 20)]
    count: usize,
    /// Only calls whose input was replaced
    #[arg(long)]
    replaced: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Where the log is, unless nobody wants one.
fn file() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return (named != "off").then(|| PathBuf::from(named));
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    let state = state.filter(|path| path.is_absolute()).or_else(home)?;
    Some(state.join("warpalloc/shim.log"))
}

/// One call.
pub struct Record(Value);

impl Record {
    pub fn new(args: &[OsString], real: &Path) -> Record {
        let words = args.iter().map(|word| word.to_string_lossy());
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        Record(json!({
            "schema": SCHEMA,
            "time": time.map_or(0, |time| time.as_secs()),
            "ptxas": real.display().to_string(),
            "args": words.collect::<Value>(),
            "outcome": "passed",
            "reason": Value::Null,
        }))
    }

    pub fn describe(&mut self, invocation: &Invocation) {
        let inputs = invocation.inputs.iter();
        self.0["inputs"] = inputs.map(|(_, path)| path.display().to_string()).collect();
        self.0["output"] = invocation.output().display().to_string().into();
    }

    fn end(&mut self, outcome: &str, reason: &str) {
        self.0["outcome"] = outcome.into();
        self.0["reason"] = reason.into();
    }

    /// The real ptxas got what came.
    pub fn passed(&mut self, why: &str) {
        self.end("passed", why);
    }

    /// It was looked at and stays.
    pub fn kept(&mut self, why: &str) {
        self.end("kept", why);
    }

    /// ptxas refuses it.
    pub fn failed(&mut self, why: &str) {
        self.end("failed", why);
    }

    /// Other code was assembled for these kernels.
    pub fn replaced(&mut self, kernels: &[Replaced], before: &[Taken], after: &[Taken]) {
        self.0["outcome"] = "replaced".into();
        self.0["reason"] = Value::Null;
        let kernels = kernels.iter().map(|kernel| {
            let of = |table: &[Taken]| table.iter().find(|t| t.name == kernel.name).cloned();
            let pair = |figure: fn(Taken) -> u32| [of(before).map(figure), of(after).map(figure)];
            json!({
                "name": kernel.name,
                "by": kernel.by,
                "why": kernel.why,
                "registers": pair(|taken| taken.registers),
                "stack_bytes": pair(|taken| taken.stack_bytes),
            })
        });
        self.0["kernels"] = kernels.collect();
    }

    /// Appends it to the log. A log that can't be written is no reason not to compile.
    pub fn write(&mut self, took: Duration) {
        self.0["milliseconds"] = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into();
        let Some(path) = file() else { return };
        if let Some(folder) = path.parent() {
            let _ = fs::create_dir_all(folder);
        }
        if fs::metadata(&path).is_ok_and(|meta| meta.len() > MOST_BYTES) {
            let _ = fs::rename(&path, path.with_extension("log.1"));
        }
        // One write, so that calls at the same time do not tear each other's lines.
        let line = format!("{}\n", self.0);
        let mut options = fs::OpenOptions::new();
        if let Ok(mut file) = options.create(true).append(true).open(path) {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// Shows the log.
pub fn run(args: &LogArgs) -> anyhow::Result<()> {
    let Some(path) = file() else {
        output::note("there is no log: WARPALLOC_SHIM_LOG is off, or HOME is not set");
        return Ok(());
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let calls = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|call| !args.replaced || call["outcome"] == "replaced");
    let calls: Vec<Value> = calls.collect();
    let calls = &calls[calls.len().saturating_sub(args.count)..];
    if args.json {
        let value = json!({ "schema": SCHEMA, "file": path.display().to_string(), "calls": calls });
        return output::print(&format!("{value:#}\n"));
    }
    if calls.is_empty() {
        output::note(&format!("{} holds no such call", path.display()));
    }
    output::print(&calls.iter().map(row).collect::<String>())
}

fn row(call: &Value) -> String {
    let text = |key: &str| call[key].as_str().unwrap_or("-").to_owned();
    let inputs = call["inputs"].as_array().map(|inputs| {
        let names = inputs.iter().filter_map(Value::as_str);
        names.collect::<Vec<_>>().join(" ")
    });
    let ms = call["milliseconds"].as_u64().unwrap_or(0);
    let mut out = format!(
        "{} {:<8} {ms:>6} ms  {}",
        time(call["time"].as_u64().unwrap_or(0)),
        text("outcome"),
        inputs.unwrap_or_else(|| "-".to_owned()),
    );
    if let Some(reason) = call["reason"].as_str() {
        out += &format!(": {reason}");
    }
    out.push('\n');
    for kernel in call["kernels"].as_array().into_iter().flatten() {
        let pair = |key: &str| format!("{} -> {}", kernel[key][0], kernel[key][1]);
        let text = |key: &str| kernel[key].as_str().unwrap_or("-").to_owned();
        out += &format!(
            "    {}: by {}, {}; registers {}, stack {} bytes\n",
            text("name"),
            text("by"),
            text("why"),
            pair("registers"),
            pair("stack_bytes")
        );
    }
    out
}

/// Seconds since 1970 as `2026-01-31 12:00:00`, in universal time.
fn time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in which leap days come last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (year, month, day) = (
        year + era * 400 + u64::from(month >= 10),
        if month < 10 { month + 3 } else { month - 9 },
        day - (153 * month + 2) / 5 + 1,
    );
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(time(1_767_225_599), "2025-12-31 23:59:59");
        assert_eq!(time(4_107_542_399), "2100-02-28 23:59:59");
    }
}
