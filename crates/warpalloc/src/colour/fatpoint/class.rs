//! The seven register classes of ptxas (`docs/sources.md#fatpoint-classes`) and the order in
//! which their files are driven.
//!
//! Class 0 is the unified view of all others; nothing is allocated in it. Classes 1–6 are
//! driven in order. In our targets classes 1, 2 and 6 are rows of one file, and so are 3
//! and 4: a tensor tuple takes the same units as eight scalars. Driving them one after the
//! other over shared units would leave fragments to class 6, so classes that share a file
//! share a *drive*, and within a drive the six lists let the widest choose first.

use crate::target::{Class, File, Target};

/// A register class of ptxas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegClass {
    /// Class 1: 32-bit general registers and their pairs and quads.
    R = 1,
    /// Class 2: general registers in another shape: halves.
    RAlt,
    /// Class 3: uniform registers.
    Ur,
    /// Class 4: uniform registers in another shape: pairs.
    UrExt,
    /// Class 5: predicates, uniform ones included.
    P,
    /// Class 6: tensor operands and accumulators.
    Tensor,
}

impl RegClass {
    /// The number ptxas has for the class.
    pub fn number(self) -> usize {
        self as usize
    }

    /// The class that values of a target's `class` belong to.
    pub fn of(target: &Target, class: Class) -> RegClass {
        let info = target.class(class);
        let per_reg = target.file(info.file).units_per_reg;
        let registers = info.width / per_reg;
        // A file without wider values than one register is one of flags.
        let has_wide = || {
            let mut classes = target.classes();
            classes.any(|(_, other)| other.file == info.file && other.width > per_reg)
        };
        match info.file {
            File::MAIN if registers > 4 => RegClass::Tensor,
            File::MAIN if info.width < per_reg => RegClass::RAlt,
            File::MAIN => RegClass::R,
            _ if registers > 1 => RegClass::UrExt,
            _ if has_wide() => RegClass::Ur,
            _ => RegClass::P,
        }
    }

    /// The files of `target` in the order their classes are driven: general, uniform,
    /// predicates, uniform predicates.
    pub fn drives(target: &Target) -> Vec<File> {
        let mut files: Vec<(RegClass, File)> = Vec::new();
        for (class, info) in target.classes() {
            let class = RegClass::of(target, class);
            match files.iter_mut().find(|(_, file)| *file == info.file) {
                Some((first, _)) => *first = class.min(*first),
                None => files.push((class, info.file)),
            }
        }
        files.sort();
        files.into_iter().map(|(_, file)| file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_driven_in_class_order() {
        for target in [Target::cicc(), Target::hardware(90).unwrap()] {
            assert_eq!(
                RegClass::drives(&target),
                [File::R, File::UR, File::P, File::UP]
            );
        }
    }

    /// The classes of `docs/sources.md#fatpoint-classes`.
    #[test]
    fn each_class_of_a_target_is_one_of_the_seven() {
        let target = Target::hardware(90).unwrap();
        let found: Vec<(&str, usize)> = target
            .classes()
            .map(|(class, info)| {
                let number = RegClass::of(&target, class).number();
                (info.name.as_str(), number)
            })
            .collect();
        let expected = [
            ("r16", 1),
            ("r32", 1),
            ("r64", 1),
            ("r96", 1),
            ("r128", 1),
            ("r256", 6),
            ("tensor", 6),
            ("pred", 5),
            ("ur32", 3),
            ("ur64", 4),
            ("upred", 5),
        ];
        assert_eq!(found, expected);
        let packed = Target::cicc();
        assert_eq!(RegClass::of(&packed, Class::R16), RegClass::RAlt);
    }
}
