//! An allocator in a process of its own, which speaks the protocol of the README over its
//! standard input and output.

use crate::code::Code;
use crate::text;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

pub struct Process {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    /// The function it was given last.
    given: Option<u64>,
}

impl Process {
    /// Starts `command`, words separated by spaces.
    pub fn start(command: &str) -> Result<Process> {
        let mut words = command.split_whitespace();
        let program = words.next().context("an empty command")?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("`{command}` cannot be started"))?;
        let to = child.stdin.take();
        let from = child.stdout.take().context("no output to read from")?;
        Ok(Process {
            child,
            to,
            from: BufReader::new(from),
            given: None,
        })
    }

    /// What the process says it is.
    pub fn version(&mut self) -> Result<String> {
        self.ask("version", "version")
    }

    /// Makes the function `number`, whose text this is, the current one.
    pub fn give(&mut self, number: u64, text: &str) -> Result<()> {
        if self.given != Some(number) {
            self.send(text)?;
            self.given = Some(number);
        }
        Ok(())
    }

    /// Allocates the current function.
    pub fn code(&mut self) -> Result<Code> {
        self.send("allocate\n")?;
        let mut reply = String::new();
        loop {
            let line = self.line()?;
            if let Some(error) = line.strip_prefix("error ") {
                bail!("{error}");
            }
            reply.push_str(&line);
            reply.push('\n');
            if line == "end" {
                return text::code(&reply);
            }
        }
    }

    /// Processor time of one allocation.
    pub fn time(&mut self) -> Result<Duration> {
        let nanos = self.ask("time", "time")?;
        let nanos = nanos.parse().with_context(|| format!("`time {nanos}`"))?;
        Ok(Duration::from_nanos(nanos))
    }

    /// The most bytes on the heap at once during one allocation.
    pub fn peak(&mut self) -> Result<Option<usize>> {
        let bytes = self.ask("peak", "peak")?;
        match bytes.as_str() {
            "unknown" => Ok(None),
            bytes => Ok(Some(
                bytes.parse().with_context(|| format!("`peak {bytes}`"))?,
            )),
        }
    }

    fn ask(&mut self, question: &str, answer: &str) -> Result<String> {
        self.send(&format!("{question}\n"))?;
        let line = self.line()?;
        match line.split_once(' ') {
            Some((word, rest)) if word == answer => Ok(rest.to_owned()),
            Some(("error", error)) => bail!("{error}"),
            _ => bail!("the answer to `{question}` was `{line}`"),
        }
    }

    fn send(&mut self, text: &str) -> Result<()> {
        let to = self.to.as_mut().context("its input is closed")?;
        to.write_all(text.as_bytes())
            .context("it no longer reads")?;
        to.flush().context("it no longer reads")
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.from.read_line(&mut line)?;
        ensure!(read > 0, "it ended without an answer");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input is what tells the process to end.
        self.to = None;
        let _ = self.child.wait();
    }
}
