//! Which values had better share a register, or stand side by side.
//!
//! Copies, ties and the lanes of a group say that one value had better start so many units
//! after another, congruent parameters and arguments that they had better start together. A
//! union-find with offsets gathers them; the first member of a class to get a register
//! decides where the others would like to be. Nobody asks whether members interfere: an
//! affinity is a hint, and a register that is taken is not chosen.
//!
//! A class with lanes of a group has a [`Window`]: the units that its groups take, and their
//! alignment. The first member looks for a place where the whole window is free, so that the
//! others can follow.

use super::code::{Access, Code};
use super::congruence::Congruence;
use super::demand::extent;
use crate::function::{Block, Role};
use crate::ir::Op;
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

const UNKNOWN: i32 = i32::MIN;
const NOWHERE: u16 = u16::MAX;
/// A class of more units follows no single group any more.
const MAX_WINDOW: i32 = 64;

/// The units that the groups of a class take, counted from the start of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub low: i32,
    pub high: i32,
    align: i32,
    /// A place that must be a multiple of `align`.
    aligned: i32,
}

impl Window {
    /// The same window, counted from a place `offset` units further.
    fn from(self, offset: i32) -> Window {
        Window {
            low: self.low - offset,
            high: self.high - offset,
            align: self.align,
            aligned: self.aligned - offset,
        }
    }

    /// The window of both, if their alignments agree.
    fn with(self, other: Window) -> Option<Window> {
        let (strict, loose) = match self.align >= other.align {
            true => (self, other),
            false => (other, self),
        };
        let both = Window {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            ..strict
        };
        let agrees = (strict.aligned - loose.aligned).rem_euclid(loose.align) == 0;
        (agrees && both.high - both.low <= MAX_WINDOW).then_some(both)
    }

    /// Whether a member that starts at `unit` has the groups aligned, within `units`.
    pub fn suits(self, unit: usize, units: usize) -> bool {
        let unit = unit as i32;
        let is_aligned = (unit + self.aligned).rem_euclid(self.align) == 0;
        is_aligned && unit + self.low >= 0 && unit + self.high <= units as i32
    }
}

/// Hints of all values.
pub(super) struct Affinities {
    /// Empty where each value is its own.
    parent: Vec<u32>,
    /// Units from the parent's start.
    offset: Vec<i32>,
    /// Where the class of a representative starts.
    base: Vec<i32>,
    /// A register that one value would like to have, whatever its class says.
    wanted: Vec<u16>,
    /// The window of each representative's class; empty if there are no groups.
    windows: Vec<Option<Window>>,
}

impl Affinities {
    pub fn find(code: &Code, congruence: &Congruence) -> Affinities {
        let (own, base) = (code.value_count(), vec![UNKNOWN; code.value_count()]);
        let is_joined =
            code.has_copies() || !code.program.links.is_empty() || code.program.has_hints;
        // Otherwise each value has a class of its own.
        let count = if is_joined { own } else { 0 };
        let mut affinities = Affinities {
            parent: (0..count as u32).collect(),
            offset: vec![0; count],
            base,
            wanted: vec![NOWHERE; count],
            windows: Vec::new(),
        };
        if !is_joined {
            return affinities;
        }
        if code.program.has_hints {
            for value in code.program.values.keys() {
                if let Some(unit) = code.program.hint_of(value) {
                    affinities.wanted[value.index()] = unit as u16;
                }
            }
        }
        // Lanes first: a copy had better not part a group.
        if !code.program.links.is_empty() {
            affinities.windows = vec![None; count];
            affinities.join_all(code, Affinities::join_lanes);
            for members in congruence.all_members() {
                for &member in &members[1..] {
                    affinities.join(members[0], member, 0);
                }
            }
        }
        affinities.join_all(code, Affinities::join_copies);
        affinities
    }

    fn join_all(&mut self, code: &Code, join: fn(&mut Affinities, &Code, Block, usize)) {
        for block in (0..code.block_count()).map(Block::new) {
            for number in code.steps(block) {
                join(self, code, block, number);
            }
        }
    }

    /// The values that sit in one link had better be side by side.
    fn join_lanes(&mut self, code: &Code, block: Block, number: usize) {
        let step = code.step(number);
        if !step.constrained {
            return;
        }
        let offset = |seat| {
            let link = code.link_of(seat)?;
            let members = &code.program.links[link as usize].members;
            let at = members.iter().find(|m| m.0.as_u32() == seat)?.1;
            Some((link, i32::from(at)))
        };
        let pairs = code
            .seated(block, step)
            .iter()
            .map(|&(seat, real)| (real, seat));
        let mut first: SmallVec<[(u32, u32, i32); 4]> = SmallVec::new();
        for (real, seat) in pairs.chain(code.unseated(block, step).iter().copied()) {
            let (real, Some((link, at))) = (real.as_u32(), offset(seat.as_u32())) else {
                continue;
            };
            match first.iter().find(|f| f.0 == link) {
                Some(&(_, other, other_at)) => self.join(other, real, at - other_at),
                None => {
                    first.push((link, real, at));
                    let (_, width, align) = extent(code, &code.program.links[link as usize]);
                    let (root, offset) = self.root(real);
                    let found = Window {
                        low: offset - at,
                        high: offset - at + width as i32,
                        align: align as i32,
                        aligned: offset - at,
                    };
                    let window = &mut self.windows[root as usize];
                    *window = window.map_or(Some(found), |w| w.with(found).or(Some(w)));
                }
            }
        }
    }

