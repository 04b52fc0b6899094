//! An estimate of a kernel's cycles from its machine code, to order candidates by.
//!
//! One warp is simulated block by block: it issues in order, stalls as the scheduling bits say,
//! and waits for scoreboards until the latency of what they guard has passed. That gives its
//! cycles where nothing else runs ([`Estimate::alone`]); with other warps beside it, their work
//! hides its latency, and it waits for its share of the scheduler, of each level of memory and of the
//! units that compute. Blocks count by their frequency,
//! which loop nesting and branches give as the allocators have it.
//!
//! Two candidates for one kernel share its loops, its launch and most of its code, so what the
//! estimate cannot know (trip counts, cache misses, the size of the grid) touches both alike. It
//! orders candidates; it is no prediction of a time.
//!
//! [`Machine`] holds the constants, with the command that measured or fitted each.

mod frequency;
mod machine;
mod text;
mod warp;

use warpalloc::function::Function;
use warpalloc::target::Target;
use warpalloc::target::occupancy::{Launch, Occupancy, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc_ptx::module::lower_function;
use warpalloc_sass::isa::{Effect, Inst, Space};
use warpalloc_sass::loops::Loops;
use warpalloc_sass::object::{Cubin, ObjectError};
use warpalloc_sass::{Cfg, Code, MeasureError};

pub use machine::Machine;
pub(crate) use text::Shape;
use warp::{Cost, Misses, Traffic};

/// Why machine code was not judged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JudgeError {
    /// The file can't be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The code can't be read.
    #[error(transparent)]
    Code(#[from] MeasureError),
    /// There is no such kernel.
    #[error("the cubin has no kernel {0}")]
    NoKernel(String),
    /// The machine is unknown.
    #[error("no figures are known for sm_{0}")]
    Sm(u32),
    /// A multiprocessor cannot hold one block of it.
    #[error(
        "no multiprocessor holds a block of it: {registers} registers, {shared} bytes of shared memory"
    )]
    DoesNotFit {
        /// Registers per thread.
        registers: u32,
        /// Shared memory per block.
        shared: u64,
    },
}

/// How a kernel is launched, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// Threads per block; 256 where nobody says.
    pub block_threads: Option<u32>,
    /// Blocks of the grid.
    pub blocks: Option<u32>,
    /// Dynamic shared memory per block, in bytes.
    pub dynamic_shared: u32,
    /// The share of loads from global memory that are gathers, by the text ([`gathers`]).
    pub gathers: f64,
}

/// What a kernel costs per warp, in cycles, in the two settings between which launches lie. Both
/// are that of the launch where its grid is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Where each scheduler holds one warp and the cache holds every frame.
    pub alone: f64,
    /// Where the grid is large, so that multiprocessors hold as many blocks as they can.
    pub full: f64,
    /// Shared memory that the code declares, in bytes per block.
    pub shared_bytes: u64,
    /// Warps that a multiprocessor holds at a time.
    pub warps: u32,
    /// Stores to local memory in the machine code; none where only the text is known.
    pub local_stores: usize,
    /// Whether a loop is longer than the cache nearest to the schedulers.
    pub has_long_loop: bool,
    /// The kernel's own instructions among them.
    work: f64,
}

impl Estimate {
    /// One for tests.
    #[cfg(test)]
    pub(crate) fn of_stores(local_stores: usize) -> Estimate {
        Estimate {
            alone: 1.0,
            full: 1.0,
            shared_bytes: 0,
            warps: 64,
            local_stores,
            has_long_loop: false,
            work: 0.0,
        }
    }

    /// Whether it stores to local memory.
    pub fn spills(&self) -> bool {
        self.local_stores > 0
    }

    /// This over `other`, alone and full. Where ptxas unrolled a loop in one of the two, an
    /// iteration of it does more work; cycles are compared for the same work.
    pub fn over(&self, other: &Estimate) -> [f64; 2] {
        let same = match (self.work, other.work) {
            (own, its) if own > 0.0 && its > 0.0 => its / own,
            _ => 1.0,
        };
        [
            same * self.alone / other.alone,
            same * self.full / other.full,
        ]
    }
}

fn stores_to_local(inst: &Inst) -> bool {
    let memory = inst.memory();
    memory.is_some_and(|m| m.space == Space::Local && m.effect == Effect::Store)
}

