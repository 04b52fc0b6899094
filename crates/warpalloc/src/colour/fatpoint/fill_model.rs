//! The budget pressure model: how much of a register file a function should fill.
//!
//! A piecewise linear function maps a register count to the fraction of the file that is
//! worth filling: flat at coefficient A up to the second breakpoint, then rising to
//! coefficient B at the file's end. A function whose demand exceeds that fraction of the
//! registers at hand needs spilling. ptxas is reported to start a round of spilling by this
//! test (`docs/sources.md#fatpoint-needs-spill`). Spilling values that fit would only cost,
//! so here the model is asked only once a round without spilling has failed, and decides two
//! things:
//!
//! - a round that gets no further than the last spills the clusters left over at any cost,
//!   if demand exceeds the fraction, and looks for the cheapest room otherwise
//!   ([`BudgetModel::needs_spill`]);
//! - guidance aims one register lower with each failure, down to the part of the file that
//!   the straight line from coefficient C to B grants it ([`BudgetModel::deepest`]).
//!
//! The occupancy itself comes from [`occupancy`](crate::target::occupancy).

use crate::options::Knobs;

/// The four segments of the budget fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetModel {
    /// Where the first segment begins; flat before.
    pub total_threads: f64,
    /// Breakpoints, ascending.
    pub x: [f64; 3],
    /// Fractions at the beginning and at the breakpoints.
    pub y: [f64; 4],
    /// Least fraction of the linear model.
    pub linear_floor: f64,
}

impl BudgetModel {
    /// The model for `knobs`, with `adjustment` registers of 255 set aside.
    pub fn new(knobs: &Knobs, total_threads: u32, adjustment: u32) -> BudgetModel {
        let (a, b) = (f64::from(knobs.budget_a), f64::from(knobs.budget_b));
        let max_threads = f64::from(knobs.budget_max_threads);
        let threshold = f64::from(knobs.budget_pressure_threshold);
        BudgetModel {
            total_threads: f64::from(total_threads).min(max_threads),
            x: [max_threads, threshold, 255.0 - f64::from(adjustment)],
            y: [a, a, a, b],
            linear_floor: f64::from(knobs.budget_c),
        }
    }

    /// The fraction of the file worth filling at `registers` registers.
    pub fn fraction(&self, registers: usize) -> f64 {
        let at = registers as f64;
        let xs = [self.total_threads, self.x[0], self.x[1], self.x[2]];
        if at < xs[0] {
            return self.y[0];
        }
        for segment in 0..3 {
            if at < xs[segment + 1] {
                let (x0, x1) = (xs[segment], xs[segment + 1]);
                let (y0, y1) = (self.y[segment], self.y[segment + 1]);
                return y0 + (y1 - y0) / (x1 - x0) * (at - x0);
            }
        }
        self.y[3]
    }

    /// The straight line from the floor at `least` to coefficient B at `most`.
    pub fn linear_fraction(&self, threads: f64, least: f64, most: f64) -> f64 {
        let slope = (self.y[3] - self.linear_floor) / (most - least);
        (threads - least) * slope + self.linear_floor
    }

    /// Registers below its budget of `units` that guidance may aim at, in a file of `most`
    /// units: what the straight line leaves, an eighth of the budget at least.
    pub fn deepest(&self, units: usize, most: usize) -> usize {
        let fraction = self.linear_fraction(units as f64, 0.0, most.max(1) as f64);
        let kept = (units as f64 * fraction.clamp(0.0, 1.0)).ceil() as usize;
        (units - kept.min(units)).max(units / 8)
    }

    /// Whether demand exceeds the fraction of `available` registers worth filling.
    pub fn needs_spill(&self, demand: Demand, available: usize, registers: usize) -> bool {
        let wanted = demand.pair_penalty + demand.demanded + demand.live;
        wanted as f64 > available as f64 * self.fraction(registers)
    }
}

/// What a class asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Registers lost to alignment.
    pub pair_penalty: usize,
    /// Registers values ask for.
    pub demanded: usize,
    /// Registers live throughout.
    pub live: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    /// 0.2 up to 160 registers, then rising to 1.0 (`docs/sources.md#fatpoint-budget-model`).
    #[test]
    fn four_segments_with_the_documented_coefficients() {
        let model = BudgetModel::new(&Knobs::default(), 64, 0);
        assert_eq!(model.x, [119.0, 160.0, 255.0]);
        for registers in [0, 63, 64, 118, 119, 140, 159, 160] {
            assert!(near(model.fraction(registers), 0.2), "{registers}");
        }
        assert!(near(model.fraction(200), 0.2 + 0.8 * 40.0 / 95.0));
        assert!(near(model.fraction(255), 1.0));
        assert!(near(model.fraction(400), 1.0));
        let adjusted = BudgetModel::new(&Knobs::default(), 64, 55);
        assert!(near(adjusted.fraction(180), 0.6));
    }

    #[test]
    fn spills_when_demand_exceeds_the_fraction() {
        let model = BudgetModel::new(&Knobs::default(), 64, 0);
        let demand = |demanded| Demand {
            demanded,
            live: 10,
            pair_penalty: 2,
        };
        assert!(!model.needs_spill(demand(39), 255, 100));
        assert!(model.needs_spill(demand(40), 255, 100));
        assert!(!model.needs_spill(demand(243), 255, 255));
        assert!(model.needs_spill(demand(244), 255, 255));
    }

    #[test]
    fn guidance_goes_deeper_where_the_line_is_low() {
        let model = BudgetModel::new(&Knobs::default(), 0, 0);
        assert_eq!(model.deepest(255, 255), 31);
        assert_eq!(model.deepest(24, 255), 15);
        let steep = Knobs {
            budget_c: 1.0,
            ..Knobs::default()
        };
        assert_eq!(BudgetModel::new(&steep, 0, 0).deepest(24, 255), 3);
    }

    #[test]
    fn the_linear_model_rises_from_coefficient_c_to_b() {
        let model = BudgetModel::new(&Knobs::default(), 64, 0);
        assert!(near(model.linear_fraction(32.0, 32.0, 96.0), 0.3));
        assert!(near(model.linear_fraction(64.0, 32.0, 96.0), 0.65));
        assert!(near(model.linear_fraction(96.0, 32.0, 96.0), 1.0));
    }

    /// A first segment of no length leaves the second to say what its beginning says.
    #[test]
    fn segments_may_be_empty() {
        let model = BudgetModel::new(&Knobs::default(), 400, 0);
        assert_eq!(model.total_threads, model.x[0]);
        assert!(near(model.fraction(119), 0.2));
    }
}
