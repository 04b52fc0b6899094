//! Moves that the machine can make.
//!
//! Strategies copy and exchange registers of any file. Where a file has no exchange, or no
//! copy at all ([`MovePath`]), this pass puts code in their place that does the same:
//!
//! - a cycle of copies is opened through a register of the file that nothing needs, or else
//!   through memory; a file that does not reach memory goes through the file it spills
//!   through;
//! - where nothing copies within a file, each value passes through that other file.
//!
//! All copies and exchanges in a row at one point are one parallel move, so that a cycle of
//! *n* takes *n* + 1 copies however it was written down. What nothing needs is free, and the
//! needs are those of [dead code](super::dead_code). Where the other file has no free register,
//! one is stored before and reloaded after.

use super::code::{Code, Step};
use super::dead_code::{Dead, Needs};
use crate::allocation::{Edit, Frame, SlotAddr, Space};
use crate::function::Block;
use crate::target::{File, MovePath, PReg, RegSet, SpillPath};
use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Unit moves that happen at once: destination, source.
type UnitMoves = SmallVec<[(PReg, PReg); 16]>;

/// Whether every move and exchange is possible on the target of `code`.
pub(crate) fn is_legal(code: &Code) -> bool {
    let mut steps = code.lists().flat_map(|(_, steps)| steps);
    steps.all(|step| match step.edit() {
        Some((_, edit)) => is_possible(code, edit),
        None => true,
    })
}

fn is_possible(code: &Code, edit: &Edit) -> bool {
    match *edit {
        Edit::Move { to, .. } => !matches!(code.target.file(to.file).moves, MovePath::Via(_)),
        Edit::Swap { a, .. } => code.target.file(a.file).moves == MovePath::Swap,
        _ => true,
    }
}

/// Replaces moves that the machine cannot make; `frame` grows by the slots that takes, in
/// `space`.
pub(crate) fn run(code: &mut Code, space: Space, frame: &mut Frame) {
    let needs = Needs::solve(code, Dead::Stays);
    let mut legal = Legal {
        pinned: pinned_units(code),
        scratch: Scratch::new(code, space, frame),
    };
    for index in 0..code.blocks.len() {
        let mut needed = FixedBitSet::with_capacity(code.location_count());
        for succ in 0..code.edges[index].len() {
            let target = code.function.succs(Block::new(index))[succ].block;
            let mut on_edge = needs.at_start(target).clone();
            let steps = std::mem::take(&mut code.edges[index][succ]);
            code.edges[index][succ] = legal.list(code, &needs, steps, &mut on_edge);
            needed.union_with(&on_edge);
        }
        let steps = std::mem::take(&mut code.blocks[index]);
        code.blocks[index] = legal.list(code, &needs, steps, &mut needed);
    }
    legal.scratch.add_to(frame);
}

/// Units that a pinned value is ever in: the hardware may write them at any time.
fn pinned_units(code: &Code) -> RegSet {
    let mut pinned = RegSet::new(code.target);
    for inst in code.function.insts() {
        let operands = code.function.operands(inst).iter();
        let registers = &code.registers[code.function.operand_range(inst)];
        for (operand, &reg) in operands.zip(registers) {
            let vreg = code.function.vreg(operand.vreg);
            if vreg.pinned {
                let units = code.target.units(reg, code.target.width(vreg.class));
                units.for_each(|unit| pinned.insert(unit));
            }
        }
    }
    pinned
}

/// Slots that hold a register for the length of one parallel move.
struct Scratch {
    space: Space,
    /// Bytes of the frame before, and how strictly slots are aligned.
    size: u32,
    align: u32,
    /// Bytes added so far.
    added: u32,
    slots: FxHashMap<(u32, u8), SlotAddr>,
}

impl Scratch {
    fn new(code: &Code, space: Space, frame: &Frame) -> Scratch {
        Scratch {
            space,
            size: frame.size(space),
            align: code.target.slot_align(),
            added: 0,
            slots: FxHashMap::default(),
        }
    }

