//! Bodies: statements, scopes, labels and what hangs on them, instructions.

use super::{Parser, Result};
use crate::ast::{
    Body, CallPrototype, Guard, Instruction, Label, Linkage, Modifiers, Name, NameList, Operands,
    Series, Stmt,
};
use crate::lexer::Token;

impl<'a> Parser<'a> {
    /// `{ statements }`
    pub(super) fn body(&mut self) -> Result<Body<'a>> {
        let open = self.span;
        self.bump();
        let stmts = self.nested(|parser| {
            let mut stmts = Vec::new();
            loop {
                match parser.token {
                    Token::RBrace => return Ok(stmts),
                    Token::Eof | Token::OpenComment => {
                        return Err(parser.unclosed("`}`", open, "the block opens here"));
                    }
                    _ => stmts.push(parser.statement()?),
                }
            }
        })?;
        let close = self.span.start;
        self.bump();
        Ok(Body {
            stmts,
            open: open.start,
            close,
        })
    }

    fn statement(&mut self) -> Result<Stmt<'a>> {
        let start = self.span.start;
        match self.token {
            Token::Ident => {
                let name = self.current_name();
                self.bump();
                if self.token == Token::Colon {
                    return self.labelled(name);
                }
                self.instruction(start, None, name.text)
            }
            Token::At => {
                let guard = self.guard()?;
                let mnemonic = self.name("an instruction after the guard")?;
                self.instruction(start, Some(guard), mnemonic.text)
            }
            Token::LBrace => self.body().map(Stmt::Scope),
            Token::DotWord => self.dotted_statement(start),
            Token::DwarfLine => Ok(Stmt::Directive(self.dwarf_line())),
            Token::Semicolon => {
                let span = self.span;
                self.bump();
                Ok(Stmt::Empty(span))
            }
            _ => Err(self.unexpected("an instruction, label or declaration")),
        }
    }

    fn dotted_statement(&mut self, start: u32) -> Result<Stmt<'a>> {
        match self.text {
            ".reg" => self.reg_decl().map(|reg| Stmt::Reg(Box::new(reg))),
            ".loc" | ".file" | ".section" | ".pragma" => {
                self.debug_directive().map(Stmt::Directive)
            }
            ".branchtargets" | ".calltargets" | ".callprototype" => {
                let message = format!("`{}` needs a label in front of it", self.text);
                Err(self.error_here(message))
            }
            ".func" | ".entry" | ".visible" => {
                let error = self.unexpected("`}` or a statement");
                Err(Box::new(error.with_help(
                    "the body of the function before this one is not closed",
                )))
            }
            _ => {
                let linkage: Linkage = self.linkage();
                let var = self.var_decl(start, linkage)?;
                Ok(Stmt::Var(Box::new(var)))
            }
        }
    }

    /// What follows a label; the colon is the current token.
    fn labelled(&mut self, name: Name<'a>) -> Result<Stmt<'a>> {
        self.bump();
        let span = self.span_from(name.span.start);
        let kind = if self.token == Token::DotWord {
            self.text
        } else {
            ""
        };
        match kind {
            ".branchtargets" => self
                .name_list(name)
                .map(|list| Stmt::BranchTargets(Box::new(list))),
            ".calltargets" => self
                .name_list(name)
                .map(|list| Stmt::CallTargets(Box::new(list))),
            ".callprototype" => self
                .call_prototype(name)
                .map(|prototype| Stmt::CallPrototype(Box::new(prototype))),
            _ => Ok(Stmt::Label(Label { name, span })),
        }
    }

    fn name_list(&mut self, label: Name<'a>) -> Result<NameList<'a>> {
        self.bump();
        let mut names = Vec::new();
        loop {
            let name = self.name("a target")?;
            let count = self.series()?;
            names.push(Series { name, count });
            if !self.eat(Token::Comma) {
                break;
            }
        }
        self.expect(Token::Semicolon, "`,` or `;` after a target")?;
        Ok(NameList {
            label,
            names,
            span: self.span_from(label.span.start),
        })
    }

    fn call_prototype(&mut self, label: Name<'a>) -> Result<CallPrototype<'a>> {
        self.bump();
        let (returns, _, params) = self.signature("`_`, the name of a prototype")?;
        let mut directives = Vec::new();
        while self.token == Token::DotWord {
            directives.push(self.function_directive()?);
        }
        self.expect(Token::Semicolon, "`;` after the prototype")?;
        Ok(CallPrototype {
            label,
            returns,
            params,
            directives,
            span: self.span_from(label.span.start),
        })
    }

    /// `@p` or `@!p`
    fn guard(&mut self) -> Result<Guard<'a>> {
        let at = self.span.start;
        self.bump();
        let negated = self.eat(Token::Bang);
        let reg = self.name("a predicate after `@`")?;
        Ok(Guard { reg, at, negated })
    }

    /// What follows a mnemonic, up to the `;`.
    fn instruction(
        &mut self,
        start: u32,
        guard: Option<Guard<'a>>,
        mnemonic: &'a str,
    ) -> Result<Stmt<'a>> {
        let mut modifiers = Modifiers::new();
        while self.token == Token::DotWord {
            modifiers.push(&self.text[1..]);
            self.bump();
        }
        let mut operands = Operands::new();
        if self.token != Token::Semicolon {
            let is_call = mnemonic == "call";
            loop {
                operands.push(self.operand(is_call)?);
                if self.token == Token::Semicolon {
                    break;
                }
                self.separator(start)?;
            }
        }
        self.bump();
        Ok(Stmt::Inst(Instruction {
            guard,
            mnemonic,
            modifiers,
            operands,
            span: self.span_from(start),
        }))
    }

    /// The comma between two operands.
    fn separator(&mut self, start: u32) -> Result<()> {
        if self.eat(Token::Comma) {
            return Ok(());
        }
        let error = self.unexpected("`,` or `;` after an operand");
        // A missing `;` shows only at the start of the next statement.
        let between = &self.source[self.last_end as usize..self.span.start as usize];
        if !between.contains('\n') {
            return Err(error);
        }
        let statement = self.span_from(start);
        Err(Box::new(error.with_related(
            statement,
            "this statement is not terminated by `;`",
        )))
    }
}
