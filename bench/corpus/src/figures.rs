//! What one allocation came to, and what many come to together.

use std::fmt;
use std::time::Duration;

use warpalloc::Allocation;
use warpalloc::cycles::AddedCycles;
use warpalloc::function::Function;
use warpalloc::stats::Stats;
use warpalloc::target::{File, Target};

/// Registers that a function needs at least.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Peak pressure.
    pub peak: usize,
    /// The same with what calls overwrite and predicates without a register.
    pub floor: usize,
}

/// What one allocation came to.
pub struct Figures {
    insts: usize,
    time: Duration,
    /// Peak pressure is at most a quarter above the budget.
    mild: bool,
    /// Registers used over the peak pressure, where nothing was spilled.
    over_peak: Option<f64>,
    /// Registers used over the floor, which counts what calls and predicates ask for.
    over_floor: Option<f64>,
    /// Cycles of inserted code, by how often its blocks run.
    cycles: f64,
    /// The same, less computations that are rematerialised or hoisted instead.
    net_cycles: f64,
    frame: u32,
    stats: Stats,
    /// Why there is no allocation, or why it is wrong.
    refused: Option<String>,
    wrong: Option<String>,
}

impl Figures {
    /// The figures of an allocation and whether it was proved.
    pub fn new(
        function: &Function,
        target: &Target,
        allocation: &Allocation,
        bounds: Bounds,
        budget: usize,
        time: Duration,
        proof: Result<(), String>,
    ) -> Figures {
        let touched = allocation.touched(function, target);
        let highest = touched.registers(target, File::R).last();
        let used = highest.map_or(0, |register| register + 1);
        let Bounds { peak, floor } = bounds;
        let clean = allocation.edits.is_empty() && peak > 0;
        let cycles = AddedCycles::of(function, target);
        Figures {
            insts: function.inst_count(),
            time,
            mild: peak * 4 <= budget * 5,
            over_peak: clean.then(|| used as f64 / peak as f64),
            over_floor: clean.then(|| used as f64 / floor as f64),
            cycles: cycles.inserted(allocation),
            net_cycles: cycles.net(allocation),
            frame: allocation.frame.local + allocation.frame.shared,
            stats: allocation.stats.clone(),
            refused: None,
            wrong: proof.err(),
        }
    }

    /// The figures of a function that could not be allocated.
    pub fn refused(function: &Function, why: String) -> Figures {
        Figures {
            insts: function.inst_count(),
            time: Duration::ZERO,
            mild: false,
            over_peak: None,
            over_floor: None,
            cycles: 0.0,
            net_cycles: 0.0,
            frame: 0,
            stats: Stats::default(),
            refused: Some(why),
            wrong: None,
        }
    }

    /// One line about the function called `name`.
    pub fn describe(&self, name: &str, bounds: Bounds) -> String {
        if let Some(why) = self.refused.as_ref().or(self.wrong.as_ref()) {
            return format!("    {name}: {why}");
        }
        let Stats {
            spilled,
            rematerialised,
            iterations,
            edits,
            copies,
            coalesced,
            ..
        } = &self.stats;
        let Bounds { peak, floor } = bounds;
        let ms = self.time.as_secs_f64() * 1e3;
        format!(
            "    {name}: {} instructions, peak {peak}, floor {floor}, {spilled} spilled, {rematerialised} recomputed, \
             {iterations} rounds, {coalesced} of {copies} copies coalesced, {} stores, {} reloads, \
             {:.0} cycles by frequency, frame {}, {ms:.1} ms",
            self.insts, edits.stores, edits.reloads, self.cycles, self.frame
        )
    }
}

/// Many allocations at one budget, as a row of a table.
pub struct Row {
    cells: Vec<String>,
}

impl Row {
    /// The table's head.
    pub const HEADER: &str = "\
| allocator | registers | refused | wrong | fell back | spill rate | spill rate, peak ≤ 1.25 K | coalesced | ≤ 4 rounds | moves | stores | reloads | recomputed | cycles | net cycles | frame bytes | saved by sharing | saved by compaction | used / peak | used / floor | ns per instruction |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

