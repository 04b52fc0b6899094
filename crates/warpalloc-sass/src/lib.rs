//! SASS, the machine code inside a cubin, from sm_75 to sm_90.
//!
//! [`isa`] turns one 128-bit word into an [`Inst`]: mnemonic, guard, register operands with
//! their widths, memory effect, control flow, scheduling bits. [`Code`] is a function's code.
//! [`mod@cfg`] finds its basic blocks, [`liveness`] the registers that are live before and after
//! each instruction, [`pressure`] how many that are in each register file, [`loops`] how deep
//! each block is nested.
//!
//! [`object`] reads the files that hold such code: cubins, fatbins, host objects, archives.
//!
//! [`recolour`] gives the values of a kernel other registers, so that fewer do, [`allocate`]
//! inserts spill code where still fewer have to do. [`edit`] inserts
//! instructions into such code, [`spills`] moves spilled values from local to shared memory.
//!
//! Nothing is guessed: a word whose opcode, form or width is not in the opcode table is an
//! error that names it.

pub mod allocate;
pub mod cfg;
pub mod edit;
pub mod hazard;
pub mod isa;
pub mod liveness;
pub mod loops;
pub mod object;
pub mod pressure;
pub mod recolour;
pub mod spills;

mod code;
mod measure;

pub use cfg::{Cfg, CfgError, Links};
pub use code::{Code, CodeError};
pub use isa::{DecodeError, Inst, Sm, decode};
pub use liveness::Liveness;
pub use measure::{LocalAccesses, MeasureError, Measures, Peak, measure};