    /// A slot of `bytes`; two of different `purpose` are apart.
    fn slot(&mut self, bytes: u32, purpose: u8) -> SlotAddr {
        let Scratch {
            space, size, align, ..
        } = *self;
        let added = &mut self.added;
        *self.slots.entry((bytes, purpose)).or_insert_with(|| {
            // What lay aligned from the low end still does.
            *added += bytes.next_multiple_of(align);
            let offset = -i32::try_from(size + *added).unwrap_or(i32::MAX);
            SlotAddr { space, offset }
        })
    }

    fn add_to(&self, frame: &mut Frame) {
        match self.space {
            Space::Shared => frame.shared += self.added,
            _ => frame.local += self.added,
        }
    }
}

struct Legal {
    pinned: RegSet,
    scratch: Scratch,
}

impl Legal {
    /// `steps` with moves that can be made, and what is needed before them.
    fn list(
        &mut self,
        code: &Code,
        needs: &Needs,
        steps: Vec<Step>,
        needed: &mut FixedBitSet,
    ) -> Vec<Step> {
        let mut kept: Vec<Step> = Vec::with_capacity(steps.len());
        let mut rest = &steps[..];
        while let Some((last, before)) = rest.split_last() {
            let point = match last {
                Step::Edit(point, Edit::Move { .. } | Edit::Swap { .. }) => *point,
                _ => {
                    needs.step_back(code, last, needed);
                    kept.push(last.clone());
                    rest = before;
                    continue;
                }
            };
            let is_move = |step: &&Step| matches!(step, Step::Edit(at, Edit::Move { .. } | Edit::Swap { .. }) if *at == point);
            let count = rest.iter().rev().take_while(is_move).count();
            let (others, row) = rest.split_at(rest.len() - count);
            let edits: Vec<&Edit> = row.iter().filter_map(|s| Some(s.edit()?.1)).collect();
            if edits.iter().all(|edit| is_possible(code, edit)) {
                kept.extend(row.iter().rev().cloned());
            } else {
                let edits = self.row(code, &edits, needed);
                let steps = edits.into_iter().map(|edit| Step::Edit(point, edit));
                kept.extend(steps.rev());
            }
            for step in row.iter().rev() {
                needs.step_back(code, step, needed);
            }
            rest = others;
        }
        kept.reverse();
        kept
    }

    /// What does the same as the moves and exchanges of `edits`; `needed` afterwards.
    fn row(&mut self, code: &Code, edits: &[&Edit], needed: &FixedBitSet) -> Vec<Edit> {
        let mut busy = needed.clone();
        for edit in edits {
            let (reads, writes) = code.edit_access(edit);
            let touched = reads.iter().chain(&writes);
            touched.for_each(|&unit| busy.insert(unit as usize));
        }
        let mut out = Vec::new();
        // Once the moves of a file are done, all that they touched and nothing needs is free
        // for values of other files to pass through.
        let mut files: SmallVec<[_; 4]> = code.target.files().collect();
        files.sort_by_key(|(_, info)| info.spill != SpillPath::Memory);
        for (file, info) in files {
            let of_file = edits.iter().copied().filter(|edit| file_of(edit) == file);
            let of_file: SmallVec<[&Edit; 8]> = of_file.collect();
            if of_file.iter().all(|edit| is_possible(code, edit)) {
                out.extend(of_file.into_iter().cloned());
                continue;
            }
            let is_needed = |unit: PReg| needed.contains(code.target.unit(unit).index());
            let mut moves = at_once(&of_file);
            moves.retain(|(to, _)| is_needed(*to));
            match info.moves {
                MovePath::Via(via) => {
                    self.through(code, (file, via), moves, (&busy, needed), &mut out);
                }
                _ => self.with_copies(code, file, moves, (&busy, needed), &mut out),
            }
        }
        out
    }

    /// A unit of `file` that is not `busy`.
    fn free_unit(&self, code: &Code, file: File, busy: &FixedBitSet) -> Option<PReg> {
        let mut units = (0..code.target.file(file).units).map(|unit| PReg::new(file, unit));
        units.find(|&reg| {
            let unit = code.target.unit(reg);
            !busy.contains(unit.index()) && self.is_open(code, reg)
        })
    }

