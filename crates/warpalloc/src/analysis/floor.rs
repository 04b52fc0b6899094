//! The fewest registers of the main file that code can do with in the order it stands.
//!
//! Peak pressure is a lower bound that ignores two things an allocator cannot. A value live
//! across a call may not be in a register the call clobbers: where the call preserves R24 to
//! R31 alone and three values are live across it, R26 is in use, though pressure may be four.
//! And values of files that spill through the main one, such as predicates beyond the
//! hardware's, are kept in its registers. The floor counts both. With respect to clobbers it
//! holds for any allocation that spills nothing; with respect to carried values, for any that
//! keeps each in registers of its own, as ours do.

use super::{Liveness, Moment, PressureWalk};
use crate::function::{Clobbers, Function, Inst};
use crate::target::{File, FileInfo, MAX_FILES, PReg, SpillPath, Target};
use smallvec::SmallVec;

/// The least highest register of the main file plus one, for `function` in its order.
pub fn register_floor(function: &Function, target: &Target, liveness: &Liveness) -> usize {
    let files = target.files().len();
    let size = |vreg| {
        let class = target.class(function.vreg(vreg).class);
        (class.file, class.width)
    };
    let main = target.file(File::MAIN);
    let carried: SmallVec<[_; MAX_FILES]> = target
        .files()
        .filter(|(_, info)| info.spill == SpillPath::Via(File::MAIN))
        .collect();
    let beyond = |units: &[usize], (file, info): &(File, &FileInfo)| {
        let units = units[file.index()].saturating_sub(info.capacity);
        units * main.units_per_reg / info.units_per_reg
    };
    let mut floor = 0;
    let mut walk = PressureWalk::new(function, liveness, files, size);
    for block in function.blocks() {
        walk.block(block, |moment, units| {
            let in_main = units[File::MAIN.index()];
            let carried = carried.iter().map(|file| beyond(units, file));
            floor = floor.max(in_main + carried.sum::<usize>());
            if let Moment::After(inst) = moment
                && function.inst(inst).clobbers != Clobbers::None
            {
                let across = in_main - written_units(function, target, inst);
                floor = floor.max(top_outside(function, target, inst, across));
            }
        });
    }
    floor.div_ceil(main.units_per_reg)
}

/// Units of the main file that `inst` writes.
fn written_units(function: &Function, target: &Target, inst: Inst) -> usize {
    let written = function.operands(inst).iter().filter(|o| o.role.writes());
    let classes = written.map(|o| target.class(function.vreg(o.vreg).class));
    let general = classes.filter(|class| class.file == File::MAIN);
    general.map(|class| class.width).sum()
}

/// How far up the file `units` that survive `inst` reach at least.
fn top_outside(function: &Function, target: &Target, inst: Inst, units: usize) -> usize {
    if units == 0 {
        return 0;
    }
    let clobbered = function.clobbers(target, inst);
    let survives = |unit: &usize| !clobbered.contains(target.unit(PReg::new(File::MAIN, *unit)));
    let mut surviving = (0..target.file(File::MAIN).units).filter(survives);
    // Where too few survive there is no allocation without spilling to bound.
    surviving.nth(units - 1).map_or(0, |unit| unit + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Pressure;
    use crate::function::{Builder, Effect, Kind, VReg};
    use crate::target::Class;

    fn bounds(f: &Function) -> (usize, usize) {
        let target = Target::hardware(90).unwrap();
        let liveness = Liveness::compute(f);
        let peak = Pressure::compute(f, &target, &liveness).max(File::R);
        (peak, register_floor(f, &target, &liveness))
    }

    #[test]
    fn values_alive_across_a_call_start_above_what_it_overwrites() {
        let mut b = Builder::new("f");
        let block = b.block();
        let kept: Vec<VReg> = (0..3).map(|_| b.vreg(Class::R32)).collect();
        for &v in &kept {
            b.inst(block, "ld").def(v).effect(Effect::Read);
        }
        let (result, argument) = (b.vreg(Class::R32), b.vreg(Class::R32));
        b.inst(block, "ld").def(argument).effect(Effect::Read);
        b.inst(block, "call")
            .def(result)
            .use_(argument)
            .kind(Kind::Call)
            .clobbers(Clobbers::Abi)
            .effect(Effect::Write);
        for &v in kept.iter().chain([&result]) {
            b.inst(block, "st").use_(v).effect(Effect::Write);
        }
        b.exit(block, "exit");
        assert_eq!(bounds(&b.finish()), (4, 27));
    }

    #[test]
    fn predicates_beyond_the_seventh_count_as_registers() {
        let mut b = Builder::new("f");
        let block = b.block();
        let x = b.vreg(Class::R32);
        let predicates: Vec<VReg> = (0..10).map(|_| b.vreg(Class::PRED)).collect();
        b.inst(block, "ld").def(x).effect(Effect::Read);
        for &p in &predicates {
            b.inst(block, "setp").def(p).use_(x);
        }
        for &p in &predicates {
            b.inst(block, "st").use_(x).use_(p).effect(Effect::Write);
        }
        b.exit(block, "exit");
        assert_eq!(bounds(&b.finish()), (1, 4));
    }
}
