//! Printing.

use super::Case;
use super::lex::{continues_word, starts_word};
use crate::function::*;
use crate::target::{PReg, Target};
use cranelift_entity::EntitySet;
use std::fmt::{self, Display, Formatter, Write};

/// Words that mean something where an opcode may stand.
const RESERVED: [&str; 2] = ["early", "vregs"];

impl Display for Case {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let target = &self.target;
        write!(f, "target {} sm_{}", target.name(), target.sm())?;
        for (file, info) in target.files() {
            write!(f, " {}={}", info.name, target.budget(file))?;
        }
        f.write_str("\noptions")?;
        for (key, value) in self.options.notable_entries() {
            write!(f, " {key}={value}")?;
        }
        f.write_str("\n\n")?;
        Printer {
            function: &self.function,
            target,
            mentioned: EntitySet::new(),
        }
        .function(f)
    }
}

/// Displays a name, quoted where it would read as something else.
pub(super) struct Name<'a>(pub &'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.0;
        let plain = name.starts_with(starts_word)
            && name.chars().all(continues_word)
            && number_after("v", name).is_none()
            && number_after("block", name).is_none()
            && !RESERVED.contains(&name);
        if plain {
            return f.write_str(name);
        }
        f.write_char('"')?;
        for c in name.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                _ => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// The number in a word like `v12`.
pub(super) fn number_after(prefix: &str, word: &str) -> Option<u32> {
    let digits = word.strip_prefix(prefix)?;
    let number = digits.bytes().all(|b| b.is_ascii_digit());
    // Leading zeros are no numbers, so that each number has one spelling.
    let canonical = !digits.is_empty() && (digits == "0" || !digits.starts_with('0'));
    (number && canonical).then(|| digits.parse().ok())?
}

/// Writes a function, remembering which values it has mentioned.
struct Printer<'a> {
    function: &'a Function,
    target: &'a Target,
    mentioned: EntitySet<VReg>,
}

