//! What each generation of NVIDIA's multiprocessors (SMs) has to share among its warps.
//!
//! Sources, named where a figure first appears: **guide** is the table "Technical Specifications
//! per Compute Capability" of the CUDA C++ Programming Guide; **calculator** is the stand-alone
//! occupancy calculator shipped with the CUDA Toolkit (`cuda_occupancy.h`), the only published
//! place of the allocation granularities. The architectures' tuning guides repeat some of them,
//! and `cuda::arch_traits` of the CUDA Core Compute Libraries agrees with the table for every SM
//! but 72, which it leaves out. The figures of SM 90 are also what an H200 reports about itself
//! (see `tests/data/occupancy_h200.txt`).

use std::fmt;
use std::str::FromStr;

/// Threads in a warp, on every SM (guide: "Warp size").
pub const WARP_SIZE: u32 = 32;

/// The occupancy aimed at by default, in percent.
pub const DEFAULT_OCCUPANCY_TARGET_PERCENT: u32 = 75;

const KIB: u32 = 1024;

/// What one multiprocessor has, and in which portions it hands it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmLimits {
    /// 32-bit registers of the multiprocessor.
    pub registers_per_sm: u32,
    /// 32-bit registers one block can have at most.
    pub registers_per_block: u32,
    /// 32-bit registers one thread can have at most.
    pub registers_per_thread: u32,
    /// Registers are given to a warp in multiples of this.
    pub register_granularity: u32,
    /// Partitions a multiprocessor is split into; a warp lives in one, with a quarter of the
    /// registers.
    pub partitions: u32,
    /// Warps resident at once.
    pub warps_per_sm: u32,
    /// Blocks resident at once.
    pub blocks_per_sm: u32,
    /// Threads one block can have at most.
    pub threads_per_block: u32,
    /// Bytes of shared memory of the multiprocessor, at the largest carve-out.
    pub shared_per_sm: u32,
    /// Bytes of shared memory a block gets without asking for more.
    pub shared_per_block: u32,
    /// Bytes of shared memory a block gets when its kernel opts in to the maximum.
    pub shared_per_block_opt_in: u32,
    /// Bytes of shared memory the driver keeps for itself in every block.
    pub reserved_shared_per_block: u32,
    /// Shared memory is given to a block in multiples of this many bytes.
    pub shared_granularity: u32,
}

impl SmLimits {
    /// Threads resident at once.
    pub const fn threads_per_sm(&self) -> u32 {
        self.warps_per_sm * WARP_SIZE
    }
}

const SM_70: SmLimits = SmLimits {
    registers_per_sm: 64 * KIB,        // guide: 64 K, every SM listed here
    registers_per_block: 64 * KIB,     // guide: 64 K, every SM listed here
    registers_per_thread: 255,         // guide: 255, every SM listed here
    register_granularity: 256,         // calculator: 256, every SM listed here
    partitions: 4,                     // calculator: 4, every SM listed here
    warps_per_sm: 64,                  // guide
    blocks_per_sm: 32,                 // guide
    threads_per_block: 1024,           // guide: 1024, every SM listed here
    shared_per_sm: 96 * KIB,           // guide
    shared_per_block: 48 * KIB,        // guide: what static allocations are limited to, every SM
    shared_per_block_opt_in: 96 * KIB, // guide
    reserved_shared_per_block: 0,      // calculator: none before compute capability 8.0
    shared_granularity: 256,           // calculator: 256 for 7.x
};

const SM_75: SmLimits = SmLimits {
    warps_per_sm: 32,                  // guide; Turing tuning guide
    blocks_per_sm: 16,                 // guide; Turing tuning guide
    shared_per_sm: 64 * KIB,           // guide
    shared_per_block_opt_in: 64 * KIB, // guide
    ..SM_70
};

const SM_80: SmLimits = SmLimits {
    shared_per_sm: 164 * KIB,           // guide; Ampere tuning guide
    shared_per_block_opt_in: 163 * KIB, // guide; Ampere tuning guide
    reserved_shared_per_block: KIB,     // guide: the system keeps 1 KB of each block
    shared_granularity: 128,            // calculator: 128 from 8.0 on
    ..SM_70
};

const SM_86: SmLimits = SmLimits {
    warps_per_sm: 48,                  // guide; Ampere tuning guide
    blocks_per_sm: 16,                 // guide; Ampere tuning guide
    shared_per_sm: 100 * KIB,          // guide; Ampere tuning guide
    shared_per_block_opt_in: 99 * KIB, // guide; Ampere tuning guide
    ..SM_80
};

