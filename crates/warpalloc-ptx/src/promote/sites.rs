//! The local variables of a function, and every mention of a register or such a variable.

use crate::apply::variable_bytes;
use crate::ast::{Body, Declarator, Function, Instruction, Operand, Span, Stmt, VarDecl};
use crate::lower::{Meaning, ModuleNames, Scopes};
use crate::visit::visit_names;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A `.local` variable of a function.
pub(super) struct Candidate<'m, 'a> {
    pub decl: &'m VarDecl<'a>,
    pub declarator: &'m Declarator<'a>,
}

impl<'a> Candidate<'_, 'a> {
    pub fn name(&self) -> &'a str {
        self.declarator.name.text
    }

    /// Its extent, if it is an ordinary variable.
    pub fn bytes(&self) -> Option<u64> {
        let (decl, own) = (self.decl, self.declarator);
        let plain = own.count.is_none()
            && own.init.is_none()
            && own.dims.iter().all(Option::is_some)
            && (kind_and_bits(decl.ty).is_some() || decl.ty == "b128");
        let alone = || VarDecl {
            names: [own.clone()].into_iter().collect(),
            align: None,
            ..decl.clone()
        };
        plain.then(|| variable_bytes(&alone()))
    }
}

/// The `.local` variables declared in a body and in its nested scopes.
pub(super) fn candidates<'m, 'a>(body: &'m Body<'a>) -> Vec<Candidate<'m, 'a>> {
    let mut found = Vec::new();
    for stmt in &body.stmts {
        match stmt {
            Stmt::Var(decl) if decl.space == "local" => {
                found.extend(
                    decl.names
                        .iter()
                        .map(|declarator| Candidate { decl, declarator }),
                );
            }
            Stmt::Scope(inner) => found.extend(candidates(inner)),
            _ => {}
        }
    }
    found
}

/// What a name stands for, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entity {
    /// The candidate of this number.
    Variable(usize),
    /// A register by its declaration and its place in the series.
    Register(u32, u32),
}

/// A name that was resolved.
pub(super) struct Occurrence {
    pub span: Span,
    pub entity: Entity,
    /// Bits of a scalar register; 0 for anything else.
    pub bits: u32,
}

/// An instruction and its names.
pub(super) struct Site<'m, 'a> {
    pub inst: &'m Instruction<'a>,
    pub names: SmallVec<[Occurrence; 4]>,
}

impl<'a> Site<'_, 'a> {
    /// The name that stands at `span`.
    pub fn at(&self, span: Span) -> Option<&Occurrence> {
        self.names.iter().find(|o| o.span == span)
    }

    /// Bits of the scalar register that an operand is.
    pub fn register_bits(&self, operand: &Operand) -> Option<u32> {
        let bits = self.at(operand.as_name()?.span)?.bits;
        (bits > 0).then_some(bits)
    }
}

/// The instructions of a function, and where each entity is mentioned.
pub(super) struct Sites<'m, 'a> {
    sites: Vec<Site<'m, 'a>>,
    mentions: FxHashMap<Entity, Vec<usize>>,
    /// How often each variable name is declared, module included.
    declared: FxHashMap<&'a str, u32>,
}

impl<'m, 'a> Sites<'m, 'a> {
    pub fn of(
        names: &ModuleNames<'a>,
        function: &'m Function<'a>,
        body: &'m Body<'a>,
        candidates: &[Candidate<'m, 'a>],
    ) -> Self {
        let numbered = candidates.iter().enumerate();
        let mut collector = Collector {
            scopes: Scopes::new(names),
            candidates: numbered.map(|(i, c)| (c.name(), i)).collect(),
            sites: Sites {
                sites: Vec::new(),
                mentions: FxHashMap::default(),
                declared: FxHashMap::default(),
            },
        };
        for candidate in candidates {
            if collector.scopes.find(candidate.name()) != Meaning::Unknown {
                *collector
                    .sites
                    .declared
                    .entry(candidate.name())
                    .or_default() += 1;
            }
        }
        for var in function.returns.iter().chain(&function.params) {
            collector.declare(var);
        }
        collector.body(body);
        collector.sites
    }

    pub fn site(&self, index: usize) -> &Site<'m, 'a> {
        &self.sites[index]
    }

    /// The instructions that mention `entity`, in the order of the text.
    pub fn mentions(&self, entity: Entity) -> &[usize] {
        self.mentions.get(&entity).map_or(&[], Vec::as_slice)
    }

    /// Whether a variable's name stands for nothing else, here or in the module.
    pub fn is_unambiguous(&self, name: &str) -> bool {
        self.declared.get(name) == Some(&1)
    }
}

struct Collector<'n, 'm, 'a> {
    scopes: Scopes<'n, 'a>,
    candidates: FxHashMap<&'a str, usize>,
    sites: Sites<'m, 'a>,
}

impl<'m, 'a> Collector<'_, 'm, 'a> {
    fn declare(&mut self, var: &VarDecl<'a>) {
        for name in &var.names {
            *self.sites.declared.entry(name.name.text).or_default() += 1;
        }
        self.scopes.declare_variable(var, false);
    }

    fn body(&mut self, body: &'m Body<'a>) {
        self.scopes.enter([]);
        for stmt in &body.stmts {
            match stmt {
                // A type that is no register type leaves its names unknown, and what is
                // unknown is refused.
                Stmt::Reg(reg) => drop(self.scopes.declare_registers(reg)),
                Stmt::Var(var) => self.declare(var),
                Stmt::Scope(inner) => self.body(inner),
                Stmt::Inst(inst) => self.instruction(inst),
                _ => {}
            }
        }
        self.scopes.leave();
    }

    fn instruction(&mut self, inst: &'m Instruction<'a>) {
        let index = self.sites.sites.len();
        let mut names = SmallVec::new();
        visit_names(inst, |name, _| {
            let (entity, bits) = match self.scopes.find(name.text) {
                Meaning::Register(found) if found.lanes == 1 => {
                    let entity = Entity::Register(found.decl, found.index);
                    (entity, u32::from(found.width.bits()))
                }
                Meaning::Register(found) => (Entity::Register(found.decl, found.index), 0),
                _ => match self.candidates.get(name.text) {
                    Some(&variable) => (Entity::Variable(variable), 0),
                    None => return,
                },
            };
            names.push(Occurrence {
                span: name.span,
                entity,
                bits,
            });
            let mentions = self.sites.mentions.entry(entity).or_default();
            if mentions.last() != Some(&index) {
                mentions.push(index);
            }
        });
        self.sites.sites.push(Site { inst, names });
    }
}

/// The letter and the size of a type that a cell can have.
pub(super) fn kind_and_bits(ty: &str) -> Option<(char, u32)> {
    Some(match ty {
        "b8" => ('b', 8),
        "u8" => ('u', 8),
        "s8" => ('s', 8),
        "b16" => ('b', 16),
        "u16" => ('u', 16),
        "s16" => ('s', 16),
        "b32" => ('b', 32),
        "u32" => ('u', 32),
        "s32" => ('s', 32),
        "f32" => ('f', 32),
        "b64" => ('b', 64),
        "u64" => ('u', 64),
        "s64" => ('s', 64),
        "f64" => ('f', 64),
        _ => return None,
    })
}
