//! What the types of declarations forbid.
//!
//! Allocation keeps the width of a register and drops its type, so a text that ptxas rejects
//! could come out as one that it takes. Reported here is only what every ptxas rejects: names
//! declared twice in one scope, and registers of another size or kind in arithmetic. A type
//! of bits (`.b32`) goes with any type of its size, integers go with each other, and
//! instructions that convert or access memory have looser rules of their own and are left alone.

use crate::ast::{self, Body, Instruction, Name, Operand, RegDecl, Span, Stmt, VarDecl};
use crate::diag::ParseError;
use crate::module::PtxError;
use rustc_hash::FxHashMap;

/// Checks the declarations and the arithmetic of a function.
pub(crate) fn check<'a>(function: &ast::Function<'a>, body: &Body<'a>) -> Result<(), PtxError> {
    checked(function, body).map_err(|error| PtxError::Source(Box::new(error)))
}

fn checked<'a>(function: &ast::Function<'a>, body: &Body<'a>) -> Result<(), ParseError> {
    for directive in &function.directives {
        let counts = ["maxnreg", "maxntid", "reqntid", "minnctapersm"];
        if counts.contains(&directive.keyword) && directive.values.contains(&0) {
            let message = format!("`.{}` takes numbers above 0", directive.keyword);
            return Err(ParseError::new(directive.span, message));
        }
    }
    let mut types = Types {
        scopes: vec![Scope::default()],
    };
    for var in function.params.iter().chain(&function.returns) {
        types.declare_variable(var)?;
    }
    types.statements(body)
}

/// One declaration: a single name, or a series by its stem.
#[derive(Clone, Copy)]
struct Declared<'a> {
    /// The type of a register; a variable has none here.
    ty: Option<&'a str>,
    span: Span,
}

#[derive(Default)]
struct Scope<'a> {
    single: FxHashMap<&'a str, Declared<'a>>,
    series: FxHashMap<&'a str, (u32, Declared<'a>)>,
}

impl<'a> Scope<'a> {
    fn find(&self, name: &str) -> Option<Declared<'a>> {
        if let Some(&found) = self.single.get(name) {
            return Some(found);
        }
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        // A stem may end in digits itself: `%x1<4>` has `%x13`.
        let splits = (1..=digits.min(9)).map(|count| name.split_at(name.len() - count));
        let mut series = splits.filter_map(|(stem, number)| {
            let &(count, declared) = self.series.get(stem)?;
            let is_plain = number == "0" || !number.starts_with('0');
            let index: u32 = number.parse().ok()?;
            (is_plain && index < count).then_some(declared)
        });
        series.next()
    }
}

struct Types<'a> {
    scopes: Vec<Scope<'a>>,
}

