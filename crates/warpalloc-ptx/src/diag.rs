//! What is wrong with a text, and where.

use crate::ast::Span;
use crate::lexer::printable;
use std::borrow::Cow;
use std::fmt::Write;

/// How many characters of an offending line are shown at most.
const SHOWN: usize = 100;

/// Why a text is no PTX.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// The text that is wrong.
    pub span: Span,
    /// What is wrong with it.
    pub message: Cow<'static, str>,
    /// What to do about it.
    pub help: Option<Cow<'static, str>>,
    /// Another place that explains the first.
    pub related: Option<(Span, &'static str)>,
}

impl ParseError {
    /// An error about the text at `span`.
    pub fn new(span: Span, message: impl Into<Cow<'static, str>>) -> Self {
        ParseError {
            span,
            message: message.into(),
            help: None,
            related: None,
        }
    }

    /// Adds what to do about it.
    pub fn with_help(mut self, help: impl Into<Cow<'static, str>>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds another place that explains the error.
    pub fn with_related(mut self, span: Span, note: &'static str) -> Self {
        self.related = Some((span, note));
        self
    }

    /// The error as a terminal shows it: file, line, column, the line, the text underlined.
    ///
    /// `source` may be any bytes, so that text that is not even UTF-8 can be shown too.
    pub fn render(&self, file_name: &str, source: impl AsRef<[u8]>) -> String {
        let source = source.as_ref();
        let mut out = format!("error: {}\n", self.message);
        excerpt(&mut out, file_name, source, self.span);
        if let Some((span, note)) = self.related {
            let _ = writeln!(out, "note: {note}");
            excerpt(&mut out, file_name, source, span);
        }
        if let Some(help) = &self.help {
            let _ = writeln!(out, "help: {help}");
        }
        out
    }
}

/// Line and column, both from 1, of a byte of a text; the column counts characters.
pub fn line_and_column(source: impl AsRef<[u8]>, offset: u32) -> (usize, usize) {
    let source = source.as_ref();
    let offset = (offset as usize).min(source.len());
    let before = &source[..offset];
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let start = before
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |at| at + 1);
    (line, characters(&before[start..]) + 1)
}

/// Where the lines of a text begin: many places are found without reading it again each time.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    source: &'a [u8],
    starts: Vec<u32>,
}

impl<'a> Lines<'a> {
    /// The lines of `source`.
    pub fn of(source: &'a str) -> Self {
        let source = source.as_bytes();
        let after = |(at, &byte): (usize, &u8)| (byte == b'\n').then_some(at as u32 + 1);
        let ends = source.iter().enumerate().filter_map(after);
        Lines {
            source,
            starts: std::iter::once(0).chain(ends).collect(),
        }
    }

    /// The line, from 1, of a byte of the text.
    pub fn line(&self, offset: u32) -> usize {
        self.starts.partition_point(|&start| start <= offset)
    }

    /// Line and column as [`line_and_column`] gives them.
    pub fn line_and_column(&self, offset: u32) -> (usize, usize) {
        let offset = offset.min(self.source.len() as u32);
        let line = self.line(offset);
        let start = self.starts[line - 1] as usize;
        (line, characters(&self.source[start..offset as usize]) + 1)
    }
}

/// Counts without decoding more than it must: a line of noise may be 100 MB long.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&b| b & 0xc0 != 0x80).count()
}

/// Writes `--> file:line:column`, the line, and a row of `^` under the span.
fn excerpt(out: &mut String, file_name: &str, source: &[u8], span: Span) {
    let (line, column) = line_and_column(source, span.start);
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    let window = Window::around(source, span);
    let _ = writeln!(out, "{margin}--> {file_name}:{line}:{column}");
    let _ = writeln!(out, "{margin} |");
    let _ = writeln!(out, "{number} | {}{}", window.before, window.rest);
    let pad: String = window
        .before
        .chars()
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    let _ = writeln!(out, "{margin} | {pad}{}", "^".repeat(window.marked.max(1)));
}

