//! Tokens of one line.

use super::TextError;

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word: a name, a keyword, a register.
    Word,
    /// A number.
    Number,
    /// A quoted name, unescaped.
    Quoted(String),
    /// Punctuation.
    Mark,
}

/// A token and where it stands in its line.
#[derive(Clone, Debug)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// Byte offset in the line.
    pub start: usize,
}

const MARKS: &str = "(){},:=@#-+/";

/// Whether `c` may start a word.
pub(super) fn starts_word(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%')
}

/// Whether `c` may stand inside a word.
pub(super) fn continues_word(c: char) -> bool {
    starts_word(c) || c.is_ascii_digit() || c == '.'
}

/// The tokens of `line`, whose number is `number`.
pub(super) fn tokens(line: &str, number: usize) -> Result<Vec<Token<'_>>, TextError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = line[at..].chars().next() {
        let rest = &line[at..];
        if c == ';' {
            break;
        }
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let (kind, len) = if starts_word(c) {
            (Kind::Word, word_len(rest))
        } else if c.is_ascii_digit() {
            (Kind::Number, number_len(rest))
        } else if c == '"' {
            quoted(rest).ok_or_else(|| error_at(line, number, at, rest, "this name never ends"))?
        } else if rest.starts_with("->") || rest.starts_with("..") {
            (Kind::Mark, 2)
        } else if MARKS.contains(c) {
            (Kind::Mark, 1)
        } else {
            let text = &rest[..c.len_utf8()];
            return Err(error_at(
                line,
                number,
                at,
                text,
                "no token starts like this",
            ));
        };
        tokens.push(Token {
            kind,
            text: &rest[..len],
            start: at,
        });
        at += len;
    }
    Ok(tokens)
}

/// An error at byte `at` of `line`.
pub(super) fn error_at(
    line: &str,
    number: usize,
    at: usize,
    found: &str,
    message: impl Into<String>,
) -> TextError {
    TextError {
        line: number,
        column: line[..at].chars().count() + 1,
        message: message.into(),
        found: found.to_owned(),
        source: line.to_owned(),
    }
}

fn word_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let continues = |i: usize| {
        let c = bytes[i] as char;
        let hyphen = c == '-' && bytes.get(i + 1).is_some_and(u8::is_ascii_alphanumeric);
        bytes[i].is_ascii() && (continues_word(c) || hyphen)
    };
    (0..bytes.len())
        .find(|&i| !continues(i))
        .unwrap_or(bytes.len())
}

/// Digits, and a fraction if digits follow the point; letters belong to it, for `0x`.
fn number_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_alphanumeric);
    let mut end = 0;
    while digit(end) || (bytes.get(end) == Some(&b'.') && digit(end + 1)) {
        end += 1;
    }
    end
}

/// A quoted name and its length with the quotes.
fn quoted(rest: &str) -> Option<(Kind, usize)> {
    let mut name = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Kind::Quoted(name), at + 1)),
            '\\' => match chars.next()?.1 {
                'n' => name.push('\n'),
                'r' => name.push('\r'),
                other => name.push(other),
            },
            _ => name.push(c),
        }
    }
    None
}
