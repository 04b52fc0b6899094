//! Whether anything is dead in a function, whatever registers it has.
//!
//! A virtual register is *needed* if an instruction with an effect reads it, or one that
//! computes a needed one, or if it is passed to a needed parameter. Marking begins at
//! instructions with effects, so that cycles which only feed themselves stay unmarked. It
//! looks at each operand once.

use crate::function::{Block, Clobbers, Effect, Function, Inst, VReg};
use cranelift_entity::{EntityRef, EntitySet};

/// No definition.
const NONE: u32 = u32::MAX;

/// Whether an instruction, other than those `deleted`, may go, or a parameter is passed in
/// vain. Where a virtual register has several definitions, some may be dead.
pub(super) fn has_dead_code(function: &Function, deleted: &EntitySet<Inst>) -> bool {
    let Some(mut marks) = Marks::new(function, deleted) else {
        return true;
    };
    let insts = || function.insts().filter(|&i| !deleted.contains(i));
    for inst in insts().filter(|&i| has_effect(function, i)) {
        marks.read_by(inst);
    }
    marks.spread();
    let is_needed = |vreg: VReg| marks.needed[vreg.index()];
    let mut params = marks.params.iter();
    let mut computing = insts().filter(|&i| !has_effect(function, i));
    let is_dead = |inst| {
        let mut results = function.operands(inst).iter().filter(|o| o.role.writes());
        !results.any(|o| is_needed(o.vreg))
    };
    params.any(|&(block, at)| !is_needed(function.block(block).params[at as usize]))
        || computing.any(is_dead)
}

/// Whether `inst` does more than write its results.
fn has_effect(function: &Function, inst: Inst) -> bool {
    let info = function.inst(inst);
    info.effect != Effect::Pure || info.kind.is_terminator() || info.clobbers != Clobbers::None
}

struct Marks<'a> {
    function: &'a Function,
    /// The instruction that defines each virtual register, or, beyond the instructions, the
    /// number of the parameter that it is.
    definitions: Vec<u32>,
    params: Vec<(Block, u32)>,
    needed: Vec<bool>,
    /// Marked ones whose definition is yet to be looked at.
    pending: Vec<VReg>,
}

impl<'a> Marks<'a> {
    /// Nothing is marked; nothing at all if some virtual register has several definitions.
    fn new(function: &'a Function, deleted: &EntitySet<Inst>) -> Option<Marks<'a>> {
        let mut marks = Marks {
            function,
            definitions: vec![NONE; function.vreg_count()],
            params: Vec::new(),
            needed: vec![false; function.vreg_count()],
            pending: Vec::new(),
        };
        for block in function.blocks() {
            for (at, &param) in function.block(block).params.iter().enumerate() {
                let number = function.inst_count() + marks.params.len();
                marks.define(param, number)?;
                marks.params.push((block, at as u32));
            }
        }
        for inst in function.insts().filter(|&i| !deleted.contains(i)) {
            for operand in function.operands(inst).iter().filter(|o| o.role.writes()) {
                marks.define(operand.vreg, inst.index())?;
            }
        }
        Some(marks)
    }

    #[inline]
    fn define(&mut self, vreg: VReg, number: usize) -> Option<()> {
        let definition = &mut self.definitions[vreg.index()];
        let before = std::mem::replace(definition, number as u32);
        (before == NONE).then_some(())
    }

    #[inline]
    fn need(&mut self, vreg: VReg) {
        if !std::mem::replace(&mut self.needed[vreg.index()], true) {
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
