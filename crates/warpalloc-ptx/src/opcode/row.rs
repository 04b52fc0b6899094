//! Rows and their pattern language.
//!
//! A row is `(name, forms, traits)`. The name is the longest prefix of the opcode that says which instruction it is.
//! `forms` lists the operand forms, separated by `;`, of which the first that fits counts. A form is a list of operands,
//! after an optional condition and a colon:
//!
//! | text | meaning |
//! |---|---|
//! | `.wide: …` | the instruction has the modifier `wide` |
//! | `2t: …` | the instruction has two type modifiers or more |
//! | `=X` | defines a register of type `X` |
//! | `X` | reads it |
//! | `+X` | reads and writes it |
//! | `=X\|Y` | defines `X` and, where there is a bar, `Y` |
//! | `X*` | a register or a vector of them |
//! | `X?` | may be missing |
//! | `[]` | a memory operand |
//! | `#` | a constant |
//! | `@` | a label or the name of a list of labels |
//! | `fn` | what a call enters |
//! | `(=)` `()` | the results and the arguments of a call |
//! | `...` | any number of further operands, all read |
//!
//! Types: `T` the last type modifier, `D` the first, `W` twice `T`, `F` a register of a matrix fragment, `1` a
//! predicate, `16`, `32`, `64`, `128` bits, `any`; `~X` admits wider registers.

use super::modifier::{type_bits, types, width_of_bits};
use super::{
    Asynchronous, Carry, Control, Description, Effect, Group, InstrShape, Operand, OperandRole,
    OperandShape, RematCost, Ty, UnknownReason, Width,
};
use super::{control, float, integer, memory, misc, sync, tensor, texture, video};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::LazyLock;

/// One line of the table.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub name: &'static str,
    pub forms: &'static str,
    pub effect: Effect,
    pub control: Control,
    /// Cycles to recompute, 0 where that is out of the question.
    pub cycles: u8,
    pub convergent: bool,
    pub carry: Carry,
    pub in_place: bool,
    /// Largest alignment of a vector operand in 32-bit units, 0 where vectors are no groups.
    pub group_cap: u8,
    pub asynchronous: Option<Asynchronous>,
    /// Corrects what the forms cannot say.
    pub refine: Option<Refine>,
}

/// Sees the description that the forms gave and corrects it.
pub(super) type Refine = fn(&InstrShape, &mut Description) -> Result<(), UnknownReason>;

/// An instruction whose results depend on its operands alone; never recomputed.
pub(super) const fn pure(name: &'static str, forms: &'static str) -> Row {
    Row {
        name,
        forms,
        effect: Effect::Pure,
        control: Control::Falls,
        cycles: 0,
        convergent: false,
        carry: Carry {
            reads: false,
            writes: false,
        },
        in_place: false,
        group_cap: 0,
        asynchronous: None,
        refine: None,
    }
}

/// Pure and cheap enough to recompute.
pub(super) const fn cheap(name: &'static str, cycles: u8, forms: &'static str) -> Row {
    Row {
        cycles,
        ..pure(name, forms)
    }
}

/// Reads memory.
pub(super) const fn reads(name: &'static str, forms: &'static str) -> Row {
    Row {
        effect: Effect::Read,
        ..pure(name, forms)
    }
}

/// Must keep its place.
pub(super) const fn ordered(name: &'static str, forms: &'static str) -> Row {
    Row {
        effect: Effect::Write,
        ..pure(name, forms)
    }
}

/// Must keep its place, and several threads take part.
pub(super) const fn together(name: &'static str, forms: &'static str) -> Row {
    Row {
        convergent: true,
        ..ordered(name, forms)
    }
}

/// Several threads take part, which exchange nothing through memory: it keeps its place among
/// what writes, so that all of them arrive, and may pass what only reads.
pub(super) const fn exchanges(name: &'static str, forms: &'static str) -> Row {
    Row {
        effect: Effect::Read,
        ..together(name, forms)
    }
}

/// Leaves the straight line.
pub(super) const fn jumps(name: &'static str, control: Control, forms: &'static str) -> Row {
    Row {
        control,
        ..ordered(name, forms)
    }
}

impl Row {
    pub(super) const fn grouped(self, cap: u8) -> Row {
        Row {
            group_cap: cap,
            ..self
        }
    }

    pub(super) const fn in_place(self) -> Row {
        Row {
            in_place: true,
            ..self
        }
    }