const SM_87: SmLimits = SmLimits {
    warps_per_sm: 48,  // guide
    blocks_per_sm: 16, // guide
    ..SM_80            // shared memory as on 8.0: guide
};

const SM_89: SmLimits = SmLimits {
    blocks_per_sm: 24, // guide; Ada tuning guide
    ..SM_86
};

const SM_90: SmLimits = SmLimits {
    shared_per_sm: 228 * KIB,           // guide; Hopper tuning guide; H200
    shared_per_block_opt_in: 227 * KIB, // guide; Hopper tuning guide; H200
    ..SM_80
};

const SM_110: SmLimits = SmLimits {
    warps_per_sm: 48,  // guide
    blocks_per_sm: 24, // guide
    ..SM_90            // shared memory as on 9.0: guide
};

/// A generation of multiprocessor the allocator knows the limits of, ordered by compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sm {
    /// Volta: V100.
    Sm70,
    /// Volta: Xavier.
    Sm72,
    /// Turing: T4, GeForce 20.
    Sm75,
    /// Ampere: A100.
    Sm80,
    /// Ampere: A10, A40, GeForce 30.
    Sm86,
    /// Ampere: Orin.
    Sm87,
    /// Ada: L4, L40, GeForce 40.
    Sm89,
    /// Hopper: H100, H200, GH200.
    Sm90,
    /// Blackwell: B200, GB200.
    Sm100,
    /// Blackwell: B300, GB300.
    Sm103,
    /// Blackwell: Thor.
    Sm110,
    /// Blackwell: GeForce 50, RTX PRO.
    Sm120,
    /// Blackwell: GB10 (DGX Spark).
    Sm121,
}

impl Sm {
    /// Every SM known, oldest first.
    pub const ALL: [Sm; 13] = [
        Sm::Sm70,
        Sm::Sm72,
        Sm::Sm75,
        Sm::Sm80,
        Sm::Sm86,
        Sm::Sm87,
        Sm::Sm89,
        Sm::Sm90,
        Sm::Sm100,
        Sm::Sm103,
        Sm::Sm110,
        Sm::Sm120,
        Sm::Sm121,
    ];

    /// The number in the name: 90 for sm_90.
    pub const fn number(self) -> u32 {
        match self {
            Sm::Sm70 => 70,
            Sm::Sm72 => 72,
            Sm::Sm75 => 75,
            Sm::Sm80 => 80,
            Sm::Sm86 => 86,
            Sm::Sm87 => 87,
            Sm::Sm89 => 89,
            Sm::Sm90 => 90,
            Sm::Sm100 => 100,
            Sm::Sm103 => 103,
            Sm::Sm110 => 110,
            Sm::Sm120 => 120,
            Sm::Sm121 => 121,
        }
    }

    /// The SM of that number, if it is known.
    pub fn from_number(number: u32) -> Option<Sm> {
        Sm::ALL.into_iter().find(|sm| sm.number() == number)
    }

    /// What a multiprocessor of this generation has.
    pub const fn limits(self) -> &'static SmLimits {
        match self {
            Sm::Sm70 | Sm::Sm72 => &SM_70,
            Sm::Sm75 => &SM_75,
            Sm::Sm80 => &SM_80,
            Sm::Sm86 => &SM_86,
            Sm::Sm87 => &SM_87,
            Sm::Sm89 | Sm::Sm120 | Sm::Sm121 => &SM_89,
            Sm::Sm90 | Sm::Sm100 | Sm::Sm103 => &SM_90,
            Sm::Sm110 => &SM_110,
        }
    }

    /// The share of the register budget, in percent, above which spilling turns aggressive.
    pub const fn pressure_limit_percent(self) -> u32 {
        if self.number() < 90 { 70 } else { 80 }
    }
}

impl fmt::Display for Sm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.number())
    }
}

/// A name that is not an SM the allocator knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown SM `{name}`: known are {}", known_names())]
pub struct UnknownSm {
    /// The name as it was given.
    pub name: String,
}

fn known_names() -> String {
    let names: Vec<String> = Sm::ALL.iter().map(Sm::to_string).collect();
    names.join(", ")
}

impl FromStr for Sm {
    type Err = UnknownSm;

