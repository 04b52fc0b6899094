//! What an instruction is to the rule: a product, a sum, a copy, a negation.

use super::Code;
use crate::ast::{Body, Float, Instruction, Operand, Span, Stmt};
use warpalloc::function::{Inst, Kind, VReg};

/// A floating-point type that ptxas contracts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F32x2,
    F64,
}

impl Type {
    fn of(name: &str) -> Option<Type> {
        Some(match name {
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2,
            "f32" => Type::F32,
            "f32x2" => Type::F32x2,
            "f64" => Type::F64,
            _ => return None,
        })
    }

    /// As PTX writes it.
    pub fn name(self) -> &'static str {
        match self {
            Type::F16 => "f16",
            Type::F16x2 => "f16x2",
            Type::Bf16 => "bf16",
            Type::Bf16x2 => "bf16x2",
            Type::F32 => "f32",
            Type::F32x2 => "f32x2",
            Type::F64 => "f64",
        }
    }

    /// How wide its registers are.
    pub fn bits(self) -> u32 {
        match self {
            Type::F16 | Type::Bf16 => 16,
            Type::F16x2 | Type::Bf16x2 | Type::F32 => 32,
            Type::F32x2 | Type::F64 => 64,
        }
    }

    /// Whether one register holds one number.
    pub fn is_scalar(self) -> bool {
        !matches!(self, Type::F16x2 | Type::Bf16x2 | Type::F32x2)
    }
}

/// The arithmetic in which a product and a sum can be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    pub ty: Type,
    /// Whether subnormal numbers become zero.
    pub ftz: bool,
}

/// What an instruction is to the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A product that may be fused.
    Product(Mode),
    /// A sum or difference that may take a product in.
    Sum {
        mode: Mode,
        /// Whether the second operand is subtracted.
        subtracts: bool,
        saturates: bool,
    },
    /// Its result is its operand, perhaps negated: ptxas looks through it.
    Same {
        of: VReg,
        negated: bool,
        /// Whether it flushes, so that only a product that does stays the same.
        flushes: bool,
    },
    /// A quotient or reciprocal by approximation, which ptxas ends in a product.
    Quotient(Mode),
    /// Anything else.
    Other,
}

/// An arithmetic opcode taken apart.
#[derive(Clone, Copy)]
struct Opcode {
    mode: Mode,
    rounded: bool,
    saturates: bool,
    approximate: bool,
}

impl Opcode {
    /// `None` where a modifier is none of the usual, as in mixed precision.
    fn of(inst: &Instruction) -> Option<Opcode> {
        let (ty, modifiers) = inst.modifiers.split_last()?;
        let mut opcode = Opcode {
            mode: Mode {
                ty: Type::of(ty)?,
                ftz: false,
            },
            rounded: false,
            saturates: false,
            approximate: false,
        };
        for modifier in modifiers {
            match *modifier {
                "ftz" => opcode.mode.ftz = true,
                "sat" => opcode.saturates = true,
                // ptxas contracts pairs of singles in spite of `.rn`.
                "rn" if opcode.mode.ty == Type::F32x2 => {}
                "rn" | "rz" | "rm" | "rp" => opcode.rounded = true,
                "approx" | "full" => opcode.approximate = true,
                _ => return None,
            }
        }
        Some(opcode)
    }
}

/// What `inst` is.
pub(super) fn form(code: &Code, inst: Inst) -> Form {
    let Some((statement, _)) = code.statement(inst) else {
        return Form::Other;
    };
    if let Some(same) = same(code, inst, statement) {
        return same;
    }
    let Some(opcode) = Opcode::of(statement) else {
        return Form::Other;
    };
    let mode = opcode.mode;
    match statement.mnemonic {
        // A guarded product is a choice between itself and what was there.
        "mul" if is_product(code, inst, statement, opcode) => Form::Product(mode),
        "add" | "sub" if !opcode.rounded => Form::Sum {
            mode,
            subtracts: statement.mnemonic == "sub",
            saturates: opcode.saturates,
        },
        "div" if opcode.approximate && statement.guard.is_none() => Form::Quotient(mode),
        // Flushing, it is one machine instruction.
        "rcp" if opcode.approximate && !mode.ftz && statement.guard.is_none() => {
            Form::Quotient(mode)
        }
        _ => Form::Other,
    }
}

fn is_product(code: &Code, inst: Inst, statement: &Instruction, opcode: Opcode) -> bool {
    let is_constant = |number| constant(code, inst, &statement.operands[number]).is_some();
    !opcode.rounded
        && !opcode.saturates
        && statement.guard.is_none()
        && statement.operands.len() == 3
        && !(is_constant(1) && is_constant(2))
}

