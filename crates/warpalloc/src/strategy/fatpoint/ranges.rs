//! Where each value is alive, as stretches of program positions.
//!
//! Blocks are laid out in reverse post-order. A block has one position for its start, then
//! two per operation: *early*, where inputs are read and early results written, and
//! *late*, where the other results are. A source that dies at a copy ends early and the
//! copy's destination begins late, so the two may share a register without being told.
//!
//! A stretch ends where the value is written anew, even if it goes on at once: what lies
//! in one stretch is one content. That makes clobbers exact. An operation that overwrites
//! registers between reading and writing harms a value only where a single stretch begins
//! before it and goes on after it.
//!
//! All blocks are swept once, backwards. Where two blocks meet in the layout, only values
//! that are live on one side alone are looked at: the others' stretches go on.

use super::mask::Mask;
use crate::analysis::{Liveness, Order};
use crate::function::{Block, Clobbers, Function, Inst, Role};
use crate::program::{Op, Program, Value};
use crate::target::{File, PReg, RegSet, Target};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// Positions from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stretch {
    /// The first position.
    pub start: u32,
    /// The first position after it.
    pub end: u32,
}

/// An operation that overwrites registers besides its results.
#[derive(Clone, Copy, Debug)]
struct Clobber {
    /// Its early position.
    at: u32,
    /// What it overwrites, among the sets there are.
    set: u16,
}

/// Registers that some operation overwrites: calls all have the same.
struct ClobberSet {
    kind: Clobbers,
    /// By file, the units overwritten.
    units: Vec<Mask<8>>,
}

/// The size of a value's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Which file.
    pub file: File,
    /// How many units.
    pub width: u16,
    /// What its first unit is a multiple of.
    pub align: u16,
}

/// Where all values of a program are alive.
pub struct Ranges {
    first: Vec<u32>,
    stretches: Vec<Stretch>,
    sizes: Vec<Size>,
    /// Values that occur, by where they are first alive.
    by_start: Vec<Value>,
    clobbers: Vec<Clobber>,
    clobber_sets: Vec<ClobberSet>,
    positions: u32,
    peaks: Vec<u32>,
}

impl Ranges {
    /// Sweeps `program`.
    pub fn compute(
        program: &Program,
        target: &Target,
        order: &Order,
        liveness: &Liveness<Value>,
    ) -> Ranges {
        let mut sweep = Sweep::new(program, target, order);
        let mut after: &[Value] = &[];
        for &block in order.all().iter().rev() {
            sweep.boundary(after, liveness.live_out(block), block, program);
            sweep.block(program, target, block);
            after = liveness.live_in(block);
        }
        for &value in after {
            sweep.close(value, 0, 1);
        }
        sweep.finish()
    }

    /// The stretches of `value`, in ascending order.
    pub fn of(&self, value: Value) -> &[Stretch] {
        let index = value.index();
        &self.stretches[self.first[index] as usize..self.first[index + 1] as usize]
    }

    /// The size of the register `value` needs.
    pub fn size(&self, value: Value) -> Size {
        self.sizes[value.index()]
    }

    /// Values that occur, by where they are first alive.
    pub fn by_start(&self) -> &[Value] {
        &self.by_start
    }

    /// How many positions the program has.
    pub fn positions(&self) -> u32 {
        self.positions
    }

    /// The greatest number of units of `file` in use at once: no allocation without
    /// spilling takes fewer.
    pub fn peak(&self, file: File) -> usize {
        self.peaks[file.index()] as usize
    }

    /// Positions that `value` covers.
    pub fn length(&self, value: Value) -> u32 {
        self.of(value).iter().map(|s| s.end - s.start).sum()
    }

    /// Whether the two values are alive at once somewhere.
    pub fn overlap(&self, a: Value, b: Value) -> bool {
        overlap(self.of(a), self.of(b))
    }

    /// Whether each stretch of `inner` lies in one of `outer`.
    pub fn is_within(&self, inner: Value, outer: Value) -> bool {
        let around = self.of(outer);
        self.of(inner).iter().all(|s| {
            let after = around.partition_point(|o| o.end <= s.start);
            around
                .get(after)
                .is_some_and(|o| o.start <= s.start && s.end <= o.end)
        })
    }

    /// The units of its file that are overwritten while `value` is alive.
    pub fn clobbered(&self, value: Value) -> Mask<8> {
        let file = self.size(value).file.index();
        let mut units = Mask::EMPTY;
        let mut seen: SmallVec<[u16; 4]> = SmallVec::new();
        for set in self.clobbers_across(value) {
            if !seen.contains(&set) {
                seen.push(set);
                units.add(&self.clobber_sets[set as usize].units[file]);
                if seen.len() == self.clobber_sets.len() {
                    break;
                }
            }
        }
        units
    }

