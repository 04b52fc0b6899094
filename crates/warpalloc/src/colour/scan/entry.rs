//! What each block has in registers when it is entered.
//!
//! Where paths meet, first the values that all predecessors have in registers, then those
//! that some have, nearest use first, while there is room. A loop header is entered before
//! its back edges are known, and what it has decides what is reloaded in each round: it
//! takes the values that the loop reads, nearest use first, and then as many of those that
//! only live through it as leave room for the fullest block of the loop.

use super::code::{Code, Edge, FILES};
use super::demand::{Load, Rooms};
use super::next_use::NextUse;
use super::pressure::Pressure;
use super::spill::{PerFile, Plan, Resident};
use crate::analysis::Loop;
use crate::function::Block;
use cranelift_entity::{EntityRef, SecondaryMap};

/// Chooses entry sets, block after block in reverse post-order.
pub(super) struct EntrySets {
    done: Vec<bool>,
    /// Blocks of each loop, those of inner loops included.
    blocks: SecondaryMap<Loop, Vec<Block>>,
    fullest: SecondaryMap<Loop, PerFile>,
    /// By value, the edge or the loop that last marked it.
    at_exit: Vec<u32>,
    clean_at_exit: Vec<u32>,
    read_in: Vec<u32>,
    marks: u32,
    candidates: Vec<Candidate>,
}

#[derive(Clone, Copy)]
struct Candidate {
    value: u32,
    /// How many edges bring it in a register.
    edges: u32,
    /// Its slot is current along every edge.
    clean: bool,
    distance: u32,
    is_param: bool,
}

impl EntrySets {
    pub fn new(code: &Code, pressure: &Pressure) -> EntrySets {
        let mut blocks: SecondaryMap<Loop, Vec<Block>> = SecondaryMap::new();
        let mut fullest: SecondaryMap<Loop, PerFile> = SecondaryMap::new();
        for block in (0..code.block_count()).map(Block::new) {
            for around in code.loops.around(block) {
                blocks[around].push(block);
                for file in 0..FILES {
                    let most = &mut fullest[around][file];
                    *most = (*most).max(pressure.block(block, file));
                }
            }
        }
        EntrySets {
            done: vec![false; code.block_count()],
            blocks,
            fullest,
            at_exit: vec![0; code.value_count()],
            clean_at_exit: vec![0; code.value_count()],
            read_in: vec![0; code.value_count()],
            marks: 0,
            candidates: Vec::new(),
        }
    }

    /// Adds what `block` begins with to `plan`.
    pub fn choose(
        &mut self,
        code: &Code,
        rooms: &Rooms,
        block: Block,
        next: &NextUse,
        plan: &mut Plan,
    ) {
        let is_plain = code.params(block).is_empty() && code.program.links.is_empty();
        if let [number] = *code.incoming(block)
            && is_plain
            && self.done[code.edges()[number as usize].from.index()]
        {
            self.follow(code, &code.edges()[number as usize], plan);
            return;
        }
        let edges = self.gather(code, block, next, plan);
        let mut candidates = std::mem::take(&mut self.candidates);
        let mut load = Load::default();
        let mut taken = Vec::with_capacity(candidates.len());
        let mut take = |c: &Candidate, load: &mut Load| {
            let shape = code.shape(c.value);
            load.add(shape);
            match !shape.reaches_memory || load.fits_file(rooms.whole(), shape.file) {
                true => taken.push(*c),
                false => load.remove(shape),
            }
        };
        let stay = |c: &Candidate| !code.shape(c.value).reaches_memory;
        for c in candidates.iter().filter(|c| stay(c)) {
            take(c, &mut load);
        }
        candidates.retain(|c| !stay(c));
        match code
            .loops
            .innermost(block)
            .filter(|_| code.loops.is_header(block))
        {
            None => {
                let is_held = |c: &Candidate| c.edges > 0 || edges == 0;
                let mut all = load;
                let held = candidates.iter().filter(|c| is_held(c));
                held.for_each(|c| all.add(code.shape(c.value)));
                // Where there is room for all, none comes first.
                if !all.fits(rooms.whole()) {
                    let key = |c: &Candidate| (edges - c.edges.min(edges), c.distance, c.value);
                    candidates.sort_unstable_by_key(key);
                }
                let held = candidates.iter().filter(|c| is_held(c));
                held.for_each(|c| take(c, &mut load));
            }
            Some(header_of) => {
                self.mark_reads(code, header_of);
                let is_read = |c: &Candidate| self.read_in[c.value as usize] == self.marks;
                // A parameter outside registers is stored in every round as well as reloaded.
                let near = |c: &Candidate| match c.is_param {
                    true => c.distance / 2,
                    false => c.distance,
                };
                candidates.sort_unstable_by_key(|c| (near(c), c.value));
                let read = candidates.iter().filter(|c| is_read(c));
                read.for_each(|c| take(c, &mut load));
                let mut room = self.room_beside(code, rooms, header_of, &candidates);
                let through = candidates.iter().filter(|c| !is_read(c) && c.edges > 0);
                for c in through {
                    let shape = code.shape(c.value);
                    if room[shape.file] >= shape.width as i32 {
                        room[shape.file] -= shape.width as i32;
                        take(c, &mut load);
                    }
                }
            }
        }
        self.marks += 1;
        for c in &taken {
            self.at_exit[c.value as usize] = self.marks;
        }
        let missing = candidates.iter().map(|c| c.value);
        let missing = missing.filter(|&v| self.at_exit[v as usize] != self.marks);
        plan.in_memory.add(block, missing);
        let residents = taken.iter().map(|c| Resident {
            value: c.value,
            clean: c.clean,
        });
        plan.entry.add(block, residents);
        self.candidates = candidates;
        self.done[block.index()] = true;
    }

