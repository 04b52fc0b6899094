//! Targets of one's own.
//!
//! A [`TargetBuilder`] takes register files, classes and a convention one after the other and
//! hands back the handles that the rest is said in. What contradicts itself, or what no
//! allocator could work with, is refused by [`TargetBuilder::finish`].

use super::describe::register;
use super::{
    Abi, Class, ClassInfo, File, FileInfo, MemoryInfo, MovePath, PReg, RegSet, Space, SpillPath,
    Target,
};
use thiserror::Error;

/// Register files that a target has at most.
pub const MAX_FILES: usize = 4;
/// Units that a register file has at most.
pub const MAX_UNITS: usize = 512;
/// Units that one value takes at most.
pub const MAX_WIDTH: usize = 64;
/// Register classes that a target has at most.
pub const MAX_CLASSES: usize = 255;
/// The strictest alignment of a class, in units.
const MAX_ALIGN: usize = 64;
/// The strictest alignment of a slot, in bytes.
const MAX_SLOT_ALIGN: u32 = 256;

/// A target that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("target {target}: {fault}")]
pub struct TargetError {
    target: String,
    fault: String,
}

/// Describes a machine.
///
/// ```
/// use warpalloc::target::{FileInfo, MovePath, Target};
///
/// // Sixteen registers of eight bytes; the last is the stack pointer, nothing is exchanged.
/// let mut machine = Target::builder("toy");
/// let registers = FileInfo::new("r", 16).register_bytes(8).reserved([15]);
/// let r = machine.file(registers.moves(MovePath::Move));
/// let word = machine.class("word", r, 1, 1);
/// let pair = machine.class("pair", r, 2, 2);
/// machine.arguments((0..4).map(|n| machine.reg(r, n)).collect::<Vec<_>>());
/// machine.results([machine.reg(r, 0)]);
/// machine.preserved((8..15).map(|n| machine.reg(r, n)).collect::<Vec<_>>());
/// let target = machine.finish()?;
/// assert_eq!(target.registers(word).count(), 15);
/// assert_eq!(target.registers(pair).count(), 7);
/// # Ok::<(), warpalloc::target::TargetError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TargetBuilder {
    name: String,
    sm: u32,
    files: Vec<FileInfo>,
    classes: Vec<ClassInfo>,
    abi: Abi,
    clobbered: Option<Vec<PReg>>,
    frame_limit: u32,
    slot_align: u32,
    memories: [Option<MemoryInfo>; 2],
}

impl Target {
    /// Begins the description of a machine called `name`.
    pub fn builder(name: impl Into<String>) -> TargetBuilder {
        TargetBuilder {
            name: name.into(),
            sm: 0,
            files: Vec::new(),
            classes: Vec::new(),
            abi: Abi::default(),
            clobbered: None,
            frame_limit: 64 * 1024,
            slot_align: 16,
            memories: [Some(MemoryInfo::new(4.0)), None],
        }
    }
}

impl TargetBuilder {
    /// Adds a register file. The first is the main one: code is split, shrunk and priced by
    /// its registers, and it holds the address of the spill frame.
    pub fn file(&mut self, file: FileInfo) -> File {
        self.files.push(file);
        File::new(self.files.len() - 1)
    }

    /// Adds a class of values that take `registers` registers of `file`, of which the first
    /// is a multiple of `align`.
    pub fn class(
        &mut self,
        name: impl Into<String>,
        file: File,
        registers: usize,
        align: usize,
    ) -> Class {
        let per_reg = self.files.get(file.index()).map_or(1, |f| f.units_per_reg);
        let [width, align] = [registers, align].map(|count| count.saturating_mul(per_reg));
        self.class_of_units(name, file, width, align)
    }

    /// Adds a class whose width and alignment are counted in units: parts of registers.
    pub fn class_of_units(
        &mut self,
        name: impl Into<String>,
        file: File,
        width: usize,
        align: usize,
    ) -> Class {
        self.classes.push(ClassInfo {
            name: name.into(),
            file,
            width,
            align,
        });
        Class::new(self.classes.len() - 1)
    }

    /// The register of `file` with this number.
    pub fn reg(&self, file: File, number: usize) -> PReg {
        match self.files.get(file.index()) {
            Some(info) => register(info, file, number),
            None => PReg::new(file, number),
        }
    }

