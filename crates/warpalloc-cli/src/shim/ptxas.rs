//! `warpalloc ptxas`: ptxas with an allocator before it.
//!
//! Whatever happens here, the caller sees what the real ptxas does: its output, its messages and
//! its exit status. The input is replaced only where it was understood whole, registers are
//! capped, ptxas spills, and the replacement was assembled and judged better.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Output, Stdio};
use std::time::Instant;

use clap::Args;
use warpalloc_ptx::LEAST_CAP;

use super::choose::{self, Choice, Module, Replaced, Taken};
use super::invocation::{Invocation, expanded};
use super::log::Record;
use super::real;
use crate::assembler::PTXAS;
use crate::files;

/// Set to `off`, the input is passed on as it is.
const SWITCH: &str = "WARPALLOC_SHIM";

/// Arguments of ptxas, read by [`main`] and not by clap.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  warpalloc ptxas -arch sm_90 -maxrregcount 64 kernel.ptx -o kernel.cubin
  WARPALLOC_SHIM=off warpalloc ptxas kernel.ptx      the real ptxas and nothing else

`warpalloc ptxas --help` prints the help of the real ptxas. It is looked for in WARPALLOC_REAL_PTXAS,
beside the shim as ptxas.real, on PATH, and in CUDA_HOME."
)]
pub struct PtxasArgs {
    /// What ptxas takes
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    args: Vec<OsString>,
}

impl PtxasArgs {
    pub fn args(&self) -> &[OsString] {
        &self.args
    }
}

/// The arguments for ptxas, where this process was called as ptxas or by `warpalloc ptxas`.
pub fn called_as_ptxas() -> Option<Vec<OsString>> {
    let mut args = std::env::args_os();
    let own = args.next()?;
    let own = Path::new(&own).file_name()?.to_string_lossy().into_owned();
    if own == PTXAS || own.starts_with("ptxas-") {
        return Some(args.collect());
    }
    (args.next()? == PTXAS).then(|| args.collect())
}

/// Does what ptxas does.
pub fn main(args: &[OsString]) -> ExitCode {
    let Some(real) = real::find() else {
        eprintln!(
            "ptxas fatal   : warpalloc finds no ptxas to call: set WARPALLOC_REAL_PTXAS to one"
        );
        return ExitCode::from(255);
    };
    if std::env::var_os(SWITCH).is_some_and(|value| value == "off") {
        return real::become_it(&real, args);
    }
    let started = Instant::now();
    let mut record = Record::new(args, &real);
    let words = expanded(args);
    let understood = words.and_then(|words| Ok((Invocation::parse(&words)?, words)));
    let run = match understood {
        Ok((invocation, _)) if invocation.has("version") => return version(&real, args),
        Ok((invocation, words)) => compile(&real, args, &words, &invocation, &mut record),
        Err(why) => {
            record.passed(&format!("not understood: {why}"));
            None
        }
    };
    record.write(started.elapsed());
    match run {
        Some(run) => repeat(&run),
        None => real::become_it(&real, args),
    }
}

/// The real text, and a line of ours: what keeps results by it makes them anew.
fn version(real: &Path, args: &[OsString]) -> ExitCode {
    let Ok(mut run) = real::command(real, args).output() else {
        return real::become_it(real, args);
    };
    if run.status.success() {
        let line = concat!(
            "warpalloc ",
            env!("CARGO_PKG_VERSION"),
            " allocates before it\n"
        );
        run.stdout.extend(line.bytes());
    }
    repeat(&run)
}

/// Says what a run said and ends as it did.
fn repeat(run: &Output) -> ExitCode {
    // A caller that does not listen loses the words of ptxas too.
    let _ = io::stdout().write_all(&run.stdout);
    let _ = io::stderr().write_all(&run.stderr);
    real::exit_code(run.status)
}

/// Assembles the inputs. `None`: nothing was done yet, and the real ptxas may take over.
fn compile(
    real: &Path,
    args: &[OsString],
    words: &[String],
    invocation: &Invocation,
    record: &mut Record,
) -> Option<Output> {
    record.describe(invocation);
    if let Some(why) = invocation.untouched() {
        record.passed(&why);
        return None;
    }
    let (modules, stdin) = match modules(invocation) {
        Ok(read) => read,
        Err(why) => {
            record.passed(&why);
            return None;
        }
    };
    let is_capped = invocation.is_capped() || modules.iter().any(choose::is_capped);
    if !is_capped && stdin.is_none() {
        record.passed("no cap on registers");
        return None;
    }
    let original = assembled(real, args, stdin.as_deref())?;
    if !original.status.success() {
        record.failed("ptxas refuses the input");
        return Some(original);
    }
    if !is_capped {
        record.passed("no cap on registers");
        return Some(original);
    }
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let replaced = replace(real, &words, invocation, &modules, record);
    Some(replaced.unwrap_or(original))
}

/// The texts of the inputs, and what was read from standard input.
fn modules(invocation: &Invocation) -> Result<(Vec<Module>, Option<Vec<u8>>), String> {
    let mut modules = Vec::new();
    let mut stdin = None;
    for (position, path) in &invocation.inputs {
        let bytes = if files::is_dash(path) {
            if stdin.is_some() {
                return Err("standard input is named twice".to_owned());
            }
            let mut bytes = Vec::new();
            io::stdin()
                .read_to_end(&mut bytes)
                .map_err(|error| format!("standard input: {error}"))?;
            stdin = Some(bytes.clone());
            bytes
        } else {
            // A pipe can be read once, and ptxas reads it.
            if !path.is_file() {
                return Err(format!("{} is no file", path.display()));
            }
            std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?
        };
        let text = String::from_utf8(bytes);
        modules.push(Module {
            position: *position,
            path: path.clone(),
            // ptxas has its own say on what is no text.
            text: text.unwrap_or_default(),
        });
    }
    Ok((modules, stdin))
}

