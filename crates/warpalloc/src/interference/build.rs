//! From live sets to edges.

use super::{CONDITIONAL, Interference, Places};
use crate::analysis::{Cfg, LiveSet, Liveness};
use crate::function::{Clobbers, Inst, Kind, Role};
use crate::program::{Op, Program, Value};
use crate::target::{File, Target};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

impl Interference {
    /// Builds the interference of `program`, whose liveness is `liveness`.
    pub fn build(program: &Program, target: &Target, liveness: &Liveness<Value>) -> Interference {
        let values = program.values.len();
        let infos = program.values.values();
        let widths = infos.map(|info| target.width(info.class) as u16);
        let mut build = Build {
            program,
            target,
            files: program
                .values
                .values()
                .map(|info| target.class(info.class).file)
                .collect(),
            pairs: Vec::new(),
            conditions: FxHashMap::default(),
            occurring: EntitySet::with_capacity(values),
            clobbered: SecondaryMap::with_capacity(values),
            abi: None,
            widths: widths.collect(),
            peaks: vec![0; values],
        };
        let mut live = LiveSet::new(values);
        for block in program.all_blocks() {
            live.start_at_end(liveness, block);
            for op in program.blocks[block].ops.iter().rev() {
                build.op(op, &mut live);
            }
        }
        build.finish()
    }
}

/// Files told apart when pressure is counted.
const MAX_FILES: usize = 8;

/// Places of one file, for every file.
type FilePlaces = Vec<(File, Places)>;

