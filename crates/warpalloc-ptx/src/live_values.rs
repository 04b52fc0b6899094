//! The values of a function in the words of its text: where each is live, and what it costs to
//! have it in memory instead.

use crate::ast;
use crate::diag::Lines;
use crate::fates::fates;
use crate::fit::{Fit, fit, floor_of};
use crate::job::Job;
use crate::lower::{self, LowerError, Lowered, PassedThrough};
use crate::module::{ModuleOptions, PtxError, functions_with_bodies};
use crate::source_line::{SourceLine, SourceLines};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use warpalloc::Options;
use warpalloc::analysis::{Frequencies, LiveSet, Liveness, Loops, Moment, Order, Pressure};
use warpalloc::cycles::MEMORY_CYCLES;
use warpalloc::function::{Block, Function, Inst, Role, VReg};
use warpalloc::target::{File, Target};

/// A statement of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// Its line.
    pub line: usize,
    /// The line of the source it comes from.
    pub source: Option<SourceLine>,
    /// How many loops are around it.
    pub loop_depth: u32,
    /// Its opcode.
    pub opcode: String,
}

/// A value that takes general registers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveValue {
    /// The register that first stands for it in the text.
    pub name: String,
    /// How many registers it takes.
    pub registers: usize,
    /// Where it is written, in the order of the text.
    pub written: Vec<Place>,
    /// Where it is read, in the order of the text.
    pub read: Vec<Place>,
    /// Cycles of one run for a store behind each write and a reload before each read.
    pub spill_cycles: f64,
    /// Cycles of the instruction that makes it, where that may run again in another place.
    pub recompute_cycles: Option<u8>,
    /// What becomes of it within the registers that were asked for.
    pub decision: Option<Decision>,
    pub(crate) vreg: VReg,
}

/// What an allocation does with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// It is in registers wherever it is live.
    Register,
    /// It is stored at these lines, and reloaded later.
    Spilled(Vec<usize>),
    /// It is computed again, so many times.
    Recomputed(usize),
}

/// The values of a function.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FunctionValues {
    /// Its name.
    pub name: String,
    /// The line of its name.
    pub line: usize,
    /// The most registers that are live at once.
    pub peak: usize,
    /// A statement at which they are.
    pub peak_at: Option<Place>,
    /// The values that take general registers, in the order they are first written.
    pub values: Vec<LiveValue>,
    at_peak: BTreeSet<VReg>,
    /// The instructions that have text.
    pub(crate) insts: Vec<(Place, Inst)>,
    /// By value, the general registers that it takes.
    pub(crate) registers: Vec<usize>,
    pub(crate) function: Function,
    pub(crate) liveness: Liveness,
}

impl FunctionValues {
    /// What is live at the peak.
    pub fn live_at_peak(&self) -> Vec<&LiveValue> {
        let values = self.values.iter();
        values.filter(|value| self.is_live_at_peak(value)).collect()
    }

    /// What is live before the first statement of a line; `None` where none begins there.
    pub fn live_at_line(&self, line: usize) -> Option<Vec<&LiveValue>> {
        let (_, inst) = self.insts.iter().find(|(at, _)| at.line == line)?;
        let live = self.live_at(Moment::Before(*inst));
        let values = self.values.iter();
        Some(values.filter(|v| live.contains(&v.vreg)).collect())
    }

    fn live_at(&self, wanted: Moment) -> BTreeSet<VReg> {
        let mut found = BTreeSet::new();
        let block = match wanted {
            Moment::Entry(block) => block,
            Moment::Before(inst) | Moment::After(inst) => self.function.block_of(inst),
        };
        self.walk(block, |moment, live| {
            if moment == wanted {
                found.clone_from(live);
            }
        });
        found
    }

    /// Goes back through a block and shows what is in registers at each moment: what is live, and
    /// behind an instruction its results, read or not.
    fn walk(&self, block: Block, mut show: impl FnMut(Moment, &BTreeSet<VReg>)) {
        let mut live = LiveSet::new(self.function.vreg_count());
        live.start_at_end(&self.liveness, block);
        let all = |live: &LiveSet| live.iter().collect::<BTreeSet<VReg>>();
        for inst in self.function.block_insts(block).rev() {
            let operands = self.function.operands(inst);
            let results = operands.iter().filter(|o| o.role.writes());
            let mut after = all(&live);
            after.extend(results.map(|operand| operand.vreg));
            show(Moment::After(inst), &after);
            live.step_back(operands);
            show(Moment::Before(inst), &all(&live));
        }
        let mut entry = all(&live);
        entry.extend(&self.function.block(block).params);
        show(Moment::Entry(block), &entry);
    }

