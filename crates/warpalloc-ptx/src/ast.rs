//! The syntax tree of a PTX module.
//!
//! The tree borrows its text from the source and records byte spans, so it never owns a
//! string. It is purely syntactic: whether a name is a register, a special register, a
//! label or a symbol is for the lowering to find out. A [`Stmt`] stays within 280 bytes
//! and an ordinary instruction owns no heap memory, because real libraries hold millions.

use smallvec::SmallVec;
use std::ops::Range;

/// A range of bytes in the source, `start` included, `end` not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl Span {
    /// The bytes from `start` up to `end`.
    pub const fn new(start: u32, end: u32) -> Self {
        Span { start, end }
    }

    /// From the start of this span to the end of a later one.
    pub const fn to(self, later: Span) -> Self {
        Span::new(self.start, later.end)
    }

    /// The span as a range to index the source with.
    pub const fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The text of the span; empty where `source` is not the text it was made from.
    pub fn text(self, source: &str) -> &str {
        source.get(self.range()).unwrap_or("")
    }
}

/// One occurrence of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The name itself, with its `%` or `$`.
    pub text: &'a str,
    /// Where it stands.
    pub span: Span,
}

/// A parsed module.
#[derive(Clone, Debug)]
pub struct Module<'a> {
    /// The text all spans refer to.
    pub source: &'a str,
    /// Everything at module level, in order.
    pub items: Vec<Item<'a>>,
    /// The PTX ISA version: `.version 9.0` is `(9, 0)`.
    pub version: (u32, u32),
    /// What `.target` names, such as `sm_90a`, `debug`.
    pub target: Vec<&'a str>,
    /// 32 or 64; 32 where the module does not say, as the ISA has it.
    pub address_size: u32,
}

impl<'a> Module<'a> {
    /// The functions and entries of the module, prototypes included, in order.
    pub fn functions(&self) -> impl Iterator<Item = &Function<'a>> {
        self.items.iter().filter_map(|item| match item {
            Item::Function(function) => Some(function),
            _ => None,
        })
    }
}

/// One thing at module level.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// `.version`, `.target`, `.address_size`, `.file`, `.section`, `.pragma`, `@@` lines.
    Directive(Directive<'a>),
    /// A function or entry, defined or declared.
    Function(Function<'a>),
    /// A variable in some state space.
    Var(VarDecl<'a>),
    /// Registers at module level, which old PTX allows.
    Reg(RegDecl<'a>),
    /// `.alias alias, aliasee;`
    Alias(Alias<'a>),
    /// A `;` on its own.
    Empty(Span),
}

impl Item<'_> {
    /// The bytes of the item.
    pub fn span(&self) -> Span {
        match self {
            Item::Directive(directive) => directive.span,
            Item::Function(function) => function.span,
            Item::Var(var) => var.span,
            Item::Reg(reg) => reg.span,
            Item::Alias(alias) => alias.span,
            Item::Empty(span) => *span,
        }
    }
}

/// A directive that is kept as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive<'a> {
    /// The keyword without its dot: `loc`, `pragma`; `@@` for a DWARF line of PTX 1.x.
    pub keyword: &'a str,
    /// The text after the keyword, without the terminator.
    pub args: &'a str,
    /// All of it, a terminating `;` included.
    pub span: Span,
}

/// `.alias alias, aliasee;`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias<'a> {
    /// The new name.
    pub alias: Name<'a>,
    /// The function it stands for.
    pub aliasee: Name<'a>,
    /// All of it.
    pub span: Span,
}

/// Who sees a function or variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    /// Nobody outside the module.
    #[default]
    Internal,
    /// `.visible`
    Visible,
    /// `.extern`
    Extern,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
}