struct Build<'a> {
    program: &'a Program<'a>,
    target: &'a Target,
    files: Vec<File>,
    /// Values that interfere whatever their places; may hold duplicates.
    pairs: Vec<(u32, u32)>,
    /// Conditional pairs, lower value first; `None` once two conditions contradict.
    conditions: FxHashMap<(Value, Value), Option<i32>>,
    occurring: EntitySet<Value>,
    clobbered: SecondaryMap<Value, Option<Box<Places>>>,
    abi: Option<FilePlaces>,
    widths: Vec<u16>,
    /// The most units of its file in use at once while each value is live.
    peaks: Vec<u16>,
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
    let is_pinned = |v: Value| {
        let vreg = program.vreg_of(v);
        vreg.is_some_and(|vreg| program.function.vreg(vreg).pinned)
    };
    let mut parts: SmallVec<[CopiedPart; 2]> = match op {
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
    };
    // What the hardware writes at a time of its own choosing shares with nobody.
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
    let in_place = |o: &crate::function::Operand| !matches!(o.role, Role::Use | Role::Def);
    let mut parts = SmallVec::new();
    if operands.iter().any(in_place) {
        return parts;
    }
    for (to, to_start, to_end) in lay(Role::Def) {
        for (from, from_start, from_end) in lay(Role::Use) {
            let within = from_start >= to_start && from_end <= to_end;
            let around = from_start <= to_start && from_end >= to_end;
            let file = |v: Value| target.class(program.values[v].class).file;
            if (within || around) && to != from && file(to) == file(from) {
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
    fn op(&mut self, op: &Op, live: &mut LiveSet<Value>) {
        let accesses = op.accesses(self.program.function);
        let copied = copied_parts(self.program, self.target, op);
        let writes = || accesses.iter().filter(|(_, role)| role.writes());
        for &(value, _) in &accesses {
            self.occurring.insert(value);
        }
        for (i, &(to, _)) in writes().enumerate() {
            for other in live.iter() {
                self.edge(to, other, &copied);
            }
            // Results that are never read take registers all the same.
            for &(other, _) in writes().skip(i + 1) {
                self.edge(to, other, &[]);
            }
        }
        for &(early, _) in accesses.iter().filter(|(_, r)| *r == Role::EarlyDef) {
            for &(input, _) in accesses.iter().filter(|(_, role)| role.reads()) {
                self.edge(early, input, &[]);
            }
        }
        if writes().next().is_some() {
            self.note_pressure(live, writes().map(|&(v, _)| v));
        }
        if let Op::Inst { inst, .. } | Op::Recompute { inst, .. } = op {
            // A value changed in place may keep its old contents, which must survive.
            let new = |v: Value| writes().any(|&(w, role)| w == v && role != Role::UseDef);
            self.clobber(*inst, live, new);
        }
        live.step_back_over(accesses.iter().copied());
    }

    /// Takes note of how crowded it is right after an operation that writes `written`.
    fn note_pressure(&mut self, live: &LiveSet<Value>, written: impl Iterator<Item = Value>) {
        let mut units = [0u16; MAX_FILES];
        let dead: SmallVec<[Value; 4]> = written.filter(|&v| !live.contains(v)).collect();
        let here = || live.iter().chain(dead.iter().copied());
        for value in here() {
            units[self.files[value.index()].index() % MAX_FILES] += self.widths[value.index()];
        }
        for value in here() {
            let peak = &mut self.peaks[value.index()];
            *peak = (*peak).max(units[self.files[value.index()].index() % MAX_FILES]);
        }
    }

    fn edge(&mut self, a: Value, b: Value, copied: &[CopiedPart]) {
        if a == b || self.files[a.index()] != self.files[b.index()] {
            return;
        }
        let mut parts = copied.iter();
        match parts.find(|p| p.to == a && p.from == b) {
            None => self.pairs.push((a.index() as u32, b.index() as u32)),
            Some(part) => self.condition(part),
        }
    }

    /// Both sides of a copied part are needed after it: they may share units, but only so
    /// that the part coincides with its source.
    fn condition(&mut self, part: &CopiedPart) {
        let class = |v: Value| self.program.values[v].class;
        if class(part.to) == class(part.from) && part.distance == 0 {
            // Registers of one class coincide or are apart: no condition is needed.
            return;
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

    fn clobber(&mut self, inst: Inst, live: &LiveSet<Value>, new: impl Fn(Value) -> bool) {
        let places = match self.program.function.inst(inst).clobbers {
            Clobbers::None => return,
            Clobbers::Abi => match self.abi.take() {
                Some(places) => places,
                None => self.places_of(inst),
            },
            Clobbers::List(_) => self.places_of(inst),
        };
        for value in live.iter().filter(|&v| !new(v)) {
            let file = self.files[value.index()];
            if let Some((_, set)) = places.iter().find(|(f, _)| *f == file) {
                self.clobbered[value].get_or_insert_default().unite(set);
            }
        }
        if self.program.function.inst(inst).clobbers == Clobbers::Abi {
            self.abi = Some(places);
        }
    }

    fn places_of(&self, inst: Inst) -> FilePlaces {
        let set = self.program.function.clobbers(self.target, inst);
        let files = self.target.files();
        let places = files.map(|(file, _)| (file, Places::of_file(self.target, &set, file)));
        places.filter(|(_, places)| !places.is_empty()).collect()
    }

    fn finish(self) -> Interference {
        let values = self.program.values.len();
        let hard = Rows::symmetric(values, &self.pairs);
        drop(self.pairs);
        let (starts, neighbours) = hard.sorted(values);
        let mut interference = Interference {
            starts,
            neighbours,
            distances: FxHashMap::default(),
            occurring: self.occurring,
            clobbered: self.clobbered,
            peaks: self.peaks,
        };
        let mut conditions: Vec<_> = self.conditions.into_iter().collect();
        conditions.retain(|&((a, b), _)| !interference.interferes(a, b));
        conditions.sort_unstable();
        if !conditions.is_empty() {
            interference.add_conditions(&conditions);
        }
        interference
    }
}

impl Interference {
    /// Adds edges between values that do not interfere yet.
    fn add_conditions(&mut self, conditions: &[((Value, Value), Option<i32>)]) {
        let mut more: SecondaryMap<Value, SmallVec<[u32; 2]>> = SecondaryMap::new();
        for &((a, b), distance) in conditions {
            let flag = if distance.is_some() { CONDITIONAL } else { 0 };
            more[a].push(b.index() as u32 | flag);
            more[b].push(a.index() as u32 | flag);
            if let Some(distance) = distance {
                self.distances.insert((a, b), distance);
            }
        }
        let values = self.starts.len() - 1;
        let mut starts = Vec::with_capacity(values + 1);
        let mut neighbours = Vec::with_capacity(self.neighbours.len() + 2 * conditions.len());
        starts.push(0);
        for value in (0..values).map(Value::new) {
            let from = neighbours.len();
            neighbours.extend_from_slice(self.row(value));
            if !more[value].is_empty() {
                neighbours.extend_from_slice(&more[value]);
                neighbours[from..].sort_unstable_by_key(|entry| entry & !CONDITIONAL);
            }
            starts.push(neighbours.len() as u32);
        }
        self.starts = starts;
        self.neighbours = neighbours;
    }
}

/// Rows of neighbours in the making.
struct Rows {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Rows {
    /// Both directions of each pair, without duplicates, in no particular order.
    fn symmetric(values: usize, pairs: &[(u32, u32)]) -> Rows {
        let mut starts = vec![0u32; values + 1];
        for &(a, b) in pairs {
            starts[a as usize + 1] += 1;
            starts[b as usize + 1] += 1;
        }
        for v in 0..values {
            starts[v + 1] += starts[v];
        }
        let mut next = starts.clone();
        let mut items = vec![0u32; 2 * pairs.len()];
        for &(a, b) in pairs {
            for (row, item) in [(a, b), (b, a)] {
                items[next[row as usize] as usize] = item;
                next[row as usize] += 1;
            }
        }
        let mut rows = Rows { starts, items };
        rows.remove_duplicates(values);
        rows
    }

    fn remove_duplicates(&mut self, values: usize) {
        let mut seen = vec![u32::MAX; values];
        let mut kept = 0;
        let mut row_start = 0;
        for v in 0..values {
            let row_end = self.starts[v + 1] as usize;
            self.starts[v] = kept as u32;
            for i in row_start..row_end {
                let item = self.items[i];
                if seen[item as usize] != v as u32 {
                    seen[item as usize] = v as u32;
                    self.items[kept] = item;
                    kept += 1;
                }
            }
            row_start = row_end;
        }
        self.starts[values] = kept as u32;
        self.items.truncate(kept);
    }

    /// The same rows in ascending order: transposing a symmetric relation row by row.
    fn sorted(self, values: usize) -> (Vec<u32>, Vec<u32>) {
        let mut next = self.starts.clone();
        let mut items = vec![0u32; self.items.len()];
        for v in 0..values {
            for &other in &self.items[self.starts[v] as usize..self.starts[v + 1] as usize] {
                items[next[other as usize] as usize] = v as u32;
                next[other as usize] += 1;
            }
        }
        (self.starts, items)
    }
}
