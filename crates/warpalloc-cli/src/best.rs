//! `warpalloc alloc --regalloc=best`: which allocator, told and drawn up.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpalloc_choose::{
    Cache, Candidate, ChooseError, KernelChoice, Measure, Ptxas, Request, assemble, choose,
};
use warpalloc_ptx::module::{ModuleOptions, ModuleResult};

use crate::UsageError;
use crate::alloc::{self, progress_bar};
use crate::assembler;
use crate::files::Input;

/// The program that launches kernels.
const RUNNER: &str = "warpalloc-gpu";

/// What choosing needs.
pub struct Chooser {
    ptxas: Option<Ptxas>,
    launch: Launch,
    measure: Option<Measure>,
    cache: Option<Cache>,
}

/// How candidates are to be timed.
#[derive(Clone, Copy, Debug)]
pub struct MeasureArgs<'a> {
    /// The launches.
    pub manifest: &'a Path,
    /// The program that launches, where one was named.
    pub program: Option<&'a Path>,
}

impl MeasureArgs<'_> {
    /// Reads the manifest and finds the program that launches.
    pub fn read(self, ptxas: Option<&Ptxas>) -> anyhow::Result<Measure> {
        if ptxas.is_none() {
            let told = "--measure needs ptxas, which makes the machine code that is timed: --ptxas names one";
            return Err(UsageError(told.to_owned()).into());
        }
        let beside = |own: PathBuf| own.with_file_name(RUNNER);
        let beside = std::env::current_exe().ok().map(beside);
        let named = self.program.map(Path::to_owned);
        let found = beside.filter(|path| assembler::is_program(path));
        let program = named.or(found).or_else(|| assembler::find_program(RUNNER));
        let program = program.ok_or_else(|| {
            UsageError(format!(
                "--measure needs {RUNNER}, which launches kernels, and it is neither beside this \
                 program nor on the path: build bench/gpu, or name it with --gpu-runner"
            ))
        })?;
        let name = self.manifest.display();
        let text = std::fs::read_to_string(self.manifest)
            .map_err(|error| UsageError(format!("--measure: cannot read {name}: {error}")))?;
        let measure = Measure::new(&program, &text);
        Ok(measure.map_err(|error| UsageError(format!("--measure {name}: {error}")))?)
    }
}

/// The ptxas to compare with.
#[derive(Clone, Copy, Debug)]
pub enum WhichPtxas<'a> {
    /// One that can be found, if there is one.
    Any,
    /// The one that was named.
    At(&'a Path),
    /// None, even where there is one.
    None,
}

impl WhichPtxas<'_> {
    /// The program, if there is one.
    pub fn find(self) -> Result<Option<Ptxas>, UsageError> {
        match self {
            WhichPtxas::At(path) => {
                let found = Ptxas::at(path);
                let found = found.map_err(|error| UsageError(format!("--ptxas: {error}")))?;
                Ok(Some(found))
            }
            WhichPtxas::Any => Ok(assembler::find()),
            WhichPtxas::None => Ok(None),
        }
    }
}

/// What is known of launches besides the size of a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Launch {
    /// Blocks.
    pub grid: Option<u32>,
    /// Dynamic shared memory in bytes.
    pub dynamic_shared: Option<u32>,
}

/// What was made of a file.
pub struct Chosen {
    /// The text and its reports.
    pub result: ModuleResult,
    /// What was chosen for each kernel.
    pub kernels: Vec<KernelChoice>,
    /// The machine code, where that was asked for.
    pub cubin: Option<Vec<u8>>,
}

impl Chooser {
    /// What the flags ask for.
    pub fn new(
        ptxas: WhichPtxas,
        launch: Launch,
        measure: Option<MeasureArgs>,
        no_cache: bool,
    ) -> anyhow::Result<Chooser> {
        let ptxas = ptxas.find()?;
        let measure = measure.map(|measure| measure.read(ptxas.as_ref()));
        Ok(Chooser {
            measure: measure.transpose()?,
            ptxas,
            launch,
            cache: Cache::of_user().filter(|_| !no_cache),
        })
    }

    /// Chooses for the kernels of a file, and assembles it where machine code is asked for.
    pub fn allocate(
        &self,
        input: &Input,
        options: &ModuleOptions,
        machine_code: bool,
    ) -> anyhow::Result<Chosen> {
        let bar = progress_bar();
        let progress = |done: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        };
        let request = Request {
            source: &input.text,
            options,
            ptxas: self.ptxas.as_ref(),
            grid: self.launch.grid,
            dynamic_shared: self.launch.dynamic_shared,
            machine_code,
            uncapped: machine_code,
            measure: self.measure.as_ref(),
            cache: self.cache.as_ref(),
        };
        let choice = choose(request, Some(&progress));
        bar.finish_and_clear();
        let told = |error: ChooseError| explain(input, error);
        let choice = choice.map_err(told)?;
        let cubin = machine_code.then(|| assemble(request, &choice));
        Ok(Chosen {
            cubin: cubin.transpose().map_err(told)?,
            result: choice.result,
            kernels: choice.kernels,
        })
    }
}

/// An error of choosing as a terminal shows it.
pub fn explain(input: &Input, error: ChooseError) -> anyhow::Error {
    match error {
        ChooseError::Ptx(error) => alloc::explain(input, error),
        error => anyhow::Error::new(error).context(input.name.clone()),
    }
}

/// What was chosen for a kernel, in one line.
pub fn told(choice: &KernelChoice) -> String {
    match choice.chosen {
        Candidate::Original => choice.reason.clone(),
        chosen => format!("{chosen}: {}", choice.reason),
    }
}

/// What a kernel's candidates are expected to cost, as lines; none where nothing was tried.
pub fn table(choice: &KernelChoice) -> Option<String> {
    let names = choice.candidates.iter().map(|c| c.candidate.to_string());
    let width = names.map(|name| name.len()).max()?.max(24);
    let mut out = format!("{:<width$}   {:>6} {:>6}", "candidate", "alone", "full");
    for judged in &choice.candidates {
        let mark = if judged.candidate == choice.chosen {
            " *"
        } else {
            ""
        };
        let name = judged.candidate.to_string();
        let _ = match &judged.ratios {
            Ok([alone, full]) => write!(out, "\n{name:<width$}   {alone:>6.2} {full:>6.2}{mark}"),
            Err(reason) => write!(out, "\n{name:<width$}   {reason}"),
        };
    }
    Some(out)
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
