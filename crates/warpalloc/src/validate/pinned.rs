//! Rules for values that may not be moved.

use super::*;
use crate::analysis::LiveSet;

impl Rules<'_> {
    /// A result that is tied to a pinned value takes its register over. A later reader of the
    /// value would need a copy of it, which cannot be made.
    pub(super) fn pinned(&self, liveness: &Liveness) -> Result<(), Error> {
        let f = self.function;
        if !f.vregs().any(|v| f.vreg(v).pinned) {
            return Ok(());
        }
        let mut live = LiveSet::new(f.vreg_count());
        for block in f.blocks() {
            if f.block_insts(block)
                .all(|inst| self.takes_over(inst).next().is_none())
            {
                continue;
            }
            live.start_at_end(liveness, block);
            for inst in f.block_insts(block).rev() {
                for (result, pinned) in self.takes_over(inst) {
                    if live.contains(pinned) {
                        let message = format!(
                            "{result} is tied to {pinned}, which is pinned and read afterwards"
                        );
                        return invalid(Place::Inst(block, inst), message);
                    }
                }
                live.step_back(f.operands(inst));
            }
        }
        Ok(())
    }

    /// Results of `inst` and the pinned inputs, other than themselves, that they are tied to.
    fn takes_over(&self, inst: Inst) -> impl Iterator<Item = (VReg, VReg)> {
        let f = self.function;
        let operands = f.operands(inst);
        operands.iter().filter_map(move |operand| {
            let Constraint::Tied(to) = operand.constraint else {
                return None;
            };
            let input = operands.get(to as usize)?.vreg;
            let moves = f.vreg(input).pinned && input != operand.vreg;
            moves.then_some((operand.vreg, input))
        })
    }
}
