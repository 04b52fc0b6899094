//! Contraction made explicit: which products ptxas fuses into sums, written as `fma`.
//!
//! `mul`, `add` and `sub` without a rounding modifier leave it to the assembler whether a
//! product and a sum are rounded once or twice. What ptxas decides depends on what stands in
//! one block, on how many readers a product has and on their order, so spill code and another
//! order of statements change the last bits of results. This pass takes the decisions first,
//! by ptxas's rule (`docs/ptxas-behaviour.md`), and writes them down: a fused sum becomes
//! `fma.rn`, everything else that has no rounding modifier gets `.rn`. What comes after is
//! bound by that.
//!
//! Where the rule depends on what ptxas does to the flow of control first (unrolled loops,
//! branches that it folds) nothing can be written down: the function stays as it is, and
//! [`ContractedFunction::obstacle`] says why its bits may differ.
//!
//! - `float` says what an instruction is to the rule;
//! - `blocks` says what ptxas sees as one block;
//! - `choose` is the rule;
//! - `unroll` finds what depends on loops;
//! - `rewrite` is the text.

mod blocks;
mod choose;
mod float;
mod rewrite;
#[cfg(test)]
mod tests;
mod unroll;

use crate::ast::{self, Body, Span};
use crate::diag::ParseError;
use crate::lower::{self, LowerError, Lowered, ModuleNames};
use crate::printer::Edits;
use blocks::Chains;
use choose::{Choice, choose};
use rustc_hash::FxHashSet;
use warpalloc::analysis::Order;
use warpalloc::function::{Block, Effect, Function, Inst, Kind, VReg};
use warpalloc::target::Target;

/// What becomes of products and sums without a rounding modifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contraction {
    /// What ptxas fuses becomes `fma.rn`, the rest gets `.rn`: the bits of `-fmad true`,
    /// which is ptxas's default.
    #[default]
    Ptxas,
    /// Everything gets `.rn`: the bits of `-fmad false`.
    Off,
    /// They stay as they are, and so does what ptxas may do with them afterwards.
    Keep,
}

/// What was done to one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ContractedFunction {
    /// Its name.
    pub name: String,
    /// Sums that became `fma`.
    pub fused: usize,
    /// Products and sums that got `.rn`.
    pub rounded: usize,
    /// Why the function stays as it is although it has something to contract.
    pub obstacle: Option<Obstacle>,
    /// Its body as it was.
    pub(crate) original: String,
}

/// What keeps the bits of a function from being foreseen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Obstacle {
    /// What it is.
    pub reason: String,
    /// The statement that is the cause.
    pub span: Span,
}

/// A module with contraction made explicit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contracted {
    /// The new text; its lines are those of the original.
    pub text: String,
    /// One entry per function with a body that was looked at, in the order of the text.
    pub functions: Vec<ContractedFunction>,
}

/// Makes contraction explicit in every function of a module.
///
/// ```
/// use warpalloc_ptx::contract::{Contraction, contract};
/// let source = ".version 9.0\n.target sm_90\n.address_size 64\n.shared .f32 s;\n.entry k() {\n\
///               .reg .f32 %f<5>;\nld.shared.f32 %f1, [s];\nmul.f32 %f2, %f1, %f1;\n\
///               add.f32 %f3, %f2, 0f3F800000;\nst.shared.f32 [s], %f3;\nret;\n}\n";
/// let contracted = contract(source, Contraction::Ptxas)?;
/// assert!(contracted.text.contains("fma.rn.f32 %f3, %f1, %f1, 0f3F800000;"));
/// # Ok::<(), warpalloc_ptx::ParseError>(())
/// ```
pub fn contract(source: &str, contraction: Contraction) -> Result<Contracted, ParseError> {
    contract_where(source, contraction, |_| true)
}

