//! How many blocks of a kernel a multiprocessor holds at once, and what a register costs.
//!
//! A multiprocessor keeps blocks resident as long as each of four resources lasts: warp slots,
//! block slots, registers and shared memory. The scarcest one decides. Registers are the subtle
//! one:
//!
//! * a warp gets `32 × registers`, rounded up to the allocation granularity;
//! * it gets them from one of the four partitions, so the warps that fit are four times what fits
//!   in a quarter of the register file, whatever is left over in each quarter;
//! * the check that a single block fits at all counts its warps rounded up to a multiple of four,
//!   as if every partition held equally many. A block of 25 warps is therefore refused from 73
//!   registers on, where 28 warps no longer fit, though 25 would.
//!
//! So occupancy is a staircase over the register count: flat for most counts, with a cliff behind
//! some. An allocator that stays one register below a cliff gains a whole block; one that goes up
//! to the next cliff pays nothing. [`cliffs`] is that staircase, and [`budget_for_occupancy`]
//! reads it backwards: the most registers a thread may use for a wanted occupancy.
//!
//! The result is what `cuOccupancyMaxActiveBlocksPerMultiprocessor` answers with the default
//! carve-out, for a kernel that has opted in to all the dynamic shared memory it is launched with.

use std::fmt;

use super::sm::{Sm, SmLimits, WARP_SIZE};

/// What a kernel is launched with, as far as occupancy depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// 32-bit registers of each thread.
    pub registers_per_thread: u32,
    /// Threads of each block.
    pub block_threads: u32,
    /// Bytes of shared memory of each block, static and dynamic together.
    pub shared_bytes: u32,
}

/// A resource whose exhaustion bounds the number of resident blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limiter {
    /// Warp slots, which is to say threads.
    Warps,
    /// Block slots.
    Blocks,
    /// The register file.
    Registers,
    /// Shared memory.
    SharedMemory,
}

impl Limiter {
    /// Every resource, in the order reports list them.
    pub const ALL: [Limiter; 4] = [
        Limiter::Warps,
        Limiter::Blocks,
        Limiter::Registers,
        Limiter::SharedMemory,
    ];
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limiter::Warps => "warps",
            Limiter::Blocks => "blocks",
            Limiter::Registers => "registers",
            Limiter::SharedMemory => "shared memory",
        })
    }
}

/// How many blocks each resource has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Blocks the warp slots hold.
    pub warps: u32,
    /// Blocks the block slots hold.
    pub blocks: u32,
    /// Blocks the register file holds.
    pub registers: u32,
    /// Blocks shared memory holds; `None` where a block takes none of it.
    pub shared_memory: Option<u32>,
}

impl Room {
    /// Blocks that resource has room for; `None` where it sets no bound.
    pub fn of(&self, limiter: Limiter) -> Option<u32> {
        match limiter {
            Limiter::Warps => Some(self.warps),
            Limiter::Blocks => Some(self.blocks),
            Limiter::Registers => Some(self.registers),
            Limiter::SharedMemory => self.shared_memory,
        }
    }

    /// Blocks all resources together have room for.
    fn resident_blocks(&self) -> u32 {
        let slots = self.warps.min(self.blocks).min(self.registers);
        self.shared_memory.map_or(slots, |shared| shared.min(slots))
    }
}

/// Why not even one block can be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A block needs more registers than a block may have.
    Registers {
        /// Registers the launch check counts for one block.
        needed: u32,
        /// Registers a block may have.
        available: u32,
    },
    /// A block needs more shared memory than a block may have.
    SharedMemory {
        /// Bytes asked for.
        needed: u32,
        /// Bytes a block may have by opting in.
        available: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, available, what) = match self {
            Refusal::Registers { needed, available } => (needed, available, "registers"),
            Refusal::SharedMemory { needed, available } => {
                (needed, available, "bytes of shared memory")
            }
        };
        write!(f, "a block needs {needed} {what} and may have {available}")
    }
}

