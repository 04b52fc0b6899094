//! Simplify, coalesce, freeze, spill: taking the graph apart.
//!
//! The order is that of L. George and A. Appel ("Iterated Register Coalescing", TOPLAS
//! 1996). Bodies that surely find a colour and take part in no copy are removed first.
//! When none is left, a copy is coalesced if that is conservative; the smaller graph may
//! have new bodies to remove. When no copy can go, a body that would be safe gives its
//! copies up. When all bodies left are of significant degree, the one whose spill cost
//! over degree is least is removed *optimistically*: it becomes a spill only if no colour
//! is left when it comes back (P. Briggs, K. Cooper and L. Torczon, TOPLAS 1994).

use super::conservative::Verdict;
use super::graph::{Graph, Neighbour, Relief, Shared, Status};
use super::worklists::{Ease, FreezeQueue, SimplifyHeap, SpillHeap, Worth};
use crate::coalesce::{BodyId, Joint, Move, MoveId};
use crate::options::BriggsOptions;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The worklist a body waits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    None,
    Simplify,
    Freeze,
    Spill,
}

/// What has become of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MoveState {
    /// It is to be tried.
    #[default]
    Ready,
    /// It was not conservative when it was tried; it may be once this many neighbours have
    /// become insignificant.
    Waiting(u32),
    /// It is settled: coalesced, impossible or given up.
    Settled,
}

/// The graph taken apart.
pub struct Simplified<'a> {
    /// The graph with its final bodies.
    pub graph: Graph<'a>,
    /// Bodies in the order they were removed; the last is coloured first.
    pub stack: Vec<BodyId>,
    /// How many merges were made.
    pub merges: u32,
    /// A merge that verification rejects.
    pub unsound: Option<BodyId>,
}

/// Takes `graph` apart.
pub fn simplify<'a>(
    graph: Graph<'a>,
    moves: &PrimaryMap<MoveId, Move>,
    options: &BriggsOptions,
) -> Simplified<'a> {
    let mut simplifier = Simplifier::new(graph, moves, options);
    simplifier.merge_untested();
    simplifier.graph.count_degrees();
    simplifier.enter_moves();
    simplifier.enter_bodies();
    simplifier.run();
    Simplified {
        graph: simplifier.graph,
        stack: simplifier.stack,
        merges: simplifier.merges,
        unsound: simplifier.unsound,
    }
}

pub(super) struct Simplifier<'a, 'm> {
    pub(super) graph: Graph<'a>,
    moves: &'m PrimaryMap<MoveId, Move>,
    pub(super) options: &'m BriggsOptions,
    states: SecondaryMap<MoveId, MoveState>,
    /// How often each move failed its test.
    tries: SecondaryMap<MoveId, u8>,
    /// The moves of each body that may not be settled yet.
    moves_of: Vec<SmallVec<[MoveId; 2]>>,
    ready: BinaryHeap<Reverse<MoveId>>,
    lists: Vec<List>,
    safe: SimplifyHeap,
    freezable: FreezeQueue,
    candidates: SpillHeap,
    /// The degree with which each body was entered among the candidates.
    entered: Vec<u32>,
    stack: Vec<BodyId>,
    /// Bodies that some copy tried to join with others.
    copied: Vec<bool>,
    /// How many moves wait for neighbours to become insignificant.
    waiting: usize,
    merges: u32,
    unsound: Option<BodyId>,
    around: Vec<Neighbour>,
    burdened: Vec<(BodyId, u32)>,
    pub(super) shared: Vec<Shared>,
}

impl<'a, 'm> Simplifier<'a, 'm> {
    /// All of `graph`, before anything is merged or removed.
    pub(super) fn new(
        graph: Graph<'a>,
        moves: &'m PrimaryMap<MoveId, Move>,
        options: &'m BriggsOptions,
    ) -> Simplifier<'a, 'm> {
        let bodies = graph.bodies.keys().len();
        Simplifier {
            graph,
            moves,
            options,
            states: SecondaryMap::with_default(MoveState::Settled),
            tries: SecondaryMap::new(),
            moves_of: vec![SmallVec::new(); bodies],
            ready: BinaryHeap::new(),
            lists: vec![List::None; bodies],
            safe: SimplifyHeap::new(bodies),
            freezable: FreezeQueue::new(),
            candidates: SpillHeap::default(),
            entered: vec![0; bodies],
            stack: Vec::with_capacity(bodies),
            copied: vec![false; bodies],
            waiting: 0,
            merges: 0,
            unsound: None,
            around: Vec::new(),
            burdened: Vec::new(),
            shared: Vec::new(),
        }
    }

    /// Makes the merges that ask for no degree, the most frequent copies first, while there
    /// are no degrees to keep up to date.
    fn merge_untested(&mut self) {
        for (id, mv) in self.moves.iter() {
            let wanted = match mv.is_global {
                true => self.options.join_global_copies,
                false => self.options.join_live_intervals,
            };
            if self.options.disable_coalescing || !wanted {
                continue;
            }
            if let Some(joint) = self.joint(mv) {
                if self.needs_test(&joint) {
                    self.states[id] = MoveState::Ready;
                } else {
                    let kept = self.graph.unite(&joint);
                    self.note_merge(kept);
                }
            }
            let ends = [mv.to, mv.from].into_iter();
            for body in ends.filter_map(|end| self.graph.bodies.of(end)) {
                self.copied[body.index()] = true;
            }
        }
    }