/// Makes contraction explicit in the functions that `wanted` answers for.
///
/// A function that cannot be lowered is left alone: it comes out of allocation as it is.
pub fn contract_where(
    source: &str,
    contraction: Contraction,
    wanted: impl Fn(&str) -> bool,
) -> Result<Contracted, ParseError> {
    let module = crate::parse(source)?;
    let names = ModuleNames::of(&module);
    let stem = rewrite::fresh_stem(source);
    let mut edits = Edits::new();
    let mut functions = Vec::new();
    for function in module.functions().filter(|f| wanted(f.name.text)) {
        let Some(body) = &function.body else { continue };
        if contraction == Contraction::Keep || !float::has_unrounded(body) {
            continue;
        }
        let job = Job {
            source,
            names: &names,
            stem: &stem,
            contraction,
        };
        functions.push(job.function(function, body, &mut edits)?);
    }
    // Edits are made of whole statements, each once, so they cannot conflict.
    let text = edits.apply(source);
    let text = text.map_err(|conflict| ParseError::new(conflict.0, conflict.to_string()))?;
    Ok(Contracted { text, functions })
}

struct Job<'j, 'a> {
    source: &'a str,
    names: &'j ModuleNames<'a>,
    stem: &'j str,
    contraction: Contraction,
}

impl<'a> Job<'_, 'a> {
    fn function(
        &self,
        function: &ast::Function<'a>,
        body: &Body<'a>,
        edits: &mut Edits,
    ) -> Result<ContractedFunction, ParseError> {
        let mut report = ContractedFunction {
            name: function.name.text.to_owned(),
            original: body.span().text(self.source).to_owned(),
            ..ContractedFunction::default()
        };
        // Budgets play no part: any target will do.
        let Ok(target) = Target::preset("hardware", 90) else {
            return Ok(report);
        };
        let lowered = match lower::lower(self.source, self.names, function, body, &target) {
            Ok(lowered) => lowered,
            Err(LowerError::Error(error)) => return Err(*error),
            Err(LowerError::Pass(_)) => return Ok(report),
        };
        let code = Code::of(&lowered);
        let choice = match self.choice(&code, body) {
            Ok(choice) => choice,
            Err(obstacle) => {
                report.obstacle = Some(obstacle);
                return Ok(report);
            }
        };
        report.fused = choice.fused.len();
        report.rounded = rewrite::rewrite(&code, body, &choice, self.stem, edits);
        Ok(report)
    }

    fn choice(&self, code: &Code, body: &Body<'a>) -> Result<Choice, Obstacle> {
        let chains = Chains::of(code);
        let fmad = self.contraction == Contraction::Ptxas;
        let choice = choose(code, &chains, fmad)?;
        unroll::foresee(code, &chains, &choice, body)?;
        Ok(choice)
    }
}

/// A lowered function with what every part of the pass asks of it.
struct Code<'l, 'm, 'a> {
    lowered: &'l Lowered<'m, 'a>,
    /// Whether an instruction contributes to anything observable, by instruction: ptxas
    /// removes dead code before it counts the readers of a product.
    useful: Vec<bool>,
    /// The values that something useful reads further on, by block, at its start.
    live_in: Vec<FxHashSet<VReg>>,
    /// The instructions that read a value, by value.
    readers: Vec<Vec<Inst>>,
    /// The instructions that write a value, by value.
    writers: Vec<Vec<Inst>>,
}

impl<'l, 'm, 'a> Code<'l, 'm, 'a> {
    fn of(lowered: &'l Lowered<'m, 'a>) -> Self {
        let function = &lowered.function;
        let mut readers = vec![Vec::new(); function.vreg_count()];
        let mut writers = vec![Vec::new(); function.vreg_count()];
        for inst in function.insts() {
            for operand in function.operands(inst) {
                let vreg = operand.vreg.as_u32() as usize;
                if operand.role.reads() && readers[vreg].last() != Some(&inst) {
                    readers[vreg].push(inst);
                }
                if operand.role.writes() {
                    writers[vreg].push(inst);
                }
            }
        }
        let (useful, live_in) = useful(function);
        Code {
            lowered,
            useful,
            live_in,
            readers,
            writers,
        }
    }

