//! An allocated function as code to write out, block by block.
//!
//! [`Allocation`] says where each operand is and what stands at which [point]; a client that
//! writes code wants to know what comes next. [`Allocation::walk`] puts the two together: one
//! iterator per block, over instructions in their final order and edits between them, without
//! what needs no code.
//!
//! Edits on an edge stand where only that edge leads:
//! - at the end of the predecessor, before its terminator, where it has no other successor and
//!   the terminator neither reads nor overwrites registers;
//! - at the start of the successor, where it has no other predecessor;
//! - in a block of their own otherwise, which ends with a jump to the successor: the edge is
//!   critical.
//!
//! [point]: super::Point

use super::{Allocation, Edit, OperandPlaces};
use crate::function::{Block, Clobbers, Function, Inst, Kind};

/// The next thing to write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// An instruction of the function and where its operands are, in their order.
    Inst(Inst, OperandPlaces<'a>),
    /// Code to insert.
    Edit(&'a Edit),
}

/// The beginning of code that a branch may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Label {
    /// A block of the function.
    Block(Block),
    /// A block on the critical edge that leaves this block at this position among its
    /// successors. It holds edits alone, and goes on to the successor.
    Edge(Block, u32),
}

/// Where the edits of an edge stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgePlace {
    /// At the end of the predecessor, before its terminator.
    Predecessor,
    /// At the start of the successor.
    Successor,
    /// In a block of their own.
    Between,
}

impl Function {
    /// Where edits on the edge of `block` at position `succ` among its successors can stand.
    pub fn edge_place(&self, block: Block, succ: u32) -> EdgePlace {
        let succs = self.succs(block);
        let last = self.terminator(block);
        let is_plain = self.operands(last).is_empty() && self.inst(last).clobbers == Clobbers::None;
        if succs.len() == 1 && is_plain {
            return EdgePlace::Predecessor;
        }
        let to = succs.get(succ as usize).map(|edge| edge.block);
        match to.map(|to| self.preds(to)) {
            Some([_]) => EdgePlace::Successor,
            _ => EdgePlace::Between,
        }
    }
}

/// Steps through an allocated function; [`Allocation::walk`] makes it.
#[derive(Clone, Copy)]
pub struct Walk<'a> {
    function: &'a Function,
    allocation: &'a Allocation,
}

impl Allocation {
    /// What to write for `function`, of which this is an allocation.
    ///
    /// ```
    /// use warpalloc::allocation::ValuePlace;
    /// use warpalloc::function::{Builder, Effect};
    /// use warpalloc::target::{Class, Target};
    /// use warpalloc::allocation::Step;
    /// use warpalloc::{Options, allocate};
    ///
    /// let mut b = Builder::new("double");
    /// let entry = b.block();
    /// let [x, copy, y] = [(); 3].map(|()| b.vreg(Class::R32));
    /// b.inst(entry, "load").def(x).effect(Effect::Read);
    /// b.copy(entry, copy, x);
    /// b.inst(entry, "add").def(y).use_(x).use_(copy);
    /// b.inst(entry, "store").use_(y).effect(Effect::Write);
    /// b.exit(entry, "exit");
    /// let function = b.finish();
    ///
    /// let target = Target::hardware(90)?;
    /// let allocation = allocate(&function, &target, &Options::default())?;
    /// let walk = allocation.walk(&function);
    /// let mut lines = Vec::new();
    /// for step in walk.labels().flat_map(|label| walk.steps(label)) {
    ///     match step {
    ///         Step::Inst(inst, places) => {
    ///             let name = function.opcode_name(function.inst(inst).opcode);
    ///             let places = places.iter().map(|place| match place {
    ///                 ValuePlace::Reg(reg) => target.reg_name(reg).to_string(),
    ///                 ValuePlace::Slot(slot) => format!("[frame{}]", slot.offset),
    ///             });
    ///             lines.push(format!("{name} {}", places.collect::<Vec<_>>().join(", ")));
    ///         }
    ///         Step::Edit(edit) => lines.push(format!("{edit:?}")),
    ///     }
    /// }
    /// // The copy was coalesced.
    /// assert_eq!(lines, ["load R0", "add R0, R0, R0", "store R0", "exit "]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn walk<'a>(&'a self, function: &'a Function) -> Walk<'a> {
        let allocation = self;
        Walk {
            function,
            allocation,
        }
    }
}

