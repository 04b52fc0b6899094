//! Whether every value is written before it is read.
//!
//! A value may be read unwritten exactly where some path from the entry reaches the read
//! without a write. So we start at each block that reads a value it has not written, and
//! walk against the edges until blocks that write it; reaching the entry is the error. The
//! walk visits the blocks the value is live into, once each, and its trail is the path to
//! show. Blocks that cannot be reached lead no walk to the entry, so anything goes in them.

use super::*;

/// Blocks by virtual register, in one row.
struct BlocksOf {
    starts: Vec<u32>,
    blocks: Vec<Block>,
}

impl BlocksOf {
    fn new(vregs: usize, pairs: &[(VReg, Block)]) -> BlocksOf {
        let mut starts = vec![0u32; vregs + 1];
        for (vreg, _) in pairs {
            starts[vreg.index() + 1] += 1;
        }
        for i in 0..vregs {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut blocks = vec![Block::new(0); pairs.len()];
        for &(vreg, block) in pairs {
            let at = &mut next[vreg.index()];
            blocks[*at as usize] = block;
            *at += 1;
        }
        BlocksOf { starts, blocks }
    }

    fn of(&self, vreg: VReg) -> &[Block] {
        let (start, end) = (self.starts[vreg.index()], self.starts[vreg.index() + 1]);
        &self.blocks[start as usize..end as usize]
    }
}

/// Which blocks read values they have not written, and which write values.
struct Summary {
    exposed: Vec<(VReg, Block)>,
    written: Vec<(VReg, Block)>,
    last_exposed: Vec<u32>,
    last_written: Vec<u32>,
}

impl Summary {
    fn of(function: &Function) -> Summary {
        let none = vec![u32::MAX; function.vreg_count()];
        let mut summary = Summary {
            exposed: Vec::new(),
            written: Vec::new(),
            last_exposed: none.clone(),
            last_written: none,
        };
        for block in function.blocks() {
            for &param in &function.block(block).params {
                summary.write(block, param);
            }
            for inst in function.block_insts(block) {
                let operands = function.operands(inst);
                for operand in operands.iter().filter(|o| o.role.reads()) {
                    summary.read(block, operand.vreg);
                }
                for operand in operands.iter().filter(|o| o.role.writes()) {
                    summary.write(block, operand.vreg);
                }
            }
            for edge in function.succs(block) {
                for &arg in &edge.args {
                    summary.read(block, arg);
                }
            }
        }
        summary
    }

    fn read(&mut self, block: Block, vreg: VReg) {
        let here = block.index() as u32;
        if self.last_written[vreg.index()] != here && self.last_exposed[vreg.index()] != here {
            self.last_exposed[vreg.index()] = here;
            self.exposed.push((vreg, block));
        }
    }

    fn write(&mut self, block: Block, vreg: VReg) {
        let here = block.index() as u32;
        if self.last_written[vreg.index()] != here {
            self.last_written[vreg.index()] = here;
            self.written.push((vreg, block));
        }
    }
}

impl Rules<'_> {
    pub(super) fn defined_before_use(&self) -> Result<(), Error> {
        let f = self.function;
        let summary = Summary::of(f);
        let exposed = BlocksOf::new(f.vreg_count(), &summary.exposed);
        let written = BlocksOf::new(f.vreg_count(), &summary.written);
        let unseen = u32::MAX;
        let mut writes = vec![unseen; f.block_count()];
        let mut visited = vec![unseen; f.block_count()];
        // Where the walk came from: the next block on the way to the read.
        let mut next: Vec<Option<Block>> = vec![None; f.block_count()];
        let mut work = Vec::new();
        for vreg in f.vregs().filter(|&v| !exposed.of(v).is_empty()) {
            let mark = vreg.index() as u32;
            for block in written.of(vreg) {
                writes[block.index()] = mark;
            }
            for &read in exposed.of(vreg) {
                next[read.index()] = None;
                if read == f.entry() {
                    return self.undefined(vreg, read, &next);
                }
                work.push(read);
            }
            while let Some(block) = work.pop() {
                for &pred in f.preds(block) {
                    if writes[pred.index()] == mark || visited[pred.index()] == mark {
                        continue;
                    }
                    visited[pred.index()] = mark;
                    if exposed.of(vreg).binary_search(&pred).is_ok() {
                        continue;
                    }
                    next[pred.index()] = Some(block);
                    if pred == f.entry() {
                        return self.undefined(vreg, pred, &next);
                    }
                    work.push(pred);
                }
            }
        }
        Ok(())
    }

    /// Reports that `vreg` is unwritten along the path from `entry` that `next` spells out.
    fn undefined(&self, vreg: VReg, entry: Block, next: &[Option<Block>]) -> Result<(), Error> {
        const SHOWN: usize = 8;
        let mut path = vec![entry];
        while let Some(block) = next[path[path.len() - 1].index()] {
            path.push(block);
        }
        let block = path[path.len() - 1];
        let f = self.function;
        let reads = |inst: &Inst| {
            let mut operands = f.operands(*inst).iter();
            operands.any(|o| o.vreg == vreg && o.role.reads())
        };
        let inst = f.block_insts(block).find(reads);
        let place = Place::Inst(block, inst.unwrap_or(f.terminator(block)));
        let mut names: Vec<String> = path.iter().take(SHOWN).map(|b| b.to_string()).collect();
        if path.len() > SHOWN {
            names.push(format!("… ({} more)", path.len() - SHOWN));
        }
        let path = names.join(" → ");
        invalid(
            place,
            format!("{vreg} is read, but nothing writes it on the way {path}"),
        )
    }
}
