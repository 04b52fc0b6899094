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
use warpalloc_sass::spills::{self, spills_to_shared};

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
    /// Other code for some of its kernels.
    Replace {
        /// The text, where it is another.
        text: Option<String>,
        kernels: Vec<Replaced>,
    },
}

/// A kernel that gets other code than ptxas makes of it.
pub struct Replaced {
    pub name: String,
    /// By whom.
    pub by: String,
    pub why: String,
    /// Whether the spills of ptxas are moved in its machine code, and then whether all of them are.
    pub moved: Option<bool>,
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
) -> Result<(Option<String>, Vec<Replaced>), String> {
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
    let ptxas = ptxas.with_options(invocation.of_code());
    let cache = Cache::of_user();
    let mut text = None;
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
            source: text.as_deref().unwrap_or(&module.text),
            options: &options,
            ptxas: Some(&ptxas),
            // Known at the launch only.
            grid: None,
            dynamic_shared: None,
            machine_code: true,
            // What is chosen goes through ptxas as text, cap and all.
            uncapped: false,
            measure: None,
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
        let moved = match own.chosen {
            Candidate::Moved { all } => Some(all),
            _ => None,
        };
        replaced.push(Replaced {
            name: kernel.name.clone(),
            by: own.chosen.to_string(),
            why: own.reason.clone(),
            moved,
        });
        if moved.is_none() {
            text = Some(choice.result.text);
        }
    }
    match replaced.is_empty() {
        true => Err(kept),
        false => Ok((text, replaced)),
    }
}

/// A cubin in which the spills of kernels are where they were chosen to be. Kernels in which they
/// cannot be moved are taken from `kernels`, and the last reason is given back.
pub fn with_moves(mut cubin: Vec<u8>, kernels: &mut Vec<Replaced>) -> (Vec<u8>, Option<String>) {
    let mut refused = None;
    kernels.retain(|kernel| {
        let Some(all) = kernel.moved else {
            return true;
        };
        let mut options = spills::Options::default();
        // Nothing is chosen for modules whose shared memory is sized at the launch.
        options.dynamic_shared = Some(0);
        options.force = all;
        let moved = guarded(|| {
            spills_to_shared(&cubin, &kernel.name, &options).map_err(|why| why.to_string())
        });
        match moved {
            Ok(moved) => {
                cubin = moved.bytes;
                true
            }
            Err(why) => {
                refused = Some(why);
                false
            }
        }
    });
    (cubin, refused)
}

fn machine(invocation: &Invocation) -> Option<u32> {
    let digits = invocation.value("gpu-name")?.strip_prefix("sm_")?;
    digits.trim_end_matches(['a', 'f']).parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use warpalloc_choose::{Assembly, Ptxas};
    use warpalloc_ptx::contract::Contraction;

    use super::{Replaced, guarded, taken, with_moves};

    #[test]
    fn a_panic_keeps_the_original() {
        let broken = || -> Result<(), String> { Err(["one"][1..][0].to_owned()) };
        let why = Err("warpalloc panicked, which is a defect".to_owned());
        assert_eq!(guarded(broken), why);
        assert_eq!(guarded(|| Ok(3)), Ok(3));
    }

    fn moved(name: &str) -> Replaced {
        Replaced {
            name: name.to_owned(),
            by: "ptxas, all spills moved".to_owned(),
            why: String::new(),
            moved: Some(true),
        }
    }

    /// What cannot be moved is left as ptxas has it, and the reason is told.
    #[test]
    fn spills_are_moved_in_machine_code() {
        let Some(program) = std::env::var_os("WARPALLOC_PTXAS") else {
            eprintln!("skipped: no ptxas; set WARPALLOC_PTXAS");
            return;
        };
        let ptxas = Ptxas::at(Path::new(&program)).unwrap();
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/ptx");
        let text = std::fs::read_to_string(corpus.join("wide.sm_90.ptx")).unwrap();
        let text = text.replace("\n{", "\n.maxntid 256\n.maxnreg 24\n{");
        let cubin = ptxas
            .assemble(Assembly {
                text: &text,
                arch: "sm_90",
                entry: None,
                contraction: Contraction::Ptxas,
            })
            .unwrap();
        let stack = |cubin: &[u8], name: &str| {
            let taken = taken(cubin).unwrap();
            taken.iter().find(|t| t.name == name).unwrap().stack_bytes
        };
        assert!(stack(&cubin, "limbs") > 0 && stack(&cubin, "quads") > 0);
        let mut kernels = vec![moved("limbs"), moved("nobody")];
        let (made, refused) = with_moves(cubin.clone(), &mut kernels);
        let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["limbs"]);
        assert!(refused.is_some_and(|why| why.contains("nobody")));
        assert_eq!(stack(&made, "limbs"), 0);
        assert_eq!(stack(&made, "quads"), stack(&cubin, "quads"));
    }
}
