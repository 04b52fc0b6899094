//! The language: its grammar, and what programs are once parsed.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operator {
    Add,
    Sub,
    Mul,
    And,
    Xor,
    Less,
    Equal,
}

#[derive(Debug)]
pub enum Expr {
    Number(i32),
    Variable(String),
    Binary(Operator, Box<Expr>, Box<Expr>),
    Call(String, Vec<Expr>),
}

#[derive(Debug)]
pub enum Stmt {
    Assign(String, Expr),
    While(Expr, Vec<Stmt>),
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    Return(Expr),
}

#[derive(Debug)]
pub struct Procedure {
    pub name: String,
    pub params: Vec<String>,
    pub body: Vec<Stmt>,
}

pub type Program = Vec<Procedure>;

/// Splits the text into names, numbers and signs.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ if rest.starts_with("==") => 2,
            _ => first.len_utf8(),
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(token);
        rest = tail.trim_start();
    }
    tokens
}

struct Parser<'a> {
    tokens: Vec<&'a str>,
    at: usize,
}

type Parsed<T> = Result<T, String>;

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).copied().unwrap_or("")
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn accept(&mut self, token: &str) -> bool {
        let is_there = self.peek() == token;
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        match self.next() {
            found if found == token => Ok(()),
            found => Err(format!("token {}: `{found}` instead of `{token}`", self.at)),
        }
    }

    fn name(&mut self) -> Parsed<String> {
        let name = self.next();
        match name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            true => Ok(name.to_owned()),
            false => Err(format!("token {}: `{name}` is no name", self.at)),
        }
    }

    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.expect("(")?;
        let mut items = Vec::new();
        while !self.accept(")") {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn procedure(&mut self) -> Parsed<Procedure> {
        self.expect("fn")?;
        Ok(Procedure {
            name: self.name()?,
            params: self.list(Self::name)?,
            body: self.block()?,
        })
    }

    fn block(&mut self) -> Parsed<Vec<Stmt>> {
        self.expect("{")?;
        let mut stmts = Vec::new();
        while !self.accept("}") {
            stmts.push(self.stmt()?);
        }
        Ok(stmts)
    }

    fn stmt(&mut self) -> Parsed<Stmt> {
        if self.accept("while") {
            return Ok(Stmt::While(self.expr(0)?, self.block()?));
        }
        if self.accept("if") {
            let (condition, then) = (self.expr(0)?, self.block()?);
            let otherwise = match self.accept("else") {
                true => self.block()?,
                false => Vec::new(),
            };
            return Ok(Stmt::If(condition, then, otherwise));
        }
        let stmt = match self.accept("return") {
            true => Stmt::Return(self.expr(0)?),
            false => {
                let name = self.name()?;
                self.expect("=")?;
                Stmt::Assign(name, self.expr(0)?)
            }
        };
        self.expect(";")?;
        Ok(stmt)
    }

    /// Operators that bind more tightly than `level` are parts of one operand.
    fn expr(&mut self, level: u8) -> Parsed<Expr> {
        let mut left = self.operand()?;
        loop {
            let (operator, binds) = match self.peek() {
                "<" => (Operator::Less, 1),
                "==" => (Operator::Equal, 1),
                "&" => (Operator::And, 2),
                "^" => (Operator::Xor, 2),
                "+" => (Operator::Add, 3),
                "-" => (Operator::Sub, 3),
                "*" => (Operator::Mul, 4),
                _ => return Ok(left),
            };
            if binds <= level {
                return Ok(left);
            }
            self.at += 1;
            let right = self.expr(binds)?;
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
        }
    }

    fn operand(&mut self) -> Parsed<Expr> {
        if self.accept("(") {
            let inner = self.expr(0)?;
            self.expect(")")?;
            return Ok(inner);
        }
        if let Ok(number) = self.peek().parse() {
            self.at += 1;
            return Ok(Expr::Number(number));
        }
        let name = self.name()?;
        match self.peek() {
            "(" => Ok(Expr::Call(name, self.list(|parser| parser.expr(0))?)),
            _ => Ok(Expr::Variable(name)),
        }
    }
}

pub fn parse(text: &str) -> Parsed<Program> {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
    };
    let mut program = Program::new();
    while parser.at < parser.tokens.len() {
        program.push(parser.procedure()?);
    }
    Ok(program)
}
