//! Parsing, line by line.

use super::cursor::{Line, Lines, Spot, pieces};
use super::lex::error_at;
use super::print::{convention_name, kind_name, number_after};
use super::{Case, TextError};
use crate::function::*;
use crate::options::Options;
use crate::target::{PReg, Target};
use cranelift_entity::EntityRef;

/// The target, options and function that `text` describes.
pub fn parse(text: &str) -> Result<Case, TextError> {
    parse_for(text, &[])
}

/// The same, where the target may be one of `machines` by name.
pub fn parse_for(text: &str, machines: &[Target]) -> Result<Case, TextError> {
    let mut lines = Lines::new(text);
    let mut target = None;
    let mut options = Options::default();
    while let Some(line) = lines.next()? {
        match line.word() {
            Some("target") => target = Some(parse_target(&line, machines)?),
            Some("options") => parse_options(&line, &mut options)?,
            Some("kernel" | "device") => {
                let Some(target) = target else {
                    return Err(line.error("a `target` line before the function was expected"));
                };
                let function = FunctionParser::new(&target, text.len()).parse(line, &mut lines)?;
                if let Some(line) = lines.next()? {
                    return Err(line.error("the end of the text was expected"));
                }
                return Ok(Case {
                    target,
                    options,
                    function,
                });
            }
            _ => return Err(line.error("`target`, `options`, `kernel` or `device` was expected")),
        }
    }
    Err(lines.error("a function was expected"))
}

/// `target PRESET [sm_N] FILE=REGISTERS…`, or the name of one of `machines` instead.
fn parse_target(line: &Line<'_>, machines: &[Target]) -> Result<Target, TextError> {
    let mut pieces = pieces(line);
    let fail = |(at, text): (usize, &str), message: String| {
        Err(error_at(line.text, line.number, at, text, message))
    };
    let end = (line.text.len(), "");
    let name = pieces.next().unwrap_or(end);
    let sm = pieces.next().unwrap_or(end);
    if let Some(machine) = machines.iter().find(|machine| machine.name() == name.1) {
        let rest = std::iter::once(sm).chain(pieces);
        let budgets = rest.filter(|piece| !piece.1.is_empty() && !piece.1.starts_with("sm_"));
        return with_budgets(line, machine.clone(), budgets);
    }
    let Some(number) = sm.1.strip_prefix("sm_").and_then(|n| n.parse().ok()) else {
        return fail(
            sm,
            "an architecture such as `sm_90` was expected".to_owned(),
        );
    };
    let target = match Target::preset(name.1, number) {
        Ok(target) if target.sm() == number => target,
        Ok(target) => return fail(sm, format!("this preset is for sm_{}", target.sm())),
        Err(error) => return fail(name, error.to_string()),
    };
    with_budgets(line, target, pieces)
}

fn with_budgets<'t>(
    line: &Line<'_>,
    mut target: Target,
    pieces: impl Iterator<Item = (usize, &'t str)>,
) -> Result<Target, TextError> {
    let fail = |(at, text): (usize, &str), message: String| {
        Err(error_at(line.text, line.number, at, text, message))
    };
    for piece in pieces {
        let split = piece.1.split_once('=');
        let named = split.and_then(|(file, registers)| {
            let (file, _) = target.files().find(|(_, info)| info.name == file)?;
            Some((file, registers.parse::<usize>().ok()?))
        });
        let Some((file, registers)) = named else {
            return fail(piece, "a budget such as `R=32` was expected".to_owned());
        };
        if registers > target.budget(file) {
            let most = target.budget(file);
            return fail(piece, format!("this file has {most} registers"));
        }
        target = target.with_budget(file, registers);
    }
    Ok(target)
}

/// `options KEY=VALUE…`
fn parse_options(line: &Line<'_>, options: &mut Options) -> Result<(), TextError> {
    for (at, text) in pieces(line) {
        let set = match text.split_once('=') {
            Some((key, value)) => options.set(key, value).map_err(|error| error.to_string()),
            None => Err("an option such as `verify=true` was expected".to_owned()),
        };
        set.map_err(|message| error_at(line.text, line.number, at, text, message))?;
    }
    Ok(())
}

/// A value's class and marks, where they were said.
type Declared = Option<VRegInfo>;

