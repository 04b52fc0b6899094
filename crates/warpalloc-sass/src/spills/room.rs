//! The shared memory that a block has for spills, and a thread's address in it.

use super::convert::Options;
use super::refusal::Refusal;
use crate::isa::{Builder, Constant, Inst, Source, SpecialRegister};
use crate::object::{Cubin, Function};
use warpalloc::target::occupancy::{Launch, occupancy};
use warpalloc::target::sm;

/// Bytes that a word of the frame takes of shared memory for each warp.
pub(crate) const WARP_WORD: u32 = 128;
/// Where the spills begin is a multiple of this, so that each word has a row of banks.
const BASE_ALIGNMENT: u64 = 128;
/// Static shared memory that every driver gives.
const STATIC_LIMIT: u64 = 48 * 1024;

/// The shared memory of a block, and what a multiprocessor has of it.
pub(crate) struct Room {
    sm: sm::Sm,
    registers: u32,
    pub warps: u32,
    threads: u32,
    dynamic_bytes: u64,
    /// Where spills begin, behind what the system keeps.
    base: u64,
    /// What the system keeps.
    reserved: u64,
    /// Blocks as it is.
    pub blocks: u32,
    /// The most static shared memory.
    limit: u64,
}

impl Room {
    /// The room of a function that is launched with this many registers.
    pub fn of(
        cubin: &Cubin,
        function: &Function,
        registers: u32,
        options: &Options,
    ) -> Result<Room, Refusal> {
        let threads = match (function.block_threads(), options.block) {
            (Some(stated), _) => stated,
            (None, Some(told)) => told,
            (None, None) => return Err(Refusal::NoBlock),
        };
        let unknown = |reason: String| Refusal::Launch {
            registers,
            threads,
            reason,
        };
        let sm = sm::Sm::from_number(cubin.arch.sm)
            .ok_or_else(|| unknown(format!("{} is not known", cubin.arch)))?;
        let uses_shared = cubin.sections.iter().any(|section| {
            section.name.starts_with(".nv.shared.") && section.info as usize == function.section
        });
        let dynamic_bytes = match options.dynamic_shared {
            None if uses_shared => return Err(Refusal::DynamicShared),
            told => u64::from(told.unwrap_or(0)),
        };
        let static_bytes = function.shared_bytes;
        let reserved = if cubin.arch.sm >= 90 { 0x400 } else { 0 };
        // Dynamic shared memory begins behind the static one, at its own alignment.
        let own = static_bytes.next_multiple_of(BASE_ALIGNMENT) + dynamic_bytes;
        let limit = match cubin.arch.sm {
            // What a block may have at most; only there a larger static size has run.
            90 => 227 * 1024,
            _ => STATIC_LIMIT,
        };
        let mut room = Room {
            sm,
            registers,
            warps: threads.div_ceil(32),
            threads,
            dynamic_bytes,
            base: own.next_multiple_of(BASE_ALIGNMENT),
            reserved,
            blocks: 0,
            limit,
        };
        room.blocks = room.blocks_of(static_bytes + dynamic_bytes)?;
        Ok(room)
    }

    fn blocks_of(&self, shared: u64) -> Result<u32, Refusal> {
        let launch = Launch {
            registers_per_thread: self.registers,
            block_threads: self.threads,
            shared_bytes: u32::try_from(shared).unwrap_or(u32::MAX),
        };
        let found = occupancy(self.sm, &launch);
        found
            .map(|found| found.blocks)
            .map_err(|error| Refusal::Launch {
                registers: self.registers,
                threads: self.threads,
                reason: error.to_string(),
            })
    }

    /// Bytes of shared memory of a block whose spills take `words`.
    fn needed(&self, words: u32) -> u64 {
        self.base + u64::from(words) * u64::from(WARP_WORD) * u64::from(self.warps)
    }

    /// The static share of that: launches add the dynamic one.
    pub fn static_bytes(&self, words: u32) -> u64 {
        self.needed(words) - self.dynamic_bytes
    }

    pub fn blocks_with(&self, words: u32) -> Result<u32, Refusal> {
        self.blocks_of(self.needed(words))
    }

    /// The most words, up to `wanted`, that cost no block, or that fit at all.
    pub fn fits(&self, wanted: u32, force: bool) -> Result<u32, Refusal> {
        let (mut fits, mut end) = (0, wanted + 1);
        while end - fits > 1 {
            let words = fits + (end - fits) / 2;
            let is_allowed = self.needed(words) <= self.limit;
            let blocks = if is_allowed {
                self.blocks_with(words)?
            } else {
                0
            };
            match is_allowed && blocks > 0 && (force || blocks >= self.blocks) {
                true => fits = words,
                false => end = words,
            }
        }
        Ok(fits)
    }

    pub fn refusal(&self, words: u32) -> Refusal {
        let needed = self.needed(words);
        match self.blocks_with(words) {
            Ok(after) if needed <= self.limit => Refusal::Occupancy {
                needed,
                before: self.blocks,
                after,
            },
            _ => Refusal::TooLarge {
                needed,
                limit: self.limit,
            },
        }
    }

    /// Code that gives `base` the thread's address, where its spills take `words`. It overwrites
    /// registers up to R6, of which none has a value when a kernel begins.
    pub fn thread_address(
        &self,
        function: &Function,
        build: Builder,
        base: u8,
        words: u32,
    ) -> Result<Vec<Inst>, Refusal> {
        const LAST: u8 = 6;
        // Two of the count are not for use.
        if self.registers < u32::from(LAST) + 3 {
            let registers = self.registers;
            return Err(Refusal::FewRegisters { registers });
        }
        let mut insts = Vec::new();
        let is_flat = matches!(function.required_block(), Some([_, 1, 1]));
        insts.push(build.s2r(0, SpecialRegister::ThreadX)?);
        if self.reserved > 0 {
            insts.push(build.s2r(6, SpecialRegister::BlockInCluster)?);
        }
        if !is_flat {
            insts.push(build.s2r(2, SpecialRegister::ThreadY)?);
            insts.push(build.s2r(3, SpecialRegister::ThreadZ)?);
            insts.push(build.ldc(4, Constant::BLOCK_Y)?);
            insts.push(build.ldc(5, Constant::BLOCK_X)?);
            insts.push(build.imad(2, 3, Source::Reg(4), 2)?);
            insts.push(build.imad(0, 2, Source::Reg(5), 0)?);
        }
        let start = u32::try_from(self.reserved + self.base).unwrap_or(u32::MAX);
        insts.push(build.shift_right(2, 0, 5)?);
        insts.push(build.and(0, 0, Source::Immediate(31))?);
        insts.push(build.lea(0, 0, Source::Immediate(start), 2)?);
        insts.push(build.imad(base, 2, Source::Immediate(words * WARP_WORD), 0)?);
        if self.reserved > 0 {
            // Shared memory of a cluster is numbered by block.
            insts.push(build.lea(base, 6, Source::Reg(base), 24)?);
        }
        Ok(insts)
    }
}
