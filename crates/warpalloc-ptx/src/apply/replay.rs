//! Executes PTX text under invented semantics, so that a function's text before and after
//! allocation can be compared.
//!
//! This judges what the checker cannot see: names, packing and unpacking, spill code and
//! branches as they are written. Values are rows of 16-bit pieces, each an opaque number.
//! What inserted code is made of means what it means (`mov` with packing, `xor`, `selp` of 1
//! and 0 with the matching `setp`, conversions between 16 and 32 bits, accesses to spill
//! memory); anything else hashes its text without registers together with its inputs.
//! Instructions with effects leave an event, which depends on how many writes came before it
//! that may touch the same state; events of one execution of a block have no order of their
//! own. Addresses are told apart by their values, as far as those are sums of one value, or one
//! variable, and different constants.
//!
//! A text may read registers nobody wrote, and real ones do. What such a read gives is
//! nobody's business, so in the original everything computed from it is [`UNDEFINED`] too,
//! an event of it matches any other, and a branch on it ends the run.

use crate::ast::{Instruction, Operand, Span};
use crate::lower::alias::{added, bytes};
use crate::lower::{Code, Lowered, Source};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use warpalloc::function::{Constraint, Effect, Inst, Kind, VReg};
use warpalloc::target::Class;

type Pieces = Vec<u64>;

/// What one run did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    /// One number per instruction that writes state, for each execution of a block with any.
    pub events: Vec<Vec<u64>>,
    /// Whether it ran to its end.
    pub finished: bool,
}

/// A piece without defined contents, and an event that depends on one.
pub(crate) const UNDEFINED: u64 = u64::MAX;

/// Steps that a run takes at most.
const STEPS: usize = 400_000;

/// Which of the two texts is run: only the original may say what is undefined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Original,
    Allocated,
}

impl Replay {
    /// Whether `other`, a run of the allocated text, does what this one of the original does.
    pub(crate) fn matches(&self, other: &Replay) -> bool {
        let pairs = self.events.iter().zip(&other.events);
        let ended = self.finished && other.finished;
        pairs.into_iter().all(|(e, o)| same_events(e, o))
            && (!ended || self.events.len() == other.events.len())
    }
}

/// Whether the events are the same but for undefined ones, in any order.
fn same_events(expected: &[u64], found: &[u64]) -> bool {
    let mut left: Vec<u64> = found.to_vec();
    let mut undefined = 0;
    for event in expected {
        match left.iter().position(|f| f == event) {
            Some(at) => drop(left.swap_remove(at)),
            None if *event == UNDEFINED => undefined += 1,
            None => return false,
        }
    }
    left.len() == undefined
}

/// Runs a function until it ends or has left `limit` events.
pub(crate) fn replay(lowered: &Lowered, side: Side, limit: usize, seed: u64) -> Replay {
    let mut machine = Machine {
        lowered,
        side,
        values: FxHashMap::default(),
        memory: FxHashMap::default(),
        visits: FxHashMap::default(),
        sums: FxHashMap::default(),
        writes: Vec::new(),
        events: Vec::new(),
        seed,
    };
    let mut block = lowered.function.entry();
    let mut steps = 0;
    let mut events = Vec::new();
    loop {
        for inst in lowered.function.block_insts(block) {
            machine.step(inst);
            steps += 1;
        }
        if !machine.events.is_empty() {
            events.push(std::mem::take(&mut machine.events));
        }
        let succs = lowered.function.succs(block);
        let finished = succs.is_empty();
        if finished || machine.writes.len() >= limit || steps > STEPS {
            return Replay { events, finished };
        }
        let Some(way) = machine.way(lowered.function.terminator(block), succs.len()) else {
            let finished = false;
            return Replay { events, finished };
        };
        block = succs[way].block;
    }
}

/// What an address counts from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Value(Pieces),
    Variable(String),
}

