//! What can go wrong, said so that the reader knows where and what would help.

use crate::function::{Block, Inst, VReg};
use std::fmt;
use thiserror::Error;

/// A place in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The function as a whole.
    Function,
    /// A block.
    Block(Block),
    /// An instruction and the block that holds it.
    Inst(Block, Inst),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Function => f.write_str("function"),
            Place::Block(block) => write!(f, "{block}"),
            Place::Inst(block, inst) => write!(f, "{block}, {inst}"),
        }
    }
}

/// Why no allocation was returned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The function breaks a rule of the model.
    #[error("invalid function: {place}: {message}")]
    Invalid {
        /// Where.
        place: Place,
        /// Which rule, with the values involved.
        message: String,
    },
    /// No allocation exists within the target's registers.
    #[error("cannot allocate: {place}: {message}; {help}")]
    Impossible {
        /// Where.
        place: Place,
        /// The value that found no register, if it is one value's fault.
        value: Option<VReg>,
        /// What is missing.
        message: String,
        /// What would help.
        help: String,
    },
    /// The spill frame outgrew the target's limit.
    #[error(
        "cannot allocate: {place}: the spill frame{} needs {needed} bytes, {limit} is the limit; {help}",
        including(*value)
    )]
    FrameTooLarge {
        /// Where the value that took it over the limit is stored.
        place: Place,
        /// That value, if it is one of the function's.
        value: Option<VReg>,
        /// Bytes needed.
        needed: u32,
        /// Bytes allowed.
        limit: u32,
        /// What would help.
        help: String,
    },
    /// The result could not be proved. This is a bug in the allocator, caught in time.
    #[error("the allocation is not proved: {0}")]
    Unproved(String),
}

fn including(value: Option<VReg>) -> String {
    value.map_or(String::new(), |value| format!(", with {value} in it,"))
}
