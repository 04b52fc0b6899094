//! Registers in flight.
//!
//! `wgmma.mma_async` and `tcgen05.ld` hand registers to hardware, which reads and writes them
//! when it pleases, until a wait takes them back. Meanwhile nothing may touch them: no
//! instruction of ours and no other value.
//!
//! Which registers are in flight where is a forward dataflow over names. For each name we
//! keep how many groups were at least committed since it was handed over, as
//! `wgmma.wait_group N` leaves the N latest groups alone; where paths meet, the smaller number
//! counts, and what is in flight on one path is in flight. Loads from tensor memory need no
//! commit: every `tcgen05.wait::ld` takes all of them back.
//!
//! A wait is followed by *landings*, instructions without text. A landing reads what the
//! wait took back, so that it is alive up to there, and gives it on as a new value in the same
//! register. So names fall into webs that are in flight, which are pinned all their life, and
//! webs at rest, which may be moved and spilled like any other; and whatever must happen to a
//! register because of its later readers happens behind the wait. An accumulator that is in
//! flight around a loop is one web with its initial value.
//!
//! Compilers copy registers in flight, trusting ptxas to make nothing of the copies. What is
//! copied to is then in flight as well, and what was copied need not be kept if nobody
//! reads it behind the wait. What was loaded from tensor memory is also read before the
//! wait, for ptxas sees to it that it has arrived: such a reader has landings before it; and
//! in a function that never waits for loads, they are loads like any other.

use super::builder::{Draft, DraftInst, DraftReg};
use super::{Code, bare};
use crate::opcode::AsyncKind;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use warpalloc::analysis::Webs;
use warpalloc::function::{Constraint, Effect, Kind, Operand, Role, VReg};

/// The part of an instruction in an asynchronous operation on registers.
#[derive(Clone, Debug, Default)]
pub(super) enum Flight {
    /// None.
    #[default]
    None,
    /// Hands these operands over.
    Starts(AsyncKind, Box<[u8]>),
    /// Closes a group.
    Commits(AsyncKind),
    /// Takes back all but so many of the latest groups.
    Completes(AsyncKind, u8),
    /// Copies registers in flight.
    Passes,
    /// Reads the registers that a wait took back, and defines each as a new value. For each,
    /// whether it was also copied to another name while in flight.
    Lands(Box<[bool]>),
}

const KINDS: [AsyncKind; 2] = [AsyncKind::WarpgroupMma, AsyncKind::TensorLoad];

/// Names that one landing takes: each is read and written.
const NAMES_PER_LANDING: usize = 64;

/// As many groups committed as we count.
const MOST_GROUPS: u8 = 64;

/// Inserts landings behind waits and keeps alive what nobody waits for; the answer is
/// what kinds of operations have registers in flight.
pub(super) fn land(draft: &mut Draft) -> Result<Vec<AsyncKind>, &'static str> {
    let names = Names::of(draft);
    if names.list.is_empty() {
        return Ok(Vec::new());
    }
    let states = names.solve(draft);
    let ends = reaching_an_end(draft);
    for (index, mut state) in states.into_iter().enumerate() {
        let old = std::mem::take(&mut draft.blocks[index].insts);
        let mut insts = Vec::with_capacity(old.len());
        let mut waiting: Option<Vec<Landed>> = None;
        for mut inst in old {
            if let Some(landed) = waiting.take() {
                insts.extend(landed.chunks(NAMES_PER_LANDING).map(|c| landing(c, &inst)));
            }
            let arrived = names.arrive(&mut state, &inst);
            insts.extend(arrived.chunks(NAMES_PER_LANDING).map(|c| landing(c, &inst)));
            let landed = names.step(&mut state, &inst);
            if names.is_passed(&state, &inst) {
                inst.flight = Flight::Passes;
            }
            waiting = (!landed.is_empty()).then_some(landed);
            insts.push(inst);
        }
        let is_last = draft.blocks[index].succs.is_empty() || !ends[index];
        if is_last && let Some(end) = insts.last_mut() {
            names.keep(&state, end)?;
        }
        draft.blocks[index].insts = insts;
    }
    let mut kinds: Vec<AsyncKind> = names.list.iter().map(|name| name.0).collect();
    kinds.dedup();
    Ok(kinds)
}

/// An instruction behind the wait, in front of `next`.
fn landing<'m, 'a>(names: &[Landed], next: &DraftInst<'m, 'a>) -> DraftInst<'m, 'a> {
    let mut inst = bare("landing", Kind::Plain, Code::nothing(next.code.at));
    inst.effect = Effect::Write;
    for landed in names {
        inst.operands.push(Operand::reads(landed.name));
        let tied = Constraint::Tied(inst.operands.len() as u8 - 1);
        inst.operands
            .push(Operand::writes(landed.name).constrained(tied));
    }
    inst.flight = Flight::Lands(names.iter().map(|landed| landed.passed).collect());
    inst
}

