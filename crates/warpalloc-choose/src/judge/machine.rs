//! What instructions cost, in one table.
//!
//! The rates of fetching were measured by `bench/judge_probe.py` (`bench/results/judge.md`); sizes of
//! caches and instructions per cycle of each unit are those that NVIDIA states. The latencies of loads are two to
//! three times those that the probe measures for one warp alone, since other warps load too. They, the cycles of each
//! level of memory, how much of global memory lies beyond the caches, how well kinds of work overlap, and the
//! iterations of a loop were fitted to measured times of all groups of kernels but `corpus/sealed`
//! (`examples/rank.rs`, `bench/results/judge-rank.md`): they make up for what the model leaves out.

/// The constants of the estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Machine {
    /// Warp schedulers of a multiprocessor.
    pub schedulers: f64,
    /// Multiprocessors.
    pub multiprocessors: f64,
    /// First-level cache and shared memory together, in bytes.
    pub first_level_bytes: f64,
    /// What of these can be set aside as shared memory, in bytes.
    pub carve_outs: [f64; 10],
    /// Shared memory of a block that the system takes, in bytes.
    pub system_shared_bytes: f64,
    /// Second-level cache in bytes.
    pub second_level_bytes: f64,
    /// Iterations of a loop.
    pub trips: f64,
    /// Cycles from a load of shared memory to its reader.
    pub shared_load: f64,
    /// Cycles from a load of local memory in the first-level cache to its reader.
    pub local_load: f64,
    /// Cycles from a load of global memory to its reader.
    pub global_load: f64,
    /// Cycles that a load takes longer where it misses the first-level cache.
    pub miss: f64,
    /// Cycles until an instruction behind a queue has read its sources.
    pub source_read: f64,
    /// Cycles from any other instruction of variable latency to its reader.
    pub other: f64,
    /// Cycles from an instruction of fixed latency to its reader, where only the text is known.
    pub fixed: f64,
    /// Cycles that a warp's access of 4 bytes per thread takes of the pipe to all memory.
    pub access: f64,
    /// Cycles that it takes of the second-level cache, where it gets there.
    pub second_level: f64,
    /// The same for a store to local memory, which always does.
    pub write_through: f64,
    /// Cycles that it takes of device memory, where it gets there.
    pub device_memory: f64,
    /// The share of accesses to global memory that get to device memory.
    pub global_beyond: f64,
    /// Cycles that a gather takes of the second-level cache where the first-level one has lost its line:
    /// threads of a warp load from as many lines.
    pub gather: f64,
    /// The exponent of the norm by which latency, issue, memory and computation add up: they would
    /// follow each other at 1, and the longest would hide all others at infinity.
    pub overlap: f64,
    /// Cycles of a scheduler per instruction.
    pub issue: f64,
    /// Cycles of the integer unit per instruction.
    pub integer: f64,
    /// Cycles of the single-precision unit per instruction.
    pub single: f64,
    /// Cycles of the double-precision unit per instruction.
    pub double: f64,
    /// Cycles of the matrix unit per instruction.
    pub tensor: f64,
    /// Cycles of the unit for transcendental functions per instruction.
    pub transcendental: f64,
    /// Cycles per instruction of code that runs once, up to [`Self::near_instructions`].
    pub fetch: f64,
    /// The same beyond them.
    pub far_fetch: f64,
    /// Instructions that are fetched at the faster rate.
    pub near_instructions: f64,
    /// Instructions of a loop that stay in the cache nearest to the schedulers.
    pub held_instructions: usize,
    /// Cycles per instruction of a loop that has more.
    pub loop_fetch: f64,
}

impl Machine {
    /// Cycles per instruction of a kernel of so many, where each runs once.
    pub(super) fn fetch_cycles(&self, instructions: usize) -> f64 {
        let near = (self.near_instructions / instructions.max(1) as f64).min(1.0);
        near * self.fetch + (1.0 - near) * self.far_fetch
    }

    /// Cycles that fetching takes per instruction of a loop of so many.
    pub(super) fn loop_fetch_cycles(&self, instructions: usize) -> f64 {
        match instructions > self.held_instructions {
            true => self.loop_fetch,
            false => 0.0,
        }
    }

    /// Bytes of the first-level cache that are left where a multiprocessor could hold so many
    /// blocks with so much shared memory each. The driver sets shared memory aside for all that
    /// would fit, also where the grid has fewer.
    pub(crate) fn cache_beside(&self, blocks: f64, shared: f64) -> f64 {
        if shared <= 0.0 {
            return self.first_level_bytes;
        }
        let needed = blocks * (shared + self.system_shared_bytes);
        let mut carve_outs = self.carve_outs.into_iter();
        let set_aside = carve_outs.find(|&bytes| bytes >= needed);
        self.first_level_bytes - set_aside.unwrap_or(self.carve_outs[9])
    }

    /// An H200.
    pub const H200: Machine = Machine {
        schedulers: 4.0,
        multiprocessors: 132.0,
        first_level_bytes: 256.0 * 1024.0,
        carve_outs: [
            0.0, 8192.0, 16384.0, 32768.0, 65536.0, 102_400.0, 135_168.0, 167_936.0, 200_704.0,
            233_472.0,
        ],
        system_shared_bytes: 1024.0,
        second_level_bytes: 50.0 * 1024.0 * 1024.0,
        trips: 6.0,
        shared_load: 45.0,
        local_load: 60.0,
        global_load: 700.0,
        miss: 100.0,
        source_read: 12.0,
        other: 24.0,
        fixed: 5.0,
        access: 1.0,
        second_level: 2.5,
        write_through: 5.4,
        device_memory: 4.2,
        global_beyond: 0.55,
        gather: 24.0,
        overlap: 2.4,
        issue: 1.0,
        integer: 2.0,
        single: 1.0,
        double: 2.0,
        tensor: 8.0,
        transcendental: 8.0,
        fetch: 2.2,
        far_fetch: 7.6,
        near_instructions: 4096.0,
        held_instructions: 2048,
        loop_fetch: 1.5,
    };
}

#[cfg(test)]
mod tests {
    use super::Machine;

    #[test]
    fn shared_memory_is_set_aside_in_steps_for_every_block_that_fits() {
        let machine = Machine::H200;
        let kib = 1024.0;
        assert_eq!(machine.cache_beside(32.0, 0.0), 256.0 * kib);
        assert_eq!(machine.cache_beside(1.0, 4.0), (256.0 - 8.0) * kib);
        assert_eq!(machine.cache_beside(16.0, 9.0 * kib), (256.0 - 164.0) * kib);
        assert_eq!(
            machine.cache_beside(1.0, 227.0 * kib),
            (256.0 - 228.0) * kib
        );
    }

    #[test]
    fn code_is_fetched_slower_once_it_is_long() {
        let machine = Machine::H200;
        assert_eq!(machine.fetch_cycles(1), machine.fetch);
        assert_eq!(machine.fetch_cycles(4096), machine.fetch);
        let mean = (machine.fetch + machine.far_fetch) / 2.0;
        assert!((machine.fetch_cycles(8192) - mean).abs() < 1e-9);
    }
}
