//! The knobs of the fat-point allocator.
//!
//! Index, name and default are those reported of ptxas, where they are reported. Knobs that
//! are described without a name, and those of our own, have a name of our choosing in the
//! same style; `docs/sources.md#fatpoint-knobs` tells which, and what each one does. Every
//! knob can be set by name and lists itself with its help.

use super::HoistPolicy;
use super::edit_distance;
use std::fmt;
use thiserror::Error;

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

/// What values a knob takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number that is not negative.
    Int,
    /// A number.
    Float,
    /// One of a few words.
    Choice,
    /// Whole numbers with commas between them.
    List,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Float => "float",
            Kind::Choice => "choice",
            Kind::List => "list",
        })
    }
}

/// A knob that was set wrongly.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KnobError {
    /// No knob has this name.
    #[error("there is no knob `{name}`; did you mean `{nearest}`?")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The name that comes nearest.
        nearest: &'static str,
    },
    /// The value is not of the knob's type.
    #[error("knob `{name}` takes {kind}, not `{value}`")]
    IllTyped {
        /// The knob.
        name: &'static str,
        /// What it takes.
        kind: Kind,
        /// What it was given.
        value: String,
    },
    /// The text has no `=`.
    #[error("`{0}` sets no knob; write NAME=VALUE")]
    NoValue(String),
}

/// One row of the table of knobs.
pub struct Knob {
    /// Its index in ptxas, where that is reported.
    pub index: Option<u16>,
    /// Its name.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// What it does.
    pub meaning: &'static str,
    get: fn(&Knobs) -> String,
    set: fn(&mut Knobs, &str) -> Option<()>,
}

impl Knob {
    /// Why it does nothing, if it does nothing.
    pub fn inert(&self) -> Option<&'static str> {
        let of_this = INERT.iter().find(|(name, _)| *name == self.name);
        of_this.map(|(_, why)| *why)
    }

    /// Its value in `knobs`, as text.
    pub fn value(&self, knobs: &Knobs) -> String {
        (self.get)(knobs)
    }
}

/// Settings of the fat-point allocator.
#[derive(Clone, Debug, PartialEq)]
pub struct Knobs {
    /// Which loop invariants are computed before their loop: always, inner or never.
    pub hoist_policy: HoistPolicy,
    /// Functions whose local variables may still be promoted to registers.
    pub opt_phases_budget: u32,
    /// Joins on the longest way through one coalesced chain.
    pub coalesce_max_depth: u32,
    /// Registers a coalesced cluster may span.
    pub coalesce_max_width: u32,
    /// Values that may share one coalesced cluster.
    pub coalesce_max_fanout: u32,
    /// Join values that are copies of each other.
    pub coalescing: bool,
    /// Spill to shared memory where the function makes no calls.
    pub smem_spill: bool,
    /// Iterations to assume of loops when spilling is weighed, by depth; 0 leaves it to the frequencies.
    pub loop_iterations: LoopIterations,
    /// Prefer registers of different banks for the inputs of one instruction, where that costs no register.
    pub bank_aware: bool,
    /// Pre-allocate the operands of every eligible instruction.
    pub mac_force: bool,
    /// Consider instructions for pre-allocation in code order (1) or not at all (0).
    pub mac_vreg_order: u32,
    /// A third limit of the budget; known by name alone.
    pub budget_limit_tertiary: u32,
    /// Registers below the budget that guidance may aim at; 0 leaves it to the budget model.
    pub budget_limit_secondary: u32,
    /// Spill attempts before the final fallback.
    pub spill_instruction_count: u32,
    /// Let other values have registers that fixed operands use elsewhere.
    pub precolor_reuse: bool,
    /// Ignore preferences that come from copies.
    pub no_retarget_prefs: bool,
    /// Orders to try before anything is spilled.
    pub non_spill_trials: u32,
    /// Operands of eligible instructions to pre-allocate: 1 those read, 2 those written, 3 both, 0 none.
    pub pref_mac_operands: u32,
    /// Take registers the caller wants back only when no other is left.
    pub abi: bool,
    /// Weight of one access to memory against one register access.
    pub spill_cost_multiplier: f32,
    /// Weigh spills by how often their block runs.
    pub epoch_aware: bool,
    /// Place values wider than one register before single ones.
    pub paired: bool,
    /// Contested slots above this count are taken last.
    pub discard_threshold: u32,
    /// Budget fraction at low register counts.
    pub budget_a: f32,
    /// Budget fraction at the highest register counts.
    pub budget_b: f32,
    /// Lowest fraction of the linear model.
    pub budget_c: f32,
    /// First breakpoint of the budget fraction.
    pub budget_max_threads: u32,
    /// Second breakpoint of the budget fraction.
    pub budget_pressure_threshold: u32,
    /// Recompute a value when that costs less than this part of a reload.
    pub remat_threshold: f32,
    /// Costs above this make a value choose before the select phase; 0 and below for none.
    /// It also picks the buckets: 0 the small ones, anything else the large ones.
    pub spill_cost_threshold: f32,
    /// Hand out spill memory in buckets.
    pub spill_buckets: bool,
    /// Rounds of live-range splitting.
    pub split_rounds: u32,
    /// Cycles that splitting must save to be kept.
    pub split_threshold: f32,
    /// Hoist chains of invariants, not only those whose inputs are outside already.
    pub new_hoisting: bool,
}

