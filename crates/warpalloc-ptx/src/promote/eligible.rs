//! Which variables can be promoted: addresses followed forwards, every mention accounted for.

use super::sites::{Candidate, Entity, Site, Sites, kind_and_bits};
use crate::ast::{Instruction, Memory, Operand, Span};
use crate::visit::visit_names;
use std::collections::BTreeMap;

/// Why a variable stays in memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Reason {
    /// Its extent is not known, or it has contents from the start.
    #[error("its declaration is not a plain one")]
    Declaration,
    /// Another variable in reach has the same name.
    #[error("its name is declared more than once")]
    Ambiguous,
    /// A directive that is kept as text mentions it.
    #[error("a directive mentions it")]
    NamedByDirective,
    /// Nobody accesses it.
    #[error("nothing accesses it")]
    Unused,
    /// An address takes part in something other than addressing.
    #[error("its address escapes by `{name}` in `{opcode}`")]
    Escape {
        /// The name of the variable or of the register with an address in it.
        name: String,
        /// The opcode of the instruction.
        opcode: String,
    },
    /// An address has something added that is not constant.
    #[error("it is indexed by what is not constant: `{name}` in `{opcode}`")]
    DynamicIndex {
        /// The name of the variable or of the register with an address in it.
        name: String,
        /// The opcode of the instruction.
        opcode: String,
    },
    /// A register holds an address and something else, or only under a guard.
    #[error("`{name}` does not hold the same address of it throughout")]
    Redefined {
        /// The name of the register.
        name: String,
    },
    /// An address of one state space is used as one of another.
    #[error("`{opcode}` takes its address for one of another state space")]
    WrongSpace {
        /// The opcode of the instruction.
        opcode: String,
    },
    /// An access is more than a plain load or store.
    #[error("`{opcode}` is not a plain access")]
    Access {
        /// The opcode of the instruction.
        opcode: String,
    },
    /// What an access moves cannot be moved between registers.
    #[error("the value of `{opcode}` cannot be moved to or from a register")]
    Value {
        /// The opcode of the instruction.
        opcode: String,
    },
    /// An access lies outside of the variable.
    #[error("`{opcode}` accesses byte {offset}, outside of it")]
    OutOfBounds {
        /// The opcode of the instruction.
        opcode: String,
        /// Where, counted from the variable's start.
        offset: i64,
    },
    /// Two accesses overlap without touching the same bytes.
    #[error("accesses around byte {offset} overlap in part")]
    MixedWidths {
        /// Where the later one starts.
        offset: u64,
    },
    /// The accesses of the function move too much.
    #[error("the function moves more than 64 KB in and out of such variables")]
    Gate,
    /// `NumOptPhasesBudget` is spent.
    #[error("the budget of promoted functions is spent")]
    Budget,
}

/// An address in generic terms or as local memory has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Local,
    Generic,
}

/// What a name holds: the variable's start and so many bytes.
#[derive(Clone, Copy)]
struct Address {
    offset: i64,
    space: Space,
}

/// A load or store that becomes moves.
pub(super) struct Access<'a> {
    pub site: usize,
    /// Bytes from the variable's start.
    pub offset: u64,
    /// The type of one lane.
    pub ty: &'a str,
    /// Bits of one lane.
    pub bits: u32,
    pub lanes: u32,
}

impl Access<'_> {
    /// Bytes that it moves.
    pub fn bytes(&self) -> u64 {
        u64::from(self.bits / 8) * u64::from(self.lanes)
    }

    /// Where the lanes begin.
    pub fn places(&self) -> impl Iterator<Item = u64> + use<> {
        let (offset, step) = (self.offset, u64::from(self.bits / 8));
        (0..u64::from(self.lanes)).map(move |lane| offset + lane * step)
    }
}

/// How a variable is promoted.
pub(super) struct Plan<'a> {
    /// Which one.
    pub candidate: usize,
    pub bytes: u64,
    /// The instructions that make its addresses.
    pub derivations: Vec<usize>,
    /// The accesses to it, in the order of the text.
    pub accesses: Vec<Access<'a>>,
    /// Bits of each cell, by its place.
    pub cells: BTreeMap<u64, u32>,
}