/// What ptxas looks through: copies, negations, and products with one.
fn same(code: &Code, inst: Inst, statement: &Instruction) -> Option<Form> {
    if statement.guard.is_some() {
        return None;
    }
    let whole = |number| code.operand_value(inst, number);
    if code.function().inst(inst).kind == Kind::Copy {
        whole(0)?;
        let of = whole(1)?;
        return Some(Form::Same {
            of,
            negated: false,
            flushes: false,
        });
    }
    let opcode = Opcode::of(statement)?;
    match statement.mnemonic {
        // Negation of pairs of bf16 is arithmetic to ptxas.
        "neg" if opcode.mode.ty != Type::Bf16x2 => Some(Form::Same {
            of: whole(1)?,
            negated: true,
            flushes: opcode.mode.ftz,
        }),
        "mul" if !opcode.saturates && opcode.mode.ty.is_scalar() => {
            let unit = |number| constant(code, inst, &statement.operands[number]);
            let (of, unit) = match (unit(1), unit(2)) {
                (None, Some(unit)) => (whole(1)?, unit),
                (Some(unit), None) => (whole(2)?, unit),
                _ => return None,
            };
            let negated = unit == -1.0;
            (unit.abs() == 1.0).then_some(Form::Same {
                of,
                negated,
                flushes: opcode.mode.ftz,
            })
        }
        _ => None,
    }
}

/// The number that an operand is known to be.
fn constant(code: &Code, inst: Inst, operand: &Operand) -> Option<f64> {
    if let Some(number) = literal(operand) {
        return Some(number);
    }
    let value = code.value_at(inst, operand_span(operand)?)?;
    let &[writer] = code.writers(value) else {
        return None;
    };
    let (statement, _) = code.statement(writer)?;
    let moves = statement.mnemonic == "mov" && statement.guard.is_none();
    literal(statement.operands.get(1).filter(|_| moves)?)
}

/// Whether ptxas finds a factor of a product in constant memory or in the code.
pub(super) fn has_constant_factor(code: &Code, inst: Inst) -> bool {
    [1, 2].into_iter().any(|number| {
        let Some((statement, _)) = code.statement(inst) else {
            return false;
        };
        match statement.operands.get(number) {
            Some(Operand::Int { .. } | Operand::Float { .. }) => true,
            _ => code
                .operand_value(inst, number)
                .is_some_and(|value| is_constant(code, value)),
        }
    })
}

/// Whether a value comes from constant memory or from the code, and from nowhere else.
fn is_constant(code: &Code, value: VReg) -> bool {
    let &[writer] = code.writers(value) else {
        return false;
    };
    let Some((statement, _)) = code.statement(writer) else {
        return false;
    };
    let from_register = || code.operand_value(writer, 1);
    statement.guard.is_none()
        && match (statement.mnemonic, statement.operands.get(1)) {
            ("mov", Some(Operand::Int { .. } | Operand::Float { .. })) => true,
            ("mov", Some(_)) => from_register().is_some_and(|from| is_constant(code, from)),
            ("ld", Some(Operand::Memory(memory))) => {
                let is_fixed = operand_span(&memory.base)
                    .is_some_and(|span| code.value_at(writer, span).is_none())
                    && !matches!(memory.offset, Some(Operand::Ident(_)));
                let is_parameter = statement.has("param") && code.lowered.ast.is_entry;
                is_fixed && (is_parameter || statement.has("const"))
            }
            _ => false,
        }
}

fn literal(operand: &Operand) -> Option<f64> {
    match operand {
        Operand::Float { value, .. } => Some(match *value {
            Float::Single(bits) => f64::from(f32::from_bits(bits)),
            Float::Double(bits) => f64::from_bits(bits),
            Float::Decimal(number) => number,
        }),
        _ => None,
    }
}

/// The text of an operand that is a register or a constant.
pub(super) fn operand_span(operand: &Operand) -> Option<Span> {
    match operand {
        Operand::Ident(name) => Some(name.span),
        Operand::Component(component) => Some(component.span()),
        Operand::Int { span, .. } | Operand::Float { span, .. } => Some(*span),
        Operand::Expr(expr) => Some(expr.span),
        _ => None,
    }
}

/// Whether a statement leaves its rounding open.
pub(super) fn is_unrounded(statement: &Instruction) -> bool {
    matches!(statement.mnemonic, "mul" | "add" | "sub")
        && Opcode::of(statement).is_some_and(|opcode| !opcode.rounded)
}

/// Whether a body has a statement that leaves its rounding open.
pub(super) fn has_unrounded(body: &Body) -> bool {
    body.stmts.iter().any(|stmt| match stmt {
        Stmt::Inst(inst) => is_unrounded(inst),
        Stmt::Scope(inner) => has_unrounded(inner),
        _ => false,
    })
}
