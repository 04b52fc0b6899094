//! Tokens of PTX.
//!
//! A modifier is one token with its dot and all its `::` parts, so `.shared::cluster` and
//! `.mbarrier::complete_tx::bytes` arrive whole. A number is one token too, even a
//! malformed one: `crate::literal` decides what it means, and a bad literal is reported
//! as a bad literal rather than as two tokens that do not fit.

use crate::ast::Span;
use logos::{FilterResult, Logos};
use std::fmt;

/// The kind of one token; its text is found through its span.
#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
#[logos(skip r"[ \t\r\n\x0b\x0c]+")]
pub enum Token {
    /// A name: register, label, symbol, mnemonic.
    #[regex(r"[A-Za-z][A-Za-z0-9_$]*|[_$%][A-Za-z0-9_$]+")]
    Ident,
    /// A directive, modifier or component, with its dot: `.global`, `.shared::cta`, `.x`.
    #[regex(r"\.[A-Za-z0-9_$]+(::[A-Za-z0-9_$]+)*")]
    DotWord,
    /// Anything that starts with a digit and holds no dot: `12`, `0xFFU`, `0f3F800000`.
    #[regex(r"[0-9][A-Za-z0-9_$]*")]
    Number,
    /// A decimal floating-point number with a dot or a signed exponent.
    #[regex(r"[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?")]
    #[regex(r"[0-9]+[eE][+-][0-9]+")]
    #[regex(r"\.[0-9]+([eE][+-]?[0-9]+)?", priority = 20)]
    Decimal,
    /// A quoted string with its quotes.
    #[regex(r#""([^"\\\n]|\\[^\n])*""#)]
    Str,
    /// A whole line of the DWARF syntax of PTX 1.x.
    #[token("@@", dwarf_line)]
    DwarfLine,
    /// A comment that is never closed; closed comments are skipped.
    #[token("//", line_comment)]
    #[token("/*", block_comment)]
    OpenComment,
    /// A line for the C preprocessor; those that only name a place are skipped.
    #[token("#", preprocessor_line)]
    Preprocessor,
    /// `_` on its own: a value that nobody wants.
    #[token("_")]
    Underscore,
    /// `(`
    #[token("(")]
    LParen,
    /// `)`
    #[token(")")]
    RParen,
    /// `[`
    #[token("[")]
    LBracket,
    /// `]`
    #[token("]")]
    RBracket,
    /// `{`
    #[token("{")]
    LBrace,
    /// `}`
    #[token("}")]
    RBrace,
    /// `,`
    #[token(",")]
    Comma,
    /// `;`
    #[token(";")]
    Semicolon,
    /// `:`
    #[token(":")]
    Colon,
    /// `@`
    #[token("@")]
    At,
    /// `=`
    #[token("=")]
    Equals,
    /// `+`
    #[token("+")]
    Plus,
    /// `-`
    #[token("-")]
    Minus,
    /// `*`
    #[token("*")]
    Star,
    /// `/`
    #[token("/")]
    Slash,
    /// `%` where no name follows
    #[token("%")]
    Percent,
    /// `!`
    #[token("!")]
    Bang,
    /// `~`
    #[token("~")]
    Tilde,
    /// `<`
    #[token("<")]
    Less,
    /// `>`
    #[token(">")]
    Greater,
    /// `<=`
    #[token("<=")]
    LessEqual,
    /// `>=`
    #[token(">=")]
    GreaterEqual,
    /// `==`
    #[token("==")]
    EqualEqual,
    /// `!=`
    #[token("!=")]
    NotEqual,
    /// `<<`
    #[token("<<")]
    ShiftLeft,
    /// `>>`
    #[token(">>")]
    ShiftRight,
    /// `&`
    #[token("&")]
    And,
    /// `|`
    #[token("|")]
    Or,
    /// `^`
    #[token("^")]
    Xor,
    /// `&&`
    #[token("&&")]
    AndAnd,
    /// `||`
    #[token("||")]
    OrOr,
    /// `?`
    #[token("?")]
    Question,
    /// The end of the text.
    Eof,
    /// Text that is no token.
    Unknown,
}

impl Token {
    /// The token as an error message names it; `text` is its text in the source.
    pub(crate) fn describe(self, text: &str) -> String {
        match self {
            Token::Eof => "the end of the file".to_owned(),
            Token::OpenComment => "a comment that is never closed".to_owned(),
            Token::DwarfLine => "a `@@` line".to_owned(),
            _ => {
                let shown: String = text.chars().take(40).map(printable).collect();
                let more = if text.chars().nth(40).is_some() {
                    "…"
                } else {
                    ""
                };
                format!("`{shown}{more}`")
            }
        }
    }
}

/// A control character would break the line that an error message prints.
pub(crate) fn printable(c: char) -> char {
    if c.is_control() { '\u{fffd}' } else { c }
}

fn line_comment(lex: &mut logos::Lexer<'_, Token>) -> FilterResult<(), ()> {
    lex.bump(length_of_line(lex.remainder()));
    FilterResult::Skip
}

/// `#line 3 "a.c"`, `# 3 "a.c"` and `#file` are what a preprocessor leaves behind.
fn preprocessor_line(lex: &mut logos::Lexer<'_, Token>) -> FilterResult<(), ()> {
    let length = length_of_line(lex.remainder());
    let line = lex.remainder()[..length].trim_start();
    let marker = line.starts_with("line")
        || line.starts_with("file")
        || line.starts_with(|c: char| c.is_ascii_digit());
    lex.bump(length);
    if marker {
        FilterResult::Skip
    } else {
        FilterResult::Emit(())
    }
}

