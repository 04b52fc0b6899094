//! Rigid bodies: operands whose registers determine each other.
//!
//! A group's lanes stand side by side, a tied result sits where its input sat. Both say
//! "this operand starts so many units after that one", so the operands of an instruction
//! fall into connected components, each a rigid body that moves along the register file
//! as one. Every other constraint (class, fixed register, exclusion) restricts where a
//! body may start, and no instruction needs more than one look at each body.

use crate::error::{Error, Place};
use crate::function::{Constraint, Function, Inst, Operand, Role};
use crate::target::{File, PReg, RegSet, Target};
use smallvec::SmallVec;

/// An operand of a body and where it sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Position among the instruction's operands.
    pub operand: usize,
    /// Units from the body's start.
    pub offset: usize,
}

/// Operands of one instruction that take their registers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The operands, by position.
    pub members: SmallVec<[Member; 4]>,
    /// The file they all live in.
    pub file: File,
    /// Units from the first to the last.
    pub width: usize,
    /// The start is a multiple of this.
    pub align: usize,
}

impl Body {
    /// Whether the body is one operand that takes any register of its class.
    pub fn is_free(&self, function: &Function, inst: Inst) -> bool {
        let operand = function.operands(inst)[self.members[0].operand];
        let alone = self.members.len() == 1 && operand.constraint == Constraint::Any;
        let in_group = |m: &Member| {
            let groups = function.groups(inst);
            groups.iter().any(|g| g.range().contains(&m.operand))
        };
        alone && !in_group(&self.members[0])
    }

    /// Whether the body may start at `start`.
    pub fn may_start(&self, function: &Function, target: &Target, inst: Inst, start: PReg) -> bool {
        let operands = function.operands(inst);
        let members_fit = self.members.iter().all(|m| {
            let reg = start.offset(m.offset);
            let operand = &operands[m.operand];
            target.fits(function.vreg(operand.vreg).class, reg)
                && satisfies(function, target, operand, reg)
        });
        (start.unit as usize).is_multiple_of(self.align) && members_fit
    }

    /// Every place where the body may start, in ascending order.
    pub fn starts<'a>(
        &'a self,
        function: &'a Function,
        target: &'a Target,
        inst: Inst,
    ) -> impl Iterator<Item = PReg> + 'a {
        let units = target.file(self.file).units;
        (0..(units + 1).saturating_sub(self.width))
            .map(|unit| PReg::new(self.file, unit))
            .filter(move |&start| self.may_start(function, target, inst, start))
    }
}

/// Whether `reg` satisfies the operand's own constraint.
pub(crate) fn satisfies(
    function: &Function,
    target: &Target,
    operand: &Operand,
    reg: PReg,
) -> bool {
    match operand.constraint {
        Constraint::Any | Constraint::Tied(_) | Constraint::Anywhere => true,
        Constraint::Memory | Constraint::Argument(_) => false,
        Constraint::Fixed(fixed) => reg == fixed,
        Constraint::Except(list) => {
            let list = function.reg_list(list).iter().copied();
            let width = target.width(function.vreg(operand.vreg).class);
            !RegSet::of_registers(target, list).overlaps(target, reg, width)
        }
    }
}

/// The rigid bodies of `inst`, ordered by their first operand.
///
/// Constraints that contradict each other, such as a tie across a group's lanes, are
/// reported as impossible.
pub fn bodies(function: &Function, target: &Target, inst: Inst) -> Result<Vec<Body>, Error> {
    let operands = function.operands(inst);
    let width = |i: usize| target.width(function.vreg(operands[i].vreg).class) as i32;
    // Each operand's body so far, and its offset from an arbitrary origin of that body.
    let mut place: SmallVec<[(usize, i32); 8]> = (0..operands.len()).map(|i| (i, 0)).collect();
    let mut contradiction = false;
    let mut join = |a: usize, b: usize, distance: i32| {
        let ((body_a, at_a), (body_b, at_b)) = (place[a], place[b]);
        let shift = at_a + distance - at_b;
        contradiction |= body_a == body_b && shift != 0;
        for entry in place.iter_mut().filter(|e| e.0 == body_b) {
            *entry = (body_a, entry.1 + shift);
        }
    };
    for group in function.groups(inst) {
        for i in group.range().skip(1) {
            join(i - 1, i, width(i - 1));
        }
    }
    for (i, operand) in operands.iter().enumerate() {
        if let Constraint::Tied(input) = operand.constraint {
            join(input as usize, i, 0);
        }
    }
    for i in 0..operands.len() {
        if let Some(first) = earlier_read_of_same(function, inst, i) {
            join(first, i, 0);
        }
    }
    if contradiction {
        return Err(Error::Impossible {
            place: Place::Inst(function.block_of(inst), inst),
            value: None,
            message: "its ties and groups ask one operand to be in two places".into(),
            help: "copy the value into a virtual register of its own first".into(),
        });
    }
    Ok(collect(function, target, inst, &place))
}

