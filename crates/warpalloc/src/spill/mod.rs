//! Putting values into memory: what every strategy shares.
//!
//! [`cost`] says which values to spill, [`Spiller::spill`] rewrites the program without
//! them, and when everything is coloured [`slots`] finds places in the [`frame`].
//!
//! A spilled value is gone from the program. What is left of it is its *home* — a slot, a
//! register of another file, or an instruction that computes it again — and *pieces*,
//! short-lived values that are fetched from home right before an instruction reads them
//! and put home right after one writes them. [`reload`] then joins pieces where there is
//! room, so that one fetch serves several readers.

pub mod cost;
pub mod frame;
pub mod reload;
pub mod remat;
pub mod slots;

mod copies;
mod rewrite;
#[cfg(test)]
mod tests;

pub(crate) use rewrite::carrier_class;
pub use rewrite::{Home, SpillCounts, Spiller};

/// How to spill.
#[derive(Clone, Debug, PartialEq)]
pub struct SpillPolicy {
    /// Join fetches where registers allow it, and hoist them out of loops.
    pub lazy_reload: bool,
    /// Recompute values instead of keeping them in memory where that is cheaper.
    pub rematerialise: bool,
    /// Recompute when that costs less than this part of a reload.
    pub remat_ratio: f32,
    /// How costs are estimated.
    pub cost_model: cost::CostModel,
}

impl Default for SpillPolicy {
    fn default() -> SpillPolicy {
        SpillPolicy {
            lazy_reload: true,
            rematerialise: true,
            remat_ratio: 0.75,
            cost_model: cost::CostModel::default(),
        }
    }
}
