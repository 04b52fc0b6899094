//! The function every allocator is given: SSA with block parameters, one register class of
//! width one, every operand in a register, no constraints and no critical edges.
//!
//! - Block 0 is the entry. Blocks are in reverse post-order, loops contiguous.
//! - A block ends in `Branch` (each successor has this one predecessor), `Jump` (its one
//!   successor has several predecessors and may take arguments) or `Ret`.
//! - Only blocks with several predecessors have parameters.

use anyhow::{Result, ensure};
use std::ops::Range;

/// A value of the function, numbered from zero.
pub type Val = u32;

/// What an instruction does, as far as an allocator may care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Arithmetic without effect.
    Op,
    /// Arithmetic without operands that may be executed again instead of reloading.
    Const,
    /// Reads memory.
    Load,
    /// Writes memory.
    Store,
    Branch,
    Jump,
    Ret,
}

impl Kind {
    /// The name of the kind in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Op => "op",
            Kind::Const => "const",
            Kind::Load => "load",
            Kind::Store => "store",
            Kind::Branch => "branch",
            Kind::Jump => "jump",
            Kind::Ret => "ret",
        }
    }

    pub fn is_terminator(self) -> bool {
        matches!(self, Kind::Branch | Kind::Jump | Kind::Ret)
    }

    /// Whether an instruction whose results nobody reads may go.
    fn is_pure(self) -> bool {
        matches!(self, Kind::Op | Kind::Const | Kind::Load)
    }
}

#[derive(Clone, Debug)]
pub struct Inst {
    pub kind: Kind,
    pub defs: Vec<Val>,
    pub uses: Vec<Val>,
}

#[derive(Clone, Debug, Default)]
pub struct Block {
    pub params: Vec<Val>,
    pub insts: Range<u32>,
    pub succs: Vec<u32>,
    pub preds: Vec<u32>,
    /// Arguments of the jump that ends the block.
    pub args: Vec<Val>,
    /// How many loops the block is in; it is taken to run `10^depth` times.
    pub depth: u32,
    /// Whether the block only splits a critical edge.
    pub is_edge: bool,
}

impl Block {
    pub fn insts(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        self.insts.start as usize..self.insts.end as usize
    }