/// Decides on one variable.
pub(super) fn plan<'a>(
    sites: &Sites<'_, 'a>,
    index: usize,
    candidate: &Candidate<'_, 'a>,
    address_bits: u32,
) -> Result<Plan<'a>, Reason> {
    let bytes = candidate.bytes().ok_or(Reason::Declaration)?;
    if !sites.is_unambiguous(candidate.name()) {
        return Err(Reason::Ambiguous);
    }
    let mut search = Search {
        sites,
        address_bits,
        bytes,
        accesses: Vec::new(),
        derived: Vec::new(),
    };
    let start = Address {
        offset: 0,
        space: Space::Local,
    };
    search.follow(Entity::Variable(index), start, None)?;
    let mut next = 0;
    while let Some(&(site, entity, address)) = search.derived.get(next) {
        search.follow(entity, address, Some(site))?;
        next += 1;
    }
    let Search {
        mut accesses,
        derived,
        ..
    } = search;
    if accesses.is_empty() {
        return Err(Reason::Unused);
    }
    accesses.sort_by_key(|access| access.site);
    Ok(Plan {
        candidate: index,
        bytes,
        derivations: derived.into_iter().map(|(site, ..)| site).collect(),
        cells: cells(&accesses)?,
        accesses,
    })
}

/// The places that accesses touch, if no two of them overlap in part.
fn cells(accesses: &[Access]) -> Result<BTreeMap<u64, u32>, Reason> {
    let mut cells = BTreeMap::new();
    for access in accesses {
        for offset in access.places() {
            if *cells.entry(offset).or_insert(access.bits) != access.bits {
                return Err(Reason::MixedWidths { offset });
            }
        }
    }
    let mut end = 0;
    for (&offset, bits) in &cells {
        if offset < end {
            return Err(Reason::MixedWidths { offset });
        }
        end = offset + u64::from(bits / 8);
    }
    Ok(cells)
}

/// Follows the addresses of one variable.
struct Search<'s, 'm, 'a> {
    sites: &'s Sites<'m, 'a>,
    address_bits: u32,
    bytes: u64,
    accesses: Vec<Access<'a>>,
    /// Registers with an address, and the instruction that puts it there.
    derived: Vec<(usize, Entity, Address)>,
}

