//! What is wrong with a text.

use std::fmt;

/// Text that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What was expected.
    pub message: String,
    /// What stands there instead.
    pub found: String,
    /// The line's text.
    pub source: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        if !self.found.is_empty() {
            write!(f, ", found `{}`", self.found)?;
        }
        let width = self.found.chars().count().max(1);
        let (indent, marks) = (" ".repeat(self.column - 1), "^".repeat(width));
        // Tabs would shift the marks away from what they point at.
        let source = self.source.replace('\t', " ");
        write!(f, "\n    {source}\n    {indent}{marks}")
    }
}

impl std::error::Error for TextError {}
