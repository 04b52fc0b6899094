//! The functions of a cubin: code, and all the tables that speak of it.

use std::collections::BTreeMap;

use super::cubin::{Arch, Section, Symbol, text_symbol};
use super::window::{u32_at, u64_at};
use super::{Attribute, AttributeKind, Cubin, IndirectBranch, ObjectError, Parameter};
use crate::cfg::Links;
use crate::code::Code;
use crate::isa::{CallTarget, Flow, Inst};

/// A function with its own `.text` section: a kernel, or, in a cubin yet to be linked, a
/// device function.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Function<'d> {
    /// Its name, mangled as it is in the file.
    pub name: &'d str,
    /// Whether it is a kernel.
    pub is_entry: bool,
    /// Its symbol.
    pub symbol: usize,
    /// Its `.text` section.
    pub section: usize,
    /// Where its code begins in the cubin.
    pub offset: u64,
    /// Its code.
    pub code: &'d [u8],
    /// Device functions within its code, in the order of the code.
    pub inner: Vec<InnerFunction<'d>>,
    /// Registers of a thread, as launched.
    pub registers: Option<u32>,
    /// Bytes of its own frame in local memory.
    pub frame_bytes: Option<u32>,
    /// Bytes of local memory that a thread is given.
    pub stack_bytes: Option<u32>,
    /// Bytes of static shared memory, without what the system keeps.
    pub shared_bytes: u64,
    /// Bytes of shared memory at address 0 that the system keeps, where the file counts them.
    pub reserved_shared_bytes: u64,
    /// Constant banks of its own.
    pub constants: Vec<ConstantBank>,
    /// `.nv.info.NAME`.
    pub attributes: Vec<Attribute<'d>>,
    /// Places in its code that a linker or loader fills in.
    pub relocations: Vec<Relocation>,
}

/// A device function in the `.text` section of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InnerFunction<'d> {
    /// Its name.
    pub name: &'d str,
    /// Its symbol.
    pub symbol: usize,
    /// Where it begins in the section.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
    /// Bytes of its own frame.
    pub frame_bytes: Option<u32>,
}

/// A constant bank of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantBank {
    /// Its number; 0 holds the parameters.
    pub bank: u32,
    /// Its bytes.
    pub size: u64,
    /// Its section.
    pub section: usize,
}

/// A place in a section that a symbol's address goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Where in the section.
    pub offset: u64,
    /// The symbol.
    pub symbol: u32,
    /// How the address is written there, by NVIDIA's number.
    pub kind: u32,
    /// What is added to the address; `None` where it stands in the place itself.
    pub addend: Option<i64>,
}

/// From this architecture on, `.nv.shared.NAME` counts what the system keeps of shared memory.
const RESERVED_SHARED_SINCE: u32 = 90;
const RESERVED_SHARED_BYTES: u64 = 0x400;

pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHT_RELA: u32 = 4;
pub(crate) const SHT_REL: u32 = 9;

impl Function<'_> {
    /// The attribute of this kind; the first, where there are several.
    pub fn attribute(&self, kind: AttributeKind) -> Option<&Attribute<'_>> {
        self.attributes.iter().find(|a| a.kind == kind)
    }

    /// The block size it must be launched with (`.reqntid`).
    pub fn required_block(&self) -> Option<[u32; 3]> {
        self.attribute(AttributeKind::REQNTID)?.dimensions()
    }

    /// The largest block size it may be launched with (`.maxntid`, `__launch_bounds__`).
    pub fn max_block(&self) -> Option<[u32; 3]> {
        self.attribute(AttributeKind::MAX_THREADS)?.dimensions()
    }

    /// Threads of its blocks, as far as the cubin says: what it requires, or the most it takes.
    pub fn block_threads(&self) -> Option<u32> {
        let [x, y, z] = self.required_block().or_else(|| self.max_block())?;
        x.checked_mul(y)?.checked_mul(z)
    }

    /// Its parameters, by position.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut found: Vec<_> = self
            .attributes
            .iter()
            .filter_map(Attribute::parameter)
            .collect();
        found.sort_by_key(|parameter| parameter.ordinal);
        found
    }

    /// Its indirect branches with their targets. A list that is cut off is left out whole: its
    /// branches then count as branches without known targets.
    pub fn indirect_branches(&self) -> Vec<IndirectBranch> {
        self.attributes
            .iter()
            .filter(|a| a.kind == AttributeKind::INDIRECT_BRANCH_TARGETS)
            .filter_map(Attribute::indirect_branches)
            .flatten()
            .collect()
    }
}

