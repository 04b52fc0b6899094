//! Random functions of a given size, shape and exact MaxLive.
//!
//! A pool holds the live values that may have their last use here; `outer` holds those that
//! are live throughout the region being written (around a loop, beside a diamond), which may
//! be read but not end. Every value leaves the pool by a last use, so pool and outer together
//! are the live values. Stretches of code aim at a pressure between 45 % and 100 % of MaxLive,
//! and one stretch goes up to MaxLive itself.

use crate::function::{Block, Func, Inst, Kind, Val, without_dead_code};
use crate::liveness::Liveness;
use clap::ValueEnum;

/// The control flow of a random function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// One block
    Straight,
    /// Two-way branches that meet again, nested
    Diamonds,
    /// Loops nested up to three deep
    Loops,
    /// Diamonds and loops
    Mixed,
}

impl Shape {
    pub fn name(self) -> &'static str {
        match self {
            Shape::Straight => "straight",
            Shape::Diamonds => "diamonds",
            Shape::Loops => "loops",
            Shape::Mixed => "mixed",
        }
    }
}

const MAX_DEPTH: u32 = 3;

/// A function of about `insts` instructions whose MaxLive is exactly `max_live`; none where
/// `insts` are too few for that.
pub fn function(shape: Shape, insts: usize, max_live: usize, seed: u64) -> Option<Func> {
    if insts < 2 * max_live + 20 || max_live < 4 {
        return None;
    }
    for part in 0..50 {
        let mut f = Generator::new(shape, insts, max_live, seed * 1000 + part).run();
        // A parameter may be carried around a loop without any other use.
        f = without_dead_code(f);
        f.name = format!("{}-{insts}-{max_live}-{seed}", shape.name());
        if Liveness::of(&f).max_live(&f) == max_live {
            return Some(f);
        }
    }
    None
}

struct Generator {
    rng: Rng,
    shape: Shape,
    /// Instructions of the block being written.
    code: Vec<Inst>,
    f: Func,
    cur: usize,
    depth: u32,
    pool: Vec<Val>,
    outer: Vec<Val>,
    limit: usize,
    insts: usize,
    /// The stretch that goes up to MaxLive starts once this many instructions are written.
    peak_at: usize,
    peaked: bool,
}

impl Generator {
    fn new(shape: Shape, insts: usize, limit: usize, seed: u64) -> Generator {
        let mut rng = Rng::new(seed);
        let slack = insts.saturating_sub(2 * limit + 20);
        Generator {
            shape,
            code: Vec::new(),
            f: Func::default(),
            cur: 0,
            depth: 0,
            pool: Vec::new(),
            outer: Vec::new(),
            limit,
            insts,
            peak_at: rng.below(slack + 1) / 2,
            peaked: false,
            rng,
        }
    }

    fn run(mut self) -> Func {
        self.f.blocks.push(Block::default());
        let tail = self.limit / 2 + 4;
        self.region(self.insts.saturating_sub(tail));
        while !self.pool.is_empty() {
            self.shrink();
        }
        self.end(Kind::Ret, vec![]);
        self.f
    }

    fn written(&self) -> usize {
        self.f.insts.len() + self.code.len()
    }

    fn live(&self) -> usize {
        self.pool.len() + self.outer.len()
    }

    fn value(&mut self) -> Val {
        self.f.vals += 1;
        self.f.vals - 1
    }

    // ---- blocks

    /// Ends the current block.
    fn end(&mut self, kind: Kind, uses: Vec<Val>) {
        let start = self.f.insts.len() as u32;
        self.f.insts.append(&mut self.code);
        self.f.insts.push(Inst {
            kind,
            defs: vec![],
            uses,
        });
        let block = &mut self.f.blocks[self.cur];
        block.insts = start..self.f.insts.len() as u32;
        block.depth = self.depth;
    }

    /// Starts a block with no successors known yet.
    fn start(&mut self, params: Vec<Val>) -> usize {
        self.cur = self.f.blocks.len();
        self.f.blocks.push(Block {
            params,
            ..Block::default()
        });
        self.cur
    }

    fn edge(&mut self, from: usize, to: usize) {
        self.f.blocks[from].succs.push(to as u32);
    }

    // ---- regions

