//! Whether memory is needed, before anything is coloured.

use super::Problem;
use crate::interference::copied_parts;
use crate::ir::Op;
use crate::stats::Stats;
use crate::target::SpillPath;
use cranelift_entity::{EntityRef, EntitySet};

/// Where pressure is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// Where blocks begin and end: no order of instructions changes what is live there.
    Boundaries,
    /// Everywhere.
    All,
}

/// Whether more units than a file has are live at once, of values that only memory can hold
/// elsewhere. Values that may be rematerialised or carried in another file do not count,
/// nor do copies, which may share the register of their source.
pub(crate) fn must_spill(problem: &Problem, positions: Positions, stats: &mut Stats) -> bool {
    if !problem.is_over_budget(stats) {
        return false;
    }
    let (program, target) = (&problem.program, problem.target);
    let ranges = problem.ranges(stats);
    let to_memory = |file| target.file(file).spill == SpillPath::Memory;
    let mut counts: Vec<bool> = program
        .values
        .keys()
        .map(|v| to_memory(ranges.size(v).file))
        .collect();
    for op in program.blocks.values().flat_map(|block| &block.ops) {
        match op {
            Op::Inst { inst, .. } if program.function.inst(*inst).remat.is_none() => {
                for part in copied_parts(program, target, op) {
                    counts[part.to.index()] = false;
                }
            }
            _ => {
                let accesses = op.accesses(program.function);
                for (value, _) in accesses.filter(|(_, role)| role.writes()) {
                    counts[value.index()] = false;
                }
            }
        }
    }
    let pressure = ranges.pressure_of(target, |value| counts[value.index()]);
    target.files().any(|(file, info)| {
        let of_file = &pressure[file.index()];
        program.blocks.keys().any(|block| {
            let here = &of_file[ranges.of_block(program, block)];
            let highest = match positions {
                Positions::Boundaries => here.first().max(here.last()),
                Positions::All => here.iter().max(),
            };
            highest.is_some_and(|&units| units > info.capacity as i32)
        })
    })
}

/// Whether more units than a file has are live at once, where that is so somewhere, even if
/// every copy shares the register of its source while both are live: then no colouring exists.
pub(super) fn is_surely_over_budget(problem: &Problem, stats: &mut Stats) -> bool {
    let (program, target) = (&problem.program, problem.target);
    let ranges = problem.ranges(stats);
    let mut shares = EntitySet::with_capacity(program.values.len());
    for op in program.blocks.values().flat_map(|block| &block.ops) {
        let parts = copied_parts(program, target, op).into_iter();
        let sharing = parts.filter(|part| ranges.overlap(part.to, part.from));
        shares.extend(sharing.map(|part| part.to));
    }
    if shares.is_empty() {
        return true;
    }
    let pressure = ranges.pressure_of(target, |value| !shares.contains(value));
    target.files().any(|(file, info)| {
        let mut of_file = pressure[file.index()].iter();
        of_file.any(|&units| units > info.capacity as i32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Facts, Program};
    use crate::scratch::Scratch;
    use crate::text;

    /// Three values cross an edge of a machine with two registers; `how` makes the third.
    fn spills(how: &str, positions: Positions) -> bool {
        let case = text::parse(&format!(
            "target cicc sm_80 R=2
             kernel f {{
             block0:
                 v0:r32 = load : read
                 v1:r32 = load : read
                 v2:r32 = {how}
                 bra -> block1
             block1:
                 use v0, v1 : write
                 use v2 : write
                 exit : exit write
             }}"
        ))
        .unwrap();
        let program = Program::new(&case.function, &case.target, None).unwrap();
        let facts = Facts::of(&program);
        let scratch = Scratch::default();
        let problem = Problem::new(program, facts, &case.target, &case.options, &scratch);
        must_spill(&problem, positions, &mut Stats::default())
    }

    #[test]
    fn memory_is_needed_only_for_values_that_have_nowhere_else_to_go() {
        for positions in [Positions::Boundaries, Positions::All] {
            assert!(spills("load : read", positions));
            assert!(!spills("mov #1 : remat 1", positions));
            assert!(!spills("mov v0 : copy", positions));
        }
    }

    /// Another order of the first block would need two registers.
    #[test]
    fn pressure_within_a_block_is_not_seen_at_its_boundaries() {
        let case = text::parse(
            "target cicc sm_80 R=2
             kernel f {
             block0:
                 v0:r32 = load : read
                 v1:r32 = load : read
                 v2:r32 = load : read
                 use v0 : write
                 use v1, v2 : write
                 exit : exit write
             }",
        )
        .unwrap();
        let program = Program::new(&case.function, &case.target, None).unwrap();
        let facts = Facts::of(&program);
        let scratch = Scratch::default();
        let problem = Problem::new(program, facts, &case.target, &case.options, &scratch);
        let spills = |positions| must_spill(&problem, positions, &mut Stats::default());
        assert!(!spills(Positions::Boundaries));
        assert!(spills(Positions::All));
    }

    /// Both live on behind the copy, and may do so in one register.
    #[test]
    fn a_copy_is_not_surely_over_budget_beside_its_source() {
        let is_sure = |how: &str| {
            let case = text::parse(&format!(
                "target cicc sm_80 R=2
                 kernel f {{
                 block0:
                     v0:r32 = load : read
                     v1:r32 = load : read
                     v2:r32 = {how}
                     use v0, v1 : write
                     use v2 : write
                     exit : exit write
                 }}"
            ))
            .unwrap();
            let program = Program::new(&case.function, &case.target, None).unwrap();
            let facts = Facts::of(&program);
            let scratch = Scratch::default();
            let problem = Problem::new(program, facts, &case.target, &case.options, &scratch);
            is_surely_over_budget(&problem, &mut Stats::default())
        };
        assert!(is_sure("load : read"));
        assert!(!is_sure("mov v0 : copy"));
    }
}
