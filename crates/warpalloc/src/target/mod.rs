//! Where a function is allocated: register files, classes, the calling convention.
//!
//! A register **file** is a row of *units*, the smallest pieces that can be allocated on
//! their own. A **class** is a file, a width in units and an alignment in units. Pairs,
//! quads, packed halves, predicates and tensor tuples are all just classes, and two
//! registers alias exactly when their units overlap: no class needs a special case.
//!
//! Invariants of a [`Target`] made by its constructors:
//! - every class fits its file: `width <= units`, `align` is a power of two;
//! - the units of all files are numbered in one row ([`Target::unit`]), file after file;
//! - a file that cannot reach memory itself names the file it spills through.
//!
//! Nothing here panics on what a client passes: a file, class or register that a target does
//! not have is described as an empty one, without units and without a name.

mod abi;
mod builder;
mod describe;
pub mod occupancy;
mod preset;
mod set;
pub mod sm;
mod unit_set;

pub use abi::{Abi, ConventionError};
pub use builder::{MAX_CLASSES, MAX_FILES, MAX_UNITS, MAX_WIDTH, TargetBuilder, TargetError};
pub use describe::{ClassInfo, FileInfo, MemoryInfo, MovePath, Space, SpillPath};
pub use preset::{PRESETS, PresetError, REGISTER_GRANULE};
pub use set::RegSet;
pub use unit_set::UnitSet;

use std::fmt;

/// A register file of a target: `R`, `UR`, `P`, `UP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct File(u8);

impl File {
    /// The main file of every target: the first one. Code is split, shrunk and priced by its
    /// registers, and it holds the address of the spill frame.
    pub const MAIN: File = File(0);
    /// The general-purpose file of NVIDIA's machines.
    pub const R: File = File(0);
    /// Their predicate file.
    pub const P: File = File(1);
    /// Their uniform general-purpose file.
    pub const UR: File = File(2);
    /// Their uniform predicate file.
    pub const UP: File = File(3);

    /// The file with this index.
    pub const fn new(index: usize) -> File {
        File(if index < 255 { index as u8 } else { 255 })
    }

    /// Position of the file in its target.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A register class of a target: a file, a width and an alignment.
///
/// A class is a position in the table of its target. The constants are those of NVIDIA's
/// machines; [`TargetBuilder::class`] hands out those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(u8);

impl Class {
    /// One 16-bit value: half a register where halves pack, a whole one elsewhere.
    pub const R16: Class = Class(0);
    /// One 32-bit register.
    pub const R32: Class = Class(1);
    /// An even-aligned pair of registers.
    pub const R64: Class = Class(2);
    /// Three registers, aligned like a quad.
    pub const R96: Class = Class(3);
    /// A quad-aligned group of four registers.
    pub const R128: Class = Class(4);
    /// Eight consecutive registers, aligned to eight.
    pub const R256: Class = Class(5);
    /// The tensor-core tuple of the target's generation.
    pub const TENSOR: Class = Class(6);
    /// A predicate.
    pub const PRED: Class = Class(7);
    /// A uniform 32-bit register.
    pub const UR32: Class = Class(8);
    /// An even-aligned pair of uniform registers.
    pub const UR64: Class = Class(9);
    /// A uniform predicate.
    pub const UPRED: Class = Class(10);

    /// The class with this index.
    pub const fn new(index: usize) -> Class {
        Class(if index < 255 { index as u8 } else { 255 })
    }

    /// Position of the class in its target.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A physical register named by the first unit it occupies; its width comes from the
/// operand or value that lives there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PReg {
    /// The file it belongs to.
    pub file: File,
    /// Its first unit within the file.
    pub unit: u16,
}

impl PReg {
    /// The register that starts at `unit` of `file`.
    #[inline]
    pub fn new(file: File, unit: usize) -> PReg {
        // No file has as many units, so that what is cut off exists neither way.
        let unit = unit.min(u16::MAX.into()) as u16;
        PReg { file, unit }
    }

    /// The register that starts `units` further along the same file.
    pub fn offset(self, units: usize) -> PReg {
        PReg::new(self.file, usize::from(self.unit).saturating_add(units))
    }
}

/// One allocatable unit of any file, numbered across the whole target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit(pub u16);

impl Unit {
    /// The unit's position in tables that hold one entry per unit of the target.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A machine to allocate for.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    name: String,
    sm: u32,
    files: Vec<FileInfo>,
    classes: Vec<ClassInfo>,
    unit_base: Vec<usize>,
    /// Units that are never allocated.
    reserved: RegSet,
    abi: Abi,
    frame_limit: u32,
    slot_align: u32,
    memories: [Option<MemoryInfo>; 2],
}

impl Target {
    /// Its name: that of the preset it was made from, or the one its builder was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compute capability as `10 * major + minor`; zero on machines that are not NVIDIA's.
    pub fn sm(&self) -> u32 {
        self.sm
    }