/// A `.func` or `.entry`.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// Whether the host can launch it.
    pub is_entry: bool,
    /// Its name.
    pub name: Name<'a>,
    /// Who sees it.
    pub linkage: Linkage,
    /// What it returns; each holds one declarator.
    pub returns: Vec<VarDecl<'a>>,
    /// What it takes; each holds one declarator.
    pub params: Vec<VarDecl<'a>>,
    /// Where text goes that adds a directive: after the parameters, before the body.
    pub directives_at: u32,
    /// `.maxntid`, `.maxnreg`, `.noreturn`, `.pragma`, `.attribute`…
    pub directives: Vec<FunctionDirective<'a>>,
    /// The code; a declaration has none.
    pub body: Option<Body<'a>>,
    /// All of it, linkage and the closing `}` or `;` included.
    pub span: Span,
}

/// A directive between the parameters of a function and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionDirective<'a> {
    /// The keyword without its dot: `maxntid`.
    pub keyword: &'a str,
    /// Its numbers: `.maxntid 128, 2` gives 128 and 2.
    pub values: SmallVec<[u32; 3]>,
    /// The text after the keyword.
    pub args: &'a str,
    /// All of it.
    pub span: Span,
}

/// Statements between braces.
#[derive(Clone, Debug, Default)]
pub struct Body<'a> {
    /// The statements, in order.
    pub stmts: Vec<Stmt<'a>>,
    /// The byte of the `{`.
    pub open: u32,
    /// The byte of the `}`.
    pub close: u32,
}

impl Body<'_> {
    /// From the `{` to the `}`, both included.
    pub const fn span(&self) -> Span {
        Span::new(self.open, self.close + 1)
    }
}

/// One statement of a body.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all statements are instructions"
)]
pub enum Stmt<'a> {
    /// An instruction with its guard.
    Inst(Instruction<'a>),
    /// A label; the span of the statement includes the colon.
    Label(Label<'a>),
    /// `.reg`
    Reg(Box<RegDecl<'a>>),
    /// A variable: `.local`, `.shared`, `.param`…
    Var(Box<VarDecl<'a>>),
    /// A nested scope, which may declare names anew.
    Scope(Body<'a>),
    /// `.loc`, `.file`, `.pragma`, `.section`, `@@` lines.
    Directive(Directive<'a>),
    /// `label: .branchtargets …;`
    BranchTargets(Box<NameList<'a>>),
    /// `label: .calltargets …;`
    CallTargets(Box<NameList<'a>>),
    /// `label: .callprototype …;`
    CallPrototype(Box<CallPrototype<'a>>),
    /// A `;` on its own.
    Empty(Span),
}

impl Stmt<'_> {
    /// The bytes of the statement, its terminator included.
    pub fn span(&self) -> Span {
        match self {
            Stmt::Inst(inst) => inst.span,
            Stmt::Label(label) => label.span,
            Stmt::Reg(reg) => reg.span,
            Stmt::Var(var) => var.span,
            Stmt::Scope(body) => body.span(),
            Stmt::Directive(directive) => directive.span,
            Stmt::BranchTargets(list) | Stmt::CallTargets(list) => list.span,
            Stmt::CallPrototype(prototype) => prototype.span,
            Stmt::Empty(span) => *span,
        }
    }
}

/// `name:`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    /// The label.
    pub name: Name<'a>,
    /// The label and its colon.
    pub span: Span,
}

/// The list behind `.branchtargets` or `.calltargets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameList<'a> {
    /// The label that instructions refer to it by.
    pub label: Name<'a>,
    /// The labels or functions; `N<5>` stands for `N0` to `N4`.
    pub names: Vec<Series<'a>>,
    /// All of it, from the label to the `;`.
    pub span: Span,
}

/// `label: .callprototype (returns) _ (params);`
#[derive(Clone, Debug)]
pub struct CallPrototype<'a> {
    /// The label that calls refer to it by.
    pub label: Name<'a>,
    /// What the callee returns.
    pub returns: Vec<VarDecl<'a>>,
    /// What the callee takes.
    pub params: Vec<VarDecl<'a>>,
    /// `.noreturn`, `.abi_preserve`…
    pub directives: Vec<FunctionDirective<'a>>,
    /// All of it, from the label to the `;`.
    pub span: Span,
}

/// `.reg .v2 .b32 %a<10>, %b;`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegDecl<'a> {
    /// 1, or the number of elements of `.v2`, `.v4`, `.v8`.
    pub vector: u8,
    /// The type without its dot: `pred`, `b32`.
    pub ty: &'a str,
    /// What it declares.
    pub names: SmallVec<[Series<'a>; 1]>,
    /// All of it.
    pub span: Span,
}

/// One name of a list, or many with a common stem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series<'a> {
    /// The name, or the stem of a series.
    pub name: Name<'a>,
    /// `Some(10)` for `%r<10>`, which stands for `%r0` to `%r9`.
    pub count: Option<u32>,
}

/// A variable or parameter declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VarDecl<'a> {
    /// Who sees it.
    pub linkage: Linkage,
    /// The state space without its dot: `global`, `shared`, `param`; `reg` for a register
    /// parameter.
    pub space: &'a str,
    /// `.align`
    pub align: Option<u32>,
    /// 1, or the number of elements of `.v2`, `.v4`, `.v8`.
    pub vector: u8,
    /// The type without its dot: `b8`, `f32`, `texref`.
    pub ty: &'a str,
    /// `.ptr` of a parameter, with what it points to.
    pub pointer: Option<Pointer<'a>>,
    /// What it declares; exactly one in a parameter list.
    pub names: SmallVec<[Declarator<'a>; 1]>,
    /// All of it; a parameter does not include the comma.
    pub span: Span,
}

/// `.ptr .global .align 16` of a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointer<'a> {
    /// The state space pointed to; generic where it is not said.
    pub space: Option<&'a str>,
    /// The alignment of what it points to.
    pub align: Option<u32>,
}

/// One name of a variable declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declarator<'a> {
    /// The name; `_` in prototypes.
    pub name: Name<'a>,
    /// `Some(4)` for `v<4>`, which declares `v0` to `v3`.
    pub count: Option<u32>,
    /// The extent of each dimension; `None` for `[]` and for what is no constant.
    pub dims: SmallVec<[Option<u64>; 1]>,
    /// The text after `=`.
    pub init: Option<&'a str>,
}

/// The dot-separated parts of an opcode after the first.
pub type Modifiers<'a> = SmallVec<[&'a str; 4]>;

