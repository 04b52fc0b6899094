//! Operands.

use super::expression::WARP_SIZE;
use super::{Parser, Result};
use crate::ast::{Component, Element, Float, Memory, Name, Operand, Span};
use crate::lexer::Token;
use crate::literal::Literal;
use smallvec::SmallVec;

impl<'a> Parser<'a> {
    /// One operand with its second half, if it is a pair `d|p`. In a call, parentheses
    /// hold lists; anywhere else they hold expressions.
    pub(super) fn operand(&mut self, is_call: bool) -> Result<Operand<'a>> {
        let first = self.primary(is_call)?;
        if self.token != Token::Or {
            return Ok(first);
        }
        self.bump();
        let second = self.primary(false)?;
        Ok(Operand::Pair(Box::new((first, second))))
    }

    fn plain_operand(&mut self) -> Result<Operand<'a>> {
        self.operand(false)
    }

    fn primary(&mut self, is_call: bool) -> Result<Operand<'a>> {
        match self.token {
            Token::Ident => self.named(),
            Token::Number | Token::Decimal => self.number(),
            Token::LBracket => self
                .nested(Self::memory)
                .map(|memory| Operand::Memory(Box::new(memory))),
            Token::LBrace => self.items(Token::RBrace).map(Operand::Vector),
            Token::LParen if is_call => self.items(Token::RParen).map(Operand::Paren),
            Token::Underscore => {
                let span = self.span;
                self.bump();
                Ok(Operand::Sink(span))
            }
            Token::Bang => self.negated(),
            Token::Minus => self.signed(),
            Token::LParen | Token::Plus | Token::Tilde => self.constant(),
            _ => Err(self.unexpected("an operand")),
        }
    }

    /// A braced or parenthesised list of operands.
    fn items(&mut self, close: Token) -> Result<Vec<Operand<'a>>> {
        let open = self.span;
        self.nested(|parser| {
            parser.bump();
            parser.list(close, open, Self::plain_operand)
        })
    }

    /// A name, alone or with what may follow it.
    #[inline]
    fn named(&mut self) -> Result<Operand<'a>> {
        let name = self.current_name();
        self.bump();
        match self.token {
            Token::DotWord => {
                let span = name.span.to(self.span);
                self.bump();
                let text = span.text(self.source);
                let length = name.text.len() as u32;
                Ok(Operand::Component(Component::new(text, span.start, length)))
            }
            Token::LBracket => self.element(name),
            // `d|p` is a pair; anything else that goes on is an expression.
            Token::Or => Ok(Operand::Ident(name)),
            token if continues_expression(token) => {
                self.rewind(name.span.start);
                self.constant()
            }
            _ if name.text == WARP_SIZE.0 => Ok(Operand::Int {
                bits: WARP_SIZE.1,
                span: name.span,
            }),
            _ => Ok(Operand::Ident(name)),
        }
    }

    /// `a[index]`, after the name.
    fn element(&mut self, name: Name<'a>) -> Result<Operand<'a>> {
        self.bump();
        let index = self.nested(Self::plain_operand)?;
        self.expect(Token::RBracket, "`]` after the index")?;
        Ok(Operand::Element(Box::new(Element {
            name,
            index,
            span: self.span_from(name.span.start),
        })))
    }

    /// A number, or an expression that starts with one.
    fn number(&mut self) -> Result<Operand<'a>> {
        let (span, literal) = (self.span, self.literal()?);
        self.bump();
        if continues_expression(self.token) {
            self.rewind(span.start);
            return self.constant();
        }
        Ok(plain_number(literal, false, span))
    }

    /// Goes back to the token that starts at `start`.
    fn rewind(&mut self, start: u32) {
        self.lexer.seek(start);
        self.bump();
    }

    /// `-` in front of a number, an expression or a register.
    fn signed(&mut self) -> Result<Operand<'a>> {
        let start = self.span.start;
        self.bump();
        match self.token {
            Token::Number | Token::Decimal => {
                let literal = self.literal()?;
                let span = Span::new(start, self.span.end);
                self.bump();
                if continues_expression(self.token) {
                    self.rewind(start);
                    return self.constant();
                }
                Ok(plain_number(literal, true, span))
            }
            Token::Ident => {
                let operand = self.named()?;
                Ok(Operand::Neg(Box::new(operand)))
            }
            _ => {
                self.rewind(start);
                self.constant()
            }
        }
    }

    /// `!p`, or an expression that starts with `!`.
    fn negated(&mut self) -> Result<Operand<'a>> {
        let start = self.span.start;
        self.bump();
        if self.token == Token::Ident {
            let name = self.current_name();
            self.bump();
            return Ok(Operand::Not(name));
        }
        self.rewind(start);
        self.constant()
    }

    /// A constant expression.
    fn constant(&mut self) -> Result<Operand<'a>> {
        let expr = self.expression()?;
        Ok(Operand::Expr(Box::new(expr)))
    }

    /// `[base [+ offset] [, element]…]`
    fn memory(&mut self) -> Result<Memory<'a>> {
        let open = self.span;
        self.bump();
        let base = self.memory_base()?;
        let offset = match self.token {
            Token::Plus => {
                self.bump();
                Some(self.primary(false)?)
            }
            Token::Minus => Some(self.primary(false)?),
            _ => None,
        };
        let mut elements = SmallVec::new();
        while self.eat(Token::Comma) {
            elements.push(self.plain_operand()?);
        }
        if !self.eat(Token::RBracket) {
            return Err(self.unclosed("`]`", open, "the address opens here"));
        }
        let unified = self.eat_word(".unified");
        Ok(Memory {
            base,
            offset,
            elements,
            unified,
            span: self.span_from(open.start),
        })
    }

    /// A name is taken alone, so that what is added to it becomes the offset.
    fn memory_base(&mut self) -> Result<Operand<'a>> {
        if self.token != Token::Ident {
            return self.primary(false);
        }
        let name = self.current_name();
        self.bump();
        match self.token {
            Token::LBracket => self.element(name),
            Token::LParen | Token::DotWord => {
                self.rewind(name.span.start);
                self.named()
            }
            _ => Ok(Operand::Ident(name)),
        }
    }
}

/// Whether an expression goes on after its first constant.
fn continues_expression(token: Token) -> bool {
    matches!(
        token,
        Token::Plus
            | Token::Minus
            | Token::Star
            | Token::Slash
            | Token::Percent
            | Token::ShiftLeft
            | Token::ShiftRight
            | Token::And
            | Token::Or
            | Token::Xor
            | Token::AndAnd
            | Token::OrOr
            | Token::Less
            | Token::Greater
            | Token::LessEqual
            | Token::GreaterEqual
            | Token::EqualEqual
            | Token::NotEqual
            | Token::Question
            | Token::LParen
    )
}

fn plain_number<'a>(literal: Literal, negative: bool, span: Span) -> Operand<'a> {
    match literal {
        Literal::Int(bits) => Operand::Int {
            bits: if negative { bits.wrapping_neg() } else { bits },
            span,
        },
        Literal::Float(value) => Operand::Float {
            value: if negative { negate(value) } else { value },
            span,
        },
    }
}

fn negate(value: Float) -> Float {
    match value {
        Float::Single(bits) => Float::Single(bits ^ (1 << 31)),
        Float::Double(bits) => Float::Double(bits ^ (1 << 63)),
        Float::Decimal(value) => Float::Decimal(-value),
    }
}