impl<'m, 'a> Search<'_, 'm, 'a> {
    /// Accounts for every mention of `entity`, which holds `address` since `definition`.
    fn follow(
        &mut self,
        entity: Entity,
        address: Address,
        definition: Option<usize>,
    ) -> Result<(), Reason> {
        let sites = self.sites;
        for &index in sites.mentions(entity) {
            let site = sites.site(index);
            let mut own = site.names.iter().filter(|o| o.entity == entity);
            let (Some(mention), None) = (own.next(), own.next()) else {
                return Err(several(site.inst, entity, site));
            };
            if Some(index) != definition {
                self.mention(index, mention.span, address)?;
            }
        }
        Ok(())
    }

    fn mention(&mut self, index: usize, span: Span, address: Address) -> Result<(), Reason> {
        let site = self.sites.site(index);
        let inst = site.inst;
        if let Some(memory) = base_of(inst, span) {
            let access = self.access(index, memory, address)?;
            self.accesses.push(access);
            return Ok(());
        }
        let is_result = |o: &Operand| o.as_name().is_some_and(|name| name.span == span);
        if is_deriving(inst) && inst.operands.first().is_some_and(is_result) {
            return Err(redefined(inst));
        }
        let address = self.derive(inst, span, address)?;
        // Where the result holds anything else as well, following it will tell.
        let to = inst.operands.first().and_then(Operand::as_name);
        let to = to.and_then(|name| site.at(name.span));
        match to {
            Some(to) if to.bits == self.address_bits && inst.guard.is_none() => {
                self.derived.push((index, to.entity, address));
                Ok(())
            }
            Some(to) if to.bits == self.address_bits => Err(redefined(inst)),
            _ => Err(escape(inst, span)),
        }
    }

    /// The address that an instruction makes of the one named at `span`.
    fn derive(&self, inst: &Instruction, span: Span, from: Address) -> Result<Address, Reason> {
        let is_address = |o: &Operand| o.as_name().is_some_and(|name| name.span == span);
        let escape = || escape(inst, span);
        let (&ty, rest) = inst.modifiers.split_last().ok_or_else(escape)?;
        let is_sized =
            kind_and_bits(ty).is_some_and(|(k, bits)| k != 'f' && bits == self.address_bits);
        if !is_sized {
            return Err(escape());
        }
        match (inst.mnemonic, rest, inst.operands.as_slice()) {
            ("mov", [], [_, source]) if is_address(source) => Ok(from),
            ("cvta", ["local"], [_, source]) if is_address(source) => {
                convert(inst, from, Space::Local, Space::Generic)
            }
            ("cvta", ["to", "local"], [_, source]) if is_address(source) => {
                convert(inst, from, Space::Generic, Space::Local)
            }
            ("add", [], [_, a, b]) if is_address(a) || is_address(b) => {
                let other = if is_address(a) { b } else { a };
                let delta = self.constant(other).ok_or_else(|| dynamic(inst, span))?;
                Ok(from.moved(delta))
            }
            ("sub", [], [_, a, b]) if is_address(a) => {
                let delta = self.constant(b).ok_or_else(|| dynamic(inst, span))?;
                Ok(from.moved(delta.wrapping_neg()))
            }
            ("mad" | "sub" | "or" | "xor" | "and", ..) => Err(dynamic(inst, span)),
            _ => Err(escape()),
        }
    }

    /// A constant as something to add to an address.
    fn constant(&self, operand: &Operand) -> Option<i64> {
        let bits = operand.as_int()?;
        Some(match self.address_bits {
            32 => i64::from(bits as i32),
            _ => bits as i64,
        })
    }

    fn access(
        &self,
        index: usize,
        memory: &Memory,
        address: Address,
    ) -> Result<Access<'a>, Reason> {
        let site = self.sites.site(index);
        let inst = site.inst;
        let opcode = || inst.opcode();
        let odd = || Reason::Access { opcode: opcode() };
        let (space, lanes, ty) = plain_access(inst).ok_or_else(odd)?;
        if !memory.elements.is_empty() || memory.unified {
            return Err(odd());
        }
        if space != address.space {
            return Err(Reason::WrongSpace { opcode: opcode() });
        }
        let delta = match &memory.offset {
            None => 0,
            Some(offset) => self.constant(offset).ok_or_else(|| Reason::DynamicIndex {
                name: name_of(&memory.base),
                opcode: opcode(),
            })?,
        };
        let (_, bits) = kind_and_bits(ty).ok_or_else(odd)?;
        let offset = address.moved(delta).offset;
        let size = u64::from(lanes) * u64::from(bits / 8);
        let start = u64::try_from(offset).ok();
        let inside = start.filter(|s| s.checked_add(size).is_some_and(|end| end <= self.bytes));
        let offset = inside.ok_or_else(|| Reason::OutOfBounds {
            opcode: opcode(),
            offset,
        })?;
        let values = values(inst);
        let movable = |value: &Operand| is_movable(site, value, ty);
        if values.len() != lanes as usize || !values.iter().all(movable) {
            return Err(Reason::Value { opcode: opcode() });
        }
        Ok(Access {
            site: index,
            offset,
            ty,
            bits,
            lanes,
        })
    }
}

impl Address {
    fn moved(self, delta: i64) -> Self {
        Address {
            offset: self.offset.wrapping_add(delta),
            ..self
        }
    }
}

fn convert(
    inst: &Instruction,
    from: Address,
    expected: Space,
    to: Space,
) -> Result<Address, Reason> {
    match from.space == expected {
        true => Ok(Address { space: to, ..from }),
        false => Err(Reason::WrongSpace {
            opcode: inst.opcode(),
        }),
    }
}

