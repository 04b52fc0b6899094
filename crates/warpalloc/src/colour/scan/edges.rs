//! Code on edges: every value goes from where its block left it to where the next expects it.
//!
//! On each edge, first values are stored whose slot has to be current, and arguments of
//! parameters that live in memory; then all registers move at once; then values come back
//! from memory.

mod fills;
mod unread;

use super::code::{Code, Edge, NONE, NOWHERE};
use super::fragments::Assigned;
use super::moves::push_moves;
use super::spill::Plan;
use super::stores::{Exits, Stores};
use crate::allocation::{Edit, Point, SlotAddr};
use crate::cleanup::Inserted;
use crate::function::{Block, Convention, Inst};
use crate::target::{File, PReg, UnitSet};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;
use unread::Walk;

/// Where a value comes from on an edge.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Register(PReg),
    Slot(SlotAddr),
    Computed(Inst),
}

impl Source {
    fn is_slot(self, slot: SlotAddr) -> bool {
        self == Source::Slot(slot)
    }
}

/// Registers that are loaded once the registers have moved: from where, and how wide.
type Fetches = SmallVec<[(PReg, Source, usize); 8]>;

/// Adds the code of every edge to what was assigned.
pub(super) fn connect(
    code: &Code,
    plan: Option<&Plan>,
    stores: &mut Stores,
    assigned: &mut Assigned,
) {
    // Moves of what is live, where paths meet, and values that go to memory and come back:
    // nothing else hands on what a register holds.
    // What is computed again may leave a definition dead.
    let is_kernel = code.function.convention() == Convention::Kernel;
    let has_definitions = stores.recomputed == 0;
    let mut is_needed = is_kernel && has_definitions && !assigned.edited.contains(&NONE);
    let mut connector = Connector {
        code,
        plan,
        stores,
        from: None,
        at: vec![NOWHERE; code.value_count()],
        exits: Exits::new(code),
        has_detours: false,
        follows: is_needed,
    };
    let mut edits = Vec::new();
    for (number, edge) in code.edges().iter().enumerate() {
        let continues = assigned.continues[edge.to.index()] == number as u32;
        if continues && plan.is_none() {
            continue;
        }
        connector.enter(edge.from, assigned);
        connector.edge(edge, continues, assigned, &mut edits);
        is_needed &= code.incoming(edge.to).len() > 1 || !edits.iter().any(is_move);
        let point = match code.program.blocks[edge.from].edge {
            Some((from, succ)) => Point::Edge(from, succ),
            None => Point::Edge(edge.from, edge.succ),
        };
        assigned
            .edits
            .extend(edits.drain(..).map(|edit| (point, edit)));
    }
    is_needed &= !connector.has_detours;
    if is_needed {
        assigned.inserted = Inserted::Needed;
    }
}

fn is_move(edit: &Edit) -> bool {
    matches!(edit, Edit::Move { .. } | Edit::Swap { .. })
}

struct Connector<'a> {
    code: &'a Code<'a>,
    plan: Option<&'a Plan>,
    stores: &'a mut Stores,
    /// The block that the edge leaves, and where it has each value.
    from: Option<Block>,
    at: Vec<u16>,
    exits: Exits,
    /// Whether some edge reads a slot twice, or moves a value out of the way for the time.
    has_detours: bool,
    /// Values are followed from edges to who reads them: steps that move others read registers
    /// for nobody, and clean-up sees to these.
    follows: bool,
}

