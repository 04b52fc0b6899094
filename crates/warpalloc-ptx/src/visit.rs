//! Every name of an instruction, in the order of the text.

use crate::ast::{Instruction, Memory, Name, Operand};

/// Where in an instruction a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Which operand, from 0; the guard has none.
    pub operand: Option<u16>,
    /// Where in that operand.
    pub place: Place,
    /// Whether the name is part of an address, `[…]`: then it is read, whatever the
    /// instruction does with the memory.
    pub in_memory: bool,
}

/// Where in an operand a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `@p`
    Guard,
    /// The operand is the name, perhaps negated or with a component; or, in an address,
    /// the base.
    Plain,
    /// The given lane of a vector `{a, b}`.
    Lane(u16),
    /// The first half of `d|p`.
    PairFirst,
    /// The second half of `d|p`.
    PairSecond,
    /// What an address adds to its base, or the index of an array element.
    Offset,
    /// Behind the given comma of an address, vectors included.
    Element(u16),
    /// In a constant expression.
    Expression,
    /// The given result of a call.
    CallReturn(u16),
    /// The given argument of a call.
    CallArgument(u16),
}

/// Calls `visit` with each name of an instruction, guard first, in the order of the text.
/// A register with a component, `%v.x`, is visited as `%v`.
pub fn visit_names<'a>(inst: &Instruction<'a>, mut visit: impl FnMut(Name<'a>, Context)) {
    if let Some(guard) = &inst.guard {
        visit(
            guard.reg,
            Context {
                operand: None,
                place: Place::Guard,
                in_memory: false,
            },
        );
    }
    for (index, operand) in inst.operands.iter().enumerate() {
        let context = Context {
            operand: Some(index as u16),
            place: Place::Plain,
            in_memory: false,
        };
        visit_operand(operand, context, &mut visit);
    }
}

/// Visits the names of one operand; `context` tells where it stands.
fn visit_operand<'a>(
    operand: &Operand<'a>,
    context: Context,
    visit: &mut impl FnMut(Name<'a>, Context),
) {
    match operand {
        Operand::Ident(name) | Operand::Not(name) => visit(*name, context),
        Operand::Component(component) => visit(component.name(), context),
        Operand::Neg(inner) => visit_operand(inner, context, visit),
        Operand::Int { .. } | Operand::Float { .. } | Operand::Sink(_) => {}
        Operand::Expr(expr) => {
            for name in &expr.names {
                visit(*name, context.at(Place::Expression));
            }
        }
        Operand::Vector(lanes) => visit_all(lanes, context, Place::Lane, visit),
        Operand::Paren(items) if context.operand == Some(0) => {
            visit_all(items, context, Place::CallReturn, visit);
        }
        Operand::Paren(items) => visit_all(items, context, Place::CallArgument, visit),
        Operand::Pair(pair) => {
            visit_operand(&pair.0, context.at(Place::PairFirst), visit);
            visit_operand(&pair.1, context.at(Place::PairSecond), visit);
        }
        Operand::Element(element) => {
            visit(element.name, context);
            visit_operand(&element.index, context.at(Place::Offset), visit);
        }
        Operand::Memory(memory) => visit_memory(memory, context, visit),
    }
}

fn visit_all<'a>(
    items: &[Operand<'a>],
    context: Context,
    place: fn(u16) -> Place,
    visit: &mut impl FnMut(Name<'a>, Context),
) {
    for (lane, item) in items.iter().enumerate() {
        // Coordinates stay where the address has them: the outer place says more.
        let context = match context.place {
            Place::Element(_) => context,
            _ => context.at(place(lane as u16)),
        };
        visit_operand(item, context, visit);
    }
}

fn visit_memory<'a>(
    memory: &Memory<'a>,
    context: Context,
    visit: &mut impl FnMut(Name<'a>, Context),
) {
    let context = Context {
        in_memory: true,
        ..context
    };
    visit_operand(&memory.base, context.at(Place::Plain), visit);
    if let Some(offset) = &memory.offset {
        visit_operand(offset, context.at(Place::Offset), visit);
    }
    for (index, element) in memory.elements.iter().enumerate() {
        visit_operand(element, context.at(Place::Element(index as u16)), visit);
    }
}

impl Context {
    fn at(self, place: Place) -> Self {
        Context { place, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Stmt;

    /// Names with their contexts, checked to come in the order of the text.
    fn names(instruction: &str) -> Vec<(String, Option<u16>, Place, bool)> {
        let source = format!(".version 9.0\n.target sm_90\n.entry k() {{ {instruction} }}");
        let module = crate::parse(&source).unwrap();
        let body = module.functions().next().unwrap().body.as_ref().unwrap();
        let Stmt::Inst(inst) = &body.stmts[0] else {
            panic!("no instruction")
        };
        let mut found = Vec::new();
        let mut last = 0;
        visit_names(inst, |name, context| {
            assert_eq!(name.text, name.span.text(&source));
            assert!(name.span.start >= last);
            last = name.span.end;
            found.push((
                name.text.to_owned(),
                context.operand,
                context.place,
                context.in_memory,
            ));
        });
        found
    }

    #[test]
    fn contexts_of_ordinary_operands() {
        let at = |text: &str, operand, place, memory| (text.to_owned(), operand, place, memory);
        assert_eq!(
            names("@!%p1 shfl.sync.idx.b32 %r1|%p2, {%r2, _, %v.x}, !%q, -%a.b0, 7;"),
            [
                at("%p1", None, Place::Guard, false),
                at("%r1", Some(0), Place::PairFirst, false),
                at("%p2", Some(0), Place::PairSecond, false),
                at("%r2", Some(1), Place::Lane(0), false),
                at("%v", Some(1), Place::Lane(2), false),
                at("%q", Some(2), Place::Plain, false),
                at("%a", Some(3), Place::Plain, false),
            ]
        );
    }

    #[test]
    fn contexts_of_addresses_and_calls() {
        let at = |text: &str, operand, place, memory| (text.to_owned(), operand, place, memory);
        assert_eq!(
            names("x [%rd1+%r2], [tex, samp, {%f1, %f2}], a[%r3], sym+4;"),
            [
                at("%rd1", Some(0), Place::Plain, true),
                at("%r2", Some(0), Place::Offset, true),
                at("tex", Some(1), Place::Plain, true),
                at("samp", Some(1), Place::Element(0), true),
                at("%f1", Some(1), Place::Element(1), true),
                at("%f2", Some(1), Place::Element(1), true),
                at("a", Some(2), Place::Plain, false),
                at("%r3", Some(2), Place::Offset, false),
                at("sym", Some(3), Place::Expression, false),
            ]
        );
        assert_eq!(
            names("call.uni (r0, r1), f, (a0, 5, a1), proto;"),
            [
                at("r0", Some(0), Place::CallReturn(0), false),
                at("r1", Some(0), Place::CallReturn(1), false),
                at("f", Some(1), Place::Plain, false),
                at("a0", Some(2), Place::CallArgument(0), false),
                at("a1", Some(2), Place::CallArgument(2), false),
                at("proto", Some(3), Place::Plain, false),
            ]
        );
    }
}