    /// How often the block is taken to run.
    pub fn frequency(&self) -> f64 {
        10f64.powi(self.depth as i32)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Func {
    pub name: String,
    pub blocks: Vec<Block>,
    pub insts: Vec<Inst>,
    pub vals: u32,
}

impl Func {
    /// Fills in the predecessors.
    pub fn link(&mut self) {
        for block in &mut self.blocks {
            block.preds.clear();
        }
        for b in 0..self.blocks.len() {
            for s in self.blocks[b].succs.clone() {
                self.blocks[s as usize].preds.push(b as u32);
            }
        }
    }

    /// Lets instructions without operands and effects be executed again.
    pub fn mark_constants(&mut self) {
        for inst in &mut self.insts {
            if inst.kind == Kind::Op && inst.uses.is_empty() && inst.defs.len() == 1 {
                inst.kind = Kind::Const;
            }
        }
    }

    /// The most registers that one instruction needs at once.
    pub fn widest_inst(&self) -> usize {
        let needs = |inst: &Inst| inst.defs.len().max(inst.uses.len());
        self.insts.iter().map(needs).max().unwrap_or(0)
    }

    /// Checks the invariants that the module names.
    pub fn validate(&self) -> Result<()> {
        let mut next = 0;
        let mut defined = vec![false; self.vals as usize];
        for (b, block) in self.blocks.iter().enumerate() {
            let range = &block.insts;
            ensure!(
                range.start == next && range.end > next,
                "block {b}: instructions {range:?}"
            );
            next = range.end;
            ensure!(
                (b == 0) == block.preds.is_empty(),
                "block {b}: predecessors"
            );
            ensure!(
                block.params.is_empty() || block.preds.len() > 1,
                "block {b}: parameters"
            );
            let defs = block.insts().flat_map(|i| &self.insts[i].defs);
            for &v in block.params.iter().chain(defs) {
                let twice = std::mem::replace(&mut defined[v as usize], true);
                ensure!(!twice, "v{v} is defined twice");
            }
            for i in block.insts() {
                let inst = &self.insts[i];
                let is_last = i + 1 == range.end as usize;
                ensure!(inst.kind.is_terminator() == is_last, "inst {i}: terminator");
                ensure!(
                    !is_last || inst.defs.is_empty(),
                    "inst {i}: a terminator defines"
                );
                for (n, v) in inst.uses.iter().enumerate() {
                    ensure!(!inst.uses[..n].contains(v), "inst {i} reads v{v} twice");
                }
            }
            let terminator = self.insts[range.end as usize - 1].kind;
            let succs = block.succs.iter().map(|&s| &self.blocks[s as usize]);
            for succ in succs {
                let fits = match terminator {
                    Kind::Branch => succ.preds.len() == 1 && block.args.is_empty(),
                    Kind::Jump => succ.preds.len() > 1 && succ.params.len() == block.args.len(),
                    _ => false,
                };
                ensure!(fits, "block {b}: edge");
            }
            ensure!(
                terminator != Kind::Jump || block.succs.len() == 1,
                "block {b}: a jump with {} successors",
                block.succs.len()
            );
        }
        ensure!(
            next as usize == self.insts.len(),
            "instructions without a block"
        );
        Ok(())
    }
}

/// Where a value is defined.
#[derive(Clone, Copy)]
enum Def {
    Inst(usize),
    Param(usize, usize),
}

/// Removes instructions and parameters that nothing with an effect depends on, and numbers
/// the remaining values.
pub fn without_dead_code(mut f: Func) -> Func {
    f.link();
    let mut def = vec![None; f.vals as usize];
    for (b, block) in f.blocks.iter().enumerate() {
        for (n, &p) in block.params.iter().enumerate() {
            def[p as usize] = Some(Def::Param(b, n));
        }
        for i in block.insts() {
            for &v in &f.insts[i].defs {
                def[v as usize] = Some(Def::Inst(i));
            }
        }
    }
    let mut needed = vec![false; f.vals as usize];
    let mut kept = vec![false; f.insts.len()];
    let mut stack: Vec<Val> = Vec::new();
    for (i, inst) in f.insts.iter().enumerate() {
        if !inst.kind.is_pure() {
            kept[i] = true;
            stack.extend(&inst.uses);
        }
    }
    while let Some(v) = stack.pop() {
        if std::mem::replace(&mut needed[v as usize], true) {
            continue;
        }
        match def[v as usize] {
            Some(Def::Inst(i)) => {
                kept[i] = true;
                stack.extend(&f.insts[i].uses);
            }
            Some(Def::Param(b, n)) => {
                let preds = f.blocks[b].preds.iter();
                stack.extend(preds.map(|&p| f.blocks[p as usize].args[n]));
            }
            None => {}
        }
    }
    let mut number = vec![None; f.vals as usize];
    let mut next = 0;
    let mut renamed = |v: Val| {
        *number[v as usize].get_or_insert_with(|| {
            next += 1;
            next - 1
        })
    };
    let mut insts = Vec::new();
    let old = std::mem::take(&mut f.blocks);
    for block in &old {
        let params = block.params.iter().filter(|&&p| needed[p as usize]);
        let params = params.map(|&p| renamed(p)).collect();
        let args = block.args.iter().enumerate().filter(|(n, _)| {
            let to = &old[block.succs[0] as usize];
            needed[to.params[*n] as usize]
        });
        let args = args.map(|(_, &v)| renamed(v)).collect();
        let start = insts.len() as u32;
        for i in block.insts().filter(|&i| kept[i]) {
            let inst = &f.insts[i];
            insts.push(Inst {
                kind: inst.kind,
                defs: inst.defs.iter().map(|&v| renamed(v)).collect(),
                uses: inst.uses.iter().map(|&v| renamed(v)).collect(),
            });
        }
        f.blocks.push(Block {
            params,
            args,
            insts: start..insts.len() as u32,
            succs: block.succs.clone(),
            preds: vec![],
            ..*block
        });
    }
    f.insts = insts;
    f.vals = next;
    f.link();
    f
}
