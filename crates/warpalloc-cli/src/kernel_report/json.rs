//! The report as JSON (docs/json.md), which is what the page draws too.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use warpalloc::target::sm::Sm;
use warpalloc_ptx::SpillCode;
use warpalloc_ptx::module::Allocated;

use super::gather::{KernelReport, Within};
use super::listing::{Listing, RangeOfValue, Row};
use super::machine::MachineCode;
use super::source::SourceFile;
use super::trials::{Made, Trial};
use crate::occupancy::{answer_json, step_json};
use crate::report::SCHEMA;
use crate::suggest::Suggestion;

/// The document.
pub fn render(report: &KernelReport) -> Value {
    let sm: Option<Sm> = report.arch.parse().ok();
    let max_warps = sm.map_or(0, |sm| sm.limits().warps_per_sm);
    let steps = report.staircase.iter();
    let files = Files::of(&report.sources);
    let source = |file: &SourceFile| json!({ "name": file.name, "lines": file.lines });
    json!({
        "schema": SCHEMA,
        "file": report.file,
        "name": report.name,
        "symbol": report.symbol,
        "arch": report.arch,
        "launch": {
            "block": report.launch.block,
            "assumed": report.launch.is_assumed,
            "shared_bytes": report.launch.shared_bytes,
        },
        "taken": report.taken.as_ref().map(|taken| json!({
            "registers": taken.registers,
            "frame_bytes": taken.frame,
            "by": taken.by,
        })),
        "occupancy": report.occupancy.as_ref().map(answer_json),
        "max_warps": max_warps,
        "cliffs": steps.map(|step| step_json(step, max_warps)).collect::<Value>(),
        "code": report.code.as_ref().map(|code| listing(code, &files)),
        "machine": report.machine.as_ref().map(|code| machine(code, &files)),
        "sources": report.sources.iter().map(source).collect::<Value>(),
        "caps": report.caps.iter().map(|cap| within(cap, report)).collect::<Value>(),
        "suggestions": report.suggestions.iter().map(Suggestion::as_json).collect::<Value>(),
        "notes": report.notes,
    })
}

/// Source files by name.
struct Files<'f>(BTreeMap<&'f str, usize>);

impl<'f> Files<'f> {
    fn of(sources: &'f [SourceFile]) -> Files<'f> {
        let names = sources.iter().enumerate();
        Files(names.map(|(at, file)| (file.name.as_str(), at)).collect())
    }
}

fn machine(code: &MachineCode, files: &Files) -> Value {
    let mut value = listing(&code.listing, files);
    value["arch"] = code.arch.as_str().into();
    value["registers"] = code.registers.into();
    value["refused"] = code.refused.as_deref().into();
    value
}

/// What rows have in common is told in columns: a kernel has thousands of them.
fn listing(listing: &Listing, files: &Files) -> Value {
    let column = |of: &dyn Fn(&Row) -> Value| listing.rows.iter().map(of).collect::<Value>();
    let source = |row: &Row| {
        let source = row.source.as_ref();
        source.map_or(Value::Null, |s| {
            json!([files.0.get(s.file.as_str()), s.line])
        })
    };
    json!({
        "first_line": listing.first_line,
        "lines": listing.lines,
        "peak": listing.peak(),
        "rows": {
            "line": column(&|row| row.line.into()),
            "number": column(&|row| row.number.into()),
            "registers": column(&|row| row.registers.into()),
            "position": column(&|row| row.position.into()),
            "loop_depth": column(&|row| row.loop_depth.into()),
            "source": column(&source),
            "ptx_line": column(&|row| row.ptx_line.into()),
        },
        "values": listing.values.iter().map(value).collect::<Value>(),
    })
}

fn value(value: &RangeOfValue) -> Value {
    let segments = value.segments.iter();
    json!({
        "name": value.name,
        "registers": value.registers,
        "segments": segments.map(|s| json!([s.start, s.end])).collect::<Value>(),
        "written": value.written,
        "read": value.read,
        "spill_cycles": value.spill_cycles,
        "recompute_cycles": value.recompute_cycles,
    })
}

fn within(within: &Within, report: &KernelReport) -> Value {
    let code = report.code.as_ref();
    json!({
        "cap": within.cap,
        "warps": within.warps,
        "allocators": within.allocators.iter().map(|t| trial(t, code)).collect::<Value>(),
    })
}

fn trial(trial: &Trial, code: Option<&Listing>) -> Value {
    let mut value = match &trial.made {
        Ok(Made::Allocated(allocated)) => allocated_json(allocated, code),
        Ok(Made::Assembled {
            registers,
            frame,
            local,
            cycles,
        }) => json!({
            "registers": registers,
            "frame_bytes": frame,
            "local_accesses": local,
            "cycles_over": cycles.map(|[alone, full]| json!({ "alone": alone, "full": full })),
        }),
        Err(reason) => json!({ "reason": reason }),
    };
    value["name"] = trial.name.into();
    value
}

fn allocated_json(allocated: &Allocated, code: Option<&Listing>) -> Value {
    let edits = &allocated.stats.edits;
    let none = SpillCode::default();
    let inserted = allocated.spill_code.as_ref().unwrap_or(&none);
    let first = code.map_or(1, |code| code.first_line);
    let own = |line: usize| line.saturating_sub(first);
    let lines = |counts: &BTreeMap<usize, usize>| {
        let counts = counts.iter();
        counts
            .map(|(line, count)| json!([own(*line), count]))
            .collect::<Value>()
    };
    let spilled = inserted.values.iter().map(|value| {
        let values = code.map_or(&[][..], |code| &code.values);
        let written = value.written.map(own);
        let known = values
            .iter()
            .position(|v| v.name == value.name && v.written.first().copied() == written);
        json!({
            "name": value.name,
            "registers": value.registers,
            "value": known,
            "stored": value.stores.iter().map(|line| own(*line)).collect::<Value>(),
        })
    });
    json!({
        "registers": allocated.registers,
        "frame_bytes": allocated.frame.local + allocated.frame.shared,
        "spilled": allocated.stats.spilled,
        "stores": edits.stores,
        "reloads": edits.reloads,
        "moves": edits.moves,
        "recomputes": edits.recomputes,
        "cycles": inserted.cycles,
        "values": spilled.collect::<Value>(),
        "at": {
            "stores": lines(&inserted.stores),
            "reloads": lines(&inserted.reloads),
            "recomputes": lines(&inserted.recomputes),
        },
    })
}
