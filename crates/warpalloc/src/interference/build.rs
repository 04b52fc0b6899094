//! From live sets to edges.

use super::Interference;
use super::crowd::Crowd;
use super::rows::Condition;
use crate::analysis::{Cfg, Liveness};
use crate::function::{Clobbers, Inst, Kind, Role};
use crate::ir::{Op, Program, Value};
use crate::scratch::Scratch;
use crate::target::UnitSet;
use crate::target::{File, Target};
use cranelift_entity::{EntitySet, SecondaryMap};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

impl Interference {
    /// Builds the interference of `program`, whose liveness is `liveness`.
    pub fn build(
        program: &Program,
        target: &Target,
        liveness: &Liveness<Value>,
        scratch: &Scratch,
    ) -> Interference {
        let values = program.values.len();
        let mut build = Build {
            program,
            target,
            crowd: Crowd::new(program, target, scratch),
            conditions: FxHashMap::default(),
            occurring: EntitySet::with_capacity(values),
            clobbered: SecondaryMap::with_capacity(values),
            abi: None,
        };
        for block in program.all_blocks() {
            build.crowd.start_at_end(liveness, block);
            for op in program.blocks[block].ops.iter().rev() {
                build.op(op);
            }
            build.crowd.finish_block();
        }
        build.finish(scratch)
    }
}

/// Units of each file.
type FileUnits = Vec<(File, UnitSet<8>)>;

struct Build<'a> {
    program: &'a Program<'a>,
    target: &'a Target,
    crowd: Crowd,
    /// Conditional pairs, lower value first; `None` once two conditions contradict.
    conditions: FxHashMap<(Value, Value), Option<i32>>,
    occurring: EntitySet<Value>,
    clobbered: SecondaryMap<Value, Option<Box<UnitSet<8>>>>,
    abi: Option<FileUnits>,
}

/// A part of a copy: `to` gets the contents of `from`, which starts `distance` units after
/// `to` when both sides coincide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedPart {
    /// What is written.
    pub to: Value,
    /// What is read.
    pub from: Value,
    /// Where `from` starts, counted in units from the start of `to`.
    pub distance: i32,
}

/// What `op` copies, part by part; nothing where it is no copy.
pub fn copied_parts(program: &Program, target: &Target, op: &Op) -> SmallVec<[CopiedPart; 2]> {
    match op {
        Op::Copies(pairs) => pairs
            .iter()
            .map(|&(to, from)| CopiedPart {
                to,
                from,
                distance: 0,
            })
            .collect(),
        Op::Inst { inst, values } if program.function.inst(*inst).kind == Kind::Copy => {
            parts_of_inst(program, target, *inst, values)
        }
        _ => SmallVec::new(),
    }
}

/// The parts of a copy whose sides may share a register while both are needed. A pinned
/// value, which the hardware writes at a time of its own, shares with no other; it may only
/// follow or precede one in the same register.
fn shared_parts(program: &Program, target: &Target, op: &Op) -> SmallVec<[CopiedPart; 2]> {
    let is_pinned = |v: Value| {
        let vreg = program.vreg_of(v);
        vreg.is_some_and(|vreg| program.function.vreg(vreg).pinned)
    };
    let mut parts = copied_parts(program, target, op);
    parts.retain(|p| !is_pinned(p.to) && !is_pinned(p.from));
    parts
}

/// Results and inputs of a copy, laid end to end each: every pair that lies on each other.
fn parts_of_inst(
    program: &Program,
    target: &Target,
    inst: Inst,
    values: &[Value],
) -> SmallVec<[CopiedPart; 2]> {
    let operands = program.function.operands(inst);
    let lay = |role: Role| {
        let side = operands
            .iter()
            .zip(values)
            .filter(move |(o, _)| o.role == role);
        side.scan(0i32, |end, (_, &value)| {
            let start = *end;
            *end += target.width(program.values[value].class) as i32;
            Some((value, start, *end))
        })
    };
    let mut parts = SmallVec::new();
    for (to, to_start, to_end) in lay(Role::Def) {
        for (from, from_start, from_end) in lay(Role::Use) {
            let within = from_start >= to_start && from_end <= to_end;
            let around = from_start <= to_start && from_end >= to_end;
            if (within || around) && to != from {
                parts.push(CopiedPart {
                    to,
                    from,
                    distance: from_start - to_start,
                });
            }
        }
    }
    parts
}