impl Cubin<'_> {
    /// What the tables of the cubin say of control flow in `function`, whose code is `code`.
    pub fn links(&self, function: &Function, code: &Code) -> Links {
        let mut links = Links::default();
        let inner = || function.inner.iter().map(|f| offset(f.offset)).collect();
        for (index, inst) in code.insts().iter().enumerate() {
            match inst.flow() {
                Flow::Call {
                    target: CallTarget::IndirectFrom(displacement),
                } if counts_from_start(index, displacement) => {
                    links.by_address.insert(Code::offset(index), inner());
                }
                Flow::Call {
                    target: CallTarget::Indirect | CallTarget::IndirectFrom(_),
                } => links.entries = inner(),
                _ => {}
            }
        }
        for branch in function.indirect_branches() {
            let targets = branch.targets.iter().map(|&target| offset(target.into()));
            let at = offset(branch.offset.into());
            links.tables.insert(at, targets.collect());
        }
        for relocation in &function.relocations {
            let symbol = self.symbols.get(relocation.symbol as usize);
            if let Some(symbol) = symbol.filter(|symbol| symbol.is_function) {
                let is_here = symbol.section == Some(function.section);
                let target = is_here.then(|| offset(relocation.target(symbol)));
                links.calls.insert(offset(relocation.offset), target);
            }
        }
        links
    }
}

impl Relocation {
    /// The offset in the symbol's section that it names.
    pub(crate) fn target(&self, symbol: &Symbol) -> u64 {
        symbol.value.wrapping_add_signed(self.addend.unwrap_or(0))
    }
}

/// Whether the address in the registers of an indirect call counts from the beginning of the
/// code. Such an address is that of a function in this code: it is of use to no other.
fn counts_from_start(index: usize, displacement: i64) -> bool {
    let behind = i64::try_from(Code::offset(index + 1)).ok();
    behind.and_then(|behind| behind.checked_add(displacement)) == Some(0)
}

/// Whether device functions within this code may be called by address.
pub(crate) fn calls_indirectly(code: &Code) -> bool {
    let is_indirect = |inst: &Inst| {
        matches!(
            inst.flow(),
            Flow::Call {
                target: CallTarget::Indirect | CallTarget::IndirectFrom(_)
            }
        )
    };
    code.insts().iter().any(is_indirect)
}

/// An offset in code; one that no code has where the file states more than fits.
pub(super) fn offset(stated: u64) -> usize {
    usize::try_from(stated).unwrap_or(usize::MAX)
}

/// Numbers that `.nv.info` gives for symbols, by kind.
struct OfSymbols(BTreeMap<(AttributeKind, u32), u32>);

impl OfSymbols {
    fn new(attributes: &[Attribute]) -> OfSymbols {
        let of_symbol = |a: &Attribute| {
            let (symbol, number) = a.of_symbol()?;
            Some(((a.kind, symbol), number))
        };
        OfSymbols(attributes.iter().filter_map(of_symbol).collect())
    }

    fn get(&self, kind: AttributeKind, symbol: usize) -> Option<u32> {
        let symbol = u32::try_from(symbol).ok()?;
        self.0.get(&(kind, symbol)).copied()
    }
}

