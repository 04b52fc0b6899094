//! New code, and all that names places in it.

use std::collections::{BTreeMap, BTreeSet};

use super::returns::return_addresses;
use crate::cfg::{Cfg, CfgError, Links};
use crate::code::Code;
use crate::isa::{Builder, EncodeError, Flow, Inst, PlaceRef};
use crate::object::{Function, NewCode};

/// ptxas makes the size of code a multiple of this.
const CODE_ALIGNMENT: usize = 128;
/// The NOP that ptxas fills it up with.
const PADDING: u128 = 0x000f_c000_0000_0000_0000_0000_0000_7918;

/// Code cannot be inserted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// Control flow is not known.
    #[error(transparent)]
    Cfg(#[from] CfgError),
    /// An instruction cannot be written as the new code needs it.
    #[error("at 0x{offset:04x}: {error}")]
    Encode {
        /// The instruction, in the old code.
        offset: usize,
        /// What stands in the way.
        #[source]
        error: EncodeError,
    },
    /// An instruction speaks of places in the code in a way that cannot be followed.
    #[error("at 0x{offset:04x}: {mnemonic} {reason}")]
    Refused {
        /// The instruction, in the old code.
        offset: usize,
        /// Its mnemonic.
        mnemonic: &'static str,
        /// What stands in the way.
        reason: String,
    },
}

/// Instructions to insert into a function's code.
#[derive(Clone, Debug)]
pub struct Edit<'c> {
    code: &'c Code,
    links: &'c Links,
    /// Offsets of instructions that a relocation writes to.
    relocated: BTreeSet<usize>,
    entry: Vec<Inst>,
    before: BTreeMap<usize, Vec<Inst>>,
    after: BTreeMap<usize, Vec<Inst>>,
    replaced: BTreeMap<usize, Inst>,
    detours: BTreeMap<usize, Vec<Inst>>,
}