/// The operands of an instruction.
pub type Operands<'a> = SmallVec<[Operand<'a>; 4]>;

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction<'a> {
    /// `@p` or `@!p` in front of it.
    pub guard: Option<Guard<'a>>,
    /// The first part of the opcode: `ld`.
    pub mnemonic: &'a str,
    /// The other parts without their dots: `global`, `L2::cache_hint`, `v2`, `f32`.
    pub modifiers: Modifiers<'a>,
    /// The operands as written.
    pub operands: Operands<'a>,
    /// From the guard to the `;`, both included.
    pub span: Span,
}

impl<'a> Instruction<'a> {
    /// Whether `modifier` is among the modifiers.
    pub fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// The opcode as written, without white space: `ld.global.f32`.
    pub fn opcode(&self) -> String {
        let mut opcode = self.mnemonic.to_owned();
        for modifier in &self.modifiers {
            opcode.push('.');
            opcode.push_str(modifier);
        }
        opcode
    }
}

/// `@p` or `@!p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard<'a> {
    /// The predicate.
    pub reg: Name<'a>,
    /// The byte of the `@`.
    pub at: u32,
    /// Whether it says `!`.
    pub negated: bool,
}

impl Guard<'_> {
    /// From the `@` to the end of the name.
    pub const fn span(&self) -> Span {
        Span::new(self.at, self.reg.span.end)
    }
}

