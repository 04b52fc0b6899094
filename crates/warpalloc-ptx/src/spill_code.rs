//! What an allocation inserts, in the words of the text: which values it spills, at which lines spill
//! code stands, and what that costs.

use std::collections::BTreeMap;

use crate::diag::Lines;
use crate::fates::fates;
use crate::live_values::{general_registers, names};
use crate::lower::Lowered;
use warpalloc::Allocation;
use warpalloc::allocation::{Edit, Point};
use warpalloc::cycles::AddedCycles;
use warpalloc::function::Inst;
use warpalloc::target::Target;

/// The code that an allocation inserts into a function.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SpillCode {
    /// Cycles that it adds to one run, less those of computations that it leaves out.
    pub cycles: f64,
    /// The values that are stored, in the order they are first written.
    pub values: Vec<SpilledValue>,
    /// How many stores stand before or behind the statement of a line.
    pub stores: BTreeMap<usize, usize>,
    /// How many reloads do.
    pub reloads: BTreeMap<usize, usize>,
    /// How many computations that run again do.
    pub recomputes: BTreeMap<usize, usize>,
}

/// A value that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SpilledValue {
    /// The register that first stands for it in the text.
    pub name: String,
    /// How many general registers it takes.
    pub registers: usize,
    /// The line where it is first written.
    pub written: Option<usize>,
    /// The lines behind or before which it is stored.
    pub stores: Vec<usize>,
}

impl SpillCode {
    pub(crate) fn of(
        lowered: &Lowered,
        lines: &Lines,
        target: &Target,
        allocation: &Allocation,
    ) -> SpillCode {
        let function = &lowered.function;
        let line = |inst: Inst| Some(lines.line(lowered.span(inst)?.start));
        // What stands around an instruction without text is told with the nearest one before it that
        // has some, or behind it.
        let texts: Vec<Inst> = function.insts().filter(|i| line(*i).is_some()).collect();
        let near = |inst: Inst| {
            let behind = texts.partition_point(|text| *text <= inst);
            let text = texts.get(behind.saturating_sub(1)).copied();
            text.and_then(line)
        };
        let mut code = SpillCode {
            cycles: AddedCycles::of(function, target).net(allocation),
            ..SpillCode::default()
        };
        for (point, edit) in allocation.edits.iter() {
            let inst = match point {
                Point::Before(inst) | Point::After(inst) => Some(inst),
                Point::Edge(block, _) => function.block_insts(block).next_back(),
            };
            let counts = match edit {
                Edit::Store { .. } => &mut code.stores,
                Edit::Reload { .. } => &mut code.reloads,
                Edit::Recompute { .. } => &mut code.recomputes,
                _ => continue,
            };
            if let Some(line) = inst.and_then(near) {
                *counts.entry(line).or_default() += 1;
            }
        }
        let names = names(lowered);
        let stored = fates(function, target, allocation).stored;
        let mut first = BTreeMap::new();
        for inst in function.insts() {
            for operand in function.operands(inst).iter().filter(|o| o.role.writes()) {
                first.entry(operand.vreg).or_insert(inst);
            }
        }
        let spilled = stored.into_iter().filter_map(|(vreg, insts)| {
            Some(SpilledValue {
                name: names[vreg.as_u32() as usize]?.to_owned(),
                registers: general_registers(function, target, vreg),
                written: first.get(&vreg).copied().and_then(line),
                stores: insts.into_iter().filter_map(near).collect(),
            })
        });
        code.values = spilled.collect();
        code.values.sort_by_key(|value| value.written);
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::{ModuleOptions, Outcome, allocate_module};
    use std::collections::BTreeSet;
    use warpalloc::cycles::MEMORY_CYCLES;
    use warpalloc::{Options, Strategy};

    /// Thirty loads that are stored in the same order.
    fn source() -> String {
        let mut source = String::from(
            ".version 9.0\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p) {\n\
             .reg .b32 %r<31>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\n",
        );
        for i in 1..=30 {
            source += &format!("ld.volatile.global.u32 %r{i}, [%rd1+{}];\n", 4 * i);
        }
        for i in 1..=30 {
            source += &format!("st.volatile.global.u32 [%rd1], %r{i};\n");
        }
        source + "ret;\n}\n"
    }

    fn spill_code(maxnreg: Option<u32>, wanted: bool) -> Option<SpillCode> {
        let options = ModuleOptions {
            maxnreg,
            spill_code: wanted,
            ..ModuleOptions::default()
        };
        let result = allocate_module(&source(), &options, None).unwrap();
        match &result.functions[0].outcome {
            Outcome::Allocated(allocated) => allocated.spill_code.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn spilled_values_are_told_by_name_and_line() {
        let code = spill_code(Some(24), true).unwrap();
        let (stores, reloads): (usize, usize) =
            (code.stores.values().sum(), code.reloads.values().sum());
        assert!(stores >= 5 && code.values.len() >= 5, "{code:?}");
        assert_eq!(
            code.cycles,
            MEMORY_CYCLES * (stores + reloads) as f64,
            "nothing but stores and reloads, each run once"
        );
        for value in &code.values {
            let number: usize = value.name.trim_start_matches("%r").parse().unwrap();
            assert_eq!(value.written, Some(7 + number), "{value:?}");
            assert_eq!((value.registers, value.stores.len()), (1, 1), "{value:?}");
            assert!(code.stores.contains_key(&value.stores[0]));
        }
        assert!(
            code.reloads.keys().all(|&line| line > 37),
            "reloads stand before the stores that read them: {:?}",
            code.reloads
        );
    }

    /// Every store is told with a value, also where the value comes from another block, and every store
    /// and reload with a line.
    #[test]
    fn spill_code_of_loops_is_told_whole() {
        let path = format!("{}/wide.sm_90.ptx", crate::apply::tests::CORPUS);
        let source = std::fs::read_to_string(path).unwrap();
        for strategy in [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan] {
            let options = ModuleOptions {
                maxnreg: Some(32),
                entries: vec!["quads".to_owned()],
                options: Options::with_strategy(strategy),
                spill_code: true,
                ..ModuleOptions::default()
            };
            let result = allocate_module(&source, &options, None).unwrap();
            let own = result.functions.iter().find(|f| f.name == "quads").unwrap();
            let Outcome::Allocated(allocated) = &own.outcome else {
                panic!("{own:?}")
            };
            let (code, edits) = (
                allocated.spill_code.as_ref().unwrap(),
                &allocated.stats.edits,
            );
            let total = |counts: &BTreeMap<usize, usize>| counts.values().sum::<usize>() as u32;
            assert_eq!(total(&code.stores), edits.stores, "{strategy}");
            assert_eq!(total(&code.reloads), edits.reloads, "{strategy}");
            let told: BTreeSet<usize> = code.values.iter().flat_map(|v| v.stores.clone()).collect();
            let lines: BTreeSet<usize> = code.stores.keys().copied().collect();
            assert_eq!(told, lines, "{strategy}");
        }
    }

    #[test]
    fn without_spills_there_is_nothing_to_tell() {
        let code = spill_code(Some(64), true).unwrap();
        assert_eq!(code, SpillCode::default());
        assert_eq!(spill_code(Some(24), false), None);
    }
}
