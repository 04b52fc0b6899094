//! What moved, as text and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::judge::{Judgement, Move, Row, Verdict};
use crate::output::counted;
use crate::report::SCHEMA;

/// For each kernel that moved its name, and below it a line per figure; then the sum of it.
pub fn text(judgement: &Judgement, strict: bool) -> String {
    let mut out = String::new();
    for row in judgement.rows.iter().filter(|row| row.moved()) {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{}{}", title(row), remark(row));
        for m in row.moves.iter().filter(|m| m.verdict != Verdict::Same) {
            let line = m.figure.line(&limit(row, m), m.was, m.is, &verdict(row, m));
            let _ = writeln!(out, "{line}");
        }
    }
    for entry in &judgement.gone {
        let _ = writeln!(out, "{} ({}): gone", entry.key.name, entry.key.arch);
    }
    let _ = writeln!(out, "{}", sum(judgement, strict));
    out
}

/// The kernel as all forms of the report call it.
pub fn title(row: &Row) -> String {
    let (name, arch) = (&row.key.name, &row.key.arch);
    match &row.key.file {
        Some(file) => format!("{name} ({arch}, {file})"),
        None => format!("{name} ({arch})"),
    }
}

fn remark(row: &Row) -> String {
    match &row.kernel.figures {
        Err(reason) => format!(": not measured: {reason}"),
        Ok(figures) if row.is_new() => {
            let figures: Vec<_> = figures.iter().map(|(f, is)| format!("{f} {is}")).collect();
            format!(": new, {}", figures.join(", "))
        }
        Ok(_) => String::new(),
    }
}

fn limit(row: &Row, m: &Move) -> String {
    match row.is_new() {
        true => format!("<= {}", m.was),
        false => m.was.to_string(),
    }
}

pub fn change(m: &Move) -> String {
    format!("{:+}", i128::from(m.is) - i128::from(m.was))
}

pub fn verdict(row: &Row, m: &Move) -> String {
    let name = m.verdict.name();
    match m.verdict {
        Verdict::Regression if row.is_new() => format!("{name}: more than a new kernel may take"),
        Verdict::Regression if m.tolerance > 0 => format!("{name}, tolerance {}", m.tolerance),
        Verdict::Tolerated => format!("within the tolerance of {}", m.tolerance),
        _ => name.to_owned(),
    }
}

/// `12 kernels: 1 regression, 2 better`.
pub fn sum(judgement: &Judgement, strict: bool) -> String {
    let c = judgement.counts();
    let mut parts = Vec::new();
    if c.regressions > 0 {
        parts.push(counted(c.regressions, "regression"));
    }
    let others = [
        (c.better, "better"),
        (c.tolerated, "within tolerance"),
        (c.new, "new"),
        (c.gone, "gone"),
        (c.unmeasured, "not measured"),
    ];
    for (count, word) in others.into_iter().filter(|(count, _)| *count > 0) {
        parts.push(format!("{count} {word}"));
    }
    if parts.is_empty() {
        parts.push("nothing moved".to_owned());
    }
    let mut told = format!("{}: {}", counted(c.kernels, "kernel"), parts.join(", "));
    if c.regressions == 0 && c.better + c.new + c.gone > 0 {
        told += match strict {
            true => "; the baseline is out of date: --update writes it anew",
            false => "; --update writes it down",
        };
    }
    told
}

pub fn json(judgement: &Judgement, strict: bool) -> Value {
    let c = judgement.counts();
    let gone = judgement.gone.iter().map(
        |entry| json!({ "name": entry.key.name, "arch": entry.key.arch, "file": entry.key.file }),
    );
    json!({
        "schema": SCHEMA,
        "baseline": judgement.baseline,
        "failed": judgement.fails(strict),
        "counts": {
            "kernels": c.kernels,
            "regressions": c.regressions,
            "better": c.better,
            "tolerated": c.tolerated,
            "new": c.new,
            "gone": c.gone,
            "unmeasured": c.unmeasured,
        },
        "kernels": judgement.rows.iter().map(row_json).collect::<Value>(),
        "gone": gone.collect::<Value>(),
    })
}

fn row_json(row: &Row) -> Value {
    let kernel = row.kernel;
    let source = kernel.source.as_ref();
    let mut value = json!({
        "name": kernel.name,
        "symbol": kernel.symbol,
        "arch": kernel.arch,
        "file": kernel.file,
        "line": kernel.line,
        "source": source.map(|s| json!({ "file": s.file, "line": s.line })),
        "from": kernel.origin.name(),
        "block": kernel.block,
        "new": row.is_new(),
    });
    match &kernel.figures {
        Ok(figures) => {
            let figures = figures
                .iter()
                .map(|(f, is)| (f.name().to_owned(), is.into()));
            value["figures"] = Value::Object(figures.collect());
        }
        Err(reason) => value["reason"] = reason.clone().into(),
    }
    let moves = row.moves.iter().map(|m| {
        json!({
            "figure": m.figure.name(),
            "was": m.was,
            "is": m.is,
            "tolerance": m.tolerance,
            "verdict": m.verdict.name(),
        })
    });
    value["moves"] = moves.collect();
    value
}
