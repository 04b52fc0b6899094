//! Registers of pinned values.
//!
//! A pinned value may never move, so it has its register before anybody else does, and nobody
//! else may have that register anywhere. Two pinned values share one where the stretches of
//! code from first to last place where they are live are apart. Registers that fixed operands
//! of others want are none, nor those that clobbers overwrite within the stretch.

use super::code::{Code, NOWHERE, is_pinned};
use crate::function::{Block, Clobbers};
use crate::ir::{Op, Value};
use crate::target::{File, PReg, UnitSet};
use cranelift_entity::EntityRef;

/// Positions from the first to the last where a value is live.
type Hull = (usize, usize);

/// A register for each pinned value, or nothing where they cannot all have one in this way:
/// a group has pinned lanes, a result takes over the register of one, an edge passes one, or
/// there are too few registers.
pub(super) fn assign_pins(code: &Code) -> Option<Vec<u16>> {
    if !code.function.has_pinned() {
        return Some(Vec::new());
    }
    let is_pinned = |value: Value| is_pinned(&code.program, value);
    let mut pinned: Vec<Value> = code
        .program
        .values
        .keys()
        .filter(|&v| is_pinned(v))
        .collect();
    let mut pins = vec![NOWHERE; code.value_count()];
    if !leaves_pinned_alone(code) {
        return None;
    }
    let hulls = hulls(code);
    let fixed = |value: Value| {
        let mut links = code.program.links.iter();
        // The link of a pinned value has no other member.
        let link = links.find(|link| link.members[0].0 == value)?;
        link.fixed.map(|reg| reg.unit as usize)
    };
    pinned.retain(|v| hulls[v.index()].0 <= hulls[v.index()].1);
    pinned.sort_by_key(|&v| (fixed(v).is_none(), hulls[v.index()], v));
    for (at, &value) in pinned.iter().enumerate() {
        let shape = code.shape(value.as_u32());
        let hull = hulls[value.index()];
        let mut closed = contested(code, shape.file, hull);
        let reserved = code.target.reserved();
        closed.add(&UnitSet::of_file(
            code.target,
            File::new(shape.file),
            reserved,
        ));
        for &other in &pinned[..at] {
            let other_shape = code.shape(other.as_u32());
            let (start, end) = hulls[other.index()];
            if other_shape.file == shape.file && start <= hull.1 && hull.0 <= end {
                let first = usize::from(pins[other.index()]);
                (first..first + other_shape.width).for_each(|unit| closed.insert(unit));
            }
        }
        if let Some(set) = &code.program.values[value].forbidden {
            closed.add(&UnitSet::of_file(code.target, File::new(shape.file), set));
        }
        let suits = |&start: &usize| (start..start + shape.width).all(|u| !closed.contains(u));
        let last = (code.units(shape.file) + 1).saturating_sub(shape.width);
        let start = match fixed(value) {
            Some(start) => Some(start).filter(suits),
            None => (0..last).step_by(shape.align).find(suits),
        };
        pins[value.index()] = start? as u16;
    }
    Some(pins)
}

/// Whether no code copies a pinned value.
fn leaves_pinned_alone(code: &Code) -> bool {
    let is_pinned = |value: Value| is_pinned(&code.program, value);
    let passes = |&(param, arg): &(u32, u32)| {
        is_pinned(Value::from_u32(param)) || is_pinned(Value::from_u32(arg))
    };
    let on_edges = code
        .edges()
        .iter()
        .flat_map(|edge| code.pairs(edge))
        .any(passes);
    let in_groups = code
        .program
        .links
        .iter()
        .any(|link| link.members.len() > 1 && link.members.iter().any(|m| is_pinned(m.0)));
    let mut ops = code.program.blocks.values().flat_map(|block| &block.ops);
    let copied = ops.any(|op| match op {
        Op::Copies(pairs) => pairs.iter().any(|p| is_pinned(p.0) || is_pinned(p.1)),
        _ => false,
    });
    !on_edges && !in_groups && !copied
}