    pub(super) const fn with_carry(self, reads: bool, writes: bool) -> Row {
        Row {
            carry: Carry { reads, writes },
            effect: Effect::Write,
            ..self
        }
    }

    pub(super) const fn asynchronously(self, part: Asynchronous) -> Row {
        Row {
            asynchronous: Some(part),
            ..self
        }
    }

    pub(super) const fn refined(self, refine: Refine) -> Row {
        Row {
            refine: Some(refine),
            ..self
        }
    }
}

/// Every row, chapter by chapter.
pub(super) fn all() -> impl Iterator<Item = &'static Row> {
    [
        integer::ROWS,
        float::ROWS,
        memory::ROWS,
        texture::ROWS,
        control::ROWS,
        sync::ROWS,
        tensor::ROWS,
        video::ROWS,
        misc::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// A row with its name and forms taken apart.
pub(super) struct Parsed {
    row: &'static Row,
    /// The pieces of the name after the mnemonic.
    tail: Vec<&'static str>,
    forms: Vec<Form>,
}

struct Form {
    condition: Option<Condition>,
    slots: Vec<Slot>,
    /// Whether any number of read operands may follow.
    open: bool,
}

enum Condition {
    Modifier(&'static str),
    TwoTypes,
}

struct Slot {
    role: SlotRole,
    optional: bool,
    vector: bool,
}

#[derive(Clone, Copy)]
enum SlotRole {
    Def(SlotTy),
    Use(SlotTy),
    UseDef(SlotTy),
    DefPair(SlotTy, SlotTy),
    Address,
    Immediate,
    Label,
    Callee,
    Returns,
    Arguments,
}

#[derive(Clone, Copy)]
struct SlotTy {
    source: TySource,
    relaxed: bool,
}

#[derive(Clone, Copy)]
enum TySource {
    Last,
    First,
    TwiceLast,
    Fragment,
    Fixed(Width),
    Any,
}

static TABLE: LazyLock<FxHashMap<&'static str, Vec<Parsed>>> = LazyLock::new(|| {
    let mut table: FxHashMap<&str, Vec<Parsed>> = FxHashMap::default();
    for row in all() {
        // A row that does not parse is left out; a test demands that none is.
        if let Some((mnemonic, parsed)) = parse(row) {
            table.entry(mnemonic).or_default().push(parsed);
        }
    }
    for rows in table.values_mut() {
        rows.sort_by_key(|r| std::cmp::Reverse(r.tail.len()));
    }
    table
});

/// The row with the longest name that begins the opcode.
pub(super) fn lookup(shape: &InstrShape) -> Option<&'static Parsed> {
    TABLE
        .get(shape.mnemonic)?
        .iter()
        .find(|row| row.names(shape.modifiers))
}

pub(super) fn parse(row: &'static Row) -> Option<(&'static str, Parsed)> {
    let mut pieces = row.name.split('.');
    let mnemonic = pieces.next()?;
    let forms = row
        .forms
        .split(';')
        .map(parse_form)
        .collect::<Option<Vec<_>>>()?;
    Some((
        mnemonic,
        Parsed {
            row,
            tail: pieces.collect(),
            forms,
        },
    ))
}

fn parse_form(text: &'static str) -> Option<Form> {
    let (condition, operands) = match text.split_once(": ") {
        None => (None, text.trim().trim_end_matches(':')),
        Some((condition, rest)) => (Some(parse_condition(condition.trim())?), rest),
    };
    let mut form = Form {
        condition,
        slots: Vec::new(),
        open: false,
    };
    for token in operands.split_whitespace() {
        match token {
            _ if form.open => return None,
            "..." => form.open = true,
            _ => form.slots.push(parse_slot(token)?),
        }
    }
    // Required operands do not follow optional ones.
    form.slots.is_sorted_by_key(|s| s.optional).then_some(form)
}

fn parse_condition(text: &'static str) -> Option<Condition> {
    match text.strip_prefix('.') {
        Some(modifier) => Some(Condition::Modifier(modifier)),
        None => (text == "2t").then_some(Condition::TwoTypes),
    }
}

fn parse_slot(token: &'static str) -> Option<Slot> {
    let (token, optional) = strip_mark(token, '?');
    let (token, vector) = strip_mark(token, '*');
    let role = match token {
        "[]" => SlotRole::Address,
        "#" => SlotRole::Immediate,
        "@" => SlotRole::Label,
        "fn" => SlotRole::Callee,
        "(=)" => SlotRole::Returns,
        "()" => SlotRole::Arguments,
        _ => match (token.strip_prefix('='), token.strip_prefix('+')) {
            (Some(def), _) => match def.split_once('|') {
                Some((first, second)) => SlotRole::DefPair(parse_ty(first)?, parse_ty(second)?),
                None => SlotRole::Def(parse_ty(def)?),
            },
            (_, Some(both)) => SlotRole::UseDef(parse_ty(both)?),
            _ => SlotRole::Use(parse_ty(token)?),
        },
    };
    Some(Slot {
        role,
        optional,
        vector,
    })
}