/// Gives every web a virtual register of its own, pins those in flight, and lets landings
/// write only what is read.
///
/// A pinned value cannot be copied to stand beside others or to be written over, so it is in
/// no group and nothing is tied to it.
pub(super) fn settle(draft: &mut Draft, webs: &Webs, kinds: &[AsyncKind]) {
    let reg = |&original: &VReg| DraftReg {
        pinned: false,
        ..draft.regs[original.as_u32() as usize]
    };
    draft.regs = webs.original.values().map(reg).collect();
    let mut names = webs.names.operands.iter();
    let insts = draft.blocks.iter_mut().flat_map(|block| &mut block.insts);
    for inst in insts {
        for (operand, &name) in inst.operands.iter_mut().zip(names.by_ref()) {
            operand.vreg = name;
        }
        let mut pin = |o: &Operand| draft.regs[o.vreg.as_u32() as usize].pinned = true;
        match &inst.flight {
            Flight::Starts(kind, operands) if kinds.contains(kind) => {
                let handed_over = operands.iter().map(|&o| &inst.operands[usize::from(o)]);
                handed_over.for_each(pin);
            }
            Flight::Passes => {
                let results = inst.operands.iter().filter(|o| o.role.writes());
                results.for_each(&mut pin);
            }
            _ => {}
        }
    }
    join_pinned(draft);
    let mut read = vec![false; draft.regs.len()];
    for inst in draft.blocks.iter().flat_map(|block| &block.insts) {
        for operand in inst.operands.iter().filter(|o| o.role.reads()) {
            read[operand.vreg.as_u32() as usize] = true;
        }
    }
    let insts = draft.blocks.iter_mut().flat_map(|block| &mut block.insts);
    for inst in insts {
        if let Flight::Lands(passed) = &inst.flight {
            inst.operands = landed(&inst.operands, passed, &read);
        }
        let is_pinned = |o: &Operand| draft.regs[o.vreg.as_u32() as usize].pinned;
        if !matches!(inst.flight, Flight::Lands(_)) {
            untie(&mut inst.operands, is_pinned);
        }
        let operands = &inst.operands;
        inst.groups
            .retain(|group| !operands[group.range()].iter().any(is_pinned));
    }
}

/// Keeps results apart from all inputs that could not make way for them.
///
/// What an instruction may do in place is tied: its result takes over the register of an
/// input, which is copied first if somebody still reads it. A pinned one cannot be copied.
fn untie(operands: &mut [Operand], is_pinned: impl Fn(&Operand) -> bool) {
    for index in 0..operands.len() {
        if let Constraint::Tied(input) = operands[index].constraint
            && is_pinned(&operands[usize::from(input)])
        {
            operands[index].constraint = Constraint::Any;
            operands[index].role = Role::EarlyDef;
        }
    }
}

/// Makes one web of two where a landing leads from one that is pinned to another: neither
/// could be moved to where the other is.
fn join_pinned(draft: &mut Draft) {
    let mut joined: Vec<VReg> = (0..draft.regs.len() as u32).map(VReg::from_u32).collect();
    let find = |joined: &[VReg], mut vreg: VReg| {
        while joined[vreg.as_u32() as usize] != vreg {
            vreg = joined[vreg.as_u32() as usize];
        }
        vreg
    };
    let is_pinned = |o: &Operand| draft.regs[o.vreg.as_u32() as usize].pinned;
    for inst in draft.blocks.iter().flat_map(|block| &block.insts) {
        let is_landing = matches!(inst.flight, Flight::Lands(_));
        for pair in inst.operands.chunks_exact(2).filter(|_| is_landing) {
            if pair.iter().all(is_pinned) {
                let (a, b) = (find(&joined, pair[0].vreg), find(&joined, pair[1].vreg));
                joined[a.max(b).as_u32() as usize] = a.min(b);
            }
        }
    }
    let insts = draft.blocks.iter_mut().flat_map(|block| &mut block.insts);
    for operand in insts.flat_map(|inst| &mut inst.operands) {
        operand.vreg = find(&joined, operand.vreg);
    }
}

/// The operands of a landing: what goes on as the same web is read and written in place.
fn landed(pairs: &[Operand], passed: &[bool], read: &[bool]) -> SmallVec<[Operand; 4]> {
    let mut operands = SmallVec::new();
    for (pair, &passed) in pairs.chunks_exact(2).zip(passed) {
        let (from, to) = (pair[0].vreg, pair[1].vreg);
        let goes_on = read[to.as_u32() as usize];
        if from == to {
            operands.push(Operand::with_role(from, Role::UseDef));
        } else if goes_on || !passed {
            operands.push(Operand::reads(from));
        }
        if from != to && goes_on {
            let tied = Constraint::Tied(operands.len() as u8 - 1);
            operands.push(Operand::writes(to).constrained(tied));
        }
    }
    operands
}