    /// The values that the register `name` stands for: independent ones may share it.
    pub fn named<'v>(&'v self, name: &'v str) -> impl Iterator<Item = &'v LiveValue> {
        self.values.iter().filter(move |value| value.name == name)
    }

    /// The values that are live at once with `value` somewhere.
    pub fn neighbours(&self, value: &LiveValue) -> Vec<&LiveValue> {
        let mut found: BTreeSet<VReg> = BTreeSet::new();
        for block in self.function.blocks() {
            self.walk(block, |_, live| {
                if live.contains(&value.vreg) {
                    found.extend(live);
                }
            });
        }
        found.remove(&value.vreg);
        let values = self.values.iter();
        values.filter(|v| found.contains(&v.vreg)).collect()
    }

    /// Whether `value` is live at the peak.
    pub fn is_live_at_peak(&self, value: &LiveValue) -> bool {
        self.at_peak.contains(&value.vreg)
    }
}

/// The values of the function `name`, or why it is not understood. Where `options` have a cap, the
/// function is allocated within it, and each value knows what became of it.
pub fn function_values(
    source: &str,
    name: &str,
    options: &ModuleOptions,
) -> Result<Result<FunctionValues, PassedThrough>, PtxError> {
    let module = crate::parse(source).map_err(Box::new)?;
    let originals = FxHashMap::default();
    let job = Job::new(&module, &[], &originals, options)?;
    let target = job.target()?;
    let mut functions = functions_with_bodies(&module);
    let found = functions.find(|(function, _)| function.name.text == name);
    let (function, body) = found.ok_or_else(|| PtxError::NoSuchFunction(name.to_owned()))?;
    match lower::lower(source, &job.names, function, body, &target) {
        Ok(lowered) => {
            let text = Text {
                lowered: &lowered,
                lines: &job.lines,
                origins: SourceLines::of(&module),
            };
            let mut values = text.values(function, &target);
            if let Some(cap) = options.maxnreg {
                text.decide(&mut values, &target, cap, &options.options)?;
            }
            Ok(Ok(values))
        }
        Err(LowerError::Pass(passed)) => Ok(Err(passed)),
        Err(LowerError::Error(error)) => Err(PtxError::Source(error)),
    }
}

struct Text<'t, 'm, 'a> {
    lowered: &'t Lowered<'m, 'a>,
    lines: &'t Lines<'a>,
    origins: SourceLines<'a>,
}

