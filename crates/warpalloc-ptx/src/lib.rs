//! PTX in, allocated PTX out.
//!
//! Text becomes a [`Module`] that borrows from it ([`parse`]); every item, statement and
//! operand knows its bytes. Nothing is ever printed from scratch: a client collects
//! [`Edits`] against the source and applies them in one pass, so that comments, debug
//! information and layout come out as they went in.
//!
//! ```
//! let source = ".version 9.0\n.target sm_90\n.address_size 64\n\
//!               .entry k() { .reg .b32 %r<2>; mov.u32 %r1, %tid.x; ret; }\n";
//! let module = warpalloc_ptx::parse(source)?;
//! assert_eq!(module.functions().next().unwrap().name.text, "k");
//! # Ok::<(), warpalloc_ptx::ParseError>(())
//! ```

pub mod apply;
pub mod ast;
pub mod contract;
pub mod diag;
pub mod lexer;
pub mod lower;
pub mod module;
pub mod opcode;
pub mod parser;
pub mod printer;
pub mod promote;
pub mod visit;

mod bound;
mod budget;
mod debug;
mod entry;
mod entry_facts;
mod fates;
mod fit;
mod flight_names;
mod job;
mod least;
mod literal;
mod live_values;
mod measure;
mod param_lanes;
mod slice;
mod source_line;
mod spill_code;
mod statements;
mod types;

pub use ast::{Instruction, Module, Name, Operand, Span, Stmt};
pub use diag::ParseError;
pub use entry_facts::{EntryFacts, ModuleFacts, entry_facts};
pub use least::LEAST_CAP;
pub use lexer::same_tokens;
pub use live_values::{Decision, FunctionValues, LiveValue, Place as TextPlace, function_values};
pub use parser::{parse, parse_bytes};
pub use printer::{EditConflict, Edits};
pub use slice::Slices;
pub use source_line::{SourceLine, SourceLines};
pub use spill_code::{SpillCode, SpilledValue};
pub use statements::{Statement, Statements};
pub use visit::{Context, Place, visit_names};
