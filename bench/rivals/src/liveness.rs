//! Which values are live where, and how many at most (MaxLive).

use crate::function::{Func, Val};

/// A set of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set(Vec<u64>);

impl Set {
    fn new(vals: u32) -> Set {
        Set(vec![0; (vals as usize).div_ceil(64)])
    }

    pub fn contains(&self, v: Val) -> bool {
        self.0[v as usize / 64] >> (v % 64) & 1 == 1
    }

    /// Adds `v`; says whether that changed anything.
    fn insert(&mut self, v: Val) -> bool {
        let new = !self.contains(v);
        self.0[v as usize / 64] |= 1 << (v % 64);
        new
    }

    /// Removes `v`; says whether that changed anything.
    fn remove(&mut self, v: Val) -> bool {
        let was = self.contains(v);
        self.0[v as usize / 64] &= !(1 << (v % 64));
        was
    }

    fn add_all(&mut self, other: &Set) {
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(to, from)| *to |= from);
    }

    fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }
}

/// The values live at the start of each block, its parameters excluded.
pub struct Liveness {
    live_in: Vec<Set>,
}

impl Liveness {
    pub fn of(f: &Func) -> Liveness {
        let mut liveness = Liveness {
            live_in: vec![Set::new(f.vals); f.blocks.len()],
        };
        let mut changed = true;
        while changed {
            changed = false;
            for (b, block) in f.blocks.iter().enumerate().rev() {
                let mut set = liveness.live_out(f, b);
                for i in block.insts().rev() {
                    let inst = &f.insts[i];
                    inst.defs.iter().for_each(|&v| _ = set.remove(v));
                    inst.uses.iter().for_each(|&v| _ = set.insert(v));
                }
                block.params.iter().for_each(|&v| _ = set.remove(v));
                if set != liveness.live_in[b] {
                    liveness.live_in[b] = set;
                    changed = true;
                }
            }
        }
        liveness
    }

    /// The values live at the end of block `b`, the arguments of its jump included.
    pub fn live_out(&self, f: &Func, b: usize) -> Set {
        let block = &f.blocks[b];
        let mut set = Set::new(f.vals);
        for &s in &block.succs {
            set.add_all(&self.live_in[s as usize]);
        }
        block.args.iter().for_each(|&v| _ = set.insert(v));
        set
    }

    /// The most values live at once, over the points before and after every instruction. A
    /// result that is never read counts right after its definition.
    pub fn max_live(&self, f: &Func) -> usize {
        let mut most = 0;
        for (b, block) in f.blocks.iter().enumerate() {
            let mut set = self.live_out(f, b);
            let mut count = set.len();
            most = most.max(count);
            for i in block.insts().rev() {
                let inst = &f.insts[i];
                let dead = inst.defs.iter().filter(|&&v| !set.contains(v)).count();
                most = most.max(count + dead);
                for &v in &inst.defs {
                    count -= usize::from(set.remove(v));
                }
                for &v in &inst.uses {
                    count += usize::from(set.insert(v));
                }
                most = most.max(count);
            }
            for &v in &block.params {
                count += usize::from(set.insert(v));
            }
            most = most.max(count);
        }
        most
    }
}
