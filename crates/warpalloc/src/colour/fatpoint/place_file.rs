//! Placing the clusters of one register file: pre-colouring, then the six lists, then assignment.

use super::assign::{Assign, Scene};
use super::cluster::{Cluster, ClusterInfo, Clusters};
use super::constraint::is_constrained;
use super::guidance::Costs;
use super::order::{self, PairMode, Rules, Traits};
use crate::colour::Colours;
use crate::target::File;
use std::cmp::Reverse;

/// An order to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The six lists.
    SixLists,
    /// Program order throughout: packs scalars best where wide values are few.
    ProgramOrder,
}

impl Trial {
    /// All trials, in the order they are made.
    pub const ALL: [Trial; 2] = [Trial::SixLists, Trial::ProgramOrder];
}

/// Places every cluster of `file` and returns the ones that found no register; `costs` are
/// known once spilling has begun.
pub fn place_file(
    scene: Scene,
    clusters: &mut Clusters,
    file: File,
    costs: Option<&Costs>,
    trial: Trial,
    colours: &mut Colours,
) -> Vec<Cluster> {
    if clusters.count(file) == 0 {
        return Vec::new();
    }
    let order = placement_order(&scene, clusters, file, costs, trial);
    Placement {
        clusters,
        order: &order,
        colours,
    }
    .run(scene, file)
}

/// Clusters still to be placed.
struct Placement<'a> {
    clusters: &'a mut Clusters,
    order: &'a [Cluster],
    colours: &'a mut Colours,
}

impl Placement<'_> {
    /// Most functions need a fraction of the file, and first-fit finds it at the low end.
    /// So placement starts with as many words as the peak pressure suggests, and is
    /// given more only when a cluster finds no place in them.
    fn run(mut self, scene: Scene, file: File) -> Vec<Cluster> {
        let peak = scene.ranges.peak(file);
        match (peak + peak / 8 + 4).min(scene.target.file(file).units) {
            0..=64 => self.narrow(Assign::new(scene, file)),
            65..=128 => self.half(Assign::new(scene, file)),
            129..=256 => self.full(Assign::new(scene, file)),
            _ => self.packed(Assign::new(scene, file)),
        }
    }

    fn narrow(&mut self, mut assign: Assign<1>) -> Vec<Cluster> {
        match self.place(&mut assign) {
            true => self.finish(assign),
            false => self.half(assign.widened()),
        }
    }

    fn half(&mut self, mut assign: Assign<2>) -> Vec<Cluster> {
        match self.place(&mut assign) {
            true => self.finish(assign),
            false => self.full(assign.widened()),
        }
    }

    fn full(&mut self, mut assign: Assign<4>) -> Vec<Cluster> {
        match self.place(&mut assign) {
            true => self.finish(assign),
            false => self.packed(assign.widened()),
        }
    }

    /// Eight words reach beyond any file, so that nothing is left to be widened.
    fn packed(&mut self, mut assign: Assign<8>) -> Vec<Cluster> {
        assign.place_all(self.clusters, self.order, self.colours);
        self.finish(assign)
    }

    fn finish<const W: usize>(&mut self, mut assign: Assign<W>) -> Vec<Cluster> {
        assign.place_by_evicting(self.clusters, self.colours);
        assign.finish()
    }

    /// Places what it can; whether that was everything.
    fn place<const W: usize>(&mut self, assign: &mut Assign<W>) -> bool {
        let done = assign.place_all(self.clusters, self.order, self.colours);
        self.order = &self.order[done..];
        self.order.is_empty()
    }
}

/// Pre-coloured clusters, then the six lists from the top of their stack.
fn placement_order(
    scene: &Scene,
    clusters: &Clusters,
    file: File,
    costs: Option<&Costs>,
    trial: Trial,
) -> Vec<Cluster> {
    let mut first = Vec::new();
    let mut rest = Vec::with_capacity(clusters.count(file));
    for (cluster, info) in clusters.iter().filter(|(_, info)| info.file == file) {
        if is_precoloured(scene, info, trial) {
            first.push(cluster);
            continue;
        }
        rest.push(match trial {
            Trial::SixLists => traits(scene, cluster, info, costs),
            Trial::ProgramOrder => Traits {
                constrained: false,
                registers: 1,
                ..traits(scene, cluster, info, costs)
            },
        });
    }
    let rules = Rules {
        retry: costs.is_some(),
        cost_threshold: match scene.knobs.spill_cost_threshold {
            limit if limit > 0.0 => limit,
            _ => f32::MAX,
        },
        paired: scene.knobs.paired,
    };
    let mut order = precolouring_order(scene, clusters, first);
    order.extend(order::stack(&rest, &rules).into_iter().rev());
    order
}