fn hulls(code: &Code) -> Vec<Hull> {
    let mut hulls: Vec<Hull> = vec![(usize::MAX, 0); code.value_count()];
    let mut cover = |value: u32, at: usize| {
        let hull = &mut hulls[value as usize];
        *hull = (hull.0.min(at), hull.1.max(at));
    };
    for block in (0..code.block_count()).map(Block::new) {
        let steps = code.steps(block);
        code.live_in(block).for_each(|v| cover(v, steps.start));
        code.live_out(block)
            .for_each(|v| cover(v, steps.end.saturating_sub(1)));
        for number in steps {
            let Some(op) = code.op(block, code.step(number)) else {
                continue;
            };
            op.for_each_access(code.function, |v, _| cover(v.as_u32(), number));
        }
    }
    hulls
}

/// Units of `file` that clobbers claim within `hull`, and fixed operands anywhere: what is
/// written to a fixed register may stay there.
fn contested(code: &Code, file: usize, hull: Hull) -> UnitSet<8> {
    let mut contested: UnitSet<8> = UnitSet::EMPTY;
    for block in (0..code.block_count()).map(Block::new) {
        for number in code.steps(block) {
            let step = code.step(number);
            if !step.constrained {
                continue;
            }
            for link in super::demand::links(code, block, step) {
                let (link_file, width, _) = super::demand::extent(code, link);
                if let Some(reg) = link.fixed.filter(|_| link_file == file) {
                    let first = reg.unit as usize;
                    (first..first + width).for_each(|unit| contested.insert(unit));
                }
            }
            if let Some(inst) = step.inst()
                && code.function.inst(inst).clobbers != Clobbers::None
                && (hull.0..=hull.1).contains(&number)
            {
                let clobbers = code.function.clobbers(code.target, inst);
                contested.add(&UnitSet::of_file(code.target, File::new(file), &clobbers));
            }
        }
    }
    contested
}

/// The register of a pinned value.
pub(super) fn pinned_register(code: &Code, value: u32) -> Option<PReg> {
    let file = File::new(code.shape(value).file);
    code.pin(value).map(|unit| PReg::new(file, unit))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{case, unpinned};
    use super::*;

    /// The registers of the values of a kernel that has `registers`.
    fn pins(registers: usize, blocks: &str) -> Option<Vec<u16>> {
        assign_pins(&unpinned(&case(registers, blocks)))
    }

    #[test]
    fn a_pinned_value_in_a_fixed_register_comes_first() {
        let found = pins(
            4,
            "block0:
                v0:r32.pinned = a : read
                v1:r32.pinned @ R0 = b : read
                use v0, v1 : write
                exit : exit",
        );
        assert_eq!(found, Some(vec![1, 0]));
    }

    #[test]
    fn pinned_values_may_have_all_registers() {
        let found = pins(
            4,
            "block0:
                v0:r32.pinned, v1:r64.pinned, v2:r32.pinned = a : read
                use v0, v1, v2 : write
                exit : exit",
        );
        assert_eq!(found, Some(vec![0, 2, 1]));
    }

    #[test]
    fn a_pinned_value_that_lives_nowhere_has_no_register() {
        let found = pins(
            4,
            "vregs v0:r32.pinned
            block0:
                v1:r32.pinned = a : read
                use v1 : write
                exit : exit",
        );
        assert_eq!(found, Some(vec![NOWHERE, 0]));
    }

    /// `v1` is copied from where `v0` is. The other copy has no part in that.
    #[test]
    fn results_take_over_no_register_of_a_pinned_value() {
        let found = pins(
            8,
            "block0:
                v0:r32.pinned = a : read
                v1:r32 tied 2, v2:r32 @ R4 = b v0
                use v1, v2 : write
                exit : exit",
        );
        assert_eq!(found, None);
    }
}
