//! Writing a cubin with changed functions.
//!
//! Everything that isn't changed stays where it is and as it is: a cubin without changes comes
//! out byte for byte. Where code grows, what lies behind it in the file moves by a multiple of
//! [`ALIGNMENT`], so that every section keeps its alignment, and all that speaks of places in
//! the code follows: symbols, relocations, lists of instruction offsets, tables of branch
//! targets. Branches and return addresses in the code itself are the caller's to change.
//!
//! What would have to be guessed is refused by name.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::function::{SHT_NOBITS, SHT_REL, SHT_RELA, calls_indirectly, reserved_shared};
use super::window::{u32_at, u64_at, words};
use super::{AttributeKind, Cubin, Function, ObjectError, Section};
use crate::code::Code;

/// Content moves by multiples of this: the largest alignment of a section in a cubin.
const ALIGNMENT: u64 = 128;
/// Bytes of an instruction.
const WORD: usize = 16;
/// `sh_flags` of a section of shared memory: written, in memory, and its `sh_info` is a section.
const SHARED_FLAGS: u64 = 0x43;
/// What `EIATTR_ANNOTATIONS` notes of spill code.
const SPILL_REFILL: u32 = 1;
/// What shared memory is aligned to.
const SHARED_ALIGNMENT: u64 = 16;

/// Why a cubin is not rewritten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The cubin can't be read, or what was written can't be read back.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// There is no such function.
    #[error("there is no function {name}")]
    NoFunction {
        /// The name.
        name: String,
    },
    /// Something of a function can't be changed as asked.
    #[error("{function}: {reason}")]
    Refused {
        /// The function.
        function: String,
        /// What stands in the way.
        reason: String,
    },
}

/// New code of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCode {
    /// The code.
    pub bytes: Vec<u8>,
    /// For each old instruction, and for the end of the old code, where it is now.
    pub instructions: Vec<usize>,
    /// For each of these, where a jump to it goes now: to code inserted before it, or to itself.
    pub targets: Vec<usize>,
}

impl NewCode {
    /// Code in which every instruction stays where it is.
    pub fn in_place(bytes: Vec<u8>) -> NewCode {
        let places: Vec<usize> = (0..=bytes.len() / WORD).map(|index| index * WORD).collect();
        NewCode {
            bytes,
            targets: places.clone(),
            instructions: places,
        }
    }
}

/// What to change of a function; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Its code.
    pub code: Option<NewCode>,
    /// Registers of a thread.
    pub registers: Option<u8>,
    /// Bytes of its own frame in local memory.
    pub frame_bytes: Option<u32>,
    /// Bytes of local memory that a thread is given.
    pub stack_bytes: Option<u32>,
    /// Bytes of static shared memory, without what the system keeps.
    pub shared_bytes: Option<u64>,
    /// The words of its `EIATTR_COOP_GROUP_MASK_REGIDS`, as many as there are.
    pub mask_registers: Option<Vec<u32>>,
}

/// A cubin and changes to its functions.
#[derive(Clone, Debug)]
pub struct Rewriter<'d> {
    bytes: &'d [u8],
    cubin: Cubin<'d>,
    changes: BTreeMap<usize, Change>,
}

impl<'d> Rewriter<'d> {
    /// Takes a cubin without changes.
    pub fn new(bytes: &'d [u8]) -> Result<Rewriter<'d>, RewriteError> {
        Ok(Rewriter {
            bytes,
            cubin: Cubin::read(bytes)?,
            changes: BTreeMap::new(),
        })
    }

    /// The cubin as it was.
    pub fn cubin(&self) -> &Cubin<'d> {
        &self.cubin
    }

    /// Changes the function of this name, in place of an earlier change.
    pub fn change(&mut self, name: &str, change: Change) -> Result<(), RewriteError> {
        let position = self.cubin.functions.iter().position(|f| f.name == name);
        let position = position.ok_or_else(|| RewriteError::NoFunction {
            name: name.to_owned(),
        })?;
        self.changes.insert(position, change);
        Ok(())
    }