/// The part of a line that is worth showing.
struct Window {
    /// What comes before the span.
    before: String,
    /// The span and what follows.
    rest: String,
    /// How many characters of `rest` belong to the span.
    marked: usize,
}

impl Window {
    fn around(source: &[u8], span: Span) -> Self {
        let start = (span.start as usize).min(source.len());
        let end = (span.end as usize).clamp(start, source.len());
        // A character takes at most four bytes; a line may be endless.
        let low = start.saturating_sub(2 * SHOWN);
        let before = &source[low..start];
        let line_start = before.iter().rposition(|&b| b == b'\n');
        let cut = line_start.is_none() && low > 0;
        let before = String::from_utf8_lossy(&before[line_start.map_or(0, |at| at + 1)..]);
        let high = (start + 2 * SHOWN).min(source.len());
        let rest = &source[start..high];
        let line_end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        let marked = &rest[..line_end.min(end - start)];
        let rest = String::from_utf8_lossy(&rest[..line_end]);
        let shown = rest.trim_end_matches('\r').chars().count().min(SHOWN);
        Window {
            before: tail(&before, cut),
            marked: String::from_utf8_lossy(marked).chars().count().min(shown),
            rest: rest.chars().take(shown).map(visible).collect(),
        }
    }
}

/// The last characters of a text, with a sign where some were left out.
fn tail(text: &str, cut: bool) -> String {
    let length = text.chars().count();
    if !cut && length <= SHOWN {
        return text.chars().map(visible).collect();
    }
    let kept = text.chars().skip(length.saturating_sub(SHOWN / 2));
    std::iter::once('…').chain(kept.map(visible)).collect()
}

fn visible(c: char) -> char {
    if c == '\t' { c } else { printable(c) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendered_error() {
        let source = "first\n\tadd.s32 %r1, %r2]\r\nlast";
        let error = ParseError::new(Span::new(23, 24), "expected `;`")
            .with_help("add one")
            .with_related(Span::new(0, 5), "it began here");
        assert_eq!(
            error.render("a.ptx", source),
            "error: expected `;`\n \
             --> a.ptx:2:18\n  |\n\
             2 | \tadd.s32 %r1, %r2]\n  | \t                ^\n\
             note: it began here\n --> a.ptx:1:1\n  |\n\
             1 | first\n  | ^^^^^\n\
             help: add one\n"
        );
    }

    #[test]
    fn the_end_of_the_text_can_be_marked() {
        let error = ParseError::new(Span::new(3, 3), "cut short");
        assert_eq!(
            error.render("a", "abc"),
            "error: cut short\n --> a:1:4\n  |\n1 | abc\n  |    ^\n"
        );
    }

    #[test]
    fn endless_lines_and_odd_bytes_are_shown_in_part() {
        let mut source = vec![b'x'; 100_000];
        source[50_000] = 0xff;
        source[50_001] = 0x07;
        let shown = ParseError::new(Span::new(50_000, 90_000), "noise").render("a", &source);
        assert!(shown.len() < 1000);
        assert!(shown.contains("a:1:50001\n"));
        assert!(shown.contains("…xxx"));
        assert!(shown.contains("x\u{fffd}\u{fffd}x"));
    }

    #[test]
    fn an_index_of_lines_agrees_with_reading_the_text() {
        for source in ["", "a", "\n", "é\nüb\r\n\n", "a\nb"] {
            let lines = Lines::of(source);
            for offset in 0..=source.len() as u32 + 1 {
                assert_eq!(
                    lines.line_and_column(offset),
                    line_and_column(source, offset),
                    "{source:?} at {offset}"
                );
            }
        }
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(line_and_column("é\nüb", 5), (2, 2));
        assert_eq!(line_and_column("", 7), (1, 1));
    }
}
