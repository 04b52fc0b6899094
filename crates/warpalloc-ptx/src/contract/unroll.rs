//! What depends on what ptxas does to loops and branches first.
//!
//! ptxas unrolls loops before it contracts. Copies of a body that stand in one block bring a
//! product and a sum together that are in different blocks of the text, and in the last copy
//! they are apart. How many copies there are is not ours to know, so a product whose fusing
//! depends on it is an obstacle. So is one that depends on blocks which ptxas copies because
//! the branches around them go the same way.

use super::blocks::{Chains, ends_block};
use super::choose::{Choice, Leaving};
use super::float::{Form, form};
use super::{Code, Obstacle};
use crate::ast::{Body, Span, Stmt};
use rustc_hash::FxHashSet;
use warpalloc::analysis::{Loop, Loops};
use warpalloc::function::{Block, Inst, Kind, VReg};

const SPREAD: &str = "a product that ptxas may fuse or not: sums in other blocks read it, which \
                      may be joined or moved";

const COPIED: &str = "a product that ptxas may fuse or not: a block between branches on one \
                      predicate may be copied";

/// Makes sure that no product that leaves its block may meet a sum after all.
pub(super) fn foresee(
    code: &Code,
    chains: &Chains,
    choice: &Choice,
    body: &Body,
) -> Result<(), Obstacle> {
    if let Some(&product) = choice.torn.first()
        && branches_twice(code)
    {
        return Err(code.obstacle(product, COPIED));
    }
    if let Some(&product) = choice.spread.first() {
        return Err(code.obstacle(product, SPREAD));
    }
    if let Some(store) = meets_in_memory(code) {
        let reason = "a product that ptxas may fuse or not: local memory takes it to a sum, and \
                      ptxas may keep that in registers";
        return Err(code.obstacle(store, reason));
    }
    if choice.leaving.is_empty() && choice.roaming.is_empty() {
        return Ok(());
    }
    let function = code.function();
    let view = View {
        code,
        loops: Loops::compute(function, &chains.order),
        kept_rolled: pragmas(body),
    };
    for leaving in &choice.leaving {
        view.check(leaving)?;
    }
    for &(product, sum) in &choice.roaming {
        view.check_roaming(product, sum)?;
    }
    Ok(())
}

/// Whether one value decides more than one branch, those around guarded instructions
/// included: ptxas copies what is between them.
fn branches_twice(code: &Code) -> bool {
    let function = code.function();
    let mut seen: FxHashSet<VReg> = FxHashSet::default();
    let guards = function.insts().filter_map(|inst| {
        let (statement, _) = code.statement(inst)?;
        let guard = statement.guard.as_ref()?;
        let is_branch = function.inst(inst).kind.is_terminator() || ends_block(code, inst);
        is_branch
            .then(|| code.value_at(inst, guard.reg.span))
            .flatten()
    });
    let mut guards = guards;
    guards.any(|guard| !seen.insert(guard))
}

/// A store of a product to local memory, where some sum adds what comes from there.
fn meets_in_memory(code: &Code) -> Option<Inst> {
    let function = code.function();
    let is_local = |inst: Inst, mnemonic: &str| {
        let statement = code.statement(inst).map(|(statement, _)| statement);
        statement.is_some_and(|s| s.mnemonic == mnemonic && s.has("local"))
    };
    let useful = || function.insts().filter(|&inst| code.is_useful(inst));
    let reads = |inst: Inst| {
        let operands = function.operands(inst).iter();
        operands.filter(|o| o.role.reads()).map(|o| o.vreg)
    };
    let made_by = |value: VReg, is: &dyn Fn(Inst) -> bool| {
        code.writers(value).iter().any(|&writer| is(writer))
    };
    let adds = useful().any(|inst| {
        matches!(form(code, inst), Form::Sum { .. })
            && reads(inst).any(|value| made_by(value, &|writer| is_local(writer, "ld")))
    });
    let is_product = |writer: Inst| matches!(form(code, writer), Form::Product(_));
    useful()
        .filter(|_| adds)
        .find(|&inst| is_local(inst, "st") && reads(inst).any(|value| made_by(value, &is_product)))
}

/// Where `.pragma "nounroll"` stands.
fn pragmas(body: &Body) -> Vec<Span> {
    let mut found = Vec::new();
    for stmt in &body.stmts {
        match stmt {
            Stmt::Directive(directive) if directive.args.contains("nounroll") => {
                found.push(directive.span);
            }
            Stmt::Scope(inner) => found.extend(pragmas(inner)),
            _ => {}
        }
    }
    found
}

struct View<'c, 'l, 'm, 'a> {
    code: &'c Code<'l, 'm, 'a>,
    loops: Loops,
    kept_rolled: Vec<Span>,
}