    /// The cubin with all changes.
    pub fn finish(&self) -> Result<Vec<u8>, RewriteError> {
        let mut out = self.bytes.to_vec();
        let mut growth = BTreeMap::new();
        for (&position, change) in &self.changes {
            let function = &self.cubin.functions[position];
            let edit = Edit {
                cubin: &self.cubin,
                function,
            };
            edit.numbers(&mut out, change)?;
            if let Some(code) = &change.code {
                edit.check(code)?;
                if code.bytes.len() != function.code.len() || code.moves() {
                    edit.moved(&mut out, code)?;
                }
                // The code of two functions may be one and the same place of a damaged file;
                // reading back finds that out.
                let more = (code.bytes.len() - function.code.len()) as u64;
                let room = growth.entry(function.offset + function.code.len() as u64);
                let room: &mut u64 = room.or_default();
                *room = more.next_multiple_of(ALIGNMENT).max(*room);
            }
        }
        let layout = Layout(growth);
        layout.headers(&mut out, &self.cubin);
        let mut out = layout.spread(&out);
        for (&position, change) in &self.changes {
            let function = &self.cubin.functions[position];
            if let Some(code) = &change.code {
                let start = layout.place(function.offset) as usize;
                out[start..start + code.bytes.len()].copy_from_slice(&code.bytes);
                let table = u64_at(&out, 40).unwrap_or(0) as usize;
                put_u64(
                    &mut out,
                    table + 64 * function.section + 32,
                    code.bytes.len() as u64,
                );
            }
        }
        let out = self.with_shared_sections(out)?;
        self.read_back(&out)?;
        Ok(out)
    }

    /// Adds a section for the shared memory of each function that gets some and has none. The
    /// table of sections and their names go to the end of the file, where both can grow; no
    /// section changes its number.
    fn with_shared_sections(&self, mut out: Vec<u8>) -> Result<Vec<u8>, RewriteError> {
        let is_new = |&(&position, change): &(&usize, &Change)| {
            let section = self.cubin.functions[position].section;
            let owns =
                |s: &Section| s.name.starts_with(".nv.shared.") && s.info as usize == section;
            change.shared_bytes.is_some_and(|bytes| bytes > 0)
                && !self.cubin.sections.iter().any(owns)
        };
        let new: Vec<(&usize, &Change)> = self.changes.iter().filter(is_new).collect();
        let Some(&(&first, _)) = new.first() else {
            return Ok(out);
        };
        let refuse = |reason: &str| RewriteError::Refused {
            function: self.cubin.functions[first].name.to_owned(),
            reason: reason.to_owned(),
        };
        let count = self.cubin.sections.len();
        let names = u32_at(&out, 60).unwrap_or(0) >> 16;
        let headers = u64_at(&out, 40).unwrap_or(0) as usize;
        let table = out.get(headers..headers.saturating_add(64 * count));
        let mut table = table
            .ok_or_else(|| refuse("its table of sections is cut off"))?
            .to_vec();
        let strings = self.cubin.sections.get(names as usize);
        let mut strings = strings
            .ok_or_else(|| refuse("sections have no names"))?
            .data
            .to_vec();
        for (&position, change) in new {
            let function = &self.cubin.functions[position];
            let kept = reserved_shared(self.cubin.arch);
            let bytes = change.shared_bytes.unwrap_or(0).saturating_add(kept);
            let code = table.get(64 * function.section..).unwrap_or_default();
            let end = u64_at(code, 24).unwrap_or(0) + u64_at(code, 32).unwrap_or(0);
            let header = table.len();
            table.resize(header + 64, 0);
            put_u32(&mut table, header, strings.len() as u32);
            put_u32(&mut table, header + 4, SHT_NOBITS);
            put_u64(&mut table, header + 8, SHARED_FLAGS);
            put_u64(&mut table, header + 24, end);
            put_u64(&mut table, header + 32, bytes);
            put_u32(&mut table, header + 44, function.section as u32);
            put_u64(&mut table, header + 48, SHARED_ALIGNMENT);
            strings.extend(format!(".nv.shared.{}\0", function.name).into_bytes());
        }
        let total = u16::try_from(table.len() / 64).map_err(|_| refuse("too many sections"))?;
        out.resize(out.len().next_multiple_of(ALIGNMENT as usize), 0);
        put_u64(&mut table, 64 * names as usize + 24, out.len() as u64);
        put_u64(&mut table, 64 * names as usize + 32, strings.len() as u64);
        out.extend(strings);
        out.resize(out.len().next_multiple_of(ALIGNMENT as usize), 0);
        let headers = out.len() as u64;
        put_u64(&mut out, 40, headers);
        if let Some(place) = out.get_mut(60..62) {
            place.copy_from_slice(&total.to_le_bytes());
        }
        out.extend(table);
        Ok(out)
    }