impl Default for Knobs {
    fn default() -> Knobs {
        Knobs {
            hoist_policy: HoistPolicy::Inner,
            opt_phases_budget: u32::MAX,
            coalesce_max_depth: 64,
            coalesce_max_width: 16,
            coalesce_max_fanout: 64,
            coalescing: true,
            smem_spill: false,
            loop_iterations: LoopIterations::default(),
            bank_aware: false,
            mac_force: false,
            mac_vreg_order: 0,
            budget_limit_tertiary: 0,
            budget_limit_secondary: 0,
            spill_instruction_count: 44,
            precolor_reuse: true,
            no_retarget_prefs: false,
            non_spill_trials: 2,
            pref_mac_operands: 0,
            abi: true,
            spill_cost_multiplier: 4.0,
            epoch_aware: true,
            paired: true,
            discard_threshold: 50,
            budget_a: 0.2,
            budget_b: 1.0,
            budget_c: 0.3,
            budget_max_threads: 119,
            budget_pressure_threshold: 160,
            remat_threshold: 0.75,
            spill_cost_threshold: -1.0,
            spill_buckets: false,
            split_rounds: 1,
            split_threshold: 0.0,
            new_hoisting: true,
        }
    }
}

/// Knobs that are known by name alone, and why.
const INERT: &[(&str, &str)] = &[(
    "RegAllocBudgetLimitTertiary",
    "the report names it and does not say what it limits",
)];