    /// What the columns mean.
    pub const LEGEND: &str = "\
- *Refused*: no allocation was found within the budget. *Wrong*: the checker or the execution rejected the result.
- *Fell back*: the naive allocator took over.
- *Spill rate*: spilled values over all values, those of constraint copies included; *peak ≤ 1.25 K* restricts it to
  functions whose peak pressure exceeds the budget by a quarter at most.
- *Coalesced*: copies of the function, copies that isolate its constraints (vector lanes, matrix fragments), and copies
  between the pieces of split values.
- *≤ 4 rounds*: rounds of the attempt that was kept.
- *Recomputed*: rematerialised values and hoisted invariants.
- *Saved by sharing*: part of the frame that slot colouring saved. *Saved by compaction*: bytes.
- *Used / peak*: the highest register over the peak pressure, for functions without inserted code. *Used / floor*: over
  the register floor, which counts registers that calls clobber and predicates without a register of their own.
";

    /// Sums up `all`.
    pub fn of(strategy: &str, regs: usize, all: &[Figures]) -> Row {
        let done: Vec<&Figures> = all.iter().filter(|f| f.refused.is_none()).collect();
        let sum = |of: &dyn Fn(&Figures) -> f64| done.iter().map(|f| of(f)).sum::<f64>();
        let mild = |of: &dyn Fn(&Figures) -> f64| {
            done.iter().filter(|f| f.mild).map(|f| of(f)).sum::<f64>()
        };
        let count = |of: &dyn Fn(&Figures) -> bool| done.iter().filter(|f| of(f)).count();
        let spilled: &dyn Fn(&Figures) -> f64 = &|f| f.stats.spilled as f64;
        let values: &dyn Fn(&Figures) -> f64 = &|f| f.stats.values as f64;
        let frame = sum(&|f| f.frame as f64);
        let saved = sum(&|f| f.stats.shared_slot_bytes as f64);
        let mean = |of: &dyn Fn(&Figures) -> Option<f64>| {
            let ratios: Vec<f64> = done.iter().filter_map(|f| of(f)).collect();
            match ratios.len() {
                0 => "–".to_owned(),
                n => format!("{:.3}", ratios.iter().sum::<f64>() / n as f64),
            }
        };
        let insts = sum(&|f| f.insts as f64);
        let whole = |x: f64| format!("{x:.0}");
        Row {
            cells: vec![
                strategy.to_owned(),
                regs.to_string(),
                (all.len() - done.len()).to_string(),
                count(&|f| f.wrong.is_some()).to_string(),
                count(&|f| f.stats.fell_back).to_string(),
                percent(sum(spilled), sum(values)),
                percent(mild(spilled), mild(values)),
                percent(
                    sum(&|f| f.stats.coalesced as f64),
                    sum(&|f| f.stats.copies as f64),
                ),
                percent(
                    count(&|f| f.stats.iterations <= 4) as f64,
                    done.len() as f64,
                ),
                whole(sum(&|f| f.stats.edits.moves as f64)),
                whole(sum(&|f| f.stats.edits.stores as f64)),
                whole(sum(&|f| f.stats.edits.reloads as f64)),
                whole(sum(&|f| f.stats.edits.recomputes as f64)),
                whole(sum(&|f| f.cycles)),
                whole(sum(&|f| f.net_cycles)),
                whole(frame),
                percent(saved, frame + saved),
                whole(sum(&|f| f.stats.compacted_bytes as f64)),
                mean(&|f| f.over_peak),
                mean(&|f| f.over_floor),
                whole(sum(&|f| f.time.as_nanos() as f64) / insts.max(1.0)),
            ],
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} |", self.cells.join(" | "))
    }
}

fn percent(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1} %", 100.0 * part / whole),
        false => "–".to_owned(),
    }
}
