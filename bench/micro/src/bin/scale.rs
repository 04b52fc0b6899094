//! Shows that the analyses take time and memory linear in the code.
//!
//! Builds functions of up to a million instructions, structured like unrolled kernels:
//! nests of loops, branches within them, values local to a block, values carried round
//! loops, and some that live from the top of a nest to its bottom. Then it times each
//! analysis.
//!
//! ```text
//! cargo run --release -p warpalloc-micro --bin scale
//! ```

use std::time::Instant;
use warpalloc::analysis::{
    Dominators, Frequencies, Liveness, Loops, NextUses, Order, Pressure, Webs,
};
use warpalloc::function::{Block, Builder, Function, VReg};
use warpalloc::target::{Class, File, Target};

/// Nesting depth of each loop nest.
const DEPTH: usize = 3;
/// Values that live throughout a nest.
const LONG: usize = 96;

fn main() {
    let target = Target::hardware(90).expect("the preset exists");
    println!(
        "{:>9} {:>8} {:>8} {:>9} | {:>6} {:>6} {:>6} {:>6} | {:>8} {:>8} {:>8} {:>8} | {:>8} {:>8}",
        "insts",
        "blocks",
        "vregs",
        "live-in",
        "order",
        "doms",
        "loops",
        "freqs",
        "liveness",
        "pressure",
        "next use",
        "webs",
        "function",
        "peak"
    );
    for insts in [250_000, 500_000, 1_000_000] {
        measure(&build(insts), &target);
    }
    println!("times in ms; memory of the function alone and peak of the process in MiB");
}

fn measure(f: &Function, target: &Target) {
    let before = memory("VmRSS:");
    let (order, order_ms) = timed(|| Order::compute(f));
    let (_, doms_ms) = timed(|| Dominators::compute(f, &order));
    let (loops, loops_ms) = timed(|| Loops::compute(f, &order));
    let (_, freqs_ms) = timed(|| Frequencies::compute(f, &order, &loops));
    let (liveness, liveness_ms) = timed(|| Liveness::compute(f));
    let (pressure, pressure_ms) = timed(|| Pressure::compute(f, target, &liveness));
    let (_, next_ms) = timed(|| NextUses::compute(f, &order, &loops, &liveness));
    let (_, webs_ms) = timed(|| Webs::compute(f, &liveness));
    println!(
        "{:>9} {:>8} {:>8} {:>9} | {order_ms:>6} {doms_ms:>6} {loops_ms:>6} {freqs_ms:>6} | \
         {liveness_ms:>8} {pressure_ms:>8} {next_ms:>8} {webs_ms:>8} | \
         {before:>8} {:>8}   pressure {}",
        f.inst_count(),
        f.block_count(),
        f.vreg_count(),
        liveness.live_in_total(),
        memory("VmHWM:"),
        pressure.max(File::R),
    );
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, u128) {
    let start = Instant::now();
    let result = run();
    (result, start.elapsed().as_millis())
}

/// A figure of this process in MiB, or 0 where the system does not tell.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// A chain of loop nests with at least `insts` instructions.
fn build(insts: usize) -> Function {
    let mut code = Generator {
        builder: Builder::new("scale"),
        insts: 0,
    };
    let mut at = code.builder.block();
    while code.insts < insts {
        let long: Vec<VReg> = (0..LONG).map(|i| code.define(at, &[], i)).collect();
        at = code.nest(at, &long, DEPTH);
        for &value in &long {
            code.builder.inst(at, "store").use_(value);
        }
        code.insts += LONG;
    }
    code.builder.exit(at, "exit");
    code.builder.finish()
}

struct Generator {
    builder: Builder,
    insts: usize,
}

impl Generator {
    fn define(&mut self, block: Block, inputs: &[VReg], seed: usize) -> VReg {
        let class = [Class::R32, Class::R64, Class::R32][seed % 3];
        let value = self.builder.vreg(class);
        let mut inst = self.builder.inst(block, "op").def(value);
        for &input in inputs {
            inst = inst.use_(input);
        }
        self.insts += 1;
        value
    }

    /// Loops `depth` deep around a body of branches; returns the block behind them.
    fn nest(&mut self, before: Block, long: &[VReg], depth: usize) -> Block {
        let (header, behind) = (self.builder.block(), self.builder.block());
        let carried = self.builder.vreg(Class::R32);
        let first = self.define(before, &long[..1], 0);
        self.builder.param(header, carried);
        self.builder.jump(before, header, &[first]);
        let mut latch = match depth {
            1 => header,
            _ => self.nest(header, long, depth - 1),
        };
        for step in 0..4 {
            latch = self.diamond(latch, long, carried, step);
        }
        let next = self.define(latch, &[carried, long[depth]], 0);
        let test = self.builder.vreg(Class::PRED);
        self.builder.inst(latch, "setp").def(test).use_(next);
        self.builder.edge(latch, header, &[next]);
        self.builder.edge(latch, behind, &[]);
        self.builder.branch(latch, "bra").use_(test);
        self.insts += 3;
        behind
    }

    /// Two ways that meet again, each a short computation, on one of which `carried` is
    /// overwritten.
    fn diamond(&mut self, from: Block, long: &[VReg], carried: VReg, step: usize) -> Block {
        let [left, right, join] = [(); 3].map(|()| self.builder.block());
        let test = self.builder.vreg(Class::PRED);
        self.builder.inst(from, "setp").def(test).use_(carried);
        self.builder.edge(from, left, &[]);
        self.builder.edge(from, right, &[]);
        self.builder.branch(from, "bra").use_(test);
        self.insts += 2;
        for (side, block) in [left, right].into_iter().enumerate() {
            let mut value = carried;
            for i in 0..8 {
                value = self.define(block, &[value, long[(step * 5 + i) % LONG]], i);
            }
            if side == 0 {
                self.builder.copy(block, carried, value);
                self.insts += 1;
            }
            self.builder.jump(block, join, &[]);
            self.insts += 1;
        }
        join
    }
}
