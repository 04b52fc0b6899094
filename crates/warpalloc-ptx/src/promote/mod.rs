//! Memory to registers: `.local` variables that need no address.
//!
//! Compilers put arrays into local memory, and some of them turn out to be accessed at
//! constant offsets only, because a loop was unrolled late or somebody wrote them by hand.
//! Such an array is a row of registers. Promotion happens on the text, before lowering, so
//! that every allocator profits and the model needs no addresses.
//!
//! # When
//!
//! A register is an *address* of a variable if its only definition is the variable's name,
//! a copy, a constant added, or a conversion between generic and local, of another address.
//! Whatever reaches a use, it is that one value, or else the register was read before it was
//! written. A variable is promoted if each mention of it and of its addresses
//! - derives another address, or
//! - is the base of an ordinary `ld` or `st` at a constant offset within its bounds,
//!
//! and if any two of those accesses touch the same bytes or none in common. Everything else
//! (a call, a comparison, an index, a volatile access, another width) refuses the variable
//! as a whole, with a reason. No instruction has to be understood for that: an occurrence
//! that is none of the above is an escape, whether it reads or writes.
//!
//! # How
//!
//! Each accessed place, lane by lane, becomes a register of its width: a *cell*. Stores
//! become moves to it, loads moves from it, under the same guard. Memory converts where the
//! register at an access is wider than what it moves, and so does `cvt`. An 8-bit cell
//! lies in a 16-bit register whose upper half means nothing, as every load extends it.
//! Addresses and the declaration go. Statements stay on their lines, so that messages about
//! the new text point to lines of the old.
//!
//! A load of a place that was never stored to reads a register that was never written:
//! undefined before, undefined after.

pub mod gate;

mod eligible;
#[cfg(test)]
mod judge;
mod rewrite;
mod sites;
#[cfg(test)]
mod tests;

use crate::ast::{self, Body, Item, Module, Stmt};
use crate::diag::ParseError;
use crate::lower::ModuleNames;
use crate::printer::Edits;
use eligible::Plan;
pub use eligible::Reason;
use gate::{Gate, PhaseBudget};
use sites::{Candidate, Sites};

/// A variable that became registers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PromotedVariable {
    /// The function it belongs to.
    pub function: String,
    /// Its name.
    pub name: String,
    /// Bytes of memory it took.
    pub bytes: u64,
    /// Loads and stores that became moves.
    pub accesses: usize,
}

/// A variable that stays in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RefusedVariable {
    /// The function it belongs to.
    pub function: String,
    /// Its name.
    pub name: String,
    /// Why it stays.
    pub reason: Reason,
}

/// A module after promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Promoted {
    /// The new text.
    pub text: String,
    /// What became registers, in the order of the text.
    pub variables: Vec<PromotedVariable>,
    /// What stays in memory, in the order of the text.
    pub refused: Vec<RefusedVariable>,
}

/// Promotes what can be promoted in every function of a module.
///
/// ```
/// let source = ".version 9.0\n.target sm_90\n.address_size 64\n.func f() {\n\
///               .local .b32 x;\n.reg .f32 %f<3>;\n\
///               st.local.f32 [x], %f1;\nld.local.f32 %f2, [x];\nret;\n}\n";
/// let promoted = warpalloc_ptx::promote::promote(source)?;
/// assert_eq!(promoted.variables[0].name, "x");
/// assert!(promoted.text.contains("mov.b32 %f2, %cell_w0;"));
/// # Ok::<(), warpalloc_ptx::ParseError>(())
/// ```
pub fn promote(source: &str) -> Result<Promoted, ParseError> {
    promote_where(source, u32::MAX, |_| true)
}

