//! Facts about code, one per file, none of which changes the code.
//!
//! ```text
//! Order ──┬─→ Dominators
//!         └─→ Loops ──→ Frequencies
//! Liveness ──┬─→ Pressure ──→ register_floor
//!            ├─→ NextUses (and Loops)
//!            ├─→ LiveRanges
//!            └─→ Webs
//! ```
//!
//! Everything works on the traits [`Cfg`] and [`Code`], which [`Function`] implements;
//! an allocator that rewrites code in a form of its own implements them too and gets
//! the same analyses. Only [`Webs`], which produces a renamed function, needs a
//! [`Function`].
//!
//! The edges of the code lead to blocks that exist; that much must be validated first.
//! Everything else, unreachable blocks, irreducible loops and reads of values never
//! written included, is analysed as it stands.
//!
//! [`Function`]: crate::function::Function

mod cfg;
mod dominators;
mod floor;
mod frequency;
mod live_range;
mod live_through_calls;
mod liveness;
mod loops;
mod next_use;
mod order;
mod pressure;
mod rows;
mod webs;

pub use cfg::{Cfg, Code};
pub use dominators::Dominators;
pub use floor::register_floor;
pub use frequency::Frequencies;
pub use live_range::{LiveRanges, Occurrence, Position, Segment, Touch};
pub use live_through_calls::live_through_calls;
pub(crate) use liveness::Bits;
pub(crate) use liveness::Revision;
pub use liveness::{Live, LiveSet, Liveness};
pub use loops::{Loop, LoopInfo, Loops};
pub(crate) use next_use::NextUseSolver;
pub use next_use::{LOOP_EXIT, NEVER, NextUses};
pub use order::Order;
pub use pressure::{Moment, Peak, Pressure, PressureWalk};
pub(crate) use rows::Rows;
pub use webs::Webs;