/// Every knob, by index, those without one where they belong.
pub const KNOBS: &[Knob] = &[
    Knob {
        index: Some(381),
        name: "HoistInvariantsPolicy",
        kind: Kind::Choice,
        meaning: "which loop invariants are computed before their loop: always, inner or never",
        get: |k| k.hoist_policy.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.hoist_policy = v),
    },
    Knob {
        index: Some(487),
        name: "NumOptPhasesBudget",
        kind: Kind::Int,
        meaning: "functions whose local variables may still be promoted to registers",
        get: |k| k.opt_phases_budget.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.opt_phases_budget = v),
    },
    Knob {
        index: Some(529),
        name: "RegAllocCoalesceMaxDepth",
        kind: Kind::Int,
        meaning: "joins on the longest way through one coalesced chain",
        get: |k| k.coalesce_max_depth.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.coalesce_max_depth = v),
    },
    Knob {
        index: Some(530),
        name: "RegAllocCoalesceMaxWidth",
        kind: Kind::Int,
        meaning: "registers a coalesced cluster may span",
        get: |k| k.coalesce_max_width.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.coalesce_max_width = v),
    },
    Knob {
        index: Some(531),
        name: "RegAllocCoalesceMaxFanout",
        kind: Kind::Int,
        meaning: "values that may share one coalesced cluster",
        get: |k| k.coalesce_max_fanout.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.coalesce_max_fanout = v),
    },
    Knob {
        index: Some(618),
        name: "RegAllocCoalescing",
        kind: Kind::Bool,
        meaning: "join values that are copies of each other",
        get: |k| k.coalescing.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.coalescing = v),
    },
    Knob {
        index: Some(619),
        name: "RegAllocSmemSpill",
        kind: Kind::Bool,
        meaning: "spill to shared memory where the function makes no calls",
        get: |k| k.smem_spill.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.smem_spill = v),
    },
    Knob {
        index: Some(623),
        name: "RegAllocEstimatedLoopIterations",
        kind: Kind::List,
        meaning: "iterations to assume of loops when spilling is weighed, by depth, the last for all deeper; 0 leaves it to the frequencies",
        get: |k| k.loop_iterations.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.loop_iterations = v),
    },
    Knob {
        index: Some(627),
        name: "RegAllocBankAware",
        kind: Kind::Bool,
        meaning: "prefer registers of different banks for the inputs of one instruction where that costs no register",
        get: |k| k.bank_aware.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.bank_aware = v),
    },
    Knob {
        index: Some(628),
        name: "RegAllocMacForce",
        kind: Kind::Bool,
        meaning: "pre-allocate the operands of every eligible instruction",
        get: |k| k.mac_force.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.mac_force = v),
    },
    Knob {
        index: Some(629),
        name: "RegAllocMacVregAllocOrder",
        kind: Kind::Int,
        meaning: "consider instructions for pre-allocation in code order (1) or not at all (0)",
        get: |k| k.mac_vreg_order.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.mac_vreg_order = v),
    },
    Knob {
        index: Some(632),
        name: "RegAllocBudgetLimitTertiary",
        kind: Kind::Int,
        meaning: "a third limit of the budget",
        get: |k| k.budget_limit_tertiary.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.budget_limit_tertiary = v),
    },
    Knob {
        index: Some(633),
        name: "RegAllocBudgetLimitSecondary",
        kind: Kind::Int,
        meaning: "registers below the budget that guidance may aim at; 0 leaves it to the budget model",
        get: |k| k.budget_limit_secondary.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.budget_limit_secondary = v),
    },
    Knob {
        index: Some(635),
        name: "RegAllocSpillInstructionCount",
        kind: Kind::Int,
        meaning: "spill attempts before the final fallback",
        get: |k| k.spill_instruction_count.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.spill_instruction_count = v),
    },
    Knob {
        index: Some(636),
        name: "RegAllocPrecolorReuse",
        kind: Kind::Bool,
        meaning: "let other values have registers that fixed operands use elsewhere; otherwise only where no other is free",
        get: |k| k.precolor_reuse.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.precolor_reuse = v),
    },
    Knob {
        index: Some(638),
        name: "RegAllocNoRetargetPrefs",
        kind: Kind::Bool,
        meaning: "ignore preferences that come from copies",
        get: |k| k.no_retarget_prefs.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.no_retarget_prefs = v),
    },
    Knob {
        index: Some(639),
        name: "RegAllocNumNonSpillTrials",
        kind: Kind::Int,
        meaning: "orders to try before anything is spilled",
        get: |k| k.non_spill_trials.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.non_spill_trials = v),
    },
    Knob {
        index: Some(646),
        name: "RegAllocPrefMacOperands",
        kind: Kind::Int,
        meaning: "operands of eligible instructions to pre-allocate: 1 those read, 2 those written, 3 both, 0 none",
        get: |k| k.pref_mac_operands.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.pref_mac_operands = v),
    },
    Knob {
        index: Some(649),
        name: "RegAllocAbi",
        kind: Kind::Bool,
        meaning: "take registers the caller wants back only when no other is left",
        get: |k| k.abi.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.abi = v),
    },
    Knob {
        index: Some(680),
        name: "RegAllocSpillCostMultiplier",
        kind: Kind::Float,
        meaning: "weight of one access to memory against one register access",
        get: |k| k.spill_cost_multiplier.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.spill_cost_multiplier = v),
    },
    Knob {
        index: Some(682),
        name: "RegAllocEpochAware",
        kind: Kind::Bool,
        meaning: "weigh spills by how often their block runs",
        get: |k| k.epoch_aware.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.epoch_aware = v),
    },
    Knob {
        index: Some(683),
        name: "RegAllocPaired",
        kind: Kind::Bool,
        meaning: "place values wider than one register before single ones",
        get: |k| k.paired.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.paired = v),
    },
    Knob {
        index: Some(684),
        name: "RegAllocThresholdForDiscardConflicts",
        kind: Kind::Int,
        meaning: "contested slots above this count are taken last",
        get: |k| k.discard_threshold.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.discard_threshold = v),
    },
    Knob {
        index: None,
        name: "RegTgtBudgetCoefficientA",
        kind: Kind::Float,
        meaning: "part of the file worth filling at low register counts: where more is wanted, attempts that get no further force spills",
        get: |k| k.budget_a.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.budget_a = v),
    },
    Knob {
        index: None,
        name: "RegTgtBudgetCoefficientB",
        kind: Kind::Float,
        meaning: "the same at the highest register counts, and the end of the linear model",
        get: |k| k.budget_b.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.budget_b = v),
    },
    Knob {
        index: None,
        name: "RegTgtBudgetCoefficientC",
        kind: Kind::Float,
        meaning: "beginning of the linear model: the least part of a file that guidance may aim at",
        get: |k| k.budget_c.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.budget_c = v),
    },
    Knob {
        index: None,
        name: "RegTgtBudgetMaxThreads",
        kind: Kind::Int,
        meaning: "register count up to which the first coefficient holds",
        get: |k| k.budget_max_threads.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.budget_max_threads = v),
    },
    Knob {
        index: None,
        name: "RegTgtBudgetPressureThreshold",
        kind: Kind::Int,
        meaning: "register count from which the part worth filling rises",
        get: |k| k.budget_pressure_threshold.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.budget_pressure_threshold = v),
    },
    Knob {
        index: None,
        name: "RegAllocRematThreshold",
        kind: Kind::Float,
        meaning: "recompute a value when that costs less than this part of a reload",
        get: |k| k.remat_threshold.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.remat_threshold = v),
    },
    Knob {
        index: None,
        name: "RegAllocSpillCostThreshold",
        kind: Kind::Float,
        meaning: "costs above this make a value choose before the select phase, 0 and below for none; buckets are small at 0, large otherwise",
        get: |k| k.spill_cost_threshold.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.spill_cost_threshold = v),
    },
    Knob {
        index: None,
        name: "RegAllocSpillBuckets",
        kind: Kind::Bool,
        meaning: "hand out spill memory in buckets of 8 or 16 bytes",
        get: |k| k.spill_buckets.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.spill_buckets = v),
    },
    Knob {
        index: None,
        name: "RegAllocSplitRounds",
        kind: Kind::Int,
        meaning: "rounds of live-range splitting",
        get: |k| k.split_rounds.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.split_rounds = v),
    },
    Knob {
        index: None,
        name: "RegAllocSplitThreshold",
        kind: Kind::Float,
        meaning: "cycles that splitting must save to be kept",
        get: |k| k.split_threshold.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.split_threshold = v),
    },
    Knob {
        index: Some(934),
        name: "UseNewLoopInvariantRoutineForHoisting",
        kind: Kind::Bool,
        meaning: "hoist chains of invariants, not only those whose inputs are outside already",
        get: |k| k.new_hoisting.to_string(),
        set: |k, v| v.parse().ok().map(|v| k.new_hoisting = v),
    },
];