struct FunctionParser<'a> {
    target: &'a Target,
    builder: Builder,
    vregs: Vec<Declared>,
    /// Values mentioned before their class.
    undeclared: Vec<(VReg, Spot<'a>)>,
    blocks: usize,
    edges: Vec<(Block, Spot<'a>)>,
    /// The block's last instruction had successors, so it ends the block.
    ended: bool,
    /// No number of a value or block can be this large in a text of this length.
    limit: usize,
}

impl<'a> FunctionParser<'a> {
    fn new(target: &'a Target, limit: usize) -> FunctionParser<'a> {
        FunctionParser {
            target,
            builder: Builder::default(),
            vregs: Vec::new(),
            undeclared: Vec::new(),
            blocks: 0,
            edges: Vec::new(),
            ended: false,
            limit,
        }
    }

    fn parse(mut self, line: Line<'a>, lines: &mut Lines<'a>) -> Result<Function, TextError> {
        self.header(line)?;
        loop {
            let Some(mut line) = lines.next()? else {
                return Err(lines.error("`}` was expected"));
            };
            if line.accept("}") {
                line.end()?;
                return self.finish();
            }
            let is_block = line.word().and_then(|w| number_after("block", w));
            if let Some(number) = is_block {
                self.block(&mut line, number)?;
            } else if line.word() == Some("vregs") {
                line.advance();
                self.list(&mut line, |p, line| p.vreg(line).map(|_| ()))?;
            } else {
                self.inst(&mut line)?;
            }
            line.end()?;
        }
    }

    fn header(&mut self, mut line: Line<'a>) -> Result<(), TextError> {
        let conventions = [Convention::Kernel, Convention::Device];
        let word = line.word();
        let convention = conventions
            .into_iter()
            .find(|&c| Some(convention_name(c)) == word);
        line.advance();
        self.builder = Builder::new(line.name("the function's name")?);
        self.builder.convention(convention.unwrap_or_default());
        line.expect("{")?;
        line.end()
    }

    /// Checks what only the whole function can tell, and makes it.
    fn finish(mut self) -> Result<Function, TextError> {
        for (block, spot) in self.edges {
            if block.index() >= self.blocks {
                return Err(spot.error("a block of this function was expected"));
            }
        }
        for (vreg, spot) in self.undeclared {
            if self.vregs[vreg.index()].is_none() {
                return Err(
                    spot.error("a class, here or where else the value occurs, was expected")
                );
            }
        }
        // Numbers in between that nobody mentions are values of any class.
        for declared in self.vregs {
            let info = declared.unwrap_or(VRegInfo {
                class: crate::target::Class::new(0),
                uniform: false,
                pinned: false,
                hint: None,
            });
            self.builder.described(info);
        }
        Ok(self.builder.finish())
    }

    /// Comma-separated items, at least one.
    fn list(
        &mut self,
        line: &mut Line<'a>,
        mut item: impl FnMut(&mut Self, &mut Line<'a>) -> Result<(), TextError>,
    ) -> Result<(), TextError> {
        item(self, line)?;
        while line.accept(",") {
            item(self, line)?;
        }
        Ok(())
    }

    /// `blockN(params) freq F:`
    fn block(&mut self, line: &mut Line<'a>, number: u32) -> Result<(), TextError> {
        if number as usize != self.blocks {
            let next = self.blocks;
            return Err(line.error(format!("blocks stand in order: `block{next}` was expected")));
        }
        line.advance();
        self.blocks += 1;
        self.ended = false;
        let block = self.builder.block();
        for param in self.values(line)? {
            self.builder.param(block, param);
        }
        if line.accept("freq") {
            let frequency = line.number().and_then(|n| n.parse::<f32>().ok());
            let Some(frequency) = frequency.filter(|f| f.is_finite()) else {
                return Err(line.error("how often the block runs was expected"));
            };
            line.advance();
            self.builder.frequency(block, frequency);
        }
        line.expect(":")
    }

    /// A parenthesised list of values, if one follows.
    fn values(&mut self, line: &mut Line<'a>) -> Result<Vec<VReg>, TextError> {
        let mut values = Vec::new();
        if line.accept("(") {
            self.list(line, |parser, line| {
                values.push(parser.vreg(line)?);
                Ok(())
            })?;
            line.expect(")")?;
        }
        Ok(values)
    }

    /// `results = opcode operands : attributes -> edges`
    fn inst(&mut self, line: &mut Line<'a>) -> Result<(), TextError> {
        let Some(last) = self.blocks.checked_sub(1) else {
            return Err(line.error("`block0:` was expected"));
        };
        if self.ended {
            return Err(line.error("a block was expected, as the last line left this one"));
        }
        let block = Block::new(last);
        let mut parts = InstParts::default();
        if starts_results(line) {
            self.list(line, |parser, line| {
                parser.operand(line, Role::Def, &mut parts)
            })?;
            line.expect("=")?;
        }
        let opcode = line.name("an opcode")?;
        if !matches!(line.peek().map(|t| t.text), None | Some(":" | "->")) {
            self.list(line, |parser, line| {
                parser.operand(line, Role::Use, &mut parts)
            })?;
        }
        if line.accept(":") {
            while !matches!(line.peek().map(|t| t.text), None | Some("->")) {
                self.attribute(line, &mut parts)?;
            }
        }
        if line.accept("->") {
            self.list(line, |parser, line| parser.edge(line, block))?;
            self.ended = true;
        }
        let implied = if self.ended {
            Kind::Branch
        } else {
            Kind::Plain
        };
        let mut inst = self.builder.inst(block, &opcode);
        inst = inst.imm(parts.imm.unwrap_or(0)).effect(parts.effect);
        inst = inst.kind(parts.kind.unwrap_or(implied));
        inst = inst.clobbers(parts.clobbers);
        if let Some(alias) = parts.alias {
            inst = inst.alias(alias);
        }
        if let Some(cycles) = parts.remat {
            inst = inst.remat(cycles);
        }
        if parts.anchored {
            inst = inst.anchored();
        }
        for operand in parts.operands {
            inst = inst.operand(operand);
        }
        for group in parts.groups {
            inst = inst.group(group.first, group.len, group.align);
        }
        Ok(())
    }

    fn edge(&mut self, line: &mut Line<'a>, from: Block) -> Result<(), TextError> {
        let number = line.word().and_then(|w| number_after("block", w));
        let Some(number) = number.filter(|&n| (n as usize) < self.limit) else {
            return Err(line.error("a block of this function was expected"));
        };
        let to = Block::new(number as usize);
        self.edges.push((to, line.spot()));
        line.advance();
        let args = self.values(line)?;
        self.builder.edge(from, to, &args);
        Ok(())
    }

    /// `[role] value [@ register | tied N | not {…}]`, or an immediate among the inputs.
    fn operand(
        &mut self,
        line: &mut Line<'a>,
        expected: Role,
        parts: &mut InstParts,
    ) -> Result<(), TextError> {
        if expected == Role::Use && line.accept("#") {
            if parts.imm.is_some() {
                return Err(line.error("an instruction has one immediate"));
            }
            parts.imm = Some(line.integer(u64::MAX, "an immediate")?);
            return Ok(());
        }
        let role = match line.word() {
            Some("inout") if expected == Role::Use => Some(Role::UseDef),
            Some("def") if expected == Role::Use => Some(Role::Def),
            Some("early") => Some(Role::EarlyDef),
            _ => None,
        };
        if role.is_some() {
            line.advance();
        }
        let vreg = self.vreg(line)?;
        let constraint = if line.accept("@") {
            Constraint::Fixed(self.register(line)?)
        } else if line.accept("tied") {
            Constraint::Tied(line.integer(u8::MAX as u64, "the number of an operand")? as u8)
        } else if line.accept("anywhere") {
            Constraint::Anywhere
        } else if line.accept("memory") {
            Constraint::Memory
        } else if line.accept("argument") {
            Constraint::Argument(line.integer(u32::MAX as u64, "a distance in bytes")? as u32)
        } else if line.accept("not") {
            Constraint::Except(self.registers(line)?)
        } else {
            Constraint::Any
        };
        let operand = Operand::with_role(vreg, role.unwrap_or(expected));
        parts.operands.push(operand.constrained(constraint));
        Ok(())
    }

    fn attribute(&mut self, line: &mut Line<'a>, parts: &mut InstParts) -> Result<(), TextError> {
        const KINDS: [Kind; 8] = [
            Kind::Plain,
            Kind::Copy,
            Kind::Undef,
            Kind::LiveIn,
            Kind::Call,
            Kind::Branch,
            Kind::Return,
            Kind::Exit,
        ];
        let word = line.word();
        if let Some(kind) = KINDS.into_iter().find(|&k| Some(kind_name(k)) == word) {
            line.advance();
            parts.kind = Some(kind);
        } else if line.accept("read") {
            parts.effect = Effect::Read;
        } else if line.accept("write") {
            parts.effect = Effect::Write;
        } else if line.accept("spaces") {
            parts.alias = Some(alias(line)?);
        } else if line.accept("remat") {
            parts.remat = Some(line.integer(u8::MAX as u64, "a number of cycles")? as u8);
        } else if line.accept("anchored") {
            parts.anchored = true;
        } else if line.accept("clobbers") {
            parts.clobbers = match line.accept("abi") {
                true => Clobbers::Abi,
                false => Clobbers::List(self.registers(line)?),
            };
        } else if line.accept("group") {
            let first = line.integer(u8::MAX as u64, "the number of an operand")?;
            line.expect("..")?;
            let end = line.integer(first + u8::MAX as u64, "the group's end")?;
            let Some(len) = end.checked_sub(first) else {
                return Err(line.error("the group ends before it starts"));
            };
            line.expect("align")?;
            let align = line.integer(u8::MAX as u64, "an alignment")? as u8;
            let (first, len) = (first as u8, len as u8);
            parts.groups.push(OperandGroup { first, len, align });
        } else {
            return Err(line.error("an attribute such as `read`, `copy` or `remat 1` was expected"));
        }
        Ok(())
    }

    /// `vN`, with its class and marks or without.
    fn vreg(&mut self, line: &mut Line<'a>) -> Result<VReg, TextError> {
        let Some(number) = line.word().and_then(|w| number_after("v", w)) else {
            return Err(line.error("a value such as `v0` was expected"));
        };
        let number = number as usize;
        if number >= self.limit {
            return Err(
                line.error("a smaller number was expected, as values are numbered from v0 on")
            );
        }
        let vreg = VReg::new(number);
        if number >= self.vregs.len() {
            self.vregs.resize(number + 1, None);
        }
        let spot = line.spot();
        let has_class = line.next_are_adjacent();
        line.advance();
        if has_class && line.accept(":") {
            let info = self.class(line)?;
            let declared = self.vregs[number].get_or_insert_with(|| info.clone());
            if *declared != info {
                return Err(line.error("the value's class as given before was expected"));
            }
            line.advance();
        } else if self.vregs[number].is_none() {
            self.undeclared.push((vreg, spot));
        }
        Ok(vreg)
    }

    /// `class.uniform.pinned`, not yet consumed.
    fn class(&self, line: &Line<'_>) -> Result<VRegInfo, TextError> {
        let mut words = line.word().unwrap_or("").split('.');
        let class = words.next().and_then(|name| self.target.class_named(name));
        let Some(class) = class else {
            let names: Vec<&str> = self.target.classes().map(|(_, c)| &*c.name).collect();
            return Err(line.error(format!("a class ({}) was expected", names.join(", "))));
        };
        let mut info = VRegInfo {
            class,
            uniform: false,
            pinned: false,
            hint: None,
        };
        for mark in words {
            let hint = mark.strip_prefix("hint_");
            match (mark, hint.and_then(|name| self.target.reg_named(name))) {
                (_, Some(reg)) => info.hint = Some(reg),
                ("h", None) if info.hint.is_some() => {
                    info.hint = info.hint.map(|reg| reg.offset(1));
                }
                ("uniform", _) => info.uniform = true,
                ("pinned", _) => info.pinned = true,
                _ => {
                    let expected = "only `.uniform`, `.pinned` and `.hint_R0` follow a class";
                    return Err(line.error(expected));
                }
            }
        }
        Ok(info)
    }

    fn register(&self, line: &mut Line<'a>) -> Result<PReg, TextError> {
        match line.word().and_then(|name| self.target.reg_named(name)) {
            Some(reg) => {
                line.advance();
                Ok(reg)
            }
            None => Err(line.error("a register such as `R0` was expected")),
        }
    }

    /// `{R0, R1}`
    fn registers(&mut self, line: &mut Line<'a>) -> Result<RegList, TextError> {
        let mut regs = Vec::new();
        line.expect("{")?;
        if !line.accept("}") {
            self.list(line, |parser, line| {
                regs.push(parser.register(line)?);
                Ok(())
            })?;
            line.expect("}")?;
        }
        Ok(self.builder.reg_list(regs))
    }
}

/// What a line says about an instruction.
#[derive(Default)]
struct InstParts {
    operands: Vec<Operand>,
    groups: Vec<OperandGroup>,
    imm: Option<u64>,
    effect: Effect,
    alias: Option<Alias>,
    kind: Option<Kind>,
    remat: Option<u8>,
    anchored: bool,
    clobbers: Clobbers,
}

/// `MASK [address N | variable N at START len LENGTH]`
fn alias(line: &mut Line<'_>) -> Result<Alias, TextError> {
    let spaces = line.integer(u64::from(u8::MAX), "a mask of spaces")? as u8;
    let is_variable = line.accept("variable");
    if !is_variable && !line.accept("address") {
        return Ok(Alias::of(spaces));
    }
    let number = line.integer(u64::from(u32::MAX), "the number of a base")? as u32;
    line.expect("at")?;
    let sign = if line.accept("-") { -1 } else { 1 };
    let start = line.integer(i32::MAX as u64, "the first byte")? as i32;
    line.expect("len")?;
    let len = line.integer(u64::from(u32::MAX), "a number of bytes")? as u32;
    let base = match is_variable {
        true => Base::Variable(number),
        false => Base::Address(number),
    };
    let extent = Some(Extent {
        base,
        start: sign * start,
        len,
    });
    Ok(Alias { spaces, extent })
}

/// Whether the line starts with results rather than an opcode.
fn starts_results(line: &Line<'_>) -> bool {
    let word = line.word();
    word == Some("early") || word.is_some_and(|w| number_after("v", w).is_some())
}