    /// All register files.
    pub fn files(&self) -> impl ExactSizeIterator<Item = (File, &FileInfo)> {
        self.files
            .iter()
            .enumerate()
            .map(|(i, f)| (File::new(i), f))
    }

    /// All register classes.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = (Class, &ClassInfo)> {
        let number = |(i, c)| (Class::new(i), c);
        self.classes.iter().enumerate().map(number)
    }

    /// The description of `file`.
    pub fn file(&self, file: File) -> &FileInfo {
        const NONE: &FileInfo = &FileInfo::NONE;
        self.files.get(file.index()).unwrap_or(NONE)
    }

    /// The description of `class`.
    pub fn class(&self, class: Class) -> &ClassInfo {
        const NONE: &ClassInfo = &ClassInfo::NONE;
        self.classes.get(class.index()).unwrap_or(NONE)
    }

    /// Width in units of a value of `class`.
    pub fn width(&self, class: Class) -> usize {
        self.class(class).width
    }

    /// The class called `name`.
    pub fn class_named(&self, name: &str) -> Option<Class> {
        let position = self.classes.iter().position(|c| c.name == name)?;
        Some(Class::new(position))
    }

    /// The calling convention.
    pub fn abi(&self) -> &Abi {
        &self.abi
    }

    /// Largest spill frame of one thread, in bytes.
    pub fn frame_limit(&self) -> u32 {
        self.frame_limit
    }

    /// How strictly the lowest byte of the frame is aligned, in bytes; no slot is aligned more
    /// strictly.
    pub fn slot_align(&self) -> u32 {
        self.slot_align
    }

    /// The widest access to memory that is made of several, in bytes: what the widest class
    /// takes, and a slot is aligned to.
    pub(crate) fn widest_access(&self) -> usize {
        let direct = |c: &&ClassInfo| self.file(c.file).spill == SpillPath::Memory;
        let classes = self.classes.iter().filter(direct);
        let bytes = classes.map(|c| c.width * self.file(c.file).unit_bytes);
        bytes.max().unwrap_or(0).min(self.slot_align as usize)
    }

    /// Whether some file lacks exchanges or copies.
    pub(crate) fn limits_moves(&self) -> bool {
        self.files.iter().any(|info| info.moves != MovePath::Swap)
    }

    /// What accesses to `space` cost, if the machine has it.
    pub fn memory(&self, space: Space) -> Option<&MemoryInfo> {
        match space {
            Space::Local | Space::Argument => self.memories[0].as_ref(),
            Space::Shared => self.memories[1].as_ref(),
        }
    }

    /// The units that are never allocated, of all files.
    pub fn reserved(&self) -> &RegSet {
        &self.reserved
    }

    /// Number of units over all files.
    pub fn unit_count(&self) -> usize {
        match (self.unit_base.last(), self.files.last()) {
            (Some(base), Some(file)) => base + file.units,
            _ => 0,
        }
    }

    /// The target-wide number of the first unit of `reg`.
    pub fn unit(&self, reg: PReg) -> Unit {
        let base = self.unit_base.get(reg.file.index());
        let base = base.copied().unwrap_or_else(|| self.unit_count());
        Unit((base + reg.unit as usize) as u16)
    }

    /// The target-wide numbers of the `width` units from `reg` on.
    pub fn units(&self, reg: PReg, width: usize) -> impl ExactSizeIterator<Item = Unit> + use<> {
        let first = self.unit(reg).0;
        (first..first.saturating_add(width as u16)).map(Unit)
    }

    /// The register that starts at a target-wide unit.
    pub fn reg_at(&self, unit: Unit) -> PReg {
        let file = self.unit_base.iter().rposition(|&b| b <= unit.index());
        let file = File::new(file.unwrap_or(0));
        PReg::new(file, unit.index() - self.unit_base[file.index()])
    }

    /// Whether a value of `class` may start at `reg`: right file, aligned, within the file,
    /// and beside reserved registers.
    pub fn fits(&self, class: Class, reg: PReg) -> bool {
        let c = self.class(class);
        let unit = reg.unit as usize;
        reg.file == c.file
            && unit.is_multiple_of(c.align)
            && unit + c.width <= self.file(c.file).units
            && !self.is_reserved(reg, c.width)
    }

    /// Whether any of the `width` units from `reg` on is reserved.
    #[inline]
    pub(crate) fn is_reserved(&self, reg: PReg, width: usize) -> bool {
        let info = self.file(reg.file);
        let unit = reg.unit as usize;
        info.capacity != info.units && (unit..unit + width).any(|u| info.reserved.contains(u))
    }

    /// Every register where a value of `class` may start, in ascending order.
    pub fn registers(&self, class: Class) -> impl Iterator<Item = PReg> + use<> {
        let c = self.class(class);
        let (file, width, units) = (c.file, c.width, self.file(c.file).units);
        let closed = self.file(c.file).reserved.blocked_starts(width);
        (0..units)
            .step_by(c.align)
            .take_while(move |u| u + width <= units)
            .filter(move |&u| !closed.contains(u))
            .map(move |u| PReg::new(file, u))
    }