/// Whether a cluster is placed before the lists are even made: it has one place only, it has a
/// pre-allocation priority, or its values cannot be spilled, so values that conflict with it would have to be. Pieces of
/// spilled values placed that way take a register from every value that is live across
/// them, so program order leaves them in their place.
fn is_precoloured(scene: &Scene, info: &ClusterInfo, trial: Trial) -> bool {
    let values = &scene.program.values;
    let stubborn = || info.members.iter().any(|m| values[m.value].unspillable);
    info.fixed.is_some()
        || info.is_link()
        || priority(scene, info) > 0
        || (trial == Trial::SixLists && stubborn())
}

/// The highest pre-allocation priority of a member.
fn priority(scene: &Scene, info: &ClusterInfo) -> u32 {
    let priorities = info.members.iter().map(|m| scene.priorities[m.value]);
    priorities.max().unwrap_or(0)
}

/// Fixed places first, then operands of MACs if they go in the order of the code, then the
/// widest, in program order.
fn precolouring_order(scene: &Scene, clusters: &Clusters, mut order: Vec<Cluster>) -> Vec<Cluster> {
    let in_code_order = scene.knobs.mac_vreg_order > 0;
    order.sort_by_key(|&c| {
        let info = clusters.info(c);
        let is_early = in_code_order && priority(scene, info) > 0;
        let (align, width) = if is_early {
            (0, 0)
        } else {
            (info.align, info.width)
        };
        (
            info.fixed.is_none(),
            !is_early,
            Reverse(align),
            Reverse(width),
            c,
        )
    });
    order
}

#[inline(always)]
fn traits(scene: &Scene, cluster: Cluster, info: &ClusterInfo, costs: Option<&Costs>) -> Traits {
    let registers = match scene.target.file(info.file).units_per_reg {
        1 => info.width as usize,
        several => (info.width as usize).div_ceil(several),
    };
    let cost = costs.map_or(0.0, |costs| {
        let costs = info.members.iter().map(|m| costs[m.value]);
        costs
            .filter(|cost| cost.is_finite())
            .fold(0.0, |sum, cost| sum + cost)
    });
    let pair = match registers {
        2.. if info.is_link() => PairMode::LoHalf,
        2.. => PairMode::DoubleWidth,
        _ => PairMode::Single,
    };
    let priority = priority(scene, info);
    let constrained = priority > 0 || is_constrained(scene.program, scene.ranges, info);
    Traits {
        cluster,
        constrained,
        registers,
        pair,
        cost,
        // The others do not need it: they are placed in program order.
        interference: match constrained && cost > 0.0 {
            true => interference(scene, info),
            false => 0.0,
        },
        flagged: priority > 0,
        priority,
    }
}

/// How many positions the live ranges of the cluster cover.
fn interference(scene: &Scene, info: &ClusterInfo) -> f32 {
    let lengths = info
        .members
        .iter()
        .map(|m| scene.ranges.length(m.value) as f32);
    lengths.sum()
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_scene;
    use super::*;
    use crate::ir::Value;
    use cranelift_entity::EntityRef;

    /// Lanes that stand before a texture access wait until its operands have been placed.
    #[test]
    fn operands_of_macs_go_before_links_where_the_order_is_that_of_the_code() {
        let text = "target hardware sm_90
            options RegAllocPrefMacOperands=3 RegAllocMacVregAllocOrder=1
            kernel f {
            block0:
                v0:r32, v1:r32 = load : read group 0..2 align 2
                v2:r32 = load : read
                v3:r32 = tex.2d v2 : read
                store v0, v1, v3 : write
                exit : exit write
            }";
        with_scene(text, |scene, clusters| {
            let order = placement_order(&scene, &clusters, File::R, None, Trial::SixLists);
            let of = |number| clusters.of(Value::new(number)).unwrap();
            assert_eq!(order, [of(2), of(3), of(0)]);
        });
    }
}