impl<'a> Walk<'a> {
    /// The blocks of the function in their order, then those on critical edges.
    pub fn labels(self) -> impl Iterator<Item = Label> + 'a {
        let blocks = self.function.blocks();
        let between = self.function.blocks().flat_map(move |block| {
            let succs = 0..self.function.succs(block).len() as u32;
            let ends = succs.map(move |succ| self.successor(block, succ));
            ends.filter(|end| matches!(end, Label::Edge(..)))
        });
        blocks.map(Label::Block).chain(between)
    }

    /// Where the terminator of `block` leads, for its successor at position `succ`;
    /// [`Block::NONE`] if it has no such successor.
    pub fn successor(self, block: Block, succ: u32) -> Label {
        let is_between = || self.function.edge_place(block, succ) == EdgePlace::Between;
        let mut edits = self.allocation.edits.on_edge(block, succ);
        match edits.next() {
            Some(_) if is_between() => Label::Edge(block, succ),
            _ => {
                let edge = self.function.succs(block).get(succ as usize);
                Label::Block(edge.map_or(Block::NONE, |edge| edge.block))
            }
        }
    }

    /// What to write under `label`, in order.
    ///
    /// Left out are deleted instructions, undefined values and the live-in instruction, which
    /// need no code.
    pub fn steps(self, label: Label) -> impl Iterator<Item = Step<'a>> {
        let (block, between) = match label {
            Label::Block(block) => (Some(block), None),
            Label::Edge(block, succ) => (None, Some((block, succ))),
        };
        let arriving = block.and_then(|block| self.arriving(block)).or(between);
        let arriving = arriving
            .into_iter()
            .flat_map(move |edge| self.on_edge(edge));
        let insts = block.into_iter().flat_map(move |block| {
            let insts = self.allocation.block_insts(self.function, block);
            insts.flat_map(move |inst| self.around(block, inst))
        });
        arriving.chain(insts)
    }

    /// The edge whose edits stand at the start of `block`.
    fn arriving(self, block: Block) -> Option<(Block, u32)> {
        let &[pred] = self.function.preds(block) else {
            return None;
        };
        let mut succs = self.function.succs(pred).iter();
        let succ = succs.position(|edge| edge.block == block)? as u32;
        let is_here = self.function.edge_place(pred, succ) == EdgePlace::Successor;
        is_here.then_some((pred, succ))
    }

    fn on_edge(self, (block, succ): (Block, u32)) -> impl Iterator<Item = Step<'a>> {
        self.allocation.edits.on_edge(block, succ).map(Step::Edit)
    }

    /// An instruction with the edits before and after it.
    fn around(self, block: Block, inst: Inst) -> impl Iterator<Item = Step<'a>> {
        let function = self.function;
        let (allocation, info) = (self.allocation, function.inst(inst));
        let is_last = info.kind.is_terminator();
        let leaving = is_last
            && !function.succs(block).is_empty()
            && function.edge_place(block, 0) == EdgePlace::Predecessor;
        let leaving = leaving.then_some((block, 0)).into_iter();
        let leaving = leaving.flat_map(move |edge| self.on_edge(edge));
        let is_code = !matches!(info.kind, Kind::Undef | Kind::LiveIn)
            && !self.allocation.deleted.contains(inst);
        let code = is_code.then(|| Step::Inst(inst, allocation.places(function, inst)));
        let before = allocation.edits.before(inst).map(Step::Edit);
        let after = allocation.edits.after(inst).map(Step::Edit);
        before.chain(leaving).chain(code).chain(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::{Edits, Point};
    use crate::target::{File, PReg, Target};
    use crate::{Options, allocate, text};

    /// A jump, a branch on a value to one block, and a branch whose second edge is critical.
    const EDGES: &str = "
target hardware sm_90
kernel edges {
block0:
    v0:r32 = load #0 : read
    v1:r32 = undef : undef
    bra : branch -> block1
block1:
    brx v0 : branch -> block2
block2:
    if v0 : branch -> block3, block2
block3:
    store v1 : write
    exit : exit write
}
";

    fn edges() -> (Function, Allocation) {
        let function = text::parse(EDGES).unwrap().function;
        let target = Target::hardware(90).unwrap();
        let mut allocation = allocate(&function, &target, &Options::default()).unwrap();
        // Moves that name the edge they stand on.
        let reg = |unit| PReg::new(File::R, unit);
        let list = [(0, 0), (1, 0), (2, 0), (2, 1)].map(|(block, succ)| {
            let to = reg(100 + 10 * block + succ);
            let (from, width) = (reg(0), 1);
            let point = Point::Edge(Block::from_u32(block as u32), succ as u32);
            (point, Edit::Move { to, from, width })
        });
        allocation.edits = Edits::new(&function, list.to_vec());
        (function, allocation)
    }

    #[test]
    fn edits_stand_where_only_their_edge_leads() {
        let (function, _) = edges();
        let place = |block, succ| function.edge_place(Block::from_u32(block), succ);
        assert_eq!(place(0, 0), EdgePlace::Predecessor);
        // It reads a register that the edits may overwrite, and its successor has another
        // predecessor.
        assert_eq!(place(1, 0), EdgePlace::Between);
        assert_eq!(place(2, 0), EdgePlace::Successor);
        assert_eq!(place(2, 1), EdgePlace::Between);
    }

    #[test]
    fn each_edit_and_each_instruction_with_code_is_met_once() {
        let (function, allocation) = edges();
        let walk = allocation.walk(&function);
        let shown: Vec<String> = walk
            .labels()
            .map(|label| {
                let steps = walk.steps(label).map(|step| match step {
                    Step::Inst(inst, _) => {
                        let opcode = function.inst(inst).opcode;
                        function.opcode_name(opcode).to_owned()
                    }
                    Step::Edit(Edit::Move { to, .. }) => format!("edge {}", to.unit - 100),
                    Step::Edit(other) => format!("{other:?}"),
                });
                format!("{label:?}: {}", steps.collect::<Vec<_>>().join(", "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "Block(block0): load, edge 0, bra",
                "Block(block1): brx",
                "Block(block2): if",
                "Block(block3): edge 20, store, exit",
                "Edge(block1, 0): edge 10",
                "Edge(block2, 1): edge 21",
            ]
        );
        let block = Block::from_u32;
        assert_eq!(walk.successor(block(2), 0), Label::Block(block(3)));
        assert_eq!(walk.successor(block(2), 1), Label::Edge(block(2), 1));
    }
}
