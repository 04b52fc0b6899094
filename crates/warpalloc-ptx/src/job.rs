//! One module at work: each function lowered, allocated and applied, and their edits joined.

use crate::apply::{self, NotExpressible, Surroundings, Threads};
use crate::ast::{self, Body, Module};
use crate::bound::bounded;
use crate::budget::{Block, Budget, Limits, MOST_REGISTERS};
use crate::contract::ContractedFunction;
use crate::debug::debug_registers;
use crate::diag::Lines;
use crate::entry::{
    block_threads, declared_threads, has_instruction, is_relocatable, module_shared, static_shared,
    write_block, write_cap, write_local_cap, write_shared_spills,
};
use crate::fit::{Fit, fit, floor_of};
use crate::flight_names;
use crate::least::{LEAST_CAP, least_registers};
use crate::lower::{self, LowerError, Lowered, ModuleNames, PassedThrough};
use crate::module::{
    Allocated, FunctionReport, LocalFrame, ModuleOptions, ModuleResult, Outcome, Progress,
    PtxError, SpillSpace, Treatment, functions_with_bodies,
};
use crate::printer::Edits;
use crate::spill_code::SpillCode;
use crate::types;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use warpalloc::allocation::{Frame, Space};
use warpalloc::options::HoistPolicy;
use warpalloc::target::occupancy::{Launch, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc::target::{File, Target};
use warpalloc::{Error, Options, Strategy};

/// A module and how to allocate it.
pub(crate) struct Job<'m, 'a> {
    module: &'m Module<'a>,
    pub(crate) names: ModuleNames<'a>,
    pub(crate) lines: Lines<'a>,
    options: &'m ModuleOptions,
    preset: &'m str,
    sm: Sm,
    /// Whether the module's target has `.relaxed` accesses.
    relaxed: bool,
    /// Shared memory declared at module level.
    shared_bytes: u64,
    /// Whether a device function has a `setmaxnreg`.
    callees_share_registers: bool,
    /// Whether device functions are compiled for callers in other modules.
    relocatable: bool,
    /// Why its debug information lets no register be renamed.
    debug: Option<PassedThrough>,
    /// What was contracted in the text.
    contracted: &'m [ContractedFunction],
    /// Bodies that were changed before that, as they were, by the name of the function.
    originals: &'m FxHashMap<String, String>,
    /// What functions with bodies were lowered to, in order, where that was done ahead.
    lowered: Option<&'m [LoweredFunction<'m, 'a>]>,
}

/// A function lowered for the machine with all its registers, unless nobody wants it.
pub(crate) type LoweredFunction<'m, 'a> = Option<Result<Lowered<'m, 'a>, LowerError>>;

impl<'m, 'a> Job<'m, 'a> {
    pub(crate) fn new(
        module: &'m Module<'a>,
        contracted: &'m [ContractedFunction],
        originals: &'m FxHashMap<String, String>,
        options: &'m ModuleOptions,
    ) -> Result<Self, PtxError> {
        let declared = module.target.iter().find_map(|t| sm_number(t));
        let number = options.sm.or(declared).unwrap_or(70);
        // PTX for an older machine runs on every newer one.
        let sm = nearest_sm(number.max(70))
            .ok_or_else(|| PtxError::Target(format!("sm_{number} is not a supported target")))?;
        for name in &options.entries {
            if !functions_with_bodies(module).any(|(f, _)| f.name.text == name) {
                return Err(PtxError::NoSuchFunction(name.clone()));
            }
        }
        Ok(Job {
            module,
            names: ModuleNames::of(module),
            lines: Lines::of(module.source),
            options,
            preset: options.preset.as_deref().unwrap_or("hardware"),
            sm,
            relaxed: declared.is_some_and(|sm| sm >= 70) && module.version >= (6, 0),
            shared_bytes: module_shared(module),
            callees_share_registers: functions_with_bodies(module)
                .any(|(f, body)| !f.is_entry && has_instruction(body, "setmaxnreg")),
            debug: debug_registers(module),
            contracted,
            originals,
            lowered: None,
            relocatable: options
                .relocatable
                .unwrap_or_else(|| is_relocatable(module)),
        })
    }

    /// The same job with functions that were lowered ahead.
    pub(crate) fn with_lowered(self, lowered: &'m [LoweredFunction<'m, 'a>]) -> Self {
        let lowered = Some(lowered);
        Job { lowered, ..self }
    }

    /// Lowers the wanted functions, in the order of all that have bodies.
    pub(crate) fn lower_ahead<'t>(
        &'t self,
        functions: &[(&'t ast::Function<'a>, &'t Body<'a>)],
        target: &'t Target,
    ) -> Vec<LoweredFunction<'t, 'a>> {
        let wanted = |function: &ast::Function| self.debug.is_none() && self.is_wanted(function);
        functions
            .par_iter()
            .map(|&(function, body)| {
                let source = self.module.source;
                wanted(function).then(|| lower::lower(source, &self.names, function, body, target))
            })
            .collect()
    }

    /// The machine with all its registers.
    pub(crate) fn target(&self) -> Result<Target, PtxError> {
        let target = Target::preset(self.preset, self.sm.number());
        target.map_err(|error| PtxError::Target(error.to_string()))
    }

    pub(crate) fn is_wanted(&self, function: &ast::Function) -> bool {
        let names = &self.options.entries;
        names.is_empty() || names.iter().any(|name| name == function.name.text)
    }

    pub(crate) fn run(&self, progress: Option<Progress>) -> Result<ModuleResult, PtxError> {
        let functions: Vec<_> = functions_with_bodies(self.module).collect();
        let done = AtomicUsize::new(0);
        let results: Vec<_> = functions
            .par_iter()
            .enumerate()
            .map(|(number, (function, body))| {
                let ahead = self
                    .lowered
                    .and_then(|lowered| lowered.get(number)?.as_ref());
                let result = self.function(function, body, ahead);
                if let Some(progress) = progress {
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, functions.len());
                }
                result
            })
            .collect();
        let mut edits = Edits::new();
        let mut reports = Vec::with_capacity(results.len());
        for result in results {
            let (report, own) = result?;
            edits.append(&own);
            reports.push(report);
        }
        let text = edits.apply(self.module.source)?;
        let is_allocated = |r: &&FunctionReport| matches!(r.outcome, Outcome::Allocated(_));
        let ours = reports.iter().filter(is_allocated).map(|r| r.name.as_str());
        let text = flight_names::separate(text, &self.target()?, &ours.collect())?;
        Ok(ModuleResult {
            text,
            functions: reports,
            promoted: None,
        })
    }

    fn function(
        &self,
        function: &ast::Function<'a>,
        body: &Body<'a>,
        ahead: Option<&Result<Lowered<'_, 'a>, LowerError>>,
    ) -> Result<(FunctionReport, Edits), PtxError> {
        let mut report = FunctionReport {
            name: function.name.text.to_owned(),
            is_entry: function.is_entry,
            line: self.lines.line(function.name.span.start),
            instructions: 0,
            vregs: 0,
            warnings: Vec::new(),
            contraction: None,
            outcome: Outcome::Skipped,
        };
        if !self.is_wanted(function) {
            return Ok((report, Edits::new()));
        }
        let mut budget = self.budget(function);
        report.warnings = std::mem::take(&mut budget.warnings);
        types::check(function, body)?;
        let target = self.target()?;
        let own;
        let lowered = match (&self.debug, ahead) {
            (None, Some(lowered)) => lowered,
            (None, None) => {
                own = lower::lower(self.module.source, &self.names, function, body, &target);
                &own
            }
            (Some(passed), _) => {
                own = Err(LowerError::Pass(passed.clone()));
                &own
            }
        };
        if self.options.treatment != Treatment::Allocate {
            // What is wrong with the text is told, whoever allocates.
            if let Err(LowerError::Error(error)) = lowered {
                return Err(PtxError::Source(error.clone()));
            }
            return Ok(self.left(function, body, &budget, report));
        }
        let mut edits = Edits::new();
        match lowered {
            Err(LowerError::Error(error)) => return Err(PtxError::Source(error.clone())),
            Err(LowerError::Pass(passed)) => {
                report.outcome = Outcome::PassedThrough(passed.clone());
            }
            Ok(lowered) => {
                report.instructions = lowered.function.inst_count();
                report.vregs = lowered.function.vreg_count();
                report.outcome =
                    self.allocated(lowered, &target, &budget, &mut report, &mut edits)?;
            }
        }
        if let Some(refusal) = self.too_low_a_cap(body, &budget) {
            report.outcome = Outcome::Refused(refusal);
            edits = Edits::new();
        }
        let mut contracted = self.contracted.iter();
        report.contraction = contracted.find(|c| c.name == function.name.text).cloned();
        if let Some(reason) = self.other_bits(&report) {
            report.outcome = Outcome::Kept(reason);
            edits = Edits::new();
        }
        if !matches!(report.outcome, Outcome::Allocated(_)) {
            // What is not allocated stays as it was.
            let contracted = report.contraction.as_ref().map(|c| &c.original);
            if let Some(original) = self.originals.get(function.name.text).or(contracted) {
                edits.replace(body.span(), original);
            }
        }
        if !matches!(report.outcome, Outcome::Refused(_)) {
            self.write_cap(function, body, &budget, &mut edits);
        }
        Ok((report, edits))
    }

    /// Why an allocated function might compute other bits: what ptxas fuses in it is not foreseen,
    /// and depends on the order of instructions as on spill code between them.
    fn other_bits(&self, report: &FunctionReport) -> Option<String> {
        if !matches!(report.outcome, Outcome::Allocated(_)) {
            return None;
        }
        let obstacle = report.contraction.as_ref()?.obstacle.as_ref()?;
        let line = self.lines.line(obstacle.span.start);
        Some(format!(
            "another text might change the last bits of its results, because ptxas decides what to fuse: \
             line {line}, {}; `--contract keep` allocates it all the same",
            obstacle.reason
        ))
    }

    /// The function as it is, with the cap for ptxas to heed.
    fn left(
        &self,
        function: &ast::Function<'a>,
        body: &Body<'a>,
        budget: &Budget,
        mut report: FunctionReport,
    ) -> (FunctionReport, Edits) {
        let mut edits = Edits::new();
        if let Some(refusal) = self.too_low_a_cap(body, budget) {
            report.outcome = Outcome::Refused(refusal);
            return (report, edits);
        }
        report.outcome = Outcome::Kept("its registers are left to ptxas".to_owned());
        self.write_cap(function, body, budget, &mut edits);
        if self.options.treatment == Treatment::LeaveWithSharedSpills && function.is_entry {
            match self.threads(function) {
                None => {
                    let reason = "shared memory needs `.maxntid`, `.reqntid` or --block";
                    report.outcome = Outcome::Refused(reason.to_owned());
                    return (report, Edits::new());
                }
                Some(threads) if declared_threads(function).is_none() => {
                    write_block(function, threads.count, &mut edits);
                }
                Some(_) => {}
            }
            write_shared_spills(body, &mut edits);
        }
        (report, edits)
    }

    fn write_cap(&self, function: &ast::Function, body: &Body, budget: &Budget, edits: &mut Edits) {
        let Some(cap) = budget.cap else {
            return;
        };
        if function.is_entry {
            write_cap(function, cap, edits);
        } else if self.relocatable {
            write_local_cap(function, body, self.module.version, cap, edits);
        }
    }

    /// Why ptxas would not take the cap that was asked for.
    fn too_low_a_cap(&self, body: &Body, budget: &Budget) -> Option<String> {
        let cap = budget.cap?;
        let (least, cause) = least_registers(body);
        if cap >= least {
            return None;
        }
        Some(match cause {
            Some(span) => {
                let line = self.lines.line(span.start);
                let text = span.text(self.module.source);
                let opcode = text.split_whitespace().find(|word| !word.starts_with('@'));
                format!(
                    "ptxas refuses a cap of {cap} registers: line {line}, `{}` needs {least}; \
                     allow {least} or more",
                    opcode.unwrap_or(text)
                )
            }
            None => {
                format!("ptxas raises a cap of {cap} registers to {least}; allow {least} or more")
            }
        })
    }

    fn allocated(
        &self,
        lowered: &Lowered,
        target: &Target,
        budget: &Budget,
        report: &mut FunctionReport,
        edits: &mut Edits,
    ) -> Result<Outcome, PtxError> {
        let surroundings = self.surroundings(lowered.ast);
        let (options, warning) = bounded(&lowered.function, target, &self.options.options);
        report.warnings.extend(warning);
        let (spaces, obstacle) = self.spaces(lowered, &surroundings);
        let mut obstacle = obstacle.map(str::to_owned);
        let mut refusal = obstacle.clone().unwrap_or_default();
        for &space in spaces {
            match self.attempt(lowered, target, budget, &options, space, surroundings) {
                Ok((allocated, own)) => {
                    if space == Space::Shared && !self.is_worth_it(&allocated, &surroundings) {
                        continue;
                    }
                    *edits = own;
                    if let Some(why) = obstacle.filter(|_| allocated.frame.local > 0) {
                        let warning = format!("spills go to local memory: {why}");
                        report.warnings.push(warning);
                    }
                    if allocated.frame.shared > 0 && declared_threads(lowered.ast).is_none() {
                        let threads = surroundings.threads.map_or(0, |threads| threads.count);
                        write_block(lowered.ast, threads, edits);
                    }
                    return Ok(Outcome::Allocated(Box::new(allocated)));
                }
                Err(Failure::Kept(reason)) => return Ok(Outcome::Kept(reason)),
                Err(Failure::Refused(reason)) => {
                    if space == Space::Shared && self.wants_shared() {
                        obstacle = Some(reason.clone());
                    }
                    refusal = reason;
                }
                Err(Failure::Fatal(error)) => return Err(error),
            }
        }
        Ok(Outcome::Refused(refusal))
    }

    /// Whether spills are to go to shared memory wherever that is possible.
    fn wants_shared(&self) -> bool {
        let options = &self.options.options;
        let by_knob = options.strategy == Strategy::Fatpoint && options.knobs.smem_spill;
        let spaces = [SpillSpace::Shared, SpillSpace::SharedOnly];
        spaces.contains(&self.options.spill_space) || by_knob
    }

    /// The memories to try, in order, and what keeps the one that is wanted from being among
    /// them.
    fn spaces(
        &self,
        lowered: &Lowered,
        surroundings: &Surroundings,
    ) -> (&'static [Space], Option<&'static str>) {
        let obstacle = if !lowered.ast.is_entry {
            Some("a function that is called cannot spill to shared memory")
        } else if lowered.has_calls {
            Some("a kernel that calls functions cannot spill to shared memory")
        } else if surroundings.threads.is_none() {
            Some("shared memory needs `.maxntid`, `.reqntid` or --block")
        } else if surroundings.shared_room() == 0 {
            Some("its own variables leave no shared memory to spill to")
        } else {
            None
        };
        let wants_shared = self.wants_shared();
        let is_wanted = wants_shared || self.options.spill_space == SpillSpace::Auto;
        let is_only = self.options.spill_space == SpillSpace::SharedOnly;
        match obstacle {
            None if is_only => (&[Space::Shared], None),
            Some(_) if is_only => (&[], obstacle),
            None if is_wanted => (&[Space::Shared, Space::Local], None),
            _ => (&[Space::Local], obstacle.filter(|_| wants_shared)),
        }
    }

    /// Where the choice is ours, shared memory must not cost a resident block.
    fn is_worth_it(&self, allocated: &Allocated, surroundings: &Surroundings) -> bool {
        let Some(threads) = surroundings.threads.filter(|_| !self.wants_shared()) else {
            return true;
        };
        let block_threads = threads.count;
        let blocks = |bytes: u64| {
            let launch = Launch {
                registers_per_thread: allocated.budget.max(1),
                block_threads,
                shared_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            };
            occupancy(self.sm, &launch).map_or(0, |answer| answer.blocks)
        };
        let own = surroundings.shared_bytes;
        let ours = u64::from(allocated.frame.shared) * u64::from(block_threads);
        blocks(own + ours) >= blocks(own)
    }

    /// What spill code of the allocator takes of local memory in a function that was lowered, or why
    /// there is none. Nothing is applied.
    pub(crate) fn local_frame(
        &self,
        lowered: &Lowered,
        target: &Target,
    ) -> Result<Result<LocalFrame, String>, PtxError> {
        let budget = self.budget(lowered.ast);
        let body = lowered.ast.body.as_ref();
        if let Some(refusal) = body.and_then(|body| self.too_low_a_cap(body, &budget)) {
            return Ok(Err(refusal));
        }
        let surroundings = self.surroundings(lowered.ast);
        let (options, _) = bounded(&lowered.function, target, &self.options.options);
        let options = self.options_for(lowered, &options, Space::Local, &surroundings);
        match self.fitted(lowered, target, &budget, &options) {
            Ok(fit) => Ok(Ok(LocalFrame {
                bytes: fit.allocation.frame.local,
                cap: budget.cap,
            })),
            Err(Failure::Refused(reason) | Failure::Kept(reason)) => Ok(Err(reason)),
            Err(Failure::Fatal(error)) => Err(error),
        }
    }

    /// How to allocate a function that spills to `space`.
    fn options_for(
        &self,
        lowered: &Lowered,
        options: &Options,
        space: Space,
        surroundings: &Surroundings,
    ) -> Options {
        let mut knobs = options.knobs.clone();
        // The knob stands for the memory that `space` says.
        knobs.smem_spill = false;
        if self.shares_registers(lowered.ast) {
            // What is hoisted takes registers of the part that has given most of them away.
            knobs.hoist_policy = HoistPolicy::Never;
        }
        Options {
            spill_space: space,
            knobs,
            frame_base: apply::base_registers(space, surroundings),
            shared_limit: Some(surroundings.shared_room()),
            ..options.clone()
        }
    }

    /// Allocates.
    fn fitted(
        &self,
        lowered: &Lowered,
        target: &Target,
        budget: &Budget,
        options: &Options,
    ) -> Result<Fit, Failure> {
        let function = &lowered.function;
        let floor = || *lowered.floor.get_or_init(|| floor_of(function, target));
        let fitted = fit(function, target, budget.registers, options, floor);
        let fitted = fitted.map_err(|error| self.failure(lowered, error))?;
        let spills = fitted.allocation.frame != Frame::default();
        if spills && budget.cap.is_none() && options.strategy != Strategy::Naive {
            return Err(Failure::Kept(format!(
                "in the order of its text it does not fit {} registers, and no cap was asked \
                 for that would be worth spill code",
                budget.registers
            )));
        }
        Ok(fitted)
    }

    /// Allocates and applies.
    fn attempt(
        &self,
        lowered: &Lowered,
        target: &Target,
        budget: &Budget,
        options: &Options,
        space: Space,
        surroundings: Surroundings,
    ) -> Result<(Allocated, Edits), Failure> {
        let options = &self.options_for(lowered, options, space, &surroundings);
        let Fit { target, allocation } = self.fitted(lowered, target, budget, options)?;
        let spills = allocation.frame != Frame::default();
        let refused = |NotExpressible(message)| Failure::Refused(message);
        let edits = apply::apply(lowered, &target, &allocation, surroundings).map_err(refused)?;
        let touched = allocation.touched(&lowered.function, &target);
        let highest = |file| touched.registers(&target, file).last();
        let up_to_highest = |file| highest(file).map_or(0, |register| register as u32 + 1);
        let spill_code = self.options.spill_code;
        let spill_code =
            spill_code.then(|| SpillCode::of(lowered, &self.lines, &target, &allocation));
        let allocated = Allocated {
            budget: match spills {
                true => budget.registers.saturating_sub(options.frame_base),
                false => budget.registers,
            },
            frame: allocation.frame,
            stats: allocation.stats,
            registers: up_to_highest(File::R),
            named: touched.registers(&target, File::R).count() as u32,
            predicates: up_to_highest(File::P),
            spill_code,
        };
        Ok((allocated, edits))
    }

    fn failure(&self, lowered: &Lowered, error: Error) -> Failure {
        match error {
            Error::Impossible { .. } | Error::FrameTooLarge { .. } => {
                Failure::Refused(lowered.explain(&error))
            }
            _ => Failure::Fatal(PtxError::Unproved {
                function: lowered.function.name().to_owned(),
                message: lowered.explain(&error),
            }),
        }
    }

    fn budget(&self, function: &ast::Function) -> Budget {
        let limits = Limits {
            sm: self.sm,
            maxnreg: self.options.maxnreg,
            occupancy_target: self.options.occupancy_target,
        };
        let block = Block {
            threads: self.threads(function).map(|threads| threads.count),
            shared_bytes: self.shared_bytes_of(function),
            shares_registers: self.shares_registers(function),
        };
        let mut budget = limits.budget(function, block);
        if let Some(cap) = budget.cap {
            let registers = i64::from(cap) - i64::from(self.options.margin);
            let bounds = i64::from(LEAST_CAP.min(cap))..=i64::from(MOST_REGISTERS);
            let registers = registers.clamp(*bounds.start(), *bounds.end());
            budget.registers = u32::try_from(registers).unwrap_or(cap);
        }
        budget
    }

    /// Whether `setmaxnreg` moves registers between warps in `function` or what it may call.
    fn shares_registers(&self, function: &ast::Function) -> bool {
        function.body.as_ref().is_some_and(|body| {
            has_instruction(body, "setmaxnreg")
                || self.callees_share_registers && has_instruction(body, "call")
        })
    }

    fn shared_bytes_of(&self, function: &ast::Function) -> u64 {
        let own = function.body.as_ref().map_or(0, static_shared);
        let dynamic = u64::from(self.options.dynamic_shared);
        self.shared_bytes
            .saturating_add(own)
            .saturating_add(dynamic)
    }

    /// The bound on the block that an entry is launched with, where it is known.
    fn threads(&self, function: &ast::Function) -> Option<Threads> {
        let threads = block_threads(function, self.options.block);
        threads.filter(|_| function.is_entry)
    }

    fn surroundings(&self, function: &ast::Function) -> Surroundings {
        Surroundings {
            address_size: self.module.address_size,
            relaxed: self.relaxed,
            threads: self.threads(function),
            shared_bytes: self.shared_bytes_of(function),
        }
    }
}

enum Failure {
    Refused(String),
    Kept(String),
    Fatal(PtxError),
}

/// The machine of that number, or the nearest below it of the same generation: sm_88 runs what
/// is written for sm_87.
fn nearest_sm(number: u32) -> Option<Sm> {
    let same = |sm: &Sm| sm.number() <= number && sm.number() / 10 == number / 10;
    Sm::ALL.into_iter().rfind(same)
}

/// `sm_90a` is 90.
fn sm_number(target: &str) -> Option<u32> {
    let digits = target.strip_prefix("sm_")?;
    digits
        .trim_end_matches(|c: char| c.is_ascii_lowercase())
        .parse()
        .ok()
}