    /// Says where arguments are passed, in order. Each file has a sequence of its own.
    pub fn arguments(&mut self, registers: impl IntoIterator<Item = PReg>) -> &mut Self {
        self.abi.arguments = registers.into_iter().collect();
        self
    }

    /// Says where results are returned, in order. Each file has a sequence of its own.
    pub fn results(&mut self, registers: impl IntoIterator<Item = PReg>) -> &mut Self {
        self.abi.results = registers.into_iter().collect();
        self
    }

    /// Says which registers a function gives back to its caller as it found them; it may
    /// overwrite all others.
    pub fn preserved(&mut self, registers: impl IntoIterator<Item = PReg>) -> &mut Self {
        self.abi.preserved = registers.into_iter().collect();
        self
    }

    /// Says which registers a call overwrites; it preserves all others, save reserved ones.
    pub fn clobbered(&mut self, registers: impl IntoIterator<Item = PReg>) -> &mut Self {
        self.clobbered = Some(registers.into_iter().collect());
        self
    }

    /// Sets the largest spill frame, in bytes; 64 KiB unless this is said.
    pub fn frame_limit(&mut self, bytes: u32) -> &mut Self {
        self.frame_limit = bytes;
        self
    }

    /// Sets how strictly the lowest byte of the frame is aligned, and no slot more strictly;
    /// 16 bytes unless this is said.
    pub fn slot_align(&mut self, bytes: u32) -> &mut Self {
        self.slot_align = bytes;
        self
    }

    /// Says what accesses to a memory cost. Unless this is said, local memory takes four
    /// cycles and there is no other.
    pub fn memory(&mut self, space: Space, memory: MemoryInfo) -> &mut Self {
        self.memories[usize::from(space == Space::Shared)] = Some(memory);
        self
    }

    /// Sets the compute capability of an NVIDIA machine.
    pub(super) fn sm(&mut self, sm: u32) -> &mut Self {
        self.sm = sm;
        self
    }

    /// The target, or what is wrong with it.
    pub fn finish(mut self) -> Result<Target, TargetError> {
        self.check().map_err(|fault| TargetError {
            target: self.name.clone(),
            fault,
        })?;
        if let Some(clobbered) = self.clobbered.take() {
            self.abi.preserved = self.all_but(&clobbered);
        }
        for file in &mut self.files {
            file.units = file.registers * file.units_per_reg;
        }
        let mut target = Target {
            name: self.name,
            sm: self.sm,
            files: self.files,
            classes: self.classes,
            unit_base: Vec::new(),
            reserved: RegSet::default(),
            abi: self.abi,
            frame_limit: self.frame_limit,
            slot_align: self.slot_align,
            memories: self.memories,
        };
        target.renumber();
        Ok(target)
    }

    /// Registers that are neither reserved nor in `clobbered`, of files that reach memory.
    fn all_but(&self, clobbered: &[PReg]) -> Vec<PReg> {
        let mut rest = Vec::new();
        for (index, info) in self.files.iter().enumerate() {
            let file = File::new(index);
            let registers = (0..info.registers).map(|number| register(info, file, number));
            let is_kept = |reg: &PReg| {
                !clobbered.contains(reg)
                    && !info.reserved.contains(reg.unit as usize)
                    && info.spill == SpillPath::Memory
            };
            rest.extend(registers.filter(is_kept));
        }
        rest
    }

    fn check(&self) -> Result<(), String> {
        if self.files.is_empty() {
            return Err("it has no register file".to_owned());
        }
        if self.files.len() > MAX_FILES {
            let count = self.files.len();
            return Err(format!(
                "it has {count} register files, {MAX_FILES} is the most"
            ));
        }
        if self.classes.is_empty() {
            return Err("it has no register class".to_owned());
        }
        if self.classes.len() > MAX_CLASSES {
            let count = self.classes.len();
            return Err(format!("it has {count} classes, {MAX_CLASSES} is the most"));
        }
        for index in 0..self.files.len() {
            self.check_file(index)?;
        }
        for index in 0..self.classes.len() {
            self.check_class(index)?;
        }
        self.check_convention()?;
        self.check_memory()
    }