impl Text<'_, '_, '_> {
    fn values(&self, ast: &ast::Function, target: &Target) -> FunctionValues {
        let function = &self.lowered.function;
        let liveness = Liveness::compute(function);
        let order = Order::compute(function);
        let loops = Loops::compute(function, &order);
        let frequencies = Frequencies::compute(function, &order, &loops);
        let peak = Pressure::compute(function, target, &liveness).peak(File::R);
        let from = peak.at.and_then(|moment| match moment {
            Moment::Entry(block) => function.block_insts(block).next(),
            Moment::Before(inst) | Moment::After(inst) => Some(inst),
        });
        let place = |inst: Inst| self.place(inst, &loops);
        // A moment between statements is told by the next one that has text.
        let peak_at = from.and_then(|from| {
            let mut insts = function.insts().filter(|inst| *inst >= from);
            insts.find_map(place)
        });
        let names = names(self.lowered);
        let mut occurrences: Vec<Vec<(Inst, Role)>> = vec![Vec::new(); function.vreg_count()];
        for inst in function.insts() {
            for operand in function.operands(inst) {
                occurrences[operand.vreg.as_u32() as usize].push((inst, operand.role));
            }
        }
        let registers: Vec<usize> = function
            .vregs()
            .map(|vreg| general_registers(function, target, vreg))
            .collect();
        let mut values = Vec::new();
        for vreg in function.vregs() {
            let taken = registers[vreg.as_u32() as usize];
            let (Some(name), true) = (names[vreg.as_u32() as usize], taken > 0) else {
                continue;
            };
            let mut value = LiveValue {
                name: name.to_owned(),
                registers: taken,
                written: Vec::new(),
                read: Vec::new(),
                spill_cycles: 0.0,
                recompute_cycles: None,
                decision: None,
                vreg,
            };
            let mut makers = Vec::new();
            for &(inst, role) in &occurrences[vreg.as_u32() as usize] {
                let frequency = frequencies.block(function.block_of(inst));
                let accesses = u8::from(role.reads()) + u8::from(role.writes());
                value.spill_cycles += frequency * MEMORY_CYCLES * f64::from(accesses);
                if role.writes() {
                    makers.push(inst);
                    value.written.extend(place(inst));
                }
                if role.reads() {
                    value.read.extend(place(inst));
                }
            }
            if let [maker] = makers[..] {
                value.recompute_cycles = function.inst(maker).remat;
            }
            values.push(value);
        }
        values.sort_by_key(|value| {
            let first = occurrences[value.vreg.as_u32() as usize].first();
            first.map(|(inst, _)| *inst)
        });
        let insts = function.insts();
        let insts = insts.filter_map(|inst| Some((place(inst)?, inst)));
        let mut found = FunctionValues {
            name: ast.name.text.to_owned(),
            line: self.lines.line(ast.name.span.start),
            peak: peak.units.div_ceil(target.file(File::R).units_per_reg),
            peak_at,
            values,
            at_peak: BTreeSet::new(),
            insts: insts.collect(),
            registers,
            function: function.clone(),
            liveness,
        };
        found.at_peak = peak
            .at
            .map_or_else(BTreeSet::new, |peak| found.live_at(peak));
        found
    }

    /// Allocates within `cap` registers and notes what became of each value.
    fn decide(
        &self,
        values: &mut FunctionValues,
        target: &Target,
        cap: u32,
        options: &Options,
    ) -> Result<(), PtxError> {
        let function = &self.lowered.function;
        let unproved = |error: warpalloc::Error| PtxError::Unproved {
            function: function.name().to_owned(),
            message: self.lowered.explain(&error),
        };
        let floor = || floor_of(function, target);
        let fitted = fit(function, target, cap, options, floor);
        let Fit { target, allocation } = fitted.map_err(unproved)?;
        let mut fates = fates(function, &target, &allocation);
        let line = |inst: Inst| Some(self.lines.line(self.lowered.span(inst)?.start));
        for value in &mut values.values {
            let again = fates.recomputed.get(&value.vreg).copied();
            value.decision = Some(match (fates.stored.remove(&value.vreg), again) {
                (Some(insts), _) => Decision::Spilled(insts.into_iter().filter_map(line).collect()),
                (None, Some(times)) => Decision::Recomputed(times),
                (None, None) => Decision::Register,
            });
        }
        Ok(())
    }

    fn place(&self, inst: Inst, loops: &Loops) -> Option<Place> {
        let function = &self.lowered.function;
        let span = self.lowered.span(inst)?;
        let opcode = function.opcode_name(function.inst(inst).opcode);
        Some(Place {
            line: self.lines.line(span.start),
            source: self.origins.at(span.start),
            loop_depth: loops.depth(function.block_of(inst)),
            opcode: opcode.to_owned(),
        })
    }
}

/// By value, the register that first stands for it.
pub(crate) fn names<'t>(lowered: &'t Lowered) -> Vec<Option<&'t str>> {
    let function = &lowered.function;
    let mut names: Vec<Option<&str>> = vec![None; function.vreg_count()];
    for inst in function.insts() {
        let operands = function.operands(inst);
        for occurrence in &lowered.codes[inst.as_u32() as usize].occurrences {
            let first = occurrence.operand as usize;
            let lanes = operands.get(first..first + occurrence.lanes as usize);
            for lane in lanes.unwrap_or_default() {
                let name = &mut names[lane.vreg.as_u32() as usize];
                if name.is_none() {
                    *name = Some(occurrence.span.text(lowered.source));
                }
            }
        }
    }
    names
}

