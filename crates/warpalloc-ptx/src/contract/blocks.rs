//! What ptxas sees as one block when it contracts.
//!
//! Blocks that only follow each other are one: a label nobody branches to, a branch to the
//! next statement. On the other hand some instructions end a block, for ptxas makes a flow
//! of control of them: slow paths of divisions and square roots, calls, fences, and guarded
//! instructions that do more than compute.

use super::Code;
use crate::ast::{Instruction, Operand};
use warpalloc::analysis::Order;
use warpalloc::function::{Block, Effect, Inst};

/// A straight line of instructions.
pub(super) struct Chain {
    pub insts: Vec<Inst>,
    /// The stretch each instruction belongs to: contraction stays within one.
    pub stretches: Vec<u32>,
    /// The block the line ends with.
    pub last: Block,
}

/// The straight lines of a function; none comes before one that dominates it.
pub(super) struct Chains {
    pub chains: Vec<Chain>,
    pub order: Order,
}

impl Chains {
    pub fn of(code: &Code) -> Chains {
        let function = code.function();
        let order = Order::compute(function);
        let only_successor = |block: Block| {
            let mut succs = function.succs(block).iter().map(|edge| edge.block);
            let first = succs.next()?;
            succs.all(|succ| succ == first).then_some(first)
        };
        let only_predecessor = |block: Block| {
            let mut preds = function.preds(block).iter().copied();
            let mut preds = preds.by_ref().filter(|&pred| order.is_reachable(pred));
            let first = preds.next()?;
            preds.all(|pred| pred == first).then_some(first)
        };
        let next = |block: Block| {
            only_successor(block)
                .filter(|&succ| only_predecessor(succ) == Some(block) && succ != function.entry())
        };
        let continues =
            |block: Block| only_predecessor(block).is_some_and(|pred| next(pred) == Some(block));
        let reachable = order.reverse_postorder().iter().copied();
        let heads = reachable.filter(|&block| !continues(block));
        let chains = heads.map(|head| {
            let mut chain = Chain {
                insts: Vec::new(),
                stretches: Vec::new(),
                last: head,
            };
            let mut block = Some(head);
            let mut stretch = 0;
            while let Some(at) = block {
                for inst in function.block_insts(at) {
                    chain.insts.push(inst);
                    chain.stretches.push(stretch);
                    stretch += u32::from(ends_block(code, inst));
                }
                chain.last = at;
                block = next(at);
            }
            chain
        });
        let chains = chains.collect();
        Chains { chains, order }
    }
}

/// Whether ptxas starts a new block after `inst`, which is not a branch.
pub(super) fn ends_block(code: &Code, inst: Inst) -> bool {
    let Some((statement, _)) = code.statement(inst) else {
        return false;
    };
    let info = code.function().inst(inst);
    if info.kind.is_terminator() || !code.is_useful(inst) {
        return false;
    }
    if statement.guard.is_some() {
        return guarded_ends_block(statement, info.effect);
    }
    let has = |modifier| statement.has(modifier);
    match statement.mnemonic {
        "membar" => !has("proxy"),
        "fence" => has("acq_rel") && !has("proxy") || has("sc"),
        "griddepcontrol" => has("launch_dependents"),
        "createpolicy" => has("range"),
        "tcgen05" => has("alloc") || has("dealloc") || has("relinquish_alloc_permit"),
        "call" | "pmevent" | "brkpt" | "setmaxnreg" | "ret" | "exit" | "trap" => true,
        "div" | "rem" => !has("approx") && !has("full") && !has("u32"),
        "sqrt" | "rcp" => !has("approx"),
        "rsqrt" => has("f64") && !has("ftz"),
        "bfind" => has("u64") || has("s64"),
        // Products of narrow integers that the hardware lacks are calls.
        "mma" | "wmma" => ["s4", "u4", "b1"].into_iter().any(has),
        _ => false,
    }
}

/// A guarded computation is a choice; everything else is branched around.
fn guarded_ends_block(statement: &Instruction, effect: Effect) -> bool {
    match statement.mnemonic {
        "ld" => true,
        "lop3" => matches!(statement.operands.first(), Some(Operand::Pair(_))),
        "stacksave" | "stackrestore" | "alloca" => false,
        "multimem" => statement.has("ld_reduce"),
        "mbarrier" => !statement.has("pending_count"),
        _ => effect != Effect::Pure,
    }
}