    /// About `budget` instructions.
    fn region(&mut self, budget: usize) {
        let stop = self.written() + budget;
        while self.written() < stop {
            let left = stop - self.written();
            if self.depth == 0
                && !self.peaked
                && self.written() >= self.peak_at
                && self.outer.is_empty()
            {
                self.peaked = true;
                while self.live() < self.limit {
                    self.step(self.limit);
                }
            }
            let (loops, diamonds) = match self.shape {
                Shape::Straight => (0.0, 0.0),
                Shape::Diamonds => (0.0, 0.5),
                Shape::Loops => (0.4, 0.0),
                Shape::Mixed => (0.22, 0.3),
            };
            let pick = self.rng.unit();
            if pick < loops && self.depth < MAX_DEPTH && left >= 16 {
                let most = match self.depth {
                    0 => 60 + self.limit * 2,
                    _ => 30 + self.limit,
                };
                let size = self.rng.within(10, left.min(most));
                self.repeat(size);
            } else if pick < loops + diamonds && left >= 14 {
                let size = self.rng.within(8, left.min(60));
                self.diamond(size);
            } else {
                let length = self.rng.within(3, 25) + self.rng.below(1 + self.limit / 3);
                self.stretch(length.min(left));
            }
        }
    }

    fn stretch(&mut self, length: usize) {
        let part = match self.rng.chance(0.12) {
            true => 1.0,
            false => 0.45 + 0.55 * self.rng.unit(),
        };
        let aim = ((self.limit as f64 * part) as usize).max(3);
        for _ in 0..length {
            self.step(aim);
        }
    }

    /// A loop that tests last.
    fn repeat(&mut self, budget: usize) {
        let room = ((self.limit as f64 * (0.15 + 0.5 * self.rng.unit())) as usize)
            .clamp(3, self.limit - 1);
        while self.live() > self.limit - room && !self.pool.is_empty() {
            self.shrink();
        }
        if self.live() + 3 > self.limit {
            return;
        }
        if self.pool.is_empty() {
            self.define(vec![]);
        }
        let carried = self.rng.within(1, self.pool.len().min(4));
        let args: Vec<Val> = (0..carried).map(|_| self.take()).collect();
        self.f.blocks[self.cur].args = args;
        self.end(Kind::Jump, vec![]);
        let before = self.cur;

        let params: Vec<Val> = (0..carried).map(|_| self.value()).collect();
        let header = self.start(params.clone());
        self.edge(before, header);
        self.depth += 1;
        let kept = std::mem::replace(&mut self.pool, params);
        let outside = self.outer.len();
        self.outer.extend_from_slice(&kept);
        self.region(budget);

        while self.pool.len() < carried {
            self.define(vec![]);
        }
        let leaving = self.rng.below(3);
        while self.pool.len() > carried + leaving {
            self.shrink_to(carried);
        }
        let mut out = self.pool.clone();
        let next: Vec<Val> = (0..carried).map(|_| self.take()).collect();
        out.retain(|v| self.pool.contains(v) || self.rng.chance(0.5));
        let test = match self.rng.chance(0.5) || self.outer.is_empty() {
            true => next[0],
            false => self.outer[self.rng.below(self.outer.len())],
        };
        self.end(Kind::Branch, vec![test]);
        let last = self.cur;
        let latch = self.start(vec![]);
        self.edge(last, latch);
        self.end(Kind::Jump, vec![]);
        self.f.blocks[latch].args = next;
        self.f.blocks[latch].is_edge = true;
        self.edge(latch, header);
        self.depth -= 1;
        let exit = self.start(vec![]);
        self.edge(last, exit);
        self.outer.truncate(outside);
        self.pool = kept;
        self.pool.extend(out);
    }

    /// Two ways that meet again.
    fn diamond(&mut self, budget: usize) {
        while self.live() + 3 > self.limit && !self.pool.is_empty() {
            self.shrink();
        }
        if self.live() + 3 > self.limit {
            return;
        }
        if self.live() == 0 {
            self.define(vec![]);
        }
        let test = self.pick(&[]).expect("a value is live");
        self.end(Kind::Branch, vec![test]);
        let from = self.cur;
        let (mut may_die, mut kept) = (Vec::new(), Vec::new());
        for v in std::mem::take(&mut self.pool) {
            match self.rng.chance(0.3) {
                true => may_die.push(v),
                false => kept.push(v),
            }
        }
        let merged = self
            .rng
            .within(1, 3.min(self.limit - self.live() - kept.len()));
        let outside = self.outer.len();
        self.outer.extend_from_slice(&kept);
        let mut ends = Vec::new();
        for side in 0..2 {
            let block = self.start(vec![]);
            self.edge(from, block);
            self.pool = may_die.clone();
            self.region(budget / 2);
            let drops = side == 1 && self.rng.chance(0.5);
            if drops {
                self.pool.retain(|v| !may_die.contains(v));
            }
            while let Some(at) = self.pool.iter().position(|v| may_die.contains(v)) {
                let v = self.pool.remove(at);
                self.consume(vec![v]);
            }
            while self.pool.len() > merged {
                self.shrink_to(merged);
            }
            while self.pool.len() < merged {
                self.define(vec![]);
            }
            self.f.blocks[self.cur].args = std::mem::take(&mut self.pool);
            self.end(Kind::Jump, vec![]);
            ends.push(self.cur);
        }
        let params: Vec<Val> = (0..merged).map(|_| self.value()).collect();
        let join = self.start(params.clone());
        ends.into_iter().for_each(|end| self.edge(end, join));
        self.outer.truncate(outside);
        self.pool = kept;
        self.pool.extend(params);
    }