    fn enter_moves(&mut self) {
        for (id, mv) in self.moves.iter() {
            if self.states[id] == MoveState::Settled {
                continue;
            }
            for value in [mv.to, mv.from] {
                if let Some(body) = self.graph.bodies.of(value) {
                    self.moves_of[body.index()].push(id);
                }
            }
            self.ready.push(Reverse(id));
        }
    }

    fn enter_bodies(&mut self) {
        for body in self.graph.bodies.keys() {
            self.list(body);
        }
    }

    fn run(&mut self) {
        loop {
            if let Some(body) = self.safe.pop() {
                self.remove(body);
            } else if let Some(id) = self.ready.pop() {
                self.try_move(id.0);
            } else if let Some(body) = self.next_to_freeze() {
                self.give_up_moves(body);
                self.list(body);
            } else if let Some(body) = self.next_candidate() {
                self.give_up_moves(body);
                self.remove(body);
            } else {
                return;
            }
        }
    }

    fn next_to_freeze(&mut self) -> Option<BodyId> {
        loop {
            let body = self.freezable.pop_front()?;
            if self.lists[body.index()] == List::Freeze {
                return Some(body);
            }
        }
    }

    fn next_candidate(&mut self) -> Option<BodyId> {
        let (graph, lists) = (&self.graph, &self.lists);
        self.candidates.pop(|body| {
            let waits = lists[body.index()] == List::Spill;
            waits.then(|| Worth::new(body, graph.cost(body), graph.degree(body)))
        })
    }

    /// Puts `body` on the list it belongs to.
    fn list(&mut self, body: BodyId) {
        let old = self.lists[body.index()];
        let new = if self.graph.status(body) != Status::Active {
            List::None
        } else if !self.graph.is_low(body) {
            List::Spill
        } else if self.has_moves(body) {
            List::Freeze
        } else {
            List::Simplify
        };
        self.lists[body.index()] = new;
        match new {
            List::None => {}
            List::Simplify => self.safe.set(body, self.ease(body)),
            List::Freeze if old != List::Freeze => self.freezable.push_back(body),
            List::Freeze => {}
            List::Spill => {
                // An entry made at a higher degree is a lower bound and still serves.
                let (cost, degree) = (self.graph.cost(body), self.graph.degree(body));
                if old != List::Spill || degree > self.entered[body.index()] {
                    self.entered[body.index()] = degree;
                    self.candidates.push(Worth::new(body, cost, degree));
                }
            }
        }
    }

    fn ease(&self, body: BodyId) -> Ease {
        Ease {
            copied: self.copied[body.index()],
            width: self.graph.bodies.get(body).shape.width,
            degree: self.graph.degree(body),
        }
    }

    fn has_moves(&mut self, body: BodyId) -> bool {
        let states = &self.states;
        let moves = &mut self.moves_of[body.index()];
        moves.retain(|&mut id| states[id] != MoveState::Settled);
        !moves.is_empty()
    }

    /// Takes `body` out of the graph and puts it on the stack.
    fn remove(&mut self, body: BodyId) {
        if self.waiting == 0 && self.remove_unobserved(body) {
            return;
        }
        let mut burdened = std::mem::take(&mut self.burdened);
        self.graph.burdened(body, &mut burdened);
        self.graph.remove(body);
        self.lists[body.index()] = List::None;
        self.stack.push(body);
        let mut harmless: SmallVec<[BodyId; 8]> = SmallVec::new();
        let counted = self.graph.is_significant(body);
        for &(neighbour, by) in &burdened {
            let was_significant = self.graph.is_significant(neighbour);
            let relief = self.graph.relieve(neighbour, by);
            if was_significant && !self.graph.is_significant(neighbour) {
                harmless.push(neighbour);
            }
            if counted {
                self.wake_moves(neighbour);
            }
            self.list_relieved(neighbour, relief);
        }
        self.burdened = burdened;
        for body in harmless {
            self.became_insignificant(body);
        }
    }

    /// The same for a body of one value while no move waits, where nobody asks who counts
    /// against merges; nothing happens to others.
    fn remove_unobserved(&mut self, body: BodyId) -> bool {
        let Some(value) = self.graph.remove_only_value(body) else {
            return false;
        };
        self.lists[body.index()] = List::None;
        self.stack.push(body);
        let (interference, shape) = (self.graph.interference, self.graph.shape_of(body));
        for edge in interference.edges(value) {
            if let Some((neighbour, relief)) = self.graph.relieve_beside(edge.value, shape) {
                self.list_relieved(neighbour, relief);
            }
        }
        true
    }

    fn list_relieved(&mut self, body: BodyId, relief: Relief) {
        match relief {
            Relief::Gone => {}
            Relief::NewlyLow => self.list(body),
            Relief::Lower => {
                if self.lists[body.index()] == List::Simplify {
                    self.safe.set(body, self.ease(body));
                }
            }
        }
    }

