//! Spill code: what every strategy shares.
//!
//! [`cost`] estimates what spilling a value costs, a colourer chooses with [`choose`], and
//! [`Spiller::spill`] rewrites the program; when everything is coloured,
//! [`frame`](crate::frame) lays out the slots.
//!
//! A spilled value is gone from the program. Left of it are its *home* — a spill slot, a
//! register of another file, or an instruction that rematerialises it — and *pieces*,
//! short-lived values that are reloaded from home right before an instruction reads them
//! and stored to it right after one writes them. [`lazy_reload`] then joins pieces where
//! there is room, so that one reload serves several readers.

pub(crate) mod choose;
pub mod cost;
pub mod lazy_reload;
pub mod remat;

mod copies;
mod rewrite;
#[cfg(test)]
mod tests;

use crate::ir::Value;
pub(crate) use rewrite::carrier_class;
pub use rewrite::{Home, SpillCounts, Spiller};

/// What to spill.
#[derive(Clone, Debug, Default)]
pub struct SpillChoice {
    /// The values, in ascending order.
    pub values: Vec<Value>,
    /// Values among them whose carriers, in another register file, go to memory at once.
    pub uncarried: Vec<Value>,
}

impl SpillChoice {
    /// These values and no others.
    pub fn exactly(values: Vec<Value>) -> SpillChoice {
        SpillChoice {
            values,
            uncarried: Vec::new(),
        }
    }
}

/// How to spill.
#[derive(Clone, Debug, PartialEq)]
pub struct SpillPolicy {
    /// Join reloads where registers allow it, and hoist them out of loops.
    pub lazy_reload: bool,
    /// Rematerialise values instead of keeping them in memory where that is cheaper.
    pub rematerialise: bool,
    /// Rematerialise where that costs less than this part of a reload.
    pub remat_ratio: f32,
}

impl Default for SpillPolicy {
    fn default() -> SpillPolicy {
        SpillPolicy {
            lazy_reload: true,
            rematerialise: true,
            remat_ratio: 0.75,
        }
    }
}