    // ---- instructions

    /// One instruction, towards a pressure of `aim`.
    fn step(&mut self, aim: usize) {
        let live = self.live();
        let dies = match live.cmp(&aim) {
            std::cmp::Ordering::Less => 0.12,
            std::cmp::Ordering::Equal => 0.55,
            std::cmp::Ordering::Greater => 0.8,
        };
        let (mut uses, mut killed) = (Vec::new(), 0);
        for _ in 0..[1, 1, 2, 2, 2, 3][self.rng.below(6)] {
            let Some(v) = self.pick(&uses) else { break };
            uses.push(v);
            if let Some(at) = self.pool.iter().position(|&p| p == v)
                && self.rng.chance(dies)
            {
                self.pool.remove(at);
                killed += 1;
            }
        }
        let full = live - killed >= self.limit;
        let store = killed > 0 && (full || (live > aim && self.rng.chance(0.25)));
        match store {
            true => self.code.push(Inst {
                kind: Kind::Store,
                defs: vec![],
                uses,
            }),
            false if full => self.shrink(),
            false => self.define(uses),
        }
    }

    /// Defines a value from `uses`, with fewer than MaxLive values live.
    fn define(&mut self, uses: Vec<Val>) {
        debug_assert!(self.live() < self.limit);
        let kind = match self.rng.chance(0.2) {
            true => Kind::Load,
            false => Kind::Op,
        };
        let v = self.value();
        self.code.push(Inst {
            kind,
            defs: vec![v],
            uses,
        });
        self.pool.push(v);
    }

    fn consume(&mut self, uses: Vec<Val>) {
        self.code.push(Inst {
            kind: Kind::Store,
            defs: vec![],
            uses,
        });
    }

    /// Ends one or two live ranges.
    fn shrink(&mut self) {
        self.shrink_to(0);
    }

    /// Ends live ranges of the pool, but leaves at least `least`.
    fn shrink_to(&mut self, least: usize) {
        let extra = self.pool.len() - least;
        match extra {
            0 => {}
            1 => {
                let v = self.take();
                self.consume(vec![v]);
            }
            _ if self.rng.chance(0.7) => {
                let uses = vec![self.take(), self.take()];
                self.define(uses);
            }
            _ => {
                let uses = vec![self.take(), self.take()];
                self.consume(uses);
            }
        }
    }

    /// Takes a value from the pool, more often a recent one.
    fn take(&mut self) -> Val {
        let at = self.recent();
        self.pool.remove(at)
    }

    fn recent(&mut self) -> usize {
        let len = self.pool.len();
        match self.rng.chance(0.6) {
            true => len - 1 - self.rng.below(len.min(6)),
            false => self.rng.below(len),
        }
    }

    /// A live value that is not in `but`.
    fn pick(&mut self, but: &[Val]) -> Option<Val> {
        for _ in 0..8 {
            let from_outer =
                !self.outer.is_empty() && (self.pool.is_empty() || self.rng.chance(0.25));
            let v = match (from_outer, self.pool.is_empty()) {
                (true, _) => self.outer[self.rng.below(self.outer.len())],
                (false, false) => {
                    let at = self.recent();
                    self.pool[at]
                }
                (false, true) => return None,
            };
            if !but.contains(&v) {
                return Some(v);
            }
        }
        None
    }
}

/// SplitMix64. The library's own source of randomness may change with the library; figures
/// are comparable over time only if a seed keeps giving the same function.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995_1234_5678)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n`.
    fn below(&mut self, n: usize) -> usize {
        (((self.next() >> 32) * n as u64) >> 32) as usize
    }

    /// A number in `low..=high`.
    fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high.max(low) - low + 1)
    }

    fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A number in `0.0..1.0`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_max_live_and_the_shape_asked_for() {
        for shape in Shape::value_variants() {
            for seed in 1..6 {
                let f = function(*shape, 300, 20, seed).expect("300 instructions are enough");
                f.validate().expect("a valid function");
                assert_eq!(Liveness::of(&f).max_live(&f), 20, "{}", f.name);
                let depth = f.blocks.iter().map(|b| b.depth).max().unwrap_or(0);
                assert!(depth <= MAX_DEPTH);
                assert_eq!(f.blocks.len() == 1, *shape == Shape::Straight);
            }
        }
    }

    #[test]
    fn too_few_instructions_give_no_function() {
        assert!(function(Shape::Mixed, 50, 20, 1).is_none());
    }
}
