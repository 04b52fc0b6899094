//! Whether stalls and scoreboards cover every hazard of a function.
//!
//! The hardware does not interlock: an instruction that reads a register too early gets its
//! old value. Code is checked along every path of its control-flow graph under these rules,
//! which are inferred from what ptxas writes and the hardware accepts.
//!
//! 1. An instruction of fixed latency reads its sources when it issues. Its result can be read
//!    after a number of cycles that the classes of both instructions decide
//!    ([`Latencies`]). Cycles are the sum of the stall counts in between.
//!    A write is not overtaken by a later one of lower latency: between the two lie as many
//!    cycles as the first takes longer. Matrix products read for some cycles after issue.
//! 2. An instruction of variable latency reads its general registers and writes its result at
//!    unknown times; uniform registers and predicates it reads when it issues. Its result is
//!    pending until its write scoreboard is waited for; its sources, and a predicate it writes,
//!    until its read or its write scoreboard is.
//! 3. A scoreboard counts. Waiting for it waits for every instruction that signals it, if that
//!    was issued two cycles earlier: a wait right behind it does not see it yet, but for `DEPBAR`.
//! 4. Some instructions write in the order of issue, so that waiting for a later one covers an
//!    earlier one that signals nothing: LDS, LDSM and SHFL; S2UR, but not S2R; MOVM;
//!    textures and surfaces;
//!    transcendental functions and conversions; double precision where its latency is variable.
//! 5. The instructions of one of these groups read in order too. What goes through the memory
//!    queue has been read once a later store has read. Loads from shared memory and shuffles
//!    stand for those and for stores before them, other loads for other loads, atomics for
//!    atomics. Loads may overwrite what such earlier ones read; atomics may not.
//!    `BAR` waits for these reads on sm_75, and on no later SM.
//! 6. `DEPBAR.LE SBn, k` waits for all but the last `k` instructions that signal a scoreboard,
//!    which signal it in order of issue.
//! 7. Convergence barriers are set and read in order.
//! 8. No thread runs two instructions under opposite guards.

mod check;
mod class;
mod latency;
mod later;
mod state;

pub(crate) use check::{Busy, busy, check_new};
pub use check::{Hazard, HazardKind, check, distances};
pub use class::Class;
pub use latency::{Latencies, Slot};
