//! One instruction: its registers with their roles, its effect, its groups.

use super::alias::{self, Addressing, Sum, Term};
use super::async_regs::Flight;
use super::builder::{DraftInst, class_of};
use super::names::{Declared, Meaning};
use super::{Code, LowerError, Lowering, Occurrence, Source};
use crate::ast::{Instruction, Name, Operand as Ast, Span};
use crate::diag::ParseError;
use crate::opcode::{
    self, AddressShape, AsyncKind, Asynchronous, Control, Description, InstrShape, OperandRole,
    OperandShape, Ty, Width, describe,
};
use rustc_hash::FxHasher;
use smallvec::SmallVec;
use std::hash::Hasher;
use warpalloc::function::{Constraint, Effect, Kind, Operand, OperandGroup, Role, VReg};

/// The most operands one instruction of the model may have.
pub(super) const MAX_OPERANDS: usize = 256;

/// Where in an operand a register stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The operand, a lane of it, or the first half of a pair.
    Value,
    /// Behind the bar of a pair.
    Second,
    /// Inside of an address.
    Address,
}

/// A register that an instruction names.
#[derive(Clone, Copy)]
struct Seen {
    operand: u8,
    part: Part,
    first: VReg,
    width: Width,
    lanes: u8,
    span: Span,
}

/// What an instruction mentions.
#[derive(Default)]
struct Mentions {
    shapes: SmallVec<[OperandShape; 5]>,
    seen: SmallVec<[Seen; 6]>,
    /// It names something that is unknown outside of the braces around it.
    nested_symbol: bool,
}

impl<'m, 'a> Lowering<'m, 'a> {
    /// The instruction as the model sees it, with what the table says about it.
    pub(super) fn instruction(
        &mut self,
        inst: &'m Instruction<'a>,
    ) -> Result<(DraftInst<'m, 'a>, Description), LowerError> {
        let mentions = self.mentions(inst)?;
        let shape = InstrShape {
            mnemonic: inst.mnemonic,
            modifiers: &inst.modifiers,
            operands: &mentions.shapes,
        };
        let description =
            describe(&shape).map_err(|unknown| LowerError::pass(inst.span, unknown.to_string()))?;
        let guard = self.guard(inst)?;
        let mut operands: SmallVec<[Operand; 4]> = SmallVec::new();
        let mut occurrences: SmallVec<[Occurrence; 4]> = SmallVec::new();
        let mut firsts: SmallVec<[u8; 6]> = SmallVec::new();
        for seen in &mentions.seen {
            let role = self.role(seen, &description)?;
            let role = match role {
                Role::Def if guard.is_some() => Role::UseDef,
                role => role,
            };
            let first = self.operand_number(inst, operands.len())?;
            firsts.push(first);
            for lane in 0..seen.lanes {
                let vreg = VReg::from_u32(seen.first.as_u32() + u32::from(lane));
                self.operand_number(inst, operands.len())?;
                operands.push(Operand::with_role(vreg, role));
            }
            occurrences.push(Occurrence {
                span: seen.span,
                operand: first,
                lanes: seen.lanes,
                braces: seen.lanes > 1,
            });
        }
        if description.in_place && guard.is_none() {
            self.keep_results_apart(&mentions, &mut operands, &firsts);
        }
        let groups = self.groups(&mentions, &description, &operands, &firsts);
        if let Some((vreg, span)) = guard {
            let operand = self.operand_number(inst, operands.len())?;
            operands.push(Operand::reads(vreg));
            occurrences.push(Occurrence {
                span,
                operand,
                lanes: 1,
                braces: false,
            });
        }
        occurrences.sort_by_key(|o| o.span);
        if writes_twice(&operands) {
            let reason = format!("`{}` writes one register twice", inst.opcode());
            return Err(LowerError::pass(inst.span, reason));
        }
        let flight = flight(inst, &description, &mentions, &firsts);
        let kind = self.kind(&description, &operands, &mentions, guard.is_some());
        let remat = description.remat.filter(|_| {
            guard.is_none()
                && !mentions.nested_symbol
                && kind == Kind::Plain
                && description.effect == opcode::Effect::Pure
                && operands.iter().filter(|o| o.role.writes()).count() == 1
        });
        let addressing = self.addressing(inst, &description, &mentions, &firsts, kind);
        let draft = DraftInst {
            opcode: inst.opcode(),
            imm: self.fingerprint(inst, &occurrences),
            effect: match description.effect {
                opcode::Effect::Pure => Effect::Pure,
                opcode::Effect::Read => Effect::Read,
                opcode::Effect::Write => Effect::Write,
            },
            kind,
            remat: remat.map(|cost| cost.cycles),
            operands,
            groups,
            flight,
            addressing,
            code: Code {
                source: Source::Written {
                    inst,
                    scope: self.scope,
                    // Behind it the warp has other registers than in front of it.
                    anchored: mentions.nested_symbol || inst.mnemonic == "setmaxnreg",
                },
                at: self.at,
                occurrences,
            },
        };
        Ok((draft, description))
    }

