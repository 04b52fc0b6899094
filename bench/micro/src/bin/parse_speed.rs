//! Parses every file named on the command line and prints how fast that went.
//!
//! `cargo run --release -p warpalloc-micro --bin parse_speed -- FILE.ptx…`

use std::time::{Duration, Instant};
use warpalloc_ptx::ast::{Body, Function, Item, Span, Stmt};
use warpalloc_ptx::{Edits, Module, parse_bytes, same_tokens};

fn main() {
    let (mut bytes, mut failures, mut instructions, mut functions) = (0, 0, 0, 0);
    let mut spent = Duration::ZERO;
    for path in std::env::args().skip(1) {
        let data = match std::fs::read(&path) {
            Ok(data) => data,
            Err(error) => {
                eprintln!("{path}: {error}");
                failures += 1;
                continue;
            }
        };
        let start = Instant::now();
        let parsed = parse_bytes(&data);
        spent += start.elapsed();
        bytes += data.len();
        match parsed {
            Ok(module) => {
                for function in module.functions() {
                    functions += 1;
                    instructions += function.body.as_ref().map_or(0, count);
                }
                if let Err(reason) = check(&module) {
                    println!("{path}: {reason}");
                    failures += 1;
                }
            }
            Err(error) => {
                print!("{}", error.render(&path, &data));
                failures += 1;
            }
        }
    }
    let rate = bytes as f64 / 1e6 / spent.as_secs_f64().max(1e-9);
    println!(
        "{bytes} bytes, {functions} functions, {instructions} instructions, \
         {:.3} s, {rate:.0} MB/s, {failures} failures",
        spent.as_secs_f64()
    );
    if failures > 0 {
        std::process::exit(1);
    }
}

fn count(body: &Body) -> usize {
    let of = |stmt: &Stmt| match stmt {
        Stmt::Inst(_) => 1,
        Stmt::Scope(body) => count(body),
        _ => 0,
    };
    body.stmts.iter().map(of).sum()
}

/// Rebuilds the text from the spans of the statements and compares.
fn check(module: &Module) -> Result<(), String> {
    let mut edits = Edits::new();
    for item in &module.items {
        match item {
            Item::Function(Function {
                body: Some(body), ..
            }) => retype(module.source, body, &mut edits),
            item => keep(module.source, item.span(), &mut edits),
        }
    }
    let printed = edits.apply(module.source).map_err(|e| e.to_string())?;
    if printed != module.source {
        return Err("the printed text differs".to_owned());
    }
    // White space in another place must not matter.
    let spaced = module.source.replace(", ", " ,");
    if !same_tokens(module.source, &printed) || !same_tokens(module.source, &spaced) {
        return Err("the printed tokens differ".to_owned());
    }
    Ok(())
}

fn retype(source: &str, body: &Body, edits: &mut Edits) {
    for stmt in &body.stmts {
        match stmt {
            Stmt::Scope(inner) => retype(source, inner, edits),
            stmt => keep(source, stmt.span(), edits),
        }
    }
}

fn keep(source: &str, span: Span, edits: &mut Edits) {
    edits.replace(span, span.text(source));
}