/// An earlier operand that reads the same value and whose register this free input may share.
fn earlier_read_of_same(function: &Function, inst: Inst, index: usize) -> Option<usize> {
    let operands = function.operands(inst);
    let is_free = |i: usize| {
        let in_group = function.groups(inst).iter().any(|g| g.range().contains(&i));
        let continued = operands
            .iter()
            .any(|o| o.constraint == Constraint::Tied(i as u8));
        let plain = operands[i].role == Role::Use && operands[i].constraint == Constraint::Any;
        plain && !in_group && !continued
    };
    let same = |&i: &usize| {
        i != index && operands[i].vreg == operands[index].vreg && operands[i].role.reads()
    };
    if !(0..operands.len()).any(|i| same(&i)) || !is_free(index) {
        return None;
    }
    // Prefer a constrained reader, else the first free one.
    let constrained = (0..operands.len()).filter(same).find(|&i| !is_free(i));
    constrained.or_else(|| (0..index).find(same))
}

fn collect(function: &Function, target: &Target, inst: Inst, place: &[(usize, i32)]) -> Vec<Body> {
    let operands = function.operands(inst);
    let info = |i: usize| target.class(function.vreg(operands[i].vreg).class);
    let mut bodies: Vec<(usize, Body)> = Vec::new();
    for (i, &(id, offset)) in place.iter().enumerate() {
        if bodies.iter().any(|(seen, _)| *seen == id) {
            continue;
        }
        let of_body = || place.iter().enumerate().filter(|(_, p)| p.0 == id);
        let low = of_body().map(|(_, p)| p.1).min().unwrap_or(offset);
        let members: SmallVec<[Member; 4]> = of_body()
            .map(|(operand, p)| Member {
                operand,
                offset: (p.1 - low) as usize,
            })
            .collect();
        let ends = members.iter().map(|m| m.offset + info(m.operand).width);
        let width = ends.max().unwrap_or(0);
        let at_start = members.iter().filter(|m| m.offset == 0);
        let by_class = at_start.map(|m| info(m.operand).align).max().unwrap_or(1);
        let groups = function.groups(inst).iter();
        let by_group = groups.filter(|g| place[g.first as usize] == (id, low));
        let align = by_group
            .map(|g| g.align as usize)
            .fold(by_class, usize::max);
        let file = info(i).file;
        bodies.push((
            id,
            Body {
                members,
                file,
                width,
                align,
            },
        ));
    }
    bodies.into_iter().map(|(_, body)| body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::Builder;
    use crate::target::Class;

    #[test]
    fn a_tied_lane_drags_its_group_along() {
        let target = Target::hardware(90).unwrap();
        let mut b = Builder::new("f");
        let block = b.block();
        let v: Vec<_> = (0..4).map(|_| b.vreg(Class::R32)).collect();
        b.inst(block, "mma")
            .operand(Operand::writes(v[0]).constrained(Constraint::Tied(3)))
            .def(v[1])
            .use_(v[2])
            .use_(v[3])
            .group(2, 2, 2);
        b.exit(block, "exit");
        let f = b.finish();
        let inst = f.insts().next().unwrap();
        let found = bodies(&f, &target, inst).unwrap();
        assert_eq!(found.len(), 2);
        let offsets: Vec<_> = found[0]
            .members
            .iter()
            .map(|m| (m.operand, m.offset))
            .collect();
        assert_eq!(offsets, [(0, 1), (2, 0), (3, 1)]);
        assert_eq!((found[0].width, found[0].align), (2, 2));
    }

    #[test]
    fn a_lane_tied_into_another_lane_of_its_group_is_impossible() {
        let target = Target::hardware(90).unwrap();
        let mut b = Builder::new("f");
        let block = b.block();
        let v: Vec<_> = (0..4).map(|_| b.vreg(Class::R32)).collect();
        b.inst(block, "odd")
            .operand(Operand::writes(v[0]).constrained(Constraint::Tied(2)))
            .operand(Operand::writes(v[1]).constrained(Constraint::Tied(2)))
            .use_(v[2])
            .group(0, 2, 1);
        b.exit(block, "exit");
        let f = b.finish();
        let inst = f.insts().next().unwrap();
        assert!(matches!(
            bodies(&f, &target, inst),
            Err(Error::Impossible { .. })
        ));
    }

    #[test]
    fn one_value_may_feed_several_tied_results() {
        let target = Target::hardware(90).unwrap();
        let mut b = Builder::new("f");
        let block = b.block();
        let v: Vec<_> = (0..3).map(|_| b.vreg(Class::R32)).collect();
        b.inst(block, "mma")
            .operand(Operand::writes(v[0]).constrained(Constraint::Tied(2)))
            .operand(Operand::writes(v[1]).constrained(Constraint::Tied(3)))
            .use_(v[2])
            .use_(v[2])
            .group(0, 2, 2);
        b.exit(block, "exit");
        let f = b.finish();
        let inst = f.insts().next().unwrap();
        let found = bodies(&f, &target, inst).unwrap();
        let offsets: Vec<_> = found[0].members.iter().map(|m| m.offset).collect();
        assert_eq!(offsets, [0, 1, 0, 1]);
    }

    #[test]
    fn two_reads_of_one_value_share_a_register() {
        let target = Target::hardware(90).unwrap();
        let mut b = Builder::new("f");
        let block = b.block();
        let x = b.vreg(Class::R32);
        let r5 = target.reg_named("R5").unwrap();
        b.inst(block, "f").use_(x).use_fixed(x, r5).use_(x);
        b.exit(block, "exit");
        let f = b.finish();
        let inst = f.insts().next().unwrap();
        let found = bodies(&f, &target, inst).unwrap();
        assert_eq!(found.len(), 1);
        let starts: Vec<_> = found[0].starts(&f, &target, inst).collect();
        assert_eq!(starts, [r5]);
    }
}
