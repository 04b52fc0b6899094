//! Basic blocks and the edges between them.
//!
//! A section of code can hold a kernel and the functions it calls. A call to one of them is an
//! edge to its first instruction; a return is an edge to every instruction that follows a
//! call of the function it is in. Paths that enter by one call and return to another are in
//! the graph too, so that what is computed over it holds for every path that can run.
//!
//! A call by an address that counts from the beginning of the code is an edge to every function
//! that `Links` says may be called so.
//!
//! A call is taken to return behind itself. ptxas also uses a guarded `CALL.REL.NOINC` as a
//! branch to code that never returns; no return is reachable from there, so that it has no
//! edge back either.
//!
//! Convergence barriers do not move control: threads that wait at a `BSYNC` go on behind it.

use crate::code::Code;
use crate::isa::{CallTarget, Flow};
use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::ops::Range;

/// What is known about the code from outside it. Offsets are in bytes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Links {
    /// Where functions begin that may be entered from outside, beside offset 0.
    pub entries: Vec<usize>,
    /// For the offset of a call by an address in registers, where in this code it can go; one
    /// that is not here goes elsewhere.
    pub by_address: FxHashMap<usize, Vec<usize>>,
    /// For the offset of an indirect branch, where it can go.
    pub tables: FxHashMap<usize, Vec<usize>>,
    /// For the offset of a call whose target a relocation gives, where in this code it goes;
    /// none for a function elsewhere.
    pub calls: FxHashMap<usize, Option<usize>>,
    /// Where the code of another section begins. Control does not run into it from the
    /// instruction before.
    pub sections: Vec<usize>,
}

impl Links {
    /// Takes in what is known about code that stands at `start` of this one.
    pub(crate) fn append(&mut self, other: Links, start: usize) {
        let moved = |at: usize| at.saturating_add(start);
        let all = |places: Vec<usize>| places.into_iter().map(moved).collect();
        let lists = |map: FxHashMap<usize, Vec<usize>>| {
            let rows = map.into_iter();
            rows.map(move |(at, places)| (moved(at), all(places)))
        };
        self.entries.extend(other.entries.into_iter().map(moved));
        self.sections.extend(other.sections.into_iter().map(moved));
        self.by_address.extend(lists(other.by_address));
        self.tables.extend(lists(other.tables));
        let calls = other.calls.into_iter();
        self.calls
            .extend(calls.map(|(at, to)| (moved(at), to.map(moved))));
    }
}

/// The control flow of code cannot be told.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CfgError {
    /// An indirect branch has no table.
    #[error("at 0x{offset:04x}: {mnemonic} goes where registers say, and no branch table is known")]
    Indirect {
        /// Where it is.
        offset: usize,
        /// The branch.
        mnemonic: &'static str,
    },
    /// A target is not an instruction of this code.
    #[error("at 0x{offset:04x}: {mnemonic} goes to 0x{target:x}, where no instruction begins")]
    Target {
        /// Where the branch is.
        offset: usize,
        /// The branch.
        mnemonic: &'static str,
        /// Where it goes.
        target: i64,
    },
    /// An entry is not an instruction of this code.
    #[error("no instruction begins at the entry 0x{offset:x}")]
    Entry {
        /// Where it would be.
        offset: usize,
    },
    /// Control runs past the last instruction.
    #[error("control runs past the end of the code at 0x{offset:04x}")]
    End {
        /// The offset behind the last instruction.
        offset: usize,
    },
}

/// How control leaves the code at the end of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// It does not.
    No,
    /// The thread ends.
    Exit,
    /// The function returns to code that is not here.
    Return,
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The numbers of its instructions.
    pub insts: Range<usize>,
    /// The blocks that may come next.
    pub succs: SmallVec<[usize; 2]>,
    /// The blocks that it may come after.
    pub preds: SmallVec<[usize; 2]>,
    /// Whether control may leave the code here.
    pub leaves: Leave,
    /// Whether the block ends in a call.
    pub calls: bool,
    /// Whether the block ends in a call of code that is not here.
    pub calls_outside: bool,
}

/// The control-flow graph of a function's code.
#[derive(Clone, Debug)]
pub struct Cfg {
    blocks: Vec<Block>,
    block_of: Vec<usize>,
    entries: Vec<usize>,
    reachable: FixedBitSet,
}

impl Cfg {
    /// Finds the blocks and edges.
    pub fn build(code: &Code, links: &Links) -> Result<Self, CfgError> {
        Builder { code, links }.build()
    }

    /// The blocks, in the order of the code.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The block of an instruction.
    pub fn block_of(&self, inst: usize) -> usize {
        self.block_of[inst]
    }

    /// The blocks where control enters from outside: the first, and where `Links` says so.
    pub fn entries(&self) -> &[usize] {
        &self.entries
    }