/// A run of register counts with one occupancy; behind its last count lies a cliff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cliff {
    /// The smallest register count of the run.
    pub first_registers: u32,
    /// The largest register count of the run, the one worth using.
    pub last_registers: u32,
    /// Blocks resident at these counts.
    pub blocks: u32,
    /// Warps resident at these counts.
    pub warps: u32,
}

/// How many blocks of a kernel are resident on one multiprocessor, and why not more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Blocks resident at once; zero if the kernel can't be launched.
    pub blocks: u32,
    /// Warps resident at once.
    pub warps: u32,
    /// Warps the multiprocessor could hold.
    pub max_warps: u32,
    /// Blocks each resource has room for.
    pub room: Room,
    /// Why no block fits, where none does.
    pub refusal: Option<Refusal>,
    /// The nearest run below with more blocks: its last count is the most registers that reach it.
    pub next_higher: Option<Cliff>,
    /// The nearest run above with fewer blocks: its first count is the fewest registers that fall
    /// to it.
    pub next_lower: Option<Cliff>,
}

impl Occupancy {
    /// Resident warps in percent of what the multiprocessor could hold.
    pub fn percent(&self) -> f64 {
        percent_of(self.warps, self.max_warps)
    }

    /// The resources that bound the number of blocks; more of each of them is needed for more
    /// blocks.
    pub fn limiters(&self) -> impl Iterator<Item = Limiter> + '_ {
        Limiter::ALL
            .into_iter()
            .filter(|&limiter| self.room.of(limiter) == Some(self.blocks))
    }
}

/// `warps` in percent of `max_warps`.
pub fn percent_of(warps: u32, max_warps: u32) -> f64 {
    f64::from(warps) * 100.0 / f64::from(max_warps)
}

/// A launch no multiprocessor of that generation has a meaning for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OccupancyError {
    /// The block size is zero or beyond the maximum.
    #[error("block size {value} is out of range: {sm} takes 1 to {max} threads")]
    BlockThreads {
        /// The SM asked about.
        sm: Sm,
        /// The block size given.
        value: u32,
        /// The largest block size.
        max: u32,
    },
    /// The register count is zero or beyond the maximum.
    #[error("{value} registers per thread are out of range: {sm} takes 1 to {max}")]
    RegistersPerThread {
        /// The SM asked about.
        sm: Sm,
        /// The register count given.
        value: u32,
        /// The largest register count.
        max: u32,
    },
    /// The wanted occupancy is beyond 100 %.
    #[error("an occupancy of {value} % is out of range: 0 to 100 % can be asked for")]
    TargetPercent {
        /// The percentage given.
        value: u32,
    },
}

/// How many blocks of a kernel launched like this are resident on one multiprocessor.
pub fn occupancy(sm: Sm, launch: &Launch) -> Result<Occupancy, OccupancyError> {
    let limits = sm.limits();
    check_registers(sm, launch.registers_per_thread)?;
    let staircase = cliffs(sm, launch.block_threads, launch.shared_bytes)?;
    let room = room(limits, launch);
    let blocks = room.resident_blocks();
    let registers = launch.registers_per_thread;
    Ok(Occupancy {
        blocks,
        warps: blocks * warps_per_block(launch),
        max_warps: limits.warps_per_sm,
        room,
        refusal: refusal(limits, launch),
        next_higher: staircase
            .iter()
            .rfind(|step| step.last_registers < registers)
            .copied(),
        next_lower: staircase
            .iter()
            .find(|step| step.first_registers > registers)
            .copied(),
    })
}

