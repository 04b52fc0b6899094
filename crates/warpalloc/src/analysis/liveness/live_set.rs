//! The values live at one point.

use super::Liveness;
use crate::function::{Block, Operand, Role, VReg};
use crate::scratch::Scratch;
use cranelift_entity::EntityRef;

/// The values live at one point, moved backwards through a block.
///
/// A sparse set (P. Briggs and L. Torczon, 1993): adding, removing and asking take constant
/// time, emptying it costs its size, so one set serves a whole function.
///
/// ```
/// use warpalloc::analysis::{Liveness, LiveSet};
/// use warpalloc::function::{Builder, Effect};
/// use warpalloc::target::Class;
///
/// let mut b = Builder::new("f");
/// let entry = b.block();
/// let x = b.vreg(Class::R32);
/// b.inst(entry, "load").def(x).effect(Effect::Read);
/// b.inst(entry, "store").use_(x).effect(Effect::Write);
/// b.exit(entry, "exit");
/// let function = b.finish();
///
/// let liveness = Liveness::compute(&function);
/// let mut live = LiveSet::new(function.vreg_count());
/// live.start_at_end(&liveness, entry);
/// let mut live_after = Vec::new();
/// for inst in function.block_insts(entry).rev() {
///     live_after.push(live.len());
///     live.step_back(function.operands(inst));
/// }
/// assert_eq!(live_after, [0, 0, 1]);
/// ```
#[derive(Clone, Debug)]
pub struct LiveSet<V = VReg> {
    members: Vec<V>,
    /// Where each value stands among the members, if it is one.
    places: Vec<u32>,
}

impl<V: EntityRef + Ord> LiveSet<V> {
    /// The empty set for values numbered below `values`.
    pub fn new(values: usize) -> LiveSet<V> {
        LiveSet {
            members: Vec::new(),
            places: vec![0; values],
        }
    }

    /// The same in memory of `scratch`.
    pub(crate) fn new_in(values: usize, scratch: &Scratch) -> LiveSet<V>
    where
        V: Send + 'static,
    {
        LiveSet {
            members: scratch.growing(),
            places: scratch.filled(0, values),
        }
    }

    /// Leaves its memory to others.
    pub(crate) fn recycle(self, scratch: &Scratch)
    where
        V: Send + 'static,
    {
        scratch.give(self.members);
        scratch.give(self.places);
    }

    /// Whether `value` is in the set.
    pub fn contains(&self, value: V) -> bool {
        let place = self.places[value.index()] as usize;
        self.members.get(place) == Some(&value)
    }

    /// Adds `value`; says whether it was not there.
    pub fn insert(&mut self, value: V) -> bool {
        let new = !self.contains(value);
        if new {
            self.places[value.index()] = self.members.len() as u32;
            self.members.push(value);
        }
        new
    }

    /// Removes `value`; says whether it was there.
    pub fn remove(&mut self, value: V) -> bool {
        let old = self.contains(value);
        if old {
            let place = self.places[value.index()];
            self.members.swap_remove(place as usize);
            if let Some(&moved) = self.members.get(place as usize) {
                self.places[moved.index()] = place;
            }
        }
        old
    }

    /// The values, in an order that depends only on the steps that led here.
    pub fn as_slice(&self) -> &[V] {
        &self.members
    }

    /// The values, in the order of [`LiveSet::as_slice`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = V> + '_ {
        self.members.iter().copied()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.members.clear();
    }

    /// Makes it the set live out of `block`.
    pub fn start_at_end(&mut self, liveness: &Liveness<V>, block: Block) {
        self.clear();
        for value in liveness.live_out(block) {
            self.insert(value);
        }
    }

    /// Moves from after an instruction with these accesses to before it.
    pub fn step_back_over<I>(&mut self, accesses: I)
    where
        I: Iterator<Item = (V, Role)> + Clone,
    {
        for (value, role) in accesses.clone() {
            if role.writes() {
                self.remove(value);
            }
        }
        for (value, role) in accesses {
            if role.reads() {
                self.insert(value);
            }
        }
    }
}

impl LiveSet<VReg> {
    /// Moves from after an instruction with these operands to before it.
    pub fn step_back(&mut self, operands: &[Operand]) {
        self.step_back_over(operands.iter().map(|o| (o.vreg, o.role)));
    }
}
