//! Names that are several values, taken apart.
//!
//! Allocation gives each web of a virtual register a place of its own, executes an instruction
//! again after a name that it read has got another value, and lets values of one name change
//! places. So it is the function with webs for names that is proved. That the two functions
//! compute the same is proved first, and nothing of how webs are found is relied on for it.
//!
//! The invariant: at every point, each virtual register that is read later has the value of
//! one web of its own, the same on all paths. A walk over the blocks follows which one that
//! is. Every read must name it, every write makes it another, and all edges into a block must
//! agree on what is live there. Webs of different registers differ, so that a write changes
//! the value of one register alone.

use crate::analysis::{Code, Liveness, Webs};
use crate::function::{Block, Function, Inst, VReg};
use cranelift_entity::{EntityRef, EntitySet, SecondaryMap};

/// A function whose every web is a virtual register, proved to compute the same as the one it
/// was made of.
pub(crate) struct Split {
    pub webs: Webs,
    pub function: Function,
    /// By block: virtual registers that are live at its start with their webs, once reached.
    at_start: Vec<Option<Vec<(VReg, VReg)>>>,
}

/// Whether each virtual register is written at one place, so that it is one web.
pub(crate) fn is_single(function: &Function, written: &mut EntitySet<VReg>) -> bool {
    written.clear();
    let operands = function.insts().flat_map(|inst| function.operands(inst));
    let results = operands.filter(|o| o.role.writes()).map(|o| o.vreg);
    let params = function
        .blocks()
        .flat_map(|block| function.parameters(block));
    results.chain(params).all(|vreg| written.insert(vreg))
}

impl Split {
    /// Splits `function`, if there is something to split. Fails where the result does not
    /// compute the same.
    pub(crate) fn of(
        function: &Function,
        liveness: &Liveness,
    ) -> Result<Option<Split>, &'static str> {
        let webs = Webs::compute(function, liveness);
        if webs.original.len() == function.vreg_count() {
            return Ok(None);
        }
        match faithful(function, liveness, &webs) {
            Some(at_start) => Ok(Some(Split {
                function: webs.split(function),
                webs,
                at_start,
            })),
            None => Err("the webs of a virtual register are mixed up"),
        }
    }

    /// The web that `vreg` is in at the start of `block`, where it is live.
    pub(super) fn at_start(&self, block: Block, vreg: VReg) -> Option<VReg> {
        let row = self.at_start[block.index()].as_deref()?;
        let params = self.function.block(block).params.iter();
        let mut params = params.filter(|&&param| self.webs.original[param] == vreg);
        let position = row.binary_search_by_key(&vreg, |&(live, _)| live);
        params.next().copied().or(position.ok().map(|at| row[at].1))
    }

    /// The web of `vreg` that `inst` writes.
    pub(super) fn written(&self, inst: Inst, vreg: VReg) -> Option<VReg> {
        let operands = self.function.operands(inst).iter();
        let mut written = operands.filter(|o| o.role.writes()).map(|o| o.vreg);
        written.find(|&web| self.webs.original[web] == vreg)
    }
}

type AtStart = Vec<Option<Vec<(VReg, VReg)>>>;