/// The staircase of occupancy over all register counts, from one register up, for blocks of this
/// size.
pub fn cliffs(sm: Sm, block_threads: u32, shared_bytes: u32) -> Result<Vec<Cliff>, OccupancyError> {
    check_block(sm, block_threads)?;
    let limits = sm.limits();
    let mut steps: Vec<Cliff> = Vec::new();
    for registers_per_thread in 1..=limits.registers_per_thread {
        let launch = Launch {
            registers_per_thread,
            block_threads,
            shared_bytes,
        };
        let blocks = room(limits, &launch).resident_blocks();
        match steps.last_mut() {
            Some(step) if step.blocks == blocks => step.last_registers = registers_per_thread,
            _ => steps.push(Cliff {
                first_registers: registers_per_thread,
                last_registers: registers_per_thread,
                blocks,
                warps: blocks * warps_per_block(&launch),
            }),
        }
    }
    Ok(steps)
}

/// The most registers a thread may use for at least the wanted occupancy; `None` if no register
/// count reaches it because another resource runs out before, or nothing can be launched at all.
pub fn budget_for_occupancy(
    sm: Sm,
    block_threads: u32,
    shared_bytes: u32,
    target_percent: u32,
) -> Result<Option<u32>, OccupancyError> {
    if target_percent > 100 {
        return Err(OccupancyError::TargetPercent {
            value: target_percent,
        });
    }
    let max_warps = sm.limits().warps_per_sm;
    let reaches = |step: &&Cliff| step.warps > 0 && step.warps * 100 >= target_percent * max_warps;
    let staircase = cliffs(sm, block_threads, shared_bytes)?;
    Ok(staircase
        .iter()
        .rfind(reaches)
        .map(|step| step.last_registers))
}

fn check_block(sm: Sm, value: u32) -> Result<(), OccupancyError> {
    let max = sm.limits().threads_per_block;
    let valid = (1..=max).contains(&value);
    valid
        .then_some(())
        .ok_or(OccupancyError::BlockThreads { sm, value, max })
}

fn check_registers(sm: Sm, value: u32) -> Result<(), OccupancyError> {
    let max = sm.limits().registers_per_thread;
    let valid = (1..=max).contains(&value);
    valid
        .then_some(())
        .ok_or(OccupancyError::RegistersPerThread { sm, value, max })
}

fn room(limits: &SmLimits, launch: &Launch) -> Room {
    Room {
        warps: limits.warps_per_sm / warps_per_block(launch),
        blocks: limits.blocks_per_sm,
        registers: room_in_registers(limits, launch),
        shared_memory: room_in_shared_memory(limits, launch),
    }
}

fn warps_per_block(launch: &Launch) -> u32 {
    launch.block_threads.div_ceil(WARP_SIZE)
}

fn registers_per_warp(limits: &SmLimits, launch: &Launch) -> u32 {
    (launch.registers_per_thread * WARP_SIZE).next_multiple_of(limits.register_granularity)
}

/// Registers the launch check counts for a block: its warps spread evenly over the partitions.
fn registers_per_block(limits: &SmLimits, launch: &Launch) -> u32 {
    let warps = warps_per_block(launch).next_multiple_of(limits.partitions);
    registers_per_warp(limits, launch) * warps
}

fn room_in_registers(limits: &SmLimits, launch: &Launch) -> u32 {
    if registers_per_block(limits, launch) > limits.registers_per_block {
        return 0;
    }
    let registers_per_partition = limits.registers_per_sm / limits.partitions;
    let warps_per_partition = registers_per_partition / registers_per_warp(limits, launch);
    warps_per_partition * limits.partitions / warps_per_block(launch)
}

fn room_in_shared_memory(limits: &SmLimits, launch: &Launch) -> Option<u32> {
    if launch.shared_bytes > limits.shared_per_block_opt_in {
        return Some(0);
    }
    let taken = (launch.shared_bytes + limits.reserved_shared_per_block)
        .next_multiple_of(limits.shared_granularity);
    limits.shared_per_sm.checked_div(taken)
}