    /// The blocks that can be reached, each after its predecessors but for those of back edges.
    pub fn reverse_postorder(&self) -> Vec<usize> {
        let blocks = self.blocks();
        let mut seen = FixedBitSet::with_capacity(blocks.len());
        let mut order = Vec::new();
        for &entry in self.entries() {
            if seen.put(entry) {
                continue;
            }
            let mut stack = vec![(entry, 0)];
            while let Some((block, next)) = stack.last_mut() {
                match blocks[*block].succs.get(*next) {
                    Some(&succ) => {
                        *next += 1;
                        if !seen.put(succ) {
                            stack.push((succ, 0));
                        }
                    }
                    None => {
                        order.push(*block);
                        stack.pop();
                    }
                }
            }
        }
        order.reverse();
        order
    }

    /// Whether control can reach a block from an entry.
    pub fn is_reachable(&self, block: usize) -> bool {
        self.reachable.contains(block)
    }
}

/// Where one instruction sends control, by instruction number.
struct Ends {
    next: bool,
    targets: SmallVec<[usize; 2]>,
    calls: SmallVec<[usize; 2]>,
    returns: bool,
    exits: bool,
    ends_block: bool,
}

struct Builder<'a> {
    code: &'a Code,
    links: &'a Links,
}

impl Builder<'_> {
    fn index(&self, at: usize, target: i64) -> Result<usize, CfgError> {
        usize::try_from(target)
            .ok()
            .filter(|target| target % 16 == 0 && target / 16 < self.code.insts().len())
            .map(|target| target / 16)
            .ok_or(CfgError::Target {
                offset: at,
                mnemonic: self
                    .code
                    .insts()
                    .get(at / 16)
                    .map_or("code", |inst| inst.mnemonic()),
                target,
            })
    }

    fn ends(&self, index: usize) -> Result<Ends, CfgError> {
        let inst = &self.code.insts()[index];
        let at = Code::offset(index);
        let never = inst.guard().is_some_and(|guard| guard.never);
        let guarded = inst.guard().is_some();
        let mut ends = Ends {
            next: true,
            targets: SmallVec::new(),
            calls: SmallVec::new(),
            returns: false,
            exits: false,
            ends_block: false,
        };
        if never || inst.flow() == Flow::Next {
            return Ok(ends);
        }
        ends.ends_block = true;
        // Offsets fit: code is far smaller than 2^63 bytes.
        let relative = |displacement: i64| displacement.saturating_add(at as i64 + 16);
        match inst.flow() {
            Flow::Next => {}
            Flow::Branch {
                displacement,
                conditional,
            } => {
                ends.next = guarded || conditional;
                ends.targets.push(self.index(at, relative(displacement))?);
            }
            Flow::IndirectBranch => {
                ends.next = guarded;
                let table = self.links.tables.get(&at).ok_or(CfgError::Indirect {
                    offset: at,
                    mnemonic: inst.mnemonic(),
                })?;
                for &target in table {
                    ends.targets.push(self.index(at, target as i64)?);
                }
            }
            Flow::Call { target } => match (self.links.calls.get(&at), target) {
                (Some(&Some(inside)), _) => ends.calls.push(self.index(at, inside as i64)?),
                (None, CallTarget::Relative(displacement)) => {
                    ends.calls.push(self.index(at, relative(displacement))?);
                }
                (None, CallTarget::Indirect | CallTarget::IndirectFrom(_)) => {
                    for &target in self.links.by_address.get(&at).into_iter().flatten() {
                        ends.calls.push(self.index(at, target as i64)?);
                    }
                }
                (Some(None), _) | (None, CallTarget::Absolute(_)) => {}
            },
            Flow::Return => {
                ends.next = guarded;
                ends.returns = true;
            }
            Flow::Exit | Flow::Trap => {
                ends.next = guarded || inst.flow() == Flow::Trap;
                ends.exits = true;
            }
        }
        ends.targets.sort_unstable();
        ends.targets.dedup();
        Ok(ends)
    }

    fn build(self) -> Result<Cfg, CfgError> {
        let count = self.code.insts().len();
        let ends: Vec<_> = (0..count)
            .map(|index| self.ends(index))
            .collect::<Result<_, _>>()?;
        let mut leaders = FixedBitSet::with_capacity(count);
        let mut entry_insts = Vec::new();
        if count > 0 {
            entry_insts.push(0);
        }
        for &entry in &self.links.entries {
            let inst = self.index(entry, entry as i64);
            entry_insts.push(inst.map_err(|_| CfgError::Entry { offset: entry })?);
        }
        entry_insts.sort_unstable();
        entry_insts.dedup();
        leaders.extend(entry_insts.iter().copied());
        let mut section_insts = Vec::new();
        for &section in &self.links.sections {
            let inst = self.index(section, section as i64);
            section_insts.push(inst.map_err(|_| CfgError::Entry { offset: section })?);
        }
        leaders.extend(section_insts.iter().copied());
        for (index, ends) in ends.iter().enumerate() {
            leaders.extend(ends.targets.iter().chain(&ends.calls).copied());
            if ends.ends_block && index + 1 < count {
                leaders.insert(index + 1);
            }
        }

        let starts: Vec<_> = leaders.ones().collect();
        let mut block_of = vec![0; count];
        let mut blocks: Vec<Block> = Vec::with_capacity(starts.len());
        for (number, &start) in starts.iter().enumerate() {
            let end = starts.get(number + 1).copied().unwrap_or(count);
            block_of[start..end].fill(number);
            blocks.push(Block {
                insts: start..end,
                succs: SmallVec::new(),
                preds: SmallVec::new(),
                leaves: Leave::No,
                calls: false,
                calls_outside: false,
            });
        }

        // Edges inside functions; a call goes on behind itself for now.
        for (number, block) in blocks.iter_mut().enumerate() {
            let last = &ends[block.insts.end - 1];
            block
                .succs
                .extend(last.targets.iter().map(|&inst| block_of[inst]));
            if last.next && number + 1 < starts.len() {
                block.succs.push(number + 1);
            }
            let inst = &self.code.insts()[block.insts.end - 1];
            block.calls = matches!(inst.flow(), Flow::Call { .. });
            block.calls_outside = block.calls && last.calls.is_empty();
            if last.exits {
                block.leaves = Leave::Exit;
            }
            block.succs.sort_unstable();
            block.succs.dedup();
        }
        let entries: Vec<_> = entry_insts.iter().map(|&inst| block_of[inst]).collect();
        self.link_calls(&mut blocks, &block_of, &ends, &entries);
        let reachable = reach(&blocks, entries.iter().copied());
        if let Some(last) = blocks.last()
            && reachable.contains(blocks.len() - 1)
            && ends[last.insts.end - 1].next
        {
            return Err(CfgError::End {
                offset: Code::offset(count),
            });
        }
        for last in section_insts.iter().filter_map(|inst| inst.checked_sub(1)) {
            if ends[last].next && reachable.contains(block_of[last]) {
                return Err(CfgError::End {
                    offset: Code::offset(last + 1),
                });
            }
        }
        for number in 0..blocks.len() {
            for succ in blocks[number].succs.clone() {
                blocks[succ].preds.push(number);
            }
        }
        Ok(Cfg {
            blocks,
            block_of,
            entries,
            reachable,
        })
    }

    /// Turns each call of a function that is here into an edge to it, and each return into
    /// edges behind the calls.
    fn link_calls(
        &self,
        blocks: &mut [Block],
        block_of: &[usize],
        ends: &[Ends],
        entries: &[usize],
    ) {
        let mut callers: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (number, block) in blocks.iter().enumerate() {
            for &callee in &ends[block.insts.end - 1].calls {
                callers.entry(block_of[callee]).or_default().push(number);
            }
        }
        let mut functions: Vec<_> = callers.keys().copied().collect();
        functions.sort_unstable();
        let mut returns: Vec<(usize, usize)> = Vec::new();
        let mut outward = FixedBitSet::with_capacity(blocks.len());
        for &function in entries.iter().chain(&functions) {
            // Calls fall through in this walk, so that it stays inside the function.
            for block in reach(blocks, [function]).ones() {
                if !ends[blocks[block].insts.end - 1].returns {
                    continue;
                }
                match callers.get(&function) {
                    Some(callers) => {
                        returns.extend(callers.iter().map(|&caller| (block, caller + 1)));
                    }
                    None => outward.insert(block),
                }
                if entries.contains(&function) {
                    outward.insert(block);
                }
            }
        }
        for block in outward.ones() {
            blocks[block].leaves = Leave::Return;
        }
        let count = blocks.len();
        for (number, block) in blocks.iter_mut().enumerate() {
            let last = block.insts.end - 1;
            let calls = &ends[last].calls;
            if !calls.is_empty() && self.code.insts()[last].guard().is_none() {
                block.succs.retain(|succ| *succ != number + 1);
            }
            block
                .succs
                .extend(calls.iter().map(|&callee| block_of[callee]));
        }
        for (block, site) in returns.into_iter().filter(|&(_, site)| site < count) {
            blocks[block].succs.push(site);
        }
        for block in blocks {
            block.succs.sort_unstable();
            block.succs.dedup();
        }
    }
}

fn reach(blocks: &[Block], from: impl IntoIterator<Item = usize>) -> FixedBitSet {
    let mut seen = FixedBitSet::with_capacity(blocks.len());
    let mut work: Vec<_> = from.into_iter().collect();
    while let Some(block) = work.pop() {
        if !seen.put(block) {
            work.extend(&blocks[block].succs);
        }
    }
    seen
}
