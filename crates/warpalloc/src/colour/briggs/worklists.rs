//! The three worklists: an indexed heap, a queue, and a heap of spill candidates.

use crate::coalesce::BodyId;
use cranelift_entity::EntityRef;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How soon a body that surely finds a place is removed; the least goes first and is
/// coloured last.
///
/// Bodies without copies go before the others, as where simplifying takes turns with
/// coalescing. Wide bodies stay longest: coloured first, they meet a file that is not
/// in fragments yet, and fewer registers are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ease {
    /// It has copies to other bodies.
    pub copied: bool,
    /// Units from its first to its last.
    pub width: u16,
    /// Its degree.
    pub degree: u32,
}

/// Bodies that can be removed safely: a heap in which a body's [`Ease`] may fall.
///
/// All of them have the infinite priority of a safe node, so the order is the tie-break:
/// [`Ease`], of which the degree is the last part, then lower number.
#[derive(Debug, Default)]
pub struct SimplifyHeap {
    heap: Vec<Entry>,
    /// Where each body stands in the heap, plus one.
    places: Vec<u32>,
}

/// A body and its [`Ease`] in one number, which is compared in one step. The degree of what is
/// safe is below its places, and so has 16 bits at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u64);

impl Entry {
    fn new(ease: Ease, body: BodyId) -> Entry {
        debug_assert!(ease.width < 1 << 15 && ease.degree < 1 << 16);
        let ease =
            u64::from(ease.copied) << 31 | u64::from(ease.width) << 16 | u64::from(ease.degree);
        Entry(ease << 32 | body.index() as u64)
    }

    fn body(self) -> BodyId {
        BodyId::new(self.0 as u32 as usize)
    }
}

impl SimplifyHeap {
    /// An empty heap for bodies numbered below `bodies`.
    pub fn new(bodies: usize) -> SimplifyHeap {
        SimplifyHeap {
            heap: Vec::new(),
            places: vec![0; bodies],
        }
    }

    /// Adds `body`, or lowers its ease.
    pub fn set(&mut self, body: BodyId, ease: Ease) {
        let entry = Entry::new(ease, body);
        match self.places[body.index()] {
            0 => {
                self.heap.push(entry);
                self.rise(self.heap.len() - 1);
            }
            place => {
                let at = place as usize - 1;
                debug_assert!(entry <= self.heap[at]);
                self.heap[at] = entry;
                self.rise(at);
            }
        }
    }

    /// Takes the body of the least ease out.
    pub fn pop(&mut self) -> Option<BodyId> {
        let body = self.heap.first()?.body();
        self.heap.swap_remove(0);
        self.places[body.index()] = 0;
        if !self.heap.is_empty() {
            self.sink();
        }
        Some(body)
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.heap.swap(at, (at - 1) / 2);
            self.note(at);
            at = (at - 1) / 2;
        }
        self.note(at);
    }

    /// Brings the first entry to its place.
    fn sink(&mut self) {
        let mut at = 0;
        loop {
            let children = [2 * at + 1, 2 * at + 2];
            let inside = children.into_iter().filter(|&c| c < self.heap.len());
            let Some(child) = inside.min_by_key(|&c| self.heap[c]) else {
                break;
            };
            if self.heap[at] <= self.heap[child] {
                break;
            }
            self.heap.swap(at, child);
            self.note(at);
            at = child;
        }
        self.note(at);
    }

    fn note(&mut self, at: usize) {
        self.places[self.heap[at].body().index()] = at as u32 + 1;
    }
}

/// Bodies that would be safe to remove but for a copy that may yet vanish: first in,
/// first out.
pub type FreezeQueue = VecDeque<BodyId>;

/// How much a body is worth keeping in a register: its spill cost over its degree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    ratio: f32,
    degree: u32,
    body: BodyId,
}

impl Worth {
    /// The worth of `body`.
    pub fn new(body: BodyId, cost: f32, degree: u32) -> Worth {
        Worth {
            ratio: cost / degree.max(1) as f32,
            degree,
            body,
        }
    }
}

impl Eq for Worth {}

impl Ord for Worth {
    fn cmp(&self, other: &Worth) -> std::cmp::Ordering {
        let by_ratio = self.ratio.total_cmp(&other.ratio);
        by_ratio
            .then(self.degree.cmp(&other.degree))
            .then(self.body.cmp(&other.body))
    }
}

impl PartialOrd for Worth {
    fn partial_cmp(&self, other: &Worth) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Bodies of significant degree, the least worth keeping first.
///
/// A degree that falls makes its body worth more, so an entry that was not brought up to
/// date is a lower bound: it is checked when it comes up and goes back if it was wrong.
/// A degree that rises enters its body again.
#[derive(Debug, Default)]
pub struct SpillHeap {
    heap: BinaryHeap<Reverse<Worth>>,
}

impl SpillHeap {
    /// Enters a body.
    pub fn push(&mut self, worth: Worth) {
        self.heap.push(Reverse(worth));
    }