    /// Whether an operation overwrites registers, of any file, while `value` is alive.
    pub fn crosses_clobber(&self, value: Value) -> bool {
        self.clobbers_across(value).next().is_some()
    }

    fn clobbers_across(&self, value: Value) -> impl Iterator<Item = u16> {
        let clobbers = &self.clobbers[..];
        let stretches = match clobbers.is_empty() {
            true => &[][..],
            false => self.of(value),
        };
        stretches.iter().flat_map(move |s| {
            let from = clobbers.partition_point(|c| c.at <= s.start);
            let inside = clobbers[from..].iter();
            inside.take_while(move |c| c.at + 1 < s.end).map(|c| c.set)
        })
    }

    /// Whether any operation overwrites registers besides its results.
    pub fn has_clobbers(&self) -> bool {
        !self.clobbers.is_empty()
    }
}

/// Whether two ascending lists of stretches share a position.
pub fn overlap(mut a: &[Stretch], mut b: &[Stretch]) -> bool {
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        if x.end <= y.start {
            a = skip(a, y.start);
        } else if y.end <= x.start {
            b = skip(b, x.start);
        } else {
            return true;
        }
    }
    false
}

/// What is in ascending `first` but not in ascending `second`.
fn only_in_first<'a>(first: &'a [Value], second: &'a [Value]) -> impl Iterator<Item = Value> + 'a {
    let mut second = second.iter().copied().peekable();
    first.iter().copied().filter(move |&value| {
        while second.next_if(|&other| other < value).is_some() {}
        second.peek() != Some(&value)
    })
}

/// What is left of `list` after stretches that end by `position`; gallops, as one list may
/// be far longer than the other.
fn skip(list: &[Stretch], position: u32) -> &[Stretch] {
    let mut step = 1;
    while step < list.len() && list[step].end <= position {
        step *= 2;
    }
    let near = &list[step / 2..list.len().min(step + 1)];
    let more = near.partition_point(|s| s.end <= position);
    &list[step / 2 + more..]
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    stretch: Stretch,
    next: u32,
    value: Value,
}

struct Sweep {
    /// First position of each block, by block number.
    bases: Vec<u32>,
    positions: u32,
    sizes: Vec<Size>,
    /// Where each open stretch ends; 0 for values that are not alive.
    open: Vec<u32>,
    /// The earliest stretch of each value so far, in `nodes`.
    heads: Vec<u32>,
    nodes: Vec<Node>,
    clobbers: Vec<Clobber>,
    clobber_sets: Vec<ClobberSet>,
    now: Vec<u32>,
    peaks: Vec<u32>,
}

impl Sweep {
    fn new(program: &Program, target: &Target, order: &Order) -> Sweep {
        let mut bases = vec![0; program.blocks.len()];
        let mut next = 0;
        for &block in order.all() {
            bases[block.index()] = next;
            next += 1 + 2 * program.blocks[block].ops.len() as u32;
        }
        let by_class: Vec<Size> = target
            .classes()
            .map(|(_, c)| Size {
                file: c.file,
                width: c.width as u16,
                align: c.align as u16,
            })
            .collect();
        let values = program.values.len();
        Sweep {
            bases,
            positions: next,
            sizes: program
                .values
                .values()
                .map(|v| by_class[v.class.index()])
                .collect(),
            open: vec![0; values],
            heads: vec![NONE; values],
            nodes: Vec::with_capacity(values + values / 2),
            clobbers: Vec::new(),
            clobber_sets: Vec::new(),
            now: vec![0; target.files().len()],
            peaks: vec![0; target.files().len()],
        }
    }

    /// Moves from the start of a block, where `after` is live, to the end of `block`, which
    /// stands right before it in the layout and where `before` is live.
    fn boundary(&mut self, after: &[Value], before: &[Value], block: Block, program: &Program) {
        let base = self.bases[block.index()] + 1 + 2 * program.blocks[block].ops.len() as u32;
        for value in only_in_first(after, before) {
            self.close(value, base, base + 1);
        }
        for value in only_in_first(before, after) {
            self.begin(value, base);
        }
    }

    fn block(&mut self, program: &Program, target: &Target, block: Block) {
        let base = self.bases[block.index()];
        for (index, op) in program.blocks[block].ops.iter().enumerate().rev() {
            self.operation(program, target, op, base + 1 + 2 * index as u32);
        }
    }

