//! Which values had better share a register, or stand side by side.
//!
//! Copies, ties and the lanes of a group say that one value had better start so many units
//! after another; of parameters and arguments [`super::congruence`] knows. A union-find with offsets gathers
//! them; the first member of a class to get a register decides where the others would like
//! to be. Nobody asks whether members interfere: an affinity is a hint, and a register that
//! is taken is not chosen.

use super::code::{Access, Code};
use crate::function::{Block, Kind, Role};
use crate::ir::Op;
use cranelift_entity::EntityRef;

const UNKNOWN: i32 = i32::MIN;
const NOWHERE: u16 = u16::MAX;

/// Hints of all values.
pub(super) struct Affinities {
    parent: Vec<u32>,
    /// Units from the parent's start.
    offset: Vec<i32>,
    /// Where the class of a representative starts.
    base: Vec<i32>,
    /// A register that one value would like to have, whatever its class says.
    wanted: Vec<u16>,
}

impl Affinities {
    pub fn find(code: &Code) -> Affinities {
        let count = code.value_count();
        let mut affinities = Affinities {
            parent: (0..count as u32).collect(),
            offset: vec![0; count],
            base: vec![UNKNOWN; count],
            wanted: vec![NOWHERE; count],
        };
        if code.program.has_hints {
            for value in code.program.values.keys() {
                if let Some(unit) = code.program.hint_of(value) {
                    affinities.wanted[value.index()] = unit as u16;
                }
            }
        }
        for block in (0..code.block_count()).map(Block::new) {
            for number in code.steps(block) {
                affinities.join_step(code, block, number);
            }
        }
        affinities
    }

    fn join_step(&mut self, code: &Code, block: Block, number: usize) {
        let step = code.step(number);
        let accesses = code.accesses(number);
        match code.op(block, step) {
            Op::Inst { inst, .. } if code.function.inst(*inst).kind == Kind::Copy => {
                self.join_copy(code, accesses);
            }
            Op::Copies(pairs) => {
                for (to, from) in pairs {
                    self.join(from.as_u32(), to.as_u32(), 0);
                }
            }
            _ => {}
        }
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
        let mut first: smallvec::SmallVec<[(u32, u32, i32); 4]> = smallvec::SmallVec::new();
        for (real, seat) in pairs.chain(code.unseated(block, step).iter().copied()) {
            let Some((link, at)) = offset(seat.as_u32()) else {
                continue;
            };
            match first.iter().find(|f| f.0 == link) {
                Some(&(_, other, other_at)) => self.join(other, real.as_u32(), at - other_at),
                None => first.push((link, real.as_u32(), at)),
            }
        }
    }

    /// The results of a copy, laid end to end, are its inputs, laid end to end.
    fn join_copy(&mut self, code: &Code, accesses: &[Access]) {
        let first = |role: Role| accesses.iter().find(|a| a.1 == role).map(|a| a.0);
        let (Some(input), Some(result)) = (first(Role::Use), first(Role::Def)) else {
            return;
        };
        if code.shape(input).file != code.shape(result).file {
            return;
        }
        self.join(input, result, 0);
        for role in [Role::Use, Role::Def] {
            let mut at = 0;
            for &(value, _) in accesses.iter().filter(|a| a.1 == role) {
                self.join(input, value, at);
                at += code.shape(value).width as i32;
            }
        }
    }

    /// The representative of `value`, and how many units after it the value starts.
    fn root(&mut self, value: u32) -> (u32, i32) {
        let (mut at, mut offset) = (value, 0);
        while self.parent[at as usize] != at {
            let up = self.parent[at as usize];
            let above = self.parent[up as usize];
            if above != up {
                self.offset[at as usize] += self.offset[up as usize];
                self.parent[at as usize] = above;
            }
            offset += self.offset[at as usize];
            at = self.parent[at as usize];
        }
        (at, offset)
    }

    /// `b` had better start `distance` units after `a`.
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
        self.parent[child as usize] = parent;
        self.offset[child as usize] = shift;
    }

    /// The units where `value` would like to start, the most wanted first.
    #[inline]
    pub fn hints(&mut self, value: u32) -> [Option<usize>; 2] {
        let wanted = self.wanted[value as usize];
        let (root, offset) = self.root(value);
        let base = self.base[root as usize];
        let class = match base {
            UNKNOWN => None,
            base => usize::try_from(base + offset).ok(),
        };
        [(wanted != NOWHERE).then_some(usize::from(wanted)), class]
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