    fn function(&self) -> &'l Function {
        &self.lowered.function
    }

    fn is_useful(&self, inst: Inst) -> bool {
        self.useful[inst.as_u32() as usize]
    }

    /// The statement of an instruction, with the number of its scope.
    fn statement(&self, inst: Inst) -> Option<(&'m ast::Instruction<'a>, u32)> {
        match self.lowered.codes[inst.as_u32() as usize].source {
            lower::Source::Written { inst, scope, .. } => Some((inst, scope)),
            _ => None,
        }
    }

    fn is_live_in(&self, block: Block, vreg: VReg) -> bool {
        self.live_in[block.as_u32() as usize].contains(&vreg)
    }

    fn is_live_out(&self, block: Block, vreg: VReg) -> bool {
        let mut succs = self.function().succs(block).iter();
        succs.any(|edge| self.is_live_in(edge.block, vreg))
    }

    fn readers(&self, vreg: VReg) -> &[Inst] {
        &self.readers[vreg.as_u32() as usize]
    }

    fn writers(&self, vreg: VReg) -> &[Inst] {
        &self.writers[vreg.as_u32() as usize]
    }

    /// The value that stands at `span` in the text of `inst`, where it is a whole register.
    fn value_at(&self, inst: Inst, span: Span) -> Option<VReg> {
        let code = &self.lowered.codes[inst.as_u32() as usize];
        let found = code.occurrences.iter().find(|o| o.span == span)?;
        (found.lanes == 1).then(|| self.function().operands(inst)[usize::from(found.operand)].vreg)
    }

    /// The value that the operand `number` of a statement stands for.
    fn operand_value(&self, inst: Inst, number: usize) -> Option<VReg> {
        let (statement, _) = self.statement(inst)?;
        let span = float::operand_span(statement.operands.get(number)?)?;
        self.value_at(inst, span)
    }

    fn obstacle(&self, inst: Inst, reason: impl Into<String>) -> Obstacle {
        let span = self.lowered.span(inst);
        Obstacle {
            reason: reason.into(),
            span: span.unwrap_or(self.lowered.ast.name.span),
        }
    }
}

/// What contributes to something observable, reachable code only, and the values that are
/// live into each block.
///
/// A value counts as live where something useful reads it further on; an instruction is
/// useful if it is observable or writes a live value. Readers alone would not do, for a
/// guarded write reads the value that it writes.
fn useful(function: &Function) -> (Vec<bool>, Vec<FxHashSet<VReg>>) {
    let order = Order::compute(function);
    let mut live_in: Vec<FxHashSet<VReg>> = vec![FxHashSet::default(); function.block_count()];
    let mut useful = vec![false; function.inst_count()];
    loop {
        let mut has_grown = false;
        for block in order.postorder() {
            let mut live: FxHashSet<VReg> = FxHashSet::default();
            for edge in function.succs(block) {
                live.extend(&live_in[edge.block.as_u32() as usize]);
            }
            for inst in function.block_insts(block).rev() {
                if !is_observable(function, inst) && !writes_any(function, inst, &live) {
                    continue;
                }
                useful[inst.as_u32() as usize] = true;
                let operands = function.operands(inst);
                for operand in operands.iter().filter(|o| o.role.writes()) {
                    live.remove(&operand.vreg);
                }
                let read = operands.iter().filter(|o| o.role.reads());
                live.extend(read.map(|o| o.vreg));
            }
            // Sets only grow from round to round.
            let old = &mut live_in[block.as_u32() as usize];
            has_grown |= old.len() != live.len();
            *old = live;
        }
        if !has_grown {
            return (useful, live_in);
        }
    }
}

fn is_observable(function: &Function, inst: Inst) -> bool {
    let info = function.inst(inst);
    info.effect == Effect::Write || info.kind.is_terminator() || info.kind == Kind::Call
}

fn writes_any(function: &Function, inst: Inst, live: &FxHashSet<VReg>) -> bool {
    let mut written = function.operands(inst).iter().filter(|o| o.role.writes());
    written.any(|o| live.contains(&o.vreg))
}