impl Connector<'_> {
    /// Looks at where `block` leaves its values.
    fn enter(&mut self, block: Block, assigned: &Assigned) {
        let last = self.from.replace(block);
        if last == Some(block) {
            return;
        }
        if let Some(last) = last {
            for &(value, _) in assigned.exit.of(last) {
                self.at[value as usize] = NOWHERE;
            }
        }
        for &(value, fragment) in assigned.exit.of(block) {
            self.at[value as usize] = assigned.unit(fragment);
        }
    }

    fn edge(&mut self, edge: &Edge, continues: bool, assigned: &Assigned, out: &mut Vec<Edit>) {
        let code = self.code;
        let params = code.params(edge.to);
        let pairs = code.pairs(edge);
        let mut moves: SmallVec<[(PReg, PReg, usize); 8]> = SmallVec::new();
        let mut fetches = Fetches::new();
        let moving = match continues {
            true => &[],
            false => assigned.entry.of(edge.to),
        };
        for &(value, fragment) in moving {
            let index = match params.is_empty() {
                true => None,
                false => params.iter().position(|&p| p == value),
            };
            let source = index.map_or(value, |index| pairs[index].1);
            let to = self.register(value, assigned.unit(fragment));
            let width = code.shape(value).width;
            match self.source(source) {
                Some(Source::Register(from)) if from == to => {}
                Some(_) if !self.is_read(value, edge.to) => {}
                Some(Source::Register(from)) => moves.push((to, from, width)),
                Some(other) => fetches.push((to, other, width)),
                None => {}
            }
        }
        if let Some(plan) = self.plan {
            self.exits.enter(plan, edge);
            let exits = &self.exits;
            exits.stored(code, plan, edge, |value| {
                if !self.stores.at_definition(value)
                    && let Some(to) = self.stores.slot(value)
                {
                    let from = self.register(value, self.at[value as usize]);
                    let width = code.shape(value).width as u8;
                    out.push(Edit::Store { to, from, width });
                }
            });
            self.parameters_in_memory(plan, edge, assigned, &mut fetches, out);
        }
        // One move alone is no cycle.
        let idle = match moves.len() {
            0 | 1 => None,
            _ => self.idle(edge, assigned),
        };
        push_moves(&moves, idle, out);
        for (to, source, width) in fetches {
            fetch(code, to, source, width, out);
        }
    }

    /// Whether anything reads the register that `value` is in when `block` is entered. Where
    /// nothing is spilled, everything is read.
    fn is_read(&self, value: u32, block: Block) -> bool {
        let walk = self.walk();
        walk.is_none_or(|walk| walk.is_read(value, block))
    }

    /// Whether anything behind `edge` reads the register that `value` is in before it.
    fn is_passed_on(&self, value: u32, edge: &Edge) -> bool {
        let walk = self.walk();
        walk.is_none_or(|walk| walk.is_passed_on(value, edge))
    }

    fn walk(&self) -> Option<Walk<'_>> {
        let plan = self.plan.filter(|_| self.follows)?;
        Some(Walk {
            code: self.code,
            plan,
            stores: self.stores,
        })
    }

    /// A unit of the main file that nothing has before or after the registers move.
    fn idle(&self, edge: &Edge, assigned: &Assigned) -> Option<PReg> {
        let mut taken: UnitSet<8> = UnitSet::EMPTY;
        let ends = [assigned.exit.of(edge.from), assigned.entry.of(edge.to)];
        for &(value, fragment) in ends.into_iter().flatten() {
            let shape = self.code.shape(value);
            if shape.file == File::MAIN.index() {
                let at = assigned.unit(fragment) as usize;
                let units = at..at + shape.width;
                units.for_each(|unit| taken.insert(unit));
            }
        }
        let target = self.code.target;
        let pinned = UnitSet::of_file(target, File::MAIN, self.code.pinned_units());
        taken.add(&pinned);
        taken.add(target.file(File::MAIN).reserved_units());
        let free = UnitSet::<8>::first(self.code.units(File::MAIN.index())).without(&taken);
        free.lowest().map(|unit| PReg::new(File::MAIN, unit))
    }

    fn register(&self, value: u32, unit: u16) -> PReg {
        PReg::new(File::new(self.code.shape(value).file), unit as usize)
    }

    /// Where the block that the edge leaves has `value`.
    fn source(&self, value: u32) -> Option<Source> {
        match self.at[value as usize] {
            NOWHERE => {
                let plan = self.plan?;
                match plan.remat.instruction(value) {
                    Some(inst) => Some(Source::Computed(inst)),
                    None => self.stores.slot(value).map(Source::Slot),
                }
            }
            at => Some(Source::Register(self.register(value, at))),
        }
    }
}

fn fetch(code: &Code, to: PReg, source: Source, width: usize, out: &mut Vec<Edit>) {
    let width = width as u8;
    out.push(match source {
        Source::Register(from) => Edit::Move { to, from, width },
        Source::Slot(from) => Edit::Reload { to, from, width },
        Source::Computed(inst) => {
            let regs = code.function.operands(inst).iter().map(|_| to).collect();
            Edit::Recompute { inst, regs }
        }
    });
}
