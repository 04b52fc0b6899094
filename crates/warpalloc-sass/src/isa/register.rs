//! Register files, registers and sets of registers.

use std::fmt;

/// A register file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum File {
    /// General registers, 32 bits per thread. R255 is RZ.
    R,
    /// Uniform registers, 32 bits per warp. UR63 is URZ.
    UR,
    /// Predicates, one bit per thread. P7 is PT.
    P,
    /// Uniform predicates, one bit per warp. UP7 is UPT.
    UP,
    /// Convergence barriers.
    B,
}

impl File {
    /// The files, in the order of a [`RegSet`].
    pub const ALL: [Self; 5] = [Self::R, Self::UR, Self::P, Self::UP, Self::B];

    /// How many registers can be named, without the constant one (RZ, URZ, PT, UPT).
    pub const fn registers(self) -> u8 {
        match self {
            Self::R => 255,
            Self::UR => 63,
            Self::P | Self::UP => 7,
            Self::B => 16,
        }
    }

    /// Where the file begins in a [`RegSet`].
    const fn base(self) -> usize {
        match self {
            Self::R => 0,
            Self::UR => 256,
            Self::P => 320,
            Self::UP => 328,
            Self::B => 336,
        }
    }

    /// The prefix of its registers' names.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::R => "R",
            Self::UR => "UR",
            Self::P => "P",
            Self::UP => "UP",
            Self::B => "B",
        }
    }
}

/// One register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reg {
    /// Its file.
    pub file: File,
    /// Its number.
    pub index: u8,
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.file.prefix(), self.index)
    }
}

const WORDS: usize = 6;

/// A set of registers of all files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RegSet([u64; WORDS]);

impl RegSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; WORDS]);

    fn place(reg: Reg) -> (usize, u64) {
        let bit = reg.file.base() + usize::from(reg.index);
        (bit / 64, 1 << (bit % 64))
    }

    /// Whether the register is in the set.
    pub fn contains(&self, reg: Reg) -> bool {
        let (word, mask) = Self::place(reg);
        self.0[word] & mask != 0
    }

    /// Adds a register; says whether it was absent.
    pub fn insert(&mut self, reg: Reg) -> bool {
        let (word, mask) = Self::place(reg);
        let absent = self.0[word] & mask == 0;
        self.0[word] |= mask;
        absent
    }

    /// Takes a register out.
    pub fn remove(&mut self, reg: Reg) {
        let (word, mask) = Self::place(reg);
        self.0[word] &= !mask;
    }

    /// Adds all registers of another set.
    pub fn union_with(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    /// Takes all registers of another set out.
    pub fn subtract(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= !other;
        }
    }

    /// Keeps the registers that are in both sets.
    pub fn intersect_with(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= other;
        }
    }

    /// Whether no register is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The registers, by file and number.
    pub fn iter(&self) -> impl Iterator<Item = Reg> + '_ {
        File::ALL.into_iter().flat_map(|file| self.of(file))
    }

    /// The registers of one file, by number.
    pub fn of(&self, file: File) -> impl Iterator<Item = Reg> + '_ {
        (0..file.registers())
            .map(move |index| Reg { file, index })
            .filter(|&reg| self.contains(reg))
    }

    /// How many registers of one file are in the set.
    pub fn count(&self, file: File) -> u32 {
        let base = file.base();
        match file {
            File::R => self.0[..4].iter().map(|word| word.count_ones()).sum(),
            File::UR => self.0[4].count_ones(),
            File::P | File::UP | File::B => {
                let mask = (1u64 << file.registers()) - 1;
                ((self.0[base / 64] >> (base % 64)) & mask).count_ones()
            }
        }
    }

    /// The highest register of one file.
    pub fn highest(&self, file: File) -> Option<u8> {
        self.of(file).last().map(|reg| reg.index)
    }
}

impl FromIterator<Reg> for RegSet {
    fn from_iter<I: IntoIterator<Item = Reg>>(registers: I) -> Self {
        let mut set = Self::EMPTY;
        for reg in registers {
            set.insert(reg);
        }
        set
    }
}

impl fmt::Debug for RegSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(|reg| reg.to_string()))
            .finish()
    }
}