    /// What the instruction says about addresses.
    fn addressing(
        &self,
        inst: &Instruction<'a>,
        description: &Description,
        mentions: &Mentions,
        firsts: &[u8],
        kind: Kind,
    ) -> Addressing {
        let operand_of = |span: Span| {
            let seen = mentions.seen.iter().position(|seen| seen.span == span)?;
            (mentions.seen[seen].lanes == 1).then(|| Term::Register(firsts[seen]))
        };
        let term = |operand: &Ast<'a>| {
            let name = operand.as_name()?;
            match self.scopes.find(name.text) {
                Meaning::Symbol {
                    variable: Some(variable),
                    ..
                } => Some(Term::Variable(variable)),
                _ => operand_of(name.span),
            }
        };
        let address = || {
            let is_address = |operand: &&Ast<'a>| matches!(operand, Ast::Memory(_));
            let Ast::Memory(memory) = inst.operands.iter().find(is_address)? else {
                return None;
            };
            let constant = match &memory.offset {
                Some(offset) => offset.as_int()? as i64,
                None => 0,
            };
            let term = term(&memory.base).filter(|_| memory.elements.is_empty())?;
            Some((Sum { term, constant }, alias::bytes(inst)?))
        };
        let result = || {
            if let Some((operand, constant)) = alias::added(inst) {
                let term = term(&inst.operands[operand])?;
                return Some(Sum { term, constant });
            }
            let is_move = inst.mnemonic == "mov" && inst.guard.is_none();
            let [_, source] = inst.operands.as_slice() else {
                return None;
            };
            let term = term(source).filter(|_| is_move)?;
            let is_whole = kind == Kind::Copy || matches!(term, Term::Variable(_));
            is_whole.then_some(Sum { term, constant: 0 })
        };
        Addressing {
            spaces: alias::spaces(inst, description),
            access: address(),
            result: result(),
        }
    }

    /// Lets no result share a register with an input, except lane by lane with the last
    /// operand. A guarded result needs no help: it is an input itself.
    fn keep_results_apart(&self, mentions: &Mentions, operands: &mut [Operand], firsts: &[u8]) {
        let last = mentions.shapes.len().saturating_sub(1);
        let lanes = |operand: usize| {
            let of_operand = mentions.seen.iter().zip(firsts);
            of_operand.filter(move |(seen, _)| usize::from(seen.operand) == operand)
        };
        let widths = |operand| lanes(operand).map(|(seen, _)| (seen.width, seen.lanes));
        let alike = widths(0).eq(widths(last)) && widths(0).all(|(_, lanes)| lanes == 1);
        for ((_, &result), (_, &input)) in lanes(0).zip(lanes(last)) {
            if alike {
                operands[usize::from(result)].constraint = Constraint::Tied(input);
            }
        }
        for operand in operands.iter_mut().filter(|o| o.role == Role::Def) {
            if !alike {
                operand.role = Role::EarlyDef;
            }
        }
    }

    fn operand_number(&self, inst: &Instruction, count: usize) -> Result<u8, LowerError> {
        let reason = || format!("it takes more than {MAX_OPERANDS} registers");
        u8::try_from(count).map_err(|_| LowerError::pass(inst.span, reason()))
    }

    fn guard(&mut self, inst: &Instruction<'a>) -> Result<Option<(VReg, Span)>, LowerError> {
        let Some(guard) = &inst.guard else {
            return Ok(None);
        };
        let Meaning::Register(declared) = self.meaning(guard.reg)? else {
            let message = format!("`{}` is no predicate register", guard.reg.text);
            return Err(ParseError::new(guard.reg.span, message).into());
        };
        if declared.width != Width::B1 || declared.lanes != 1 {
            let message = format!("`{}` is no predicate, so it guards nothing", guard.reg.text);
            return Err(ParseError::new(guard.reg.span, message).into());
        }
        Ok(Some((self.vreg(declared), guard.reg.span)))
    }

    /// What a name means here; a name nobody declared is an error.
    fn meaning(&self, name: Name<'a>) -> Result<Meaning, LowerError> {
        match self.scopes.find(name.text) {
            Meaning::Unknown => {
                let what = if name.text.starts_with('%') {
                    "register"
                } else {
                    "name"
                };
                let message = format!("{what} `{}` is not declared", name.text);
                Err(ParseError::new(name.span, message).into())
            }
            Meaning::ModuleRegister => {
                let reason = format!("`{}` is a register of the whole module", name.text);
                Err(LowerError::pass(name.span, reason))
            }
            meaning => Ok(meaning),
        }
    }

    fn mentions(&mut self, inst: &Instruction<'a>) -> Result<Mentions, LowerError> {
        let mut mentions = Mentions::default();
        for (index, operand) in inst.operands.iter().enumerate() {
            let number = self.operand_number(inst, index)?;
            let shape = self.operand(operand, number, Part::Value, &mut mentions)?;
            mentions.shapes.push(shape);
        }
        Ok(mentions)
    }

    /// Collects the registers of an operand and tells its shape.
    fn operand(
        &mut self,
        operand: &Ast<'a>,
        number: u8,
        part: Part,
        out: &mut Mentions,
    ) -> Result<OperandShape, LowerError> {
        Ok(match operand {
            Ast::Ident(name) | Ast::Not(name) => self.name(*name, number, part, out)?,
            Ast::Component(component) => {
                let name = component.name();
                match self.scopes.find(name.text) {
                    Meaning::Register(declared) if declared.lanes > 1 => {
                        let lane = lane_of(component.member()).filter(|&l| l < declared.lanes);
                        let lane = lane.ok_or_else(|| {
                            let message = format!("`{}` has no such element", name.text);
                            LowerError::from(ParseError::new(component.span(), message))
                        })?;
                        let first = self.vreg(declared).as_u32() + u32::from(lane);
                        out.seen.push(Seen {
                            operand: number,
                            part,
                            first: VReg::from_u32(first),
                            width: declared.width,
                            lanes: 1,
                            span: component.span(),
                        });
                        OperandShape::Register
                    }
                    Meaning::Special(_) | Meaning::Unknown => {
                        self.special_component(component.text(), component.span())?
                    }
                    _ => self.name(name, number, part, out)?,
                }
            }
            Ast::Int { .. } | Ast::Float { .. } => OperandShape::Constant,
            Ast::Expr(expr) => {
                let mut shape = OperandShape::Constant;
                for name in &expr.names {
                    match self.meaning(*name)? {
                        Meaning::Symbol { nested, .. } => {
                            out.nested_symbol |= nested || self.in_braces.contains(name.text);
                            shape = OperandShape::Symbol;
                        }
                        Meaning::Constant => {}
                        _ => {
                            let reason = "a register stands in a constant expression";
                            return Err(LowerError::pass(expr.span, reason));
                        }
                    }
                }
                shape
            }
            Ast::Neg(inner) => self.operand(inner, number, part, out)?,
            Ast::Sink(_) => OperandShape::Sink,
            Ast::Vector(lanes) => {
                for lane in lanes {
                    self.operand(lane, number, part, out)?;
                }
                OperandShape::Vector(u8::try_from(lanes.len()).unwrap_or(u8::MAX))
            }
            Ast::Pair(pair) => {
                let first = self.operand(&pair.0, number, Part::Value, out)?;
                self.operand(&pair.1, number, Part::Second, out)?;
                let lanes = match first {
                    OperandShape::Vector(lanes) => lanes,
                    _ => 0,
                };
                OperandShape::Pair { lanes }
            }
            Ast::Memory(memory) => {
                let before = out.seen.len();
                let base = self.operand(&memory.base, number, Part::Address, out)?;
                let mut fixed_offset = true;
                if let Some(offset) = &memory.offset {
                    let shape = self.operand(offset, number, Part::Address, out)?;
                    fixed_offset = shape == OperandShape::Constant;
                }
                for element in &memory.elements {
                    self.operand(element, number, Part::Address, out)?;
                }
                let is_parameter = base == OperandShape::Symbol
                    && fixed_offset
                    && memory.elements.is_empty()
                    && self.is_kernel_parameter(&memory.base);
                OperandShape::Memory(if out.seen.len() > before {
                    AddressShape::Registers
                } else if is_parameter {
                    AddressShape::KernelParameter
                } else {
                    AddressShape::Fixed
                })
            }
            Ast::Element(element) => {
                let shape = self.name(element.name, number, part, out)?;
                self.operand(&element.index, number, Part::Address, out)?;
                shape
            }
            Ast::Paren(items) => {
                for item in items {
                    self.operand(item, number, part, out)?;
                }
                OperandShape::List
            }
        })
    }

    fn special_component(&self, text: &str, span: Span) -> Result<OperandShape, LowerError> {
        match opcode::special_register(text) {
            Some(special) => Ok(OperandShape::Special {
                volatile: special.volatile,
                lanes: special.lanes,
            }),
            None => {
                let message = format!("register `{text}` is not declared");
                Err(ParseError::new(span, message).into())
            }
        }
    }

    fn is_kernel_parameter(&self, base: &Ast<'a>) -> bool {
        let parameter = |meaning| {
            matches!(
                meaning,
                Meaning::Symbol {
                    kernel_parameter: true,
                    ..
                }
            )
        };
        base.as_name()
            .is_some_and(|name| parameter(self.scopes.find(name.text)))
    }

    fn name(
        &mut self,
        name: Name<'a>,
        number: u8,
        part: Part,
        out: &mut Mentions,
    ) -> Result<OperandShape, LowerError> {
        Ok(match self.meaning(name)? {
            Meaning::Register(declared) => {
                out.seen.push(Seen {
                    operand: number,
                    part,
                    first: self.vreg(declared),
                    width: declared.width,
                    lanes: declared.lanes,
                    span: name.span,
                });
                match declared.lanes {
                    1 => OperandShape::Register,
                    lanes => OperandShape::Vector(lanes),
                }
            }
            Meaning::Special(special) => OperandShape::Special {
                volatile: special.volatile,
                lanes: special.lanes,
            },
            Meaning::Symbol { nested, .. } => {
                out.nested_symbol |= nested || self.in_braces.contains(name.text);
                OperandShape::Symbol
            }
            _ => OperandShape::Constant,
        })
    }

    /// What happens to a register, with its width judged by what the table admits.
    fn role(&self, seen: &Seen, description: &Description) -> Result<Role, LowerError> {
        if seen.part == Part::Address {
            return match seen.width {
                Width::B1 => Err(self.misfit(seen, "an address")),
                _ => Ok(Role::Use),
            };
        }
        let Some(operand) = description.operands.get(seen.operand as usize) else {
            return Err(self.misfit(seen, "this operand"));
        };
        let (role, ty) = match (operand.role, seen.part) {
            (OperandRole::DefPair(_, ty), Part::Second) => (Role::Def, ty),
            (OperandRole::Def(ty) | OperandRole::DefPair(ty, _), _) => (Role::Def, ty),
            (OperandRole::Use(ty), _) => (Role::Use, ty),
            (OperandRole::UseDef(ty), _) => (Role::UseDef, ty),
            (OperandRole::Address | OperandRole::Callee | OperandRole::Arguments, _) => {
                (Role::Use, Ty::Any)
            }
            (OperandRole::Returns, _) => (Role::Def, Ty::Any),
            (OperandRole::Label, _) => return Err(self.misfit(seen, "a label")),
            (OperandRole::Immediate, _) => return Err(self.misfit(seen, "a constant")),
        };
        if !ty.admits(seen.width) {
            let wanted = match ty {
                Ty::Exactly(width) => format!("{} bits", width.bits()),
                Ty::AtLeast(width) => format!("{} bits or more", width.bits()),
                Ty::Any => "any width".to_owned(),
            };
            let bits = seen.width.bits();
            let message = format!("this register has {bits} bits, the instruction wants {wanted}");
            return Err(ParseError::new(seen.span, message).into());
        }
        Ok(role)
    }

    fn misfit(&self, seen: &Seen, what: &str) -> LowerError {
        ParseError::new(seen.span, format!("this register cannot be {what}")).into()
    }

    /// The groups that hardware wants, where each lane is a register of the element's width.
    fn groups(
        &self,
        mentions: &Mentions,
        description: &Description,
        operands: &[Operand],
        firsts: &[u8],
    ) -> SmallVec<[OperandGroup; 1]> {
        let mut groups = SmallVec::new();
        if description.asynchronous.is_some() {
            return groups;
        }
        for (index, operand) in description.operands.iter().enumerate() {
            let lanes = match mentions.shapes[index] {
                OperandShape::Vector(lanes) | OperandShape::Pair { lanes } => usize::from(lanes),
                _ => continue,
            };
            let Some(group) = operand.group else { continue };
            let is_lane = |s: &&Seen| usize::from(s.operand) == index && s.part == Part::Value;
            let members = mentions.seen.iter().filter(is_lane);
            let count: usize = members.clone().map(|s| usize::from(s.lanes)).sum();
            let Some(at) = mentions.seen.iter().position(|s| is_lane(&s)) else {
                continue;
            };
            let exact = members.clone().all(|s| {
                let wide_enough = s.width >= Width::B32 || self.units_per_register > 1;
                wide_enough && is_element(operand.role, s.width)
            });
            let first = usize::from(firsts[at]);
            let vregs = &operands[first..first + count];
            let distinct = (1..vregs.len()).all(|i| {
                vregs[..i]
                    .iter()
                    .all(|earlier| earlier.vreg != vregs[i].vreg)
            });
            if count == lanes && count > 1 && exact && distinct {
                groups.push(OperandGroup {
                    first: firsts[at],
                    len: count as u8,
                    align: group.align_units.saturating_mul(self.units_per_register),
                });
            }
        }
        groups
    }

    fn kind(
        &self,
        description: &Description,
        operands: &[Operand],
        mentions: &Mentions,
        guarded: bool,
    ) -> Kind {
        match description.control {
            Control::Call => return Kind::Call,
            Control::Branch | Control::IndirectBranch => return Kind::Branch,
            Control::Return if !guarded => return Kind::Return,
            Control::Exit if !guarded => return Kind::Exit,
            _ => {}
        }
        if !description.copy || guarded {
            return Kind::Plain;
        }
        let all_registers = mentions.shapes.iter().zip(0u8..).all(|(shape, index)| {
            let seen = || mentions.seen.iter().filter(|s| s.operand == index);
            match shape {
                OperandShape::Register => true,
                OperandShape::Vector(lanes) => {
                    seen().map(|s| u16::from(s.lanes)).sum::<u16>() == u16::from(*lanes)
                }
                _ => false,
            }
        });
        let units = |writes: bool| -> usize {
            let side = operands.iter().filter(|o| o.role.writes() == writes);
            side.map(|o| self.units(o.vreg)).sum()
        };
        let predicates = |o: &Operand| self.draft.regs[index_of(o.vreg)].width == Width::B1;
        let one_file = operands.iter().all(predicates) || !operands.iter().any(predicates);
        if all_registers && one_file && units(true) == units(false) {
            Kind::Copy
        } else {
            Kind::Plain
        }
    }

    /// Units a register takes on the target.
    fn units(&self, vreg: VReg) -> usize {
        self.target
            .width(class_of(self.draft.regs[index_of(vreg)].width))
    }

    /// Distinguishes instructions by all that is no register.
    fn fingerprint(&self, inst: &Instruction, occurrences: &[Occurrence]) -> u64 {
        let mut hasher = FxHasher::default();
        let mut done = inst.span.start;
        for span in occurrences.iter().map(|o| o.span) {
            hasher.write(Span::new(done, span.start).text(self.source).as_bytes());
            hasher.write_u8(0);
            done = span.end;
        }
        hasher.write(Span::new(done, inst.span.end).text(self.source).as_bytes());
        hasher.finish()
    }

    /// The virtual register, or the first of a vector's, of a declared one.
    pub(super) fn vreg(&mut self, declared: Declared) -> VReg {
        let next = self.draft.regs.len() as u32;
        let key = (declared.decl, declared.index);
        let first = *self.vregs.entry(key).or_insert(next);
        if first == next {
            for _ in 0..declared.lanes {
                self.draft.regs.push(super::builder::DraftReg {
                    width: declared.width,
                    pinned: false,
                });
            }
        }
        VReg::from_u32(first)
    }
}

