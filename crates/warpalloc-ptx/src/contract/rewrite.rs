//! The text of a contraction: `fma` for sums, `.rn` for the rest, and products gone.

use super::Code;
use super::choose::{Choice, Fused};
use super::float::{self, Form, Mode, Type};
use crate::ast::{Body, Instruction, Operand, Span};
use crate::printer::Edits;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;
use warpalloc::function::{Inst, VReg};

/// Widths of registers that are added, with the letter that follows the stem in their names.
const WIDTHS: [(u32, char); 3] = [(16, 'h'), (32, 'w'), (64, 'd')];

/// What the names of all added registers begin with: nothing in the text does.
pub(super) fn fresh_stem(source: &str) -> String {
    let mut stem = "%fused_".to_owned();
    while source.contains(&stem) {
        stem.push('_');
    }
    stem
}

/// Adds the edits for one function, and returns how many statements got `.rn`.
pub(super) fn rewrite(
    code: &Code,
    body: &Body,
    choice: &Choice,
    stem: &str,
    edits: &mut Edits,
) -> usize {
    let mut text = Text {
        code,
        stem,
        counts: [0; 3],
        kept: FxHashMap::default(),
        writes: writes(code),
        statements: FxHashMap::default(),
    };
    for fused in &choice.fused {
        let sum = text.sum(fused);
        text.statements.insert(fused.sum, sum);
    }
    for inst in gone(code, choice) {
        text.statements.insert(inst, String::new());
    }
    let mut rounded = 0;
    for inst in code.function().insts() {
        let Some((statement, _)) = code.statement(inst) else {
            continue;
        };
        let before = text.kept.remove(&inst).unwrap_or_default();
        if let Some(new) = text.statements.get(&inst) {
            replace(code.lowered.source, statement.span, &(before + new), edits);
            continue;
        }
        edits.insert_before(statement.span, &before);
        // A product with one is exact: there is nothing to round.
        let is_exact = matches!(float::form(code, inst), Form::Same { .. });
        if float::is_unrounded(statement) && !statement.has("rn") && !is_exact {
            edits.insert(mnemonic_end(code.lowered.source, statement), ".rn");
            rounded += 1;
        }
    }
    edits.insert(body.open + 1, &text.declarations());
    rounded
}

/// Puts `text` in the place of a statement without changing the number of lines.
fn replace(source: &str, span: Span, text: &str, edits: &mut Edits) {
    edits.replace_with(span, |out| {
        out.push_str(text);
        out.extend(span.text(source).chars().filter(|&c| c == '\n'));
    });
}

/// Where modifiers begin.
fn mnemonic_end(source: &str, statement: &Instruction) -> u32 {
    let from = match &statement.guard {
        Some(guard) => guard.span().end,
        None => statement.span.start,
    };
    let text = Span::new(from, statement.span.end).text(source);
    let at = text.find(statement.mnemonic).unwrap_or(0) + statement.mnemonic.len();
    from + at as u32
}

/// The places that write each name, in ascending order.
fn writes<'a>(code: &Code<'_, '_, 'a>) -> FxHashMap<&'a str, Vec<Inst>> {
    let mut writes: FxHashMap<&str, Vec<Inst>> = FxHashMap::default();
    let function = code.function();
    for inst in function.insts() {
        let operands = function.operands(inst);
        for occurrence in &code.lowered.codes[inst.as_u32() as usize].occurrences {
            if operands[usize::from(occurrence.operand)].role.writes() {
                let name = occurrence.span.text(code.lowered.source);
                writes.entry(name).or_default().push(inst);
            }
        }
    }
    writes
}

/// Products, copies and negations that nothing reads any more.
fn gone(code: &Code, choice: &Choice) -> Vec<Inst> {
    let function = code.function();
    let mut taken: FxHashSet<(Inst, VReg)> = FxHashSet::default();
    for fused in &choice.fused {
        if let Some(value) = code.operand_value(fused.sum, fused.slot + 1)
            && code.operand_value(fused.sum, 2 - fused.slot) != Some(value)
        {
            taken.insert((fused.sum, value));
        }
    }
    let mut candidates: Vec<Inst> = choice.fused.iter().map(|fused| fused.product).collect();
    candidates.extend(&choice.looked_through);
    candidates.sort_unstable();
    candidates.dedup();
    let mut gone: FxHashSet<Inst> = FxHashSet::default();
    // A reader of a copy comes after it, and so does a copy after its product.
    for &inst in candidates.iter().rev() {
        let mut written = function.operands(inst).iter().filter(|o| o.role.writes());
        let is_read = written.any(|operand| {
            code.readers(operand.vreg).iter().any(|&reader| {
                let reads_again = function
                    .operands(reader)
                    .iter()
                    .filter(|o| o.vreg == operand.vreg)
                    .count()
                    > 1;
                let released = gone.contains(&reader)
                    || taken.contains(&(reader, operand.vreg)) && !reads_again;
                !released
            })
        });
        if !is_read {
            gone.insert(inst);
        }
    }
    gone.into_iter().collect()
}