/// A name that a wait takes back.
struct Landed {
    name: VReg,
    /// Whether another name has its contents as well.
    passed: bool,
}

/// The names that are ever in flight.
struct Names {
    list: Vec<(AsyncKind, VReg)>,
    index: FxHashMap<(AsyncKind, VReg), usize>,
}

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Held {
    /// How many groups were committed since it was handed over.
    groups: u8,
    /// Whether another name has its contents as well.
    passed: bool,
}

/// The neutral element where paths meet.
const AT_REST: Held = Held {
    groups: u8::MAX,
    passed: true,
};

/// By name.
type State = Vec<Held>;

impl Names {
    fn of(draft: &Draft) -> Names {
        let mut names = Names {
            list: Vec::new(),
            index: FxHashMap::default(),
        };
        let insts = || draft.blocks.iter().flat_map(|block| &block.insts);
        let waits =
            |inst: &DraftInst| matches!(inst.flight, Flight::Completes(AsyncKind::TensorLoad, _));
        let waits_for_loads = insts().any(waits);
        for inst in insts() {
            if let Flight::Starts(kind, operands) = &inst.flight {
                if *kind == AsyncKind::TensorLoad && !waits_for_loads {
                    continue;
                }
                for &operand in operands {
                    names.add(*kind, inst.operands[usize::from(operand)].vreg);
                }
            }
        }
        let mut known = 0;
        while known < names.list.len() {
            known = names.list.len();
            for inst in insts().filter(|inst| inst.kind == Kind::Copy) {
                for kind in KINDS {
                    if names.sources(kind, inst).next().is_some() {
                        let results = inst.operands.iter().filter(|o| o.role.writes());
                        results.for_each(|o| names.add(kind, o.vreg));
                    }
                }
            }
        }
        names
    }

    fn add(&mut self, kind: AsyncKind, vreg: VReg) {
        let next = self.list.len();
        if *self.index.entry((kind, vreg)).or_insert(next) == next {
            self.list.push((kind, vreg));
        }
    }

    /// The names that a copy reads.
    fn sources(&self, kind: AsyncKind, copy: &DraftInst) -> impl Iterator<Item = usize> {
        let inputs = copy.operands.iter().filter(|o| o.role.reads());
        inputs.filter_map(move |o| self.index.get(&(kind, o.vreg)).copied())
    }

    /// The names that a copy writes.
    fn results(&self, kind: AsyncKind, copy: &DraftInst) -> impl Iterator<Item = usize> {
        let results = copy.operands.iter().filter(|o| o.role.writes());
        results.filter_map(move |o| self.index.get(&(kind, o.vreg)).copied())
    }

    /// The state at the start of each block.
    fn solve(&self, draft: &Draft) -> Vec<State> {
        let count = draft.blocks.len();
        let mut states = vec![vec![AT_REST; self.list.len()]; count];
        let mut stack: Vec<usize> = (0..count).rev().collect();
        let mut is_waiting = vec![true; count];
        while let Some(block) = stack.pop() {
            is_waiting[block] = false;
            let mut state = states[block].clone();
            for inst in &draft.blocks[block].insts {
                self.arrive(&mut state, inst);
                self.step(&mut state, inst);
            }
            for succ in draft.blocks[block].succs.iter().map(|&s| s as usize) {
                if meet(&mut states[succ], &state) && !is_waiting[succ] {
                    is_waiting[succ] = true;
                    stack.push(succ);
                }
            }
        }
        states
    }

    /// The names in front of an instruction that must have arrived: because it reads them,
    /// or because it writes them anew, and no wait behind it can name what they were.
    fn arrive(&self, state: &mut State, inst: &DraftInst) -> Vec<Landed> {
        let is_plain = inst.kind != Kind::Copy && matches!(inst.flight, Flight::None);
        let reads = |name| {
            let mut inputs = inst.operands.iter().filter(|o| o.role.reads());
            inputs.any(|o| o.vreg == name)
        };
        let mut landed: Vec<Landed> = Vec::new();
        for name in inst.operands.iter().map(|o| o.vreg) {
            let mut passed = None;
            for kind in KINDS {
                let known = self.index.get(&(kind, name)).copied();
                let Some(at) = known.filter(|&at| state[at] != AT_REST) else {
                    continue;
                };
                let arrives_to_be_read = is_plain && kind == AsyncKind::TensorLoad;
                if arrives_to_be_read || !reads(name) {
                    passed = Some(passed.unwrap_or(true) && state[at].passed);
                    state[at] = AT_REST;
                }
            }
            landed.extend(passed.map(|passed| Landed { name, passed }));
        }
        landed
    }

