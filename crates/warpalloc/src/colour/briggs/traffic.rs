//! Memory traffic: the stores and reloads that spilling a value leaves in the code.
//!
//! A spilled value is stored wherever it is written, but not reloaded at every reader: reloads
//! are joined where registers are left ([`lazy_reload`](crate::spill::lazy_reload)). None are
//! left where the file is full before anything is spilled, because spilling goes on only until
//! everything fits. So a reader needs a reload of its own if the file is full somewhere since
//! the value was last in a register, and the reload stands before the outermost loop that is
//! nowhere full. Blocks are taken in the order of their positions, not path by path: the
//! figure is an estimate.
//!
//! A value that would be rematerialised is never stored, and its definition goes.

use crate::analysis::{Cfg, Loop, LoopInfo};
use crate::colour::Problem;
use crate::cycles::MEMORY_CYCLES;
use crate::function::Block;
use crate::ir::{Facts, LiveRanges, Value};
use crate::spill::SpillPolicy;
use crate::spill::choose::Counted;
use crate::spill::remat::Remat;
use crate::target::File;
use cranelift_entity::{EntityRef, SecondaryMap};

/// Where a value was last in a register.
#[derive(Clone, Copy)]
struct Held {
    block: Block,
    at: u32,
}

/// The loops of a program, as reloads meet them.
struct OfLoop {
    /// The file is full somewhere in it.
    is_full: bool,
    /// How often it is entered.
    entries: f32,
}

struct Traffic<'a> {
    facts: &'a Facts,
    full: Counted,
    loops: Vec<OfLoop>,
}

/// Cycles of the stores and reloads of each value of `file`, if it were spilled. The file is
/// `full` at these positions, of which there are two between operations.
pub(super) fn memory_traffic(
    problem: &Problem,
    ranges: &LiveRanges,
    file: File,
    full: Counted,
) -> SecondaryMap<Value, f32> {
    let (program, facts) = (&problem.program, &problem.facts);
    let loops = loops(problem, ranges, &full);
    let traffic = Traffic { facts, full, loops };
    let mut tallies = vec![Tally::default(); program.values.len()];
    let mut held: Vec<Option<Held>> = vec![None; program.values.len()];
    let mut blocks: Vec<Block> = program.blocks.keys().collect();
    blocks.sort_unstable_by_key(|&block| ranges.base(block));
    let is_of_file = |value: Value| ranges.size(value).file == file;
    for block in blocks {
        let frequency = facts.frequencies.block(block) as f32;
        for (op, before) in program.blocks[block].ops.iter().zip(ranges.base(block)..) {
            let all = op.accesses(program.function);
            let all = all.filter(|&(value, _)| is_of_file(value));
            for (value, _) in all.clone().filter(|(_, role)| role.reads()) {
                let now = Held {
                    block,
                    at: 2 * before + 1,
                };
                let last = held[value.index()].replace(now);
                tallies[value.index()].reloads += traffic.reload(last, now);
            }
            for (value, _) in all.filter(|(_, role)| role.writes()) {
                let at = 2 * before + 2;
                held[value.index()] = Some(Held { block, at });
                tallies[value.index()].writes += frequency;
            }
        }
    }
    let remat = rematerialised(problem, ranges, file);
    let mut cycles = SecondaryMap::new();
    cycles.resize(program.values.len());
    for (value, tally) in program.values.keys().zip(tallies) {
        let inst = remat
            .instruction(value)
            .map(|inst| program.function.inst(inst));
        cycles[value] = match inst.and_then(|inst| inst.remat) {
            Some(cycles) => (tally.reloads - tally.writes).max(0.0) * f32::from(cycles),
            None => (tally.reloads + tally.writes) * MEMORY_CYCLES as f32,
        };
    }
    cycles
}

/// How often a value is written, and reloaded if it is spilled.
#[derive(Clone, Copy, Default)]
struct Tally {
    writes: f32,
    reloads: f32,
}

/// Values of `file` that would be rematerialised instead of reloaded.
fn rematerialised(problem: &Problem, ranges: &LiveRanges, file: File) -> Remat {
    let function = problem.program.function;
    let is_rematerialised = |inst| function.inst(inst).remat.is_some();
    if !problem.options.briggs.rematerialise || !function.insts().any(is_rematerialised) {
        return Remat::default();
    }
    let values = ranges.by_start().iter().copied();
    let values: Vec<Value> = values.filter(|&v| ranges.size(v).file == file).collect();
    let ratio = SpillPolicy::default().remat_ratio;
    Remat::find(&problem.program, &problem.facts, ratio, &values, |_| false)
}

