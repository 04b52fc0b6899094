//! Constant expressions, evaluated where they are plain integers.

use super::{Parser, Result};
use crate::ast::{Expr, Name};
use crate::lexer::Token;
use crate::literal::{self, Literal};

impl<'a> Parser<'a> {
    /// A literal integer without a sign.
    pub(super) fn integer(&mut self, what: &str) -> Result<u64> {
        if self.token != Token::Number {
            return Err(self.unexpected(what));
        }
        match self.literal()? {
            Literal::Int(value) => {
                self.bump();
                Ok(value)
            }
            Literal::Float(_) => Err(self.unexpected(what)),
        }
    }

    /// A literal integer of at most 32 bits.
    pub(super) fn small_integer(&mut self, what: &str) -> Result<u32> {
        let here = self.span;
        let value = self.integer(what)?;
        u32::try_from(value).map_err(|_| {
            self.span = here;
            self.error_here("this number does not fit 32 bits")
        })
    }

    /// What the current number means, without consuming it.
    #[inline]
    pub(super) fn literal(&mut self) -> Result<Literal> {
        literal::parse(self.text).map_err(|message| self.error_here(message))
    }

    /// A whole constant expression.
    pub(super) fn expression(&mut self) -> Result<Expr<'a>> {
        let start = self.span.start;
        let mut names = Vec::new();
        let value = self.ternary(&mut names)?;
        Ok(Expr {
            value,
            names,
            span: self.span_from(start),
        })
    }

    fn ternary(&mut self, names: &mut Vec<Name<'a>>) -> Result<Option<i64>> {
        self.nested(|parser| {
            let condition = parser.binary(names, 0)?;
            if !parser.eat(Token::Question) {
                return Ok(condition);
            }
            let yes = parser.ternary(names)?;
            parser.expect(Token::Colon, "`:`")?;
            let no = parser.ternary(names)?;
            Ok(condition.and_then(|c| if c != 0 { yes } else { no }))
        })
    }

    /// Operators that bind at least as tightly as `level`; the depth of this recursion is
    /// bounded by the number of levels.
    fn binary(&mut self, names: &mut Vec<Name<'a>>, level: u8) -> Result<Option<i64>> {
        let mut left = self.unary(names)?;
        while let Some(binding) = binding(self.token).filter(|&binding| binding >= level) {
            let operator = self.token;
            self.bump();
            let right = self.binary(names, binding + 1)?;
            left = left.zip(right).and_then(|(a, b)| apply(operator, a, b));
        }
        Ok(left)
    }

    /// Signs and complements in front of an atom; a loop, since there may be many.
    fn unary(&mut self, names: &mut Vec<Name<'a>>) -> Result<Option<i64>> {
        let mut pending = Vec::new();
        while matches!(
            self.token,
            Token::Minus | Token::Plus | Token::Bang | Token::Tilde
        ) {
            pending.push(self.token);
            self.bump();
        }
        let mut value = self.atom(names)?;
        for operator in pending.into_iter().rev() {
            value = value.map(|v| match operator {
                Token::Minus => v.wrapping_neg(),
                Token::Bang => i64::from(v == 0),
                Token::Tilde => !v,
                _ => v,
            });
        }
        Ok(value)
    }

    fn atom(&mut self, names: &mut Vec<Name<'a>>) -> Result<Option<i64>> {
        let value = match self.token {
            Token::Number | Token::Decimal => {
                let value = match self.literal()? {
                    Literal::Int(value) => Some(value as i64),
                    Literal::Float(_) => None,
                };
                self.bump();
                value
            }
            // `generic` and `mask` are operators, not symbols.
            Token::Ident => {
                let name = self.current_name();
                self.bump();
                if self.token != Token::LParen {
                    names.push(name);
                }
                None
            }
            Token::LParen => return self.parentheses(names),
            _ => return Err(self.unexpected("a constant")),
        };
        if self.token != Token::LParen {
            return Ok(value);
        }
        // `generic(x)` and `0xFF(x)`, a byte of an address.
        self.parentheses(names)?;
        Ok(None)
    }

    /// `(expression)`, or `(.s64)` in front of what it casts.
    fn parentheses(&mut self, names: &mut Vec<Name<'a>>) -> Result<Option<i64>> {
        let open = self.span;
        self.bump();
        let cast = self.token == Token::DotWord;
        let value = if cast {
            self.bump();
            None
        } else {
            self.ternary(names)?
        };
        if !self.eat(Token::RParen) {
            return Err(self.unclosed("`)`", open, "the parenthesis opens here"));
        }
        if cast {
            return self.nested(|parser| parser.unary(names));
        }
        Ok(value)
    }
}

/// How tightly a binary operator binds, as in C.
fn binding(token: Token) -> Option<u8> {
    Some(match token {
        Token::OrOr => 0,
        Token::AndAnd => 1,
        Token::Or => 2,
        Token::Xor => 3,
        Token::And => 4,
        Token::EqualEqual | Token::NotEqual => 5,
        Token::Less | Token::Greater | Token::LessEqual | Token::GreaterEqual => 6,
        Token::ShiftLeft | Token::ShiftRight => 7,
        Token::Plus | Token::Minus => 8,
        Token::Star | Token::Slash | Token::Percent => 9,
        _ => return None,
    })
}

fn apply(operator: Token, a: i64, b: i64) -> Option<i64> {
    let shift = u32::try_from(b).ok().filter(|&shift| shift < 64);
    Some(match operator {
        Token::OrOr => i64::from(a != 0 || b != 0),
        Token::AndAnd => i64::from(a != 0 && b != 0),
        Token::Or => a | b,
        Token::Xor => a ^ b,
        Token::And => a & b,
        Token::EqualEqual => i64::from(a == b),
        Token::NotEqual => i64::from(a != b),
        Token::Less => i64::from(a < b),
        Token::Greater => i64::from(a > b),
        Token::LessEqual => i64::from(a <= b),
        Token::GreaterEqual => i64::from(a >= b),
        Token::ShiftLeft => a.wrapping_shl(shift?),
        Token::ShiftRight => a.wrapping_shr(shift?),
        Token::Plus => a.wrapping_add(b),
        Token::Minus => a.wrapping_sub(b),
        Token::Star => a.wrapping_mul(b),
        Token::Slash => a.checked_div(b)?,
        _ => a.checked_rem(b)?,
    })
}
