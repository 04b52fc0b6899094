//! What to spill.
//!
//! Guidance has two sources. Where pressure exceeds the budget, no assignment can succeed:
//! [`relieve`] picks values of the lowest cost per unit they relieve until pressure is
//! within the budget everywhere; of equals the lower class gives way first, as scalars are
//! easier to reload than the tuples of a matrix product.
//! Where pressure is within the budget but a cluster found no register, [`victims`]
//! compares spilling it with making room for it at the start where that is cheapest.

use super::class::RegClass;
use super::cluster::ClusterInfo;
use super::overlap_index::OverlapIndex;
use crate::colour::{Colours, Problem};
use crate::ir::{LiveRanges, Value, overlap};
use crate::spill::choose::{Candidate, PointPressure, by_relief};
use crate::target::File;
use cranelift_entity::{EntitySet, SecondaryMap};

/// What spilling each value costs; infinite where it is no option.
pub type Costs = SecondaryMap<Value, f32>;

/// Values of `file` to spill so that at most `budget` units are live at once, as far as
/// spilling can achieve it.
pub fn relieve(
    problem: &Problem,
    ranges: &LiveRanges,
    costs: &Costs,
    (file, budget): (File, usize),
) -> Vec<Value> {
    let (program, target, limit) = (&problem.program, problem.target, budget as i32);
    let mut pressure = PointPressure::new(program, target, ranges, true);
    let width = |value| i32::from(ranges.size(value).width);
    let ratio = |pressure: &PointPressure, value| {
        // Positions count, not units: a wide value is no better to reload.
        let relief = pressure.relief(value, file, limit, 1);
        (relief > 0).then(|| costs[value] / relief as f32)
    };
    let of_file = |v: &Value| ranges.size(*v).file == file && costs[*v].is_finite();
    let values = ranges.by_start().iter().copied().filter(of_file);
    let candidates = values.filter_map(|value| {
        Some(Candidate {
            ratio: ratio(&pressure, value)?,
            rank: RegClass::of(target, program.values[value].class).number() as u32,
            value,
        })
    });
    let candidates: Vec<Candidate> = candidates.collect();
    let mut chosen = Vec::new();
    by_relief(
        &mut pressure,
        candidates.into_iter(),
        ratio,
        |pressure, value| {
            pressure.add_freed(value, file, -width(value));
            chosen.push(value);
        },
    );
    chosen
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
            in_the_way.push((value, low, high));
        }
    }
    let cheapest = (0..starts)
        .filter(|&s| price[s].is_finite())
        .min_by(|&a, &b| price[a].total_cmp(&price[b]));
    match cheapest {
        Some(start) if price[start] < own => {
            let touched = in_the_way.into_iter();
            let touched = touched.filter(|&(_, low, high)| (low..high).contains(&start));
            Some(touched.map(|(value, ..)| value).collect())
        }
        _ if own.is_finite() => Some(info.members.iter().map(|m| m.value).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::cluster::Clusters;
    use super::super::tests::with_problem;
    use super::*;
    use crate::stats::Stats;
    use crate::target::{FileInfo, PReg, Target};
    use cranelift_entity::EntityRef;

    /// Nobody is in the way in a register that is never allocated, nor can anybody be there.
    #[test]
    fn no_room_is_made_in_reserved_registers() {
        let mut machine = Target::builder("toy");
        let file = machine.file(FileInfo::new("r", 3).reserved([0]));
        machine.class("word", file, 1, 1);
        let machine = machine.finish().unwrap();
        let text = "target toy
            kernel f {
            block0:
                v0:word = load : read
                v1:word = load : read
                v2:word = load : read
                store v0, v1 : write
                store v2 : write
                exit : exit write
            }";
        with_problem(text, &[machine], |problem| {
            let ranges = problem.ranges(&mut Stats::default());
            let clusters = Clusters::new(&problem.program, ranges, 1);
            let [left, dear, cheap] = [0, 1, 2].map(Value::new);
            let (mut colours, mut costs) = (Colours::new(), Costs::with_default(9.0));
            colours[dear] = Some(PReg::new(file, 1));
            colours[cheap] = Some(PReg::new(file, 2));
            (costs[dear], costs[cheap]) = (5.0, 3.0);
            let info = clusters.info(clusters.of(left).unwrap());
            let mut index = OverlapIndex::new(ranges);
            let spared = EntitySet::new();
            let found = victims(problem, &mut index, info, &colours, &costs, &spared);
            assert_eq!(found, Some(vec![cheap]));
        });
    }
}
