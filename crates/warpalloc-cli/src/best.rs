//! `warpalloc alloc --regalloc=best`: which allocator, told and drawn up.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use warpalloc_choose::{Cache, Candidate, ChooseError, KernelChoice, Ptxas, Request, choose};
use warpalloc_ptx::module::{ModuleOptions, ModuleResult};

use crate::UsageError;
use crate::alloc::{explain, progress_bar};
use crate::assembler::Assembler;
use crate::files::Input;

/// What choosing needs.
pub struct Chooser {
    ptxas: Option<Ptxas>,
    grid: Option<u32>,
    cache: Option<Cache>,
}

impl Chooser {
    /// With the ptxas that was named, or one that can be found.
    pub fn new(ptxas: Option<&Path>, grid: Option<u32>, no_cache: bool) -> anyhow::Result<Chooser> {
        let ptxas = match ptxas {
            Some(path) => {
                let found = Ptxas::at(path);
                Some(found.map_err(|error| UsageError(format!("--ptxas: {error}")))?)
            }
            None => Assembler::find().and_then(|found| Ptxas::at(found.path()).ok()),
        };
        Ok(Chooser {
            ptxas,
            grid,
            cache: Cache::of_user().filter(|_| !no_cache),
        })
    }

    /// Chooses for the kernels of a file.
    pub fn allocate(
        &self,
        input: &Input,
        options: &ModuleOptions,
    ) -> anyhow::Result<(ModuleResult, Vec<KernelChoice>)> {
        let bar = progress_bar();
        let progress = |done: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        };
        let request = Request {
            source: &input.text,
            options,
            ptxas: self.ptxas.as_ref(),
            grid: self.grid,
            exhaustive: false,
            cache: self.cache.as_ref(),
        };
        let choice = choose(request, Some(&progress));
        bar.finish_and_clear();
        match choice {
            Ok(choice) => Ok((choice.result, choice.kernels)),
            Err(ChooseError::Ptx(error)) => Err(explain(input, error)),
            Err(error) => Err(error.into()),
        }
    }
}

/// What was chosen for a kernel, in one line.
pub fn told(choice: &KernelChoice) -> String {
    match choice.chosen {
        Candidate::Original => choice.reason.clone(),
        chosen => format!("{chosen}: {}", choice.reason),
    }
}

/// What a kernel's candidates are expected to cost, as lines.
pub fn table(choice: &KernelChoice) -> String {
    let mut out = format!("{:<26} {:>6} {:>6}", "candidate", "alone", "full");
    for judged in &choice.candidates {
        let mark = if judged.candidate == choice.chosen {
            " *"
        } else {
            ""
        };
        let name = judged.candidate.to_string();
        let _ = match &judged.ratios {
            Ok([alone, full]) => write!(out, "\n{name:<26} {alone:>6.2} {full:>6.2}{mark}"),
            Err(reason) => write!(out, "\n{name:<26} {reason}"),
        };
    }
    out
}

/// The same as JSON (docs/json.md).
pub fn as_json(choice: &KernelChoice) -> Value {
    let candidates = choice.candidates.iter().map(|judged| {
        let name = judged.candidate.to_string();
        match &judged.ratios {
            Ok([alone, full]) => json!({ "name": name, "alone": alone, "full": full }),
            Err(reason) => json!({ "name": name, "reason": reason }),
        }
    });
    json!({
        "chosen": choice.chosen.to_string(),
        "reason": choice.reason,
        "candidates": candidates.collect::<Value>(),
    })
}
