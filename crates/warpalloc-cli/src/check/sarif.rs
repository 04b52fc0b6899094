//! What moved, as SARIF 2.1.0.

use serde_json::{Value, json};

use super::github::{place, told};
use super::judge::{Judgement, Row, Verdict};
use crate::kernels::Figure;

pub fn render(judgement: &Judgement, strict: bool) -> Value {
    let rules = Figure::ALL.map(|figure| {
        json!({
            "id": figure.name(),
            "shortDescription": { "text": format!("A kernel takes more {}", figure.meaning()) },
        })
    });
    let results = judgement.rows.iter().filter(|row| row.moved());
    let results = results.flat_map(|row| results_of(judgement, row, strict));
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "warpalloc check",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            } },
            "results": results.collect::<Value>(),
        }],
    })
}

/// A result per figure that got worse, or one note for the kernel.
fn results_of(judgement: &Judgement, row: &Row, strict: bool) -> Vec<Value> {
    let with = |rule: &str, level: &str| {
        let mut result = json!({
            "ruleId": rule,
            "level": level,
            "message": { "text": told(row) },
            // What makes it the same finding in another run.
            "partialFingerprints": {
                "kernel/v1": format!("{} {} {rule}", row.key.name, row.key.arch),
            },
        });
        if let Some((file, line)) = place(judgement, row) {
            result["locations"] = json!([{ "physicalLocation": {
                "artifactLocation": { "uri": uri(&file) },
                "region": { "startLine": line.max(1) },
            } }]);
        }
        result
    };
    let worse: Vec<_> = row.with(Verdict::Regression).collect();
    if worse.is_empty() {
        let level = if strict { "error" } else { "note" };
        let rule = row.moves.iter().find(|m| m.verdict != Verdict::Same);
        let rule = rule.map_or(Figure::Registers, |m| m.figure);
        return vec![with(rule.name(), level)];
    }
    worse
        .into_iter()
        .map(|m| with(m.figure.name(), "error"))
        .collect()
}

/// A path as a relative or absolute URI reference.
fn uri(path: &str) -> String {
    let mut out = String::new();
    if path.starts_with('/') {
        out.push_str("file://");
    }
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
