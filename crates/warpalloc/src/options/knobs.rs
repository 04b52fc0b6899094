//! The knobs of the fat-point allocator.
//!
//! Index, name and default are those reported of ptxas, where they are reported. Knobs that
//! are described without a name, and those of our own, have a name of our choosing in the
//! same style; `docs/sources.md#fatpoint-knobs` tells which, and what each one does. Every
//! knob can be set by name and lists itself with its help.

use super::HoistPolicy;
use super::settings::{self, Kind, Setting, SettingError, Written, optional, settings, written};
use std::fmt;

/// How often loops are assumed to run, by their depth: the last entry holds for all deeper
/// loops. Without entries it is left to the frequencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopIterations(Vec<u32>);

impl LoopIterations {
    /// How often code inside `depth` loops runs, unless that is left to the frequencies.
    pub fn at_depth(&self, depth: u32) -> Option<f32> {
        let last = *self.0.last()?;
        let of_loop = |level: usize| self.0.get(level).copied().unwrap_or(last) as f32;
        // Deeper than this the product says nothing more.
        Some((0..depth.min(8) as usize).map(of_loop).product())
    }
}

impl fmt::Display for LoopIterations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("0");
        }
        let entries: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&entries.join(","))
    }
}

impl std::str::FromStr for LoopIterations {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<LoopIterations, Self::Err> {
        let entries: Result<Vec<u32>, _> = text.split(',').map(|n| n.trim().parse()).collect();
        let entries = entries?;
        match entries[..] {
            [0] => Ok(LoopIterations::default()),
            _ => Ok(LoopIterations(entries)),
        }
    }
}

written! {
    HoistPolicy: Kind::Choice("always, inner or never");
    LoopIterations: Kind::List;
}

settings! {
    /// Settings of the fat-point allocator.
    pub struct Knobs, KNOBS {
        /// Which loop invariants are computed before their loop: always, inner or never.
        [381] "HoistInvariantsPolicy" hoist_policy: HoistPolicy = HoistPolicy::Inner;
        /// Whether RegAllocPrefMacOperands is heeded.
        [443] "RegAllocMacGate" mac_gate: bool = true;
        /// Functions whose local variables may still be promoted to registers.
        [487] "NumOptPhasesBudget" opt_phases_budget: u32 = u32::MAX;
        /// Joins on the longest way through one coalesced chain.
        [529] "RegAllocCoalesceMaxDepth" coalesce_max_depth: u32 = 64;
        /// Registers a coalesced cluster may span.
        [530] "RegAllocCoalesceMaxWidth" coalesce_max_width: u32 = 16,
            inert "a join is refused only if it is wider than both sides, and no input on which that happens is known";
        /// Values that may share one coalesced cluster.
        [531] "RegAllocCoalesceMaxFanout" coalesce_max_fanout: u32 = 64;
        /// Join values that are copies of each other.
        [618] "RegAllocCoalescing" coalescing: bool = true;
        /// Spill to shared memory where the function makes no calls.
        [619] "RegAllocSmemSpill" smem_spill: bool = false;
        /// Iterations to assume of loops when spilling is weighed, by depth, the last for all
        /// deeper; 0 leaves it to the frequencies.
        [623] "RegAllocEstimatedLoopIterations" loop_iterations: LoopIterations = LoopIterations::default();
        /// Prefer registers of different banks for the inputs of one instruction where that costs
        /// no register.
        [627] "RegAllocBankAware" bank_aware: bool = false;
        /// Pre-allocate the operands of every eligible instruction.
        [628] "RegAllocMacForce" mac_force: bool = false;
        /// Order of pre-allocated operands: 1 that of the code, 0 the widest first.
        [629] "RegAllocMacVregAllocOrder" mac_vreg_order: u32 = 0;
        /// A third limit of the budget.
        [632] "RegAllocBudgetLimitTertiary" budget_limit_tertiary: u32 = 0,
            inert "the report names it and does not say what it limits";
        /// Registers below the budget that guidance may aim at; 0 leaves it to the budget model.
        [633] "RegAllocBudgetLimitSecondary" budget_limit_secondary: u32 = 0;
        /// Spill attempts before the final fallback.
        [635] "RegAllocSpillInstructionCount" spill_instruction_count: u32 = 44;
        /// Let other values have registers that fixed operands use elsewhere; otherwise only
        /// where no other is free.
        [636] "RegAllocPrecolorReuse" precolor_reuse: bool = true;
        /// Ignore preferences that come from copies.
        [638] "RegAllocNoRetargetPrefs" no_retarget_prefs: bool = false;
        /// Orders to try before anything is spilled.
        [639] "RegAllocNumNonSpillTrials" non_spill_trials: u32 = 2;
        /// Operands of eligible instructions to pre-allocate: 1 those read, 2 those written, 3
        /// both, 0 none.
        [646] "RegAllocPrefMacOperands" pref_mac_operands: u32 = 0;
        /// Take registers the caller wants back only when no other is left.
        [649] "RegAllocAbi" abi: bool = true;
        /// Weight of one access to memory against one register access.
        [680] "RegAllocSpillCostMultiplier" spill_cost_multiplier: f32 = 4.0,
            inert "it scales every spill alike, unless RegAllocSpillCostThreshold is set";
        /// Weigh spills by how often their block runs.
        [682] "RegAllocEpochAware" epoch_aware: bool = true;
        /// Place values wider than one register before single ones.
        [683] "RegAllocPaired" paired: bool = true,
            inert "it decides about a list that stays empty, because links are placed before the lists";
        /// Contested slots above this count are taken last.
        [684] "RegAllocThresholdForDiscardConflicts" discard_threshold: u32 = 50,
            inert "the least contested slot below any threshold is the least contested slot of all";
        /// Part of the file worth filling at low register counts: where more is wanted, attempts
        /// that get no further force spills.
        "RegTgtBudgetCoefficientA" budget_a: f32 = 0.2;
        /// The same at the highest register counts, and the end of the linear model.
        "RegTgtBudgetCoefficientB" budget_b: f32 = 1.0;
        /// Beginning of the linear model: the least part of a file that guidance may aim at.
        "RegTgtBudgetCoefficientC" budget_c: f32 = 0.3;
        /// Register count up to which the first coefficient holds.
        "RegTgtBudgetMaxThreads" budget_max_threads: u32 = 119,
            inert "wherever it is asked, demand exceeds the part worth filling, unless RegTgtBudgetCoefficientA or B is above 1";
        /// Register count from which the part worth filling rises.
        "RegTgtBudgetPressureThreshold" budget_pressure_threshold: u32 = 160,
            inert "as RegTgtBudgetMaxThreads";
        /// Recompute a value when that costs less than this part of a reload.
        "RegAllocRematThreshold" remat_threshold: f32 = 0.75;
        /// Costs above this make a value choose before the select phase, 0 and below for none;
        /// buckets are small at 0, large otherwise.
        "RegAllocSpillCostThreshold" spill_cost_threshold: f32 = -1.0;
        /// Hand out spill memory in buckets of 8 or 16 bytes.
        "RegAllocSpillBuckets" spill_buckets: bool = false;
        /// Whether live ranges are split (0 not); more than 1 is as 1.
        "RegAllocSplitRounds" split_rounds: u32 = 1;
        /// Cycles that splitting must save to be kept.
        "RegAllocSplitThreshold" split_threshold: f32 = 0.0;
        /// Hoist chains of invariants, not only those whose inputs are outside already.
        [934] "UseNewLoopInvariantRoutineForHoisting" new_hoisting: bool = true;
    }
}

