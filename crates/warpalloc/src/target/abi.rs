//! The calling convention: registers of arguments and results, and callee-saved registers.

use super::{Class, File, PReg, RegSet, Target};
use thiserror::Error;

/// Registers of the calling convention, as whole registers.
///
/// What a call clobbers is stated nowhere: it is every register of the target, of every
/// file, that is not preserved. A caller therefore keeps a value across a call in a preserved
/// register or in memory, and a device function may write everything else without saving it.
///
/// The lists name registers of the architecture; some may lie beyond the budget of a
/// particular target, where they simply cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abi {
    /// Argument registers, in order.
    pub arguments: Vec<PReg>,
    /// Result registers, in order; a 64-bit result takes the first two.
    pub results: Vec<PReg>,
    /// Registers a function gives back to its caller as it found them.
    pub preserved: Vec<PReg>,
}

/// A list of arguments or results that the convention has no registers for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} {number} of class {class} finds no register among {registers}")]
pub struct ConventionError {
    what: &'static str,
    number: usize,
    class: String,
    registers: String,
}

impl Target {
    /// The units that a called function gives back as it found them.
    pub fn preserved(&self) -> RegSet {
        RegSet::of_registers(self, self.abi().preserved.iter().copied())
    }

    /// The units that a call clobbers: all that are not preserved.
    pub fn clobbered(&self) -> RegSet {
        let mut set = RegSet::all(self);
        set.subtract(&self.preserved());
        set
    }

    /// The registers of arguments of these classes, in order. A value that needs several
    /// registers takes the next ones that are aligned for it, so that it may skip some.
    pub fn argument_registers(&self, classes: &[Class]) -> Result<Vec<PReg>, ConventionError> {
        self.in_order("argument", &self.abi().arguments, classes)
    }

    /// The registers of results of these classes, in order.
    pub fn result_registers(&self, classes: &[Class]) -> Result<Vec<PReg>, ConventionError> {
        self.in_order("result", &self.abi().results, classes)
    }

    fn in_order(
        &self,
        what: &'static str,
        list: &[PReg],
        classes: &[Class],
    ) -> Result<Vec<PReg>, ConventionError> {
        let of_file = |file: File| list.iter().copied().filter(move |reg| reg.file == file);
        let mut rests: Vec<Vec<PReg>> = self.files().map(|(f, _)| of_file(f).collect()).collect();
        let mut taken = Vec::with_capacity(classes.len());
        for (number, &class) in classes.iter().enumerate() {
            let info = self.class(class);
            let per_reg = self.file(info.file).units_per_reg;
            let count = info.width.div_ceil(per_reg);
            let follows = |run: &[PReg]| {
                let mut pairs = run.windows(2);
                pairs.all(|pair| pair[0].offset(per_reg) == pair[1])
            };
            let fits = |run: &[PReg]| self.fits(class, run[0]) && follows(run);
            let rest = rests.get_mut(info.file.index());
            let start = |rest: &Vec<PReg>| rest.windows(count.max(1)).position(fits);
            let start = rest.as_deref().and_then(start);
            let (Some(rest), Some(start)) = (rest, start) else {
                let names = list.iter().map(|&reg| self.reg_name(reg).to_string());
                return Err(ConventionError {
                    what,
                    number,
                    class: info.name.clone(),
                    registers: names.collect::<Vec<_>>().join(", "),
                });
            };
            taken.push(rest[start]);
            rest.drain(..start + count);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_preserved_is_clobbered_in_every_file() {
        for target in [Target::cicc(), Target::hardware(90).unwrap()] {
            let (preserved, clobbered) = (target.preserved(), target.clobbered());
            for (_, class) in target.classes().filter(|(_, c)| c.width == 1) {
                for unit in 0..target.file(class.file).units {
                    let reg = PReg::new(class.file, unit);
                    let kept = class.file == File::R
                        && (24..32).contains(&(unit / target.file(File::R).units_per_reg));
                    let name = target.reg_name(reg);
                    assert_eq!(preserved.contains(target.unit(reg)), kept, "{name}");
                    assert_eq!(clobbered.contains(target.unit(reg)), !kept, "{name}");
                }
            }
        }
    }

    fn names(target: &Target, classes: &[Class]) -> Result<String, String> {
        let regs = target.argument_registers(classes);
        let regs = regs.map_err(|error| error.to_string())?;
        let names = regs.iter().map(|&reg| target.reg_name(reg).to_string());
        Ok(names.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn arguments_take_the_next_registers_aligned_for_them() {
        let target = Target::hardware(90).unwrap();
        let packed = Target::hardware_packed(90).unwrap();
        let mixed = [Class::R32, Class::R64, Class::R16, Class::R32, Class::R64];
        assert_eq!(names(&target, &mixed), Ok("R0 R2 R4 R5 R6".to_owned()));
        assert_eq!(names(&packed, &mixed), Ok("R0 R2 R4 R5 R6".to_owned()));
        let error =
            "argument 2 of class r64 finds no register among R0, R1, R2, R3, R4, R5, R6, R7";
        let wide = [Class::R128, Class::R96, Class::R64];
        assert_eq!(names(&target, &wide), Err(error.to_owned()));
        assert!(names(&target, &[Class::PRED]).unwrap_err().contains("pred"));
        let results = target.result_registers(&[Class::R64]).unwrap();
        assert_eq!(results, [target.reg_named("R0").unwrap()]);
    }
}
