//! Files that cannot reach memory.
//!
//! Predicates and uniform registers travel through another file. Where they are more than
//! there is, whole values are given a *carrier*, a value of the other file that holds their
//! contents from each definition to each read ([`crate::spill::Spiller`]), until the rest
//! fit; a carrier is then spilled like any other value.

use super::code::{Access, Code};
use super::demand::{Rooms, demand, indirect_files};
use super::next_use::NextUse;
use crate::allocation::Space;
use crate::analysis::NEVER;
use crate::ir::{Facts, Op, Program, Value, ValueInfo};
use crate::spill::{SpillChoice, SpillPolicy, Spiller};
use crate::target::Target;
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// Chooses values of files that cannot reach memory until the others fit: at each point
/// where there are too many, those read last.
pub(super) fn choose(code: &Code, rooms: &Rooms) -> Vec<Value> {
    let mut chosen = vec![false; code.value_count()];
    let files = indirect_files(code);
    let mut next = NextUse::new(code);
    for &block in code.order.all() {
        next.enter(code, block, code.live_out(block).map(|v| (v, 1000)));
        let mut live: Vec<u32> = code.live_in(block).collect();
        for number in code.steps(block) {
            let step = code.step(number);
            let accesses = code.accesses(number);
            loop {
                let mut load = super::demand::Load::default();
                let here = live.iter().filter(|&&v| !chosen[v as usize]);
                here.for_each(|&v| load.add(code.shape(v)));
                let is_read = |v: u32| accesses.iter().any(|a| a.value == v && a.role.reads());
                let reads = live.iter().filter(|&&v| chosen[v as usize] && is_read(v));
                reads.for_each(|&v| load.add(code.shape(v)));
                let dies = |v: u32| {
                    let at = accesses.iter().position(|a| a.value == v);
                    at.is_some_and(|at| next.after(at) == NEVER) || chosen[v as usize]
                };
                let demand = demand(code, block, step, accesses, load, dies);
                let excess = rooms
                    .excess_before(code, &demand, 0, files)
                    .or_else(|| rooms.excess(code, step, &demand, 0, files));
                let counts = |v: u32| {
                    excess.is_some_and(|excess| {
                        let shape = code.shape(v);
                        !shape.reaches_memory
                            && shape.file == excess.file
                            && shape.align >= excess.align
                    })
                };
                let may_go = |&&v: &&u32| {
                    let info = &code.program.values[Value::from_u32(v)];
                    !chosen[v as usize] && counts(v) && !info.unspillable
                };
                let after = |v: u32| {
                    let at = accesses.iter().position(|a| a.value == v);
                    at.map_or(next.of(v), |at| next.after(at))
                };
                let written = accesses.iter().filter(|a| a.role.writes());
                let written = written.map(|a| &a.value);
                let all = live.iter().chain(written).filter(may_go);
                match all.max_by_key(|&&v| (after(v), v)) {
                    Some(&victim) => chosen[victim as usize] = true,
                    None => break,
                }
            }
            next.advance(accesses);
            for &Access { value, role, .. } in accesses {
                if role.writes() && !live.contains(&value) {
                    live.push(value);
                }
            }
            live.retain(|&v| next.of(v) != NEVER);
        }
        next.leave();
    }
    let values = chosen.iter().enumerate().filter(|(_, chosen)| **chosen);
    values.map(|(value, _)| Value::new(value)).collect()
}

/// Gives each of `values` a carrier.
pub(super) fn carry(program: &mut Program, target: &Target, values: &[Value], space: Space) -> u32 {
    let policy = SpillPolicy {
        lazy_reload: false,
        rematerialise: false,
        ..SpillPolicy::default()
    };
    let mut spiller = Spiller::new(target, policy, space);
    let facts = Facts::of(program);
    let choice = SpillChoice::exactly(values.to_vec());
    let carried = spiller.spill(program, &facts, &choice).carried;
    rejoin(program);
    carried
}

/// Puts the copies into and out of an instruction's seats next to it again, where transfers
/// came between, and lets transfers to and from seats pass through values of their own.
fn rejoin(program: &mut Program) {
    let mut seat_of = vec![false; program.values.len()];
    for link in &program.links {
        link.members
            .iter()
            .for_each(|m| seat_of[m.0.index()] = true);
    }
    let seat_of = |value: Value| seat_of.get(value.index()).copied().unwrap_or(false);
    for block in program.blocks.keys() {
        let mut rest = std::mem::take(&mut program.blocks[block].ops)
            .into_iter()
            .peekable();
        let mut out: Vec<Op> = Vec::new();
        while let Some(op) = rest.next() {
            let Op::Inst { values, .. } = &op else {
                out.push(op);
                continue;
            };
            if !values.iter().any(|&v| seat_of(v)) {
                out.push(op);
                continue;
            }
            let own = values.clone();
            let start = out.len()
                - out
                    .iter()
                    .rev()
                    .take_while(|op| feeds(op, &own, seat_of))
                    .count();
            let (mut pairs, mut transfers) = (SmallVec::new(), Vec::new());
            for op in out.drain(start..) {
                match op {
                    Op::Copies(more) => pairs.extend(more),
                    Op::Transfer { to: seat, from } if seat_of(seat) => {
                        let to = aside(program, seat);
                        transfers.push(Op::Transfer { to, from });
                        pairs.push((seat, to));
                    }
                    op => transfers.push(op),
                }
            }
            out.append(&mut transfers);
            out.extend((!pairs.is_empty()).then_some(Op::Copies(pairs)));
            out.push(op);
            let mut pairs = SmallVec::new();
            while let Some(op) = rest.next_if(|op| drains(op, &own, seat_of)) {
                match op {
                    Op::Copies(more) => pairs.extend(more),
                    Op::Transfer { to, from: seat } if seat_of(seat) => {
                        let from = aside(program, seat);
                        transfers.push(Op::Transfer { to, from });
                        pairs.push((from, seat));
                    }
                    op => transfers.push(op),
                }
            }
            out.extend((!pairs.is_empty()).then_some(Op::Copies(pairs)));
            out.append(&mut transfers);
        }
        program.blocks[block].ops = out;
    }
}

/// Whether `op` only brings values to an instruction over `own`.
fn feeds(op: &Op, own: &[Value], is_seat: impl Fn(Value) -> bool) -> bool {
    match op {
        Op::Copies(pairs) => pairs
            .iter()
            .all(|&(to, _)| own.contains(&to) && is_seat(to)),
        Op::Transfer { to, .. } => own.contains(to),
        _ => false,
    }
}

/// Whether `op` only takes values from an instruction over `own`.
fn drains(op: &Op, own: &[Value], is_seat: impl Fn(Value) -> bool) -> bool {
    match op {
        Op::Copies(pairs) => pairs
            .iter()
            .all(|&(_, from)| own.contains(&from) && is_seat(from)),
        Op::Transfer { from, .. } => own.contains(from),
        _ => false,
    }
}

/// A new value of the class of `seat`, alive around one instruction only.
fn aside(program: &mut Program, seat: Value) -> Value {
    let info = ValueInfo {
        is_result: false,
        forbidden: None,
        unspillable: true,
        ..program.values[seat].clone()
    };
    program.values.push(info)
}

/// Whether any file that cannot reach memory is among `exceeded`.
pub(super) fn is_needed(code: &Code, exceeded: &[bool]) -> bool {
    let indirect = indirect_files(code);
    (0..exceeded.len()).any(|file| exceeded[file] && indirect >> file & 1 == 1)
}