    /// Reads `90`, `sm_90`, `sm_90a` and `sm_100f`: the architecture-specific (`a`, from SM 90) and
    /// family-specific (`f`, from SM 100) targets run on the same multiprocessors.
    fn from_str(name: &str) -> Result<Sm, UnknownSm> {
        let unknown = || UnknownSm {
            name: name.to_owned(),
        };
        let digits = name.strip_prefix("sm_").unwrap_or(name);
        let (digits, first_with_suffix) = match digits.as_bytes().last() {
            Some(b'a') => (&digits[..digits.len() - 1], 90),
            Some(b'f') => (&digits[..digits.len() - 1], 100),
            _ => (digits, 0),
        };
        Sm::ALL
            .into_iter()
            .find(|sm| sm.number().to_string() == digits && sm.number() >= first_with_suffix)
            .ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_print() {
        for sm in Sm::ALL {
            assert_eq!(sm.to_string().parse(), Ok(sm));
            assert_eq!(sm.number().to_string().parse(), Ok(sm));
            assert_eq!(Sm::from_number(sm.number()), Some(sm));
        }
        assert_eq!("sm_90a".parse(), Ok(Sm::Sm90));
        assert_eq!("sm_100f".parse(), Ok(Sm::Sm100));
        assert_eq!("121a".parse(), Ok(Sm::Sm121));
    }

    #[test]
    fn unknown_names_are_refused_with_what_is_known() {
        for name in [
            "", "a", "sm_", "sm_91", "sm_80a", "sm_90f", "sm_090", "+90", "SM_90", "sm_90aa",
            "sm_90é",
        ] {
            let error = name.parse::<Sm>().unwrap_err();
            assert_eq!(error.name, name);
            assert!(error.to_string().contains(&format!("`{name}`")));
            assert!(error.to_string().ends_with("sm_110, sm_120, sm_121"));
        }
    }

    /// Columns: threads and blocks per SM, KiB of shared memory per SM and per block, as the
    /// programming guide tabulates them.
    #[test]
    fn limits_are_the_published_ones() {
        let published = [
            (70, 2048, 32, 96, 96),
            (72, 2048, 32, 96, 96),
            (75, 1024, 16, 64, 64),
            (80, 2048, 32, 164, 163),
            (86, 1536, 16, 100, 99),
            (87, 1536, 16, 164, 163),
            (89, 1536, 24, 100, 99),
            (90, 2048, 32, 228, 227),
            (100, 2048, 32, 228, 227),
            (103, 2048, 32, 228, 227),
            (110, 1536, 24, 228, 227),
            (120, 1536, 24, 100, 99),
            (121, 1536, 24, 100, 99),
        ];
        assert_eq!(published.len(), Sm::ALL.len());
        for (sm, (number, threads, blocks, shared, shared_per_block)) in
            Sm::ALL.into_iter().zip(published)
        {
            let limits = sm.limits();
            assert_eq!(sm.number(), number);
            assert_eq!(limits.threads_per_sm(), threads, "{sm}");
            assert_eq!(limits.blocks_per_sm, blocks, "{sm}");
            assert_eq!(limits.shared_per_sm, shared * KIB, "{sm}");
            assert_eq!(
                limits.shared_per_block_opt_in,
                shared_per_block * KIB,
                "{sm}"
            );
            assert_eq!(limits.registers_per_sm, 65536, "{sm}");
            assert_eq!(limits.registers_per_block, 65536, "{sm}");
            assert_eq!(limits.registers_per_thread, 255, "{sm}");
            assert_eq!(limits.threads_per_block, 1024, "{sm}");
            assert_eq!(limits.shared_per_block, 48 * KIB, "{sm}");
        }
    }

    #[test]
    fn a_block_at_every_maximum_leaves_room_for_the_reserved_memory() {
        for sm in Sm::ALL {
            let limits = sm.limits();
            let largest = limits.shared_per_block_opt_in + limits.reserved_shared_per_block;
            assert_eq!(largest, limits.shared_per_sm, "{sm}");
            assert_eq!(largest % limits.shared_granularity, 0, "{sm}");
        }
    }

    #[test]
    fn pressure_limit_grows_with_hopper() {
        for sm in Sm::ALL {
            let expected = if sm < Sm::Sm90 { 70 } else { 80 };
            assert_eq!(sm.pressure_limit_percent(), expected, "{sm}");
        }
    }
}