    /// What was written says what was asked for.
    fn read_back(&self, out: &[u8]) -> Result<(), RewriteError> {
        let written = Cubin::read(out)?;
        for (position, old) in self.cubin.functions.iter().enumerate() {
            let change = self.changes.get(&position).cloned().unwrap_or_default();
            let code = change.code.as_ref().map_or(old.code, |code| &code.bytes);
            let registers = change.registers.map(u32::from).or(old.registers);
            let same = written.functions.get(position).is_some_and(|new| {
                new.name == old.name
                    && new.code == code
                    && new.registers == registers
                    && new.frame_bytes == change.frame_bytes.or(old.frame_bytes)
                    && new.stack_bytes == change.stack_bytes.or(old.stack_bytes)
                    && new.shared_bytes == change.shared_bytes.unwrap_or(old.shared_bytes)
                    && change.mask_registers.as_ref().is_none_or(|words| {
                        let kind = AttributeKind::COOP_GROUP_MASK_REGIDS;
                        let written = new.attribute(kind);
                        written.is_some_and(|a| a.words().eq(words.iter().copied()))
                    })
            });
            if !same {
                let reason = "it does not read back as it was written".to_owned();
                return Err(RewriteError::Refused {
                    function: old.name.to_owned(),
                    reason,
                });
            }
        }
        Ok(())
    }
}

impl NewCode {
    fn moves(&self) -> bool {
        let stays = |places: &[usize]| {
            let mut places = places.iter().enumerate();
            places.all(|(index, &place)| place == index * WORD)
        };
        !(stays(&self.instructions) && stays(&self.targets))
    }

    /// Where an old place is now, by `places`; `None` where no instruction begins there.
    fn place(places: &[usize], old: u64) -> Option<u64> {
        let old = usize::try_from(old).ok()?;
        let place = old.is_multiple_of(WORD).then(|| places.get(old / WORD))?;
        place.map(|&place| place as u64)
    }
}

/// Changes to one function, written over the old bytes: nothing has moved in the file yet.
struct Edit<'c, 'd> {
    cubin: &'c Cubin<'d>,
    function: &'c Function<'d>,
}

impl Edit<'_, '_> {
    fn refuse(&self, reason: impl Into<String>) -> RewriteError {
        RewriteError::Refused {
            function: self.function.name.to_owned(),
            reason: reason.into(),
        }
    }

    fn check(&self, code: &NewCode) -> Result<(), RewriteError> {
        let (old, new) = (self.function.code.len(), code.bytes.len());
        if new < old {
            return Err(self.refuse(format!("{new} bytes of code for {old}: code can only grow")));
        }
        if !new.is_multiple_of(WORD) || !old.is_multiple_of(WORD) {
            return Err(self.refuse(format!("{new} bytes are no whole instructions")));
        }
        let count = old / WORD + 1;
        let is_sound = |places: &[usize]| {
            let fits = places
                .iter()
                .all(|&place| place <= new && place.is_multiple_of(WORD));
            places.len() == count && fits && places.is_sorted()
        };
        match is_sound(&code.instructions) && is_sound(&code.targets) {
            true => Ok(()),
            false => Err(self.refuse(format!(
                "{count} places in the new code are needed, in order"
            ))),
        }
    }

