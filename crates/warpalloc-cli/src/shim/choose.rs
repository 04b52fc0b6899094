//! What becomes of a module that is assembled under a cap.
//!
//! A module stays as it is unless ptxas spills in one of its kernels. For those that spill,
//! [`warpalloc_choose`] compares allocations within the registers that ptxas took, and the
//! original is among them.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use warpalloc_choose::{Cache, Candidate, Ptxas, Request};
use warpalloc_ptx::contract::Contraction;
use warpalloc_ptx::module::ModuleOptions;
use warpalloc_ptx::{LEAST_CAP, entry_facts};
use warpalloc_sass::object::Cubin;

use super::invocation::Invocation;

/// From this size on, comparing candidates would hold up a build.
const MOST_BYTES: usize = 1 << 20;

/// An input of ptxas.
pub struct Module {
    /// The position of its argument.
    pub position: usize,
    pub path: PathBuf,
    pub text: String,
}

/// What is assembled in the end.
pub enum Choice {
    /// The module as it is, and why.
    Keep(String),
    /// Another text for it.
    Replace {
        text: String,
        kernels: Vec<Replaced>,
    },
}

/// A kernel that is allocated before ptxas.
pub struct Replaced {
    pub name: String,
    /// By whom.
    pub by: String,
    pub why: String,
}

/// A kernel of a cubin.
#[derive(Clone, Debug)]
pub struct Taken {
    pub name: String,
    pub registers: u32,
    pub stack_bytes: u32,
}

/// Whether the text limits the registers of a kernel. Reading the words is enough: where they
/// stand in a comment, more is looked at than needs to be.
pub fn is_capped(module: &Module) -> bool {
    [".maxnreg", ".maxntid", ".reqntid", ".minnctapersm"]
        .iter()
        .any(|word| module.text.contains(word))
}

/// What the kernels in a cubin take.
pub fn taken(cubin: &[u8]) -> Option<Vec<Taken>> {
    let cubin = Cubin::read(cubin).ok()?;
    let entries = cubin.functions.iter().filter(|f| f.is_entry);
    let taken = entries.map(|f| {
        Some(Taken {
            name: f.name.to_owned(),
            registers: f.registers?,
            stack_bytes: f.stack_bytes?,
        })
    });
    taken.collect()
}

/// Chooses what to assemble of `module`, of which ptxas made the kernels `before`.
pub fn choose(real: &Path, module: &Module, invocation: &Invocation, before: &[Taken]) -> Choice {
    match guarded(|| replacement(real, module, invocation, before)) {
        Ok((text, kernels)) => Choice::Replace { text, kernels },
        Err(why) => Choice::Keep(why),
    }
}

/// Lets a defect of ours end in the original, not in a failed build, and without a word on the
/// streams of ptxas.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(hook);
    result.unwrap_or_else(|_| Err("warpalloc panicked, which is a defect".to_owned()))
}

/// Another text for a module, or why there is none.
fn replacement(
    real: &Path,
    module: &Module,
    invocation: &Invocation,
    before: &[Taken],
) -> Result<(String, Vec<Replaced>), String> {
    let facts = entry_facts(&module.text).map_err(|_| "the text is not understood")?;
    let spilling = facts.entries.iter().filter_map(|entry| {
        let taken = before.iter().find(|taken| taken.name == entry.name)?;
        // A frame that holds more than the variables of the text holds spilled values.
        (u64::from(taken.stack_bytes) > entry.local_bytes).then_some(taken)
    });
    let spilling: Vec<&Taken> = spilling.collect();
    if spilling.is_empty() {
        return Err("ptxas does not spill".to_owned());
    }
    if module.text.len() > MOST_BYTES {
        return Err("the module is too large to compare candidates".to_owned());
    }
    let ptxas = Ptxas::at(real).map_err(|error| error.to_string())?;
    let cache = Cache::of_user();
    let mut text = module.text.clone();
    let mut replaced = Vec::new();
    let mut kept = String::new();
    for kernel in spilling {
        let options = ModuleOptions {
            maxnreg: Some(kernel.registers.max(LEAST_CAP)),
            sm: machine(invocation),
            entries: vec![kernel.name.clone()],
            relocatable: Some(false),
            contraction: match invocation.fuses() {
                true => Contraction::Ptxas,
                false => Contraction::Off,
            },
            ..ModuleOptions::default()
        };
        let request = Request {
            source: &text,
            options: &options,
            ptxas: Some(&ptxas),
            // Known at the launch only.
            grid: None,
            dynamic_shared: None,
            machine_code: false,
            cache: cache.as_ref(),
        };
        let choice = warpalloc_choose::choose(request, None).map_err(|error| error.to_string())?;
        let Some(own) = choice.kernels.iter().find(|own| own.name == kernel.name) else {
            continue;
        };
        if own.chosen == Candidate::Original {
            kept = own.reason.clone();
            continue;
        }
        replaced.push(Replaced {
            name: kernel.name.clone(),
            by: own.chosen.to_string(),
            why: own.reason.clone(),
        });
        text = choice.result.text;
    }
    match replaced.is_empty() {
        true => Err(kept),
        false => Ok((text, replaced)),
    }
}

fn machine(invocation: &Invocation) -> Option<u32> {
    let digits = invocation.value("gpu-name")?.strip_prefix("sm_")?;
    digits.trim_end_matches(['a', 'f']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn a_panic_keeps_the_original() {
        let broken = || -> Result<(), String> { Err(["one"][1..][0].to_owned()) };
        let why = Err("warpalloc panicked, which is a defect".to_owned());
        assert_eq!(guarded(broken), why);
        assert_eq!(guarded(|| Ok(3)), Ok(3));
    }
}