    /// Whether inserted code may use `reg`.
    fn is_open(&self, code: &Code, reg: PReg) -> bool {
        !self.pinned.contains(code.target.unit(reg)) && !code.target.is_reserved(reg, 1)
    }

    /// Moves in a file that has copies, but no exchange.
    fn with_copies(
        &mut self,
        code: &Code,
        file: File,
        mut moves: UnitMoves,
        (busy, needed): (&FixedBitSet, &FixedBitSet),
        out: &mut Vec<Edit>,
    ) {
        while let Some((to, from)) = self.copy_trees(&mut moves, out) {
            let after = cycle_from(&mut moves, to, from);
            let free = self.free_unit(code, file, busy);
            let (open, close) = match (free, code.target.file(file).spill) {
                (Some(free), _) => (vec![copy(free, to)], vec![copy(after.last, free)]),
                (None, SpillPath::Memory) => {
                    let bytes = code.target.file(file).unit_bytes as u32;
                    let slot = self.scratch.slot(bytes, 0);
                    (vec![store(slot, to)], vec![reload(after.last, slot)])
                }
                (None, SpillPath::Via(via)) => {
                    let (x, mut open, restore) = self.passage(code, via, needed);
                    open.push(transfer(x, to));
                    let mut close = vec![transfer(after.last, x)];
                    close.extend(restore);
                    (open, close)
                }
            };
            out.extend(open);
            out.extend(after.copies);
            out.extend(close);
        }
    }

    /// Moves in a file where nothing is copied: by way of `via`.
    fn through(
        &mut self,
        code: &Code,
        (file, via): (File, File),
        mut moves: UnitMoves,
        (busy, needed): (&FixedBitSet, &FixedBitSet),
        out: &mut Vec<Edit>,
    ) {
        if moves.is_empty() {
            return;
        }
        let (x, save, restore) = self.passage(code, via, needed);
        let pass = |copies: Vec<Edit>, out: &mut Vec<Edit>| {
            for edit in copies {
                if let Edit::Move { to, from, .. } = edit {
                    out.extend([transfer(x, from), transfer(to, x)]);
                }
            }
        };
        out.extend(save);
        loop {
            let mut copies = Vec::new();
            let cycle = self.copy_trees(&mut moves, &mut copies);
            pass(copies, out);
            let Some((to, from)) = cycle else { break };
            let after = cycle_from(&mut moves, to, from);
            let mut beside = needed.clone();
            beside.insert(code.target.unit(x).index());
            let free = self.free_unit(code, via, &beside);
            match (free, self.free_unit(code, file, busy)) {
                (Some(free), _) => {
                    out.push(transfer(free, to));
                    pass(after.copies, out);
                    out.push(transfer(after.last, free));
                }
                (None, Some(free)) => {
                    pass(vec![copy(free, to)], out);
                    pass(after.copies, out);
                    pass(vec![copy(after.last, free)], out);
                }
                (None, None) => {
                    let bytes = code.target.file(via).unit_bytes as u32;
                    let slot = self.scratch.slot(bytes, 0);
                    out.extend([transfer(x, to), store(slot, x)]);
                    pass(after.copies, out);
                    out.extend([reload(x, slot), transfer(after.last, x)]);
                }
            }
        }
        out.extend(restore);
    }

    /// A register of `via` to pass through, with the code that makes it free and the code that
    /// gives its contents back.
    fn passage(
        &mut self,
        code: &Code,
        via: File,
        needed: &FixedBitSet,
    ) -> (PReg, Vec<Edit>, Vec<Edit>) {
        if let Some(free) = self.free_unit(code, via, needed) {
            return (free, Vec::new(), Vec::new());
        }
        let info = code.target.file(via);
        let mut units = (0..info.units).map(|unit| PReg::new(via, unit));
        // The builder sees to it that one is not reserved; if all are pinned, the checker
        // refuses the result.
        let open = units.find(|&reg| self.is_open(code, reg));
        let x = open.unwrap_or(PReg::new(via, 0));
        let slot = self.scratch.slot(info.unit_bytes as u32, 1);
        (x, vec![store(slot, x)], vec![reload(x, slot)])
    }

