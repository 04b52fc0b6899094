//! A second opinion: execute the function before and after allocation and compare.
//!
//! Nothing is known of what instructions mean, so they mean as little as possible. Every
//! result part is a hash of the opcode, its immediate, the result's position and all
//! inputs; reads and writes of state hash in the state; a write appends its inputs to the
//! trace and changes the state. Branches go where a hash of their inputs and of how
//! often they ran points. Copies copy, and undefined values are the same on both sides.
//! If two runs leave the same trace under these rules, no client could tell them apart
//! on that path.
//!
//! The run after allocation never looks at a virtual register: it has register units and
//! bytes of memory, all garbage at first, and interprets every edit. Clobbers leave new
//! garbage. At a return, preserved registers must hold what they held at the start.
//!
//! A [`Module`] runs functions that call each other. Before allocation, arguments and
//! results travel by the registers that fixed operands, live-ins and returns name. After it,
//! they travel in one register file that all activations share, each with a frame of its
//! own, and when a function returns, garbage replaces every register that is neither
//! preserved nor a result, whether the function wrote it or not: another function might
//! have.
//!
//! Only the model of functions and allocations is shared with the checker, so that one
//! mistake cannot hide in both. One path per seed is followed, for as many blocks as the
//! [`Limits`] allow.

mod machine;
mod original;
mod report;
#[cfg(test)]
mod tests;
mod world;

pub use report::{Difference, What};
pub use world::{Event, Trace};

use crate::allocation::Allocation;
use crate::function::{Function, Inst, Kind};
use crate::target::Target;

/// How long to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks to execute at most.
    pub blocks: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { blocks: 256 }
    }
}

/// What an instruction means, where a test gives it a meaning: the one unit that it
/// computes from its inputs, or the successor that a branch takes.
pub type Meaning<'a> = dyn Fn(&Function, Inst, &[u64]) -> Option<u64> + 'a;

/// Functions that run together.
#[derive(Clone, Copy)]
pub struct Module<'a> {
    functions: &'a [Function],
    /// Whether calls lead to other functions.
    linked: bool,
    meaning: Option<&'a Meaning<'a>>,
}

impl<'a> Module<'a> {
    /// Functions that call each other: the immediate of a call is the number of the function
    /// it calls. One whose immediate is no such number calls something unknown.
    pub fn new(functions: &'a [Function]) -> Module<'a> {
        Module {
            functions,
            linked: true,
            meaning: None,
        }
    }

    /// The same functions, but `meaning` says what instructions compute where it can.
    pub fn with_meaning(self, meaning: &'a Meaning<'a>) -> Module<'a> {
        Module {
            meaning: Some(meaning),
            ..self
        }
    }

    fn alone(function: &'a Function) -> Module<'a> {
        Module {
            functions: std::slice::from_ref(function),
            linked: false,
            meaning: None,
        }
    }

    /// The function that `inst` calls, where the module has it.
    fn callee(&self, function: &Function, inst: Inst) -> Option<usize> {
        let info = function.inst(inst);
        let calls = self.linked && info.kind == Kind::Call;
        let number = usize::try_from(info.imm).ok().filter(|_| calls)?;
        (number < self.functions.len()).then_some(number)
    }

    /// Executes function `start` before allocation, with `arguments` in its live-ins, unit by
    /// unit; live-ins beyond them get hashes.
    pub fn run_original(
        &self,
        target: &Target,
        start: usize,
        arguments: &[u64],
        limits: Limits,
        seed: u64,
    ) -> Result<Trace, Box<Difference>> {
        let run = original::run(*self, target, (start, arguments), limits, seed)?;
        Ok(run.trace)
    }

    /// Executes it after allocation, each function by the allocation at its number.
    pub fn run_allocated(
        &self,
        target: &Target,
        allocations: &[Allocation],
        start: usize,
        arguments: &[u64],
        limits: Limits,
        seed: u64,
    ) -> Result<Trace, Box<Difference>> {
        let start = (start, arguments);
        let run = machine::run(*self, target, allocations, start, limits, seed, None)?;
        Ok(run.trace)
    }

    /// Executes it before and after and compares; the first difference names where it began.
    pub fn compare(
        &self,
        target: &Target,
        allocations: &[Allocation],
        start: usize,
        arguments: &[u64],
        limits: Limits,
        seed: u64,
    ) -> Result<(), Box<Difference>> {
        let from = (start, arguments);
        let expected = original::run(*self, target, from, limits, seed)?;
        let reads = Some(&expected.reads);
        let got = machine::run(*self, target, allocations, from, limits, seed, reads)?;
        if expected.trace == got.trace {
            return Ok(());
        }
        Err(got.first_wrong_read.unwrap_or_else(|| {
            report::first_event_apart(*self, start, &expected.trace, &got.trace, seed)
        }))
    }
}

/// Executes `function` as it was before allocation.
pub fn run_original(function: &Function, target: &Target, limits: Limits, seed: u64) -> Trace {
    let run = Module::alone(function).run_original(target, 0, &[], limits, seed);
    // Alone, a function is given all arguments that it takes.
    run.unwrap_or_default()
}

/// Executes `function` as `allocation` has it.
pub fn run_allocated(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
    limits: Limits,
    seed: u64,
) -> Result<Trace, Box<Difference>> {
    let allocations = std::slice::from_ref(allocation);
    Module::alone(function).run_allocated(target, allocations, 0, &[], limits, seed)
}

/// Executes both and compares; the first difference names where it began.
pub fn compare(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
    limits: Limits,
    seed: u64,
) -> Result<(), Box<Difference>> {
    let allocations = std::slice::from_ref(allocation);
    Module::alone(function).compare(target, allocations, 0, &[], limits, seed)
}
