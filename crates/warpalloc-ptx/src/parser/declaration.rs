//! Declarations of registers, variables and parameters.

use super::{Parser, Result};
use crate::ast::{Declarator, Linkage, Name, Pointer, RegDecl, Series, Span, VarDecl};
use crate::lexer::Token;
use smallvec::SmallVec;

/// State spaces a variable can live in.
const SPACES: &[&str] = &[
    ".global",
    ".shared",
    ".local",
    ".const",
    ".param",
    ".tex",
    ".surf",
    ".sampler",
    ".reg",
    ".shared::cta",
    ".shared::cluster",
    ".param::entry",
    ".param::func",
    ".sreg",
];

impl<'a> Parser<'a> {
    /// `.reg [.vN] .type name[<count>], …;`
    pub(super) fn reg_decl(&mut self) -> Result<RegDecl<'a>> {
        let start = self.span.start;
        self.bump();
        let vector = self.vector_width();
        let ty = self.dot_word("the type of the registers")?;
        let mut names = SmallVec::new();
        loop {
            let name = self.name("the name of a register")?;
            let count = self.series()?;
            names.push(Series { name, count });
            if !self.eat(Token::Comma) {
                break;
            }
        }
        self.expect(Token::Semicolon, "`,` or `;` after a register")?;
        Ok(RegDecl {
            vector,
            ty,
            names,
            span: self.span_from(start),
        })
    }

    /// A variable declaration up to its `;`; `linkage`, which stood before it, is consumed.
    pub(super) fn var_decl(&mut self, start: u32, linkage: Linkage) -> Result<VarDecl<'a>> {
        let mut decl = self.var_head(start, linkage)?;
        loop {
            let declarator = self.declarator()?;
            decl.names.push(declarator);
            if !self.eat(Token::Comma) {
                break;
            }
        }
        self.expect(Token::Semicolon, "`;` after the variable")?;
        decl.span = self.span_from(start);
        Ok(decl)
    }

    /// One parameter of a list.
    pub(super) fn param(&mut self) -> Result<VarDecl<'a>> {
        let start = self.span.start;
        let mut decl = self.var_head(start, Linkage::Internal)?;
        decl.names.push(self.declarator()?);
        decl.span = self.span_from(start);
        Ok(decl)
    }

    /// State space, alignment, vector width, type and attributes, in any order after the
    /// space: producers differ.
    fn var_head(&mut self, start: u32, linkage: Linkage) -> Result<VarDecl<'a>> {
        if self.token != Token::DotWord {
            return Err(self.unexpected("a declaration"));
        }
        if !SPACES.contains(&self.text) {
            let message = format!("unknown directive `{}`", self.text);
            return Err(self.error_here(message));
        }
        let mut decl = VarDecl {
            linkage,
            space: &self.text[1..],
            align: None,
            vector: 1,
            ty: "",
            pointer: None,
            names: SmallVec::new(),
            span: Span::new(start, start),
        };
        self.bump();
        self.bank()?;
        while self.token == Token::DotWord {
            self.var_attribute(&mut decl)?;
        }
        if decl.ty.is_empty() {
            return Err(self.unexpected("the type of the variable"));
        }
        Ok(decl)
    }

    /// The bank of `.const[3]`, as old PTX has it.
    fn bank(&mut self) -> Result<()> {
        if self.eat(Token::LBracket) {
            self.integer("a bank")?;
            self.expect(Token::RBracket, "`]`")?;
        }
        Ok(())
    }

    fn var_attribute(&mut self, decl: &mut VarDecl<'a>) -> Result<()> {
        match self.text {
            ".align" => {
                self.bump();
                decl.align = Some(self.small_integer("an alignment")?);
            }
            ".attribute" => {
                self.bump();
                self.parenthesised()?;
            }
            ".ptr" => {
                self.bump();
                decl.pointer = Some(self.pointer()?);
            }
            ".v2" | ".v4" | ".v8" => decl.vector = self.vector_width(),
            _ if decl.ty.is_empty() => decl.ty = self.dot_word("the type of the variable")?,
            _ => return Err(self.unexpected("the name of the variable")),
        }
        Ok(())
    }

    /// What follows `.ptr`.
    fn pointer(&mut self) -> Result<Pointer<'a>> {
        let mut pointer = Pointer::default();
        if self.token == Token::DotWord && self.text != ".align" {
            pointer.space = Some(&self.text[1..]);
            self.bump();
        }
        if self.eat_word(".align") {
            pointer.align = Some(self.small_integer("an alignment")?);
        }
        Ok(pointer)
    }

    /// `name[<count>][dims][= initialiser]`
    fn declarator(&mut self) -> Result<Declarator<'a>> {
        let name: Name<'a> = self.current_name();
        match self.token {
            Token::Ident | Token::Underscore => self.bump(),
            _ => return Err(self.unexpected("the name of a variable")),
        }
        let count = self.series()?;
        let mut dims = SmallVec::new();
        while self.eat(Token::LBracket) {
            dims.push(self.dimension()?);
        }
        let after = self.span.end;
        let init = if self.eat(Token::Equals) {
            self.initialiser()?;
            Some(self.text_from(after))
        } else {
            None
        };
        Ok(Declarator {
            name,
            count,
            dims,
            init,
        })
    }

    /// What stands between the brackets of an array, and the closing one.
    fn dimension(&mut self) -> Result<Option<u64>> {
        if self.eat(Token::RBracket) {
            return Ok(None);
        }
        let extent = self.expression()?.value;
        self.expect(Token::RBracket, "`]` after the size of the array")?;
        Ok(extent.filter(|&extent| extent <= i64::MAX as u64))
    }

    /// `{ … }` to any depth, an expression, or `field = value` of a texture.
    fn initialiser(&mut self) -> Result<()> {
        let open = self.span;
        if self.eat(Token::LBrace) {
            return self.nested(|parser| {
                parser
                    .list(Token::RBrace, open, Self::initialiser)
                    .map(drop)
            });
        }
        self.expression()?;
        if self.eat(Token::Equals) {
            self.expression()?;
        }
        Ok(())
    }

    /// `<count>` of a series of names, or nothing.
    pub(super) fn series(&mut self) -> Result<Option<u32>> {
        if !self.eat(Token::Less) {
            return Ok(None);
        }
        let count = self.small_integer("how many names to declare")?;
        self.expect(Token::Greater, "`>`")?;
        Ok(Some(count))
    }

    /// The elements of `.v2`, `.v4`, `.v8`; 1 where none of them stands here.
    fn vector_width(&mut self) -> u8 {
        let width = match (self.token, self.text) {
            (Token::DotWord, ".v2") => 2,
            (Token::DotWord, ".v4") => 4,
            (Token::DotWord, ".v8") => 8,
            _ => return 1,
        };
        self.bump();
        width
    }

    /// A dotted word, returned without its dot.
    fn dot_word(&mut self, what: &str) -> Result<&'a str> {
        let text = self.text;
        self.expect(Token::DotWord, what)?;
        Ok(&text[1..])
    }
}
