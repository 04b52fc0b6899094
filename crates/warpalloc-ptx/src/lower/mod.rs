//! From a function's body to the model that allocation works on.
//!
//! Each register that the body mentions becomes a virtual register, statements become
//! blocks of instructions whose operands have the roles that the opcode table gives them.
//! What PTX leaves open and the model does not is settled here:
//! - a guarded definition may not happen, so it reads and writes its register;
//! - a guarded `ret` or `exit` is an observable instruction that execution may pass;
//! - a label that falls from one block into the next gets a branch without code;
//! - registers that may be read unwritten get an undefined value first (see `draft`);
//! - registers in a function's signature stay what they are; the body works on copies;
//! - registers that hardware uses beyond an instruction (`wgmma`, `tcgen05.ld`) are pinned
//!   until they are waited for (see `flight`);
//! - independent values that share a name become separate virtual registers.
//!
//! What the table does not cover is never guessed at: the function is passed through
//! ([`PassedThrough`]). What is wrong with the text itself is an error.

pub(crate) mod alias;
mod async_regs;
mod builder;
mod explain;
mod instruction;
mod names;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use names::{Meaning, ModuleNames, Scopes};

use crate::ast::{self, Body, Instruction, NameList, Span, Stmt, VarDecl};
use crate::diag::ParseError;
use crate::opcode::{Control, Width};
use builder::{Draft, DraftBlock, DraftInst};
use names::Labels;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;
use std::hash::Hasher;
use std::sync::OnceLock;
use warpalloc::analysis::{Liveness, Webs};
use warpalloc::function::{Effect, Function, Inst, Kind, Operand, VReg};
use warpalloc::target::{File, Target};

/// Why a function is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PassedThrough {
    /// What stands against allocating it.
    pub reason: String,
    /// The text that is the cause.
    pub span: Span,
}

/// Why lowering ended early.
#[derive(Debug)]
pub enum LowerError {
    /// The text is wrong.
    Error(Box<ParseError>),
    /// The text may be right, but is beyond what is understood.
    Pass(PassedThrough),
}

impl LowerError {
    fn pass(span: Span, reason: impl Into<String>) -> LowerError {
        let reason = reason.into();
        LowerError::Pass(PassedThrough { reason, span })
    }
}

impl From<ParseError> for LowerError {
    fn from(error: ParseError) -> LowerError {
        LowerError::Error(Box::new(error))
    }
}

/// A register as it stands in the text of an instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occurrence {
    /// The text to replace.
    pub span: Span,
    /// The first operand that it stands for.
    pub operand: u8,
    /// How many operands: more than one for a vector register.
    pub lanes: u8,
    /// Whether braces must go around the names that replace it.
    pub braces: bool,
}

/// Where an instruction of the model comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source<'m, 'a> {
    /// A statement, in this scope.
    Written {
        inst: &'m Instruction<'a>,
        scope: u32,
        anchored: bool,
    },
    /// It has no text.
    Nothing,
    /// A copy from a register of the signature.
    Receive { name: &'a str, width: Width },
    /// A copy into a register of the signature.
    Deliver { name: &'a str, width: Width },
}

/// The text of an instruction of the model.
#[derive(Clone, Debug)]
pub(crate) struct Code<'m, 'a> {
    pub source: Source<'m, 'a>,
    /// The end of the statement before it, where text goes that stands for it.
    pub at: u32,
    pub occurrences: SmallVec<[Occurrence; 4]>,
}

impl<'m, 'a> Code<'m, 'a> {
    fn unwritten(at: u32, source: Source<'m, 'a>) -> Self {
        Code {
            source,
            at,
            occurrences: SmallVec::new(),
        }
    }

    /// Whether the statement names what only its own braces declare.
    fn is_anchored(&self) -> bool {
        matches!(self.source, Source::Written { anchored: true, .. })
    }

    fn nothing(at: u32) -> Self {
        Code::unwritten(at, Source::Nothing)
    }
}

/// The label behind an edge; an edge without one falls through.
pub(crate) type EdgeLabel<'a> = Option<(u32, &'a str)>;

