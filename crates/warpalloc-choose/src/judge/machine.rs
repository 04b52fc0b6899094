//! What instructions cost, in one table.
//!
//! Latencies of loads and the rates of fetching were measured by `bench/judge_probe.py`
//! (`bench/results/judge.md`), the cycles of the memory pipe by the probe of spill forms
//! (`docs/ptxas-behaviour.md`). The rest is a matter of the model: how bounds add up, and how
//! often a loop runs of which nothing is known.

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
    /// Iterations of a loop.
    pub trips: f64,
    /// The exponent under which bounds add up; infinite where the largest alone counts.
    pub overlap: f64,
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
    /// Cycles of the memory pipe for a load of 4 bytes per thread from shared memory.
    pub shared_load_pipe: f64,
    /// The same for a store to shared memory.
    pub shared_store_pipe: f64,
    /// The same for a load from local or global memory.
    pub local_load_pipe: f64,
    /// The same for a store, which goes through to the second-level cache.
    pub local_store_pipe: f64,
    /// Cycles of a scheduler per instruction.
    pub issue: f64,
    /// Cycles per instruction of code that runs once, up to [`Self::near_instructions`].
    pub fetch: f64,
    /// The same beyond them.
    pub far_fetch: f64,
    /// Instructions that are fetched at the faster rate.
    pub near_instructions: f64,
}

impl Machine {
    /// Cycles per instruction of a kernel of so many, where each runs once.
    pub(super) fn fetch_cycles(&self, instructions: usize) -> f64 {
        let near = (self.near_instructions / instructions.max(1) as f64).min(1.0);
        near * self.fetch + (1.0 - near) * self.far_fetch
    }

    /// An H200.
    pub const H200: Machine = Machine {
        schedulers: 4.0,
        multiprocessors: 132.0,
        first_level_bytes: 256.0 * 1024.0,
        trips: 8.0,
        overlap: 3.0,
        shared_load: 23.0,
        local_load: 29.0,
        global_load: 264.0,
        miss: 235.0,
        source_read: 12.0,
        other: 24.0,
        shared_load_pipe: 1.0,
        shared_store_pipe: 1.0,
        local_load_pipe: 1.0,
        local_store_pipe: 6.0,
        issue: 1.0,
        fetch: 2.2,
        far_fetch: 7.6,
        near_instructions: 4096.0,
    };
}

#[cfg(test)]
mod tests {
    use super::Machine;

    #[test]
    fn code_is_fetched_slower_once_it_is_long() {
        let machine = Machine::H200;
        assert_eq!(machine.fetch_cycles(1), machine.fetch);
        assert_eq!(machine.fetch_cycles(4096), machine.fetch);
        let mean = (machine.fetch + machine.far_fetch) / 2.0;
        assert!((machine.fetch_cycles(8192) - mean).abs() < 1e-9);
    }
}
