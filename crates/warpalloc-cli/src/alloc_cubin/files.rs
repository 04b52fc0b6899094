//! What the commands that write cubins anew have in common: which kernels are asked for, what is
//! written, and how it is told.

use std::fmt::{Display, Write};
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};
use warpalloc_sass::object::{Cubin, demangle};
use warpalloc_sass::recolour::Added;

use crate::alloc::AllocArgs;
use crate::report::{self, SCHEMA};
use crate::{Silent, UsageError, output};

/// A cubin written anew, and what became of its kernels.
pub struct Rewritten<K> {
    pub file: String,
    pub bytes: Vec<u8>,
    pub kernels: Vec<K>,
}

/// What became of one kernel.
pub struct Kernel<D, E> {
    pub name: String,
    pub result: Result<D, E>,
}

/// Whether a kernel is asked for.
pub fn is_wanted(args: &AllocArgs, name: &str) -> bool {
    args.entry.is_empty() || args.entry.iter().any(|entry| entry == name)
}

/// Reads every cubin and has `work` write it anew.
pub fn rewrite<K>(
    args: &AllocArgs,
    work: impl Fn(&Cubin, &[u8]) -> anyhow::Result<(Vec<u8>, Vec<K>)>,
) -> anyhow::Result<Vec<Rewritten<K>>> {
    let each = args.input.iter().map(|path| {
        let file = path.display().to_string();
        let bytes = fs::read(path).with_context(|| format!("cannot read {file}"))?;
        let cubin = Cubin::read(&bytes).with_context(|| file.clone())?;
        let known = |name: &String| cubin.functions.iter().any(|f| f.name == name);
        if let Some(unknown) = args.entry.iter().find(|name| !known(name)) {
            return Err(UsageError(format!("{file} has no function `{unknown}`")).into());
        }
        let (bytes, kernels) = work(&cubin, &bytes).with_context(|| file.clone())?;
        Ok(Rewritten {
            file,
            bytes,
            kernels,
        })
    });
    each.collect()
}

/// The cubin with one kernel after the other as `work` leaves it; `bytes_of` is what it wrote.
pub fn one_by_one<D, E>(
    args: &AllocArgs,
    cubin: &Cubin,
    bytes: &[u8],
    work: impl Fn(&[u8], &str) -> Result<D, E>,
    bytes_of: impl Fn(&D) -> Option<&Vec<u8>>,
) -> (Vec<u8>, Vec<Kernel<D, E>>) {
    let mut written = bytes.to_vec();
    let mut kernels = Vec::new();
    let functions = cubin.functions.iter();
    for function in functions.filter(|f| f.is_entry && is_wanted(args, f.name)) {
        let result = work(&written, function.name);
        if let Some(bytes) = result.as_ref().ok().and_then(&bytes_of) {
            written.clone_from(bytes);
        }
        kernels.push(Kernel {
            name: function.name.to_owned(),
            result,
        });
    }
    (written, kernels)
}

/// Writes the files unless a kernel was refused that must not be, and tells.
pub fn finish<K>(
    outputs: &[PathBuf],
    files: &[Rewritten<K>],
    is_refused: bool,
    tell: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if !is_refused {
        for (output, file) in outputs.iter().zip(files) {
            crate::files::write(output, &file.bytes)?;
        }
    }
    tell()?;
    match is_refused {
        true => Err(Silent.into()),
        false => Ok(()),
    }
}

/// Says of a kernel what keeps it as it is: an error where that fails the call.
pub fn complain(message: &str, is_failure: bool) {
    match is_failure {
        true => output::error(message),
        false => output::warning(message),
    }
}

/// Prints the report that is asked for, beside a cubin on standard output.
pub fn show(
    args: &AllocArgs,
    as_text: impl FnOnce() -> String,
    as_json: impl FnOnce() -> Value,
) -> anyhow::Result<()> {
    let text = match args.print_regalloc_stats {
        Some(report::Format::Json) => format!("{:#}\n", as_json()),
        Some(report::Format::Text) => as_text(),
        None => return Ok(()),
    };
    match crate::files::is_standard_output(&args.output) {
        true => {
            eprint!("{text}");
            Ok(())
        }
        false => output::print(&text),
    }
}

/// A line of the report as text.
pub struct Row<'a, E> {
    /// The kernel's mangled name.
    pub name: &'a str,
    /// What stands before the name, or why the kernel stays as it was.
    pub columns: Result<String, &'a E>,
}

/// The report as text, with a line per kernel below `heading`.
pub fn as_text<'a, K, E: Display + 'a>(
    files: &'a [Rewritten<K>],
    heading: &str,
    row: impl Fn(&'a K) -> Row<'a, E>,
) -> String {
    let mut out = String::new();
    for Rewritten { file, kernels, .. } in files {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{file}\n  {heading}");
        for Row { name, columns } in kernels.iter().map(&row) {
            let demangled = demangle(name);
            let name = demangled.as_deref().unwrap_or(name);
            let _ = match columns {
                Ok(columns) => writeln!(out, "  {columns}  {name}"),
                Err(reason) => writeln!(out, "  as it was: {name}: {reason}"),
            };
        }
    }
    out
}

/// The report as JSON, with an object per kernel.
pub fn as_json<K>(files: &[Rewritten<K>], kernel: impl Fn(&K) -> Value) -> Value {
    let files = files.iter().map(|file| {
        let kernels: Vec<Value> = file.kernels.iter().map(&kernel).collect();
        json!({ "file": file.file, "kernels": kernels })
    });
    json!({ "schema": SCHEMA, "files": files.collect::<Vec<Value>>() })
}

/// A kernel as JSON: its names, and what `done` tells of it or why it stays as it was.
pub fn kernel_json<D, E: Display>(
    name: &str,
    result: &Result<D, E>,
    done: impl FnOnce(&D, &mut Value),
) -> Value {
    let mut value = json!({ "name": name, "demangled": demangle(name) });
    match result {
        Ok(result) => done(result, &mut value),
        Err(reason) => value["refused"] = reason.to_string().into(),
    }
    value
}

/// What scheduling anew added, as JSON.
pub fn added_json(added: &Added) -> Value {
    json!({
        "waits": added.waits,
        "scoreboards": added.scoreboards,
        "stall_cycles": added.cycles,
        "reuses_dropped": added.reuses_dropped,
    })
}
