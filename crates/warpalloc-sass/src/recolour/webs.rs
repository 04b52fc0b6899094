//! Webs: the parts of a register's life that may be renamed on their own.
//!
//! A web is a set of definitions and reads of one register that must share a name: each read
//! with every definition that reaches it. A definition under a guard continues the web of the
//! old value, which stays where the guard fails, unless nothing can have been written there
//! before: then the old value has no meaning and the definition begins a web.
//!
//! Webs are found by union-find over *elements*: one for each definition, and one for each
//! register that is live where a block begins.

use crate::cfg::Cfg;
use crate::code::Code;
use crate::isa::{Access, File, Inst, Reg, RegSet};
use crate::liveness::Liveness;

/// A web, by number.
pub(crate) type Web = u32;

/// How an operand's lane takes part in its web.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// It is read.
    Read,
    /// It begins a new content.
    Write,
    /// It is written, and what was there before may stay or is read by the same instruction.
    Update,
}

/// One lane of one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lane {
    pub web: Web,
    pub part: Part,
}

/// The webs of a function's general registers and predicates.
#[derive(Debug)]
pub(crate) struct Webs {
    /// The register of each web.
    pub registers: Vec<Reg>,
    /// For each instruction, the lanes of its operands in their order, then its guard's.
    pub lanes: Vec<Vec<Lane>>,
    /// For each instruction, webs that it reads although nothing was ever written there.
    pub undefined_before: Vec<Vec<Web>>,
    /// For each block, webs that are live behind it although nothing was written there on any
    /// way to it.
    pub undefined_behind: Vec<Vec<Web>>,
}

/// Whether registers of this file have webs; the others keep their names.
pub(crate) fn is_renamed(file: File) -> bool {
    matches!(file, File::R | File::P)
}

/// The lanes of an instruction's renamed operands, with the number of the operand each
/// belongs to; the guard's is `None`.
pub(crate) fn renamed_lanes(inst: &Inst) -> impl Iterator<Item = (Option<usize>, Reg, Access)> {
    let operands = inst.operands().iter().enumerate();
    let operands = operands.filter(|(_, operand)| is_renamed(operand.file));
    let lanes = operands.flat_map(|(number, operand)| {
        let registers = operand.registers();
        registers.map(move |reg| (Some(number), reg, operand.access))
    });
    let guard = inst.guard().filter(|guard| !guard.never);
    let guard = guard.filter(|guard| is_renamed(guard.reg.file));
    lanes.chain(guard.map(|guard| (None, guard.reg, Access::Use)))
}

/// The numbers of general registers and predicates in one row.
const REGISTERS: usize = 255 + 7;
const NONE: u32 = u32::MAX;

fn number(reg: Reg) -> usize {
    match reg.file {
        File::P => 255 + usize::from(reg.index),
        _ => usize::from(reg.index),
    }
}

/// Elements, each pointing towards the one that stands for its set.
#[derive(Default)]
struct Elements {
    parents: Vec<u32>,
    registers: Vec<Reg>,
}

impl Elements {
    fn add(&mut self, reg: Reg) -> u32 {
        let element = self.parents.len() as u32;
        self.parents.push(element);
        self.registers.push(reg);
        element
    }

    fn find(&mut self, mut element: u32) -> u32 {
        while self.parents[element as usize] != element {
            let parent = self.parents[element as usize];
            self.parents[element as usize] = self.parents[parent as usize];
            element = parent;
        }
        element
    }

    fn union(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.parents[a.max(b) as usize] = a.min(b);
    }
}

impl Webs {
    /// Finds the webs of reachable code. `writes_early` says of an instruction that it writes
    /// results while it reads sources: a result in a source's register continues its web.
    pub fn find(
        code: &Code,
        cfg: &Cfg,
        liveness: &Liveness,
        writes_early: impl Fn(&Inst) -> bool,
    ) -> Webs {
        let blocks = cfg.blocks();
        let written = written_before(code, cfg);
        let mut elements = Elements::default();
        let mut begin = vec![vec![NONE; REGISTERS]; blocks.len()];
        let held = |block: usize| {
            let mut held = *liveness.live_in(block);
            held.intersect_with(&written[block]);
            held
        };
        for (block, begin) in begin.iter_mut().enumerate() {
            for reg in held(block).iter().filter(|reg| is_renamed(reg.file)) {
                begin[number(reg)] = elements.add(reg);
            }
        }
        let mut lanes = vec![Vec::new(); code.insts().len()];
        let mut undefined_before = vec![Vec::new(); code.insts().len()];
        let mut undefined_behind = vec![Vec::new(); blocks.len()];
        for (index, block) in blocks.iter().enumerate() {
            if !cfg.is_reachable(index) {
                continue;
            }
            let mut now = begin[index].clone();
            for at in block.insts.clone() {
                let inst = &code.insts()[at];
                let mut step = Step {
                    elements: &mut elements,
                    now: &mut now,
                    undefined: &mut undefined_before[at],
                };
                lanes[at] = step.lanes(inst, writes_early(inst));
            }
            for &succ in &block.succs {
                for reg in held(succ).iter().filter(|reg| is_renamed(reg.file)) {
                    let there = begin[succ][number(reg)];
                    match now[number(reg)] {
                        NONE => undefined_behind[index].push(there),
                        here => elements.union(here, there),
                    }
                }
            }
        }
        Webs::number(elements, lanes, undefined_before, undefined_behind)
    }