/// What reloads meet in each loop.
fn loops(problem: &Problem, ranges: &LiveRanges, full: &Counted) -> Vec<OfLoop> {
    let (program, facts) = (&problem.program, &problem.facts);
    let mut spans = vec![(usize::MAX, 0); facts.loops.loop_count()];
    for block in program.blocks.keys() {
        let here = ranges.of_block(program, block);
        for l in facts.loops.around(block) {
            let (start, end) = &mut spans[l.index()];
            *start = (2 * here.start).min(*start);
            *end = (2 * here.end).max(*end);
        }
    }
    let of_loop = |(l, info): (Loop, &LoopInfo)| {
        let (start, end) = spans[l.index()];
        let outside = program.predecessors(info.header);
        let outside = outside.filter(|&block| !facts.loops.contains(l, block));
        let entries = outside.map(|block| facts.frequencies.block(block) as f32);
        OfLoop {
            is_full: full.within(start..end) > 0,
            entries: entries.sum(),
        }
    };
    facts.loops.loops().map(of_loop).collect()
}

impl Traffic<'_> {
    /// How often a reload for a reader at `now` runs, for a value that was `last` in a register.
    fn reload(&self, last: Option<Held>, now: Held) -> f32 {
        let mut frequency = self.facts.frequencies.block(now.block) as f32;
        let around = match last {
            Some(last) if last.block == now.block => None,
            _ => Some(self.facts.loops.around(now.block)),
        };
        for l in around.into_iter().flatten() {
            if last.is_some_and(|last| self.facts.loops.contains(l, last.block)) {
                break;
            }
            let of_loop = &self.loops[l.index()];
            if of_loop.is_full {
                return frequency;
            }
            frequency = frequency.min(of_loop.entries);
        }
        match last {
            Some(last) if self.full.within(last.at as usize..now.at as usize) == 0 => 0.0,
            _ => frequency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Program;
    use crate::options::Options;
    use crate::scratch::Scratch;
    use crate::spill::choose::PointPressure;
    use crate::stats::Stats;
    use crate::text;

    /// Cycles of the first value of a kernel with these blocks, if it were spilled at `registers`.
    fn cycles(registers: usize, blocks: &str) -> f32 {
        let text = format!("target hardware sm_90 R={registers}\nkernel f {{\n{blocks}\n}}\n");
        let case = text::parse(&text).unwrap();
        let program = Program::new(&case.function, &case.target, None).unwrap();
        let facts = Facts::of(&program);
        let (options, scratch) = (Options::default(), Scratch::default());
        let problem = Problem::new(program, facts, &case.target, &options, &scratch);
        let ranges = problem.ranges(&mut Stats::default());
        let pressure = PointPressure::new(&problem.program, &case.target, ranges, false);
        let units = pressure.of(File::MAIN);
        let full = Counted::new(units, |at| at >= registers as i32);
        memory_traffic(&problem, ranges, File::MAIN, full)[Value::new(0)]
    }

    /// A store, and a reload for the first reader behind the position where three are live.
    #[test]
    fn readers_share_a_reload_where_the_file_is_not_full_between_them() {
        let code = "block0:
            v0:r32 = load : read
            v1:r32 = load : read
            v2:r32 = load : read
            use v1, v2 : write
            use v0 : write
            use v0 : write
            exit : exit write";
        assert_eq!(cycles(3, code), 8.0);
        assert_eq!(cycles(4, code), 4.0);
        // Each reader is behind a position where at least one is live.
        assert_eq!(cycles(1, code), 12.0);
    }

    /// The loop runs eight times and is entered once.
    #[test]
    fn a_reload_leaves_a_loop_that_is_nowhere_full() {
        let code = "block0 freq 1:
            v0:r32 = load : read
            v1:r32 = load : read
            v2:r32 = load : read
            use v1, v2 : write
            bra -> block1
        block1 freq 8:
            use v0 : write
            v3:pred = test : read
            brp v3 -> block1, block2
        block2 freq 1:
            exit : exit write";
        assert_eq!(cycles(3, code), 8.0);
        let full = code.replace(
            "use v0 : write",
            "use v0 : write\nv4:r32, v5:r32 = load : read\nuse v4, v5 : write",
        );
        assert_eq!(cycles(3, &full), 4.0 + 8.0 * 4.0);
    }

    #[test]
    fn a_constant_costs_its_computation_and_saves_its_definition() {
        let code = "block0:
            v0:r32 = mov #1 : remat 1
            v1:r32 = load : read
            v2:r32 = load : read
            use v0 : write
            use v1, v2 : write
            use v0 : write
            exit : exit write";
        assert_eq!(cycles(2, code), 1.0);
    }
}
