//! Code to look at: its lines, the registers in use along it, and where values are live.

use std::ops::Range;

use warpalloc_ptx::{FunctionValues, SourceLine, Statements};

/// Code, PTX or machine code.
#[derive(Default)]
pub struct Listing {
    /// The number of the first line.
    pub first_line: usize,
    pub lines: Vec<String>,
    /// The lines that are instructions.
    pub rows: Vec<Row>,
    /// Where values are live.
    pub values: Vec<RangeOfValue>,
}

/// An instruction.
pub struct Row {
    /// Its line, counted from the first of the listing.
    pub line: usize,
    /// Its number, by which positions count.
    pub number: usize,
    /// General registers that hold a value around it.
    pub registers: usize,
    /// The position at which so many do.
    pub position: usize,
    pub loop_depth: u32,
    pub source: Option<SourceLine>,
    /// Of machine code, the line of the PTX.
    pub ptx_line: Option<usize>,
}

/// A value and where it is live. Positions count two to an instruction.
pub struct RangeOfValue {
    pub name: String,
    pub registers: usize,
    pub segments: Vec<Range<usize>>,
    /// Lines, counted from the first of the listing.
    pub written: Vec<usize>,
    pub read: Vec<usize>,
    pub spill_cycles: Option<f64>,
    pub recompute_cycles: Option<u8>,
}

impl Listing {
    /// The lines of a function of a text; where it is understood, with all that is known of it.
    pub fn of_text(text: &str, first_line: usize, values: Option<&FunctionValues>) -> Listing {
        let mut listing = Listing {
            first_line,
            lines: text.lines().map(str::to_owned).collect(),
            ..Listing::default()
        };
        let Some(values) = values else {
            return listing;
        };
        let statements = Statements::of(values);
        let own = |line: usize| line.saturating_sub(first_line);
        let rows = statements.statements.iter().map(|statement| Row {
            line: own(statement.place.line),
            number: statement.number,
            registers: statement.registers,
            position: statement.position,
            loop_depth: statement.place.loop_depth,
            source: statement.place.source.clone(),
            ptx_line: None,
        });
        listing.rows = rows.collect();
        let values = values.values.iter().map(|value| RangeOfValue {
            name: value.name.clone(),
            registers: value.registers,
            segments: statements
                .segments(value)
                .iter()
                .map(|segment| segment.positions())
                .collect(),
            written: value.written.iter().map(|place| own(place.line)).collect(),
            read: value.read.iter().map(|place| own(place.line)).collect(),
            spill_cycles: Some(value.spill_cycles),
            recompute_cycles: value.recompute_cycles,
        });
        listing.values = values.collect();
        listing
    }

    /// The row with the most registers in use; the first of several.
    pub fn peak(&self) -> Option<usize> {
        let most = self.rows.iter().map(|row| row.registers).max()?;
        self.rows.iter().position(|row| row.registers == most)
    }

    /// The most registers in use.
    pub fn most(&self) -> Option<usize> {
        Some(self.rows[self.peak()?].registers)
    }

    /// The values in use where a row has the most.
    pub fn live_at(&self, row: &Row) -> impl Iterator<Item = &RangeOfValue> {
        let position = row.position;
        let is_live =
            move |v: &&RangeOfValue| v.segments.iter().any(|segment| segment.contains(&position));
        self.values.iter().filter(is_live)
    }

    /// The line of a row, as the file numbers it.
    pub fn line_of(&self, row: &Row) -> usize {
        self.first_line + row.line
    }
}
