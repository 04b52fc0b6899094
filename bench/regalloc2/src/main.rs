//! Allocates the functions that regalloc2 is fuzzed with by every strategy, and proves each
//! result. The table goes to `bench/results/regalloc2-functions.md`.
//!
//! ```sh
//! cargo run --release -p warpalloc-regalloc2 -- --functions 100000
//! ```

use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use warpalloc::function::Function;
use warpalloc::{Allocation, Error, Options, Strategy, allocate_all};
use warpalloc_regalloc2::{Machine, generate, translate};

/// Functions that are allocated at once.
const BATCH: usize = 1000;

/// Allocate the functions that regalloc2 is fuzzed with
#[derive(Parser)]
struct Args {
    /// How many functions
    #[arg(long, default_value_t = 100_000)]
    functions: usize,
    /// The seed of the first
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The commit that the table names; git is asked unless it is given
    #[arg(long)]
    commit: Option<String>,
    /// Where the table goes; `-` for the terminal
    #[arg(long, default_value = "bench/results/regalloc2-functions.md")]
    out: PathBuf,
}

/// What became of the functions under one strategy.
#[derive(Default)]
struct Row {
    proved: usize,
    fell_back: usize,
    spilled: u64,
    moves: u64,
}

impl Row {
    fn add(&mut self, allocation: &Allocation) {
        let stats = &allocation.stats;
        self.proved += 1;
        self.fell_back += usize::from(stats.fell_back);
        let edits = allocation.edits.counts();
        self.spilled += u64::from(edits.stores) + u64::from(edits.reloads);
        self.moves += u64::from(edits.moves);
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let machine = Machine::new()?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let mut rows = Strategy::ALL.map(|_| Row::default());
    let (mut done, mut seed, mut largest, mut insts) = (0, args.seed, 0, 0);
    while done < args.functions {
        let mut batch: Vec<(u64, Function)> = Vec::new();
        while batch.len() < BATCH.min(args.functions - done) {
            if let Some(func) = generate(seed) {
                batch.push((seed, translate(&func, &machine)));
            }
            seed += 1;
        }
        let (seeds, functions): (Vec<u64>, Vec<Function>) = batch.into_iter().unzip();
        for (row, strategy) in rows.iter_mut().zip(Strategy::ALL) {
            let options = Options::with_strategy(strategy);
            let results = allocate_all(&functions, &machine.target, &options, threads);
            for (seed, result) in seeds.iter().zip(results) {
                let result: Result<Allocation, Error> = result;
                let what = || format!("{strategy}, the function of seed {seed}");
                row.add(&result.with_context(what)?);
            }
        }
        done += functions.len();
        insts += functions.iter().map(Function::inst_count).sum::<usize>();
        let longest = functions.iter().map(Function::inst_count).max();
        largest = largest.max(longest.unwrap_or(0));
        eprintln!("{done} functions");
    }
    ensure!(rows.iter().all(|row| row.proved == done));
    let table = table(&args, &rows, seed, insts, largest);
    match args.out.as_os_str() == "-" {
        true => print!("{table}"),
        false => std::fs::write(&args.out, table)
            .with_context(|| format!("{}: not written", args.out.display()))?,
    }
    Ok(())
}

fn table(args: &Args, rows: &[Row], end: u64, insts: usize, largest: usize) -> String {
    let ask = || {
        let mut git = std::process::Command::new("git");
        let out = git.args(["rev-parse", "--short", "HEAD"]).output();
        let text = out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    let commit = args.commit.clone().unwrap_or_else(ask);
    let (count, first) = (args.functions, args.seed);
    let mut out = format!(
        "# Functions of regalloc2's fuzzer

`cargo run --release -p warpalloc-regalloc2 -- --functions {count} --seed {first}`, warpalloc {} at {}.

{count} functions that the generator of regalloc2 0.15.2 makes of seeds {first} to {}, {insts} instructions in all, {largest}
in the largest, with every form of operand and constraint that it knows, on its machine: three classes of 32 registers,
which are not exchanged. Each was allocated by every strategy, and each result was proved by the checker before it counted.

| strategy | proved | refused | fell back | loads and stores | moves |
|---|---|---|---|---|---|
",
        env!("CARGO_PKG_VERSION"),
        commit,
        end.saturating_sub(1),
    );
    for (row, strategy) in rows.iter().zip(Strategy::ALL) {
        let refused = count - row.proved;
        let Row {
            proved,
            fell_back,
            spilled,
            moves,
        } = row;
        let _ = writeln!(
            out,
            "| `{strategy}` | {proved} | {refused} | {fell_back} | {spilled} | {moves} |"
        );
    }
    out
}
