//! A text format: a function, its target and its options in one file, to replay a bug or to
//! write a test that people can read.
//!
//! ```text
//! ; Comments run to the end of the line.
//! target hardware sm_90 R=32 P=7 UR=63 UP=7
//! options strategy=naive verify=true spill=local
//!
//! kernel saxpy {
//! block0:
//!     v0:r64.uniform = ld.param #1 : remat 2
//!     v1:r32, v2:r32 = ld.v2 v0 : read group 0..2 align 2
//!     v3:pred = setp v1, v2
//!     brp v3 -> block1(v1), block2
//! block1(v4:r32) freq 0.5:
//!     fma inout v2, v4, v3                ; guarded by v3, so v2 is read and written
//!     v5:r32 tied 1 = add v2              ; operand 1 is v2
//!     v6:r32 @ R0 = call v5 @ R0 : call write clobbers abi
//!     early v7:r32 not {R0, R1} = asm v6 : clobbers {R2}
//!     st v0, v7 : write
//!     bra -> block2
//! block2:
//!     exit : exit write
//! }
//! ```
//!
//! - One instruction per line: results `=` opcode operands `:` attributes `->` successors.
//!   Operands are numbered from the left, results included.
//! - Left of `=` a value is a result, right of it an input; `inout` and `early` mark the
//!   other roles, and `def` a result among the inputs. `@ R0`, `tied N`, `not {R0}`,
//!   `anywhere`, `memory` and `argument BYTES` behind a value say where it may be.
//! - A value has its class where it is first mentioned, or anywhere else, with no space around
//!   the colon; `.uniform`, `.pinned` and `.hint_R0` may follow. Values that occur nowhere are listed in a
//!   line `vregs …`.
//! - Attributes: `copy`, `undef`, `livein`, `call`, `branch`, `return`, `exit`; `read`, `write`,
//!   of any state or of `spaces MASK`, and there perhaps only of the bytes `address N at START
//!   len BYTES` or `variable N at START len BYTES`; `remat CYCLES`;
//!   `anchored`; `clobbers abi` or a list; `group FIRST..END align UNITS`. An
//!   instruction with successors is a branch unless it says otherwise.
//! - Arguments are the results of a first instruction such as
//!   `v0:r32 @ R0, v1:r64 @ R2 = entry : livein write`; results are inputs of a return, such
//!   as `ret v2 @ R0 : return write`.
//! - Names that would read as something else are quoted.
//!
//! What [`parse`] accepts prints back to text that means the same, and printing that again
//! changes nothing. Parsing knows no rules of the model; [`Function::validate`] does.

mod allocated;
mod cursor;
mod error;
mod lex;
mod parse;
mod print;
#[cfg(test)]
mod tests;

pub use allocated::Allocated;
pub use error::TextError;
pub use parse::{parse, parse_for};

use crate::function::Function;
use crate::options::Options;
use crate::target::Target;

/// Everything that determines an allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Where to allocate.
    pub target: Target,
    /// How to allocate.
    pub options: Options,
    /// What to allocate.
    pub function: Function,
}
