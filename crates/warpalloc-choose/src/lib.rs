//! Which allocation of a kernel is the fastest.
//!
//! ptxas spills where a cap asks it to, and what it makes is often hard to beat. [`choose`]
//! allocates each kernel in several ways ([`Candidate`]), has ptxas assemble them, reads the
//! machine code and estimates its cycles ([`mod@judge`]). The original is always a candidate, and
//! another is taken only where the estimate is better in every setting a launch may have.

pub mod judge;

mod bounds;
mod cache;
mod candidate;
mod choose;
mod contest;
mod measure;
mod no_cap;
mod ptxas;
mod without_ptxas;

pub use cache::Cache;
pub use candidate::{Candidate, SharedText};
pub use choose::{Choice, ChooseError, Judged, KernelChoice, Request, assemble, choose};
pub use measure::{Measure, MeasureError, Shape, WORTH_IT_MEASURED};
pub use no_cap::keep_no_worse;
pub use ptxas::{Assembled, Assembly, Ptxas, PtxasError, Said};