/// The state that an instruction touched: spaces, and bytes of them.
struct Touched {
    spaces: u8,
    extent: Option<(Origin, i64, u32)>,
}

impl Touched {
    fn overlaps(&self, other: &Touched) -> bool {
        let apart = match (&self.extent, &other.extent) {
            (Some((a, from, len)), Some((b, other_from, other_len))) => match (a, b) {
                (a, b) if a == b => {
                    let end = |from: i64, len: u32| from + i64::from(len);
                    end(*from, *len) <= *other_from || end(*other_from, *other_len) <= *from
                }
                (Origin::Variable(_), Origin::Variable(_)) => true,
                _ => false,
            },
            _ => false,
        };
        self.spaces & other.spaces != 0 && !apart
    }
}

struct Machine<'x, 'm, 'a> {
    lowered: &'x Lowered<'m, 'a>,
    side: Side,
    values: FxHashMap<VReg, Pieces>,
    memory: FxHashMap<(&'static str, u64), u64>,
    visits: FxHashMap<Inst, u64>,
    /// Values that are a constant and something else.
    sums: FxHashMap<Pieces, (Origin, i64)>,
    /// The state that was written, one entry for each write.
    writes: Vec<Touched>,
    /// Events of the block.
    events: Vec<u64>,
    seed: u64,
}

/// One register or hole of a `mov`.
enum Lane {
    Register(usize),
    Hole,
}

