//! What programs mean, for comparison.

use crate::language::{Expr, Operator, Program, Stmt};
use std::collections::HashMap;

fn compute(operator: Operator, a: i32, b: i32) -> i32 {
    match operator {
        Operator::Add => a.wrapping_add(b),
        Operator::Sub => a.wrapping_sub(b),
        Operator::Mul => a.wrapping_mul(b),
        Operator::And => a & b,
        Operator::Xor => a ^ b,
        Operator::Less => i32::from(a < b),
        Operator::Equal => i32::from(a == b),
    }
}

type Variables<'a> = HashMap<&'a str, i32>;

/// What procedure `name` returns; variables begin as zero, and so do results.
pub fn interpret(program: &Program, name: &str, args: &[i32]) -> i32 {
    let Some(procedure) = program.iter().find(|p| p.name == name) else {
        return 0;
    };
    let params = procedure.params.iter().map(String::as_str);
    let mut variables: Variables = params.zip(args.iter().copied()).collect();
    run(program, &procedure.body, &mut variables).unwrap_or(0)
}

fn run<'a>(program: &Program, stmts: &'a [Stmt], variables: &mut Variables<'a>) -> Option<i32> {
    for stmt in stmts {
        match stmt {
            Stmt::Assign(name, value) => {
                let value = evaluate(program, value, variables);
                variables.insert(name, value);
            }
            Stmt::While(condition, body) => {
                while evaluate(program, condition, variables) != 0 {
                    if let Some(result) = run(program, body, variables) {
                        return Some(result);
                    }
                }
            }
            Stmt::If(condition, then, otherwise) => {
                let is_true = evaluate(program, condition, variables) != 0;
                let chosen = if is_true { then } else { otherwise };
                if let Some(result) = run(program, chosen, variables) {
                    return Some(result);
                }
            }
            Stmt::Return(value) => return Some(evaluate(program, value, variables)),
        }
    }
    None
}

fn evaluate(program: &Program, expr: &Expr, variables: &Variables) -> i32 {
    match expr {
        Expr::Number(number) => *number,
        Expr::Variable(name) => variables.get(name.as_str()).copied().unwrap_or(0),
        Expr::Binary(operator, a, b) => {
            let a = evaluate(program, a, variables);
            compute(*operator, a, evaluate(program, b, variables))
        }
        Expr::Call(name, args) => {
            let args = args.iter().map(|arg| evaluate(program, arg, variables));
            interpret(program, name, &args.collect::<Vec<_>>())
        }
    }
}
