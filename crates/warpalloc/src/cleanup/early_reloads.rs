//! Reloads ahead of their readers.
//!
//! Spilling leaves a reload right before its reader, which then waits for memory. A reload moves up
//! in its block until so many instructions stand between the two, as far as its register is free
//! and its slot holds the value: no other register is taken, and pressure stays within the file.

use super::code::{Code, Locations, Step};
use crate::allocation::{Edit, Point};
use crate::function::Clobbers;

/// Moves reloads of `code` until `ahead` instructions stand between each and its first reader;
/// returns how many moved.
pub(crate) fn run(code: &mut Code, ahead: u32) -> u32 {
    let ahead = ahead as usize;
    if ahead == 0 || code.is_frameless() {
        return 0;
    }
    let mut moved = 0;
    let mut blocks = std::mem::take(&mut code.blocks);
    for steps in &mut blocks {
        for at in 0..steps.len() {
            if let Some(to) = earlier(code, steps, at, ahead) {
                move_up(steps, at, to);
                moved += 1;
            }
        }
    }
    code.blocks = blocks;
    moved
}

/// Where the step at `at` should stand, if it is a reload that can be earlier.
fn earlier(code: &Code, steps: &[Step], at: usize, ahead: usize) -> Option<usize> {
    let (_, reload) = steps[at].edit()?;
    let Edit::Reload { to, width, .. } = *reload else {
        return None;
    };
    let units = code.units(to, usize::from(width));
    let until = steps[at + 1..].iter();
    let until = until.take_while(|step| !reads_any(code, step, &units));
    // Further on nobody waits.
    let near = until
        .filter(|step| matches!(step, Step::Inst(_)))
        .take(ahead);
    let mut missing = ahead - near.count();
    let mut place = None;
    for before in (0..at).rev() {
        if missing == 0 || !may_pass(code, &steps[before], reload) {
            break;
        }
        if let Step::Inst(_) = steps[before] {
            place = Some(before);
            missing -= 1;
        }
    }
    place
}

/// Whether `step` reads one of these units.
fn reads_any(code: &Code, step: &Step, units: &[u32]) -> bool {
    let (reads, _) = access(code, step);
    reads.iter().any(|unit| units.contains(unit))
}

/// Whether `reload` may stand before `step` instead of after it.
fn may_pass(code: &Code, step: &Step, reload: &Edit) -> bool {
    // A clobbered register holds nothing behind the instruction.
    if let Step::Inst(inst) = *step
        && code.function.inst(inst).clobbers != Clobbers::None
    {
        return false;
    }
    let (reads, writes) = access(code, step);
    let (from, to) = code.edit_access(reload);
    let apart = |a: &[u32], b: &[u32]| a.iter().all(|x| !b.contains(x));
    apart(&writes, &from) && apart(&reads, &to) && apart(&writes, &to)
}

/// What `step` reads and what it writes.
fn access(code: &Code, step: &Step) -> (Locations, Locations) {
    match step {
        Step::Edit(_, edit) => code.edit_access(edit),
        Step::Inst(inst) => code.inst_access(*inst),
    }
}

/// Moves the edit at `from` right before the instruction at `to`.
fn move_up(steps: &mut [Step], from: usize, to: usize) {
    let Step::Inst(inst) = steps[to] else {
        return;
    };
    if let Step::Edit(point, _) = &mut steps[from] {
        *point = Point::Before(inst);
    }
    steps[to..=from].rotate_right(1);
}