    /// Takes out the body worth least, by its `current` worth; bodies for which that is
    /// `None` are dropped.
    pub fn pop(&mut self, current: impl Fn(BodyId) -> Option<Worth>) -> Option<BodyId> {
        while let Some(Reverse(entry)) = self.heap.pop() {
            match current(entry.body) {
                None => {}
                Some(worth) if worth > entry => self.heap.push(Reverse(worth)),
                Some(_) => return Some(entry.body),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_degree(degree: u32) -> Ease {
        Ease {
            degree,
            ..Ease::default()
        }
    }

    #[test]
    fn wide_bodies_and_those_that_copies_join_stay_in_the_graph_longer() {
        let ease = |copied, width, degree| Ease {
            copied,
            width,
            degree,
        };
        let order = [
            ease(false, 2, 9),
            ease(false, 4, 1),
            ease(true, 1, 0),
            ease(true, 2, 0),
        ];
        let mut heap = SimplifyHeap::new(order.len());
        for (index, &ease) in order.iter().enumerate().rev() {
            heap.set(BodyId::new(index), ease);
        }
        let popped: Vec<usize> = std::iter::from_fn(|| heap.pop())
            .map(|b| b.index())
            .collect();
        assert_eq!(popped, [0, 1, 2, 3]);
    }

    #[test]
    fn the_safe_body_of_lowest_degree_goes_first_then_the_lowest_number() {
        let bodies: Vec<BodyId> = (0..5).map(BodyId::new).collect();
        let mut heap = SimplifyHeap::new(5);
        for (&body, degree) in bodies.iter().zip([4, 2, 2, 9, 1]) {
            heap.set(body, of_degree(degree));
        }
        heap.set(bodies[3], of_degree(0));
        let order: Vec<_> = std::iter::from_fn(|| heap.pop()).collect();
        let expected = [3, 4, 1, 2, 0].map(|number: usize| bodies[number]);
        assert_eq!(order, expected);
    }

    #[test]
    fn the_heap_agrees_with_sorting() {
        let mut state = 1u64;
        let mut next = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        let mut heap = SimplifyHeap::new(64);
        let mut model = std::collections::BTreeMap::new();
        for _ in 0..20_000 {
            let body = BodyId::new(next(64) as usize);
            match next(3) {
                0 => {
                    let best = model.iter().map(|(&b, &d)| (d, b)).min();
                    assert_eq!(heap.pop(), best.map(|(_, b)| b));
                    best.map(|(_, b)| model.remove(&b));
                }
                _ => {
                    let degree = model.get(&body).map_or(40, |&degree| degree);
                    let degree = next(u64::from(degree) + 1) as u32;
                    heap.set(body, of_degree(degree));
                    model.insert(body, degree);
                }
            }
        }
    }

    /// Cost ÷ (degree × factor), then lower degree, then lower number. The factor is the
    /// same for all, so that it moves nobody.
    #[test]
    fn candidates_go_by_cost_over_degree_then_lower_degree_then_lower_number() {
        let costs_and_degrees = [
            (40.0, 20),
            (8.0, 4),
            (20.0, 10),
            (20.0, 10),
            (9.0, 30),
            (60.0, 20),
        ];
        let mut heap = SpillHeap::default();
        let worth = |body: BodyId| {
            let (cost, degree) = costs_and_degrees[body.index()];
            Worth::new(body, cost, degree)
        };
        let bodies: Vec<BodyId> = (0..6).map(BodyId::new).collect();
        bodies.iter().for_each(|&body| heap.push(worth(body)));
        let order: Vec<_> = std::iter::from_fn(|| heap.pop(|body| Some(worth(body)))).collect();
        let numbers: Vec<usize> = order.iter().map(|body| body.index()).collect();
        assert_eq!(numbers, [4, 1, 2, 3, 0, 5]);
        for factor in [0.5, 0.8, 1.0] {
            let ratio = |body: &BodyId| {
                let (cost, degree) = costs_and_degrees[body.index()];
                cost / (degree as f32 * factor)
            };
            assert!(order.is_sorted_by_key(ratio), "{factor}");
        }
    }

    #[test]
    fn a_stale_spill_candidate_goes_back() {
        let [a, b] = [0, 1].map(BodyId::new);
        let mut heap = SpillHeap::default();
        heap.push(Worth::new(a, 10.0, 10));
        heap.push(Worth::new(b, 20.0, 10));
        // Meanwhile the degree of `a` fell to 2: it is worth 5 now.
        let current = |body| {
            Some(Worth::new(
                body,
                if body == a { 10.0 } else { 20.0 },
                if body == a { 2 } else { 10 },
            ))
        };
        assert_eq!(heap.pop(current), Some(b));
        assert_eq!(heap.pop(current), Some(a));
        assert_eq!(heap.pop(current), None);
    }
}
