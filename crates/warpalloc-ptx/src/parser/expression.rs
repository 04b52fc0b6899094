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
            value: value.map(|value| value.bits),
            names,
            span: self.span_from(start),
        })
    }

    fn ternary(&mut self, names: &mut Vec<Name<'a>>) -> Result<Option<Value>> {
        self.nested(|parser| {
            let condition = parser.binary(names, 0)?;
            if !parser.eat(Token::Question) {
                return Ok(condition);
            }
            let yes = parser.ternary(names)?;
            parser.expect(Token::Colon, "`:`")?;
            let no = parser.ternary(names)?;
            let chosen = condition.and_then(|c| if c.bits != 0 { yes } else { no });
            let unsigned = yes.zip(no).is_some_and(|(a, b)| a.unsigned || b.unsigned);
            Ok(chosen.map(|value| Value { unsigned, ..value }))
        })
    }

    /// Operators that bind at least as tightly as `level`; the depth of this recursion is
    /// bounded by the number of levels.
    fn binary(&mut self, names: &mut Vec<Name<'a>>, level: u8) -> Result<Option<Value>> {
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
    fn unary(&mut self, names: &mut Vec<Name<'a>>) -> Result<Option<Value>> {
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
                Token::Minus => Value {
                    bits: v.bits.wrapping_neg(),
                    ..v
                },
                Token::Bang => Value::signed(u64::from(v.bits == 0)),
                Token::Tilde => Value::unsigned(!v.bits),
                _ => v,
            });
        }
        Ok(value)
    }

    fn atom(&mut self, names: &mut Vec<Name<'a>>) -> Result<Option<Value>> {
        let value = match self.token {
            Token::Number | Token::Decimal => {
                let value = match self.literal()? {
                    Literal::Int(bits) => Some(Value {
                        bits,
                        unsigned: self.text.ends_with('U') || bits > i64::MAX as u64,
                    }),
                    Literal::Float(_) => None,
                };
                self.bump();
                value
            }
            Token::Ident if self.text == WARP_SIZE.0 => {
                self.bump();
                return Ok(Some(Value::signed(WARP_SIZE.1)));
            }
            // `generic` is an operator, not a symbol.
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
    fn parentheses(&mut self, names: &mut Vec<Name<'a>>) -> Result<Option<Value>> {
        let open = self.span;
        self.bump();
        if self.token == Token::DotWord {
            let unsigned = self.text.starts_with(".u");
            self.bump();
            self.expect(Token::RParen, "`)` after the type")?;
            let value = self.nested(|parser| parser.unary(names))?;
            return Ok(value.map(|value| Value { unsigned, ..value }));
        }
        let value = self.ternary(names)?;
        if !self.eat(Token::RParen) {
            return Err(self.unclosed("`)`", open, "the parenthesis opens here"));
        }
        Ok(value)
    }
}

/// The one constant that the language predefines.
pub(super) const WARP_SIZE: (&str, u64) = ("WARP_SZ", 32);

/// An integer of 64 bits; signedness decides how it is divided, compared and shifted.
#[derive(Clone, Copy, Debug)]
struct Value {
    bits: u64,
    unsigned: bool,
}

impl Value {
    fn signed(bits: u64) -> Self {
        Value {
            bits,
            unsigned: false,
        }
    }

    fn unsigned(bits: u64) -> Self {
        Value {
            bits,
            unsigned: true,
        }
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

/// One operation; nothing for a division by zero or a shift by 64 and more.
fn apply(operator: Token, left: Value, right: Value) -> Option<Value> {
    let (a, b) = (left.bits, right.bits);
    let unsigned = left.unsigned || right.unsigned;
    let truth = |value: bool| Some(Value::signed(u64::from(value)));
    let same = |bits: u64| Some(Value { bits, unsigned });
    let order = if unsigned {
        a.cmp(&b)
    } else {
        (a as i64).cmp(&(b as i64))
    };
    let shift = u32::try_from(b).ok().filter(|&shift| shift < 64);
    match operator {
        Token::OrOr => truth(a != 0 || b != 0),
        Token::AndAnd => truth(a != 0 && b != 0),
        Token::Or => same(a | b),
        Token::Xor => same(a ^ b),
        Token::And => same(a & b),
        Token::EqualEqual => truth(a == b),
        Token::NotEqual => truth(a != b),
        Token::Less => truth(order.is_lt()),
        Token::Greater => truth(order.is_gt()),
        Token::LessEqual => truth(order.is_le()),
        Token::GreaterEqual => truth(order.is_ge()),
        Token::ShiftLeft => Some(Value {
            bits: a << shift?,
            ..left
        }),
        Token::ShiftRight if left.unsigned => Some(Value::unsigned(a >> shift?)),
        Token::ShiftRight => Some(Value::signed((a as i64 >> shift?) as u64)),
        Token::Plus => same(a.wrapping_add(b)),
        Token::Minus => same(a.wrapping_sub(b)),
        Token::Star => same(a.wrapping_mul(b)),
        Token::Slash if unsigned => same(a.checked_div(b)?),
        Token::Slash => same((a as i64).checked_div(b as i64)? as u64),
        // The ISA takes a remainder of unsigned values and calls the result signed.
        _ => Some(Value::signed(a.checked_rem(b)?)),
    }
}
