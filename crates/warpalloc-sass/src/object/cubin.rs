//! A cubin: its header, sections, symbols and functions.

use std::fmt;
use std::str::FromStr;

use object::elf::{FileHeader64, SHT_NOBITS, SHT_SYMTAB};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{LittleEndian as LE, SectionIndex, SymbolIndex};

use super::attribute::Attribute;
use super::function::{self, Function};
use super::lines::LineTable;
use super::window::words;
use super::{AttributeKind, AttributeValue, ObjectError};

/// The architecture of an image: `sm_90`, `sm_90a`, `sm_100f`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// 90 of `sm_90a`.
    pub sm: u32,
    /// The letter behind it.
    pub variant: Option<char>,
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm)?;
        self.variant.map_or(Ok(()), |letter| write!(f, "{letter}"))
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(text: &str) -> Result<Arch, String> {
        let number = text.strip_prefix("sm_").unwrap_or(text);
        let digits = number.trim_end_matches(['a', 'f']);
        let variant = number[digits.len()..].chars().next();
        match digits.parse() {
            Ok(sm) if number.len() <= digits.len() + 1 => Ok(Arch { sm, variant }),
            _ => Err(format!(
                "`{text}` is no architecture; one is 90, sm_90 or sm_90a"
            )),
        }
    }
}

/// Whether functions of a cubin may be called from other cubins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Linkage {
    /// Linked: what runs.
    Executable,
    /// Yet to be linked with others.
    Relocatable,
}

/// A section of a cubin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Section<'d> {
    /// Its name.
    pub name: &'d str,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// Where its content begins in the cubin.
    pub offset: u64,
    /// Its bytes, also where the file holds none of them.
    pub size: u64,
    /// `sh_link`.
    pub link: u32,
    /// `sh_info`: the section it belongs to, or, of code, the symbol of the function.
    pub info: u32,
    /// Its content; empty where the file holds none, as for shared memory.
    pub data: &'d [u8],
}

/// A symbol of a cubin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Symbol<'d> {
    /// Its name.
    pub name: &'d str,
    /// Its offset in its section.
    pub value: u64,
    /// Its bytes.
    pub size: u64,
    /// Whether it names code.
    pub is_function: bool,
    /// Whether it names a kernel.
    pub is_entry: bool,
    /// The section it is in; `None` where it is defined elsewhere.
    pub section: Option<usize>,
}

/// A row of `.nv.callgraph`: symbols, or a negative number for what is called indirectly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEdge {
    /// The symbol of the caller.
    pub caller: i32,
    /// The symbol of the callee.
    pub callee: i32,
}

/// A cubin that was read; borrows names, code and values from its bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Cubin<'d> {
    /// What it runs on.
    pub arch: Arch,
    /// `e_ident[EI_ABIVERSION]`: 7 up to CUDA 12, 8 since.
    pub abi_version: u8,
    /// `e_flags`.
    pub flags: u32,
    /// Whether it is linked.
    pub linkage: Linkage,
    /// All sections, the empty one at 0 included.
    pub sections: Vec<Section<'d>>,
    /// All symbols, the empty one at 0 included.
    pub symbols: Vec<Symbol<'d>>,
    /// `.nv.info`.
    pub attributes: Vec<Attribute<'d>>,
    /// One for each `.text.NAME`, in the order of sections.
    pub functions: Vec<Function<'d>>,
    /// `.nv.callgraph`.
    pub calls: Vec<CallEdge>,
}

/// `st_other` of kernels.
const STO_ENTRY: u8 = 0x10;
const STT_FUNC: u8 = 2;
const ET_REL: u16 = 1;
/// `EICOMPAT_ATTR_CUDA_ACCELERATOR_TARGET` in `.nv.compat`.
const COMPAT_ARCH_SPECIFIC: AttributeKind = AttributeKind(0x09);
/// In `e_flags` of ABI version 7.
const FLAG_ARCH_SPECIFIC: u32 = 0x800;

type Header = FileHeader64<LE>;

/// The architecture in the ELF header of a cubin. The letter of `sm_90a` is in the header for
/// ABI version 7 only.
pub(crate) fn arch(bytes: &[u8]) -> Result<Arch, ObjectError> {
    let header = header(bytes)?;
    let flags = header.e_flags(LE).0;
    let arch = |sm, variant| Arch { sm, variant };
    match header.e_ident().abi_version {
        version @ ..=7 => {
            let specific = version == 7 && flags & FLAG_ARCH_SPECIFIC != 0;
            Ok(arch(flags & 0xff, specific.then_some('a')))
        }
        8 => Ok(arch(flags >> 8 & 0xff, None)),
        version => Err(ObjectError::Unsupported {
            what: format!("a cubin of ABI version {version}"),
            reason: "only versions up to 8 are known".to_owned(),
        }),
    }
}

fn header(bytes: &[u8]) -> Result<&Header, ObjectError> {
    // Class 2 is 64 bits, data 1 little-endian.
    if bytes.get(4..6) != Some(&[2, 1]) {
        return Err(ObjectError::Unsupported {
            what: "a 32-bit or big-endian cubin".to_owned(),
            reason: "no architecture since sm_70 has any".to_owned(),
        });
    }
    Header::parse(bytes).map_err(|error| elf_error("ELF header", &error))
}

fn elf_error(region: &str, error: &object::read::Error) -> ObjectError {
    ObjectError::malformed(region, 0u64, error.to_string())
}