impl Build<'_> {
    fn op(&mut self, op: &Op) {
        let accesses: SmallVec<[_; 6]> = op.accesses(self.program.function).collect();
        let copied = shared_parts(self.program, self.target, op);
        let writes = || accesses.iter().filter(|(_, role)| role.writes());
        for &(value, _) in &accesses {
            self.occurring.insert(value);
        }
        for (i, &(to, _)) in writes().enumerate() {
            self.define(to, &copied);
            // Results that are never read take registers all the same.
            self.interfere(writes().skip(i + 1).map(|&(v, _)| v), to);
        }
        for &(early, _) in accesses.iter().filter(|(_, r)| *r == Role::EarlyDef) {
            let inputs = accesses.iter().filter(|(_, role)| role.reads());
            self.interfere(inputs.map(|&(v, _)| v), early);
        }
        if writes().next().is_some() {
            self.crowd.note_pressure(writes().map(|&(v, _)| v));
        }
        if let Op::Inst { inst, .. } | Op::Recompute { inst, .. } = op {
            // A value changed in place may keep its old contents, which must survive.
            let new = |v: Value| writes().any(|&(w, role)| w == v && role != Role::UseDef);
            self.clobber(*inst, new);
        }
        self.crowd.step_back(&accesses);
    }

    /// Every value live beside `to` when it is written interferes with it, except the one
    /// that is `copied`.
    fn define(&mut self, to: Value, copied: &[CopiedPart]) {
        let beside = self.crowd.live(self.crowd.file(to));
        let mut sources: SmallVec<[&CopiedPart; 2]> = SmallVec::new();
        for part in copied.iter().filter(|part| part.to == to) {
            // A source copied twice may coincide with the first of its copies.
            let is_new = sources.iter().all(|known| known.from != part.from);
            if is_new && beside.contains(part.from) {
                sources.push(part);
            }
        }
        let log = &mut self.crowd.log;
        sources.iter().for_each(|part| log.leave(part.from));
        log.define(to);
        sources.iter().for_each(|part| log.enter(part.from));
        for part in sources {
            self.condition(part);
        }
    }

    /// Adds the values of `others` in the file of `value` to its neighbours.
    fn interfere(&mut self, others: impl Iterator<Item = Value>, value: Value) {
        for other in others {
            if self.crowd.file(other) == self.crowd.file(value) {
                self.crowd.log.pair(value, other);
            }
        }
    }

    /// Both sides of a copied part are needed after it: they may share units, but only so
    /// that the part coincides with its source.
    fn condition(&mut self, part: &CopiedPart) {
        let class = |v: Value| self.program.values[v].class;
        if class(part.to) == class(part.from) && part.distance == 0 {
            let info = self.target.class(class(part.to));
            if info.align >= info.width {
                // Registers of such a class coincide or are apart: no condition is needed.
                return;
            }
        }
        let (key, distance) = if part.to < part.from {
            ((part.to, part.from), part.distance)
        } else {
            ((part.from, part.to), -part.distance)
        };
        let known = self.conditions.entry(key).or_insert(Some(distance));
        if *known != Some(distance) {
            *known = None;
        }
    }

    fn clobber(&mut self, inst: Inst, new: impl Fn(Value) -> bool) {
        let places = match self.program.function.inst(inst).clobbers {
            Clobbers::None => return,
            Clobbers::Abi => match self.abi.take() {
                Some(places) => places,
                None => self.places_of(inst),
            },
            Clobbers::List(_) => self.places_of(inst),
        };
        for value in self.crowd.all_live().filter(|&v| !new(v)) {
            let file = self.crowd.file(value);
            if let Some((_, set)) = places.iter().find(|(f, _)| *f == file) {
                self.clobbered[value]
                    .get_or_insert_with(|| Box::new(UnitSet::EMPTY))
                    .add(set);
            }
        }
        if self.program.function.inst(inst).clobbers == Clobbers::Abi {
            self.abi = Some(places);
        }
    }

    fn places_of(&self, inst: Inst) -> FileUnits {
        let set = self.program.function.clobbers(self.target, inst);
        let files = self.target.files();
        let places = files.map(|(file, _)| (file, UnitSet::of_file(self.target, file, &set)));
        places.filter(|(_, places)| !places.is_empty()).collect()
    }

    fn finish(self, scratch: &Scratch) -> Interference {
        let both_ways = |(&(a, b), distance): (&(Value, Value), &Option<i32>)| {
            let may_overlap = distance.is_some();
            [(a, b), (b, a)].map(|(of, other)| Condition {
                of,
                other,
                may_overlap,
            })
        };
        let mut conditions: Vec<Condition> = self.conditions.iter().flat_map(both_ways).collect();
        conditions.sort_unstable();
        let (rows, peaks) = self.crowd.finish(&conditions, scratch);
        let distances = self.conditions.into_iter();
        Interference {
            rows,
            distances: distances
                .filter_map(|(pair, at)| Some((pair, at?)))
                .collect(),
            occurring: self.occurring,
            clobbered: self.clobbered,
            peaks,
        }
    }
}
