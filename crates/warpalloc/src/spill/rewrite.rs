//! Spill code: stores, reloads, transfers and rematerialisations of spilled values.

use super::remat::Remat;
use super::{SpillChoice, SpillPolicy};
use crate::allocation::Space;
use crate::function::{Inst, Role};
use crate::ir::{Facts, LiveRanges, Op, Origin, Program, Slot, SlotInfo, Value, ValueInfo};
use crate::target::{Class, File, SpillPath, Target};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// Where a spilled value is reloaded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Memory.
    Slot(Slot),
    /// A value in another register file.
    Carrier(Value),
    /// This instruction rematerialises it.
    Recompute(Inst),
}

/// How many values went where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillCounts {
    /// To memory.
    pub memory: u32,
    /// To another register file.
    pub carried: u32,
    /// To be rematerialised.
    pub recomputed: u32,
    /// Reloads that joining pieces saved.
    pub fetches_saved: u32,
}

/// Spills values of one program, round after round.
pub struct Spiller<'t> {
    pub(super) target: &'t Target,
    pub(super) policy: SpillPolicy,
    space: Space,
    /// The home of each spilled value and of each of its pieces.
    homes: SecondaryMap<Value, Option<Home>>,
    /// Which spilled value a piece belongs to.
    pieces: SecondaryMap<Value, Option<Value>>,
    /// The first of the pieces that a value was split into to be spilled, by that value.
    first_of_split: SecondaryMap<Value, Option<Value>>,
    /// Values that are in no operation any more.
    gone: EntitySet<Value>,
    /// Values whose joined pieces found no register: their pieces stay apart from now on.
    eager: EntitySet<Value>,
}

