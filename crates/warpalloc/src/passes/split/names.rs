//! What split values are called where, and the copies between their names.

use super::SplitCounts;
use super::plan::{Plan, Region};
use super::stretches::Spot;
use crate::analysis::{Cfg, LiveSet};
use crate::function::Block;
use crate::ir::{Facts, Op, Program, Value};
use cranelift_entity::SecondaryMap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The names of split values.
pub(super) struct Names<'a> {
    plan: Plan,
    facts: &'a Facts,
    names: FxHashMap<(Value, Region), Value>,
    /// Pieces of each value, the first of which goes by the value's own name.
    pieces: SecondaryMap<Value, u32>,
    counts: SplitCounts,
}

/// Copies to put in one place.
type Copies = SmallVec<[(Value, Value); 2]>;

impl<'a> Names<'a> {
    pub fn new(plan: Plan, facts: &'a Facts) -> Names<'a> {
        Names {
            plan,
            facts,
            names: FxHashMap::default(),
            pieces: SecondaryMap::new(),
            counts: SplitCounts::default(),
        }
    }

    pub fn apply(mut self, program: &mut Program) -> SplitCounts {
        let edges = self.edge_copies(program);
        let mut live = LiveSet::new(program.values.len());
        for block in program.all_blocks() {
            self.rename(program, &mut live, block);
        }
        for ((block, succ), copies) in edges {
            put_on_edge(program, block, succ, copies);
        }
        self.counts
    }

    /// The operations of `block` before which names change.
    fn cuts(&self, block: Block) -> &[usize] {
        let stretches = self.plan.stretches.as_ref();
        stretches.map_or(&[], |stretches| stretches.cuts(block))
    }

    fn end(&self, block: Block) -> Spot {
        Spot::part(block, self.cuts(block).len())
    }

    /// What `value` is called at `spot`.
    fn name(&mut self, program: &mut Program, value: Value, spot: Spot) -> Value {
        if !self.plan.split.contains(value) {
            return value;
        }
        let region = self.plan.region(value, spot, self.facts);
        *self.names.entry((value, region)).or_insert_with(|| {
            self.pieces[value] += 1;
            match self.pieces[value] {
                1 => return value,
                2 => self.counts.values += 1,
                _ => {}
            }
            self.counts.pieces += 1;
            program.piece_of(value)
        })
    }

    /// The copies from the names at `before` to the names at `after`, of the `live` values.
    fn copies(
        &mut self,
        program: &mut Program,
        live: impl Iterator<Item = Value>,
        before: Spot,
        after: Spot,
    ) -> Copies {
        let mut copies = Copies::new();
        for value in live {
            let from = self.name(program, value, before);
            let to = self.name(program, value, after);
            if from != to {
                copies.push((to, from));
            }
        }
        self.counts.copies += copies.len() as u32;
        copies
    }

    fn edge_copies(&mut self, program: &mut Program) -> Vec<((Block, usize), Copies)> {
        let mut edges = Vec::new();
        let facts = self.facts;
        for block in program.all_blocks() {
            let from = self.end(block);
            for (index, succ) in program.blocks[block].succs.clone().into_iter().enumerate() {
                let to = Spot::start(succ);
                let copies = self.copies(program, facts.liveness.live_in(succ), from, to);
                if !copies.is_empty() {
                    edges.push(((block, index), copies));
                }
            }
        }
        edges
    }

    /// Gives the values of `block` their names, with copies where it is cut.
    fn rename(&mut self, program: &mut Program, live: &mut LiveSet<Value>, block: Block) {
        let ops = std::mem::take(&mut program.blocks[block].ops);
        let mut cuts = self.cuts(block).to_vec();
        let mut spot = self.end(block);
        let mut renamed = Vec::with_capacity(ops.len() + cuts.len());
        live.start_at_end(&self.facts.liveness, block);
        for (index, mut op) in ops.into_iter().enumerate().rev() {
            live.step_back_over(op.accesses(program.function));
            op.rename(|value| self.name(program, value, spot));
            renamed.push(op);
            if cuts.pop_if(|cut| *cut == index).is_some() {
                let copies = self.copies(program, live.iter(), spot.before(), spot);
                spot = spot.before();
                if !copies.is_empty() {
                    renamed.push(Op::Copies(copies));
                }
            }
        }
        renamed.reverse();
        program.blocks[block].ops = renamed;
    }
}

/// Puts `copies` where an edge begins or ends, if nothing else does there, or else on the
/// edge itself.
fn put_on_edge(program: &mut Program, block: Block, succ: usize, copies: Copies) {
    let op = Op::Copies(copies);
    let from = &mut program.blocks[block];
    if from.edge.is_some() {
        from.ops.push(op);
        return;
    }
    if from.succs.len() == 1 {
        let terminator = from.ops.len().saturating_sub(1);
        from.ops.insert(terminator, op);
        return;
    }
    let to = from.succs[succ];
    let at_start = match program.blocks[to].preds.len() {
        1 => to,
        _ => program.split_edge(block, succ),
    };
    program.blocks[at_start].ops.insert(0, op);
}
