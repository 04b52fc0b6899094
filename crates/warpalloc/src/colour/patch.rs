//! Patching a colouring: registers for the pieces of spilled values, all others keeping theirs.
//!
//! Spilling takes values out of a program and puts pieces in, most of them live around one
//! operation. What was a colouring remains one of all other values, and beside a piece a register
//! is free as a rule, because its value held none. The piece takes it, and no graph is built. No
//! other value is live at more places than it was: what rematerialisation reads is live there anyway.

use super::reg_matrix::RegMatrix;
use super::{Colours, Problem};
use crate::ir::{LiveRanges, Value};
use crate::stats::{Clock, Stats};
use crate::target::{File, PReg, UnitSet};

/// Adds registers to `colours`, for every value of `problem` that has none; or the values that find
/// none, in ascending order.
pub(super) fn patch(
    problem: &Problem,
    mut colours: Colours,
    stats: &mut Stats,
) -> Result<Colours, Vec<Value>> {
    let ranges = problem.ranges(stats);
    let mut clock = Clock::start();
    for value in problem.program.values.keys() {
        if ranges.of(value).is_empty() {
            colours[value] = None;
        }
    }
    let mut without = Vec::new();
    for (file, info) in problem.target.files() {
        let is_bare =
            |value: &&Value| ranges.size(**value).file == file && colours[**value].is_none();
        let bare: Vec<Value> = ranges.by_start().iter().filter(is_bare).copied().collect();
        without.extend(match info.units {
            _ if bare.is_empty() => continue,
            0..=64 => fill::<1>(problem, ranges, file, bare, &mut colours),
            65..=256 => fill::<4>(problem, ranges, file, bare, &mut colours),
            _ => fill::<8>(problem, ranges, file, bare, &mut colours),
        });
    }
    clock.lap(stats, "patch");
    without.sort_unstable();
    match without.is_empty() {
        true => Ok(colours),
        false => Err(without),
    }
}

/// Gives the `bare` values of `file` registers, and returns those that find none.
fn fill<const W: usize>(
    problem: &Problem,
    ranges: &LiveRanges,
    file: File,
    mut bare: Vec<Value>,
    colours: &mut Colours,
) -> Vec<Value> {
    let Problem {
        program,
        target,
        scratch,
        ..
    } = problem;
    let mut held: RegMatrix<W> = RegMatrix::new(ranges.positions(), scratch);
    for &value in ranges.by_start() {
        if let Some(reg) = colours[value].filter(|reg| reg.file == file) {
            hold(&mut held, ranges, value, reg);
        }
    }
    bare.retain(|&value| {
        let info = &program.values[value];
        let mut taken: UnitSet<W> = ranges.clobbered(value).widened();
        if let Some(forbidden) = &info.forbidden {
            taken.add(&UnitSet::of_file(target, file, forbidden));
        }
        for &segment in ranges.of(value) {
            held.gather(segment, &mut taken);
        }
        let blocked = taken.blocked_starts(usize::from(ranges.size(value).width));
        let mut registers = target.registers(info.class);
        colours[value] = registers.find(|reg| !blocked.contains(usize::from(reg.unit)));
        if let Some(reg) = colours[value] {
            hold(&mut held, ranges, value, reg);
        }
        colours[value].is_none()
    });
    held.recycle(scratch);
    bare
}

fn hold<const W: usize>(held: &mut RegMatrix<W>, ranges: &LiveRanges, value: Value, reg: PReg) {
    let width = usize::from(ranges.size(value).width);
    for &segment in ranges.of(value) {
        held.mark(segment, usize::from(reg.unit), width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Facts, Program};
    use crate::options::Options;
    use crate::scratch::Scratch;
    use crate::text;
    use cranelift_entity::EntityRef;

    /// A pair is live across all; two scalars follow each other beside it.
    const BESIDE: &str = "
target hardware sm_90
kernel beside {
block0:
    v0:r64 = load #0 : read
    v1:r32 = load #1 : read
    store v1 : write
    v2:r32 = load #2 : read
    store v2 : write
    v3:r64 = load #3 : read
    store v3 : write
    store v0 : write
    exit : exit write
}
";

    /// Units after patching within `budget` registers, where `given` values have theirs; or the
    /// values that find none.
    fn patched(budget: usize, given: &[(usize, usize)]) -> Result<Vec<usize>, Vec<usize>> {
        let case = text::parse(BESIDE).unwrap();
        let target = case.target.clone().with_budget(File::R, budget);
        let (options, scratch) = (Options::default(), Scratch::default());
        let program = Program::new(&case.function, &target, None).unwrap();
        let facts = Facts::of(&program);
        let problem = Problem::new(program, facts, &target, &options, &scratch);
        let mut colours = Colours::new();
        for &(value, register) in given {
            let unit = register * target.file(File::R).units_per_reg;
            colours[Value::new(value)] = Some(PReg::new(File::R, unit));
        }
        let units_per_reg = target.file(File::R).units_per_reg;
        match patch(&problem, colours, &mut Stats::default()) {
            Ok(colours) => Ok((0..4)
                .map(|v| usize::from(colours[Value::new(v)].unwrap().unit) / units_per_reg)
                .collect()),
            Err(values) => Err(values.iter().map(|v| v.index()).collect()),
        }
    }

    #[test]
    fn values_without_a_register_take_the_lowest_that_is_free() {
        assert_eq!(patched(4, &[(0, 0), (1, 3)]), Ok(vec![0, 3, 2, 2]));
        assert_eq!(patched(4, &[(0, 2), (3, 0)]), Ok(vec![2, 0, 0, 0]));
    }

    #[test]
    fn values_that_find_none_are_told() {
        assert_eq!(patched(3, &[(0, 0)]), Err(vec![3]));
        assert_eq!(patched(2, &[(0, 0)]), Err(vec![1, 2, 3]));
    }
}
