//! Text to tree, by recursive descent with one token of lookahead.
//!
//! The parser knows the grammar, not the instructions: any mnemonic with any operands is
//! accepted as long as it is well formed, so new instructions of the ISA need no change
//! here. Recursion is bounded by [`MAX_DEPTH`]; hostile nesting is an error, not a crash.

mod body;
mod declaration;
mod expression;
mod module;
mod operand;
#[cfg(test)]
mod tests;

use crate::ast::{Module, Name, Span};
use crate::diag::ParseError;
use crate::lexer::{Lexer, Token};
use std::borrow::Cow;

/// How deep scopes, vectors and parentheses may nest, counted together.
pub const MAX_DEPTH: u32 = 1000;

/// Parses a module.
pub fn parse(source: &str) -> Result<Module<'_>, ParseError> {
    if u32::try_from(source.len()).is_err() {
        return Err(ParseError::new(
            Span::default(),
            "the text is larger than 4 GiB",
        ));
    }
    Parser::new(source).module().map_err(|error| *error)
}

/// Parses a module from bytes, which must be UTF-8.
pub fn parse_bytes(source: &[u8]) -> Result<Module<'_>, ParseError> {
    match std::str::from_utf8(source) {
        Ok(text) => parse(text),
        Err(error) => {
            let at = u32::try_from(error.valid_up_to()).unwrap_or(u32::MAX - 1);
            let error = ParseError::new(Span::new(at, at + 1), "this byte is not UTF-8 text");
            Err(error.with_help("is this a PTX file at all?"))
        }
    }
}

/// Errors are rare and large: boxed, they do not slow down what goes well.
type Result<T, E = Box<ParseError>> = std::result::Result<T, E>;

struct Parser<'a> {
    source: &'a str,
    lexer: Lexer<'a>,
    /// The current token, not consumed yet.
    token: Token,
    text: &'a str,
    span: Span,
    /// Where the token before it ended.
    last_end: u32,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn new(source: &'a str) -> Self {
        let mut parser = Parser {
            source,
            lexer: Lexer::new(source),
            token: Token::Eof,
            text: "",
            span: Span::default(),
            last_end: 0,
            depth: 0,
        };
        parser.bump();
        parser
    }

    #[inline]
    fn bump(&mut self) {
        self.last_end = self.span.end;
        self.token = self.lexer.advance();
        self.text = self.lexer.text();
        self.span = self.lexer.span();
    }

    #[inline]
    fn eat(&mut self, token: Token) -> bool {
        let found = self.token == token;
        if found {
            self.bump();
        }
        found
    }

    /// Consumes `token` or says that it was expected, in the words of `what`.
    #[inline]
    fn expect(&mut self, token: Token, what: &str) -> Result<()> {
        if self.eat(token) {
            return Ok(());
        }
        Err(self.unexpected(what))
    }

    /// Consumes the directive or modifier `word`, given with its dot.
    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.bump();
        }
        found
    }

    fn at_word(&self, word: &str) -> bool {
        self.token == Token::DotWord && self.text == word
    }

    /// From `start` to the end of what was consumed last.
    fn span_from(&self, start: u32) -> Span {
        Span::new(start, self.last_end)
    }

    /// The source text from `start` to the end of what was consumed last, trimmed.
    fn text_from(&self, start: u32) -> &'a str {
        self.span_from(start).text(self.source).trim()
    }

    /// The current token as a name, without consuming it.
    #[inline]
    fn current_name(&self) -> Name<'a> {
        Name {
            text: self.text,
            span: self.span,
        }
    }

    fn name(&mut self, what: &str) -> Result<Name<'a>> {
        let name = self.current_name();
        self.expect(Token::Ident, what)?;
        Ok(name)
    }

    /// Runs `parse` one level deeper, unless that is too deep.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            let message = format!("nesting deeper than {MAX_DEPTH} levels");
            return Err(self.error_here(message));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Items separated by commas up to `close`, which is consumed; the opening token
    /// stands at `open`.
    fn list<T>(
        &mut self,
        close: Token,
        open: Span,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(Token::Comma) {
                continue;
            }
            if self.eat(close) {
                return Ok(items);
            }
            let what = match close {
                Token::RParen => "`,` or `)`",
                Token::RBrace => "`,` or `}`",
                _ => "`,` or `]`",
            };
            return Err(self.unclosed(what, open, "the list starts here"));
        }
    }

    #[cold]
    fn error_here(&self, message: impl Into<Cow<'static, str>>) -> Box<ParseError> {
        Box::new(ParseError::new(self.span, message))
    }

    /// "expected `what`, found this token".
    #[cold]
    fn unexpected(&self, what: &str) -> Box<ParseError> {
        let found = self.token.describe(self.text);
        let error = self.error_here(format!("expected {what}, found {found}"));
        match self.token {
            Token::Unknown if self.text.starts_with('"') => {
                Box::new(error.with_help("the string is not closed on its line"))
            }
            Token::Preprocessor => {
                Box::new(error.with_help("run the C preprocessor over this file first"))
            }
            _ => error,
        }
    }

    /// Like [`Self::unexpected`], with a pointer to what is still open.
    #[cold]
    fn unclosed(&self, what: &str, open: Span, note: &'static str) -> Box<ParseError> {
        Box::new(self.unexpected(what).with_related(open, note))
    }
}