    /// Makes the moves that hang off cycles or lead nowhere; one move of a cycle, if any is
    /// left.
    fn copy_trees(&self, moves: &mut UnitMoves, out: &mut Vec<Edit>) -> Option<(PReg, PReg)> {
        loop {
            let is_read = |reg: PReg| moves.iter().any(|m| m.1 == reg);
            let Some(at) = moves.iter().position(|m| !is_read(m.0)) else {
                return moves.first().copied();
            };
            let (to, from) = moves.remove(at);
            out.push(copy(to, from));
        }
    }
}

/// The rest of a cycle once the contents of its first unit have been set aside.
struct Opened {
    /// Copies, in order.
    copies: Vec<Edit>,
    /// Where the contents that were set aside go.
    last: PReg,
}

/// Takes the cycle of `to` out of `moves`, of which only cycles are left.
fn cycle_from(moves: &mut UnitMoves, to: PReg, from: PReg) -> Opened {
    let mut copies = Vec::new();
    let (mut hole, mut source) = (to, from);
    while source != to {
        copies.push(copy(hole, source));
        moves.retain(|m| m.0 != hole);
        hole = source;
        source = moves.iter().find(|m| m.0 == hole).map_or(to, |m| m.1);
    }
    moves.retain(|m| m.0 != hole);
    Opened { copies, last: hole }
}

fn file_of(edit: &Edit) -> File {
    match *edit {
        Edit::Move { to: reg, .. } | Edit::Swap { a: reg, .. } => reg.file,
        _ => File::MAIN,
    }
}

/// The parallel move that moves and exchanges make one after the other.
fn at_once(edits: &[&Edit]) -> UnitMoves {
    let mut held: FxHashMap<PReg, PReg> = FxHashMap::default();
    let mut order: SmallVec<[PReg; 16]> = SmallVec::new();
    let get = |held: &FxHashMap<PReg, PReg>, reg: PReg| held.get(&reg).copied().unwrap_or(reg);
    for edit in edits {
        let (a, b, width, is_swap) = match **edit {
            Edit::Move { to, from, width } => (to, from, width, false),
            Edit::Swap { a, b, width } => (a, b, width, true),
            _ => continue,
        };
        let pairs = (0..usize::from(width)).map(|n| (a.offset(n), b.offset(n)));
        let read: SmallVec<[(PReg, PReg, PReg, PReg); 16]> = pairs
            .map(|(a, b)| (a, b, get(&held, a), get(&held, b)))
            .collect();
        for (a, b, in_a, in_b) in read {
            held.insert(a, in_b);
            order.push(a);
            if is_swap {
                held.insert(b, in_a);
                order.push(b);
            }
        }
    }
    order.sort_unstable();
    order.dedup();
    let moves = order.into_iter().map(|to| (to, get(&held, to)));
    moves.filter(|(to, from)| to != from).collect()
}

fn copy(to: PReg, from: PReg) -> Edit {
    Edit::Move { to, from, width: 1 }
}

fn transfer(to: PReg, from: PReg) -> Edit {
    Edit::Transfer { to, from, regs: 1 }
}

fn store(to: SlotAddr, from: PReg) -> Edit {
    Edit::Store { to, from, width: 1 }
}

