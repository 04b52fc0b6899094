//! Prologue and epilogue: callee-saved registers.

use crate::allocation::{Allocation, Edit, Edits, Point, SlotAddr, Space};
use crate::function::{Clobbers, Convention, Function, Inst, Kind};
use crate::target::{File, PReg, RegSet, Target};

/// Saves the callee-saved registers among `touched` before `first`, the function's first
/// instruction, and restores them at each return. `slot` makes slots in the frame.
///
/// The saves come before every other edit and the restores after the edits of their
/// return, so `edits` must be complete.
pub fn save_callee_saved(
    function: &Function,
    target: &Target,
    first: Option<Inst>,
    touched: &RegSet,
    edits: &mut Vec<(Point, Edit)>,
    mut slot: impl FnMut(u32) -> SlotAddr,
) {
    let Some(first) = first.filter(|_| function.convention() == Convention::Device) else {
        return;
    };
    let mut saves = Vec::new();
    for &reg in &target.abi().preserved {
        let info = target.file(reg.file);
        let units = info.units_per_reg;
        let exists = reg.unit as usize + units <= info.units;
        if !exists || !touched.overlaps(target, reg, units) {
            continue;
        }
        let slot = slot((units * info.unit_bytes) as u32);
        let width = units as u8;
        let save = Edit::Store {
            to: slot,
            from: reg,
            width,
        };
        saves.push((Point::Before(first), save));
        for inst in function.insts() {
            if function.inst(inst).kind == Kind::Return {
                let restore = Edit::Reload {
                    to: reg,
                    from: slot,
                    width,
                };
                edits.push((Point::Before(inst), restore));
            }
        }
    }
    saves.append(edits);
    *edits = saves;
}

/// Saves and restores the callee-saved registers of `target` that are beyond `rest`, the smaller
/// budget for which `allocation` was made: instructions may clobber them, and an operand be fixed
/// to one.
pub fn save_beyond(
    function: &Function,
    target: &Target,
    rest: &Target,
    allocation: &mut Allocation,
) {
    let budget = rest.file(File::MAIN).units;
    let beyond = |reg: &PReg| reg.file == File::MAIN && reg.unit as usize >= budget;
    let preserved = target.abi().preserved.iter().copied().filter(beyond);
    let mut touched = RegSet::of_registers(target, preserved);
    if touched.is_empty() {
        return;
    }
    let mut left = touched.clone();
    left.subtract(&allocation.touched(function, target));
    for inst in function.insts() {
        if function.inst(inst).clobbers != Clobbers::None {
            left.subtract(&function.clobbers(target, inst));
        }
    }
    touched.subtract(&left);
    if touched.is_empty() {
        return;
    }
    let edits = allocation.edits.iter();
    let mut edits: Vec<_> = edits.map(|(point, edit)| (point, edit.clone())).collect();
    let first = allocation.block_insts(function, function.entry()).next();
    // The slots lie below the frame, whose own slots stay aligned from its low end.
    let low = -(allocation.frame.local as i32);
    let mut bytes = 0;
    save_callee_saved(function, target, first, &touched, &mut edits, |size| {
        bytes += size;
        SlotAddr {
            space: Space::Local,
            offset: low - bytes as i32,
        }
    });
    allocation.frame.local += bytes.next_multiple_of(target.slot_align());
    allocation.edits = Edits::new(function, edits);
    allocation.stats.edits = allocation.edits.counts();
}
