//! Which line of the source, or of the PTX, an instruction comes from.
//!
//! Both tables are DWARF line programs. Every sequence starts at an address that a relocation
//! fills in with the symbol of a function; the offset in that function's section is what is
//! kept.

use std::collections::BTreeMap;

use gimli::read::{
    AttributeValue, DebugLine, EndianSlice, LineProgramHeader, Reader, Relocate, RelocateReader,
};
use gimli::{DebugLineOffset, LittleEndian};

use super::function::{SHT_REL, SHT_RELA, relocations};
use super::{Cubin, ObjectError, Section};

/// A line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLine<'t> {
    /// The file, with its folder where that is known; empty where the table names none.
    pub file: &'t str,
    /// The line, from 1.
    pub line: u32,
}

/// Lines of the instructions of a cubin.
#[derive(Clone, Debug, Default)]
pub struct LineTable {
    files: Vec<String>,
    /// By section, rows by offset; each holds until the next.
    rows: BTreeMap<usize, Vec<Row>>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    offset: u64,
    /// File and line; `None` behind the end of a sequence.
    place: Option<(usize, u32)>,
}

/// Sections are laid out this far apart in one address space: none is as large.
const SECTION_SHIFT: u32 = 40;
/// Of an address in a line program.
const ADDRESS_BYTES: u8 = 8;

impl LineTable {
    /// The line of the instruction at `offset` of a `.text` section.
    pub fn find(&self, section: usize, offset: u64) -> Option<SourceLine<'_>> {
        let rows = self.rows.get(&section)?;
        let behind = rows.partition_point(|row| row.offset <= offset);
        let (file, line) = rows.get(behind.checked_sub(1)?)?.place?;
        let file = self.files.get(file).map_or("", String::as_str);
        Some(SourceLine { file, line })
    }

    /// Whether there are no lines at all.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Reads the line programs in the section `name` of `cubin`.
    pub(crate) fn read(cubin: &Cubin, name: &str) -> Result<LineTable, ObjectError> {
        let mut table = LineTable::default();
        let Some(index) = cubin.sections.iter().position(|s| s.name == name) else {
            return Ok(table);
        };
        let addresses = Addresses::of(cubin, index)?;
        let data = cubin.sections[index].data;
        let wrong = |at: usize, error: gimli::Error| {
            ObjectError::malformed(name, at as u64, error.to_string())
        };
        let mut at = 0;
        while at < data.len() {
            let section = EndianSlice::new(data, LittleEndian);
            let reader = RelocateReader::new(section, &addresses);
            let next = table.read_program(&DebugLine::from(reader), at);
            at = next.map_err(|error| wrong(at, error))?;
        }
        for rows in table.rows.values_mut() {
            // Where one sequence ends and another begins, the beginning counts.
            rows.sort_by_key(|row| (row.offset, row.place.is_some()));
        }
        Ok(table)
    }

    /// Reads one program; returns where the next begins.
    fn read_program<R: Reader<Offset = usize>>(
        &mut self,
        debug_line: &DebugLine<R>,
        at: usize,
    ) -> Result<usize, gimli::Error> {
        let program = debug_line.program(DebugLineOffset(at), ADDRESS_BYTES, None, None)?;
        let length = usize::from(program.header().format().initial_length_size());
        let next = at + length + program.header().unit_length();
        let mut files = BTreeMap::new();
        let mut rows = program.rows();
        while let Some((header, row)) = rows.next_row()? {
            let section = (row.address() >> SECTION_SHIFT) as usize;
            // What no relocation filled in belongs to code that was dropped.
            if section == 0 {
                continue;
            }
            let file = *files.entry(row.file_index()).or_insert_with(|| {
                self.files.push(path(header, row.file_index()));
                self.files.len() - 1
            });
            let line = row.line().map_or(0, |line| line.get());
            let line = u32::try_from(line).unwrap_or(u32::MAX);
            self.rows.entry(section).or_default().push(Row {
                offset: row.address() & ((1 << SECTION_SHIFT) - 1),
                place: (!row.end_sequence()).then_some((file, line)),
            });
        }
        Ok(next)
    }
}

/// The path of a file by its number in a program; empty where there is none.
fn path<R: Reader>(header: &LineProgramHeader<R>, index: u64) -> String {
    let text = |value: AttributeValue<R>| match value {
        AttributeValue::String(text) => Some(text.to_string_lossy().ok()?.into_owned()),
        _ => None,
    };
    let Some(file) = header.file(index) else {
        return String::new();
    };
    let name = text(file.path_name()).unwrap_or_default();
    let folder = file.directory(header).and_then(text).unwrap_or_default();
    match folder.is_empty() || name.starts_with('/') {
        true => name,
        false => format!("{folder}/{name}"),
    }
}

/// What the relocations of a line table fill in, by place.
#[derive(Debug)]
struct Addresses(BTreeMap<usize, Target>);

#[derive(Debug)]
struct Target {
    section: u64,
    value: u64,
    addend: Option<i64>,
}

impl Addresses {
    fn of(cubin: &Cubin, section: usize) -> Result<Addresses, ObjectError> {
        let mut found = BTreeMap::new();
        let is_for =
            |s: &&Section| matches!(s.kind, SHT_REL | SHT_RELA) && s.info as usize == section;
        for table in cubin.sections.iter().filter(is_for) {
            for relocation in relocations(table)? {
                let symbol = cubin.symbols.get(relocation.symbol as usize);
                let Some(symbol) = symbol else { continue };
                let Some(section) = symbol.section else {
                    continue;
                };
                let target = Target {
                    section: section as u64,
                    value: symbol.value,
                    addend: relocation.addend,
                };
                found.insert(
                    usize::try_from(relocation.offset).unwrap_or(usize::MAX),
                    target,
                );
            }
        }
        Ok(Addresses(found))
    }
}

impl Relocate for &Addresses {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        let Some(target) = self.0.get(&offset) else {
            return Ok(0);
        };
        let addend = target.addend.map_or(value, i64::cast_unsigned);
        let within = target.value.wrapping_add(addend) & ((1 << SECTION_SHIFT) - 1);
        Ok(target.section << SECTION_SHIFT | within)
    }

    fn relocate_offset(&self, _offset: usize, value: usize) -> gimli::Result<usize> {
        Ok(value)
    }
}
