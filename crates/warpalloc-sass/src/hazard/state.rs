//! What is in flight at one point of the code.

use super::class::Order;
use super::latency::LONGEST;
use crate::isa::Reg;

/// An access that has not happened yet, of an instruction of variable latency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Pending {
    pub reg: Reg,
    /// Whether it is a write; else a read.
    pub writes: bool,
    /// The instruction.
    pub inst: usize,
    pub order: Order,
    /// The scoreboards, any of which says that the access has happened.
    pub scoreboards: u8,
    /// Those of them that were taken so lately that a wait does not see it yet.
    pub fresh: u8,
}

impl Pending {
    fn key(&self) -> (Reg, bool, usize) {
        (self.reg, self.writes, self.inst)
    }
}

/// A result of fixed latency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Recent {
    pub reg: Reg,
    /// The instruction.
    pub inst: usize,
    /// Cycles since it issued.
    pub age: u8,
}

impl Recent {
    fn key(&self) -> (Reg, usize) {
        (self.reg, self.inst)
    }
}

/// All of these, each in order of their keys.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct State {
    pub pending: Vec<Pending>,
    pub recent: Vec<Recent>,
    /// Registers that instructions of fixed latency may still be reading.
    pub reading: Vec<Recent>,
}

impl State {
    /// Waits for scoreboards.
    pub fn wait(&mut self, scoreboards: u8) {
        if scoreboards != 0 {
            self.pending
                .retain(|pending| pending.scoreboards & !pending.fresh & scoreboards == 0);
        }
    }

    /// Lets cycles pass.
    pub fn pass(&mut self, cycles: u8) {
        for list in [&mut self.recent, &mut self.reading] {
            for recent in list.iter_mut() {
                recent.age = recent.age.saturating_add(cycles);
            }
            list.retain(|recent| recent.age < LONGEST);
        }
    }

    /// Takes in what another path brings; says whether that is new.
    pub fn join(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for theirs in &other.pending {
            match self
                .pending
                .binary_search_by_key(&theirs.key(), Pending::key)
            {
                Ok(at) => {
                    let both = self.pending[at].scoreboards & theirs.scoreboards;
                    let fresh = self.pending[at].fresh | theirs.fresh;
                    changed |=
                        (both, fresh) != (self.pending[at].scoreboards, self.pending[at].fresh);
                    self.pending[at].scoreboards = both;
                    self.pending[at].fresh = fresh;
                }
                Err(at) => {
                    self.pending.insert(at, *theirs);
                    changed = true;
                }
            }
        }
        changed |= join_recent(&mut self.recent, &other.recent);
        changed |= join_recent(&mut self.reading, &other.reading);
        changed
    }

    /// Adds a pending access, in place.
    pub fn add_pending(&mut self, new: Pending) {
        match self.pending.binary_search_by_key(&new.key(), Pending::key) {
            Ok(at) => self.pending[at] = new,
            Err(at) => self.pending.insert(at, new),
        }
    }

    /// Adds a recent result, in place.
    pub fn add_recent(&mut self, new: Recent) {
        add(&mut self.recent, new);
    }

    /// Adds a register that is being read, in place.
    pub fn add_reading(&mut self, new: Recent) {
        add(&mut self.reading, new);
    }
}

fn add(list: &mut Vec<Recent>, new: Recent) {
    match list.binary_search_by_key(&new.key(), Recent::key) {
        Ok(at) => list[at] = new,
        Err(at) => list.insert(at, new),
    }
}

/// Takes in the younger of each; says whether that is new.
fn join_recent(ours: &mut Vec<Recent>, other: &[Recent]) -> bool {
    let mut changed = false;
    for theirs in other {
        match ours.binary_search_by_key(&theirs.key(), Recent::key) {
            Ok(at) if theirs.age < ours[at].age => {
                ours[at].age = theirs.age;
                changed = true;
            }
            Ok(_) => {}
            Err(at) => {
                ours.insert(at, *theirs);
                changed = true;
            }
        }
    }
    changed
}