impl Knobs {
    /// Sets a knob from `NAME=VALUE`.
    pub fn set(&mut self, setting: &str) -> Result<(), SettingError> {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| SettingError::NoValue(setting.to_owned()))?;
        self.set_named(name.trim(), value.trim())
    }

    /// Sets the knob called `name`.
    pub fn set_named(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let unknown = || settings::unknown("knob", name, KNOBS.iter().map(|knob| knob.name));
        settings::set(KNOBS, self, "knob", name, value).unwrap_or_else(|| Err(unknown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults of `docs/sources.md#fatpoint-knobs`.
    #[test]
    fn documented_defaults() {
        let knobs = Knobs::default();
        let value = |index: u16| {
            let knob = KNOBS.iter().find(|k| k.index == Some(index));
            knob.map(|k| k.value(&knobs))
        };
        assert_eq!(value(684).as_deref(), Some("50"));
        assert_eq!(value(680).as_deref(), Some("4"));
        assert_eq!(value(635).as_deref(), Some("44"));
        assert_eq!(value(636).as_deref(), Some("true"));
        assert_eq!(value(649).as_deref(), Some("true"));
        assert_eq!(
            (knobs.budget_a, knobs.budget_b, knobs.budget_c),
            (0.2, 1.0, 0.3)
        );
        assert_eq!(
            (knobs.budget_max_threads, knobs.budget_pressure_threshold),
            (119, 160)
        );
        let policies = [HoistPolicy::Always, HoistPolicy::Inner, HoistPolicy::Never];
        assert_eq!(policies.map(HoistPolicy::number), [0, 1, 3]);
    }

    #[test]
    fn every_knob_round_trips_through_its_text() {
        let defaults = Knobs::default();
        for knob in KNOBS {
            let mut knobs = Knobs::default();
            let text = format!("{}={}", knob.name, knob.value(&defaults));
            assert_eq!(knobs.set(&text), Ok(()), "{text}");
            assert_eq!(knobs, defaults);
            assert!(matches!(
                knobs.set_named(knob.name, "nonsense"),
                Err(SettingError::IllTyped { .. })
            ));
        }
        let mut names: Vec<_> = KNOBS.iter().map(|k| k.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOBS.len());
    }

    #[test]
    fn loop_iterations_are_a_number_or_one_for_each_depth() {
        let at = |text: &str| {
            let parsed: LoopIterations = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
            [0, 1, 2, 3].map(|depth| parsed.at_depth(depth))
        };
        assert_eq!(at("0"), [None; 4]);
        assert_eq!(at("8"), [1.0, 8.0, 64.0, 512.0].map(Some));
        assert_eq!(at("100,3"), [1.0, 100.0, 300.0, 900.0].map(Some));
        assert!("8,".parse::<LoopIterations>().is_err());
    }

    #[test]
    fn a_misspelt_knob_suggests_the_nearest() {
        let error = Knobs::default().set("RegAllocCoalesing=true").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no knob `RegAllocCoalesing`; did you mean `RegAllocCoalescing`?"
        );
        let error = Knobs::default().set("RegAllocCoalescing=5").unwrap_err();
        assert_eq!(
            error.to_string(),
            "knob `RegAllocCoalescing` takes true or false, not `5`"
        );
        assert!(matches!(
            Knobs::default().set("x"),
            Err(SettingError::NoValue(_))
        ));
    }
}
