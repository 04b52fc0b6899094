//! Instructions executed for a fixed set of functions, counted by callgrind: the same on every
//! machine, so that a slowdown shows wherever this runs.

use crate::allocators::{Allocator, Job};
use crate::function::Func;
use crate::generate::{self, Shape};
use crate::report::{Columns, Table, number};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// A function of the fixed set: instructions, registers, and MaxLive.
struct Case {
    insts: usize,
    k: usize,
    max_live: usize,
}

/// Two sizes, each fitting and spilling.
const CASES: [Case; 4] = [
    Case {
        insts: 1_000,
        k: 32,
        max_live: 26,
    },
    Case {
        insts: 1_000,
        k: 32,
        max_live: 40,
    },
    Case {
        insts: 10_000,
        k: 32,
        max_live: 26,
    },
    Case {
        insts: 10_000,
        k: 32,
        max_live: 40,
    },
];

impl Case {
    fn function(&self) -> Result<Func> {
        generate::function(Shape::Mixed, self.insts, self.max_live, 1)
            .context("too few instructions")
    }
}

/// What callgrind is told to count within.
const COUNTED: &str = "*rivals_counted_allocation*";

/// The name of the option that makes this program the one being counted.
pub const OPTION: &str = "counted";

/// Allocates one of the fixed set, as `CASE:ALLOCATOR` says.
pub fn run_counted(what: &str, options: &[(String, String)]) -> Result<()> {
    let (case, name) = what.split_once(':').context("not CASE:ALLOCATOR")?;
    let case = CASES.get(case.parse::<usize>()?).context("no such case")?;
    let built_in = Allocator::built_in();
    let allocator = built_in.iter().find(|a| a.name == name);
    let f = case.function()?;
    let job = Job::new(&f, case.k, options, 0)?;
    job.rivals_counted_allocation(allocator.context("no such allocator")?)
}

/// The table; this program is run again under valgrind for each of its cells.
pub fn table(
    allocators: &[Allocator],
    columns: &Columns,
    options: &[(String, String)],
) -> Result<String> {
    let mut head = vec!["instructions", "K", "MaxLive"];
    head.extend(&columns.names);
    let mut table = Table::new(&head);
    for (n, case) in CASES.iter().enumerate() {
        let insts = case.function()?.insts.len() as f64;
        let (k, max_live) = (case.k.to_string(), case.max_live.to_string());
        let mut cells = vec![number(case.insts as f64), k, max_live];
        for allocator in allocators {
            cells.push(match allocator.is_linked() {
                true => {
                    eprintln!("callgrind: case {n}, {}", allocator.name);
                    number(executed(n, &allocator.name, options)? as f64 / insts)
                }
                false => "–".to_owned(),
            });
        }
        table.row(&cells);
    }
    Ok(table.finish())
}

/// Instructions executed for one allocation.
fn executed(case: usize, allocator: &str, options: &[(String, String)]) -> Result<u64> {
    let own = std::env::current_exe()?;
    let out = std::env::temp_dir().join(format!("rivals-callgrind-{}", std::process::id()));
    let result = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(own)
        .arg(format!("--{OPTION}={case}:{allocator}"))
        .args(
            options
                .iter()
                .map(|(name, value)| format!("--option={name}={value}")),
        )
        .stdout(Stdio::null())
        .output()
        .context("valgrind cannot be started")?;
    let count = match result.status.success() {
        true => total(&out),
        false => {
            let errors = String::from_utf8_lossy(&result.stderr);
            bail!("valgrind: {errors}");
        }
    };
    // The file has served its purpose, read or not.
    let _ = std::fs::remove_file(&out);
    count
}

/// The sum that a file of callgrind's gives.
fn total(path: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(path).context("callgrind wrote no file")?;
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("totals: "));
    let total = lines
        .next_back()
        .and_then(|total| total.trim().parse().ok());
    let total = total.context("callgrind's file has no totals")?;
    ensure!(total > 0, "callgrind did not see `{COUNTED}`");
    Ok(total)
}
