//! Driving one register file: pre-colouring, then the six lists, then assignment.

use super::assign::{Assign, Colours, Scene};
use super::cluster::{Cluster, ClusterInfo, Clusters};
use super::constraint::is_constrained;
use super::guidance::Costs;
use super::order::{self, PairMode, Rules, Traits};
use crate::target::File;
use std::cmp::Reverse;

/// What one drive achieved.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Clusters that found no register.
    pub failed: Vec<Cluster>,
    /// Units up to the highest one taken.
    pub used: usize,
}

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

/// Places every cluster of `file`; `costs` are known once spilling has begun.
pub fn drive(
    scene: Scene,
    clusters: &mut Clusters,
    file: File,
    costs: Option<&Costs>,
    trial: Trial,
    colours: &mut Colours,
) -> Outcome {
    match scene.target.file(file).units {
        0..=64 => run::<1>(scene, clusters, file, costs, trial, colours),
        65..=256 => run::<4>(scene, clusters, file, costs, trial, colours),
        _ => run::<8>(scene, clusters, file, costs, trial, colours),
    }
}

fn run<const W: usize>(
    scene: Scene,
    clusters: &mut Clusters,
    file: File,
    costs: Option<&Costs>,
    trial: Trial,
    colours: &mut Colours,
) -> Outcome {
    let (first, mut rest): (Vec<Traits>, Vec<Traits>) = traits(&scene, clusters, file, costs)
        .into_iter()
        .partition(|t| is_precoloured(&scene, clusters.info(t.cluster), trial));
    if first.is_empty() && rest.is_empty() {
        return Outcome::default();
    }
    if trial == Trial::ProgramOrder {
        for traits in &mut rest {
            (traits.constrained, traits.registers) = (false, 1);
        }
    }
    let mut assign = Assign::<W>::new(scene, file);
    for cluster in precolouring_order(clusters, first) {
        assign.place(clusters, cluster, colours);
    }
    let rules = Rules {
        retry: costs.is_some(),
        cost_threshold: match scene.knobs.spill_cost_threshold {
            limit if limit > 0.0 => limit,
            _ => f32::MAX,
        },
        paired: scene.knobs.paired,
    };
    for cluster in order::stack(&rest, &rules).into_iter().rev() {
        assign.place(clusters, cluster, colours);
    }
    Outcome {
        failed: assign.failed().to_vec(),
        used: assign.used(),
    }
}

/// Whether a cluster is placed before the lists are even made: it has one place only, or
/// its values cannot be spilled, so whatever stands in its way would have to be. Pieces of
/// spilled values placed that way take a register from everything that lives across them,
/// so program order leaves them in their place.
fn is_precoloured(scene: &Scene, info: &ClusterInfo, trial: Trial) -> bool {
    let values = &scene.program.values;
    let stubborn = || info.members.iter().any(|m| values[m.value].unspillable);
    info.fixed.is_some() || info.is_link() || (trial == Trial::SixLists && stubborn())
}

/// Fixed places first, then the widest, in program order.
fn precolouring_order(clusters: &Clusters, traits: Vec<Traits>) -> Vec<Cluster> {
    let mut order: Vec<Cluster> = traits.into_iter().map(|t| t.cluster).collect();
    order.sort_by_key(|&c| {
        let info = clusters.info(c);
        (
            info.fixed.is_none(),
            Reverse(info.align),
            Reverse(info.width),
            c,
        )
    });
    order
}

fn traits(scene: &Scene, clusters: &Clusters, file: File, costs: Option<&Costs>) -> Vec<Traits> {
    let per_register = scene.target.file(file).units_per_reg;
    let of_file = clusters.iter().filter(|(_, info)| info.file == file);
    of_file
        .map(|(cluster, info)| {
            let registers = (info.width as usize).div_ceil(per_register);
            let cost = costs.map_or(0.0, |costs| {
                info.members
                    .iter()
                    .map(|m| costs[m.value])
                    .filter(|c| c.is_finite())
                    .sum()
            });
            let pair = match (info.members.len(), registers) {
                (_, 2..) if info.is_link() => PairMode::LoHalf,
                (_, 2..) => PairMode::DoubleWidth,
                _ => PairMode::Single,
            };
            let priority = info.members.iter().map(|m| scene.priorities[m.value]).max();
            let bound = is_constrained(scene.program, scene.target, scene.ranges, info);
            Traits {
                cluster,
                constrained: bound || priority > Some(0),
                registers,
                pair,
                cost,
                interference: info
                    .members
                    .iter()
                    .map(|m| scene.ranges.length(m.value) as f32)
                    .sum(),
                flagged: priority > Some(0),
                priority: priority.unwrap_or(0),
            }
        })
        .collect()
}