/// The part of an instruction in what hardware does with registers meanwhile: vectors,
/// all results and metadata are handed over, addresses and descriptors are read when it issues.
fn flight(
    inst: &Instruction,
    description: &Description,
    mentions: &Mentions,
    firsts: &[u8],
) -> Flight {
    // A guarded instruction may not happen, so that nothing can be concluded from it.
    let happens = inst.guard.is_none();
    match description.asynchronous {
        Some(Asynchronous::Starts(kind)) => {
            let handed_over = mentions.seen.iter().zip(firsts).filter(|(seen, _)| {
                let operand = usize::from(seen.operand);
                let is_vector = matches!(mentions.shapes[operand], OperandShape::Vector(_));
                let role = description.operands.get(operand).map(|o| o.role);
                let is_result = matches!(role, Some(OperandRole::Def(_) | OperandRole::UseDef(_)));
                // Sparse products have metadata besides. Nothing says when it has been read.
                let is_metadata = kind == AsyncKind::WarpgroupMma && seen.width == Width::B32;
                (is_vector || is_result || is_metadata) && seen.part == Part::Value
            });
            let lanes = |(seen, &first): (&Seen, &u8)| (first..=u8::MAX).take(seen.lanes.into());
            Flight::Starts(kind, handed_over.flat_map(lanes).collect())
        }
        Some(Asynchronous::Commits(kind)) if happens => Flight::Commits(kind),
        Some(Asynchronous::Completes(kind)) if happens => {
            let pending = match inst.operands.first() {
                Some(count) => count.as_int().map_or(u8::MAX, |n| n.min(255) as u8),
                None => 0,
            };
            Flight::Completes(kind, pending)
        }
        _ => Flight::None,
    }
}

fn index_of(vreg: VReg) -> usize {
    vreg.as_u32() as usize
}

fn lane_of(member: &str) -> Option<u8> {
    match member {
        "x" | "r" => Some(0),
        "y" | "g" => Some(1),
        "z" | "b" => Some(2),
        "w" | "a" => Some(3),
        _ => None,
    }
}

/// Whether a register of this width is as wide as the element it holds.
fn is_element(role: OperandRole, width: Width) -> bool {
    match role {
        OperandRole::Def(ty)
        | OperandRole::Use(ty)
        | OperandRole::UseDef(ty)
        | OperandRole::DefPair(ty, _) => match ty {
            Ty::Exactly(wanted) | Ty::AtLeast(wanted) => wanted == width,
            Ty::Any => false,
        },
        _ => false,
    }
}

/// Whether one register is written by two of the operands.
fn writes_twice(operands: &[Operand]) -> bool {
    let mut written: SmallVec<[VReg; 8]> = operands
        .iter()
        .filter(|o| o.role.writes())
        .map(|o| o.vreg)
        .collect();
    written.sort_unstable();
    written.windows(2).any(|pair| pair[0] == pair[1])
}
