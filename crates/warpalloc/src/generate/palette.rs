//! Which classes a random function computes in.

use crate::target::{Class, ClassInfo, File, Target};

/// The classes of a target by what they are used for. A use that the target has no class for
/// goes to the nearest that it has.
#[derive(Clone, Debug)]
pub(super) struct Palette {
    /// One register of the main file.
    pub word: Class,
    /// Two of them.
    pub pair: Class,
    /// Part of one.
    pub half: Class,
    /// What values wider than a word are made in.
    pub wide: Vec<Class>,
    /// What is packed and unpacked, and what of.
    pub wholes: Vec<Class>,
    pub parts: Vec<Class>,
    /// What compares produce.
    pub flag: Class,
    /// Values of a second file, pairs of it, and values of a third.
    pub scalar: Class,
    pub scalar_pair: Class,
    pub scalar_flag: Class,
    /// What is computed in other files besides, where these have tuples.
    pub tuples: Vec<Class>,
}

impl Palette {
    pub fn of(target: &Target) -> Palette {
        match target.sm() {
            0 => Palette::of_any(target),
            _ => Palette::of_nvidia(),
        }
    }

    fn of_nvidia() -> Palette {
        Palette {
            word: Class::R32,
            pair: Class::R64,
            half: Class::R16,
            wide: vec![
                Class::R64,
                Class::R64,
                Class::R64,
                Class::R64,
                Class::R16,
                Class::R16,
                Class::R96,
                Class::R128,
                Class::R256,
                Class::TENSOR,
            ],
            wholes: vec![Class::R32, Class::R64, Class::R64, Class::R96, Class::R128],
            parts: vec![Class::R16, Class::R32, Class::R32, Class::R64],
            flag: Class::PRED,
            scalar: Class::UR32,
            scalar_pair: Class::UR64,
            scalar_flag: Class::UPRED,
            tuples: Vec::new(),
        }
    }

    fn of_any(target: &Target) -> Palette {
        let registers =
            |info: &ClassInfo| info.width.div_ceil(target.file(info.file).units_per_reg);
        let of = |file: usize, count: usize| {
            let mut classes = target.classes();
            let found = classes.find(|(_, info)| {
                let whole = info
                    .width
                    .is_multiple_of(target.file(info.file).units_per_reg);
                info.file == File::new(file) && registers(info) == count && whole
            });
            found.map(|(class, _)| class)
        };
        let all = |is_wanted: &dyn Fn(&ClassInfo) -> bool| -> Vec<Class> {
            let classes = target.classes().filter(|(_, info)| is_wanted(info));
            classes.map(|(class, _)| class).collect()
        };
        let word = of(0, 1).unwrap_or(Class::new(0));
        let pair = of(0, 2).unwrap_or(word);
        let is_main = |info: &ClassInfo| info.file == File::MAIN;
        let or_word = |classes: Vec<Class>| match classes.is_empty() {
            true => vec![word],
            false => classes,
        };
        let scalar = of(1, 1).unwrap_or(word);
        Palette {
            word,
            pair,
            half: word,
            wide: or_word(all(&|info| is_main(info) && registers(info) > 1)),
            wholes: or_word(all(&|info| is_main(info) && registers(info) > 1)),
            parts: or_word(all(&|info| is_main(info) && registers(info) <= 4)),
            flag: scalar,
            scalar,
            scalar_pair: of(1, 2).unwrap_or(scalar),
            scalar_flag: of(2, 1).unwrap_or(scalar),
            tuples: all(&|info| !is_main(info)),
        }
    }
}