    /// Registers, frame, stack and shared memory.
    fn numbers(&self, out: &mut [u8], change: &Change) -> Result<(), RewriteError> {
        let table = u64_at(out, 40).unwrap_or(0) as usize;
        if let Some(registers) = change.registers {
            self.attribute(out, AttributeKind::REGCOUNT, registers.into())?;
            let header = table + 64 * self.function.section;
            let info = u32_at(out, header + 44).unwrap_or(0);
            // Where the section repeats the count, it has to agree.
            if info >> 24 != 0 {
                let info = info & 0x00ff_ffff | u32::from(registers) << 24;
                put_u32(out, header + 44, info);
            }
        }
        if let Some(bytes) = change.frame_bytes {
            self.attribute(out, AttributeKind::FRAME_SIZE, bytes)?;
        }
        if let Some(bytes) = change.stack_bytes {
            self.attribute(out, AttributeKind::MIN_STACK_SIZE, bytes)?;
        }
        if let Some(bytes) = change.shared_bytes {
            self.shared(out, bytes)?;
        }
        if let Some(words) = &change.mask_registers {
            self.mask_registers(out, words)?;
        }
        Ok(())
    }

    fn mask_registers(&self, out: &mut [u8], words: &[u32]) -> Result<(), RewriteError> {
        let kind = AttributeKind::COOP_GROUP_MASK_REGIDS;
        let attribute = self.function.attribute(kind);
        let attribute = attribute.filter(|a| a.words().count() == words.len());
        let attribute = attribute.ok_or_else(|| self.refuse(format!("{kind} has other words")))?;
        let start = self.own_attributes() + attribute.offset + 4;
        for (index, &word) in words.iter().enumerate() {
            put_u32(out, start + 4 * index, word);
        }
        Ok(())
    }

    /// Where the attributes of the function begin in the file.
    fn own_attributes(&self) -> usize {
        let is_it = |s: &&Section| {
            s.name.starts_with(".nv.info.") && s.info as usize == self.function.section
        };
        let section = self.cubin.sections.iter().find(is_it);
        section.map_or(0, |section| section.offset as usize)
    }

    /// Overwrites the number that `.nv.info` has for the function.
    fn attribute(
        &self,
        out: &mut [u8],
        kind: AttributeKind,
        number: u32,
    ) -> Result<(), RewriteError> {
        let section = self.cubin.sections.iter().find(|s| s.name == ".nv.info");
        let is_it = |of: Option<(u32, u32)>| {
            of.is_some_and(|(symbol, _)| symbol as usize == self.function.symbol)
        };
        let attribute = self.cubin.attributes.iter();
        let mut attribute = attribute.filter(|a| a.kind == kind && is_it(a.of_symbol()));
        match (section, attribute.next()) {
            (Some(section), Some(attribute)) => {
                let at = section.offset as usize + attribute.offset + 8;
                put_u32(out, at, number);
                Ok(())
            }
            _ => Err(self.refuse(format!("there is no {kind} to change"))),
        }
    }

    fn shared(&self, out: &mut [u8], bytes: u64) -> Result<(), RewriteError> {
        if bytes == self.function.shared_bytes {
            return Ok(());
        }
        let is_it = |s: &Section| {
            s.name.starts_with(".nv.shared.") && s.info as usize == self.function.section
        };
        let Some(index) = self.cubin.sections.iter().position(is_it) else {
            // It gets a section once everything has its place.
            return Ok(());
        };
        let table = u64_at(out, 40).unwrap_or(0) as usize;
        let size = bytes.saturating_add(self.function.reserved_shared_bytes);
        put_u64(out, table + 64 * index + 32, size);
        // The segment of all shared memory has no bytes in the file.
        let old = self.cubin.sections[index].size;
        for header in segments(out) {
            let is_empty = u64_at(out, header + 32) == Some(0);
            let offset = u64_at(out, header + 8).unwrap_or(0);
            let memory = u64_at(out, header + 40).unwrap_or(0);
            if is_empty && offset == self.cubin.sections[index].offset && memory >= old {
                put_u64(out, header + 40, (memory - old).saturating_add(size));
            }
        }
        Ok(())
    }