/// What is live at the start of each block that a path reaches, if `webs` are right.
fn faithful(function: &Function, liveness: &Liveness, webs: &Webs) -> Option<AtStart> {
    let (mut params, mut args) = (Vec::new(), Vec::new());
    let (mut param, mut arg) = (0, 0);
    for block in function.blocks() {
        params.push(param);
        args.push(arg);
        param += function.parameters(block).count();
        arg += function.arguments(block).count();
    }
    let mut walk = Walk {
        function,
        webs,
        current: SecondaryMap::new(),
        stamp: 0,
    };
    let mut at_start: AtStart = vec![None; function.block_count()];
    at_start[function.entry().index()] = Some(Vec::new());
    let mut pending = vec![function.entry()];
    while let Some(block) = pending.pop() {
        walk.stamp += 1;
        for &(vreg, web) in at_start[block.index()].iter().flatten() {
            walk.write(vreg, web)?;
        }
        for (vreg, number) in function.parameters(block).zip(params[block.index()]..) {
            walk.write(vreg, *webs.names.params.get(number)?)?;
        }
        for inst in function.block_insts(block) {
            walk.inst(inst)?;
        }
        for (vreg, number) in function.arguments(block).zip(args[block.index()]..) {
            walk.read(vreg, *webs.names.args.get(number)?)?;
        }
        for edge in function.succs(block) {
            let live = liveness.live_in(edge.block);
            let arriving: Option<Vec<_>> = live.map(|v| Some((v, walk.holds(v)?))).collect();
            let mut arriving = arriving?;
            arriving.sort_unstable();
            match &mut at_start[edge.block.index()] {
                Some(known) if *known == arriving => {}
                Some(_) => return None,
                unknown => {
                    *unknown = Some(arriving);
                    pending.push(edge.block);
                }
            }
        }
    }
    Some(at_start)
}

struct Walk<'a> {
    function: &'a Function,
    webs: &'a Webs,
    /// The web that a register is in, and the block in which that was learnt.
    current: SecondaryMap<VReg, (u32, Option<VReg>)>,
    stamp: u32,
}

impl Walk<'_> {
    fn holds(&self, vreg: VReg) -> Option<VReg> {
        let (stamp, web) = self.current[vreg];
        web.filter(|_| stamp == self.stamp)
    }

    fn read(&self, vreg: VReg, web: VReg) -> Option<()> {
        (self.holds(vreg) == Some(web)).then_some(())
    }

    fn write(&mut self, vreg: VReg, web: VReg) -> Option<()> {
        self.current[vreg] = (self.stamp, Some(web));
        (self.webs.original.get(web) == Some(&vreg)).then_some(())
    }

    fn inst(&mut self, inst: Inst) -> Option<()> {
        let operands = self.function.operands(inst);
        let names = self
            .webs
            .names
            .operands
            .get(self.function.operand_range(inst))?;
        for (operand, &web) in operands.iter().zip(names) {
            if operand.role.reads() {
                self.read(operand.vreg, web)?;
            }
        }
        for (operand, &web) in operands.iter().zip(names) {
            if operand.role.writes() {
                self.write(operand.vreg, web)?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{self, Rng, Shape};
    use crate::target::Target;

    /// Any name that is exchanged for another is noticed.
    #[test]
    fn webs_that_are_mixed_up_are_refused() {
        let target = Target::hardware(90).unwrap();
        let (mut sound, mut refused) = (0, 0);
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let shape = Shape::random(80, &mut rng);
            let function = generate::function(&shape, &target, &mut rng);
            let liveness = Liveness::compute(&function);
            let webs = Webs::compute(&function, &liveness);
            assert!(
                faithful(&function, &liveness, &webs).is_some(),
                "seed {seed}"
            );
            sound += usize::from(webs.original.len() > function.vreg_count());
            let reachable = |operand: usize| {
                let insts = function
                    .insts()
                    .find(|&i| function.operand_range(i).contains(&operand));
                insts.is_some_and(|inst| {
                    let all = faithful(&function, &liveness, &webs).unwrap();
                    all[function.block_of(inst).index()].is_some()
                })
            };
            let at = rng.below(webs.names.operands.len());
            let mut wrong = webs.clone();
            let other = rng.below(webs.original.len());
            wrong.names.operands[at] = VReg::new(other);
            let is_used = function.insts().any(|inst| {
                let range = function.operand_range(inst);
                range.contains(&at) && function.operands(inst)[at - range.start].role.reads()
            });
            if wrong.names.operands[at] != webs.names.operands[at] && is_used && reachable(at) {
                assert!(
                    faithful(&function, &liveness, &wrong).is_none(),
                    "seed {seed}"
                );
                refused += 1;
            }
        }
        assert!(sound > 50 && refused > 50, "{sound}, {refused}");
    }
}
