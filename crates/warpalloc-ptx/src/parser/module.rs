//! Module level: directives, functions, variables.

use super::{Parser, Result};
use crate::ast::{
    Alias, Directive, Function, FunctionDirective, Item, Linkage, Module, Name, Span, VarDecl,
};
use crate::lexer::Token;
use smallvec::SmallVec;

/// The start of a function or prototype: what comes back, who it is, what goes in.
type Signature<'a> = (Vec<VarDecl<'a>>, Name<'a>, Vec<VarDecl<'a>>);

impl<'a> Parser<'a> {
    pub(super) fn module(mut self) -> Result<Module<'a>> {
        let mut module = Module {
            source: self.source,
            items: Vec::new(),
            version: (0, 0),
            target: Vec::new(),
            address_size: 32,
        };
        if !self.at_word(".version") {
            let error = self.unexpected("`.version`");
            return Err(Box::new(error.with_help(
                "a PTX module starts with `.version`, `.target` and `.address_size`",
            )));
        }
        while self.token != Token::Eof {
            let item = self.item(&mut module)?;
            module.items.push(item);
        }
        if module.target.is_empty() {
            return Err(Box::new(
                self.error_here("the module has no `.target`")
                    .with_help("add one after `.version`, such as `.target sm_90`"),
            ));
        }
        Ok(module)
    }

    fn item(&mut self, module: &mut Module<'a>) -> Result<Item<'a>> {
        let start = self.span.start;
        if self.token == Token::DwarfLine {
            return Ok(Item::Directive(self.dwarf_line()));
        }
        if self.eat(Token::Semicolon) {
            return Ok(Item::Empty(self.span_from(start)));
        }
        if self.token != Token::DotWord {
            return Err(self.unexpected("a directive, function or variable"));
        }
        match self.text {
            ".version" => self.version(module).map(Item::Directive),
            ".target" => self.target(module).map(Item::Directive),
            ".address_size" => self.address_size(module).map(Item::Directive),
            ".file" | ".loc" | ".section" | ".pragma" => {
                self.debug_directive().map(Item::Directive)
            }
            ".alias" => self.alias().map(Item::Alias),
            ".reg" => self.reg_decl().map(Item::Reg),
            _ => {
                let linkage = self.linkage();
                match self.text {
                    ".func" | ".entry" => self.function(start, linkage).map(Item::Function),
                    _ => self.var_decl(start, linkage).map(Item::Var),
                }
            }
        }
    }

    /// `.visible`, `.extern`, `.weak`, `.common`, or nothing.
    pub(super) fn linkage(&mut self) -> Linkage {
        let mut linkage = Linkage::Internal;
        while self.token == Token::DotWord {
            linkage = match self.text {
                ".visible" => Linkage::Visible,
                ".extern" => Linkage::Extern,
                ".weak" => Linkage::Weak,
                ".common" => Linkage::Common,
                _ => break,
            };
            self.bump();
        }
        linkage
    }

    fn version(&mut self, module: &mut Module<'a>) -> Result<Directive<'a>> {
        self.simple_directive(|parser| {
            let text = parser.text;
            parser.expect(Token::Decimal, "a version such as `9.0`")?;
            let parts = text.split_once('.');
            let number = |part: Option<&str>| part.and_then(|p| p.parse().ok()).unwrap_or(0);
            if module.version == (0, 0) {
                module.version = (number(parts.map(|p| p.0)), number(parts.map(|p| p.1)));
            }
            Ok(())
        })
    }

    fn target(&mut self, module: &mut Module<'a>) -> Result<Directive<'a>> {
        self.simple_directive(|parser| {
            let mut target = vec![parser.name("a target such as `sm_90`")?.text];
            while parser.eat(Token::Comma) {
                target.push(parser.name("a target or an option of it")?.text);
            }
            if module.target.is_empty() {
                module.target = target;
            }
            Ok(())
        })
    }

    fn address_size(&mut self, module: &mut Module<'a>) -> Result<Directive<'a>> {
        self.simple_directive(|parser| {
            let here = parser.span;
            match parser.integer("32 or 64")? {
                size @ (32 | 64) => module.address_size = size as u32,
                _ => {
                    parser.span = here;
                    return Err(parser.error_here("the address size is 32 or 64"));
                }
            }
            Ok(())
        })
    }

    /// A directive whose keyword is the current token and whose rest `args` consumes.
    fn simple_directive(
        &mut self,
        args: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Directive<'a>> {
        let (start, keyword) = (self.span.start, &self.text[1..]);
        let args_start = self.span.end;
        self.bump();
        args(self)?;
        Ok(Directive {
            keyword,
            args: self.text_from(args_start),
            span: self.span_from(start),
        })
    }

    pub(super) fn dwarf_line(&mut self) -> Directive<'a> {
        let directive = Directive {
            keyword: "@@",
            args: self.text[2..].trim_end(),
            span: self.span,
        };
        self.bump();
        directive
    }

    /// `.file`, `.loc`, `.section`, `.pragma`: kept as text, checked for shape.
    pub(super) fn debug_directive(&mut self) -> Result<Directive<'a>> {
        match self.text {
            ".file" => self.simple_directive(Self::file_args),
            ".loc" => self.simple_directive(Self::loc_args),
            ".section" => self.simple_directive(Self::section_args),
            _ => {
                let mut directive = self.simple_directive(Self::pragma_args)?;
                self.expect(Token::Semicolon, "`;` after the pragma")?;
                directive.span.end = self.last_end;
                Ok(directive)
            }
        }
    }

    /// `index "name" [, timestamp, size]`
    fn file_args(&mut self) -> Result<()> {
        self.integer("a file index")?;
        self.expect(Token::Str, "a file name in quotes")?;
        while self.eat(Token::Comma) {
            self.integer("a number")?;
        }
        Ok(())
    }

    /// `file line column [, function_name name [+ offset], inlined_at file line column]`
    fn loc_args(&mut self) -> Result<()> {
        self.position()?;
        while self.eat(Token::Comma) {
            match self.name("`function_name` or `inlined_at`")?.text {
                "inlined_at" => self.position()?,
                _ => self.debug_name()?,
            }
        }
        Ok(())
    }

    fn position(&mut self) -> Result<()> {
        self.integer("a file index")?;
        self.integer("a line")?;
        self.integer("a column").map(drop)
    }

    fn debug_name(&mut self) -> Result<()> {
        match self.token {
            Token::Ident | Token::DotWord | Token::Number => self.bump(),
            _ => return Err(self.unexpected("a label in a debug section")),
        }
        if self.eat(Token::Plus) {
            self.integer("an offset")?;
        }
        Ok(())
    }

    /// `.name { anything }`
    fn section_args(&mut self) -> Result<()> {
        match self.token {
            Token::DotWord | Token::Ident | Token::Str => self.bump(),
            _ => return Err(self.unexpected("the name of a section")),
        }
        let open = self.span;
        self.expect(Token::LBrace, "`{`")?;
        let mut depth = 1;
        loop {
            match self.token {
                Token::LBrace => depth += 1,
                Token::RBrace => depth -= 1,
                Token::Eof | Token::OpenComment | Token::Unknown => {
                    return Err(self.unclosed("`}`", open, "the section opens here"));
                }
                _ => {}
            }
            self.bump();
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn pragma_args(&mut self) -> Result<()> {
        self.expect(Token::Str, "a string in quotes")?;
        while self.eat(Token::Comma) {
            self.expect(Token::Str, "a string in quotes")?;
        }
        Ok(())
    }

    fn alias(&mut self) -> Result<Alias<'a>> {
        let start = self.span.start;
        self.bump();
        let alias = self.name("the new name")?;
        self.expect(Token::Comma, "`,`")?;
        let aliasee = self.name("the name of a function")?;
        self.expect(Token::Semicolon, "`;` after the alias")?;
        Ok(Alias {
            alias,
            aliasee,
            span: self.span_from(start),
        })
    }

    fn function(&mut self, start: u32, linkage: Linkage) -> Result<Function<'a>> {
        let is_entry = self.text == ".entry";
        self.bump();
        let mut directives = Vec::new();
        while self.at_word(".attribute") {
            directives.push(self.function_directive()?);
        }
        let (returns, name, params) = self.signature("the name of the function")?;
        let directives_at = self.last_end;
        while self.token == Token::DotWord {
            directives.push(self.function_directive()?);
        }
        let body = match self.token {
            Token::LBrace => Some(self.body()?),
            Token::Semicolon => {
                self.bump();
                None
            }
            _ => return Err(self.unexpected("the body of the function or `;`")),
        };
        Ok(Function {
            is_entry,
            name,
            linkage,
            returns,
            params,
            directives_at,
            directives,
            body,
            span: self.span_from(start),
        })
    }

    /// `[(returns)] name [(params)]`
    pub(super) fn signature(&mut self, what: &str) -> Result<Signature<'a>> {
        let returns = self.params()?;
        let name = self.current_name();
        match self.token {
            Token::Ident | Token::Underscore => self.bump(),
            _ => return Err(self.unexpected(what)),
        }
        let params = self.params()?;
        Ok((returns, name, params))
    }

    /// `(param, …)`, or nothing.
    fn params(&mut self) -> Result<Vec<VarDecl<'a>>> {
        let open = self.span;
        if !self.eat(Token::LParen) {
            return Ok(Vec::new());
        }
        self.list(Token::RParen, open, Self::param)
    }

    /// `.keyword` with numbers, strings or something in parentheses.
    pub(super) fn function_directive(&mut self) -> Result<FunctionDirective<'a>> {
        let Span { start, end } = self.span;
        let keyword = &self.text[1..];
        self.bump();
        let mut values = SmallVec::new();
        match self.token {
            Token::LParen => self.parenthesised()?,
            Token::Str => self.pragma_args()?,
            Token::Number => loop {
                values.push(self.small_integer("a number")?);
                if !self.eat(Token::Comma) {
                    break;
                }
            },
            _ => {}
        }
        let args = self.text_from(end);
        if keyword == "pragma" {
            self.expect(Token::Semicolon, "`;` after the pragma")?;
        }
        Ok(FunctionDirective {
            keyword,
            values,
            args,
            span: self.span_from(start),
        })
    }

    /// Anything in balanced parentheses.
    pub(super) fn parenthesised(&mut self) -> Result<()> {
        let open = self.span;
        let mut depth = 0u32;
        loop {
            match self.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                Token::Ident | Token::DotWord | Token::Number | Token::Comma | Token::Equals => {}
                _ => return Err(self.unclosed("`)`", open, "the parenthesis opens here")),
            }
            self.bump();
            if depth == 0 {
                return Ok(());
            }
        }
    }
}