    /// All that speaks of places in code that moves.
    fn moved(&self, out: &mut [u8], code: &NewCode) -> Result<(), RewriteError> {
        let merc =
            |s: &Section| s.name.starts_with(".nv.merc") || s.name.starts_with(".nv.capmerc");
        if let Some(section) = self.cubin.sections.iter().find(|s| merc(s)) {
            return Err(self.refuse(format!("{} describes the code a second time", section.name)));
        }
        // Addresses of functions are data without relocations once a cubin is linked.
        let old = Code::decode(self.function.code, self.cubin.arch.sm);
        if !self.function.inner.is_empty() && !old.is_ok_and(|old| !calls_indirectly(&old)) {
            return Err(self.refuse("functions within it may be called by their old addresses"));
        }
        self.attributes(out, code)?;
        self.jump_tables(out, code)?;
        self.relocations(out, code)?;
        self.symbols(out, code)?;
        self.drop_lines(out);
        Ok(())
    }

    fn attributes(&self, out: &mut [u8], code: &NewCode) -> Result<(), RewriteError> {
        let start = self.own_attributes();
        for attribute in &self.function.attributes {
            let kind = attribute.kind;
            let value = start + attribute.offset + 4;
            let moved = |places: &[usize], old: u32| {
                NewCode::place(places, old.into()).ok_or_else(|| {
                    self.refuse(format!(
                        "{kind} names {old:#x}, where no instruction begins"
                    ))
                })
            };
            if kind.is_offset_list() {
                for (index, old) in attribute.words().enumerate() {
                    let new = moved(&code.instructions, old)?;
                    put_u32(out, value + 4 * index, new as u32);
                }
            } else if kind == AttributeKind::INDIRECT_BRANCH_TARGETS {
                let branches = attribute.indirect_branches();
                let branches = branches.ok_or_else(|| self.refuse(format!("{kind} is cut off")))?;
                let mut at = value;
                for branch in branches {
                    put_u32(out, at, moved(&code.instructions, branch.offset)? as u32);
                    at += 12;
                    for target in branch.targets {
                        put_u32(out, at, moved(&code.targets, target)? as u32);
                        at += 4;
                    }
                }
            } else if kind == AttributeKind::ANNOTATIONS {
                // Pairs of what is noted and where: 1 notes spill code.
                for (index, pair) in attribute.bytes().chunks(8).enumerate() {
                    let (Some(SPILL_REFILL), Some(old)) = (u32_at(pair, 0), u32_at(pair, 4)) else {
                        return Err(self.refuse(format!("what {kind} notes is not known")));
                    };
                    let new = moved(&code.instructions, old)?;
                    put_u32(out, value + 8 * index + 4, new as u32);
                }
            } else if kind == AttributeKind::UNUSED_LOAD_BYTE_OFFSET {
                // Pairs of an instruction and the bytes that it does not need.
                for (index, pair) in attribute.bytes().chunks(8).enumerate() {
                    let (Some(old), 8) = (u32_at(pair, 0), pair.len()) else {
                        return Err(self.refuse(format!("{kind} is cut off")));
                    };
                    let new = moved(&code.instructions, old)?;
                    put_u32(out, value + 8 * index, new as u32);
                }
            } else if kind.names_code() {
                return Err(self.refuse(format!("how to move what {kind} says is not known")));
            }
        }
        Ok(())
    }

    /// Tables of branch targets in constant bank 2. All of a bank's words have to be targets:
    /// which of them a branch reads is not told.
    fn jump_tables(&self, out: &mut [u8], code: &NewCode) -> Result<(), RewriteError> {
        let branches = self.function.indirect_branches();
        let targets: BTreeSet<u32> = branches.iter().flat_map(|b| b.targets.clone()).collect();
        let is_table = |bank: &&super::ConstantBank| bank.bank == 2;
        for bank in self.function.constants.iter().filter(is_table) {
            let section = &self.cubin.sections[bank.section];
            if targets.is_empty() {
                continue;
            }
            for (index, word) in words(section.data).enumerate() {
                let new = NewCode::place(&code.targets, word.into());
                let Some(new) = new.filter(|_| targets.contains(&word)) else {
                    let name = section.name;
                    let reason = format!("{name} holds {word:#x} among the targets of branches");
                    return Err(self.refuse(reason));
                };
                put_u32(out, section.offset as usize + 4 * index, new as u32);
            }
        }
        Ok(())
    }

