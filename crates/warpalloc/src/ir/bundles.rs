//! Bundles of pinned values.
//!
//! A pinned value may not be copied into a group's lane, so it sits there all along. The
//! lanes of a group of pinned values therefore keep their distances wherever they are live,
//! and groups that share a value form one bundle: the pair that one instruction writes and
//! the quad that another reads from it move along the register file as one. Each bundle
//! becomes a link of the real values.

use super::{Link, Value};
use crate::target::PReg;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Values at fixed distances, and where they may be.
#[derive(Clone, Debug)]
struct Bundle {
    /// Each value and its distance from an arbitrary origin.
    members: Vec<(Value, i32)>,
    /// The origin's unit is `residue` more than a multiple of this power of two.
    align: i32,
    residue: i32,
    /// The only place of the origin; the unit may be negative.
    fixed: Option<(PReg, i32)>,
}

/// All bundles of a program under construction.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    bundles: Vec<Bundle>,
    /// The bundle of each value and the value's distance from its origin.
    places: FxHashMap<Value, (usize, i32)>,
}

impl Bundles {
    /// Demands that `members` keep these distances, the one at distance 0 in a unit that is a
    /// multiple of `align`, or in `fixed`. Says whether that contradicts nothing; if it does,
    /// nothing changes.
    pub fn put(
        &mut self,
        members: impl Iterator<Item = (Value, i32)>,
        align: usize,
        fixed: Option<PReg>,
    ) -> bool {
        let mut whole = Bundle {
            members: Vec::new(),
            align: align as i32,
            residue: 0,
            fixed: fixed.map(|reg| (reg, i32::from(reg.unit))),
        };
        let mut joined: SmallVec<[usize; 4]> = SmallVec::new();
        for (value, distance) in members {
            match self.places.get(&value) {
                Some(&(old, _)) if joined.contains(&old) => {}
                Some(&(old, from)) => {
                    // The old origin lies this far from the new one.
                    if !whole.absorb(&self.bundles[old], distance - from) {
                        return false;
                    }
                    joined.push(old);
                }
                None => whole.members.push((value, distance)),
            }
            let known = whole.members.iter().find(|m| m.0 == value);
            if known.is_none_or(|&(_, known)| known != distance) {
                return false;
            }
        }
        if !whole.has_place() {
            return false;
        }
        for old in joined {
            self.bundles[old].members.clear();
        }
        for &(value, distance) in &whole.members {
            self.places.insert(value, (self.bundles.len(), distance));
        }
        self.bundles.push(whole);
        true
    }

    /// One link for each bundle.
    pub fn links(self) -> impl Iterator<Item = Link> {
        let bundles = self.bundles.into_iter();
        bundles.filter_map(|bundle| bundle.link())
    }
}

impl Bundle {
    /// Takes in `other`, whose origin lies `distance` units behind this one's.
    fn absorb(&mut self, other: &Bundle, distance: i32) -> bool {
        let coarse = self.align.min(other.align);
        let residue = other.residue - distance;
        if (self.residue - residue).rem_euclid(coarse) != 0 {
            return false;
        }
        if other.align > self.align {
            self.align = other.align;
            self.residue = residue.rem_euclid(other.align);
        }
        match (self.fixed, other.fixed) {
            (Some((reg, own)), Some((theirs, unit)))
                if own != unit - distance || reg.file != theirs.file =>
            {
                return false;
            }
            (None, Some((reg, unit))) => self.fixed = Some((reg, unit - distance)),
            _ => {}
        }
        let moved = other.members.iter();
        self.members
            .extend(moved.map(|&(v, at)| (v, at + distance)));
        true
    }

    fn has_place(&self) -> bool {
        let lowest = self.members.iter().map(|m| m.1).min().unwrap_or(0);
        self.fixed.is_none_or(|(_, unit)| {
            (unit - self.residue).rem_euclid(self.align) == 0 && unit + lowest >= 0
        })
    }

    /// The bundle as a link. Its start is where alignment asks for a multiple, so that it may
    /// lie below the first value.
    fn link(&self) -> Option<Link> {
        let lowest = self.members.iter().map(|m| m.1).min()?;
        let start = lowest - (lowest + self.residue).rem_euclid(self.align);
        let start = match self.fixed {
            Some(_) => lowest,
            None => start,
        };
        let members = self.members.iter();
        Some(Link {
            members: members
                .map(|&(value, at)| (value, (at - start) as u16))
                .collect(),
            align: match self.fixed {
                Some(_) => 1,
                None => self.align as usize,
            },
            fixed: self.fixed.map(|(reg, unit)| PReg {
                unit: (unit + start) as u16,
                ..reg
            }),
        })
    }
}