    fn check_file(&self, index: usize) -> Result<(), String> {
        let info = &self.files[index];
        let name = &info.name;
        let is_word = |c: char| c.is_ascii_alphabetic() || c == '_';
        if name.is_empty() || !name.chars().all(is_word) {
            return Err(format!(
                "`{name}` is no name for a register file: letters were expected, a number follows"
            ));
        }
        if self.files[..index].iter().any(|other| other.name == *name) {
            return Err(format!("two register files are called {name}"));
        }
        let (parts, bytes) = (info.units_per_reg, info.unit_bytes);
        if !parts.is_power_of_two() || parts > 2 {
            return Err(format!(
                "a register of {name} cannot have {parts} parts: 1 and 2 are possible"
            ));
        }
        let units = info.registers.saturating_mul(parts);
        if units == 0 || units > MAX_UNITS {
            return Err(format!(
                "file {name} has {units} units, from 1 to {MAX_UNITS} are possible"
            ));
        }
        if !bytes.is_power_of_two() || bytes > 16 {
            return Err(format!(
                "a unit of {name} has {bytes} bytes: 1, 2, 4, 8 and 16 are possible"
            ));
        }
        if info.banks == 0 {
            return Err(format!(
                "file {name} has no bank; 1 means that they do not matter"
            ));
        }
        if info.reserved.len() == info.registers * parts {
            return Err(format!("every register of {name} is reserved"));
        }
        for (at, &first) in info.order.iter().enumerate() {
            let unit = usize::from(first);
            if unit >= info.registers * parts {
                let last = info.registers - 1;
                return Err(format!(
                    "a register reserved or preferred in {name} does not exist: {name}{last} is the last"
                ));
            }
            let number = unit / parts;
            if info.order[..at].contains(&first) {
                return Err(format!("{name}{number} is preferred twice"));
            }
            if info.reserved.contains(unit) {
                return Err(format!("{name}{number} is reserved, and yet preferred"));
            }
        }
        self.check_paths(index)
    }

    /// A file reaches memory itself or through one that does.
    fn check_paths(&self, index: usize) -> Result<(), String> {
        let info = &self.files[index];
        let name = &info.name;
        if let SpillPath::Via(via) = info.spill {
            let Some(other) = self.files.get(via.index()).filter(|_| via.index() != index) else {
                return Err(format!(
                    "file {name} spills through a file that does not exist"
                ));
            };
            if other.spill != SpillPath::Memory {
                let other = &other.name;
                return Err(format!(
                    "file {name} spills through {other}, which cannot reach memory either"
                ));
            }
            if info.units_per_reg > 1 && info.moves != MovePath::Swap {
                return Err(format!(
                    "parts of registers of {name} can be neither exchanged nor stored"
                ));
            }
            if other.units_per_reg < info.units_per_reg {
                let other = &other.name;
                return Err(format!(
                    "a part of a register of {name} has no place in {other}, through which it spills"
                ));
            }
        }
        match info.moves {
            MovePath::Via(via) if info.spill != SpillPath::Via(via) => Err(format!(
                "file {name} moves by way of a file other than the one that it spills through"
            )),
            _ => Ok(()),
        }
    }