    /// Goes over an instruction and tells which names it takes back.
    fn step(&self, state: &mut State, inst: &DraftInst) -> Vec<Landed> {
        let of_kind = |kind: AsyncKind| {
            let names = self.list.iter().enumerate();
            names.filter(move |(_, name)| name.0 == kind)
        };
        let mut landed = Vec::new();
        match &inst.flight {
            Flight::Starts(kind, operands) => {
                for &operand in operands {
                    let name = (*kind, inst.operands[usize::from(operand)].vreg);
                    if let Some(&at) = self.index.get(&name) {
                        state[at] = handed_over(*kind);
                    }
                }
            }
            Flight::Commits(kind) => {
                for (at, _) in of_kind(*kind) {
                    if state[at].groups < MOST_GROUPS {
                        state[at].groups += 1;
                    }
                }
            }
            Flight::Completes(kind, pending) => {
                for (at, &(_, name)) in of_kind(*kind) {
                    let Held { groups, passed } = state[at];
                    if state[at] != AT_REST && groups > *pending {
                        state[at] = AT_REST;
                        landed.push(Landed { name, passed });
                    }
                }
            }
            Flight::None if inst.kind == Kind::Copy => self.pass(state, inst),
            Flight::None | Flight::Passes | Flight::Lands(_) => {}
        }
        landed
    }

    /// What a copy of registers in flight writes is in flight.
    fn pass(&self, state: &mut State, copy: &DraftInst) {
        for kind in KINDS {
            let in_flight = |at: &usize| state[*at] != AT_REST;
            let sources: SmallVec<[usize; 2]> =
                self.sources(kind, copy).filter(in_flight).collect();
            let groups = sources.iter().map(|&at| state[at].groups).min();
            for at in sources {
                state[at].passed = true;
            }
            for at in self.results(kind, copy) {
                state[at] = groups.map_or(AT_REST, |groups| Held {
                    groups,
                    passed: false,
                });
            }
        }
    }

    /// Whether what a copy has written, after it, is in flight.
    fn is_passed(&self, state: &State, inst: &DraftInst) -> bool {
        let mut results = KINDS.into_iter().flat_map(|kind| self.results(kind, inst));
        inst.kind == Kind::Copy && results.any(|at| state[at] != AT_REST)
    }

    /// Keeps alive up to the end, or through each block that never comes to one, what
    /// nobody has waited for.
    fn keep(&self, state: &State, end: &mut DraftInst) -> Result<(), &'static str> {
        for (&(_, name), held) in self.list.iter().zip(state) {
            if *held != AT_REST && !held.passed {
                end.operands.push(Operand::reads(name));
            }
        }
        match end.operands.len() > super::instruction::MAX_OPERANDS {
            true => Err("more registers are in flight at its end than one instruction can name"),
            false => Ok(()),
        }
    }
}

/// The blocks from which a path leads out of the function. What is in flight in the others,
/// which run forever, is never seen to the end.
fn reaching_an_end(draft: &Draft) -> Vec<bool> {
    let mut preds: Vec<Vec<usize>> = vec![Vec::new(); draft.blocks.len()];
    for (index, block) in draft.blocks.iter().enumerate() {
        for &succ in &block.succs {
            preds[succ as usize].push(index);
        }
    }
    let mut reaching = vec![false; draft.blocks.len()];
    let is_end = |&block: &usize| draft.blocks[block].succs.is_empty();
    let mut stack: Vec<usize> = (0..draft.blocks.len()).filter(is_end).collect();
    while let Some(block) = stack.pop() {
        if !std::mem::replace(&mut reaching[block], true) {
            stack.extend(&preds[block]);
        }
    }
    reaching
}

/// What is known of a name just handed over: loads need no group to be waited for.
fn handed_over(kind: AsyncKind) -> Held {
    let groups = match kind {
        AsyncKind::WarpgroupMma => 0,
        AsyncKind::TensorLoad => MOST_GROUPS,
    };
    let passed = false;
    Held { groups, passed }
}

/// Brings `state` down to what also holds after `other`; the answer is whether it changed.
fn meet(state: &mut State, other: &State) -> bool {
    let mut changed = false;
    for (known, new) in state.iter_mut().zip(other) {
        let both = Held {
            groups: known.groups.min(new.groups),
            passed: known.passed && new.passed,
        };
        changed |= both != *known;
        *known = both;
    }
    changed
}