fn dwarf_line(lex: &mut logos::Lexer<'_, Token>) {
    lex.bump(length_of_line(lex.remainder()));
}

fn length_of_line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

fn block_comment(lex: &mut logos::Lexer<'_, Token>) -> FilterResult<(), ()> {
    match lex.remainder().find("*/") {
        Some(length) => {
            lex.bump(length + 2);
            FilterResult::Skip
        }
        None => {
            lex.bump(lex.remainder().len());
            FilterResult::Emit(())
        }
    }
}

/// The tokens of a text, one after the other; white space and comments are skipped.
pub struct Lexer<'a> {
    inner: logos::Lexer<'a, Token>,
}

impl fmt::Debug for Lexer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lexer").field("at", &self.span()).finish()
    }
}

impl<'a> Lexer<'a> {
    /// Starts at the first byte of `source`. NUL bytes at its end, which some producers
    /// leave there, are not part of the program.
    pub fn new(source: &'a str) -> Self {
        let program = source.trim_end_matches(|c: char| c == '\0' || c.is_ascii_whitespace());
        Lexer {
            inner: Token::lexer(program),
        }
    }

    /// Goes back or ahead, so that the next token is the one that starts at byte `start`.
    pub(crate) fn seek(&mut self, start: u32) {
        self.inner = Token::lexer(self.inner.source());
        self.inner.bump(start as usize);
    }

    /// Moves to the next token; [`Token::Eof`] for ever after the last one.
    #[inline]
    pub fn advance(&mut self) -> Token {
        match self.inner.next() {
            Some(Ok(token)) => token,
            Some(Err(())) => Token::Unknown,
            None => Token::Eof,
        }
    }

    /// The text of the token just read.
    #[inline]
    pub fn text(&self) -> &'a str {
        self.inner.slice()
    }

    /// Where the token just read stands.
    #[inline]
    pub fn span(&self) -> Span {
        let range = self.inner.span();
        Span::new(range.start as u32, range.end as u32)
    }
}

/// Whether two texts hold the same tokens, whatever their white space and comments.
pub fn same_tokens(a: &str, b: &str) -> bool {
    first_difference(a, b).is_none()
}

/// Where two texts first differ in their tokens: the spans of the tokens that disagree.
pub fn first_difference(a: &str, b: &str) -> Option<(Span, Span)> {
    let (mut left, mut right) = (Lexer::new(a), Lexer::new(b));
    loop {
        let (x, y) = (left.advance(), right.advance());
        if x != y || left.text() != right.text() {
            return Some((left.span(), right.span()));
        }
        if x == Token::Eof {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(source: &str) -> Vec<(Token, &str)> {
        let mut lexer = Lexer::new(source);
        let mut found = Vec::new();
        loop {
            match lexer.advance() {
                Token::Eof => return found,
                token => found.push((token, lexer.text())),
            }
        }
    }

    #[test]
    fn a_modifier_keeps_its_double_colons() {
        use Token::*;
        assert_eq!(
            tokens("cp.async.bulk.shared::cluster.mbarrier::complete_tx::bytes.2d.L2::128B"),
            [
                (Ident, "cp"),
                (DotWord, ".async"),
                (DotWord, ".bulk"),
                (DotWord, ".shared::cluster"),
                (DotWord, ".mbarrier::complete_tx::bytes"),
                (DotWord, ".2d"),
                (DotWord, ".L2::128B"),
            ]
        );
    }

    #[test]
    fn numbers_names_and_sinks() {
        use Token::*;
        assert_eq!(
            tokens("0f3F800000 0xFFU 1.5e-3 1e-3 .5 9.0 %r1 $L_1 _ _x % a$b"),
            [
                (Number, "0f3F800000"),
                (Number, "0xFFU"),
                (Decimal, "1.5e-3"),
                (Decimal, "1e-3"),
                (Decimal, ".5"),
                (Decimal, "9.0"),
                (Ident, "%r1"),
                (Ident, "$L_1"),
                (Underscore, "_"),
                (Ident, "_x"),
                (Percent, "%"),
                (Ident, "a$b"),
            ]
        );
    }

    #[test]
    fn comments_white_space_and_trailing_nul_are_skipped() {
        assert_eq!(
            tokens("a // b é\r\n/* c * \n / ** */ d\r\n\0"),
            [(Token::Ident, "a"), (Token::Ident, "d")]
        );
        assert_eq!(tokens("a /* b")[1].0, Token::OpenComment);
        assert_eq!(
            tokens("@@DWARF .byte 1, \"\n;")[0],
            (Token::DwarfLine, "@@DWARF .byte 1, \"")
        );
    }

    #[test]
    fn token_equality_sees_only_tokens() {
        assert!(same_tokens("ld.u32 a,b ;", "ld.u32\ta, b; // x"));
        assert!(!same_tokens("ld.u32 a,b;", "ld.u32 a,c;"));
        assert!(!same_tokens("a", "a b"));
        assert_eq!(
            first_difference("a b", "a  c").map(|(_, b)| b.start),
            Some(3)
        );
    }
}
