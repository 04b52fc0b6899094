//! Registers in dominance order, after spilling by next use.
//!
//! ```text
//! pressure ─→ [spill ─→ place stores] ─→ assign ⇄ arrange ─→ connect edges ─→ finish
//! ```
//!
//! What is spilled is decided first, by the distance to the next use and by loops; then
//! everything that is in registers at once fits, and registers are given in one walk over
//! the blocks. There is no interference graph. `docs/scan.md` tells the whole story.

mod affinity;
mod arrange;
mod arrive;
mod assign;
mod carry;
mod code;
mod congruence;
mod demand;
mod edges;
mod entry;
mod fragments;
mod inserted;
mod items;
mod moves;
mod next_use;
mod pick;
mod pins;
mod plain;
mod pressure;
mod recolour;
mod remat;
mod share;
mod spill;
mod steps;
mod stores;
#[cfg(test)]
mod tests;

use crate::allocation::{Allocation, Edits, Frame, Space};
use crate::analysis::Liveness;
use crate::cleanup::Inserted;
use crate::error::{Error, Place};
use crate::frame::callee_saves::save_callee_saved;
use crate::function::{Clobbers, Convention};
use crate::ir::Program;
use crate::stats::Stats;
use crate::target::Target;
use assign::assign;
use code::Code;
use demand::Rooms;
use fragments::Assigned;
use pins::assign_pins;
use pressure::Pressure;
use stores::Stores;

/// Attempts to seat steps whose constraints want more room than their width says.
const ATTEMPTS: usize = 24;

/// How a walk over the blocks ended.
pub(crate) enum Walk {
    /// With an allocation, which is not cleaned up yet, and what is known of its edits.
    Done(Box<Allocation>, Inserted),
    /// A pinned value finds no place for all of its life.
    Unpinned,
    /// A step could not be seated.
    Stuck,
}

/// A program whose pressure is known.
pub(crate) struct Scan<'a> {
    code: Code<'a>,
    rooms: Rooms,
    pressure: Pressure,
}

impl<'a> Scan<'a> {
    /// Measures `program`, whose blocks are those of its function; `liveness` is the
    /// function's, from which the program differs in the order of instructions at most.
    /// Nothing if a pinned value finds no place for all of its life.
    pub fn of_function(
        program: Program<'a>,
        target: &'a Target,
        liveness: &Liveness,
    ) -> Option<Scan<'a>> {
        Scan::of_code(Code::of_function(program, target, liveness))
    }

    fn of_code(mut code: Code<'a>) -> Option<Scan<'a>> {
        let pins = assign_pins(&code)?;
        code.set_pins(pins);
        let rooms = Rooms::new(&code);
        let pressure = Pressure::measure(&code, &rooms, &[]);
        Some(Scan {
            code,
            rooms,
            pressure,
        })
    }

    /// Whether some step needs more registers than there are.
    pub fn is_over_budget(&self) -> bool {
        self.pressure.exceeded.contains(&true)
    }

    /// The same with carriers for values that do not fit their file and cannot be stored.
    fn carried(self, space: Space, stats: &mut Stats) -> Option<Scan<'a>> {
        if !carry::is_needed(&self.code, &self.pressure.exceeded) {
            return Some(self);
        }
        let target = self.code.target;
        let chosen = carry::choose(&self.code, &self.rooms);
        let mut program = self.code.program;
        program.complete();
        program.put_copies_on_edges();
        stats.spilled += carry::carry(&mut program, target, &chosen, space);
        Scan::of_code(Code::of_program(program, target))
    }

    /// Allocates in one walk over the blocks. Values are spilled to `memory`, or not at all where
    /// that is refused.
    pub fn walk(self, memory: Result<Space, Error>, stats: &mut Stats) -> Result<Walk, Error> {
        let space = *memory.as_ref().unwrap_or(&Space::default());
        let Some(scan) = self.carried(space, stats) else {
            return Ok(Walk::Unpinned);
        };
        let Scan {
            code,
            rooms,
            mut pressure,
        } = scan;
        let mut tight: Vec<u8> = Vec::new();
        for _ in 0..ATTEMPTS {
            stats.iterations += 1;
            match attempt(&code, &rooms, &pressure, &tight, space) {
                Ok((assigned, stores)) => {
                    if stores.spilled > 0 {
                        memory?;
                    }
                    stats.spilled += stores.spilled;
                    stats.rematerialised = stores.recomputed;
                    let stats = std::mem::take(stats);
                    let target = code.target;
                    let inserted = assigned.inserted;
                    let allocation = finish(code, target, space, assigned, stores, stats)?;
                    return Ok(Walk::Done(Box::new(allocation), inserted));
                }
                Err(step) => {
                    tight.resize(code.step_count(), 0);
                    let units = &mut tight[step];
                    *units = units.saturating_add(1 + *units / 2);
                    pressure = Pressure::measure(&code, &rooms, &tight);
                }
            }
        }
        Ok(Walk::Stuck)
    }
}

