//! One warp, issuing in order.

use super::Machine;
use warpalloc_sass::isa::{Effect, File, Inst, Latency, Pipe, Space};
use warpalloc_sass::loops::Loops;
use warpalloc_sass::{Cfg, Code};

/// Scoreboards of a warp.
const SCOREBOARDS: usize = 6;

/// Units of a scheduler that compute.
pub(super) const UNITS: usize = 5;

/// Words of 4 bytes per thread that the accesses of a warp move.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// To and from shared memory.
    pub shared: f64,
    /// From frames in local memory.
    pub local_loads: f64,
    /// To frames in local memory.
    pub local_stores: f64,
    /// To and from global memory.
    pub global: f64,
    /// Those among them that are loads.
    pub global_loads: f64,
}

impl Traffic {
    pub(super) fn add(&mut self, other: Traffic, frequency: f64) {
        self.shared += other.shared * frequency;
        self.local_loads += other.local_loads * frequency;
        self.local_stores += other.local_stores * frequency;
        self.global += other.global * frequency;
        self.global_loads += other.global_loads * frequency;
    }

    /// Accesses to frames.
    pub fn local(&self) -> f64 {
        self.local_loads + self.local_stores
    }

    /// Cycles that the accesses of one warp take of a multiprocessor's share of all memory.
    pub fn cycles(&self, machine: &Machine, misses: Misses) -> f64 {
        let access = machine.access * (self.shared + self.local() + self.global);
        let loads = self.global + misses.first_level * self.local_loads;
        let second_level = machine.second_level * loads + machine.write_through * self.local_stores;
        let beyond = machine.global_beyond * self.global + misses.second_level * self.local();
        let gathers = machine.gather * misses.gathers * self.global_loads;
        access + second_level + machine.device_memory * beyond + gathers
    }
}

/// What a kernel costs one warp.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Cycles until it ends.
    pub latency: f64,
    /// Cycles of its scheduler.
    pub issue: f64,
    /// What it moves to and from memory.
    pub traffic: Traffic,
    /// Cycles of each unit of its scheduler that computes.
    pub units: [f64; UNITS],
    /// Instructions that no allocator adds or removes. A loop that ptxas unrolled in one
    /// candidate and not in another has more of them per iteration.
    pub work: f64,
}

impl Cost {
    pub(super) fn add(&mut self, block: &Cost, frequency: f64) {
        self.latency += block.latency * frequency;
        self.issue += block.issue * frequency;
        self.traffic.add(block.traffic, frequency);
        for (sum, cycles) in self.units.iter_mut().zip(block.units) {
            *sum += cycles * frequency;
        }
        self.work += block.work * frequency;
    }
}

/// The shares of accesses that caches do not hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Misses {
    /// Of the accesses to frames, in the first-level cache.
    pub first_level: f64,
    /// Of them, in the second-level cache.
    pub second_level: f64,
    /// Of the loads from global memory: gathers whose lines shared memory takes the place of.
    pub gathers: f64,
}

/// Cycles until each scoreboard is released, from the end of a block.
type Pending = [f64; SCOREBOARDS];

/// Runs each block once, after the most frequent of its predecessors. Blocks of a loop run
/// twice, so that what the last iteration left pending is known.
pub fn simulate(
    machine: &Machine,
    code: &Code,
    cfg: &Cfg,
    loops: &Loops,
    frequencies: &[f64],
    misses: Misses,
) -> Cost {
    let blocks = cfg.blocks();
    let order = cfg.reverse_postorder();
    let mut ends: Vec<Pending> = vec![[0.0; SCOREBOARDS]; blocks.len()];
    let mut cost = Cost::default();
    for _ in 0..2 {
        cost = Cost::default();
        for &block in &order {
            let hottest = |a: &&usize, b: &&usize| frequencies[**a].total_cmp(&frequencies[**b]);
            let before = blocks[block].preds.iter().max_by(hottest);
            let mut warp = Warp {
                machine,
                misses,
                now: 0.0,
                pending: before.map_or([0.0; SCOREBOARDS], |&pred| ends[pred]),
                cost: Cost::default(),
                fetch: match frequencies[block] > 1.0 {
                    true => machine.loop_fetch_cycles(loops.innermost_length(block)),
                    false => machine.fetch_cycles(code.insts().len()),
                },
                fetched: 0.0,
            };
            for inst in &code.insts()[blocks[block].insts.clone()] {
                warp.step(inst);
            }
            ends[block] = warp.pending.map(|ready| (ready - warp.now).max(0.0));
            warp.cost.latency = warp.now;
            cost.add(&warp.cost, frequencies[block]);
        }
    }
    cost
}

struct Warp<'m> {
    machine: &'m Machine,
    misses: Misses,
    now: f64,
    /// When each scoreboard is released.
    pending: Pending,
    cost: Cost,
    /// Cycles that an instruction takes to arrive: code that runs once comes from memory, and a long
    /// loop from a cache that all schedulers share.
    fetch: f64,
    /// When the next instruction is there.
    fetched: f64,
}

