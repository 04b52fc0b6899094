//! Where machine code is kept: cubins, and the files that hold cubins.
//!
//! A cubin is an ELF file of one architecture: a `.text.NAME` section per function, tables of
//! attributes (`.nv.info`, `.nv.info.NAME`) and sections for shared memory, constants,
//! relocations and source lines. [`Cubin`] reads one. A fatbin holds several cubins and PTX
//! texts, compressed or not; host objects, shared libraries and executables hold fatbins in
//! sections, archives hold host objects. [`Container`] finds the images in any of them, by
//! content and without reading more of a file than it needs.
//!
//! [`Rewriter`] writes a cubin with changed functions.
//!
//! What was inferred and how each fact is tested again stands in `docs/sass.md`.
//!
//! Invariants:
//! - every length and offset that a file states is checked before it is used: damaged input is
//!   an [`ObjectError`] that names the place, never a panic;
//! - nothing is dropped silently: attributes of unknown kinds are kept with their bytes.

mod attribute;
mod container;
mod cubin;
mod demangle;
mod error;
mod fatbin;
mod function;
mod lines;
mod linked;
mod rewrite;
mod window;

pub use attribute::{Attribute, AttributeKind, AttributeValue, IndirectBranch, Parameter};
pub use container::{Container, Format, Image, Origin};
pub use cubin::{Arch, CallEdge, Cubin, Linkage, Section, Symbol};
pub use demangle::demangle;
pub use error::ObjectError;
pub use fatbin::{Compression, ImageKind};
pub use function::{ConstantBank, Function, InnerFunction, Relocation};
pub use lines::{LineTable, SourceLine};
pub use linked::Linked;
pub use rewrite::{Change, NewCode, RewriteError, Rewriter};
