//! The report for a terminal.

use std::fmt::Write;

use super::gather::{KernelReport, Within};
use super::listing::{Listing, RangeOfValue, Row};
use super::trials::{Made, Trial};
use crate::output::counted;
use crate::suggest;

/// Columns of the picture of the pressure.
const COLUMNS: usize = 72;
/// Values that are listed.
const VALUES: usize = 20;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The text.
pub fn render(report: &KernelReport) -> String {
    let mut out = format!(
        "{}: `{}` for {}, {} threads and {} bytes of shared memory per block\n",
        report.file, report.name, report.arch, report.launch.block, report.launch.shared_bytes
    );
    if let Some(taken) = &report.taken {
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "  {}, {} bytes of local memory by {}",
            counted(taken.registers as usize, "register"),
            taken.frame,
            taken.by
        );
        if let Some(occupancy) = &report.occupancy {
            let _ = write!(
                out,
                ": {} of {} warps",
                occupancy.warps, occupancy.max_warps
            );
        }
        out.push('\n');
    }
    if let Some((listing, peak)) = report.main_listing().and_then(|l| Some((l, l.peak()?))) {
        pressure(&mut out, listing, &listing.rows[peak]);
    }
    caps(&mut out, &report.caps);
    if let Some((listing, peak)) = report.main_listing().and_then(|l| Some((l, l.peak()?))) {
        live(&mut out, listing, &listing.rows[peak]);
    }
    out += &suggest::told(&report.suggestions);
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// The most of each column of instructions.
pub fn columns(listing: &Listing, count: usize) -> Vec<usize> {
    let rows = &listing.rows;
    let count = count.min(rows.len());
    let column = |at: usize| {
        let part = &rows[at * rows.len() / count..(at + 1) * rows.len() / count];
        part.iter().map(|row| row.registers).max().unwrap_or(0)
    };
    (0..count).map(column).collect()
}

fn pressure(out: &mut String, listing: &Listing, peak: &Row) {
    let most = peak.registers.max(1);
    let bar = |live: usize| BARS[(live * BARS.len()).div_ceil(most).clamp(1, BARS.len()) - 1];
    let picture: String = columns(listing, COLUMNS).into_iter().map(bar).collect();
    let _ = writeln!(
        out,
        "  {picture}\n  registers in use along {}; {} at line {}: {}",
        counted(listing.rows.len(), "instruction"),
        peak.registers,
        listing.line_of(peak),
        listing.lines.get(peak.line).map_or("", |line| line.trim()),
    );
}

/// A figure of one allocator.
type Cell = dyn Fn(&Made) -> String;

fn caps(out: &mut String, caps: &[Within]) {
    let Some(first) = caps.iter().max_by_key(|cap| cap.allocators.len()) else {
        return;
    };
    if first.allocators.is_empty() {
        return;
    }
    let _ = write!(out, "{:>6} {:>5}", "cap", "warps");
    for trial in &first.allocators {
        let _ = write!(out, "  {:<24}", trial.name);
    }
    let _ = write!(out, "\n{:12}", "");
    for _ in &first.allocators {
        let _ = write!(out, "  {:>4} {:>9} {:>9}", "regs", "spills", "cycles");
    }
    out.push('\n');
    for within in caps {
        let cap = within.cap.map_or("none".to_owned(), |cap| cap.to_string());
        let warps = within
            .warps
            .map_or("-".to_owned(), |warps| warps.to_string());
        let _ = write!(out, "{cap:>6} {warps:>5}");
        for trial in &within.allocators {
            let cell = |of: &Cell| trial.made.as_ref().map_or("-".to_owned(), of);
            let _ = write!(
                out,
                "  {:>4} {:>9} {:>9}",
                cell(&registers),
                cell(&spills),
                cell(&cycles)
            );
        }
        out.push('\n');
        for (name, why) in within.allocators.iter().filter_map(refusal) {
            let _ = writeln!(out, "{:12}  {name}: {why}", "");
        }
    }
    out.push_str(
        "  spills are stores and reloads, of ptxas loads and stores of local memory; cycles are\n  \
         those that are added to one run, of ptxas over the kernel as it is\n",
    );
}

fn refusal(trial: &Trial) -> Option<(&str, &str)> {
    let why = trial.made.as_ref().err()?;
    Some((trial.name, why))
}

fn registers(made: &Made) -> String {
    match made {
        Made::Allocated(allocated) => allocated.registers.to_string(),
        Made::Assembled { registers, .. } => registers.to_string(),
    }
}

fn spills(made: &Made) -> String {
    match made {
        Made::Allocated(allocated) => {
            let edits = &allocated.stats.edits;
            format!("{}+{}", edits.stores, edits.reloads)
        }
        Made::Assembled { local, .. } => local.map_or("-".to_owned(), |local| local.to_string()),
    }
}

fn cycles(made: &Made) -> String {
    match made {
        Made::Allocated(allocated) => {
            let code = allocated.spill_code.as_ref();
            code.map_or("-".to_owned(), |code| format!("{:.0}", code.cycles))
        }
        Made::Assembled { cycles, .. } => {
            cycles.map_or("-".to_owned(), |[_, full]| format!("x{full:.2}"))
        }
    }
}

fn live(out: &mut String, listing: &Listing, peak: &Row) {
    let mut live: Vec<&RangeOfValue> = listing.live_at(peak).collect();
    let cost = |value: &RangeOfValue| {
        value.spill_cycles.unwrap_or(f64::INFINITY) / value.registers.max(1) as f64
    };
    live.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    let _ = writeln!(
        out,
        "  live at the peak, the cheapest to spill first{}:",
        match live.len().checked_sub(VALUES) {
            None | Some(0) => String::new(),
            Some(more) => format!(" ({VALUES} of {})", VALUES + more),
        }
    );
    let shown = &live[..live.len().min(VALUES)];
    let width = shown
        .iter()
        .map(|value| value.name.len())
        .max()
        .unwrap_or(0);
    for value in shown {
        let picture = bar(value, listing.rows.len().max(1), listing);
        let cycles = match value.spill_cycles {
            Some(cycles) => format!("{cycles:>7.0} cycles"),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "    {:<width$} {:>2} |{picture}| {cycles}",
            value.name, value.registers
        );
    }
}

/// Where a value is live along the code.
fn bar(value: &RangeOfValue, rows: usize, listing: &Listing) -> String {
    let count = COLUMNS.min(rows) / 2;
    let mut bar = vec!['·'; count.max(1)];
    let last = bar.len() - 1;
    for segment in &value.segments {
        let row = |position: usize| {
            let number = position / 2;
            listing.rows.partition_point(|row| row.number < number)
        };
        let column = |row: usize| (row * bar.len() / rows).min(last);
        let (from, to) = (
            column(row(segment.start)),
            column(row(segment.end.saturating_sub(1))),
        );
        bar[from..=to].fill('━');
    }
    bar.into_iter().collect()
}