fn reload(to: PReg, from: SlotAddr) -> Edit {
    Edit::Reload { to, from, width: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::{Allocation, Edits, Point};
    use crate::check::check;
    use crate::function::{Builder, Effect, Inst, VReg};
    use crate::stats::Stats;
    use crate::target::{FileInfo, Target};
    use cranelift_entity::EntitySet;

    fn reg(unit: usize) -> PReg {
        PReg::new(File::MAIN, unit)
    }

    #[test]
    fn moves_and_exchanges_in_a_row_are_one_parallel_move() {
        let swap = |a, b| Edit::Swap {
            a: reg(a),
            b: reg(b),
            width: 1,
        };
        let edits = [swap(0, 1), swap(1, 2), copy(reg(5), reg(0))];
        let edits: Vec<&Edit> = edits.iter().collect();
        let moves: Vec<_> = at_once(&edits)
            .into_iter()
            .map(|(to, from)| (to.unit, from.unit))
            .collect();
        assert_eq!(moves, [(0, 1), (1, 2), (2, 0), (5, 1)]);
    }

    const P: File = File::new(0);
    const R: File = File::new(1);

    /// The code of `moves`, which bring values from registers to others before the instruction
    /// that uses them, proved. The machine has two flags, which `path` moves, and two words; what
    /// flags are spilled to are words.
    fn moved(path: MovePath, before: &[PReg], after: &[PReg], moves: &[Edit]) -> Vec<Edit> {
        let mut machine = Target::builder("flags_first");
        machine.file(FileInfo::new("p", 2).spills_via(R).moves(path));
        machine.file(FileInfo::new("r", 2).moves(MovePath::Move));
        let classes = [
            machine.class("flag", P, 1, 1),
            machine.class("word", R, 1, 1),
        ];
        let target = machine.finish().unwrap();
        let mut b = Builder::new("f");
        let block = b.block();
        let values = before.iter().map(|reg| b.vreg(classes[reg.file.index()]));
        let values: Vec<VReg> = values.collect();
        for &v in &values {
            b.inst(block, "load").def(v).effect(Effect::Read);
        }
        let mut user = b.inst(block, "use").effect(Effect::Write);
        for &v in &values {
            user = user.use_(v);
        }
        b.exit(block, "exit");
        let function = b.finish();
        let point = Point::Before(Inst::new(before.len()));
        let moves = moves.iter().map(|edit| (point, edit.clone()));
        let mut allocation = Allocation {
            registers: [before, after].concat(),
            memory: Vec::new(),
            edits: Edits::new(&function, moves.collect()),
            deleted: EntitySet::new(),
            order: None,
            frame: Frame::default(),
            stats: Stats::default(),
        };
        let memory = crate::scratch::Scratch::default();
        let mut code = Code::new(&function, &target, &allocation, &memory);
        run(&mut code, Space::Shared, &mut allocation.frame);
        code.write_to(&mut allocation, &memory);
        check(&function, &target, &allocation).unwrap();
        let edits = allocation.edits.iter().map(|(_, edit)| edit.clone());
        edits.collect()
    }

    fn registers() -> [PReg; 4] {
        [(R, 0), (R, 1), (P, 0), (P, 1)].map(|(file, unit)| PReg::new(file, unit))
    }

    /// R0 is free for the flag to pass through once its value has moved on to R1, whichever file
    /// the machine names first.
    #[test]
    fn a_value_passes_through_a_file_once_the_moves_of_that_file_are_made() {
        let [r0, r1, p0, p1] = registers();
        let moves = [copy(r1, r0), copy(p1, p0)];
        let edits = moved(MovePath::Via(R), &[r0, p0], &[r1, p1], &moves);
        assert_eq!(edits, [copy(r1, r0), transfer(r0, p0), transfer(p1, r0)]);
    }

    /// What is in R0 waits in memory while flags pass through it.
    fn assert_r0_is_saved(edits: &[Edit], passing: &[Edit]) {
        let r0 = PReg::new(R, 0);
        let Edit::Store { to: slot, .. } = edits[0] else {
            panic!("{edits:?}");
        };
        let expected = [&[store(slot, r0)], passing, &[reload(r0, slot)]].concat();
        assert_eq!(edits, expected);
    }

    #[test]
    fn a_register_to_pass_through_is_saved_and_restored_where_none_is_free() {
        let [r0, r1, p0, p1] = registers();
        let path = MovePath::Via(R);
        let edits = moved(path, &[r0, r1, p0], &[r0, r1, p1], &[copy(p1, p0)]);
        assert_r0_is_saved(&edits, &[transfer(r0, p0), transfer(p1, r0)]);
    }

    #[test]
    fn values_that_are_copied_change_places_by_way_of_the_file_they_are_spilled_to() {
        let [r0, r1, p0, p1] = registers();
        let swap = Edit::Swap {
            a: p0,
            b: p1,
            width: 1,
        };
        let all = [r0, r1, p0, p1];
        let edits = moved(MovePath::Move, &all, &[r0, r1, p1, p0], &[swap]);
        let passing = [transfer(r0, p0), copy(p0, p1), transfer(p1, r0)];
        assert_r0_is_saved(&edits, &passing);
    }
}