impl Knobs {
    /// Sets a knob from `NAME=VALUE`.
    pub fn set(&mut self, setting: &str) -> Result<(), KnobError> {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| KnobError::NoValue(setting.to_owned()))?;
        self.set_named(name.trim(), value.trim())
    }

    /// Sets the knob called `name`.
    pub fn set_named(&mut self, name: &str, value: &str) -> Result<(), KnobError> {
        let Some(knob) = KNOBS.iter().find(|knob| knob.name == name) else {
            let near = |knob: &&Knob| edit_distance(knob.name, name);
            let nearest = KNOBS.iter().min_by_key(near).map_or("", |knob| knob.name);
            let name = name.to_owned();
            return Err(KnobError::Unknown { name, nearest });
        };
        (knob.set)(self, value).ok_or_else(|| KnobError::IllTyped {
            name: knob.name,
            kind: knob.kind,
            value: value.to_owned(),
        })
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
                Err(KnobError::IllTyped { .. })
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
    fn what_does_nothing_says_why() {
        for (name, why) in INERT {
            let knob = KNOBS.iter().find(|k| k.name == *name).unwrap();
            assert_eq!(knob.inert(), Some(*why));
        }
        let threshold = KNOBS.iter().find(|k| k.index == Some(684)).unwrap();
        assert_eq!(threshold.inert(), None);
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
            "knob `RegAllocCoalescing` takes bool, not `5`"
        );
        assert!(matches!(
            Knobs::default().set("x"),
            Err(KnobError::NoValue(_))
        ));
    }
}