    fn check_class(&self, index: usize) -> Result<(), String> {
        let info = &self.classes[index];
        let name = &info.name;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if name.is_empty() || !name.chars().all(is_word) {
            return Err(format!(
                "`{name}` is no name for a class: letters and digits were expected"
            ));
        }
        if self.classes[..index].iter().any(|c| c.name == *name) {
            return Err(format!("two classes are called {name}"));
        }
        let Some(file) = self.files.get(info.file.index()) else {
            return Err(format!("class {name} is of a file that does not exist"));
        };
        let (width, align, of) = (info.width, info.align, &file.name);
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(format!(
                "class {name} is aligned to {align} units: powers of two up to {MAX_ALIGN} are possible"
            ));
        }
        if width == 0 || width > MAX_WIDTH {
            return Err(format!(
                "a value of class {name} takes {width} units: 1 to {MAX_WIDTH} are possible"
            ));
        }
        let units = file.registers * file.units_per_reg;
        let is_open = |start: usize| (start..start + width).all(|u| !file.reserved.contains(u));
        let mut starts = (0..(units + 1).saturating_sub(width)).step_by(align);
        if !starts.any(is_open) {
            return Err(format!(
                "class {name} fits nowhere: it takes {width} of the {units} units of {of}, \
                 aligned to {align} and beside reserved ones"
            ));
        }
        let SpillPath::Via(via) = file.spill else {
            return Ok(());
        };
        let through = &self.files[via.index()];
        let carrier = width / file.units_per_reg * through.units_per_reg;
        let carries = |c: &ClassInfo| c.file == via && c.width == carrier;
        if !width.is_multiple_of(file.units_per_reg) || !self.classes.iter().any(carries) {
            let through = &through.name;
            return Err(format!(
                "values of class {name} spill through {through}, which has no class of {carrier} \
                 units to carry them: add one"
            ));
        }
        Ok(())
    }

    fn check_convention(&self) -> Result<(), String> {
        let abi = &self.abi;
        let none = Vec::new();
        let clobbered = self.clobbered.as_ref().unwrap_or(&none);
        if self.clobbered.is_some() && !abi.preserved.is_empty() {
            return Err(
                "both preserved and clobbered registers were given: the ones are all but the others"
                    .to_owned(),
            );
        }
        let lists = [
            ("argument", &abi.arguments),
            ("result", &abi.results),
            ("preserved", &abi.preserved),
            ("clobbered", clobbered),
        ];
        for (what, list) in lists {
            for (at, reg) in list.iter().enumerate() {
                let Some(info) = self.files.get(reg.file.index()) else {
                    return Err(format!(
                        "an {what} register is of a file that does not exist"
                    ));
                };
                let unit = usize::from(reg.unit);
                let named = format!("{}{}", info.name, unit / info.units_per_reg);
                if unit >= info.registers * info.units_per_reg {
                    let last = info.registers - 1;
                    let name = &info.name;
                    return Err(format!(
                        "{what} register {named} does not exist: {name}{last} is the last"
                    ));
                }
                if !unit.is_multiple_of(info.units_per_reg) {
                    return Err(format!("{what} register {named}.h is no whole register"));
                }
                if list[..at].contains(reg) {
                    return Err(format!("{named} is listed twice as {what} register"));
                }
                if what != "clobbered" && info.reserved.contains(unit) {
                    return Err(format!("{what} register {named} is reserved"));
                }
                if what == "preserved" && info.spill != SpillPath::Memory {
                    return Err(format!(
                        "{named} cannot be preserved: its file does not reach memory, so a \
                         function could not save it"
                    ));
                }
                if what == "result" && abi.preserved.contains(reg) {
                    return Err(format!("{named} is both preserved and a result register"));
                }
            }
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<(), String> {
        let align = self.slot_align;
        if !align.is_power_of_two() || align > MAX_SLOT_ALIGN {
            return Err(format!(
                "slots are aligned to {align} bytes: powers of two up to {MAX_SLOT_ALIGN} are possible"
            ));
        }
        if self.frame_limit > i32::MAX as u32 / 2 {
            let limit = self.frame_limit;
            return Err(format!("a frame of {limit} bytes cannot be addressed"));
        }
        for memory in self.memories.iter().flatten() {
            let levels = memory.farther.iter().map(|level| level.1);
            let costs = std::iter::once(memory.cycles).chain(levels);
            if let Some(cost) = costs.into_iter().find(|c| !(c.is_finite() && *c >= 0.0)) {
                return Err(format!("an access to memory cannot take {cost} cycles"));
            }
            if !memory.farther.is_sorted_by(|a, b| a.0 < b.0) {
                return Err("levels of memory are not in ascending order".to_owned());
            }
        }
        if self.memories[0].is_none() {
            return Err("it has no local memory to spill to".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixteen registers, four predicates, and a change to them.
    fn with(change: impl FnOnce(&mut TargetBuilder, File)) -> Result<Target, String> {
        let mut machine = Target::builder("toy");
        let r = machine.file(FileInfo::new("r", 16).reserved([15]));
        let p = machine.file(FileInfo::new("p", 4).spills_via(r));
        machine.class("word", r, 1, 1);
        machine.class("pair", r, 2, 2);
        machine.class("flag", p, 1, 1);
        change(&mut machine, r);
        machine.finish().map_err(|error| error.to_string())
    }

    #[test]
    fn a_machine_is_what_was_said() {
        let target = with(|m, r| {
            m.clobbered((0..8).map(|n| m.reg(r, n)).collect::<Vec<_>>());
            m.slot_align(8).frame_limit(4096);
            m.memory(Space::Shared, MemoryInfo::new(2.0).beyond(1024, 9.0));
        })
        .unwrap();
        let word = target.class_named("word").unwrap();
        let pair = target.class_named("pair").unwrap();
        assert_eq!(target.registers(word).count(), 15);
        assert_eq!(target.registers(pair).count(), 7);
        assert_eq!(target.file(File::new(0)).capacity, 15);
        assert!(!target.fits(word, target.reg_named("r15").unwrap()));
        assert!(!target.fits(pair, target.reg_named("r14").unwrap()));
        let kept: Vec<_> = target.abi().preserved.iter().map(|r| r.unit).collect();
        assert_eq!(kept, [8, 9, 10, 11, 12, 13, 14]);
        assert_eq!(target.memory(Space::Shared).unwrap().latency(2000), 9.0);
        assert_eq!(target.memory(Space::Shared).unwrap().latency(1024), 2.0);
        let small = target.with_budget(File::new(0), 8);
        assert_eq!(small.file(File::new(0)).capacity, 8);
        assert_eq!(small.file(File::new(0)).registers, 16);
    }

    #[test]
    fn a_machine_that_contradicts_itself_is_refused_with_the_reason() {
        let refused = |expected: &str, change: fn(&mut TargetBuilder, File)| {
            let error = with(change).unwrap_err();
            assert_eq!(error, format!("target toy: {expected}"));
        };
        refused("two register files are called r", |m, _| {
            m.file(FileInfo::new("r", 4));
        });
        refused(
            "`x1` is no name for a register file: letters were expected, a number follows",
            |m, _| {
                m.file(FileInfo::new("x1", 4));
            },
        );
        refused(
            "file x has 513 units, from 1 to 512 are possible",
            |m, _| {
                m.file(FileInfo::new("x", 513));
            },
        );
        refused(
            "a unit of x has 12 bytes: 1, 2, 4, 8 and 16 are possible",
            |m, _| {
                m.file(FileInfo::new("x", 4).register_bytes(12));
            },
        );
        refused("every register of x is reserved", |m, _| {
            m.file(FileInfo::new("x", 2).reserved([0, 1]));
        });
        refused(
            "a register reserved or preferred in x does not exist: x1 is the last",
            |m, _| {
                m.file(FileInfo::new("x", 2).reserved([2]));
            },
        );
        refused("x1 is preferred twice", |m, _| {
            m.file(FileInfo::new("x", 2).preferred([1, 1]));
        });
        refused("x1 is reserved, and yet preferred", |m, _| {
            m.file(FileInfo::new("x", 2).reserved([1]).preferred([1]));
        });
        refused(
            "file x spills through p, which cannot reach memory either",
            |m, _| {
                m.file(FileInfo::new("x", 2).spills_via(File::new(1)));
            },
        );
        refused(
            "file x moves by way of a file other than the one that it spills through",
            |m, r| {
                m.file(FileInfo::new("x", 2).moves(MovePath::Via(r)));
            },
        );
        refused("two classes are called word", |m, r| {
            m.class("word", r, 1, 1);
        });
        refused(
            "class odd is aligned to 3 units: powers of two up to 64 are possible",
            |m, r| {
                m.class("odd", r, 3, 3);
            },
        );
        refused(
            "class huge fits nowhere: it takes 16 of the 16 units of r, aligned to 1 and beside \
             reserved ones",
            |m, r| {
                m.class("huge", r, 16, 1);
            },
        );
        refused(
            "values of class flags spill through r, which has no class of 3 units to carry them: \
             add one",
            |m, _| {
                m.class("flags", File::new(1), 3, 1);
            },
        );
        refused(
            "argument register r16 does not exist: r15 is the last",
            |m, r| {
                m.arguments([m.reg(r, 16)]);
            },
        );
        refused("preserved register r15 is reserved", |m, r| {
            m.preserved([m.reg(r, 15)]);
        });
        refused("r0 is listed twice as result register", |m, r| {
            m.results([m.reg(r, 0), m.reg(r, 0)]);
        });
        refused("r0 is both preserved and a result register", |m, r| {
            m.results([m.reg(r, 0)]).preserved([PReg::new(r, 0)]);
        });
        refused(
            "p0 cannot be preserved: its file does not reach memory, so a function could not \
             save it",
            |m, _| {
                m.preserved([PReg::new(File::new(1), 0)]);
            },
        );
        refused(
            "both preserved and clobbered registers were given: the ones are all but the others",
            |m, r| {
                m.preserved([PReg::new(r, 0)]).clobbered([PReg::new(r, 1)]);
            },
        );
        refused(
            "slots are aligned to 12 bytes: powers of two up to 256 are possible",
            |m, _| {
                m.slot_align(12);
            },
        );
    }
}