impl<'x, 'm, 'a> Machine<'x, 'm, 'a> {
    fn code(&self, inst: Inst) -> &'x Code<'m, 'a> {
        &self.lowered.codes[inst.as_u32() as usize]
    }

    fn vreg(&self, inst: Inst, operand: usize) -> VReg {
        self.lowered.function.operands(inst)[operand].vreg
    }

    fn width(&self, vreg: VReg) -> usize {
        match self.lowered.function.vreg(vreg).class {
            Class::R32 => 2,
            Class::R64 => 4,
            Class::R128 => 8,
            _ => 1,
        }
    }

    fn get(&self, vreg: VReg) -> Pieces {
        // After allocation, any register holds something.
        let unset = || match self.side {
            Side::Original => vec![UNDEFINED; self.width(vreg)],
            Side::Allocated => vec![hash(&("unset", vreg)); self.width(vreg)],
        };
        self.values.get(&vreg).cloned().unwrap_or_else(unset)
    }

    fn guard(&self, inst: Inst, stmt: &Instruction) -> Option<usize> {
        let span = stmt.guard.as_ref()?.reg.span;
        let found = self.code(inst).occurrences.iter().find(|o| o.span == span);
        found.map(|o| usize::from(o.operand))
    }

    /// Whether the guard, if any, lets the instruction happen; `None` if that is undefined.
    fn happens(&self, inst: Inst, stmt: &Instruction) -> Option<bool> {
        match (self.guard(inst, stmt), &stmt.guard) {
            (Some(operand), Some(guard)) => {
                let piece = self.get(self.vreg(inst, operand))[0];
                (piece != UNDEFINED).then_some((piece & 1 == 1) != guard.negated)
            }
            _ => Some(true),
        }
    }

    fn way(&mut self, inst: Inst, ways: usize) -> Option<usize> {
        let Source::Written { inst: stmt, .. } = self.code(inst).source else {
            return Some(0);
        };
        let visits = self.visits.entry(inst).or_default();
        *visits += 1;
        // A value that never changes must not keep a loop going for ever.
        let shake = if *visits > 3 {
            hash(&(*visits, self.seed))
        } else {
            0
        };
        if stmt.mnemonic == "brx" {
            let targets = ways - usize::from(stmt.guard.is_some());
            let index = self.get(self.vreg(inst, 0));
            let known = !index.contains(&UNDEFINED);
            return known.then(|| (hash(&(index, shake)) as usize) % targets);
        }
        let taken = self.happens(inst, stmt)? != (shake & 1 == 1);
        Some(if ways == 1 || taken { 0 } else { 1 })
    }

    fn step(&mut self, inst: Inst) {
        let function = &self.lowered.function;
        match self.code(inst).source {
            Source::Nothing => {
                if function.inst(inst).kind == Kind::Undef {
                    self.values.remove(&self.vreg(inst, 0));
                }
                // A landing gives on what it reads.
                for (index, operand) in function.operands(inst).iter().enumerate() {
                    if let Constraint::Tied(input) = operand.constraint {
                        let value = self.get(self.vreg(inst, usize::from(input)));
                        self.values.insert(self.vreg(inst, index), value);
                    }
                }
            }
            Source::Receive { name, .. } => {
                let vreg = self.vreg(inst, 0);
                let pieces = (0..self.width(vreg)).map(|i| hash(&(name, i, self.seed)));
                self.values.insert(vreg, pieces.collect());
            }
            Source::Deliver { name, .. } => {
                let value = self.get(self.vreg(inst, 0));
                let undefined = value.contains(&UNDEFINED);
                let event = if undefined {
                    UNDEFINED
                } else {
                    hash(&(name, value))
                };
                self.events.push(event);
            }
            Source::Written { inst: stmt, .. } => {
                let happens = self.happens(inst, stmt);
                let is_branch = function.inst(inst).kind == Kind::Branch;
                if happens == Some(false) || is_branch {
                    return;
                }
                if happens.is_none() || !self.understood(inst, stmt) {
                    self.opaque(inst, stmt, happens.is_none());
                }
            }
        }
    }

    fn opaque(&mut self, inst: Inst, stmt: &Instruction, mut undefined: bool) {
        let function = &self.lowered.function;
        let guard = self.guard(inst, stmt);
        let written = self.code(inst).occurrences.iter();
        let mentioned: Vec<usize> = written
            .flat_map(|o| usize::from(o.operand)..usize::from(o.operand) + usize::from(o.lanes))
            .collect();
        let operands = function.operands(inst);
        // A guarded result is read by the model only; `+` operands by the instruction too,
        // but then they are so on both sides.
        let inputs: Vec<Pieces> = mentioned
            .iter()
            .filter(|&&i| Some(i) != guard && operands[i].role == warpalloc::function::Role::Use)
            .map(|&i| self.get(operands[i].vreg))
            .collect();
        undefined |= inputs.iter().flatten().any(|&piece| piece == UNDEFINED);
        let effect = function.inst(inst).effect;
        let touched = self.touched(inst, stmt);
        let time = match effect {
            Effect::Pure => 0,
            _ => self.writes.iter().filter(|w| w.overlaps(&touched)).count(),
        };
        let sum = self.sum(inst, stmt);
        let mark = hash(&(self.text(inst, stmt), inputs, time, self.seed));
        if effect == Effect::Write {
            self.events.push(if undefined { UNDEFINED } else { mark });
            self.writes.push(touched);
        }
        let mut results = 0;
        for &i in &mentioned {
            if operands[i].role.writes() {
                let vreg = operands[i].vreg;
                let piece = |p: usize| match undefined {
                    true => UNDEFINED,
                    false => hash(&(mark, results, p)),
                };
                let pieces: Pieces = (0..self.width(vreg)).map(piece).collect();
                if let Some(sum) = sum.clone().filter(|_| !undefined) {
                    self.sums.insert(pieces.clone(), sum);
                }
                self.values.insert(vreg, pieces);
                results += 1;
            }
        }
    }

    /// What a register or a variable is, as a sum.
    fn value_of(&self, inst: Inst, operand: &Operand) -> Option<(Origin, i64)> {
        let name = operand.as_name()?;
        let mut all = self.code(inst).occurrences.iter();
        let Some(occurrence) = all.find(|o| o.span == name.span) else {
            return Some((Origin::Variable(name.text.to_owned()), 0));
        };
        let value = self.get(self.vreg(inst, usize::from(occurrence.operand)));
        let sum = self.sums.get(&value).cloned();
        Some(sum.unwrap_or((Origin::Value(value), 0)))
    }

    /// The result of an instruction, where it is a sum.
    fn sum(&self, inst: Inst, stmt: &Instruction) -> Option<(Origin, i64)> {
        if let Some((operand, constant)) = added(stmt) {
            let (origin, sum) = self.value_of(inst, &stmt.operands[operand])?;
            return Some((origin, sum + constant));
        }
        let is_move = stmt.mnemonic == "mov" && stmt.operands[1].as_name().is_some();
        is_move.then(|| self.value_of(inst, &stmt.operands[1]))?
    }

    fn touched(&self, inst: Inst, stmt: &Instruction) -> Touched {
        let function = &self.lowered.function;
        let memory = stmt.operands.iter().find_map(|operand| match operand {
            Operand::Memory(memory) if memory.elements.is_empty() => Some(memory),
            _ => None,
        });
        let extent = memory.and_then(|memory| {
            let (origin, sum) = self.value_of(inst, &memory.base)?;
            let constant = memory.offset.as_ref().map_or(Some(0), Operand::as_int)? as i64;
            Some((origin, sum + constant, bytes(stmt)?))
        });
        Touched {
            spaces: function.alias_info(function.alias(inst)).spaces,
            extent,
        }
    }

    /// The instruction without registers and layout.
    fn text(&self, inst: Inst, stmt: &Instruction) -> String {
        let mut out = String::new();
        let mut done = stmt.span.start;
        let source = self.lowered.source;
        let mut add = |from: u32, to: u32| {
            let kept = |c: &char| !" \t\r\n{},".contains(*c);
            out.extend(Span::new(from, to).text(source).chars().filter(kept));
        };
        for occurrence in &self.code(inst).occurrences {
            add(done, occurrence.span.start);
            done = occurrence.span.end;
        }
        add(done, stmt.span.end);
        out
    }

    /// Executes what inserted code consists of; false for anything else.
    fn understood(&mut self, inst: Inst, stmt: &Instruction) -> bool {
        if let Some((base, offset)) = slot(stmt) {
            return self.access(inst, stmt, base, offset);
        }
        let registers: Vec<usize> = {
            let all = self.code(inst).occurrences.iter();
            all.map(|o| usize::from(o.operand)).collect()
        };
        let constants: Vec<_> = stmt.operands.iter().map(Operand::as_int).collect();
        match (stmt.mnemonic, stmt.modifiers.as_slice()) {
            ("mov", _) => self.copy(inst, stmt),
            ("xor", _) if stmt.guard.is_none() && registers.len() == 3 => {
                let read = |i: usize| self.get(self.vreg(inst, registers[i]));
                let pieces = read(1).into_iter().zip(read(2)).map(exclusive_or).collect();
                self.values.insert(self.vreg(inst, registers[0]), pieces);
                true
            }
            ("selp", ["b32"]) if constants[1] == Some(1) && constants[2] == Some(0) => {
                let bit = self.get(self.vreg(inst, registers[1]))[0];
                self.values
                    .insert(self.vreg(inst, registers[0]), vec![bit, 0]);
                true
            }
            ("setp", ["ne", "b32"]) if constants.get(2) == Some(&Some(0)) => {
                let value = self.get(self.vreg(inst, registers[1]));
                let bit = match value[1] {
                    _ if value.contains(&UNDEFINED) => UNDEFINED,
                    0 => value[0],
                    _ => hash(&value),
                };
                self.values.insert(self.vreg(inst, registers[0]), vec![bit]);
                true
            }
            ("cvt", ["u32", "u16"]) if self.width(self.vreg(inst, registers[0])) == 2 => {
                let low = self.get(self.vreg(inst, registers[1]))[0];
                self.values
                    .insert(self.vreg(inst, registers[0]), vec![low, 0]);
                true
            }
            ("cvt", ["u16", "u32"]) if self.width(self.vreg(inst, registers[0])) == 1 => {
                let low = self.get(self.vreg(inst, registers[1]))[0];
                self.values.insert(self.vreg(inst, registers[0]), vec![low]);
                true
            }
            _ => false,
        }
    }

    fn access(&mut self, inst: Inst, stmt: &Instruction, base: &'static str, at: u64) -> bool {
        // The other register is the base.
        let name = match stmt.mnemonic {
            "ld" => stmt.operands[0].as_name(),
            _ => stmt.operands[1].as_name(),
        };
        let span = name.expect("one register").span;
        let all = &self.code(inst).occurrences;
        let operand = all.iter().find(|o| o.span == span).expect("a register");
        let vreg = self.vreg(inst, usize::from(operand.operand));
        let places = (0..self.width(vreg) as u64).map(|i| (base, at + 2 * i));
        if stmt.mnemonic == "ld" {
            let pieces = places.map(|p| self.memory.get(&p).copied().unwrap_or(u64::MAX));
            let pieces = pieces.collect();
            self.values.insert(vreg, pieces);
        } else {
            let pieces = self.get(vreg);
            self.memory.extend(places.zip(pieces));
        }
        true
    }

    fn copy(&mut self, inst: Inst, stmt: &Instruction) -> bool {
        let (Some(to), Some(from)) = (
            self.lanes(inst, &stmt.operands[0]),
            self.lanes(inst, &stmt.operands[1]),
        ) else {
            return false;
        };
        let mut pieces = Pieces::new();
        for lane in &from {
            match lane {
                Lane::Register(operand) => pieces.extend(self.get(self.vreg(inst, *operand))),
                Lane::Hole => return false,
            }
        }
        let share = pieces.len() / to.len();
        for (lane, pieces) in to.iter().zip(pieces.chunks(share.max(1))) {
            if let Lane::Register(operand) = lane {
                self.values
                    .insert(self.vreg(inst, *operand), pieces.to_vec());
            }
        }
        true
    }

    fn lanes(&self, inst: Inst, operand: &Operand) -> Option<Vec<Lane>> {
        let span = match operand {
            Operand::Vector(lanes) => {
                let mut all = Vec::new();
                for lane in lanes {
                    all.extend(self.lanes(inst, lane)?);
                }
                return Some(all);
            }
            Operand::Sink(_) => return Some(vec![Lane::Hole]),
            Operand::Ident(name) => name.span,
            Operand::Component(component) => component.span(),
            _ => return None,
        };
        let found = self
            .code(inst)
            .occurrences
            .iter()
            .find(|o| o.span == span)?;
        let first = usize::from(found.operand);
        let lanes = first..first + usize::from(found.lanes);
        Some(lanes.map(Lane::Register).collect())
    }
}

fn exclusive_or((a, b): (u64, u64)) -> u64 {
    match a == UNDEFINED || b == UNDEFINED {
        true => UNDEFINED,
        false => a ^ b,
    }
}

/// The base and offset of an access to spill memory.
fn slot(stmt: &Instruction) -> Option<(&'static str, u64)> {
    let memory = stmt.operands.iter().find_map(|operand| match operand {
        Operand::Memory(memory) => Some(memory),
        _ => None,
    })?;
    let base = match memory.base.as_name()?.text {
        "%FRAME" => "frame",
        "%SLOTS" => "slots",
        // Beside slots in shared memory the frame has no base register.
        name if name.starts_with("__warpalloc_frame") => "frame",
        _ => return None,
    };
    Some((base, memory.offset.as_ref()?.as_int()?))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    let bits = hasher.finish();
    // Mixed once more, as the low bits decide on branches.
    (bits ^ (bits >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (bits >> 32)
}
