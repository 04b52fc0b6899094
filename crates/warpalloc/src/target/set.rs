//! Sets of register units.

use super::{File, PReg, Target, Unit};
use fixedbitset::FixedBitSet;

/// A set of units of one target, over all files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegSet {
    units: FixedBitSet,
}

impl RegSet {
    /// The empty set for `target`.
    pub fn new(target: &Target) -> RegSet {
        RegSet {
            units: FixedBitSet::with_capacity(target.unit_count()),
        }
    }

    /// The whole registers in `regs`, each `units_per_reg` units wide; registers beyond
    /// the target's budget are left out.
    pub fn of_registers(target: &Target, regs: impl IntoIterator<Item = PReg>) -> RegSet {
        let mut set = RegSet::new(target);
        for reg in regs {
            let info = target.file(reg.file);
            let end = (reg.unit as usize + info.units_per_reg).min(info.units);
            for unit in reg.unit as usize..end {
                set.insert(target.unit(PReg::new(reg.file, unit)));
            }
        }
        set
    }

    /// Every unit of every file of `target`.
    pub fn all(target: &Target) -> RegSet {
        let mut set = RegSet::new(target);
        set.units.insert_range(..target.unit_count());
        set
    }

    /// Adds `unit`.
    pub fn insert(&mut self, unit: Unit) {
        self.units.grow_and_insert(unit.index());
    }

    /// Removes `unit`.
    pub fn remove(&mut self, unit: Unit) {
        if self.contains(unit) {
            self.units.remove(unit.index());
        }
    }

    /// Whether `unit` is in the set.
    pub fn contains(&self, unit: Unit) -> bool {
        self.units.contains(unit.index())
    }

    /// Whether any of the `width` units from `reg` on is in the set.
    pub fn overlaps(&self, target: &Target, reg: PReg, width: usize) -> bool {
        target.units(reg, width).any(|u| self.contains(u))
    }

    /// Removes every unit of `other`.
    pub fn subtract(&mut self, other: &RegSet) {
        self.units.difference_with(&other.units);
    }

    /// Adds every unit of `other`.
    pub fn union_with(&mut self, other: &RegSet) {
        self.units.union_with(&other.units);
    }

    /// The units in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Unit> + '_ {
        self.units.ones().map(|u| Unit(u as u16))
    }

    /// The registers of `file` that have a unit in the set, in ascending order.
    pub fn registers<'a>(
        &'a self,
        target: &'a Target,
        file: File,
    ) -> impl Iterator<Item = usize> + 'a {
        let info = target.file(file);
        let registers = 0..info.units.div_ceil(info.units_per_reg);
        registers.filter(move |register| {
            let first = register * info.units_per_reg;
            let width = info.units_per_reg.min(info.units - first);
            self.overlaps(target, PReg::new(file, first), width)
        })
    }

    /// Whether the set holds no unit.
    pub fn is_empty(&self) -> bool {
        self.units.is_clear()
    }

    /// Empties the set, keeping its memory.
    pub fn clear(&mut self) {
        self.units.clear();
    }
}