/// The general registers that a value takes; 0 for predicates and others.
pub(crate) fn general_registers(function: &Function, target: &Target, vreg: VReg) -> usize {
    let class = target.class(function.vreg(vreg).class);
    match class.file == File::R {
        true => class.width.div_ceil(target.file(class.file).units_per_reg),
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
.version 9.0
.target sm_90
.address_size 64
.entry k(.param .u64 p) {
\t.reg .pred %p<2>;
\t.reg .b32 %r<9>;
\t.reg .b64 %rd<2>;
\t.loc 1 3 0
\tld.param.u64 %rd1, [p];
\tmov.u32 %r1, 7;
\tld.global.u32 %r2, [%rd1];
\tld.global.u32 %r3, [%rd1+4];
loop:
\t.loc 1 5 0
\tadd.u32 %r3, %r3, %r2;
\tsetp.lt.u32 %p1, %r3, 100;
\t@%p1 bra loop;
\tadd.u32 %r4, %r3, %r1;
\tst.global.u32 [%rd1], %r4;
\tret;
}
.file 1 \"k.cu\"
";

    fn values() -> FunctionValues {
        let values = function_values(SOURCE, "k", &ModuleOptions::default());
        values.unwrap().unwrap()
    }

    fn names(values: &[&LiveValue]) -> Vec<String> {
        values.iter().map(|value| value.name.clone()).collect()
    }

    #[test]
    fn values_are_live_from_write_to_last_read() {
        let values = values();
        assert_eq!(values.peak, 5, "a pair and three single registers");
        assert_eq!(names(&values.live_at_peak()), ["%rd1", "%r1", "%r2", "%r3"]);
        let at = |line| values.live_at_line(line).map(|live| names(&live));
        assert_eq!(at(11), Some(vec!["%rd1".to_owned(), "%r1".to_owned()]));
        assert_eq!(at(13), None, "a label is no statement");
    }

    /// Twenty loads that are stored in reverse order, within twelve registers.
    #[test]
    fn within_a_cap_each_value_has_a_fate() {
        let mut source = String::from(
            ".version 9.0\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p) {\n\
             .reg .b32 %r<21>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\n",
        );
        for i in 1..=20 {
            source += &format!("ld.volatile.global.u32 %r{i}, [%rd1+{}];\n", 4 * i);
        }
        for i in 1..=20 {
            source += &format!("st.volatile.global.u32 [%rd1], %r{i};\n");
        }
        source += "ret;\n}\n";
        let fates = |cap| {
            let options = ModuleOptions {
                maxnreg: cap,
                ..ModuleOptions::default()
            };
            let values = function_values(&source, "k", &options).unwrap().unwrap();
            let fates = values.values.into_iter().filter(|v| v.registers == 1);
            fates.map(|value| value.decision).collect::<Vec<_>>()
        };
        assert!(fates(None).iter().all(Option::is_none));
        let all = |cap| fates(cap).into_iter().flatten().collect::<Vec<_>>();
        assert!(all(Some(40)).iter().all(|d| *d == Decision::Register));
        let spilled = all(Some(12));
        let spilled = spilled.iter().filter_map(|decision| match decision {
            Decision::Spilled(lines) => Some(lines.len()),
            _ => None,
        });
        let spilled: Vec<usize> = spilled.collect();
        assert!(
            spilled.len() >= 10 && spilled.iter().all(|&stores| stores == 1),
            "{spilled:?}"
        );
    }

    #[test]
    fn a_value_knows_its_places_and_its_cost() {
        let values = values();
        let r1 = values.named("%r1").next().unwrap();
        assert_eq!((r1.written.len(), r1.read.len(), r1.registers), (1, 1, 1));
        let read = &r1.read[0];
        assert_eq!((read.line, read.loop_depth), (18, 0));
        let source = read.source.as_ref().map(|s| (s.file.as_str(), s.line));
        assert_eq!(source, Some(("k.cu", 5)));
        assert!(r1.recompute_cycles.is_some(), "a constant can be had again");
        let r2 = values.named("%r2").next().unwrap();
        assert_eq!(r2.recompute_cycles, None, "a load reads memory");
        assert_eq!(r2.read[0].loop_depth, 1);
        assert!(r2.spill_cycles > r1.spill_cycles, "it is read in a loop");
        assert_eq!(r1.spill_cycles, 2.0 * MEMORY_CYCLES);
        assert_eq!(names(&values.neighbours(r2)), ["%rd1", "%r1", "%r3"]);
    }
}