/// Spills and assigns once; fails with the number of a step that could not be seated.
fn attempt(
    code: &Code,
    rooms: &Rooms,
    pressure: &Pressure,
    tight: &[u8],
    space: Space,
) -> Result<(Assigned, Stores), usize> {
    let plan = match pressure.exceeded.contains(&true) {
        true => Some(spill::spill(code, rooms, pressure, tight)?),
        false => None,
    };
    let mut stores = match &plan {
        Some(plan) => Stores::place(code, plan, space),
        None => Stores::none(code.target, space),
    };
    let widest = (0..code::FILES).map(|file| code.units(file)).max();
    let most = std::array::from_fn(|file| pressure.most(file));
    let mut assigned = match widest.unwrap_or(0) {
        0..=64 => assign::<1>(code, plan.as_ref(), &stores, most)?,
        65..=256 => assign::<4>(code, plan.as_ref(), &stores, most)?,
        _ => assign::<8>(code, plan.as_ref(), &stores, most)?,
    };
    edges::connect(code, plan.as_ref(), &mut stores, &mut assigned);
    Ok((assigned, stores))
}

/// Deletes the copies whose results, laid end to end, sit exactly on their inputs; returns
/// how many there are.
fn delete_copies(code: &Code, assigned: &mut Assigned) -> u32 {
    let function = code.function;
    let mut deleted = 0;
    for &(inst, _) in &assigned.copies {
        let units = |reads: bool| {
            let operands = function.operands(inst).iter();
            let registers = &assigned.registers[function.operand_range(inst)];
            let side = operands
                .zip(registers)
                .filter(move |(o, _)| o.role.reads() == reads);
            side.flat_map(|(o, &reg)| {
                let width = code.target.width(function.vreg(o.vreg).class);
                code.target.units(reg, width)
            })
        };
        if units(true).eq(units(false)) {
            deleted += 1;
            assigned.deleted.insert(inst);
        }
    }
    deleted
}

fn finish(
    code: Code,
    target: &Target,
    space: Space,
    mut assigned: Assigned,
    mut stores: Stores,
    mut stats: Stats,
) -> Result<Allocation, Error> {
    let function = code.function;
    stats.copies = assigned.copies.len() as u32;
    stats.coalesced = delete_copies(&code, &mut assigned);
    let mut allocation = Allocation {
        registers: assigned.registers,
        memory: Vec::new(),
        edits: Edits::new(function, std::mem::take(&mut assigned.edits)),
        deleted: assigned.deleted,
        order: code.program.order,
        frame: Frame::default(),
        stats,
    };
    if function.convention() != Convention::Kernel {
        let mut touched = allocation.touched(function, target);
        for inst in function.insts() {
            if function.inst(inst).clobbers != Clobbers::None {
                touched.union_with(&function.clobbers(target, inst));
            }
        }
        let edits = allocation.edits.iter();
        let mut edits: Vec<_> = edits.map(|(point, edit)| (point, edit.clone())).collect();
        let mut insts = allocation.block_insts(function, function.entry());
        let first = insts.next();
        let frame = &mut stores.frame;
        save_callee_saved(function, target, first, &touched, &mut edits, |bytes| {
            frame.push(bytes)
        });
        drop(insts);
        allocation.edits = Edits::new(function, edits);
    }
    let size = stores.frame.size();
    if size > target.frame_limit() {
        return Err(Error::FrameTooLarge {
            place: Place::Function,
            value: None,
            needed: size,
            limit: target.frame_limit(),
            help: "raise the register budget, or split the function".into(),
        });
    }
    match space {
        Space::Shared => allocation.frame.shared = size,
        _ => allocation.frame.local = size,
    }
    allocation.stats.edits = allocation.edits.counts();
    Ok(allocation)
}
