//! The other side of the protocol: one of the allocators that are linked in, as an external
//! one. It is the example to write an adapter from, and what the protocol is tested with.

use crate::allocators::{Allocator, Job};
use crate::function::Func;
use crate::text;
use anyhow::{Context, Result, bail};
use std::io::Write;

/// Answers requests until the input ends.
pub fn serve(name: &str, options: &[(String, String)]) -> Result<()> {
    let built_in = Allocator::built_in();
    let allocator = built_in.iter().find(|a| a.name == name);
    let allocator = allocator.with_context(|| format!("there is no allocator `{name}`"))?;
    let mut lines = std::io::stdin().lines();
    let mut current: Option<(Func, usize)> = None;
    while let Some(line) = lines.next() {
        let line = line?;
        if line.starts_with("function ") {
            let mut text = line;
            while !text.ends_with("\nend") {
                text.push('\n');
                text += &lines.next().context("the function has no end")??;
            }
            current = Some(text::function(&text)?);
            continue;
        }
        let reply = answer(&line, allocator, current.as_ref(), options);
        // A message of several lines would be read as several answers.
        let reply = reply.unwrap_or_else(|e| format!("error {e:#}").replace('\n', " "));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", reply.trim_end())?;
        out.flush()?;
    }
    Ok(())
}

fn answer(
    request: &str,
    allocator: &Allocator,
    current: Option<&(Func, usize)>,
    options: &[(String, String)],
) -> Result<String> {
    if request == "version" {
        return Ok(format!("version {}", allocator.remark));
    }
    let (f, k) = current.context("no function was given")?;
    let job = Job::new(f, *k, options, 0)?;
    Ok(match request {
        "allocate" => text::print_code(&job.code(allocator)?),
        "time" => format!("time {}", job.time(allocator)?.as_nanos()),
        "peak" => match job.peak(allocator)? {
            Some(bytes) => format!("peak {bytes}"),
            None => "peak unknown".to_owned(),
        },
        _ => bail!("there is no request `{request}`"),
    })
}
