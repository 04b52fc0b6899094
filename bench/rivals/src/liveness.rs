//! Which values are live where, and how many at most (MaxLive).

use crate::function::{Func, Val};
use std::collections::BTreeSet;

/// The values live at the start of each block, its parameters excluded. Sets are kept sparse:
/// a large function has many blocks and many values, but few are live at any one point.
pub struct Liveness {
    live_in: Vec<BTreeSet<Val>>,
}

impl Liveness {
    pub fn of(f: &Func) -> Liveness {
        let mut liveness = Liveness {
            live_in: vec![BTreeSet::new(); f.blocks.len()],
        };
        let mut changed = true;
        while changed {
            changed = false;
            for (b, block) in f.blocks.iter().enumerate().rev() {
                let mut live = liveness.live_out(f, b);
                for i in block.insts().rev() {
                    for v in &f.insts[i].defs {
                        live.remove(v);
                    }
                    live.extend(&f.insts[i].uses);
                }
                for v in &block.params {
                    live.remove(v);
                }
                if live != liveness.live_in[b] {
                    liveness.live_in[b] = live;
                    changed = true;
                }
            }
        }
        liveness
    }

    /// The values live at the end of block `b`, the arguments of its jump included.
    pub fn live_out(&self, f: &Func, b: usize) -> BTreeSet<Val> {
        let block = &f.blocks[b];
        let succs = block.succs.iter().map(|&s| &self.live_in[s as usize]);
        succs.flatten().chain(&block.args).copied().collect()
    }

    /// The most values live at once, over the points before and after every instruction. A
    /// result that is never read counts right after its definition.
    pub fn max_live(&self, f: &Func) -> usize {
        let mut most = 0;
        for (b, block) in f.blocks.iter().enumerate() {
            let mut live = self.live_out(f, b);
            most = most.max(live.len());
            for i in block.insts().rev() {
                let inst = &f.insts[i];
                live.extend(&inst.defs);
                most = most.max(live.len());
                for v in &inst.defs {
                    live.remove(v);
                }
                live.extend(&inst.uses);
                most = most.max(live.len());
            }
            live.extend(&block.params);
            most = most.max(live.len());
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn a_result_that_nobody_reads_counts_where_it_is_defined() {
        let text = "function dead registers 2
            block depth 0
            op v0 =
            op v1 =
            store v0
            ret
            end";
        let (f, _) = text::function(text).expect("a function");
        assert_eq!(Liveness::of(&f).max_live(&f), 2);
    }
}
