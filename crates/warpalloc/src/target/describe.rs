//! What a target says of its register files, classes and memories.

use super::{File, PReg, UnitSet};

/// How the values of a file reach memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillPath {
    /// Loads and stores address the file directly.
    Memory,
    /// Values are first moved into another file (a predicate becomes 0 or 1 in `R`).
    Via(File),
}

/// How a value gets from one register of a file to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovePath {
    /// Registers are copied and exchanged.
    Swap,
    /// Registers are copied. To exchange them takes a scratch register, or memory where none
    /// is free.
    Move,
    /// No instruction copies within the file: a value passes through another file, which has
    /// to be the one that it spills through.
    Via(File),
}

/// Description of one register file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileInfo {
    /// Prefix of its registers' names.
    pub name: String,
    /// How many registers the machine has, whatever the budget.
    pub registers: usize,
    /// How many units the budget has, reserved ones included.
    pub units: usize,
    /// How many units may be allocated: the budget's, less the reserved ones.
    pub capacity: usize,
    /// Units that make up one named register: 2 where halves pack into 32 bits, else 1.
    pub units_per_reg: usize,
    /// Size of one unit in memory, in bytes.
    pub unit_bytes: usize,
    /// How its values reach memory.
    pub spill: SpillPath,
    /// How its values move within it.
    pub moves: MovePath,
    /// Banks that its registers alternate between: an instruction that reads several
    /// registers of one bank stalls. One where that is of no concern.
    pub banks: usize,
    /// Registers are given to threads in multiples of this, and the fewer each takes the more
    /// are resident. Zero where the number in use is of no concern.
    pub granule: usize,
    /// Units that are never allocated.
    pub(super) reserved: UnitSet<8>,
    /// The first units of registers in the order they are preferred; ascending where empty.
    pub(super) order: Vec<u16>,
}

impl FileInfo {
    /// Of a file that a target does not have.
    pub(super) const NONE: FileInfo = FileInfo {
        name: String::new(),
        registers: 0,
        units: 0,
        capacity: 0,
        units_per_reg: 1,
        unit_bytes: 1,
        spill: SpillPath::Memory,
        moves: MovePath::Swap,
        banks: 1,
        granule: 0,
        reserved: UnitSet::EMPTY,
        order: Vec::new(),
    };

    /// A file of registers of four bytes called `name0`, `name1` and so on, which are loaded,
    /// stored, copied and exchanged, all alike.
    pub fn new(name: impl Into<String>, registers: usize) -> FileInfo {
        FileInfo {
            name: name.into(),
            registers,
            units: registers,
            capacity: registers,
            unit_bytes: 4,
            ..FileInfo::NONE
        }
    }

    /// Sets the size of a register in memory.
    pub fn register_bytes(mut self, bytes: usize) -> FileInfo {
        self.unit_bytes = bytes / self.units_per_reg.max(1);
        self
    }

    /// Splits each register into `parts` that are allocated on their own.
    pub fn packed(mut self, parts: usize) -> FileInfo {
        let bytes = self.unit_bytes.saturating_mul(self.units_per_reg);
        self.unit_bytes = bytes / parts.max(1);
        self.units_per_reg = parts;
        self.units = self.registers.saturating_mul(parts);
        self
    }

    /// Says that values reach memory by way of `file`, whose registers they fit.
    pub fn spills_via(mut self, file: File) -> FileInfo {
        self.spill = SpillPath::Via(file);
        self
    }

    /// Sets how values move within the file.
    pub fn moves(mut self, moves: MovePath) -> FileInfo {
        self.moves = moves;
        self
    }

    /// Sets how many banks registers alternate between.
    pub fn banks(mut self, banks: usize) -> FileInfo {
        self.banks = banks;
        self
    }

    /// Says that threads are given registers in multiples of `granule`.
    pub fn granule(mut self, granule: usize) -> FileInfo {
        self.granule = granule;
        self
    }

