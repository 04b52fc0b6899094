//! Subcommands as functions: the flags of the command line in, values out, nothing printed.
//!
//! The Python module is made of these, so that its answers and its errors are those of the command.

use std::path::Path;

use clap::Parser;
use serde_json::Value;

use crate::alloc::{self, Allocator};
use crate::files::Input;
use crate::output::Message;
use crate::stats_cubin::Source;
use crate::{Cli, Command, UsageError, alloc_cubin, output, report, stats};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the command would print after `error: `.
    pub text: String,
    /// Whether it was asked wrongly, for which the command has an exit code of its own.
    pub is_usage: bool,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        let text = format!("{error:#}");
        Failure {
            text: output::without_heading(&text).to_owned(),
            is_usage: error.is::<UsageError>(),
        }
    }
}

/// What was made of a text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Allocated {
    /// The PTX.
    pub ptx: String,
    /// The machine code, where that was asked for.
    pub cubin: Option<Vec<u8>>,
    /// The document of `alloc --print-regalloc-stats=json`.
    pub report: Value,
    /// What the command would warn of.
    pub warnings: Vec<String>,
    /// What it would note.
    pub notes: Vec<String>,
}

/// `warpalloc alloc FLAGS` of a text that messages call `name`.
pub fn allocate(
    name: &str,
    text: Vec<u8>,
    machine_code: bool,
    flags: &[String],
) -> Result<Allocated, Failure> {
    let Command::Alloc(args) = parsed("alloc", flags)? else {
        return Err(usage("these are flags of another subcommand"));
    };
    if args.cubin_spills.is_asked_for() {
        return Err(usage("--spills is for cubins"));
    }
    if args.input.len() > 1 {
        return Err(usage("one text is allocated, and flags name further files"));
    }
    let allocator = Allocator::new(&args)?;
    alloc_cubin::refuse_flags(&args).map_err(anyhow::Error::from)?;
    let input = Input::from_bytes(name.to_owned(), text)?;
    let chosen = allocator.allocate(&input, machine_code)?;
    let file = report::File {
        input: &input,
        result: &chosen.result,
        kernels: &chosen.kernels,
    };
    let refusals = alloc::refusals(&[file], &args);
    if !refusals.is_empty() {
        let told: Vec<&str> = refusals
            .iter()
            .map(|r| output::without_heading(r))
            .collect();
        return Err(Failure {
            text: told.join("\n"),
            is_usage: false,
        });
    }
    let report = report::as_json(&[file]);
    let (mut warnings, mut notes) = (Vec::new(), Vec::new());
    let said = allocator.idle_knobs(&args).into_iter();
    for message in said.chain(alloc::messages(&file, &args)) {
        match message {
            Message::Warning(text) => warnings.push(output::without_heading(&text).to_owned()),
            Message::Note(text) => notes.push(text),
        }
    }
    Ok(Allocated {
        cubin: chosen.cubin,
        report,
        warnings,
        notes,
        ptx: chosen.result.text,
    })
}

/// What to measure.
#[derive(Clone, Debug)]
pub enum Measured<'a> {
    /// A file.
    File(&'a Path),
    /// The content of one, and the name that messages call it by.
    Content(&'a str, Vec<u8>),
}

/// `warpalloc stats --json FLAGS`.
pub fn stats(measured: Measured, flags: &[String]) -> Result<Value, Failure> {
    let Command::Stats(args) = parsed("stats", flags)? else {
        return Err(usage("these are flags of another subcommand"));
    };
    let source = match measured {
        Measured::File(path) => Source::open(path)?,
        Measured::Content(name, bytes) => Source::from_bytes(name.to_owned(), bytes)?,
    };
    Ok(stats::measured(source, &args)?.as_json())
}

/// The flags of a subcommand, which finds its input elsewhere.
fn parsed(subcommand: &str, flags: &[String]) -> Result<Command, Failure> {
    let words = ["warpalloc", "--quiet", subcommand].map(str::to_owned);
    let words = words.into_iter().chain(flags.iter().cloned());
    let cli = Cli::try_parse_from(words.chain(["-".to_owned()])).map_err(|error| {
        let told = error.to_string();
        // What follows tells how to ask for help in a shell.
        let first = told.split("\n\n").next().unwrap_or_default();
        Failure {
            text: output::without_heading(first).to_owned(),
            is_usage: true,
        }
    })?;
    cli.output.install();
    Ok(cli.command)
}

fn usage(text: &str) -> Failure {
    Failure {
        text: text.to_owned(),
        is_usage: true,
    }
}