impl Warp<'_> {
    fn step(&mut self, inst: &Inst) {
        let control = inst.control();
        for (board, &ready) in self.pending.iter().enumerate() {
            if control.wait_mask >> board & 1 != 0 {
                self.now = self.now.max(ready);
            }
        }
        self.now = self.now.max(self.fetched);
        self.fetched += self.fetch;
        let begin = self.now;
        let mut hold = |board: Option<u8>, cycles: f64| {
            let Some(pending) = board.and_then(|b| self.pending.get_mut(usize::from(b))) else {
                return;
            };
            *pending = pending.max(begin + cycles);
        };
        if inst.latency() == Latency::Variable {
            hold(
                control.write_scoreboard,
                result_latency(self.machine, inst, self.misses),
            );
        }
        hold(control.read_scoreboard, self.machine.source_read);
        self.now += f64::from(control.stall.max(1));
        self.cost.issue += self.machine.issue.max(self.fetch);
        self.cost.traffic.add(traffic(inst), 1.0);
        if let Some((unit, cycles)) = unit(self.machine, inst) {
            self.cost.units[unit] += cycles;
        }
        self.cost.work += work(inst);
    }
}

fn result_latency(machine: &Machine, inst: &Inst, misses: Misses) -> f64 {
    match inst.memory().map(|memory| memory.space) {
        Some(Space::Shared) => machine.shared_load,
        Some(Space::Local) => machine.local_load + misses.first_level * machine.miss,
        Some(Space::Generic | Space::Global | Space::Texture | Space::Surface) => {
            machine.global_load
        }
        _ => machine.other,
    }
}

/// The unit that computes an instruction, and for how long.
fn unit(machine: &Machine, inst: &Inst) -> Option<(usize, f64)> {
    let is_integer = inst.mnemonic().starts_with('I');
    match inst.pipe() {
        Pipe::Alu => Some((0, machine.integer)),
        Pipe::Fma if is_integer => Some((1, machine.integer)),
        Pipe::Fma | Pipe::Half => Some((1, machine.single)),
        Pipe::Double => Some((2, machine.double)),
        Pipe::Tensor => Some((3, machine.tensor)),
        Pipe::Xu => Some((4, machine.transcendental)),
        _ => None,
    }
}

fn traffic(inst: &Inst) -> Traffic {
    let mut traffic = Traffic::default();
    if let Some(memory) = inst.memory() {
        let words = f64::from(memory.bytes.unwrap_or(4).max(4)) / 4.0;
        match (memory.space, memory.effect) {
            (Space::Constant, _) => {}
            (Space::Shared, _) => traffic.shared = words,
            (Space::Local, Effect::Load) => traffic.local_loads = words,
            (Space::Local, _) => traffic.local_stores = words,
            (_, Effect::Load) => (traffic.global, traffic.global_loads) = (words, words),
            _ => traffic.global = words,
        }
    }
    traffic
}

/// How much of the kernel's own work an instruction does: spill code, moves and addresses are
/// none of it.
fn work(inst: &Inst) -> f64 {
    match (inst.memory(), inst.pipe()) {
        (Some(memory), _) => match memory.space {
            Space::Global | Space::Texture | Space::Surface => {
                f64::from(memory.bytes.unwrap_or(4)) / 4.0
            }
            _ => 0.0,
        },
        // ptxas makes constants in the unit for half precision, from nothing.
        (None, Pipe::Half) if !inst.uses().iter().any(|reg| reg.file == File::R) => 0.0,
        (None, Pipe::Tensor | Pipe::Double | Pipe::Half | Pipe::Xu) => 1.0,
        (None, Pipe::Fma) if matches!(inst.mnemonic(), "FFMA" | "FMUL" | "FADD") => 1.0,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpalloc_sass::isa::{Sm, decode};

    /// HFMA2.MMA R41, -RZ, RZ, 0, 5.96e-08
    const CONSTANT: u128 = 0x000f_e200_0000_01ff_0000_0001_ff29_7435;
    /// MOV R2, 0x1
    const MOVE: u128 = 0x000f_e200_0000_0f00_0000_0001_0002_7802;
    /// EXIT
    const EXIT: u128 = 0x000f_ea00_0380_0000_0000_0000_0000_794d;

    #[test]
    fn constants_are_no_work() {
        let sm = Sm::new(90).unwrap();
        assert_eq!(work(&decode(CONSTANT, sm).unwrap()), 0.0);
        let reads_r1 = CONSTANT & !(0xff << 24) | 1 << 24;
        assert_eq!(work(&decode(reads_r1, sm).unwrap()), 1.0);
    }

    /// A loop of moves and its branch, by how many instructions it has.
    fn issue(machine: &Machine, instructions: usize) -> f64 {
        let back = -4 * instructions as i128;
        // @P0 BRA
        let branch = 0x947 | (back & 0xff) << 16 | (back >> 8 & 0xffff_ffff_ffff) << 34 | 7 << 87;
        let mut words = vec![MOVE; instructions - 1];
        words.extend([branch as u128, EXIT]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let code = Code::decode(&bytes, 90).unwrap();
        let cfg = Cfg::build(&code, &Default::default()).unwrap();
        let loops = Loops::compute(&cfg);
        assert_eq!(loops.longest(), instructions);
        let frequencies = [10.0, 0.0];
        simulate(
            machine,
            &code,
            &cfg,
            &loops,
            &frequencies,
            Misses::default(),
        )
        .issue
    }

    #[test]
    fn a_loop_is_fetched_where_the_cache_does_not_hold_it() {
        let machine = Machine::H200;
        let held = machine.held_instructions;
        let per_instruction = |count: usize| issue(&machine, count) / (10.0 * count as f64);
        assert_eq!(per_instruction(held), machine.issue);
        assert_eq!(per_instruction(held + 1), machine.loop_fetch);
    }
}