impl View<'_, '_, '_, '_> {
    fn check(&self, leaving: &Leaving) -> Result<(), Obstacle> {
        let function = self.code.function();
        let home = function.block_of(leaving.product);
        let sums = self.sums_elsewhere(leaving);
        if sums.is_empty() && !leaving.has_sum {
            return Ok(());
        }
        if (leaving.has_sum || leaving.is_unclear) && !sums.is_empty() {
            return Err(self.code.obstacle(leaving.product, SPREAD));
        }
        if !sums.is_empty() && branches_twice(self.code) {
            return Err(self.code.obstacle(leaving.product, COPIED));
        }
        let obstacle = |what: &str| {
            let reason = format!("a product that ptxas may fuse or not: {what}");
            Err(self.code.obstacle(leaving.product, reason))
        };
        for around in self.loops.around(home) {
            if self.stays_rolled(around) {
                continue;
            }
            let header = self.loops.info(around).header;
            let is_carried = |&vreg: &VReg| self.code.is_live_in(header, vreg);
            if leaving.carriers.iter().any(is_carried) {
                return obstacle("the next turn of the loop reads it, if it is unrolled");
            }
            if leaving.has_sum && self.outlives(leaving, around) {
                return obstacle("it outlives the loop, whose last turn may be unrolled");
            }
            let outside = |&sum: &Inst| !self.loops.contains(around, function.block_of(sum));
            if sums.iter().any(outside) && self.turns_are_constant(around) {
                return obstacle("a sum reads it after a loop that may be unrolled completely");
            }
        }
        for &sum in &sums {
            for around in self.loops.around(function.block_of(sum)) {
                if !self.loops.contains(around, home)
                    && !self.stays_rolled(around)
                    && self.turns_are_constant(around)
                {
                    return obstacle("a sum reads it in a loop that may be unrolled completely");
                }
            }
        }
        if !sums.is_empty() && self.has_constant_branch() {
            return obstacle("a branch between it and a sum may be folded");
        }
        Ok(())
    }

    /// A product that is read behind a loop may come from one of several copies.
    fn check_roaming(&self, product: Inst, sum: Inst) -> Result<(), Obstacle> {
        let function = self.code.function();
        let (home, there) = (function.block_of(product), function.block_of(sum));
        let is_left = |&around: &Loop| !self.loops.contains(around, there);
        let mut left = self.loops.around(home).filter(is_left);
        if left.any(|around| !self.stays_rolled(around)) {
            let reason = "a product that ptxas may fuse or not: a sum reads it behind its loop";
            return Err(self.code.obstacle(product, reason));
        }
        Ok(())
    }

    /// Sums that read the product where it arrives in registers, through copies.
    fn sums_elsewhere(&self, leaving: &Leaving) -> Vec<Inst> {
        let mut sums = Vec::new();
        let mut seen: FxHashSet<VReg> = FxHashSet::default();
        let mut work = leaving.carriers.clone();
        while let Some(vreg) = work.pop() {
            if !seen.insert(vreg) {
                continue;
            }
            for &reader in self.code.readers(vreg) {
                if !self.code.is_useful(reader) {
                    continue;
                }
                match form(self.code, reader) {
                    Form::Sum { mode, .. } if mode == leaving.mode => sums.push(reader),
                    Form::Same { .. } => {
                        let operands = self.code.function().operands(reader);
                        work.extend(operands.iter().filter(|o| o.role.writes()).map(|o| o.vreg));
                    }
                    _ => {}
                }
            }
        }
        sums
    }

    fn outlives(&self, leaving: &Leaving, around: Loop) -> bool {
        let function = self.code.function();
        function.blocks().any(|block| {
            self.loops.contains(around, block)
                && function.succs(block).iter().any(|edge| {
                    let live = |&vreg: &VReg| self.code.is_live_in(edge.block, vreg);
                    !self.loops.contains(around, edge.block) && leaving.carriers.iter().any(live)
                })
        })
    }

    /// Whether the text forbids to unroll a loop, right behind its label.
    fn stays_rolled(&self, around: Loop) -> bool {
        let function = self.code.function();
        let header = self.loops.info(around).header;
        let first = function.block_insts(header).find_map(|inst| {
            let at = self.code.lowered.codes[inst.as_u32() as usize].at;
            Some((at, self.code.lowered.span(inst)?.start))
        });
        first.is_some_and(|(at, start)| {
            let within = |span: &Span| span.start >= at && span.end <= start;
            self.kept_rolled.iter().any(within)
        })
    }

    /// Whether some way out of a loop depends on constants alone.
    fn turns_are_constant(&self, around: Loop) -> bool {
        let function = self.code.function();
        let leaves = |block: Block| {
            let succs = function.succs(block).iter();
            succs.len() > 0
                && succs
                    .clone()
                    .any(|e| self.loops.leaves_loop(block, e.block))
        };
        function
            .blocks()
            .filter(|&block| self.loops.contains(around, block) && leaves(block))
            .any(|block| self.is_constant(function.terminator(block)))
    }

    fn has_constant_branch(&self) -> bool {
        let function = self.code.function();
        function.blocks().any(|block| {
            let branch = function.terminator(block);
            function.succs(block).len() > 1
                && self.loops.innermost(block).is_none()
                && self.is_constant(branch)
        })
    }

    /// Whether what an instruction reads was made from constants only.
    fn is_constant(&self, inst: Inst) -> bool {
        let function = self.code.function();
        let mut seen: FxHashSet<VReg> = FxHashSet::default();
        let read = |inst: Inst| {
            let operands = function.operands(inst).iter();
            operands.filter(|o| o.role.reads()).map(|o| o.vreg)
        };
        let mut work: Vec<VReg> = read(inst).collect();
        while let Some(vreg) = work.pop() {
            if !seen.insert(vreg) {
                continue;
            }
            for &writer in self.code.writers(vreg) {
                let info = function.inst(writer);
                let varies = info.kind == Kind::Undef
                    || info.effect != warpalloc::function::Effect::Pure
                    || self.code.statement(writer).is_none_or(|(statement, _)| {
                        statement.mnemonic == "ld"
                            || statement.mnemonic == "mov" && names_special(statement)
                    });
                if varies {
                    return false;
                }
                work.extend(read(writer));
            }
        }
        true
    }
}

/// Whether a move reads a special register or the address of something.
fn names_special(statement: &crate::ast::Instruction) -> bool {
    use crate::ast::Operand;
    match statement.operands.get(1) {
        Some(Operand::Component(_)) => true,
        Some(Operand::Ident(name)) => crate::opcode::special_register(name.text).is_some(),
        _ => false,
    }
}