fn assembled(real: &Path, args: &[OsString], stdin: Option<&[u8]>) -> Option<Output> {
    let mut command = real::command(real, args);
    let Some(input) = stdin else {
        return command.stdin(Stdio::inherit()).output().ok();
    };
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut pipe = child.stdin.take()?;
    let input = input.to_vec();
    // Both sides may have more to say than a pipe holds.
    let writer = std::thread::spawn(move || pipe.write_all(&input));
    let run = child.wait_with_output().ok();
    // ptxas may stop reading at an error.
    let _ = writer.join();
    run
}

/// Assembles the modules that were chosen instead, where there are any, over the output of the
/// real run. `None`: the real run stands.
fn replace(
    real: &Path,
    args: &[OsString],
    invocation: &Invocation,
    modules: &[Module],
    record: &mut Record,
) -> Option<Output> {
    let output = invocation.output();
    let original = std::fs::read(&output).ok()?;
    let Some(before) = choose::taken(&original) else {
        record.kept("the output is not understood");
        return None;
    };
    let folder = tempfile::tempdir().ok()?;
    let mut new_args = args.to_vec();
    let mut names = Vec::new();
    let mut replaced = Vec::new();
    let mut is_other_text = false;
    for (number, module) in modules.iter().enumerate() {
        let text = match choose::choose(real, module, invocation, &before) {
            Choice::Keep(why) => {
                record.kept(&why);
                None
            }
            Choice::Replace { text, kernels } => {
                replaced.extend(kernels);
                is_other_text |= text.is_some();
                text
            }
        };
        // Standard input was read already.
        let is_dash = files::is_dash(&module.path);
        let Some(text) = text.or_else(|| is_dash.then(|| module.text.clone())) else {
            continue;
        };
        // The same name in a folder of its own, so that messages and tables name the same file.
        let own = folder.path().join(number.to_string());
        let base = module.path.file_name().filter(|_| !is_dash);
        let path = own.join(base.unwrap_or("stdin.ptx".as_ref()));
        std::fs::create_dir(&own).ok()?;
        std::fs::write(&path, text).ok()?;
        *new_args.get_mut(module.position)? = path.clone().into_os_string();
        names.push((path, module.path.clone()));
    }
    if replaced.is_empty() {
        return None;
    }
    let (made, mut run) = if is_other_text {
        let new_output = folder.path().join("out.cubin");
        new_args.extend([OsString::from("-o"), new_output.clone().into_os_string()]);
        let new_args = without_output(&new_args, args, invocation);
        let run = assembled(real, &new_args, None).filter(|run| run.status.success());
        let Some(run) = run else {
            record.kept("ptxas refuses the replacement");
            return None;
        };
        (std::fs::read(&new_output).ok()?, Some(run))
    } else {
        // Only machine code is changed, of which ptxas said all there is to say.
        (original, None)
    };
    let (made, refused) = choose::with_moves(made, &mut replaced);
    if replaced.is_empty() {
        record.kept(&refused.unwrap_or_default());
        return None;
    }
    let after = choose::taken(&made).unwrap_or_default();
    let registers = |table: &[Taken], name: &str| {
        let taken = table.iter().find(|taken| taken.name == name);
        taken.map(|taken| taken.registers)
    };
    let is_within = |kernel: &Replaced| {
        let (was, is) = (
            registers(&before, &kernel.name),
            registers(&after, &kernel.name),
        );
        is.is_some() && is <= was.max(Some(LEAST_CAP))
    };
    if !replaced.iter().all(is_within) {
        record.kept("the replacement takes more registers");
        return None;
    }
    if files::write(&output, &made).is_err() {
        record.kept("the output could not be written anew");
        return None;
    }
    if let Some(run) = &mut run {
        run.stdout = renamed(&run.stdout, &names);
        run.stderr = renamed(&run.stderr, &names);
    }
    record.replaced(&replaced, &before, &after);
    run
}

/// The arguments without the first output: ptxas warns where there are two.
fn without_output(
    new_args: &[OsString],
    args: &[OsString],
    invocation: &Invocation,
) -> Vec<OsString> {
    if invocation.output.is_none() {
        return new_args.to_vec();
    }
    let is_output = |word: &OsString| {
        let word = word.to_string_lossy();
        let name = word.split('=').next().unwrap_or_default();
        name == "-o" || name == "--output-file"
    };
    let mut kept = Vec::new();
    let mut position = 0;
    while position < new_args.len() {
        let word = &new_args[position];
        if position < args.len() && is_output(word) {
            let is_joined = word.to_string_lossy().contains('=');
            position += if is_joined { 1 } else { 2 };
            continue;
        }
        kept.push(word.clone());
        position += 1;
    }
    kept
}

/// What ptxas says of the replacement, in the names that the caller knows.
fn renamed(said: &[u8], names: &[(PathBuf, PathBuf)]) -> Vec<u8> {
    let mut text = String::from_utf8_lossy(said).into_owned();
    for (new, old) in names {
        text = text.replace(&*new.to_string_lossy(), &old.to_string_lossy());
    }
    text.into_bytes()
}
