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
mod assign;
mod carry;
mod code;
mod demand;
mod edges;
mod entry;
mod moves;
mod next_use;
mod pins;
mod pressure;
mod remat;
mod share;
mod spill;
mod stores;

use crate::allocation::{Allocation, Edits, Frame, Space};
use crate::analysis::Liveness;
use crate::error::{Error, Place};
use crate::finish::{self, keep_preserved};
use crate::function::{Clobbers, Convention, Function};
use crate::options::Options;
use crate::prepare::schedule::schedule;
use crate::program::Program;
use crate::stats::{EditCounts, Stats};
use crate::strategy::{briggs, naive};
use crate::target::Target;
use assign::{Assigned, assign};
use code::Code;
use demand::Rooms;
use pins::assign_pins;
use pressure::Pressure;
use stores::Stores;

/// Attempts to seat steps whose constraints want more room than their width says.
const ATTEMPTS: usize = 24;

/// Allocates `function` in one walk over its blocks.
pub fn allocate(
    function: &Function,
    liveness: &Liveness,
    target: &Target,
    options: &Options,
) -> Result<Allocation, Error> {
    let order = match options.schedule {
        true => schedule(function, target),
        false => None,
    };
    let program = Program::new(function, target, order)?;
    let mut stats = Stats {
        values: program.values.len() as u32,
        ..Stats::default()
    };
    let mut code = Code::of_function(program, target, liveness);
    let Some(pins) = assign_pins(&code) else {
        return briggs::allocate(function, target, options);
    };
    code.set_pins(pins);
    let mut rooms = Rooms::new(&code);
    let mut pressure = Pressure::measure(&code, &rooms, &[]);
    if carry::is_needed(&code, &pressure.exceeded) {
        let chosen = carry::choose(&code, &rooms);
        let mut program = code.program;
        stats.spilled += carry::carry(&mut program, target, &chosen, options.spill_space);
        code = Code::of_program(program, target);
        let Some(pins) = assign_pins(&code) else {
            return briggs::allocate(function, target, options);
        };
        code.set_pins(pins);
        rooms = Rooms::new(&code);
        pressure = Pressure::measure(&code, &rooms, &[]);
    }
    let mut tight: Vec<u8> = Vec::new();
    for _ in 0..ATTEMPTS {
        stats.iterations += 1;
        match attempt(&code, &rooms, &pressure, &tight, options.spill_space) {
            Ok((assigned, stores)) => {
                stats.spilled += stores.spilled;
                stats.rematerialised = stores.recomputed;
                return finish(&code, target, options, assigned, stores, stats);
            }
            Err(step) => {
                tight.resize(code.step_count(), 0);
                let units = &mut tight[step];
                *units = units.saturating_add(1 + *units / 2);
                pressure = Pressure::measure(&code, &rooms, &tight);
            }
        }
    }
    fall_back(function, target, options, stats)
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
        None => Stores::none(space),
    };
    let widest = (0..code::FILES).map(|file| code.units(file)).max();
    let mut assigned = match widest.unwrap_or(0) {
        0..=64 => assign::<1>(code, plan.as_ref(), &stores)?,
        65..=256 => assign::<4>(code, plan.as_ref(), &stores)?,
        _ => assign::<8>(code, plan.as_ref(), &stores)?,
    };
    edges::connect(code, plan.as_ref(), &mut stores, &mut assigned);
    Ok((assigned, stores))
}

fn finish(
    code: &Code,
    target: &Target,
    options: &Options,
    mut assigned: Assigned,
    mut stores: Stores,
    mut stats: Stats,
) -> Result<Allocation, Error> {
    let function = code.function;
    stats.copies = assigned.copies;
    stats.coalesced = assigned.coalesced;
    let mut allocation = Allocation {
        registers: assigned.registers,
        edits: Edits::new(function, std::mem::take(&mut assigned.edits)),
        deleted: assigned.deleted,
        order: code.program.order.clone(),
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
        keep_preserved(function, target, first, &touched, &mut edits, |bytes| {
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
    match options.spill_space {
        Space::Local => allocation.frame.local = size,
        Space::Shared => allocation.frame.shared = size,
    }
    allocation.stats.edits = EditCounts::of(&allocation.edits);
    let has_spilled = allocation.stats.spilled + allocation.stats.rematerialised > 0;
    if options.finish && has_spilled {
        finish::run(function, target, &mut allocation);
    }
    Ok(allocation)
}

/// Keeps every value in memory: always possible where anything is.
fn fall_back(
    function: &Function,
    target: &Target,
    options: &Options,
    stats: Stats,
) -> Result<Allocation, Error> {
    let allocation = naive::allocate(function, target, options)?;
    Ok(Allocation {
        stats: Stats {
            fell_back: true,
            iterations: stats.iterations,
            ..allocation.stats
        },
        ..allocation
    })
}
