//! The report as a picture: the pressure along the code, and the occupancy over registers.

use std::fmt::Write;

use super::gather::KernelReport;
use super::html::escaped;
use super::listing::Listing;
use super::text::columns;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 300.0;
/// The left, the right and the part of the right that the occupancy takes.
const LEFT: f64 = 48.0;
const SPLIT: f64 = 640.0;
const RIGHT: f64 = 936.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 256.0;
/// Registers that a thread may have.
const REGISTERS: f64 = 255.0;

const STYLE: &str = "\
.bg{fill:#fff}.ink{fill:#1b2330}.dim{fill:#5a6675}.grid{stroke:#e3e7ed}.area{fill:#2f6fde;fill-opacity:.16}\
.line{stroke:#2f6fde;fill:none;stroke-width:1.6}.step{stroke:#0f8a6d;fill:none;stroke-width:1.8}\
.now{fill:#c2410c}.cap{stroke:#c2410c;stroke-dasharray:4 4;stroke-opacity:.65}\
text{font:12px system-ui,sans-serif}.title{font-size:16px;font-weight:600}.end{text-anchor:end}.mid{text-anchor:middle}\
@media(prefers-color-scheme:dark){.bg{fill:#12161d}.ink{fill:#e8ecf2}.dim{fill:#9aa7b8}.grid{stroke:#2a3240}\
.area{fill:#6ea0ff}.line{stroke:#6ea0ff}.step{stroke:#3ecfa6}.now{fill:#ff9b66}.cap{stroke:#ff9b66}}";

/// The picture.
pub fn render(report: &KernelReport) -> String {
    let title = format!("{} · {}", report.name, report.arch);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{0}\">\n<style>{STYLE}</style>\n\
         <rect class=\"bg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\"/>\n\
         <text class=\"ink title\" x=\"{LEFT}\" y=\"30\">{1}</text>\n\
         <text class=\"dim\" x=\"{LEFT}\" y=\"50\">{2}</text>\n",
        escaped(&summary(report)),
        escaped(&shortened(&title)),
        escaped(&summary(report))
    );
    if let Some(listing) = report.main_listing().filter(|l| !l.rows.is_empty()) {
        pressure(&mut out, report, listing);
    }
    if !report.staircase.is_empty() {
        occupancy(&mut out, report);
    }
    out + "</svg>\n"
}

fn summary(report: &KernelReport) -> String {
    let mut parts = Vec::new();
    if let Some(taken) = &report.taken {
        parts.push(format!("{} registers", taken.registers));
    }
    if let Some(most) = report.main_listing().and_then(Listing::most) {
        parts.push(format!("{most} live at the peak"));
    }
    if let Some(occupancy) = &report.occupancy {
        let (warps, most) = (occupancy.warps, occupancy.max_warps);
        parts.push(format!("{warps} of {most} warps"));
    }
    parts.push(format!("blocks of {} threads", report.launch.block));
    parts.join(" · ")
}

/// Names of templates go on for long.
fn shortened(text: &str) -> String {
    const MOST: usize = 96;
    match text.chars().count() > MOST {
        true => text.chars().take(MOST - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Lines at quarters of `top`, each with its number.
fn grid(out: &mut String, from: f64, to: f64, top: f64, y: impl Fn(f64) -> f64) {
    for part in 0..=4 {
        let value = top * f64::from(part) / 4.0;
        let height = y(value);
        line(out, "grid", [from, height, to, height]);
        let number = format!("{value:.0}");
        label(out, "dim end", from - 8.0, height + 4.0, &number);
    }
}

fn pressure(out: &mut String, report: &KernelReport, listing: &Listing) {
    let taken = report.taken.as_ref().map_or(0, |taken| taken.registers);
    let top = listing.most().unwrap_or(0).max(taken as usize).max(8) as f64;
    // A round number above the most.
    let top = (top / 16.0).ceil() * 16.0;
    let (from, to) = (LEFT, SPLIT - 40.0);
    let y = |live: f64| BOTTOM - (BOTTOM - TOP) * live / top;
    grid(out, from, to, top, y);
    let columns = columns(listing, (to - from) as usize);
    let x = |at: usize| from + (to - from) * at as f64 / columns.len() as f64;
    let mut path = format!("M{:.1} {:.1}", x(0), y(0.0));
    for (at, live) in columns.iter().enumerate() {
        let live = y(*live as f64);
        // Writing to a string does not fail.
        let _ = write!(path, "L{:.1} {live:.1}L{:.1} {live:.1}", x(at), x(at + 1));
    }
    let _ = write!(path, "L{to:.1} {:.1}", y(0.0));
    let _ = writeln!(
        out,
        "<path class=\"area\" d=\"{path}Z\"/>\n<path class=\"line\" d=\"{path}\"/>"
    );
    for cap in report.caps.iter().filter_map(|within| within.cap) {
        let at = y(f64::from(cap));
        if at > TOP - 4.0 {
            line(out, "cap", [from, at, to, at]);
            label(out, "dim", to + 4.0, at + 4.0, &cap.to_string());
        }
    }
    let instructions = listing.rows.len();
    let middle = (from + to) / 2.0;
    let told = format!("registers in use along {instructions} instructions");
    label(out, "dim mid", middle, BOTTOM + 24.0, &told);
}

fn occupancy(out: &mut String, report: &KernelReport) {
    let most = report.staircase.iter().map(|step| step.warps).max();
    let most = f64::from(most.unwrap_or(0).max(1));
    let (from, to) = (SPLIT + 40.0, RIGHT);
    let x = |registers: f64| from + (to - from) * registers / REGISTERS;
    let y = |warps: f64| BOTTOM - (BOTTOM - TOP) * warps / most;
    grid(out, from, to, most, y);
    let mut path = String::new();
    for step in &report.staircase {
        let height = y(f64::from(step.warps));
        let (first, last) = (
            f64::from(step.first_registers),
            f64::from(step.last_registers),
        );
        let start = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(
            path,
            "{start}{:.1} {height:.1}L{:.1} {height:.1}",
            x(first - 1.0),
            x(last)
        );
    }
    let _ = writeln!(out, "<path class=\"step\" d=\"{path}\"/>");
    if let (Some(taken), Some(now)) = (&report.taken, &report.occupancy) {
        let (x, y) = (x(f64::from(taken.registers)), y(f64::from(now.warps)));
        let _ = writeln!(
            out,
            "<circle class=\"now\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>"
        );
        let side = if x > (from + to) / 2.0 {
            ("dim end", x - 8.0)
        } else {
            ("dim", x + 8.0)
        };
        label(out, side.0, side.1, y - 8.0, &taken.registers.to_string());
    }
    let told = "warps over registers per thread";
    label(out, "dim mid", (from + to) / 2.0, BOTTOM + 24.0, told);
}

fn line(out: &mut String, class: &str, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(
        out,
        "<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>"
    );
}

fn label(out: &mut String, class: &str, x: f64, y: f64, text: &str) {
    let text = escaped(text);
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
    );
}
