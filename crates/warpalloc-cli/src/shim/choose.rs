//! What becomes of a module that is assembled under a cap.
//!
//! A module stays as it is unless ptxas spills in one of its kernels. Then the kernels that spill
//! are allocated within the same registers, and the result is taken where ptxas assembles it
//! within the cap without any spill code, ours or its own: code without spills in the same
//! registers has nothing to lose.

use std::path::PathBuf;

use warpalloc_ptx::contract::Contraction;
use warpalloc_ptx::entry_facts;
use warpalloc_ptx::module::{ModuleOptions, Outcome, allocate_module};
use warpalloc_sass::object::Cubin;

use super::invocation::Invocation;
use crate::assembler::Assembler;

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
        /// What changed, by kernel.
        kernels: Vec<Replaced>,
    },
}

/// A kernel that was allocated before ptxas.
pub struct Replaced {
    pub name: String,
    pub registers: (u32, u32),
    pub stack_bytes: (u32, u32),
}

/// Whether the text limits the registers of a kernel. Reading the words is enough: where they
/// stand in a comment, more is looked at than needs to be.
pub fn is_capped(module: &Module) -> bool {
    [".maxnreg", ".maxntid", ".reqntid", ".minnctapersm"]
        .iter()
        .any(|word| module.text.contains(word))
}

/// Registers and stack of the kernels in a cubin.
fn kernels(cubin: &[u8]) -> Option<Vec<(String, u32, u32)>> {
    let cubin = Cubin::read(cubin).ok()?;
    let entries = cubin.functions.iter().filter(|f| f.is_entry);
    entries
        .map(|f| Some((f.name.to_owned(), f.registers?, f.stack_bytes?)))
        .collect()
}

/// Chooses what to assemble of `module`, of which ptxas made the kernels in `cubin`.
pub fn choose(
    assembler: &Assembler,
    module: &Module,
    invocation: &Invocation,
    cubin: &[u8],
) -> Choice {
    let keep = |why: &str| Choice::Keep(why.to_owned());
    let Ok(facts) = entry_facts(&module.text) else {
        return keep("the text is not understood");
    };
    let Some(before) = kernels(cubin) else {
        return keep("the output is not understood");
    };
    let of = |name: &str| before.iter().find(|(kernel, ..)| kernel == name);
    let spilling = facts.entries.iter().filter_map(|entry| {
        let (name, registers, stack) = of(&entry.name)?;
        // A frame that holds more than the variables of the text holds spilled values.
        (u64::from(*stack) > entry.local_bytes).then(|| (name.clone(), *registers, *stack))
    });
    let spilling: Vec<_> = spilling.collect();
    if spilling.is_empty() {
        return keep("ptxas does not spill");
    }
    // With an option for all kernels, ptxas heeds no bound of the text that is higher.
    let cap = invocation
        .maxrregcount()
        .or_else(|| spilling.iter().map(|(_, registers, _)| *registers).max());
    let options = ModuleOptions {
        maxnreg: cap,
        sm: machine(invocation),
        entries: spilling.iter().map(|(name, ..)| name.clone()).collect(),
        contraction: match invocation.fuses() {
            true => Contraction::Ptxas,
            false => Contraction::Off,
        },
        ..ModuleOptions::default()
    };
    let Ok(result) = allocate_module(&module.text, &options, None) else {
        return keep("the module is not understood");
    };
    let is_free_of_spills = |function: &warpalloc_ptx::module::FunctionReport| matches!(&function.outcome, Outcome::Allocated(a) if a.frame.local + a.frame.shared == 0);
    let asked = result
        .functions
        .iter()
        .filter(|f| options.entries.contains(&f.name));
    if !asked.into_iter().all(is_free_of_spills) {
        return keep("no allocation within the cap does without spill code");
    }
    let name = module.path.display().to_string();
    let arch = invocation.value("gpu-name").or(facts.arch.as_deref());
    let arch = arch.unwrap_or("sm_75");
    let Ok(made) = assembler.assemble(&name, &result.text, arch, &invocation.code_options()) else {
        return keep("ptxas refuses what was allocated");
    };
    let Some(after) = kernels(&made.cubin) else {
        return keep("the new output is not understood");
    };
    let replaced = spilling.iter().filter_map(|(name, registers, stack)| {
        let (_, new_registers, new_stack) = after.iter().find(|(kernel, ..)| kernel == name)?;
        let local = facts.entries.iter().find(|entry| entry.name == *name)?;
        let is_better = new_registers <= registers && u64::from(*new_stack) <= local.local_bytes;
        is_better.then(|| Replaced {
            name: name.clone(),
            registers: (*registers, *new_registers),
            stack_bytes: (*stack, *new_stack),
        })
    });
    let replaced: Vec<_> = replaced.collect();
    match replaced.len() == spilling.len() {
        true => Choice::Replace {
            text: result.text,
            kernels: replaced,
        },
        false => keep("ptxas spills in what was allocated"),
    }
}

fn machine(invocation: &Invocation) -> Option<u32> {
    let digits = invocation.value("gpu-name")?.strip_prefix("sm_")?;
    digits.trim_end_matches(['a', 'f']).parse().ok()
}