    /// Gives webs their numbers, in the order of their first elements.
    fn number(
        mut elements: Elements,
        mut lanes: Vec<Vec<Lane>>,
        mut undefined_before: Vec<Vec<Web>>,
        mut undefined_behind: Vec<Vec<Web>>,
    ) -> Webs {
        let mut registers = Vec::new();
        let mut webs = vec![NONE; elements.parents.len()];
        for element in 0..elements.parents.len() as u32 {
            let root = elements.find(element) as usize;
            if webs[root] == NONE {
                webs[root] = registers.len() as u32;
                registers.push(elements.registers[root]);
            }
            webs[element as usize] = webs[root];
        }
        for lane in lanes.iter_mut().flatten() {
            lane.web = webs[lane.web as usize];
        }
        let undefined = undefined_before.iter_mut().chain(&mut undefined_behind);
        for list in undefined {
            for web in list.iter_mut() {
                *web = webs[*web as usize];
            }
            list.sort_unstable();
            list.dedup();
        }
        Webs {
            registers,
            lanes,
            undefined_before,
            undefined_behind,
        }
    }
}

/// One instruction, and the element that each register holds.
struct Step<'a> {
    elements: &'a mut Elements,
    now: &'a mut [u32],
    undefined: &'a mut Vec<Web>,
}

impl Step<'_> {
    fn lanes(&mut self, inst: &Inst, writes_early: bool) -> Vec<Lane> {
        // Reads see what was there before any write.
        let mut lanes: Vec<Lane> = renamed_lanes(inst)
            .map(|(_, reg, access)| Lane {
                web: match access {
                    Access::Use => self.read(reg),
                    Access::Def => NONE,
                },
                part: Part::Read,
            })
            .collect();
        let read = inst.uses();
        for (lane, (_, reg, access)) in lanes.iter_mut().zip(renamed_lanes(inst)) {
            if access == Access::Use {
                continue;
            }
            let old = self.now[number(reg)];
            let stays = inst.guard().is_some() || writes_early && read.contains(reg);
            *lane = match old {
                old if old != NONE && stays => Lane {
                    web: old,
                    part: Part::Update,
                },
                _ => Lane {
                    web: self.elements.add(reg),
                    part: Part::Write,
                },
            };
            self.now[number(reg)] = lane.web;
        }
        lanes
    }

    fn read(&mut self, reg: Reg) -> u32 {
        if self.now[number(reg)] == NONE {
            self.now[number(reg)] = self.elements.add(reg);
            self.undefined.push(self.now[number(reg)]);
        }
        self.now[number(reg)]
    }
}

/// The registers that may have been written before each block.
fn written_before(code: &Code, cfg: &Cfg) -> Vec<RegSet> {
    let blocks = cfg.blocks();
    let writes: Vec<RegSet> = blocks
        .iter()
        .map(|block| {
            let mut set = RegSet::EMPTY;
            for inst in &code.insts()[block.insts.clone()] {
                set.union_with(&inst.defs());
            }
            set
        })
        .collect();
    let mut before = vec![RegSet::EMPTY; blocks.len()];
    let mut work: Vec<usize> = (0..blocks.len()).collect();
    while let Some(block) = work.pop() {
        let mut behind = before[block];
        behind.union_with(&writes[block]);
        for &succ in &blocks[block].succs {
            let mut joined = before[succ];
            joined.union_with(&behind);
            if joined != before[succ] {
                before[succ] = joined;
                if !work.contains(&succ) {
                    work.push(succ);
                }
            }
        }
    }
    before
}