    /// Relocations of the code, and of other sections where they point into it.
    fn relocations(&self, out: &mut [u8], code: &NewCode) -> Result<(), RewriteError> {
        for table in &self.cubin.sections {
            if !matches!(table.kind, SHT_REL | SHT_RELA) {
                continue;
            }
            let entry = if table.kind == SHT_RELA { 24 } else { 16 };
            let is_own = table.info as usize == self.function.section;
            for (index, relocation) in super::function::relocations(table)?.iter().enumerate() {
                let at = table.offset as usize + entry * index;
                if is_own {
                    let within = relocation.offset % WORD as u64;
                    let new = NewCode::place(&code.instructions, relocation.offset - within);
                    let new = new.ok_or_else(|| {
                        let offset = relocation.offset;
                        self.refuse(format!("{} is behind the code: {offset:#x}", table.name))
                    })?;
                    put_u64(out, at, new + within);
                }
                let symbol = self.cubin.symbols.get(relocation.symbol as usize);
                let Some(symbol) = symbol.filter(|s| s.section == Some(self.function.section))
                else {
                    continue;
                };
                let addend = relocation.addend.unwrap_or(0);
                if addend != 0 {
                    let old = symbol.value.checked_add_signed(addend);
                    let place = |old| NewCode::place(&code.targets, old);
                    let (Some(base), Some(new)) = (place(symbol.value), old.and_then(place)) else {
                        let reason = format!("{} points to {addend:#x} in the code", table.name);
                        return Err(self.refuse(reason));
                    };
                    put_u64(out, at + 16, new.wrapping_sub(base));
                }
            }
        }
        Ok(())
    }

    fn symbols(&self, out: &mut [u8], code: &NewCode) -> Result<(), RewriteError> {
        let table = self.cubin.sections.iter().find(|s| s.name == ".symtab");
        let start = table.map_or(0, |table| table.offset as usize);
        for (index, symbol) in self.cubin.symbols.iter().enumerate() {
            if symbol.section != Some(self.function.section) || !symbol.is_function {
                continue;
            }
            let end = symbol.value.checked_add(symbol.size);
            let place = |old| NewCode::place(&code.targets, old);
            let (Some(value), Some(end)) = (place(symbol.value), end.and_then(place)) else {
                let reason = format!("{} does not begin and end with instructions", symbol.name);
                return Err(self.refuse(reason));
            };
            // What is added behind the last instruction belongs to the function itself.
            let end = match index == self.function.symbol {
                true => code.bytes.len() as u64,
                false => end,
            };
            put_u64(out, start + 24 * index + 8, value);
            put_u64(out, start + 24 * index + 16, end - value);
        }
        Ok(())
    }

    /// Line tables count in bytes of code; none is better than a wrong one.
    fn drop_lines(&self, out: &mut [u8]) {
        let table = u64_at(out, 40).unwrap_or(0) as usize;
        let names = [".debug_line", ".nv_debug_line_sass"];
        let is_line_table = |index: usize| {
            self.cubin
                .sections
                .get(index)
                .is_some_and(|s| names.contains(&s.name))
        };
        for (index, section) in self.cubin.sections.iter().enumerate() {
            let is_relocation = matches!(section.kind, SHT_REL | SHT_RELA);
            if is_line_table(index) || is_relocation && is_line_table(section.info as usize) {
                put_u64(out, table + 64 * index + 32, 0);
            }
        }
    }
}