    /// One neighbour less counts against the copies around `body`.
    fn became_insignificant(&mut self, body: BodyId) {
        if self.waiting == 0 {
            return;
        }
        let mut burdened = std::mem::take(&mut self.burdened);
        self.graph.burdened(body, &mut burdened);
        self.wake_moves(body);
        for &(neighbour, _) in &burdened {
            self.wake_moves(neighbour);
        }
        self.burdened = burdened;
    }

    fn wake_moves(&mut self, body: BodyId) {
        for &id in &self.moves_of[body.index()] {
            match &mut self.states[id] {
                MoveState::Waiting(1) => {
                    self.waiting -= 1;
                    self.states[id] = MoveState::Ready;
                    self.ready.push(Reverse(id));
                }
                MoveState::Waiting(events) => *events -= 1,
                MoveState::Ready | MoveState::Settled => {}
            }
        }
    }

    fn give_up_moves(&mut self, body: BodyId) {
        for id in std::mem::take(&mut self.moves_of[body.index()]) {
            if self.states[id] != MoveState::Settled {
                self.settle(id);
            }
        }
    }

    /// Nothing more will happen to this move: its ends may be free of moves now.
    fn settle(&mut self, id: MoveId) {
        self.set_settled(id);
        for value in [self.moves[id].to, self.moves[id].from] {
            let body = self.graph.bodies.of(value);
            if let Some(body) = body.filter(|b| self.lists[b.index()] == List::Freeze) {
                self.list(body);
            }
        }
    }

    fn set_settled(&mut self, id: MoveId) {
        let waited = matches!(self.states[id], MoveState::Waiting(_));
        self.waiting -= waited as usize;
        self.states[id] = MoveState::Settled;
    }

    fn try_move(&mut self, id: MoveId) {
        if self.states[id] != MoveState::Ready {
            return;
        }
        let Some(joint) = self.joint(&self.moves[id]) else {
            return self.settle(id);
        };
        match self.judge(&joint) {
            Verdict::Merge => {
                self.states[id] = MoveState::Settled;
                self.merge(&joint);
            }
            Verdict::After(events) => {
                // Each failure waits at least twice as long, so that the tests of one move
                // cost no more than a few walks around its bodies.
                let tries = &mut self.tries[id];
                *tries = (*tries + 1).min(16);
                self.states[id] = MoveState::Waiting(events.max(1 << (*tries - 1)));
                self.waiting += 1;
            }
        }
    }

    /// How the ends of `mv` become one, if they may.
    fn joint(&mut self, mv: &Move) -> Option<Joint> {
        let bodies = &self.graph.bodies;
        let edges = |value| bodies.of(value).map_or(0, |id| bodies.get(id).edges as u64);
        self.graph.visits += edges(mv.to).min(edges(mv.from));
        let joint = bodies.joint(self.graph.interference, mv.to, mv.from, mv.distance);
        joint.filter(|joint| self.may_join(joint))
    }

    fn may_join(&self, joint: &Joint) -> bool {
        let in_graph = |body| matches!(self.graph.status(body), Status::Active | Status::Fixed);
        let fixed = |body| self.graph.status(body) == Status::Fixed;
        let limit = self.options.coalescing_limit;
        in_graph(joint.a)
            && in_graph(joint.b)
            && (self.options.join_phys_regs || !(fixed(joint.a) || fixed(joint.b)))
            && limit.is_none_or(|limit| self.merges < limit)
    }

    /// Merges bodies, none of which is safe to remove: those went before any move was tried.
    fn merge(&mut self, joint: &Joint) {
        for side in [joint.a, joint.b] {
            self.lists[side.index()] = List::None;
        }
        let mut around = std::mem::take(&mut self.around);
        let (kept, crossed) = self.graph.merge(joint, &mut self.shared, &mut around);
        self.note_merge(kept);
        let gone = if kept == joint.a { joint.b } else { joint.a };
        let moved = std::mem::take(&mut self.moves_of[gone.index()]);
        self.moves_of[kept.index()].extend(moved);
        self.settle_inner_moves(kept);
        self.list(kept);
        for n in &around {
            self.list(n.body);
        }
        self.around = around;
        for body in crossed {
            self.became_insignificant(body);
        }
    }

    /// Counts a merge, and verifies it if the options say so.
    fn note_merge(&mut self, kept: BodyId) {
        self.merges += 1;
        if self.options.verify_coalescing {
            let sound = self.graph.bodies.is_sound(self.graph.interference, kept);
            self.unsound = self.unsound.or((!sound).then_some(kept));
        }
    }

    /// Copies within one body are settled, whether they vanished or never can.
    fn settle_inner_moves(&mut self, body: BodyId) {
        let inner = |id: &MoveId| {
            let of = |value| self.graph.bodies.of(value);
            of(self.moves[*id].to) == of(self.moves[*id].from)
        };
        let settled: SmallVec<[MoveId; 4]> = self.moves_of[body.index()]
            .iter()
            .copied()
            .filter(inner)
            .collect();
        for id in settled {
            self.set_settled(id);
        }
    }
}
