//! What to spill.
//!
//! Guidance has two sources. Where pressure exceeds the budget, no assignment can succeed:
//! [`relieve`] picks, from a priority queue per class, values of the lowest cost per
//! position they relieve until pressure is within the budget everywhere. Classes that share
//! a file take turns by what the heads of their queues cost; of equals the lower class
//! gives way first, as scalars are easier to reload than the tuples of a matrix product.
//! Where pressure is within the budget but a cluster found no register, [`victims`]
//! compares spilling it with making room for it at the start where that is cheapest.
//!
//! A spilled value still needs a register where an operation touches it, so those
//! positions are not relieved.

use super::class::RegClass;
use super::cluster::ClusterInfo;
use super::overlap_index::OverlapIndex;
use crate::analysis::Rows;
use crate::colour::{Colours, Problem};
use crate::function::Role;
use crate::ir::{LiveRanges, Program, Value, overlap};
use crate::target::{File, Target};
use cranelift_entity::{EntitySet, SecondaryMap};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What spilling each value costs; infinite where it is no option.
pub type Costs = SecondaryMap<Value, f32>;

/// Values of `file` to spill so that at most `budget` units are live at once, as far as
/// spilling can achieve it.
pub fn relieve(
    program: &Program,
    target: &Target,
    ranges: &LiveRanges,
    costs: &Costs,
    (file, budget): (File, usize),
) -> Vec<Value> {
    let touches = touches(program, ranges, file);
    let of_file = |v: &&Value| ranges.size(**v).file == file;
    let mut excess = Excess {
        pressure: ranges.levels(file),
        budget: budget as i32,
    };
    let class = |value: Value| RegClass::of(target, program.values[value].class);
    let mut queues = Queues::default();
    for &value in ranges.by_start().iter().filter(of_file) {
        if costs[value].is_finite() {
            let relief = excess.relief(ranges, &touches, value);
            if relief > 0 {
                queues.push(Candidate {
                    ratio: costs[value] / relief as f32,
                    class: class(value),
                    value,
                    relief,
                });
            }
        }
    }
    let mut chosen = Vec::new();
    while let Some(best) = queues.pop() {
        // Others may have relieved some of its positions since it was queued.
        let relief = excess.relief(ranges, &touches, best.value);
        if relief == 0 {
            continue;
        }
        if relief < best.relief {
            let ratio = costs[best.value] / relief as f32;
            queues.push(Candidate {
                ratio,
                relief,
                ..best
            });
            continue;
        }
        excess.remove(ranges, &touches, best.value);
        chosen.push(best.value);
    }
    chosen
}

#[derive(Clone, Copy, PartialEq)]
struct Candidate {
    ratio: f32,
    class: RegClass,
    value: Value,
    relief: u32,
}

/// One queue for each class; that of the unified class stays empty.
#[derive(Default)]
struct Queues([BinaryHeap<Candidate>; RegClass::ALL.len()]);

impl Queues {
    fn push(&mut self, candidate: Candidate) {
        self.0[candidate.class.number()].push(candidate);
    }

    /// The best head of all queues.
    fn pop(&mut self) -> Option<Candidate> {
        let heads = self.0.iter().enumerate();
        let heads = heads.filter_map(|(class, queue)| Some((queue.peek()?, class)));
        let (_, class) = heads.max_by(|(a, _), (b, _)| a.cmp(b))?;
        self.0[class].pop()
    }
}

impl Eq for Candidate {}

