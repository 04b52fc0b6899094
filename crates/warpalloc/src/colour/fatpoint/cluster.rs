//! Clusters: bundles of values that take their registers together.
//!
//! A cluster is a row of units with values at fixed distances from its start. It begins
//! as a single value or as a link of the program; coalescing joins clusters whose values
//! are copies of each other, so that a chain of aliases (all members at distance 0) and a
//! vector of registers are both clusters. A joined cluster remembers what it was made of:
//! where no register is left for the whole, it falls apart again.

use super::affinity::Affinity;
use super::hints::Hints;
use crate::ir::{Link, LiveRanges, Program, Value};
use crate::target::{File, PReg};
use cranelift_entity::{EntityRef, entity_impl};
use smallvec::{SmallVec, smallvec};

/// A cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cluster(u32);
entity_impl!(Cluster, "cluster");

/// A value and its distance from the cluster's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The value.
    pub value: Value,
    /// Units from the start.
    pub offset: u16,
    /// It lies within another member of equal contents and needs no room of its own.
    pub silent: bool,
}

impl Member {
    /// The only value of its cluster.
    fn alone(value: Value) -> Member {
        Member {
            value,
            offset: 0,
            silent: false,
        }
    }
}

/// What a cluster is made of and where it may start.
#[derive(Clone, Debug)]
pub struct ClusterInfo {
    /// The values.
    pub members: SmallVec<[Member; 2]>,
    /// The file they live in.
    pub file: File,
    /// Units from the first to the last.
    pub width: u16,
    /// The start is a multiple of this.
    pub align: u16,
    /// The only start there is.
    pub fixed: Option<PReg>,
    /// What it was before anything was joined to it.
    origin: Origin,
    /// Other clusters that were joined into this one.
    absorbed: SmallVec<[Cluster; 4]>,
    /// Joins on the longest way from a part of it.
    pub depth: u16,
    /// Whether a member has a hint towards another cluster's.
    pub has_hints: bool,
}

impl ClusterInfo {
    /// How many clusters it was made of.
    pub fn parts(&self) -> usize {
        1 + self.absorbed.len()
    }

    /// Whether it began as a link.
    pub fn is_link(&self) -> bool {
        matches!(self.origin, Origin::Link(_))
    }