/// The functions of a cubin, with what its other sections say of each.
pub(crate) fn collect<'d>(
    arch: Arch,
    sections: &[Section<'d>],
    symbols: &[Symbol<'d>],
    attributes: &[Attribute<'d>],
) -> Result<Vec<Function<'d>>, ObjectError> {
    let numbers = OfSymbols::new(attributes);
    let mut functions: Vec<Function> = Vec::new();
    // By section, the position of the function whose code it is.
    let mut owner = vec![None; sections.len()];
    for (index, section) in sections.iter().enumerate() {
        let Some(name) = section.name.strip_prefix(".text.") else {
            continue;
        };
        if section.kind == SHT_NOBITS {
            continue;
        }
        owner[index] = Some(functions.len());
        functions.push(function(index, section, name, symbols, &numbers));
    }
    for (index, symbol) in symbols.iter().enumerate() {
        let of = symbol.section.and_then(|section| *owner.get(section)?);
        let Some(function) = of.and_then(|of: usize| functions.get_mut(of)) else {
            continue;
        };
        if symbol.is_function && index != function.symbol {
            function.inner.push(InnerFunction {
                name: symbol.name,
                symbol: index,
                offset: symbol.value,
                size: symbol.size,
                frame_bytes: numbers.get(AttributeKind::FRAME_SIZE, index),
            });
        }
    }
    for (index, section) in sections.iter().enumerate() {
        let of = *owner.get(section.info as usize).unwrap_or(&None);
        let Some(function) = of.and_then(|of: usize| functions.get_mut(of)) else {
            continue;
        };
        attach(arch, function, index, section)?;
    }
    for function in &mut functions {
        function
            .inner
            .sort_by_key(|inner| (inner.offset, inner.symbol));
    }
    Ok(functions)
}

fn function<'d>(
    index: usize,
    section: &Section<'d>,
    name: &'d str,
    symbols: &[Symbol<'d>],
    numbers: &OfSymbols,
) -> Function<'d> {
    let symbol = text_symbol(section.info);
    let named = symbols.get(symbol).filter(|s| s.section == Some(index));
    // Where the attribute is missing, the section's upper byte may still have the count.
    let in_section = Some(section.info >> 24).filter(|&count| count != 0);
    let of_symbol = |kind| numbers.get(kind, symbol);
    Function {
        name,
        is_entry: named.is_some_and(|s| s.is_entry),
        symbol,
        section: index,
        offset: section.offset,
        code: section.data,
        inner: Vec::new(),
        registers: of_symbol(AttributeKind::REGCOUNT).or(in_section),
        frame_bytes: of_symbol(AttributeKind::FRAME_SIZE),
        stack_bytes: of_symbol(AttributeKind::MIN_STACK_SIZE),
        shared_bytes: 0,
        reserved_shared_bytes: 0,
        constants: Vec::new(),
        attributes: Vec::new(),
        relocations: Vec::new(),
    }
}

/// Adds to `function` what `section`, whose `sh_info` names its code, says of it.
fn attach<'d>(
    arch: Arch,
    function: &mut Function<'d>,
    index: usize,
    section: &Section<'d>,
) -> Result<(), ObjectError> {
    let name = section.name;
    if name.starts_with(".nv.info.") {
        function.attributes = Attribute::parse_all(section.data, name)?;
    } else if name.starts_with(".nv.shared.") {
        let reserved = section.size.min(reserved_shared(arch));
        function.shared_bytes = section.size - reserved;
        function.reserved_shared_bytes = reserved;
    } else if let Some(bank) = constant_bank(name) {
        function.constants.push(ConstantBank {
            bank,
            size: section.size,
            section: index,
        });
    } else if matches!(section.kind, SHT_REL | SHT_RELA) {
        function.relocations.extend(relocations(section)?);
    }
    Ok(())
}

/// Bytes of shared memory at address 0 that the system keeps and `.nv.shared.NAME` counts.
pub(crate) fn reserved_shared(arch: Arch) -> u64 {
    match arch.sm >= RESERVED_SHARED_SINCE {
        true => RESERVED_SHARED_BYTES,
        false => 0,
    }
}

/// 0 of `.nv.constant0.NAME`.
fn constant_bank(section: &str) -> Option<u32> {
    let rest = section.strip_prefix(".nv.constant")?;
    let (bank, _) = rest.split_once('.')?;
    bank.parse().ok()
}

/// The relocations in a section of either kind.
pub(crate) fn relocations(section: &Section) -> Result<Vec<Relocation>, ObjectError> {
    let entry = if section.kind == SHT_RELA { 24 } else { 16 };
    if !section.data.len().is_multiple_of(entry) {
        let problem = format!("{} bytes are no table of {entry} each", section.data.len());
        return Err(ObjectError::malformed(section.name, 0u64, problem));
    }
    let relocation = |row: &[u8]| {
        Some(Relocation {
            offset: u64_at(row, 0)?,
            kind: u32_at(row, 8)?,
            symbol: u32_at(row, 12)?,
            addend: u64_at(row, 16).map(u64::cast_signed),
        })
    };
    Ok(section.data.chunks(entry).filter_map(relocation).collect())
}