    /// Lets a block begin with what the one before it ends with, to which only that leads: there is
    /// room for all of it.
    fn follow(&mut self, code: &Code, edge: &Edge, plan: &mut Plan) {
        self.mark_exit(edge.from, plan);
        let (block, marks) = (edge.to, self.marks);
        let is_held = |value: u32| self.at_exit[value as usize] == marks;
        let stays = |value: &u32| is_held(*value) || !code.shape(*value).reaches_memory;
        let residents = code.live_in(block).filter(stays).map(|value| Resident {
            value,
            clean: !is_held(value)
                || self.clean_at_exit[value as usize] == marks
                || plan.remat.is_free(value),
        });
        plan.entry.add(block, residents);
        let missing = code.live_in(block).filter(|value| !stays(value));
        plan.in_memory.add(block, missing);
        self.done[block.index()] = true;
    }

    /// Marks what `block` ends with in registers.
    fn mark_exit(&mut self, block: Block, plan: &Plan) {
        self.marks += 1;
        for resident in plan.exit.of(block) {
            self.at_exit[resident.value as usize] = self.marks;
            if resident.clean {
                self.clean_at_exit[resident.value as usize] = self.marks;
            }
        }
    }

    /// Finds out how each value live into `block` arrives; returns along how many edges that
    /// is known.
    fn gather(&mut self, code: &Code, block: Block, next: &NextUse, plan: &Plan) -> u32 {
        let params = code.params(block).len();
        self.candidates.clear();
        self.candidates
            .extend(code.live_in(block).map(|value| Candidate {
                value,
                edges: 0,
                clean: plan.remat.is_free(value),
                distance: next.of(value),
                is_param: false,
            }));
        // Parameters come last.
        let live = self.candidates.len();
        for c in &mut self.candidates[live - params..] {
            c.is_param = true;
        }
        let mut known = 0;
        let mut unknown = false;
        for &number in code.incoming(block) {
            let edge = &code.edges()[number as usize];
            if !self.done[edge.from.index()] {
                unknown = true;
                continue;
            }
            known += 1;
            self.mark_exit(edge.from, plan);
            let pairs = code.pairs(edge);
            for (at, c) in self.candidates.iter_mut().enumerate() {
                let source = match c.is_param {
                    true => pairs[at - (live - params)].1,
                    false => c.value,
                };
                let held = self.at_exit[source as usize] == self.marks;
                c.edges += u32::from(held);
                let clean = !held || self.clean_at_exit[source as usize] == self.marks;
                c.clean = match known {
                    1 => clean && !c.is_param,
                    _ => c.clean && clean,
                };
            }
        }
        for c in &mut self.candidates {
            // A definition on a path not yet seen would leave the slot stale.
            c.clean &= known > 0 && (!unknown || plan.remat.is_defined_once(c.value));
            c.clean |= plan.remat.is_free(c.value);
        }
        known
    }

    fn mark_reads(&mut self, code: &Code, header_of: Loop) {
        self.marks += 1;
        for &block in &self.blocks[header_of] {
            for number in code.steps(block) {
                let accesses = code.accesses(number);
                for access in accesses {
                    if access.role.reads() {
                        self.read_in[access.value as usize] = self.marks;
                    }
                }
            }
            for edge in &code.edges()[code.outgoing(block)] {
                for &(_, arg) in code.pairs(edge) {
                    self.read_in[arg as usize] = self.marks;
                }
            }
        }
    }

    /// Units that the fullest block of a loop leaves to values that only live through it.
    fn room_beside(
        &self,
        code: &Code,
        rooms: &Rooms,
        header_of: Loop,
        candidates: &[Candidate],
    ) -> PerFile {
        let mut room = [0; FILES];
        for (file, units) in room.iter_mut().enumerate() {
            *units = rooms.whole().units(file) - self.fullest[header_of][file];
        }
        for c in candidates {
            if self.read_in[c.value as usize] != self.marks {
                let shape = code.shape(c.value);
                room[shape.file] += shape.width as i32;
            }
        }
        room
    }
}