/// The address of a load or store, if the name at `span` is its base.
fn base_of<'i, 'a>(inst: &'i Instruction<'a>, span: Span) -> Option<&'i Memory<'a>> {
    if !matches!(inst.mnemonic, "ld" | "st") {
        return None;
    }
    inst.operands.iter().find_map(|operand| match operand {
        Operand::Memory(memory) if memory.base.as_name()?.span == span => Some(&**memory),
        _ => None,
    })
}

/// The state space, lanes and type of a load or store that does nothing else.
fn plain_access<'a>(inst: &Instruction<'a>) -> Option<(Space, u32, &'a str)> {
    let (&ty, rest) = inst.modifiers.split_last()?;
    let (mut space, mut lanes) = (Space::Generic, 1);
    for &modifier in rest {
        match modifier {
            "local" => space = Space::Local,
            "v2" => lanes = 2,
            "v4" => lanes = 4,
            "v8" => lanes = 8,
            // Caching is nothing to a register.
            "weak" | "ca" | "cg" | "cs" | "lu" | "wb" => {}
            _ => return None,
        }
    }
    let is_memory = |at: usize| matches!(inst.operands.get(at), Some(Operand::Memory(_)));
    let in_place = match inst.mnemonic {
        "ld" => is_memory(1),
        _ => is_memory(0),
    };
    (in_place && inst.operands.len() == 2).then_some((space, lanes, ty))
}

/// What a load writes or a store reads, lane by lane.
pub(super) fn values<'i, 'a>(inst: &'i Instruction<'a>) -> &'i [Operand<'a>] {
    let at = usize::from(inst.mnemonic == "st");
    match inst.operands.get(at) {
        Some(Operand::Vector(lanes)) => lanes,
        Some(value) => std::slice::from_ref(value),
        None => &[],
    }
}

/// Whether one lane of an access can be a move or a conversion.
fn is_movable(site: &Site, value: &Operand, ty: &str) -> bool {
    let Some((kind, bits)) = kind_and_bits(ty) else {
        return false;
    };
    match value {
        Operand::Sink(_) => site.inst.mnemonic == "ld",
        Operand::Int { .. } => kind != 'f',
        Operand::Float { .. } => bits >= 32 && kind == 'f',
        Operand::Ident(_) => site.register_bits(value).is_some_and(|register| {
            register == bits || kind != 'f' && (bits.max(16)..=64).contains(&register)
        }),
        _ => false,
    }
}

fn is_deriving(inst: &Instruction) -> bool {
    matches!(inst.mnemonic, "mov" | "add" | "sub" | "cvta")
}

fn name_of(operand: &Operand) -> String {
    let name = operand.as_name();
    name.map_or_else(String::new, |name| name.text.to_owned())
}

fn text_at(inst: &Instruction, span: Span) -> String {
    let mut text = String::new();
    visit_names(inst, |name, _| {
        if name.span == span {
            name.text.clone_into(&mut text);
        }
    });
    text
}

fn escape(inst: &Instruction, span: Span) -> Reason {
    Reason::Escape {
        name: text_at(inst, span),
        opcode: inst.opcode(),
    }
}

fn dynamic(inst: &Instruction, span: Span) -> Reason {
    Reason::DynamicIndex {
        name: text_at(inst, span),
        opcode: inst.opcode(),
    }
}

fn redefined(inst: &Instruction) -> Reason {
    let name = inst.operands.first().map_or_else(String::new, name_of);
    Reason::Redefined { name }
}

/// An address that occurs twice in one instruction is changed in place, or escapes.
fn several(inst: &Instruction, entity: Entity, site: &Site) -> Reason {
    let of_entity = |o: &Operand| {
        let span = o.as_name().map(|name| name.span);
        span.and_then(|span| site.at(span))
            .is_some_and(|o| o.entity == entity)
    };
    if is_deriving(inst) && inst.operands.first().is_some_and(of_entity) {
        return redefined(inst);
    }
    let mention = site.names.iter().find(|o| o.entity == entity);
    escape(inst, mention.map_or(inst.span, |o| o.span))
}
