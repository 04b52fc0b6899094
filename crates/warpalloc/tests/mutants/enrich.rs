//! Makes a naive allocation use every kind of edit, without changing what it computes.

use warpalloc::Allocation;
use warpalloc::allocation::{Edit, Edits, Point};
use warpalloc::function::{Effect, Function, Inst, Role, VReg};
use warpalloc::generate::Rng;
use warpalloc::target::{Class, File, PReg, RegSet, Target};

pub fn enrich(
    function: &Function,
    target: &Target,
    naive: &Allocation,
    rng: &mut Rng,
) -> Allocation {
    let constants = constants(function);
    let spares = spares(function, target, naive);
    let mut edits = Vec::new();
    let mut rest = naive.edits.iter().peekable();
    while let Some((point, edit)) = rest.next() {
        // What is on its way to another file only passes through.
        let passes = matches!(rest.peek(), Some((_, Edit::Transfer { .. })));
        match *edit {
            Edit::Reload { to, from, width } if rng.one_in(2) => {
                let again = recomputation(function, &constants, naive, point, to);
                let again = again.filter(|_| !passes);
                let fits = to.file == File::R && width as usize <= target.width(Class::R256);
                let spare = rng.pick(&spares).copied().filter(|_| fits);
                match (again, spare) {
                    (Some(again), _) => edits.push((point, again)),
                    (None, Some(spare)) => {
                        let reload = Edit::Reload {
                            to: spare,
                            from,
                            width,
                        };
                        edits.push((point, reload));
                        edits.push((
                            point,
                            Edit::Move {
                                to,
                                from: spare,
                                width,
                            },
                        ));
                    }
                    (None, None) => edits.push((point, edit.clone())),
                }
            }
            _ => edits.push((point, edit.clone())),
        }
    }
    let mut sound = naive.clone();
    sound.edits = Edits::new(function, edits);
    sound
}

/// The one instruction that defines a virtual register, if it needs no inputs and may be
/// executed again.
fn constants(function: &Function) -> Vec<Option<Inst>> {
    let mut definitions = vec![Vec::new(); function.vreg_count()];
    for block in function.blocks() {
        for param in &function.block(block).params {
            definitions[param.as_u32() as usize].push(None);
        }
    }
    for inst in function.insts() {
        for operand in function.operands(inst).iter().filter(|o| o.role.writes()) {
            definitions[operand.vreg.as_u32() as usize].push(Some(inst));
        }
    }
    let is_constant = |inst: &Inst| {
        let info = function.inst(*inst);
        let alone = function.operands(*inst).len() == 1;
        alone && info.remat.is_some() && info.effect == Effect::Pure
    };
    let only = |all: Vec<Option<Inst>>| match all[..] {
        [Some(inst)] => Some(inst).filter(is_constant),
        _ => None,
    };
    definitions.into_iter().map(only).collect()
}

/// The constant that a reload into `to` brings to the instruction behind `point`, again.
fn recomputation(
    function: &Function,
    constants: &[Option<Inst>],
    naive: &Allocation,
    point: Point,
    to: PReg,
) -> Option<Edit> {
    let Point::Before(inst) = point else {
        return None;
    };
    let operands = function.operands(inst).iter();
    let registers = naive.operands(function, inst);
    let mut here = operands.zip(registers).filter(|(_, reg)| **reg == to);
    let vreg: VReg = here.find(|(o, _)| o.role == Role::Use)?.0.vreg;
    let constant = constants[vreg.as_u32() as usize]?;
    let regs = vec![to];
    Some(Edit::Recompute {
        inst: constant,
        regs: regs.into(),
    })
}

/// Blocks of eight registers that nothing uses and nobody wants back.
fn spares(function: &Function, target: &Target, naive: &Allocation) -> Vec<PReg> {
    let preserved = target.abi().preserved.iter().copied();
    let mut used = RegSet::of_registers(target, preserved);
    let mut mark = |reg: PReg, width: usize| {
        target.units(reg, width).for_each(|unit| used.insert(unit));
    };
    for inst in function.insts() {
        let registers = naive.operands(function, inst);
        for (operand, &reg) in function.operands(inst).iter().zip(registers) {
            mark(reg, target.width(function.vreg(operand.vreg).class));
        }
    }
    for (_, edit) in naive.edits.iter() {
        if let Edit::Reload { to, width, .. } = *edit {
            mark(to, width as usize);
        }
    }
    let width = target.width(Class::R256);
    let all = target.registers(Class::R256);
    all.filter(|&reg| !used.overlaps(target, reg, width))
        .collect()
}