impl<'a> Types<'a> {
    fn statements(&mut self, body: &Body<'a>) -> Result<(), ParseError> {
        for stmt in &body.stmts {
            match stmt {
                Stmt::Inst(inst) => self.instruction(inst)?,
                Stmt::Reg(decl) => self.declare_registers(decl)?,
                Stmt::Var(var) => self.declare_variable(var)?,
                Stmt::Scope(inner) => {
                    self.scopes.push(Scope::default());
                    self.statements(inner)?;
                    self.scopes.pop();
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn declare_registers(&mut self, decl: &RegDecl<'a>) -> Result<(), ParseError> {
        for series in &decl.names {
            // Elements of a vector are named behind a dot.
            let ty = (decl.vector == 1).then_some(decl.ty);
            self.declare(series.name, series.count, ty)?;
        }
        Ok(())
    }

    fn declare_variable(&mut self, var: &VarDecl<'a>) -> Result<(), ParseError> {
        let ty = (var.space == "reg" && var.vector == 1).then_some(var.ty);
        for declarator in &var.names {
            if declarator.name.text != "_" {
                self.declare(declarator.name, declarator.count, ty)?;
            }
        }
        Ok(())
    }

    fn declare(
        &mut self,
        name: Name<'a>,
        count: Option<u32>,
        ty: Option<&'a str>,
    ) -> Result<(), ParseError> {
        let declared = Declared {
            ty,
            span: name.span,
        };
        let Some(scope) = self.scopes.last_mut() else {
            return Ok(());
        };
        let earlier = match count {
            // A series over a name of its own is for ptxas to judge.
            Some(count) => {
                let old = scope.series.insert(name.text, (count, declared));
                old.map(|(_, old)| old)
            }
            None => {
                let old = scope.find(name.text);
                scope.single.insert(name.text, declared);
                old
            }
        };
        match earlier {
            None => Ok(()),
            Some(earlier) => {
                let message = format!("`{}` is declared twice", name.text);
                let error = ParseError::new(name.span, message);
                Err(error.with_related(earlier.span, "it is declared here already"))
            }
        }
    }

    fn type_of(&self, name: &str) -> Option<&'a str> {
        let mut scopes = self.scopes.iter().rev();
        scopes.find_map(|scope| scope.find(name))?.ty
    }

    fn instruction(&self, inst: &Instruction<'a>) -> Result<(), ParseError> {
        let Some((ty, operands)) = arithmetic(inst) else {
            return Ok(());
        };
        let operands = inst.operands.get(operands).unwrap_or_default();
        for operand in operands {
            let Operand::Ident(name) = operand else {
                continue;
            };
            let Some(declared) = self.type_of(name.text) else {
                continue;
            };
            if Kind::of(declared).is_some_and(|kind| !kind.agrees(ty)) {
                let message = format!(
                    "`{}` is declared `.{declared}` and cannot be an operand of `{}`",
                    name.text,
                    inst.opcode()
                );
                return Err(ParseError::new(name.span, message));
            }
        }
        Ok(())
    }
}

/// The type that an instruction of arithmetic works on, and which operands must have it.
fn arithmetic(inst: &Instruction) -> Option<(Kind, std::ops::Range<usize>)> {
    let ty = Kind::of(inst.modifiers.last()?)?;
    let all = inst.operands.len();
    let operands = match inst.mnemonic {
        "add" | "sub" | "div" | "rem" | "min" | "max" | "abs" | "neg" | "fma" => 0..all,
        "mul" | "mad" if inst.has("wide") => 1..3,
        "mul" | "mad" => 0..all,
        "and" | "or" | "xor" | "not" => 0..all,
        "shl" | "shr" => 0..2,
        "mov" => 0..all,
        "selp" => 0..3,
        _ => return None,
    };
    // Other types among the modifiers, as of mixed precision, have rules of their own.
    let types = inst.modifiers.iter().filter(|m| Kind::of(m).is_some());
    (types.count() == 1 && operands.end <= all).then_some((ty, operands))
}

/// What operands must agree in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Predicate,
    Bits(u8),
    Integer(u8),
    Float(u8),
}

impl Kind {
    fn of(ty: &str) -> Option<Kind> {
        Some(match ty {
            "pred" => Kind::Predicate,
            "b16" => Kind::Bits(16),
            "b32" => Kind::Bits(32),
            "b64" => Kind::Bits(64),
            "u16" | "s16" => Kind::Integer(16),
            "u32" | "s32" => Kind::Integer(32),
            "u64" | "s64" => Kind::Integer(64),
            "f32" => Kind::Float(32),
            "f64" => Kind::Float(64),
            _ => return None,
        })
    }

    fn agrees(self, other: Kind) -> bool {
        let bits = |kind| match kind {
            Kind::Predicate => 1,
            Kind::Bits(bits) | Kind::Integer(bits) | Kind::Float(bits) => bits,
        };
        let is_bits = |kind| matches!(kind, Kind::Bits(_));
        self == other || bits(self) == bits(other) && (is_bits(self) || is_bits(other))
    }
}

#[cfg(test)]
mod tests {

    const REGISTERS: &str = ".reg .pred %p<3>; .reg .b16 %h<3>; .reg .b32 %b<3>; .reg .u32 %u<3>; \
        .reg .s32 %s<3>; .reg .f32 %f<3>; .reg .b64 %rd<3>; .reg .f64 %d<3>; .reg .v2 .b32 %v;";

    fn checked(head: &str, body: &str) -> Result<(), String> {
        let source = format!(
            ".version 8.8\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p){head} {{\n\
             {REGISTERS}\n{body}\nret; }}\n"
        );
        let module = crate::parse(&source).unwrap();
        let function = module.functions().next().unwrap();
        let result = super::checked(function, function.body.as_ref().unwrap());
        result.map_err(|error| error.render("k", &source))
    }

    /// Each is an error of ptxas 13.0.88.
    #[test]
    fn what_ptxas_rejects_is_an_error_with_its_place() {
        for (wrong, column, what) in [
            ("add.u32 %u1, %f1, 1;", 14, "`%f1` is declared `.f32`"),
            ("add.f32 %f1, %u1, %f2;", 14, "`%u1` is declared `.u32`"),
            ("add.u64 %rd1, %u1, 1;", 15, "`add.u64`"),
            ("and.b32 %rd1, %u1, %s2;", 9, "`%rd1`"),
            ("mov.u32 %f1, %u1;", 9, "`%f1`"),
            ("mul.wide.u32 %rd1, %f1, %u2;", 20, "`%f1`"),
            ("mad.lo.u32 %u1, %u1, %u2, %f1;", 27, "`%f1`"),
            ("selp.u32 %f1, %u1, %s1, %p1;", 10, "`%f1`"),
            ("add.u32 %p1, %u1, 1;", 9, "`.pred`"),
            (".reg .b32 %u1;", 11, "`%u1` is declared twice"),
            (".reg .b32 %u<5>;", 11, "`%u` is declared twice"),
            (".reg .b32 p;", 11, "`p` is declared twice"),
            (
                ".shared .b32 a; .shared .b32 a;",
                30,
                "`a` is declared twice",
            ),
        ] {
            let told = checked("", wrong).expect_err(wrong);
            assert!(told.contains(&format!("k:6:{column}\n")), "{told}");
            assert!(told.contains(what), "{told}");
        }
        for head in [".maxnreg 0", ".maxntid 0", ".minnctapersm 0"] {
            let told = checked(head, "").expect_err(head);
            assert!(
                told.contains("takes numbers above 0") && told.contains("k:4:"),
                "{told}"
            );
        }
    }

    /// Each is taken by ptxas 13.0.88.
    #[test]
    fn what_ptxas_takes_is_no_error() {
        for right in [
            "add.u32 %u1, %s1, %b1;",
            "add.f32 %f1, %b1, %f2;",
            "and.b32 %f1, %u1, %s2;",
            "mov.b32 %f1, %u1;",
            "xor.b64 %d1, %rd1, %rd2;",
            "selp.b32 %f1, %u1, %s1, %p1;",
            "mul.wide.u32 %rd1, %u1, %u2;",
            "mad.wide.s32 %rd1, %u1, %s2, %rd2;",
            "shl.b64 %rd1, %rd2, %u1;",
            "mov.u32 %u1, %tid.x;",
            "mov.b64 {%u1, %f1}, %d1;",
            "mov.u64 %rd1, p;",
            "ld.global.u8 %u1, [%rd1];",
            "cvt.f32.f16 %f1, %h1;",
            "setp.lt.f32 %p1, %f1, %b1;",
            "{ .reg .b64 %u1; add.u64 %u1, %rd1, 1; }",
            ".reg .b32 %u2<5>;",
            "and.pred %p1, %p1, %p2;",
        ] {
            assert_eq!(checked("", right), Ok(()), "{right}");
        }
    }
}