fn strip_mark(token: &'static str, mark: char) -> (&'static str, bool) {
    token
        .strip_suffix(mark)
        .map_or((token, false), |rest| (rest, true))
}

fn parse_ty(text: &'static str) -> Option<SlotTy> {
    let (text, relaxed) = text
        .strip_prefix('~')
        .map_or((text, false), |rest| (rest, true));
    let source = match text {
        "T" => TySource::Last,
        "D" => TySource::First,
        "W" => TySource::TwiceLast,
        "F" => TySource::Fragment,
        "any" => TySource::Any,
        _ => TySource::Fixed(width_of_bits(text.parse().ok()?)?),
    };
    Some(SlotTy { source, relaxed })
}

impl Parsed {
    #[cfg(test)]
    pub(super) fn name(&self) -> &'static str {
        self.row.name
    }

    fn names(&self, modifiers: &[&str]) -> bool {
        // `tcgen05.wait` also names `tcgen05.wait::ld`.
        let is_piece = |m: &str, p: &str| {
            m == p || m.strip_prefix(p).is_some_and(|rest| rest.starts_with("::"))
        };
        modifiers.len() >= self.tail.len()
            && modifiers
                .iter()
                .zip(&self.tail)
                .all(|(m, p)| is_piece(m, p))
    }

    pub(super) fn describe(&self, shape: &InstrShape) -> Result<Description, UnknownReason> {
        let form = self.forms.iter().find(|form| form.fits(shape));
        let form = form.ok_or(UnknownReason::Operands(self.row.forms))?;
        let row = self.row;
        let mut description = Description {
            operands: form.operands(shape, row.group_cap)?,
            effect: row.effect,
            control: row.control,
            remat: None,
            copy: false,
            convergent: row.convergent,
            carry: row.carry,
            in_place: row.in_place,
            asynchronous: row.asynchronous,
        };
        if row.cycles > 0 {
            description.remat = remat(shape, row.cycles);
        }
        if let Some(refine) = row.refine {
            refine(shape, &mut description)?;
        }
        Ok(description)
    }
}

/// Recomputing pays only while it keeps at most one other register alive, and only where every read gives the same.
pub(super) fn remat(shape: &InstrShape, cycles: u8) -> Option<RematCost> {
    remat_from(shape, cycles, 1)
}

/// The same, but while it keeps at most `most` other registers alive.
pub(super) fn remat_from(shape: &InstrShape, cycles: u8, most: u8) -> Option<RematCost> {
    let mut inputs = 0;
    for operand in shape.operands.iter().skip(1) {
        match operand {
            OperandShape::Register => inputs += 1,
            OperandShape::Constant | OperandShape::Symbol => {}
            OperandShape::Special {
                volatile: false, ..
            } => {}
            OperandShape::Memory(super::AddressShape::KernelParameter) => {}
            _ => return None,
        }
    }
    let single = shape.operands.first() == Some(&OperandShape::Register);
    (single && inputs <= most).then_some(RematCost { cycles, inputs })
}

impl Form {
    fn fits(&self, shape: &InstrShape) -> bool {
        let required = self.slots.iter().filter(|s| !s.optional).count();
        let count = shape.operands.len();
        let arity = count >= required && (self.open || count <= self.slots.len());
        let condition = match self.condition {
            None => true,
            Some(Condition::Modifier(modifier)) => shape.has(modifier),
            Some(Condition::TwoTypes) => types(shape).count() >= 2,
        };
        let mut rest = shape.operands.iter().skip(self.slots.len());
        arity
            && condition
            && self
                .slots
                .iter()
                .zip(shape.operands)
                .all(|(slot, operand)| slot.fits(*operand))
            && rest.all(|operand| is_read_only(*operand))
    }

