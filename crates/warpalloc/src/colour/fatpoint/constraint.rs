//! What restricts a cluster's registers besides its neighbours.
//!
//! [`chain`] lists the records of a cluster that rule out starts whatever else is placed. A
//! cluster with an empty chain is *unconstrained*. The constraint types that ptxas is
//! reported to have, and where each of them shows here, are in
//! `docs/sources.md#fatpoint-constraints`.

use super::cluster::{ClusterInfo, Member};
use crate::ir::{LiveRanges, Program};
use crate::target::{Target, UnitSet};
use smallvec::SmallVec;

/// A record that restricts where a cluster may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint<const W: usize> {
    /// Units overwritten while the member at `offset` is live.
    Point {
        /// The member's distance from the start.
        offset: usize,
        /// The member's width.
        width: usize,
        /// What is overwritten.
        units: UnitSet<W>,
    },
    /// Starts are multiples of this.
    Paired {
        /// The alignment.
        align: usize,
    },
    /// Units the member at `offset` may not touch.
    ExcludeOne {
        /// The member's distance from the start.
        offset: usize,
        /// The member's width.
        width: usize,
        /// What it may not touch.
        units: UnitSet<W>,
    },
    /// It starts here.
    ExcludeAllBut {
        /// The only start.
        start: usize,
    },
}

impl<const W: usize> Constraint<W> {
    /// Starts it rules out.
    pub fn blocked(&self) -> UnitSet<W> {
        let all = UnitSet([u64::MAX; W]);
        match self {
            Constraint::Point {
                offset,
                width,
                units,
            }
            | Constraint::ExcludeOne {
                offset,
                width,
                units,
            } => units.blocked_starts(*width).down(*offset),
            Constraint::Paired { align } => all.without(&UnitSet::multiples_of(*align)),
            Constraint::ExcludeAllBut { start } => {
                all.without(&UnitSet::of(std::iter::once(*start)))
            }
        }
    }
}

/// The records of one cluster.
pub type Chain<const W: usize> = SmallVec<[Constraint<W>; 2]>;

/// What restricts `info` on its own, its neighbours aside.
pub fn chain<const W: usize>(
    program: &Program,
    target: &Target,
    ranges: &LiveRanges,
    info: &ClusterInfo,
) -> Chain<W> {
    let mut chain = Chain::new();
    each(program, target, ranges, info, |record| chain.push(record));
    chain
}

/// Whether something other than alignment may restrict `info` on its own; quickly told.
#[inline]
pub fn is_restricted(program: &Program, ranges: &LiveRanges, info: &ClusterInfo) -> bool {
    let restricted = |member: &Member| {
        ranges.crosses_clobber(member.value) || program.values[member.value].forbidden.is_some()
    };
    info.fixed.is_some() || info.members.iter().any(restricted)
}

/// Whether anything restricts `info` on its own.
pub fn is_constrained(program: &Program, ranges: &LiveRanges, info: &ClusterInfo) -> bool {
    let restricted = |member: &Member| {
        let excluded = program.values[member.value].forbidden.is_some();
        let clobbered = || !member.silent && !ranges.clobbered(member.value).is_empty();
        excluded || (ranges.crosses_clobber(member.value) && clobbered())
    };
    info.fixed.is_some() || info.align > 1 || info.members.iter().any(restricted)
}

/// Calls `visit` with each record of `info`.
#[inline]
pub fn each<const W: usize>(
    program: &Program,
    target: &Target,
    ranges: &LiveRanges,
    info: &ClusterInfo,
    mut visit: impl FnMut(Constraint<W>),
) {
    if let Some(reg) = info.fixed {
        // A fixed place was proved to hold the link; nothing else decides.
        let start = reg.unit as usize;
        visit(Constraint::ExcludeAllBut { start });
        return;
    }
    if info.align > 1 {
        let align = info.align as usize;
        visit(Constraint::Paired { align });
    }
    let file = target.file(info.file);
    let has_reserved = file.capacity != file.units;
    for member in &info.members {
        let (offset, width) = (
            member.offset as usize,
            ranges.size(member.value).width as usize,
        );
        if has_reserved {
            visit(Constraint::ExcludeOne {
                offset,
                width,
                units: file.reserved_units().widened(),
            });
        }
        if let Some(forbidden) = &program.values[member.value].forbidden {
            let units = UnitSet::of_file(target, info.file, forbidden);
            visit(Constraint::ExcludeOne {
                offset,
                width,
                units,
            });
        }
        if member.silent || !ranges.crosses_clobber(member.value) {
            continue;
        }
        let units: UnitSet<W> = ranges.clobbered(member.value).widened();
        if !units.is_empty() {
            visit(Constraint::Point {
                offset,
                width,
                units,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_rules_out_what_it_says() {
        let starts = |c: Constraint<1>| {
            let free = UnitSet::first(8).without(&c.blocked());
            free.iter().collect::<Vec<_>>()
        };
        let mut units = UnitSet::EMPTY;
        units.insert(4);
        assert_eq!(
            starts(Constraint::Point {
                offset: 0,
                width: 1,
                units
            }),
            [0, 1, 2, 3, 5, 6, 7]
        );
        assert_eq!(
            starts(Constraint::ExcludeOne {
                offset: 1,
                width: 2,
                units
            }),
            [0, 1, 4, 5, 6, 7]
        );
        assert_eq!(starts(Constraint::Paired { align: 4 }), [0, 4]);
        assert_eq!(starts(Constraint::ExcludeAllBut { start: 6 }), [6]);
    }
}