fn refusal(limits: &SmLimits, launch: &Launch) -> Option<Refusal> {
    let registers = registers_per_block(limits, launch);
    if registers > limits.registers_per_block {
        let available = limits.registers_per_block;
        return Some(Refusal::Registers {
            needed: registers,
            available,
        });
    }
    let (needed, available) = (launch.shared_bytes, limits.shared_per_block_opt_in);
    (needed > available).then_some(Refusal::SharedMemory { needed, available })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(sm: Sm, registers: u32, block: u32, shared: u32) -> Occupancy {
        let launch = Launch {
            registers_per_thread: registers,
            block_threads: block,
            shared_bytes: shared,
        };
        occupancy(sm, &launch).unwrap()
    }

    fn limiters(occupancy: &Occupancy) -> Vec<Limiter> {
        occupancy.limiters().collect()
    }

    #[test]
    fn eighty_registers_on_hopper() {
        let answer = ask(Sm::Sm90, 80, 256, 0);
        assert_eq!(
            (answer.blocks, answer.warps, answer.percent()),
            (3, 24, 37.5)
        );
        assert_eq!(limiters(&answer), [Limiter::Registers]);
        let higher = answer.next_higher.unwrap();
        assert_eq!((higher.last_registers, higher.blocks), (64, 4));
        let lower = answer.next_lower.unwrap();
        assert_eq!((lower.first_registers, lower.blocks), (81, 2));
    }

    #[test]
    fn each_resource_can_be_the_scarce_one() {
        assert_eq!(limiters(&ask(Sm::Sm90, 16, 1024, 0)), [Limiter::Warps]);
        assert_eq!(limiters(&ask(Sm::Sm90, 16, 32, 0)), [Limiter::Blocks]);
        assert_eq!(limiters(&ask(Sm::Sm90, 255, 128, 0)), [Limiter::Registers]);
        assert_eq!(
            limiters(&ask(Sm::Sm90, 16, 128, 65536)),
            [Limiter::SharedMemory]
        );
        assert_eq!(
            limiters(&ask(Sm::Sm90, 32, 64, 0)),
            [Limiter::Warps, Limiter::Blocks, Limiter::Registers]
        );
    }

    #[test]
    fn shared_memory_is_no_bound_where_a_block_takes_none() {
        assert_eq!(ask(Sm::Sm75, 32, 64, 0).room.shared_memory, None);
        assert_eq!(ask(Sm::Sm75, 32, 64, 1).room.shared_memory, Some(256));
        assert_eq!(ask(Sm::Sm80, 32, 64, 0).room.shared_memory, Some(164));
    }

    /// Well-known maxima: the most registers a thread may use at full occupancy.
    #[test]
    fn full_occupancy_budgets() {
        for (sm, block, registers) in [
            (Sm::Sm70, 256, 32),
            (Sm::Sm75, 256, 64),
            (Sm::Sm80, 256, 32),
            (Sm::Sm86, 256, 40),
            (Sm::Sm89, 256, 40),
            (Sm::Sm110, 256, 40),
            (Sm::Sm120, 256, 40),
        ] {
            assert_eq!(
                budget_for_occupancy(sm, block, 0, 100),
                Ok(Some(registers)),
                "{sm}"
            );
        }
        // 1536 threads hold one block of 1024, which is no full occupancy.
        assert_eq!(budget_for_occupancy(Sm::Sm86, 1024, 0, 100), Ok(None));
        assert_eq!(budget_for_occupancy(Sm::Sm86, 1024, 0, 66), Ok(Some(64)));
    }

    #[test]
    fn a_launch_that_cannot_be_is_zero_blocks_with_a_reason() {
        let answer = ask(Sm::Sm90, 65, 1024, 0);
        assert_eq!((answer.blocks, answer.warps), (0, 0));
        assert_eq!(
            answer.refusal,
            Some(Refusal::Registers {
                needed: 73728,
                available: 65536
            })
        );
        assert_eq!(limiters(&answer), [Limiter::Registers]);
        assert_eq!(
            (
                answer.next_higher.unwrap().last_registers,
                answer.next_lower
            ),
            (64, None)
        );

        let answer = ask(Sm::Sm90, 32, 128, 232_449);
        assert_eq!(answer.blocks, 0);
        assert_eq!(
            answer.refusal.unwrap().to_string(),
            "a block needs 232449 bytes of shared memory and may have 232448"
        );
        assert_eq!(ask(Sm::Sm90, 32, 128, u32::MAX).blocks, 0);
        assert_eq!(budget_for_occupancy(Sm::Sm90, 128, u32::MAX, 0), Ok(None));
    }

    #[test]
    fn values_out_of_range_are_named() {
        let launch = |registers_per_thread, block_threads| Launch {
            registers_per_thread,
            block_threads,
            shared_bytes: 0,
        };
        let message = |l: Launch| occupancy(Sm::Sm90, &l).unwrap_err().to_string();
        assert_eq!(
            message(launch(32, 0)),
            "block size 0 is out of range: sm_90 takes 1 to 1024 threads"
        );
        assert_eq!(
            message(launch(32, 2000)),
            "block size 2000 is out of range: sm_90 takes 1 to 1024 threads"
        );
        assert_eq!(
            message(launch(300, 32)),
            "300 registers per thread are out of range: sm_90 takes 1 to 255"
        );
        assert_eq!(
            message(launch(u32::MAX, u32::MAX)),
            message(launch(u32::MAX, 32))
        );
        assert_eq!(
            budget_for_occupancy(Sm::Sm90, 256, 0, 101),
            Err(OccupancyError::TargetPercent { value: 101 })
        );
        assert!(cliffs(Sm::Sm90, 1025, 0).is_err());
    }

    /// Over every SM and a grid of launches: zero blocks exactly with a reason, the limiters
    /// explain the answer, and the staircase, the neighbours and the budget say the same as
    /// asking count by count.
    #[test]
    fn all_views_agree() {
        for sm in Sm::ALL {
            let limits = sm.limits();
            for block in [1, 32, 96, 100, 256, 480, 777, 1024] {
                for shared in [
                    0,
                    1,
                    9_000,
                    49_152,
                    limits.shared_per_block_opt_in,
                    limits.shared_per_sm + 1,
                ] {
                    check_views(sm, block, shared);
                }
            }
        }
    }

    fn check_views(sm: Sm, block: u32, shared: u32) {
        let staircase = cliffs(sm, block, shared).unwrap();
        let answers: Vec<Occupancy> = (1..=255).map(|r| ask(sm, r, block, shared)).collect();
        assert!(
            staircase.is_sorted_by(|a, b| a.blocks > b.blocks),
            "{sm} {block} {shared}"
        );
        assert_eq!(staircase.last().map(|step| step.last_registers), Some(255));
        for (registers, answer) in (1..).zip(&answers) {
            assert_eq!(
                answer.refusal.is_some(),
                answer.blocks == 0,
                "{sm} {registers} {block} {shared}"
            );
            assert!(answer.limiters().next().is_some());
            let better = answers[..registers as usize - 1]
                .iter()
                .rposition(|a| a.blocks > answer.blocks);
            let worse = answers[registers as usize..]
                .iter()
                .position(|a| a.blocks < answer.blocks);
            assert_eq!(
                answer.next_higher.map(|c| c.last_registers as usize),
                better.map(|at| at + 1)
            );
            assert_eq!(
                answer.next_lower.map(|c| c.first_registers as usize),
                worse.map(|at| at + registers as usize + 1)
            );
        }
        for target in [0, 25, 50, 75, 100] {
            let reaches = |a: &Occupancy| a.blocks > 0 && a.percent() >= f64::from(target);
            let expected = answers.iter().rposition(reaches).map(|at| at as u32 + 1);
            assert_eq!(
                budget_for_occupancy(sm, block, shared, target),
                Ok(expected)
            );
        }
    }
}