    fn operands(
        &self,
        shape: &InstrShape,
        cap: u8,
    ) -> Result<SmallVec<[Operand; 5]>, UnknownReason> {
        let mut operands = SmallVec::new();
        for (index, operand) in shape.operands.iter().enumerate() {
            let role = match self.slots.get(index) {
                Some(slot) => slot
                    .role
                    .resolve(shape, *operand)
                    .ok_or(UnknownReason::Type(index))?,
                None if matches!(operand, OperandShape::Memory(_)) => OperandRole::Address,
                None => OperandRole::Use(Ty::Any),
            };
            operands.push(Operand {
                role,
                group: group(shape, role, *operand, cap),
            });
        }
        Ok(operands)
    }
}

fn is_read_only(operand: OperandShape) -> bool {
    use OperandShape::*;
    matches!(
        operand,
        Register | Constant | Symbol | Special { .. } | Vector(_) | Memory(_)
    )
}

impl Slot {
    fn fits(&self, operand: OperandShape) -> bool {
        use OperandShape::*;
        match (self.role, operand) {
            (_, Vector(_)) => self.vector,
            (SlotRole::Def(_), Register | Sink) => true,
            (SlotRole::UseDef(_), Register) => true,
            (SlotRole::DefPair(..), Register | Sink) => true,
            (SlotRole::DefPair(..), Pair { lanes }) => lanes == 0 || self.vector,
            (SlotRole::Use(_), Register | Constant | Symbol | Special { .. }) => true,
            (SlotRole::Address, Memory(_)) => true,
            (SlotRole::Immediate, Constant | Symbol) => true,
            (SlotRole::Label, Symbol) => true,
            (SlotRole::Callee, Symbol | Register) => true,
            (SlotRole::Returns | SlotRole::Arguments, List) => true,
            _ => false,
        }
    }
}

impl SlotRole {
    fn resolve(self, shape: &InstrShape, operand: OperandShape) -> Option<OperandRole> {
        Some(match self {
            SlotRole::Def(ty) => OperandRole::Def(ty.resolve(shape)?),
            SlotRole::Use(ty) => OperandRole::Use(ty.resolve(shape)?),
            SlotRole::UseDef(ty) => OperandRole::UseDef(ty.resolve(shape)?),
            SlotRole::DefPair(first, second) => match operand {
                OperandShape::Pair { .. } => {
                    OperandRole::DefPair(first.resolve(shape)?, second.resolve(shape)?)
                }
                _ => OperandRole::Def(first.resolve(shape)?),
            },
            SlotRole::Address => OperandRole::Address,
            SlotRole::Immediate => OperandRole::Immediate,
            SlotRole::Label => OperandRole::Label,
            SlotRole::Callee => OperandRole::Callee,
            SlotRole::Returns => OperandRole::Returns,
            SlotRole::Arguments => OperandRole::Arguments,
        })
    }
}

impl SlotTy {
    fn resolve(self, shape: &InstrShape) -> Option<Ty> {
        let bits = |modifier: Option<&str>| modifier.and_then(type_bits);
        let width = match self.source {
            TySource::Any => return Some(Ty::Any),
            TySource::Fixed(width) => width,
            TySource::Last => width_of_bits(bits(types(shape).next_back())?)?,
            TySource::First => width_of_bits(bits(types(shape).next())?)?,
            TySource::TwiceLast => width_of_bits(2 * bits(types(shape).next_back())?)?,
            TySource::Fragment if shape.has("f64") => Width::B64,
            TySource::Fragment => Width::B32,
        };
        Some(if self.relaxed {
            Ty::AtLeast(width)
        } else {
            Ty::Exactly(width)
        })
    }
}

/// The hardware takes a vector from consecutive registers, aligned to the next power of two of its size.
fn group(shape: &InstrShape, role: OperandRole, operand: OperandShape, cap: u8) -> Option<Group> {
    let lanes = match operand {
        OperandShape::Vector(lanes) | OperandShape::Pair { lanes } if lanes >= 2 && cap > 0 => {
            lanes
        }
        _ => return None,
    };
    let width = match role {
        OperandRole::Def(ty)
        | OperandRole::Use(ty)
        | OperandRole::UseDef(ty)
        | OperandRole::DefPair(ty, _) => ty,
        _ => return None,
    };
    let bits = match width {
        Ty::Exactly(width) | Ty::AtLeast(width) => width.bits(),
        Ty::Any => return None,
    };
    if bits == Width::B16.bits() && types(shape).next_back().and_then(type_bits) == Some(8) {
        return None;
    }
    let units = (u32::from(lanes) * u32::from(bits))
        .div_ceil(32)
        .next_power_of_two();
    Some(Group {
        align_units: u8::try_from(units).unwrap_or(u8::MAX).min(cap),
    })
}
