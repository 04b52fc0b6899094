//! What takes registers around a constrained step.

use super::assign::Assigner;
use super::code::{Access, FILES, NONE, Shape, Step, is_rewritten};
use super::demand::{extent, is_shared, links, writes_early};
use crate::function::{Block, Clobbers, Role};
use crate::ir::{Link, Op, Value};
use crate::target::{File, UnitSet};
use smallvec::SmallVec;

/// Something that takes registers around a step.
#[derive(Clone, Debug)]
pub(super) struct Item<'l, const W: usize> {
    pub what: What<'l>,
    pub shape: Shape,
    /// Takes units while inputs are read.
    pub before: bool,
    /// Takes units once results are written.
    pub after: bool,
    /// Units it may not touch.
    pub forbidden: UnitSet<W>,
    /// The only place where it may start.
    pub fixed: Option<usize>,
    /// Where it starts now.
    pub now: Option<usize>,
    /// Where it is to start.
    pub place: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What<'l> {
    Link(&'l Link),
    /// A value that is in a register before the step.
    Old(u32),
    /// A value that the step writes.
    New(u32),
}

pub(super) type Items<'l, const W: usize> = SmallVec<[Item<'l, W>; 32]>;

impl<'a, const W: usize> Assigner<'a, W> {
    /// Everything that takes registers around the step.
    pub(super) fn items(
        &self,
        block: Block,
        step: Step,
        accesses: &[Access],
        reloads: &[u32],
        released: &[u32],
    ) -> Items<'a, W> {
        let code = self.code;
        let clobbered = self.clobbered(step);
        let seated = code.seated(block, step);
        let unseated = code.unseated(block, step);
        let mut items: Items<'a, W> = SmallVec::new();
        for link in links(code, block, step) {
            let has = |seat: Value| link.members.iter().any(|m| m.0 == seat);
            let early = writes_early(code, block, step, link);
            let shared = seated.iter().any(|&(seat, real)| {
                has(seat)
                    && self.survives(accesses, released, real.as_u32())
                    && is_shared(code, block, step, seat.as_u32(), real.as_u32())
            });
            let (file, width, align) = extent(code, link);
            items.push(Item {
                what: What::Link(link),
                shape: Shape {
                    file,
                    width,
                    align,
                    reaches_memory: true,
                },
                before: early || seated.iter().any(|s| has(s.0)),
                after: early
                    || shared
                    || unseated.iter().any(|s| has(s.1))
                    || is_written(code, block, step, link),
                forbidden: UnitSet::EMPTY,
                fixed: link.fixed.map(|reg| reg.unit as usize),
                now: None,
                place: None,
            });
        }
        let mut held: SmallVec<[u32; 64]> = SmallVec::new();
        for file in 0..FILES {
            let mut last = NONE;
            for &value in &self.owner[file][..code.units(file)] {
                if value != NONE && value != last {
                    held.push(value);
                }
                last = value;
            }
        }
        let pending = reloads.iter().map(|&v| (v, None));
        let held = held
            .iter()
            .map(|&v| (v, Some(self.at[v as usize] as usize)));
        for (value, now) in held.chain(pending) {
            let survives = self.survives(accesses, released, value);
            let is_seated = seated.iter().any(|s| s.1.as_u32() == value);
            let mut reads = accesses.iter().filter(|a| a.role.reads());
            let free_read = !is_seated && reads.any(|a| a.value == value);
            let absorbed = seated.iter().any(|&(seat, real)| {
                real.as_u32() == value
                    && (!survives || is_shared(code, block, step, seat.as_u32(), value))
            });
            if absorbed && !free_read {
                continue;
            }
            let in_place = accesses
                .iter()
                .any(|a| a.value == value && a.role == Role::UseDef);
            let forbidden = match survives && !in_place {
                true => clobbered[code.shape(value).file],
                false => UnitSet::EMPTY,
            };
            items.push(Item {
                what: What::Old(value),
                shape: code.shape(value),
                before: true,
                after: survives,
                forbidden,
                fixed: None,
                now,
                place: None,
            });
        }
        for &Access { value, role, .. } in accesses {
            let from_seat = unseated.iter().any(|u| u.0.as_u32() == value);
            if matches!(role, Role::Def | Role::EarlyDef) && !from_seat {
                items.push(Item {
                    what: What::New(value),
                    shape: code.shape(value),
                    before: role == Role::EarlyDef,
                    after: true,
                    forbidden: UnitSet::EMPTY,
                    fixed: None,
                    now: None,
                    place: None,
                });
            }
        }
        items
    }

    /// Whether what `value` holds before the step is still needed after it.
    fn survives(&self, accesses: &[Access], released: &[u32], value: u32) -> bool {
        let is_read = |a: &&Access| a.value == value && a.role.reads();
        match accesses.iter().find(is_read) {
            Some(access) if access.role == Role::UseDef => true,
            Some(access) => {
                access.lives && !released.contains(&value) && !is_rewritten(accesses, value)
            }
            None => !is_rewritten(accesses, value),
        }
    }

    fn clobbered(&self, step: Step) -> [UnitSet<W>; FILES] {
        let code = self.code;
        let mut clobbered = [UnitSet::EMPTY; FILES];
        if let Some(inst) = step.inst()
            && code.function.inst(inst).clobbers != Clobbers::None
        {
            let clobbers = code.function.clobbers(code.target, inst);
            for (file, mask) in clobbered
                .iter_mut()
                .enumerate()
                .take(code.target.files().len())
            {
                *mask = UnitSet::of_file(code.target, File::new(file), &clobbers);
            }
        }
        clobbered
    }
}

/// Whether the step writes a seat of `link`, which is one of its own, read afterwards or not.
fn is_written(code: &super::code::Code, block: Block, step: Step, link: &Link) -> bool {
    let Some(Op::Inst { inst, values }) = code.op(block, step) else {
        unreachable!("`links` finds none but those of instructions");
    };
    let mut operands = code.function.operands(*inst).iter().zip(values);
    operands.any(|(o, v)| o.role.writes() && link.members.iter().any(|m| m.0 == *v))
}