/// Cycles per warp and scheduler where a multiprocessor holds `warps` of them: what the others do
/// not hide of its latency, and what it takes of the scheduler, of memory and of the busiest unit.
/// Each overlaps with the others, but not wholly.
fn per_warp(machine: &Machine, cost: &Cost, misses: Misses, warps: f64) -> f64 {
    let schedulers = machine.schedulers.min(warps);
    let busiest = cost.units.into_iter().fold(0.0, f64::max);
    let all = [
        cost.latency * schedulers / warps,
        cost.issue,
        cost.traffic.cycles(machine, misses) * schedulers,
        busiest,
    ];
    let powers = all.map(|cycles| cycles.powf(machine.overlap));
    powers.iter().sum::<f64>().powf(1.0 / machine.overlap)
}

/// Estimates `kernel` of a cubin.
pub fn judge(
    machine: &Machine,
    cubin: &[u8],
    kernel: &str,
    setting: Setting,
) -> Result<Estimate, JudgeError> {
    let cubin = Cubin::read(cubin)?;
    let function = cubin
        .function(kernel)
        .ok_or_else(|| JudgeError::NoKernel(kernel.to_owned()))?;
    let sm = Sm::from_number(cubin.arch.sm).ok_or(JudgeError::Sm(cubin.arch.sm))?;
    let code = Code::decode(function.code, cubin.arch.sm).map_err(MeasureError::from)?;
    let cfg = Cfg::build(&code, &cubin.links(function, &code)).map_err(MeasureError::from)?;
    let loops = Loops::compute(&cfg);
    let block_threads = setting
        .block_threads
        .or_else(|| function.block_threads())
        .unwrap_or(256);
    let resources = Resources {
        sm,
        registers: function.registers.unwrap_or(255),
        block_threads,
        shared: function.shared_bytes + u64::from(setting.dynamic_shared),
        frame: function
            .stack_bytes
            .unwrap_or(0)
            .max(function.frame_bytes.unwrap_or(0)),
        gathers: setting.gathers,
    };
    let frequencies = frequency::frequencies(&cfg, &loops, machine.trips);
    let simulate = |misses| warp::simulate(machine, &code, &cfg, &loops, &frequencies, misses);
    let alone = simulate(Misses::default());
    let (alone_cycles, full) = resources.cycles(machine, setting.blocks, &alone, simulate)?;
    Ok(Estimate {
        alone: alone_cycles,
        full,
        shared_bytes: function.shared_bytes,
        warps: resources.warps(),
        local_stores: code.insts().iter().filter(|i| stores_to_local(i)).count(),
        has_long_loop: loops.longest() > machine.held_instructions,
        work: alone.work,
    })
}

/// What a kernel takes of a multiprocessor.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// The machine.
    pub sm: Sm,
    /// Registers per thread.
    pub registers: u32,
    /// Threads per block.
    pub block_threads: u32,
    /// Bytes of shared memory per block, the dynamic share included.
    pub shared: u64,
    /// Bytes of local memory per thread.
    pub frame: u32,
    /// The share of loads from global memory that are gathers.
    pub gathers: f64,
}

impl Resources {
    /// Blocks and warps that a multiprocessor holds at a time.
    fn resident(&self) -> Result<Occupancy, JudgeError> {
        let launch = Launch {
            registers_per_thread: self.registers,
            block_threads: self.block_threads,
            shared_bytes: u32::try_from(self.shared).unwrap_or(u32::MAX),
        };
        let resident = occupancy(self.sm, &launch).ok().filter(|o| o.warps > 0);
        resident.ok_or(JudgeError::DoesNotFit {
            registers: self.registers,
            shared: self.shared,
        })
    }

    /// Warps that a multiprocessor holds at a time; none where it holds no block.
    pub(crate) fn warps(&self) -> u32 {
        self.resident().map_or(0, |resident| resident.warps)
    }

    /// Cycles per warp alone and on a full machine, or twice those of a launch of so many blocks.
    fn cycles(
        &self,
        machine: &Machine,
        blocks: Option<u32>,
        alone: &Cost,
        simulate: impl Fn(Misses) -> Cost,
    ) -> Result<(f64, f64), JudgeError> {
        let resident = self.resident()?;
        let block_warps = f64::from(self.block_threads.div_ceil(32));
        let most = f64::from(resident.blocks);
        let cache = machine.cache_beside(most, self.shared as f64);
        // Cycles per warp of the launch where each multiprocessor holds so many blocks.
        let with_blocks = |blocks: f64| {
            let misses = self.misses(machine, &alone.traffic, blocks, cache);
            per_warp(machine, &simulate(misses), misses, blocks * block_warps)
        };
        Ok(match blocks {
            None => (alone.latency, with_blocks(most)),
            Some(blocks) => {
                // Blocks that find no room wait for others to end.
                let cycles = with_blocks(held(machine, blocks, most));
                (cycles, cycles)
            }
        })
    }