impl AttributeKind {
    /// Whether the value speaks of places in the code by a layout that is not known, or might.
    fn names_code(self) -> bool {
        let is_unknown = self.name().is_none();
        let is_listed = matches!(
            self,
            AttributeKind::JUMPTABLE_RELOCS
                | AttributeKind::ATOM16_EMUL_INSTR_REG_MAP
                | AttributeKind::MBARRIER_INSTR_OFFSETS
                | AttributeKind::COROUTINE_RESUME_ID_OFFSETS
                | AttributeKind::INSTR_REG_MAP
                | AttributeKind::UNUSED_LOAD_BYTE_OFFSET
                | AttributeKind::SYSCALL_OFFSETS
                | AttributeKind::AT_ENTRY_FRAGMENTS
                | AttributeKind::ANNOTATIONS
                | AttributeKind::STACK_CANARY_TRAP_OFFSETS
                | AttributeKind::LOCAL_CTA_ASYNC_STORE_OFFSETS
                | AttributeKind::IGNOREOOB_CP_ASYNC_BULK_INSTR_OFFSETS
        );
        is_unknown || is_listed
    }
}

/// Room that is made in the file: by the old place it is made at, how many bytes.
struct Layout(BTreeMap<u64, u64>);

impl Layout {
    /// Where an old place in the file is now; what begins where room is made moves behind it.
    fn place(&self, old: u64) -> u64 {
        let more = self.0.range(..=old).map(|(_, more)| more).sum();
        old.saturating_add(more)
    }

    /// Changes the offsets in the headers of the file, its sections and segments.
    fn headers(&self, out: &mut [u8], cubin: &Cubin) {
        let (segments_at, sections_at) = (u64_at(out, 32), u64_at(out, 40));
        let (segments_at, sections_at) = (segments_at.unwrap_or(0), sections_at.unwrap_or(0));
        for header in segments(out) {
            let offset = u64_at(out, header + 8).unwrap_or(0);
            let (file, memory) = (u64_at(out, header + 32), u64_at(out, header + 40));
            let (file, memory) = (file.unwrap_or(0), memory.unwrap_or(0));
            let end = offset.saturating_add(file);
            let within = self
                .0
                .range((Bound::Excluded(offset), Bound::Included(end)));
            let more: u64 = within.map(|(_, more)| more).sum();
            put_u64(out, header + 8, self.place(offset));
            put_u64(out, header + 32, file.saturating_add(more));
            put_u64(out, header + 40, memory.saturating_add(more));
        }
        for (index, section) in cubin.sections.iter().enumerate() {
            let at = sections_at as usize + 64 * index + 24;
            put_u64(out, at, self.place(section.offset));
        }
        put_u64(out, 32, self.place(segments_at));
        put_u64(out, 40, self.place(sections_at));
    }

    /// The file with room made.
    fn spread(&self, old: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.place(old.len() as u64) as usize);
        let mut from = 0;
        for (&at, &more) in &self.0 {
            let at = usize::try_from(at).unwrap_or(usize::MAX).min(old.len());
            out.extend_from_slice(&old[from..at]);
            out.resize(out.len() + more as usize, 0);
            from = at;
        }
        out.extend_from_slice(&old[from..]);
        out
    }
}

/// Where the program headers begin.
fn segments(file: &[u8]) -> Vec<usize> {
    let start = u64_at(file, 32).unwrap_or(0) as usize;
    let count = u32_at(file, 56).unwrap_or(0) & 0xffff;
    let header = |index: u32| start.saturating_add(56 * index as usize);
    let fits = |&at: &usize| at.checked_add(56).is_some_and(|end| end <= file.len());
    (0..count).map(header).filter(fits).collect()
}

/// Writes a number where the file has room for it; a place outside of the file is one that
/// reading has already refused.
fn put_u32(out: &mut [u8], at: usize, number: u32) {
    if let Some(place) = at.checked_add(4).and_then(|end| out.get_mut(at..end)) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

/// The same for eight bytes.
fn put_u64(out: &mut [u8], at: usize, number: u64) {
    if let Some(place) = at.checked_add(8).and_then(|end| out.get_mut(at..end)) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}