    /// Keeps registers from being allocated: a stack pointer, a frame base, a zero register.
    /// No operand and no inserted code names them. Say it after [`FileInfo::packed`].
    pub fn reserved(mut self, registers: impl IntoIterator<Item = usize>) -> FileInfo {
        for register in registers {
            let first = register.saturating_mul(self.units_per_reg);
            match register < self.registers {
                true => self.reserved.insert_range(first, self.units_per_reg),
                // The builder refuses it.
                false => self.order.push(u16::MAX),
            }
        }
        self
    }

    /// Prefers registers in this order, and those not named after them in ascending order.
    /// Say it after [`FileInfo::packed`].
    pub fn preferred(mut self, registers: impl IntoIterator<Item = usize>) -> FileInfo {
        let first = |register: usize| u16::try_from(register.saturating_mul(self.units_per_reg));
        let named: Vec<u16> = registers
            .into_iter()
            .map(|register| first(register).unwrap_or(u16::MAX))
            .collect();
        self.order.extend(named);
        self
    }

    /// Units that are never allocated.
    pub fn reserved_units(&self) -> &UnitSet<8> {
        &self.reserved
    }

    /// The start of `free` that is preferred: the lowest, unless the file has an order.
    #[inline]
    pub(crate) fn best_start<const W: usize>(&self, free: &UnitSet<W>) -> Option<usize> {
        if self.order.is_empty() {
            return free.lowest();
        }
        let mut order = self.order.iter().map(|&unit| usize::from(unit));
        order
            .find(|&unit| free.contains(unit))
            .or_else(|| free.lowest())
    }

    /// Whether some registers are preferred to lower ones.
    pub(crate) fn has_order(&self) -> bool {
        !self.order.is_empty()
    }

    pub(super) fn recount(&mut self) {
        self.capacity = self.units - self.reserved.and(&UnitSet::first(self.units)).len();
    }
}

/// Description of one register class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassInfo {
    /// Name used by the text format.
    pub name: String,
    /// The file whose units it takes.
    pub file: File,
    /// How many consecutive units one value takes.
    pub width: usize,
    /// The first unit is a multiple of this.
    pub align: usize,
}

impl ClassInfo {
    /// Of a class that a target does not have.
    pub(super) const NONE: ClassInfo = ClassInfo {
        name: String::new(),
        file: File::new(u8::MAX as usize),
        width: 0,
        align: 1,
    };
}

/// Memory that spilled values go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Per-thread local memory.
    #[default]
    Local,
    /// Shared memory, laid out per thread by the client.
    Shared,
    /// Arguments that the caller left in memory. They are only read, and offsets are those of
    /// [`Constraint::Argument`](crate::function::Constraint::Argument).
    Argument,
}

/// What accesses to a memory cost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Cycles of a store or a reload that hits the first cache.
    pub cycles: f64,
    /// Cycles where more bytes than this compete for the caches, ascending.
    pub farther: Vec<(usize, f64)>,
}

impl MemoryInfo {
    /// A memory whose accesses take `cycles`.
    pub fn new(cycles: f64) -> MemoryInfo {
        MemoryInfo {
            cycles,
            farther: Vec::new(),
        }
    }

    /// Says that accesses take `cycles` once more than `bytes` compete for the caches.
    pub fn beyond(mut self, bytes: usize, cycles: f64) -> MemoryInfo {
        self.farther.push((bytes, cycles));
        self
    }

    /// Cycles of an access when `bytes` compete for the caches.
    pub fn latency(&self, bytes: usize) -> f64 {
        let mut levels = self.farther.iter().rev();
        let level = levels.find(|(beyond, _)| bytes > *beyond);
        level.map_or(self.cycles, |&(_, cycles)| cycles)
    }
}

/// Whole registers of `file` by number.
pub(super) fn register(info: &FileInfo, file: File, number: usize) -> PReg {
    PReg::new(file, number.saturating_mul(info.units_per_reg))
}