    /// The share of accesses to frames that each cache misses where a multiprocessor holds so many
    /// blocks, with so many bytes of the first-level cache. Until a thread comes back to a slot, all
    /// threads go through their frames and through what they access of global memory meanwhile; a
    /// cache that does not hold as much has lost its part of the slots. Gathers come back to their
    /// lines sooner, so that they lose what shared memory takes of the first-level cache.
    fn misses(&self, machine: &Machine, traffic: &Traffic, blocks: f64, cache: f64) -> Misses {
        let gathers = self.gathers * (1.0 - cache.max(0.0) / machine.first_level_bytes);
        let accesses = traffic.local();
        if accesses == 0.0 {
            return Misses {
                gathers,
                ..Misses::default()
            };
        }
        let frame = f64::from(self.frame);
        let between_accesses = (frame / 4.0 / accesses).min(1.0);
        let per_thread = frame + 4.0 * traffic.global * between_accesses;
        let bytes = per_thread * blocks * f64::from(self.block_threads);
        let beyond = |cache: f64, bytes: f64| (1.0 - cache.max(0.0) / bytes.max(1.0)).max(0.0);
        Misses {
            first_level: beyond(cache, bytes),
            second_level: beyond(machine.second_level_bytes, bytes * machine.multiprocessors),
            gathers,
        }
    }

    /// Where the frames of all blocks are that a multiprocessor holds of a launch; `None` where it holds
    /// no block.
    pub(crate) fn frames(&self, machine: &Machine, blocks: Option<u32>) -> Option<Frames> {
        let most = f64::from(self.resident().ok()?.blocks);
        let held = blocks.map_or(most, |blocks| held(machine, blocks, most));
        let threads = held * f64::from(self.block_threads);
        let cache = machine.cache_beside(most, self.shared as f64);
        let uncached = (f64::from(self.frame) * threads - cache).max(0.0);
        Some(Frames { threads, uncached })
    }
}

/// The frames of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frames {
    /// Threads that have one.
    pub(crate) threads: f64,
    /// Bytes that the first-level cache does not hold.
    pub(crate) uncached: f64,
}

/// Blocks that a multiprocessor holds at a time where it could hold `most`.
fn held(machine: &Machine, blocks: u32, most: f64) -> f64 {
    let each = (f64::from(blocks) / machine.multiprocessors).ceil();
    each.min(most).max(1.0)
}

/// The share of gathers among a kernel's loads from global memory; none where the text is not
/// understood.
pub fn gathers(source: &str, kernel: &str) -> f64 {
    let function = Target::preset("hardware", 90)
        .ok()
        .and_then(|target| lower_function(source, kernel, &target).ok().flatten());
    function.map_or(0.0, |function| Shape::of(&Machine::H200, &function).gathers)
}