impl<'t> Spiller<'t> {
    /// A spiller for programs of `target`, with slots in `space`.
    pub fn new(target: &'t Target, policy: SpillPolicy, space: Space) -> Spiller<'t> {
        Spiller {
            target,
            policy,
            space,
            homes: SecondaryMap::new(),
            pieces: SecondaryMap::new(),
            first_of_split: SecondaryMap::new(),
            gone: EntitySet::new(),
            eager: EntitySet::new(),
        }
    }

    /// Rewrites `program` so that no value of `choice` needs a register of its own file
    /// between instructions. Carriers that go to memory at once follow what they carry.
    pub fn spill(
        &mut self,
        program: &mut Program,
        facts: &Facts,
        choice: &SpillChoice,
    ) -> SpillCounts {
        let mut counts = self.spill_values(program, facts, &choice.values);
        let carrier = |&value: &Value| match self.homes[value] {
            Some(Home::Carrier(carrier)) => Some(carrier),
            _ => None,
        };
        let carriers: Vec<Value> = choice.uncarried.iter().filter_map(carrier).collect();
        if !carriers.is_empty() {
            counts.memory += self.spill_values(program, facts, &carriers).memory;
        }
        counts
    }

    fn spill_values(
        &mut self,
        program: &mut Program,
        facts: &Facts,
        values: &[Value],
    ) -> SpillCounts {
        let mut counts = SpillCounts::default();
        let remat = match self.policy.rematerialise {
            true => Remat::find(program, facts, self.policy.remat_ratio, values, |v| {
                self.homes[v].is_some()
            }),
            false => Remat::default(),
        };
        for &value in values {
            self.find_home(program, value, &remat, &mut counts);
        }
        for block in program.blocks.keys() {
            let ops = std::mem::take(&mut program.blocks[block].ops);
            let mut out = Vec::with_capacity(ops.len());
            for op in ops {
                self.rewrite(program, op, &mut out);
            }
            program.blocks[block].ops = out;
        }
        if self.policy.lazy_reload {
            let facts = Facts::of(program);
            let ranges = LiveRanges::compute(program, self.target, &facts);
            counts.fetches_saved = self.join(program, &facts, &ranges);
        }
        counts
    }

    /// Whether all that was made of `choice` is slots, and pieces around single operations.
    pub fn is_local(&self, choice: &SpillChoice) -> bool {
        let in_memory = |&value: &Value| matches!(self.homes[value], Some(Home::Slot(_)));
        !self.policy.lazy_reload && choice.values.iter().all(in_memory)
    }

    /// Joins the pieces of spilled values where registers allow it; returns how many
    /// reloads that saved. Facts and live ranges are those of `program`.
    pub fn join(&mut self, program: &mut Program, facts: &Facts, ranges: &LiveRanges) -> u32 {
        super::lazy_reload::join_pieces(self, program, facts, ranges)
    }

    fn find_home(
        &mut self,
        program: &mut Program,
        value: Value,
        remat: &Remat,
        counts: &mut SpillCounts,
    ) {
        self.gone.insert(value);
        if self.homes[value].is_some() {
            // A joined piece that found no register: reload for every reader again.
            self.eager.insert(self.spilled_value(value));
            return;
        }
        // Only one piece of a split value is live at a time, so one home serves them all,
        // and the copies between spilled pieces vanish.
        let root = program.root_of(value);
        if let Some(first) = self.first_of_split[root]
            && matches!(self.homes[first], Some(Home::Slot(_) | Home::Carrier(_)))
        {
            self.homes[value] = self.homes[first];
            self.pieces[value] = Some(first);
            return;
        }
        self.first_of_split[root] = Some(value);
        let class = program.values[value].class;
        self.homes[value] = Some(
            match (remat.instruction(value), carrier_class(self.target, class)) {
                (Some(inst), _) => {
                    counts.recomputed += 1;
                    Home::Recompute(inst)
                }
                (None, Some(class)) => {
                    counts.carried += 1;
                    Home::Carrier(program.values.push(ValueInfo {
                        class,
                        origin: Origin::Carrier(value),
                        uniform: program.values[value].uniform,
                        unspillable: false,
                        is_result: false,
                        forbidden: None,
                    }))
                }
                (None, None) => {
                    counts.memory += 1;
                    let space = self.space;
                    Home::Slot(program.slots.push(SlotInfo { class, space }))
                }
            },
        );
    }

    /// The value that was spilled, for itself and for its pieces.
    pub(super) fn spilled_value(&self, value: Value) -> Value {
        self.pieces[value].unwrap_or(value)
    }

    /// The spilled value that `value` is a piece of, if it is one.
    pub(super) fn piece_of(&self, value: Value) -> Option<Value> {
        self.pieces[value]
    }

    /// Where `value`, spilled or a piece, is reloaded from.
    pub fn home(&self, value: Value) -> Option<Home> {
        self.homes[value]
    }

    /// Whether the pieces of `value` stay apart.
    pub(super) fn is_eager(&self, value: Value) -> bool {
        self.eager.contains(value)
    }

    /// Whether `value` left the program.
    pub(super) fn is_gone(&self, value: Value) -> bool {
        self.gone.contains(value)
    }

    fn rewrite(&mut self, program: &mut Program, op: Op, out: &mut Vec<Op>) {
        match op {
            Op::Copies(pairs) => self.rewrite_copies(program, pairs, out),
            // The definition stores by itself, and every reader reloads for itself.
            Op::Store { value, slot } | Op::Reload { value, slot }
                if self.is_gone(value) && self.homes[value] == Some(Home::Slot(slot)) => {}
            Op::Transfer { to, from } if self.crosses_home(to, from) => {}
            Op::Recompute { inst, ref values } if self.is_recomputed(program, inst, values) => {}
            Op::Inst { inst, ref values } if self.is_recomputed(program, inst, values) => {
                program.deleted.insert(inst);
            }
            op => self.rewrite_plain(program, op, out),
        }
    }

    /// Whether a transfer only moves a gone value between itself and its own home.
    fn crosses_home(&self, to: Value, from: Value) -> bool {
        let home = |value: Value, other: Value| {
            self.is_gone(value) && self.homes[value] == Some(Home::Carrier(other))
        };
        home(to, from) || home(from, to)
    }

    /// Whether `inst` only computes a gone value that is rematerialised at its readers.
    fn is_recomputed(&self, program: &Program, inst: Inst, values: &[Value]) -> bool {
        let home = Some(Home::Recompute(inst));
        let operands = program.function.operands(inst).iter();
        let mut results = operands.zip(values).filter(|(o, _)| o.role.writes());
        results.any(|(_, &v)| self.is_gone(v) && self.homes[v] == home)
    }

    /// Replaces gone values by pieces, reloaded before and put home after.
    fn rewrite_plain(&mut self, program: &mut Program, mut op: Op, out: &mut Vec<Op>) {
        let mut read: SmallVec<[(Value, Value); 4]> = SmallVec::new();
        let mut written: SmallVec<[(Value, Value); 4]> = SmallVec::new();
        let roles: SmallVec<[(Value, Role); 6]> = op.accesses(program.function).collect();
        // A value changed in place is one piece, so these choose first.
        for &(value, role) in roles.iter().filter(|(_, role)| *role == Role::UseDef) {
            if self.is_gone(value) {
                let piece = self.piece(program, value);
                read.push((value, piece));
                written.push((value, piece));
            }
            debug_assert_eq!(role, Role::UseDef);
        }
        for &(value, role) in &roles {
            let list = if role == Role::Use {
                &mut read
            } else {
                &mut written
            };
            if self.is_gone(value) && list.iter().all(|(v, _)| *v != value) {
                let piece = self.piece(program, value);
                list.push((value, piece));
            }
        }
        if read.is_empty() && written.is_empty() {
            out.push(op);
            return;
        }
        for &(value, piece) in &read {
            self.fetch(program, value, piece, out);
        }
        replace(program, &mut op, |value, role| {
            let list = if role.reads() { &read } else { &written };
            list.iter()
                .find(|(v, _)| *v == value)
                .map(|(_, piece)| *piece)
        });
        out.push(op);
        for &(value, piece) in &written {
            self.put_home(program, value, piece, out);
        }
    }

    /// A new piece of `value`, live around one operation only.
    pub(super) fn piece(&mut self, program: &mut Program, value: Value) -> Value {
        let piece = program.piece_of(value);
        program.values[piece].unspillable = true;
        self.homes[piece] = self.homes[value];
        self.pieces[piece] = Some(self.spilled_value(value));
        piece
    }

    /// Makes `to` hold what `value` holds.
    pub(super) fn fetch(
        &mut self,
        program: &mut Program,
        value: Value,
        to: Value,
        out: &mut Vec<Op>,
    ) {
        match self.homes[value] {
            Some(Home::Slot(slot)) => out.push(Op::Reload { value: to, slot }),
            Some(Home::Carrier(from)) => {
                let op = Op::Transfer { to, from };
                self.rewrite_plain(program, op, out);
            }
            Some(Home::Recompute(inst)) => {
                let operands = program.function.operands(inst).iter();
                let values = operands.map(|o| match o.role.writes() {
                    true => to,
                    false => Value::new(o.vreg.index()),
                });
                let op = Op::Recompute {
                    inst,
                    values: values.collect(),
                };
                self.rewrite_plain(program, op, out);
            }
            None => debug_assert!(false, "{value} has no home"),
        }
    }

    /// Makes the home of `value` hold what `from` holds.
    pub(super) fn put_home(
        &mut self,
        program: &mut Program,
        value: Value,
        from: Value,
        out: &mut Vec<Op>,
    ) {
        match self.homes[value] {
            Some(Home::Slot(slot)) => out.push(Op::Store { slot, value: from }),
            Some(Home::Carrier(to)) => {
                let op = Op::Transfer { to, from };
                self.rewrite_plain(program, op, out);
            }
            Some(Home::Recompute(_)) | None => {}
        }
    }

    /// Whether two values share a home, so that copying one to the other does nothing.
    pub(super) fn same_home(&self, a: Value, b: Value) -> bool {
        self.homes[a].is_some() && self.homes[a] == self.homes[b]
    }
}

/// The class in which values of `class` travel, if they cannot reach memory themselves.
pub(crate) fn carrier_class(target: &Target, class: Class) -> Option<Class> {
    let info = target.class(class);
    let via: File = match target.file(info.file).spill {
        SpillPath::Memory => return None,
        SpillPath::Via(file) => file,
    };
    let registers = info.width / target.file(info.file).units_per_reg;
    let width = registers * target.file(via).units_per_reg;
    let mut classes = target.classes();
    classes
        .find(|(_, c)| c.file == via && c.width == width)
        .map(|(class, _)| class)
}

/// Replaces values in `op` where `by` knows a replacement.
pub(super) fn replace(program: &Program, op: &mut Op, by: impl Fn(Value, Role) -> Option<Value>) {
    let put = |value: &mut Value, role: Role| {
        if let Some(new) = by(*value, role) {
            *value = new;
        }
    };
    match op {
        Op::Inst { inst, values } | Op::Recompute { inst, values } => {
            let operands = program.function.operands(*inst).iter();
            values
                .iter_mut()
                .zip(operands)
                .for_each(|(v, o)| put(v, o.role));
        }
        Op::Copies(pairs) => {
            for (to, from) in pairs {
                put(from, Role::Use);
                put(to, Role::Def);
            }
        }
        Op::Transfer { to, from } => {
            put(from, Role::Use);
            put(to, Role::Def);
        }
        Op::Store { value, .. } => put(value, Role::Use),
        Op::Reload { value, .. } => put(value, Role::Def),
    }
}