impl Ord for Candidate {
    /// The best candidate is the greatest: lowest ratio, then lowest class and number.
    fn cmp(&self, other: &Candidate) -> Ordering {
        let by_ratio = other.ratio.total_cmp(&self.ratio);
        by_ratio
            .then(other.class.cmp(&self.class))
            .then(other.value.cmp(&self.value))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Positions where values are read or written, by value.
type Touches = Rows<Value, u32>;

fn touches(program: &Program, ranges: &LiveRanges, file: File) -> Touches {
    let mut pairs: Vec<(Value, u32)> = Vec::new();
    for (block, info) in program.blocks.iter() {
        for (op, before) in info.ops.iter().zip(ranges.base(block)..) {
            for (value, role) in op.accesses(program.function) {
                if ranges.size(value).file != file {
                    continue;
                }
                if role.reads() || role == Role::EarlyDef {
                    pairs.push((value, before));
                }
                if role.writes() {
                    pairs.push((value, before + 1));
                }
            }
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    Rows::from_pairs(program.values.len(), pairs.iter().copied())
}

struct Excess {
    pressure: Vec<i32>,
    budget: i32,
}

impl Excess {
    /// Calls `visit` with every run of positions that spilling `value` would relieve.
    fn runs(
        ranges: &LiveRanges,
        touches: &Touches,
        value: Value,
        mut visit: impl FnMut(usize, usize),
    ) {
        let mut touched = touches.row(value).iter().map(|&t| t as usize).peekable();
        for s in ranges.of(value) {
            let mut start = s.start as usize;
            while let Some(at) = touched.next_if(|&at| at < s.end as usize) {
                if start < at {
                    visit(start, at);
                }
                start = start.max(at + 1);
            }
            if start < s.end as usize {
                visit(start, s.end as usize);
            }
        }
    }

    fn relief(&self, ranges: &LiveRanges, touches: &Touches, value: Value) -> u32 {
        let mut relief = 0;
        Excess::runs(ranges, touches, value, |start, end| {
            let over = self.pressure[start..end].iter();
            relief += over.filter(|&&p| p > self.budget).count() as u32;
        });
        relief
    }

    fn remove(&mut self, ranges: &LiveRanges, touches: &Touches, value: Value) {
        let width = i32::from(ranges.size(value).width);
        Excess::runs(ranges, touches, value, |start, end| {
            self.pressure[start..end]
                .iter_mut()
                .for_each(|p| *p -= width);
        });
    }
}

/// Values to spill so that a failed cluster gets a register: its own, or the ones that
/// conflict with it at the cheapest start. Values in `spared` are being spilled already and
/// conflict with nothing, so that no more may be needed. `None` if neither is possible.
pub fn victims(
    problem: &Problem,
    index: &mut OverlapIndex,
    info: &ClusterInfo,
    colours: &Colours,
    costs: &Costs,
    spared: &EntitySet<Value>,
) -> Option<Vec<Value>> {
    let (program, target) = (&problem.program, problem.target);
    let ranges = index.ranges();
    let own: f32 = info.members.iter().map(|m| costs[m.value]).sum();
    let units = target.file(info.file).units;
    let starts = (units + 1).saturating_sub(info.width as usize);
    let mut price = vec![0f32; starts];
    for constraint in super::constraint::chain::<8>(program, target, ranges, info) {
        for start in constraint.blocked().iter().filter(|&s| s < starts) {
            price[start] = f32::NAN;
        }
    }
    let mut in_the_way: Vec<(Value, usize, usize)> = Vec::new();
    for value in index.of(info.members.iter().map(|m| m.value)) {
        let Some(reg) = colours[value].filter(|reg| reg.file == info.file) else {
            continue;
        };
        let width = ranges.size(value).width as usize;
        for m in &info.members {
            let member_width = ranges.size(m.value).width as usize;
            if spared.contains(value) || !overlap(ranges.of(m.value), ranges.of(value)) {
                continue;
            }
            // Starts at which the member would touch the value's units.
            let low = (reg.unit as usize + 1).saturating_sub(m.offset as usize + member_width);
            let high = (reg.unit as usize + width).saturating_sub(m.offset as usize);
            let high = high.min(starts);
            for price in price.iter_mut().take(high).skip(low) {
                *price += costs[value];
            }
            if low < high {
                in_the_way.push((value, low, high));
            }
        }
    }
    let cheapest = (0..starts)
        .filter(|&s| price[s].is_finite())
        .min_by(|&a, &b| price[a].total_cmp(&price[b]));
    match cheapest {
        Some(start) if price[start] < own => {
            let mut victims: Vec<Value> = in_the_way
                .into_iter()
                .filter(|&(_, low, high)| (low..high).contains(&start))
                .map(|(value, ..)| value)
                .collect();
            victims.sort_unstable();
            victims.dedup();
            Some(victims)
        }
        _ if own.is_finite() => Some(info.members.iter().map(|m| m.value).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_entity::EntityRef;

    /// One queue per class; the cheapest head goes first, of equals the lower class.
    #[test]
    fn classes_queue_apart_and_take_turns() {
        let mut queues = Queues::default();
        let all = [
            (RegClass::Tensor, 2.0, 0),
            (RegClass::R, 2.0, 1),
            (RegClass::RAlt, 1.0, 2),
            (RegClass::R, 3.0, 3),
            (RegClass::Tensor, 2.5, 4),
            (RegClass::R, 2.0, 5),
        ];
        for (class, ratio, value) in all {
            queues.push(Candidate {
                ratio,
                class,
                value: Value::new(value),
                relief: 1,
            });
        }
        let lengths = queues.0.each_ref().map(BinaryHeap::len);
        assert_eq!(lengths, [0, 3, 1, 0, 0, 0, 2]);
        let popped = std::iter::from_fn(|| queues.pop().map(|c| c.value.index()));
        assert_eq!(popped.collect::<Vec<_>>(), [2, 1, 5, 0, 4, 3]);
    }
}
