//! The fewest registers that ptxas takes as a cap.
//!
//! ptxas raises any `.maxnreg` below 24 to 24 and refuses functions with matrix instructions
//! whose operands leave too little beside them (C7602, "Try to compile with register target of
//! 28 or higher"). `bench/least_registers.py` assembles one kernel per instruction with ptxas
//! 13.0.88 and prints the numbers that these rules give:
//!
//! | instruction | least |
//! |---|---|
//! | anything else | 24 |
//! | `mma`, `mma.sp` | 18 and the registers of D, A and B |
//! | `mma` of `.f64`, shapes `.m16n8k…` | 64 |
//! | `wmma.mma` | 28 |
//! | `wgmma.mma_async` | 26 and the registers of D and A; one more for `.sp` |
//! | `tcgen05.ld`, `tcgen05.st` | 18 and the registers of the vector |

use crate::ast::{Body, Instruction, Operand, Span, Stmt};

/// What ptxas raises every lower cap to.
pub const LEAST_CAP: u32 = 24;

/// The fewest registers that ptxas assembles `body` with, and the instruction that needs them.
pub(crate) fn least_registers(body: &Body) -> (u32, Option<Span>) {
    let mut least = (LEAST_CAP, None);
    for stmt in &body.stmts {
        let (registers, span) = match stmt {
            Stmt::Inst(inst) => (of_instruction(inst), Some(inst.span)),
            Stmt::Scope(inner) => least_registers(inner),
            _ => continue,
        };
        if registers > least.0 {
            least = (registers, span);
        }
    }
    least
}

fn of_instruction(inst: &Instruction) -> u32 {
    match inst.mnemonic {
        "mma" if inst.has("f64") && !inst.has("m8n8k4") => 64,
        "mma" => {
            let width = if inst.has("f64") { 2 } else { 1 };
            18 + width * lanes(inst.operands.iter().take(3))
        }
        "wmma" if inst.has("mma") => 28,
        "wgmma" if inst.has("mma_async") => {
            26 + lanes(inst.operands.iter().take(2).filter(|o| is_vector(o)))
                + u32::from(inst.has("sp"))
        }
        "tcgen05" if inst.has("ld") || inst.has("st") => {
            18 + lanes(inst.operands.iter().filter(|o| is_vector(o)))
        }
        _ => LEAST_CAP,
    }
}

fn is_vector(operand: &Operand) -> bool {
    matches!(operand, Operand::Vector(_))
}

fn lanes<'o, 'a: 'o>(operands: impl Iterator<Item = &'o Operand<'a>>) -> u32 {
    let count = |operand: &Operand| match operand {
        Operand::Vector(lanes) => lanes.len() as u32,
        _ => 1,
    };
    operands.map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least(instruction: &str) -> u32 {
        let source = format!(".version 9.0\n.target sm_90a\n.entry k() {{ {{ {instruction} }} }}");
        let module = crate::parse(&source).unwrap();
        let body = module.functions().next().unwrap().body.as_ref().unwrap();
        least_registers(body).0
    }

    /// The numbers are what ptxas 13.0.88 names in C7602.
    #[test]
    fn the_least_cap_of_each_instruction() {
        let names = |stem: &str, count: u32| {
            let all: Vec<_> = (0..count).map(|i| format!("%{stem}{i}")).collect();
            format!("{{{}}}", all.join(", "))
        };
        let (d, a, b) = (names("d", 4), names("a", 4), names("b", 2));
        for (instruction, registers) in [
            ("add.u32 %r1, %r2, %r3;".to_owned(), 24),
            (
                format!("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {d}, {a}, {b}, {d};"),
                28,
            ),
            (
                format!(
                    "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {d}, {}, {{%b0}}, {d};",
                    names("a", 2)
                ),
                25,
            ),
            (
                format!(
                    "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {d}, {a}, {}, {d}, %e, 0;",
                    names("b", 4)
                ),
                30,
            ),
            (
                "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d0, %d1}, {%a0}, {%b0}, {%d0, %d1};"
                    .to_owned(),
                26,
            ),
            (
                format!("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {d}, {a}, {b}, {d};"),
                64,
            ),
            (
                format!(
                    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {}, %x, %y, 1, 1, 1, 0, 0;",
                    names("f", 32)
                ),
                58,
            ),
            (
                format!(
                    "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {}, {a}, %y, 1, 1, 1, 0;",
                    names("f", 16)
                ),
                46,
            ),
            (
                format!(
                    "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16 {}, {a}, %y, %e, 0, 1, 1, 1, 0;",
                    names("f", 32)
                ),
                63,
            ),
            (
                format!(
                    "tcgen05.ld.sync.aligned.32x32b.x32.b32 {}, [%t];",
                    names("f", 32)
                ),
                50,
            ),
            (
                format!(
                    "tcgen05.st.sync.aligned.32x32b.x64.b32 [%t], {};",
                    names("f", 64)
                ),
                82,
            ),
        ] {
            assert_eq!(least(&instruction), registers, "{instruction}");
        }
    }
}