    fn join_copies(&mut self, code: &Code, block: Block, number: usize) {
        let step = code.step(number);
        if !step.copies {
            return;
        }
        if step.inst().is_some() {
            self.join_copy(code, code.accesses(number));
        } else if let Some(Op::Copies(pairs)) = code.op(block, step) {
            for (to, from) in pairs {
                self.join_copied(from.as_u32(), to.as_u32(), 0);
            }
        }
    }

    /// As [`Affinities::join`], but two groups stay apart: one value may be copied to many.
    fn join_copied(&mut self, a: u32, b: u32, distance: i32) {
        if self.window(a).is_none() || self.window(b).is_none() {
            self.join(a, b, distance);
        }
    }

    /// The results of a copy, laid end to end, are its inputs, laid end to end.
    fn join_copy(&mut self, code: &Code, accesses: &[Access]) {
        let first = |role: Role| accesses.iter().find(|a| a.role == role).map(|a| a.value);
        let (Some(input), Some(result)) = (first(Role::Use), first(Role::Def)) else {
            return;
        };
        if code.shape(input).file != code.shape(result).file {
            return;
        }
        self.join_copied(input, result, 0);
        for role in [Role::Use, Role::Def] {
            let mut at = 0;
            for &Access { value, .. } in accesses.iter().filter(|a| a.role == role) {
                self.join_copied(input, value, at);
                at += code.shape(value).width as i32;
            }
        }
    }

    /// The representative of `value`, and how many units after it the value starts.
    #[inline]
    fn root(&mut self, value: u32) -> (u32, i32) {
        if self.parent.is_empty() {
            return (value, 0);
        }
        let (mut at, mut offset) = (value, 0);
        while self.parent[at as usize] != at {
            // A representative is its own parent, at no distance.
            let up = self.parent[at as usize];
            self.offset[at as usize] += self.offset[up as usize];
            self.parent[at as usize] = self.parent[up as usize];
            offset += self.offset[at as usize];
            at = self.parent[at as usize];
        }
        (at, offset)
    }

    /// `b` had better start `distance` units after `a`, if their groups allow it.
    fn join(&mut self, a: u32, b: u32, distance: i32) {
        let ((root_a, at_a), (root_b, at_b)) = (self.root(a), self.root(b));
        if root_a == root_b {
            return;
        }
        // b = root_b + at_b = root_a + at_a + distance.
        let shift = at_a + distance - at_b;
        let (child, parent, shift) = match root_a < root_b {
            true => (root_b, root_a, shift),
            false => (root_a, root_b, -shift),
        };
        if !self.windows.is_empty() {
            let own = self.windows[parent as usize];
            let added = self.windows[child as usize].map(|window| window.from(-shift));
            let both = match (own, added) {
                (Some(own), Some(added)) => match own.with(added) {
                    Some(both) => Some(both),
                    None => return,
                },
                (own, added) => own.or(added),
            };
            self.windows[parent as usize] = both;
        }
        self.parent[child as usize] = parent;
        self.offset[child as usize] = shift;
    }

    /// The units where `value` would like to start, the most wanted first.
    #[inline]
    pub fn hints(&mut self, value: u32) -> [Option<usize>; 2] {
        let wanted = self.wanted.get(value as usize).copied();
        let wanted = wanted.filter(|&wanted| wanted != NOWHERE);
        let (root, offset) = self.root(value);
        let base = self.base[root as usize];
        let class = match base {
            UNKNOWN => None,
            base => usize::try_from(base + offset).ok(),
        };
        [wanted.map(usize::from), class]
    }

    /// The window of the class of `value`, counted from its start.
    #[inline]
    pub fn window(&mut self, value: u32) -> Option<Window> {
        if self.windows.is_empty() {
            return None;
        }
        let (root, offset) = self.root(value);
        self.windows[root as usize].map(|window| window.from(offset))
    }

    /// Whether nobody has decided yet where the class of `value` is.
    pub fn is_undecided(&mut self, value: u32) -> bool {
        let (root, _) = self.root(value);
        self.base[root as usize] == UNKNOWN
    }

    /// Notes that `value` starts at `unit`.
    #[inline]
    pub fn settle(&mut self, value: u32, unit: usize) {
        let (root, offset) = self.root(value);
        let base = &mut self.base[root as usize];
        if *base == UNKNOWN {
            *base = unit as i32 - offset;
        }
    }
}