impl Printer<'_> {
    fn function(mut self, f: &mut Formatter<'_>) -> fmt::Result {
        let function = self.function;
        let convention = convention_name(function.convention());
        writeln!(f, "{convention} {} {{", Name(function.name()))?;
        for block in function.blocks() {
            self.block(f, block)?;
        }
        self.unmentioned(f)?;
        f.write_str("}\n")
    }

    fn block(&mut self, f: &mut Formatter<'_>, block: Block) -> fmt::Result {
        write!(f, "{block}")?;
        let info = self.function.block(block);
        if !info.params.is_empty() {
            self.values(f, &info.params)?;
        }
        if let Some(frequency) = info.frequency {
            write!(f, " freq {frequency}")?;
        }
        f.write_str(":\n")?;
        let last = self.function.block_insts(block).next_back();
        for inst in self.function.block_insts(block) {
            self.inst(f, inst)?;
            if Some(inst) == last {
                self.edges(f, block)?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }

    /// A parenthesised list.
    fn values(&mut self, f: &mut Formatter<'_>, values: &[VReg]) -> fmt::Result {
        f.write_char('(')?;
        for (i, &value) in values.iter().enumerate() {
            f.write_str(if i > 0 { ", " } else { "" })?;
            self.vreg(f, value)?;
        }
        f.write_char(')')
    }

    fn edges(&mut self, f: &mut Formatter<'_>, block: Block) -> fmt::Result {
        for (i, edge) in self.function.succs(block).iter().enumerate() {
            f.write_str(if i > 0 { ", " } else { " -> " })?;
            write!(f, "{}", edge.block)?;
            if !edge.args.is_empty() {
                self.values(f, &edge.args)?;
            }
        }
        Ok(())
    }

    fn inst(&mut self, f: &mut Formatter<'_>, inst: Inst) -> fmt::Result {
        f.write_str("    ")?;
        let operands = self.function.operands(inst);
        let is_result = |o: &&Operand| matches!(o.role, Role::Def | Role::EarlyDef);
        let results = operands.iter().take_while(is_result).count();
        let (results, rest) = operands.split_at(results);
        for (i, operand) in results.iter().enumerate() {
            f.write_str(if i > 0 { ", " } else { "" })?;
            self.operand(f, operand, Role::Def)?;
        }
        f.write_str(if results.is_empty() { "" } else { " = " })?;
        let info = self.function.inst(inst);
        write!(f, "{}", Name(self.function.opcode_name(info.opcode)))?;
        for (i, operand) in rest.iter().enumerate() {
            f.write_str(if i > 0 { ", " } else { " " })?;
            self.operand(f, operand, Role::Use)?;
        }
        if info.imm != 0 {
            write!(
                f,
                "{} #{}",
                if rest.is_empty() { "" } else { "," },
                info.imm
            )?;
        }
        let attributes = attributes(self.function, self.target, inst);
        if attributes.is_empty() {
            return Ok(());
        }
        write!(f, " : {}", attributes.join(" "))
    }

    /// An operand that stands where `expected` is the role that needs no word.
    fn operand(&mut self, f: &mut Formatter<'_>, operand: &Operand, expected: Role) -> fmt::Result {
        if operand.role != expected {
            write!(f, "{} ", role_name(operand.role))?;
        }
        self.vreg(f, operand.vreg)?;
        match operand.constraint {
            Constraint::Any => Ok(()),
            Constraint::Fixed(reg) => write!(f, " @ {}", self.target.reg_name(reg)),
            Constraint::Tied(to) => write!(f, " tied {to}"),
            Constraint::Anywhere => f.write_str(" anywhere"),
            Constraint::Memory => f.write_str(" memory"),
            Constraint::Argument(offset) => write!(f, " argument {offset}"),
            Constraint::Except(list) => {
                write!(
                    f,
                    " not {}",
                    RegNames(self.target, self.function.reg_list(list))
                )
            }
        }
    }

    fn vreg(&mut self, f: &mut Formatter<'_>, vreg: VReg) -> fmt::Result {
        write!(f, "{vreg}")?;
        if !self.mentioned.insert(vreg) {
            return Ok(());
        }
        let info = self.function.vreg(vreg);
        write!(f, ":{}", self.target.class(info.class).name)?;
        f.write_str(if info.uniform { ".uniform" } else { "" })?;
        f.write_str(if info.pinned { ".pinned" } else { "" })?;
        match info.hint {
            Some(reg) => write!(f, ".hint_{}", self.target.reg_name(reg)),
            None => Ok(()),
        }
    }

    fn unmentioned(&mut self, f: &mut Formatter<'_>) -> fmt::Result {
        let all = self.function.vregs();
        let unused: Vec<VReg> = all.filter(|&v| !self.mentioned.contains(v)).collect();
        for (i, &vreg) in unused.iter().enumerate() {
            f.write_str(if i > 0 { ", " } else { "vregs " })?;
            self.vreg(f, vreg)?;
        }
        f.write_str(if unused.is_empty() { "" } else { "\n" })
    }
}

/// What follows the colon of an instruction.
pub(super) fn attributes(function: &Function, target: &Target, inst: Inst) -> Vec<String> {
    let info = function.inst(inst);
    let block = function.block(function.block_of(inst));
    let leads = !block.succs.is_empty() && inst == function.terminator(function.block_of(inst));
    let implied = if leads { Kind::Branch } else { Kind::Plain };
    let mut words = Vec::new();
    if info.kind != implied {
        words.push(kind_name(info.kind).to_owned());
    }
    match info.effect {
        Effect::Pure => {}
        Effect::Read => words.push("read".to_owned()),
        Effect::Write => words.push("write".to_owned()),
    }
    if info.alias != AliasClass::ANY {
        words.push(alias_text(function.alias_info(info.alias)));
    }
    if let Some(cycles) = info.remat {
        words.push(format!("remat {cycles}"));
    }
    if info.anchored {
        words.push("anchored".to_owned());
    }
    match info.clobbers {
        Clobbers::None => {}
        Clobbers::Abi => words.push("clobbers abi".to_owned()),
        Clobbers::List(list) => {
            words.push(format!(
                "clobbers {}",
                RegNames(target, function.reg_list(list))
            ));
        }
    }
    for group in function.groups(inst) {
        let range = group.range();
        let (first, end, align) = (range.start, range.end, group.align);
        words.push(format!("group {first}..{end} align {align}"));
    }
    words
}

/// `spaces MASK`, and which bytes of them.
fn alias_text(alias: &Alias) -> String {
    let spaces = alias.spaces;
    let Some(Extent { base, start, len }) = alias.extent else {
        return format!("spaces {spaces}");
    };
    let base = match base {
        Base::Address(number) => format!("address {number}"),
        Base::Variable(number) => format!("variable {number}"),
    };
    format!("spaces {spaces} {base} at {start} len {len}")
}

/// Displays a list of registers in braces.
struct RegNames<'a>(&'a Target, &'a [PReg]);

impl Display for RegNames<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self
            .1
            .iter()
            .map(|&r| self.0.reg_name(r).to_string())
            .collect();
        write!(f, "{{{}}}", names.join(", "))
    }
}

pub(super) fn convention_name(convention: Convention) -> &'static str {
    match convention {
        Convention::Kernel => "kernel",
        Convention::Device => "device",
    }
}

pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Plain => "plain",
        Kind::Copy => "copy",
        Kind::Undef => "undef",
        Kind::LiveIn => "livein",
        Kind::Call => "call",
        Kind::Branch => "branch",
        Kind::Return => "return",
        Kind::Exit => "exit",
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Use => "use",
        Role::Def => "def",
        Role::UseDef => "inout",
        Role::EarlyDef => "early",
    }
}