    fn operation(&mut self, program: &Program, target: &Target, op: &Op, early: u32) {
        match op {
            Op::Inst { inst, values } | Op::Recompute { inst, values } => {
                let function = program.function;
                let operands = function.operands(*inst);
                if function.inst(*inst).clobbers != Clobbers::None {
                    let set = self.clobber_set(function, target, *inst);
                    self.clobbers.push(Clobber { at: early, set });
                }
                let accesses = || values.iter().zip(operands).map(|(&v, o)| (v, o.role));
                self.accesses(accesses, early);
            }
            other => {
                let accesses = other.accesses(program.function);
                self.accesses(|| accesses.clone(), early);
            }
        }
    }

    /// The number of the set of registers that `inst` overwrites.
    fn clobber_set(&mut self, function: &Function, target: &Target, inst: Inst) -> u16 {
        let kind = function.inst(inst).clobbers;
        let known = self.clobber_sets.iter().position(|set| set.kind == kind);
        let number = known.unwrap_or_else(|| {
            let registers = function.clobbers(target, inst);
            let files = target.files().map(|(file, _)| file);
            let units = files.map(|file| Mask::of(units_of_file(target, file, &registers)));
            self.clobber_sets.push(ClobberSet {
                kind,
                units: units.collect(),
            });
            self.clobber_sets.len() - 1
        });
        number as u16
    }

    fn accesses<I>(&mut self, accesses: impl Fn() -> I, early: u32)
    where
        I: Iterator<Item = (Value, Role)>,
    {
        let late = early + 1;
        for (value, role) in accesses() {
            if role.writes() && self.open[value.index()] == 0 {
                self.begin(value, late + 1);
            }
        }
        let mut has_early = false;
        for (value, role) in accesses() {
            if role.writes() {
                has_early |= role == Role::EarlyDef;
                let start = if role == Role::EarlyDef { early } else { late };
                self.close(value, start, late + 1);
            }
        }
        for (value, role) in accesses() {
            if role.reads() && self.open[value.index()] == 0 {
                self.begin(value, late);
            }
        }
        if has_early {
            for (value, _) in accesses().filter(|(_, role)| *role == Role::EarlyDef) {
                let size = self.sizes[value.index()];
                let peak = &mut self.peaks[size.file.index()];
                *peak = (*peak).max(self.now[size.file.index()] + u32::from(size.width));
            }
        }
    }

    fn begin(&mut self, value: Value, end: u32) {
        let size = self.sizes[value.index()];
        let file = size.file.index();
        self.now[file] += u32::from(size.width);
        self.peaks[file] = self.peaks[file].max(self.now[file]);
        self.open[value.index()] = end;
    }

    fn close(&mut self, value: Value, start: u32, at_least: u32) {
        let index = value.index();
        let end = std::mem::take(&mut self.open[index]).max(at_least);
        let size = self.sizes[index];
        self.now[size.file.index()] -= u32::from(size.width);
        let head = &mut self.heads[index];
        let next = std::mem::replace(head, self.nodes.len() as u32);
        self.nodes.push(Node {
            stretch: Stretch { start, end },
            next,
            value,
        });
    }

    fn finish(mut self) -> Ranges {
        let mut first = Vec::with_capacity(self.heads.len() + 1);
        let mut stretches = Vec::with_capacity(self.nodes.len());
        for &head in &self.heads {
            first.push(stretches.len() as u32);
            let mut next = head;
            while let Some(node) = self.nodes.get(next as usize) {
                stretches.push(node.stretch);
                next = node.next;
            }
        }
        first.push(stretches.len() as u32);
        // The sweep went backwards, so the last node of a value is its first stretch.
        let heads = &self.heads;
        let nodes = self.nodes.iter().enumerate().rev();
        let by_start = nodes
            .filter(|(index, node)| heads[node.value.index()] == *index as u32)
            .map(|(_, node)| node.value)
            .collect();
        self.clobbers.reverse();
        Ranges {
            first,
            stretches,
            sizes: self.sizes,
            by_start,
            clobbers: self.clobbers,
            clobber_sets: self.clobber_sets,
            positions: self.positions,
            peaks: self.peaks,
        }
    }
}

/// The units of `set` that belong to `file`, by their place in it.
pub fn units_of_file<'a>(
    target: &'a Target,
    file: File,
    set: &'a RegSet,
) -> impl Iterator<Item = usize> + 'a {
    let first = target.unit(PReg::new(file, 0)).index();
    let units = target.file(file).units;
    (0..units).filter(move |u| set.contains(crate::target::Unit((first + u) as u16)))
}
