//! Prologue and epilogue: callee-saved registers.

use crate::allocation::{Edit, Point, SlotAddr};
use crate::function::{Convention, Function, Inst, Kind};
use crate::target::{RegSet, Target};

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