    /// Bytes a value of `class` takes in memory.
    pub fn spill_bytes(&self, class: Class) -> u32 {
        let c = self.class(class);
        let file = match self.file(c.file).spill {
            SpillPath::Memory => c.file,
            SpillPath::Via(file) => file,
        };
        (c.width * self.file(file).units_per_reg.max(1) * self.file(file).unit_bytes
            / self.file(c.file).units_per_reg) as u32
    }

    /// The same target with only the first `registers` registers of `file`.
    ///
    /// Asking for more than the file has leaves it as it is, and so does a file that the target
    /// does not have.
    pub fn with_budget(mut self, file: File, registers: usize) -> Target {
        if let Some(info) = self.files.get_mut(file.index()) {
            let wanted = registers.saturating_mul(info.units_per_reg);
            info.units = info.units.min(wanted);
            self.renumber();
        }
        self
    }

    /// How many whole registers `file` offers.
    pub fn budget(&self, file: File) -> usize {
        let info = self.file(file);
        info.units / info.units_per_reg
    }

    /// The name of `reg`, such as `R5`, `P0` or `R3.h` for an upper half.
    pub fn reg_name(&self, reg: PReg) -> RegName<'_> {
        RegName { target: self, reg }
    }

    /// The register called `name`, whether or not it lies within the budget.
    pub fn reg_named(&self, name: &str) -> Option<PReg> {
        let (whole, half) = match name.strip_suffix(".h") {
            Some(whole) => (whole, 1),
            None => (name, 0),
        };
        let digits = whole.find(|c: char| c.is_ascii_digit())?;
        let (prefix, number) = whole.split_at(digits);
        let file = self.files.iter().position(|f| f.name == prefix)?;
        let per_reg = self.files[file].units_per_reg;
        let unit = number.parse::<u16>().ok()? as usize * per_reg + half;
        (half < per_reg && unit <= u16::MAX as usize).then(|| PReg::new(File::new(file), unit))
    }

    fn renumber(&mut self) {
        let mut next = 0;
        self.unit_base.clear();
        for file in &mut self.files {
            self.unit_base.push(next);
            next += file.units;
            file.recount();
        }
        let mut reserved = RegSet::new(self);
        for (file, info) in self.files() {
            let within = info.reserved.and(&UnitSet::first(info.units));
            let units = within.iter().map(|unit| PReg::new(file, unit));
            units.for_each(|reg| reserved.insert(self.unit(reg)));
        }
        self.reserved = reserved;
    }
}

/// Displays a register by its name on a target.
pub struct RegName<'a> {
    target: &'a Target,
    reg: PReg,
}

impl fmt::Display for RegName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.target.file(self.reg.file);
        let unit = self.reg.unit as usize;
        write!(f, "{}{}", info.name, unit / info.units_per_reg)?;
        if !unit.is_multiple_of(info.units_per_reg) {
            f.write_str(".h")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_in_both_presets() {
        for target in [Target::cicc(), Target::hardware(90).unwrap()] {
            for (class, _) in target.classes() {
                for reg in target.registers(class) {
                    let name = target.reg_name(reg).to_string();
                    assert_eq!(target.reg_named(&name), Some(reg), "{name}");
                    assert_eq!(target.reg_at(target.unit(reg)), reg);
                }
            }
        }
    }

    #[test]
    fn seven_pairs_and_three_quads_at_fifteen_registers() {
        let target = Target::cicc();
        assert_eq!(target.registers(Class::R32).count(), 15);
        assert_eq!(target.registers(Class::R64).count(), 7);
        assert_eq!(target.registers(Class::R128).count(), 3);
        assert_eq!(target.registers(Class::R16).count(), 30);
        assert_eq!(target.registers(Class::PRED).count(), 7);
    }

    #[test]
    fn a_half_aliases_its_register_only() {
        let target = Target::cicc();
        let half = target.reg_named("R3.h").unwrap();
        let whole = target.reg_named("R3").unwrap();
        let half_unit = target.unit(half);
        assert!(
            target
                .units(whole, target.width(Class::R32))
                .any(|u| u == half_unit)
        );
        let next = target.reg_named("R4").unwrap();
        assert!(target.units(next, 2).all(|u| u != half_unit));
    }

    #[test]
    fn a_predicate_takes_a_whole_word_in_memory() {
        assert_eq!(Target::cicc().spill_bytes(Class::PRED), 4);
        assert_eq!(Target::cicc().spill_bytes(Class::R16), 2);
        assert_eq!(Target::hardware(90).unwrap().spill_bytes(Class::PRED), 4);
        assert_eq!(Target::hardware(90).unwrap().spill_bytes(Class::R128), 16);
    }

    #[test]
    fn a_budget_shrinks_one_file_only() {
        let target = Target::hardware(90).unwrap().with_budget(File::R, 32);
        assert_eq!(target.budget(File::R), 32);
        assert_eq!(target.budget(File::P), 7);
        assert_eq!(target.registers(Class::R128).count(), 8);
    }
}
