//! Why spills stay in local memory.

use crate::cfg::CfgError;
use crate::code::CodeError;
use crate::edit::{EditError, ScheduleError};
use crate::isa::EncodeError;
use crate::object::{ObjectError, RewriteError};

/// Why spills stay in local memory.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The cubin can't be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The cubin can't be written.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// There is no kernel of that name.
    #[error("there is no kernel {0}")]
    NoKernel(String),
    /// The code can't be read.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// Control flow is not known.
    #[error(transparent)]
    Cfg(#[from] CfgError),
    /// Code can't be inserted.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// An instruction can't be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The code at the entry can't be scheduled.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// Nothing is in local memory.
    #[error("it has nothing in local memory")]
    NoSpills,
    /// R1 is not set as ptxas sets it.
    #[error("at 0x{offset:04x}: {inst} sets R1 anew, which has to stay the frame")]
    StackMoves {
        /// The instruction.
        offset: usize,
        /// As text.
        inst: String,
    },
    /// R1 is never set.
    #[error("R1 is not set from c[0x0][0x28]")]
    NoStack,
    /// R1, or the address of the stack, is read by something else than spill code.
    #[error("at 0x{offset:04x}: {inst} takes an address in local memory: arrays are not spills")]
    Escapes {
        /// The instruction.
        offset: usize,
        /// As text.
        inst: String,
    },
    /// Local memory is addressed by another register.
    #[error("at 0x{offset:04x}: {inst} accesses local memory by an address that is not R1's")]
    Indirect {
        /// The instruction.
        offset: usize,
        /// As text.
        inst: String,
    },
    /// An access lies outside of the frame.
    #[error("at 0x{offset:04x}: {inst} accesses {at:#x}, outside of the frame of {frame} bytes")]
    OutsideFrame {
        /// The instruction.
        offset: usize,
        /// As text.
        inst: String,
        /// Where in the frame.
        at: i32,
        /// The frame's bytes.
        frame: u32,
    },
    /// A function outside is called.
    #[error("at 0x{offset:04x}: {inst} calls a function outside, which uses the stack")]
    Calls {
        /// The instruction.
        offset: usize,
        /// As text.
        inst: String,
    },
    /// The block size is not known.
    #[error("the threads of a block are not known: neither .maxntid nor .reqntid nor --block")]
    NoBlock,
    /// Whether there is dynamic shared memory is not known.
    #[error(
        "it uses shared memory, and a cubin does not say how much of it is dynamic: \
         --dynamic-shared says"
    )]
    DynamicShared,
    /// There are too few registers for the code at the entry.
    #[error("{registers} registers are too few for the code at the entry")]
    FewRegisters {
        /// How many there are.
        registers: u32,
    },
    /// Every uniform register is in use.
    #[error("no uniform register is free for the frame")]
    NoUniform,
    /// More shared memory than a block may have.
    #[error("{needed} bytes of shared memory for a block that may have {limit}")]
    TooLarge {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that may be had.
        limit: u64,
    },
    /// Fewer blocks would run at a time.
    #[error(
        "{needed} bytes of shared memory leave {after} of {before} blocks to a multiprocessor; \
         --force moves the spills all the same, --partial some of them"
    )]
    Occupancy {
        /// Bytes that are needed.
        needed: u64,
        /// Blocks as it is.
        before: u32,
        /// Blocks as it would be.
        after: u32,
    },
    /// The launch is impossible as it is.
    #[error("the occupancy of {registers} registers and {threads} threads is not known: {reason}")]
    Launch {
        /// Registers per thread.
        registers: u32,
        /// Threads per block.
        threads: u32,
        /// What the model of the multiprocessor says.
        reason: String,
    },
    /// An instruction has a stall and a yield bit that do not go together.
    #[error("{0} has a stall that does not go with its yield bit")]
    Control(String),
    /// The result has a hazard.
    #[error("the new code has a hazard: {0}")]
    Hazard(String),
    /// The result is not what was asked for.
    #[error("at 0x{offset:04x}: the new code reads back as {found}, not as {expected}")]
    Differs {
        /// Where, in the old code.
        offset: usize,
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
}