impl<'d> Cubin<'d> {
    /// Reads a cubin.
    pub fn read(bytes: &'d [u8]) -> Result<Cubin<'d>, ObjectError> {
        if !Cubin::detect(bytes) {
            return Err(ObjectError::malformed("ELF header", 0u64, "not a cubin"));
        }
        let header = header(bytes)?;
        let table = header.sections(LE, bytes);
        let table = table.map_err(|error| elf_error("ELF sections", &error))?;
        let sections = sections(&table, bytes)?;
        let symbols = symbols(&table, bytes)?;
        let named = |name: &str| sections.iter().find(|s| s.name == name).map(|s| s.data);
        let attributes = named(".nv.info").unwrap_or_default();
        let attributes = Attribute::parse_all(attributes, ".nv.info")?;
        let mut arch = arch(bytes)?;
        if is_arch_specific(named(".nv.compat").unwrap_or_default())? {
            arch.variant = Some('a');
        }
        let linkage = match header.e_type(LE).0 {
            ET_REL => Linkage::Relocatable,
            _ => Linkage::Executable,
        };
        Ok(Cubin {
            arch,
            abi_version: header.e_ident().abi_version,
            flags: header.e_flags(LE).0,
            linkage,
            functions: function::collect(arch, &sections, &symbols, &attributes)?,
            calls: calls(named(".nv.callgraph").unwrap_or_default()),
            sections,
            symbols,
            attributes,
        })
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Function<'d>> {
        self.functions.iter().find(|f| f.name == name)
    }

    /// Lines of the source that instructions come from (`-lineinfo`); empty without them.
    pub fn source_lines(&self) -> Result<LineTable, ObjectError> {
        LineTable::read(self, ".debug_line")
    }

    /// Lines of the PTX that instructions come from; empty without them.
    pub fn ptx_lines(&self) -> Result<LineTable, ObjectError> {
        LineTable::read(self, ".nv_debug_line_sass")
    }
}

fn sections<'d>(
    table: &SectionTable<'d, Header>,
    bytes: &'d [u8],
) -> Result<Vec<Section<'d>>, ObjectError> {
    let section = |(index, header): (SectionIndex, &'d object::elf::SectionHeader64<LE>)| {
        let wrong = |problem: String| {
            let region = format!("section {}", index.0);
            ObjectError::malformed(region, header.sh_offset(LE), problem)
        };
        let name = table.section_name(LE, header);
        let name = name.map_err(|error| wrong(error.to_string()))?;
        let name = text(name).ok_or_else(|| wrong("its name is not text".to_owned()))?;
        let data = match header.sh_type(LE) {
            SHT_NOBITS => &[],
            _ => header.data(LE, bytes).map_err(|error| {
                let size = header.sh_size(LE);
                wrong(format!("{name}, {size} bytes: {error}"))
            })?,
        };
        Ok(Section {
            name,
            kind: header.sh_type(LE).0,
            flags: header.sh_flags(LE).0,
            offset: header.sh_offset(LE),
            size: header.sh_size(LE),
            link: header.sh_link(LE),
            info: header.sh_info(LE),
            data,
        })
    };
    table.enumerate().map(section).collect()
}

fn symbols<'d>(
    table: &SectionTable<'d, Header>,
    bytes: &'d [u8],
) -> Result<Vec<Symbol<'d>>, ObjectError> {
    let failed = |error: object::read::Error| elf_error(".symtab", &error);
    let symbols = table.symbols(LE, bytes, SHT_SYMTAB).map_err(failed)?;
    let symbol = |(index, symbol): (usize, &'d object::elf::Sym64<LE>)| {
        let wrong = |problem: String| ObjectError::malformed(".symtab", index as u64 * 24, problem);
        let name = symbols.symbol_name(LE, symbol);
        let name = name.map_err(|error| wrong(error.to_string()))?;
        let section = symbols.symbol_section(LE, symbol, SymbolIndex(index));
        let section = section.map_err(|error| wrong(error.to_string()))?;
        let is_function = symbol.st_type() == object::elf::SymbolType(STT_FUNC);
        Ok(Symbol {
            name: text(name).ok_or_else(|| wrong("a name is not text".to_owned()))?,
            value: symbol.st_value(LE),
            size: symbol.st_size(LE),
            is_function,
            is_entry: is_function && symbol.st_other().0 & STO_ENTRY != 0,
            section: section.map(|index| index.0),
        })
    };
    symbols.symbols().iter().enumerate().map(symbol).collect()
}

fn text(name: &[u8]) -> Option<&str> {
    str::from_utf8(name).ok()
}

fn is_arch_specific(compat: &[u8]) -> Result<bool, ObjectError> {
    let attributes = Attribute::parse_all(compat, ".nv.compat")?;
    let says_so = |a: &Attribute| {
        a.kind == COMPAT_ARCH_SPECIFIC && matches!(a.value, AttributeValue::Byte(1))
    };
    Ok(attributes.iter().any(says_so))
}

fn calls(data: &[u8]) -> Vec<CallEdge> {
    let (rows, _) = data.as_chunks::<8>();
    let edge = |row: &[u8; 8]| {
        let mut words = words(row).map(u32::cast_signed);
        Some(CallEdge {
            caller: words.next()?,
            callee: words.next()?,
        })
    };
    rows.iter().filter_map(edge).collect()
}

/// `sh_info` of a `.text` section holds the symbol in its low bits.
pub(crate) fn text_symbol(info: u32) -> usize {
    (info & 0x00ff_ffff) as usize
}