/// A function in the model, with everything that applying an allocation needs.
pub struct Lowered<'m, 'a> {
    /// The function to allocate.
    pub function: Function,
    /// The function it was made from.
    pub ast: &'m ast::Function<'a>,
    /// Whether it calls others.
    pub has_calls: bool,
    pub(crate) source: &'a str,
    /// By instruction.
    pub(crate) codes: Vec<Code<'m, 'a>>,
    /// The label of each edge, by block; its scope is where the label is declared.
    pub(crate) edge_labels: Vec<SmallVec<[EdgeLabel<'a>; 2]>>,
    /// The bodies of all scopes by number, the function's own first.
    pub(crate) scopes: Vec<&'m Body<'a>>,
    /// Register declarations, to be replaced.
    pub(crate) reg_decls: Vec<Span>,
    /// The fewest registers it needs in the order of its text, once somebody asked.
    pub(crate) floor: OnceLock<usize>,
}

impl Lowered<'_, '_> {
    /// The text of the statement that `inst` was made from, where it has one.
    pub fn span(&self, inst: Inst) -> Option<Span> {
        match self.codes[inst.as_u32() as usize].source {
            Source::Written { inst, .. } => Some(inst.span),
            _ => None,
        }
    }
}

/// Lowers one function with a body.
pub(crate) fn lower<'m, 'a>(
    source: &'a str,
    names: &'m ModuleNames<'a>,
    function: &'m ast::Function<'a>,
    body: &'m Body<'a>,
    target: &'m Target,
) -> Result<Lowered<'m, 'a>, LowerError> {
    let mut lowering = Lowering {
        source,
        target,
        units_per_register: target.file(File::R).units_per_reg as u8,
        scopes: Scopes::new(names),
        labels: Labels::default(),
        lists: FxHashMap::default(),
        scope: 0,
        in_braces: FxHashSet::default(),
        draft: Draft::default(),
        vregs: FxHashMap::default(),
        blocks_of_labels: FxHashMap::default(),
        targets: Vec::new(),
        bodies: Vec::new(),
        reg_decls: Vec::new(),
        returned: Vec::new(),
        has_calls: false,
        at: body.open + 1,
    };
    lowering.find_labels(body, None)?;
    lowering.function(function, body)?;
    lowering.finish(function)
}

/// Where a block goes on.
#[derive(Clone, Copy)]
enum Goal<'a> {
    Next,
    /// A label by the scope that declares it.
    Label(u32, &'a str),
}

struct Lowering<'m, 'a> {
    source: &'a str,
    target: &'m Target,
    units_per_register: u8,
    scopes: Scopes<'m, 'a>,
    labels: Labels<'a>,
    /// Lists of branch targets by scope and label.
    lists: FxHashMap<(u32, &'a str), &'m NameList<'a>>,
    scope: u32,
    /// Names that braces within the body declare: what they stand for depends on the place.
    in_braces: FxHashSet<&'a str>,
    draft: Draft<'m, 'a>,
    /// First virtual register by declaration and position.
    vregs: FxHashMap<(u32, u32), u32>,
    blocks_of_labels: FxHashMap<(u32, &'a str), u32>,
    /// Where each finished block goes, in the order of its edges.
    targets: Vec<SmallVec<[Goal<'a>; 2]>>,
    bodies: Vec<&'m Body<'a>>,
    reg_decls: Vec<Span>,
    /// Registers of the signature that carry results.
    returned: Vec<(VReg, &'a str, Width)>,
    has_calls: bool,
    /// The end of the last statement.
    at: u32,
}

impl<'m, 'a> Lowering<'m, 'a> {
    /// Numbers the scopes in the order of the text and collects their labels.
    fn find_labels(&mut self, body: &'m Body<'a>, parent: Option<u32>) -> Result<(), LowerError> {
        let scope = self.labels.scope(parent);
        self.bodies.push(body);
        for stmt in &body.stmts {
            let label = match stmt {
                Stmt::Label(label) => label.name,
                Stmt::BranchTargets(list) => {
                    self.lists.insert((scope, list.label.text), list);
                    list.label
                }
                Stmt::CallTargets(list) => list.label,
                Stmt::CallPrototype(prototype) => prototype.label,
                Stmt::Scope(inner) => {
                    self.find_labels(inner, Some(scope))?;
                    continue;
                }
                Stmt::Var(var) if parent.is_some() => {
                    let names = var.names.iter().map(|declarator| declarator.name.text);
                    self.in_braces.extend(names);
                    continue;
                }
                _ => continue,
            };
            if !self.labels.declare(scope, label.text) {
                let message = format!("label `{}` is declared twice", label.text);
                return Err(ParseError::new(label.span, message).into());
            }
        }
        Ok(())
    }

    fn function(
        &mut self,
        function: &'m ast::Function<'a>,
        body: &'m Body<'a>,
    ) -> Result<(), LowerError> {
        self.draft.blocks.push(DraftBlock::default());
        self.scopes.enter(labels_of(body));
        for var in &function.params {
            self.signature(var, function.is_entry, true)?;
        }
        for var in &function.returns {
            self.signature(var, false, false)?;
        }
        self.statements(body)?;
        self.scopes.leave();
        if self.is_open() {
            // Running off the end returns.
            self.deliver_results();
            let code = Code::nothing(self.at);
            let mut end = bare("ret", Kind::Return, code);
            end.effect = Effect::Write;
            self.end_block(end, SmallVec::new());
        }
        Ok(())
    }

    /// Declares a parameter or result; one in a register is copied into or out of the body.
    fn signature(
        &mut self,
        var: &VarDecl<'a>,
        kernel_parameter: bool,
        is_input: bool,
    ) -> Result<(), LowerError> {
        if var.space != "reg" {
            self.scopes.declare_variable(var, kernel_parameter);
            return Ok(());
        }
        let width =
            names::register_width(var.ty).filter(|_| var.vector == 1 && !var.ty.ends_with('8'));
        let (Some(width), [declarator]) = (width, var.names.as_slice()) else {
            let reason = "a register of this type in the signature of a function";
            return Err(LowerError::pass(var.span, reason));
        };
        let name = declarator.name.text;
        self.scopes.declare_register(name, None, width, 1);
        let Meaning::Register(declared) = self.scopes.find(name) else {
            return Ok(());
        };
        let vreg = self.vreg(declared);
        if is_input {
            let code = Code::unwritten(self.at, Source::Receive { name, width });
            let mut receive = bare("receive", Kind::Plain, code);
            receive.imm = hash(name);
            receive.operands.push(Operand::writes(vreg));
            self.push(receive);
        } else {
            self.returned.push((vreg, name, width));
        }
        Ok(())
    }

    fn deliver_results(&mut self) {
        for (vreg, name, width) in self.returned.clone() {
            let code = Code::unwritten(self.at, Source::Deliver { name, width });
            let mut deliver = bare("deliver", Kind::Plain, code);
            deliver.imm = hash(name);
            deliver.effect = Effect::Write;
            deliver.operands.push(Operand::reads(vreg));
            self.push(deliver);
        }
    }

    fn statements(&mut self, body: &'m Body<'a>) -> Result<(), LowerError> {
        for stmt in &body.stmts {
            match stmt {
                Stmt::Inst(inst) => self.statement(inst)?,
                Stmt::Label(label) => {
                    self.start_block_at_label(label.name.text);
                    self.at = label.span.end;
                }
                Stmt::Reg(reg) => {
                    self.scopes.declare_registers(reg).map_err(|ty| {
                        LowerError::from(ParseError::new(
                            reg.span,
                            format!("`.{ty}` is no type for a register"),
                        ))
                    })?;
                    self.reg_decls.push(reg.span);
                }
                Stmt::Var(var) => self.scopes.declare_variable(var, false),
                Stmt::Scope(inner) => {
                    let outer = self.scope;
                    self.scope = self.next_scope(inner);
                    self.scopes.enter(labels_of(inner));
                    self.statements(inner)?;
                    self.scopes.leave();
                    self.scope = outer;
                }
                Stmt::Directive(_)
                | Stmt::BranchTargets(_)
                | Stmt::CallTargets(_)
                | Stmt::CallPrototype(_)
                | Stmt::Empty(_) => {}
            }
        }
        Ok(())
    }

    /// The number that [`Self::find_labels`] gave a scope.
    fn next_scope(&self, body: &'m Body<'a>) -> u32 {
        // Scopes were numbered in the order of the text, so their braces ascend.
        let found = self.bodies.binary_search_by_key(&body.open, |b| b.open);
        found.unwrap_or(0) as u32
    }

    fn statement(&mut self, inst: &'m Instruction<'a>) -> Result<(), LowerError> {
        if inst.mnemonic == "ret" {
            self.deliver_results();
        }
        let (draft, description) = self.instruction(inst)?;
        let guarded = inst.guard.is_some();
        self.has_calls |= description.control == Control::Call;
        match description.control {
            Control::Branch => {
                let goal = self.goal(inst)?;
                let mut goals = SmallVec::from_slice(&[goal]);
                if guarded {
                    goals.push(Goal::Next);
                }
                self.end_block(draft, goals);
            }
            Control::IndirectBranch => {
                let mut goals = self.goals_of_list(inst)?;
                if guarded {
                    goals.push(Goal::Next);
                }
                self.end_block(draft, goals);
            }
            Control::Return | Control::Exit if !guarded => {
                self.end_block(draft, SmallVec::new());
            }
            _ => self.push(draft),
        }
        self.at = inst.span.end;
        Ok(())
    }

    fn goal(&self, inst: &Instruction<'a>) -> Result<Goal<'a>, LowerError> {
        let name = inst.operands.last().and_then(|operand| operand.as_name());
        let Some(name) = name else {
            return Err(LowerError::pass(
                inst.span,
                "a branch to something that is no label",
            ));
        };
        self.label(name)
    }

    fn label(&self, name: ast::Name<'a>) -> Result<Goal<'a>, LowerError> {
        match self.labels.home(self.scope, name.text) {
            Some(home) => Ok(Goal::Label(home, name.text)),
            None => {
                let message = format!("there is no label `{}`", name.text);
                Err(ParseError::new(name.span, message).into())
            }
        }
    }

    fn goals_of_list(&self, inst: &Instruction<'a>) -> Result<SmallVec<[Goal<'a>; 2]>, LowerError> {
        let name = inst.operands.last().and_then(|operand| operand.as_name());
        let list = name.and_then(|name| {
            let home = self.labels.home(self.scope, name.text)?;
            self.lists.get(&(home, name.text))
        });
        let Some(list) = list else {
            return Err(LowerError::pass(
                inst.span,
                "an indirect branch without a list of targets",
            ));
        };
        let mut goals = SmallVec::new();
        for series in &list.names {
            if series.count.is_some() {
                let reason = "a series of labels as branch targets";
                return Err(LowerError::pass(series.name.span, reason));
            }
            goals.push(self.label(series.name)?);
        }
        Ok(goals)
    }

    /// Whether the current block still wants instructions.
    fn is_open(&self) -> bool {
        self.targets.len() < self.draft.blocks.len()
    }

    fn open_block(&mut self) {
        if !self.is_open() {
            self.draft.blocks.push(DraftBlock::default());
        }
    }

    fn push(&mut self, inst: DraftInst<'m, 'a>) {
        self.open_block();
        if let Some(block) = self.draft.blocks.last_mut() {
            block.insts.push(inst);
        }
    }

    fn end_block(&mut self, inst: DraftInst<'m, 'a>, goals: SmallVec<[Goal<'a>; 2]>) {
        self.push(inst);
        self.targets.push(goals);
    }

    fn start_block_at_label(&mut self, label: &'a str) {
        // The entry must have no predecessors: it stays a block of its own.
        if self.is_open() {
            let fall = bare("fall", Kind::Branch, Code::nothing(self.at));
            self.end_block(fall, SmallVec::from_slice(&[Goal::Next]));
        }
        self.draft.blocks.push(DraftBlock::default());
        let block = self.draft.blocks.len() as u32 - 1;
        self.blocks_of_labels.insert((self.scope, label), block);
    }

    fn finish(mut self, function: &'m ast::Function<'a>) -> Result<Lowered<'m, 'a>, LowerError> {
        self.close_guarded_end();
        let mut edge_labels = Vec::with_capacity(self.targets.len());
        for (index, goals) in self.targets.iter().enumerate() {
            let mut labels = SmallVec::new();
            for goal in goals {
                let (block, label) = match *goal {
                    Goal::Next => (index as u32 + 1, None),
                    Goal::Label(scope, name) => match self.blocks_of_labels.get(&(scope, name)) {
                        Some(&block) => (block, Some((scope, name))),
                        None => {
                            let reason = format!("a branch to `{name}`, which marks no code");
                            return Err(LowerError::pass(function.name.span, reason));
                        }
                    },
                };
                self.draft.blocks[index].succs.push(block);
                labels.push(label);
            }
            edge_labels.push(labels);
        }
        let name = function.name.text;
        let in_flight = async_regs::land(&mut self.draft)
            .map_err(|reason| LowerError::pass(function.name.span, reason))?;
        self.draft.define_what_may_be_undefined();
        let model = self.draft.build(name, self.target);
        let webs = Webs::compute(&model, &Liveness::compute(&model));
        let model = match in_flight.is_empty() {
            // Aliases and contraction follow names to their definition, so names are taken
            // apart here and not only by allocation. Instructions and operands keep their
            // numbers.
            true => webs.split(&model),
            false => {
                async_regs::settle(&mut self.draft, &webs, &in_flight);
                self.draft.build(name, self.target)
            }
        };
        let model = alias::classify(model, &self.draft.addressing());
        Ok(Lowered {
            function: model,
            ast: function,
            has_calls: self.has_calls,
            source: self.source,
            codes: self.draft.into_codes(),
            edge_labels,
            scopes: self.bodies,
            reg_decls: self.reg_decls,
            floor: OnceLock::new(),
        })
    }

    /// A body may end in a guarded branch: what falls out of it returns.
    fn close_guarded_end(&mut self) {
        let falls = |goal: &Goal| matches!(goal, Goal::Next);
        let open_end = self
            .targets
            .last()
            .is_some_and(|goals| goals.iter().any(falls));
        if open_end {
            self.deliver_results();
            let mut end = bare("ret", Kind::Return, Code::nothing(self.at));
            end.effect = Effect::Write;
            self.end_block(end, SmallVec::new());
        }
    }
}

fn labels_of<'m, 'a>(body: &'m Body<'a>) -> impl Iterator<Item = &'a str> + use<'m, 'a> {
    body.stmts.iter().filter_map(|stmt| match stmt {
        Stmt::Label(label) => Some(label.name.text),
        Stmt::BranchTargets(list) | Stmt::CallTargets(list) => Some(list.label.text),
        Stmt::CallPrototype(prototype) => Some(prototype.label.text),
        _ => None,
    })
}

/// An instruction without operands or effects.
fn bare<'m, 'a>(opcode: &str, kind: Kind, code: Code<'m, 'a>) -> DraftInst<'m, 'a> {
    DraftInst {
        opcode: opcode.to_owned(),
        imm: 0,
        effect: Effect::Pure,
        kind,
        remat: None,
        operands: SmallVec::new(),
        groups: SmallVec::new(),
        flight: async_regs::Flight::None,
        addressing: alias::Addressing::default(),
        code,
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}
