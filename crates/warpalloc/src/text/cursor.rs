//! A cursor over the lines of a text and the tokens of a line.

use super::TextError;
use super::lex::{self, Kind as TokenKind, Token, error_at};

/// The lines of a text that hold more than a comment.
pub(super) struct Lines<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    last: (usize, &'a str),
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Lines<'a> {
        Lines {
            lines: text.lines().enumerate(),
            last: (0, ""),
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<Line<'a>>, TextError> {
        for (index, text) in self.lines.by_ref() {
            self.last = (index, text);
            let tokens = lex::tokens(text, index + 1)?;
            if !tokens.is_empty() {
                let number = index + 1;
                return Ok(Some(Line {
                    text,
                    number,
                    tokens,
                    at: 0,
                }));
            }
        }
        Ok(None)
    }

    /// An error at the end of the text.
    pub(super) fn error(&self, message: &str) -> TextError {
        let (index, text) = self.last;
        error_at(text, index + 1, text.len(), "", message)
    }
}

/// One line's tokens, consumed from the left.
pub(super) struct Line<'a> {
    pub text: &'a str,
    pub number: usize,
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Line<'a> {
    pub(super) fn peek(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.at)
    }

    /// The next token if it is a word.
    pub(super) fn word(&self) -> Option<&'a str> {
        let word = self.peek().filter(|t| t.kind == TokenKind::Word);
        word.map(|t| t.text)
    }

    pub(super) fn number(&self) -> Option<&'a str> {
        let number = self.peek().filter(|t| t.kind == TokenKind::Number);
        number.map(|t| t.text)
    }

    /// Whether the next three tokens follow each other without space, as in `v0:r32`. The
    /// colon before attributes has space behind it.
    pub(super) fn next_are_adjacent(&self) -> bool {
        let tokens = self.tokens.get(self.at..self.at + 3);
        let touch = |w: &[Token<'_>]| w[0].start + w[0].text.len() == w[1].start;
        tokens.is_some_and(|tokens| tokens.windows(2).all(touch))
    }

    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Consumes the next token if it is the mark or word `text`.
    pub(super) fn accept(&mut self, text: &str) -> bool {
        let here = self
            .peek()
            .is_some_and(|t| t.text == text && !matches!(t.kind, TokenKind::Quoted(_)));
        self.at += usize::from(here);
        here
    }

    pub(super) fn expect(&mut self, text: &str) -> Result<(), TextError> {
        if self.accept(text) {
            return Ok(());
        }
        Err(self.error(format!("`{text}` was expected")))
    }

    pub(super) fn end(&self) -> Result<(), TextError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("the end of the line was expected")),
        }
    }

    /// The next token, to point at later.
    pub(super) fn spot(&self) -> Spot<'a> {
        let (at, found) = match self.peek() {
            Some(token) => (token.start, token.text),
            None => (self.text.len(), ""),
        };
        Spot {
            line: self.text,
            number: self.number,
            at,
            found,
        }
    }

    /// An error at the next token.
    pub(super) fn error(&self, message: impl Into<String>) -> TextError {
        let spot = self.spot();
        error_at(spot.line, spot.number, spot.at, spot.found, message)
    }

    /// A whole number up to `most`.
    pub(super) fn integer(&mut self, most: u64, what: &str) -> Result<u64, TextError> {
        let parse = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        match self.number().and_then(parse).filter(|&n| n <= most) {
            Some(number) => {
                self.advance();
                Ok(number)
            }
            None => Err(self.error(format!("{what}, at most {most}, was expected"))),
        }
    }

    pub(super) fn name(&mut self, what: &str) -> Result<String, TextError> {
        let name = match self.peek() {
            Some(Token {
                kind: TokenKind::Quoted(name),
                ..
            }) => name.clone(),
            Some(Token {
                kind: TokenKind::Word,
                text,
                ..
            }) => (*text).to_owned(),
            _ => return Err(self.error(format!("{what} was expected"))),
        };
        self.advance();
        Ok(name)
    }
}

/// A token to point at later.
pub(super) struct Spot<'a> {
    line: &'a str,
    number: usize,
    at: usize,
    found: &'a str,
}

impl Spot<'_> {
    pub(super) fn error(&self, message: &str) -> TextError {
        error_at(self.line, self.number, self.at, self.found, message)
    }
}

/// The words of a line after its first, with their byte offsets; marks do not split them.
pub(super) fn pieces<'a>(line: &Line<'a>) -> impl Iterator<Item = (usize, &'a str)> {
    let text = line.text;
    let code = &text[..text.find(';').unwrap_or(text.len())];
    let words = code.split_whitespace().skip(1);
    words.map(move |word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}