/// Promotes what can be promoted in at most `budget` of the functions that `wanted` answers
/// for.
pub fn promote_where(
    source: &str,
    budget: u32,
    wanted: impl Fn(&str) -> bool,
) -> Result<Promoted, ParseError> {
    let module = crate::parse(source)?;
    let mut job = Job {
        module: &module,
        names: ModuleNames::of(&module),
        stem: rewrite::fresh_stem(source),
        budget: PhaseBudget(budget),
        edits: Edits::new(),
        variables: Vec::new(),
        refused: Vec::new(),
    };
    for function in module.functions().filter(|f| wanted(f.name.text)) {
        if let Some(body) = &function.body {
            job.function(function, body);
        }
    }
    // Edits are made of whole statements, each once, so they cannot conflict.
    let text = job.edits.apply(source);
    let text = text.map_err(|conflict| ParseError::new(conflict.0, conflict.to_string()))?;
    Ok(Promoted {
        text,
        variables: job.variables,
        refused: job.refused,
    })
}

struct Job<'m, 'a> {
    module: &'m Module<'a>,
    names: ModuleNames<'a>,
    stem: String,
    budget: PhaseBudget,
    edits: Edits,
    variables: Vec<PromotedVariable>,
    refused: Vec<RefusedVariable>,
}

impl<'m, 'a> Job<'m, 'a> {
    fn function(&mut self, function: &'m ast::Function<'a>, body: &'m Body<'a>) {
        let candidates = sites::candidates(body);
        if candidates.is_empty() {
            return;
        }
        let sites = Sites::of(&self.names, function, body, &candidates);
        let mut plans = Vec::new();
        for (index, candidate) in candidates.iter().enumerate() {
            match self.plan(&sites, index, candidate) {
                Ok(plan) => plans.push(plan),
                Err(reason) => self.refuse(function, candidate, reason),
            }
        }
        if let Some(reason) = self.obstacle(&plans) {
            for plan in &plans {
                self.refuse(function, &candidates[plan.candidate], reason.clone());
            }
            return;
        }
        rewrite::rewrite(
            self.module.source,
            body,
            &sites,
            &candidates,
            &plans,
            &self.stem,
            &mut self.edits,
        );
        self.variables.extend(plans.iter().map(|plan| {
            let candidate = &candidates[plan.candidate];
            PromotedVariable {
                function: function.name.text.to_owned(),
                name: candidate.name().to_owned(),
                bytes: plan.bytes,
                accesses: plan.accesses.len(),
            }
        }));
    }

    fn plan(
        &self,
        sites: &Sites<'m, 'a>,
        index: usize,
        candidate: &Candidate<'m, 'a>,
    ) -> Result<Plan<'a>, Reason> {
        let name = candidate.name();
        if self.is_in_directives(name) {
            return Err(Reason::NamedByDirective);
        }
        eligible::plan(sites, index, candidate, self.module.address_size)
    }

    /// Whether debug information or the like, which is kept as text, may mention a name.
    fn is_in_directives(&self, name: &str) -> bool {
        self.module.items.iter().any(|item| match item {
            Item::Directive(directive) => has_word(directive.args, name),
            Item::Function(function) => function
                .body
                .as_ref()
                .is_some_and(|body| body_names(body, name)),
            _ => false,
        })
    }

    /// What keeps a whole function from being promoted.
    fn obstacle(&mut self, plans: &[Plan]) -> Option<Reason> {
        let accesses = plans.iter().flat_map(|plan| &plan.accesses);
        if plans.is_empty() {
            None
        } else if !Gate::default().admits(accesses.map(|access| access.bytes())) {
            Some(Reason::Gate)
        } else if !self.budget.consume() {
            Some(Reason::Budget)
        } else {
            None
        }
    }

    fn refuse(&mut self, function: &ast::Function, candidate: &Candidate, reason: Reason) {
        self.refused.push(RefusedVariable {
            function: function.name.text.to_owned(),
            name: candidate.name().to_owned(),
            reason,
        });
    }
}

fn body_names(body: &Body, name: &str) -> bool {
    body.stmts.iter().any(|stmt| match stmt {
        Stmt::Directive(directive) => has_word(directive.args, name),
        Stmt::Scope(inner) => body_names(inner, name),
        _ => false,
    })
}

/// Whether `name` stands in a text by itself rather than as part of a longer name.
fn has_word(text: &str, name: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || "_$%".contains(c);
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        !before.ends_with(in_name) && !after.starts_with(in_name)
    })
}
