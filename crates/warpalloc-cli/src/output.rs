//! What the command says, and on which stream.
//!
//! Messages go to standard error. A message that cannot be written is lost, never a panic: there
//! is nobody left to tell. Results go to standard output, where failing to write is an error.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use anstream::ColorChoice;
use clap::{Args, ValueEnum};

/// How much is said, and how it looks.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputFlags {
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say what became of each function
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// When to colour messages
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value = "auto"
    )]
    pub color: When,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Something to say of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// It did not come out as asked for.
    Warning(String),
    /// Worth knowing.
    Note(String),
}

impl Message {
    /// Says it.
    pub fn say(&self) {
        match self {
            Message::Warning(text) => warning(text),
            Message::Note(text) => note(text),
        }
    }
}

static FLAGS: OnceLock<OutputFlags> = OnceLock::new();

impl OutputFlags {
    /// Makes these the flags of all that is said from here on.
    pub fn install(self) {
        let choice = match self.color {
            When::Auto => ColorChoice::Auto,
            When::Always => ColorChoice::Always,
            When::Never => ColorChoice::Never,
        };
        choice.write_global();
        // The command line is read once.
        let _ = FLAGS.set(self);
    }
}

fn is_quiet() -> bool {
    FLAGS.get().is_some_and(|flags| flags.quiet)
}

/// Whether more than warnings is wanted.
pub fn is_verbose() -> bool {
    FLAGS.get().is_some_and(|flags| flags.verbose)
}

/// Whether somebody watches progress.
pub fn is_watched() -> bool {
    !is_quiet() && io::stderr().is_terminal()
}

/// A line that starts with `error`, `warning` or `note`, or a diagnostic that has one.
pub fn error(message: &str) {
    say("error", "\x1b[1;31m", message);
}

/// Something that did not come out as asked for.
pub fn warning(message: &str) {
    if !is_quiet() {
        say("warning", "\x1b[1;33m", message);
    }
}

/// Something worth knowing.
pub fn note(message: &str) {
    if !is_quiet() {
        say("note", "\x1b[1;36m", message);
    }
}

fn say(heading: &str, colour: &str, message: &str) {
    let message = without_heading(message);
    let _ = writeln!(
        anstream::stderr(),
        "{colour}{heading}\x1b[0m\x1b[1m:\x1b[0m {message}"
    );
}

/// A message without the heading that diagnostics come with.
pub fn without_heading(message: &str) -> &str {
    message
        .strip_prefix("error: ")
        .unwrap_or(message)
        .trim_end_matches('\n')
}

/// Writes a result to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes a result that may be no text to standard output.
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| anyhow::Error::new(error).context("cannot write to standard output"))
}

/// `1 kernel`, `2 kernels`.
pub fn counted(count: usize, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {word}{plural}")
}

/// Whether the reader of our output went away, which ends the command without a word.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(|e| e.downcast_ref::<io::Error>());
    causes
        .into_iter()
        .any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
