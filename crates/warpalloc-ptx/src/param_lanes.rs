//! Vector loads of kernel parameters, taken apart.
//!
//! A parameter can be had again for nothing, lane by lane, but a vector load has several results,
//! which live and die together. So `ld.param.v2.u64 {%a, %b}, [p];` becomes one load for each lane,
//! on the same line. To ptxas they are the same: parameters lie in a constant bank, which
//! instructions read as an operand.

use crate::ast::{self, Body, Instruction, Operand, Stmt};
use crate::diag::ParseError;
use crate::opcode::type_bits;
use crate::printer::Edits;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::fmt::Write;

/// A module without vector loads of kernel parameters.
pub(crate) struct Scalar<'a> {
    /// The new text; its lines are those of the original.
    pub text: Cow<'a, str>,
    /// The bodies of functions that changed as they were, by name.
    pub originals: FxHashMap<String, String>,
}

/// Takes the vector loads of the functions that `wanted` answers for apart.
pub(crate) fn take_apart(
    source: &str,
    wanted: impl Fn(&str) -> bool,
) -> Result<Scalar<'_>, ParseError> {
    let mut scalar = Scalar {
        text: Cow::Borrowed(source),
        originals: FxHashMap::default(),
    };
    if !source.contains("ld.param") {
        return Ok(scalar);
    }
    let module = crate::parse(source)?;
    let mut edits = Edits::new();
    for function in module.functions() {
        let Some(body) = &function.body else { continue };
        if function.is_entry && wanted(function.name.text) {
            let mut count = 0;
            each_instruction(body, &mut |inst| {
                if let Some(text) = apart(function, body, inst) {
                    edits.replace(inst.span, &text);
                    count += 1;
                }
            });
            if count > 0 {
                let text = body.span().text(source).to_owned();
                scalar.originals.insert(function.name.text.to_owned(), text);
            }
        }
    }
    if !scalar.originals.is_empty() {
        // Each statement is replaced once, so that edits cannot conflict.
        let text = edits.apply(source);
        let text = text.map_err(|conflict| ParseError::new(conflict.0, conflict.to_string()))?;
        scalar.text = Cow::Owned(text);
    }
    Ok(scalar)
}

fn each_instruction<'m, 'a>(body: &'m Body<'a>, visit: &mut impl FnMut(&'m Instruction<'a>)) {
    for stmt in &body.stmts {
        match stmt {
            Stmt::Inst(inst) => visit(inst),
            Stmt::Scope(inner) => each_instruction(inner, visit),
            _ => {}
        }
    }
}

/// The loads that together do what a vector load of a parameter does.
fn apart(function: &ast::Function, body: &Body, inst: &Instruction) -> Option<String> {
    let is_vector = |m: &&str| matches!(*m, "v2" | "v4");
    let is_load = inst.mnemonic == "ld"
        && inst.guard.is_none()
        && inst
            .modifiers
            .first()
            .is_some_and(|m| m.starts_with("param"))
        && inst.modifiers.iter().any(is_vector);
    let [Operand::Vector(lanes), Operand::Memory(memory)] = inst.operands.as_slice() else {
        return None;
    };
    let base = memory.base.as_name().filter(|_| is_load)?.text;
    let is_parameter = |var: &ast::VarDecl| var.names.iter().any(|n| n.name.text == base);
    if !function.params.iter().any(is_parameter) || declares(body, base) {
        return None;
    }
    let start = match &memory.offset {
        Some(offset) => offset.as_int()?,
        None => 0,
    };
    let bytes = u64::from(type_bits(inst.modifiers.last()?)? / 8);
    let scalar = inst.modifiers.iter().filter(|m| !is_vector(m));
    let opcode = scalar.fold(inst.mnemonic.to_owned(), |opcode, m| {
        format!("{opcode}.{m}")
    });
    let mut text = String::new();
    for (lane, index) in lanes.iter().zip(0..) {
        let name = match lane {
            Operand::Ident(name) => name.text,
            Operand::Sink(_) => continue,
            _ => return None,
        };
        let gap = if text.is_empty() { "" } else { " " };
        let offset = start.checked_add(index * bytes)?;
        let _ = write!(text, "{gap}{opcode} {name}, [{base}+{offset}];");
    }
    (!text.is_empty()).then_some(text)
}

/// Whether braces within the function give `name` another meaning.
fn declares(body: &Body, name: &str) -> bool {
    body.stmts.iter().any(|stmt| match stmt {
        Stmt::Var(var) => var.names.iter().any(|n| n.name.text == name),
        Stmt::Scope(inner) => declares(inner, name),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(statement: &str) -> String {
        let source = format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.entry k(.param .align 16 .b8 p[64]) {{\n\
             .reg .pred %q; .reg .b32 %r<4>; .reg .b64 %d<4>;\n{statement}\nret;\n}}\n"
        );
        let scalar = take_apart(&source, |_| true).unwrap();
        crate::parse(&scalar.text).unwrap();
        let changed = scalar.text != source;
        assert_eq!(changed, !scalar.originals.is_empty());
        assert_eq!(scalar.text.lines().count(), source.lines().count());
        scalar.text.lines().nth(5).unwrap().to_owned()
    }

    #[test]
    fn lanes_are_loaded_one_by_one() {
        assert_eq!(
            apart("ld.param.v2.u64 {%d0, %d1}, [p+16];"),
            "ld.param.u64 %d0, [p+16]; ld.param.u64 %d1, [p+24];"
        );
        assert_eq!(
            apart("ld.param.v4.b32 {%r0, _, %r2, %r3}, [p];"),
            "ld.param.b32 %r0, [p+0]; ld.param.b32 %r2, [p+8]; ld.param.b32 %r3, [p+12];"
        );
    }

    #[test]
    fn other_loads_stay() {
        for statement in [
            "ld.param.u64 %d0, [p];",
            "@%q ld.param.v2.u64 {%d0, %d1}, [p];",
            "ld.global.v2.u64 {%d0, %d1}, [%d2];",
            "{ .param .b64 p; ld.param.v2.b32 {%r0, %r1}, [p]; }",
        ] {
            assert_eq!(apart(statement), statement);
        }
    }
}