/// One operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand<'a> {
    /// A register, special register, label, symbol or function.
    Ident(Name<'a>),
    /// Part of a register: `%tid.x`, `%v.w`, `%a.b3210`.
    Component(Component<'a>),
    /// An integer, negated already where a `-` stands before it (two's complement).
    Int {
        /// The value.
        bits: u64,
        /// The text, sign included.
        span: Span,
    },
    /// A floating-point number.
    Float {
        /// The value.
        value: Float,
        /// The text, sign included.
        span: Span,
    },
    /// A constant expression of more than one literal: `sym+4`, `(1<<4)|2`, `generic(x)`.
    Expr(Box<Expr<'a>>),
    /// `-a` of a register, as video instructions have it.
    Neg(Box<Operand<'a>>),
    /// `!p`
    Not(Name<'a>),
    /// `{a, b, _}`
    Vector(Vec<Operand<'a>>),
    /// `_`
    Sink(Span),
    /// `d|p`
    Pair(Box<(Operand<'a>, Operand<'a>)>),
    /// `[…]`
    Memory(Box<Memory<'a>>),
    /// `a[2]`: an element of an array variable.
    Element(Box<Element<'a>>),
    /// `(a, b)` of a call: results where it comes first, arguments where it does not.
    Paren(Vec<Operand<'a>>),
}

impl<'a> Operand<'a> {
    /// The name where the operand is nothing but a name.
    pub fn as_name(&self) -> Option<Name<'a>> {
        match self {
            Operand::Ident(name) => Some(*name),
            _ => None,
        }
    }

    /// The value where the operand is an integer or a constant integer expression.
    pub fn as_int(&self) -> Option<u64> {
        match self {
            Operand::Int { bits, .. } => Some(*bits),
            Operand::Expr(expr) => expr.value,
            _ => None,
        }
    }
}

/// Part of a register, named behind a dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component<'a> {
    text: &'a str,
    start: u32,
    name_length: u32,
}

impl<'a> Component<'a> {
    /// `text` covers the name and the member and starts at byte `start`; the name takes
    /// the first `name_length` bytes of it.
    pub(crate) fn new(text: &'a str, start: u32, name_length: u32) -> Self {
        Component {
            text,
            start,
            name_length,
        }
    }

    /// The register.
    pub fn name(&self) -> Name<'a> {
        Name {
            text: &self.text[..self.name_length as usize],
            span: Span::new(self.start, self.start + self.name_length),
        }
    }

    /// What comes after the dot: `x`, `b0`.
    pub fn member(&self) -> &'a str {
        self.text.rsplit('.').next().unwrap_or("")
    }

    /// Name and member as written: `%tid.x`.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The bytes of name and member.
    pub fn span(&self) -> Span {
        Span::new(self.start, self.start + self.text.len() as u32)
    }
}

/// A floating-point literal by the way it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Float {
    /// `0f3F800000`: the bits of a single.
    Single(u32),
    /// `0d3FF0000000000000`: the bits of a double.
    Double(u64),
    /// `1.5`: a decimal number, read as a double.
    Decimal(f64),
}

/// A constant expression, evaluated by the rules of the ISA for signed and unsigned
/// integers of 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr<'a> {
    /// Its bits where it is an integer that depends on no address.
    pub value: Option<u64>,
    /// The names in it, in order.
    pub names: Vec<Name<'a>>,
    /// All of it.
    pub span: Span,
}

/// `a[index]`
#[derive(Clone, Debug, PartialEq)]
pub struct Element<'a> {
    /// The array.
    pub name: Name<'a>,
    /// The index.
    pub index: Operand<'a>,
    /// All of it.
    pub span: Span,
}

/// `[base + offset, elements…]`
#[derive(Clone, Debug, PartialEq)]
pub struct Memory<'a> {
    /// What the address starts from: a register, a symbol, a number.
    pub base: Operand<'a>,
    /// What is added to it: an integer (negative ones in two's complement), or a register.
    pub offset: Option<Operand<'a>>,
    /// What follows commas: a sampler, tensor or texture coordinates.
    pub elements: SmallVec<[Operand<'a>; 0]>,
    /// Whether `.unified` follows the brackets.
    pub unified: bool,
    /// The brackets, what is between, and `.unified`.
    pub span: Span,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_stays_compact() {
        assert!(size_of::<Operand>() <= 32, "{}", size_of::<Operand>());
        assert!(size_of::<Stmt>() <= 280, "{}", size_of::<Stmt>());
    }
}
