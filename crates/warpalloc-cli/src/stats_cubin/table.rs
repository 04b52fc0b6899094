//! The report as a table: for each function its name, and below it a row of figures.

use std::fmt::{Display, Write};

use warpalloc_sass::isa::File;
use warpalloc_sass::{LocalAccesses, Peak};

use super::{FunctionReport, ImageReport, Measured, Place, Report};

const HEADINGS: [&str; 9] = [
    "regs",
    "live",
    "stack",
    "shared",
    "local",
    "block",
    "warps",
    "cliffs",
    "most are live at",
];
/// Widths of all columns but the last.
const WIDTHS: [usize; 8] = [5, 5, 6, 7, 13, 6, 10, 10];

pub fn render(report: &Report) -> String {
    let mut out = String::new();
    for image in &report.images {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{}", heading(report, image));
        match &image.functions {
            Ok(functions) if functions.is_empty() => {}
            Ok(functions) => {
                out.push_str(&row(&HEADINGS.map(str::to_owned)));
                for function in functions {
                    let name = function.demangled.as_ref().unwrap_or(&function.name);
                    let kind = if function.is_entry {
                        ""
                    } else {
                        " (device function)"
                    };
                    let _ = writeln!(out, "  {name}{kind}");
                    out.push_str(&row(&figures(function)));
                }
            }
            Err(error) => {
                let _ = writeln!(out, "  not read: {error}");
            }
        }
    }
    out
}

fn heading(report: &Report, image: &ImageReport) -> String {
    let origin = &image.image.origin;
    let member = origin.member.as_ref().map(|member| format!("({member})"));
    let section = origin.section.as_ref();
    let section = section.map(|section| format!(" {section} image {}", origin.index));
    let count = image.functions.as_ref().map_or(0, Vec::len);
    let plural = if count == 1 { "" } else { "s" };
    format!(
        "{}{}{}: {}, {count} function{plural}",
        report.file,
        member.unwrap_or_default(),
        section.unwrap_or_default(),
        image.image.arch,
    )
}

fn row(cells: &[String; 9]) -> String {
    let mut line = String::from(" ");
    for (cell, width) in cells.iter().zip(WIDTHS) {
        let _ = write!(line, " {cell:>width$}");
    }
    let _ = write!(line, "  {}", cells[WIDTHS.len()]);
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

fn figures(function: &FunctionReport) -> [String; 9] {
    let measured = function.measures.as_ref().ok();
    let peak = measured.and_then(|measured| measured.of(File::R));
    let occupancy = function.occupancy.as_ref();
    let last = match &function.measures {
        Ok(_) => peak.map_or(String::new(), |(peak, place)| at(peak, place)),
        Err(refused) => format!("refused: {}", refused.reason),
    };
    [
        known(function.registers),
        known(peak.map(|(peak, _)| peak.registers)),
        known(function.stack_bytes),
        function.shared_bytes.to_string(),
        measured.map_or("-".to_owned(), local),
        known(function.block_threads),
        known(occupancy.map(|o| format!("{} of {}", o.warps, o.max_warps))),
        known(occupancy.map(|o| {
            let up = o
                .next_higher
                .map(|step| format!("<={}", step.last_registers));
            let down = o
                .next_lower
                .map(|step| format!(">={}", step.first_registers));
            let both: Vec<_> = up.into_iter().chain(down).collect();
            match both.is_empty() {
                true => "none".to_owned(),
                false => both.join(" "),
            }
        })),
        last,
    ]
}

fn known(value: Option<impl Display>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

/// Loads and stores, and behind a plus sign those in loops.
fn local(measured: &Measured) -> String {
    let sum = |wanted: fn(&LocalAccesses) -> bool| {
        let accesses = measured.measures.local.iter().filter(|l| wanted(l));
        accesses.fold((0, 0), |(loads, stores), l| {
            (loads + l.loads, stores + l.stores)
        })
    };
    let (outside, inside) = (sum(|l| l.depth == 0), sum(|l| l.depth > 0));
    let text = |(loads, stores): (usize, usize)| format!("{loads}/{stores}");
    match (outside, inside) {
        ((0, 0), (0, 0)) => "0".to_owned(),
        (_, (0, 0)) => text(outside),
        _ => format!("{}+{}", text(outside), text(inside)),
    }
}

fn at(peak: &Peak, place: &Place) -> String {
    let mut text = match (peak.offset, peak.mnemonic) {
        (Some(offset), Some(mnemonic)) => format!("{offset:#06x} {mnemonic}"),
        _ => return String::new(),
    };
    if let Some((file, line)) = &place.source {
        let _ = write!(text, ", {file}:{line}");
    } else if let Some(line) = place.ptx_line {
        let _ = write!(text, ", PTX line {line}");
    }
    text
}