    #[inline(always)]
    fn alone(origin: Origin, file: File, width: u16, align: u16) -> ClusterInfo {
        ClusterInfo {
            members: SmallVec::new(),
            file,
            width,
            align,
            fixed: None,
            origin,
            absorbed: SmallVec::new(),
            depth: 0,
            has_hints: false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Origin {
    Value(Value),
    /// By its index among the program's links.
    Link(u32),
}

fn of_value(value: Value, ranges: &LiveRanges) -> ClusterInfo {
    let size = ranges.size(value);
    ClusterInfo {
        members: smallvec![Member::alone(value)],
        ..ClusterInfo::alone(Origin::Value(value), size.file, size.width, size.align)
    }
}

fn of_link(link: &Link, index: u32, ranges: &LiveRanges) -> ClusterInfo {
    let members = link.members.iter().map(|&(value, offset)| Member {
        value,
        offset,
        silent: false,
    });
    let ends = link
        .members
        .iter()
        .map(|&(v, offset)| offset + ranges.size(v).width);
    let width = ends.max().unwrap_or(0);
    let file = link
        .members
        .first()
        .map_or(File::MAIN, |&(v, _)| ranges.size(v).file);
    ClusterInfo {
        members: members.collect(),
        fixed: link.fixed,
        ..ClusterInfo::alone(Origin::Link(index), file, width, link.align as u16)
    }
}

/// Every cluster of a program.
pub struct Clusters {
    infos: Vec<ClusterInfo>,
    /// By file, how many there are.
    per_file: Vec<usize>,
    of: Vec<Option<Cluster>>,
    offsets: Vec<u16>,
    hints: Hints,
    /// Clusters that fell apart.
    undone: u32,
}

impl Clusters {
    /// One cluster per link and one per other value that occurs, by first position.
    pub fn new(program: &Program, ranges: &LiveRanges, files: usize) -> Clusters {
        let values = program.values.len();
        let mut clusters = Clusters {
            infos: Vec::with_capacity(ranges.by_start().len()),
            per_file: vec![0; files],
            of: vec![None; values],
            offsets: vec![0; values],
            hints: Hints::default(),
            undone: 0,
        };
        let mut link_of: Vec<Option<u32>> = Vec::new();
        if !program.links.is_empty() {
            link_of.resize(values, None);
            for (index, link) in program.links.iter().enumerate() {
                for &(value, _) in &link.members {
                    link_of[value.index()] = Some(index as u32);
                }
            }
        }
        for &value in ranges.by_start() {
            if clusters.of[value.index()].is_some() {
                continue;
            }
            match link_of.get(value.index()).copied().flatten() {
                Some(index) => {
                    let link = &program.links[index as usize];
                    clusters.push(of_link(link, index, ranges));
                }
                None => clusters.push_value(value, ranges),
            }
        }
        clusters
    }

    /// Most clusters are made here, where they stay.
    fn push_value(&mut self, value: Value, ranges: &LiveRanges) {
        let size = ranges.size(value);
        let origin = Origin::Value(value);
        let cluster = Cluster::new(self.infos.len());
        self.infos.resize_with(cluster.index() + 1, || {
            ClusterInfo::alone(origin, size.file, size.width, size.align)
        });
        self.infos[cluster.index()]
            .members
            .push(Member::alone(value));
        self.of[value.index()] = Some(cluster);
        self.per_file[size.file.index()] += 1;
    }

    fn push(&mut self, info: ClusterInfo) {
        let cluster = Cluster::new(self.infos.len());
        for member in &info.members {
            self.of[member.value.index()] = Some(cluster);
            self.offsets[member.value.index()] = member.offset;
        }
        self.per_file[info.file.index()] += 1;
        self.infos.push(info);
    }

    /// All clusters that have members, in the order their first values begin.
    pub fn iter(&self) -> impl Iterator<Item = (Cluster, &ClusterInfo)> {
        let infos = self.infos.iter().enumerate();
        let infos = infos.map(|(index, info)| (Cluster::new(index), info));
        infos.filter(|(_, info)| !info.members.is_empty())
    }

    /// How many clusters of `file` there are, empty ones included.
    pub fn count(&self, file: File) -> usize {
        self.per_file[file.index()]
    }

    /// The cluster that `value` belongs to, if it occurs.
    pub fn of(&self, value: Value) -> Option<Cluster> {
        self.of[value.index()]
    }

    /// The distance of `value` from its cluster's start.
    pub fn offset(&self, value: Value) -> usize {
        self.offsets[value.index()] as usize
    }

    /// The description of a cluster.
    pub fn info(&self, cluster: Cluster) -> &ClusterInfo {
        &self.infos[cluster.index()]
    }

    /// Joins `b` into `a`, its start `shift` units after that of `a`; `silent` lies within
    /// another member and needs no room.
    pub fn join(&mut self, a: Cluster, b: Cluster, shift: u16, silent: Option<Value>) {
        let mut from = std::mem::take(&mut self.infos[b.index()].members);
        let (width, align, depth) = {
            let info = &self.infos[b.index()];
            (info.width, info.align, info.depth)
        };
        let absorbed = std::mem::take(&mut self.infos[b.index()].absorbed);
        for member in &mut from {
            member.offset += shift;
            self.of[member.value.index()] = Some(a);
            self.offsets[member.value.index()] = member.offset;
        }
        let into = &mut self.infos[a.index()];
        into.members.extend(from);
        into.width = into.width.max(shift + width);
        into.align = into.align.max(align);
        into.depth = into.depth.max(depth) + 1;
        into.absorbed.push(b);
        into.absorbed.extend(absorbed);
        for member in &mut into.members {
            member.silent |= Some(member.value) == silent;
        }
    }

    /// Keeps the hints that may yet be granted.
    pub fn keep_hints(&mut self, ranges: &LiveRanges, affinities: &[Affinity]) {
        let are_together = |a: Value, b: Value| self.of(a) == self.of(b);
        self.hints = Hints::new(ranges, affinities, are_together);
        for value in self.hints.values() {
            if let Some(cluster) = self.of[value.index()] {
                self.infos[cluster.index()].has_hints = true;
            }
        }
    }

    /// What the values of different clusters hint.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }

    /// Lists the hints within clusters too: their values may move apart.
    pub fn reopen_hints(&mut self, ranges: &LiveRanges) {
        self.hints.reopen(ranges);
    }

    /// How many clusters fell apart.
    pub fn undone(&self) -> u32 {
        self.undone
    }

    /// Undoes every join of `cluster` and returns the clusters it was made of.
    pub fn fall_apart(
        &mut self,
        program: &Program,
        ranges: &LiveRanges,
        cluster: Cluster,
    ) -> SmallVec<[Cluster; 4]> {
        let absorbed = std::mem::take(&mut self.infos[cluster.index()].absorbed);
        let parts: SmallVec<[Cluster; 4]> = std::iter::once(cluster)
            .chain(absorbed.iter().copied())
            .collect();
        for &part in &parts {
            let whole = match self.infos[part.index()].origin {
                Origin::Link(index) => of_link(&program.links[index as usize], index, ranges),
                Origin::Value(value) => of_value(value, ranges),
            };
            for member in &whole.members {
                self.of[member.value.index()] = Some(part);
                self.offsets[member.value.index()] = member.offset;
            }
            self.infos[part.index()] = ClusterInfo {
                has_hints: true,
                ..whole
            };
        }
        self.undone += 1;
        self.hints.reopen(ranges);
        parts
    }
}