impl<'c> Edit<'c> {
    /// No changes yet to the code of `function`, decoded as `code`.
    pub fn new(function: &Function, code: &'c Code, links: &'c Links) -> Self {
        let word = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX) / 16 * 16;
        Self {
            code,
            links,
            relocated: function
                .relocations
                .iter()
                .map(|r| word(r.offset))
                .collect(),
            entry: Vec::new(),
            before: BTreeMap::new(),
            after: BTreeMap::new(),
            replaced: BTreeMap::new(),
            detours: BTreeMap::new(),
        }
    }

    /// Adds instructions that run once when the kernel begins. Jumps to its first instruction
    /// go behind them.
    pub fn at_entry(&mut self, insts: impl IntoIterator<Item = Inst>) {
        self.entry.extend(insts);
    }

    /// Adds instructions that run before instruction `index`, behind those already there. Jumps to
    /// the instruction go to them.
    pub fn before(&mut self, index: usize, insts: impl IntoIterator<Item = Inst>) {
        self.before.entry(index).or_default().extend(insts);
    }

    /// Adds instructions that run after instruction `index` where it does not jump, behind those
    /// already there. Jumps to the next instruction pass them by; a return to behind a call and
    /// threads that have met at a BSYNC run them.
    pub fn after(&mut self, index: usize, insts: impl IntoIterator<Item = Inst>) {
        self.after.entry(index).or_default().extend(insts);
    }

    /// Adds instructions that run where branch `index` is taken, behind those already there.
    pub fn on_branch(&mut self, index: usize, insts: impl IntoIterator<Item = Inst>) {
        self.detours.entry(index).or_default().extend(insts);
    }

    /// Puts another instruction in the place of one. It names the same place in the code, if any.
    pub fn replace(&mut self, index: usize, inst: Inst) {
        self.replaced.insert(index, inst);
    }

    fn refused(&self, index: usize, reason: impl Into<String>) -> EditError {
        EditError::Refused {
            offset: Code::offset(index),
            mnemonic: self.code.insts()[index].mnemonic(),
            reason: reason.into(),
        }
    }

    /// The new code.
    pub fn finish(&self) -> Result<NewCode, EditError> {
        let places = self.places();
        let mut insts = self.moved(&places)?;
        let cfg = Cfg::build(self.code, self.links)?;
        for (index, call) in return_addresses(self.code, &cfg, self.links)? {
            let returns_to = places.own[call] + 16;
            let moved = insts[index].with_moved_immediate(returns_to as u32);
            insts[index] = moved.map_err(|error| encode_error(index, error))?;
        }
        let mut bytes = Vec::with_capacity(places.end);
        let write = |bytes: &mut Vec<u8>, inst: &Inst| bytes.extend(inst.word().to_le_bytes());
        for inst in &self.entry {
            write(&mut bytes, inst);
        }
        for (index, inst) in insts.iter().enumerate() {
            for new in self.before.get(&index).into_iter().flatten() {
                write(&mut bytes, new);
            }
            let is_followed = self.after.get(&index).is_some_and(|new| !new.is_empty())
                || self
                    .before
                    .get(&(index + 1))
                    .is_some_and(|new| !new.is_empty());
            let mut control = inst.control();
            if is_followed && control.reuse != 0 {
                control.reuse = 0;
                write(&mut bytes, &inst.with_control(control));
            } else {
                write(&mut bytes, inst);
            }
            for new in self.after.get(&index).into_iter().flatten() {
                write(&mut bytes, new);
            }
        }
        for (&index, new) in self.detours.iter().filter(|(_, new)| !new.is_empty()) {
            for inst in new {
                write(&mut bytes, inst);
            }
            let back = self.way_back(index, bytes.len(), &places)?;
            write(&mut bytes, &back);
        }
        let is_larger = places.end > Code::offset(insts.len());
        while is_larger && !bytes.len().is_multiple_of(CODE_ALIGNMENT) {
            bytes.extend(PADDING.to_le_bytes());
        }
        Ok(NewCode {
            bytes,
            instructions: places.own.iter().copied().chain([places.end]).collect(),
            // The kernel begins with what is put at its entry.
            targets: [0]
                .into_iter()
                .chain(places.jump.iter().skip(1).copied())
                .chain([places.end])
                .take(self.code.insts().len() + 1)
                .collect(),
        })
    }

    fn places(&self) -> Places {
        let count = self.code.insts().len();
        let bytes = |map: &BTreeMap<usize, Vec<Inst>>, index: usize| {
            map.get(&index).map_or(0, |insts| insts.len() * 16)
        };
        let mut at = self.entry.len() * 16;
        let mut places = Places {
            own: Vec::with_capacity(count),
            jump: Vec::with_capacity(count),
            end: 0,
            detours: BTreeMap::new(),
        };
        for index in 0..count {
            places.jump.push(at);
            at += bytes(&self.before, index);
            places.own.push(at);
            at += 16 + bytes(&self.after, index);
        }
        for (&index, insts) in self.detours.iter().filter(|(_, insts)| !insts.is_empty()) {
            places.detours.insert(index, at);
            at += insts.len() * 16 + 16;
        }
        places.end = at;
        places
    }

    /// The branch from the end of a detour, which stands at `at`, to where branch `index` goes.
    fn way_back(&self, index: usize, at: usize, places: &Places) -> Result<Inst, EditError> {
        let old = &self.code.insts()[index];
        let is_branch = matches!(old.flow(), Flow::Branch { .. });
        let Some(PlaceRef::Target(distance)) = old.place().filter(|_| is_branch) else {
            return Err(self.refused(index, "is no branch that code could be put behind"));
        };
        let next = Code::offset(index + 1) as i64;
        let target = self.target(index, next.saturating_add(distance), places)?;
        Builder::new(self.code.sm())
            .bra(target as i64 - (at as i64 + 16))
            .map_err(|error| encode_error(index, error))
    }

    /// The old instructions, naming the new places.
    fn moved(&self, places: &Places) -> Result<Vec<Inst>, EditError> {
        let insts = self.code.insts().iter().enumerate();
        let inst = |(index, old): (usize, &Inst)| {
            if old.mnemonic() == "LEPC" {
                return Err(self.refused(index, "gives a register its own address"));
            }
            let Some(place) = old.place() else {
                return Ok(self.replaced.get(&index).unwrap_or(old).clone());
            };
            let now = self.replaced.get(&index).unwrap_or(old);
            if now.place() != Some(place) {
                return Err(self.refused(index, "names a place and cannot be replaced"));
            }
            if self.relocated.contains(&Code::offset(index)) {
                return Ok(now.clone());
            }
            let next = Code::offset(index + 1) as i64;
            let new = match place {
                PlaceRef::Target(distance) => {
                    self.target(index, next.saturating_add(distance), places)?
                }
                PlaceRef::Origin(distance) if next.saturating_add(distance) == 0 => 0,
                PlaceRef::Origin(_) => {
                    return Err(self.refused(index, "counts from a place other than the beginning"));
                }
            };
            let new = places.detours.get(&index).copied().unwrap_or(new);
            let distance = new as i64 - (places.own[index] as i64 + 16);
            now.with_place(distance)
                .map_err(|error| encode_error(index, error))
        };
        insts.map(inst).collect()
    }

    /// Where an old place that instruction `index` names is now.
    fn target(&self, index: usize, old: i64, places: &Places) -> Result<usize, EditError> {
        let count = self.code.insts().len();
        let target = usize::try_from(old).ok();
        let target = target.filter(|old| old.is_multiple_of(16) && old / 16 < count);
        let target = target.ok_or_else(|| {
            self.refused(
                index,
                format!("names {old:#x}, where no instruction begins"),
            )
        })? / 16;
        let insts = self.code.insts();
        let meets_behind = insts[index].mnemonic() == "BSSY"
            && target > 0
            && insts[target - 1].mnemonic() == "BSYNC";
        Ok(match meets_behind {
            true => places.own[target - 1] + 16,
            false => places.jump[target],
        })
    }
}

/// Where old instructions are in the new code.
struct Places {
    /// The instruction itself.
    own: Vec<usize>,
    /// Where a jump to it goes.
    jump: Vec<usize>,
    /// The end of the code, what is put on branches included.
    end: usize,
    /// What is put on each branch.
    detours: BTreeMap<usize, usize>,
}

fn encode_error(index: usize, error: EncodeError) -> EditError {
    EditError::Encode {
        offset: Code::offset(index),
        error,
    }
}