/// Estimates a kernel from its text, which says nothing of what ptxas will add. Only estimates of
/// texts can be compared with each other.
pub fn judge_text(
    machine: &Machine,
    function: &Function,
    resources: Resources,
    blocks: Option<u32>,
) -> Result<Estimate, JudgeError> {
    let simulate = |misses| text::simulate(machine, function, misses);
    let alone = simulate(Misses::default());
    let (alone_cycles, full) = resources.cycles(machine, blocks, &alone, simulate)?;
    Ok(Estimate {
        alone: alone_cycles,
        full,
        shared_bytes: resources.shared,
        warps: resources.warps(),
        local_stores: 0,
        has_long_loop: Shape::of(machine, function).longest_loop > machine.held_instructions,
        work: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_hide_latency_and_share_everything_else() {
        let traffic = Traffic {
            shared: 60.0,
            ..Traffic::default()
        };
        let cost = |latency: f64, issue: f64, traffic: Traffic, busiest: f64| {
            let mut units = [0.0; warp::UNITS];
            units[1] = busiest;
            Cost {
                latency,
                issue,
                traffic,
                units,
                work: 1.0,
            }
        };
        let none = Traffic::default();
        let cycles = |cost: Cost, warps: f64| {
            per_warp(&Machine::H200, &cost, Misses::default(), warps).round()
        };
        let latency = cost(100.0, 0.0, none, 0.0);
        assert_eq!(
            [1.0, 4.0, 16.0].map(|w| cycles(latency, w)),
            [100.0, 100.0, 25.0]
        );
        let issue = cost(0.0, 10.0, none, 7.0);
        assert!(
            [1.0, 16.0]
                .map(|w| cycles(issue, w))
                .iter()
                .all(|&c| c > 10.0 && c < 17.0)
        );
        let memory = cost(0.0, 0.0, traffic, 0.0);
        assert_eq!(cycles(memory, 1.0), 60.0, "one runs alone");
        assert_eq!(cycles(memory, 4.0), 240.0, "four share one pipe");
    }

    /// Four threads of 64 KB each fill the first-level cache.
    #[test]
    fn what_is_accessed_between_two_accesses_to_a_slot_takes_cache_from_it() {
        let machine = Machine::H200;
        let resources = Resources {
            sm: Sm::from_number(90).unwrap(),
            registers: 40,
            block_threads: 4,
            shared: 0,
            frame: 64 * 1024,
            gathers: 0.5,
        };
        let misses = |local_loads: f64, global: f64, blocks: f64| {
            let traffic = Traffic {
                local_loads,
                global,
                ..Traffic::default()
            };
            let cache = machine.first_level_bytes;
            resources
                .misses(&machine, &traffic, blocks, cache)
                .first_level
        };
        let slots = 16.0 * 1024.0;
        assert_eq!(misses(slots, 0.0, 1.0), 0.0, "frames fit");
        assert_eq!(misses(slots, 0.0, 2.0), 0.5, "half of them do");
        assert_eq!(
            misses(slots, slots, 1.0),
            0.5,
            "as much of global memory comes between"
        );
        assert_eq!(misses(2.0 * slots, 2.0 * slots, 1.0), 0.5, "as often");
        assert_eq!(misses(0.0, slots, 2.0), 0.0, "there is nothing to miss");
        let gathers = |cache: f64| {
            let traffic = Traffic::default();
            resources.misses(&machine, &traffic, 1.0, cache).gathers
        };
        assert_eq!(gathers(machine.first_level_bytes), 0.0);
        assert_eq!(gathers(machine.first_level_bytes / 4.0), 0.5 * 0.75);
    }

    #[test]
    fn each_level_of_memory_takes_its_cycles() {
        let machine = Machine::H200;
        let far = Misses {
            first_level: 1.0,
            second_level: 1.0,
            gathers: 1.0,
        };
        let traffic = |local_loads: f64, local_stores: f64, global: f64| Traffic {
            shared: 0.0,
            local_loads,
            local_stores,
            global,
            global_loads: global,
        };
        let near = |traffic: Traffic| traffic.cycles(&machine, Misses::default());
        assert_eq!(near(traffic(1.0, 0.0, 0.0)), machine.access);
        let store = machine.access + machine.write_through;
        assert_eq!(near(traffic(0.0, 1.0, 0.0)), store);
        let load = machine.access + machine.second_level + machine.device_memory;
        assert_eq!(traffic(1.0, 0.0, 0.0).cycles(&machine, far), load);
        let global = near(traffic(0.0, 0.0, 1.0));
        assert!(global > machine.access + machine.second_level && global < load);
        let gathered = traffic(0.0, 0.0, 1.0).cycles(&machine, far);
        assert!((gathered - global - machine.gather).abs() < 1e-9);
    }

    /// 32 blocks of a warp could be resident, and the grid has 8 for each multiprocessor.
    #[test]
    fn frames_may_lose_the_cache_to_shared_memory() {
        let machine = Machine::H200;
        let uncached = |frame: u32, shared: u64, blocks: Option<u32>| {
            let resources = Resources {
                sm: Sm::from_number(90).unwrap(),
                registers: 40,
                block_threads: 32,
                shared,
                frame,
                gathers: 0.0,
            };
            let frames = resources.frames(&machine, blocks).unwrap();
            frames.uncached / 1024.0
        };
        assert_eq!(uncached(832, 0, Some(8 * 132)), 0.0, "208 of 256 KB");
        assert_eq!(uncached(728, 4224, Some(8 * 132)), 182.0 - 92.0);
        assert_eq!(uncached(192, 4224, Some(8 * 132)), 0.0, "48 of 92 KB");
        assert_eq!(uncached(832, 0, None), 832.0 - 256.0);
    }

    #[test]
    fn the_same_work_is_compared() {
        let estimate = |cycles: f64, work: f64| Estimate {
            alone: cycles,
            full: cycles,
            shared_bytes: 0,
            warps: 64,
            local_stores: 1,
            has_long_loop: false,
            work,
        };
        let unrolled = estimate(150.0, 2.0);
        assert_eq!(unrolled.over(&estimate(100.0, 1.0)), [0.75; 2]);
        assert_eq!(estimate(150.0, 0.0).over(&estimate(100.0, 1.0)), [1.5; 2]);
    }
}
