//! Operations on names as text, and where the text goes.

use super::memory::{Memory, Surroundings};
use super::name_liveness::{Around, Demands, NotExpressible, Op};
use super::view::{Conversion, Kind, View, ViewSet};
use crate::ast::{Instruction, Span, Stmt};
use crate::lower::{Code, Lowered, Source};
use crate::opcode::Width;
use crate::printer::Edits;
use std::fmt::Write;
use warpalloc::allocation::{Allocation, EdgePlace, SlotAddr, Space};
use warpalloc::function::{Block, Inst};
use warpalloc::target::{PReg, Target};

/// Names per line of a declaration.
const NAMES_PER_LINE: usize = 12;

/// The edits that turn the function's text into its allocated form.
pub(crate) fn apply(
    lowered: &Lowered,
    target: &Target,
    allocation: &Allocation,
    surroundings: Surroundings,
) -> Result<Edits> {
    let text = lowered.ast.span.text(lowered.source);
    let demands = Demands::solve(&lowered.function, target, allocation)?;
    let mut emitter = Emitter {
        lowered,
        allocation,
        used: ViewSet::new(&demands.views),
        demands,
        memory: Memory::new(allocation.frame, surroundings, text)?,
        edits: Edits::new(),
        detours: vec![String::new(); lowered.scopes.len()],
        labels: 0,
        label_stem: free_stem(text),
    };
    emitter.names_are_free()?;
    for block in lowered.function.blocks() {
        emitter.block(block)?;
    }
    emitter.finish()
}

/// A stem for labels that the function does not use.
fn free_stem(text: &str) -> String {
    let mut stem = "$L__edge".to_owned();
    while text.contains(&stem) {
        stem.push('_');
    }
    stem
}

struct Emitter<'x, 'm, 'a> {
    lowered: &'x Lowered<'m, 'a>,
    allocation: &'x Allocation,
    demands: Demands<'x>,
    /// Names that occur.
    used: ViewSet,
    memory: Memory,
    edits: Edits,
    /// By scope: code on the way to labels of the scope.
    detours: Vec<String>,
    labels: u32,
    label_stem: String,
}

type Result<T> = std::result::Result<T, NotExpressible>;

