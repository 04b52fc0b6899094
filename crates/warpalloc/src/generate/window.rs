//! Values that have a use to come.

use super::Rng;
use super::flight::Flight;
use crate::function::VReg;
use crate::target::Class;

#[derive(Clone, Copy, Debug)]
struct Entry {
    vreg: VReg,
    class: Class,
    /// Size in 32-bit registers, rounded up; 0 outside the general file.
    size: usize,
    /// It stays until released: an accumulator.
    kept: bool,
}

/// The values that may be read from here on, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    entries: Vec<Entry>,
    size: usize,
    /// Values that left the window and still want their last use.
    due: Vec<Entry>,
    /// Pinned values, which only instructions made for them touch.
    pub(super) in_flight: Vec<Flight>,
}

/// How far back "recent" reaches.
const RECENT: usize = 6;
/// Values of other files to hold at most; they do not count as pressure.
const OTHERS: usize = 6;

impl Window {
    pub(super) fn insert(&mut self, vreg: VReg, class: Class, size: usize) {
        self.remove(vreg);
        self.size += size;
        let kept = false;
        self.entries.push(Entry {
            vreg,
            class,
            size,
            kept,
        });
    }

    /// Lets old values go until at most `pressure` registers' worth remain.
    pub(super) fn shrink(&mut self, pressure: usize, rng: &mut Rng) {
        while self.size > pressure {
            let old: Vec<usize> = self.loose(|e| e.size > 0).take(4).collect();
            if !self.evict(&old, rng) {
                break;
            }
        }
        while self.entries.iter().filter(|e| e.size == 0).count() > OTHERS {
            let old: Vec<usize> = self.loose(|e| e.size == 0).take(2).collect();
            if !self.evict(&old, rng) {
                break;
            }
        }
    }

    fn loose(&self, wanted: impl Fn(&Entry) -> bool) -> impl Iterator<Item = usize> {
        let entries = self.entries.iter().enumerate();
        entries
            .filter(move |(_, e)| !e.kept && wanted(e))
            .map(|(i, _)| i)
    }

    fn evict(&mut self, candidates: &[usize], rng: &mut Rng) -> bool {
        let Some(&index) = rng.pick(candidates) else {
            return false;
        };
        let entry = self.entries.remove(index);
        self.size -= entry.size;
        self.due.push(entry);
        true
    }

    fn remove(&mut self, vreg: VReg) {
        self.due.retain(|e| e.vreg != vreg);
        if let Some(index) = self.entries.iter().position(|e| e.vreg == vreg) {
            self.size -= self.entries.remove(index).size;
        }
    }

    /// Keeps `vreg` in the window until [`Window::release`].
    pub(super) fn keep(&mut self, vreg: VReg) {
        if let Some(entry) = self.entries.iter_mut().find(|e| e.vreg == vreg) {
            entry.kept = true;
        }
    }

    /// Lets `vreg` go again when its time comes.
    pub(super) fn release(&mut self, vreg: VReg) {
        if let Some(entry) = self.entries.iter_mut().find(|e| e.vreg == vreg) {
            entry.kept = false;
        }
    }

    /// A value of `class` to read: one that waits for its last use if there is any, else
    /// mostly a recent one, at times an old one.
    pub(super) fn pick(&mut self, class: Class, rng: &mut Rng) -> Option<VReg> {
        if let Some(index) = self.due.iter().position(|e| e.class == class) {
            return Some(self.due.swap_remove(index).vreg);
        }
        let all = || self.entries.iter().filter(move |e| e.class == class);
        let count = all().count();
        let reach = if rng.one_in(3) {
            count
        } else {
            count.min(RECENT)
        };
        let back = rng.below(reach);
        all().rev().nth(back).map(|e| e.vreg)
    }

    /// A kept value of `class`, to accumulate into.
    pub(super) fn pick_kept(&self, class: Class, rng: &mut Rng) -> Option<VReg> {
        let kept = self.entries.iter().filter(|e| e.kept && e.class == class);
        let kept: Vec<VReg> = kept.map(|e| e.vreg).collect();
        rng.pick(&kept).copied()
    }

    /// The class of a random value.
    pub(super) fn any_class(&self, rng: &mut Rng) -> Option<Class> {
        rng.pick(&self.entries).map(|e| e.class)
    }

    /// How many values wait for their last use.
    pub(super) fn due_count(&self) -> usize {
        self.due.len()
    }

    /// Takes a value that waits for its last use.
    pub(super) fn take_due(&mut self) -> Option<(VReg, Class)> {
        self.due.pop().map(|e| (e.vreg, e.class))
    }

    /// Takes the oldest value.
    pub(super) fn take_oldest(&mut self) -> Option<(VReg, Class)> {
        if self.entries.is_empty() {
            return self.take_due();
        }
        let entry = self.entries.remove(0);
        self.size -= entry.size;
        Some((entry.vreg, entry.class))
    }

    /// 32-bit registers that the values take.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Forgets what waits for a last use, as at the start of an arm that need not give it.
    pub(super) fn forget_due(&mut self) {
        self.due.clear();
    }
}
