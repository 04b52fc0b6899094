//! Whether anything is dead in a function, whatever registers it has.
//!
//! A virtual register is *needed* if an instruction with an effect reads it, or one that
//! computes a needed one, or if it is passed to a needed parameter. A walk from the last
//! instruction to the first marks them: most are read behind their definition. Where a loop
//! passes one on whose definition is behind the walk already, marking goes back there. Cycles
//! that only feed themselves stay unmarked.

use crate::function::{Block, Function, Inst, VReg};
use cranelift_entity::{EntityRef, EntitySet};

/// No definition.
const NONE: u32 = u32::MAX;

/// Whether there may be dead code, those `deleted` aside: an instruction that may go, a copy, or
/// a parameter that is passed in vain. Where a virtual register has several definitions, some
/// may be dead.
pub(super) fn has_dead_code(function: &Function, deleted: &EntitySet<Inst>) -> bool {
    let mut marks = Marks {
        function,
        definitions: vec![NONE; function.vreg_count()],
        params: Vec::new(),
        needed: vec![false; function.vreg_count()],
        pending: Vec::new(),
        doubtful: Vec::new(),
    };
    if marks.walk(deleted).is_none() {
        return true;
    }
    let is_needed = |vreg: VReg| marks.needed[vreg.index()];
    let mut params = marks.params.iter();
    let mut computing = marks.doubtful.iter();
    let is_dead = |&inst: &Inst| {
        let mut results = function.operands(inst).iter().filter(|o| o.role.writes());
        !results.any(|o| is_needed(o.vreg))
    };
    params.any(|&(block, at)| !is_needed(function.block(block).params[at as usize]))
        || computing.any(is_dead)
}

struct Marks<'a> {
    function: &'a Function,
    /// The instruction that defines each virtual register, or, beyond the instructions, the
    /// number of the parameter that it is; known once the walk has come there.
    definitions: Vec<u32>,
    params: Vec<(Block, u32)>,
    needed: Vec<bool>,
    /// Marked ones whose definition the walk has passed.
    pending: Vec<VReg>,
    /// Instructions whose results were not marked when the walk came there.
    doubtful: Vec<Inst>,
}

impl Marks<'_> {
    /// Marks what is needed; nothing if there is a copy, or a virtual register has several
    /// definitions.
    fn walk(&mut self, deleted: &EntitySet<Inst>) -> Option<()> {
        let function = self.function;
        for block in function.blocks().rev() {
            for inst in function.block_insts(block).rev() {
                if !deleted.contains(inst) {
                    self.instruction(inst)?;
                }
            }
            for (at, &param) in function.block(block).params.iter().enumerate() {
                let number = function.inst_count() + self.params.len();
                self.define(param, number)?;
                self.params.push((block, at as u32));
                if self.needed[param.index()] {
                    self.passed_to(block, at);
                }
            }
            self.spread();
        }
        Some(())
    }

    #[inline]
    fn instruction(&mut self, inst: Inst) -> Option<()> {
        let traits = self.function.traits(inst);
        if traits.is_copy() {
            return None;
        }
        let mut stays = traits.has_effect();
        let operands = self.function.operands(inst);
        for operand in operands.iter().filter(|o| o.role.writes()) {
            self.define(operand.vreg, inst.index())?;
            stays |= self.needed[operand.vreg.index()];
        }
        match stays {
            true => self.read_by(inst),
            false => self.doubtful.push(inst),
        }
        Some(())
    }

    #[inline]
    fn define(&mut self, vreg: VReg, number: usize) -> Option<()> {
        let definition = &mut self.definitions[vreg.index()];
        let before = std::mem::replace(definition, number as u32);
        (before == NONE).then_some(())
    }

    #[inline]
    fn need(&mut self, vreg: VReg) {
        let was_needed = std::mem::replace(&mut self.needed[vreg.index()], true);
        if !was_needed && self.definitions[vreg.index()] != NONE {
            self.pending.push(vreg);
        }
    }

    #[inline]
    fn read_by(&mut self, inst: Inst) {
        let function = self.function;
        for operand in function.operands(inst).iter().filter(|o| o.role.reads()) {
            self.need(operand.vreg);
        }
    }

    fn spread(&mut self) {
        let function = self.function;
        while let Some(vreg) = self.pending.pop() {
            let definition = self.definitions[vreg.index()] as usize;
            let param = definition.checked_sub(function.inst_count());
            match param {
                None => self.read_by(Inst::new(definition)),
                Some(number) => {
                    if let Some(&(block, at)) = self.params.get(number) {
                        self.passed_to(block, at as usize);
                    }
                }
            }
        }
    }

    /// Marks what edges pass to the parameter of `block` at position `at`.
    fn passed_to(&mut self, block: Block, at: usize) {
        let function = self.function;
        for &pred in function.preds(block) {
            let edges = function.succs(pred).iter().filter(|e| e.block == block);
            for edge in edges {
                self.need(edge.args[at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn has_dead(body: &str) -> bool {
        let text = format!("target hardware sm_90\nkernel f {{\n{body}\n}}");
        let function = text::parse(&text).unwrap().function;
        has_dead_code(&function, &EntitySet::new())
    }

    #[test]
    fn a_loop_that_is_needed() {
        assert!(!has_dead(
            "block0:
                 v0:r32 = load #0 : read
                 bra : branch -> block1(v0)
             block1(v1:r32):
                 v2:r32 = add v1
                 if v2 : branch -> block1(v2), block2
             block2:
                 store v1 : write
                 exit : exit write"
        ));
    }

    #[test]
    fn a_result_without_a_reader() {
        assert!(has_dead(
            "block0:
                 v0:r32 = load #0 : read
                 v1:r32 = add v0
                 store v0 : write
                 exit : exit write"
        ));
    }

    #[test]
    fn a_counter_that_only_counts() {
        assert!(has_dead(
            "block0:
                 v0:r32 = load #0 : read
                 v3:r32 = load #1 : read
                 bra : branch -> block1(v0)
             block1(v1:r32):
                 v2:r32 = add v1
                 if v3 : branch -> block1(v2), block2
             block2:
                 exit : exit write"
        ));
    }

    /// Nothing else shows it: the load stays, but moves of what it loads may go.
    #[test]
    fn a_parameter_that_nothing_reads() {
        assert!(has_dead(
            "block0:
                 v0:r32 = load #0 : read
                 bra : branch -> block1(v0)
             block1(v1:r32):
                 exit : exit write"
        ));
    }

    #[test]
    fn a_definition_among_several() {
        assert!(has_dead(
            "block0:
                 v0:r32 = load #0 : read
                 v0 = add v0
                 store v0 : write
                 exit : exit write"
        ));
    }
}