impl<'m, 'a> Emitter<'_, 'm, 'a> {
    /// Names of the signature stay, so they must differ from those of registers.
    fn names_are_free(&self) -> Result<()> {
        let function = self.lowered.ast;
        for var in function.params.iter().chain(&function.returns) {
            for declarator in &var.names {
                let name = declarator.name.text;
                if name.starts_with('%') && name[1..].starts_with(|c: char| c.is_ascii_uppercase())
                {
                    return Err(NotExpressible(format!(
                        "`{name}` may be the name of a register"
                    )));
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Edits> {
        for span in &self.lowered.reg_decls {
            let line = whole_line(self.lowered.source, *span);
            self.edits.delete(line);
        }
        for (scope, text) in self
            .detours
            .iter()
            .enumerate()
            .filter(|(_, t)| !t.is_empty())
        {
            let body = self.lowered.scopes[scope];
            let ends = matches!(body.stmts.iter().rev().find(|s| is_code(s)),
                Some(Stmt::Inst(inst)) if leaves(inst));
            let mut out = String::new();
            match (ends, scope) {
                (true, _) => out.push_str(text),
                (false, 0) => {
                    out.push_str("\tret;\n");
                    out.push_str(text);
                }
                (false, _) => {
                    let over = format!("{}{}_{scope}", self.label_stem, "over");
                    let _ = write!(out, "\tbra \t{over};\n{text}{over}:\n");
                }
            }
            self.edits.insert(body.close, &out);
        }
        let mut all = Edits::new();
        let mut top = String::new();
        self.declarations(&mut top);
        self.memory.prologue(&mut top);
        all.insert(self.lowered.scopes[0].open + 1, &top);
        all.append(&self.edits);
        Ok(all)
    }

    fn declarations(&self, out: &mut String) {
        let views = &self.demands.views;
        for kind in Kind::ALL {
            let names: Vec<View> = self.used.iter(views).filter(|v| v.kind == kind).collect();
            let is_series = names
                .iter()
                .zip(0u16..)
                .all(|(v, i)| v.unit == i * views.width(kind));
            if is_series && !names.is_empty() {
                let (ty, prefix, count) = (kind.ty(), kind.prefix(), names.len());
                let _ = write!(out, "\n\t.reg .{ty} \t{prefix}<{count}>;");
                continue;
            }
            for line in names.chunks(NAMES_PER_LINE) {
                let list: Vec<String> = line.iter().map(|v| views.name(*v).to_string()).collect();
                let _ = write!(out, "\n\t.reg .{} \t{};", kind.ty(), list.join(", "));
            }
        }
    }

    fn block(&mut self, block: Block) -> Result<()> {
        let arounds = self.demands.code(block)?;
        let places = self.places(block);
        for (around, place) in arounds.iter().zip(places) {
            self.instruction(around, place)?;
        }
        self.edges(block)
    }

    /// Where each instruction of a block goes, in its final order: written ones take the
    /// places of written ones. Anchored ones, which name what their braces declare, are
    /// barriers and so keep their own.
    fn places(&self, block: Block) -> Vec<Place> {
        let function = &self.lowered.function;
        let order = self.allocation.block_insts(function, block);
        if self.allocation.order.is_none() {
            return order.map(|_| Place::Own).collect();
        }
        let is_written = |inst: &Inst| matches!(self.code(*inst).source, Source::Written { .. });
        let mut written = function.block_insts(block).filter(is_written);
        let mut places = Vec::new();
        let mut last = function.block_insts(block).next();
        for inst in order {
            if !is_written(&inst) {
                places.push(last.map_or(Place::Own, Place::Behind));
                continue;
            }
            let there = written.next().unwrap_or(inst);
            last = Some(there);
            places.push(match there == inst {
                true => Place::Own,
                false => Place::Of(there),
            });
        }
        places
    }

    fn code(&self, inst: Inst) -> &Code<'m, 'a> {
        &self.lowered.codes[inst.as_u32() as usize]
    }

    fn instruction(&mut self, around: &Around, place: Place) -> Result<()> {
        let inst = around.inst;
        let before = self.lines(&around.before)?;
        let after = self.lines(&around.after)?;
        let deleted = self.allocation.deleted.contains(inst);
        let Source::Written { inst: stmt, .. } = self.code(inst).source else {
            let mut lines = before;
            if let Some(line) = self.unwritten(inst)? {
                lines.push(line);
            }
            lines.extend(after);
            let at = match place {
                Place::Behind(there) => self.end_of(there),
                _ => self.code(inst).at,
            };
            self.insert_behind(at, &lines);
            return Ok(());
        };
        let place = match place {
            Place::Of(there) => there,
            Place::Own | Place::Behind(_) => {
                self.in_place(inst, stmt.span, deleted, &before, &after)?;
                return Ok(());
            }
        };
        // Another statement stood here: all of the text is replaced.
        let mut lines = before;
        if !deleted {
            let text =
                self.rendered(inst, self.allocation.operands(&self.lowered.function, inst))?;
            lines.push(format!("{}{text}", self.line_marks(inst)));
        }
        lines.extend(after);
        let span = Span::new(self.marks_start(place), self.end_of(place));
        self.edits.replace(span, &lines.join("\n\t"));
        Ok(())
    }

    fn in_place(
        &mut self,
        inst: Inst,
        span: Span,
        deleted: bool,
        before: &[String],
        after: &[String],
    ) -> Result<()> {
        if deleted {
            let lines: Vec<&String> = before.iter().chain(after).collect();
            if lines.is_empty() {
                self.edits.delete(whole_line(self.lowered.source, span));
            } else {
                let text: Vec<&str> = lines.iter().map(|l| l.as_str()).collect();
                self.edits.replace(span, &text.join("\n\t"));
            }
            return Ok(());
        }
        // A terminator stays where it is, and edges may still change its labels.
        let is_terminator = self.lowered.function.inst(inst).kind.is_terminator();
        if self.allocation.order.is_some() && !is_terminator {
            let regs = self.allocation.operands(&self.lowered.function, inst);
            let text = self.rendered(inst, regs)?;
            let mut lines = before.to_vec();
            lines.push(text);
            lines.extend_from_slice(after);
            self.edits.replace(span, &lines.join("\n\t"));
            return Ok(());
        }
        for line in before {
            self.edits.insert(span.start, &format!("{line}\n\t"));
        }
        let regs = self.allocation.operands(&self.lowered.function, inst);
        let lowered = self.lowered;
        for occurrence in &lowered.codes[inst.as_u32() as usize].occurrences {
            let text = self.names(
                inst,
                regs,
                occurrence.operand,
                occurrence.lanes,
                occurrence.braces,
            )?;
            self.edits.replace(occurrence.span, &text);
        }
        self.insert_behind(span.end, after);
        Ok(())
    }

    fn insert_behind(&mut self, at: u32, lines: &[String]) {
        for line in lines {
            self.edits.insert(at, &format!("\n\t{line}"));
        }
    }

    fn end_of(&self, inst: Inst) -> u32 {
        match self.code(inst).source {
            Source::Written { inst, .. } => inst.span.end,
            _ => self.code(inst).at,
        }
    }

    /// Where the `.loc` lines that belong to an instruction begin; its own start if other
    /// things stand between it and the statement before.
    fn marks_start(&self, inst: Inst) -> u32 {
        let code = self.code(inst);
        let Source::Written { inst: stmt, .. } = code.source else {
            return code.at;
        };
        let between = Span::new(code.at, stmt.span.start).text(self.lowered.source);
        let Some(first) = between.find(".loc") else {
            return stmt.span.start;
        };
        let only_marks = between[first..].lines().all(|line| {
            let line = line.trim();
            line.is_empty() || line.starts_with(".loc") || line.starts_with("//")
        });
        match only_marks {
            true => code.at + first as u32,
            false => stmt.span.start,
        }
    }

    fn line_marks(&self, inst: Inst) -> &'a str {
        match self.code(inst).source {
            Source::Written { inst: stmt, .. } => {
                Span::new(self.marks_start(inst), stmt.span.start).text(self.lowered.source)
            }
            _ => "",
        }
    }

    /// The line of an instruction that no statement stands for.
    fn unwritten(&mut self, inst: Inst) -> Result<Option<String>> {
        let regs = self.allocation.operands(&self.lowered.function, inst);
        let (name, width, receives) = match self.code(inst).source {
            Source::Receive { name, width } => (name, width, true),
            Source::Deliver { name, width } => (name, width, false),
            _ => return Ok(None),
        };
        if self.allocation.deleted.contains(inst) {
            return Ok(None);
        }
        let ty = match width {
            Width::B1 => "pred",
            Width::B16 => "b16",
            Width::B32 => "b32",
            Width::B64 => "b64",
            Width::B128 => "b128",
        };
        let register = self.names(inst, regs, 0, 1, false)?;
        Ok(Some(match receives {
            true => format!("mov.{ty} \t{register}, {name};"),
            false => format!("mov.{ty} \t{name}, {register};"),
        }))
    }

    /// The names of the registers that one occurrence stands for.
    fn names(
        &mut self,
        inst: Inst,
        regs: &[PReg],
        first: u8,
        lanes: u8,
        braces: bool,
    ) -> Result<String> {
        let lowered = self.lowered;
        let operands = lowered.function.operands(inst);
        let mut out = String::new();
        for index in usize::from(first)..usize::from(first) + usize::from(lanes) {
            let view = self.demands.operand_view(&operands[index], regs[index])?;
            if index > usize::from(first) {
                out.push_str(", ");
            }
            out.push_str(&self.name(view));
        }
        Ok(match braces {
            true => format!("{{{out}}}"),
            false => out,
        })
    }

    fn name(&mut self, view: View) -> String {
        let views = &self.demands.views;
        self.used.insert(views, view);
        views.name(view).to_string()
    }

    /// The text of a written instruction with other registers.
    fn rendered(&mut self, inst: Inst, regs: &[PReg]) -> Result<String> {
        let lowered = self.lowered;
        let code = &lowered.codes[inst.as_u32() as usize];
        let Source::Written { inst: stmt, .. } = code.source else {
            return Err(NotExpressible(
                "an instruction without text is executed again".to_owned(),
            ));
        };
        let mut out = String::new();
        let mut done = stmt.span.start;
        for occurrence in &code.occurrences {
            out.push_str(Span::new(done, occurrence.span.start).text(lowered.source));
            let (first, lanes) = (occurrence.operand, occurrence.lanes);
            out.push_str(&self.names(inst, regs, first, lanes, occurrence.braces)?);
            done = occurrence.span.end;
        }
        out.push_str(Span::new(done, stmt.span.end).text(lowered.source));
        Ok(out)
    }

    /// Code on the edges of a block, and branches that lead to it.
    fn edges(&mut self, block: Block) -> Result<()> {
        let lowered = self.lowered;
        let labels = &lowered.edge_labels[block.as_u32() as usize];
        let function = &lowered.function;
        let terminator = function.terminator(block);
        let mut renamed: Vec<Option<String>> = Vec::with_capacity(labels.len());
        for (succ, label) in labels.iter().enumerate() {
            let mut ops = Vec::new();
            self.demands.edge(block, succ as u32, Some(&mut ops))?;
            let lines = self.lines(&ops)?;
            let mut new_label = None;
            match *label {
                _ if lines.is_empty() => {}
                None => self.insert_behind(self.end_of(terminator), &lines),
                Some(_) if function.edge_place(block, succ as u32) == EdgePlace::Predecessor => {
                    self.insert_in_front(terminator, &lines);
                }
                Some((scope, goal)) => new_label = Some(self.detour(scope, goal, &lines)),
            }
            renamed.push(new_label);
        }
        if renamed.iter().any(Option::is_some) {
            self.retarget(terminator, labels, &renamed);
        }
        Ok(())
    }

    fn insert_in_front(&mut self, inst: Inst, lines: &[String]) {
        if let Source::Written { inst: stmt, .. } = self.code(inst).source {
            for line in lines {
                self.edits.insert(stmt.span.start, &format!("{line}\n\t"));
            }
        }
    }

    /// Code on the way to a label, in the label's scope, behind a label of its own.
    fn detour(&mut self, scope: u32, goal: &str, lines: &[String]) -> String {
        let label = format!("{}{}", self.label_stem, self.labels);
        self.labels += 1;
        let out = &mut self.detours[scope as usize];
        let _ = writeln!(out, "{label}:");
        for line in lines {
            let _ = writeln!(out, "\t{line}");
        }
        let _ = writeln!(out, "\tbra \t{goal};");
        label
    }

    /// Sends a branch to the new labels.
    fn retarget(
        &mut self,
        terminator: Inst,
        labels: &[Option<(u32, &'a str)>],
        renamed: &[Option<String>],
    ) {
        let Source::Written { inst: stmt, .. } = self.code(terminator).source else {
            return;
        };
        let Some(name) = stmt.operands.last().and_then(|operand| operand.as_name()) else {
            return;
        };
        if stmt.mnemonic != "brx" {
            if let Some(label) = renamed.iter().flatten().next() {
                self.edits.replace(name.span, label);
            }
            return;
        }
        let goals: Vec<&str> = labels
            .iter()
            .zip(renamed)
            .filter_map(|(old, new)| match new {
                Some(label) => Some(label.as_str()),
                None => old.map(|(_, label)| label),
            })
            .collect();
        let list = format!("{}{}", self.label_stem, self.labels);
        self.labels += 1;
        let line = format!("{list}: .branchtargets {};\n\t", goals.join(", "));
        self.edits.insert(stmt.span.start, &line);
        self.edits.replace(name.span, &list);
    }

    fn lines(&mut self, ops: &[Op]) -> Result<Vec<String>> {
        let mut lines = Vec::with_capacity(ops.len());
        for op in ops {
            self.op(op, &mut lines)?;
        }
        Ok(lines)
    }

    fn op(&mut self, op: &Op, out: &mut Vec<String>) -> Result<()> {
        match op {
            Op::Convert(conversion) => self.convert(*conversion, out),
            &Op::Move { to, from } => {
                let ty = to.kind.ty();
                let line = format!("mov.{ty} \t{}, {};", self.name(to), self.name(from));
                out.push(line);
            }
            &Op::Swap(a, b) => self.swap(a, b, out),
            &Op::Store { slot, view } => self.store(slot, view, out),
            &Op::Load { view, slot } => self.load(slot, view, out),
            &Op::FromPredicate { to, from } => {
                let line = format!("selp.b32 \t{}, 1, 0, {};", self.name(to), self.name(from));
                out.push(line);
            }
            &Op::ToPredicate { to, from } => {
                let line = format!("setp.ne.b32 \t{}, {}, 0;", self.name(to), self.name(from));
                out.push(line);
            }
            Op::Recompute { inst, regs } => out.push(self.rendered(*inst, regs)?),
        }
        Ok(())
    }

    fn convert(&mut self, conversion: Conversion, out: &mut Vec<String>) {
        let line = match conversion {
            Conversion::Pack(view) => {
                let (ty, parts) = (view.kind.ty(), self.braced_parts(view));
                format!("mov.{ty} \t{}, {parts};", self.name(view))
            }
            Conversion::Unpack(view) => {
                let (ty, parts) = (view.kind.ty(), self.braced_parts(view));
                format!("mov.{ty} \t{parts}, {};", self.name(view))
            }
            Conversion::Low { from, to } => {
                let bits = |kind| match kind {
                    Kind::Half => "u16",
                    _ => "u32",
                };
                let (to_ty, from_ty) = (bits(to.kind), bits(from.kind));
                format!(
                    "cvt.{to_ty}.{from_ty} \t{}, {};",
                    self.name(to),
                    self.name(from)
                )
            }
        };
        out.push(line);
    }

    fn braced_parts(&mut self, view: View) -> String {
        let parts = self.demands.views.parts(view);
        let names: Vec<String> = parts.into_iter().map(|part| self.name(part)).collect();
        format!("{{{}}}", names.join(", "))
    }

    /// Three exclusive-ors exchange two registers without a third. There is none of 128
    /// bits, so quads go by their halves.
    fn swap(&mut self, a: View, b: View, out: &mut Vec<String>) {
        if a.kind == Kind::Quad {
            self.convert(Conversion::Unpack(a), out);
            self.convert(Conversion::Unpack(b), out);
            let pairs = self.demands.views.parts(a).into_iter();
            for (x, y) in pairs.zip(self.demands.views.parts(b)) {
                self.swap(x, y, out);
            }
            self.convert(Conversion::Pack(a), out);
            self.convert(Conversion::Pack(b), out);
            return;
        }
        let (ty, x, y) = (a.kind.ty(), self.name(a), self.name(b));
        for (to, with) in [(&x, &y), (&y, &x), (&x, &y)] {
            out.push(format!("xor.{ty} \t{to}, {to}, {with};"));
        }
    }

    fn store(&mut self, slot: SlotAddr, view: View, out: &mut Vec<String>) {
        if let Some(parts) = self.by_words(slot, view) {
            self.convert(Conversion::Unpack(view), out);
            for (slot, part) in parts {
                self.store(slot, part, out);
            }
            return;
        }
        let (how, ty) = (self.memory.qualifier(slot.space), memory_type(view));
        let address = self.memory.address(slot);
        let line = format!("st{how}.{ty} \t{address}, {};", self.name(view));
        out.push(line);
    }

    fn load(&mut self, slot: SlotAddr, view: View, out: &mut Vec<String>) {
        if let Some(parts) = self.by_words(slot, view) {
            for (slot, part) in parts {
                self.load(slot, part, out);
            }
            self.convert(Conversion::Pack(view), out);
            return;
        }
        let (how, ty) = (self.memory.qualifier(slot.space), memory_type(view));
        let address = self.memory.address(slot);
        let line = format!("ld{how}.{ty} \t{}, {address};", self.name(view));
        out.push(line);
    }

    /// The parts of a view with their slots, where memory takes words only.
    fn by_words(&self, slot: SlotAddr, view: View) -> Option<[(SlotAddr, View); 2]> {
        let wide = matches!(view.kind, Kind::Pair | Kind::Quad);
        let quad_in_memory = view.kind == Kind::Quad && slot.space == Space::Local;
        if !(wide && self.memory.is_by_words(slot.space) || quad_in_memory) {
            return None;
        }
        let parts = self.demands.views.parts(view);
        let half = view.kind.bytes() as i32 / 2;
        let high = SlotAddr {
            offset: slot.offset + half,
            ..slot
        };
        Some([(slot, parts[0]), (high, parts[1])])
    }
}

/// Where an instruction's text goes.
#[derive(Clone, Copy)]
enum Place {
    /// Where it stands.
    Own,
    /// Where another stood.
    Of(Inst),
    /// Behind another; for what has no text of its own.
    Behind(Inst),
}

fn memory_type(view: View) -> &'static str {
    view.kind.ty()
}

fn is_code(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Inst(_) | Stmt::Label(_) | Stmt::Scope(_))
}

/// Whether nothing behind the instruction is reached from it.
fn leaves(inst: &Instruction) -> bool {
    inst.guard.is_none() && matches!(inst.mnemonic, "bra" | "ret" | "exit" | "brx")
}

/// The span with its indentation and the line break before it, if it has the line for itself.
fn whole_line(source: &str, span: Span) -> Span {
    let before = &source.as_bytes()[..span.start as usize];
    let blank = before
        .iter()
        .rev()
        .take_while(|b| matches!(b, b' ' | b'\t'))
        .count();
    let line_start = before.len() - blank;
    let ends_line = matches!(
        source.as_bytes().get(span.end as usize),
        Some(b'\n' | b'\r') | None
    );
    if line_start > 0 && before[line_start - 1] == b'\n' && ends_line {
        Span::new(line_start as u32 - 1, span.end)
    } else {
        span
    }
}