struct Text<'c, 'l, 'm, 'a> {
    code: &'c Code<'l, 'm, 'a>,
    stem: &'c str,
    /// Registers added so far, by width.
    counts: [u32; 3],
    /// Statements that go before an instruction.
    kept: FxHashMap<Inst, String>,
    writes: FxHashMap<&'a str, Vec<Inst>>,
    /// What stands in the place of an instruction.
    statements: FxHashMap<Inst, String>,
}

impl Text<'_, '_, '_, '_> {
    fn fresh(&mut self, bits: u32) -> String {
        let index = WIDTHS.iter().position(|&(width, _)| width == bits);
        let index = index.unwrap_or(0);
        let number = self.counts[index];
        self.counts[index] += 1;
        format!("{}{}{number}", self.stem, WIDTHS[index].1)
    }

    fn declarations(&self) -> String {
        let mut out = String::new();
        for ((width, letter), count) in WIDTHS.into_iter().zip(self.counts) {
            if count > 0 {
                // Writing to a string cannot fail.
                let _ = write!(out, " .reg .b{width} {}{letter}<{count}>;", self.stem);
            }
        }
        out
    }

    /// A sum with its product in it.
    fn sum(&mut self, fused: &Fused) -> String {
        let Some((statement, _)) = self.code.statement(fused.sum) else {
            return String::new();
        };
        let Form::Sum {
            mode,
            subtracts,
            saturates,
        } = float::form(self.code, fused.sum)
        else {
            return String::new();
        };
        let mut out = String::new();
        let mut first = self.factor(fused, 1, mode.ty);
        let second = self.factor(fused, 2, mode.ty);
        let mut addend = self.operand(statement, 2 - fused.slot);
        // The second operand of a difference changes its sign.
        if fused.negated != (subtracts && fused.slot == 1) {
            first = self.negated(&first, mode.ty, &mut out);
        }
        if subtracts && fused.slot == 0 {
            addend = self.negated(&addend, mode.ty, &mut out);
        }
        let result = self.operand(statement, 0);
        let source = self.code.lowered.source;
        if let Some(guard) = &statement.guard {
            let _ = write!(out, "{} ", guard.span().text(source));
        }
        let Mode { ty, ftz } = mode;
        let ftz = if ftz { ".ftz" } else { "" };
        let sat = if saturates { ".sat" } else { "" };
        let ty = ty.name();
        let _ = write!(
            out,
            "fma.rn{ftz}{sat}.{ty} {result}, {first}, {second}, {addend};"
        );
        out
    }

    fn operand(&self, statement: &Instruction, number: usize) -> String {
        let operand = statement.operands.get(number);
        let span = operand.and_then(float::operand_span);
        span.map_or_else(String::new, |span| {
            span.text(self.code.lowered.source).to_owned()
        })
    }

    /// A factor by a name that means it at the sum: its own, or one that keeps it until then.
    fn factor(&mut self, fused: &Fused, number: usize, ty: Type) -> String {
        let product = self.code.statement(fused.product);
        let sum = self.code.statement(fused.sum);
        let (Some((product, from)), Some((_, to))) = (product, sum) else {
            return String::new();
        };
        let text = self.operand(product, number);
        let is_same = match &product.operands[number] {
            Operand::Int { .. } | Operand::Float { .. } => true,
            Operand::Ident(name) => from == to && !self.is_written(name.text, fused),
            _ => false,
        };
        if is_same {
            return text;
        }
        let keeper = self.fresh(ty.bits());
        let bits = ty.bits();
        let _ = write!(
            self.kept.entry(fused.product).or_default(),
            "mov.b{bits} {keeper}, {text}; "
        );
        keeper
    }

    /// Whether a name is written between a product, itself included, and a sum.
    fn is_written(&self, name: &str, fused: &Fused) -> bool {
        let Some(writes) = self.writes.get(name) else {
            return false;
        };
        // Blocks of a straight line need not be in the order of the text.
        if self.code.function().block_of(fused.product) != self.code.function().block_of(fused.sum)
        {
            return true;
        }
        let after = writes.partition_point(|&write| write < fused.product);
        writes.get(after).is_some_and(|&write| write < fused.sum)
    }

    /// The same with the other sign, which is exact.
    fn negated(&mut self, text: &str, ty: Type, out: &mut String) -> String {
        let turned = self.fresh(ty.bits());
        let _ = match ty {
            Type::Bf16x2 => write!(out, "xor.b32 {turned}, {text}, 0x80008000; "),
            Type::F32x2 => write!(out, "xor.b64 {turned}, {text}, 0x8000000080000000; "),
            _ => write!(out, "neg.{} {turned}, {text}; ", ty.name()),
        };
        turned
    }
}
