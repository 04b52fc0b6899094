//! Presents parsed PTX to the table, and checks the widths it demands against the declarations.

use crate::ast::{self, Body, Function, Instruction, RegDecl, Stmt};
use crate::opcode::modifier::{type_bits, width_of_bits};
use crate::opcode::*;
use rustc_hash::FxHashMap;

/// What the innermost declaration of a name says.
#[derive(Clone, Copy)]
struct Declared {
    width: Width,
    vector: u8,
    /// How many numbered registers the name stands for.
    count: Option<u32>,
}

/// The registers and kernel parameters that can be named at some place.
#[derive(Default)]
pub(super) struct Names<'a> {
    scopes: Vec<FxHashMap<&'a str, Declared>>,
    parameters: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn declare(&mut self, declaration: &RegDecl<'a>) {
        let bits = type_bits(declaration.ty.trim_start_matches('.')).expect("a type of registers");
        let width = width_of_bits(bits).expect("a width of registers");
        for name in &declaration.names {
            let declared = Declared {
                width,
                vector: declaration.vector,
                count: name.count,
            };
            self.scopes
                .last_mut()
                .expect("a scope")
                .insert(name.name.text, declared);
        }
    }

    fn register(&self, name: &str) -> Option<Declared> {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[stem.len()..].parse::<u32>();
        self.scopes.iter().rev().find_map(|scope| {
            let numbered = || {
                scope
                    .get(stem)
                    .filter(|d| number.as_ref().is_ok_and(|n| d.count > Some(*n)))
            };
            scope
                .get(name)
                .filter(|d| d.count.is_none())
                .or_else(numbered)
                .copied()
        })
    }

    fn shape(&self, operand: &ast::Operand<'a>) -> OperandShape {
        match operand {
            ast::Operand::Ident(name) => self.name(name.text),
            ast::Operand::Component(part) => match special_register(part.text()) {
                Some(special) => of_special(special),
                None => OperandShape::Register,
            },
            ast::Operand::Not(_) | ast::Operand::Neg(_) => OperandShape::Register,
            ast::Operand::Int { .. } | ast::Operand::Float { .. } => OperandShape::Constant,
            ast::Operand::Expr(e) if e.names.is_empty() => OperandShape::Constant,
            ast::Operand::Expr(_) | ast::Operand::Element(_) => OperandShape::Symbol,
            ast::Operand::Vector(lanes) => OperandShape::Vector(lanes.len() as u8),
            ast::Operand::Sink(_) => OperandShape::Sink,
            ast::Operand::Pair(pair) => match &pair.0 {
                ast::Operand::Vector(lanes) => OperandShape::Pair {
                    lanes: lanes.len() as u8,
                },
                _ => OperandShape::Pair { lanes: 0 },
            },
            ast::Operand::Memory(memory) => OperandShape::Memory(self.address(memory)),
            ast::Operand::Paren(_) => OperandShape::List,
        }
    }

    fn name(&self, name: &str) -> OperandShape {
        match (self.register(name), special_register(name)) {
            (Some(Declared { vector, .. }), _) if vector > 1 => OperandShape::Vector(vector),
            (Some(_), _) => OperandShape::Register,
            (None, Some(special)) => of_special(special),
            (None, None) => OperandShape::Symbol,
        }
    }

    fn address(&self, memory: &ast::Memory<'a>) -> AddressShape {
        let symbol = |operand: &ast::Operand<'a>| match operand {
            ast::Operand::Ident(name) if self.register(name.text).is_none() => Some(name.text),
            _ => None,
        };
        match symbol(&memory.base) {
            None => AddressShape::Registers,
            Some(name) if self.parameters.contains(&name) => AddressShape::KernelParameter,
            Some(_) => AddressShape::Fixed,
        }
    }

    /// The widths of the plain registers of an operand.
    fn widths(&self, operand: &ast::Operand<'a>) -> Vec<Width> {
        match operand {
            ast::Operand::Ident(name) | ast::Operand::Not(name) => self
                .register(name.text)
                .map(|d| d.width)
                .into_iter()
                .collect(),
            ast::Operand::Vector(lanes) => {
                lanes.iter().flat_map(|lane| self.widths(lane)).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn of_special(
    SpecialReg {
        volatile, lanes, ..
    }: SpecialReg,
) -> OperandShape {
    OperandShape::Special { volatile, lanes }
}

/// Describes an instruction, and says which register has a width that the description does not admit.
pub(super) fn describe_parsed<'a>(
    names: &Names<'a>,
    instruction: &Instruction<'a>,
) -> Result<Description, String> {
    let operands: Vec<OperandShape> = instruction
        .operands
        .iter()
        .map(|o| names.shape(o))
        .collect();
    let shape = InstrShape {
        mnemonic: instruction.mnemonic,
        modifiers: &instruction.modifiers,
        operands: &operands,
    };
    let description = describe(&shape).map_err(|unknown| unknown.to_string())?;
    for (operand, described) in instruction.operands.iter().zip(&description.operands) {
        let demands = match (described.role, operand) {
            (OperandRole::DefPair(first, second), ast::Operand::Pair(pair)) => {
                vec![
                    (first, names.widths(&pair.0)),
                    (second, names.widths(&pair.1)),
                ]
            }
            (OperandRole::Def(ty) | OperandRole::Use(ty) | OperandRole::UseDef(ty), operand) => {
                vec![(ty, names.widths(operand))]
            }
            _ => Vec::new(),
        };
        for (ty, widths) in demands {
            if let Some(width) = widths.iter().find(|width| !ty.admits(**width)) {
                return Err(format!(
                    "`{}`: {ty:?} does not admit {width:?}",
                    instruction.opcode()
                ));
            }
        }
    }
    Ok(description)
}

/// Calls `then` for every instruction of a function, with the names in scope there.
pub(super) fn for_each<'a>(
    function: &Function<'a>,
    mut then: impl FnMut(&Names<'a>, &Instruction<'a>),
) {
    let mut names = Names::default();
    if function.is_entry {
        names.parameters = function
            .params
            .iter()
            .flat_map(|p| &p.names)
            .map(|d| d.name.text)
            .collect();
    }
    names.scopes.push(FxHashMap::default());
    for parameter in function.params.iter().chain(&function.returns) {
        if let (true, Some(bits)) = (
            parameter.space.trim_start_matches('.') == "reg",
            type_bits(parameter.ty),
        ) {
            let width = width_of_bits(bits).expect("a width of registers");
            let declared = Declared {
                width,
                vector: parameter.vector,
                count: None,
            };
            names.scopes[0].extend(parameter.names.iter().map(|d| (d.name.text, declared)));
        }
    }
    if let Some(body) = &function.body {
        walk(body, &mut names, &mut then);
    }
}

fn walk<'a>(
    body: &Body<'a>,
    names: &mut Names<'a>,
    then: &mut impl FnMut(&Names<'a>, &Instruction<'a>),
) {
    names.scopes.push(FxHashMap::default());
    for stmt in &body.stmts {
        match stmt {
            Stmt::Reg(declaration) => names.declare(declaration),
            Stmt::Scope(inner) => walk(inner, names, then),
            Stmt::Inst(instruction) => then(names, instruction),
            _ => {}
        }
    }
    names.scopes.pop();
}
